package mapping

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unsafe"
)

// compileRule compiles a rule of JSON records that puts a value into a row, both expressions.
func compileRule(row, value string) (*Plan, error) {
	return Compile(&Spec{Decode: DecodeSpec{Format: "json"}, Rules: []RuleSpec{{
		Table: "t", Row: row, Put: map[string]map[string]string{"f": {"q": value}},
	}}}, nil)
}

// textAndArray is a record with a text of size bytes and an array of n different elements.
func textAndArray(size, n int) *Record {
	var b strings.Builder
	fmt.Fprintf(&b, `{"user":"%s","items":[`, strings.Repeat("u", size))
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `"x%d"`, i)
	}
	b.WriteString("],\"large\":1e19,\"deep\":" + strings.Repeat("[", n) + "[1,2],[]" + strings.Repeat("]", n) + "}")
	return &Record{Value: []byte(b.String())}
}

// A text of the record that an expression adds to each of many elements is as often in
// memory as there are elements, and one that grows by each is copied as often.
func TestBuiltIsBounded(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`join(map(items, user + "/" + #), ",")`:               "are made in an expression",
		`let u = user; len(map(items, u + # + u))`:            "are made in an expression",
		`len(map(items, lower(user)))`:                        "are made in an expression",
		`reduce(items, #acc + "," + #acc + #, "")`:            "are made in an expression",
		`join(items, user)`:                                   "are made in an expression",
		`items | join(user)`:                                  "are made in an expression",
		`replace(user, "u", user + user)`:                     "are made in an expression",
		`len(map(items, replace(user, "u", "vv", 900)))`:      "are made in an expression",
		`len(map(items, repeat(user, 2)))`:                    "are made in an expression",
		`len(map(items, split(user, "")))`:                    "are made in an expression",
		`len(map(items, splitAfter(user, "u")[0]))`:           "are made in an expression",
		`len(map(items, toBase64(user)))`:                     "are made in an expression",
		`len(map(items, fromBase64(user)))`:                   "are made in an expression",
		`let x = toJSON(items); len(map(items, fromJSON(x)))`: "are made in an expression",
		`len(map(items, items))`:                              "",
		`len(filter(items, # != items[0]))`:                   "",
		`len(map(items, split(#, "x", 2)[1]))`:                "",
		`fromBase64(toBase64(user))`:                          "",
		`repeat(user, 1000000)`:                               "memory budget exceeded",
		`repeat(user, 1000001)`:                               "memory budget exceeded",
		`len(uniq(items))`:                                    "are read for the record",
		`let x = items; count(items, # in x)`:                 "are read for the record",
		`len(filter(items, not (# in items)))`:                "are read for the record",
		`toJSON(deep)`:                                        "are made in an expression",
		`len(flatten(deep))`:                                  "",
		`toJSON(items)`:                                       "",
		`len(uniq(map(items, "x")))`:                          "",
		`len(map(items, user))`:                               "",
		`len(filter(items, # in ["x1", user]))`:               "",
		`string(user in items)`:                               "",
		`any(items, # == user)`:                               "",
		`join(items, ",")`:                                    "",
		`join(split(user, ""))`:                               "",
		`replace(user, "u", "vv")`:                            "",
		`replace(user, "u", "vv", 1)`:                         "",
		`repeat(user, 3)`:                                     "",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			p, err := compileRule(`"r"`, expression)
			if err != nil {
				t.Fatal(err)
			}
			if p.maxBuilt != maxBuilt {
				t.Fatalf("Got a bound of %d bytes, want %d", p.maxBuilt, maxBuilt)
			}
			p.maxBuilt, p.maxSpent = 1<<20, 4<<20
			m := p.NewMapper()
			for range 2 { // what one record has made is not counted to the next one
				_, err = m.Map(textAndArray(1_000, 2_000))
				var e *Error
				switch {
				case want == "" && err != nil:
					t.Fatalf("Got %v of what is within the bounds", err)
				case want != "" && (!errors.As(err, &e) || !strings.Contains(err.Error(), want)):
					t.Fatalf("Got %.200v, want an error that says %q", err, want)
				case want != "" && e.Class != classTooMany && want != "memory budget exceeded":
					t.Errorf("Got class %s, want %s", e.Class, classTooMany)
				}
				m.Release()
			}
		})
	}
}

