package counters

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/cell"
)

// ErrNotRollup is wrapped by the errors of names, rows and qualifiers that no
// rollup has.
var ErrNotRollup = errors.New("counters: not of a rollup")

// Rollup is what the rows of one rollup have in common: what is counted, and by
// which dimensions, in which order. docs/row-keys.md has the layout:
//
//	row        name "/" dimension "," dimension … (00 value*) (00 value*) …
//	family     the bucket, such as "hour"; of a distinct count "distinct_hour"
//	qualifier  the bucket's name, such as 2026112117
//
// Values are in the order of the dimensions, with 00 written as 01 01 and 01 as
// 01 02, so that rows sort by the first value, then by the second, whatever bytes
// these have, and the rows of one value of the first dimension lie together.
type Rollup struct {
	Name       string
	Dimensions []string // none = one row, that of everything
}

// maxRollupName bounds the names of rollups and dimensions: they are in every row.
const maxRollupName = 64

// CheckRollupName checks the name of a rollup or of a dimension: 1..64 letters of
// ASCII, digits, - and _. Its error wraps ErrNotRollup.
func CheckRollupName(name string) error {
	if name == "" || len(name) > maxRollupName {
		return fmt.Errorf("%w: a name has 1..%d characters, not %d", ErrNotRollup, maxRollupName, len(name))
	}
	for _, r := range name {
		if !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_') {
			return fmt.Errorf("%w: name %q: %q is not allowed; letters of ASCII, digits, - and _ are", ErrNotRollup, name, r)
		}
	}
	return nil
}

// Validate checks the names, and that no dimension is there twice. Its error wraps
// ErrNotRollup.
func (r *Rollup) Validate() error {
	if err := CheckRollupName(r.Name); err != nil {
		return err
	}
	for i, d := range r.Dimensions {
		if err := CheckRollupName(d); err != nil {
			return fmt.Errorf("dimension %d: %w", i, err)
		}
		if slices.Contains(r.Dimensions[:i], d) {
			return fmt.Errorf("%w: dimension %s is there twice", ErrNotRollup, d)
		}
	}
	return nil
}

// Head is what all rows of the rollup begin with.
func (r *Rollup) Head() string { return r.Name + "/" + strings.Join(r.Dimensions, ",") }

// AppendDimension appends one value to a row that begins with Head.
func AppendDimension(dst, value []byte) []byte {
	dst = append(dst, 0)
	for _, c := range value {
		if c <= 1 {
			dst = append(dst, 1)
			c++
		}
		dst = append(dst, c)
	}
	return dst
}

// Row returns the row of these values, one a dimension. Its error wraps
// ErrNotRollup.
func (r *Rollup) Row(values ...[]byte) ([]byte, error) {
	if len(values) != len(r.Dimensions) {
		return nil, fmt.Errorf("%w: %d values for the %d dimensions of %s", ErrNotRollup, len(values), len(r.Dimensions), r.Head())
	}
	return r.append(values), nil
}

func (r *Rollup) append(values [][]byte) []byte {
	row := []byte(r.Head())
	for _, v := range values {
		row = AppendDimension(row, v)
	}
	return row
}

// Rows returns the range of the rows whose first dimensions have these values;
// without values, all rows of the rollup. Its error wraps ErrNotRollup.
func (r *Rollup) Rows(values ...[]byte) (cell.Range, error) {
	if len(values) > len(r.Dimensions) {
		return cell.Range{}, fmt.Errorf("%w: %d values for the %d dimensions of %s", ErrNotRollup, len(values), len(r.Dimensions), r.Head())
	}
	start := r.append(values)
	if len(values) == len(r.Dimensions) {
		return cell.Range{Start: start, Stop: append(bytes.Clone(start), 0)}, nil
	}
	start = append(start, 0)
	return cell.Range{Start: start, Stop: cell.PrefixEnd(start)}, nil
}

