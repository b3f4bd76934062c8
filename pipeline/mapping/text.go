package mapping

import (
	"strconv"
	"unicode"
	"unicode/utf8"

	"sluice/cell"
	"sluice/store"
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
		dst = appendMutation(dst, &ms[i], nil)
	}
	return dst
}

// AppendText appends what the record does as AppendText does, with what the store
// decides: the condition of a rule's check at the end of each line of the rule, and
// before what an event does, if it was not seen before, its id:
//
//	once 'e-17', TTL => 86400000
//	put 'users', 'u1', 'p:first', '/a', 1700000000000, IF => 'p:first' absent
func (o *Output) AppendText(dst []byte) []byte {
	if o.Records == nil {
		return AppendText(dst, o.Mutations)
	}
	for i := range o.Records {
		r := &o.Records[i]
		if r.Once != nil {
			dst = appendQuoted(append(dst, "once "...), r.Once)
			dst = append(strconv.AppendInt(append(dst, ", TTL => "...), r.OnceTTL, 10), '\n')
		}
		for k := range r.Mutations {
			var cond *store.Cond
			if r.Checks != nil {
				cond = r.Checks[k]
			}
			dst = appendMutation(dst, &r.Mutations[k], cond)
		}
	}
	return dst
}

func appendMutation(dst []byte, m *cell.Mutation, cond *store.Cond) []byte {
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
		switch op.Type {
		case cell.OpDeleteRow:
		case cell.OpDeleteFamily:
			dst = appendQuoted(append(dst, ", "...), []byte(op.Family))
		default:
			dst = appendQuoted(append(dst, ", "...), append([]byte(op.Family+":"), op.Qualifier...))
		}
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
		if cond != nil {
			dst = appendCond(append(dst, ", IF => "...), cond)
		}
		dst = append(dst, '\n')
	}
	return dst
}

// appendCond appends a condition that a rule's check has made, as the check says
// it: the stored value stands on the left.
func appendCond(dst []byte, c *store.Cond) []byte {
	dst = appendQuoted(dst, append([]byte(c.Family+":"), c.Qualifier...))
	for i := range checkOps {
		if k := &checkOps[i]; k.op == c.Op && k.value == (c.Value != nil) {
			dst = append(append(dst, ' '), k.name...)
			break
		}
	}
	if c.Value != nil {
		dst = appendQuoted(append(dst, ' '), c.Value)
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
