package mapping_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// lines returns what a record becomes as AppendText spells it, or its error.
func lines(m *mapping.Mapper, payload string) string {
	out, err := m.Map(&mapping.Record{Topic: "t", Partition: 1, Offset: 9, Timestamp: 1000, Value: []byte(payload)})
	if err != nil {
		return err.Error()
	}
	return string(out.AppendText(nil))
}

func TestActions(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name    string
		spec    *mapping.Spec
		payload string
		want    string
	}{
		{"append", jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Append: put(`b + ","`), Put: columns{"f": {"x": "c"}}}), `{"a":"r","b":1}`, "append 't', 'r', 'e:q', '1,', 1000\n"},
		{"deletes", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
			{Table: "t", Row: "a", Timestamp: "time - 1", Delete: []mapping.DeleteSpec{
				{What: "row"},
				{What: "family", Family: "f"},
				{What: "column", Family: "f", Qualifier: "b"},
				{What: "version", Family: "f", Qualifier: `"v"`},
				{What: "newest", Family: "f", Qualifier: `"v"`},
			}},
			{Table: "t", Row: "a", Put: columns{"f": {"x": "b"}}},
		}}, `{"a":"r","b":"q"}`, `DeleteRow 't', 'r', 999
DeleteFamily 't', 'r', 'f', 999
DeleteColumn 't', 'r', 'f:q', 999
Delete 't', 'r', 'f:v', 999
Delete 't', 'r', 'f:v'
put 't', 'r', 'f:x', 'q', 1000
`},
		{"delete without its qualifier", jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Delete: []mapping.DeleteSpec{{What: "column", Family: "f", Qualifier: "b"}}}), `{"a":"r"}`, "map: missing_field: map[0].delete[0].qualifier: field b is missing or null"},
		{"checks", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
			{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: "absent"}, Put: columns{"f": {"x": "b", "y": "b"}}},
			{Table: "t", Row: "a", Put: put("b")},
			{Table: "t", Row: "a", When: "b == 2", Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: "present"}, Put: put("b")},
			{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: "<", Value: "u16(b)"}, Delete: []mapping.DeleteSpec{{What: "row"}}},
			{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: "b", Op: "!=", Value: "b"}, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
			{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: "c", Op: "absent"}, Put: put("c")}, // nothing to put: nothing to check
		}}, `{"a":"r","b":1}`, `put 't', 'r', 'f:x', '1', 1000, IF => 'f:x' absent
put 't', 'r', 'f:y', '1', 1000, IF => 'f:x' absent
put 't', 'r', 'e:q', '1', 1000
DeleteRow 't', 'r', 1000, IF => 'f:x' < "\x00\x01"
incr 't', 'r', 'c:n', 1, 1000, IF => 'f:1' != '1'
`},
		{"check of an empty value", jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: "==", Value: "b"}, Put: put("a")}), `{"a":"r","b":""}`, "map: bad_value: map[0].check.value: an empty value is not told apart from none: use absent or present"},
		{"dedup", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "ndjson"}, Dedup: mapping.DedupSpec{ID: `id + "/" + topic`, TTL: time.Minute}, Rules: []mapping.RuleSpec{
			{Table: "t", Row: "a", When: "a != nil", Put: put("a"), Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
			{Table: "u", Row: `"r"`, When: "a == 2", Put: put("a")},
		}}, `{"id":"x","a":1}
{}
{"id":"y","a":2}`, `once 'x/t', TTL => 60000
put 't', '1', 'e:q', '1', 1000
incr 't', '1', 'c:n', 1, 1000
once 'y/t', TTL => 60000
put 't', '2', 'e:q', '2', 1000
incr 't', '2', 'c:n', 1, 1000
put 'u', 'r', 'e:q', '2', 1000
`},
		{"dedup without an id", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Dedup: mapping.DedupSpec{ID: "id", TTL: time.Minute}, Rules: []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put("a")}}}, `{"a":1}`, "map: missing_field: dedup.id: field id is missing or null"},
		{"dedup with an empty id", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Dedup: mapping.DedupSpec{ID: "id", TTL: time.Minute}, Rules: []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put("a")}}}, `{"a":1,"id":""}`, "map: bad_value: dedup.id: an id of 0 bytes, must be 1..1024"},
		{"dedup with a long id", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Dedup: mapping.DedupSpec{ID: `repeat(id, 1025)`, TTL: time.Minute}, Rules: []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put("a")}}}, `{"a":1,"id":"x"}`, "map: bad_value: dedup.id: an id of 1025 bytes, must be 1..1024"},
	} {
		m := compile(t, tt.spec)
		if diff := cmp.Diff(tt.want, lines(m, tt.payload)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
		// An error leaves nothing for the next record.
		if diff := cmp.Diff(tt.want, lines(m, tt.payload)); diff != "" {
			t.Errorf("%s, again (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A check says on which side the stored value stands; a condition has it on the
// other.
func TestChecksAreConditions(t *testing.T) {
	t.Parallel()
	for op, want := range map[string]store.CompareOp{
		"==": store.Equal, "!=": store.NotEqual, "<": store.Greater, "<=": store.GreaterOrEqual, ">": store.Less, ">=": store.LessOrEqual,
	} {
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: op, Value: "b"}, Put: put("a")}))
		out, err := m.Map(&mapping.Record{Value: []byte(`{"a":"r","b":"m"}`)})
		if err != nil {
			t.Fatal(err)
		}
		if len(out.Records) != 1 || len(out.Records[0].Checks) != 1 || out.Records[0].Checks[0].Op != want {
			t.Fatalf("%s: got %+v", op, out.Records)
		}
		for stored, holds := range map[string]bool{"l": strings.HasPrefix(op, "<") || op == "!=", "m": strings.HasSuffix(op, "=") && op != "!=", "n": strings.HasPrefix(op, ">") || op == "!="} {
			if got := want.Holds(strings.Compare("m", stored)); got != holds {
				t.Errorf("stored %q %s %q: got %v", stored, op, "m", got)
			}
		}
	}
}

