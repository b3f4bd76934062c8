package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// How many results a call fetches: the first, and at most. In between it is what
// makes Options.PageBytes by the size of those before.
const (
	firstPageRows   = 16 // rows may have megabytes
	firstPagePieces = 2  // of rows
	maxPageRows     = 10_000
)

// closeTimeout bounds telling the gateway that a scanner is not needed any more,
// which forgets it after a minute anyway.
const closeTimeout = time.Second

// fetcher reads the pages of a scan ahead of its caller.
type fetcher struct {
	*source
	page int // results that are fetched next
	rows int // that were fetched

	// What is left of the region.
	rest cell.Range
	// part is the last cell that was fetched of the row at which the rest
	// begins, where that row was fetched in part.
	part *cell.Cell
	// past says that rows behind the region's part of the scan were fetched.
	past bool
}

// scanner is an open scanner of a gateway.
type scanner struct {
	id      int32
	gateway *gateway
}

// run fetches everything, then ends the call that the scan is.
func (f *fetcher) run() {
	defer f.end()
	defer close(f.pages)
	if err := f.all(); err != nil {
		f.err = fmt.Errorf("scan %s: %w", f.table, err)
	}
}

// get returns the scan as a get of its only row, or nil where it is none. A get is a
// call without a scanner on HBase's side, too.
func (f *fetcher) get() *hbase.TGet {
	t, rows := f.request, f.sel.Rows()
	if !oneRow(rows) || len(rows.Start) > maxRow(f.table) || f.nothing || f.sel.Empty() ||
		t.BatchSize != nil || t.ColFamTimeRangeMap != nil || f.sel.Raw() {
		return nil
	}
	return f.getOf(rows.Start)
}

// getOf returns the get of a row.
func (f *fetcher) getOf(row []byte) *hbase.TGet {
	t := f.request
	return &hbase.TGet{Row: row, Columns: t.Columns, MaxVersions: &t.MaxVersions, TimeRange: t.TimeRange, FilterString: t.FilterString}
}

// runGet is run for a scan that is a get. Nobody waits for it elsewhere, so it needs no
// goroutine.
func (f *fetcher) runGet(get *hbase.TGet) {
	defer f.end()
	defer close(f.pages)
	r := request{what: "scan", table: f.table}
	var row *hbase.TResult_
	if f.err = f.s.retry(f.ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		row, err = c.Get(ctx, []byte(f.table), get)
		return err
	}); f.err == nil && len(row.GetColumnValues()) > 0 {
		f.results = []*hbase.TResult_{row}
	}
}

// all returns nil where the scan was closed.
func (f *fetcher) all() error {
	ctx, cancel := context.WithCancelCause(f.ctx) // ends when the scan is closed, too
	done := make(chan struct{})
	defer close(done)
	go func() {
		defer cancel(nil)
		select {
		case <-f.stop:
			cancel(errStopped)
		case <-done:
		}
	}()
	if f.points != nil && !f.nothing && !f.sel.Empty() {
		return f.gets(ctx)
	}
	parts, err := f.ranges(ctx)
	for i := 0; i < len(parts) && err == nil; i++ {
		f.rest, f.part, f.past = parts[i], nil, false
		var more bool
		if more, err = f.region(ctx); !more {
			break
		}
	}
	switch {
	case errors.Is(err, errStopped):
		return nil
	case err == nil:
		return context.Cause(f.ctx) // a page may not have been handed over
	}
	return err
}

// errStopped ends the calls of a scan that was closed.
var errStopped = errors.New("hbasestore: scan was closed")

// send hands a page over; false where nobody wants it any more.
func (f *fetcher) send(results []*hbase.TResult_) bool {
	select {
	case f.pages <- results:
		return true
	case <-f.stop:
	case <-f.ctx.Done():
	}
	return false
}

