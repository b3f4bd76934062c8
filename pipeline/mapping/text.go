package mapping

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"sluice/cell"
)

// AppendText appends what the mutations do, a line an operation, spelled as the
// shell's commands with the time (ms since the Unix epoch) last:
//
//	put 'events', "u1\x00", 'e:page', '/a', 1700000000000
//	incr 'page_counts', '/a', 'day:20231114', 1, 1700000000000
//
// A time that the store's clock decides is left out. The text identifies the
// mutations: two that differ have different texts.
func AppendText(dst []byte, ms []cell.Mutation) []byte {
	for i := range ms {
		m := &ms[i]
		for k := range m.Ops {
			op := &m.Ops[k]
			switch op.Type {
			case cell.OpPut:
				dst = append(dst, "put "...)
			case cell.OpIncrement:
				dst = append(dst, "incr "...)
			case cell.OpAppend:
				dst = append(dst, "append "...)
			default:
				dst = append(append(dst, op.Type.String()...), ' ')
			}
			dst = appendQuoted(dst, []byte(m.Table))
			dst = appendQuoted(append(dst, ", "...), m.Row)
			dst = appendQuoted(append(dst, ", "...), append([]byte(op.Family+":"), op.Qualifier...))
			switch op.Type {
			case cell.OpPut, cell.OpAppend:
				dst = appendQuoted(append(dst, ", "...), op.Value)
			case cell.OpIncrement:
				dst = strconv.AppendInt(append(dst, ", "...), op.Delta, 10)
			}
			if op.Time != cell.Latest {
				dst = strconv.AppendInt(append(dst, ", "...), int64(op.Time), 10)
			}
			if op.TTL != 0 {
				dst = strconv.AppendInt(append(dst, ", TTL => "...), op.TTL, 10)
			}
			dst = append(dst, '\n')
		}
	}
	return dst
}

// appendQuoted appends s as the shell reads it: in single quotes where it is
// printable text, else in double quotes with \xHH for every other byte.
func appendQuoted(dst, s []byte) []byte {
	plain := true
	for rest := s; len(rest) > 0; {
		r, n := utf8.DecodeRune(rest)
		if r == '\'' || r == '\\' || r == utf8.RuneError && n == 1 || !unicode.IsPrint(r) {
			plain = false
			break
		}
		rest = rest[n:]
	}
	if plain {
		return append(append(append(dst, '\''), s...), '\'')
	}
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		switch {
		case r == '"' || r == '\\' || r == '#': // # begins an expression in the shell's double quotes
			dst = append(dst, '\\', byte(r))
		case r == utf8.RuneError && n == 1 || !unicode.IsPrint(r):
			for _, c := range s[:n] {
				dst = append(dst, '\\', 'x', digits[c>>4], digits[c&15])
			}
		default:
			dst = append(dst, s[:n]...)
		}
		s = s[n:]
	}
	return append(dst, '"')
}
