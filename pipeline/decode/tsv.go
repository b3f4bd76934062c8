package decode

import (
	"bytes"
	"fmt"
)

// tsvDecoder reads rows of tab-separated values as databases write them
// (PostgreSQL COPY, MySQL, Hive): one document a row, whose fields are the columns
// in their order; \t, \n, \r, \b, \f, \v, \0 and \\ stand for the characters that
// cannot be written, as do a tab and a line feed behind a backslash, and a value \N is
// Null. There are no quotes. Rows end with LF or CRLF, the last one also without;
// empty rows are skipped where there is more than one column.
type tsvDecoder struct {
	columns []string
	at      []int // document index of each column, or -1
	doc     Document
	scratch []byte
}

func newTSV(o *Options, f *Fields) *tsvDecoder {
	d := &tsvDecoder{columns: o.Columns, at: make([]int, len(o.Columns))}
	for i, name := range o.Columns {
		d.at[i] = f.Index(name)
	}
	d.doc.values = make([]Value, f.Len())
	return d
}

// Decode implements Decoder.
func (d *tsvDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.scratch = kept(d.scratch)
	rows := 0
	for i := 0; i < len(payload); {
		line := payload[i:]
		next := len(payload)
		if n := unescaped(line, '\n'); n >= 0 {
			line, next = line[:n], i+n+1
		}
		line = bytes.TrimSuffix(line, []byte{'\r'})
		if len(line) == 0 && len(d.columns) > 1 {
			i = next
			continue
		}
		if at, reason := d.row(line); reason != "" {
			return &Error{Format: formatTSV, Position: i + at, Reason: reason}
		}
		i = next
		rows++
		if err := emit(&d.doc); err != nil {
			return err
		}
	}
	if rows == 0 {
		return &Error{Format: formatTSV, Position: len(payload), Reason: "there is no row"}
	}
	return nil
}

func (d *tsvDecoder) row(line []byte) (at int, reason string) {
	d.doc.clear()
	for i, column := 0, 0; ; column++ {
		if column == len(d.columns) {
			return i, fmt.Sprintf("the row has more than %d values", len(d.columns))
		}
		end := len(line)
		if n := unescaped(line[i:], '\t'); n >= 0 {
			end = i + n
		}
		if bad, reason := d.value(d.at[column], line[i:end:end]); reason != "" {
			return i + bad, reason
		}
		if end == len(line) {
			if column+1 < len(d.columns) {
				return end, fmt.Sprintf("the row has %d values, want %d", column+1, len(d.columns))
			}
			return 0, ""
		}
		i = end + 1
	}
}

// unescaped returns the index of the first c in b that is behind no backslash that
// escapes it, or -1. Before b there is none.
func unescaped(b []byte, c byte) int {
	for i := 0; ; i++ {
		n := bytes.IndexByte(b[i:], c)
		if n < 0 {
			return -1
		}
		i += n
		slashes := 0
		for slashes < i && b[i-slashes-1] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i
		}
	}
}

// value sets field k, or checks only where k is -1.
func (d *tsvDecoder) value(k int, s []byte) (at int, reason string) {
	v := Value{Kind: String, Bytes: s}
	switch {
	case string(s) == `\N`:
		v = Value{Kind: Null}
	case bytes.IndexByte(s, '\\') >= 0:
		d.scratch = room(d.scratch, len(s))
		mark := len(d.scratch)
		for i := 0; i < len(s); i++ {
			c := s[i]
			if c == '\\' {
				i++
				if i == len(s) {
					return i - 1, "a backslash at the end of a value"
				}
				switch s[i] {
				case 't':
					c = '\t'
				case 'n':
					c = '\n'
				case 'r':
					c = '\r'
				case 'b':
					c = '\b'
				case 'f':
					c = '\f'
				case 'v':
					c = '\v'
				case '0':
					c = 0
				case '\\':
				case '\t', '\n': // as MySQL's INTO OUTFILE writes them
					c = s[i]
				default:
					return i - 1, fmt.Sprintf("unknown escape %q", s[i-1:i+1])
				}
			}
			d.scratch = append(d.scratch, c)
		}
		v.Bytes = d.scratch[mark:len(d.scratch):len(d.scratch)]
	}
	if k >= 0 {
		d.doc.values[k] = v
	}
	return 0, ""
}
