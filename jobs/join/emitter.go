package join

import (
	"context"
	"fmt"

	"sluice/jobs/columnar"
)

// ref is a row of a batch; a nil batch is no row, all nulls.
type ref struct {
	batch *columnar.Batch
	row   int
}

// emitter gathers output rows into batches.
type emitter struct {
	ctx   context.Context
	j     *Join
	out   *columnar.Batch
	bytes int // of text since the last flush
	write func(*columnar.Batch) error
}

// emit appends an output row of a row of each side, either of which may be none.
func (e *emitter) emit(left, right ref) error {
	for i := range e.j.outputs {
		o := &e.j.outputs[i]
		v := e.out.Vector(i)
		var err error
		switch {
		case o.from == fromKey:
			err = e.key(v, &e.j.keys[o.column], left, right)
		case o.from == fromLeft:
			err = e.value(v, left, o.column)
		default:
			err = e.value(v, right, o.column)
		}
		if err != nil {
			return err
		}
	}
	if e.out.Rows() >= columnar.DefaultBatchRows || e.bytes >= columnar.DefaultBatchBytes {
		return e.flush()
	}
	return nil
}

func (e *emitter) value(v *columnar.Vector, r ref, column int) error {
	if r.batch == nil {
		v.AppendNull()
		return nil
	}
	from := r.batch.Vector(column)
	e.bytes += more(from, r.row)
	return v.AppendFrom(from, r.row)
}

// key appends what the sides have in common: of the left row, or else of the right.
func (e *emitter) key(v *columnar.Vector, k *key, left, right ref) error {
	r, c := left, k.left
	if r.batch == nil {
		r, c = right, k.right
	}
	from := r.batch.Vector(c.index)
	if !text(from.Type()) || from.IsNull(r.row) {
		return e.value(v, r, c.index)
	}
	b := c.part.of(from.Bytes(r.row))
	e.bytes += len(b)
	return v.AppendBytes(b)
}

// flush hands out what was gathered.
func (e *emitter) flush() error {
	if e.out.Rows() == 0 {
		return nil
	}
	if e.ctx.Err() != nil {
		return fmt.Errorf("write joined rows: %w", context.Cause(e.ctx))
	}
	if err := e.write(e.out); err != nil {
		return err
	}
	e.out.Reset()
	e.bytes = 0
	return nil
}
