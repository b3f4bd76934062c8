package mapping_test

import (
	"errors"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
)

// guides are the documents with examples of rules.
var guides = []string{"mapping.md", "row-keys.md"}

// guideFile is what the file of mapping.md has of its pipelines.
type guideFile struct {
	Tables    any `yaml:"tables"`
	Pipelines map[string]struct {
		Topics       []string `yaml:"topics"`
		Group        string   `yaml:"group"`
		mapping.Spec `yaml:",inline"`
		Tests        []struct {
			Name, Key, Record, Expect    string
			Partition, Offset, Timestamp int64
			Headers                      map[string]string
		} `yaml:"tests"`
	} `yaml:"pipelines"`
}

// guide is a document taken apart: its fenced blocks by kind. The record of mapping.md is its
// block of JSON, and its rules the first one of YAML.
func guide(t *testing.T, name string) (text string, blocks map[string][]string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	text = string(b)
	blocks = map[string][]string{}
	for _, m := range regexp.MustCompile("(?ms)^```(\\w+)\n(.*?)^```$").FindAllStringSubmatch(text, -1) {
		blocks[m[1]] = append(blocks[m[1]], m[2])
	}
	if name == "mapping.md" {
		var file guideFile
		if err := yaml.UnmarshalWithOptions([]byte(blocks["yaml"][0]), &file, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		test := file.Pipelines["views"].Tests[0]
		spec, err := yaml.Marshal(file.Pipelines["views"].Spec)
		if err != nil {
			t.Fatal(err)
		}
		blocks["json"] = append([]string{test.Record}, blocks["json"]...)
		blocks["yaml"][0] = string(spec)
		blocks["result"] = append([]string{test.Expect}, blocks["result"]...)
	}
	return text, blocks
}

// guideRecord is the record that the guide describes.
func guideRecord(payload string) *mapping.Record {
	return &mapping.Record{
		Topic: "pageviews", Partition: 3, Offset: 7, Timestamp: 1431857103999, Key: []byte("k1"), Value: []byte(payload),
		Headers: []mapping.Header{{Key: []byte("trace"), Value: []byte("abc")}},
	}
}

// evaluate maps one column with the expression and says what became of it.
func evaluate(t *testing.T, expression, payload string) string {
	t.Helper()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "json"},
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
		Rules:     []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: map[string]map[string]string{"f": {"q": expression}}}},
	}, nil)
	if err != nil {
		return "compile error " + err.Error()
	}
	out, err := plan.NewMapper().Map(guideRecord(payload))
	var e *mapping.Error
	switch {
	case errors.As(err, &e):
		return "error " + e.Class
	case err != nil:
		return err.Error()
	case out.Filtered():
		return "left out"
	}
	return strconv.Quote(string(out.Mutations[0].Ops[0].Value))
}

// Every expression of a guide has the value that stands beside it, and every
// function has one in mapping.md.
func TestGuideExpressions(t *testing.T) {
	t.Parallel()
	for _, name := range guides {
		_, blocks := guide(t, name)
		payload := blocks["json"][0]
		all := strings.Join(blocks["expressions"], "")
		for line := range strings.Lines(all) {
			expression, want, ok := strings.Cut(strings.TrimSpace(line), "=> ")
			if !ok {
				t.Errorf("%s: %q has no =>", name, line)
				continue
			}
			if got := evaluate(t, strings.TrimSpace(expression), payload); got != want {
				t.Errorf("%s: %s\ngot  %s\nwant %s", name, expression, got, want)
			}
		}
		if name != "mapping.md" {
			continue
		}
		for _, function := range mapping.FunctionNames() {
			if !regexp.MustCompile(`(?m)\b` + function + `\(`).MatchString(all) {
				t.Errorf("function %s has no example in the guide", function)
			}
		}
	}
}

// The rules of a guide do to its record what it says.
func TestGuideRules(t *testing.T) {
	t.Parallel()
	for _, name := range guides {
		_, blocks := guide(t, name)
		var spec mapping.Spec
		if err := yaml.UnmarshalWithOptions([]byte(blocks["yaml"][0]), &spec, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		plan, err := mapping.Compile(&spec, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		out, err := plan.NewMapper().Map(guideRecord(blocks["json"][0]))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := dump(out)
		if name == "mapping.md" { // what its test expects is spelled as in the shell
			got = string(out.AppendText(nil))
		}
		if diff := cmp.Diff(blocks["result"][0], got); diff != "" {
			t.Errorf("%s: output (-guide +got):\n%s", name, diff)
		}
	}
}

// Every further example of rules does to the record what the lines behind it say.
func TestGuideLines(t *testing.T) {
	t.Parallel()
	_, blocks := guide(t, "mapping.md")
	rules, want := blocks["rules"], blocks["lines"]
	if len(rules) != len(want) || len(rules) == 0 {
		t.Fatalf("got %d examples and %d results", len(rules), len(want))
	}
	for i := range rules {
		spec := mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"}}
		if err := yaml.UnmarshalWithOptions([]byte(rules[i]), &spec, yaml.Strict()); err != nil {
			t.Fatalf("%s: %v", rules[i], err)
		}
		plan, err := mapping.Compile(&spec, nil)
		if err != nil {
			t.Fatalf("%s: %v", rules[i], err)
		}
		out, err := plan.NewMapper().Map(guideRecord(blocks["json"][0]))
		if err != nil {
			t.Fatalf("%s: %v", rules[i], err)
		}
		if diff := cmp.Diff(want[i], string(out.AppendText(nil))); diff != "" {
			t.Errorf("%s\n(-guide +got):\n%s", rules[i], diff)
		}
	}
}

// Every further piece of rules in a guide compiles.
func TestGuidePieces(t *testing.T) {
	t.Parallel()
	compiled := 0
	for _, name := range guides {
		_, blocks := guide(t, name)
		for _, text := range blocks["yaml"] {
			if strings.HasPrefix(text, "pipelines:") {
				continue // tests of a mapping, or a pipeline: not only rules
			}
			var spec mapping.Spec
			if err := yaml.UnmarshalWithOptions([]byte(text), &spec, yaml.Strict()); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
			if len(spec.Rules)+len(spec.Rollups) == 0 {
				spec.Rules = []mapping.RuleSpec{{Table: "t", Row: "key", Put: map[string]map[string]string{"f": {"q": "value"}}}}
			}
			if _, err := mapping.Compile(&spec, nil); err != nil {
				t.Errorf("%s: %v\n%s", name, err, text)
			}
			compiled++
		}
	}
	if compiled < 5 {
		t.Errorf("Got %d pieces", compiled)
	}
}

// The guide names every class of errors.
func TestGuideClasses(t *testing.T) {
	t.Parallel()
	text, _ := guide(t, "mapping.md")
	for _, class := range mapping.Classes() {
		if !strings.Contains(text, "`"+class+"`") {
			t.Errorf("class %s is not in the guide", class)
		}
	}
}
