package hbasestore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// fill writes n rows r000, r001, … of table t, each with wide columns of 10 bytes.
func fill(t *testing.T, m *memstore.Store, n, wide int) {
	t.Helper()
	for i := range n {
		mutation := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%03d", i)}
		for q := range wide {
			mutation.Put("f", fmt.Appendf(nil, "q%04d", q), 1, []byte("0123456789"))
		}
		if _, err := m.MutateRow(t.Context(), nil, mutation); err != nil {
			t.Fatal(err)
		}
	}
}

// collect returns the cells of a scan as lines; parts of a row are one.
func collect(sc store.Scanner) (lines []string, err error) {
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			lines = append(lines, fmt.Sprintf("%q %s:%q@%d %s=%q", sc.Row().Key, c.Family, c.Qualifier, c.Time, c.Kind, c.Value))
		}
	}
	return lines, errors.Join(sc.Err(), sc.Close())
}

// A scanner that expires, whose gateway ends the connection, or whose region moves
// goes on behind the last row: none twice, none left out, none torn.
func TestScanResumes(t *testing.T) {
	t.Parallel()
	for name, scan := range map[string]store.Scan{
		"whole rows":     {Table: "t"},
		"reversed":       {Table: "t", Reversed: true},
		"range":          {Table: "t", Start: []byte("r010"), Stop: []byte("r150"), StopInclusive: true},
		"reversed range": {Table: "t", Start: []byte("r150"), Stop: []byte("r010"), Reversed: true, StartExclusive: true},
		"parts":          {Table: "t", MaxResultBytes: 100},
		"parts reversed": {Table: "t", MaxResultBytes: 100, Reversed: true},
		"batch":          {Table: "t", Batch: 3},
		"limit":          {Table: "t", Limit: 120},
		"filter":         {Table: "t", Filter: &store.QualifierFilter{Op: store.Equal, Comparator: store.Binary([]byte("q0002"))}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mem := newMem(t, "r050", "r100")
			fill(t, mem, 200, 5)
			want, err := collect(mem.Scan(t.Context(), &scan))
			if err != nil {
				t.Fatal(err)
			}
			g := newGateway(t, mem, false)
			s := dial(t, func(o *Options) { o.PageBytes = 1 << 10 }, g)
			i := 0
			g.inject(func(method string) fault {
				if method != "getScannerRows" && method != "openScanner" && method != "getScannerResults" {
					return fault{}
				}
				switch i++; i % 11 {
				case 1, 8:
					return fault{text: "org.apache.hadoop.hbase.NotServingRegionException: moved", canRetry: true}
				case 2:
					return fault{dropAfter: true} // the scanner has moved on
				case 5:
					return fault{text: "org.apache.hadoop.hbase.UnknownScannerException: gone"}
				}
				return fault{}
			})
			got, err := collect(s.Scan(t.Context(), &scan))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// The gateway forgets scanners that were not used for a minute.
func TestScannerExpires(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	fill(t, mem, 300, 2)
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.PageBytes = 1 << 10 }, g)
	sc := s.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	var got []string
	for sc.Next() {
		if got = append(got, string(sc.Row().Key)); len(got)%50 == 0 {
			g.expire()
		}
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	if len(got) != 300 || !slices.IsSorted(got) || len(slices.Compact(got)) != 300 {
		t.Errorf("Got %d rows", len(got))
	}
}

// scansAs compares a scan of s with that of mem, which has so many rows.
func scansAs(t *testing.T, s *Store, mem *memstore.Store, scan *store.Scan, rows int) {
	t.Helper()
	want, err := collect(mem.Scan(t.Context(), scan))
	if err != nil || len(want) != rows {
		t.Fatal(len(want), err)
	}
	got, err := collect(s.Scan(t.Context(), scan))
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A gateway that looks through a region for the rows that a filter passes answers late,
// and the scan ends all the same.
func TestSparseScan(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		fill(t, mem, 3, 1)
		g := newPipeGateway(t, "a", mem)
		const timeout = 200 * time.Millisecond
		// One call that is late leaves no time for another, also of a clock that moves by timers alone.
		s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout = timeout, timeout-1 }, g)
		g.inject(func(method string) fault {
			if method != "getScannerRows" && method != "getScannerResults" {
				return fault{}
			}
			found := make(chan struct{})
			time.AfterFunc(3*timeout, func() { close(found) })
			return fault{until: found}
		})
		scan := store.Scan{Table: "t", Filter: &store.QualifierFilter{Op: store.Equal, Comparator: store.Binary([]byte("q0000"))}}
		scansAs(t, s, mem, &scan, 3)
	})
}

