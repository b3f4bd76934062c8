package pipeline

import (
	"context"
	"errors"
	"fmt"

	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
)

// recordFetching is record, once the schema of r is there. A registry that does not
// answer is no fault of the record: the partition pauses and tries again by itself,
// with what was before the record applied.
//
// Nor is memory that is not free for what the payload of r unfolds to. Who waits for it
// holds no buffer, as those who have it may wait for buffered memory.
func (w *worker) recordFetching(ctx, hard context.Context, r *kafka.Record, rec *mapping.Record) error {
	defer func() { w.mapper.Release() }() // of the one there is then
	for {
		err := w.record(hard, r, rec)
		pending, ok := err.(*decode.Pending)
		if !ok {
			return err
		}
		if pending.Bytes > 0 {
			if err := w.flush(hard); err != nil {
				return err
			}
		}
		if err := pending.Fetch(ctx); err != nil {
			err = fmt.Errorf("decode offset %d of %s: %w", r.Offset, w.name, err)
			if ferr := w.flush(hard); ferr != nil {
				return errors.Join(err, ferr)
			}
			return err
		}
	}
}
