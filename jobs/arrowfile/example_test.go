package arrowfile_test

import (
	"bytes"
	"fmt"

	"github.com/apache/arrow/go/v15/arrow/ipc"

	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
)

// A file that any reader of Arrow's IPC format takes: Arrow's own, here.
func Example() {
	columns := []columnar.Column{{Name: "page", Type: columnar.String}, {Name: "views", Type: columnar.Int64}}
	b := columnar.NewBatch(columns)
	if err := b.Vector(0).AppendBytes([]byte("/cart")); err != nil {
		fmt.Println(err)
		return
	}
	b.Vector(1).AppendInt64(7)

	var file bytes.Buffer
	w, err := arrowfile.NewWriter(&file, columns, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := w.Write(b); err != nil {
		fmt.Println(err)
		return
	}
	if _, err := w.Close(); err != nil {
		fmt.Println(err)
		return
	}

	r, err := ipc.NewFileReader(bytes.NewReader(file.Bytes()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	record, err := r.Record(0)
	if err != nil {
		fmt.Println(err)
		return
	}
	for i, c := range record.Columns() {
		fmt.Println(record.ColumnName(i), c.DataType(), c.ValueStr(0))
	}
	// Output:
	// page utf8 /cart
	// views int64 7
}
