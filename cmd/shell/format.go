package main

import (
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/cell"
)

// printer writes what HBase's shell prints (formatter.rb): on a terminal two
// columns, the first a quarter of the width, both padded and wrapped; otherwise
// the two texts and a blank between them.
type printer struct {
	out   io.Writer
	width int // of the terminal; 0 = not a terminal
	loc   *time.Location
}

// header prints the titles of a listing.
func (p *printer) header(titles ...string) {
	if p.width > 0 && len(titles) == 2 {
		p.row("", "", titles...)
		return
	}
	fmt.Fprintln(p.out, strings.Join(titles, "  "))
}

// data prints one row of a listing.
func (p *printer) data(columns ...string) { p.row(" ", " ", columns...) }

func (p *printer) row(lead, between string, columns ...string) {
	if p.width == 0 || len(columns) != 2 {
		fmt.Fprintln(p.out, lead+strings.Join(columns, between))
		return
	}
	w1 := p.width / 4
	w2 := p.width - w1
	a, b := lead+columns[0], lead+columns[1]
	for first := true; first || a != "" || b != ""; first = false {
		var x, y string
		x, a = cut(a, w1)
		y, b = cut(b, w2)
		if !first || a != "" || b != "" {
			// A wrapped text is indented as its first line is.
			if a != "" {
				a = lead + a
			}
			if b != "" {
				b = lead + b
			}
		}
		fmt.Fprintf(p.out, "%-*s%-*s\n", w1, x, w2, y)
	}
}

func cut(s string, n int) (head, rest string) {
	if n < 2 || len(s) <= n {
		return s, ""
	}
	return s[:n], s[n:]
}

// count prints how many rows a listing had.
func (p *printer) count(n int) { fmt.Fprintf(p.out, "%d row(s)\n", n) }

// escape prints bytes as HBase's Bytes.toStringBinary: printable ASCII as it is,
// everything else, the backslash too, as \xNN.
func escape(b []byte) string {
	plain := true
	for _, c := range b {
		plain = plain && c >= ' ' && c <= '~' && c != '\\'
	}
	if plain {
		return string(b)
	}
	var s strings.Builder
	for _, c := range b {
		if c >= ' ' && c <= '~' && c != '\\' {
			s.WriteByte(c)
		} else {
			fmt.Fprintf(&s, "\\x%02X", c)
		}
	}
	return s.String()
}

// timestamp prints t as java.time.LocalDateTime.toString does: trailing zero
// parts vanish.
func (p *printer) timestamp(t cell.Timestamp) string {
	at := time.UnixMilli(int64(t)).In(p.loc)
	switch {
	case at.Year() > 9999 || at.Year() < 0:
		return fmt.Sprint(int64(t)) // beyond what a date of four digits can say
	case at.Nanosecond() != 0:
		return at.Format("2006-01-02T15:04:05.000")
	case at.Second() != 0:
		return at.Format("2006-01-02T15:04:05")
	}
	return at.Format("2006-01-02T15:04")
}

// cellText prints the right column of get and scan. maxLength cuts it; 0 = whole.
func (p *printer) cellText(c *cell.Cell, value string, maxLength int) string {
	s := "timestamp=" + p.timestamp(c.Time)
	if c.Kind.IsDelete() {
		s += ", type=" + c.Kind.String()
	} else {
		s += ", value=" + value
	}
	if maxLength > 0 && len(s) > maxLength {
		s = s[:maxLength]
	}
	return s
}
