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
func (w *worker) recordFetching(ctx, hard context.Context, r *kafka.Record, rec *mapping.Record) error {
	for {
		err := w.record(hard, r, rec)
		pending, ok := err.(*decode.Pending)
		if !ok {
			return err
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
