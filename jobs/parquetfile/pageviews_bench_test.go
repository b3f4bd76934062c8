package parquetfile

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/internal/pageviews"
	"sluice/jobs/columnar"
	"sluice/store"
)

// viewColumns are those of the job events in examples/pageviews.yaml.
var viewColumns = []columnar.ColumnSpec{
	{Name: "user", From: "e:user", Type: "string"},
	{Name: "time", From: "$timestamp", Type: "timestamp"},
	{Name: "page", From: "e:page", Type: "string"},
	{Name: "country", From: "e:country", Type: "string"},
	{Name: "referrer", From: "e:referrer", Type: "string"},
	{Name: "agent", From: "e:agent", Type: "string"},
	{Name: "duration_ms", From: "e:duration_ms", Type: "int64", Coding: "text"},
}

// views returns page views by user, as a scan tells them: 256 rows at a time.
func views(b *testing.B, n int) (all []*cell.PackedRows) {
	type view struct {
		TS                                   int64
		User, Page, Country, Referrer, Agent string
		Duration                             json.Number `json:"duration_ms"`
	}
	g := pageviews.New(&pageviews.Options{Events: n})
	rows := make([]view, n)
	for i := range rows {
		event, _ := g.Append(nil)
		if err := json.Unmarshal(event, &rows[i]); err != nil {
			b.Fatal(err)
		}
	}
	slices.SortStableFunc(rows, func(a, b view) int {
		if a.User < b.User {
			return -1
		}
		if a.User > b.User {
			return 1
		}
		return int(b.TS - a.TS)
	})
	for i, v := range rows {
		if i%256 == 0 {
			all = append(all, &cell.PackedRows{Family: "e"})
		}
		value := cell.AppendPackedHeader(nil, 0, false)
		for _, c := range [][2]string{{"agent", v.Agent}, {"country", v.Country}, {"duration_ms", v.Duration.String()}, {"page", v.Page}, {"referrer", v.Referrer}, {"user", v.User}} {
			value = cell.AppendPackedColumn(value, []byte(c[0]), []byte(c[1]))
		}
		all[len(all)-1].Append(fmt.Appendf(nil, "abcd/%s/%08d", v.User, i), value, cell.Timestamp(v.TS))
	}
	return all
}

// BenchmarkViews is what an export of page views does behind its scan: it makes columns of
// packed rows, and writes them.
func BenchmarkViews(b *testing.B) {
	const n = 1 << 19
	all := views(b, n)
	s, err := columnar.Compile(viewColumns, columnar.PerRow, &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("e")}})
	if err != nil {
		b.Fatal(err)
	}
	build := func(b *testing.B, each func(*columnar.Batch) error) {
		builder := columnar.NewBuilder(s)
		for b.Loop() {
			for _, rows := range all {
				if ok, err := builder.AppendPacked(rows); err != nil || !ok {
					b.Fatal(ok, err)
				}
				if batch := builder.Batch(); batch.Rows()+rows.Len() > columnar.DefaultBatchRows {
					if err := each(batch); err != nil {
						b.Fatal(err)
					}
					builder.Reset()
				}
			}
		}
		b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)/n*1e9, "ns/row")
	}
	b.Run("build", func(b *testing.B) { build(b, func(*columnar.Batch) error { return nil }) })
	b.Run("whole", func(b *testing.B) {
		w, err := NewWriter(io.Discard, s.Columns(), nil)
		if err != nil {
			b.Fatal(err)
		}
		build(b, w.Write)
	})
}
