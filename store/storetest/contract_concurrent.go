package storetest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

func (e *engine) snapshotter() store.Snapshotter {
	e.t.Helper()
	s, ok := e.Engine.(store.Snapshotter)
	if !ok {
		e.t.Skip("the engine is no store.Snapshotter")
	}
	return s
}

func testSnapshot(t *testing.T, e *engine) {
	ctx, snapshots := t.Context(), e.snapshotter()
	table := e.create("t", store.NewFamily("f"), counterFamily("n"))
	ok(t, table.Put(ctx, []byte("a"), "f", []byte("q"), []byte("1")))
	e.count(t, "a", 5, 1)
	old, err := snapshots.Snapshot(ctx)
	ok(t, err)

	e.clock.Advance(1)
	ok(t, table.Put(ctx, []byte("a"), "f", []byte("q"), []byte("2")))
	ok(t, table.Put(ctx, []byte("b"), "f", []byte("q"), []byte("3")))
	e.count(t, "a", 5, 1)
	ok(t, e.admin().SplitRegion(ctx, "t", []byte("m")))
	e.create("u", store.NewFamily("f"))
	var b store.Batch
	b.Advance(source("p"), 0, store.Absent, progress(3))
	ok(t, e.Apply(ctx, &b))
	d, err := e.Table(ctx, "t")
	ok(t, err)
	d = d.Clone()
	d.Families = append(d.Families, store.NewFamily("g"))
	ok(t, e.admin().AlterTable(ctx, d))
	recent, err := snapshots.Snapshot(ctx)
	ok(t, err)
	e.drop("t")
	if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
		ok(t, c.Flush(ctx))
	}

	wantOld := []string{`"a" f:"q"="1"`, `"a" n:"c"="\x00\x00\x00\x00\x00\x00\x00\x05"`}
	wantRecent := []string{`"a" f:"q"="2"`, `"a" n:"c"="\x00\x00\x00\x00\x00\x00\x00\n"`, `"b" f:"q"="3"`}
	for range 2 { // more than once
		e.want(t, old, "t", wantOld...)
		e.want(t, recent, "t", wantRecent...)
	}
	if old.Sequence() >= recent.Sequence() {
		t.Errorf("sequences %d, then %d, want them to ascend", old.Sequence(), recent.Sequence())
	}
	for _, s := range []struct {
		name     string
		snapshot store.Snapshot
		families int
		regions  int
		offset   int64
	}{{"old", old, 2, 1, store.Absent}, {"recent", recent, 3, 2, 3}} {
		d, err := s.snapshot.Table(ctx, "t")
		ok(t, err)
		regions, err := s.snapshot.Regions(ctx, "t")
		ok(t, err)
		p, found, err := store.ReadProgress(ctx, s.snapshot, ptr(source("p")), 0)
		ok(t, err)
		if !found {
			p.Next = store.Absent
		}
		if len(d.Families) != s.families || regions.Len() != s.regions || p.Next != s.offset {
			t.Errorf("%s snapshot: %d families, %d regions, offset %d, want %d, %d, %d", s.name, len(d.Families), regions.Len(), p.Next, s.families, s.regions, s.offset)
		}
	}
	is(t, "a table made after the snapshot", second(old.Table(ctx, "u")), store.ErrTableNotFound)

	sc := recent.Scan(ctx, &store.Scan{Table: "t"})
	if !sc.Next() {
		t.Fatal(sc.Err())
	}
	ok(t, sc.Close())
	ok(t, recent.Close())
	is(t, "Table of a closed snapshot", second(recent.Table(ctx, "t")), store.ErrClosed)
	sc = recent.Scan(ctx, &store.Scan{Table: "t"})
	if sc.Next() {
		t.Error("a closed snapshot was scanned")
	}
	is(t, "a scan of a closed snapshot", sc.Err(), store.ErrClosed)
	ok(t, sc.Close())
	e.want(t, old, "t", wantOld...) // closing one leaves the other
	ok(t, old.Close())
}

