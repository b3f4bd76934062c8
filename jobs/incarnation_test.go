package jobs

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// remadeStore is an unfrozenStore whose table can be made anew.
type remadeStore struct {
	*unfrozenStore
	engine *jobstest.Remade
}

// newRemade has rows in each region, and a job of the family f.
func newRemade(t *testing.T, change func(*Spec)) *remadeStore {
	t.Helper()
	s := newUnfrozen(t, func(s *Spec) {
		s.Families = []string{"f"}
		if change != nil {
			change(s)
		}
	})
	for _, row := range []string{"a1", "b1", "c1", "d1"} {
		s.put(row, "v", 1)
	}
	return &remadeStore{s, &jobstest.Remade{Thawed: s.Thawed}}
}

func (s *remadeStore) openRemade() *instant.Unfrozen {
	s.t.Helper()
	u, err := instant.OpenUnfrozen(s.t.Context(), s.engine, func() time.Time { return time.UnixMilli(int64(s.now)) })
	if err != nil {
		s.t.Fatal(err)
	}
	return u
}

func rowsOf(m *Manifest) (n int64) {
	for i := range m.Files {
		n += m.Files[i].Rows
	}
	return n
}

// alter changes the table.
func (s *remadeStore) alter(change func(d *store.TableDescriptor)) {
	s.t.Helper()
	d, err := s.mem.Table(s.t.Context(), "t")
	if err != nil {
		s.t.Fatal(err)
	}
	d = d.Clone()
	change(d)
	if err := s.mem.AlterTable(s.t.Context(), d); err != nil {
		s.t.Fatal(err)
	}
}

// What becomes of a table: whether it is another one then to who reads its family f.
var becomes = map[string]struct {
	change  func(s *remadeStore)
	another string // what the error says; empty = it is the same
}{
	"made anew":          {func(s *remadeStore) { s.engine.Remake() }, "made anew 1 times"},
	"fewer versions":     {func(s *remadeStore) { s.alter(func(d *store.TableDescriptor) { d.Family("f").Versions = 1 }) }, "VERSIONS 1,"},
	"a time to live":     {func(s *remadeStore) { s.alter(func(d *store.TableDescriptor) { d.Family("f").TTL = 1 << 30 }) }, "TTL 1073741824"},
	"another's versions": {func(s *remadeStore) { s.alter(func(d *store.TableDescriptor) { d.Family("n").BlockSize = 1 << 20 }) }, ""},
	"a family more": {func(s *remadeStore) {
		s.alter(func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("z")) })
	}, ""},
	"another family gone": {func(s *remadeStore) { s.alter(func(d *store.TableDescriptor) { d.Families = d.Families[:1] }) }, ""},
}

// TestUnfrozenTableIsAnother: a run that has read a table which was altered in what it reads,
// or made anew, meanwhile is not published, and the error says so; any other change is none to it.
func TestUnfrozenTableIsAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range becomes {
		s := newRemade(t, nil)
		s.engine.Before = func(scan int) {
			if scan == 3 {
				tt.change(s)
			}
		}
		m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.openRemade(), LogicalTime: time.Unix(1, 0), Checkpoint: "c", Parallelism: 1})
		if tt.another == "" {
			if err != nil || rowsOf(m) != 4 {
				t.Errorf("%s: Got %v and %v, want 4 rows", name, m, err)
			}
			continue
		}
		if !errors.Is(err, instant.ErrAnother) || errors.Is(err, ErrResumable) || !strings.Contains(err.Error(), "table t") || !strings.Contains(err.Error(), tt.another) {
			t.Errorf("%s: Got %v, want that table t is not what it was (%s), and nothing to resume", name, err, tt.another)
		}
		s.engine.Before = nil
		m, err = Run(t.Context(), &RunOptions{Job: s.job, Source: s.openRemade(), LogicalTime: time.Unix(1, 0)})
		if err != nil || rowsOf(m) != 4 {
			t.Errorf("%s: Got %v and %v of the next run, want 4 rows", name, m, err)
		}
	}
}

// TestUnfrozenIncrementOfAnother: a run whose table is not the one of the run before is full.
func TestUnfrozenIncrementOfAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range becomes {
		s := newRemade(t, func(s *Spec) {
			s.Incremental = Incremental{FullEvery: 10}
			s.Columns = append(s.Columns, columnar.ColumnSpec{Name: "op", From: "$op", Type: "string"})
		})
		run := func(hour int) *Manifest {
			t.Helper()
			s.now += 100
			m, err := Run(t.Context(), &RunOptions{Job: s.job, Source: s.openRemade(), StoreID: "cluster", LogicalTime: time.Unix(int64(hour), 0)})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			return m
		}
		run(1)
		if m := run(2); !m.increment() {
			t.Fatalf("%s: Got %+v of a table that nobody has changed, want an increment", name, m.Incremental)
		}
		tt.change(s)
		if m := run(3); m.increment() != (tt.another == "") {
			t.Errorf("%s: Got %+v, want an increment: %t", name, m.Incremental, tt.another == "")
		}
		if m := run(4); !m.increment() {
			t.Errorf("%s: Got %+v after that, want an increment", name, m.Incremental)
		}
	}
}

// TestUnfrozenResumeOfAnother: a run that was cut off does not go on with another table.
func TestUnfrozenResumeOfAnother(t *testing.T) {
	t.Parallel()
	for name, tt := range becomes {
		s := newRemade(t, nil)
		run := func(ctx context.Context, u *instant.Unfrozen) (*Manifest, error) {
			return Run(ctx, &RunOptions{Job: s.job, Source: u, LogicalTime: time.Unix(1, 0), Checkpoint: u.Name(), Parallelism: 1})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		s.engine.Before = func(scan int) {
			if scan == 3 {
				cancel(ErrResumable)
			}
		}
		u := s.openRemade()
		if _, err := run(ctx, u); err == nil {
			t.Fatalf("%s: Got no error of a run that was cut off", name)
		}
		s.engine.Before = nil
		tt.change(s)
		again, err := instant.ReopenUnfrozen(s.engine, u.Name())
		if err != nil {
			t.Fatal(err)
		}
		m, err := run(t.Context(), again)
		switch {
		case tt.another == "" && (err != nil || rowsOf(m) != 4):
			t.Errorf("%s: Got %v and %v, want 4 rows", name, m, err)
		case tt.another != "" && !errors.Is(err, store.ErrUnsupported):
			t.Errorf("%s: Got %v, want that nothing goes on", name, err)
		}
		if _, _, err := ReadRun(t.Context(), s.out+"/j"); tt.another != "" && err == nil {
			t.Errorf("%s: Got a run that is published, want none", name)
		}
	}
}
