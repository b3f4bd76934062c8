//go:build integration

package integration

import (
	"testing"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
)

// plainTable returns a snapshot of a table t of family f with the mutations, in two
// regions of which split begins the second, and its schema.
func plainTable(t *testing.T, split string, ms ...cell.Mutation) (store.Snapshot, *store.TableDescriptor) {
	t.Helper()
	s, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	schema := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := s.CreateTable(t.Context(), schema, [][]byte{[]byte(split)}); err != nil {
		t.Fatal(err)
	}
	for i := range ms {
		ms[i].Table = "t"
		if _, err := s.MutateRow(t.Context(), nil, &ms[i]); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { snapshot.Close() })
	return snapshot, schema
}