// What the store must decide in the order of records comes as units, all else as
// mutations that may be summed.
func TestUnits(t *testing.T) {
	t.Parallel()
	add := []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}
	remove := mapping.RuleSpec{Table: "t", Row: `"r"`, Delete: []mapping.DeleteSpec{{What: "row"}}}
	for name, tt := range map[string]struct {
		rules []mapping.RuleSpec
		want  bool
	}{
		"put and increment":    {[]mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put("1"), Increment: add}}, false},
		"append":               {[]mapping.RuleSpec{{Table: "t", Row: `"r"`, Append: put("1"), Increment: add}}, false},
		"delete":               {[]mapping.RuleSpec{remove, {Table: "t", Row: `"r"`, Put: put("1")}}, false},
		"delete and increment": {[]mapping.RuleSpec{remove, {Table: "u", Row: `"r"`, Increment: add}}, true},
		"check":                {[]mapping.RuleSpec{{Table: "t", Row: `"r"`, Check: &mapping.CheckSpec{Family: "f", Qualifier: `"x"`, Op: "absent"}, Put: put("1")}}, true},
	} {
		m := compile(t, &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: tt.rules})
		out, err := m.Map(&mapping.Record{Value: []byte(`{}`)})
		if err != nil || out.Filtered() || (out.Records != nil) != tt.want {
			t.Errorf("%s: got units %+v, %v, want them: %v", name, out.Records, err, tt.want)
		}
	}
}

