package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
)

// leftover counts in families in which the rules of the house count no more, beside one
// and in a table of its own, by the pipeline as it was before and through the API. It
// returns the rules of before.
func (h *house) leftover(e *Store) *mapping.Plan {
	h.t.Helper()
	ctx := h.t.Context()
	old, gone := store.NewFamily("old"), store.NewFamily("d")
	old.Counter, gone.Distinct = true, true
	d, err := e.Table(ctx, "counts")
	if err == nil {
		d = d.Clone()
		d.Families = append(d.Families, old)
		err = errors.Join(e.AlterTable(ctx, d), e.CreateTable(ctx, &store.TableDescriptor{Name: "gone", Families: []store.FamilyDescriptor{gone}}, nil))
	}
	if err != nil {
		h.t.Fatal(err)
	}
	src := h.source(e)
	src.Topic = "other" // that was the pipeline's, too
	b := &store.Batch{Counters: []store.CounterDelta{{Table: "counts", Family: "old", Row: []byte("/1"), Qualifier: []byte("n"), Delta: 5, Time: 7, Offset: 0}}}
	m := cell.Mutation{Table: "gone", Row: []byte("/1")}
	m.Append("d", []byte("n"), []byte("x"))
	m.Ops[0].Time = 7
	b.Add(0, m)
	b.Advance(src, 0, store.Absent, store.Progress{Next: 1, Applied: 1, LeaderEpoch: -1, MappingVersion: "v0"})
	if err := e.Apply(ctx, b); err != nil {
		h.t.Fatal(err)
	}
	for _, row := range []string{"/1", "/other"} {
		n, u := cell.Mutation{Table: "counts", Row: []byte(row)}, cell.Mutation{Table: "gone", Row: []byte(row)}
		n.Increment("old", []byte("n"), 7)
		u.Append("d", []byte("n"), []byte("y"))
		for _, m := range []*cell.Mutation{&n, &u} {
			if _, err := e.MutateRow(ctx, nil, m); err != nil {
				h.t.Fatal(err)
			}
		}
	}
	p, err := mapping.Compile(&mapping.Spec{Decode: mapping.DecodeSpec{Format: "json"}, Rules: []mapping.RuleSpec{
		{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "old", Qualifier: `"n"`}}},
		{Table: "gone", Row: "page", Append: map[string]map[string]string{"d": {"n": "user"}}},
	}}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	return p
}

// leftOver are the counters that leftover has made, by table and row.
func (h *house) leftOver(e store.Engine) (rows []string) {
	h.t.Helper()
	for _, at := range [][2]string{{"counts", "old"}, {"gone", "d"}} {
		sc := e.Scan(h.t.Context(), &store.Scan{Table: at[0], Columns: []store.Column{{Family: at[1], All: true}}})
		for sc.Next() {
			rows = append(rows, at[0]+string(sc.Row().Key))
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			h.t.Fatal(err)
		}
	}
	return rows
}

// TestRebuildRemovesUnused (I2): families in which nothing is counted any more are found,
// kept, and emptied where that is asked for, by a switch that is killed at each call that
// writes; a topic that the pipeline had before is refused, and given up where that is
// accepted. What is served besides is what the log says, then and afterwards.
func TestRebuildRemovesUnused(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := newGateway(t, nil, false)
	e := dial(t, nil, g)
	h.tables(e)
	h.produce(40)
	h.ingest(e, 1)
	h.damage(e)
	former := h.leftover(e)
	open := func(ctx context.Context, accept, remove bool) (*rebuild.Rebuild, error) {
		r, err := rebuild.Open(ctx, &rebuild.Options{
			Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e, BatchRecords: 15,
			AcceptLoss: accept, RemoveUnused: remove, Previous: []*mapping.Plan{former}, Holder: store.RebuildHolder{TakeOver: true},
		})
		if err == nil {
			err = r.Count(ctx)
		}
		return r, err
	}
	if _, err := open(t.Context(), false, false); !errors.Is(err, rebuild.ErrLogIncomplete) {
		t.Fatalf("Got %v of a topic that is not the pipeline's any more, want ErrLogIncomplete", err)
	}
	r, err := open(t.Context(), true, false)
	if err != nil {
		t.Fatal(err)
	}
	all, err := r.Compare(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var unused []string
	for _, c := range all {
		if c.Unused {
			unused = append(unused, fmt.Sprintf("%s %s %d", c.Table, c.Family, c.Missing))
		}
	}
	if d := cmp.Diff([]string{"counts old 2", "gone d 2"}, unused); d != "" {
		t.Errorf("unused (-want +got):\n%s", d)
	}
	if err := r.Switch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"counts/1", "counts/other", "gone/1", "gone/other"}, h.leftOver(e)); d != "" {
		t.Errorf("left over by a switch that keeps it (-want +got):\n%s", d)
	}
	if got := h.served(e); !cmp.Equal(got, h.counts) {
		t.Errorf("counts (-log +store):\n%s", cmp.Diff(h.counts, got))
	}

	h.damage(e)
	for n := 1; ; n++ {
		ctx := g.cutOff(t, n, fault{dropAfter: true}, "put", "putMultiple", "mutateRow", "checkAndMutate", "addColumnFamily", "modifyColumnFamily", "deleteColumnFamily", "increment")
		r, err := open(ctx, true, true)
		if err == nil {
			if err = r.Switch(ctx); err == nil {
				break
			}
		}
		if late := errors.Is(err, store.ErrStale); ctx.Err() == nil && !late || n > 400 {
			t.Fatalf("try %d: %v", n, err)
		}
	}
	g.inject(nil)
	// A try may have ended with the switch decided, whose next one found nothing to remove.
	if got := h.leftOver(e); len(got) > 0 {
		t.Errorf("Got %q after a switch that removes it", got)
	}
	if got := h.served(e); !cmp.Equal(got, h.counts) {
		t.Errorf("counts (-log +store):\n%s", cmp.Diff(h.counts, got))
	}
	// The family counts again where it is wanted.
	m := cell.Mutation{Table: "counts", Row: []byte("/other")}
	m.Increment("old", []byte("n"), 3)
	if res, err := e.MutateRow(t.Context(), nil, &m); err != nil || len(res.Cells) != 1 || res.Cells[0].Value[7] != 3 {
		t.Errorf("Got %+v, %v of an increment of what was removed, want 3", res.Cells, err)
	}
	if got := h.leftOver(e); !cmp.Equal(got, []string{"counts/other"}) {
		t.Errorf("Got %q, want what was incremented", got)
	}
	h.produce(20)
	h.ingest(e, 1)
	if got := h.served(e); !cmp.Equal(got, h.counts) {
		t.Errorf("counts of what came behind (-log +store):\n%s", cmp.Diff(h.counts, got))
	}
}
