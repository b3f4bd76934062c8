package storetest

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// testParts reads wide rows in parts: whatever the bounds, the parts make up the
// row, none is larger than asked for, and limits count rows, not parts.
func testParts(t *testing.T, e *engine) {
	f := store.NewFamily("f")
	f.Versions = 3
	nvb := store.NewFamily("g")
	nvb.NewVersionBehavior, nvb.Versions = true, 2
	e.create("wide", f, nvb)
	for _, row := range []string{"a", "b", "c"} {
		for i := range 40 {
			m := &cell.Mutation{Table: "wide", Row: []byte(row)}
			for _, family := range []string{"f", "g"} {
				for c := range 3 {
					m.Put(family, fmt.Appendf(nil, "q%02d", (i+7*c)%40), cell.Timestamp(i+1), fmt.Appendf(nil, "%s-%d-%d", row, i, c))
				}
			}
			if i%9 == 0 {
				m.DeleteColumn("f", fmt.Appendf(nil, "q%02d", (i+3)%40), cell.Timestamp(i))
			}
			if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(s *store.Scan) (rows []string, parts int) {
		t.Helper()
		sc := e.Scan(t.Context(), s)
		defer sc.Close()
		var cellsOf []string
		for more := false; sc.Next(); {
			row := sc.Row()
			parts++
			if !more || rows[len(rows)-1] != string(row.Key) {
				rows = append(rows, string(row.Key))
			}
			more = row.More
			size := 0
			for i := range row.Cells {
				size += len(row.Cells[i].Family) + len(row.Cells[i].Qualifier) + len(row.Cells[i].Value)
			}
			if len(row.Cells) == 0 || s.MaxResultBytes > 0 && size > s.MaxResultBytes && len(row.Cells) > 1 || s.Batch > 0 && len(row.Cells) > s.Batch {
				t.Errorf("scan %+v: got a part of %d cells, %d bytes", s, len(row.Cells), size)
			}
			cellsOf = append(cellsOf, cells(row.Cells, s.Raw)...)
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		return append(rows, cellsOf...), parts
	}
	for _, s := range []store.Scan{
		{},
		{Versions: store.AllVersions},
		{Versions: 2, Reversed: true},
		{Raw: true, Versions: store.AllVersions},
		{Start: []byte("b"), Stop: []byte("b"), StopInclusive: true, Versions: 2},
		{Limit: 2},
		{Limit: 1, Reversed: true},
		{LimitPerFamily: 7, OffsetPerFamily: 3, Versions: 2},
		{Columns: []store.Column{{Family: "f", Qualifier: []byte("q05")}, {Family: "g", All: true}}, Versions: 2},
		{Filter: &store.ColumnRangeFilter{Min: []byte("q03"), MinInclusive: true, Max: []byte("q31")}, Versions: 2},
		{Filter: &store.ValueFilter{Op: store.Greater, Comparator: store.Binary([]byte("b"))}, LimitPerFamily: 9},
		{Filter: &store.ColumnPaginationFilter{Limit: 5, Offset: 4}},
		{Filter: &store.FirstKeyOnlyFilter{}},
		{Filter: &store.PageFilter{PageSize: 2}},
	} {
		s.Table = "wide"
		whole, rows := read(&s)
		for _, bytes := range []int{1, 20, 100, 1 << 20} {
			s.MaxResultBytes = bytes
			if f := s.Filter; f != nil {
				if st, err := f.Start(&s); err != nil {
					t.Fatal(err)
				} else if st.WholeRow() {
					continue
				}
			}
			got, parts := read(&s)
			if d := cmp.Diff(whole, got); d != "" {
				t.Errorf("scan %+v in parts (-whole +parts):\n%s", s, d)
			}
			if bytes == 1 && len(whole) > 30 && parts <= rows {
				t.Errorf("scan %+v: got %d parts of %d rows", s, parts, rows)
			}
		}
		if s.MaxResultBytes, s.Batch = 0, 4; s.Filter == nil {
			if got, _ := read(&s); !slices.Equal(whole, got) {
				t.Errorf("scan %+v in batches: %s", s, cmp.Diff(whole, got))
			}
			s.MaxResultBytes = 30
			if got, _ := read(&s); !slices.Equal(whole, got) {
				t.Errorf("scan %+v in batches: %s", s, cmp.Diff(whole, got))
			}
		}
	}
	e.fails(&store.Scan{Table: "wide", MaxResultBytes: -1}, store.ErrInvalidArgument)
	e.fails(&store.Scan{Table: "wide", MaxResultBytes: 1, Filter: &store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Comparator: store.Binary(nil)}}, store.ErrIncompatibleFilter)
}

// fails requires an error of a scan.
func (e *engine) fails(s *store.Scan, want error) {
	e.t.Helper()
	sc := e.Scan(e.t.Context(), s)
	defer sc.Close()
	if sc.Next() {
		e.t.Errorf("scan %+v returned a row", s)
	}
	if err := sc.Err(); !errors.Is(err, want) {
		e.t.Errorf("scan %+v: got %v, want %v", s, err, want)
	}
}

// testGetRows: a get of many rows is as many gets.
func testGetRows(t *testing.T, e *engine) {
	fillCursorTable(t, e)
	table, err := store.OpenTable(t.Context(), e.Engine, "t")
	ok(t, err)
	rows := keys("c", "a\x00", "nope", "a", "c", "\xff")
	for _, s := range []*store.Scan{
		nil,
		{Versions: store.AllVersions},
		{Columns: []store.Column{{Family: "f", Qualifier: []byte("q3")}}},
		{Columns: []store.Column{{Family: "g", All: true}, {Family: "n", All: true}}, LimitPerFamily: 2, OffsetPerFamily: 1, Versions: 2},
		{Time: &cell.TimeRange{Min: 1, Max: 3}, Versions: 3},
		{Filter: &store.PageFilter{PageSize: 1}},
		{Filter: &store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("q3"), Op: store.Equal, Comparator: store.Binary([]byte("2")), FilterIfMissing: true}},
		{Start: []byte("b"), Limit: 1, Batch: 1, Reversed: true, MaxResultBytes: 9, PageRows: 1, NeedCursor: true}, // not used
	} {
		var want []*cell.Row
		for _, row := range rows {
			r, err := table.Get(t.Context(), row, s)
			ok(t, err)
			want = append(want, r)
		}
		got, err := table.GetRows(t.Context(), rows, s)
		ok(t, err)
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("GetRows %+v (-want +got):\n%s", s, d)
		}
	}
	whole, err := table.Get(t.Context(), []byte("a"), nil)
	ok(t, err)
	if got, err := table.Get(t.Context(), []byte("a"), &store.Scan{MaxResultBytes: 1}); err != nil || !cmp.Equal(whole, got) {
		t.Errorf("a get is cut: %v, %v, want %v", got, err, whole)
	}
	if got, err := table.GetRows(t.Context(), nil, nil); err != nil || len(got) != 0 {
		t.Errorf("GetRows of nothing: %v, %v", got, err)
	}
	is(t, "GetRows of an empty key", second(table.GetRows(t.Context(), keys("a", ""), nil)), store.ErrInvalidArgument)
	is(t, "a raw GetRows", second(table.GetRows(t.Context(), keys("a", "b"), &store.Scan{Raw: true})), store.ErrInvalidArgument)
	is(t, "GetRows of no family", second(table.GetRows(t.Context(), keys("a", "b"), &store.Scan{Columns: []store.Column{{Family: "zz", All: true}}})), store.ErrFamilyNotFound)
}
