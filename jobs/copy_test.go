package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
)

// cutEngine is an engine of a process that is killed after some steps: a write counts as
// two, so that one can be done and not heard of.
type cutEngine struct {
	store.Engine
	left atomic.Int64
}

var errCut = errors.New("killed here")

func (k *cutEngine) step() error {
	if k.left.Add(-1) < 0 {
		return errCut
	}
	return nil
}

func (k *cutEngine) Apply(ctx context.Context, b *store.Batch) error {
	if err := k.step(); err != nil {
		return err
	}
	return errors.Join(k.Engine.Apply(ctx, b), k.step())
}

func (k *cutEngine) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := k.step(); err != nil {
		return store.Result{}, err
	}
	r, err := k.Engine.MutateRow(ctx, cond, m)
	return r, errors.Join(err, k.step())
}

// sequenced is an engine that nobody writes to while it is read.
type sequenced struct{ store.Engine }

func (sequenced) Sequence() uint64 { return 0 }

// writeHistory writes every kind of cell that a copy meets.
func writeHistory(t testing.TB, e store.Engine, table string) {
	t.Helper()
	for i := range 12 {
		row := fmt.Sprintf("row%02d", i)
		mutate(t, e, table, row, putOp("f", "x", 1, "1"), putOp("f", "y", 1, "2"), putOp("g", "", 7, ""))
		mutate(t, e, table, row, putOp("f", "x", 5, strings.Repeat("v", i)))
		mutate(t, e, table, row, cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: cell.Timestamp(i + 1), Delta: int64(i) - 3})
	}
	mutate(t, e, table, "row03", cell.Op{Type: cell.OpDelete, Family: "f", Qualifier: []byte("x"), Time: 5})
	mutate(t, e, table, "row04", cell.Op{Type: cell.OpDeleteColumn, Family: "f", Qualifier: []byte("x"), Time: 4})
	mutate(t, e, table, "row05", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 3})
	mutate(t, e, table, "row06", cell.Op{Type: cell.OpDeleteFamilyVersion, Family: "f", Time: 5})
	mutate(t, e, table, "row07", cell.Op{Type: cell.OpDeleteRow, Time: 9}) // with its counter
	mutate(t, e, table, "row08", cell.Op{Type: cell.OpDeleteColumn, Family: "n", Qualifier: []byte("c"), Time: cell.Latest})
	mutate(t, e, table, "gone", putOp("f", "x", 1, "1"), cell.Op{Type: cell.OpDeleteRow, Time: 2})
	mutate(t, e, table, "ttl", cell.Op{Type: cell.OpPut, Family: "f", Qualifier: []byte("x"), Time: 1e12, Value: []byte("v"), TTL: 1e12})
}

// equalTables fails where a copy is not what it was made of, raw or as it is read.
func equalTables(t testing.TB, left instant.Source, right store.Engine, raw bool, table, into string) {
	t.Helper()
	c, err := Compare(t.Context(), &CompareOptions{Left: left, Right: sequenced{right}, LeftTable: table, RightTable: into, Raw: raw})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range c.Differences {
		t.Errorf("raw %t: %v", raw, &d)
	}
}

// TestCopyKilled kills a copy, and those that go on with it, at every step: in the
// end the copy is the table at the instant of the source, to the counter, although
// chunks were written twice, and nothing is left of the state.
func TestCopyKilled(t *testing.T) {
	t.Parallel()
	source := openPebble(t, t.TempDir())
	createTable(t, source, "t", "row04", "row08")
	writeHistory(t, source, "t")
	s := snapshotOf(t, source)
	mutate(t, source, "t", "late", putOp("f", "x", 1, "1"))
	steps := 0
	for first := int64(0); ; first++ {
		to := openMemory(t)
		createTable(t, to, "copy")
		k := &cutEngine{Engine: to}
		k.left.Store(first)
		o := &CopyOptions{Source: s, Table: "t", To: k, Into: "copy", Checkpoint: "c", Parallelism: 1, chunkBytes: 150}
		_, err := Copy(t.Context(), o)
		if err == nil {
			equalTables(t, s, to, true, "t", "copy")
			break
		}
		for next := int64(1); err != nil; next++ {
			if !errors.Is(err, errCut) {
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
			k.left.Store(next + 2) // enough to take it over and go on for a while
			_, err = Copy(t.Context(), o)
		}
		equalTables(t, s, to, true, "t", "copy")
		equalTables(t, s, to, false, "t", "copy")
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

// TestCopyIsTable copies random tables in chunks and parts of any size, into stores
// of both engines.
func TestCopyIsTable(t *testing.T) {
	t.Parallel()
	pebble := openPebble(t, t.TempDir())
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[abc\x00]{1,2}`)
		source := openMemory(t, rapid.SliceOfNDistinct(key, 0, 3, rapid.ID[string]).Draw(rt, "splits")...)
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
			mutate(t, source, "t", row, o)
		}
		s := snapshotOf(t, source)
		visible := rapid.Bool().Draw(rt, "visible")
		n++
		var to store.Engine = pebble
		into := fmt.Sprintf("copy%d", n)
		if rapid.Bool().Draw(rt, "memory") {
			m := openMemory(t)
			createTable(t, m, into)
			to = m
		} else {
			createTable(t, pebble, into)
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
		equalTables(t, s, to, false, "t", into)
		if !visible {
			equalTables(t, s, to, true, "t", into)
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
	source := newMemory()
	source.add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{
		{Key: []byte("a"), Cells: []cell.Cell{{Family: "f", Qualifier: []byte("x"), Time: 1, Kind: cell.KindPut, Value: []byte("1")}}},
	})
	now := cell.Timestamp(1_000_000)
	to, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	createTable(t, to, "copy")
	for round := range 6 {
		if round > 3 {
			now -= 1000
		}
		o := &CopyOptions{Source: source, Table: "t", To: to, Into: "copy", Checkpoint: "c"}
		source.scanned = func([]byte) error { return errCut }
		if _, err := Copy(t.Context(), o); !errors.Is(err, errCut) {
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
		source.scanned, o.Resume = nil, true
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
	source := openMemory(t)
	mutate(t, source, "t", "a", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 1, Delta: 5})
	s := snapshotOf(t, source)
	to := openMemory(t)
	createTable(t, to, "copy")
	o := CopyOptions{Source: s, Table: "t", To: to, Into: "copy", Checkpoint: "c"}
	first := o
	first.To = &overtaken{Engine: to, then: func() {
		second := o
		second.Resume = true
		if _, err := Copy(t.Context(), &second); err != nil {
			t.Error(err)
		}
		mutate(t, to, "copy", "a", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 2, Delta: 1})
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
	e := openMemory(t)
	mutate(t, e, "t", "a", putOp("f", "x", 1, "1"))
	mutate(t, e, "t", "b", putOp("g", "x", 1, "1"))
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
	createTable(t, e, "empty")
	createTable(t, e, "hidden")
	mutate(t, e, "hidden", "a", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 9})
	mutate(t, e, "t", "long", putOp("f", "x", 1, "a value of more than thirty bytes"))
	s := snapshotOf(t, e)
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
	if _, err := Copy(t.Context(), &CopyOptions{Source: lostSource{newMemoryWith("t")}, Table: "t", To: e, Into: "empty", Families: only}); !errors.Is(err, errLost) {
		t.Errorf("Got %v of a source that was lost, want errLost", err)
	}
}

// newMemoryWith is a source with an empty table of family f.
func newMemoryWith(table string) *memory {
	m := newMemory()
	m.add(table, []store.FamilyDescriptor{store.NewFamily("f")}, nil, nil)
	return m
}
