package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// rebuild counts again and switches, as often as it takes; interrupt returns what a try
// is cut off by.
func (h *house) rebuild(e rebuild.Engine, interrupt func(n int) context.Context) {
	h.t.Helper()
	for n := 1; ; n++ {
		ctx := interrupt(n)
		err := h.tryRebuild(ctx, e)
		if err == nil {
			return
		}
		late := errors.Is(err, store.ErrStale) // what the try before has sent came behind
		if ctx.Err() == nil && !late || n > 400 {
			h.t.Fatalf("rebuild, try %d: %v", n, err)
		}
	}
}

func (h *house) tryRebuild(ctx context.Context, e rebuild.Engine) error {
	r, err := rebuild.Open(ctx, &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e, BatchRecords: 15, Holder: store.RebuildHolder{TakeOver: true}})
	if err != nil {
		return err
	}
	if err := r.Count(ctx); err != nil {
		return err
	}
	all, err := r.Compare(ctx)
	if err != nil {
		return err
	}
	for i := range all {
		if !all[i].Same() {
			return r.Switch(ctx)
		}
	}
	return r.Discard(ctx)
}

// damage changes counts by hand: of a page that there is, and of one that there is not.
func (h *house) damage(e store.Engine) {
	h.t.Helper()
	for _, page := range []string{"/1", "/none"} {
		m := cell.Mutation{Table: "counts", Row: []byte(page)}
		m.Increment("c", []byte("views"), 1000)
		u := cell.Mutation{Table: "people", Row: []byte(page)}
		u.Append("u", []byte("users"), []byte("nobody"))
		for _, m := range []*cell.Mutation{&m, &u} {
			if _, err := e.MutateRow(h.t.Context(), nil, m); err != nil {
				h.t.Fatal(err)
			}
		}
	}
}

// redrive applies three of the poisoned records by rules that take them: each is a view
// of page /1 by nobody. undo is what becomes of them where the rules of the house count.
func (h *house) redrive(e store.Engine) (undo func()) {
	h.t.Helper()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "raw"},
		Rules: []mapping.RuleSpec{
			{Table: "counts", Row: `"/1"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"views"`}}},
			{Table: "people", Row: `"/1"`, Append: map[string]map[string]string{"u": {"users": `"nobody"`}}},
		},
	}, nil)
	if err != nil {
		h.t.Fatal(err)
	}
	const n = 3
	got, err := pipeline.Redrive(h.t.Context(), &pipeline.RedriveOptions{Engine: e, Plan: plan, Filter: pipeline.LetterFilter{Pipeline: "views"}, Limit: n})
	if err != nil || got.Applied != n {
		h.t.Fatalf("Got %+v, %v, want %d letters applied", got, err, n)
	}
	before := h.users["/1"]
	with := new(counters.Sketch)
	with.Merge(before)
	with.Add([]byte("nobody"))
	h.counts["/1"], h.users["/1"] = h.counts["/1"]+n, with
	return func() { h.counts["/1"], h.users["/1"] = h.counts["/1"]-n, before }
}

// limited checks that what is retired does not count where a scan is limited.
func (h *house) limited(e store.Engine) {
	h.t.Helper()
	sc := e.Scan(h.t.Context(), &store.Scan{Table: "counts", Limit: len(h.counts)})
	defer sc.Close()
	n := 0
	for sc.Next() {
		n++
	}
	if err := sc.Err(); err != nil || n != len(h.counts) {
		h.t.Errorf("Got %d rows, %v, of a scan of %d", n, err, len(h.counts))
	}
}

func whole(t *testing.T) func(int) context.Context {
	return func(int) context.Context { return t.Context() }
}

