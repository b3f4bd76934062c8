package mapping_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"

	"sluice/counters"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// rollupSpec is a Spec of rollups on JSON payloads.
func rollupSpec(rollups ...mapping.RollupSpec) *mapping.Spec {
	return &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "ndjson"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "rfc3339"}, Rollups: rollups,
	}
}

// operations maps a payload and returns what it becomes as the shell spells it, or
// its error.
func operations(t *testing.T, m *mapping.Mapper, payload string) string {
	t.Helper()
	out, err := m.Map(&mapping.Record{Topic: "t", Value: []byte(payload)})
	if err != nil {
		return err.Error()
	}
	return string(mapping.AppendText(nil, out.Mutations))
}

// The rollups of the guide do to its record what it says.
func TestGuideRollups(t *testing.T) {
	t.Parallel()
	_, blocks := guide(t, "mapping.md")
	var found bool
	for _, text := range blocks["yaml"] {
		var spec mapping.Spec
		if !strings.Contains(text, "\nrollups:") {
			continue
		}
		if err := yaml.UnmarshalWithOptions([]byte(text), &spec, yaml.Strict()); err != nil {
			t.Fatal(err)
		}
		if len(spec.Rollups) == 0 {
			continue
		}
		tables := func(string) *store.TableDescriptor { return statsTable() }
		plan, err := mapping.Compile(&spec, tables)
		if err != nil {
			t.Fatal(err)
		}
		out, err := plan.NewMapper().Map(guideRecord(blocks["json"][0]))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(blocks["ops"][0], string(mapping.AppendText(nil, out.Mutations))); diff != "" {
			t.Errorf("operations (-guide +got):\n%s", diff)
		}
		found = true
	}
	if !found {
		t.Error("the guide has no rollups")
	}
}

// statsTable has a family for every bucket, of counts and of distinct counts.
func statsTable() *store.TableDescriptor {
	d := &store.TableDescriptor{Name: "stats"}
	for _, name := range counters.BucketNames() {
		b, _ := counters.ParseBucket(name)
		count, distinct := store.NewFamily(b.Family(false)), store.NewFamily(b.Family(true))
		count.Counter, distinct.Distinct = true, true
		d.Families = append(d.Families, count, distinct)
	}
	return d
}

