package pebblestore

import (
	"fmt"
	"testing"

	"sluice/store"
)

// unhinted hides from a scan what a filter can say ahead: every row is read, and
// then dropped.
type unhinted struct{ store.Filter }

func (f unhinted) Start(s *store.Scan) (store.FilterState, error) {
	st, err := f.Filter.Start(s)
	return struct{ store.FilterState }{st}, err
}

// BenchmarkFilter scans 200,000 rows, USER-DAY of 2,000 users and 100 days with
// three columns each, with a filter that keeps few of them, with and without what
// the filter says ahead. ColumnPrefix wants 10 of the 20,000 columns of one more
// row.
func BenchmarkFilter(b *testing.B) {
	db := open(b, b.TempDir(), nil)
	create(b, db, "t", store.NewFamily("f"))
	var batch store.Batch
	const users, days, columns = 2000, 100, 20_000
	for u := range users {
		batch.Reset()
		for d := range days {
			batch.Add(0, *put(fmt.Sprintf("u%04d-d%03d", u, d), 1, "f", "views", "17", "bytes", "4711", "path", "/index.html"))
		}
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	for at := range columns / 100 {
		batch.Reset()
		for c := range 100 { // a put each, so that they are not packed
			batch.Add(0, *put("wide", 1, "f", fmt.Sprintf("q%06d", at*100+c), "0123456789abcdef"))
		}
		if err := db.Apply(b.Context(), &batch); err != nil {
			b.Fatal(err)
		}
	}
	if err := db.Flush(b.Context()); err != nil {
		b.Fatal(err)
	}
	mask := func(key string) []byte {
		m := make([]byte, len(key))
		for i := range key {
			if key[i] == '?' {
				m[i] = 1
			}
		}
		return m
	}
	pattern := "u????-d042"
	ranges := &store.MultiRowRangeFilter{}
	for u := 0; u < users; u += 20 {
		ranges.Ranges = append(ranges.Ranges, store.RowRange{Start: fmt.Appendf(nil, "u%04d-", u), Stop: fmt.Appendf(nil, "u%04d-d010", u)})
	}
	wide := store.Scan{Start: []byte("wide"), Stop: []byte("wide"), StopInclusive: true}
	for _, bench := range []struct {
		name   string
		scan   store.Scan
		filter store.Filter
		rows   int
	}{
		{"FuzzyRow", store.Scan{}, &store.FuzzyRowFilter{Pairs: []store.FuzzyPair{{Key: []byte(pattern), Mask: mask(pattern)}}}, users},
		{"MultiRowRange", store.Scan{}, ranges, users / 20 * 10},
		{"Prefix", store.Scan{}, &store.PrefixFilter{Prefix: []byte("u1999-")}, days},
		{"ColumnPrefix", wide, &store.ColumnPrefixFilter{Prefix: []byte("q01234")}, 1}, // 10 columns
		// The same rows as FuzzyRow's, by a filter that cannot seek: a step a row.
		{"RowFilter", store.Scan{}, &store.RowFilter{Op: store.Equal, Comparator: store.Comparator{Type: store.CompareBinaryComponent, Offset: 5, Value: []byte("-d042")}}, users},
	} {
		for _, how := range []struct {
			name   string
			filter store.Filter
		}{{"seeks", bench.filter}, {"reads", unhinted{bench.filter}}} {
			b.Run(bench.name+"/"+how.name, func(b *testing.B) {
				scan := bench.scan
				scan.Table, scan.Filter = "t", how.filter
				for b.Loop() {
					sc := db.Scan(b.Context(), &scan)
					rows := 0
					for sc.Next() {
						rows++
					}
					if err := sc.Err(); err != nil || rows != bench.rows {
						b.Fatalf("%d rows, %v, want %d", rows, err, bench.rows)
					}
					if err := sc.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
