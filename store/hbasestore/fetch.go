package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// How many results a call fetches: the first is asked for alone where nothing is known
// of their size, as rows may have as many megabytes as a gateway has memory. From then on
// it is what makes Options.PageBytes by the size of those before.
const (
	// firstPageRows is how many are asked for behind the first, or at first where scans
	// like this one have shown that so many are no more than a large page.
	firstPageRows = 16
	// maxPageRows bounds what rows much larger than those before can make of a page,
	// which the gateway has in memory whole, too. Pages of more small rows are no faster.
	maxPageRows = 1_000
	// maxLargestPages bounds a page of rows as large as the largest one so far, in
	// Options.PageBytes.
	maxLargestPages = 4
)

// maxPatience is the longest that an answer of a scanner is waited for. Where a filter,
// or a time range, passes few rows the gateway looks for one through the region, and
// says nothing meanwhile: this is as much as reads 50 GB at 50 MB/s.
const maxPatience = 16 * time.Minute

// closeTimeout bounds telling the gateway that a scanner is not needed any more,
// which forgets it after a minute anyway.
const closeTimeout = time.Second

// fetcher reads the pages of a scan ahead of its caller.
type fetcher struct {
	*source
	page     int           // results that are fetched next
	alone    bool          // the first is asked for alone
	rows     int           // that were fetched
	largest  int           // bytes of a result so far
	cut      bool          // a row was
	patience time.Duration // with an answer; 0 = Options.CallTimeout
	took     time.Duration // the answer to the last call of a scanner
	served   *gateway      // the last call
	avoid    *gateway      // has not answered in time: another is asked where one works

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

// run fetches everything, then ends the call that the scan is. ctx ends when the scan is
// closed, too.
func (f *fetcher) run(ctx context.Context) {
	defer f.end()
	defer f.stop(nil)
	defer close(f.pages)
	defer f.note()
	if err := f.all(ctx); err != nil {
		f.err = fmt.Errorf("scan %s: %w", f.table, err)
	}
}

// note remembers how large the rows were, where nothing has left out any of their cells.
func (f *fetcher) note() {
	t := &f.request
	if f.shape != "" && f.largest > 0 && len(t.FilterString) == 0 && t.ColFamTimeRangeMap == nil && (t.TimeRange == nil || t.TimeRange.MinStamp == 0) {
		f.s.widths.note(f.shape, f.largest)
	}
}

// get returns the scan as a get of its only row, or nil where it is none. A get is a
// call without a scanner on HBase's side, too.
func (src *source) get() *hbase.TGet {
	rows := src.sel.Rows()
	if !rows.OneRow() || len(rows.Start) > maxRow(src.table) || !src.gettable() {
		return nil
	}
	return src.getOf(rows.Start)
}

// getOf returns the get of a row.
func (src *source) getOf(row []byte) *hbase.TGet {
	t := &src.request
	return &hbase.TGet{Row: row, Columns: t.Columns, MaxVersions: &t.MaxVersions, TimeRange: t.TimeRange, FilterString: t.FilterString}
}

// runGet reads a scan that is a get. Nobody waits for it elsewhere, so it needs no
// goroutine.
func (src *source) runGet(get *hbase.TGet) {
	defer src.end()
	args := &hbase.THBaseServiceGetArgs{Table: []byte(src.table), Tget: get}
	var rows []fetched
	if src.err = src.s.retry(src.ctx, request{what: "scan", table: src.table, rows: true}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		rows, err = callRows(ctx, c, "get", true, args)
		return err
	}); src.err == nil && len(rows[0].cells) > 0 {
		src.results = rows
	}
}

// all returns nil where the scan was closed.
func (f *fetcher) all(ctx context.Context) error {
	var err error
	switch {
	case f.nothing || f.sel.Empty():
	case f.points == nil:
		err = f.regions(ctx)
	case f.gettable():
		err = f.gets(ctx)
	default:
		err = f.singles(ctx)
	}
	switch {
	case errors.Is(err, errStopped):
		return nil
	case err == nil:
		return cause(f.ctx) // a page may not have been handed over
	}
	return err
}

// regions fetches the scan's part of one region after the other.
func (f *fetcher) regions(ctx context.Context) error {
	parts, err := f.ranges(ctx)
	for i := 0; i < len(parts) && err == nil; i++ {
		f.rest, f.part, f.past = parts[i], nil, false
		var more bool
		if more, err = f.region(ctx); !more {
			break
		}
	}
	return err
}

// errStopped ends the calls of a scan that was closed.
var errStopped = errors.New("hbasestore: scan was closed")

// send hands a page over; false where nobody wants it any more.
func (f *fetcher) send(ctx context.Context, results []fetched) bool {
	select {
	case f.pages <- results:
		return true
	case <-ctx.Done():
		return false
	}
}

