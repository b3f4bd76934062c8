package mapping_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/pipeline/mapping"
)

func compile(t testing.TB, s *mapping.Spec) *mapping.Mapper {
	t.Helper()
	p, err := mapping.Compile(s, nil)
	if err != nil {
		t.Fatal(err)
	}
	return p.NewMapper()
}

// jsonSpec is a Spec of one rule on JSON payloads.
func jsonSpec(r mapping.RuleSpec) *mapping.Spec {
	return &mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{r}}
}

// show maps one payload and returns its output, or its error.
func show(t *testing.T, m *mapping.Mapper, payload string) string {
	t.Helper()
	out, err := m.Map(&mapping.Record{Topic: "t", Partition: 1, Offset: 2, Timestamp: 1000, Value: []byte(payload)})
	if err == nil {
		return dump(out)
	}
	var e *mapping.Error
	if !errors.As(err, &e) {
		t.Errorf("%s: %v is no *Error", payload, err)
	}
	return err.Error()
}

func TestMapErrors(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", cell.MaxRowLength+1)
	tests := []struct {
		name    string
		spec    *mapping.Spec
		payload string
		want    string
	}{
		{"decode", jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Put: put("1")}), `{"a":}`, `decode: json: byte 5: unexpected '}', expected a value`},
		{"tombstone", jsonSpec(mapping.RuleSpec{Table: "t", Row: "a", Put: put("1")}), ``, `decode: json: byte 0: the payload is empty`},
		{"row", jsonSpec(mapping.RuleSpec{Table: "t", Row: `a + "/" + b`, Put: put("1")}), `{"a":1,"b":null}`, `map: missing_field: map[0].row: field b is missing or null`},
		{"row by the machine", jsonSpec(mapping.RuleSpec{Table: "t", Row: `trim(a)`, Put: put("1")}), `{}`, `map: missing_field: map[0].row: field a is missing or null`},
		{"row nil", jsonSpec(mapping.RuleSpec{Table: "t", Row: `true ? nil : a`, Put: put("1")}), `{}`, `map: missing_field: map[0].row: the expression's value is missing or null`},
		{"empty row", jsonSpec(mapping.RuleSpec{Table: "t", Row: `a`, Put: put("1")}), `{"a":""}`, `map: bad_row: map[0].row: 0 bytes: cell: row key is empty`},
		{"long row", jsonSpec(mapping.RuleSpec{Table: "t", Row: `a`, Put: put("1")}), `{"a":"` + long + `"}`, `map: bad_row: map[0].row: 32768 bytes: cell: row key is longer than 32767 bytes`},
		{"longest row, an empty value, an empty qualifier", jsonSpec(mapping.RuleSpec{Table: "t", Row: `lower(a)`, Put: columns{"e": {"": "b"}}}), `{"a":"` + long[1:] + `","b":""}`, "t \"" + long[1:] + "\"\n  put e: @1000 \"\"\n"},
		{"put", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("u16(a)")}), `{"a":65536}`, `map: bad_value: map[0].put.e.q: u16 of 65536, which does not fit 2 bytes without a sign`},
		{"when", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, When: "a > 1", Put: put("1")}), `{}`, `map: missing_field: map[0].when: field a is missing or null`},
		{"when of a text", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, When: "a > 1", Put: put("1")}), `{"a":"x"}`, `map: expression: map[0].when: invalid operation: string > int`},
		{"when of a number", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, When: "a", Put: put("1")}), `{"a":1}`, `map: expression: map[0].when: the condition is a number, not true or false`},
		{"timestamp", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Timestamp: "a", Put: put("1")}), `{"a":-1}`, `map: bad_time: map[0].timestamp: -1 ms is no time`},
		{"timestamp missing", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Timestamp: "a", Put: put("1")}), `{}`, `map: missing_field: map[0].timestamp: field a is missing or null`},
		{"qualifier", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: "a"}}}), `{}`, `map: missing_field: map[0].increment[0]: field a is missing or null`},
		{"by", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: "a"}}}), `{"a":1.5}`, `map: bad_value: map[0].increment[0]: 1.5 is no integer of 8 bytes`},
		{"by, beyond 8 bytes", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: "a"}}}), `{"a":9223372036854775808}`, `map: bad_value: map[0].increment[0]: 9.223372036854776e+18 is no integer of 8 bytes`},
		{"by, below 8 bytes", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: "a"}}}), `{"a":-9223372036854775809}`, `map: bad_value: map[0].increment[0]: -9.223372036854776e+18 is no integer of 8 bytes`},
		{"by, below 8 bytes, by the machine", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: "true ? a : 1"}}}), `{"a":-9223372036854775809}`, `map: bad_value: map[0].increment[0]: -9.223372036854776e+18 is no integer of 8 bytes`},
		{"by the least", jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: "a"}}}), `{"a":-9223372036854775808}`, "t \"r\"\n  increment c:x @1000 by -9223372036854775808\n"},
		{"table", jsonSpec(mapping.RuleSpec{Table: "events_{a}", Row: `"r"`, Put: put("1")}), `{"a":"x y"}`, `map: bad_table: map[0].table: store: invalid argument: table name "events_x y": ' ' is not allowed; letters, digits, _, - and . are`},
		{"table missing", jsonSpec(mapping.RuleSpec{Table: "events_{a}", Row: `"r"`, Put: put("1")}), `{}`, `map: missing_field: map[0].table: field a is missing or null`},
		{"date", jsonSpec(mapping.RuleSpec{Table: "t", Row: `date(a, "yyyy")`, Put: put("1")}), `{"a":253402300800000}`, `map: bad_value: map[0].row: date of 253402300800000 ms since 1970, which is outside the years 0..9999`},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, show(t, compile(t, tt.spec), tt.payload)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestMapRules(t *testing.T) {
	t.Parallel()
	m := compile(t, &mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "ndjson"},
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_s"},
		Rules: []mapping.RuleSpec{
			{Table: `events_{date(time, "yyyyMMdd")}`, Row: `id`, When: `kind != "skip"`, Put: columns{"z": {"b": "b"}, "e": {"b": "b", "a": `"\u0001" + a`}}},
			{Table: "counts", Row: `kind`, Timestamp: "ts2", Increment: []mapping.IncrementSpec{
				{Family: "c", Qualifier: "id", By: "n - 1", When: "n > 1"}, {Family: "c", Qualifier: `"all"`},
			}},
			{Table: "only", Row: `id`, Put: columns{"e": {"x": "x"}}},
		},
	})
	got := show(t, m, `{"id":"r1","kind":"k","ts":86400,"ts2":5,"n":3,"a":"A","b":true}
{"id":"r2","kind":"skip","ts":172800.5,"ts2":6,"n":1,"x":"\u00e9"}
`)
	want := `events_19700102 "r1"
  put e:a @86400000 "\x01A"
  put e:b @86400000 "true"
  put z:b @86400000 "true"
counts "k"
  increment c:r1 @5 by 2
  increment c:all @5 by 1
counts "skip"
  increment c:all @6 by 1
only "r2"
  put e:x @172800500 "é"
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
	// One bad document refuses the record, and leaves nothing for the next.
	if got, want := show(t, m, "{\"id\":\"r1\",\"kind\":\"k\",\"n\":1,\"ts2\":1}\n{\"id\":}"), "decode: ndjson: byte 43: unexpected '}', expected a value"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if diff := cmp.Diff("counts \"skip\"\n  increment c:all @7 by 1\n", show(t, m, `{"id":"r3","kind":"skip","ts2":7,"n":0}`)); diff != "" {
		t.Errorf("output after an error (-want +got):\n%s", diff)
	}
}

func TestFiltered(t *testing.T) {
	t.Parallel()
	m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, When: "a == 1", Put: put("a")}))
	for payload, want := range map[string]bool{`{"a":1}`: false, `{"a":2}`: true, `{}`: true} {
		out, err := m.Map(&mapping.Record{Value: []byte(payload)})
		if err != nil || out.Filtered() != want {
			t.Errorf("%s: got filtered=%v, %v, want %v", payload, out.Filtered(), err, want)
		}
	}
}

func TestEventTime(t *testing.T) {
	t.Parallel()
	const no = "error"
	tests := []struct{ format, zone, payload, want string }{
		{"unix_ms", "", `{"ts":1431857103123}`, "1431857103123"},
		{"unix_ms", "", `{"ts":"1431857103123"}`, "1431857103123"},
		{"unix_ms", "", `{"ts":1.431857103123e12}`, "1431857103123"},
		{"unix_ms", "", `{"ts":0}`, "0"},
		{"unix_ms", "", `{"ts":-1}`, "map: bad_time: event time: -1 ms is before 1970"},
		{"unix_ms", "", `{"ts":9223372036854775807}`, no},
		{"unix_s", "", `{"ts":"1_0.5"}`, `map: bad_time: event time: "1_0.5" is no number`},
		{"unix_ms", "", `{"ts":"noon"}`, `map: bad_time: event time: "noon" is no number`},
		{"unix_ms", "", `{"ts":1e300}`, no},
		{"unix_ms", "", `{"ts":{}}`, no},
		{"unix_ms", "", `{"ts":null}`, "1000"},
		{"unix_ms", "", `{}`, "1000"},
		{"unix_s", "", `{"ts":1431857103.123}`, "1431857103123"},
		{"unix_s", "", `{"ts":9223372036854775807}`, no},
		{"unix_ms", "", `{"ts":1431857103123.49999}`, "1431857103123"}, // no double has these digits
		{"unix_ms", "", `{"ts":"1431857103123.5"}`, "1431857103124"},
		{"unix_ms", "", `{"ts":1431857103.12349999e3}`, "1431857103123"},
		{"unix_s", "", `{"ts":1431857103.12349999}`, "1431857103123"},
		{"unix_s", "", `{"ts":1431857103.9995}`, "1431857104000"},
		{"unix_s", "", `{"ts":1431857103.1}`, "1431857103100"},
		{"unix_ms", "", `{"ts":-0.4}`, "0"},
		{"unix_ms", "", `{"ts":-0.5}`, "map: bad_time: event time: -1 ms is before 1970"},
		{"rfc3339", "", `{"ts":"2015-05-17T12:05:03.1239+02:00"}`, "1431857103123"},
		{"rfc3339", "", `{"ts":"2015-05-17T12:05:03"}`, no},
		{"yyyy-MM-dd HH:mm:ss", "", `{"ts":"2015-05-17 10:05:03"}`, "1431857103000"},
		{"yyyy-MM-dd HH:mm:ss", "Europe/Berlin", `{"ts":"2015-05-17 12:05:03"}`, "1431857103000"},
		{"yyyy-MM-dd HH:mm:ss", "", `{"ts":"2015-02-29 12:05:03"}`, no},
		{"yyyy-MM-dd HH:mm:ss", "", `{"ts":"2015-05-17 12:05:03Z"}`, no},
		{"yyyyMMdd", "", `{"ts":20150517}`, "1431820800000"},
		{"dd/MMM/yyyy:HH:mm:ss Z", "Asia/Tokyo", `{"ts":"17/May/2015:06:05:03 -0400"}`, "1431857103000"},
		{"yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "", `{"ts":"2015-05-17T10:05:03.123Z"}`, "1431857103123"},
		{"yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "", `{"ts":"2015-05-17T15:35:03.123+05:30"}`, "1431857103123"},
	}
	for _, tt := range tests {
		s := jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("time")})
		s.EventTime = mapping.EventTimeSpec{Field: "ts", Format: tt.format, Zone: tt.zone}
		got := show(t, compile(t, s), tt.payload)
		switch {
		case tt.want == no:
			if !strings.HasPrefix(got, "map: bad_time: event time: ") {
				t.Errorf("%s of %s: got %s, want bad_time", tt.format, tt.payload, got)
			}
		case strings.HasPrefix(tt.want, "map: "):
			if got != tt.want {
				t.Errorf("%s of %s: got %s, want %s", tt.format, tt.payload, got, tt.want)
			}
		default:
			if want := "t \"r\"\n  put e:q @" + tt.want + " \"" + tt.want + "\"\n"; got != want {
				t.Errorf("%s of %s: got %s, want %s", tt.format, tt.payload, got, want)
			}
		}
	}
	s := jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("1")})
	s.EventTime = mapping.EventTimeSpec{Field: "a.ts", Format: "unix_ms", Required: true}
	if got, want := show(t, compile(t, s), `{"a":{}}`), "map: missing_field: event time: field a.ts is missing or null"; got != want {
		t.Errorf("required: got %s, want %s", got, want)
	}
	if _, err := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put("1")})).Map(&mapping.Record{Timestamp: -1, Value: []byte("{}")}); err == nil || !strings.Contains(err.Error(), "bad_time") {
		t.Errorf("a record without a time: got %v", err)
	}
}

// Property: date writes what package time writes, in every zone and with its
// cache, and event_time reads it back.
func TestDateAgainstTime(t *testing.T) {
	t.Parallel()
	layouts := map[string]string{
		"yyyyMMddHHmm": "200601021504", "yyyy-MM-dd HH:mm:ss.SSS": "2006-01-02 15:04:05.000", "yyyy-MM-dd'T'HH:mm:ssXXX": "2006-01-02T15:04:05Z07:00",
		"dd MMM yyyy Z": "02 Jan 2006 -0700", "yyyyMMdd": "20060102", "HH:mm": "15:04", "''yyyy''": "'2006'",
	}
	for _, zone := range []string{"UTC", "Europe/Berlin", "America/St_Johns", "Asia/Kolkata", "Africa/Monrovia", "Australia/Lord_Howe"} {
		location, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		for layout, reference := range layouts {
			s := jsonSpec(mapping.RuleSpec{Table: "t", Row: `date(at, "` + layout + `", "` + zone + `")`, Put: put("1")})
			m := compile(t, s)
			rapid.Check(t, func(t *rapid.T) {
				at := rapid.Int64Range(-5e12, 10e12).Draw(t, "at")
				for range 4 {
					payload := []byte(`{"at":` + strconv.FormatInt(at, 10) + `}`)
					out, err := m.Map(&mapping.Record{Value: payload})
					if err != nil {
						t.Fatal(err)
					}
					if got, want := string(out.Mutations[0].Row), time.UnixMilli(at).In(location).Format(reference); got != want {
						t.Fatalf("%d as %s in %s: got %s, want %s", at, layout, zone, got, want)
					}
					at += rapid.Int64Range(-70_000, 70_000).Draw(t, "step")
				}
			})
		}
	}
}

// Two quotes are one in a layout, also inside of quotes, as in Java: there they were none,
// and a text that had one was no time.
func TestQuotesOfLayouts(t *testing.T) {
	t.Parallel()
	for layout, want := range map[string]string{
		`HH 'o''clock'`: "10 o'clock", `''''yyyy`: "'2015", `'''yyyy'''`: "'yyyy'", `''yyyy''`: "'2015'", `'a'''yyyy`: "a'2015", `'a' 'b'`: "a b",
	} {
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `date(1431857103123, "` + layout + `")`, Put: put("1")}))
		out, err := m.Map(&mapping.Record{Value: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		if got := string(out.Mutations[0].Row); got != want {
			t.Errorf("%s: got %s, want %s", layout, got, want)
		}
	}
	s := jsonSpec(mapping.RuleSpec{Table: "t", Row: "time", Put: put("1")})
	s.EventTime = mapping.EventTimeSpec{Field: "at", Format: "yyyy-MM-dd HH 'o''clock'"}
	if got, want := show(t, compile(t, s), `{"at":"2015-05-17 10 o'clock"}`), "t \"1431856800000\"\n  put e:q @1431856800000 \"1\"\n"; got != want {
		t.Errorf("event time: got %s, want %s", got, want)
	}
}

// In an access log, time is the event time and doc.time the line's.
func TestReservedNames(t *testing.T) {
	t.Parallel()
	m := compile(t, &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "combined"},
		Rules:  []mapping.RuleSpec{{Table: "t", Row: `time + "/" + doc.time + "/" + time_local`, Put: columns{"e": {"bytes": "bytes", "status": "status"}}}},
	})
	want := "t \"1000/1431857103000/17/May/2015:10:05:03 +0000\"\n  put e:status @1000 \"200\"\n"
	if diff := cmp.Diff(want, show(t, m, logLine)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

// A Plan is shared: Mappers of one do not disturb each other.
func TestPlanIsShared(t *testing.T) {
	t.Parallel()
	p, err := mapping.Compile(jsonSpec(mapping.RuleSpec{
		Table: `t_{a % 3}`, Row: `let x = a + 1; x + "/" + date(a * 1000, "HHmmss")`, When: `a % 2 == 0 or s matches "^x"`,
		Put: put(`join(map(l, string(# + 1)), ",")`),
	}), nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			m := p.NewMapper()
			for a := range 200 {
				got := show(t, m, fmt.Sprintf(`{"a":%d,"s":"y","l":[%d,7]}`, a, a))
				want := ""
				if a%2 == 0 {
					want = fmt.Sprintf("t_%d \"%d/00%02d%02d\"\n  put e:q @1000 \"%d,8\"\n", a%3, a+1, a/60, a%60, a+1)
				}
				if got != want {
					t.Errorf("%d: got %s, want %s", a, got, want)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Whole numbers of 8 bytes keep all of their digits inside of arrays and objects, as
// fields of the document do: ids are such.
func TestMapKeepsDigits(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`join(map(ids, string(#)), ",")`:                 "1541815603606036481,-9223372036854775808,2,2.5",
		`ids[0:1]`:                                       "[1541815603606036481]",
		`let l = last; l.id`:                             "9223372036854775807",
		`u64(let l = last; l.id)`:                        `\x7f\xff\xff\xff\xff\xff\xff\xff`,
		`filter(ids, # == 1541815603606036480)`:          "[]",
		`fromJSON(inner).id`:                             "1541815603606036481",
		`join(map(fromJSON(inner).ids, string(#)), ",")`: "1541815603606036483,2,2.5",
	} {
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put(expression)}))
		want = "t \"r\"\n  put e:q @1000 \"" + want + "\"\n"
		if got := show(t, m, `{"ids":[1541815603606036481,-9223372036854775808,2.0,2.5],"last":{"id":9223372036854775807},"inner":"{\"id\":1541815603606036481,\"ids\":[1541815603606036483,2.0,2.5]}"}`); got != want {
			t.Errorf("%s: got %s, want %s", expression, got, want)
		}
	}
	m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put(`filter(ids, # != 1)`)}))
	if got := show(t, m, `{"ids":[1,1e999]}`); !strings.Contains(got, "bad_value") {
		t.Errorf("Got %s of a number beyond all, want bad_value", got)
	}
	for payload, want := range map[string]string{`{"s":"{"}`: "map: expression: ", `{"s":1}`: "map: expression: ", `{"s":"{} {}"}`: "map: expression: "} {
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put(`fromJSON(s).a`)}))
		if got := show(t, m, payload); !strings.HasPrefix(got, want) {
			t.Errorf("%s: got %s, want %s", payload, got, want)
		}
	}
}

func TestFromJSONArguments(t *testing.T) {
	t.Parallel()
	for _, expression := range []string{`fromJSON()`, `fromJSON(a, b)`, `fromJSON(1).a`, `fromJSON(nil)`, `fromJSON(a == "b")`, `any(ids, fromJSON(# > 1))`} {
		_, err := mapping.Compile(jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: put(expression)}), nil)
		if err == nil || !strings.Contains(err.Error(), "fromJSON") {
			t.Errorf("%s: got %v, want that fromJSON takes a text", expression, err)
		}
	}
	m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Put: columns{"e": {"q": `fromJSON(a).b`, "x": "1"}}}))
	if got, want := show(t, m, `{}`), "t \"r\"\n  put e:x @1000 \"1\"\n"; got != want {
		t.Errorf("Got %s of a missing field, want %s", got, want)
	}
}
