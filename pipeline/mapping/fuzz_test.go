package mapping_test

import (
	"errors"
	"os"
	"strings"
	"testing"

	"sluice/pipeline/mapping"
)

// checkMap maps a record twice: the result is the same, an error is an *Error
// with a known stage, and nothing panics.
func checkMap(t *testing.T, p *mapping.Plan, r *mapping.Record) {
	t.Helper()
	m := p.NewMapper()
	once := func() string {
		out, err := m.Map(r)
		if err != nil {
			var e *mapping.Error
			if !errors.As(err, &e) || e.Class == "" || e.Stage != mapping.StageDecode && e.Stage != mapping.StageMap {
				t.Errorf("got error %v", err)
			}
			return err.Error()
		}
		for i := range out.Mutations {
			if m := &out.Mutations[i]; m.Table == "" || len(m.Row) == 0 || len(m.Ops) == 0 {
				t.Errorf("mutation %d is %+v", i, m)
			}
		}
		return dump(out)
	}
	if first, second := once(), once(); first != second {
		t.Errorf("a record maps to\n%s\nand then to\n%s", first, second)
	}
}

// FuzzExpression compiles texts that users might write and maps a record with
// them.
func FuzzExpression(f *testing.F) {
	for _, s := range []string{
		`hash16_hex(user) + "/" + user + "/" + reverse_ts(time) + u16(partition) + u64(offset)`, `date(ts, "yyyyMMddHH", "Europe/Berlin")`,
		`let x = user ?? "n"; x + x`, `any(tags, # == "x") ? {"a": tags[0]} : [1, 2.5, nil]`, `doc["a b"].c?.d[1:2]`, `reduce(1..9, #acc + #, 0)`,
		`user | trim() | upper()`, `coalesce(a, b, 1) == 2 and not (a in [1, 2])`, `if a > 1 { "x" } else { b }`, `b"\x00" + "é" + 1e300 * 10`, `filter(tags, {# matches "("})`,
		`duration("1h") + 1`, `let x = a ?? ""; +b`, `a == 2 or b`, `int(none) ?? 0`, `len(geo) ** -1 % 0`, `fromJSON(value).a`, `repeat("ab", 1000000)`, `$env`, `{}`, `a.b.c()`, `time.x`, `#`,
		strings.Repeat("(", 5000) + "a" + strings.Repeat(")", 5000), strings.Repeat("not ", 2000) + "a", strings.Repeat("-", 3000) + "a", strings.Repeat("[", 4000), "a" + strings.Repeat(" + a", 2000),
	} {
		f.Add(s)
	}
	r := &mapping.Record{Topic: "t", Timestamp: 1, Key: []byte("k"), Value: []byte(`{"a":1,"b":"x","user":"u","ts":1431857103123,"tags":["x",1,null],"geo":{"c":[{"d":2.5}]},"a b":{"c":{"d":[1,2,3]}}}`)}
	f.Fuzz(func(t *testing.T, s string) {
		checkKnown(t, knownSpec(s, `"r"`), r)
		checkKnown(t, knownSpec("1", s), r)
		checkKnown(t, knownSpec("1", `user + "|" + `+s), r)
		for _, rule := range []mapping.RuleSpec{
			{Table: "t", Row: `"r"`, Put: put(s)},
			{Table: "t", Row: s, When: s, Put: put("1")},
			{Table: "t_{" + s + "}", Row: `"r"`, Timestamp: s, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: "user", By: s}}},
		} {
			p, err := mapping.Compile(jsonSpec(rule), nil)
			if err == nil {
				checkMap(t, p, r)
				continue
			}
			for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
				var spec *mapping.SpecError
				if !errors.As(e, &spec) || spec.At < 0 || spec.At > len(s)+3 || strings.TrimSpace(spec.Err.Error()) == "" {
					t.Errorf("%q: mistake %v at %d", s, e, spec.At)
				}
			}
		}
	})
}

// FuzzMap maps payloads by the rules of the examples and by some that use
// everything.
func FuzzMap(f *testing.F) {
	f.Add([]byte(pageview), []byte("k"), int64(5))
	f.Add([]byte(logLine), []byte(nil), int64(-1))
	f.Add([]byte(`{"ts":"2015-05-17","user":[1,{"a":2}],"page":{"x":1e999},"n":-5}`+"\n{}"), []byte{0xff}, int64(1<<62))
	var plans []*mapping.Plan
	for _, name := range []string{"pageviews.yaml", "access-log.yaml"} {
		if _, err := os.Stat("../../examples/" + name); err != nil {
			f.Fatal(err)
		}
		plans = append(plans, loadExample(f, name))
	}
	wide, err := mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "ndjson"},
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "yyyy-MM-dd", Zone: "Asia/Kolkata"},
		Rules: []mapping.RuleSpec{
			{Table: `t_{user}`, Row: `salt(8, page) + pad(n, 9) + date(n, "MMM Z", "America/St_Johns")`, When: `n > 3 and user != "x"`, Put: columns{"e": {"a": "page", "b": "user + page", "c": "len(page)", "d": "map(user, #)", "f": "key"}}},
			{Table: "t", Row: `reverse(coalesce(key, user, "none"))`, Timestamp: "coalesce(n, 5)", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `lower(user) + upper(page)`, By: "n * 2", When: "n != nil"}}},
		},
	}, nil)
	if err != nil {
		f.Fatal(err)
	}
	plans = append(plans, wide)
	f.Fuzz(func(t *testing.T, payload, key []byte, timestamp int64) {
		for _, p := range plans {
			checkMap(t, p, &mapping.Record{Topic: "t", Partition: 1, Offset: timestamp, Timestamp: timestamp, Key: key, Value: payload})
		}
	})
}
