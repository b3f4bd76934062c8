package store_test

import (
	"context"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// newEngine returns an empty model engine whose clock stands still.
func newEngine() *memstore.Store {
	e, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return 1000 }})
	if err != nil {
		panic(err)
	}
	return e
}

func Example() {
	ctx := context.Background()
	e := newEngine()
	defer e.Close()

	events := store.NewFamily("e")
	events.Versions = 3
	if err := e.CreateTable(ctx, &store.TableDescriptor{Name: "users", Families: []store.FamilyDescriptor{events}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	users, err := store.OpenTable(ctx, e, "users")
	if err != nil {
		fmt.Println(err)
		return
	}

	m := users.NewMutation([]byte("ann"))
	m.Put("e", []byte("page"), 10, []byte("/home"))
	m.Put("e", []byte("page"), 20, []byte("/cart"))
	m.Increment("e", []byte("visits"), 2)
	if _, err := users.MutateRow(ctx, m); err != nil {
		fmt.Println(err)
		return
	}

	row, err := users.Get(ctx, []byte("ann"), &store.Scan{Versions: 2, Columns: []store.Column{{Family: "e", Qualifier: []byte("page")}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range row.Cells {
		fmt.Printf("%s:%s@%d = %s\n", c.Family, c.Qualifier, c.Time, c.Value)
	}
	visits, err := users.Increment(ctx, []byte("ann"), "e", []byte("visits"), 1)
	fmt.Println(visits, err)
	// Output:
	// e:page@20 = /cart
	// e:page@10 = /home
	// 3 <nil>
}

func ExampleTable_CheckAndPut() {
	ctx := context.Background()
	e := newEngine()
	defer e.Close()
	if err := e.CreateTable(ctx, &store.TableDescriptor{Name: "locks", Families: []store.FamilyDescriptor{store.NewFamily("l")}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	locks, err := store.OpenTable(ctx, e, "locks")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, owner := range []string{"ann", "bob"} {
		m := locks.NewMutation([]byte("nightly"))
		m.Put("l", []byte("owner"), cell.Latest, []byte(owner))
		// Value nil: where there is no owner yet.
		free := &store.Cond{Family: "l", Qualifier: []byte("owner"), Op: store.Equal}
		got, err := locks.CheckAndPut(ctx, []byte("nightly"), free, m)
		fmt.Println(owner, got, err)
	}
	// Output:
	// ann true <nil>
	// bob false <nil>
}

func ExampleTable_Rows() {
	ctx := context.Background()
	e := newEngine()
	defer e.Close()
	if err := e.CreateTable(ctx, &store.TableDescriptor{Name: "fruit", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	fruit, err := store.OpenTable(ctx, e, "fruit")
	if err != nil {
		fmt.Println(err)
		return
	}
	for row, color := range map[string]string{"apple": "green", "banana": "yellow", "cherry": "red", "lime": "green"} {
		if err := fruit.Put(ctx, []byte(row), "f", []byte("color"), []byte(color)); err != nil {
			fmt.Println(err)
			return
		}
	}
	green := &store.SingleColumnValueFilter{Family: "f", Qualifier: []byte("color"), Op: store.Equal, Comparator: store.Binary([]byte("green")), FilterIfMissing: true}
	for row, err := range fruit.Rows(ctx, &store.Scan{Filter: green, Reversed: true}) {
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(row.Key))
	}
	// Output:
	// lime
	// apple
}

func ExampleBufferedMutator() {
	ctx := context.Background()
	e := newEngine()
	defer e.Close()
	if err := e.CreateTable(ctx, &store.TableDescriptor{Name: "fruit", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	fruit, err := store.OpenTable(ctx, e, "fruit")
	if err != nil {
		fmt.Println(err)
		return
	}
	b, err := fruit.BufferedMutator(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, c := range []struct{ row, family, value string }{{"apple", "f", "green"}, {"pear", "g", "green"}, {"plum", "f", "blue"}} {
		m := fruit.NewMutation([]byte(c.row))
		m.Put(c.family, []byte("color"), cell.Latest, []byte(c.value))
		if err := b.Mutate(ctx, m); err != nil {
			fmt.Println(err)
			return
		}
	}
	there, err := fruit.Exists(ctx, []byte("plum"))
	fmt.Println("before Close:", there, err)
	var failed *store.BufferedError
	if err := b.Close(ctx); errors.As(err, &failed) {
		for _, f := range failed.Failed {
			fmt.Printf("%s: no such family: %v\n", f.Mutation.Row, errors.Is(f.Err, store.ErrFamilyNotFound))
		}
	}
	there, err = fruit.Exists(ctx, []byte("plum"))
	fmt.Println("after Close:", there, err)
	// Output:
	// before Close: false <nil>
	// pear: no such family: true
	// after Close: true <nil>
}

func ExampleBatch_Advance() {
	ctx := context.Background()
	e := newEngine()
	defer e.Close()
	if err := e.CreateTable(ctx, &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		fmt.Println(err)
		return
	}
	source := store.Source{Pipeline: "pages", Topic: "views"}
	for range 2 { // a batch delivered twice
		m := cell.Mutation{Table: "t", Row: []byte("r")}
		m.Put("f", []byte("q"), cell.Latest, []byte("v"))
		var b store.Batch
		b.Add(0, m)
		b.Advance(source, 0, store.Absent, store.Progress{Next: 1, Applied: 1})
		err := e.Apply(ctx, &b)
		fmt.Println(err == nil, errors.Is(err, store.ErrStale))
	}
	p, _, err := store.ReadProgress(ctx, e, &source, 0)
	fmt.Println(p.Next, err)
	// Output:
	// true false
	// false true
	// 1 <nil>
}
