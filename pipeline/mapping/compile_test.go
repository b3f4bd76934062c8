package mapping_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/counters"
	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// functionsHint is the hint for a function that is like none.
var functionsHint = " (there are " + strings.Join(mapping.FunctionNames(), ", ") + ", and those of expr-lang)"

type columns = map[string]map[string]string

func put(expression string) columns { return columns{"e": {"q": expression}} }

// testTables has events (e, and the counters c).
func testTables(name string) *store.TableDescriptor {
	if name != "events" {
		return nil
	}
	e, c := store.NewFamily("events_family"), store.NewFamily("counts")
	e.Name, c.Counter = "e", true
	return &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{c, e}}
}

// specErrors returns the mistakes of s, a line each.
func specErrors(t *testing.T, s *mapping.Spec) []string {
	t.Helper()
	_, err := mapping.Compile(s, testTables)
	if err == nil {
		return nil
	}
	joined, ok := err.(interface{ Unwrap() []error })
	if !ok {
		t.Fatalf("%v is no joined error", err)
	}
	var lines []string
	for _, e := range joined.Unwrap() {
		var spec *mapping.SpecError
		if !errors.As(e, &spec) {
			t.Errorf("%v is no *SpecError", e)
			continue
		}
		lines = append(lines, strings.TrimSpace(string(rune('0'+spec.At/10))+string(rune('0'+spec.At%10))+" "+spec.Error()))
	}
	return lines
}

// Every mistake in an expression is found, with its byte and a suggestion.
func TestExpressionMistakes(t *testing.T) {
	t.Parallel()
	tests := []struct{ expression, want string }{
		{`hash61(user)`, `00 PUT: no function hash61 (did you mean "hash16"?)`},
		{`"x" + uper(user)`, `06 PUT: no function uper (did you mean "upper"?)`},
		{`frobnicate(user)`, `00 PUT: no function frobnicate` + functionsHint},
		{`abs(nil)`, `00 PUT: invalid argument for abs (type nil)`},
		{`concat(nil, tags)`, `00 PUT: cannot concat nil`},
		{`now()`, `00 PUT: now() is not allowed: a record must map the same way every time`},
		{`keys(geo)`, `00 PUT: keys() is not allowed: a record must map the same way every time`},
		{`salt(user, 16)`, `05 PUT: argument 1 of salt must be a literal 1..256`},
		{`salt(257, user)`, `05 PUT: argument 1 of salt must be a literal 1..256`},
		{`pad(user)`, `00 PUT: pad needs 2 arguments, not 1`},
		{`date(time)`, `00 PUT: date needs 2 or 3 arguments, not 1`},
		{`date(time, fmt)`, `11 PUT: argument 2 of date must be a text literal`},
		{`date(time, "yyyyQ")`, `11 PUT: layout "yyyyQ": byte 4: no field Q; a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes`},
		{`date(time, "yyyy", "Mars/Olympus")`, `19 PUT: no time zone "Mars/Olympus": write an IANA name such as Europe/Berlin`},
		{`date(time, "yyyy", "Local")`, `19 PUT: zone Local depends on the machine; name it, as Europe/Berlin`},
		{`u16("x")`, `04 PUT: argument 1 of u16 must be an integer, not a text`},
		{`reverse(nil)`, `08 PUT: argument 1 of reverse must be a value, not nil`},
		{`coalesce(user)`, `00 PUT: coalesce needs two or more arguments`},
		{`user +`, `05 PUT: unexpected token EOF`},
		{`"é" + ?`, `07 PUT: unexpected token Operator("?")`},
		{`  `, `00 PUT: the expression is empty`},
		{`nil`, `00 PUT: the value is always nil`},
		{`doc`, `00 PUT: doc is the whole document, not a field of it (write doc.NAME)`},
		{`time.hour`, `05 PUT: time has no parts (write doc.time for the document's field)`},
		{`$env`, `00 PUT: $env is not available`},
		{`header(user)`, `00 PUT: header needs the header's key as a text literal (header("trace-id"))`},
		{`user.upper()`, `05 PUT: only functions can be called (see docs/mapping.md for their names)`},
		{`"a" - 1`, `04 PUT: - needs numbers, not a text`},
		{`"a" == 1`, `04 PUT: == of a text and an integer is never decided by the record`},
		{`time < "x"`, `05 PUT: < needs two texts or two numbers, not an integer and a text`},
		{`not time`, `00 PUT: not needs true or false, not an integer`},
		{`time ? 1 : 2`, `00 PUT: the condition is an integer, not true or false`},
		{`user contains 3`, `05 PUT: contains needs texts, not an integer`},
		{`1 and user`, `02 PUT: and needs true or false, not an integer`},
		{strings.Repeat("a+", 9000) + "a", `00 PUT: the expression has 18001 bytes, at most 16384`},
	}
	for _, tt := range tests {
		s := &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{{Table: "events", Row: "user", Put: put(tt.expression)}}}
		want := []string{strings.Replace(tt.want, "PUT", "map[0].put.e.q", 1)}
		if diff := cmp.Diff(want, specErrors(t, s)); diff != "" {
			t.Errorf("%.60s: mistakes (-want +got):\n%s", tt.expression, diff)
		}
	}
}

