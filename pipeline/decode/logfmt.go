package decode

import (
	"bytes"
	"fmt"
)

// logfmtDecoder reads one line of key=value pairs between spaces (logfmt). A value
// ends at the next space, or is a string as in JSON or as Go's strconv.Quote writes it,
// of which log/slog and logrus make theirs. A key without = is Null, of a key given
// twice the last counts; everything else is a String.
type logfmtDecoder struct {
	names []string // key of each field
	doc   Document
	text  jsonDecoder // of values in quotes
}

// newLogfmt fails where a path is not the name of a key.
func newLogfmt(f *Fields) (*logfmtDecoder, error) {
	d := &logfmtDecoder{names: make([]string, f.Len())}
	for i, path := range f.paths {
		name, err := flatName(path)
		if err != nil {
			return nil, fmt.Errorf("decode: format %s: %w", formatLogfmt, err)
		}
		d.names[i] = name
	}
	d.doc.values = make([]Value, f.Len())
	d.text.goEscapes = true
	return d, nil
}

// flatName returns the key that a path names in a format without nesting: the
// path as it is spelled, dots included, or the quoted name in brackets.
func flatName(path string) (string, error) {
	steps, err := ParsePath(path)
	if err != nil {
		return "", err
	}
	for _, s := range steps {
		if s.Index >= 0 {
			return "", fmt.Errorf("field %q: it has no arrays", path)
		}
	}
	if len(steps) == 1 {
		return steps[0].Name, nil
	}
	return path, nil
}

// Decode implements Decoder.
func (d *logfmtDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.doc.clear()
	line := bytes.TrimSuffix(payload, []byte{'\n'})
	line = bytes.TrimSuffix(line, []byte{'\r'})
	d.text.b, d.text.scratch, d.text.err = line, kept(d.text.scratch), nil
	if at, reason := d.line(line); reason != "" {
		return &Error{Format: formatLogfmt, Position: at, Reason: reason}
	}
	return emit(&d.doc)
}

func (d *logfmtDecoder) line(b []byte) (at int, reason string) {
	pairs := 0
	for i := 0; i < len(b); pairs++ {
		if b[i] == ' ' || b[i] == '\t' {
			i++
			pairs--
			continue
		}
		start := i
		for i < len(b) && b[i] > ' ' && b[i] != '=' && b[i] != '"' {
			i++
		}
		key := b[start:i]
		switch {
		case len(key) == 0 && b[i] == '=':
			return i, "a value without a key"
		case i < len(b) && b[i] < ' ' && b[i] != '\t':
			return i, "a control character; a payload is one line"
		case len(key) == 0 || i < len(b) && b[i] == '"':
			return i, "a quote in a key"
		}
		v := Value{Kind: Null}
		if i < len(b) && b[i] == '=' {
			i++
			if i < len(b) && b[i] == '"' {
				start := i + 1
				end, odd := d.text.str(start)
				if end < 0 {
					return d.text.err.Position, d.text.err.Reason
				}
				if i = end + 1; i < len(b) && b[i] != ' ' && b[i] != '\t' {
					return i, "text after the closing quote"
				}
				v = Value{Kind: String, Bytes: b[start:end:end]}
				if odd {
					v.Bytes = d.text.unescape(v.Bytes)
				}
			} else {
				start := i
				for i < len(b) && b[i] > ' ' {
					i++
				}
				if i < len(b) && b[i] < ' ' && b[i] != '\t' {
					return i, "a control character; a payload is one line"
				}
				v = Value{Kind: String, Bytes: b[start:i:i]}
			}
		}
		for k, name := range d.names {
			if name == string(key) { // two spellings of a path may name one key
				d.doc.values[k] = v
			}
		}
	}
	if pairs == 0 {
		return len(b), "there is no key"
	}
	return 0, ""
}
