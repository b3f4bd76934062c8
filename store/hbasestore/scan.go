package hbasestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// Scan implements store.Reader. Regions are read one after the other, each by a
// scanner of its own, the next page while the caller has the last. A scanner that
// HBase has lost is opened anew behind the last row. As in HBase, a scan is no
// snapshot: a row is read whole, rows are as they are when they are read.
func (s *Store) Scan(ctx context.Context, scan *store.Scan) store.Scanner {
	sc, err := s.scan(ctx, scan)
	if err != nil {
		return store.FailedScanner(err)
	}
	return sc
}

func (s *Store) scan(outer context.Context, scan *store.Scan) (store.Scanner, error) {
	ctx, end, err := s.begin(outer, true)
	if err != nil {
		return nil, fmt.Errorf("scan %s: %w", scan.Table, err)
	}
	table := store.CanonicalName(scan.Table)
	var sel *store.Selection
	for {
		t, fresh, err := s.schemas.get(ctx, table)
		if err != nil {
			err = fmt.Errorf("scan: %w", err)
		} else if sel, err = store.NewSelection(scan, t); err == nil {
			break
		}
		if !errors.Is(err, store.ErrFamilyNotFound) || fresh {
			end()
			return nil, err
		}
		s.schemas.forget(table) // the family may be new
	}
	src := &source{s: s, ctx: ctx, end: end, sel: sel, table: table}
	if err := src.plan(scan); err != nil {
		end()
		return nil, fmt.Errorf("scan %s: %w", table, err)
	}
	return store.NewScanner(outer, sel, src), nil
}

// Attributes of a TScan (HBase Scan.RAW_ATTR).
const rawAttribute = "_raw_"

// plan says how HBase is asked. All scanners of a scan differ only in their rows. Of
// a COUNTER or DISTINCT family it is asked for whole rows, whose cells are added up here before
// anything judges them: their qualifiers, times and values are not what a reader sees.
func (src *source) plan(scan *store.Scan) error {
	src.request = *hbase.NewTScan()
	t := &src.request
	counted := slices.ContainsFunc(src.sel.Families(), func(sf store.SelectedFamily) bool { return sf.Family.NewVersionBehavior })
	filter := push(scan.Filter, counted)
	if scan.Reversed && slices.ContainsFunc(src.sel.Families(), func(sf store.SelectedFamily) bool { return onDemand(scan.Filter, sf.Family.Name) }) {
		filter = pushed{}
	}
	if _, row := scan.Filter.(*store.SingleColumnValueFilter); row && scan.LimitPerFamily > 0 {
		filter = pushed{} // it sees nothing behind the limit, which HBase does not know
	}
	for _, sf := range src.sel.Families() {
		src.counters = src.counters || sf.Family.InPlace()
		src.judged = src.judged || sf.Family.InPlace() && (sf.Qualifiers != nil || sf.Time != nil)
	}
	if src.counters {
		if scan.Raw {
			return fmt.Errorf("%w: a raw scan of a COUNTER or DISTINCT family on HBase, where several cells are one column", store.ErrUnsupported)
		}
		filter = pushRows(scan.Filter, counterColumns(src.sel.Families()))
	}
	if scan.Raw {
		filter = pushed{whole: scan.Filter == nil}
		t.Attributes = map[string][]byte{rawAttribute: {0xff}}
	}
	if filter.text != "" {
		t.FilterString = []byte(filter.text)
	}
	if scan.Reversed {
		reversed := true
		t.Reversed = &reversed
	}
	if r := scan.Time; r != nil {
		t.TimeRange = timeRange(r)
	}
	src.columns(scan, filter.whole)
	for _, sf := range src.sel.Families() {
		src.trim = src.trim || sf.Versions < int(t.MaxVersions) && sf.Versions < sf.Family.Versions
	}
	src.nothing = len(t.Columns) == 0 // the filter passes no column that is named; HBase would read all
	if limit, cells := src.sel.Pieces(); limit > 0 && !src.counters {
		src.step = min(cells, math.MaxInt32)
		n := int32(max(firstPieceCells/src.step, 1) * src.step)
		t.BatchSize = &n
	}
	// A row may have no cell behind the offset, and counts for nothing then.
	if scan.Filter == nil && t.BatchSize == nil && scan.OffsetPerFamily == 0 && !src.judged {
		src.limit = scan.Limit
		if scan.PageRows > 0 && (src.limit == 0 || scan.PageRows < src.limit) {
			src.limit = scan.PageRows
		}
	}
	src.points = src.pointRows(scan)
	if t.BatchSize == nil && !scan.Raw {
		src.shape = shape(src.table, t)
	}
	return nil
}