func TestForEach(t *testing.T) {
	t.Parallel()
	spec := func(rules ...mapping.RuleSpec) *mapping.Spec {
		return &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: rules}
	}
	const order = `{"id":"o1","items":[{"sku":"s1","n":2,"gifts":["g1","g\u0032"]},{"sku":"s2","gifts":[]},{"sku":"s3"}],"tags":["a",null,3,{"x":[true]}],"none":null,"text":"t"}`
	for _, tt := range []struct {
		name string
		spec *mapping.Spec
		want string
	}{
		{"fields", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"item in items"}, Row: `id + "/" + item.sku`, Put: put("item.n")}), "put 't', 'o1/s1', 'e:q', '2', 1000\n"},
		{"index", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"item, i in doc.items"}, Row: `id + pad(i, 2)`, Put: put("item.sku")}), `put 't', 'o100', 'e:q', 's1', 1000
put 't', 'o101', 'e:q', 's2', 1000
put 't', 'o102', 'e:q', 's3', 1000
`},
		{"the machine reads them, too", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"item, i in items"}, Row: `id + "/" + (i * 10)`, When: "(item.n ?? 1) > i", Put: put(`let n = item.n; n == nil ? "one" : n + i`)}), "put 't', 'o1/0', 'e:q', '2', 1000\n"},
		{"nested", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"item, i in items", "gift, k in item.gifts"}, Row: `id + i + "." + k`, Put: put(`item.sku + gift`)}), `put 't', 'o10.0', 'e:q', 's1g1', 1000
put 't', 'o10.1', 'e:q', 's1g2', 1000
`},
		{"elements", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"tag in tags"}, Row: `"r"`, When: "tag != nil", Put: put("tag")}), `put 't', 'r', 'e:q', 'a', 1000
put 't', 'r', 'e:q', '3', 1000
put 't', 'r', 'e:q', '{"x":[true]}', 1000
`},
		{"crosswise", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"a in items[0].gifts", "b in items[0].gifts"}, Row: `a + b`, Put: put("1")}), `put 't', 'g1g1', 'e:q', '1', 1000
put 't', 'g1g2', 'e:q', '1', 1000
put 't', 'g2g1', 'e:q', '1', 1000
put 't', 'g2g2', 'e:q', '1', 1000
`},
		{"of an element of a path", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"x in tags[3].x"}, Row: `"r"`, Put: put("x")}), "put 't', 'r', 'e:q', 'true', 1000\n"},
		{"each rule its own", spec(
			mapping.RuleSpec{Table: "t", ForEach: []string{"item in items"}, Row: "item.sku", Put: put("item.n")},
			mapping.RuleSpec{Table: "{x}_u", ForEach: []string{"x in items[0].gifts"}, Row: "item ?? x", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: "x", By: "len(x)"}}},
		), `put 't', 's1', 'e:q', '2', 1000
incr 'g1_u', 'g1', 'c:g1', 2, 1000
incr 'g2_u', 'g2', 'c:g2', 2, 1000
`},
		{"nothing there", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"x in none"}, Row: "x", Put: put("x")}, mapping.RuleSpec{Table: "t", ForEach: []string{"x in nowhere.at.all"}, Row: "x", Put: put("x")}), ""},
		{"no array", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"x in text"}, Row: "x", Put: put("x")}), "map: bad_value: map[0].for_each[0]: field text is a string, not an array"},
		{"no array inside", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"x in items", "y in x.sku"}, Row: "y", Put: put("y")}), "map: bad_value: map[0].for_each[1]: element's x.sku is a string, not an array"},
		{"an element without its field", spec(mapping.RuleSpec{Table: "t", ForEach: []string{"x in items"}, Row: "x.n", Put: put("x.sku")}), "map: missing_field: map[0].row: element's x.n is missing or null"},
	} {
		m := compile(t, tt.spec)
		for range 2 {
			if diff := cmp.Diff(tt.want, lines(m, order)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tt.name, diff)
			}
		}
	}
}

