package store

import (
	"errors"
	"strconv"
	"strings"
	"testing"
)

// FuzzParseTTL: a TTL is 1 to Forever, and is read again from what is printed of it.
func FuzzParseTTL(f *testing.F) {
	for _, s := range []string{"FOREVER", "1", "2147483647", "2147483648", "1 DAY 2 HOURS", "1 day 1 day", "0 SECONDS", "-1", "24855 DAYS 3 HOURS 14 MINUTES 7 SECONDS", "9223372036854775807 DAYS", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseTTL(s)
		if err != nil {
			if n != 0 || !errors.Is(err, ErrInvalidArgument) {
				t.Errorf("%q: Got %d, %v", s, n, err)
			}
			return
		}
		if n < 1 || n > Forever {
			t.Fatalf("%q: Got %d", s, n)
		}
		printed, parts, _ := strings.Cut(FormatTTL(n), " (")
		for _, text := range []string{strconv.Itoa(n), printed, strings.ToLower(printed), strings.TrimSuffix(parts, ")")} {
			if text == "" { // it is one unit
				continue
			}
			if again, err := ParseTTL(text); again != n || err != nil {
				t.Errorf("%q is %d, printed as %q, and read as %d, %v", s, n, text, again, err)
			}
		}
	})
}
