package api_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/serve/api"
	"sluice/store"
)

// What a client sends is what the server applies.
func TestMutationTravels(t *testing.T) {
	t.Parallel()
	full := cell.Mutation{Table: "t", Row: []byte("r"), Read: &cell.TimeRange{Min: 1, Max: 9}, Durability: cell.SkipWAL}
	full.Put("f", []byte("q"), 5, []byte("v"))
	full.Increment("f", []byte("n"), -2)
	full.Ops[0].TTL, full.Ops[1].TTL = cell.NoLife, 7
	for _, want := range []cell.Mutation{
		full,
		{Table: "t", Row: []byte{0}, Ops: []cell.Op{{Type: cell.OpDeleteRow, Time: cell.Latest}}},
		{Table: "t", Row: []byte("r"), Ops: []cell.Op{}, Durability: cell.FsyncWAL},
	} {
		sent := api.FromMutation(&want)
		got, err := sent.Cell()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("mutation (-sent +applied):\n%s", diff)
		}
	}
	unknown := api.FromMutation(&cell.Mutation{Row: []byte("r"), Durability: cell.FsyncWAL + 1})
	if _, err := unknown.Cell(); err == nil || err.Error() == "" {
		t.Errorf("an unknown durability %q is taken", unknown.Durability)
	}
}

// What HBase's gateway did not answer is as unknown to the daemon's clients.
func TestUnknownOutcomeTravels(t *testing.T) {
	t.Parallel()
	e, _ := api.FromError(fmt.Errorf("increment t: %w: %w", store.ErrUnknownOutcome, context.DeadlineExceeded))
	if !errors.Is(e, store.ErrUnknownOutcome) || !errors.Is(e, context.DeadlineExceeded) || errors.Is(e, store.ErrTransient) {
		t.Errorf("Got %+v", e)
	}
}

// Whoever sends a batch through the daemon of an HBase is told what of it was applied.
func TestPartialErrorTravels(t *testing.T) {
	t.Parallel()
	e, _ := api.FromError(fmt.Errorf("apply batch: %w", &store.PartialError{Applied: 2, Failed: []store.Refusal{
		{Offset: 1, Table: "t", Row: []byte("r"), Err: fmt.Errorf("%w: busy", store.ErrTransient)},
		{Offset: 3, Table: "t", Row: []byte("s"), Err: fmt.Errorf("%w: lost", store.ErrUnknownOutcome)},
	}}))
	body, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var got api.Error
	if err := json.Unmarshal(body, &got); err != nil {
		t.Fatal(err)
	}
	var partial *store.PartialError
	if !errors.As(&got, &partial) || partial.Applied != 2 || len(partial.Failed) != 2 {
		t.Fatalf("Got %s", body)
	}
	if f := partial.Failed[0]; f.Offset != 1 || string(f.Row) != "r" || !errors.Is(f.Err, store.ErrTransient) || errors.Is(f.Err, store.ErrUnknownOutcome) {
		t.Errorf("Got %+v", f)
	}
	if f := partial.Failed[1]; f.Offset != 3 || !errors.Is(f.Err, store.ErrUnknownOutcome) || errors.Is(f.Err, store.ErrTransient) {
		t.Errorf("Got %+v", f)
	}
}
