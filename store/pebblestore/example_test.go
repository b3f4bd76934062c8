package pebblestore_test

import (
	"context"
	"fmt"
	"os"

	"sluice/store"
	"sluice/store/pebblestore"
)

// What was acknowledged is in the directory when it is opened again.
func Example() {
	dir, err := os.MkdirTemp("", "sluice")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	for range 3 {
		if err := visit(context.Background(), dir); err != nil {
			fmt.Println(err)
		}
	}
	// Output:
	// visits: 1
	// visits: 2
	// visits: 3
}

// visit opens the store in dir, counts one visit of ann, and closes it.
func visit(ctx context.Context, dir string) (err error) {
	db, err := pebblestore.Open(dir, nil)
	if err != nil {
		return err
	}
	defer func() {
		if cerr := db.Close(); err == nil {
			err = cerr
		}
	}()
	counts := store.NewFamily("c")
	counts.Counter = true
	schema := &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{counts}}
	names, err := db.Tables(ctx)
	if err != nil {
		return err
	}
	if len(names) == 0 {
		if err := db.CreateTable(ctx, schema, nil); err != nil {
			return err
		}
	}
	users, err := store.OpenTable(ctx, db, "users")
	if err != nil {
		return err
	}
	n, err := users.Increment(ctx, []byte("ann"), "c", []byte("visits"), 1)
	if err != nil {
		return err
	}
	fmt.Println("visits:", n)
	return nil
}
