package join

import (
	"fmt"

	"sluice/jobs/columnar"
)

// held is rows of the right side that are kept, in batches.
type held struct {
	columns []columnar.Column
	limit   int64
	batches []*columnar.Batch
	rows    int
	bytes   int64 // of the values, and what the caller adds
}

// perBatch is how many rows a batch of held rows has: small ones waste little where
// few are held.
const perBatch = 1024

// add is append for rows that must fit. Its error wraps ErrMemory, and says what is
// full.
func (h *held) add(r ref, full func() string) error {
	if err := h.append(r); err != nil {
		return err
	}
	if h.bytes > h.limit {
		return fmt.Errorf("%w: %s more than memory_bytes, %d", ErrMemory, full(), h.limit)
	}
	return nil
}

// append keeps a copy of a row.
func (h *held) append(r ref) error {
	n := h.rows % perBatch
	if n == 0 && h.rows/perBatch == len(h.batches) {
		h.batches = append(h.batches, columnar.NewBatch(h.columns))
	}
	b := h.batches[h.rows/perBatch]
	for i := range h.columns {
		from := r.batch.Vector(i)
		h.bytes += int64(valueBytes + more(from, r.row))
		if err := b.Vector(i).AppendFrom(from, r.row); err != nil {
			return err
		}
	}
	h.rows++
	return nil
}

// valueBytes is what a value takes besides its text, at most: a number or an offset,
// and its bit of validity.
const valueBytes = 9

// more returns the bytes of value i of v besides valueBytes: of texts and JSON, of the
// entries of a map, and of what a decimal has more than a number.
func more(v *columnar.Vector, i int) int {
	switch v.Type().Storage() {
	case columnar.Bytes:
		return v.Size(i)
	case columnar.Entries:
		from, to := v.EntriesOf(i)
		return v.Size(i) + 2*valueBytes*(to-from)
	case columnar.Decimal128:
		return v.Size(i) - 8
	}
	return 0
}

// row returns a row by its number.
func (h *held) row(i int) ref { return ref{h.batches[i/perBatch], i % perBatch} }

// reset forgets the rows and keeps one batch's memory.
func (h *held) reset() {
	if len(h.batches) > 1 {
		h.batches = h.batches[:1]
	}
	for _, b := range h.batches {
		b.Reset()
	}
	h.rows, h.bytes = 0, 0
}