// TestRebuildOnHBase (I2): counts that are wrong are counted again and switched to, cut
// off at every call of the gateway, again and again in the middle of a stream whose
// pipeline is killed, and between moves from and to the embedded engine.
func TestRebuildOnHBase(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	g := newGateway(t, nil, false)
	e := dial(t, nil, g)
	h.tables(e)
	h.produce(60)
	h.ingest(e, 2)
	h.rebuild(e, whole(t)) // nothing differs
	h.check("counted again", e)
	h.damage(e)
	h.rebuild(e, func(n int) context.Context {
		return g.cutOff(t, n, fault{dropAfter: true}, "put", "putMultiple", "mutateRow", "checkAndMutate", "addColumnFamily", "modifyColumnFamily", "deleteColumnFamily", "increment")
	})
	g.inject(nil)
	h.check("rebuilt", e)
	h.produce(40)
	h.ingest(e, 2)
	h.check("ingested on", e)
	// What redrives have counted goes where the rules of today do not take it.
	undo := h.redrive(e)
	h.check("redriven", e)
	h.damage(e)
	h.rebuild(e, whole(t))
	undo()
	h.check("rebuilt again", e)
	undo = h.redrive(e)
	h.check("redriven again", e)
	h.damage(e)
	h.rebuild(e, whole(t))
	undo()
	h.check("rebuilt after two redrives", e)
	h.limited(e)
	h.zombie(e)
	h.check("beside a zombie", e)

	last := openPebble(t)
	h.move("back", e, last, whole(t))
	h.check("moved back", last)
	h.produce(20)
	h.ingest(last, 1)
	h.damage(last)
	h.rebuild(last, whole(t))
	h.check("rebuilt there", last)
	other := dial(t, nil, newGateway(t, nil, false))
	h.move("to HBase", last, other, whole(t))
	h.check("moved to HBase", other)
	h.damage(other)
	h.rebuild(other, whole(t))
	h.produce(20)
	h.ingest(other, 1)
	h.check("rebuilt on the new one", other)
}

// halfRebuilt returns a house whose damaged counts are counted again, cut off with f at
// the first call of method.
func halfRebuilt(t *testing.T, f fault, method string) (*house, *fakeGateway, *Store) {
	t.Helper()
	h := newHouse(t)
	g := newGateway(t, nil, false)
	e := dial(t, nil, g)
	h.tables(e)
	h.produce(30)
	h.ingest(e, 0)
	h.damage(e)
	if err := h.tryRebuild(g.cutOff(t, 1, f, method), e); err == nil {
		t.Fatalf("Got no error of a rebuild that was cut off at %s", method)
	}
	g.inject(nil)
	return h, g, e
}

// TestBatchesAmidSwitch: no batch is begun between the decision and the end.
func TestBatchesAmidSwitch(t *testing.T) {
	t.Parallel()
	h, e := decided(t)
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		p := &all[i]
		if p.Source.Pipeline != "views" {
			continue
		}
		next := p.Progress
		next.Next++
		var b store.Batch
		b.Advance(p.Source, p.Partition, p.Progress.Next, next)
		if err := e.Apply(t.Context(), &b); !errors.Is(err, store.ErrTransient) {
			t.Errorf("Got %v of a batch amid a switch, want ErrTransient", err)
		}
	}
	if _, err := e.Settled(t.Context()); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v of a copy amid a switch, want ErrRefused", err)
	}
	if err := rebuild.Discard(t.Context(), e, "views", &store.RebuildHolder{TakeOver: true}); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v of a discard amid a switch, want ErrRefused", err)
	}
	h.rebuild(e, whole(t))
	h.check("finished", e)
}

// TestRebuildWaitsForFamilies: a rebuild that goes on has its families altered once more
// before it writes to them, as HBase names families before all regions have them.
func TestRebuildWaitsForFamilies(t *testing.T) {
	t.Parallel()
	h, g, e := halfRebuilt(t, fault{dropAfter: true}, "addColumnFamily") // of the first family
	altered, written := 0, false
	g.inject(func(method string) fault {
		switch method {
		case "addColumnFamily", "modifyColumnFamily":
			if !written {
				altered++
			}
		case "put", "putMultiple":
			written = true
		}
		return fault{}
	})
	h.rebuild(e, whole(t))
	g.inject(nil)
	if altered != 2 { // the family that there was, and the other one
		t.Errorf("Got %d changes of tables before the first count, want 2", altered)
	}
	h.check("rebuilt", e)
}

