package mapping

import (
	"strings"
	"testing"
)

// What reads a missing field is missing, string and toJSON as well.
func TestMissingTexts(t *testing.T) {
	t.Parallel()
	for expression, want := range map[string]string{
		`string(nothing)`:                    "field nothing is missing or null",
		`"a" + string(user.x)`:               "field user.x is missing or null",
		`toJSON(nothing)`:                    "field nothing is missing or null",
		`nothing | string()`:                 "field nothing is missing or null",
		`string()`:                           "not enough arguments to call string",
		`toJSON(1, 2)`:                       "too many arguments to call toJSON",
		`coalesce(string(nothing), "none")`:  "none",
		`string(nothing) ?? "none"`:          "none",
		`string(nothing) == "x" ? "1" : "2"`: "2",
		`toJSON(nothing) == nil ? "1" : "2"`: "1",
		`string(large)`:                      "1e19",
		`string(user) == "u" ? "1" : "2"`:    "1",
	} {
		p, err := compileRule(expression, "1")
		got := ""
		if err == nil {
			var out *Output
			if out, err = p.NewMapper().Map(textAndArray(1, 1)); err == nil {
				got = string(out.Mutations[0].Row)
			}
		}
		if err != nil && !strings.Contains(err.Error(), want) || err == nil && got != want {
			t.Errorf("%s: Got %q, %v, want %s", expression, got, err, want)
		}
	}
}