// region fetches what is left of a region; more is false where nothing further is
// wanted. What HBase has lost is opened again as long as there is progress within
// Options.RetryTimeout.
func (f *fetcher) region(ctx context.Context) (more bool, err error) {
	progress := time.Now()
	for attempt := 0; ; attempt++ {
		before := f.rows
		ended, more, err := f.scanner(ctx)
		if f.rows > before {
			attempt, progress = 0, time.Now()
		}
		switch {
		case ended || err == nil:
			return more, nil
		case context.Cause(ctx) != nil:
			return false, context.Cause(ctx)
		case !errors.Is(err, store.ErrTransient) || time.Since(progress) > f.s.o.RetryTimeout:
			return false, err
		case errors.Is(err, errNotServing):
			f.s.regions.forget(f.table) // it was moved, or split
			if f.s.disabled(ctx, f.table) {
				return false, store.ErrTableNotEnabled
			}
		}
		if err := f.s.wait(ctx, attempt); err != nil {
			return false, err
		}
	}
}

// scanner fetches with one scanner until the end of the region (ended), until
// nothing more is wanted, or until it fails.
func (f *fetcher) scanner(ctx context.Context) (ended, more bool, err error) {
	if len(f.rest.Stop) > 0 && bytes.Compare(f.rest.Start, f.rest.Stop) >= 0 {
		return true, true, nil // HBase would read the row at which both stand
	}
	wanted := f.wanted()
	if wanted > 0 && wanted <= f.page {
		// One call instead of three.
		results, err := f.fetch(ctx, nil, wanted)
		if err != nil {
			return false, false, err
		}
		if !f.deliver(results) {
			return true, false, nil
		}
		if f.past || len(results) < wanted {
			return true, !f.full(), nil
		}
		if f.full() {
			return true, false, nil
		}
	}
	sc, err := f.open(ctx)
	if err != nil {
		return false, false, err
	}
	lost := false
	defer func() {
		if !lost {
			f.close(sc)
		}
	}()
	for {
		n := f.page
		results, err := f.fetch(ctx, sc, n)
		if err != nil {
			lost = context.Cause(ctx) == nil // else it is there still
			return false, false, err
		}
		if !f.deliver(results) || f.full() {
			return true, false, nil
		}
		if f.past || len(results) < n {
			return true, true, nil
		}
	}
}

// full reports that no further row is wanted.
func (f *fetcher) full() bool { return f.limit > 0 && f.rows >= f.limit }

// wanted is how many results are wanted at most; 0 = not known.
func (f *fetcher) wanted() int {
	switch {
	case f.request.BatchSize != nil:
		return 0
	case oneRow(f.rest):
		return 1
	case f.limit > 0 && f.sel.Reversed():
		return f.limit - f.rows + 1 // the first row may be one that is dropped here
	case f.limit > 0:
		return f.limit - f.rows
	}
	return 0
}

// bounds returns the rows that HBase is asked for, in the direction of the scan: its
// start is inclusive, its stop exclusive, and neither is longer than a row can be.
// What it sends besides the rest is dropped.
func (f *fetcher) bounds() (start, stop []byte) {
	start, stop = f.rest.Start, f.rest.Stop
	longest := maxRow(f.table)
	if !f.sel.Reversed() {
		if len(stop) > longest {
			stop = cell.PrefixEnd(stop[:longest])
		}
		return start[:min(len(start), longest)], stop
	}
	start, stop = stop, start
	if n := len(start); n > 0 && start[n-1] == 0 {
		start = start[:n-1] // the largest key below
	}
	if n := len(stop); n > 0 {
		// A key below all that are wanted, and near: there is no nearest.
		if last := stop[n-1]; last == 0 {
			stop = stop[:n-1]
		} else {
			stop = append(append(bytes.Clone(stop[:n-1]), last-1), bytes.Repeat([]byte{0xff}, 9)...)
		}
	}
	return start[:min(len(start), longest)], stop[:min(len(stop), longest)]
}

func (f *fetcher) scan() *hbase.TScan {
	t := *f.request
	t.StartRow, t.StopRow = f.bounds()
	return &t
}

// open opens a scanner for the rest.
func (f *fetcher) open(ctx context.Context) (*scanner, error) {
	sc := &scanner{}
	t := f.scan()
	caching := int32(maxPageRows) // HBase bounds its pages by bytes
	t.Caching = &caching
	_, err := f.s.try(ctx, request{table: f.table, served: &sc.gateway}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		sc.id, err = c.OpenScanner(ctx, []byte(f.table), t)
		return err
	})
	return sc, err
}

