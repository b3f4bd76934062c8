package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"sluice/cell"
	"sluice/counters"
	"sluice/internal/thinned"
	"sluice/jobs/history"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/schedule"
	"sluice/jobs/target"
	"sluice/store"
	"sluice/store/memstore"
)

// houseSource is a store with tables of all kinds, letters of two pipelines, and offsets.
func houseSource(t *testing.T) *memstore.Store {
	t.Helper()
	e := jobstest.NewEngine(t)
	f, n, o := store.NewFamily("f"), store.NewFamily("n"), store.NewFamily("o")
	u := store.NewFamily("u")
	f.Versions, n.Counter, o.NewVersionBehavior, u.Distinct = 3, true, true, true
	if err := e.CreateNamespace(t.Context(), &store.Namespace{Name: "ns", Properties: map[string]string{"k": "v"}}); err != nil {
		t.Fatal(err)
	}
	for _, d := range []*store.TableDescriptor{
		{Name: "t", Families: []store.FamilyDescriptor{f, n, o, u}},
		{Name: "ns:plain", Families: []store.FamilyDescriptor{f}},
	} {
		if err := e.CreateTable(t.Context(), d, [][]byte{[]byte("b"), []byte("c")}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 12 {
		row := fmt.Sprintf("%c%d", 'a'+i%4, i)
		jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "x", 1, "old"))
		jobstest.Mutate(t, e, "t", row, jobstest.PutOp("f", "x", 2, "new"))
		jobstest.Mutate(t, e, "t", row, jobstest.PutOp("o", "x", 5, "in order"))
		jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: cell.Timestamp(100 + i), Delta: int64(i + 1)})
		for user := range i % 3 {
			jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpAppend, Family: "u", Qualifier: []byte("c"), Time: cell.Timestamp(100 + i - user), Value: fmt.Append(nil, user)})
		}
		jobstest.Mutate(t, e, "ns:plain", row, jobstest.PutOp("f", "x", 3, "p"))
		if i%3 == 0 {
			jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("x"), Time: 2})
			jobstest.Mutate(t, e, "t", row, cell.Op{Type: cell.OpDeleteColumn, Family: "o", Qualifier: []byte("x"), Time: 4})
		}
	}
	for _, row := range []string{"p\x00\x01t", "p\x00\x01u", "q\x00\x01t", store.OutboxCounts + "p\x00\x01t"} {
		jobstest.Mutate(t, e, store.OutboxTable, row, jobstest.PutOp(store.OutboxFamily, "value", 7, "letter "+row))
	}
	kept, err := history.New(e)
	if err != nil {
		t.Fatal(err)
	}
	for job, s := range houseSchedules() {
		if err := kept.Save(t.Context(), job, s, []schedule.Entry{{Logical: s.Decided, Result: schedule.OK, Count: 1, Ended: time.Now().Truncate(time.Second)}}); err != nil {
			t.Fatal(err)
		}
	}
	var b store.Batch
	for i, name := range []string{"p", "q"} {
		b.Advance(store.Source{Pipeline: name, Topic: "t", ClusterID: "c", TopicID: [16]byte{byte(i), 9}}, int32(i), store.Absent, store.Progress{
			First: 3, Next: 20, LeaderEpoch: 4, LastOffset: 18, LastTime: 1234, Fingerprint: 1 << 63, MappingVersion: "v" + name, MappingFrom: 11,
			Applied: 5, Filtered: 1, Duplicate: 2, Unmet: 3, Dead: 2, Control: 1, Lost: 2, Dropped: 1,
		})
	}
	if err := e.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return e
}

// houseSchedules are the states of the schedules of houseSource.
func houseSchedules() map[string]schedule.State {
	decided := time.Date(2030, 1, 2, 3, 4, 0, 0, time.UTC)
	return map[string]schedule.State{
		"nightly": {
			Decided: decided, Pending: []schedule.Run{{Logical: decided.Add(-time.Hour), Cause: schedule.CatchUp}}, Failures: 2,
			Orders: []schedule.Order{{ID: "0123456789ab", Cause: schedule.Manual, From: decided}}, Results: map[string]int64{schedule.OK: 7},
		},
		"stopped": {Decided: decided.Add(time.Minute), Paused: true},
	}
}

// frozenAt is the options of a copy of e, whose instant is found again.
func frozenAt(t *testing.T, e *memstore.Store, to Store) *CopyStoreOptions {
	t.Helper()
	return &CopyStoreOptions{Source: jobstest.SnapshotOf(t, e), From: e, To: to, Checkpoint: "c", Parallelism: 1, chunkBytes: 60}
}