// Every mistake in the rules around the expressions is found, all at once.
func TestRuleMistakes(t *testing.T) {
	t.Parallel()
	json := mapping.DecodeSpec{Format: "json"}
	rule := func(r mapping.RuleSpec) *mapping.Spec {
		if r.Row == "" {
			r.Row = "user"
		}
		return &mapping.Spec{Decode: json, Rules: []mapping.RuleSpec{r}}
	}
	tests := []struct {
		name string
		spec *mapping.Spec
		want []string
	}{
		{"empty", &mapping.Spec{}, []string{
			`00 decode.format: no format "" (there are avro, combined, common, csv, json, logfmt, ndjson, protobuf, raw, tsv)`,
			`00 map: there are no rules (a rule has a table, a row, and put, append, increment or delete)`,
		}},
		{"columns", &mapping.Spec{
			Decode: mapping.DecodeSpec{Format: "csv", Columns: []string{"user", "page"}, Delimiter: ";;"},
			Rules:  []mapping.RuleSpec{{Table: "events", Row: "user", Put: put("paeg")}},
		}, []string{
			`00 decode.delimiter: ";;" is not one ASCII character other than a quote or a line end`,
			`00 map[0].put.e.q: format csv has no field paeg (did you mean "page"?)`,
		}},
		{"empty rule", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "jsno"}, Rules: []mapping.RuleSpec{{}}}, []string{
			`00 decode.format: no format "jsno" (did you mean "json"?)`,
			`00 map[0].table: the table is not given`,
			`00 map[0].row: the row is not given (an expression that makes the row key)`,
			`00 map[0]: the rule does nothing (give it put, append, increment or delete)`,
		}},
		{"table", rule(mapping.RuleSpec{Table: "evnts", Put: put("1")}), []string{`00 map[0].table: no table evnts (declare it under tables)`}},
		{"table name", rule(mapping.RuleSpec{Table: "a b{user}", Put: put("1")}), nil}, // only the record shows it
		{"table brace", rule(mapping.RuleSpec{Table: `events_{date(time, "}")`, Put: put("1")}), []string{`07 map[0].table: the brace is not closed`}},
		{"table expression", rule(mapping.RuleSpec{Table: `events_{date(time, "yyyy") + foo(1)}`, Put: put("1")}), []string{`29 map[0].table: no function foo` + functionsHint}},
		{"family", rule(mapping.RuleSpec{Table: "events", Put: columns{"f": {"q": "1"}}, Increment: []mapping.IncrementSpec{{Family: "count", Qualifier: "user"}}}), []string{
			`00 map[0].put.f: table events has no family f (did you mean "e"?)`,
			`00 map[0].increment[0].family: table events has no family count (did you mean "counts"?)`,
		}},
		{"kind of family", rule(mapping.RuleSpec{Table: "events", Put: columns{"counts": {"q": "1"}}, Increment: []mapping.IncrementSpec{{Family: "e", Qualifier: "user"}}}), []string{
			`00 map[0].put.counts: family counts of table events has COUNTER and takes increments only (use increment, or a family without COUNTER)`,
			`00 map[0].increment[0].family: family e of table events takes no increments (declare it with COUNTER: true)`,
		}},
		{"increment", rule(mapping.RuleSpec{Table: "events", When: "1", Timestamp: `"x"`, Increment: []mapping.IncrementSpec{{By: "true", When: `"yes"`}}}), []string{
			`00 map[0].when: the condition is an integer, not true or false`,
			`00 map[0].timestamp: the value is a text, not an integer`,
			`00 map[0].increment[0].family: the family is not given (a COUNTER family of the table)`,
			`00 map[0].increment[0].qualifier: the qualifier is not given (an expression; "total" in quotes is a constant)`,
			`00 map[0].increment[0].by: the value is true or false, not an integer`,
			`00 map[0].increment[0].when: the condition is a text, not true or false`,
		}},
		{"no columns", rule(mapping.RuleSpec{Table: "events", Put: columns{"e": nil}}), []string{`00 map[0].put.e: there are no columns (qualifier: expression)`}},
		{"event time", &mapping.Spec{Decode: json, EventTime: mapping.EventTimeSpec{Format: "unix_ms"}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put("1")}).Rules}, []string{
			`00 event_time.field: the field is not given (without event_time, the record's timestamp is taken)`,
		}},
		{"event time format", &mapping.Spec{Decode: json, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_sm"}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put("1")}).Rules}, []string{
			`00 event_time.format: layout "unix_sm": byte 0: no field u; a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes (did you mean "unix_ms"?)`,
		}},
		{"put and append of a column", rule(mapping.RuleSpec{Table: "events", Put: columns{"e": {"p": "1", "q": "1"}}, Append: columns{"e": {"a": "1", "q": "2"}}}), []string{
			`00 map[0].append.e.q: the rule puts the column, too, of which nothing would be left (a column is for appends or for puts)`,
		}},
		{"constant row", rule(mapping.RuleSpec{Table: "events", Row: `"" + ''`, Put: put("1")}), []string{
			`00 map[0].row: the row key is always of 0 bytes, must be 1..32767`,
		}},
		{"constant row too long", rule(mapping.RuleSpec{Table: "events", Row: `"` + strings.Repeat("x", 16000) + `" + pad("", 1024)`, Put: put("1")}), nil},
		{"constant timestamp", rule(mapping.RuleSpec{Table: "events", Timestamp: "-1", Put: put("1")}), []string{
			`00 map[0].timestamp: -1 ms is no time`,
		}},
		{"constant value of a check", rule(mapping.RuleSpec{Table: "events", Check: &mapping.CheckSpec{Family: "e", Qualifier: `""`, Op: "==", Value: `""`}, Put: put("1")}), []string{
			`00 map[0].check.value: the value is always empty, which is not told apart from none (use absent or present)`,
		}},
		{"constant id", &mapping.Spec{Decode: json, Dedup: mapping.DedupSpec{ID: `""`, TTL: time.Hour}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put("1")}).Rules}, []string{
			`00 dedup.id: the id is always of 0 bytes, must be 1..1024`,
		}},
		{"event time layout", &mapping.Spec{Decode: json, EventTime: mapping.EventTimeSpec{Field: "ts[", Format: "yyyy-MM"}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put("1")}).Rules}, []string{
			`00 event_time.field: decode: field path "ts[": byte 2: no closing ]`,
		}},
		{"event time zone", &mapping.Spec{Decode: json, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "yyyy-MM", Zone: "X"}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put("1")}).Rules}, []string{
			`00 event_time.zone: no time zone "X": write an IANA name such as Europe/Berlin`,
			`00 event_time.format: layout "yyyy-MM" has no day dd (unix_ms, unix_s, rfc3339, or a layout such as yyyy-MM-dd HH:mm:ss)`,
		}},
		{"a format without arrays", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "logfmt"}, Rules: rule(mapping.RuleSpec{Table: "events", Put: put(`a + tags[0]`)}).Rules}, []string{
			`08 map[0].put.e.q: format logfmt has no arrays, and no field tags[0]`,
		}},
		{"a format with a fixed set of fields", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "combined"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"}, Rules: []mapping.RuleSpec{{Table: "events", Row: "paht + user_agent", Put: put("1")}}}, []string{
			`00 event_time.field: format combined has no field ts (it has agent, bytes, client, ident, method, path, protocol, referrer, request, status, time, time_local, user)`,
			`00 map[0].row: format combined has no field paht (did you mean "path"?)`,
			`07 map[0].row: format combined has no field user_agent (it has agent, bytes, client, ident, method, path, protocol, referrer, request, status, time, time_local, user)`,
		}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, specErrors(t, tt.spec)); diff != "" {
			t.Errorf("%s: mistakes (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A plan's version changes with what the rules say, and with nothing else.
func TestVersion(t *testing.T) {
	t.Parallel()
	version := func(change func(*mapping.Spec)) string {
		s := &mapping.Spec{
			Decode:    mapping.DecodeSpec{Format: "json"},
			EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
			Rules: []mapping.RuleSpec{{
				Table: "events", Row: `user + "/" + u64(offset)`, When: "not bot",
				Put: columns{"e": {"a": "a", "b": "b"}}, Increment: []mapping.IncrementSpec{{Family: "counts", Qualifier: "user"}},
			}},
		}
		change(s)
		p, err := mapping.Compile(s, testTables)
		if err != nil {
			t.Fatal(err)
		}
		return p.Version()
	}
	base := version(func(*mapping.Spec) {})
	if len(base) != 16 {
		t.Errorf("version %q, want 16 digits", base)
	}
	same := map[string]func(*mapping.Spec){
		"spaces":   func(s *mapping.Spec) { s.Rules[0].Row = `  user+"/"+u64( offset ) // key` },
		"quotes":   func(s *mapping.Spec) { s.Rules[0].Row = `user + '/' + u64(offset)` },
		"operator": func(s *mapping.Spec) { s.Rules[0].Put = columns{"e": {"b": "b", "a": "(a)"}} },
	}
	for name, change := range same {
		if got := version(change); got != base {
			t.Errorf("%s: version %s, want %s as before", name, got, base)
		}
	}
	other := map[string]func(*mapping.Spec){
		"format":     func(s *mapping.Spec) { s.Decode.Format = "ndjson" },
		"record":     func(s *mapping.Spec) { s.Decode.MaxRecordBytes = 100 },
		"headers":    func(s *mapping.Spec) { s.Decode.MaxHeaderBytes = 100 },
		"event time": func(s *mapping.Spec) { s.EventTime.Format = "unix_s" },
		"row":        func(s *mapping.Spec) { s.Rules[0].Row = `user + "/" + u32(offset)` },
		"when":       func(s *mapping.Spec) { s.Rules[0].When = "" },
		"qualifier":  func(s *mapping.Spec) { s.Rules[0].Put = columns{"e": {"a": "a", "c": "b"}} },
		"by":         func(s *mapping.Spec) { s.Rules[0].Increment[0].By = "2" },
		"as by":      func(s *mapping.Spec) { s.Rules[0].Increment[0].When = "bot" },
		"timestamp":  func(s *mapping.Spec) { s.Rules[0].Timestamp = "timestamp" },
		"order":      func(s *mapping.Spec) { s.Rules = append(s.Rules, s.Rules[0]) },
	}
	seen := map[string]string{base: "base"}
	for name, change := range other {
		v := version(change)
		if before, ok := seen[v]; ok {
			t.Errorf("%s: version %s is that of %s", name, v, before)
		}
		seen[v] = name
	}
	// The bound decides which payloads are refused. Versions that are stored stay what they
	// are, unless the language changes.
	bound := func(n int) string {
		return version(func(s *mapping.Spec) { s.Decode.Compression, s.Decode.MaxBytes = "gzip", n })
	}
	if got, want := bound(0), "65ae4f95eb9fe6c1"; got != want {
		t.Errorf("Got version %s with the default bound, want %s as it was stored", got, want)
	}
	if bound(decode.DefaultMaxBytes) != bound(0) {
		t.Error("the default bound has another version where it is written out")
	}
	if a, b := bound(1000), bound(2000); a == b || a == bound(0) || b == bound(0) {
		t.Errorf("bounds of 1000, 2000 and %d bytes have versions %s, %s and %s", decode.DefaultMaxBytes, a, b, bound(0))
	}
	when := version(func(s *mapping.Spec) { s.Rules[0].When, s.Rules[0].Row = "a", "b" })
	timestamp := version(func(s *mapping.Spec) { s.Rules[0].When, s.Rules[0].Row, s.Rules[0].Timestamp = "", "a", "b" })
	if when == timestamp {
		t.Error("two expressions have one version in different places")
	}
}

// Expressions that expr prints alike, without the parentheses that tell them apart, have
// versions of their own.
func TestVersionOfParentheses(t *testing.T) {
	t.Parallel()
	version := func(expression string) string {
		p, err := mapping.Compile(jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put(expression)}), nil)
		if err != nil {
			t.Fatal(err)
		}
		return p.Version()
	}
	for _, alike := range [][2]string{
		{`(site + page)[0:3]`, `site + page[0:3]`},
		{`(is_bot ? a : b)[0:3]`, `is_bot ? a : b[0:3]`},
		{`(is_bot ? a : b).c`, `is_bot ? a : b.c`},
		{`(let x = a; x) + b`, `let x = a; x + b`},
		{`a * 1.0`, `a * 1`},
	} {
		if version(alike[0]) == version(alike[1]) {
			t.Errorf("%s and %s have one version", alike[0], alike[1])
		}
	}
	if version(`(site + page)[0:3]`) != version(` ( site+page )[ 0 : 3 ] // key`) {
		t.Error("white space changes the version")
	}
}

