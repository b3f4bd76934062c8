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
	"sluice/store"
)

// RegionStats returns what the regions of a table hold and serve. Sizes are
// Pebble's estimates, by blocks of its files.
func (db *DB) RegionStats(ctx context.Context, name string) ([]store.RegionStats, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err != nil {
		return nil, fmt.Errorf("region stats: %w", err)
	}
	stats, err := store.NewRegionStats(t.regions, t.load, int64(db.opts.Now()), func(r *region.Info) (int64, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		var n int64
		for i := range t.fams {
			low, high := rowBounds(t.fams[i].tag, t.id, t.fams[i].id, r.Range())
			size, err := db.pebble.EstimateDiskUsage(low, high)
			if err != nil {
				return 0, engineError(err)
			}
			n += int64(size)
		}
		return n, nil
	})
	if err != nil {
		return nil, fmt.Errorf("region stats of %s: %w", name, err)
	}
	return stats, nil
}

// exactKeys is the most keys of a region that are read to find its middle: some
// milliseconds. Of more, the sizes of blocks tell it well enough.
const exactKeys = 10_000

// SplitPoint returns the row that cuts the region which holds row into halves. A
// small region is read; of a large one the middle is looked for by halving the
// keys of its largest family, as HBase takes the middle of the largest file of
// its largest store, whose data it flushes first where memory holds much of it.
func (db *DB) SplitPoint(ctx context.Context, name string, row []byte) ([]byte, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err == nil {
		err = t.served()
	}
	if err != nil {
		return nil, fmt.Errorf("split point: %w", err)
	}
	r := t.regions.At(t.regions.Locate(row))
	first, middle, exact, err := db.readMiddle(ctx, t, r)
	if err == nil && !exact {
		first, middle, err = db.searchMiddle(ctx, t, r)
	}
	if err != nil {
		return nil, fmt.Errorf("split point of %s: %w", name, err)
	}
	return store.SplitRow(t.desc, r, first, middle)
}

// readMiddle reads the keys of a region and returns its first row and its middle
// one, nil where there is none. exact is false where there are too many.
func (db *DB) readMiddle(ctx context.Context, t *table, r *region.Info) (first, middle []byte, exact bool, err error) {
	open := db.liveIterators(ctx)
	sizes := map[string]int64{} // by stored row
	left := exactKeys
	for i := range t.fams {
		low, high := rowBounds(t.fams[i].tag, t.id, t.fams[i].id, r.Range())
		it, err := open(&pebble.IterOptions{LowerBound: low, UpperBound: high})
		if err != nil {
			return nil, nil, false, engineError(err)
		}
		defer db.closeIterator(it)
		for ok := it.First(); ok; ok = it.Next() {
			if left--; left < 0 {
				return nil, nil, false, nil
			}
			key := it.Key()
			value, err := it.ValueAndErr()
			if err != nil {
				return nil, nil, false, engineError(err)
			}
			sizes[string(key[prefixBytes:cell.SplitKey(key)])] += int64(len(key) + len(value))
		}
		if err := it.Error(); err != nil {
			return nil, nil, false, engineError(err)
		}
	}
	rows := make([]string, 0, len(sizes))
	for row := range sizes {
		rows = append(rows, row)
	}
	slices.Sort(rows) // escaped rows sort as the rows do
	bytesOf := make([]int64, len(rows))
	for i, row := range rows {
		bytesOf[i] = sizes[row]
	}
	i, ok := region.Middle(bytesOf)
	if !ok {
		return nil, nil, true, nil
	}
	if first, err = storedRow([]byte(rows[0])); err != nil {
		return nil, nil, true, err
	}
	middle, err = storedRow([]byte(rows[i]))
	return first, middle, true, err
}

// storedRow decodes the row at the head of b.
func storedRow(b []byte) ([]byte, error) {
	row, _, _, err := cell.DecodePart(b, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return bytes.Clone(row), nil
}

// searchMiddle finds about the middle row of a region by the sizes of the blocks
// of its largest family. It returns the family's first row, too; nil, nil where
// there are no two.
func (db *DB) searchMiddle(ctx context.Context, t *table, r *region.Info) (first, middle []byte, err error) {
	low, high, total, err := db.largestFamily(t, r)
	if err != nil {
		return nil, nil, err
	}
	if total < 2*db.opts.MemTableBytes && !db.opts.ReadOnly {
		if err := db.flushMemTables(ctx); err != nil {
			return nil, nil, err
		}
		if low, high, total, err = db.largestFamily(t, r); err != nil {
			return nil, nil, err
		}
	}
	it, err := db.liveIterators(ctx)(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return nil, nil, engineError(err)
	}
	defer func() { err = errors.Join(err, db.closeIterator(it)) }()
	prefix := func() []byte { return bytes.Clone(it.Key()[:cell.SplitKey(it.Key())]) }
	if !it.First() {
		return nil, nil, engineError(it.Error())
	}
	begin := prefix()
	if !it.Last() {
		return nil, nil, engineError(it.Error())
	}
	// The middle is in (after, best]: a row below it is less than half way.
	after, best := rowEnd(begin), prefix()
	for until := best; bytes.Compare(after, until) < 0; {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		at := after
		if parts := region.SplitRange(cell.Range{Start: after, Stop: until}, 2); len(parts) > 1 {
			at = parts[1].Start
		}
		if !it.SeekGE(at) || bytes.Compare(it.Key(), until) >= 0 {
			if err := it.Error(); err != nil {
				return nil, nil, engineError(err)
			}
			until = at // no row begins in [at, until)
			continue
		}
		row := prefix()
		before, err := db.pebble.EstimateDiskUsage(low, row)
		if err != nil {
			return nil, nil, engineError(err)
		}
		if 2*before < total {
			after = rowEnd(row)
		} else {
			best, until = row, row
		}
	}
	if bytes.Equal(begin, best) {
		return nil, nil, nil
	}
	if first, err = storedRow(begin[prefixBytes:]); err != nil {
		return nil, nil, err
	}
	middle, err = storedRow(best[prefixBytes:])
	return first, middle, err
}

// largestFamily returns the keys [low, high) of the family with the most bytes in
// a region's files.
func (db *DB) largestFamily(t *table, r *region.Info) (low, high []byte, size uint64, err error) {
	for i := range t.fams {
		l, h := rowBounds(t.fams[i].tag, t.id, t.fams[i].id, r.Range())
		n, err := db.pebble.EstimateDiskUsage(l, h)
		if err != nil {
			return nil, nil, 0, engineError(err)
		}
		if low == nil || n > size {
			low, high, size = l, h, n
		}
	}
	return low, high, size, nil
}
