package pipeline

import (
	"cmp"

	"sluice/pipeline/buffer"
)

// backfill is how a worker applies a backlog (Options.Backfill).
type backfill struct {
	bulk    bool // it does
	workers int  // that share memory and commits
}

// lags notes how far behind the partition is, and changes over where that calls for
// it.
func (w *worker) lags(records int64) {
	switch limit := w.p.opts.Backfill.Lag; {
	case limit == 0:
	case !w.bulk && records > limit:
		w.changeOver(true)
	case w.bulk && records <= limit/10:
		w.changeOver(false)
	}
}

// leaveBackfill ends the backfill where one is under way.
func (w *worker) leaveBackfill() {
	if w.bulk {
		w.changeOver(false)
	}
}

func (w *worker) changeOver(bulk bool) {
	w.bulk = bulk
	o := &w.p.opts
	records, bytes := cmp.Or(o.Flush.MaxRecords, buffer.DefaultMaxRecords), cmp.Or(o.Flush.MaxBytes, buffer.DefaultMaxBytes)
	if bulk {
		// One batch is filled, one waits, one is applied.
		records = max(records, o.Backfill.MaxRecords/w.workers)
		bytes = max(bytes, o.Memory.Buffered().Limit()/int64(3*w.workers))
	}
	w.buf.Resize(records, bytes)
	w.state.changeOver(bulk)
	w.log.Debug("partition changes over", "bulk", bulk, "offset", w.buf.Next())
}