// A scan whose gateway finds no row in time asks another one, and takes the first from
// nobody else.
func TestLateScanAsksAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		fill(t, mem, 3, 1)
		a, b := newPipeGateway(t, "a", mem), newPipeGateway(t, "b", mem)
		const timeout = 200 * time.Millisecond
		s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout = timeout, timeout-1 }, a, b)
		hang := make(chan struct{})
		t.Cleanup(func() { close(hang) })
		var first atomic.Pointer[fakeGateway] // that is asked: it never answers
		for _, g := range []*fakeGateway{a, b} {
			g.inject(func(method string) fault {
				if method != "getScannerRows" && method != "getScannerResults" {
					return fault{}
				}
				if first.CompareAndSwap(nil, g) || first.Load() == g {
					return fault{until: hang}
				}
				return fault{}
			})
		}
		begun := time.Now()
		scansAs(t, s, mem, &store.Scan{Table: "t", Limit: 3}, 3)
		if d := time.Since(begun); d > 8*timeout {
			t.Errorf("It took %v", d)
		}
		for _, g := range s.pool.gateways {
			if !g.until.IsZero() {
				t.Errorf("%s is left", g.address)
			}
		}
	})
}

// A page that takes longer than is waited for is made smaller, also where no scan waits
// longer: one that finds rows is not given up.
func TestSparsePages(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		fill(t, mem, 30, 1)
		g := newPipeGateway(t, "a", mem)
		g.perRow = 60 * time.Millisecond
		const timeout = 200 * time.Millisecond
		s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout, o.patience = timeout, timeout-1, 2*timeout }, g)
		scansAs(t, s, mem, &store.Scan{Table: "t"}, 30)
	})
}

// Who waits longer for a call than for a scanner waits as long for a scanner.
func TestLongCallTimeout(t *testing.T) {
	t.Parallel()
	o := (&Options{CallTimeout: time.Hour}).withDefaults()
	f := &fetcher{source: &source{s: &Store{o: o}}, page: 16}
	err := fmt.Errorf("%w: %w", errLate, os.ErrDeadlineExceeded)
	if !f.late(err) || f.patience != time.Hour || f.page != 1 {
		t.Errorf("Got %v of patience and pages of %d, want an hour and 1", f.patience, f.page)
	}
	if f.late(err) {
		t.Error("a page of one row is waited for again")
	}
}

// A gateway that never answers a scan is given up.
func TestHungScan(t *testing.T) {
	t.Parallel()
	f := &fetcher{source: &source{s: &Store{o: (&Options{}).withDefaults()}}}
	err := fmt.Errorf("%w: %w", errLate, os.ErrDeadlineExceeded)
	waited := time.Minute
	for n := 0; f.late(err); n++ {
		waited += f.patience
		if n > 10 {
			t.Fatal("it is waited for without end")
		}
	}
	if waited != (1+2+4+8+16)*time.Minute || f.page != 1 {
		t.Errorf("Got %v of patience and pages of %d, want 31 minutes and 1", waited, f.page)
	}
	if f.late(os.ErrDeadlineExceeded) {
		t.Error("a call that was no scanner's was waited for longer")
	}
}

