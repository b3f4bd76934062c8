package mapping_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
)

// A field is named in event_time and in for_each as it is in expressions.
func TestDocPaths(t *testing.T) {
	t.Parallel()
	const payload = `{"event time":70,"time":80,"doc":{"event time":90,"x":[7]},"a b":[1,{"c d":[2]}],"x":[5]}`
	for _, c := range []struct{ field, forEach, want string }{
		{`doc["event time"]`, `e in doc["a b"]`, "t \"r\"\n  put e:q @70 \"1\"\nt \"r\"\n  put e:q @70 \"{\\\"c d\\\":[2]}\"\n"},
		{`["event time"]`, `e in ["a b"]`, "t \"r\"\n  put e:q @70 \"1\"\nt \"r\"\n  put e:q @70 \"{\\\"c d\\\":[2]}\"\n"},
		{"doc.time", `e in doc["a b"][1]["c d"]`, "t \"r\"\n  put e:q @80 \"2\"\n"},
		{"time", "e in doc.x", "t \"r\"\n  put e:q @80 \"5\"\n"},
		{`doc.doc["event time"]`, "e in doc.doc.x", "t \"r\"\n  put e:q @90 \"7\"\n"},
		{`doc["doc"]["event time"]`, `e in doc["doc"].x`, "t \"r\"\n  put e:q @90 \"7\"\n"},
	} {
		m := compile(t, &mapping.Spec{
			Decode:    mapping.DecodeSpec{Format: "json"},
			EventTime: mapping.EventTimeSpec{Field: c.field, Format: "unix_ms", Required: true},
			Rules:     []mapping.RuleSpec{{Table: "t", Row: `"r"`, ForEach: []string{c.forEach}, Put: put("e")}},
		})
		if diff := cmp.Diff(c.want, show(t, m, payload)); diff != "" {
			t.Errorf("%s, %s (-want +got):\n%s", c.field, c.forEach, diff)
		}
	}
}

// An expression in the place of a path is a mistake, and no field that is never there: its
// loop would go through nothing, and its time be the record's.
func TestExpressionsAreNoPaths(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"filter(cart, #.n > 1)", "cart ?? []", "keys(geo)", "ts * 1000", "ts / 1000", "a - b", "doc", "ts+1", "a == b", "{a}"} {
		for place, spec := range map[string]*mapping.Spec{
			"event_time.field":     {EventTime: mapping.EventTimeSpec{Field: text, Format: "unix_ms"}, Rules: []mapping.RuleSpec{{Table: "t", Row: "key", Put: put("1")}}},
			"map[0].for_each[0]: ": {Rules: []mapping.RuleSpec{{Table: "t", Row: "key", ForEach: []string{"x in " + text}, Put: put("1")}}},
		} {
			spec.Decode.Format = "json"
			if _, err := mapping.Compile(spec, nil); err == nil || !strings.Contains(err.Error(), text+" is not the path of a field") {
				t.Errorf("%s: %s: Got %v", place, text, err)
			}
		}
	}
	for _, text := range []string{"@timestamp", "event-time", "event time", "$date", "#text", "a/b", "a:b", `doc["a + b (c)"]`, `["x?"].y`, `a["\"(]"]`, "é.日本"} {
		spec := &mapping.Spec{
			Decode: mapping.DecodeSpec{Format: "json"}, EventTime: mapping.EventTimeSpec{Field: text, Format: "unix_ms"},
			Rules: []mapping.RuleSpec{{Table: "t", Row: "key", ForEach: []string{"x in " + text}, Put: put("1")}},
		}
		if _, err := mapping.Compile(spec, nil); err != nil {
			t.Errorf("%s: Got %v", text, err)
		}
	}
}
