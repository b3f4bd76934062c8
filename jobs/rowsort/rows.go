package rowsort

import (
	"bytes"

	"sluice/jobs/columnar"
	"sluice/jobs/spill"
)

// source is sorted rows, one at a time; key and row are those of the last next that
// said true, and valid until the one after it.
type source interface {
	next() (bool, error)
	key() []byte
	row() []byte
}

// Rows is sorted rows, and belongs to one goroutine at a time.
type Rows struct {
	heap  []source // by their keys; heap[0] has the current row
	begun bool
}

// merge returns the rows of several runs.
func merge(runs []run) (*Rows, error) {
	r := &Rows{}
	for i := range runs {
		r.add(&runSource{run: runs[i]})
	}
	return r, r.begin()
}

func (r *Rows) add(s source) { r.heap = append(r.heap, s) }

// begin goes to the first row of each source.
func (r *Rows) begin() error {
	all := r.heap
	r.heap = all[:0]
	for _, s := range all {
		ok, err := s.next()
		if err != nil {
			return err
		}
		if ok {
			r.heap = append(r.heap, s)
		}
	}
	for i := len(r.heap)/2 - 1; i >= 0; i-- {
		r.down(i)
	}
	return nil
}

// down moves the i-th source below those with smaller keys.
func (r *Rows) down(i int) {
	for {
		least := i
		for _, child := range [...]int{2*i + 1, 2*i + 2} {
			if child < len(r.heap) && bytes.Compare(r.heap[child].key(), r.heap[least].key()) < 0 {
				least = child
			}
		}
		if least == i {
			return
		}
		r.heap[i], r.heap[least] = r.heap[least], r.heap[i]
		i = least
	}
}

// Next goes to the next row, the first at the first call; ok is false behind the last.
// Its error wraps spill.ErrDamaged where what was written was read otherwise.
func (r *Rows) Next() (ok bool, err error) {
	if r.begun && len(r.heap) > 0 {
		ok, err := r.heap[0].next()
		if err != nil {
			return false, err
		}
		if !ok {
			last := len(r.heap) - 1
			r.heap[0], r.heap[last] = r.heap[last], nil
			r.heap = r.heap[:last]
		}
		r.down(0)
	}
	r.begun = true
	return len(r.heap) > 0, nil
}

// Key returns the key of the row, valid until the next Next.
func (r *Rows) Key() []byte { return r.heap[0].key() }

// Size returns about how many bytes the row has.
func (r *Rows) Size() int { return len(r.row()) }

func (r *Rows) row() []byte { return r.heap[0].row() }

// AppendTo appends the row to b, which has the Sorter's columns.
func (r *Rows) AppendTo(b *columnar.Batch) error {
	rest, err := spill.TakeRow(r.row(), b)
	if err == nil && len(rest) > 0 {
		return spill.Damaged("values")
	}
	return err
}
