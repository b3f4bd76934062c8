package jobs

import (
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// Bounds of the rows that are taken at once as they are stored: enough that a call is
// little of their cost, few enough that they stay near in the cache and that a batch has
// room for them.
const (
	packedRows  = 256
	packedBytes = 64 << 10
)

// storedRows are rows of a scan as they are stored, a part of a batch at a time.
type storedRows struct {
	rows  cell.PackedRows // that came last
	cells []cell.Cell     // of one of them
}

// newStoredRows returns those of a job.
func newStoredRows(j *Job) storedRows {
	return storedRows{rows: cell.PackedRows{Fold: j.folds()}}
}

// folds reports whether the job wants no more of rows than the newest versions.
func (j *Job) folds() bool { return j.schema.Mode() == columnar.PerRow }

// next takes the next rows of sc, for a batch that has room for as many, and reports
// whether there are some. Where there are none, sc.Next tells what comes.
func (s *storedRows) next(sc store.Scanner, room int) bool {
	stored, ok := sc.(store.PackedScanner)
	return ok && stored.NextPacked(&s.rows, max(1, min(packedRows, room)), packedBytes) > 0
}

// each calls f with each of the rows, which are of this table. A row is valid until f
// returns.
func (s *storedRows) each(table string, f func(row *cell.Row) error) error {
	for i := range s.rows.Len() {
		row, err := s.rows.Row(i, s.cells)
		if err != nil {
			return fmt.Errorf("%w: scan of table %s: %w", store.ErrCorrupt, table, err)
		}
		s.cells = row.Cells
		if err := f(&row); err != nil {
			return err
		}
	}
	return nil
}

// refused completes an error of the builder by the table, which is unknown to a job that
// was compiled without a schema.
func refused(table string, err error) error {
	if refused := (*columnar.ConvertError)(nil); errors.As(err, &refused) {
		refused.Table = table
		return err
	}
	return fmt.Errorf("table %s: %w", table, err)
}
