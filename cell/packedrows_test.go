package cell

import (
	"bytes"
	"errors"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

func TestPackedRows(t *testing.T) {
	t.Parallel()
	var rows PackedRows
	for range 2 { // with the memory of the first time
		rows.Reset("f")
		rows.Append(AppendEscaped(nil, []byte("a\x00b")), AppendPackedColumn(AppendPackedHeader(nil, 0, false), []byte("q"), []byte("v")), 7)
		rows.Append([]byte("gone"), []byte{0}, 8)
		rows.DropLast()
		rows.Append([]byte("c"), []byte{0, 1}, 9)
		if rows.Len() != 2 || rows.Bytes() != len("a\x00bc")+5+2 || !bytes.Equal(rows.Values(), []byte("\x00\x01q\x01v\x00\x01")) {
			t.Fatalf("Got %d rows, %d bytes, values %q", rows.Len(), rows.Bytes(), rows.Values())
		}
		got, err := rows.Row(0, make([]Cell, 3))
		want := Row{Key: []byte("a\x00b"), Cells: []Cell{{Family: "f", Qualifier: []byte("q"), Time: 7, Kind: KindPut, Value: []byte("v")}}}
		if d := gocmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("Got %v, %v\n%s", got, err, d)
		}
		if _, err := rows.Row(1, nil); !errors.Is(err, ErrCorruptValue) {
			t.Errorf("Got %v of a damaged row", err)
		}
		rows.DropLast()
		rows.DropLast()
		if rows.Len() != 0 || rows.Bytes() != 0 {
			t.Errorf("Got %d rows, %d bytes", rows.Len(), rows.Bytes())
		}
	}
}
