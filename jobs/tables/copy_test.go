package tables

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
)

// writeHistory writes every kind of cell that a copy meets.
func writeHistory(t testing.TB, e store.Engine, table string) {
	t.Helper()
	for i := range 12 {
		row := fmt.Sprintf("row%02d", i)
		jobstest.Mutate(t, e, table, row, jobstest.PutOp("f", "x", 1, "1"), jobstest.PutOp("f", "y", 1, "2"), jobstest.PutOp("g", "", 7, ""))
		jobstest.Mutate(t, e, table, row, jobstest.PutOp("f", "x", 5, strings.Repeat("v", i)))
		jobstest.Mutate(t, e, table, row, cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: cell.Timestamp(i + 1), Delta: int64(i) - 3})
	}
	jobstest.Mutate(t, e, table, "row03", cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("x"), Time: 5})
	jobstest.Mutate(t, e, table, "row04", cell.Op{Type: cell.OpDeleteColumn, Family: "f", Qualifier: []byte("x"), Time: 4})
	jobstest.Mutate(t, e, table, "row05", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 3})
	jobstest.Mutate(t, e, table, "row06", cell.Op{Type: cell.OpDeleteFamilyVersion, Family: "f", Time: 5})
	jobstest.Mutate(t, e, table, "row07", cell.Op{Type: cell.OpDeleteRow, Time: 9}) // with its counter
	jobstest.Mutate(t, e, table, "row08", cell.Op{Type: cell.OpDeleteColumn, Family: "n", Qualifier: []byte("c"), Time: cell.Latest})
	jobstest.Mutate(t, e, table, "gone", jobstest.PutOp("f", "x", 1, "1"), cell.Op{Type: cell.OpDeleteRow, Time: 2})
	jobstest.Mutate(t, e, table, "ttl", cell.Op{Type: cell.OpPut, Family: "f", Qualifier: []byte("x"), Time: 1e12, Value: []byte("v"), TTL: 1e12})
}

// TestCopyKilled kills a copy, and those that go on with it, at every step: in the
// end the copy is the table at the instant of the source, to the counter, although
// chunks were written twice, and nothing is left of the state.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	source := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, source, "t", "row04", "row08")
	writeHistory(t, source, "t")
	s := jobstest.SnapshotOf(t, source)
	jobstest.Mutate(t, source, "t", "late", jobstest.PutOp("f", "x", 1, "1"))
	steps := 0
	for first := int64(0); ; first++ {
		to := jobstest.OpenMemory(t)
		jobstest.CreateTable(t, to, "copy")
		k := &jobstest.Cut{Engine: to}
		k.Left.Store(first)
		o := &CopyOptions{Source: s, Table: "t", To: k, Into: "copy", Checkpoint: "c", Parallelism: 1, chunkBytes: 150}
		_, err := Copy(t.Context(), o)
		if err == nil {
			jobstest.EqualTables(t, s, to, true, "t", "copy")
			break
		}
		for next := int64(1); err != nil; next++ {
			if !errors.Is(err, jobstest.ErrCut) {
				t.Fatalf("killed after %d steps: %v", first, err)
			}
			steps++
			_, stateErr := ReadCopy(t.Context(), to, "copy")
			switch {
			case stateErr == nil:
				o.Resume = true
				if done, err := ReadCopied(t.Context(), to, "copy"); !errors.Is(err, target.ErrNotFound) {
					t.Errorf("Got %+v, %v of a copy that is not whole, want ErrNotFound", done, err)
				}
				if _, err := Copy(t.Context(), &CopyOptions{Source: s, Table: "t", To: to, Into: "copy", Checkpoint: "c"}); !errors.Is(err, store.ErrRefused) {
					t.Errorf("a copy into a table of an unfinished one: Got %v, want ErrRefused", err)
				}
			case errors.Is(stateErr, target.ErrNotFound) && next == 1 && first == 0:
				// It was killed before it began.
			case errors.Is(stateErr, target.ErrNotFound):
				err = nil // it has ended, and nobody has heard of it
				continue
			default:
				t.Fatal(stateErr)
			}
			k.Left.Store(next + 2) // enough to take it over and go on for a while
			_, err = Copy(t.Context(), o)
		}
		jobstest.EqualTables(t, s, to, true, "t", "copy")
		jobstest.EqualTables(t, s, to, false, "t", "copy")
		if _, err := ReadCopy(t.Context(), to, "copy"); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("killed after %d steps: Got %v of the state in the end, want ErrNotFound", first, err)
		}
		if done, err := ReadCopied(t.Context(), to, "copy"); err != nil || done.Sequence != s.Sequence() || done.Table != "t" {
			t.Errorf("killed after %d steps: Got %+v, %v of the copy that is whole", first, done, err)
		}
		if t.Failed() {
			t.FailNow()
		}
	}
	if steps < 60 {
		t.Errorf("%d steps were tried", steps)
	}
}

