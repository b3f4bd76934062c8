package mapping

import (
	"strconv"

	"sluice/pipeline/decode"
)

// The forms in which an expression runs. A textFunc appends the value's text to
// dst, which may end in other bytes that it keeps. Each fails with a
// *missingError where the record lacks what it reads, or with a *valueError; a
// boolFunc may also fail with errFallback.
type (
	textFunc func(m *Mapper, dst []byte) ([]byte, error)
	intFunc  func(m *Mapper) (int64, error)
	boolFunc func(m *Mapper) (bool, error)
)

// errFallback is a boolFunc's way to say that the values at hand are none that
// it was made for: expr's machine decides, and words the error.
var errFallback = &valueError{"not decided directly"}

// directText returns the direct code of t as a text, or nil.
func (c *compilation) directText(t *term) textFunc {
	switch t.op {
	case opLiteral:
		if t.typ == typNil {
			return nil
		}
		text := t.text
		return func(_ *Mapper, dst []byte) ([]byte, error) { return append(dst, text...), nil }
	case opSource:
		s := c.sources[t.source]
		if s.typ == typInt {
			return intText(c.directInt(t))
		}
		return func(m *Mapper, dst []byte) ([]byte, error) {
			if _, b := m.read(s); b != nil {
				return append(dst, b...), m.spend(len(b))
			}
			return dst, s.missing
		}
	case opConcat:
		return c.directConcat(t)
	case opCall:
		return c.directCall(t)
	}
	return nil
}

func intText(f intFunc) textFunc {
	return func(m *Mapper, dst []byte) ([]byte, error) {
		v, err := f(m)
		if err != nil {
			return dst, err
		}
		return strconv.AppendInt(dst, v, 10), nil
	}
}

// directConcat joins the parts of a chain of +. A missing part does not hide a
// later part's wrong value, as the machine evaluates all of them.
func (c *compilation) directConcat(t *term) textFunc {
	var parts []textFunc
	var flatten func(t *term) bool
	flatten = func(t *term) bool {
		if t.op == opConcat {
			return flatten(t.args[0]) && flatten(t.args[1])
		}
		f := c.directText(t)
		parts = append(parts, f)
		return f != nil
	}
	if !flatten(t) {
		return nil
	}
	return func(m *Mapper, dst []byte) ([]byte, error) {
		var missing error
		var err error
		for _, f := range parts {
			if dst, err = f(m, dst); err != nil {
				if _, ok := err.(*missingError); !ok {
					return dst, err
				}
				if missing == nil {
					missing = err
				}
			}
		}
		return dst, missing
	}
}

func (c *compilation) directCall(t *term) textFunc {
	switch {
	case t.fn.name == "coalesce":
		args := make([]textFunc, len(t.args))
		for i, a := range t.args {
			if args[i] = c.directText(a); args[i] == nil {
				return nil
			}
		}
		return func(m *Mapper, dst []byte) (_ []byte, err error) {
			start := len(dst)
			for _, f := range args {
				dst, err = f(m, dst[:start])
				if _, missing := err.(*missingError); !missing {
					return dst, err
				}
			}
			return dst[:start], err
		}
	case t.fn.name == "date":
		at, date := c.directInt(t.args[0]), t.date
		if at == nil {
			return nil
		}
		return func(m *Mapper, dst []byte) ([]byte, error) {
			v, err := at(m)
			if err != nil {
				return dst, err
			}
			return m.dates[date].append(dst, &m.plan.dates[date], v)
		}
	case t.fn.text != nil:
		arg, fn, small := c.directText(t.args[0]), t.fn.text, t.small
		if arg == nil {
			return nil
		}
		if a := t.args[0]; a.op == opSource && a.typ != typInt {
			s := c.sources[a.source]
			return func(m *Mapper, dst []byte) ([]byte, error) {
				_, b := m.read(s)
				if b == nil {
					return dst, s.missing
				}
				if err := m.spend(len(b)); err != nil {
					return dst, err
				}
				return fn(dst, b, small)
			}
		}
		return func(m *Mapper, dst []byte) ([]byte, error) {
			// The argument is built behind dst, the result behind that and
			// then moved over it.
			start := len(dst)
			dst, err := arg(m, dst)
			if err != nil {
				return dst[:start], err
			}
			end := len(dst)
			if dst, err = fn(dst, dst[start:end], small); err != nil {
				return dst[:start], err
			}
			return dst[:start+copy(dst[start:], dst[end:])], nil
		}
	case t.fn.number != nil:
		arg, fn := c.directInt(t.args[0]), t.fn.number
		if arg == nil {
			return nil
		}
		return func(m *Mapper, dst []byte) ([]byte, error) {
			v, err := arg(m)
			if err != nil {
				return dst, err
			}
			return fn(dst, v)
		}
	}
	if f := c.directInt(t); f != nil {
		return intText(f)
	}
	return nil
}