// The page after small rows holds few large ones.
func TestPageOfLargeRows(t *testing.T) {
	t.Parallel()
	const pageBytes, large = 64 << 10, 32 << 10
	mem := newMem(t)
	for i := range 3 * maxPageRows {
		m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%06d", i)}
		size := 1
		if i >= 2*maxPageRows && i%2 == 0 {
			size = large
		}
		m.Put("f", []byte("q"), 1, make([]byte, size))
		if _, err := mem.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.PageBytes = pageBytes }, g)
	rows, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t"}))
	if err != nil || len(rows) != 3*maxPageRows {
		t.Fatal(len(rows), err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	grew := false
	for i, n := range g.pages {
		if n > maxPageRows*(large+10) || grew && n > maxLargestPages*pageBytes+large {
			t.Errorf("page %d has %d bytes", i, n)
		}
		grew = grew || n > large
	}
	if !grew || len(g.pages) < 40 {
		t.Errorf("Got pages of %v bytes, want a large one and then small ones", g.pages)
	}
}

// No page of a scan has more than one large row, or a few cells of it, also the first.
func TestFirstPage(t *testing.T) {
	t.Parallel()
	const pageBytes, rows, cells, large = 16 << 10, 20, 12, 8 << 10
	mem := newMem(t)
	var points []store.RowRange
	for i := range rows {
		m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%06d", i)}
		for j := range cells {
			m.Put("f", fmt.Appendf(nil, "q%02d", j), 1, make([]byte, large))
		}
		if _, err := mem.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
		points = append(points, store.RowRange{Start: m.Row, Stop: m.Row, StopInclusive: true})
	}
	for _, test := range []struct {
		name string
		scan store.Scan
		most int
	}{
		{"rows", store.Scan{}, cells * large},
		{"descending", store.Scan{Reversed: true}, cells * large},
		{"limit", store.Scan{Limit: 15}, cells * large},
		{"points", store.Scan{Filter: &store.MultiRowRangeFilter{Ranges: points}}, cells * large},
		{"parts", store.Scan{MaxResultBytes: 1 << 10}, firstPieceCells * large},
	} {
		g := newGateway(t, mem, false)
		s := dial(t, func(o *Options) { o.PageBytes = pageBytes }, g)
		for i := range 2 {
			test.scan.Table = "t"
			if got, err := collect(s.Scan(t.Context(), &test.scan)); err != nil || len(got) < 15 {
				t.Fatal(test.name, len(got), err)
			}
			g.mu.Lock()
			if most := slices.Max(g.pages); most > test.most {
				t.Errorf("%s, scan %d: Got a page of %d bytes, want at most %d", test.name, i, most, test.most)
			}
			g.mu.Unlock()
		}
	}
}

// Rows are cut where the scan says, whatever the pieces are in which they are fetched.
func TestPiecesOfAllSizes(t *testing.T) {
	t.Parallel()
	const pageBytes = 4 << 10
	mem := newMem(t)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range 8 {
		m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%06d", i)}
		size := 1
		for j := range random.IntN(300) {
			if random.IntN(50) == 0 {
				size = []int{1, 10, 100, 3 * pageBytes}[random.IntN(4)]
			}
			m.Put("f", fmt.Appendf(nil, "q%04d", j), 1, make([]byte, size))
		}
		if len(m.Ops) == 0 {
			continue
		}
		if _, err := mem.MutateRow(t.Context(), nil, &m); err != nil {
			t.Fatal(err)
		}
	}
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.PageBytes = pageBytes }, g)
	for _, scan := range []store.Scan{{Batch: 1}, {Batch: 7}, {Batch: 20}, {MaxResultBytes: 2000}} {
		for _, reversed := range []bool{false, true} {
			scan.Table, scan.Reversed = "t", reversed
			parts := func(sc store.Scanner) (lines []string) {
				defer sc.Close()
				for sc.Next() {
					row := sc.Row()
					if scan.Batch > 0 {
						lines = append(lines, fmt.Sprintf("%s, %d from %s, %t", row.Key, len(row.Cells), row.Cells[0].Qualifier, row.More))
						continue
					}
					for _, c := range row.Cells { // which are cut to no more, and may be to less
						lines = append(lines, fmt.Sprintf("%s, %s", row.Key, c.Qualifier))
					}
				}
				if err := sc.Err(); err != nil {
					t.Fatal(err)
				}
				return lines
			}
			want := parts(mem.Scan(t.Context(), &scan))
			before := g.count("openScanner")
			got := parts(s.Scan(t.Context(), &scan))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("Batch %d, %d bytes, reversed %t: %s", scan.Batch, scan.MaxResultBytes, reversed, d)
			}
			if n := g.count("openScanner") - before; n > 8 {
				t.Errorf("Batch %d, %d bytes, reversed %t: Got %d scanners", scan.Batch, scan.MaxResultBytes, reversed, n)
			}
		}
	}
}

