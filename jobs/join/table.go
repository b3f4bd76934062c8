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

// hold reads the right side. Rows with a null key are not held: they come out, or do
// not. Its error wraps ErrMemory where the row that it has held last was too many.
func (t *table) hold(right *side, out *emitter) error {
	_, keepRight := t.j.keeps()
	for {
		if err := right.next(); err != nil {
			return err
		}
		r := ref{right.batch, right.row}
		switch {
		case right.done:
			return nil
		case right.null && keepRight:
			if err := out.emit(ref{}, r); err != nil {
				return err
			}
			continue
		case right.null:
			continue
		}
		c, found := t.chains[string(right.key)]
		if found && t.j.leftOnly() {
			continue
		}
		row := int32(t.rows.rows)
		if err := t.rows.append(r); err != nil {
			return err
		}
		t.rows.bytes += rowBytes
		t.next = append(t.next, -1)
		t.matched = append(t.matched, false)
		if found {
			t.next[c.last] = row
			c.last = row
		} else {
			t.rows.bytes += chainBytes + int64(len(right.key))
			c = chain{row, row}
		}
		t.chains[string(right.key)] = c
		if t.rows.bytes > t.rows.limit || t.rows.rows == math.MaxInt32 {
			return t.full()
		}
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

// full is the error of a table that does not fit memory.
func (t *table) full() error {
	what := "the right side takes"
	if len(t.chains) == 1 {
		for key := range t.chains {
			what = fmt.Sprintf("the right side's rows with key %s take", describe(t.j.keys, []byte(key)))
		}
	}
	return fmt.Errorf("%w: %s more than memory_bytes, %d", ErrMemory, what, t.rows.limit)
}

// reset forgets the rows.
func (t *table) reset() {
	t.rows.reset()
	clear(t.chains)
	t.next, t.matched = t.next[:0], t.matched[:0]
}
