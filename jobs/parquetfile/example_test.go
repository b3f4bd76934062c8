package parquetfile_test

import (
	"bytes"
	"fmt"
	"io"

	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
)

// A batch of two columns becomes a file, and the file a batch.
func Example() {
	columns := []columnar.Column{{Name: "page", Type: columnar.String}, {Name: "views", Type: columnar.Int64, Nullable: true}}
	b := columnar.NewBatch(columns)
	for _, page := range []string{"/", "/cart"} {
		if err := b.Vector(0).AppendBytes([]byte(page)); err != nil {
			fmt.Println(err)
			return
		}
	}
	b.Vector(1).AppendInt64(7)
	b.Vector(1).AppendNull()

	var file bytes.Buffer
	w, err := parquetfile.NewWriter(&file, columns, &parquetfile.Options{Order: columnar.Ascending("page")})
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

	r, err := parquetfile.NewReader(bytes.NewReader(file.Bytes()), int64(file.Len()))
	if err != nil {
		fmt.Println(err)
		return
	}
	defer r.Close()
	fmt.Println("sorted by", r.Order())
	for {
		b, err := r.Next()
		if err == io.EOF {
			return
		} else if err != nil {
			fmt.Println(err)
			return
		}
		for i := range b.Rows() {
			if views := b.Vector(1); views.IsNull(i) {
				fmt.Printf("%s null\n", b.Vector(0).Bytes(i))
			} else {
				fmt.Printf("%s %d\n", b.Vector(0).Bytes(i), views.Int64s()[i])
			}
		}
	}
	// Output:
	// sorted by [page]
	// / 7
	// /cart null
}