// A scan that is left early leaves no scanner behind.
func TestScanCloses(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	fill(t, mem, 300, 2)
	g := newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.PageBytes = 1 << 10 }, g)
	sc := s.Scan(t.Context(), &store.Scan{Table: "t"})
	if !sc.Next() {
		t.Fatal(sc.Err())
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	if n := g.open(); n != 0 {
		t.Errorf("Got %d open scanners", n)
	}
	// One that was never begun has none.
	if err := s.Scan(t.Context(), &store.Scan{Table: "t"}).Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// A get is one call, and a scan of few rows one a region, where another has shown that
// they are small; else it asks for the first row alone.
func TestScanCalls(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "r100")
	fill(t, mem, 200, 2)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	table, err := store.OpenTable(t.Context(), s, "t")
	if err != nil {
		t.Fatal(err)
	}
	before := g.count("getAllRegionLocations")
	if row, err := table.Get(t.Context(), []byte("r007"), nil); err != nil || row == nil {
		t.Fatal(row, err)
	}
	if n := g.count("getScannerResults") + g.count("openScanner") + g.count("getAllRegionLocations") - before; n != 0 || g.count("get") != 1 {
		t.Errorf("Got %d gets and %d other calls for a get, want 1 and 0", g.count("get"), n)
	}
	for i, want := range []int{3, 2} {
		calls := g.count("getScannerResults") + g.count("openScanner")
		if _, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte("r095"), Limit: 10})); err != nil {
			t.Fatal(err)
		}
		if n := g.count("getScannerResults") + g.count("openScanner") - calls; n != want {
			t.Errorf("Got %d calls for scan %d of ten rows in two regions, want %d", n, i, want)
		}
	}
}

// A row that has no cell behind the offset of its families counts for no limit.
func TestScanLimitsBehindOffsets(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "r002")
	fill(t, mem, 4, 1)
	for _, row := range []string{"r001", "r003", "r004"} {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("r"), 1, []byte("behind"))
		if _, err := mem.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	s := dial(t, nil, newGateway(t, mem, false))
	for name, scan := range map[string]store.Scan{
		"limit":    {Table: "t", OffsetPerFamily: 1, Limit: 1},
		"reversed": {Table: "t", OffsetPerFamily: 1, Limit: 2, Reversed: true},
		"page":     {Table: "t", OffsetPerFamily: 1, PageRows: 1},
	} {
		want, err := collect(mem.Scan(t.Context(), &scan))
		if err != nil || len(want) == 0 {
			t.Fatalf("%s: Got %q, %v of the model", name, want, err)
		}
		got, err := collect(s.Scan(t.Context(), &scan))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// A scan of a disabled table says so, instead of waiting for its regions.
func TestScanDisabled(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	if err := mem.DisableTable(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	g.inject(func(method string) fault {
		if strings.Contains(method, "canner") || strings.HasPrefix(method, "put") {
			return fault{text: "Failed 1 action: NotServingRegionException: 1 time, servers with issues: h,1,2", canRetry: true}
		}
		return fault{}
	})
	if _, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t"})); !errors.Is(err, store.ErrTableNotEnabled) {
		t.Errorf("scan: Got %v", err)
	}
	if err := mutate(t, s, put("r", "v")); !errors.Is(err, store.ErrTableNotEnabled) {
		t.Errorf("put: Got %v", err)
	}
}

// What another process has changed is found where it matters.
func TestSchemaOfOthers(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	s := dial(t, nil, newGateway(t, mem, false))
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Fatal(err)
	}
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g")}}
	if err := mem.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	m := &cell.Mutation{Table: "t", Row: []byte("r")}
	m.Put("g", nil, 1, []byte("v"))
	if err := mutate(t, s, m); err != nil {
		t.Error(err)
	}
	known := s.schemas.entries["t"]
	known.value = newMemSchema()
	s.schemas.entries["t"] = known
	if _, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t", Columns: []store.Column{{Family: "g", All: true}}})); err != nil {
		t.Error(err)
	}
}

func newMemSchema() *store.TableDescriptor {
	return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
}