// TestCopyTruncated truncates the table that a copy was cut off in, or makes it anew: nothing
// goes on with it, as what it has written is gone.
func TestCopyTruncated(t *testing.T) {
	t.Parallel()
	source := jobstest.OpenMemory(t, "row04", "row08")
	writeHistory(t, source, "t")
	s := jobstest.SnapshotOf(t, source)
	refused := 0
	for left := int64(0); ; left++ {
		to := jobstest.OpenMemory(t)
		jobstest.CreateTable(t, to, "copy")
		k := &jobstest.Cut{Engine: to}
		k.Left.Store(left)
		o := &CopyOptions{Source: s, Table: "t", To: k, Into: "copy", Checkpoint: "c", Parallelism: 1, chunkBytes: 150}
		if _, err := Copy(t.Context(), o); err == nil {
			break
		}
		o.To, o.Resume = to, true
		if begun, err := ReadCopy(t.Context(), to, "copy"); errors.Is(err, target.ErrNotFound) {
			continue
		} else if err != nil {
			t.Fatal(err)
		} else if len(begun.cursors) > 0 {
			if err := errors.Join(to.DisableTable(t.Context(), "copy"), to.TruncateTable(t.Context(), "copy", false)); err != nil {
				t.Fatal(err)
			}
			if _, err := Copy(t.Context(), o); !errors.Is(err, store.ErrRefused) {
				t.Errorf("after %d steps: Got %v, want ErrRefused", left, err)
			}
			refused++
			if err := ForgetCopy(t.Context(), to, "copy"); err != nil {
				t.Fatal(err)
			}
			o.Resume = false
		}
		if _, err := Copy(t.Context(), o); err != nil {
			t.Fatalf("after %d steps: %v", left, err)
		}
		jobstest.EqualTables(t, s, to, true, "t", "copy")
	}
	if refused < 5 {
		t.Errorf("%d copies were refused", refused)
	}
}

