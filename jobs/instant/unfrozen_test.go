package instant_test

import (
	"slices"
	"testing"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/store"
	"sluice/store/memstore"
)

// Gets is a store.Scanner: it has no row before the first and behind the last, and none
// after Close.
func TestGetsIsAScanner(t *testing.T) {
	t.Parallel()
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, row := range []string{"a", "b", "d"} {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		m.Put("f", []byte("q"), 1, []byte("v"))
		if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	u, err := instant.OpenUnfrozen(t.Context(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	keys := [][]byte{[]byte("a"), []byte("c"), []byte("d")}

	sc := u.Gets(t.Context(), &store.Scan{Table: "t"}, keys)
	if row := sc.Row(); row != nil {
		t.Errorf("Got %v before the first row", row)
	}
	var got []string
	for sc.Next() {
		got = append(got, string(sc.Row().Key))
	}
	if want := []string{"a", "d"}; !slices.Equal(got, want) || sc.Err() != nil {
		t.Errorf("Got %v, %v, want %v", got, sc.Err(), want)
	}
	if row := sc.Row(); row != nil {
		t.Errorf("Got %v behind the last row", row)
	}

	sc = u.Gets(t.Context(), &store.Scan{Table: "t"}, keys)
	if !sc.Next() {
		t.Fatal(sc.Err())
	}
	if err := sc.Close(); err != nil {
		t.Fatal(err)
	}
	if sc.Next() || sc.Row() != nil {
		t.Errorf("Got %v after Close", sc.Row())
	}
}
