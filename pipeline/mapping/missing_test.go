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
		`string(large)`:                      "1e+19",
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
