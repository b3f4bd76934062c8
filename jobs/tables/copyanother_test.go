package tables

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/store"
	"sluice/store/memstore"
)

// alter changes a table.
func alter(t *testing.T, e *memstore.Store, change func(d *store.TableDescriptor)) {
	t.Helper()
	d, err := e.Table(t.Context(), "t")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	change(d)
	if err := e.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

func without(d *store.TableDescriptor, family string) {
	for i := range d.Families {
		if d.Families[i].Name == family {
			d.Families = append(d.Families[:i], d.Families[i+1:]...)
			return
		}
	}
}

// A copy of a table that is read row by row, cut off while the table changes, goes on with the
// families that it was begun with, and with no other table.
func TestCopyGoesOnWithTheSameTable(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change  func(from *memstore.Store, e *jobstest.Remade)
		another string // what the error says; empty = it goes on
	}{
		"made anew": {func(_ *memstore.Store, e *jobstest.Remade) { e.Remake() }, "made anew 1 times"},
		"a family gone": {func(m *memstore.Store, _ *jobstest.Remade) {
			alter(t, m, func(d *store.TableDescriptor) { without(d, "g") })
		}, "family g"},
		"fewer versions": {func(m *memstore.Store, _ *jobstest.Remade) {
			alter(t, m, func(d *store.TableDescriptor) { d.Family("f").Versions = 3 })
		}, "VERSIONS 3"},
		"a family more": {func(m *memstore.Store, _ *jobstest.Remade) {
			alter(t, m, func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("z")) })
			jobstest.Mutate(t, m, "t", "d1", jobstest.PutOp("z", "q", 1, "new"))
		}, ""},
	} {
		from, to := jobstest.OpenMemory(t, "b", "c", "d"), jobstest.OpenMemory(t)
		for _, m := range []*memstore.Store{from, to} {
			alter(t, m, func(d *store.TableDescriptor) { without(d, "n") })
		}
		for _, row := range []string{"a1", "b1", "c1", "d1"} {
			jobstest.Mutate(t, from, "t", row, jobstest.PutOp("f", "q", 1, "v"), jobstest.PutOp("g", "q", 1, "v"))
		}
		e := &jobstest.Remade{Thawed: &jobstest.Thawed{Engine: from}}
		u := openUnfrozen(t, e)
		ctx, cancel := context.WithCancel(t.Context())
		e.Before = func(scan int) {
			if scan == 3 {
				cancel()
			}
		}
		o := &CopyOptions{Source: u, Table: "t", To: to, Into: "t", Checkpoint: u.Name(), Parallelism: 1}
		if _, err := Copy(ctx, o); !errors.Is(err, context.Canceled) {
			t.Fatalf("%s: Got %v of a copy that was cut off", name, err)
		}
		e.Before = nil
		tt.change(from, e)
		again, err := instant.ReopenUnfrozen(e, u.Name())
		if err != nil {
			t.Fatal(err)
		}
		o.Source, o.Resume = again, true
		_, err = Copy(t.Context(), o)
		if tt.another != "" {
			if !errors.Is(err, ErrCopyLost) || !strings.Contains(err.Error(), "table t") || !strings.Contains(err.Error(), tt.another) {
				t.Errorf("%s: Got %v, want that table t is not what it was: %s", name, err, tt.another)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		r, err := Compare(t.Context(), &CompareOptions{Left: openUnfrozen(t, from), Right: openUnfrozen(t, to), LeftTable: "t", Families: []string{"f", "g"}, Raw: true})
		if err != nil || !r.Equal() || r.Same != 4 {
			t.Errorf("%s: Got %+v and %v, want 4 rows that are the same", name, r, err)
		}
	}
}

// A copy of a table that is made anew under it ends with an error, and cannot go on.
func TestCopyOfTableMadeAnew(t *testing.T) {
	t.Parallel()
	from, to := jobstest.OpenMemory(t, "b", "c", "d"), jobstest.OpenMemory(t)
	for _, row := range []string{"a1", "b1", "c1", "d1"} {
		jobstest.Mutate(t, from, "t", row, jobstest.PutOp("f", "q", 1, "v"))
	}
	e := &jobstest.Remade{Thawed: &jobstest.Thawed{Engine: from}}
	e.Before = func(scan int) {
		if scan == 3 {
			e.Remake()
		}
	}
	u := openUnfrozen(t, e)
	o := &CopyOptions{Source: u, Table: "t", To: to, Into: "t", Families: []string{"f"}, Checkpoint: u.Name(), Parallelism: 1}
	for _, o.Resume = range []bool{false, true} {
		if _, err := Copy(t.Context(), o); !errors.Is(err, ErrCopyLost) || !strings.Contains(err.Error(), "table t") {
			t.Errorf("resume %t: Got %v, want that table t is not what it was", o.Resume, err)
		}
	}
}

// A copy into a READONLY table is refused before anything is written, and one that was cut off
// by that goes on once the table is altered back.
func TestCopyIntoReadOnly(t *testing.T) {
	t.Parallel()
	from, to := jobstest.OpenMemory(t, "b"), jobstest.OpenMemory(t)
	for _, row := range []string{"a1", "b1"} {
		jobstest.Mutate(t, from, "t", row, jobstest.PutOp("f", "q", 1, "v"))
	}
	readOnly := func(yes bool) { alter(t, to, func(d *store.TableDescriptor) { d.ReadOnly = yes }) }
	snapshot, err := from.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	o := &CopyOptions{Source: snapshot, Table: "t", To: to, Into: "t", Checkpoint: "c", Parallelism: 1}
	refused := func(what string) {
		t.Helper()
		if _, err := Copy(t.Context(), o); !errors.Is(err, store.ErrRefused) || errors.Is(err, ErrCopyLost) || !strings.Contains(err.Error(), "table t is READONLY") {
			t.Errorf("%s: Got %v, want that table t is READONLY", what, err)
		}
	}
	readOnly(true)
	refused("at the start")
	if _, err := ReadCopy(t.Context(), to, "t"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("Got %v of a copy that was refused, want that there is none", err)
	}
	readOnly(false)
	ctx, cancel := context.WithCancel(t.Context())
	o.To = cutShort{to, cancel}
	if _, err := Copy(ctx, o); err == nil {
		t.Fatal("Got no error of a copy that was cut off")
	}
	readOnly(true)
	o.To, o.Resume = to, true
	refused("to go on")
	readOnly(false)
	if _, err := Copy(t.Context(), o); err != nil {
		t.Error(err)
	}
}

// cutShort is cancelled with its first batch.
type cutShort struct {
	store.Engine
	cancel context.CancelFunc
}

func (e cutShort) Apply(ctx context.Context, b *store.Batch) error {
	e.cancel()
	return e.Engine.Apply(ctx, b)
}