// A record cannot choose to become millions of mutations.
func TestForEachIsBounded(t *testing.T) {
	t.Parallel()
	m := compile(t, &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
		{Table: "t", ForEach: []string{"a in x", "b in x", "c in x"}, Row: `"r"`, Put: put("a + b + c")},
	}})
	payload := func(n int) string { return `{"x":["1"` + strings.Repeat(`,"1"`, n-1) + `]}` }
	if got := strings.Count(lines(m, payload(46)), "\n"); got != 46*46*46 {
		t.Errorf("got %d lines, want %d", got, 46*46*46)
	}
	if got, want := lines(m, payload(10_000)), "map: too_many: map[0]: the record becomes more than 100000 mutations"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestActionMistakes(t *testing.T) {
	t.Parallel()
	rule := func(r mapping.RuleSpec) *mapping.Spec {
		r.Table, r.Row = "events", "user"
		return &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{r}}
	}
	each := func(texts ...string) *mapping.Spec { return rule(mapping.RuleSpec{ForEach: texts, Put: put("1")}) }
	check := func(c mapping.CheckSpec) *mapping.Spec { return rule(mapping.RuleSpec{Check: &c, Put: put("1")}) }
	remove := func(d ...mapping.DeleteSpec) *mapping.Spec { return rule(mapping.RuleSpec{Delete: d}) }
	dedup := func(d mapping.DedupSpec) *mapping.Spec {
		s := rule(mapping.RuleSpec{Put: put("1")})
		s.Dedup = d
		return s
	}
	for _, tt := range []struct {
		name string
		spec *mapping.Spec
		want []string
	}{
		{"for each", each("items"), []string{`00 map[0].for_each[0]: "items" does not say what to go through (NAME in PATH, or NAME, INDEX in PATH: item in order.items)`}},
		{"for each path", each("x in a[", "y in a b"), []string{
			`05 map[0].for_each[0]: decode: field path "a[": byte 1: no closing ]`,
		}},
		{"for each name", each("time in a", "doc in a", "in in a", "x, time in a"), []string{
			`00 map[0].for_each[0]: time has a meaning already (choose another name)`,
			`00 map[0].for_each[1]: doc has a meaning already (choose another name)`,
			`00 map[0].for_each[2]: in has a meaning already (choose another name)`,
			`03 map[0].for_each[3]: time has a meaning already (choose another name)`,
		}},
		{"for each twice", each("x, i in a", "y, x in x", "i in a"), []string{
			`03 map[0].for_each[1]: x is given twice (choose another name)`,
			`00 map[0].for_each[2]: i is given twice (choose another name)`,
		}},
		{"for each of what is no array", each("x, i in a", "y in i", "z in i.a", "w in topic"), []string{
			`05 map[0].for_each[1]: i is an index, not an array`,
			`05 map[0].for_each[2]: i has no parts`,
			`05 map[0].for_each[3]: topic is no array (write doc.topic for the document's field)`,
		}},
		{"index", rule(mapping.RuleSpec{ForEach: []string{"x, i in a"}, Put: put(`i.x`)}), []string{`02 map[0].put.e.q: i has no parts`}},
		{"for each of a format's fields", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "csv", Columns: []string{"user", "tags"}}, Rules: []mapping.RuleSpec{{Table: "events", Row: "user", ForEach: []string{"x in tgas"}, Put: put("x")}}}, []string{
			`05 map[0].for_each[0]: format csv has no field tgas (did you mean "tags"?)`, `00 map[0].put.e.q: format csv has no field x (it has user, tags)`,
		}},
		{"append", rule(mapping.RuleSpec{Append: columns{"counts": {"q": "1"}, "x": nil}}), []string{
			`00 map[0].append.counts: family counts of table events has COUNTER and takes increments only (use increment, or a family without COUNTER)`,
			`00 map[0].append.x: table events has no family x (did you mean "e"?)`,
			`00 map[0].append.x: there are no columns (qualifier: expression)`,
		}},
		{"check", check(mapping.CheckSpec{}), []string{
			`00 map[0].check.family: the family is not given`,
			`00 map[0].check.qualifier: the qualifier is not given (an expression; "state" in quotes is a constant)`,
			`00 map[0].check.op: no comparison "" (there are absent, present, ==, !=, <, <=, > and >=)`,
		}},
		{"check of a counter", check(mapping.CheckSpec{Family: "counts", Qualifier: `"n"`, Op: "<", Value: "int64(5)"}), nil},
		{"check of a counter with a text", check(mapping.CheckSpec{Family: "counts", Qualifier: `"n"`, Op: "<", Value: "5"}), []string{
			`00 map[0].check.value: family counts of table events has COUNTER, whose values are numbers of 8 bytes, and this is a text (compare with int64(…))`,
		}},
		{"check of a counter with a number of the record", check(mapping.CheckSpec{Family: "counts", Qualifier: `"n"`, Op: "<", Value: "clicks * 2"}), []string{
			`00 map[0].check.value: family counts of table events has COUNTER, whose values are numbers of 8 bytes, and this is a text (compare with int64(…))`,
		}},
		{"check of a counter with what may be bytes", check(mapping.CheckSpec{Family: "counts", Qualifier: `"n"`, Op: "<", Value: "key"}), nil},
		{"check of a counter with 8 bytes", check(mapping.CheckSpec{Family: "counts", Qualifier: `"n"`, Op: "==", Value: "u64(offset)"}), nil},
		{"check family", check(mapping.CheckSpec{Family: "count", Qualifier: "usr(", Op: "absnt", Value: "1"}), []string{
			`00 map[0].check.family: table events has no family count (did you mean "counts"?)`,
			`03 map[0].check.qualifier: unexpected token EOF`,
			`00 map[0].check.op: no comparison "absnt" (did you mean "absent"?)`,
		}},
		{"check value", check(mapping.CheckSpec{Family: "e", Qualifier: "user", Op: "<"}), []string{`00 map[0].check.value: the value is not given (an expression; absent and present need none)`}},
		{"check without value", check(mapping.CheckSpec{Family: "e", Qualifier: "user", Op: "present", Value: "1"}), []string{`00 map[0].check.value: present compares with no value (remove it)`}},
		{"delete", remove(mapping.DeleteSpec{}, mapping.DeleteSpec{What: "colum"}), []string{
			`00 map[0].delete[0].what: cannot delete a "" (there are row, family, column, version and newest)`,
			`00 map[0].delete[1].what: cannot delete a "colum" (did you mean "column"?)`,
		}},
		{"delete too much", remove(mapping.DeleteSpec{What: "row", Family: "e"}, mapping.DeleteSpec{What: "family", Family: "e", Qualifier: "user"}), []string{
			`00 map[0].delete[0].family: row needs no family (remove it, or delete a family)`,
			`00 map[0].delete[1].qualifier: family needs no qualifier (remove it, or delete a column)`,
		}},
		{"delete too little", remove(mapping.DeleteSpec{What: "column"}, mapping.DeleteSpec{What: "version", Family: "counts", Qualifier: "user"}), []string{
			`00 map[0].delete[0].family: the family is not given`,
			`00 map[0].delete[0].qualifier: the qualifier is not given (an expression; "page" in quotes is a constant)`,
			`00 map[0].delete[1].what: family counts of table events has COUNTER, and so no versions (delete the column)`,
		}},
		{"delete and put", rule(mapping.RuleSpec{Delete: []mapping.DeleteSpec{{What: "row"}}, Put: put("1")}), []string{
			`00 map[0].delete: a rule that deletes does nothing else (a delete hides what is put at its timestamp: make it a rule of its own, with timestamp: time - 1)`,
		}},
		{"dedup", dedup(mapping.DedupSpec{ID: "usr + foo()"}), []string{
			`00 dedup.ttl: ttl is 0s, must be 1s or more (for how long an id is remembered, such as 24h)`,
			`06 dedup.id: no function foo` + functionsHint,
		}},
		{"dedup id", dedup(mapping.DedupSpec{TTL: time.Hour}), []string{`00 dedup.id: the id is not given (an expression that makes the event's id)`}},
		{"bounds", &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms", AllowedLateness: -1}, Rules: rule(mapping.RuleSpec{Put: put("1")}).Rules}, []string{
			`00 event_time.allowed_lateness: allowed_lateness is -1ns, must be 1ms or more`,
		}},
	} {
		if diff := cmp.Diff(tt.want, specErrors(t, tt.spec)); diff != "" {
			t.Errorf("%s: mistakes (-want +got):\n%s", tt.name, diff)
		}
	}
}

