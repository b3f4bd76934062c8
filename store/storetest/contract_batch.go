package storetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// source returns the source of a pipeline on one topic.
func source(pipeline string) store.Source {
	return store.Source{Pipeline: pipeline, Topic: "topic", ClusterID: "cluster", TopicID: [16]byte{1}}
}

func progress(next int64) store.Progress {
	return store.Progress{Next: next, Applied: next, LastOffset: next - 1, LeaderEpoch: 3, LastTime: 42, Fingerprint: 7, MappingVersion: "m1"}
}

// stored fails t where the stored offset of a source's partition is not want.
func (e *engine) stored(t *testing.T, s store.Source, partition int32, want int64) {
	t.Helper()
	p, found, err := store.ReadProgress(t.Context(), e, &s, partition)
	ok(t, err)
	got := store.Absent
	if found {
		got = p.Next
	}
	if got != want {
		t.Errorf("stored offset of %s/%d is %d, want %d", s.Pipeline, partition, got, want)
	}
}

// batchOnly skips engines whose batches are not atomic.
func (e *engine) batchOnly() {
	if e.Traits().Atomic != store.AtomicBatch {
		e.t.Skip("the engine's batches are not atomic")
	}
}

func testBatch(t *testing.T, e *engine) {
	ctx := t.Context()
	e.create("t", store.NewFamily("f"), counterFamily("n"))
	e.create("u", store.NewFamily("f"))
	var b store.Batch
	ok(t, e.Apply(ctx, &b)) // an empty batch does nothing
	b.Add(1, put("t", "a", "1"))
	b.Add(2, put("u", "b", "2"))
	b.Add(3, put("t", "a", "3"))
	b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("a"), Qualifier: []byte("c"), Delta: 5, Time: 100, Offset: 1})
	b.Record(2, nil, nil, put("u", "c", "4"))
	b.Advance(source("p"), 0, store.Absent, progress(4))
	ok(t, e.Apply(ctx, &b))
	for i := range b.Mutations { // the engine keeps nothing of the batch
		clear(b.Mutations[i].Row)
	}
	e.want(t, e, "t", `"a" f:"q"="3"`, `"a" n:"c"="\x00\x00\x00\x00\x00\x00\x00\x05"`)
	e.want(t, e, "u", `"b" f:"q"="2"`, `"c" f:"q"="4"`)
	e.stored(t, source("p"), 0, 4)
}