// testSnapshotAgrees: in every snapshot the offset, the counters and the rows are
// of one commit, whatever commits beside it (I5).
func testSnapshotAgrees(t *testing.T, e *engine) {
	e.batchOnly()
	ctx, snapshots := t.Context(), e.snapshotter()
	e.create("t", store.NewFamily("f"), counterFamily("n"))
	const batches = 150
	done := make(chan error, 1)
	go func() {
		for i := range int64(batches) {
			var b store.Batch
			b.Add(i, put("t", fmt.Sprintf("r%03d", i), "v"))
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("all"), Qualifier: []byte("c"), Delta: 1, Time: 1, Offset: i})
			from := i
			if i == 0 {
				from = store.Absent
			}
			b.Advance(source("p"), 0, from, progress(i+1))
			if err := e.Apply(ctx, &b); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}()
	check := func() (next int64) {
		t.Helper()
		s, err := snapshots.Snapshot(ctx)
		ok(t, err)
		defer s.Close()
		p, _, err := store.ReadProgress(ctx, s, ptr(source("p")), 0)
		ok(t, err)
		rows := int64(len(dump(t, s, &store.Scan{Table: "t", Columns: []store.Column{{Family: "f", All: true}}})))
		var count int64
		sc := s.Scan(ctx, &store.Scan{Table: "t", Columns: []store.Column{{Family: "n", All: true}}})
		defer sc.Close()
		if sc.Next() {
			count = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
		}
		ok(t, sc.Err())
		if rows != p.Next || count != p.Next {
			t.Fatalf("offset %d, %d rows, counter %d: not of one commit", p.Next, rows, count)
		}
		return p.Next
	}
	for {
		select {
		case err := <-done:
			ok(t, err)
			if next := check(); next != batches {
				t.Errorf("offset %d at the end, want %d", next, batches)
			}
			return
		default:
			check()
		}
	}
}

