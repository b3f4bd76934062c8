package hbasestore

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// pointRows returns the rows of a scan that asks for rows by their keys alone, as
// store.Table.GetRows does, ascending, or nil where it does not. HBase would read a scan
// from the first of them to the last, as the gateway knows no filter of ranges.
func (src *source) pointRows(scan *store.Scan) [][]byte {
	f, ok := scan.Filter.(*store.MultiRowRangeFilter)
	if !ok || scan.Reversed {
		return nil
	}
	rows := make([][]byte, 0, len(f.Ranges))
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if len(r.Start) == 0 || r.StartExclusive || !r.StopInclusive || !bytes.Equal(r.Start, r.Stop) {
			return nil
		}
		if len(r.Start) <= maxRow(src.table) && src.sel.Rows().Contains(r.Start) { // others are not there
			rows = append(rows, r.Start)
		}
	}
	slices.SortFunc(rows, bytes.Compare)
	return slices.CompactFunc(rows, bytes.Equal)
}

// gettable reports whether a get of the gateway's says all that the scan asks of a row.
func (src *source) gettable() bool {
	t := &src.request
	return !src.nothing && !src.sel.Empty() && !src.sel.Raw() && t.BatchSize == nil && t.ColFamTimeRangeMap == nil
}

// singles fetches the rows that are named one after the other, where they are not
// gettable.
func (f *fetcher) singles(ctx context.Context) error {
	for _, row := range f.points {
		f.rest, f.part, f.past = cell.Range{Start: row, Stop: append(bytes.Clone(row), 0)}, nil, false
		if more, err := f.region(ctx); err != nil || !more {
			return err
		}
	}
	return nil
}

// gets fetches the rows that are named, several a call.
func (f *fetcher) gets(ctx context.Context) error {
	f.rest = f.sel.Rows()
	r := request{what: "get rows of", table: f.table, rows: true}
	for rows := f.points; len(rows) > 0; {
		n := min(f.page, maxCallRows, len(rows))
		gets := make([]*hbase.TGet, n)
		for i, row := range rows[:n] {
			gets[i] = f.getOf(row)
		}
		rows = rows[n:]
		var results []fetched
		err := f.s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			results, err = callRows(ctx, c, "getMultiple", false, &hbase.THBaseServiceGetMultipleArgs{Table: []byte(f.table), Tgets: gets})
			return err
		})
		switch {
		case err != nil:
			return err
		case len(results) != n:
			return fmt.Errorf("%w: %d results of %d gets", store.ErrCorrupt, len(results), n)
		}
		// A row that is absent has a result without a row.
		results = slices.DeleteFunc(results, func(r fetched) bool { return len(r.cells) == 0 })
		if len(results) == 0 {
			f.page = min(4*f.page, f.mostRows()) // of rows that are absent
		}
		if !f.deliver(ctx, results) {
			break
		}
	}
	return nil
}
