package columnar_test

import (
	"encoding/binary"
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// benchColumns are ten columns as a job of page views has them.
var benchColumns = []columnar.ColumnSpec{
	{Name: "key", From: "$row", Type: "bytes"},
	{Name: "time", From: "$timestamp", Type: "timestamp"},
	{Name: "agent", From: "e:agent", Type: "string"},
	{Name: "bytes", From: "e:bytes", Type: "int64", Coding: "text"},
	{Name: "client", From: "e:client", Type: "string"},
	{Name: "duration", From: "e:duration", Type: "int64", Coding: "int64be"},
	{Name: "ok", From: "e:ok", Type: "bool"},
	{Name: "page", From: "e:page", Type: "string"},
	{Name: "score", From: "e:score", Type: "float64", Coding: "float64be"},
	{Name: "status", From: "e:status", Type: "int64", Coding: "text"},
}

// benchRows returns n rows of benchColumns.
func benchRows(n int) []cell.Row {
	rows := make([]cell.Row, n)
	for i := range rows {
		be := func(v uint64) []byte { return binary.BigEndian.AppendUint64(nil, v) }
		put := func(q string, v []byte) cell.Cell {
			return cell.Cell{Family: "e", Qualifier: []byte(q), Time: 1700000000000 + cell.Timestamp(i), Kind: cell.KindPut, Value: v}
		}
		rows[i] = cell.Row{Key: fmt.Appendf(nil, "user%06d/%08d", i*7919%5000, i), Cells: []cell.Cell{
			put("agent", fmt.Appendf(nil, "agent-%d", i%20)), put("bytes", fmt.Append(nil, i*31%100000)), put("client", fmt.Appendf(nil, "10.0.%d.%d", i%256, i%13)),
			put("duration", be(uint64(i*17%4000))), put("ok", []byte("true")), put("page", fmt.Appendf(nil, "/page/%d", i*i%500)),
			put("score", be(uint64(i)<<40)), put("status", []byte("200")),
		}}
	}
	return rows
}

func BenchmarkBuilder(b *testing.B) {
	s, err := columnar.Compile(benchColumns, columnar.PerRow, &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("e")}})
	if err != nil {
		b.Fatal(err)
	}
	rows := benchRows(8192)
	builder := columnar.NewBuilder(s)
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		if builder.Full() {
			builder.Reset()
		}
		if err := builder.Append(&rows[n%len(rows)]); err != nil {
			b.Fatal(err)
		}
		n++
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "rows/s")
}
