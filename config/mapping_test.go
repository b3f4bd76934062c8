package config_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/config"
)

// rulesFile is a file with one pipeline, whose keys from line 11 on are rules.
func rulesFile(rules string) string {
	return tables + "pipelines:\n  p:\n    topics: [t]\n    group: g\n    decode: {format: json}\n" + rules
}

// A mistake in an expression has its column, however the file spells the text: without
// quotes, in either ones, and with characters of several bytes.
func TestExpressionPlaces(t *testing.T) {
	t.Parallel()
	const file = `    map:
      - table: events
        row: id + uper(id)
        when: uper(id) == "a"
        put:
          e:
            a: id + "é" + uper(id)
            b: 'id + "é" + uper(id)'
            c: 'id + ''é'' + uper(id)'
            d: "id + \"é\" + uper(id)"
            e: "id + '\t\_' + uper(id)"
            f: id + uper(id) # a comment
            g: |
              id + uper(id)
            h: id +
              uper(id)
            i: "'\u00e9n' + uper(id)"
        increment: [{family: n, qualifier: id + uper(id), by: uper(id)}]
`
	_, err := config.Parse("f.yaml", []byte(rulesFile(file)), nil)
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("Got %v, want problems", err)
	}
	// Of a text of several lines, or with an escape of digits, it is the place where that begins.
	want := map[int]string{23: "g: ", 25: "h: ", 27: "i: "}
	lines := strings.Split(rulesFile(file), "\n")
	for _, p := range problems {
		line := lines[p.Line-1]
		place := string([]rune(line)[p.Col-1:])
		before, several := want[p.Line]
		delete(want, p.Line)
		switch {
		case p.Message != "no function uper":
			t.Errorf("Got %s", p)
		case several && !strings.HasSuffix(strings.TrimSuffix(line, place), before), !several && !strings.HasPrefix(place, "uper"):
			t.Errorf("Got %s, which is before %q", p, place)
		}
	}
	if len(want) > 0 || len(problems) != 13 {
		t.Errorf("Got %d problems:\n%v", len(problems), problems)
	}
}

// Mistakes in what rules do are found with their place in the file.
func TestMappingProblems(t *testing.T) {
	t.Parallel()
	const file = `    dedup: {id: 'uper(id)', ttl: 10ms}
    map:
      - table: events
        for_each: [item in items, "gift, item in item.gifts"]
        row: item.sku
        check: {family: f, qualifier: '"q" + ', op: abent}
        append: {n: {q: v}}
      - table: events
        row: id
        delete:
          - {what: rows}
          - {what: column, famly: e}
        put: {e: {q: v}}
`
	_, err := config.Parse("f.yaml", []byte(rulesFile(file)), nil)
	var problems config.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("Got %v, want problems", err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.String())
	}
	want := []string{
		`f.yaml:11:17: no function uper (did you mean "upper"?)`,
		`f.yaml:11:34: ttl is 10ms, must be 1s or more`,
		`f.yaml:14:42: item is given twice (choose another name)`,
		`f.yaml:16:25: table events has no family f (did you mean "e"?)`,
		`f.yaml:16:45: unexpected token EOF`,
		`f.yaml:16:53: no comparison "abent" (did you mean "absent"?)`,
		`f.yaml:17:18: family n of table events has COUNTER and takes increments only (use increment, or a family without COUNTER)`,
		`f.yaml:20:9: a rule that deletes does nothing else (a delete hides what is put at its timestamp: make it a rule of its own, with timestamp: time - 1)`,
		`f.yaml:21:20: cannot delete a "rows" (did you mean "row"?)`,
		`f.yaml:22:13: the family is not given`,
		`f.yaml:22:13: the qualifier is not given (an expression; "page" in quotes is a constant)`,
		`f.yaml:22:28: unknown key "famly" in pipelines.p.map[1].delete[1] (did you mean "family"?)`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("problems (-want +got):\n%s", diff)
	}
}

func TestMappingSettings(t *testing.T) {
	t.Parallel()
	const file = `    event_time: {field: ts, format: unix_ms, allowed_lateness: 7d, max_future: 10m}
    dedup: {id: id, ttl: 2d}
    map:
      - table: events
        for_each: [item in items]
        row: item.sku
        check: {family: e, qualifier: '"q"', op: absent}
        put: {e: {q: v}}
      - {table: events, row: id, timestamp: time - 1, delete: [{what: row}]}
      - {table: events, row: id, append: {e: {log: v}}, increment: [{family: n, qualifier: v}]}
`
	c, err := config.Parse("f.yaml", []byte(rulesFile(file)), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := c.Pipelines["p"].Spec
	if s.Dedup.TTL != 48*time.Hour || s.EventTime.AllowedLateness != 7*24*time.Hour || s.EventTime.MaxFuture != 10*time.Minute {
		t.Errorf("Got %+v, %+v", s.Dedup, s.EventTime)
	}
	if _, err := c.PipelineOptions("p"); err != nil {
		t.Error(err)
	}
}
