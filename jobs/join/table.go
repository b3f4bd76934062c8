package join

import (
	"fmt"
	"math"
)

// table is rows of the right side by their keys.
type table struct {
	j       *Join
	rows    held
	chains  map[string]chain
	next    []int32 // by row: the next with the same key, or -1
	matched []bool  // by row
}

// chain is the rows with one key, as a list.
type chain struct{ first, last int32 }

// chainBytes is about what a key takes in the map besides its bytes, rowBytes what a
// row takes in next and matched.
const (
	chainBytes = 64
	rowBytes   = 5
)

func newTable(j *Join) table {
	t := table{j: j, rows: held{columns: j.right, limit: j.spec.MemoryBytes}, chains: map[string]chain{}}
	if j.leftOnly() {
		t.rows.columns = nil // the keys are enough
	}
	return t
}

// hold reads the right side. A row with a null key is only held where it comes out.
func (t *table) hold(right *side) error {
	_, keepRight := t.j.keeps()
	full := func() string { return "the right side takes" }
	for {
		if err := right.next(); err != nil {
			return err
		}
		if right.done {
			return nil
		}
		c, found := chain{}, false
		if !right.null {
			c, found = t.chains[string(right.key)]
		}
		if right.null && !keepRight || found && t.j.leftOnly() {
			continue
		}
		if t.rows.rows == math.MaxInt32 {
			return fmt.Errorf("%w: the right side has more than %d rows", ErrMemory, math.MaxInt32)
		}
		row := int32(t.rows.rows)
		t.rows.bytes += rowBytes
		if !right.null && !found {
			t.rows.bytes += chainBytes + int64(len(right.key))
		}
		if err := t.rows.add(ref{right.batch, right.row}, full); err != nil {
			return err
		}
		t.next = append(t.next, -1)
		t.matched = append(t.matched, false)
		switch {
		case right.null:
			continue
		case found:
			t.next[c.last] = row
			c.last = row
		default:
			c = chain{row, row}
		}
		t.chains[string(right.key)] = c
	}
}

// probe deals with the current row of the left side.
func (t *table) probe(left *side, out *emitter) error {
	l := ref{left.batch, left.row}
	keepLeft, _ := t.j.keeps()
	c, found := chain{}, false
	if !left.null {
		c, found = t.chains[string(left.key)]
	}
	switch {
	case !found && (keepLeft || t.j.spec.Kind == Anti), found && t.j.spec.Kind == Semi:
		return out.emit(l, ref{})
	case !found || t.j.spec.Kind == Anti:
		return nil
	}
	for i := c.first; i >= 0; i = t.next[i] {
		t.matched[i] = true
		if err := out.emit(l, t.rows.row(int(i))); err != nil {
			return err
		}
	}
	return nil
}

// rest deals with the rows that were nobody's partner.
func (t *table) rest(out *emitter) error {
	if _, keepRight := t.j.keeps(); !keepRight {
		return nil
	}
	for i := range t.rows.rows {
		if t.matched[i] {
			continue
		}
		if err := out.emit(ref{}, t.rows.row(i)); err != nil {
			return err
		}
	}
	return nil
}

// reset forgets the rows.
func (t *table) reset() {
	t.rows.reset()
	clear(t.chains)
	t.next, t.matched = t.next[:0], t.matched[:0]
}
