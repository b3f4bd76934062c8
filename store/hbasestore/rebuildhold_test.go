package hbasestore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/pipeline/rebuild"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

func (h *house) openRebuild(e *Store, holder store.RebuildHolder) (*rebuild.Rebuild, error) {
	return rebuild.Open(h.t.Context(), &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e, BatchRecords: 15, Holder: holder})
}

// TestOneRebuildAtATime: of two rebuilds of a pipeline the second one is told who has the
// first, until that has ended or is taken over from; what that still does is refused.
func TestOneRebuildAtATime(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := newGateway(t, nil, false)
	e, other := dial(t, nil, g), dial(t, nil, g)
	h.tables(e)
	h.produce(40)
	h.ingest(e, 0)
	h.damage(e)
	first, err := h.openRebuild(e, store.RebuildHolder{Name: "the first"})
	if err != nil {
		t.Fatal(err)
	}
	refused := func(what string, err error, text string) {
		t.Helper()
		if !errors.Is(err, store.ErrHeld) || !errors.Is(err, store.ErrRefused) || errors.Is(err, rebuild.ErrBehind) || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: Got %v, want ErrHeld with %q", what, err, text)
		}
	}
	_, err = h.openRebuild(other, store.RebuildHolder{Name: "the second"})
	refused("a second one", err, "the first holds its rebuilds")
	refused("its advice", err, "--take-over")
	refused("a discard", rebuild.Discard(t.Context(), other, "views", &store.RebuildHolder{}), "the first holds its rebuilds")
	second, err := h.openRebuild(other, store.RebuildHolder{Name: "the second", TakeOver: true})
	if err != nil {
		t.Fatal(err)
	}
	refused("the first one's count", first.Count(t.Context()), "the second has taken its rebuilds over")
	if err := second.Count(t.Context()); err != nil {
		t.Fatal(err)
	}
	refused("its switch", first.Switch(t.Context()), "the second has taken its rebuilds over")
	refused("its discard", first.Discard(t.Context()), "the second has taken its rebuilds over")
	if err := first.Close(t.Context()); err != nil {
		t.Errorf("Got %v of who has nothing to give back", err)
	}
	if err := second.Switch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := second.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.check("switched by the second one", other)
	h.damage(e)
	third, err := h.openRebuild(e, store.RebuildHolder{Name: "the third"}) // nobody has them
	if err == nil {
		err = third.Count(t.Context())
	}
	if err == nil {
		err = third.Switch(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	h.check("switched by the third one", e)
}

// TestReleasedWhereItFails: who cannot begin a rebuild does not hold it, nor who was
// cancelled.
func TestReleasedWhereItFails(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := newGateway(t, nil, false)
	e := dial(t, nil, g)
	h.tables(e)
	h.produce(20)
	h.ingest(e, 0)
	ctx := g.cutOff(t, 2, fault{}, "getScannerResults") // of partitions
	if _, err := rebuild.Open(ctx, &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e}); err == nil {
		t.Fatal("Got no error of a rebuild that was cut off")
	}
	g.inject(nil)
	ctx, stop := context.WithCancel(t.Context())
	r, err := rebuild.Open(ctx, &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e})
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := r.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := h.openRebuild(e, store.RebuildHolder{}); err != nil {
		t.Error(err)
	}
}

// TestLateMark: who was frozen just before it marks a partition for a switch, and wakes
// when another one has taken over and ended, marks nothing: the pipeline goes on.
func TestLateMark(t *testing.T) {
	t.Parallel()
	h, e, replacements := recounted(t)
	frozen := false
	w := h.switcher(e, func(call, table string, _ []string) error {
		if call != "check" || table != store.OffsetsTable || frozen {
			return nil
		}
		frozen = true
		return holding(t, e, "views").Release(t.Context())
	})
	if err := w.decide(t.Context(), "views~1", replacements); !errors.Is(err, store.ErrHeld) || !frozen {
		t.Errorf("Got %v, want ErrHeld", err)
	}
	all, err := w.partitions(t.Context(), "views~1")
	if err != nil || len(all) != housePartitions {
		t.Fatal(all, err)
	}
	for _, p := range all {
		if p.state.becomes != 0 {
			t.Fatalf("partition %v is marked", p)
		}
	}
	damaged := h.served(e)
	h.produce(20)
	h.ingest(e, 0)
	if got := h.served(e); got["/1"] < damaged["/1"] {
		t.Errorf("Got %v after %v", got, damaged)
	}
	h.rebuild(e, whole(t))
	h.check("rebuilt", e)
}

