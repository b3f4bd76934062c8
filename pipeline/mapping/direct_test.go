package mapping

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// grammar draws expressions of the forms that run as direct code.
type grammar struct {
	t    *rapid.T
	loop bool // the rule goes through an array
}

func (g grammar) pick(label string, n int) int { return rapid.IntRange(0, n-1).Draw(g.t, label) }

func (g grammar) one(of ...string) string { return of[g.pick("one", len(of))] }

func (g grammar) field() string {
	if g.loop && g.pick("loop", 2) == 0 {
		return g.one("it", "it.e", "it.f[1]", "it[0]")
	}
	return g.one("a", "b", "c", "d.e", "d.f[1]", "doc.time", `doc["x y"]`)
}

// text draws an expression; known says that its type is text without a record.
func (g grammar) text(depth int, known bool) string {
	if depth == 0 {
		if known {
			return g.one(`"lit"`, `"é\x00"`, `""`, "topic", "key", `header("h")`, `header("none")`)
		}
		return g.one(g.field(), g.field(), "time", "offset", "42", "-7", "1.50", "true", g.text(0, true))
	}
	depth--
	switch g.pick("form", 9) {
	case 0:
		return g.text(depth, true) + " + (" + g.text(depth, false) + ")"
	case 1:
		return "(" + g.text(depth, false) + ") + (" + g.text(depth, true) + ")"
	case 2:
		return g.one("hash16", "hash32", "hash64", "hash16_hex", "hash32_hex", "hash64_hex", "reverse", "lower", "upper") + "(" + g.text(depth, false) + ")"
	case 3:
		return g.one("salt(16, ", "salt(256, ") + g.text(depth, false) + ")"
	case 4:
		return g.one("pad", "decimal") + "(" + g.text(depth, false) + g.one(", 5)", ", 24)")
	case 5:
		return g.one("reverse_ts", "u16", "u32", "u64", "int64") + "(" + g.integer(depth) + ")"
	case 6:
		return "date(" + g.integer(depth) + g.one(`, "yyyyMMddHHmm")`, `, "yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "Asia/Kolkata")`, `, "MMM dd", "America/New_York")`)
	case 7:
		if known {
			return "coalesce(" + g.text(depth, true) + ", " + g.text(depth, true) + ")"
		}
		return "coalesce(" + g.text(depth, false) + ", " + g.text(depth, false) + ")"
	}
	if known {
		return g.text(depth, true)
	}
	return g.integer(depth)
}

func (g grammar) integer(depth int) string {
	if depth == 0 {
		if g.loop && g.pick("index", 4) == 0 {
			return "n"
		}
		return g.one(g.field(), "time", "timestamp", "partition", "offset", "0", "65535", "1431857103123", "-1")
	}
	return g.one("ms_of_day", "minute_of_day") + "(" + g.integer(depth-1) + ")"
}

func (g grammar) condition(depth int) string {
	if depth > 0 {
		switch g.pick("condition", 4) {
		case 0:
			return "not (" + g.condition(depth-1) + ")"
		case 1:
			return "(" + g.condition(depth-1) + ") and (" + g.condition(depth-1) + ")"
		case 2:
			return "(" + g.condition(depth-1) + ") or (" + g.condition(depth-1) + ")"
		}
	}
	switch g.pick("comparison", 7) {
	case 0:
		return g.field() + g.one(" == ", " != ") + g.one(`"x"`, `"12"`, "nil", "true", "false", "12", "-3")
	case 1:
		return g.field() + g.one(" < ", " <= ", " > ", " >= ") + g.one("0", "12", "1000000")
	case 2:
		return g.one("time", "offset", "partition") + g.one(" < ", " >= ", " == ") + g.one("0", "3", "1431857103123")
	case 3:
		return "lower(" + g.field() + ")" + g.one(" == ", " != ") + g.one(`"x"`, `"12"`)
	case 4:
		return "topic == " + g.one(`"t"`, `"other"`)
	case 5:
		return "key" + g.one(" == ", " != ") + g.one(`"k"`, "nil")
	}
	return g.field()
}

