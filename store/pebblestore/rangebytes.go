package pebblestore

import (
	"context"
	"fmt"
	"slices"

	"sluice/cell"
)

// RangeBytes returns about how many bytes of files the cells of rows take, those of
// the named families or, without names, of all. It reads no cells; what was not
// flushed is missing. Its error wraps store.ErrTableNotFound.
func (s *Snapshot) RangeBytes(ctx context.Context, table string, families []string, rows cell.Range) (int64, error) {
	if err := s.enter(); err != nil {
		return 0, err
	}
	defer s.db.leave()
	t, err := s.catalog.lookup(table)
	if err != nil {
		return 0, err
	}
	var sum uint64
	for i := range t.fams {
		f := &t.fams[i]
		if len(families) > 0 && !slices.Contains(families, t.desc.Families[i].Name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		low, high := rowBounds(f.tag, t.id, f.id, rows)
		n, err := s.db.pebble.EstimateDiskUsage(low, high)
		if err != nil {
			return 0, fmt.Errorf("size of table %s: %w", table, engineError(err))
		}
		sum += n
	}
	return int64(sum), nil
}