// TestLateFamilies: families that a rebuild has made which had ended, or that it still
// drops, are in nobody's way, and the next rebuild drops them.
func TestLateFamilies(t *testing.T) {
	t.Parallel()
	h, e, replacements := recounted(t)
	if err := rebuild.Discard(t.Context(), e, "views", &store.RebuildHolder{TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	makeReplacements(t, e, replacements) // by who was frozen
	if err := holding(t, e, "views").BeginRebuild(t.Context(), "views~1"); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v of a number that was used, want ErrRefused", err)
	}
	r, err := h.openRebuild(e, store.RebuildHolder{TakeOver: true})
	if err == nil {
		err = r.Count(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"counts", "people"} {
		d, err := e.Table(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Families {
			if name := d.Families[i].Name; strings.HasSuffix(name, "~views~1") || len(d.Families) != 2 {
				t.Errorf("table %s has family %s, of %d", table, name, len(d.Families))
			}
		}
	}
	if err := r.Switch(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.check("rebuilt", e)
}

// TestDecidedByOlderProgram: a switch that a program before owners has decided is carried
// out, with what it has noted of the API's counts.
func TestDecidedByOlderProgram(t *testing.T) {
	t.Parallel()
	h, e := decided(t)
	j := &journal{x: e.exact, source: &store.Source{Pipeline: "views" + switcherSuffix}}
	s, entry, err := j.load(t.Context())
	if err != nil || !s.pending() {
		t.Fatal(s, err)
	}
	n, err := decodeNote(entry)
	if err != nil || n.taken != int64(s.revision)-1 {
		t.Fatalf("Got %+v, %v", n, err)
	}
	n.taken = 0
	before := s
	s.switches, s.owner = false, ""
	at := int64(s.revision)
	var put []*hbase.TColumnValue
	for qualifier, value := range map[string][]byte{stateQualifier: s.encode(), entryQualifier: n.encode()} {
		put = append(put, &hbase.TColumnValue{Family: []byte(journalsFamily), Qualifier: []byte(qualifier), Value: value, Timestamp: &at})
	}
	if ok, err := e.checkAndPut(t.Context(), journalsTable, j.row(), journalsFamily, stateQualifier, before.encode(), put); !ok || err != nil {
		t.Fatal(ok, err)
	}
	h.rebuild(e, whole(t)) // takes the hold twice, and so changes the revision
	h.check("finished", e)
}

// TestReleasedUnmarks: where a switch is refused after some partitions were marked, these go on
// when the command ends, and not when somebody gives the next one.
func TestReleasedUnmarks(t *testing.T) {
	t.Parallel()
	s, hold, replacements := countedAgain(t)
	x := [2]string{"a", "x"}
	if err := s.Apply(t.Context(), increments(1, store.Absent, "v1", x)); err != nil {
		t.Fatal(err)
	}
	if err := hold.SwitchRebuild(t.Context(), "views~1", replacements); !errors.Is(err, store.ErrStale) {
		t.Fatalf("Got %v, want ErrStale of partition 1", err)
	}
	if err := s.Apply(t.Context(), increments(0, 2, "v1", x)); !errors.Is(err, store.ErrTransient) {
		t.Fatalf("Got %v while it is marked, want ErrTransient", err)
	}
	if err := hold.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), increments(0, 2, "v1", x)); err != nil {
		t.Error(err)
	}
}