// value draws a JSON value.
func (g grammar) value() string {
	return g.one(`"x"`, `"X"`, `"12"`, `""`, `"-3"`, `"é\u0000\ud83d\ude00"`, "0", "12", "-3", "70000", "1.50", "-0", "2e3", "12345678901234567890", "1e999", "9007199254740993",
		"true", "false", "null", "[]", `[1,"y"]`, `{"e":"n","f":[1,2.0]}`, `{}`,
		"[1e309]", `{"e":1e309,"f":[-1e400,"x"]}`, `{"e":[[[{}]]],"e":"z","f":[]}`, `[[1e999,"x"],{"e":12,"f":[null,"x"]},"x",12]`, "-1e309", "1e-400", "-0.0", "1e400000000000",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", "9223372036854775807.0", "-9223372036854775809", "9007199254740992.5", "9007199254740993.0", "0.12e2",
		`"0012"`, `" 12"`, `"1e3"`, `"+12"`, `"9223372036854775808"`, `"\ud800"`, "\"\xff\xc3\"", `"\u0130\u212a"`, "[\"\xff\"]")
}

// document draws an object in which any of the fields may be missing.
func (g grammar) document() string {
	var members []string
	for _, name := range []string{"a", "b", "c", "d", "time", "x y"} {
		if g.pick("present", 5) > 0 {
			members = append(members, strconv.Quote(name)+":"+g.value())
		}
	}
	return "{" + strings.Join(members, ",") + "}"
}

// mapBothWays fails where a Spec makes one thing of a record in direct code and
// another in the machine.
func mapBothWays(t rapid.TB, s *Spec, r *Record) {
	show := func(machine bool) string {
		p, err := (&compilation{machine: machine}).compile(s, nil)
		if err != nil {
			t.Fatalf("machine=%v: %v", machine, err)
		}
		m := p.NewMapper()
		out, err := m.Map(r)
		if err == nil {
			out, err = m.Map(r) // again, with memory and caches of the first
		}
		var e *Error
		if errors.As(err, &e) {
			return fmt.Sprintf("%s %s", e.Stage, e.Class)
		}
		if err != nil {
			t.Fatalf("machine=%v: %v is no *Error", machine, err)
		}
		return fmt.Sprintf("%+v", out.Mutations)
	}
	if direct, machine := show(false), show(true); direct != machine {
		t.Fatalf("%s\ngot directly   %s\nby the machine %s", r.Value, direct, machine)
	}
}

// Property: direct code and expr's machine agree on every value and on the class
// of every error.
func TestDirectEqualsMachine(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		g := grammar{t: t, loop: rapid.Bool().Draw(t, "for_each")}
		row, column, condition, integer := g.text(2, true), g.text(2, false), g.condition(2), g.integer(2)
		c := &compilation{format: "json"}
		var forEach []string
		if g.loop {
			forEach = []string{"it, n in c"}
			c.forEach("", forEach[0])
		}
		for text, want := range map[string]typ{row: typText, column: typText, integer: typInt} {
			if x := c.expression("", text, 0, want); !x.direct {
				t.Fatalf("%s is not direct: %v", text, errors.Join(c.errs...))
			}
		}
		if x := c.expression("", row, 0, typText); x.always != nil && *x.always == "" {
			row += ` + "r"` // no rule has such a row
		}
		if x := c.expression("", condition, 0, typBool); !x.direct {
			t.Fatalf("%s is not direct: %v", condition, errors.Join(c.errs...))
		}
		r := &Record{
			Topic: "t", Partition: int32(g.pick("partition", 70000)), Offset: int64(g.pick("offset", 5)), Timestamp: 1431857103123,
			Headers: []Header{{Key: []byte("h"), Value: []byte("first")}, {Key: []byte("h"), Value: []byte("last")}}, Value: []byte(g.document()),
		}
		if g.pick("keyed", 2) == 0 {
			r.Key = []byte("k")
		}
		// One expression at a time: an error hides what follows it.
		for _, rule := range []RuleSpec{
			{Row: row, Put: map[string]map[string]string{"f": {"q": `"v"`}}},
			{Row: `"r"`, Put: map[string]map[string]string{"f": {"q": column, "r": row}}},
			{Row: `"r"`, When: condition, Put: map[string]map[string]string{"f": {"q": `"v"`}}},
			{Row: `"r"`, Increment: []IncrementSpec{{Family: "f", Qualifier: column, By: integer}}},
			{Row: `"r"`, Timestamp: integer, Put: map[string]map[string]string{"f": {"q": `"v"`}}},
		} {
			rule.Table, rule.ForEach = "t", forEach
			mapBothWays(t, &Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{rule}}, r)
		}
	})
}

