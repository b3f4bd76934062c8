//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore"
	"sluice/store/memstore"
)

// nativeWay is HBase alone; another way is through store/hbasestore.
const nativeWay = "HBase by itself"

// TestHBaseFilters: random scans with random filters return from HBase, through
// store/hbasestore, what they return from a store in memory, and so does HBase where it
// evaluates the filter by itself, but for the differences that docs/filters.md names. A
// seed is a table with its scans; a scan that differs is printed with as little to it as
// still differs. The generators are not those of store/storetest, whose values no comparator
// of numbers takes and whose scans rapid shrinks with their tables, which HBase takes a second
// each to make.
func TestHBaseFilters(t *testing.T) {
	h, native := filterHBase(t)
	const scans = 250 // of a table, which takes HBase as long to make
	seeds := 4
	if soaking {
		seeds = 36
	}
	compared, left := 0, map[string]int{}
	for seed := 1; seed <= seeds && !t.Failed(); seed++ {
		r := filterCases{Rand: rand.New(rand.NewPCG(uint64(seed), 0))}
		r.values = valueKind(r.IntN(len(filterValues)))
		ft := r.filled(t, h, native, fmt.Sprintf("filters%d", seed))
		for range scans {
			s := r.scan(ft.TableDescriptor)
			ft.compare(t, "store/hbasestore", seed, s)
			if why := ft.quirk(s); why != "" {
				left[why]++
				continue
			}
			compared++
			ft.compare(t, nativeWay, seed, s)
		}
		if seed%20 == 0 {
			emptyHBase(t, h)
		}
	}
	t.Logf("of %d scans HBase evaluated %d by itself", seeds*scans, compared)
	for why, n := range left {
		t.Logf("and not %d: %s", n, why)
	}
}

