package parquetfile

import (
	"bytes"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"
)

// edited returns a file with another footer.
func edited(t *testing.T, file []byte, edit func(m *format.FileMetaData)) []byte {
	t.Helper()
	body, m := splitFile(t, file)
	edit(&m)
	return joinFile(t, body, &m)
}

// TestForeignCounts: files of others whose footer or pages say other numbers of rows or of
// nulls than there are, are refused, with the row group and the column where they do.
func TestForeignCounts(t *testing.T) {
	t.Parallel()
	type row struct {
		A *int64            `parquet:"a,optional"`
		M map[string]string `parquet:"m"`
	}
	for _, version := range []int{1, 2} {
		var b bytes.Buffer
		w := parquet.NewGenericWriter[row](&b, parquet.DataPageVersion(version))
		for group := range 2 {
			for i := range int64(5) {
				r := row{A: &i, M: map[string]string{"k": "v", "l": "w"}}
				if i < 2 {
					r.A = nil
				}
				if _, err := w.Write([]row{r}); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(); err != nil {
				t.Fatal(group, err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if n, err := readForeign(b.Bytes()); n != 10 || err != nil {
			t.Fatalf("Got %d rows, %v of an honest file", n, err)
		}
		at := func(m *format.FileMetaData) *format.RowGroup { return &m.RowGroups[1] }
		for name, tt := range map[string]struct {
			edit func(m *format.FileMetaData)
			want string
		}{
			"file":       {func(m *format.FileMetaData) { m.NumRows = 9 }, "the file has 9 rows, and its row groups 10"},
			"fewer rows": {func(m *format.FileMetaData) { m.NumRows, at(m).NumRows = 8, 3 }, "row group 1, column a: damaged: the row group has 3 rows, and its pages have 5"},
			"more rows":  {func(m *format.FileMetaData) { m.NumRows, at(m).NumRows = 11, 6 }, "row group 1, column a: damaged: the row group has 6 rows, and its pages have 5"},
			"values":     {func(m *format.FileMetaData) { at(m).Columns[0].MetaData.NumValues = 4 }, "row group 1, column a: damaged: it has 4 values, and its pages have 5"},
			"nulls":      {func(m *format.FileMetaData) { at(m).Columns[0].MetaData.Statistics.NullCount = 1 }, "row group 1, column a: damaged: its statistics have 1 nulls, and there are 2"},
			"no nulls":   {func(m *format.FileMetaData) { at(m).Columns[0].MetaData.Statistics.NullCount = 0 }, "row group 1, column a: damaged: its statistics have 0 nulls, and there are 2"},
			"map":        {func(m *format.FileMetaData) { at(m).Columns[2].MetaData.NumValues = 9 }, "row group 1, column m: damaged: it has 9 values, and its pages have 10"},
		} {
			file := edited(t, b.Bytes(), tt.edit)
			rows, err := readForeignColumns(file, "a", "m")
			if err == nil || !strings.Contains(err.Error(), tt.want) || rows > 5 {
				t.Errorf("version %d, %s: Got %d rows, %v, want %q", version, name, rows, err, tt.want)
			}
		}
		if version == 2 {
			file := bytes.Clone(b.Bytes())
			fewerNulls(t, file)
			if rows, err := readForeign(file); err == nil || !strings.Contains(err.Error(), "row group 1, column a: damaged: its pages have 1 nulls, and there are 2") || rows > 5 {
				t.Errorf("Got %d rows, %v of a page of other nulls", rows, err)
			}
		}
		// Of a map alone, what is left when all rows were read.
		file := edited(t, b.Bytes(), func(m *format.FileMetaData) { m.NumRows, at(m).NumRows = 9, 4 })
		if rows, err := readForeignColumns(file, "m"); err == nil || !strings.Contains(err.Error(), "row group 1, column m: damaged: the row group has 4 rows, and its pages have more") || rows > 5 {
			t.Errorf("version %d: Got %d rows, %v of a map", version, rows, err)
		}
	}
}

// TestStatedNulls: statistics that say no null count are told from those that say 0.
func TestStatedNulls(t *testing.T) {
	t.Parallel()
	type statistics struct {
		NullCount thrift.Null[int64] `thrift:"3,optional"`
		MaxValue  []byte             `thrift:"5,optional"`
	}
	type metadata struct {
		Codec      int32      `thrift:"4,required"`
		Statistics statistics `thrift:"12,optional"`
	}
	type chunk struct {
		FileOffset int64    `thrift:"2,required"`
		MetaData   metadata `thrift:"3,optional"`
	}
	type rowGroup struct {
		Columns []chunk `thrift:"1,required"`
		NumRows int64   `thrift:"3,required"`
	}
	type file struct {
		Version   int32      `thrift:"1,required"`
		RowGroups []rowGroup `thrift:"4,required"`
	}
	of := func(s statistics) chunk { return chunk{MetaData: metadata{Statistics: s}} }
	footer, err := thrift.Marshal(new(thrift.CompactProtocol), file{Version: 1, RowGroups: []rowGroup{
		{Columns: []chunk{of(statistics{}), of(statistics{MaxValue: []byte("x")})}},
		{Columns: []chunk{of(statistics{NullCount: thrift.New[int64](0)}), of(statistics{NullCount: thrift.New[int64](7), MaxValue: []byte("x")})}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	got, err := statedNulls(footer)
	want := [][]thrift.Null[int64]{{{}, {}}, {thrift.New[int64](0), thrift.New[int64](7)}}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("Got %v, %v, want %v", got, err, want)
	}
}

// fewerNulls makes the page of the first column in the second row group say that it has a
// null less.
func fewerNulls(t *testing.T, file []byte) {
	t.Helper()
	var at int64
	edited(t, file, func(m *format.FileMetaData) { at = m.RowGroups[1].Columns[0].MetaData.DataPageOffset })
	h, n, err := readHeader(bytes.NewReader(file), at, int64(len(file))-at)
	if err != nil {
		t.Fatal(err)
	}
	h.DataPageHeaderV2.V.NumNulls--
	header, err := thrift.Marshal(new(thrift.CompactProtocol), h)
	if err != nil || int64(len(header)) != n {
		t.Fatalf("Got %d bytes, %v in place of %d", len(header), err, n)
	}
	copy(file[at:], header)
}

// TestForeignPageNulls: the nulls that the header of a page counts are checked, too.
func TestForeignPageNulls(t *testing.T) {
	t.Parallel()
	for nulls, want := range map[int32]string{0: "", 1: "row group 0, column a: damaged: its pages have 1 nulls, and it takes none"} {
		h := twoValues(func(h *format.PageHeader) {
			h.Type, h.DataPageHeader = format.DataPageV2, thrift.Null[format.DataPageHeader]{}
			h.DataPageHeaderV2 = thrift.New(format.DataPageHeaderV2{NumValues: 2, NumRows: 2, NumNulls: nulls, Encoding: format.Plain})
		})
		_, err := readForeign(crafted(t, h, make([]byte, 16), nil))
		if got := fmt.Sprint(err); (want == "") != (err == nil) || !strings.Contains(got, want) {
			t.Errorf("%d nulls: Got %v, want %q", nulls, err, want)
		}
	}
}

// TestForeignNoRows: row groups without rows have no pages where Arrow's C++ has written them,
// and pages without values where others have, and are passed over.
func TestForeignNoRows(t *testing.T) {
	t.Parallel()
	none := twoValues(func(h *format.PageHeader) {
		h.UncompressedPageSize, h.CompressedPageSize, h.DataPageHeader.V.NumValues = 0, 0, 0
	})
	dictionary := &format.PageHeader{Type: format.DictionaryPage, DictionaryPageHeader: thrift.New(format.DictionaryPageHeader{})}
	for name, c := range map[string]struct {
		header *format.PageHeader
		edit   func(m *format.ColumnMetaData)
		want   string
	}{
		"no page":              {dictionary, func(m *format.ColumnMetaData) { m.DataPageOffset, m.TotalCompressedSize = 0, 0 }, ""},
		"a dictionary":         {dictionary, func(m *format.ColumnMetaData) { m.DataPageOffset, m.DictionaryPageOffset = 0, 4 }, ""},
		"in zstd":              {dictionary, func(m *format.ColumnMetaData) { m.DataPageOffset, m.DictionaryPageOffset, m.Codec = 0, 4, format.Zstd }, ""},
		"a page":               {none, nil, ""},
		"a page with values":   {twoValues(nil), nil, "the row group has 0 rows, and its pages have 2"},
		"values without pages": {dictionary, func(m *format.ColumnMetaData) { m.DataPageOffset, m.NumValues = 0, 1 }, "column a: "},
	} {
		file := crafted(t, c.header, make([]byte, c.header.CompressedPageSize), func(m *format.FileMetaData) {
			column := &m.RowGroups[0].Columns[0].MetaData
			m.NumRows, m.RowGroups[0].NumRows, column.NumValues = 0, 0, 0
			if c.edit != nil {
				c.edit(column)
			}
		})
		rows, err := readForeign(file)
		if rows != 0 || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: Got %d rows, %v, want %q", name, rows, err, c.want)
		}
	}
}
