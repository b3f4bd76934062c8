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