func testBatchRefused(t *testing.T, e *engine) {
	e.batchOnly()
	ctx := t.Context()
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), counterFamily("n")}, MaxCellBytes: 100, MaxTimestampSlop: 1000}
	ok(t, e.admin().CreateTable(ctx, d, nil))
	text := put("t", "text", "not 8 bytes")
	ok(t, e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Mutation: text}}}))

	bad := map[int64]cell.Mutation{}
	want := map[int64]error{}
	refuse := func(offset int64, err error, m cell.Mutation) { bad[offset], want[offset] = m, err }
	m := put("nope", "r", "v")
	refuse(10, store.ErrTableNotFound, m)
	m = put("t", "r", "v")
	m.Ops[0].Family = "nope"
	refuse(12, store.ErrFamilyNotFound, m)
	refuse(14, store.ErrCellTooLarge, put("t", "r", string(bytes.Repeat([]byte("x"), 100))))
	m = put("t", "r", "v")
	m.Ops[0].Time = e.clock.Now() + 1001
	refuse(16, store.ErrTimestampTooFar, m)
	m = put("t", "r", "v")
	m.Ops[0].Time = -1
	refuse(18, store.ErrInvalidArgument, m)
	refuse(20, store.ErrInvalidArgument, put("t", "", "v"))
	refuse(22, store.ErrInvalidArgument, cell.Mutation{Table: "t", Row: []byte("r")})
	m = cell.Mutation{Table: "t", Row: []byte("text")}
	m.Increment("f", []byte("q"), 1)
	refuse(24, store.ErrNotANumber, m)
	m = put("t", "r", "v")
	m.Ops[0].Family = "n"
	refuse(26, store.ErrRefused, m)

	var b store.Batch
	for offset := int64(9); offset <= 26; offset++ {
		b.Add(offset, put("t", fmt.Sprint("good", offset), "v"))
		if m, ok := bad[offset]; ok {
			b.Add(offset, m)
		}
	}
	delta := func(offset int64, family string) store.CounterDelta {
		return store.CounterDelta{Table: "t", Family: family, Row: []byte("r"), Qualifier: []byte("c"), Delta: 1, Time: cell.Latest, Offset: offset}
	}
	b.Counters = append(b.Counters, delta(9, "n"), delta(28, "f"), delta(30, "nope"))
	want[28], want[30] = store.ErrRefused, store.ErrFamilyNotFound
	m = put("t", "r2", "v")
	m.Ops[0].Family = "nope"
	b.Record(32, []byte("id"), nil, put("t", "r2", "v"), m)
	want[32] = store.ErrFamilyNotFound
	b.Advance(source("p"), 0, store.Absent, progress(33))

	err := e.Apply(ctx, &b)
	var be *store.BatchError
	if !errors.As(err, &be) {
		t.Fatalf("Apply = %v, want a *store.BatchError", err)
	}
	if len(be.Refused) != len(want) {
		t.Errorf("%d refusals, want %d: %v", len(be.Refused), len(want), be)
	}
	for i, r := range be.Refused {
		if i > 0 && r.Offset <= be.Refused[i-1].Offset {
			t.Errorf("refusal of offset %d follows that of %d", r.Offset, be.Refused[i-1].Offset)
		}
		if want[r.Offset] == nil {
			t.Errorf("offset %d was refused: %v", r.Offset, r.Err)
			continue
		}
		is(t, fmt.Sprintf("refusal of offset %d", r.Offset), r.Err, want[r.Offset])
		is(t, "the batch's error", err, want[r.Offset])
	}
	if r := be.Refused[0]; r.Table != "nope" || string(r.Row) != "r" {
		t.Errorf("the first refusal names table %s, row %q", r.Table, r.Row)
	}
	e.want(t, e, "t", `"text" f:"q"="not 8 bytes"`) // nothing was applied
	e.stored(t, source("p"), 0, store.Absent)

	// Without what was refused, it can be.
	var rest store.Batch
	for _, m := range b.Mutations {
		if want[m.Offset] == nil {
			rest.Add(m.Offset, m.Mutation)
		}
	}
	rest.Counters = b.Counters[:1]
	rest.Record(34, []byte("id"), nil, put("t", "r2", "v")) // its id was not used up
	rest.Advances = b.Advances
	ok(t, e.Apply(ctx, &rest))
	if n := len(dump(t, e, &store.Scan{Table: "t"})); n != 1+9+1+1 {
		t.Errorf("%d cells, want %d", n, 1+9+1+1)
	}
	e.stored(t, source("p"), 0, 33)

	// Without a record behind it a refusal has offset -1.
	err = e.Apply(ctx, &store.Batch{Mutations: []store.Mutation{{Offset: -1, Mutation: put("nope", "r", "v")}}})
	if !errors.As(err, &be) || len(be.Refused) != 1 || be.Refused[0].Offset != -1 {
		t.Errorf("Apply = %v, want one refusal with offset -1", err)
	}
}

func testAdvance(t *testing.T, e *engine) {
	e.batchOnly()
	ctx := t.Context()
	e.create("t", store.NewFamily("f"))
	advance := func(s store.Source, partition int32, from, next int64, row string) error {
		var b store.Batch
		b.Advance(s, partition, from, progress(next))
		if row != "" {
			b.Add(next-1, put("t", row, "v"))
		}
		return e.Apply(ctx, &b)
	}
	p := source("p")
	e.stored(t, p, 0, store.Absent)
	is(t, "a first batch that expects an offset", advance(p, 0, 0, 5, "x"), store.ErrStale)
	ok(t, advance(p, 0, store.Absent, 5, "a"))
	is(t, "the same batch again", advance(p, 0, store.Absent, 5, "x"), store.ErrStale)
	is(t, "a gap", advance(p, 0, 6, 9, "x"), store.ErrStale)
	ok(t, advance(p, 0, 5, 9, "b"))
	is(t, "a zombie", advance(p, 0, 5, 7, "x"), store.ErrStale)
	ok(t, advance(p, 0, 9, 9, "")) // an offset alone
	e.want(t, e, "t", `"a" f:"q"="v"`, `"b" f:"q"="v"`)

	// Partitions, pipelines and incarnations of a topic are apart.
	other, reborn := source("q"), p
	reborn.TopicID = [16]byte{2}
	// A first one may come from another store, with what had no effect there.
	moved := progress(100)
	moved.Applied, moved.Unmet, moved.Duplicate = moved.Applied-5, 2, 3
	var first store.Batch
	first.Advance(p, 1, store.Absent, moved)
	ok(t, e.Apply(ctx, &first))
	ok(t, advance(other, 0, store.Absent, 200, ""))
	ok(t, advance(reborn, 0, store.Absent, 300, ""))
	check := func() {
		t.Helper()
		e.stored(t, p, 0, 9)
		e.stored(t, p, 1, 100)
		e.stored(t, other, 0, 200)
		e.stored(t, reborn, 0, 300)
		all, err := store.AllProgress(ctx, e)
		ok(t, err)
		want := []store.PartitionProgress{
			{Source: p, Partition: 0, Progress: progress(9)},
			{Source: p, Partition: 1, Progress: moved},
			{Source: reborn, Partition: 0, Progress: progress(300)},
			{Source: other, Partition: 0, Progress: progress(200)},
		}
		if d := cmp.Diff(want, all); d != "" {
			t.Errorf("AllProgress (-want +got):\n%s", d)
		}
	}
	check()

	// Two partitions in one batch: one stale, none applied.
	var b store.Batch
	b.Advance(p, 1, 100, progress(101))
	b.Advance(p, 0, 8, progress(10))
	is(t, "a batch with one stale advance", e.Apply(ctx, &b), store.ErrStale)
	check()
	// A stale batch is stale, whatever else is wrong with it.
	b.Add(9, put("nope", "r", "v"))
	is(t, "a stale batch with a bad mutation", e.Apply(ctx, &b), store.ErrStale)
	// Advances of one partition see each other.
	b.Reset()
	b.Advance(p, 0, 9, progress(10))
	b.Advance(p, 0, 10, progress(11))
	ok(t, e.Apply(ctx, &b))
	e.stored(t, p, 0, 11)
	is(t, "back", advance(p, 0, 9, 9, ""), store.ErrStale)
	ok(t, advance(p, 0, 11, 9, "")) // a rewind is an advance, too
	check()
	if e.durable() {
		e.reopen()
		check()
		is(t, "a stale batch after reopening", advance(p, 0, 5, 9, "x"), store.ErrStale)
		ok(t, advance(p, 0, 9, 12, "c"))
	}
}