// Filters that are sent to HBase pass what they pass here.
func TestPush(t *testing.T) {
	t.Parallel()
	cells := []store.Filter{
		&store.RowFilter{Op: store.GreaterOrEqual, Comparator: store.Binary([]byte("r002"))},
		&store.QualifierFilter{Op: store.NotEqual, Comparator: store.Binary([]byte("q0001"))},
		&store.ValueFilter{Op: store.Less, Comparator: store.Binary([]byte("5"))},
		&store.ValueFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareRegex, Value: []byte("[0-4]")}},
		&store.PrefixFilter{Prefix: []byte("r00")},
		&store.ColumnPrefixFilter{Prefix: []byte("q000")},
		&store.TimestampsFilter{Timestamps: []cell.Timestamp{1, 3}},
		&store.FirstKeyOnlyFilter{},
		&store.KeyOnlyFilter{},
		&store.PageFilter{PageSize: 2},
		&store.ColumnPaginationFilter{Limit: 1, Offset: 1},
		&store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q0000"), Op: store.Equal, Comparator: store.Binary([]byte("2"))},
		&store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q0000"), Op: store.Equal, Comparator: store.Binary([]byte("2")), AnyVersion: true, FilterIfMissing: true},
		&store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q0000"), Op: store.Equal, Comparator: store.Binary([]byte("2")), FilterIfMissing: true},
	}
	mem, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	f := store.NewFamily("f")
	f.Versions = 3
	for _, name := range []string{"t", "new"} {
		g := f
		g.Name = "g"
		f.NewVersionBehavior = name == "new" // versions are counted before the filter, not behind it
		if err := mem.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{f, g}}, [][]byte{[]byte("r002")}); err != nil {
			t.Fatal(err)
		}
		for i := range 4 {
			for q := range 3 {
				for at := range 3 {
					m := &cell.Mutation{Table: name, Row: fmt.Appendf(nil, "r%03d", i)}
					m.Put("f", fmt.Appendf(nil, "q%04d", q), cell.Timestamp(at+1), fmt.Append(nil, (i+q+at)%8))
					m.Put("g", []byte("q0001"), cell.Timestamp(at+1), fmt.Append(nil, (i+q+at)%8))
					if _, err := mem.MutateRow(t.Context(), nil, m); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
	}
	s := dial(t, nil, newGateway(t, mem, false))
	rapid.Check(t, func(t *rapid.T) {
		filter := rapid.SampledFrom(cells).Draw(t, "filter")
		if n := rapid.IntRange(0, 3).Draw(t, "members"); n > 0 {
			list := &store.FilterList{MustPassOne: rapid.Bool().Draw(t, "any")}
			for range n {
				list.Filters = append(list.Filters, rapid.SampledFrom(cells).Draw(t, "member"))
			}
			filter = list
		}
		scan := &store.Scan{Table: rapid.SampledFrom([]string{"t", "new"}).Draw(t, "table"), Filter: filter, Versions: rapid.IntRange(1, 3).Draw(t, "versions"), Reversed: rapid.Bool().Draw(t, "reversed")}
		want, wantErr := collect(mem.Scan(t.Context(), scan))
		got, err := collect(s.Scan(t.Context(), scan))
		if (err == nil) != (wantErr == nil) {
			t.Fatalf("Got %v, want %v", err, wantErr)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("pushed %+v (-want +got):\n%s", push(filter, scan.Table == "new"), d)
		}
	})
}

// HBase's list of which one must pass does not ask a filter again that has left a row
// in another family.
func TestPushLeaves(t *testing.T) {
	t.Parallel()
	prefix, row := &store.ColumnPrefixFilter{Prefix: []byte("q")}, &store.RowFilter{Op: store.LessOrEqual, Comparator: store.Binary([]byte("a"))}
	value := &store.ValueFilter{Op: store.Equal, Comparator: store.Binary([]byte("v"))}
	list := func(one bool, members ...store.Filter) store.Filter {
		return &store.FilterList{MustPassOne: one, Filters: members}
	}
	for _, test := range []struct {
		name string
		f    store.Filter
		want bool // something is sent
	}{
		{"alone", prefix, true},
		{"all must pass", list(false, prefix, row), true},
		{"one must pass", list(true, prefix, row), false},
		{"one of a list must pass", list(false, list(true, prefix, row)), false},
		{"a list in one that must pass", list(true, list(false, prefix, value), row), false},
		{"one of what judges rows and values", list(true, row, value), true},
		{"prefixes", &store.MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("a"), []byte("b")}}, true},
		{"prefixes of each other, which HBase judges otherwise", &store.MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("q\x00"), nil}}, false},
		{"a family", list(true, &store.FamilyFilter{Op: store.Equal, Comparator: store.Binary([]byte("f"))}, row), false},
	} {
		if got := push(test.f, false); (got.text != "") != test.want {
			t.Errorf("%s: Got %+v", test.name, got)
		}
	}
}