// filterHBase returns an HBase without tables in both ways.
func filterHBase(t *testing.T) (*hbasestore.Store, *nativeHBase) {
	t.Helper()
	address := hbaseAddress(t)
	h, native := openHBase(t, address, nil), &nativeHBase{address: address}
	t.Cleanup(func() {
		if err := errors.Join(native.close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	emptyHBase(t, h)
	return h, native
}

// filterTable is a table with the same cells in memory and in HBase.
type filterTable struct {
	memory *memstore.Store
	hbase  *hbasestore.Store
	native *nativeHBase
	*store.TableDescriptor
	splits  [][]byte
	written []*cell.Mutation
	markers bool // of families
	unnamed bool // it has columns without a qualifier
}

// filled draws a table and makes it in memory and in HBase.
func (r filterCases) filled(t *testing.T, h *hbasestore.Store, native *nativeHBase, name string) *filterTable {
	t.Helper()
	ft := &filterTable{native: native, TableDescriptor: r.table(name)}
	ft.written = r.mutations(ft.TableDescriptor)
	if r.oneIn(3) {
		ft.splits = [][]byte{[]byte("b")}
	}
	ft.make(t, h)
	return ft
}

// make makes the table in memory and in HBase.
func (ft *filterTable) make(t *testing.T, h *hbasestore.Store) {
	t.Helper()
	memory, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	})
	ft.memory, ft.hbase = memory, h
	for _, e := range []store.Engine{memory, h} {
		if err := e.(store.Admin).CreateTable(t.Context(), ft.TableDescriptor.Clone(), ft.splits); err != nil {
			t.Fatal(err)
		}
		for _, m := range ft.written {
			if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, m := range ft.written {
		for _, o := range m.Ops {
			ft.unnamed = ft.unnamed || len(o.Qualifier) == 0 && o.Type == cell.OpPut
			ft.markers = ft.markers || o.Type == cell.OpDeleteFamily || o.Type == cell.OpDeleteFamilyVersion
		}
	}
}

// compare reports a scan of which HBase's results, got in the way that is named, are not
// those of memory.
func (ft *filterTable) compare(t *testing.T, way string, seed int, s *store.Scan) {
	t.Helper()
	differs := func(s *store.Scan) bool {
		return (way != nativeWay || ft.quirk(s) == "") && ft.diff(t.Context(), way, s) != ""
	}
	if !differs(s) {
		return
	}
	for {
		smaller := smallerScans(s)
		i := slices.IndexFunc(smaller, differs)
		if i < 0 {
			break
		}
		s = smaller[i]
	}
	var about []string
	for i := range ft.Families {
		f := &ft.Families[i]
		about = append(about, fmt.Sprintf("family %s: versions %d, new version behavior %v, keep deleted %v", f.Name, f.Versions, f.NewVersionBehavior, f.KeepDeleted))
	}
	for _, m := range ft.written {
		line := fmt.Sprintf("%q", m.Row)
		for _, o := range m.Ops {
			line += fmt.Sprintf(" %s %s:%q@%d=%q", o.Type, o.Family, o.Qualifier, o.Time, o.Value)
		}
		about = append(about, line)
	}
	t.Errorf("seed %d, %s: %s (-memory +HBase)\n%s\nof a table that is split at %q:\n%s",
		seed, way, printFilterScan(s), ft.diff(t.Context(), way, s), ft.splits, strings.Join(about, "\n"))
}

// diff returns the rows that memory and HBase have not in common.
func (ft *filterTable) diff(ctx context.Context, way string, s *store.Scan) string {
	want := scanLines(ctx, ft.memory, s)
	var got []string
	if way == nativeWay {
		got = resultLines(ft.native.scan(ctx, s))
	} else {
		got = scanLines(ctx, ft.hbase, s)
	}
	if slices.Equal(want, got) {
		return ""
	}
	var lines []string
	for _, l := range want {
		if !slices.Contains(got, l) {
			lines = append(lines, "- "+l)
		}
	}
	for _, l := range got {
		if !slices.Contains(want, l) {
			lines = append(lines, "+ "+l)
		}
	}
	return strings.Join(append(lines, "."), "\n") // what is in another order has no lines
}

func resultLines(rows []cell.Row, err error) []string {
	var lines []string
	for i := range rows {
		line := fmt.Sprintf("%q", rows[i].Key)
		for _, c := range rows[i].Cells {
			line += fmt.Sprintf(" %s:%q@%d=%q", c.Family, c.Qualifier, c.Time, c.Value)
		}
		lines = append(lines, line)
	}
	if err != nil {
		lines = append(lines, "error: "+err.Error())
	}
	return lines
}

// scanned returns the rows of a scan.
func scanned(ctx context.Context, r store.Reader, s *store.Scan) (rows []cell.Row, err error) {
	sc := r.Scan(ctx, s)
	for sc.Next() {
		row := cell.Row{Key: bytes.Clone(sc.Row().Key), Cells: slices.Clone(sc.Row().Cells)}
		for i := range row.Cells {
			c := &row.Cells[i]
			c.Qualifier, c.Value = bytes.Clone(c.Qualifier), bytes.Clone(c.Value)
		}
		rows = append(rows, row)
	}
	if err := errors.Join(sc.Err(), sc.Close()); errors.Is(err, store.ErrIncompatibleFilter) {
		return nil, store.ErrIncompatibleFilter
	} else if err != nil {
		return rows, err
	}
	return rows, nil
}

func scanLines(ctx context.Context, r store.Reader, s *store.Scan) []string {
	return resultLines(scanned(ctx, r, s))
}

func printFilterScan(s *store.Scan) string {
	c := *s
	c.Filter = nil
	b, _ := store.MarshalFilter(s.Filter)
	var parts []string
	part := func(is bool, format string, args ...any) {
		if is {
			parts = append(parts, fmt.Sprintf(format, args...))
		}
	}
	part(true, "%s", b)
	part(s.Reversed, "reversed")
	part(s.Versions > 1, "versions %d", s.Versions)
	part(len(s.Start) > 0, "start %q excl %v", s.Start, s.StartExclusive)
	part(len(s.Stop) > 0, "stop %q incl %v", s.Stop, s.StopInclusive)
	part(s.Time != nil, "time %v", s.Time)
	part(s.FamilyTime != nil, "family times %v", s.FamilyTime)
	part(s.Columns != nil, "columns %+v", s.Columns)
	part(s.Limit > 0, "limit %d", s.Limit)
	part(s.LimitPerFamily > 0, "limit per family %d", s.LimitPerFamily)
	part(s.OffsetPerFamily > 0, "offset per family %d", s.OffsetPerFamily)
	part(s.Batch > 0, "batch %d", s.Batch)
	return strings.Join(parts, ", ")
}

// anyFilter reports whether is holds for f or a filter in it.
func anyFilter(f store.Filter, is func(store.Filter) bool) bool {
	if is(f) {
		return true
	}
	within := func(m store.Filter) bool { return anyFilter(m, is) }
	switch f := f.(type) {
	case *store.SkipFilter:
		return within(f.Filter)
	case *store.WhileMatchFilter:
		return within(f.Filter)
	case *store.FilterList:
		return slices.ContainsFunc(f.Filters, within)
	}
	return false
}

func is[F store.Filter](f store.Filter) bool {
	_, ok := f.(F)
	return ok
}

// ofRows reports whether f judges row keys.
func ofRows(f store.Filter) bool {
	return is[*store.RowFilter](f) || is[*store.PrefixFilter](f) || ofNoRow(f)
}

// ofNoRow reports whether f judges row keys, and HBase's does not say so at the end of a row.
func ofNoRow(f store.Filter) bool {
	return is[*store.InclusiveStopFilter](f) || is[*store.FuzzyRowFilter](f) || is[*store.MultiRowRangeFilter](f)
}

// ofColumns reports whether HBase's f says which column to go on at.
func ofColumns(f store.Filter) bool {
	return is[*store.ColumnPrefixFilter](f) || is[*store.MultipleColumnPrefixFilter](f) || is[*store.ColumnRangeFilter](f) ||
		is[*store.ColumnPaginationFilter](f)
}

// ofWholeRows reports whether f drops rows at their end.
func ofWholeRows(f store.Filter) bool {
	return is[*store.PageFilter](f) || is[*store.SingleColumnValueFilter](f) || is[*store.SingleColumnValueExcludeFilter](f) ||
		is[*store.DependentColumnFilter](f) || is[*store.SkipFilter](f) || is[*store.WhileMatchFilter](f)
}

// ofOtherCells reports whether what f says of a cell depends on those before it.
func ofOtherCells(f store.Filter) bool {
	return is[*store.FirstKeyOnlyFilter](f) || is[*store.FirstKeyValueMatchingQualifiersFilter](f) || is[*store.ColumnPaginationFilter](f) ||
		ofWholeRows(f) && !is[*store.PageFilter](f)
}

// quirk returns why the scan is not compared with what HBase (2.6.1) makes of it by
// itself; "" = it is.
func (ft *filterTable) quirk(s *store.Scan) string {
	has := func(is func(store.Filter) bool) bool { return anyFilter(s.Filter, is) }
	within := func(is func(store.Filter) bool) func(store.Filter) bool { // SKIP or WHILE
		return func(f store.Filter) bool {
			switch f := f.(type) {
			case *store.SkipFilter:
				return anyFilter(f.Filter, is)
			case *store.WhileMatchFilter:
				return anyFilter(f.Filter, is)
			}
			return false
		}
	}
	listed := func(one bool, is func(store.Filter) bool) func(store.Filter) bool { // in an OR, or an AND
		return func(f store.Filter) bool {
			list, ok := f.(*store.FilterList)
			return ok && list.MustPassOne == one && slices.ContainsFunc(list.Filters, func(m store.Filter) bool { return anyFilter(m, is) })
		}
	}
	anyOne := func(store.Filter) bool { return true }
	onDemand := slices.ContainsFunc(ft.Families, func(f store.FamilyDescriptor) bool { return !essential(s.Filter, f.Name) })
	for _, q := range []struct {
		is  bool
		why string
	}{
		// What a scan through the gateway has not.
		{s.Reversed && (s.StartExclusive || s.StopInclusive), "a descending scan has no such bounds"},
		{len(s.Start) > 0 && bytes.Equal(s.Start, s.Stop) && !s.StopInclusive, "a scan that ends where it begins returns the row"},
		{s.LimitPerFamily+s.OffsetPerFamily > 0, "it has no limits a family"},
		{slices.Equal(scanLines(context.Background(), ft.memory, s), []string{"error: " + store.ErrIncompatibleFilter.Error()}), "it tries again for a minute what is refused"},
		{s.Reversed && onDemand, "HBase refuses it"},
		// Differences of docs/filters.md.
		{len(ft.splits) > 0, "filters begin anew in every region"},
		{ft.markers && has(ofColumns), "they go past the markers of the family"},
		{ft.unnamed && has(is[*store.ColumnPaginationFilter]), "it counts each version of the column without a qualifier"},
		{has(is[*store.ColumnCountGetFilter]), "it ends families, not the scan"},
		{has(func(f store.Filter) bool {
			m, ok := f.(*store.MultipleColumnPrefixFilter)
			return ok && nestedPrefixes(m.Prefixes)
		}), "a prefix begins with another"},
		{has(func(f store.Filter) bool {
			m, ok := f.(*store.FuzzyRowFilter)
			return ok && (s.Reversed || slices.ContainsFunc(m.Pairs, func(p store.FuzzyPair) bool { return len(p.Key) > 1 }))
		}), "it seeks over shorter rows, and loses rows in a descending scan"},
		{has(func(f store.Filter) bool {
			m, ok := f.(*store.MultiRowRangeFilter)
			return ok && (len(m.Ranges) > 1 && bytes.Equal(m.Ranges[0].Start, m.Ranges[1].Start) ||
				slices.ContainsFunc(m.Ranges, func(r store.RowRange) bool { return r.StartExclusive && bytes.Equal(r.Start, r.Stop) }))
		}), "ranges with one start, or of no row"},
		{has(listed(true, func(f store.Filter) bool { return ofNoRow(f) || is[*store.WhileMatchFilter](f) })) && has(listed(true, ofWholeRows)), "rows that nothing passes are kept"},
		{len(ft.Families) > 1 && has(func(f store.Filter) bool {
			m, ok := f.(*store.SingleColumnValueExcludeFilter)
			return ok && m.FilterIfMissing
		}), "other families of a row that has but the column come back"},
		{onDemand && has(within(anyOne)), "they see the cells of the filter's families alone"},
		{has(func(f store.Filter) bool {
			m, ok := f.(*store.SkipFilter)
			return ok && anyFilter(m.Filter, ofRows)
		}), "it does not work with filters of row keys"},
		{has(listed(false, within(ofNoRow))), "a row that another filter drops by its key does not end a WHILE"},
		{s.Reversed && has(within(ofRows)), "the filter within is not told that rows descend"},
		{s.Reversed && has(listed(true, ofColumns)), "columns are lost"},
		{has(listed(false, ofColumns)) && has(listed(false, ofOtherCells)), "others do not see what filters of columns seek over"},
	} {
		if q.is {
			return q.why
		}
	}
	return ""
}

// nestedPrefixes reports whether one of prefixes begins with another.
func nestedPrefixes(prefixes [][]byte) bool {
	for i, p := range prefixes {
		for j, o := range prefixes {
			if i != j && bytes.HasPrefix(p, o) {
				return true
			}
		}
	}
	return false
}

// essential reports whether HBase reads the family of every row, not only of those that f
// has passed by other families (HBase Filter.isFamilyEssential).
func essential(f store.Filter, family string) bool {
	switch f := f.(type) {
	case *store.SingleColumnValueFilter:
		return !f.FilterIfMissing || f.Family == family
	case *store.SingleColumnValueExcludeFilter:
		return !f.FilterIfMissing || f.Family == family
	case *store.ColumnValueFilter:
		return f.Family == family
	case *store.SkipFilter:
		return essential(f.Filter, family)
	case *store.WhileMatchFilter:
		return essential(f.Filter, family)
	case *store.FilterList:
		return slices.ContainsFunc(f.Filters, func(m store.Filter) bool { return essential(m, family) })
	}
	return true
}

// TestHBaseFilterDifferences: HBase 2.6.1 by itself returns what docs/filters.md says that
// it does, where that is another thing than memory returns, of rows each of whose values
// is its qualifier.
func TestHBaseFilterDifferences(t *testing.T) {
	h, native := filterHBase(t)
	f := store.NewFamily("f")
	f.Versions = 2
	ft := &filterTable{native: native, TableDescriptor: &store.TableDescriptor{Name: "differences", Families: []store.FamilyDescriptor{f, store.NewFamily("g")}}}
	for _, row := range []string{"a f:@2 f:@1 f:b@1 f:c@1", "b f:b@1 f:d@1 g:b@1", "c f:b@1 f:c@1 f:d@1 g:b@1", "d g:b@1 g:d@1"} {
		columns := strings.Fields(row)
		m := &cell.Mutation{Table: ft.Name, Row: []byte(columns[0])}
		for _, c := range columns[1:] {
			qualifier, at := c[2:len(c)-2], cell.Timestamp(c[len(c)-1]-'0')
			m.Put(c[:1], []byte(qualifier), at, []byte(qualifier))
		}
		ft.written = append(ft.written, m)
	}
	ft.make(t, h)
	b := func(s string) []byte { return []byte(s) }
	single := &store.SingleColumnValueFilter{Family: "f", Qualifier: b("d"), Op: store.Equal, Comparator: store.Binary(b("x"))}
	for _, test := range []struct {
		what       string
		scan       store.Scan
		want, have string // of memory, and of HBase
	}{
		{"OR of ranges", store.Scan{Filter: &store.FilterList{MustPassOne: true, Filters: []store.Filter{&store.MultiRowRangeFilter{Ranges: []store.RowRange{{Stop: b("a"), StopInclusive: true}}}, single}}}, "a f:@2 f:b@1 f:c@1 d g:b@1 g:d@1", "a f:@2 f:b@1 f:c@1 b f:b@1 c f:b@1 f:c@1 d g:b@1 g:d@1"},
		{"SKIP on demand", store.Scan{Filter: &store.SkipFilter{Filter: &store.ColumnValueFilter{Family: "g", Qualifier: b("b"), Op: store.Equal, Comparator: store.Binary(b("b"))}}}, "", "b g:b@1 c g:b@1"},
		{"count", store.Scan{Filter: &store.ColumnCountGetFilter{Limit: 2}}, "a f:@2 f:b@1", "a f:@2 b g:b@1 c g:b@1 d g:b@1 g:d@1"},
		{"pages of columns", store.Scan{Filter: &store.ColumnPaginationFilter{Limit: 1, Offset: 1}, Columns: []store.Column{{Family: "f", All: true}}}, "a f:b@1 b f:d@1 c f:c@1", "a f:@1 b f:d@1 c f:c@1"},
		{"AND", store.Scan{Filter: &store.FilterList{Filters: []store.Filter{&store.FirstKeyValueMatchingQualifiersFilter{Qualifiers: [][]byte{b("c")}}, &store.MultipleColumnPrefixFilter{Prefixes: [][]byte{b("a"), b("d")}}}}}, "b f:d@1 d g:d@1", "b f:d@1 c f:d@1 d g:d@1"},
		{"descending WHILE", store.Scan{Reversed: true, Filter: &store.WhileMatchFilter{Filter: &store.InclusiveStopFilter{Row: b("c")}}}, "d g:b@1 g:d@1 c f:b@1 f:c@1 f:d@1 g:b@1", ""},
		{"no row", store.Scan{Reversed: true, Start: b("c"), Filter: &store.MultiRowRangeFilter{Ranges: []store.RowRange{{Start: b("c"), StartExclusive: true, Stop: b("c"), StopInclusive: true}}}}, "", "c f:b@1 f:c@1 f:d@1 g:b@1"},
	} {
		test.scan.Table = ft.Name
		columns := func(rows []cell.Row, err error) string {
			var line []string
			for _, row := range rows {
				line = append(line, string(row.Key))
				for _, c := range row.Cells {
					line = append(line, fmt.Sprintf("%s:%s@%d", c.Family, c.Qualifier, c.Time))
				}
			}
			if err != nil {
				line = append(line, err.Error())
			}
			return strings.Join(line, " ")
		}
		for _, side := range []struct{ of, got, want string }{
			{"memory", columns(scanned(t.Context(), ft.memory, &test.scan)), test.want},
			{"HBase", columns(native.scan(t.Context(), &test.scan)), test.have},
		} {
			if side.got != side.want {
				t.Errorf("%s, %s:\nGot  %q\nwant %q", test.what, side.of, side.got, side.want)
			}
		}
	}
}
