package join

import (
	"bytes"
	"errors"
	"slices"

	"sluice/jobs/columnar"
)

// Finder is a right side whose rows are found by their keys.
type Finder interface {
	// Columns returns the columns in order.
	Columns() []columnar.Column
	// Find returns the rows whose column of the key is one of keys, which are
	// different, in bytewise order, and valid until the next Find. It ends what
	// the Find before has returned.
	Find(keys [][]byte) (Input, error)
}

// lookup joins by asking for those rows of the right side whose keys the left side
// has, a batch of the left side at a time.
type lookup struct {
	left  *side
	right Finder
	out   *emitter
	table table
	keys  [][]byte // of one question
}

func (l *lookup) run() error {
	for {
		if err := l.left.nextBatch(); err != nil || l.left.done {
			return err
		}
		// Fewer rows of the left side ask for fewer of the right.
		for from, n := 0, l.left.batch.Rows(); from < l.left.batch.Rows(); {
			to := min(from+n, l.left.batch.Rows())
			err := l.find(from, to)
			if errors.Is(err, ErrMemory) && to-from > 1 {
				n = (to - from) / 2
				continue
			}
			if err != nil {
				return err
			}
			for l.left.row = from; l.left.row < to; l.left.row++ {
				l.left.key, l.left.null = l.left.appendKey(l.left.key[:0])
				if err := l.table.probe(l.left, l.out); err != nil {
					return err
				}
			}
			from = to
		}
	}
}

// find holds the partners of rows [from, to) of the left side's batch.
func (l *lookup) find(from, to int) error {
	l.table.reset()
	l.keys = l.keys[:0]
	c := &l.left.keys[0].left
	v := l.left.batch.Vector(c.index)
	for row := from; row < to; row++ {
		if !v.IsNull(row) {
			l.keys = append(l.keys, c.part.of(v.Bytes(row)))
		}
	}
	if len(l.keys) == 0 {
		return nil
	}
	slices.SortFunc(l.keys, bytes.Compare)
	l.keys = slices.CompactFunc(l.keys, bytes.Equal)
	in, err := l.right.Find(l.keys)
	if err != nil {
		return err
	}
	return l.table.hold(&side{ctx: l.left.ctx, name: fromRight, in: in, keys: l.left.keys, right: true}, l.out)
}