var errDied = errors.New("killed")

// dying is an engine of a process that is killed before or after one of its writes.
type dying struct {
	*memstore.Store
	rows   bool // batches are not atomic
	writes int  // that are left
	after  bool
}

func (e *dying) Traits() store.Traits {
	if e.rows {
		return store.Traits{Name: "rows", Atomic: store.AtomicRow}
	}
	return e.Store.Traits()
}

func (e *dying) write(f func() error) error {
	e.writes--
	switch {
	case e.writes == 0 && e.after:
		return errors.Join(f(), errDied)
	case e.writes <= 0:
		return errDied
	}
	return f()
}

func (e *dying) Apply(ctx context.Context, b *store.Batch) error {
	if e.rows && len(b.Records)+len(b.Counters) > 0 {
		return store.ErrUnsupported
	}
	return e.write(func() error { return e.Store.Apply(ctx, b) })
}

func (e *dying) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (r store.Result, err error) {
	err = e.write(func() error { r, err = e.Store.MutateRow(ctx, cond, m); return err })
	return r, err
}

func (e *dying) CreateTable(ctx context.Context, d *store.TableDescriptor, splits [][]byte) error {
	return e.write(func() error { return e.Store.CreateTable(ctx, d, splits) })
}

func (e *dying) SetCounters(ctx context.Context, ms []cell.Mutation) error {
	return e.write(func() error {
		for _, m := range ms {
			for _, o := range m.Ops {
				var n int64
				for _, c := range o.Value {
					n = n<<8 | int64(c)
				}
				set := cell.Mutation{Table: m.Table, Row: m.Row}
				set.DeleteColumn(o.Family, o.Qualifier, cell.Latest)
				if counters.IsSketch(o.Value) {
					s, err := counters.DecodeSketch(o.Value)
					if err != nil {
						return err
					}
					for text := range s.Elements() {
						set.Ops = append(set.Ops, cell.Op{Type: cell.OpAppend, Family: o.Family, Qualifier: o.Qualifier, Time: o.Time, Value: bytes.Clone(text)})
					}
					if _, err := e.Store.MutateRow(ctx, nil, &set); err != nil {
						return err
					}
					continue
				}
				set.Ops = append(set.Ops, cell.Op{Type: cell.OpIncrement, Family: o.Family, Qualifier: o.Qualifier, Time: o.Time, Delta: n})
				if _, err := e.Store.MutateRow(ctx, nil, &set); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// sameStores compares what two stores have, raw where that is told.
func sameStores(t *testing.T, left, right *memstore.Store) {
	t.Helper()
	if err := CompareStores(t.Context(), frozenAt(t, left, right)); err != nil {
		t.Error(err)
	}
	for _, table := range []string{"t", "ns:plain"} {
		r, err := Compare(t.Context(), &CompareOptions{Left: jobstest.SnapshotOf(t, left), Right: jobstest.SnapshotOf(t, right), LeftTable: table, Families: []string{"f"}, Raw: true})
		if err != nil || !r.Equal() || r.Same != 12 {
			t.Errorf("%s, raw: Got %+v, %v, want 12 rows that are the same", table, r, err)
		}
		from, err := left.Regions(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		to, err := right.Regions(t.Context(), table)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(from.Splits(), to.Splits()); d != "" {
			t.Errorf("%s: regions (-want +got):\n%s", table, d)
		}
	}
	for job, want := range houseSchedules() {
		got, err := history.State(t.Context(), right, job)
		if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" || err != nil {
			t.Errorf("schedule of %s: %v, (-want +got):\n%s", job, err, d)
		}
		was, err := history.Entries(t.Context(), left, job, 10)
		if err != nil || len(was) != 1 {
			t.Errorf("Got %+v, %v", was, err)
		}
		is, err := history.Entries(t.Context(), right, job, 10)
		if d := cmp.Diff(was, is); d != "" || err != nil {
			t.Errorf("history of %s: %v (-want +got):\n%s", job, err, d)
		}
	}
	one, err := store.AllProgress(t.Context(), left)
	if err != nil {
		t.Fatal(err)
	}
	other, err := store.AllProgress(t.Context(), right)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(one, other); d != "" || len(one) != 2 {
		t.Errorf("Offsets (-want +got):\n%s", d)
	}
}

// TestCopyStoreKilled kills a copy of a store at each of its writes, before and after
// it, in a store whose batches are atomic and one whose are not, and goes on: the copy
// is the store, and before its end no offset is there.
func TestCopyStoreKilled(t *testing.T) {
	t.Parallel()
	source := houseSource(t)
	step := thinned.Of(1, 4)
	for _, rows := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for die := 1; ; die += step {
				to := &dying{Store: jobstest.NewEngine(t), rows: rows, after: after, writes: die}
				o := frozenAt(t, source, to)
				done, err := CopyStore(t.Context(), o)
				whole := err == nil
				for n := 1; err != nil; n++ {
					if !errors.Is(err, errDied) || n > 3 {
						t.Fatalf("rows %t, died %d times at %d: %v", rows, n, die, err)
					}
					_, readErr := ReadStoreCopy(t.Context(), to)
					switch {
					case readErr == nil:
						o.Resume = true
					case !errors.Is(readErr, target.ErrNotFound):
						t.Fatal(readErr)
					default:
						o.Resume = false
						if stored, err := store.AllProgress(t.Context(), to); err != nil || len(stored) == 2 { // it died when it was whole
							err = errors.Join(err)
							if err != nil {
								t.Fatal(err)
							}
							to.writes = 1 << 30
						}
					}
					if to.writes == 1<<30 {
						break
					}
					if to.writes = 1 << 30; n == 1 {
						to.writes = die // once more, somewhere behind
					}
					done, err = CopyStore(t.Context(), o)
				}
				if err == nil && (done.Rows != 24 || done.Cells != 64 || done.Letters != 3 || done.Tables != 2) {
					t.Errorf("Got %+v, want all that was copied, by whichever call, once", done)
				}
				sameStores(t, source, to.Store)
				if _, err := ReadStoreCopy(t.Context(), to); !errors.Is(err, target.ErrNotFound) {
					t.Errorf("died at %d: Got %v of a copy that is whole", die, err)
				}
				if t.Failed() {
					t.Fatalf("rows %t, after %t, died at %d", rows, after, die)
				}
				if whole {
					if die < 20 {
						t.Errorf("Got %d writes in all", die)
					}
					break
				}
			}
		}
	}
}

// restless is an engine that cannot freeze an instant, and whose mark changes.
type restless struct {
	*jobstest.Thawed
	store.Admin
	store.Namespacer
	mark    string
	unready error
}

func (e *restless) Settled(context.Context) (string, error) { return e.mark, e.unready }

// picky is an engine that holds no table.
type picky struct{ *memstore.Store }

func (e *picky) CheckSchema(t *store.TableDescriptor) error {
	return fmt.Errorf("%w: not %s", store.ErrInvalidSchema, t.Name)
}

// TestCopyStoreChecksSchemas: what To cannot hold is refused before anything is written,
// all of it.
func TestCopyStoreChecksSchemas(t *testing.T) {
	t.Parallel()
	source, to := houseSource(t), jobstest.NewEngine(t)
	names, err := source.Tables(t.Context())
	if err != nil || len(names) < 2 {
		t.Fatal(names, err)
	}
	_, err = CopyStore(t.Context(), frozenAt(t, source, &picky{to}))
	if !errors.Is(err, store.ErrInvalidSchema) {
		t.Errorf("Got %v", err)
	}
	for _, name := range names {
		if !strings.Contains(fmt.Sprint(err), "not "+name) {
			t.Errorf("Got %v, want %s in it", err, name)
		}
	}
	if _, err := ReadStoreCopy(t.Context(), to); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v: a copy was begun", err)
	}
}

// TestCopyStoreRefuses what would count twice, or not at all, and says why.
func TestCopyStoreRefuses(t *testing.T) {
	t.Parallel()
	source := houseSource(t)
	refused := func(name string, o *CopyStoreOptions, want error, text string) {
		t.Helper()
		if _, err := CopyStore(t.Context(), o); !errors.Is(err, want) || !strings.Contains(fmt.Sprint(err), text) {
			t.Errorf("%s: Got %v, want %v, %q", name, err, want, text)
		}
	}
	to := jobstest.NewEngine(t)
	var b store.Batch
	b.Advance(store.Source{Pipeline: "q", Topic: "other"}, 0, store.Absent, store.Progress{LastOffset: -1})
	if err := to.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	refused("offsets", frozenAt(t, source, to), store.ErrRefused, "holds offsets of pipeline q")
	if names, err := to.Tables(t.Context()); err != nil || len(names) > 0 {
		t.Errorf("Got %v, %v: something was written", names, err)
	}
	resumed := func(to Store) *CopyStoreOptions {
		o := frozenAt(t, source, to)
		o.Resume = true
		return o
	}
	refused("nothing to resume", resumed(to), target.ErrNotFound, "no copy of a store was cut off here")
	to = jobstest.NewEngine(t)
	if _, err := CopyStore(t.Context(), frozenAt(t, source, to)); err != nil {
		t.Fatal(err)
	}
	refused("one that has ended", resumed(to), target.ErrNotFound, "the last has ended")

	to = jobstest.NewEngine(t)
	first := frozenAt(t, source, &dying{Store: to, writes: 9})
	refused("killed", first, errDied, "")
	refused("begun", frozenAt(t, source, to), store.ErrRefused, "has not ended: go on with it (--resume), or give it up and begin anew (--restart), for which its tables must be dropped")
	refused("a copy of what is none", frozenAt(t, to, jobstest.NewEngine(t)), store.ErrRefused, "has not ended")
	other := frozenAt(t, source, to)
	other.Checkpoint, other.Resume = "another", true
	refused("another instant", other, store.ErrInvalidArgument, "checkpoint c")
	if err := ForgetStoreCopy(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	refused("what it has left", frozenAt(t, source, to), store.ErrRefused, "it has rows")

	// A source that cannot freeze stands still, or the copy says so.
	live := &restless{Thawed: &jobstest.Thawed{Engine: source}, Admin: source, Namespacer: source, mark: "1"}
	u, err := instant.OpenUnfrozen(t.Context(), live, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := func() *CopyStoreOptions {
		return &CopyStoreOptions{Source: u, From: live, To: jobstest.NewEngine(t), Checkpoint: u.Name()}
	}
	live.Thawed.Before = func(int) { live.mark = "2" }
	moved := o()
	refused("moved", moved, store.ErrRefused, "while it was copied")
	if stored, err := store.AllProgress(t.Context(), moved.To); err != nil || len(stored) > 0 {
		t.Errorf("moved: Got offsets %v, %v", stored, err)
	}
	live.mark, moved.Resume = "3", true
	refused("moved before it is resumed", moved, store.ErrRefused, "since the copy was begun")
	live.unready = errors.New("a batch is half there")
	refused("unfinished", o(), store.ErrRefused, "half there")
	live.unready, live.Thawed.Before = nil, func(scan int) {
		if scan == 9 {
			jobstest.Mutate(t, source, "t", "zz", jobstest.PutOp("f", "x", 1, "late"))
		}
	}
	live.Thawed.Scans = 0
	refused("written to", o(), ErrStoresDiffer, "[t]")
	for at := 1; ; at++ { // while it is copied, or compared: the pipeline is named, not what differs
		began := false
		live.mark, live.Thawed.Scans, live.Thawed.Before = "1", 0, func(scan int) {
			if scan == at {
				began = true
				jobstest.Mutate(t, source, "t", fmt.Sprintf("zzz%d", at), jobstest.PutOp("f", "x", 1, "late"))
				live.mark = "2"
			}
		}
		late := o()
		if _, err := CopyStore(t.Context(), late); !began && at > 9 {
			break
		} else if !errors.Is(err, store.ErrRefused) || errors.Is(err, ErrStoresDiffer) || !strings.Contains(err.Error(), "while it was copied") {
			t.Errorf("written to by a pipeline at scan %d: Got %v", at, err)
		}
	}
	live.Thawed.Before = nil
	if n, err := CopyStore(t.Context(), o()); err != nil || n.Tables != 2 || n.Letters != 3 || n.Partitions != 2 {
		t.Errorf("Got %+v, %v", n, err)
	}
}

// TestCopyStoreTables: some tables are copied without offsets and letters.
func TestCopyStoreTables(t *testing.T) {
	t.Parallel()
	source, to := houseSource(t), jobstest.NewEngine(t)
	o := frozenAt(t, source, to)
	o.Tables = []string{"ns:plain"}
	n, err := CopyStore(t.Context(), o)
	if err != nil || n.Tables != 1 || n.Rows != 12 || n.Letters != 0 || n.Partitions != 0 {
		t.Fatalf("Got %+v, %v", n, err)
	}
	if err := CompareStores(t.Context(), o); err != nil {
		t.Error(err)
	}
	if ns, err := store.FindNamespace(t.Context(), to, "ns"); err != nil || ns.Properties["k"] != "v" {
		t.Errorf("Got %+v, %v", ns, err)
	}
	jobstest.Mutate(t, to, "ns:plain", "a0", jobstest.PutOp("f", "x", 3, "q"))
	var got *Comparison
	o.Compared = func(r *Comparison) { got = r }
	if err := CompareStores(t.Context(), o); !errors.Is(err, ErrStoresDiffer) || got.Different != 1 {
		t.Errorf("Got %v, %+v, want ErrStoresDiffer", err, got)
	}
	o.Tables = []string{"none"}
	if _, err := CopyStore(t.Context(), o); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
}
