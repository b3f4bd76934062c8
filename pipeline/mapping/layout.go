package mapping

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/rowkey"
)

// layout is a compiled date pattern in Java's letters (DateTimeFormatter).
type layout struct {
	parts  []layoutPart
	has    map[byte]bool
	quotes bool // a quote is inside of quotes
}

// layoutPart is a field of a date, or literal text where letter is 0.
type layoutPart struct {
	letter byte
	n      int
	text   string
}

const layoutHelp = "a layout has yyyy MM MMM dd HH mm ss SSS Z XXX and text in single quotes"

// parseLayout compiles a pattern.
func parseLayout(s string) (*layout, error) {
	l := &layout{has: map[byte]bool{}}
	literal := func(text string) { l.parts = append(l.parts, layoutPart{text: text}) }
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\'':
			// As Java's DateTimeFormatterBuilder: two quotes are one inside of quotes, too.
			end := i + 1
			for end < len(s) && (s[end] != '\'' || strings.HasPrefix(s[end:], "''")) {
				if s[end] == '\'' {
					l.quotes = true
					end++
				}
				end++
			}
			if end >= len(s) {
				return nil, fmt.Errorf("layout %q: byte %d: the quote is not closed", s, i)
			}
			if end == i+1 {
				literal("'")
			} else {
				literal(strings.ReplaceAll(s[i+1:end], "''", "'"))
			}
			i = end + 1
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z':
			n := 1
			for i+n < len(s) && s[i+n] == c {
				n++
			}
			switch s[i : i+n] {
			case "yyyy", "MM", "MMM", "dd", "HH", "mm", "ss", "SSS", "Z", "XXX":
			default:
				return nil, fmt.Errorf("layout %q: byte %d: no field %s; %s", s, i, s[i:i+n], layoutHelp)
			}
			if l.has[c] {
				return nil, fmt.Errorf("layout %q: byte %d: field %s is given twice", s, i, s[i:i+n])
			}
			l.parts = append(l.parts, layoutPart{letter: c, n: n})
			l.has[c] = true
			i += n
		default:
			literal(s[i : i+1])
			i++
		}
	}
	if len(l.parts) == 0 {
		return nil, errors.New("the layout is empty; " + layoutHelp)
	}
	return l, nil
}

const monthNames = "JanFebMarAprMayJunJulAugSepOctNovDec"

// spelled reports whether four digits can spell the year of t (ms since the epoch) in loc.
func spelled(t int64, loc *time.Location) bool {
	year := time.UnixMilli(t).In(loc).Year()
	return year >= 0 && year <= 9999
}

// append appends the time t (ms since the epoch), of which spelled is true, as it is
// in loc.
func (l *layout) append(dst []byte, t int64, loc *time.Location) []byte {
	at := time.UnixMilli(t).In(loc)
	year, month, day := at.Date()
	hour, minute, second := at.Clock()
	for i := range l.parts {
		switch p := &l.parts[i]; p.letter {
		case 0:
			dst = append(dst, p.text...)
		case 'y':
			dst = append2(append2(dst, year/100), year%100)
		case 'M':
			if p.n == 2 {
				dst = append2(dst, int(month))
			} else {
				dst = append(dst, monthNames[3*month-3:3*month]...)
			}
		case 'd':
			dst = append2(dst, day)
		case 'H':
			dst = append2(dst, hour)
		case 'm':
			dst = append2(dst, minute)
		case 's':
			dst = append2(dst, second)
		case 'S':
			ms := at.Nanosecond() / 1e6
			dst = append2(append(dst, byte('0'+ms/100)), ms%100)
		case 'Z', 'X':
			_, zone := at.Zone()
			if p.letter == 'X' && zone == 0 {
				dst = append(dst, 'Z')
				break
			}
			sign := byte('+')
			if zone < 0 {
				sign, zone = '-', -zone
			}
			dst = append2(append(dst, sign), zone/3600)
			if p.letter == 'X' {
				dst = append(dst, ':')
			}
			dst = append2(dst, zone/60%60)
		}
	}
	return dst
}

func append2(dst []byte, v int) []byte { return append(dst, byte('0'+v/10), byte('0'+v%10)) }

var errNotLayout = errors.New("the text does not have the layout's form")