// testAtomicRows is HBase's AcidGuaranteesTestTool in small: writers put one
// random value in every column of a row, and no reader ever sees two values in a
// row (I1).
func testAtomicRows(t *testing.T, e *engine) {
	table := e.create("t", store.NewFamily("a"), store.NewFamily("b"), store.NewFamily("c"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := [][]byte{[]byte("r0"), []byte("r1")}
	var writers, readers sync.WaitGroup
	fail := func(err error) {
		if err != nil && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		cancel()
	}
	for w := range 3 {
		writers.Go(func() {
			for i := range 60 {
				m := table.NewMutation(rows[(w+i)%2])
				value := fmt.Appendf(nil, "%d-%d", w, i)
				for _, f := range []string{"c", "a", "b"} {
					for q := range 8 {
						m.Put(f, []byte{byte(q)}, cell.Latest, value)
					}
				}
				var err error
				if i%2 == 0 {
					_, err = table.MutateRow(ctx, m)
				} else {
					m.Table = "t"
					err = e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Offset: -1, Mutation: *m}}})
				}
				if err != nil {
					fail(err)
					return
				}
			}
		})
	}
	whole := func(row *cell.Row) error {
		if len(row.Cells) != 24 {
			return fmt.Errorf("row %s has %d cells, want 24", row.Key, len(row.Cells))
		}
		for _, c := range row.Cells {
			if !bytes.Equal(c.Value, row.Cells[0].Value) {
				return fmt.Errorf("row %s has %s and %s", row.Key, row.Cells[0].Value, c.Value)
			}
		}
		return nil
	}
	stop := make(chan struct{})
	read := func(f func() error) {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := f(); err != nil {
					fail(err)
					return
				}
			}
		})
	}
	read(func() error {
		for _, key := range rows {
			row, err := table.Get(ctx, key, nil)
			if err == nil && row != nil {
				err = whole(row)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	read(func() error {
		for row, err := range table.Rows(ctx, nil) {
			if err == nil {
				err = whole(row)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	read(func() error {
		if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
			if err := e.shell(c.Flush(ctx)); err != nil {
				return err
			}
		}
		for _, change := range []error{e.admin().SplitRegion(ctx, "t", []byte("r1")), e.admin().MergeRegions(ctx, "t", []byte("r0"), []byte("r1"))} {
			if err := e.shell(change); err != nil {
				return err
			}
		}
		return nil
	})
	writers.Wait()
	close(stop)
	readers.Wait()
}

func testConcurrentIncrements(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), counterFamily("n"))
	const workers, each = 4, 50
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for range each {
				m := table.NewMutation([]byte("r"))
				m.Increment("f", []byte("q"), 1)
				m.Increment("n", []byte("q"), 1)
				if _, err := table.MutateRow(ctx, m); err != nil {
					t.Error(err)
					return
				}
				delta := store.CounterDelta{Table: "t", Family: "n", Row: []byte("r"), Qualifier: []byte("q"), Delta: 1, Time: e.clock.Now(), Offset: -1}
				if err := e.increment(delta); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	row, err := table.Get(ctx, []byte("r"), nil)
	ok(t, err)
	var got []uint64
	for _, c := range row.Cells {
		got = append(got, binary.BigEndian.Uint64(c.Value))
	}
	if d := cmp.Diff([]uint64{workers * each, 2 * workers * each}, got); d != "" {
		t.Errorf("f:q and n:q (-want +got):\n%s", d)
	}
}

// testConcurrentConditions: of all that try to take one step, one does.
func testConcurrentConditions(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"))
	const workers, steps = 4, 40
	var mu sync.Mutex
	winners := make(map[int]int)
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for step := range steps {
				cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
				if step > 0 {
					cond.Value = fmt.Append(nil, step-1)
				}
				m := table.NewMutation([]byte("r"))
				m.Put("f", []byte("q"), cell.Latest, fmt.Append(nil, step))
				won, err := table.CheckAndPut(ctx, []byte("r"), cond, m)
				if err != nil {
					t.Error(err)
					return
				}
				if won {
					mu.Lock()
					winners[step]++
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	// A worker may be behind all steps that others took, but no step is taken
	// twice, and those that were taken are the first ones, without a gap.
	for step := range len(winners) {
		if winners[step] != 1 {
			t.Errorf("step %d was taken %d times", step, winners[step])
		}
	}
	row, err := table.Get(ctx, []byte("r"), nil)
	ok(t, err)
	if want := fmt.Sprint(len(winners) - 1); string(row.Cells[0].Value) != want {
		t.Errorf("the cell holds step %s, the last one taken is %s", row.Cells[0].Value, want)
	}
}

func testDurability(t *testing.T, e *engine) { durability(t, e, counterFamily("n")) }

func testDurabilityPlain(t *testing.T, e *engine) { durability(t, e) }

// durability reopens a table again and again, whose rows count in the families that
// are given, in the same mutations.
func durability(t *testing.T, e *engine, counters ...store.FamilyDescriptor) {
	if !e.durable() {
		t.Skip("the engine does not say that it is durable")
	}
	ctx := t.Context()
	f := store.NewFamily("f")
	f.Versions = 3
	e.create("t", append(counters, f)...)
	var want []string
	read := func() []string {
		return append(printScan(ctx, e, &store.Scan{Table: "t", Versions: store.AllVersions}), printScan(ctx, e, &store.Scan{Table: "t", Raw: true, Versions: store.AllVersions, Columns: []store.Column{{Family: "f", All: true}}})...)
	}
	for round := range 4 {
		for i := range 20 {
			m := cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "r%02d", i)}
			m.Put("f", []byte("a"), cell.Latest, fmt.Append(nil, round))
			m.Put("f", []byte("b"), cell.Latest, fmt.Append(nil, round))
			if i%5 == round {
				m.DeleteColumn("f", []byte("b"), cell.Latest)
			}
			for _, n := range counters {
				m.Increment(n.Name, []byte("c"), 1)
			}
			ok(t, second(e.MutateRow(ctx, nil, &m)))
		}
		want = read()
		e.reopen()
		if d := cmp.Diff(want, read()); d != "" {
			t.Fatalf("round %d, after reopening (-before +after):\n%s", round, d)
		}
		e.clock.Advance(10)
	}
}