// A filter that judges rows by a column sees nothing of a family behind its limit, which
// HBase is not told of.
func TestPushLimitPerFamily(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	m := &cell.Mutation{Table: "t", Row: []byte("r")}
	for _, q := range []string{"a", "b", "c", "d"} {
		m.Put("f", []byte(q), 1, []byte(q))
	}
	if _, err := mem.MutateRow(t.Context(), nil, m); err != nil {
		t.Fatal(err)
	}
	s := dial(t, nil, newGateway(t, mem, false))
	for _, missing := range []bool{false, true} {
		for limit := range 5 {
			scan := &store.Scan{Table: "t", LimitPerFamily: limit, Filter: &store.SingleColumnValueFilter{
				Family: "f", Qualifier: []byte("d"), Op: store.Equal, Comparator: store.Binary([]byte("x")), FilterIfMissing: missing,
			}}
			want, err := collect(mem.Scan(t.Context(), scan))
			if err != nil {
				t.Fatal(err)
			}
			got, err := collect(s.Scan(t.Context(), scan))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("limit %d, rows without the column dropped: %v (-want +got):\n%s", limit, missing, d)
			}
		}
	}
}

// HBase goes past the markers of a family to the column that a filter hints at.
func TestPushHints(t *testing.T) {
	t.Parallel()
	regex := &store.ValueFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareRegex, Value: []byte("[0-4]")}}
	prefix := &store.ColumnPrefixFilter{Prefix: []byte("b")}
	prefixes := &store.MultipleColumnPrefixFilter{Prefixes: [][]byte{[]byte("b"), []byte("d")}}
	for name, test := range map[string]struct {
		f    store.Filter
		want string
	}{
		"prefix":         {prefix, "QualifierFilter(=, 'binaryprefix:b')"},
		"prefixes":       {prefixes, "QualifierFilter(=, 'binaryprefix:b') OR QualifierFilter(=, 'binaryprefix:d')"},
		"range":          {&store.ColumnRangeFilter{Min: []byte("b"), Max: []byte("d"), MaxInclusive: true}, "QualifierFilter(>, 'binary:b') AND QualifierFilter(<=, 'binary:d')"},
		"open range":     {&store.ColumnRangeFilter{Min: []byte("b"), MinInclusive: true}, "QualifierFilter(>=, 'binary:b')"},
		"list":           {&store.FilterList{Filters: []store.Filter{&store.PrefixFilter{Prefix: []byte("r")}, prefix}}, "PrefixFilter('r') AND QualifierFilter(=, 'binaryprefix:b')"},
		"part of a list": {&store.FilterList{Filters: []store.Filter{regex, prefix}}, "QualifierFilter(=, 'binaryprefix:b')"},
	} {
		if got := push(test.f, false); got.text != test.want {
			t.Errorf("%s: Got %q, want %q", name, got.text, test.want)
		}
	}
}

// Where versions are counted before they are filtered, a filter that drops the newest
// must not drop it before they are counted here.
func TestPushCounts(t *testing.T) {
	t.Parallel()
	regex := &store.ValueFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareRegex, Value: []byte("[0-4]")}}
	value := &store.ValueFilter{Op: store.Less, Comparator: store.Binary([]byte("5"))}
	times := &store.TimestampsFilter{Timestamps: []cell.Timestamp{1}}
	row := &store.RowFilter{Op: store.LessOrEqual, Comparator: store.Binary([]byte("a"))}
	for _, test := range []struct {
		name    string
		members []store.Filter
		counted bool
		want    string
	}{
		{"counted behind it", []store.Filter{regex, value}, false, "ValueFilter(<, 'binary:5')"},
		{"of values", []store.Filter{regex, value}, true, ""},
		{"of times", []store.Filter{regex, times}, true, ""},
		{"of rows", []store.Filter{regex, value, row}, true, "RowFilter(<=, 'binary:a')"},
		{"of a list", []store.Filter{regex, &store.FilterList{Filters: []store.Filter{row, times}}}, true, ""},
	} {
		if got := push(&store.FilterList{Filters: test.members}, test.counted); got.text != test.want {
			t.Errorf("%s: Got %q, want %q", test.name, got.text, test.want)
		}
	}
}

