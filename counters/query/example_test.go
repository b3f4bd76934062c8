package query_test

import (
	"context"
	"fmt"

	"sluice/cell"
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