// An event is late or beyond by its record's timestamp, and by no clock.
func TestEventTimeBounds(t *testing.T) {
	t.Parallel()
	s := jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("1")})
	s.EventTime = mapping.EventTimeSpec{Field: "ts", Format: "unix_ms", AllowedLateness: time.Second, MaxFuture: time.Minute}
	adding := compile(t, s)
	s.EventTime.RefuseLate = true
	m := compile(t, s)
	const at = 10_000_000
	for ts, late := range map[int64]bool{at: false, at - 1000: false, at - 1001: true, 0: true} {
		out, err := adding.Map(&mapping.Record{Timestamp: at, Value: fmt.Appendf(nil, `{"ts":%d}`, ts)})
		if err != nil || out.Late != late || len(out.Mutations) != 1 || out.Mutations[0].Ops[0].Time != cell.Timestamp(ts) {
			t.Errorf("%d: got %+v, %v, want it at its own time, late: %v", ts, out, err, late)
		}
	}
	for ts, want := range map[int64]string{
		at: "", at - 1000: "", at + 60_000: "",
		at - 1001:   "map: late: event time: 1.001s before the record's timestamp, at most 1s is allowed",
		0:           "map: late: event time: 2h46m40s before the record's timestamp, at most 1s is allowed",
		at + 60_001: "map: future: event time: 1m0.001s after the record's timestamp, at most 1m0s is allowed",
		1<<63 - 2:   "map: future: event time: 2562047h47m16.854s after the record's timestamp, at most 1m0s is allowed",
	} {
		_, err := m.Map(&mapping.Record{Timestamp: at, Value: fmt.Appendf(nil, `{"ts":%d}`, ts)})
		if got := fmt.Sprint(err); got != want && (want != "" || err != nil) {
			t.Errorf("%d: got %s, want %s", ts, got, want)
		}
	}
	// A record's own timestamp is not bounded: today's clock would make something else of it.
	for _, year := range []int{1970, 2106, 9999} {
		at := time.Date(year, 1, 2, 0, 0, 0, 0, time.UTC).UnixMilli()
		out, err := m.Map(&mapping.Record{Timestamp: at, Value: fmt.Appendf(nil, `{"ts":%d}`, at)})
		if err != nil || out.Mutations[0].Ops[0].Time != cell.Timestamp(at) {
			t.Errorf("year %d: got %+v, %v, want it at its own time", year, out, err)
		}
	}
	if _, err := m.Map(&mapping.Record{Timestamp: -1, Value: []byte(`{"ts":5}`)}); err != nil {
		t.Errorf("a record without a timestamp: %v", err)
	}
	if _, err := m.Map(&mapping.Record{Timestamp: at, Value: []byte(`{}`)}); err != nil {
		t.Errorf("an event without a time: %v", err)
	}
}