// What takes no array of texts, or no text, is refused as by expr's own functions.
func TestBoundedFunctionsRefuse(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`uniq("x")`:                     "cannot uniq string",
		`uniq(user)`:                    "cannot uniq string",
		`uniq(items, items)`:            "invalid number of arguments",
		`join([1], ",")`:                "the value is int, not string",
		`join("x")`:                     "cannot use string",
		`string(5 in split(user, ","))`: "cannot use int as type string in array",
		`string("x" in abs(5))`:         "invalid operation: in (mismatched types string and",
		`string("x" in user)`:           `operator "in" not defined on string`,
		`replace(user, 1, "x")`:         "cannot use int",
		`replace(user)`:                 "not enough arguments to call replace",
		`repeat(user, 0 - 1)`:           "expected positive integer",
		`repeat(user, "x")`:             "cannot use string",
		`int(1e30)`:                     "1e+30 is no integer of 8 bytes",
		`int(0 - 1e30)`:                 "-1e+30 is no integer of 8 bytes",
		`int(float("NaN"))`:             "NaN is no integer of 8 bytes",
		`int(9223372036854775807.0)`:    "9.223372036854776e+18 is no integer of 8 bytes",
		`int(large)`:                    "1e+19 is no integer of 8 bytes",
		`large | int()`:                 "1e+19 is no integer of 8 bytes",
		`int([1])`:                      "invalid argument for int",
		`int(nothing)`:                  "field nothing is missing or null",
		`join(nothing, ",")`:            "field nothing is missing or null",
		`uniq(nothing)`:                 "field nothing is missing or null",
	} {
		p, err := compileRule(expression, "1")
		if err == nil {
			_, err = p.NewMapper().Map(textAndArray(5, 2))
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: Got %v, want %s", expression, err, want)
		}
	}
}

// What of expr's functions is ours gives what expr's gives.
func TestBoundedFunctionsGive(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`toJSON({"b": [1, "<,[{\\\"", [], {}], "a": nil})`: "{\n  \"a\": null,\n  \"b\": [\n    1,\n    \"\\u003c,[{\\\\\\\"\",\n    [],\n    {}\n  ]\n}",
		`toJSON("x")`: `"x"`,
		`flatten([1, [nil, [items, [[]]]], {"a": [2]}])`: `[1,null,"x0",{"a":[2]}]`,
		`flatten([1..3, split("a,b", ",")])`:             `[1,2,3,"a","b"]`,
		`flatten([])`:                                    `[]`,
		`flatten(deep)`:                                  `[1,2]`,
		`uniq([1, 1.0, "1", nil, nil, [1], [1], true])`:  `[1,"1",null,[1],true]`,
		`join(["a"], ",")`:                               "a",
		`join([])`:                                       "",
		`replace("aaa", "a", "b", 2)`:                    "bba",
		`replace("ab", "", "-")`:                         "-a-b-",
		`repeat("ab", 0)`:                                "",
		`split("a-b-c", "-", 2)`:                         `["a","b-c"]`,
		`fromBase64("YQ==")`:                             "a",
		`int(1.9)`:                                       "1",
		`int(0 - 1.9)`:                                   "-1",
		`int("12")`:                                      "12",
		`int(9223372036854774784.0)`:                     "9223372036854774784",
		`int(offset)`:                                    "0",
	} {
		p, err := compileRule(`"r"`, expression)
		if err != nil {
			t.Fatal(err)
		}
		out, err := p.NewMapper().Map(textAndArray(1, 1))
		if err != nil || string(out.Mutations[0].Ops[0].Value) != want {
			t.Errorf("%s: Got %+v, %v, want %s", expression, out, err, want)
		}
	}
}

// The machine has one copy of a text, however often an expression reads it.
func TestTextsAreCopiedOnce(t *testing.T) {
	t.Parallel()
	p, err := compileRule(`trim(user)`, "1")
	if err != nil {
		t.Fatal(err)
	}
	m := p.NewMapper()
	var before string
	for _, size := range []int{5, 5, 7} {
		if _, err := m.Map(textAndArray(size, 1)); err != nil {
			t.Fatal(err)
		}
		a, _ := m.sourceValue(0)
		b, _ := m.sourceValue(0)
		if a != strings.Repeat("u", size) || unsafe.StringData(a.(string)) != unsafe.StringData(b.(string)) {
			t.Errorf("Got %q and %q, want one copy", a, b)
		}
		if before != "" && before != strings.Repeat("u", len(before)) {
			t.Errorf("Got %q of the record before", before)
		}
		before = a.(string)
	}
}

// len counts the elements of whatever array or object expr's functions make.
func TestLenOfMade(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`len(split("/a/b", "/"))`:                  "3",
		`len(splitAfter("/a/b", "/"))`:             "3",
		`let parts = split(user, "u"); len(parts)`: "4",
		`len(3..12)`:                           "10",
		`len(groupBy(items, len(#)))`:          "2",
		`len(fromPairs([["a", 1], ["b", 2]]))`: "2",
		`len(map(items, #))`:                   "11",
		`len(items[1:3])`:                      "2",
		`len(b"abc")`:                          "3",
		`len(1..3 == nil ? "" : "abcd")`:       "4",
	} {
		t.Run(expression, func(t *testing.T) {
			t.Parallel()
			p, err := compileRule(`"r"`, expression)
			if err != nil {
				t.Fatal(err)
			}
			out, err := p.NewMapper().Map(textAndArray(3, 11))
			if err != nil {
				t.Fatal(err)
			}
			if got := string(out.Mutations[0].Ops[0].Value); got != want {
				t.Errorf("Got %s, want %s", got, want)
			}
		})
	}
}