// zombie writes what a process that has been frozen since before a rebuild still may: cells
// of sources that count no more.
func (h *house) zombie(s *Store) {
	h.t.Helper()
	n := 0
	for _, at := range [][2]string{{"counts", "c"}, {"people", "u"}} {
		rows, err := s.scanRows(h.t.Context(), at[0], []string{at[1]}, nil, 1000)
		if err != nil {
			h.t.Fatal(err)
		}
		var hs []*mutation
		for _, r := range rows {
			put := &hbase.TPut{Row: r.Row}
			for _, v := range r.ColumnValues {
				if _, source, _, _, err := decodeCounter(v.Qualifier, nil); err != nil || source == apiSource || len(v.Value) > 0 {
					continue
				}
				for _, time := range []int64{1, 1 << 50} {
					put.ColumnValues = append(put.ColumnValues, &hbase.TColumnValue{Family: v.Family, Qualifier: v.Qualifier, Value: appendCount(nil, count{77, 9}), Timestamp: &time})
				}
			}
			if n += len(put.ColumnValues); len(put.ColumnValues) > 0 {
				hs = append(hs, &mutation{table: at[0], row: r.Row, writes: []*hbase.TMutation{{Put: put}}})
			}
		}
		if err := errors.Join(s.write(h.t.Context(), hs)...); err != nil {
			h.t.Fatal(err)
		}
	}
	if n < 20 {
		h.t.Errorf("Got %d retired cells", n/2)
	}
}

// TestSwitchRefuses: what would lose counts is not switched to, and nothing is changed by
// the try.
func TestSwitchRefuses(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	e := dial(t, nil, newGateway(t, nil, false))
	h.tables(e)
	h.produce(60)
	h.ingest(e, 0)
	ctx := t.Context()
	open := func() *rebuild.Rebuild {
		t.Helper()
		r, err := rebuild.Open(ctx, &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e, Holder: store.RebuildHolder{TakeOver: true}})
		if err == nil {
			err = r.Count(ctx)
		}
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	// A letter is redriven by a process that does not know of the rebuild.
	r := open()
	undo := h.redrive(struct {
		store.Engine
		store.Journaler
	}{e, e})
	if err := r.Switch(ctx); !errors.Is(err, rebuild.ErrBehind) {
		t.Errorf("Got %v after a redrive, want ErrBehind", err)
	}
	if err := r.Discard(ctx); err != nil {
		t.Fatal(err)
	}
	h.check("not switched", e)
	if err := open().Switch(ctx); err != nil {
		t.Fatal(err)
	}
	undo()
	h.check("switched", e)
	// The pipeline goes on, by a process that was not stopped.
	h.damage(e)
	r = open()
	h.produce(10)
	h.ingest(e, 0)
	if err := r.Switch(ctx); !errors.Is(err, rebuild.ErrBehind) {
		t.Errorf("Got %v behind the pipeline, want ErrBehind", err)
	}
	if err := open().Switch(ctx); err != nil {
		t.Errorf("Got %v after the rest was counted", err)
	}
	h.check("switched again", e)
	// Another pipeline counts in the family.
	r = open()
	other := store.Source{Pipeline: "viewsters", Topic: "x"}
	var b store.Batch
	b.Counters = []store.CounterDelta{{Table: "counts", Family: "c", Row: []byte("/1"), Qualifier: []byte("views"), Delta: 1, Time: 5, Offset: 0}}
	b.Advance(other, 0, store.Absent, store.Progress{Next: 1, Applied: 1, MappingVersion: "v1"})
	if err := e.Apply(ctx, &b); err != nil {
		t.Fatal(err)
	}
	if err := r.Switch(ctx); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v of a family in which another pipeline counts, want ErrRefused", err)
	}
	hold := holding(t, e, "views")
	if err := hold.SwitchRebuild(ctx, "views~77", nil); !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v of a rebuild that was not begun, want ErrStale", err)
	}
	if err := hold.SwitchRebuild(ctx, "views~4", []store.FamilyReplacement{{Table: "raw", Family: "e"}}); !errors.Is(err, store.ErrInvalidSchema) {
		t.Errorf("Got %v of an ordinary family, want ErrInvalidSchema", err)
	}
}

