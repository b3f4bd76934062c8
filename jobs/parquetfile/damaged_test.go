package parquetfile

import (
	"bytes"
	"testing"

	"sluice/internal/thinned"
	"sluice/jobs/columnar"
)

// TestDamaged reads a file with one bit changed, of each byte in turn: there is an
// error, or there are rows whose every value can be looked at. It is the lowest, as
// parquet-go makes memory for whatever size a page says that it has.
func TestDamaged(t *testing.T) {
	t.Parallel()
	maps, _ := columnar.Map(columnar.Int64)
	columns := []columnar.Column{
		{Name: "key", Type: columnar.Bytes},
		{Name: "s", Type: columnar.String, Nullable: true},
		{Name: "n", Type: columnar.Int64, Nullable: true},
		{Name: "f", Type: columnar.Float64},
		{Name: "b", Type: columnar.Bool, Nullable: true},
		{Name: "m", Type: maps, Nullable: true},
	}
	b := columnar.NewBatch(columns)
	for i := range 40 {
		_ = b.Vector(0).AppendBytes([]byte{byte(i), 'k'})
		_ = b.Vector(1).AppendBytes([]byte{'a' + byte(i%3)})
		b.Vector(2).AppendInt64(int64(i * i))
		b.Vector(3).AppendFloat64(float64(i) / 3)
		b.Vector(4).AppendNull()
		for e := range i % 3 {
			_ = b.Vector(5).Keys().AppendBytes([]byte{'a' + byte(e)})
			b.Vector(5).Values().AppendInt64(int64(i))
		}
		if i%3 == 0 && i%2 == 0 {
			b.Vector(5).AppendNull()
		} else if err := b.Vector(5).AppendEntries(); err != nil {
			t.Fatal(err)
		}
	}
	every := thinned.Of(1, 7)
	for _, order := range [][]columnar.Order{columnar.Ascending("key"), nil} {
		var out bytes.Buffer
		w, err := NewWriter(&out, columns, &Options{Codec: "none", Order: order})
		if err == nil {
			err = w.Write(b)
		}
		if err == nil {
			_, err = w.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < out.Len(); i += every {
			file := bytes.Clone(out.Bytes())
			file[i] ^= 1
			r, err := NewReader(bytes.NewReader(file), int64(len(file)))
			if err != nil {
				continue
			}
			sum := columnar.NewChecksum(len(r.Columns()))
			for range 3 {
				b, err := r.Next()
				if err != nil {
					break
				}
				sum.Add(b)
			}
			_ = r.Close() // it may tell of the damage again
		}
	}
}