func testRecords(t *testing.T, e *engine) {
	ctx := t.Context()
	e.create("t", store.NewFamily("f"))
	record := func(pipeline string, once string, cond *store.Cond, ms ...cell.Mutation) {
		t.Helper()
		var b store.Batch
		p, found, err := store.ReadProgress(ctx, e, ptr(source(pipeline)), 0)
		ok(t, err)
		from := store.Absent
		if found {
			from = p.Next
		}
		b.Advance(source(pipeline), 0, from, progress(p.Next+1))
		var id []byte
		if once != "" {
			id = []byte(once)
		}
		b.Record(p.Next, id, cond, ms...)
		ok(t, e.Apply(ctx, &b))
	}
	absent := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
	record("p", "", absent, put("t", "a", "1"), put("t", "b", "1"))
	record("p", "", absent, put("t", "a", "2"), put("t", "c", "2")) // dropped whole
	e.want(t, e, "t", `"a" f:"q"="1"`, `"b" f:"q"="1"`)
	record("p", "id1", nil, put("t", "d", "3"))
	record("p", "id1", nil, put("t", "d", "4"))    // applied before
	record("p", "id2", absent, put("t", "a", "5")) // dropped by its condition
	record("p", "id2", nil, put("t", "e", "6"))    // so its id is still unused
	record("q", "id1", nil, put("t", "d", "7"))    // ids of all sources share one space
	record("q", "id4", nil, put("t", "f", "7"))
	want := []string{`"a" f:"q"="1"`, `"b" f:"q"="1"`, `"d" f:"q"="3"`, `"e" f:"q"="6"`, `"f" f:"q"="7"`}
	e.want(t, e, "t", want...)
	if e.durable() {
		e.reopen()
		record("p", "id1", nil, put("t", "d", "8"))
		e.want(t, e, "t", want...)
	}
	// Two in one batch with one id: the first.
	var b store.Batch
	b.Record(1, []byte("id3"), nil, put("t", "g", "1"))
	b.Record(2, []byte("id3"), nil, put("t", "g", "2"))
	ok(t, e.Apply(ctx, &b))
	e.want(t, e, "t", append(want, `"g" f:"q"="1"`)...)
}

func ptr[T any](v T) *T { return &v }

func testBatchOrder(t *testing.T, e *engine) {
	ctx := t.Context()
	f := store.NewFamily("f")
	e.create("t", f)
	equals := func(v string) *store.Cond {
		return &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte(v)}
	}
	var b store.Batch
	b.Add(1, put("t", "r", "a"))
	b.Record(2, nil, equals("a"), put("t", "r", "b")) // sees the put of offset 1
	b.Add(3, put("t", "r", "c"))
	b.Record(3, nil, equals("c"), put("t", "r", "d")) // and that of its own offset
	b.Record(4, nil, equals("c"), put("t", "r", "x")) // but offset 3's record came before
	b.Record(5, nil, equals("d"), put("t", "r", "e"), put("t", "s", "e"))
	ok(t, e.Apply(ctx, &b))
	e.want(t, e, "t", `"r" f:"q"="e"`, `"s" f:"q"="e"`)
}

