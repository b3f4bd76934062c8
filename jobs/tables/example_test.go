package tables_test

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/jobs/tables"
	"sluice/store"
	"sluice/store/memstore"
)

// A table is copied, and then both are compared.
func Example() {
	if err := copyAndCompare(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// copied 2 rows
	// equal: true same: 2
	// equal: false same: 1
	// bob: u:city at 10, Put, "Rome", and u:city at 10, Put, "Pisa" on the right
}

func copyAndCompare(ctx context.Context) error {
	s, err := memstore.New(nil)
	if err != nil {
		return err
	}
	defer s.Close()
	for _, name := range []string{"users", "users_copy"} {
		if err := s.CreateTable(ctx, &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{store.NewFamily("u")}}, nil); err != nil {
			return err
		}
	}
	put := func(table, row, city string) error {
		m := cell.Mutation{Table: table, Row: []byte(row)}
		m.Put("u", []byte("city"), 10, []byte(city))
		_, err := s.MutateRow(ctx, nil, &m)
		return err
	}
	for row, city := range map[string]string{"ann": "Berlin", "bob": "Rome"} {
		if err := put("users", row, city); err != nil {
			return err
		}
	}
	users, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer users.Close()
	copied, err := tables.Copy(ctx, &tables.CopyOptions{Source: users, Table: "users", To: s, Into: "users_copy"})
	if err != nil {
		return err
	}
	fmt.Println("copied", copied.Rows, "rows")
	for range 2 {
		now, err := s.Snapshot(ctx)
		if err != nil {
			return err
		}
		c, err := tables.Compare(ctx, &tables.CompareOptions{Left: users, Right: now, LeftTable: "users", RightTable: "users_copy"})
		now.Close()
		if err != nil {
			return err
		}
		fmt.Println("equal:", c.Equal(), "same:", c.Same)
		for i := range c.Differences {
			fmt.Println(c.Differences[i].String())
		}
		if err := put("users_copy", "bob", "Pisa"); err != nil {
			return err
		}
	}
	return nil
}
