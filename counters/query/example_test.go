package query_test

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/counters"
	"sluice/counters/query"
	"sluice/store"
	"sluice/store/memstore"
)

func Example() {
	ctx := context.Background()
	s, err := memstore.New(nil)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	table := &store.TableDescriptor{Name: "pageview_counts", Families: []store.FamilyDescriptor{store.NewFamily("day")}}
	table.Families[0].Counter = true
	if err := s.CreateTable(ctx, table, nil); err != nil {
		panic(err)
	}
	for page, views := range map[string]int64{"/": 40, "/about": 2, "/blog": 17} {
		m := &cell.Mutation{Table: "pageview_counts", Row: []byte(page)}
		m.Increment("day", []byte("20261121"), views)
		if _, err := s.MutateRow(ctx, nil, m); err != nil {
			panic(err)
		}
	}

	top, err := query.Top(ctx, s, "pageview_counts", cell.Range{}, "day", query.One([]byte("20261121")), 2)
	if err != nil {
		panic(err)
	}
	for _, page := range top {
		fmt.Printf("%s %d\n", page.Row, page.Count)
	}
	// Output:
	// / 40
	// /blog 17
}

func ExampleRollup() {
	ctx := context.Background()
	s, err := memstore.New(nil)
	if err != nil {
		panic(err)
	}
	defer s.Close()
	table := &store.TableDescriptor{Name: "stats", Families: []store.FamilyDescriptor{store.NewFamily("day")}}
	table.Families[0].Counter = true
	if err := s.CreateTable(ctx, table, nil); err != nil {
		panic(err)
	}
	from := cell.Timestamp(1431820800000) // 2015-05-17
	to := from + 86_400_000
	// As the rollups of a mapping do.
	for page, n := range map[string]int64{"/a": 40, "/b": 2, "/c": 17} {
		m := &cell.Mutation{Table: "stats", Row: []byte("views/country,page\x00DE\x00" + page)}
		m.Increment("day", []byte("20150517"), n)
		if _, err := s.MutateRow(ctx, nil, m); err != nil {
			panic(err)
		}
	}

	views := query.Rollup{Table: "stats", Rollup: counters.Rollup{Name: "views", Dimensions: []string{"country", "page"}}}
	top, err := views.Top(ctx, s, counters.Day, [][]byte{[]byte("DE")}, from, to, 10)
	if err != nil {
		panic(err)
	}
	for _, g := range top {
		fmt.Printf("%s %s %d\n", g.Values[0], g.Values[1], g.Count)
	}
	// Output:
	// DE /a 40
	// DE /c 17
	// DE /b 2
}
