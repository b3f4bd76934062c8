package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// pointRows returns the rows of a scan that asks for rows by their keys alone, as
// store.Table.GetRows does, ascending, or nil where it does not, or where the gateway's
// gets do not say all that it asks for. HBase would read a scan from the first of them
// to the last, as the gateway knows no filter of ranges.
func (src *source) pointRows(scan *store.Scan) [][]byte {
	f, ok := scan.Filter.(*store.MultiRowRangeFilter)
	if t := src.request; !ok || scan.Reversed || src.sel.Raw() || t.BatchSize != nil || t.ColFamTimeRangeMap != nil {
		return nil
	}
	rows := make([][]byte, 0, len(f.Ranges))
	for i := range f.Ranges {
		r := &f.Ranges[i]
		if len(r.Start) == 0 || r.StartExclusive || !r.StopInclusive || !bytes.Equal(r.Start, r.Stop) || len(r.Start) > maxRow(src.table) {
			return nil
		}
		if src.sel.Rows().Contains(r.Start) {
			rows = append(rows, r.Start)
		}
	}
	slices.SortFunc(rows, bytes.Compare)
	return slices.CompactFunc(rows, bytes.Equal)
}

// gets fetches the rows that are named, several a call. It returns nil where the scan
// was closed.
func (f *fetcher) gets(ctx context.Context) error {
	f.rest = f.sel.Rows()
	r := request{what: "get rows of", table: f.table}
	for rows := f.points; len(rows) > 0; {
		n := min(f.page, maxCallRows, len(rows))
		gets := make([]*hbase.TGet, n)
		for i, row := range rows[:n] {
			gets[i] = f.getOf(row)
		}
		rows = rows[n:]
		var results []*hbase.TResult_
		err := f.s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			results, err = c.GetMultiple(ctx, []byte(f.table), gets)
			return err
		})
		switch {
		case errors.Is(err, errStopped):
			return nil
		case err != nil:
			return err
		case len(results) != n:
			return fmt.Errorf("%w: %d results of %d gets", store.ErrCorrupt, len(results), n)
		}
		// A row that is absent has a result without a row.
		results = slices.DeleteFunc(results, func(r *hbase.TResult_) bool { return len(r.ColumnValues) == 0 })
		if len(results) == 0 {
			f.page *= 4 // of rows that are absent
		}
		if !f.deliver(results) {
			break
		}
	}
	return context.Cause(f.ctx) // a page may not have been handed over
}