// A number that no float has makes an array neither missing nor refused, in direct code or in
// the machine; what needs its value refuses it.
func TestNumbersBeyondFloats(t *testing.T) {
	t.Parallel()
	r := &Record{Topic: "t", Timestamp: 5, Value: []byte(`{"a":[1e309,-1e309],"b":1e309,"o":{"p":[1,1e309]}}`)}
	for when, want := range map[string]string{
		`a == nil`: "false", `a != nil`: "true", `o != nil`: "true", `a != "x"`: "true", `a == true`: "false", `b == nil`: "false", `b > 5`: "true",
		`any(a, # > 1e300)`: "true", `all(a, # < 1e300)`: "false", `o.p[1] == b`: "true", `a[0] + 1 == b`: "true", `a[0] in a`: "true",
		`toJSON(a) == ""`: "expression", `string(map(a, #)) == ""`: "bad_value", `u16(a[0]) == ""`: "bad_value", `int(a[0]) == 1`: "bad_value",
		`fromJSON("[1e309]")[0] == b`: "true",
	} {
		rule := RuleSpec{Table: "t", Row: `"r"`, When: when, Put: map[string]map[string]string{"f": {"q": `"v"`}}}
		spec := &Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{rule}}
		mapBothWays(t, spec, r)
		p, err := Compile(spec, nil)
		if err != nil {
			t.Errorf("%s: %v", when, err)
			continue
		}
		out, err := p.NewMapper().Map(r)
		got := ""
		if e, ok := errors.AsType[*Error](err); ok {
			got = e.Class
		} else {
			got = strconv.FormatBool(!out.Filtered())
		}
		if got != want {
			t.Errorf("%s is %s, want %s (%v)", when, got, want, err)
		}
	}
}

// What let names is the field itself: its text is as the payload spells it, in an array's
// loop, too.
func TestLetKeepsSpelling(t *testing.T) {
	t.Parallel()
	r := &Record{Topic: "t", Timestamp: 5, Value: []byte(`{"price":1.50,"big":12345678901234567890.10,"geo":{"n":1.0},"list":[2.50,{"n":3.0}],"no":null}`)}
	for text, want := range map[string]string{
		`let p = price; p`: "1.50", `let p = price; p + ""`: "1.50", `let p = price; string(p) + "/" + len(p)`: "1.50/4", `let p = price; p * 2`: "3",
		`let p = price; let q = p; q`: "1.50", `let p = big; true ? p : 1`: "12345678901234567890.10", `let g = geo; g.n + 1`: "2", `let g = geo; g`: `{"n":1.0}`,
		`let p = price + 0; p`: "1.5", `let l = list; l[1].n == 3`: "true", `let l = list; len(l)`: "2", `let l = list; join(map(l, let x = #; type(x)), ",")`: "float,map",
		`let p = no; p ?? "none"`: "none", `(let p = price; p) + (let p = geo; p.n)`: "2.5", `let p = time; p + 1`: "6", `let p = topic; p + price`: "t1.50",
		`let n = no; [n, price][1]`: "1.5",
	} {
		p, err := Compile(&Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{Table: "t", Row: `"r"`, Put: map[string]map[string]string{"f": {"q": text}}}}}, nil)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		out, err := p.NewMapper().Map(r)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		} else if len(out.Mutations) != 1 || string(out.Mutations[0].Ops[0].Value) != want {
			t.Errorf("%s: got %+v, want %s", text, out.Mutations, want)
		}
	}
}

// FuzzDirectEqualsMachine is the same for whatever compiles.
func FuzzDirectEqualsMachine(f *testing.F) {
	const payload = `{"a":1,"b":"x","c":null,"d":{"e":1.50,"f":[true,"2"]}}`
	for _, s := range []string{
		`a + b`, `a + "" + d.e`, `hash16(b) + pad(a, 3)`, `coalesce(c, d.f[1], "n")`, `u16(coalesce(c, a))`, `not (a == 1) or b != "x"`, `lower(b) == "x" and c == nil`,
		`len(d.f) > 1`, `len(b + "é")`, `date(a, "yyyy") + reverse("ab")`, `c ?? b`, `a > 0 ? d.e : c`, `"x" + (a == 1)`, `-a + 1`, `salt(3, a)`, `d.f[0]`, `!d.f[0]`,
	} {
		f.Add(s, payload)
	}
	f.Fuzz(func(t *testing.T, s, payload string) {
		for _, rule := range []RuleSpec{
			{Row: `"r"`, Put: map[string]map[string]string{"f": {"q": s}}},
			{Row: `"r"`, When: s, Put: map[string]map[string]string{"f": {"q": `"v"`}}},
			{Row: `"r"`, Timestamp: s, Put: map[string]map[string]string{"f": {"q": `"v"`}}},
		} {
			rule.Table = "t"
			spec := &Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{rule}}
			if _, err := (&compilation{machine: true}).compile(spec, nil); err == nil {
				mapBothWays(t, spec, &Record{Topic: "t", Timestamp: 5, Value: []byte(payload)})
			}
		}
	})
}