// TestCopyIsTable copies random tables in chunks and parts of any size, into stores
// of both engines.
func TestCopyIsTable(t *testing.T) {
	t.Parallel()
	pebble := jobstest.OpenPebble(t, t.TempDir())
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[abc\x00]{1,2}`)
		source := jobstest.OpenMemory(t, rapid.SliceOfNDistinct(key, 0, 3, rapid.ID[string]).Draw(rt, "splits")...)
		for range rapid.IntRange(0, 40).Draw(rt, "writes") {
			row := key.Draw(rt, "row")
			o := cell.Op{
				Type:   rapid.SampledFrom([]cell.OpType{cell.OpPut, cell.OpPut, cell.OpPut, cell.OpDelete, cell.OpDeleteColumn, cell.OpDeleteFamily, cell.OpDeleteFamilyVersion, cell.OpIncrement}).Draw(rt, "type"),
				Family: rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "family"), Qualifier: []byte(rapid.SampledFrom([]string{"", "a", "b\x00"}).Draw(rt, "qualifier")),
				Time: cell.Timestamp(rapid.IntRange(1, 3).Draw(rt, "time")),
			}
			switch o.Type {
			case cell.OpPut:
				o.Value = []byte(rapid.StringN(0, 9, -1).Draw(rt, "value"))
			case cell.OpIncrement:
				o.Family, o.Delta = "n", rapid.Int64Range(-2, 2).Draw(rt, "delta")
			}
			jobstest.Mutate(t, source, "t", row, o)
		}
		s := jobstest.SnapshotOf(t, source)
		visible := rapid.Bool().Draw(rt, "visible")
		n++
		var to store.Engine = pebble
		into := fmt.Sprintf("copy%d", n)
		if rapid.Bool().Draw(rt, "memory") {
			m := jobstest.OpenMemory(t)
			jobstest.CreateTable(t, m, into)
			to = m
		} else {
			jobstest.CreateTable(t, pebble, into)
		}
		var last work.Progress
		done, err := Copy(t.Context(), &CopyOptions{
			Source: s, Table: "t", To: to, Into: into, Visible: visible, Parallelism: rapid.IntRange(1, 3).Draw(rt, "parallelism"),
			chunkBytes: rapid.SampledFrom([]int{1, 30, 200, 0}).Draw(rt, "chunk"), Progress: func(p work.Progress) { last = p },
		})
		if err != nil {
			rt.Fatal(err)
		}
		if done.Rows != last.Rows || last.Done != 1 {
			rt.Fatalf("%d rows were copied, the last progress is %+v", done.Rows, last)
		}
		jobstest.EqualTables(t, s, to, false, "t", into)
		if !visible {
			jobstest.EqualTables(t, s, to, true, "t", into)
		}
		if t.Failed() {
			rt.Fatal("the copy differs")
		}
	})
}

// TestCopyAfterAnother makes one copy after another into a table whose store's clock
// stands still, and then goes back: what has ended hides nothing of what begins.
func TestCopyAfterAnother(t *testing.T) {
	t.Parallel()
	source := jobstest.NewMemory()
	source.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{
		{Key: []byte("a"), Cells: []cell.Cell{{Family: "f", Qualifier: []byte("x"), Time: 1, Kind: cell.KindPut, Value: []byte("1")}}},
	})
	now := cell.Timestamp(1_000_000)
	to, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	jobstest.CreateTable(t, to, "copy")
	for round := range 6 {
		if round > 3 {
			now -= 1000
		}
		o := &CopyOptions{Source: source, Table: "t", To: to, Into: "copy", Checkpoint: "c"}
		source.Scanned = func([]byte) error { return jobstest.ErrCut }
		if _, err := Copy(t.Context(), o); !errors.Is(err, jobstest.ErrCut) {
			t.Fatalf("round %d: Got %v, want one that was cut off", round, err)
		}
		if _, err := ReadCopied(t.Context(), to, "copy"); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("round %d: Got %v of the one before, want ErrNotFound", round, err)
		}
		if round%2 == 0 {
			if err := ForgetCopy(t.Context(), to, "copy"); err != nil {
				t.Fatalf("round %d: %v", round, err)
			}
			continue
		}
		source.Scanned, o.Resume = nil, true
		if c, err := Copy(t.Context(), o); err != nil || c.Rows != 1 {
			t.Fatalf("round %d: Got %+v, %v", round, c, err)
		}
		if _, err := ReadCopied(t.Context(), to, "copy"); err != nil {
			t.Errorf("round %d: Got %v of the copy that is whole", round, err)
		}
		if err := to.DisableTable(t.Context(), "copy"); err != nil {
			t.Fatal(err)
		}
		if err := to.TruncateTable(t.Context(), "copy", true); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCopyIsFenced: a copy that another has taken over from writes nothing any more,
// so that it cannot set back what was written since.
func TestCopyIsFenced(t *testing.T) {
	t.Parallel()
	source := jobstest.OpenMemory(t)
	jobstest.Mutate(t, source, "t", "a", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 1, Delta: 5})
	s := jobstest.SnapshotOf(t, source)
	to := jobstest.OpenMemory(t)
	jobstest.CreateTable(t, to, "copy")
	o := CopyOptions{Source: s, Table: "t", To: to, Into: "copy", Checkpoint: "c"}
	first := o
	first.To = &overtaken{Engine: to, then: func() {
		second := o
		second.Resume = true
		if _, err := Copy(t.Context(), &second); err != nil {
			t.Error(err)
		}
		jobstest.Mutate(t, to, "copy", "a", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 2, Delta: 1})
	}}
	if _, err := Copy(t.Context(), &first); !errors.Is(err, target.ErrBusy) {
		t.Errorf("Got %v, want ErrBusy", err)
	}
	sc := to.Scan(t.Context(), &store.Scan{Table: "copy"})
	defer sc.Close()
	if !sc.Next() || string(sc.Row().Cells[0].Value) != "\x00\x00\x00\x00\x00\x00\x00\x06" {
		t.Errorf("Got %+v, %v, want a count of 6", sc.Row(), sc.Err())
	}
}

// overtaken is an engine of a process that stands still before its first batch.
type overtaken struct {
	store.Engine
	then func()
}

func (e *overtaken) Apply(ctx context.Context, b *store.Batch) error {
	if e.then != nil {
		then := e.then
		e.then = nil
		then()
	}
	return e.Engine.Apply(ctx, b)
}

// TestCopyRefuses what it could not do exactly, and changes nothing then.
func TestCopyRefuses(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t)
	jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "x", 1, "1"))
	jobstest.Mutate(t, e, "t", "b", jobstest.PutOp("g", "x", 1, "1"))
	create := func(name string, families ...store.FamilyDescriptor) {
		t.Helper()
		d := &store.TableDescriptor{Name: name, Families: families}
		if name == "small" {
			d.MaxCellBytes = 30
		}
		if err := e.CreateTable(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	counter, distinct, inOrder, f, g := store.NewFamily("f"), store.NewFamily("f"), store.NewFamily("f"), store.NewFamily("f"), store.NewFamily("g")
	counter.Counter, distinct.Distinct, inOrder.NewVersionBehavior = true, true, true
	create("counter", counter)
	create("distinct", distinct)
	create("inorder", inOrder)
	create("small", f, g)
	jobstest.CreateTable(t, e, "empty")
	jobstest.CreateTable(t, e, "hidden")
	jobstest.Mutate(t, e, "hidden", "a", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 9})
	jobstest.Mutate(t, e, "t", "long", jobstest.PutOp("f", "x", 1, "a value of more than thirty bytes"))
	s := jobstest.SnapshotOf(t, e)
	only := []string{"f"}
	for _, c := range []struct {
		o    CopyOptions
		want error
	}{
		{CopyOptions{Table: "none", Into: "empty"}, store.ErrTableNotFound},
		{CopyOptions{Table: "t", Into: "none"}, store.ErrTableNotFound},
		{CopyOptions{Table: "t", Into: "t"}, store.ErrRefused},
		{CopyOptions{Table: "t", Into: "hidden"}, store.ErrRefused},
		{CopyOptions{Table: "t", Into: "counter"}, store.ErrFamilyNotFound},
		{CopyOptions{Table: "t", Into: "counter", Families: only}, store.ErrUnsupported},
		{CopyOptions{Table: "t", Into: "distinct", Families: only}, store.ErrUnsupported},
		{CopyOptions{Table: "distinct", Into: "small", Families: only}, store.ErrUnsupported},
		{CopyOptions{Table: "t", Into: "inorder", Families: only}, store.ErrUnsupported},
		{CopyOptions{Table: "t", Into: "empty", Resume: true, Checkpoint: "c"}, target.ErrNotFound},
		{CopyOptions{Table: "t", Into: "empty", Resume: true}, store.ErrUnsupported},
	} {
		c.o.Source, c.o.To = s, e
		if _, err := Copy(t.Context(), &c.o); !errors.Is(err, c.want) {
			t.Errorf("%s into %s: Got %v, want %v", c.o.Table, c.o.Into, err, c.want)
		}
		if _, err := ReadCopy(t.Context(), e, c.o.Into); !errors.Is(err, target.ErrNotFound) {
			t.Errorf("%s into %s: a copy was begun: %v", c.o.Table, c.o.Into, err)
		}
	}
	if _, err := Copy(t.Context(), &CopyOptions{Source: s, Table: "t", To: e, Into: "inorder", Families: only, Visible: true}); err != nil {
		t.Errorf("what is visible, in order: %v", err)
	}
	// A row that the table does not take is named, and the copy can be given up.
	_, err := Copy(t.Context(), &CopyOptions{Source: s, Table: "t", To: e, Into: "small", Families: only, Checkpoint: "c"})
	var refused *store.BatchError
	if !errors.As(err, &refused) || string(refused.Refused[0].Row) != "long" || !errors.Is(err, store.ErrCellTooLarge) {
		t.Errorf("Got %v, want a refusal of row long", err)
	}
	if _, err := Copy(t.Context(), &CopyOptions{Source: s, Table: "t", To: e, Into: "small", Families: only, Checkpoint: "c", Visible: true, Resume: true}); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("resumed in another way: Got %v, want ErrInvalidArgument", err)
	}
	st, err := ReadCopy(t.Context(), e, "small")
	if err != nil {
		t.Fatal(err)
	}
	want := &CopyState{Version: 1, ID: st.ID, Table: "t", Checkpoint: "c", Sequence: s.Sequence(), Families: only, Parts: []string{}}
	st.owner, st.cursors = "", nil
	if d := cmp.Diff(want, st, cmp.AllowUnexported(CopyState{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if err := ForgetCopy(t.Context(), e, "small"); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadCopy(t.Context(), e, "small"); !errors.Is(err, target.ErrNotFound) {
		t.Errorf("after it was forgotten: Got %v, want ErrNotFound", err)
	}
	if _, err := Copy(t.Context(), &CopyOptions{Table: "t"}); err == nil || !strings.Contains(err.Error(), "CopyOptions") {
		t.Errorf("Got %v", err)
	}
	if _, err := Copy(t.Context(), &CopyOptions{Source: jobstest.Lost{Memory: newMemoryWith("t")}, Table: "t", To: e, Into: "empty", Families: only}); !errors.Is(err, jobstest.ErrLost) {
		t.Errorf("Got %v of a source that was lost, want errLost", err)
	}
}

// newMemoryWith is a source with an empty table of family f.
func newMemoryWith(table string) *jobstest.Memory {
	m := jobstest.NewMemory()
	m.Add(table, []store.FamilyDescriptor{store.NewFamily("f")}, nil, nil)
	return m
}
