package salted_test

import (
	"context"
	"fmt"

	"sluice/rowkey"
	"sluice/rowkey/salted"
	"sluice/store"
	"sluice/store/memstore"
)

// firstUsers writes users under salted keys and reads the first two of a prefix.
func firstUsers(ctx context.Context, engine store.Engine, users *store.Table) error {
	salt, err := rowkey.NewSalt(16)
	if err != nil {
		return err
	}
	for _, user := range []string{"user-1", "user-2", "user-3", "zoe"} {
		if err := users.Put(ctx, salt.Append(nil, []byte(user)), "f", []byte("name"), []byte(user)); err != nil {
			return err
		}
	}
	sc := salted.Scan(ctx, engine, &store.Scan{Table: "users", Prefix: []byte("user-"), Limit: 2}, salt)
	defer sc.Close()
	for sc.Next() {
		fmt.Printf("%s\n", sc.Row().Key)
	}
	return sc.Err()
}

func ExampleScan() {
	ctx := context.Background()
	engine, err := memstore.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer engine.Close()
	if err := engine.CreateTable(ctx, &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	users, err := store.OpenTable(ctx, engine, "users")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(firstUsers(ctx, engine, users))
	// Output:
	// user-1
	// user-2
	// <nil>
}