// Values returns the values in a row of the rollup, in memory of their own. Its
// error wraps ErrNotRollup and names the row.
func (r *Rollup) Values(row []byte) ([][]byte, error) {
	bad := func(why string) error { return fmt.Errorf("%w: row %.100q: %s", ErrNotRollup, row, why) }
	rest, ok := bytes.CutPrefix(row, []byte(r.Head()))
	if !ok {
		return nil, bad("it does not begin with " + r.Head())
	}
	var values [][]byte
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		switch {
		case c == 0:
			values = append(values, []byte{})
			continue
		case len(values) == 0:
			return nil, bad("it does not begin with " + r.Head())
		case c == 1:
			if i++; i == len(rest) || rest[i] != 1 && rest[i] != 2 {
				return nil, bad("an escape is broken")
			}
			c = rest[i] - 1
		}
		last := len(values) - 1
		values[last] = append(values[last], c)
	}
	if len(values) != len(r.Dimensions) {
		return nil, bad(fmt.Sprintf("it has %d values for %d dimensions", len(values), len(r.Dimensions)))
	}
	return values, nil
}

// Family returns the family that a rollup keeps this bucket in.
func (b Bucket) Family(distinct bool) string {
	if distinct {
		return "distinct_" + b.String()
	}
	return b.String()
}

// Zone returns the zone that a rollup's buckets begin by: loc for days, weeks and
// months, UTC for the others, so that no hour of theirs is there twice or longer
// than the others.
func (b Bucket) Zone(loc *time.Location) *time.Location {
	if loc == nil || b == Minute || b == Hour || b == Total {
		return time.UTC
	}
	return loc
}

// digits is how many digits of yyyyMMddHHmm name a bucket.
var digits = [...]int{Minute: 12, Hour: 10, Day: 8, Week: 8, Month: 6}

// MaxNamed is where the names of buckets end: no instant from 9999-12-31 UTC on has
// one, so that none is of the year 10000 in any zone. Total's name has no end.
const MaxNamed = cell.Timestamp(253_402_214_400_000)

// AppendName appends the qualifier of the bucket that t is in: as many digits of
// yyyyMMddHHmm as tell minutes, hours, days and months apart; of a week, its
// Monday; of Total, "total". Names sort as their buckets do, and each is that of one
// stretch of time, but where clocks go back over midnight: a day is there before and
// after the end of its eve. t is 0 or later. The error wraps ErrNotRollup: from
// MaxNamed on, and of no Bucket, there are no names.
func (b Bucket) AppendName(dst []byte, t cell.Timestamp, loc *time.Location) ([]byte, error) {
	if b == Total {
		return append(dst, "total"...), nil
	}
	if b == 0 || b > Total {
		return dst, fmt.Errorf("%w: no such bucket: %s", ErrNotRollup, b)
	}
	if t >= MaxNamed {
		return dst, fmt.Errorf("%w: %d ms since 1970 is not before 9999-12-31, where the names of buckets end", ErrNotRollup, t)
	}
	loc = b.Zone(loc)
	at := time.UnixMilli(int64(b.Truncate(t, loc))).In(loc)
	return append(dst, at.Format("200601021504")[:digits[b]]...), nil
}

// ParseName returns the first instant of the bucket that AppendName names so. Its
// error wraps ErrNotRollup.
func (b Bucket) ParseName(name []byte, loc *time.Location) (cell.Timestamp, error) {
	bad := fmt.Errorf("%w: %.40q is the name of no %s", ErrNotRollup, name, b)
	if b == Total {
		if string(name) != "total" {
			return 0, bad
		}
		return 0, nil
	}
	if b == 0 || b > Total || len(name) != digits[b] {
		return 0, bad
	}
	field := func(from, to, absent int) int {
		if from >= len(name) {
			return absent
		}
		n, err := strconv.ParseUint(string(name[from:to]), 10, 16)
		if err != nil {
			return -1
		}
		return int(n)
	}
	// Noon is in every day, whatever its clocks do; and a time that is not what
	// its fields say has another name.
	loc = b.Zone(loc)
	at := time.Date(field(0, 4, 0), time.Month(field(4, 6, 1)), field(6, 8, 1), field(8, 10, 12), field(10, 12, 0), 0, 0, loc)
	t := b.Truncate(max(0, cell.Timestamp(at.UnixMilli())), loc)
	if again, err := b.AppendName(nil, max(0, t), loc); err != nil || !bytes.Equal(again, name) {
		return 0, bad
	}
	if t > 0 { // clocks may have gone back over midnight since
		if eve := b.Truncate(t-1, loc); eve > 0 {
			first := b.Truncate(eve-1, loc)
			if again, err := b.AppendName(nil, max(0, first), loc); err == nil && bytes.Equal(again, name) {
				return first, nil
			}
		}
	}
	return t, nil
}