func TestMayWrite(t *testing.T) {
	t.Parallel()
	rule := func(table string) mapping.RuleSpec {
		return mapping.RuleSpec{Table: table, Row: `"r"`, Put: put("1")}
	}
	s := jsonSpec(rule("events"))
	s.Rules = append(s.Rules, rule("default:plain"), rule(`day_{date(time, "yyyy}MM")}_x`), rule("ns:{a}"))
	s.Rollups = []mapping.RollupSpec{{Name: "n", Table: "stats", Buckets: []string{"day"}}}
	p, err := mapping.Compile(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	for table, want := range map[string]bool{
		"events": true, "default:events": true, "plain": true, "stats": true, "default:stats": true,
		"day_2026_x": true, "default:day_2026_x": true, "day__x": true, "ns:t": true,
		"event": false, "day_2026_y": false, "day_x": false, "other:day_1_x": false, "ns2:t": false, "t": false,
	} {
		if got := p.MayWrite(table); got != want {
			t.Errorf("MayWrite(%s) = %t, want %t", table, got, want)
		}
	}
	if p, err = mapping.Compile(jsonSpec(rule("{a}")), nil); err != nil || !p.MayWrite("ns:t") || !p.MayWrite("t") {
		t.Errorf("a name that the record makes may be any (%v)", err)
	}
}

func TestMayCount(t *testing.T) {
	t.Parallel()
	count := mapping.IncrementSpec{Family: "c", Qualifier: `"n"`}
	p, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{
			{Table: "fixed", Row: "a", Increment: []mapping.IncrementSpec{count}},
			{Table: "day_{a}", Row: "a", Increment: []mapping.IncrementSpec{count}},
			{Table: "fixed", Row: "a", Append: map[string]map[string]string{"u": {"users": "a"}}},
			{Table: "put", Row: "a", Put: map[string]map[string]string{"c": {"q": "a"}}},
		},
		Rollups: []mapping.RollupSpec{
			{Name: "events", Table: "rolled", Buckets: []string{"day"}},
			{Name: "users", Table: "rolled", Buckets: []string{"hour"}, Distinct: "a"},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for at, want := range map[[2]string]bool{
		{"fixed", "c"}: true, {"default:fixed", "c"}: true, {"fixed", "d"}: false, {"fixed", "u"}: true, {"day_1", "u"}: false, {"other:fixed", "c"}: false,
		{"day_1", "c"}: true, {"day_1", "d"}: false, {"day", "c"}: false, {"put", "c"}: false,
		{"rolled", counters.Day.Family(false)}: true, {"rolled", counters.Hour.Family(true)}: true, {"rolled", counters.Hour.Family(false)}: false,
	} {
		if got := p.MayCount(at[0], at[1]); got != want {
			t.Errorf("MayCount%q = %t, want %t", at, got, want)
		}
	}
}