// directInt returns the direct code of t as an integer, or nil.
func (c *compilation) directInt(t *term) intFunc {
	switch t.op {
	case opLiteral:
		if v := t.integer; t.typ == typInt {
			return func(*Mapper) (int64, error) { return v, nil }
		}
	case opSource:
		s := c.sources[t.source]
		switch s.kind {
		case sourceTime:
			return func(m *Mapper) (int64, error) { return m.time, nil }
		case sourceTimestamp:
			return func(m *Mapper) (int64, error) { return m.record.Timestamp, nil }
		case sourcePartition:
			return func(m *Mapper) (int64, error) { return int64(m.record.Partition), nil }
		case sourceOffset:
			return func(m *Mapper) (int64, error) { return m.record.Offset, nil }
		case sourceIndex:
			return func(m *Mapper) (int64, error) { return int64(m.loops[s.loop].index), nil }
		}
		return func(m *Mapper) (int64, error) {
			k, b := m.read(s)
			if b == nil {
				return 0, s.missing
			}
			return integerOf(k, b)
		}
	case opCall:
		switch {
		case t.fn.integer != nil:
			arg, fn := c.directInt(t.args[0]), t.fn.integer
			if arg == nil {
				return nil
			}
			return func(m *Mapper) (int64, error) {
				v, err := arg(m)
				if err != nil {
					return 0, err
				}
				return fn(v), nil
			}
		case t.fn.length != nil && t.args[0].op == opSource && t.args[0].typ != typInt:
			s, fn := c.sources[t.args[0].source], t.fn.length
			return func(m *Mapper) (int64, error) {
				k, b := m.read(s)
				if b == nil {
					return 0, s.missing
				}
				if err := m.spend(jsonCost * len(b)); err != nil {
					return 0, err
				}
				return fn(k, b)
			}
		}
	}
	return nil
}

// directBool returns the direct code of t as a condition, or nil.
func (c *compilation) directBool(t *term) boolFunc {
	switch t.op {
	case opLiteral:
		if v := t.text == "true"; t.typ == typBool {
			return func(*Mapper) (bool, error) { return v, nil }
		}
	case opSource:
		s := c.sources[t.source]
		return func(m *Mapper) (bool, error) {
			if k, b := m.read(s); k == decode.Bool {
				return b[0] == 't', nil
			}
			return false, errFallback
		}
	case opNot:
		x := c.directBool(t.args[0])
		if x == nil {
			return nil
		}
		return func(m *Mapper) (bool, error) {
			v, err := x(m)
			return !v, err
		}
	case opAnd, opOr:
		a, b := c.directBool(t.args[0]), c.directBool(t.args[1])
		if a == nil || b == nil {
			return nil
		}
		decides := t.op == opOr // the left side's value that decides alone
		return func(m *Mapper) (bool, error) {
			v, err := a(m)
			if err != nil || v == decides {
				return v, err
			}
			return b(m)
		}
	case opCompare:
		return c.directCompare(t)
	}
	return nil
}

// directCompare compares something of the record, or a text made of it, with a
// literal on its right.
func (c *compilation) directCompare(t *term) boolFunc {
	left, right := t.args[0], t.args[1]
	if right.op != opLiteral {
		return nil
	}
	equality := t.name == "==" || t.name == "!="
	unequal := t.name == "!="
	if left.op != opSource {
		if right.typ != typText || !equality {
			return nil
		}
		text := c.directText(left)
		if text == nil || left.typ != typText {
			return nil
		}
		want := right.text
		return func(m *Mapper) (bool, error) {
			b, err := text(m, m.scratch[:0])
			m.scratch = b[:0]
			if _, missing := err.(*missingError); missing {
				return unequal, nil // nil is equal to no text
			}
			return (string(b) == want) != unequal, err
		}
	}
	s := c.sources[left.source]
	switch {
	case right.typ == typInt:
		return directCompareInt(c.directInt(left), s, t.name, right.integer)
	case !equality:
		return nil
	case right.typ == typNil:
		return func(m *Mapper) (bool, error) {
			if s.typ == typInt {
				return unequal, nil
			}
			_, b := m.read(s)
			return (b == nil) != unequal, nil
		}
	case right.typ == typText || right.typ == typBool:
		kind, want := decode.String, right.text
		if right.typ == typBool {
			kind = decode.Bool
		}
		return func(m *Mapper) (bool, error) {
			k, b := m.read(s)
			return (k == kind && string(b) == want) != unequal, nil
		}
	}
	return nil
}

func directCompareInt(integer intFunc, s *source, operator string, want int64) boolFunc {
	holds := func(c int) bool {
		switch operator {
		case "==":
			return c == 0
		case "!=":
			return c != 0
		case "<":
			return c < 0
		case "<=":
			return c <= 0
		case ">":
			return c > 0
		}
		return c >= 0
	}
	order := func(v int64) int {
		switch {
		case v < want:
			return -1
		case v > want:
			return 1
		}
		return 0
	}
	if s.typ == typInt {
		return func(m *Mapper) (bool, error) {
			v, err := integer(m)
			return holds(order(v)), err
		}
	}
	return func(m *Mapper) (bool, error) {
		if k, b := m.read(s); k == decode.Number {
			if v, _, ok := parseNumber(b); ok {
				return holds(order(v)), nil
			}
		}
		return false, errFallback
	}
}
