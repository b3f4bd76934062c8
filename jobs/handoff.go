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
	export  *splitExport
	batches *beside[filled]
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
	spare := filled{builder: columnar.NewBuilder(e.run.Job.schema)}
	e.handoff = &handoff{e, writeBeside(spare, func(f filled) error {
		if err := e.write(ctx, f.builder.Batch(), f.min, f.max); err != nil {
			return err
		}
		return e.finishFull(ctx)
	}, e.run.Job)}
}

// take gives the split's batch away and the split another builder. Its error is that
// of a batch before.
func (h *handoff) take() error {
	e := h.export
	next, err := h.batches.take(filled{e.builder, bytes.Clone(e.min), bytes.Clone(e.max)})
	if err == nil {
		e.builder = next.builder
	}
	return err
}

// end waits until all batches are written; the outputs are the split's again, and the
// core is left over.
func (h *handoff) end() error {
	err := h.batches.end()
	h.export.run.spare <- struct{}{}
	return err
}
