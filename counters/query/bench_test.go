package query_test

import (
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/store"
	"sluice/store/pebblestore"
)

// BenchmarkTop is the top 10 of 20,000 rows in the embedded engine, each with 24
// hours: of one hour, that seeks in every row, and of all of them.
func BenchmarkTop(b *testing.B) {
	const rows = 20_000
	db, err := pebblestore.Open(b.TempDir(), &pebblestore.Options{Sync: pebblestore.SyncNever, RewriteInterval: -1, MinFreeBytes: -1})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	hour := store.NewFamily("hour")
	hour.Counter = true
	if err := db.CreateTable(b.Context(), &store.TableDescriptor{Name: "stats", Families: []store.FamilyDescriptor{hour}}, nil); err != nil {
		b.Fatal(err)
	}
	r := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: []string{"page"}}}
	const day = cell.Timestamp(1795219200000) // 2026-11-21
	var batch store.Batch
	for i := range rows {
		row, err := r.Row(fmt.Appendf(nil, "/products/item-%05d", i))
		if err != nil {
			b.Fatal(err)
		}
		for h := range 24 {
			batch.Counters = append(batch.Counters, store.CounterDelta{
				Table: "stats", Family: "hour", Row: row, Qualifier: fmt.Appendf(nil, "20261121%02d", h), Delta: int64(i*7919%rows + h), Time: day,
			})
		}
		if i%2000 == 1999 {
			if err := db.Apply(b.Context(), &batch); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	if err := db.MajorCompact(b.Context(), "stats"); err != nil {
		b.Fatal(err)
	}
	for _, hours := range []int{1, 24} {
		b.Run(fmt.Sprintf("hours=%d", hours), func(b *testing.B) {
			for b.Loop() {
				top, err := r.Top(b.Context(), db, counters.Hour, nil, day, day+cell.Timestamp(hours)*3_600_000, 10)
				if err != nil || len(top) != 10 || top[0].Count != int64(hours*(rows-1)+hours*(hours-1)/2) {
					b.Fatal(top, err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/rows, "ns/row")
		})
	}
}

// BenchmarkDistinct adds elements to the sketches of a batch in the embedded engine:
// 20,000 events, spread over so many sketches.
func BenchmarkDistinct(b *testing.B) {
	for _, keys := range []int{1, 1000, 20_000} {
		b.Run(fmt.Sprintf("sketches=%d", keys), func(b *testing.B) {
			db, err := pebblestore.Open(b.TempDir(), &pebblestore.Options{RewriteInterval: -1, MinFreeBytes: -1})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			u := store.NewFamily("u")
			u.Distinct = true
			if err := db.CreateTable(b.Context(), &store.TableDescriptor{Name: "stats", Families: []store.FamilyDescriptor{u}}, nil); err != nil {
				b.Fatal(err)
			}
			const events = 20_000
			n := 0
			for b.Loop() {
				var batch store.Batch
				for i := range events {
					n++
					m := cell.Mutation{Table: "stats", Row: fmt.Appendf(nil, "%d", n*7919%keys)}
					m.Ops = []cell.Op{{Type: cell.OpAppend, Family: "u", Qualifier: []byte("total"), Value: fmt.Appendf(nil, "user-%d", n%200_000), Time: cell.Timestamp(n)}}
					batch.Add(int64(i), m)
				}
				if err := db.Apply(b.Context(), &batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/events, "ns/event")
		})
	}
}
