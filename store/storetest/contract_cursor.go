package storetest

import (
	"context"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// part is one Row of a scan, and the cursor after it.
type part struct {
	row   string
	cells []string
	after store.Cursor
}

// parts runs s to its end, or for most parts where that is not negative, and returns
// what it gave, and its cursor at the end.
func parts(t *testing.T, r store.Reader, s *store.Scan, most int) (got []part, end store.Cursor) {
	t.Helper()
	sc := r.Scan(t.Context(), s)
	defer sc.Close()
	cursor := func() store.Cursor {
		t.Helper()
		c, err := store.CursorOf(sc)
		if err != nil {
			t.Fatalf("scan %+v: %v", s, err)
		}
		return c
	}
	for len(got) != most && sc.Next() {
		got = append(got, part{string(sc.Row().Key), cells(sc.Row().Cells, s.Raw), cursor()})
	}
	if err := sc.Err(); err != nil {
		t.Fatalf("scan %+v: %v", s, err)
	}
	return got, cursor()
}

// flat returns the cells of parts, each with its row.
func flat(ps []part) []string {
	out := []string{}
	for _, p := range ps {
		for _, c := range p.cells {
			out = append(out, p.row+c)
		}
	}
	return out
}

// fillCursorTable makes a table of five rows with several versions and markers.
func fillCursorTable(t *testing.T, e *engine) {
	t.Helper()
	f := store.NewFamily("f")
	f.Versions = 3
	nvb := store.NewFamily("g")
	nvb.NewVersionBehavior, nvb.Versions = true, 2
	e.create("t", f, nvb, counterFamily("n"))
	for i, row := range []string{"a", "a\x00", "b", "c", "\xff"} {
		for version := range 3 {
			m := &cell.Mutation{Table: "t", Row: []byte(row)}
			for q := range 3 + i%2 {
				m.Put("f", fmt.Appendf(nil, "q%d", q), cell.Timestamp(version+1), fmt.Appendf(nil, "%d", version))
				m.Put("g", fmt.Appendf(nil, "q%d", q), cell.Timestamp(version+1), fmt.Appendf(nil, "%d", version))
			}
			if version == 1 {
				m.DeleteColumn("f", []byte("q1"), 1)
				m.DeleteFamilyVersion("g", 1)
			}
			ok(t, second(e.MutateRow(t.Context(), nil, m)))
		}
		ok(t, e.increment(store.CounterDelta{Table: "t", Family: "n", Row: []byte(row), Qualifier: []byte("q"), Delta: 1, Time: 5}))
	}
}

// cursorScans are scans of what fillCursorTable makes.
func cursorScans() []store.Scan {
	equal := func(v string) store.Comparator { return store.Binary([]byte(v)) }
	long := &store.ColumnRangeFilter{Min: []byte("q2"), MinInclusive: true}
	scans := []store.Scan{
		{},
		{Versions: store.AllVersions},
		{Raw: true, Versions: store.AllVersions, Columns: []store.Column{{Family: "f", All: true}, {Family: "g", All: true}}},
		{Start: []byte("a"), StartExclusive: true, Stop: []byte("c"), StopInclusive: true},
		{Start: []byte("b"), Stop: []byte("b"), StopInclusive: true, Versions: 2},
		{Start: []byte("c"), Stop: []byte("b")},
		{Prefix: []byte("a"), Versions: 2},
		{Limit: 2},
		{Limit: 9},
		{LimitPerFamily: 2, OffsetPerFamily: 1, Versions: 2},
		{Columns: []store.Column{{Family: "f", Qualifier: []byte("q3")}, {Family: "n", All: true}}},
		{Time: &cell.TimeRange{Min: 1, Max: 3}, FamilyTime: map[string]cell.TimeRange{"g": {Min: 2, Max: 9}}, Versions: 2},
	}
	for _, f := range []store.Filter{
		&store.PageFilter{PageSize: 0},
		&store.PageFilter{PageSize: 3},
		&store.FilterList{Filters: []store.Filter{&store.PageFilter{PageSize: 2}, long}},
		&store.FilterList{MustPassOne: true, Filters: []store.Filter{&store.PageFilter{PageSize: 2}, &store.RowFilter{Op: store.Equal, Comparator: equal("c")}}},
		&store.FilterList{MustPassOne: true, Filters: []store.Filter{&store.ColumnCountGetFilter{Limit: 3}, &store.QualifierFilter{Op: store.Equal, Comparator: equal("q1")}}},
		&store.FilterList{MustPassOne: true, Filters: []store.Filter{
			&store.WhileMatchFilter{Filter: &store.RowFilter{Op: store.NotEqual, Comparator: equal("b")}}, &store.QualifierFilter{Op: store.Equal, Comparator: equal("q2")},
		}},
		&store.FilterList{},
		&store.WhileMatchFilter{Filter: &store.FilterList{Filters: []store.Filter{&store.RowFilter{Op: store.NotEqual, Comparator: equal("c")}, &store.PageFilter{PageSize: 3}}}},
		&store.SkipFilter{Filter: &store.QualifierFilter{Op: store.NotEqual, Comparator: equal("q3")}},
		&store.ColumnCountGetFilter{Limit: 7},
		&store.ColumnPaginationFilter{Limit: 3, Offset: 2},
		&store.FirstKeyOnlyFilter{},
		&store.KeyOnlyFilter{LengthAsValue: true},
		&store.PrefixFilter{Prefix: []byte("a")},
		&store.InclusiveStopFilter{Row: []byte("b")},
		&store.RandomRowFilter{Chance: 2},
		&store.FuzzyRowFilter{Pairs: []store.FuzzyPair{{Key: []byte("a"), Mask: []byte{0}}, {Key: []byte("c"), Mask: []byte{0}}}},
		&store.MultiRowRangeFilter{Ranges: []store.RowRange{{Start: []byte("a"), Stop: []byte("a"), StopInclusive: true}, {Start: []byte("c")}}},
		&store.ValueFilter{Op: store.NotEqual, Comparator: equal("2")},
		&store.TimestampsFilter{Timestamps: []cell.Timestamp{1, 3}},
		&store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q3"), Op: store.Equal, Comparator: equal("2"), FilterIfMissing: true},
		&store.DependentColumnFilter{Family: "f", Qualifier: []byte("q0")},
	} {
		scans = append(scans, store.Scan{Filter: f, Versions: 2})
	}
	for _, s := range slices.Clone(scans) {
		s.Reversed = true
		s.Start, s.Stop, s.StartExclusive, s.StopInclusive = s.Stop, s.Start, !s.StopInclusive && len(s.Stop) > 0, !s.StartExclusive
		scans = append(scans, s)
	}
	return scans
}

// wholeRow reports whether the filter of s, if any, judges whole rows.
func wholeRow(t *testing.T, s *store.Scan) bool {
	t.Helper()
	if s.Filter == nil {
		return false
	}
	st, err := s.Filter.Start(s)
	ok(t, err)
	return st.WholeRow()
}

// testCursors stops every scan after each of its parts, goes on from there, and finds
// what is left, no more and no less; with pages, too.
func testCursors(t *testing.T, e *engine) {
	fillCursorTable(t, e)
	for n, s := range cursorScans() {
		s.Table, s.NeedCursor = "t", true
		whole, last := parts(t, e, &s, -1)
		if !last.End() {
			t.Errorf("scan %+v: its last cursor is not that of the end", s)
		}
		resume := func(how string, s store.Scan, at store.Cursor, want []part) {
			t.Helper()
			s.Cursor = at
			got, end := parts(t, e, &s, -1)
			if d := cmp.Diff(flat(want), flat(got)); d != "" {
				t.Errorf("scan %+v, %s (-want +got):\n%s", s, how, d)
			}
			if !end.End() {
				t.Errorf("scan %+v, %s: its last cursor is not that of the end", s, how)
			}
		}
		first, err := store.FirstCursor(&s)
		ok(t, err)
		resume("from the first cursor", s, first, whole)
		resume("from the end", s, last, nil)
		for i, p := range whole {
			resume(fmt.Sprintf("after row %d", i), s, p.after, whole[i+1:])
		}
		for rows := range 2 {
			paged := s
			paged.PageRows = rows + 1
			var all []part
			for page := 0; !paged.Cursor.End(); page++ {
				got, at := parts(t, e, &paged, -1)
				if len(got) > rows+1 || page > len(whole)+1 {
					t.Fatalf("scan %+v: page %d has %d rows", paged, page, len(got))
				}
				all, paged.Cursor = append(all, got...), at
			}
			if d := cmp.Diff(flat(whole), flat(all)); d != "" {
				t.Errorf("scan %+v in pages (-want +got):\n%s", paged, d)
			}
		}
		if wholeRow(t, &s) {
			continue
		}
		for _, cut := range []store.Scan{{MaxResultBytes: 1}, {MaxResultBytes: 9}, {Batch: 2}} {
			if cut.Batch > 0 && s.Filter != nil {
				continue
			}
			s.MaxResultBytes, s.Batch = cut.MaxResultBytes, cut.Batch
			pieces, _ := parts(t, e, &s, -1)
			if d := cmp.Diff(flat(whole), flat(pieces)); d != "" {
				t.Errorf("scan %+v in parts (-want +got):\n%s", s, d)
			}
			// Every so often is enough: another scan stops elsewhere.
			for i := n % 4; i < len(pieces); i += 11 {
				resume(fmt.Sprintf("after part %d", i), s, pieces[i].after, pieces[i+1:])
				other := s
				other.MaxResultBytes, other.Batch, other.PageRows = 0, 0, 100
				resume(fmt.Sprintf("whole after part %d", i), other, pieces[i].after, pieces[i+1:])
			}
		}
	}
}

// testCursorsLast: a cursor holds across splits, merges, flushes, rewrites and
// reopening, and what is written meanwhile is seen where it lies ahead.
func testCursorsLast(t *testing.T, e *engine) {
	ctx := t.Context()
	fillCursorTable(t, e)
	for _, reversed := range []bool{false, true} {
		s := store.Scan{Table: "t", Versions: 2, Reversed: reversed, MaxResultBytes: 9, NeedCursor: true}
		whole, _ := parts(t, e, &s, -1)
		for i, change := range []func() error{
			func() error { return e.admin().SplitRegion(ctx, "t", []byte("b")) },
			func() error { return e.admin().SplitRegion(ctx, "t", []byte("a\x00")) },
			func() error { return e.admin().MergeRegions(ctx, "t", keys("a", "a\x00", "b")...) },
			func() error {
				c, isCompactor := e.Engine.(store.Compactor)
				if !isCompactor {
					return nil
				}
				if err := c.Flush(ctx); err != nil {
					return err
				}
				return c.MajorCompact(ctx, "t")
			},
			func() error {
				if e.durable() {
					e.reopen()
				}
				return nil
			},
		} {
			at := len(whole) * (i + 1) / 6
			got, cursor := parts(t, e, &s, at)
			ok(t, e.shell(change()))
			rest := s
			rest.Cursor = cursor
			more, _ := parts(t, e, &rest, -1)
			if d := cmp.Diff(flat(whole), flat(append(got, more...))); d != "" {
				t.Errorf("reversed %v, change %d (-whole +parts):\n%s", reversed, i, d)
			}
		}
	}

	// In the midst of row b: what is before is not looked at again.
	s := store.Scan{Table: "t", Columns: []store.Column{{Family: "f", All: true}}, MaxResultBytes: 1, NeedCursor: true}
	got, cursor := parts(t, e, &s, 3+4+1)
	if last := got[len(got)-1]; last.row != "b" {
		t.Fatalf("part %d is of row %q", len(got), last.row)
	}
	for _, m := range []cell.Mutation{put("t", "a", "behind"), put("t", "a\xff", "behind"), put("t", "b0", "ahead")} {
		m.Ops[0].Time = 10_000_000 // not the engine's own, which may have a real clock
		ok(t, second(e.MutateRow(ctx, nil, &m)))
	}
	m := cell.Mutation{Table: "t", Row: []byte("b")}
	m.Put("f", []byte("p"), 9, []byte("behind"))
	m.Put("f", []byte("q0"), 9, []byte("behind: a newer version of what was returned"))
	m.Put("f", []byte("q00"), 9, []byte("ahead"))
	m.Put("f", []byte("q2"), 9, []byte("newer"))
	ok(t, second(e.MutateRow(ctx, nil, &m)))
	s.Cursor = cursor
	more, _ := parts(t, e, &s, 5)
	want := []string{`b  f:"q00" @9 = "ahead"`, `b  f:"q1" @3 = "2"`, `b  f:"q2" @9 = "newer"`, `b0  f:"q" @10000000 = "ahead"`, `c  f:"q0" @3 = "2"`}
	if d := cmp.Diff(want, flat(more)); d != "" {
		t.Errorf("after writes (-want +got):\n%s", d)
	}
	table, err := store.OpenTable(ctx, e.Engine, "t")
	ok(t, err)
	gone := table.NewMutation([]byte("b"))
	gone.DeleteFamily("f", cell.Latest)
	gone.DeleteFamily("g", cell.Latest)
	ok(t, second(table.MutateRow(ctx, gone)))
	if more, _ = parts(t, e, &s, 1); len(more) != 1 || more[0].row != "b0" {
		t.Errorf("after the row of the cursor was deleted: %v", more)
	}
	s.Limit = 0
	if sn, isSnapshotter := e.Engine.(store.Snapshotter); isSnapshotter {
		snap, err := sn.Snapshot(ctx)
		ok(t, err)
		defer snap.Close()
		s.Cursor = ""
		whole, _ := parts(t, snap, &s, -1)
		ok(t, table.Delete(ctx, []byte("c")))
		s.Cursor = whole[4].after
		more, _ := parts(t, snap, &s, -1)
		if d := cmp.Diff(flat(whole[5:]), flat(more)); d != "" {
			t.Errorf("in a snapshot (-want +got):\n%s", d)
		}
	}
}

// unknown is a filter that no cursor can be made for.
type unknown struct{ store.PageFilter }

// testCursorErrors: what cannot be continued says so.
func testCursorErrors(t *testing.T, e *engine) {
	fillCursorTable(t, e)
	s := store.Scan{Table: "t", Limit: 4, NeedCursor: true, Filter: &store.PageFilter{PageSize: 3}}
	got, _ := parts(t, e, &s, -1)
	s.Cursor = got[1].after
	for what, change := range map[string]func(s *store.Scan){
		"limit":    func(s *store.Scan) { s.Limit = 5 },
		"versions": func(s *store.Scan) { s.Versions = 2 },
		"start":    func(s *store.Scan) { s.Start = []byte("a") },
		"columns":  func(s *store.Scan) { s.Columns = []store.Column{{Family: "f", All: true}} },
		"reversed": func(s *store.Scan) { s.Reversed = true },
		"filter":   func(s *store.Scan) { s.Filter = &store.PageFilter{PageSize: 4} },
		"none":     func(s *store.Scan) { s.Filter = nil },
		"time":     func(s *store.Scan) { s.Time = &cell.TimeRange{Min: 1, Max: 2} },
		"garbage":  func(s *store.Scan) { s.Cursor = "garbage" },
		"damaged":  func(s *store.Scan) { s.Cursor = s.Cursor[:20] + "-" + s.Cursor[21:] },
		"cut":      func(s *store.Scan) { s.Cursor = s.Cursor[:len(s.Cursor)-4] },
		"page":     func(s *store.Scan) { s.Cursor, s.PageRows = "", -1 },
	} {
		other := s
		change(&other)
		t.Run(what, func(t *testing.T) { e.fails(&other, store.ErrInvalidArgument) })
	}
	s.Cursor, s.Filter = "", &unknown{store.PageFilter{PageSize: 3}}
	e.fails(&s, store.ErrUnsupported)

	sc := e.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	is(t, "the cursor of a scan that asked for none", second(store.CursorOf(sc)), store.ErrInvalidArgument)

	// A scan that its context ends is continued where it was.
	s = store.Scan{Table: "t", NeedCursor: true}
	whole, _ := parts(t, e, &s, -1)
	ctx, cancel := context.WithCancel(t.Context())
	sc = e.Scan(ctx, &s)
	defer sc.Close()
	for range 2 {
		if !sc.Next() {
			t.Fatal(sc.Err())
		}
	}
	cancel()
	for sc.Next() {
		t.Errorf("a scan went on after its context had ended, with row %q", sc.Row().Key)
	}
	is(t, "a scan whose context has ended", sc.Err(), context.Canceled)
	at, err := store.CursorOf(sc)
	ok(t, err)
	if at.End() {
		t.Error("a scan that failed has come to its end")
	}
	s.Cursor = at
	rest, _ := parts(t, e, &s, -1)
	if d := cmp.Diff(flat(whole[2:]), flat(rest)); d != "" {
		t.Errorf("after a scan that failed (-want +got):\n%s", d)
	}
}