// region fetches what is left of a region; more is false where nothing further is
// wanted. What HBase has lost is opened again as long as there is progress within
// Options.RetryTimeout.
func (f *fetcher) region(ctx context.Context) (more bool, err error) {
	progress := time.Now()
	for attempt := 0; ; attempt++ {
		before := f.rows
		ended, more, err := f.scanner(ctx)
		for err == nil && !ended { // with a smaller or a larger piece
			ended, more, err = f.scanner(ctx)
		}
		if f.late(err) || f.rows > before {
			attempt, progress = 0, time.Now()
		}
		switch {
		case err == nil:
			return more, nil
		case context.Cause(ctx) != nil:
			return false, cause(ctx)
		case !errors.Is(err, store.ErrTransient) || time.Since(progress) > f.s.o.RetryTimeout:
			return false, err
		case errors.Is(err, errNotServing):
			f.s.regions.forget(f.table) // it was moved, or split
			if f.s.disabled(ctx, f.table) {
				return false, &store.DisabledError{Table: f.table}
			}
		}
		if err := f.s.wait(ctx, attempt); err != nil {
			return false, err
		}
	}
}

// errLate is the end of a call to which no answer came while HBase was looking for rows.
var errLate = errors.New("no row was found in time")

// late reports whether err is errLate, and another try waits longer or for fewer rows.
func (f *fetcher) late(err error) bool {
	patience := max(f.patience, f.s.o.CallTimeout)
	if !errors.Is(err, errLate) || patience >= f.s.o.patience && f.page == 1 {
		return false
	}
	f.patience = min(2*patience, f.s.o.patience)
	f.page = 1 // the first row that is found is to be answered
	return true
}

// once fetches n results with one call instead of three; see scanner.
func (f *fetcher) once(ctx context.Context, n int) (ended, more bool, err error) {
	results, err := f.fetch(ctx, nil, n)
	if err != nil {
		return false, false, err
	}
	if !f.deliver(ctx, results) || f.full() {
		return true, false, nil
	}
	return f.past || len(results) < n || f.over(), true, nil
}

