package spelling

import (
	"strings"
	"testing"
)

func TestDistance(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		a, b string
		want int
	}{
		{"", "", 0},
		{"", "abc", 3},
		{"abc", "", 3},
		{"kitten", "sitting", 3},
		{"gte", "get", 1},
		{"ca", "abc", 3}, // what was swapped is not changed again
		{"Scan", "sCAN", 0},
		{strings.Repeat("a", 1000), strings.Repeat("a", 2000), 0},
	} {
		if got := Distance(tc.a, tc.b); got != tc.want {
			t.Errorf("%.10q and %.10q: got %d, want %d", tc.a, tc.b, got, tc.want)
		}
	}
}

func TestHint(t *testing.T) {
	t.Parallel()
	known := []string{"table", "tables", "family", "TTL"}
	for name, want := range map[string]string{
		"tabel":                   `did you mean "table"?`,
		"tablee":                  `did you mean "table"?`, // as near as tables
		"tablesx":                 `did you mean "tables"?`,
		"fam":                     `did you mean "family"?`,
		"fa":                      "",
		"ttl":                     `did you mean "TTL"?`,
		"qualifier":               "",
		"":                        "",
		strings.Repeat("n", 1000): "",
	} {
		if got := Hint(name, known); got != want {
			t.Errorf("%q: got %q, want %q", name, got, want)
		}
		aside := Aside(name, known)
		if want != "" {
			want = " (" + want + ")"
		}
		if aside != want {
			t.Errorf("%q: got %q, want %q", name, aside, want)
		}
	}
}
