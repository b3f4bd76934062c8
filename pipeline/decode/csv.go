package decode

import (
	"bytes"
	"fmt"
)

// csvDecoder reads rows of comma-separated values (RFC 4180): one document a row,
// whose fields are the columns in their order. Rows end with LF or CRLF, the last
// one also without, or with CR alone: a line of a CRLF file often comes without its
// LF. Empty rows are skipped. A value in quotes may hold delimiters
// and line ends, and a quote as two. An empty value is Null, one in quotes ("")
// is the empty string. Every row has as many values as there are columns.
type csvDecoder struct {
	columns   []string
	at        []int // document index of each column, or -1
	delimiter byte
	doc       Document
	scratch   []byte
}

func newCSV(o *Options, f *Fields) *csvDecoder {
	d := &csvDecoder{columns: o.Columns, at: make([]int, len(o.Columns)), delimiter: o.delimiter()}
	for i, name := range o.Columns {
		d.at[i] = f.Index(name)
	}
	d.doc.values = make([]Value, f.Len())
	return d
}

// Decode implements Decoder.
func (d *csvDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.scratch = kept(d.scratch)
	rows := 0
	for i := 0; i < len(payload); {
		if n := lineEnd(payload, i); n > 0 {
			i += n
			continue
		}
		next, at, reason := d.row(payload, i)
		if reason != "" {
			return &Error{Format: formatCSV, Position: at, Reason: reason}
		}
		i = next
		rows++
		if err := emit(&d.doc); err != nil {
			return err
		}
	}
	if rows == 0 {
		return &Error{Format: formatCSV, Position: len(payload), Reason: "there is no row"}
	}
	return nil
}

// row reads the row at b[i] and returns where the next one begins.
func (d *csvDecoder) row(b []byte, i int) (next, at int, reason string) {
	d.doc.clear()
	for column := 0; ; column++ {
		if column == len(d.columns) {
			return 0, i, fmt.Sprintf("the row has more than %d values", len(d.columns))
		}
		v := Value{Kind: Null}
		end := i
		if i < len(b) && b[i] == '"' {
			text, after, at, reason := d.quoted(b, i)
			if reason != "" {
				return 0, at, reason
			}
			v, end = Value{Kind: String, Bytes: text}, after
		} else {
			for end < len(b) && b[end] != d.delimiter && lineEnd(b, end) == 0 {
				if b[end] == '"' {
					return 0, end, "a quote inside a value without quotes"
				}
				end++
			}
			if end > i {
				v = Value{Kind: String, Bytes: b[i:end:end]}
			}
		}
		if k := d.at[column]; k >= 0 {
			d.doc.values[k] = v
		}
		if end < len(b) && b[end] == d.delimiter {
			i = end + 1
			continue
		}
		n := lineEnd(b, end)
		if n == 0 && end < len(b) {
			return 0, end, "text after the closing quote"
		}
		if column+1 < len(d.columns) {
			return 0, end, fmt.Sprintf("the row has %d values, want %d", column+1, len(d.columns))
		}
		return end + n, 0, ""
	}
}

// quoted reads the value in quotes at b[i] and returns it and the index after its
// closing quote.
func (d *csvDecoder) quoted(b []byte, i int) (text []byte, after, at int, reason string) {
	start := i + 1
	doubled := false
	for k := start; ; {
		n := bytes.IndexByte(b[k:], '"')
		if n < 0 {
			return nil, 0, i, "the quote is not closed"
		}
		k += n
		if k+1 < len(b) && b[k+1] == '"' {
			k += 2
			doubled = true
			continue
		}
		text = b[start:k:k]
		if doubled {
			text = d.single(text)
		}
		return text, k + 1, 0, ""
	}
}

// single returns text with one quote for two.
func (d *csvDecoder) single(text []byte) []byte {
	d.scratch = room(d.scratch, len(text))
	mark := len(d.scratch)
	for {
		n := bytes.IndexByte(text, '"')
		if n < 0 {
			d.scratch = append(d.scratch, text...)
			return d.scratch[mark:len(d.scratch):len(d.scratch)]
		}
		d.scratch = append(d.scratch, text[:n+1]...)
		text = text[n+2:]
	}
}

// lineEnd returns the length of the line end at b[i], or 0. CR alone is one at the
// end of b only.
func lineEnd(b []byte, i int) int {
	switch {
	case i < len(b) && b[i] == '\n':
		return 1
	case i+1 < len(b) && b[i] == '\r' && b[i+1] == '\n':
		return 2
	case i+1 == len(b) && b[i] == '\r':
		return 1
	}
	return 0
}