func counterValue(n int64) string {
	return string(binary.BigEndian.AppendUint64(nil, uint64(n)))
}

// counter fails t where n:c of row is not want; nil = absent.
func (e *engine) counter(t *testing.T, row string, want *cell.Cell) {
	t.Helper()
	table, err := store.OpenTable(t.Context(), e, "t")
	ok(t, err)
	got, err := table.Get(t.Context(), []byte(row), &store.Scan{Columns: []store.Column{{Family: "n", Qualifier: []byte("c")}}, Versions: store.AllVersions})
	ok(t, err)
	switch {
	case want == nil && got != nil:
		t.Errorf("counter of %s is %+v, want none", row, got.Cells)
	case want != nil && got == nil:
		t.Errorf("there is no counter of %s", row)
	case want != nil:
		w := *want
		w.Family, w.Qualifier, w.Kind = "n", []byte("c"), cell.KindPut
		if d := cmp.Diff([]cell.Cell{w}, got.Cells); d != "" {
			t.Errorf("counter of %s (-want +got):\n%s", row, d)
		}
	}
}

// count applies a delta in a batch.
func (e *engine) count(t *testing.T, row string, delta int64, at cell.Timestamp) {
	t.Helper()
	ok(t, e.Apply(t.Context(), &store.Batch{Counters: []store.CounterDelta{{Table: "t", Family: "n", Row: []byte(row), Qualifier: []byte("c"), Delta: delta, Time: at}}}))
}

func testCounters(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), counterFamily("n"))
	e.counter(t, "r", nil)
	e.count(t, "r", 5, 100)
	e.counter(t, "r", &cell.Cell{Time: 100, Value: []byte(counterValue(5))})
	e.count(t, "r", 2, 50) // late: adds, and does not lower the time
	e.counter(t, "r", &cell.Cell{Time: 100, Value: []byte(counterValue(7))})
	n, err := table.Increment(ctx, []byte("r"), "n", []byte("c"), -3)
	if err != nil || n != 4 {
		t.Errorf("Increment = %d, %v, want 4", n, err)
	}
	e.counter(t, "r", &cell.Cell{Time: e.clock.Now(), Value: []byte(counterValue(4))})

	// The same counter several times in one batch, and beside other cells.
	var b store.Batch
	for range 3 {
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("r"), Qualifier: []byte("c"), Delta: 10, Time: cell.Latest})
	}
	m := put("t", "r", "v")
	m.Increment("n", []byte("c"), 6)
	b.Add(0, m)
	ok(t, e.Apply(ctx, &b))
	e.counter(t, "r", &cell.Cell{Time: e.clock.Now(), Value: []byte(counterValue(40))})

	// Deletes take effect in the order of commits; counting starts again at 0.
	ok(t, table.Delete(ctx, []byte("r"), store.Column{Family: "n", Qualifier: []byte("c")}))
	e.counter(t, "r", nil)
	e.count(t, "r", 1, 10)
	e.counter(t, "r", &cell.Cell{Time: 10, Value: []byte(counterValue(1))})
	ok(t, table.Delete(ctx, []byte("r"), store.Column{Family: "n", All: true}))
	e.counter(t, "r", nil)
	e.count(t, "r", 2, 10)
	ok(t, table.Delete(ctx, []byte("r")))
	e.counter(t, "r", nil)
	dm := table.NewMutation([]byte("r"))
	dm.Increment("n", []byte("c"), 8)
	dm.DeleteColumn("n", []byte("c"), cell.Latest)
	dm.Increment("n", []byte("c"), 9)
	res, err := table.MutateRow(ctx, dm)
	ok(t, err)
	if len(res.Cells) != 1 || string(res.Cells[0].Value) != counterValue(9) {
		t.Errorf("increment, delete, increment returns %+v, want one cell of 9", res.Cells)
	}
	check := func() { e.counter(t, "r", &cell.Cell{Time: e.clock.Now(), Value: []byte(counterValue(9))}) }
	check()

	// A condition reads a counter as any cell, and a failed one counts nothing.
	inc := table.NewMutation([]byte("r"))
	inc.Increment("n", []byte("c"), 1)
	held, err := table.CheckAndMutate(ctx, []byte("r"), &store.Cond{Family: "n", Qualifier: []byte("c"), Op: store.Equal, Value: []byte(counterValue(8))}, inc)
	if err != nil || held.Applied {
		t.Errorf("CheckAndMutate = %+v, %v, want not applied", held, err)
	}
	check()
	// A refused batch leaves no count behind.
	b.Reset()
	b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("r"), Qualifier: []byte("c"), Delta: 1000, Time: cell.Latest})
	b.Add(1, put("nope", "r", "v"))
	if err := e.Apply(ctx, &b); err == nil {
		t.Error("a batch with an unknown table was applied")
	}
	check()
	if e.durable() {
		e.reopen()
		check()
		e.count(t, "r", 1, cell.Latest)
		e.counter(t, "r", &cell.Cell{Time: e.clock.Now(), Value: []byte(counterValue(10))})
	}
}

