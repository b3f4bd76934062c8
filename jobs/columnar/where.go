package columnar

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/internal/spelling"
)

// Predicate is a condition on an output column, which compares values of the column's
// type: numbers as numbers, times as times. As in SQL, null is neither equal nor unequal
// to anything: with every Op but OpAbsent a row with a null is dropped.
type Predicate struct {
	// Column is the name of the output column.
	Column string `yaml:"column" json:"column"`
	// Op is ==, !=, <, <=, >, >=, in, absent (it is null) or present.
	Op string `yaml:"op" json:"op"`
	// Value is what the column's is compared with, as text: a number, true or false, a
	// time such as 2026-01-31T12:00:00Z or in ms since 1970, bytes with HBase's \xNN. NaN is
	// equal to itself and greater than every number.
	Value string `yaml:"value,omitempty" json:"value,omitempty"`
	// Values are what op: in looks among, at least one.
	Values []string `yaml:"values,omitempty" json:"values,omitempty"`
}

// The values of Predicate.Op beside the comparisons.
const (
	OpIn      = "in"
	OpAbsent  = "absent"
	OpPresent = "present"
)

var predicateOps = []string{"==", "!=", "<", "<=", ">", ">=", OpIn, OpAbsent, OpPresent}

// predicate is a compiled Predicate.
type predicate struct {
	column  int
	op      string
	targets [][]byte // as valueOrder appends them
}

// valueOrder compares values.
var valueOrder Order

// Where returns s with conditions that all hold for what is appended: Builder.Append
// leaves other rows out. Its error joins a *SpecError for every mistake, whose paths
// begin with "where[".
func (s *Schema) Where(all []Predicate) (*Schema, error) {
	with := *s
	with.where = nil
	var errs []error
	for i := range all {
		p := &all[i]
		bad := func(field, format string, args ...any) {
			errs = append(errs, &SpecError{Path: fmt.Sprintf("where[%d].%s", i, field), Problem: fmt.Sprintf(format, args...)})
		}
		column := -1
		names := make([]string, len(s.columns))
		for k := range s.columns {
			if names[k] = s.columns[k].Name; names[k] == p.Column {
				column = k
			}
		}
		if column < 0 {
			bad("column", "there is no column %q%s", p.Column, spelling.Aside(p.Column, names))
			continue
		}
		if s.columns[column].source == sourceOp {
			bad("column", "what is left out cannot depend on whether a row is there (%s)", FromOp)
			continue
		}
		with.where = append(with.where, predicate{column: column, op: p.Op})
		c := &with.where[len(with.where)-1]
		texts := []string{p.Value}
		switch p.Op {
		case OpIn:
			if texts = p.Values; len(texts) == 0 {
				bad("values", "op: in looks among values, and there are none")
			}
			if p.Value != "" {
				bad("value", "op: in takes values")
			}
		case OpAbsent, OpPresent:
			if p.Value != "" || p.Values != nil {
				bad("value", "op: %s takes none", p.Op)
			}
			continue
		case "==", "!=", "<", "<=", ">", ">=":
			if p.Values != nil {
				bad("values", "op: %s takes value", p.Op)
			}
		default:
			bad("op", "%q is none of %s", p.Op, strings.Join(predicateOps, " "))
			continue
		}
		if typ := s.columns[column].Type; !typ.Sortable() {
			bad("op", "values of type %s are not compared: %s or %s", typ, OpAbsent, OpPresent)
			continue
		}
		for k, text := range texts {
			target, why := literal(s.columns[column].Type, text)
			if why != "" {
				field := "value"
				if p.Op == OpIn {
					field = fmt.Sprintf("values[%d]", k)
				}
				bad(field, "%q is no value of column %s, %s: %s", text, p.Column, s.columns[column].Type, why)
			}
			c.targets = append(c.targets, target)
		}
	}
	return &with, errors.Join(errs...)
}

