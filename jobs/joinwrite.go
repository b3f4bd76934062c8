package jobs

import (
	"context"

	"sluice/jobs/columnar"
)

// besideJoin encodes and writes a join's batches beside the goroutine that joins, which
// are about half of the work each. Two batches take turns.
type besideJoin struct {
	full  chan *columnar.Batch
	empty chan *columnar.Batch
	ended chan struct{}
	err   error // once ended is closed
}

// writeBeside begins to write the batches that take is given, of these columns.
func (r *joinRun) writeBeside(ctx context.Context, m *Manifest, columns []columnar.Column) *besideJoin {
	w := &besideJoin{full: make(chan *columnar.Batch), empty: make(chan *columnar.Batch, 1), ended: make(chan struct{})}
	w.empty <- columnar.NewBatch(columns)
	go func() {
		defer close(w.ended)
		w.err = asPriority(func() error {
			for b := range w.full {
				if err := r.write(ctx, m, b); err != nil {
					return err
				}
				b.Reset()
				w.empty <- b
			}
			return nil
		}, r.Join.sides[0], r.Join.sides[1])
	}()
	return w
}

// take takes the rows of b, and gives it the memory of those before. Its error is that of
// a batch before.
func (w *besideJoin) take(b *columnar.Batch) error {
	select {
	case mine := <-w.empty:
		*mine, *b = *b, *mine
		select {
		case w.full <- mine:
			return nil
		case <-w.ended:
		}
	case <-w.ended:
	}
	return w.err
}

// end waits until all batches are written, and returns why they are not.
func (w *besideJoin) end() error {
	close(w.full)
	<-w.ended
	return w.err
}
