package parquetfile

import (
	"fmt"
	"io"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress/zstd"

	"sluice/jobs/columnar"
)

// benchRow is benchColumns as a struct, with the encodings that the writer
// chooses: what GenericWriter needs at compile time.
type benchRow struct {
	Key      []byte  `parquet:"key,delta"`
	Time     int64   `parquet:"time,delta"`
	Agent    string  `parquet:"agent,optional,dict"`
	Bytes    int64   `parquet:"bytes,optional,delta"`
	Client   string  `parquet:"client,optional,dict"`
	Duration int64   `parquet:"duration,optional,delta"`
	OK       bool    `parquet:"ok,optional"`
	Page     string  `parquet:"page,optional,dict"`
	Score    float64 `parquet:"score,optional"`
	Status   int64   `parquet:"status,optional,delta"`
}

var benchColumns = []columnar.Column{
	{Name: "key", Type: columnar.Bytes},
	{Name: "time", Type: columnar.Timestamp},
	{Name: "agent", Type: columnar.String, Nullable: true},
	{Name: "bytes", Type: columnar.Int64, Nullable: true},
	{Name: "client", Type: columnar.String, Nullable: true},
	{Name: "duration", Type: columnar.Int64, Nullable: true},
	{Name: "ok", Type: columnar.Bool, Nullable: true},
	{Name: "page", Type: columnar.String, Nullable: true},
	{Name: "score", Type: columnar.Float64, Nullable: true},
	{Name: "status", Type: columnar.Int64, Nullable: true},
}

const (
	benchRows    = 8192
	benchBatches = 16 // a row group; then the data begins again
)

// benchData returns the same rows as batches and as structs.
func benchData() ([]*columnar.Batch, [][]benchRow) {
	batches, all := make([]*columnar.Batch, benchBatches), make([][]benchRow, benchBatches)
	for k := range batches {
		b, rows := columnar.NewBatch(benchColumns), make([]benchRow, benchRows)
		for j := range rows {
			i := k*benchRows + j
			r := benchRow{
				Key: fmt.Appendf(nil, "user%06d/%08d", i/3, i*7919%1000003), Time: int64(1700000000000000 + i*1000 + i*i%977), Agent: fmt.Sprintf("agent-%d", i*i%20),
				Bytes: int64(1 + i*7919%100000), Client: fmt.Sprintf("10.0.%d.%d", i*i%256, i%13), Duration: int64(1 + i*i%4000), OK: true,
				Page: fmt.Sprintf("/page/%d", i*i%503), Score: 1 + float64(i*i%9973)/3, Status: 200 + int64(i%7/6*204),
			}
			rows[j] = r
			_ = b.Vector(0).AppendBytes(r.Key)
			b.Vector(1).AppendInt64(r.Time)
			_ = b.Vector(2).AppendBytes([]byte(r.Agent))
			b.Vector(3).AppendInt64(r.Bytes)
			_ = b.Vector(4).AppendBytes([]byte(r.Client))
			b.Vector(5).AppendInt64(r.Duration)
			b.Vector(6).AppendBool(r.OK)
			_ = b.Vector(7).AppendBytes([]byte(r.Page))
			b.Vector(8).AppendFloat64(r.Score)
			b.Vector(9).AppendInt64(r.Status)
		}
		batches[k], all[k] = b, rows
	}
	return batches, all
}

// BenchmarkWrite compares the writer of a run-time schema with parquet-go's
// GenericWriter of a struct that is known at compile time.
func BenchmarkWrite(b *testing.B) {
	batches, structs := benchData()
	b.Run("columns", func(b *testing.B) {
		w, err := NewWriter(io.Discard, benchColumns, &Options{Order: columnar.Ascending("key"), RowGroupRows: benchBatches * benchRows})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for n := 0; b.Loop(); n++ {
			if err := w.Write(batches[n%benchBatches]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
		stats, err := w.Close()
		if err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(stats.Bytes)/float64(stats.Rows), "file-B/row")
	})
	b.Run("generic", func(b *testing.B) {
		out := &countingWriter{w: io.Discard}
		w := parquet.NewGenericWriter[benchRow](out, parquet.Compression(&zstd.Codec{Level: zstd.SpeedFastest}), parquet.DataPageStatistics(false))
		b.ReportAllocs()
		for n := 1; b.Loop(); n++ {
			rows := structs[(n-1)%benchBatches]
			for i := 0; i < len(rows); i += 1024 {
				if _, err := w.Write(rows[i : i+1024]); err != nil {
					b.Fatal(err)
				}
			}
			if n%benchBatches == 0 {
				if err := w.Flush(); err != nil {
					b.Fatal(err)
				}
			}
		}
		b.ReportMetric(float64(b.N)*benchRows/b.Elapsed().Seconds(), "rows/s")
		if err := w.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(out.n)/float64(b.N*benchRows), "file-B/row")
	})
}
