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
