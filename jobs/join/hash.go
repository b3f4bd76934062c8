package join

import (
	"fmt"
	"math"
)

// hash joins two sides in any order: it holds the right side by its keys and reads
// the left.
type hash struct {
	j           *Join
	left, right *side
	out         *emitter
	rows        held
	chains      map[string]chain
	next        []int32 // by row: the next with the same key, or -1
	matched     []bool  // by row
}

// chain is the rows with one key, as a list.
type chain struct{ first, last int32 }

// chainBytes is about what a key takes in the map besides its bytes, rowBytes what a
// row takes in next and matched.
const (
	chainBytes = 64
	rowBytes   = 5
)

func (h *hash) run() error {
	if err := h.hold(); err != nil {
		return err
	}
	keepLeft, keepRight := h.j.keeps()
	for {
		if err := h.left.next(); err != nil {
			return err
		}
		if h.left.done {
			break
		}
		l := ref{h.left.batch, h.left.row}
		c, found := chain{}, false
		if !h.left.null {
			c, found = h.chains[string(h.left.key)]
		}
		var err error
		switch {
		case !found && (keepLeft || h.j.spec.Kind == Anti), found && h.j.spec.Kind == Semi:
			err = h.out.emit(l, ref{})
		case found && h.j.spec.Kind != Anti:
			err = h.pair(l, c)
		}
		if err != nil {
			return err
		}
	}
	if !keepRight {
		return nil
	}
	for i := range h.rows.rows {
		if h.matched[i] {
			continue
		}
		if err := h.out.emit(ref{}, h.rows.row(i)); err != nil {
			return err
		}
	}
	return nil
}

// pair pairs a row of the left side with the rows of a chain.
func (h *hash) pair(l ref, c chain) error {
	for i := c.first; i >= 0; i = h.next[i] {
		h.matched[i] = true
		if err := h.out.emit(l, h.rows.row(int(i))); err != nil {
			return err
		}
	}
	return nil
}

// hold reads the right side. Of a semi or anti join the keys are enough; a row with a
// null key is only held where it comes out.
func (h *hash) hold() error {
	h.rows = held{columns: h.j.right, limit: h.j.spec.MemoryBytes}
	if h.j.leftOnly() {
		h.rows.columns = nil
	}
	h.chains = map[string]chain{}
	_, keepRight := h.j.keeps()
	full := func() string { return "the right side takes" }
	for {
		if err := h.right.next(); err != nil {
			return err
		}
		if h.right.done {
			return nil
		}
		c, found := chain{}, false
		if !h.right.null {
			c, found = h.chains[string(h.right.key)]
		}
		if h.right.null && !keepRight || found && h.j.leftOnly() {
			continue
		}
		if h.rows.rows == math.MaxInt32 {
			return fmt.Errorf("%w: the right side has more than %d rows", ErrMemory, math.MaxInt32)
		}
		row := int32(h.rows.rows)
		h.rows.bytes += rowBytes
		if !h.right.null && !found {
			h.rows.bytes += chainBytes + int64(len(h.right.key))
		}
		if err := h.rows.add(ref{h.right.batch, h.right.row}, full); err != nil {
			return err
		}
		h.next = append(h.next, -1)
		h.matched = append(h.matched, false)
		switch {
		case h.right.null:
			continue
		case found:
			h.next[c.last] = row
			c.last = row
		default:
			c = chain{row, row}
		}
		h.chains[string(h.right.key)] = c
	}
}
