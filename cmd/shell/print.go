package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
)

// printer writes either what HBase's shell prints (formatter.rb) or one JSON object
// a row. In text, a terminal gets two columns, the first a quarter of the width,
// both padded and wrapped; elsewhere it is the two texts and a blank between them.
// A method for one of the forms does nothing in the other. What is printed is gathered
// until flush, which also tells of a write that failed.
type printer struct {
	out   *bufio.Writer
	json  bool
	width int // of the terminal; 0 = not a terminal
	loc   *time.Location

	scratch bytes.Buffer // of one object
}

func newPrinter(w io.Writer, loc *time.Location) printer {
	return printer{out: bufio.NewWriterSize(w, 32<<10), loc: loc}
}

// flush writes what was printed. Its error is the first of all writes.
func (p *printer) flush() error {
	if err := p.out.Flush(); err != nil {
		return fmt.Errorf("print: %w", err)
	}
	return nil
}

// line prints a line of text.
func (p *printer) line(s string) {
	if !p.json {
		_, _ = p.out.WriteString(s) // flush tells
		_ = p.out.WriteByte('\n')
	}
}

// linef prints a line of text.
func (p *printer) linef(format string, a ...any) {
	if !p.json {
		fmt.Fprintf(p.out, format+"\n", a...)
	}
}

// header prints the titles of a listing.
func (p *printer) header(titles ...string) {
	if p.width > 0 && len(titles) == 2 {
		p.row("", "", titles...)
		return
	}
	p.line(strings.Join(titles, "  "))
}

// data prints one row of a listing of two columns.
func (p *printer) data(columns ...string) { p.row(" ", " ", columns...) }

func (p *printer) row(lead, between string, columns ...string) {
	if p.width == 0 || len(columns) != 2 {
		p.line(lead + strings.Join(columns, between))
		return
	}
	w1 := p.width / 4
	w2 := p.width - w1
	a, b := lead+columns[0], lead+columns[1]
	for first := true; first || a != "" || b != ""; first = false {
		var x, y string
		x, a = cut(a, w1)
		y, b = cut(b, w2)
		// A wrapped text is indented as its first line is.
		if a != "" {
			a = lead + a
		}
		if b != "" {
			b = lead + b
		}
		p.linef("%-*s%-*s", w1, x, w2, y)
	}
}

func cut(s string, n int) (head, rest string) {
	if n < 2 || len(s) <= n {
		return s, ""
	}
	return s[:n], s[n:]
}

// count prints how many rows a listing had.
func (p *printer) count(n int) { p.linef("%d row(s)", n) }

// escape prints bytes as HBase's Bytes.toStringBinary: printable ASCII as it is,
// everything else, the backslash too, as \xNN.
func escape(b []byte) string { return columnar.EscapeKey(b) }

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
