package tables

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/store"
	"sluice/store/memstore"
)

// rowEngine is an engine whose batches are not atomic, and fail now and then in the
// middle.
type rowEngine struct {
	store.Engine
	mem     *memstore.Store
	batches int
}

var errBroken = errors.New("the connection broke")

func (e *rowEngine) Traits() store.Traits { return store.Traits{Name: "rows", Atomic: store.AtomicRow} }

func (e *rowEngine) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Records)+len(b.Counters)+len(b.Advances) > 0 {
		return store.ErrUnsupported
	}
	e.batches++
	for i := range b.Mutations {
		if e.batches%3 == 0 && i == len(b.Mutations)/2 {
			return errBroken
		}
		if _, err := e.mem.MutateRow(ctx, nil, &b.Mutations[i].Mutation); err != nil {
			return err
		}
	}
	return nil
}

// TestCopyIntoRows: a copy into an engine whose batches are not atomic, cut off in the
// middle of batches again and again, is the table, markers and all; its counters are
// refused.
func TestCopyIntoRows(t *testing.T) {
	t.Parallel()
	from, to := jobstest.OpenMemory(t, "b", "c", "d"), jobstest.OpenMemory(t, "b", "c", "d")
	for _, row := range []string{"a1", "a2", "a3", "b1", "c1", "c2", "d1"} {
		jobstest.Mutate(t, from, "t", row, jobstest.PutOp("f", "q", 1, "old"))
		jobstest.Mutate(t, from, "t", row, jobstest.PutOp("f", "q", 2, "new"))
	}
	m := cell.Mutation{Table: "t", Row: []byte("a2")}
	m.DeleteColumn("f", []byte("q"), 1)
	m.DeleteFamily("f", 1)
	if _, err := from.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	e := &rowEngine{Engine: to, mem: to}
	u := openUnfrozen(t, from)
	o := &CopyOptions{Source: u, Table: "t", To: e, Into: "t", Families: []string{"f"}, Checkpoint: u.Name(), Parallelism: 1, chunkBytes: 30}
	_, err := Copy(t.Context(), o)
	for cuts := 0; err != nil; cuts++ {
		if !errors.Is(err, errBroken) || cuts > 20 {
			t.Fatal(err)
		}
		o.Resume = true
		_, err = Copy(t.Context(), o)
	}
	if e.batches < 4 {
		t.Fatalf("Got %d batches, none of which was cut off", e.batches)
	}
	r, err := Compare(t.Context(), &CompareOptions{Left: u, Right: openUnfrozen(t, to), LeftTable: "t", Families: []string{"f"}, Raw: true})
	if err != nil || !r.Equal() || r.Same != 7 {
		t.Errorf("Got %+v and %v, want 7 rows that are the same", r, err)
	}
	o.Families, o.Resume = nil, false
	if _, err := Copy(t.Context(), o); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "family n is COUNTER") {
		t.Errorf("Got %v, want ErrUnsupported for counters", err)
	}
}

func openUnfrozen(t *testing.T, e store.Engine) *instant.Unfrozen {
	t.Helper()
	u, err := instant.OpenUnfrozen(t.Context(), e, nil)
	if err != nil {
		t.Fatal(err)
	}
	return u
}
