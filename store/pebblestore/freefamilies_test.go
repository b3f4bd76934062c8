package pebblestore

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestFamiliesComeAndGo: a table takes more families in its life than there are numbers,
// as one whose counters are counted again every night does. What a family held is not in
// the one that has its number afterwards.
func TestFamiliesComeAndGo(t *testing.T) {
	t.Parallel()
	o := memory()
	reopen := func(db *DB) *DB {
		t.Helper()
		if db != nil {
			if err := db.Close(); err != nil {
				t.Fatal(err)
			}
		}
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := reopen(nil)
	defer func() { _ = db.Close() }()
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	mutate(t, db, put("r", 1, "f", "q", "kept"))
	alter := func(change func(d *store.TableDescriptor)) error {
		d, err := db.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		change(d)
		return db.AlterTable(t.Context(), d)
	}
	count := func(family string, n int64) {
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		m.Increment(family, []byte("c"), n)
		m.Ops[0].Time = 1
		mutate(t, db, m)
	}
	count("n", 1)
	for i := range 260 {
		if i%100 == 99 {
			db = reopen(db)
		}
		plain, counter := fmt.Sprintf("p%d", i), fmt.Sprintf("n~%d", i)
		if err := alter(func(d *store.TableDescriptor) {
			d.Families = append(d.Families, store.NewFamily(plain), counterFamily(counter))
		}); err != nil {
			t.Fatalf("family %d: %v", i, err)
		}
		want(t, db, &store.Scan{Table: "t", Columns: []store.Column{{Family: plain, All: true}, {Family: counter, All: true}}})
		mutate(t, db, put("r", 1, plain, "q", "v"))
		count(counter, int64(i+2))
		if i%2 == 0 {
			if err := db.ReplaceFamilies(t.Context(), []store.FamilyReplacement{{Table: "t", Family: "n", By: counter}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := alter(func(d *store.TableDescriptor) {
			d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == plain || f.Name == counter })
		}); err != nil {
			t.Fatal(err)
		}
		want(t, db, &store.Scan{Table: "t"}, fmt.Sprintf("r: f:q@1=kept n:c@1=%d", i/2*2+2))
	}
	// One process that makes so many says what frees them.
	var err error
	for i := 0; i < 300 && err == nil; i++ {
		if err = alter(func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("x")) }); err == nil {
			err = alter(func(d *store.TableDescriptor) {
				d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == "x" })
			})
		}
	}
	if !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "opened again") {
		t.Fatalf("Got %v. Want an error that says what frees the numbers", err)
	}
	db = reopen(db)
	if err := alter(func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("x")) }); err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t"}, "r: f:q@1=kept n:c@1=260")
}

// TestRemovedFamilyWithKeysKeepsItsNumber: where a key of a removed family is left, whatever
// has written it, no other family takes its number.
func TestRemovedFamilyWithKeysKeepsItsNumber(t *testing.T) {
	t.Parallel()
	o := memory()
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"), store.NewFamily("h"))
	old := db.catalog.Load().tables["t"]
	if err := db.AlterTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}); err != nil {
		t.Fatal(err)
	}
	g, _ := old.family("g")
	h, _ := old.family("h")
	if err := db.pebble.Set(append(cell.AppendFamilyPrefix(nil, cell.TagChange, old.id, g.id), 'x'), nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "db", o)
	if got := db.catalog.Load().tables["t"].removed; !slices.Equal(got, []uint8{g.id}) {
		t.Fatalf("Got removed families %d. Want %d alone, and not %d", got, g.id, h.id)
	}
}