func TestRollups(t *testing.T) {
	t.Parallel()
	m := compile(t, rollupSpec(mapping.RollupSpec{
		Name: "bytes", Table: "stats", When: "n != 0", By: "n", Zone: "Europe/Berlin",
		Dimensions: map[string]string{"host": "lower(host)", "path": "path"},
		Sets:       [][]string{{"host"}, {"path", "host"}},
		Buckets:    []string{"minute", "week", "month"},
	}, mapping.RollupSpec{
		Name: "visitors", Table: "stats", Distinct: `user + "@" + host`, Buckets: []string{"day", "total"},
	}))
	tests := []struct{ name, payload, want string }{
		// The documents of one record have buckets of their own, though names are cached.
		{"two documents", `{"ts":"2026-11-21T23:30:00Z","host":"A","path":"/x","n":3,"user":"u"}
{"ts":"2026-11-22T23:30:00Z","host":"B","path":"/x","n":-4}
`, `incr 'stats', "bytes/host\x00a", 'minute:202611212330', 3, 1795303800000
incr 'stats', "bytes/host\x00a", 'week:20261116', 3, 1795303800000
incr 'stats', "bytes/host\x00a", 'month:202611', 3, 1795303800000
incr 'stats', "bytes/path,host\x00/x\x00a", 'minute:202611212330', 3, 1795303800000
incr 'stats', "bytes/path,host\x00/x\x00a", 'week:20261116', 3, 1795303800000
incr 'stats', "bytes/path,host\x00/x\x00a", 'month:202611', 3, 1795303800000
append 'stats', 'visitors/', 'distinct_day:20261121', 'u@A', 1795303800000
append 'stats', 'visitors/', 'distinct_total:total', 'u@A', 1795303800000
incr 'stats', "bytes/host\x00b", 'minute:202611222330', -4, 1795390200000
incr 'stats', "bytes/host\x00b", 'week:20261123', -4, 1795390200000
incr 'stats', "bytes/host\x00b", 'month:202611', -4, 1795390200000
incr 'stats', "bytes/path,host\x00/x\x00b", 'minute:202611222330', -4, 1795390200000
incr 'stats', "bytes/path,host\x00/x\x00b", 'week:20261123', -4, 1795390200000
incr 'stats', "bytes/path,host\x00/x\x00b", 'month:202611', -4, 1795390200000
`}, // a Sunday's 23:30 in UTC is Monday in Berlin
		{"left out", `{"ts":"2026-11-21T23:30:00Z","n":0}`, ""},
		{"no dimension", `{"ts":"2026-11-21T23:30:00Z","n":1,"host":"A"}`, "map: missing_field: rollups[0].dimensions: field path is missing or null"},
		{"no number", `{"ts":"2026-11-21T23:30:00Z","n":"x","host":"A","path":"/"}`, `map: bad_value: rollups[0].by: "x" is no integer`},
		{"far future", `{"ts":"9999-12-31T00:00:00Z","n":1,"host":"A","path":"/"}`, `map: bad_value: rollups[0].buckets: 253402214400000 ms since 1970 is not before 9999-12-31, where the names of buckets end`},
		{"long", `{"ts":"2026-11-21T23:30:00Z","n":1,"host":"` + strings.Repeat("a", 32760) + `","path":"/"}`, `map: bad_row: rollups[0].sets[0]: 32771 bytes: cell: row key is longer than 32767 bytes`},
		{"zero bytes", `{"ts":"2026-11-21T23:30:00Z","n":1,"host":"A\u0000","path":"\u0001"}`, `incr 'stats', "bytes/host\x00a\x01\x01", 'minute:202611212330', 1, 1795303800000
incr 'stats', "bytes/host\x00a\x01\x01", 'week:20261116', 1, 1795303800000
incr 'stats', "bytes/host\x00a\x01\x01", 'month:202611', 1, 1795303800000
incr 'stats', "bytes/path,host\x00\x01\x02\x00a\x01\x01", 'minute:202611212330', 1, 1795303800000
incr 'stats', "bytes/path,host\x00\x01\x02\x00a\x01\x01", 'week:20261116', 1, 1795303800000
incr 'stats', "bytes/path,host\x00\x01\x02\x00a\x01\x01", 'month:202611', 1, 1795303800000
`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, operations(t, m, tt.payload)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// What a record becomes does not depend on the records before it: the names of
// buckets end at one instant, whatever bucket was named last.
func TestRollupNamesEndAtOnce(t *testing.T) {
	t.Parallel()
	m := compile(t, rollupSpec(mapping.RollupSpec{Name: "n", Table: "stats", Zone: "Asia/Tokyo", Buckets: []string{"day", "month", "total"}}))
	for range 2 {
		if got := operations(t, m, `{"ts":"9999-12-30T23:59:59.999Z"}`); !strings.Contains(got, "day:99991231") || !strings.Contains(got, "month:999912") {
			t.Errorf("before the end: %s", got)
		}
		if got, want := operations(t, m, `{"ts":"9999-12-31T00:00:00Z"}`), "map: bad_value: rollups[0].buckets: 253402214400000 ms since 1970 is not before 9999-12-31, where the names of buckets end"; got != want {
			t.Errorf("at the end: got %s, want %s", got, want)
		}
	}
	m = compile(t, rollupSpec(mapping.RollupSpec{Name: "n", Table: "stats", Buckets: []string{"total"}}))
	if got, want := operations(t, m, `{"ts":"9999-12-31T00:00:00Z"}`), "incr 'stats', 'n/', 'total:total', 1, 253402214400000\n"; got != want {
		t.Errorf("in total: got %s, want %s", got, want)
	}
}

// A record cannot choose to become millions of mutations by its documents either.
func TestRollupsAreBounded(t *testing.T) {
	t.Parallel()
	m := compile(t, rollupSpec(mapping.RollupSpec{
		Name: "n", Table: "stats", Dimensions: map[string]string{"a": `"1"`, "b": `"2"`}, Sets: [][]string{{"a"}, {"b"}, {"a", "b"}}, Buckets: []string{"total"},
	}))
	if got := strings.Count(operations(t, m, strings.Repeat("{}\n", 33_333)), "\n"); got != 99_999 {
		t.Errorf("got %d operations, want 99999", got)
	}
	if got, want := operations(t, m, strings.Repeat("{}\n", 33_334)), "map: too_many: rollups[0].sets[1]: the record becomes more than 100000 mutations"; got != want {
		t.Errorf("got %.200q, want %q", got, want)
	}
}

// Every mistake in a rollup is found, all at once, with its place.
func TestRollupMistakes(t *testing.T) {
	t.Parallel()
	good := mapping.RollupSpec{
		Name: "views", Table: "stats", Dimensions: map[string]string{"a": "a", "b": "b"}, Sets: [][]string{{"a"}, {"a", "b"}}, Buckets: []string{"hour", "day"},
	}
	tests := []struct {
		name   string
		change func(*mapping.RollupSpec)
		want   []string
	}{
		{"none", func(*mapping.RollupSpec) {}, nil},
		{"empty", func(r *mapping.RollupSpec) { *r = mapping.RollupSpec{} }, []string{
			"rollups[0].name: a name has 1..64 characters, not 0",
			"rollups[0].table: the table is not given",
			"rollups[0].buckets: there are no buckets (there are minute, hour, day, week, month, total)",
		}},
		{"names", func(r *mapping.RollupSpec) {
			r.Name, r.Table, r.Dimensions, r.Sets = "a/b", "nope", map[string]string{"c d": "c"}, nil
		}, []string{
			`rollups[0].name: name "a/b": '/' is not allowed; letters of ASCII, digits, - and _ are`,
			`rollups[0].table: no table nope (declare it under tables)`,
			`rollups[0].dimensions.c d: name "c d": ' ' is not allowed; letters of ASCII, digits, - and _ are`,
		}},
		{"table with an expression", func(r *mapping.RollupSpec) { r.Table = "t_{a}" }, []string{
			"rollups[0].table: the table of a rollup is one name without expressions (the time is in its buckets)",
		}},
		{"no order", func(r *mapping.RollupSpec) { r.Sets = nil }, []string{
			"rollups[0].sets: sets does not say by which of the dimensions to count, and in which order (sets: [[a, b]])",
		}},
		{"sets", func(r *mapping.RollupSpec) {
			r.Dimensions["page"] = "page"
			r.Sets = [][]string{{"a"}, {"a"}, {"a", "b", "a"}, {"pages"}}
		}, []string{
			"rollups[0].sets[1]: the set is there twice",
			"rollups[0].sets[2][2]: dimension a is there twice",
			`rollups[0].sets[3][0]: no dimension "pages" (did you mean "page"?)`,
			"rollups[0].dimensions.page: no set has the dimension page (remove it, or add it to a set)",
		}},
		{"buckets", func(r *mapping.RollupSpec) { r.Buckets = []string{"hours", "year", "day", "day"} }, []string{
			`rollups[0].buckets[0]: no bucket "hours" (did you mean "hour"?)`,
			`rollups[0].buckets[1]: no bucket "year" (there are minute, hour, day, week, month, total)`,
			`rollups[0].buckets[3]: bucket day is there twice`,
		}},
		{"zones", func(r *mapping.RollupSpec) { r.Zone = "Mars/Olympus" }, []string{`rollups[0].zone: no time zone "Mars/Olympus": write an IANA name such as Europe/Berlin`}},
		{"zone of hours", func(r *mapping.RollupSpec) { r.Zone, r.Buckets = "Europe/Berlin", []string{"hour"} }, []string{
			"rollups[0].zone: minutes and hours are UTC's: no bucket begins by a zone (remove it)",
		}},
		{"expressions", func(r *mapping.RollupSpec) { r.When, r.By, r.Dimensions["a"] = "1", "true", "now()" }, []string{
			"rollups[0].when: the condition is an integer, not true or false",
			"rollups[0].by: the value is true or false, not an integer",
			"rollups[0].dimensions.a: now() is not allowed: a record must map the same way every time",
		}},
		{"two things", func(r *mapping.RollupSpec) { r.By, r.Distinct = "1", "a" }, []string{
			"rollups[0].distinct: by and distinct exclude each other (declare two rollups)",
		}},
		{"families", func(r *mapping.RollupSpec) { r.Table = "few" }, []string{
			"rollups[0].buckets[0]: family hour of table few has not COUNTER (declare hour: {COUNTER: true})",
			"rollups[0].buckets[1]: table few has no family day (declare day: {COUNTER: true})",
		}},
		{"distinct families", func(r *mapping.RollupSpec) { r.Table, r.Distinct = "few", "a" }, []string{
			"rollups[0].buckets[0]: table few has no family distinct_hour (declare distinct_hour: {DISTINCT: true})",
			"rollups[0].buckets[1]: family distinct_day of table few has not DISTINCT (declare distinct_day: {DISTINCT: true})",
		}},
		{"too much", func(r *mapping.RollupSpec) {
			r.Dimensions, r.Sets = map[string]string{}, [][]string{{}}
			for i := range 33 {
				name := fmt.Sprintf("d%d", i)
				r.Dimensions[name] = "a"
				r.Sets = append(r.Sets, []string{name})
			}
		}, []string{"rollups[0].sets: 34 sets in 2 buckets are 68 counters an event, at most 64"}},
	}
	few := &store.TableDescriptor{Name: "few", Families: []store.FamilyDescriptor{store.NewFamily("hour"), store.NewFamily("distinct_day")}}
	few.Families[1].Counter = true
	tables := func(name string) *store.TableDescriptor {
		return map[string]*store.TableDescriptor{"stats": statsTable(), "few": few}[name]
	}
	mistakes := func(s *mapping.Spec) []string {
		_, err := mapping.Compile(s, tables)
		if err == nil {
			return nil
		}
		var lines []string
		for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
			lines = append(lines, e.Error())
		}
		return lines
	}
	for _, tt := range tests {
		r := good
		r.Dimensions = map[string]string{"a": "a", "b": "b"}
		tt.change(&r)
		if diff := cmp.Diff(tt.want, mistakes(rollupSpec(r))); diff != "" {
			t.Errorf("%s: mistakes (-want +got):\n%s", tt.name, diff)
		}
	}
	spelled := good
	spelled.Table = "default:" + good.Table
	if got := mistakes(rollupSpec(good, spelled)); !strings.Contains(strings.Join(got, "\n"), "table default:stats has the rows views/a of rollups[0] already") {
		t.Errorf("one table with two names: got %q", got)
	}
	if diff := cmp.Diff([]string{
		"rollups[1].name: table stats has the rows views/a of rollups[0] already (give it another name)",
		"rollups[1].name: table stats has the rows views/a,b of rollups[0] already (give it another name)",
	}, mistakes(rollupSpec(good, good))); diff != "" {
		t.Errorf("twice: mistakes (-want +got):\n%s", diff)
	}
}

// A rule may append to a DISTINCT family, too, and do nothing else to it.
func TestRulesOfDistinctFamilies(t *testing.T) {
	t.Parallel()
	tables := func(string) *store.TableDescriptor { return statsTable() }
	columns := map[string]map[string]string{"distinct_day": {"q": "user"}}
	for _, c := range []struct {
		rule mapping.RuleSpec
		want string
	}{
		{mapping.RuleSpec{Table: "stats", Row: "a", Append: columns}, ""},
		{mapping.RuleSpec{Table: "stats", Row: "a", Put: columns}, "map[0].put.distinct_day: family distinct_day of table stats has DISTINCT and takes appends only (use append, distinct of a rollup, or a family without DISTINCT)"},
		{mapping.RuleSpec{Table: "stats", Row: "a", Increment: []mapping.IncrementSpec{{Family: "distinct_day", Qualifier: "a"}}}, "map[0].increment[0].family: family distinct_day of table stats takes no increments (declare it with COUNTER: true)"},
	} {
		got := ""
		if _, err := mapping.Compile(jsonSpec(c.rule), tables); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: %q, want %q", c.rule, got, c.want)
		}
	}
}

// A rollup is part of the rules' version; what has none keeps its own.
func TestRollupVersion(t *testing.T) {
	t.Parallel()
	version := func(rollups ...mapping.RollupSpec) string {
		s := jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Put: put("a")})
		s.Rollups = rollups
		p, err := mapping.Compile(s, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p.Version()
	}
	r := mapping.RollupSpec{Name: "n", Table: "t2", Buckets: []string{"day"}}
	seen := map[string]string{version(): "no rollup"}
	for name, change := range map[string]func(*mapping.RollupSpec){
		"rollup": func(*mapping.RollupSpec) {}, "name": func(r *mapping.RollupSpec) { r.Name = "m" }, "table": func(r *mapping.RollupSpec) { r.Table = "t3" },
		"buckets": func(r *mapping.RollupSpec) { r.Buckets = []string{"day", "hour"} }, "zone": func(r *mapping.RollupSpec) { r.Zone = "Europe/Berlin" },
		"when": func(r *mapping.RollupSpec) { r.When = "a" }, "by": func(r *mapping.RollupSpec) { r.By = "a" }, "distinct": func(r *mapping.RollupSpec) { r.Distinct = "a" },
		"dimensions": func(r *mapping.RollupSpec) { r.Dimensions = map[string]string{"d": "a"} },
		"sets": func(r *mapping.RollupSpec) {
			r.Dimensions, r.Sets = map[string]string{"d": "a"}, [][]string{{}, {"d"}}
		},
	} {
		x := r
		change(&x)
		v := version(x)
		if other, ok := seen[v]; ok {
			t.Errorf("%s and %s have one version", name, other)
		}
		seen[v] = name
	}
}

func BenchmarkRollups(b *testing.B) {
	m := compile(b, rollupSpec(mapping.RollupSpec{
		Name: "views", Table: "stats", Dimensions: map[string]string{"country": "country", "page": "page"},
		Sets: [][]string{{}, {"country"}, {"country", "page"}}, Buckets: []string{"hour", "day", "total"},
	}))
	r := &mapping.Record{Topic: "t", Value: []byte(`{"ts":"2026-11-21T23:30:00Z","country":"de","page":"/products/item-00421"}`)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := m.Map(r); err != nil {
			b.Fatal(err)
		}
	}
}
