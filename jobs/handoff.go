package jobs

import (
	"bytes"
	"context"

	"sluice/jobs/columnar"
)

// handoff encodes and writes the batches of a split beside the scan that fills them:
// on a core that has no split of its own. From its first batch on the split's outputs
// belong to it.
type handoff struct {
	export *splitExport
	full   chan filled
	empty  chan *columnar.Builder
	ended  chan struct{}
	err    error // once ended is closed
}

// filled is a batch whose rows have keys from min to max.
type filled struct {
	builder  *columnar.Builder
	min, max []byte
}

// share begins a handoff where a core is left over. Batches of cells may end within a
// row, and files must not, so that only a scan of rows shares its split; the rows of
// partitions are divided, and those that are sorted collected, where they are scanned.
func (e *splitExport) share(ctx context.Context) {
	if e.run.Job.schema.Mode() != columnar.PerRow || e.parts != nil || e.sorter != nil {
		return
	}
	select {
	case <-e.run.spare:
	default:
		return
	}
	h := &handoff{export: e, full: make(chan filled), empty: make(chan *columnar.Builder, 2), ended: make(chan struct{})}
	h.empty <- columnar.NewBuilder(e.run.Job.schema)
	e.handoff = h
	go h.run(ctx)
}

// run writes batches until end is called, or one cannot be written.
func (h *handoff) run(ctx context.Context) {
	defer close(h.ended)
	if h.err = h.export.run.Job.atPriority(); h.err != nil {
		return
	}
	for f := range h.full {
		if h.err = h.write(ctx, &f); h.err != nil {
			return
		}
		h.empty <- f.builder // has room for both
	}
}

func (h *handoff) write(ctx context.Context, f *filled) error {
	if err := h.export.write(ctx, f.builder.Batch(), f.min, f.max); err != nil {
		return err
	}
	return h.export.finishFull(ctx)
}

// take gives the split's batch away and the split another builder. Its error is that
// of a batch before.
func (h *handoff) take() error {
	e := h.export
	select {
	case h.full <- filled{e.builder, bytes.Clone(e.min), bytes.Clone(e.max)}:
	case <-h.ended:
		return h.err
	}
	select {
	case e.builder = <-h.empty:
		return nil
	case <-h.ended:
		return h.err
	}
}

// end waits until all batches are written; the outputs are the split's again, and the
// core is left over.
func (h *handoff) end() error {
	close(h.full)
	<-h.ended
	h.export.run.spare <- struct{}{}
	return h.err
}