func testCounterLimits(t *testing.T, e *engine) {
	ctx := t.Context()
	table := e.create("t", counterFamily("n"), store.NewFamily("f"))
	e.count(t, "wrap", math.MaxInt64, 1)
	e.count(t, "wrap", 1, 1)
	e.counter(t, "wrap", &cell.Cell{Time: 1, Value: []byte(counterValue(math.MinInt64))})
	e.count(t, "zero", 0, 3)
	e.counter(t, "zero", &cell.Cell{Time: 3, Value: []byte(counterValue(0))})
	for _, op := range []cell.Op{
		{Type: cell.OpPut, Value: []byte("v")},
		{Type: cell.OpAppend, Value: []byte("v")},
		{Type: cell.OpDelete, Time: 1},
		{Type: cell.OpDeleteFamilyVersion, Time: 1},
		{Type: cell.OpIncrement, Delta: 1, TTL: 5},
	} {
		op.Family, op.Qualifier = "n", []byte("c")
		m := table.NewMutation([]byte("r"))
		m.Put("f", nil, cell.Latest, nil)
		m.Ops = append(m.Ops, op)
		_, err := table.MutateRow(ctx, m)
		is(t, fmt.Sprintf("%s on a COUNTER family", op.Type), err, store.ErrRefused)
	}
	if row, err := table.Get(ctx, []byte("r"), nil); row != nil || err != nil {
		t.Errorf("refused mutations left %v, %v", row, err)
	}
	bad := store.CounterDelta{Table: "t", Family: "n", Row: nil, Qualifier: []byte("c"), Delta: 1}
	is(t, "a counter without a row", e.Apply(ctx, &store.Batch{Counters: []store.CounterDelta{bad}}), store.ErrInvalidArgument)
	bad.Row, bad.Time = []byte("r"), -4
	is(t, "a counter before the epoch", e.Apply(ctx, &store.Batch{Counters: []store.CounterDelta{bad}}), store.ErrInvalidArgument)
}

func testCounterExpiry(t *testing.T, e *engine) {
	f := counterFamily("n")
	f.TTL = 10
	e.create("t", f)
	now := e.clock.Now()
	e.count(t, "r", 5, now-4000)
	e.count(t, "r", 1, now-10_001) // beyond the TTL: its bucket is gone
	e.counter(t, "r", &cell.Cell{Time: now - 4000, Value: []byte(counterValue(5))})
	e.clock.Advance(6000)
	e.counter(t, "r", &cell.Cell{Time: now - 4000, Value: []byte(counterValue(5))}) // exactly at its end
	e.clock.Advance(1)
	e.counter(t, "r", nil)
	e.count(t, "r", 2, cell.Latest) // counts from 0, cached or not
	e.counter(t, "r", &cell.Cell{Time: e.clock.Now(), Value: []byte(counterValue(2))})
	e.count(t, "late", 1, now-10_001)
	e.counter(t, "late", nil)
	if store.CountsFrom(e.Engine) == nil {
		return // nothing is summed for it
	}
	// A late increment of a counter that lives is left out whatever shares its batch.
	now = e.clock.Now()
	sums := counters.NewCoalescer()
	for _, times := range [][]cell.Timestamp{{now - 20_000, now, now - 15_000}, {now - 1}, {now - 10_001}, {now, now - 20_000}} {
		sums.CountFrom(store.CountsFrom(e.Engine))
		b := &store.Batch{}
		for i, at := range times {
			sums.Add("t", "n", []byte("live"), []byte("c"), 1, at, int64(i))
		}
		for d := range sums.Deltas {
			b.Counters = append(b.Counters, store.CounterDelta(d))
		}
		if err := e.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		sums.Reset()
	}
	e.counter(t, "live", &cell.Cell{Time: now, Value: []byte(counterValue(3))})
}