// columns asks for the columns of the scan, in as many versions as any of them wants; whole is
// pushed.whole.
func (src *source) columns(scan *store.Scan, whole bool) {
	t := &src.request
	t.MaxVersions = 1
	ranged := func(family string, r *hbase.TTimeRange) {
		if t.ColFamTimeRangeMap == nil {
			t.ColFamTimeRangeMap = map[string]*hbase.TTimeRange{}
		}
		t.ColFamTimeRangeMap[family] = r
	}
	for _, sf := range src.sel.Families() {
		if r, ok := scan.FamilyTime[sf.Family.Name]; ok {
			ranged(sf.Family.Name, timeRange(&r))
		}
		if sf.Family.InPlace() {
			t.Columns = append(t.Columns, &hbase.TColumn{Family: []byte(sf.Family.Name)})
			if sf.Time != nil { // the cells' timestamps are offsets
				ranged(sf.Family.Name, &hbase.TTimeRange{MinStamp: 0, MaxStamp: math.MaxInt64})
			}
			continue
		}
		versions := sf.Versions
		if whole {
			versions = sf.Requested
		}
		t.MaxVersions = max(t.MaxVersions, int32(min(versions, math.MaxInt32)))
		if sf.Qualifiers == nil {
			t.Columns = append(t.Columns, &hbase.TColumn{Family: []byte(sf.Family.Name)})
		}
		for _, q := range sf.Qualifiers {
			t.Columns = append(t.Columns, &hbase.TColumn{Family: []byte(sf.Family.Name), Qualifier: q})
		}
	}
}

// About how many cells of a row are fetched at once where the scan lets rows be cut.
const (
	// firstPieceCells is how many at first: a cell may have 10 MiB by HBase's default.
	firstPieceCells = 8
	// pieceGrowth is how many times as many where they are small.
	pieceGrowth = 8
	// pieceCells is how many at most: 100 KB where they are small.
	pieceCells = 1000
)

func timeRange(r *cell.TimeRange) *hbase.TTimeRange {
	return &hbase.TTimeRange{MinStamp: int64(r.Min), MaxStamp: int64(r.Max)}
}

// source reads a scan's rows from HBase (store.RowSource).
type source struct {
	s       *Store
	ctx     context.Context // of the scan, whose calls have none of their own
	end     func()
	sel     *store.Selection
	table   string
	request hbase.TScan // without rows
	limit   int         // rows that are wanted at most; 0 = not known
	trim    bool        // HBase may send more versions than are wanted
	nothing bool        // no cell is wanted
	points  [][]byte    // the only rows that are wanted, ascending; nil = it is no list of rows
	step    int         // pieces of rows have a multiple of so many
	shape   string      // of its rows, for Store.widths; "" = none

	counters bool // a family is a COUNTER or a DISTINCT one
	judged   bool // of it not all columns are wanted
	adder    adder

	begun bool
	pages chan []fetched          // each of one call; nil = there is no fetcher. Closed at the end
	err   error                   // why it is the end; read after pages was closed
	stop  context.CancelCauseFunc // ends the fetcher; nil = there is none

	results []fetched // that were fetched and not returned
	row     cell.Row
	more    bool // another part of the row may follow
	skipped bool // the row is not wanted
	seek    []byte

	family   int // index in Families of the column that was looked at last
	column   []byte
	versions int // of it
}