// failing is an engine that takes so many batches, each whole.
type failing struct {
	*Store
	left atomic.Int64
}

func (e *failing) Apply(ctx context.Context, b *store.Batch) error {
	if e.left.Add(-1) < 0 {
		return store.ErrRefused
	}
	return e.Store.Apply(context.WithoutCancel(ctx), b)
}

// TestSwitchOfATopicMadeAnew: what a rebuild had counted of a topic before it was made anew is
// switched to, where the loss of the rest is accepted.
func TestSwitchOfATopicMadeAnew(t *testing.T) {
	t.Parallel()
	for batches := range 9 {
		h := newHouse(t)
		e := dial(t, nil, newGateway(t, nil, false))
		h.tables(e)
		h.produce(60)
		h.ingest(e, 0)
		ctx := t.Context()
		o := &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, BatchRecords: 5, AcceptLoss: true, Holder: store.RebuildHolder{TakeOver: true}}
		cut := &failing{Store: e}
		cut.left.Store(int64(batches))
		o.Engine = cut
		r, err := rebuild.Open(ctx, o)
		if err == nil {
			err = r.Count(ctx)
		}
		if !errors.Is(err, store.ErrRefused) {
			t.Fatalf("Got %v of a count that was cut off", err)
		}
		all, err := store.AllProgress(ctx, e)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]int64{}
		for i := range all {
			if all[i].Source.Pipeline != "views~1" {
				continue
			}
			for offset := range all[i].Progress.Next {
				if page, ok := h.rows[fmt.Sprintf("r%d-%d", all[i].Partition, offset)]; ok {
					want[page]++
				}
			}
		}
		cluster := h.broker.Cluster()
		if err := errors.Join(cluster.DeleteTopic("views"), cluster.CreateTopic("views", housePartitions, nil)); err != nil {
			t.Fatal(err)
		}
		o.Engine, o.RemoveUnused = e, true
		if r, err = rebuild.Open(ctx, o); err == nil {
			err = r.Count(ctx)
		}
		if err == nil {
			err = r.Switch(ctx)
		}
		if err != nil {
			t.Errorf("after %d batches: %v", batches, err)
			continue
		}
		got := map[string]int64{}
		sc := e.Scan(ctx, &store.Scan{Table: "counts"})
		for sc.Next() {
			got[string(sc.Row().Key)] = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
		}
		if d := cmp.Diff(want, got); d != "" || errors.Join(sc.Err(), sc.Close()) != nil {
			t.Errorf("after %d batches: %v (-counted +served):\n%s", batches, sc.Err(), d)
		}
	}
}

// FuzzDecodeNote: what is read back is what was written, and nothing else is an error
// that names itself.
func FuzzDecodeNote(f *testing.F) {
	n := note{rebuilt: "p~1", ended: "p~0", taken: 6, redrives: map[string]int64{"row": 4}, replacements: []store.FamilyReplacement{{Table: "t", Family: "n", By: "n~p~1"}}}
	f.Add(n.encode(), (&state{source: 3, revision: 4, next: 5, until: 5, becomes: 6, version: "m"}).encode())
	f.Add([]byte{}, []byte{2})
	f.Fuzz(func(t *testing.T, b, at []byte) {
		if n, err := decodeNote(b); err == nil && n.rebuilt != "" {
			again, err := decodeNote(n.encode())
			if d := cmp.Diff(n, again, cmp.AllowUnexported(note{})); err != nil || d != "" {
				t.Errorf("%v (-first +again):\n%s", err, d)
			}
		} else if err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Got %v", err)
		}
		if s, err := decodeState(at); err == nil && string(s.encode()) != string(at) {
			t.Errorf("Got %x of %x", s.encode(), at)
		}
	})
}