// literal returns the value of a type that text spells, as valueOrder appends it, or why
// there is none.
func literal(typ Type, text string) (target []byte, why string) {
	v := newVector(typ)
	b := []byte(text)
	coding := Text
	switch typ.Storage() {
	case String, Bytes:
		if typ == Bytes {
			var err error
			if b, err = UnescapeKey(text); err != nil {
				return nil, err.Error()
			}
			coding = Raw
		}
	default:
		if typ == Timestamp && strings.Contains(text, "T") {
			coding = RFC3339
		}
	}
	if why := v.appendValue(coding, b); why != "" {
		if _, err := strconv.ParseInt(text, 10, 64); typ == Timestamp && coding == Text && errors.Is(err, strconv.ErrSyntax) {
			why = "neither a time such as 2006-01-02T15:04:05Z nor ms since 1970"
		}
		return nil, why
	}
	return valueOrder.AppendTo(nil, &v, 0), ""
}

// holds reports whether value i of v, its column's, or null, fulfils p; scratch is
// overwritten.
func (p *predicate) holds(v *Vector, i int, null bool, scratch *[]byte) bool {
	if null {
		return p.op == OpAbsent
	}
	switch p.op {
	case OpAbsent:
		return false
	case OpPresent:
		return true
	}
	*scratch = valueOrder.AppendTo((*scratch)[:0], v, i)
	if p.op == OpIn {
		for _, t := range p.targets {
			if bytes.Equal(*scratch, t) {
				return true
			}
		}
		return false
	}
	d := bytes.Compare(*scratch, p.targets[0])
	switch p.op {
	case "==":
		return d == 0
	case "!=":
		return d != 0
	case "<":
		return d < 0
	case "<=":
		return d <= 0
	case ">":
		return d > 0
	}
	return d >= 0
}

// sift removes those of the batch's rows from first on for which a condition does not hold,
// and returns which it has kept, until it is called again; nil = all.
func (b *Builder) sift(first int) []bool {
	n := b.batch.Rows() - first
	kept := slices.Grow(b.keeps[:0], n)[:n]
	b.keeps = kept
	for r := range kept {
		kept[r] = true
	}
	all := true
	for k := range b.schema.where {
		p := &b.schema.where[k]
		v := &b.batch.vectors[p.column]
		for r := range kept {
			if !kept[r] {
				continue
			}
			null := v.IsNull(first+r) || b.voids != nil && b.voids(p.column, v, first+r)
			if !p.holds(v, first+r, null, &b.compared) {
				kept[r], all = false, false
			}
		}
	}
	if all {
		return nil
	}
	for i := range b.batch.vectors {
		b.batch.vectors[i].keep(first, kept)
	}
	return kept
}

// keep removes those of the values from first on for which kept is false; of maps only
// where none that stays is behind one that goes.
func (v *Vector) keep(first int, kept []bool) {
	to := first
	for k, stays := range kept {
		from := first + k
		switch {
		case stays:
			if to < from {
				v.move(to, from)
			}
			to++
		case v.IsNull(from):
			if v.nulls--; v.nulls == 0 {
				v.valid = v.valid[:0]
			}
		}
	}
	v.cut(to)
}

// move makes value to, an earlier one of a vector of no maps, what value from is. Those
// between them are void.
func (v *Vector) move(to, from int) {
	switch v.typ.Storage() {
	case Int64:
		v.int64s[to] = v.int64s[from]
	case Decimal128:
		v.decimals[to] = v.decimals[from]
	case Float64:
		v.floats[to] = v.floats[from]
	case Bool:
		moveBit(v.bits, to, from)
	default:
		end := v.offsets[to] + int32(copy(v.data[v.offsets[to]:], v.data[v.offsets[from]:v.offsets[from+1]]))
		v.offsets[to+1] = end
	}
	if v.nulls > 0 {
		moveBit(v.valid, to, from)
	}
}

func moveBit(bits []byte, to, from int) {
	if bits[from>>3]&(1<<(from&7)) != 0 {
		bits[to>>3] |= 1 << (to & 7)
	} else {
		bits[to>>3] &^= 1 << (to & 7)
	}
}

// cutBits returns the first n bits of a bitmap, so that appendBit can append the next.
func cutBits(bits []byte, n int) []byte {
	bits = bits[:(n+7)>>3]
	if n&7 != 0 {
		bits[n>>3] &= 1<<(n&7) - 1
	}
	return bits
}