// scanner fetches with one scanner until the end of the region (ended), until
// nothing more is wanted (not more), until the pieces of rows are to have another size,
// or until it fails.
func (f *fetcher) scanner(ctx context.Context) (ended, more bool, err error) {
	if f.over() {
		return true, true, nil // HBase would read the row at which both stand
	}
	if wanted := f.wanted(); f.alone && wanted > 0 && wanted <= firstPageRows {
		if ended, more, err = f.once(ctx, 1); ended || err != nil {
			return ended, more, err
		}
	}
	if wanted := f.wanted(); wanted > 0 && wanted <= f.page {
		if ended, more, err = f.once(ctx, wanted); ended || err != nil {
			return ended, more, err
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
		if !f.deliver(ctx, results) || f.full() {
			return true, false, nil
		}
		if f.past || len(results) < n {
			return true, true, nil
		}
		if f.resize() {
			return false, true, nil
		}
	}
}

// resize changes how many cells a piece of a row has, where rows are fetched in pieces:
// to more where rows are cut into small ones, to fewer, but no fewer than at first, where
// one was larger than a page may be. It reports whether it did; the next scanner is the
// first to know.
func (f *fetcher) resize() bool {
	if f.request.BatchSize == nil {
		return false
	}
	n, o := int(*f.request.BatchSize), f.s.o
	size := n
	switch {
	case f.largest > maxLargestPages*o.PageBytes:
		size = min(n, max(int(int64(n)*maxLargestPages*int64(o.PageBytes)/int64(f.largest)), firstPieceCells))
	case f.cut && f.largest <= o.PageBytes/pieceGrowth:
		size = min(pieceGrowth*n, pieceCells)
	}
	if size = max(size/f.step, 1) * f.step; size == n {
		return false
	}
	f.largest = int(int64(f.largest) * int64(size) / int64(n)) // as it would have been
	piece := int32(size)
	f.request.BatchSize = &piece
	return true
}

// over reports that nothing is left of the region.
func (f *fetcher) over() bool {
	return len(f.rest.Stop) > 0 && bytes.Compare(f.rest.Start, f.rest.Stop) >= 0
}

// full reports that no further row is wanted.
func (f *fetcher) full() bool { return f.limit > 0 && f.rows >= f.limit }

// wanted is how many results are wanted at most; 0 = not known.
func (f *fetcher) wanted() int {
	switch {
	case f.request.BatchSize != nil:
		return 0
	case f.rest.OneRow():
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
	t := f.request
	t.StartRow, t.StopRow = f.bounds()
	return &t
}

// open opens a scanner for the rest.
func (f *fetcher) open(ctx context.Context) (*scanner, error) {
	sc := &scanner{}
	t := f.scan()
	caching := int32(maxPageRows) // HBase bounds its pages by bytes
	t.Caching = &caching
	_, err := f.s.try(ctx, request{table: f.table, rows: true, avoid: f.avoid, served: &sc.gateway}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		sc.id, err = c.OpenScanner(ctx, []byte(f.table), t)
		return err
	})
	return sc, err
}

// fetch makes one call for n results, without a scanner where sc is nil. Its error wraps
// errLate where no answer came.
func (f *fetcher) fetch(ctx context.Context, sc *scanner, n int) (results []fetched, err error) {
	r := request{table: f.table, rows: true, timeout: f.patience, scan: true, avoid: f.avoid, served: &f.served}
	begun := time.Now()
	defer func() {
		f.took = time.Since(begun)
		if err != nil && context.Cause(ctx) == nil && errors.Is(err, os.ErrDeadlineExceeded) {
			f.avoid = f.served
			err = fmt.Errorf("%w: %w", errLate, err)
		}
	}()
	if sc == nil {
		t := f.scan()
		caching := int32(n)
		t.Caching = &caching
		_, err = f.s.try(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			results, err = callRows(ctx, c, "getScannerResults", false, &hbase.THBaseServiceGetScannerResultsArgs{Table: []byte(f.table), Tscan: t, NumRows: int32(n)})
			return err
		})
		return results, err
	}
	r.gateway = sc.gateway
	_, err = f.s.try(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		results, err = callRows(ctx, c, "getScannerRows", false, &hbase.THBaseServiceGetScannerRowsArgs{ScannerId: sc.id, NumRows: int32(n)})
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
func (f *fetcher) deliver(ctx context.Context, results []fetched) bool {
	size := 0
	kept := results[:0:len(results)]
	for i := range results {
		r := &results[i]
		before := size
		for i := range r.cells {
			c := &r.cells[i]
			size += len(r.key) + len(c.Family) + len(c.Qualifier) + len(c.Value) + 16
		}
		f.largest, f.cut = max(f.largest, size-before), f.cut || r.partial
		if !f.rest.Contains(r.key) {
			f.past = f.past || f.behind(r.key)
			continue
		}
		f.passed(r)
		if len(r.cells) > 0 && !f.retired(r) {
			kept = append(kept, *r)
			f.rows++
		}
	}
	if n := len(results); n > 0 {
		grown := 2 * f.page
		switch quarter := max(f.patience, f.s.o.CallTimeout) / 4; {
		case f.took > quarter:
			grown = f.page // twice as many rows may be late
		case f.alone && f.took < quarter/firstPageRows:
			grown = firstPageRows
		}
		f.alone = false
		f.page = min(max(f.s.o.PageBytes/max(size/n, 1), 1), f.mostRows(), grown)
	}
	return len(kept) == 0 || f.send(ctx, kept)
}

// mostRows is how many results a page has at most, whatever the average of those before.
func (f *fetcher) mostRows() int {
	return min(max(maxLargestPages*f.s.o.PageBytes/max(f.largest, 1), 1), maxPageRows)
}

// retired reports that a row has nothing but retired cells of counters: no reader sees
// it, and it must not count where a scan is limited.
func (f *fetcher) retired(r *fetched) bool {
	if !f.counters {
		return false
	}
	for i := range r.cells {
		c := &r.cells[i]
		if len(c.Value) > 0 {
			return false
		}
		at := slices.IndexFunc(f.sel.Families(), func(sf store.SelectedFamily) bool { return sf.Family.Name == c.Family })
		if at >= 0 && !f.sel.Families()[at].Family.InPlace() {
			return false
		}
	}
	return true
}

// behind reports whether a scan that has come to row has passed the rest.
func (f *fetcher) behind(row []byte) bool {
	if f.sel.Reversed() {
		return bytes.Compare(row, f.rest.Start) < 0
	}
	return len(f.rest.Stop) > 0 && bytes.Compare(row, f.rest.Stop) >= 0
}

// passed moves the rest behind a result, of which it drops what was fetched before.
func (f *fetcher) passed(r *fetched) {
	if f.part != nil && !f.resumes(r.key) {
		f.part = nil // HBase says of a last piece, too, that more of its row may follow
	}
	if f.part != nil {
		n := 0
		for n < len(r.cells) && cell.CompareInRow(&r.cells[n], f.part) <= 0 {
			n++
		}
		r.cells = r.cells[n:]
	}
	switch {
	case r.partial && len(r.cells) > 0:
		last := r.cells[len(r.cells)-1]
		f.part = &cell.Cell{Family: last.Family, Qualifier: last.Qualifier, Time: last.Time, Kind: last.Kind}
	case !r.partial:
		f.part = nil
	}
	// The rest begins with the row where it was fetched in part, else behind it.
	next := append(bytes.Clone(r.key), 0)
	switch reversed := f.sel.Reversed(); {
	case reversed && f.part != nil:
		f.rest.Stop = next
	case reversed:
		f.rest.Stop = r.key
	case f.part != nil:
		f.rest.Start = r.key
	default:
		f.rest.Start = next
	}
}

// resumes reports whether the rest begins with row.
func (f *fetcher) resumes(row []byte) bool {
	if !f.sel.Reversed() {
		return bytes.Equal(row, f.rest.Start)
	}
	stop := f.rest.Stop
	return len(stop) == len(row)+1 && stop[len(row)] == 0 && bytes.HasPrefix(stop, row)
}
