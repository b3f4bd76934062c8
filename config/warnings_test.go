package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
)

// A policy for a class that the pipeline's rules cannot make is warned of, at its place, and is
// no mistake; one that may apply is not.
func TestWarnings(t *testing.T) {
	t.Parallel()
	parse := func(decode, eventTime, policies string) []string {
		t.Helper()
		file := fmt.Sprintf(`%spipelines:
  p:
    topics: [t]
    group: g
    decode: {%s}
    event_time: {%s}
    dead_letters: {policies: {%s}}
    map: [{table: events, row: key, put: {e: {a: value}}}]
`, tables, decode, eventTime, policies)
		c, err := config.Parse("f.yaml", []byte(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		var texts []string
		for _, w := range c.Warnings() {
			texts = append(texts, w.String())
		}
		return texts
	}
	const policies = "decode: drop, json: drop, ndjson: drop, late: drop, future: dlq, record_too_large: drop, headers_too_large: drop, no_schema: retry, bad_row: drop, map: drop, no_such_table: retry, panic: drop"
	got := parse("format: ndjson", "", policies)
	var want []string
	for _, w := range [][2]string{
		{"json", "decode.format is ndjson, which is the class of what breaks it"},
		{"late", "there is no event_time.allowed_lateness"},
		{"future", "there is no event_time.max_future"},
		{"record_too_large", "there is no decode.max_record_bytes"},
		{"headers_too_large", "there is no decode.max_header_bytes"},
		{"no_schema", "no schemas are asked of a registry"},
	} {
		col := len("    dead_letters: {policies: {") + strings.Index(policies, " "+w[0]+":") + len(w[0]) + len(" : ") + 1
		want = append(want, fmt.Sprintf("f.yaml:12:%d: this pipeline refuses no record with the class %s: %s (remove the policy, if it is not one that pipelines share)", col, w[0], w[1]))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := parse("format: json, max_record_bytes: 1MiB, max_header_bytes: 1KiB", "field: ts, format: unix_ms, allowed_lateness: 1h, max_future: 1h", "json: drop, late: drop, future: drop, record_too_large: drop, headers_too_large: drop"); got != nil {
		t.Errorf("Got %q of policies that may apply", got)
	}
}

// What the embedded engine alone has is warned of where the engine is HBase.
func TestWarningsOfOtherEngine(t *testing.T) {
	t.Parallel()
	const file = `store:
  engine: %s
  counter_cache: 1000
  cache: 1GiB
`
	warnings := func(engine string) (texts []string) {
		t.Helper()
		c, err := config.Parse("f.yaml", fmt.Appendf(nil, file, engine), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.Warnings() {
			texts = append(texts, w.String())
		}
		return texts
	}
	want := []string{
		"f.yaml:3:18: store.counter_cache is of engine pebble, and has no effect with hbase (write store.hbase.counter_cache)",
		"f.yaml:4:10: store.cache is of engine pebble, and has no effect with hbase",
	}
	if d := cmp.Diff(want, warnings("hbase")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := warnings("pebble"); got != nil {
		t.Errorf("Got %q of settings that the engine has", got)
	}
}

// A column of a job that is named almost as one that a rule writes is warned of: it would be
// null in every row.
func TestWarningsOfColumns(t *testing.T) {
	t.Parallel()
	const file = `tables: {t: {families: {e: {}, f: {}}}}
pipelines:
  p:
    topics: [a]
    group: g
    decode: {format: json}
    map:
      - {table: t, row: key, put: {e: {country: country, page: page}}}
      - {table: t, row: key, append: {e: {trail: page}}}
jobs:
  j:
    table: t
    out: o
    columns:
      - {name: a, from: "e:county", type: string}
      - {name: b, from: "e:country", type: string}
      - {name: c, from: "e:trail", type: string}
      - {name: d, from: "f:county", type: string}
      - {name: e, from: "e:of_another", type: string}
      - {name: f, from: $row, type: string}
      - {name: g, from: "e:p", type: string}
`
	c, err := config.Parse("f.yaml", []byte(file), nil)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, w := range c.Warnings() {
		got = append(got, w.String())
	}
	want := []string{"f.yaml:15:25: no rule of this file writes column e:county of table t (did you mean \"country\"?)"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A name of the record that is a field of the format, too, is warned of.
func TestWarningsOfHiddenFields(t *testing.T) {
	t.Parallel()
	warnings := func(decode, eventTime, expression string) (texts []string) {
		t.Helper()
		file := fmt.Sprintf("%spipelines:\n  p:\n    topics: [t]\n    group: g\n    decode: {%s}\n    event_time: {%s}\n    map: [{table: events, row: '\"r\"', put: {e: {a: '%s'}}}]\n", tables, decode, eventTime, expression)
		c, err := config.Parse("f.yaml", []byte(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range c.Warnings() {
			_, text, _ := strings.Cut(w.String(), ": ")
			texts = append(texts, text)
		}
		return texts
	}
	for _, tt := range []struct{ decode, eventTime, expression, want string }{
		{"format: csv, columns: [value, x]", "", "value", "value is of the record here, and csv has a field value, too (write doc.value for the field)"},
		{"format: csv, columns: [value, x]", "", "doc.value + x + key", ""},
		{"format: combined", "", `date(time, "yyyy")`, "time is of the record here, and combined has a field time, too (write doc.time for the field, or name it as event_time.field)"},
		{"format: combined", "field: time, format: unix_ms", `date(time, "yyyy")`, ""},
		{"format: json", "", "time + value", ""},
	} {
		if got := strings.Join(warnings(tt.decode, tt.eventTime, tt.expression), "\n"); got != tt.want {
			t.Errorf("%s, %s: got %q, want %q", tt.decode, tt.expression, got, tt.want)
		}
	}
}

// A field that is a text in every record equals no number: the rule was meant for what the text says.
func TestWarningsOfTextsThatAreNoNumbers(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ decode, when, want string }{
		{"format: csv, columns: [n, m]", "n == 1", "f.yaml:11:45: the field n of csv is a text, which no number is equal to: n == … is false of every record (write int(n) or float(n))"},
		{"format: tsv, columns: [n, m]", "1.5 != doc.n", "f.yaml:11:45: the field n of tsv is a text, which no number is equal to: n != … is true of every record (write int(n) or float(n))"},
		{"format: logfmt", "n == true", "f.yaml:11:45: the field n of logfmt is a text, which no boolean is equal to: n == … is false of every record (write n == \"true\" or \"false\")"},
		{"format: csv, columns: [n, m]", "n == nil or int(n) == 1 or n != m or 3 == offset", ""},
		{"format: csv, columns: [n, m]", "n == \"1\"", ""},
		{"format: json", "n == 1", ""},
	} {
		file := fmt.Sprintf("%spipelines:\n  p:\n    topics: [t]\n    group: g\n    decode: {%s}\n    map: [{table: events, row: '\"r\"', when: '%s', put: {e: {a: '\"x\"'}}}]\n", tables, tt.decode, tt.when)
		c, err := config.Parse("f.yaml", []byte(file), nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, w := range c.Warnings() {
			got = append(got, w.String())
		}
		if got := strings.Join(got, "\n"); got != tt.want {
			t.Errorf("%s, %s: got %q, want %q", tt.decode, tt.when, got, tt.want)
		}
	}
}