// NextRow implements store.RowSource.
func (src *source) NextRow(skip func([]byte) bool) (*cell.Row, error) {
	if !src.begun {
		src.begun = true
		if get := src.get(); get != nil {
			src.runGet(get)
		} else {
			ctx, stop := context.WithCancelCause(src.ctx)
			src.pages, src.stop = make(chan []fetched, 1), stop
			f := &fetcher{source: src, page: 1, alone: true}
			if n, ok := src.s.widths.rows(src.shape, src.s.o.PageBytes); ok {
				f.page, f.alone = n, false
			}
			go f.run(ctx) // until the scan ends or is closed
		}
	}
	for {
		if src.s.closing() {
			return nil, fmt.Errorf("scan %s: %w", src.table, store.ErrClosed)
		}
		for len(src.results) == 0 {
			if src.pages == nil {
				return nil, src.err
			}
			var ok bool
			if src.results, ok = <-src.pages; !ok {
				return nil, src.err
			}
		}
		r := src.results[0]
		src.results[0] = fetched{}
		src.results = src.results[1:]
		if !src.more || !bytes.Equal(src.row.Key, r.key) {
			src.row.Key = r.key
			src.family, src.column, src.versions = -1, nil, 0
			if src.skipped = src.before(r.key) || skip != nil && skip(r.key); src.skipped && src.sel.Stopped() {
				return nil, nil
			}
			if src.skipped && !src.before(r.key) {
				src.seek = bytes.Clone(src.sel.SeekRow(r.key))
			}
		}
		src.more = r.partial
		if src.skipped {
			continue
		}
		src.row.More = src.more
		var err error
		if src.row.Cells, err = src.cells(r.cells); err != nil {
			return nil, fmt.Errorf("scan %s, row %.100q: %w", src.table, r.key, err)
		}
		if len(src.row.Cells) > 0 {
			return &src.row, nil
		}
	}
}

// before reports whether the filter has said that it passes no row up to row.
func (src *source) before(row []byte) bool {
	if src.seek == nil {
		return false
	}
	if src.sel.Reversed() {
		return bytes.Compare(row, src.seek) >= 0
	}
	return bytes.Compare(row, src.seek) < 0
}

// cells returns what the scan wants of a result, in its place: no more than were looked
// at, as a counter has one cell at least.
func (src *source) cells(all []cell.Cell) ([]cell.Cell, error) {
	families := src.sel.Families()
	dst := all[:0]
	for _, c := range all {
		if src.counters && (src.family < 0 || families[src.family].Family.Name != c.Family) {
			dst = src.counted(dst)
		}
		if src.family < 0 || families[src.family].Family.Name != c.Family {
			src.family = slices.IndexFunc(families, func(sf store.SelectedFamily) bool { return sf.Family.Name == c.Family })
			if src.column, src.versions = nil, 0; src.family < 0 {
				continue // it was added a moment ago
			}
		}
		sf := &families[src.family]
		if sf.Family.InPlace() {
			before, ok, err := src.adder.add(sf.Family.Name, sf.Family.Distinct, &c)
			if err != nil {
				return dst, err
			}
			if ok {
				dst = src.keep(dst, sf, before)
			}
			continue
		}
		if !sf.Wants(c.Qualifier) {
			continue
		}
		if src.trim {
			if src.column == nil || !bytes.Equal(src.column, c.Qualifier) {
				src.column, src.versions = c.Qualifier, 0
			}
			if src.versions++; src.versions > sf.Versions {
				continue
			}
		}
		if !src.sel.Raw() {
			c.Kind = cell.KindPut
		}
		if c.Kind != cell.KindPut {
			c.Value = nil
		}
		dst = append(dst, c)
	}
	if src.counters {
		dst = src.counted(dst)
	}
	return dst, nil
}

// counted appends the last column of a COUNTER or DISTINCT family, where there is one.
func (src *source) counted(dst []cell.Cell) []cell.Cell {
	if c, ok := src.adder.end(); ok {
		return src.keep(dst, &src.sel.Families()[src.family], c)
	}
	return dst
}

// keep appends the sum of a column where the scan wants it.
func (src *source) keep(dst []cell.Cell, sf *store.SelectedFamily, c cell.Cell) []cell.Cell {
	if !sf.Wants(c.Qualifier) || sf.Time != nil && (c.Time < sf.Time.Min || c.Time >= sf.Time.Max) {
		return dst
	}
	return append(dst, c)
}

// Close implements store.RowSource.
func (src *source) Close() error {
	if !src.begun {
		src.end()
	}
	if src.pages == nil {
		return nil
	}
	src.stop(ownCause{errStopped})
	for range src.pages { // until the fetcher has ended
	}
	return nil
}

// ranges returns the parts of the scan, one a region, in the order of the scan.
func (src *source) ranges(ctx context.Context) ([]cell.Range, error) {
	rows := src.sel.Rows()
	if rows.OneRow() {
		return []cell.Range{rows}, nil // needs no map
	}
	m, _, err := src.s.regions.get(ctx, src.table)
	if err != nil {
		return nil, err
	}
	var parts []cell.Range
	for _, o := range m.Overlapping(rows) {
		parts = append(parts, o.Range)
	}
	if src.sel.Reversed() {
		slices.Reverse(parts)
	}
	return parts, nil
}
