package main

import (
	"errors"
	"strings"
	"testing"

	"sluice/jobs/tables"
	"sluice/store"
	"sluice/store/memstore"
)

// TestHalfStoreIsRefused: no pipeline begins in a store that is being copied into.
func TestHalfStoreIsRefused(t *testing.T) {
	t.Parallel()
	from, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	to, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := refuseHalf(t.Context(), to); err != nil {
		t.Errorf("an empty store: %v", err)
	}
	if err := from.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	snapshot, err := from.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	o := &tables.CopyStoreOptions{Source: snapshot, From: from, To: to, Checkpoint: "c", Compared: func(*tables.Comparison) {
		if err := refuseHalf(t.Context(), to); !errors.Is(err, store.ErrRefused) || !strings.Contains(err.Error(), "--resume") {
			t.Errorf("Got %v, want ErrRefused", err)
		}
	}}
	if _, err := tables.CopyStore(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	if err := refuseHalf(t.Context(), to); err != nil {
		t.Errorf("a whole copy: %v", err)
	}
}
