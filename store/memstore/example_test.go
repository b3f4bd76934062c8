package memstore_test

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// A store whose clock is the test's: a cell expires when its time has come.
func Example() {
	ctx := context.Background()
	now := cell.Timestamp(1_000)
	s, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer s.Close()
	sessions := store.NewFamily("s")
	sessions.TTL = 60 // seconds; times are milliseconds
	if err := s.CreateTable(ctx, &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{sessions}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	m := cell.Mutation{Table: "users", Row: []byte("ann")}
	m.Put("s", []byte("cart"), cell.Latest, []byte("3 books"))
	if _, err := s.MutateRow(ctx, nil, &m); err != nil {
		fmt.Println(err)
		return
	}
	for _, now = range []cell.Timestamp{61_000, 61_001} {
		sc := s.Scan(ctx, &store.Scan{Table: "users"})
		rows := 0
		for sc.Next() {
			rows++
		}
		fmt.Println(now, rows, sc.Err())
		sc.Close()
	}
	// Output:
	// 61000 1 <nil>
	// 61001 0 <nil>
}
