package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/region"
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
	all, err := s.familySizes(ctx, t, families, rows)
	if err != nil {
		return 0, fmt.Errorf("size of table %s: %w", table, err)
	}
	sum := uint64(0)
	for i := range all {
		sum += all[i].bytes
	}
	return int64(sum), nil
}

// familySize is what the cells of some rows take in one family.
type familySize struct {
	low, high []byte // its keys
	bytes     uint64
}

// familySizes returns the sizes of rows in the named families, or in all.
func (s *Snapshot) familySizes(ctx context.Context, t *table, families []string, rows cell.Range) ([]familySize, error) {
	var all []familySize
	for i := range t.fams {
		f := &t.fams[i]
		if len(families) > 0 && !slices.Contains(families, t.desc.Families[i].Name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		low, high := rowBounds(f.tag, t.id, f.id, rows)
		n, err := s.db.pebble.EstimateDiskUsage(low, high)
		if err != nil {
			return nil, engineError(err)
		}
		all = append(all, familySize{low: low, high: high, bytes: n})
	}
	return all, nil
}

// maxCuts bounds the parts of one range: beyond it they are larger. Each takes some
// fifty steps into the index of a file, a few milliseconds in all.
const maxCuts = 1000

// Cuts returns row keys within rows, ascending, that cut these into parts of about so
// many bytes of files: of their cells in the named families or, without names, in all;
// none where rows are not larger than a part and a half. The largest family decides where, as for
// SplitPoint. What was not flushed is missing, and a later call may cut elsewhere, as
// files are written anew. Its error wraps store.ErrTableNotFound.
func (s *Snapshot) Cuts(ctx context.Context, table string, families []string, rows cell.Range, size int64) (cuts [][]byte, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.db.leave()
	t, err := s.catalog.lookup(table)
	if err != nil {
		return nil, err
	}
	if cuts, err = s.cuts(ctx, t, families, rows, size); err != nil {
		return nil, fmt.Errorf("cut table %s: %w", table, err)
	}
	return cuts, nil
}

func (s *Snapshot) cuts(ctx context.Context, t *table, families []string, rows cell.Range, size int64) (cuts [][]byte, err error) {
	all, err := s.familySizes(ctx, t, families, rows)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	sum, largest := uint64(0), &all[0]
	for i := range all {
		sum += all[i].bytes
		if all[i].bytes > largest.bytes {
			largest = &all[i]
		}
	}
	part := uint64(max(size, 1))
	n := min((sum+part/2)/part, maxCuts)
	if n < 2 {
		return nil, nil
	}
	it, err := s.clone(ctx)(&pebble.IterOptions{LowerBound: largest.low, UpperBound: largest.high})
	if err != nil {
		return nil, engineError(err)
	}
	defer func() { err = errors.Join(err, s.db.closeIterator(it)) }()
	if !it.First() {
		return nil, engineError(it.Error())
	}
	after := rowEnd(it.Key()[:cell.SplitKey(it.Key())])
	if !it.Last() {
		return nil, engineError(it.Error())
	}
	last := bytes.Clone(it.Key()[:cell.SplitKey(it.Key())])
	for i := uint64(1); i < n && bytes.Compare(after, last) < 0; i++ {
		at, err := s.rowBehind(ctx, it, largest.low, after, last, largest.bytes/n*i)
		if err != nil {
			return nil, err
		}
		row, err := storedRow(at[prefixBytes:])
		if err != nil {
			return nil, err
		}
		cuts, after = append(cuts, row), rowEnd(at)
	}
	return cuts, nil
}

// rowBehind returns the keys' prefix of the first row in [after, last], of which last is
// one, before which there are so many bytes from low on, or of last.
func (s *Snapshot) rowBehind(ctx context.Context, it *pebble.Iterator, low, after, last []byte, size uint64) ([]byte, error) {
	best := last
	for until := last; bytes.Compare(after, until) < 0; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		at := after
		if parts := region.SplitRange(cell.Range{Start: after, Stop: until}, 2); len(parts) > 1 {
			at = parts[1].Start
		}
		if !it.SeekGE(at) || bytes.Compare(it.Key(), until) >= 0 {
			if err := it.Error(); err != nil {
				return nil, engineError(err)
			}
			until = at // no row begins in [at, until)
			continue
		}
		row := bytes.Clone(it.Key()[:cell.SplitKey(it.Key())])
		before, err := s.db.pebble.EstimateDiskUsage(low, row)
		if err != nil {
			return nil, engineError(err)
		}
		if before < size {
			after = rowEnd(row)
		} else {
			best, until = row, row
		}
	}
	return best, nil
}