// fetch makes one call for n results, without a scanner where sc is nil.
func (f *fetcher) fetch(ctx context.Context, sc *scanner, n int) (results []*hbase.TResult_, err error) {
	r := request{table: f.table}
	if sc == nil {
		t := f.scan()
		caching := int32(n)
		t.Caching = &caching
		_, err = f.s.try(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			results, err = c.GetScannerResults(ctx, []byte(f.table), t, int32(n))
			return err
		})
		return results, err
	}
	r.gateway = sc.gateway
	_, err = f.s.try(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		results, err = c.GetScannerRows(ctx, sc.id, int32(n))
		return err
	})
	return results, err
}

// close tells the gateway that a scanner is not needed any more.
func (f *fetcher) close(sc *scanner) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(f.ctx), closeTimeout)
	defer cancel()
	// It forgets the scanner by itself where it does not hear this.
	_, _ = f.s.try(ctx, request{table: f.table, gateway: sc.gateway}, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.CloseScanner(ctx, sc.id)
	})
}

// deliver hands over what was fetched, without what the scan does not want or has
// had, and moves the rest behind it. It returns false where nothing more is wanted.
func (f *fetcher) deliver(results []*hbase.TResult_) bool {
	size := 0
	kept := results[:0:len(results)]
	for _, r := range results {
		for _, v := range r.ColumnValues {
			size += len(r.Row) + len(v.Family) + len(v.Qualifier) + len(v.Value) + 16
		}
		if !f.rest.Contains(r.Row) {
			f.past = f.past || f.behind(r.Row)
			continue
		}
		f.passed(r)
		if len(r.ColumnValues) > 0 {
			kept = append(kept, r)
			f.rows++
		}
	}
	if n := len(results); n > 0 {
		f.page = min(max(f.s.o.PageBytes/max(size/n, 1), 1), maxPageRows, 4*f.page)
	}
	return len(kept) == 0 || f.send(kept)
}

// behind reports whether a scan that has come to row has passed the rest.
func (f *fetcher) behind(row []byte) bool {
	if f.sel.Reversed() {
		return bytes.Compare(row, f.rest.Start) < 0
	}
	return len(f.rest.Stop) > 0 && bytes.Compare(row, f.rest.Stop) >= 0
}

// passed moves the rest behind a result, of which it drops what was fetched before.
func (f *fetcher) passed(r *hbase.TResult_) {
	if f.part != nil {
		n := 0
		for n < len(r.ColumnValues) && !beyond(r.ColumnValues[n], f.part) {
			n++
		}
		r.ColumnValues = r.ColumnValues[n:]
	}
	partial := r.Partial
	switch {
	case partial && len(r.ColumnValues) > 0:
		last := r.ColumnValues[len(r.ColumnValues)-1]
		f.part = &cell.Cell{Family: string(last.Family), Qualifier: last.Qualifier, Time: cell.Timestamp(last.GetTimestamp()), Kind: kindOf(last)}
	case !partial:
		f.part = nil
	}
	// The rest begins with the row where it was fetched in part, else behind it.
	next := append(bytes.Clone(r.Row), 0)
	switch reversed := f.sel.Reversed(); {
	case reversed && f.part != nil:
		f.rest.Stop = next
	case reversed:
		f.rest.Stop = r.Row
	case f.part != nil:
		f.rest.Start = r.Row
	default:
		f.rest.Start = next
	}
}

func kindOf(v *hbase.TColumnValue) cell.Kind {
	if v.Type == nil {
		return cell.KindPut
	}
	return cell.Kind(*v.Type)
}

// beyond reports whether v stands behind c in its row.
func beyond(v *hbase.TColumnValue, c *cell.Cell) bool {
	if d := bytes.Compare(v.Family, []byte(c.Family)); d != 0 {
		return d > 0
	}
	if d := bytes.Compare(v.Qualifier, c.Qualifier); d != 0 {
		return d > 0
	}
	if t := cell.Timestamp(v.GetTimestamp()); t != c.Time {
		return t < c.Time
	}
	return kindOf(v) < c.Kind
}