// parse returns the time that s spells, in loc where the layout has no zone. What
// the layout leaves out is 1970-01-01 00:00:00.
func (l *layout) parse(s []byte, loc *time.Location) (int64, error) {
	year, month, day, hour, minute, second, ms, zone := 1970, 1, 1, 0, 0, 0, 0, 0
	zoned := false
	digits := func(n int, v *int) bool {
		if len(s) < n {
			return false
		}
		*v = 0
		for _, c := range s[:n] {
			if c < '0' || c > '9' {
				return false
			}
			*v = *v*10 + int(c-'0')
		}
		s = s[n:]
		return true
	}
	for i := range l.parts {
		ok := true
		switch p := &l.parts[i]; p.letter {
		case 0:
			ok = len(s) >= len(p.text) && string(s[:len(p.text)]) == p.text
			if ok {
				s = s[len(p.text):]
			}
		case 'y':
			ok = digits(4, &year)
		case 'M':
			if p.n == 2 {
				ok = digits(2, &month)
				break
			}
			month = 0
			for k := 0; len(s) >= 3 && k < 12; k++ {
				if string(s[:3]) == monthNames[3*k:3*k+3] {
					month = k + 1
				}
			}
			if ok = month > 0; ok {
				s = s[3:]
			}
		case 'd':
			ok = digits(2, &day)
		case 'H':
			ok = digits(2, &hour)
		case 'm':
			ok = digits(2, &minute)
		case 's':
			ok = digits(2, &second)
		case 'S':
			ok = digits(3, &ms)
		case 'Z', 'X':
			zoned = true
			if p.letter == 'X' && len(s) > 0 && s[0] == 'Z' {
				s = s[1:]
				break
			}
			if ok = len(s) > 0 && (s[0] == '+' || s[0] == '-'); !ok {
				break
			}
			negative := s[0] == '-'
			s = s[1:]
			var h, m int
			ok = digits(2, &h)
			if ok && p.letter == 'X' {
				if ok = len(s) > 0 && s[0] == ':'; ok {
					s = s[1:]
				}
			}
			ok = ok && digits(2, &m) && h <= 23 && m <= 59
			if zone = h*3600 + m*60; negative {
				zone = -zone
			}
		}
		if !ok {
			return 0, errNotLayout
		}
	}
	if len(s) != 0 || month < 1 || month > 12 || hour > 23 || minute > 59 || second > 59 {
		return 0, errNotLayout
	}
	at := time.Date(year, time.Month(month), day, hour, minute, second, ms*1e6, time.UTC)
	if zoned {
		at = at.Add(-time.Duration(zone) * time.Second)
	} else {
		at = rowkey.InZone(at, loc)
	}
	if day < 1 || day > time.Date(year, time.Month(month)+1, 0, 0, 0, 0, 0, time.UTC).Day() {
		return 0, errNotLayout
	}
	return at.UnixMilli(), nil
}

// dateFormat is one date(…) of the rules: a layout in a zone.
type dateFormat struct {
	layout *layout
	zone   *time.Location
	unit   int64 // ms for which the text stays the same in a zone of whole minutes
}

func newDateFormat(l *layout, zone *time.Location) dateFormat {
	f := dateFormat{layout: l, zone: zone, unit: 60_000}
	switch {
	case l.has['S']:
		f.unit = 1
	case l.has['s']:
		f.unit = 1000
	}
	return f
}

// dateCache is the last text of a dateFormat and the times [from, to) that it is
// the text of. Events come roughly in order of time, so that most dates are those
// of the event before.
type dateCache struct {
	from, to int64
	text     []byte
}

// append appends the text of t.
func (c *dateCache) append(dst []byte, f *dateFormat, t int64) ([]byte, error) {
	if t >= c.from && t < c.to {
		return append(dst, c.text...), nil
	}
	if !spelled(t, f.zone) {
		return dst, valueErrorf("date of %d ms since 1970, which is outside the years 0..9999", t)
	}
	c.text = f.layout.append(c.text[:0], t, f.zone)
	c.from = t - ((t%f.unit)+f.unit)%f.unit
	c.to = c.from + f.unit
	if f.zone != time.UTC {
		// Inside the zone's current offset only, and only where a minute of
		// UTC is a minute of the zone.
		at := time.UnixMilli(t).In(f.zone)
		if _, offset := at.Zone(); offset%60 != 0 {
			c.from, c.to = t, t+1
		}
		start, end := at.ZoneBounds()
		if !start.IsZero() {
			c.from = max(c.from, start.UnixMilli())
		}
		if !end.IsZero() {
			c.to = min(c.to, end.UnixMilli())
		}
	}
	return append(dst, c.text...), nil
}