// What expr's functions make has the text that a value of the record has: nothing of Go's own
// spelling, and nothing where there is nothing.
func TestTextsOfMade(t *testing.T) {
	t.Parallel()
	record := []byte(`{"user":"u","price":1.50,"big":12345678901234567890,"n":3,"tags":["new", "x"],"none":[],"key":"\u0000k"}`)
	const missing = "(missing)"
	for expression, want := range map[string]string{
		`string(price)`:                            "1.50",
		`string(price * 1000000)`:                  "1500000",
		`string(big)`:                              "12345678901234567890",
		`string(n > 2 ? price : n)`:                "1.50",
		`string(tags)`:                             `["new", "x"]`,
		`string({"b": 1, "a": [2000000.5]})`:       `{"a":[2000000.5],"b":1}`,
		`string(tags == nil)`:                      "false",
		`string(split(user, ","))`:                 `["u"]`,
		`join(map([1, 2.5, 1e7], string(#)), " ")`: "1 2.5 10000000",
		`string(groupBy(tags, #)["zz"])`:           missing,
		`user + (price ?? 0)`:                      "u1.50",
		`user + coalesce(none.x, price, 0)`:        "u1.50",
		`user + (n > 2 ? price : n)`:               "u1.50",
		`n + (price ?? 0)`:                         "4.5",
		`n + (n > 2 ? price : user)`:               "4.5",
		`groupBy(tags, #)["zz"]`:                   missing,
		`len(groupBy(tags, #)["zz"])`:              missing,
		`groupBy(tags, #)["zz"] ?? "none"`:         "none",
		`groupBy(tags, #)["x"]`:                    `["x"]`,
		`concat(none, none)`:                       "[]",
		`concat(none, none) ?? "none"`:             "[]",
		`concat(tags, none, split(user, ","))`:     `["new","x","u"]`,
		`split(user, ",", 0)`:                      "[]",
		`let u = user; u == b"u"`:                  "true",
		`let u = user; u in [b"u", "v"]`:           "true",
		`b"u" in [user]`:                           "true",
		`doc.key startsWith b"\x00"`:               "true",
		`[b"a"]`:                                   `["a"]`,
		`len(b"abc")`:                              "3",
		`b"a" + user`:                              "au",
	} {
		p, err := compileRule(`"r"`, expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got := missing
		out, err := p.NewMapper().Map(&Record{Value: record})
		if err == nil && len(out.Mutations) > 0 {
			got = string(out.Mutations[0].Ops[0].Value)
		}
		if err != nil || got != want {
			t.Errorf("%s: Got %q, %v, want %q", expression, got, err, want)
		}
	}
}

// What reads a missing field is missing in expr's machine, too, up to what asks for that: ??,
// coalesce, == and lists. What fails for another reason is refused, whatever else is missing.
func TestMissingInMachine(t *testing.T) {
	t.Parallel()
	record := []byte(`{"one":1,"s":"x","list":[1,2],"items":[{"n":1},{}],"none":null}`)
	const missing = "(missing)"
	for expression, want := range map[string]string{
		`int(none) ?? 0`:                      "0",
		`coalesce(int(none), 3)`:              "3",
		`trim(none) ?? "x"`:                   "x",
		`split(none, ",")[0] ?? "x"`:          "x",
		`split(none, ",")[0]`:                 missing,
		`u16(int(none)) ?? "x"`:               "x",
		`none * 2 + 1`:                        missing,
		`(none * 2 + 1) ?? 5`:                 "5",
		`(-none) ?? 5`:                        "5",
		`(none / 2) ?? 5`:                     "5",
		`(none % 2) == nil`:                   "true",
		`time != int(none)`:                   "true",
		`int(none) == 3`:                      "false",
		`(none > 1) ?? false`:                 "false",
		`(not none) ?? true`:                  "true",
		`(none and one == 1) ?? "?"`:          "?",
		`(none or one == 1) ?? "?"`:           "?",
		`one == 2 and none`:                   "false",
		`one == 2 or s`:                       "the value is a text, not true or false",
		`one == 1 and one`:                    "the value is a number, not true or false",
		`one == 1 or s`:                       "true",
		`(none ? 1 : 2) ?? 3`:                 "3",
		`[one, none % 2]`:                     "[1,null]",
		`list[none] ?? 7`:                     "7",
		`get(list, none) ?? 7`:                "7",
		`s[none:] ?? 7`:                       "7",
		`max(one, none) ?? 7`:                 "7",
		`replace(s, "x", none) ?? 7`:          "7",
		`fromJSON(none) ?? 7`:                 "7",
		`any(none, # > 1) ?? 7`:               "7",
		`len(filter(none, # > 1)) ?? 7`:       "7",
		`any(list, # > none)`:                 missing,
		`any(list, # > (int(none) ?? 1))`:     "true",
		`filter(list, # > 1 and none > 1)`:    missing,
		`groupBy(list, # % none)`:             missing,
		`map(list, # * none)`:                 "[null,null]",
		`map(list, let y = # * 2; y * none)`:  "[null,null]",
		`let x = none % 2; (x * 2) ?? 7`:      "7",
		`reduce(list, #acc + # % none, 0)`:    missing,
		`(int(none) ?? 2) * one`:              "2",
		`(none ?? "x") - 5`:                   "invalid operation: string - int",
		`coalesce(none, s) > one`:             "invalid operation: string > int",
		`[none, s * 2]`:                       "invalid operation: string * int",
		`sum(items, #.n)`:                     "invalid operation: nil + int",
		`[none ?? 1, sum(items, #.n)]`:        "invalid operation: nil + int",
		`map(items, list[#.n + (none ?? 0)])`: "the index is nil",
		`(none ?? list) ? 1 : 2`:              "the value is array, not bool",
	} {
		p, err := compileRule(`"r"`, expression)
		if err != nil {
			t.Errorf("%s: %v", expression, err)
			continue
		}
		got := missing
		out, err := p.NewMapper().Map(&Record{Value: record})
		switch {
		case err != nil:
			if got = err.Error(); strings.Contains(got, want) {
				continue
			}
		case len(out.Mutations) > 0:
			got = string(out.Mutations[0].Ops[0].Value)
		}
		if got != want {
			t.Errorf("%s: Got %q, want %q", expression, got, want)
		}
	}
}
