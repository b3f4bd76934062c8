package config

import (
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"unicode"
)

// Size is a number of bytes, written as "64KiB", "16MiB", "1GiB", "10MB" or a
// plain number.
type Size int64

var sizeUnits = []struct {
	name  string
	bytes float64
}{
	{"kib", 1 << 10},
	{"mib", 1 << 20},
	{"gib", 1 << 30},
	{"tib", 1 << 40},
	{"kb", 1e3},
	{"mb", 1e6},
	{"gb", 1e9},
	{"tb", 1e12},
	{"b", 1},
}

// UnmarshalText reads a size. Negative sizes and sizes beyond 2⁶³-1 are errors.
func (s *Size) UnmarshalText(text []byte) error {
	t := strings.ToLower(strings.TrimSpace(string(text)))
	number := strings.TrimRightFunc(t, unicode.IsLetter)
	unit := t[len(number):]
	number = strings.TrimSpace(number)
	scale := 0.0
	if unit == "" {
		scale = 1
	}
	for _, u := range sizeUnits {
		if u.name == unit {
			scale = u.bytes
		}
	}
	if n, err := strconv.ParseInt(number, 10, 64); err == nil && scale == 1 && n >= 0 {
		*s = Size(n)
		return nil
	}
	n, err := strconv.ParseFloat(number, 64)
	if err != nil || scale == 0 || n < 0 || math.IsNaN(n) || n*scale >= math.MaxInt64 {
		return fmt.Errorf("%q is not a size: write 64KiB, 16MiB, 1GiB or a number of bytes", text)
	}
	*s = Size(n * scale)
	return nil
}

// String prints the size in the largest binary unit that divides it.
func (s Size) String() string {
	if s == 0 {
		return "0"
	}
	for i := 3; i >= 0; i-- {
		if unit := Size(sizeUnits[i].bytes); s%unit == 0 {
			return strconv.FormatInt(int64(s/unit), 10) + [...]string{"KiB", "MiB", "GiB", "TiB"}[i]
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// MarshalText writes String.
func (s Size) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Secret is a text that is never printed: passwords and tokens. Convert it to a
// string to use it.
type Secret string

const mask = "********"

// String returns a mask, or "" where there is no secret.
func (s Secret) String() string {
	if s == "" {
		return ""
	}
	return mask
}

// GoString keeps %#v from printing the secret.
func (s Secret) GoString() string { return strconv.Quote(s.String()) }

// Format keeps verbs that are for no text, such as %d, from printing it.
func (s Secret) Format(f fmt.State, verb rune) {
	fmt.Fprintf(f, fmt.FormatString(f, verb), s.String())
}

// LogValue keeps slog from printing it.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText writes the mask.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Start is where a pipeline begins on a partition that it has never read. The
// zero value is the log's first record.
type Start struct {
	Latest    bool
	Committed bool  // where the group has committed to Kafka
	Time      int64 // ms since the Unix epoch: the first record at or after it; 0 = by the others
}

// UnmarshalText reads "earliest", "latest", "committed" or a time in RFC 3339.
func (s *Start) UnmarshalText(text []byte) error {
	switch t := string(text); t {
	case "earliest":
		*s = Start{}
	case "latest":
		*s = Start{Latest: true}
	case "committed":
		*s = Start{Committed: true}
	default:
		ms, err := parseTime(t)
		if err != nil {
			return fmt.Errorf("%q is no place to start: write earliest, latest, committed or a time such as 2026-01-31T00:00:00Z", t)
		}
		*s = Start{Time: ms}
	}
	return nil
}

// String writes what UnmarshalText reads.
func (s Start) String() string {
	switch {
	case s.Time != 0:
		return formatTime(s.Time)
	case s.Latest:
		return "latest"
	case s.Committed:
		return "committed"
	}
	return "earliest"
}

// MarshalText writes String.
func (s Start) MarshalText() ([]byte, error) { return []byte(s.String()), nil }