// Rows as long as they can be have no room for the bounds behind them.
func TestLongestRows(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	s := dial(t, nil, newGateway(t, mem, false))
	long := string(bytes.Repeat([]byte{0xff}, maxRow("t")))
	for _, row := range []string{"a", long} {
		if err := mutate(t, s, put(row, "v")); err != nil {
			t.Fatal(err)
		}
	}
	if err := mutate(t, s, put(long+"x", "v")); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("a row that HBase does not find: Got %v", err)
	}
	for _, reversed := range []bool{false, true} {
		for _, row := range []string{"a", long} {
			got, err := collect(s.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte(row), Stop: []byte(row), StopInclusive: true, Reversed: reversed}))
			if err != nil || len(got) != 1 {
				t.Errorf("row of %d bytes, reversed %t: Got %d, %v", len(row), reversed, len(got), err)
			}
		}
	}
}

// TestRegionsOfNewTable: a table of which a region has no server yet, as one that a process
// was killed making, is waited for, and not for ever.
func TestRegionsOfNewTable(t *testing.T) {
	t.Parallel()
	mem := newMem(t, "r100")
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	// HBase says of such a table that it is neither enabled nor disabled.
	g.enabling.Store(true)
	g.first(2, "getAllRegionLocations", fault{internal: true})
	if m, err := s.Regions(t.Context(), "t"); err != nil || len(m.All()) != 2 {
		t.Errorf("Got %v, %v, want two regions", m, err)
	}
	if n := g.count("getAllRegionLocations"); n != 3 {
		t.Errorf("Got %d calls, want 3", n)
	}
	g.first(-1, "getAllRegionLocations", fault{internal: true})
	s = dial(t, func(o *Options) { o.RetryTimeout = 1 }, g)
	if _, err := s.Regions(t.Context(), "t"); !errors.Is(err, store.ErrTransient) || !strings.Contains(err.Error(), "Internal error processing getAllRegionLocations") {
		t.Errorf("Got %v", err)
	}
}

// HBase says of a row's last piece that more may follow where its answer ended there: what
// comes then is another row, of which nothing was fetched before.
func TestLastPieceMayHaveMore(t *testing.T) {
	t.Parallel()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	for _, reversed := range []bool{false, true} {
		sel, err := store.NewSelection(&store.Scan{Table: "t", Reversed: reversed}, d)
		if err != nil {
			t.Fatal(err)
		}
		f := &fetcher{source: &source{sel: sel}}
		keys := []string{"a", "b"}
		if reversed {
			slices.Reverse(keys)
		}
		for _, key := range keys {
			r := fetched{key: []byte(key), partial: key == keys[0]}
			for _, q := range []string{"p", "q"} {
				r.cells = append(r.cells, cell.Cell{Family: "f", Qualifier: []byte(q), Time: 5, Kind: cell.KindPut})
			}
			if !f.rest.Contains(r.key) {
				t.Fatalf("reversed %v: row %s is not in the rest %q..%q", reversed, key, f.rest.Start, f.rest.Stop)
			}
			if f.passed(&r); len(r.cells) != 2 {
				t.Errorf("reversed %v: row %s has %d cells, want 2", reversed, key, len(r.cells))
			}
		}
		if f.part != nil {
			t.Errorf("reversed %v: a part is left of a row that is over", reversed)
		}
		// The same row, in parts.
		f = &fetcher{source: &source{sel: sel}}
		for i, q := range []string{"p", "q"} {
			r := fetched{key: []byte("a"), partial: i == 0}
			for _, q := range []string{"p", q}[1-i:] {
				r.cells = append(r.cells, cell.Cell{Family: "f", Qualifier: []byte(q), Time: 5, Kind: cell.KindPut})
			}
			if f.passed(&r); len(r.cells) != 1 {
				t.Errorf("reversed %v: part %d has %d cells more, want 1", reversed, i, len(r.cells))
			}
		}
	}
}
