package buffer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/pipeline/memory"
	"sluice/store"
)

func newBuffer(t testing.TB, o *Options) *Buffer {
	t.Helper()
	b, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func add(t testing.TB, b *Buffer, offset int64, ms ...cell.Mutation) {
	t.Helper()
	if err := b.Add(t.Context(), offset, ms); err != nil {
		t.Fatal(err)
	}
}

func putOf(table, row string, kv ...string) cell.Mutation {
	m := cell.Mutation{Table: table, Row: []byte(row)}
	for i := 0; i < len(kv); i += 2 {
		m.Put("e", []byte(kv[i]), 7, []byte(kv[i+1]))
	}
	return m
}

func incrementOf(table, row string, t cell.Timestamp, qualifiers ...string) cell.Mutation {
	m := cell.Mutation{Table: table, Row: []byte(row)}
	for _, q := range qualifiers {
		m.Ops = append(m.Ops, cell.Op{Type: cell.OpIncrement, Family: "c", Qualifier: []byte(q), Time: t, Delta: 1})
	}
	return m
}

var source = store.Source{Pipeline: "p", Topic: "t", ClusterID: "c", TopicID: [16]byte{1}}

func TestTakeHandsOverMutationsSumsAndProgress(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	b.Start(10, Mark{Offset: 9})
	add(t, b, 10, putOf("events", "r1", "a", "1", "b", ""), incrementOf("counts", "x", 100, "h"))
	b.Filter(11)
	add(t, b, 14, incrementOf("counts", "x", 90, "h", "d"), putOf("events", "r2", "a", "2"))
	if err := b.Dead(t.Context(), &DeadLetter{Pipeline: "p", Topic: "t", Offset: 15, Value: []byte("raw"), Stage: "decode", Class: "json", Reason: "bad"}); err != nil {
		t.Fatal(err)
	}
	b.Mark(Mark{Offset: 15, Time: 99, LeaderEpoch: 3, Fingerprint: 42})
	b.Skip(20)
	prev := store.Progress{First: 3, Next: 10, Applied: 5, Dead: 1, Lost: 1}
	got := b.Take(source, 2, prev.Next, &prev, "v1")
	defer got.Release()

	want := store.Progress{
		First: 3, Next: 20, LeaderEpoch: 3, LastOffset: 15, LastTime: 99, Fingerprint: 42, MappingVersion: "v1", MappingFrom: 10,
		Applied: 7, Filtered: 1, Dead: 2, Control: 2 + 4, Lost: 1,
	}
	if d := cmp.Diff(want, got.Progress); d != "" {
		t.Errorf("Got another progress (-want +got):\n%s", d)
	}
	if !got.Progress.Balanced() {
		t.Errorf("Got progress %+v, want it balanced", got.Progress)
	}
	if d := cmp.Diff([]store.Advance{{Source: source, Partition: 2, From: 10, Progress: want}}, got.Store.Advances); d != "" {
		t.Errorf("Got other advances (-want +got):\n%s", d)
	}
	wantCounters := []store.CounterDelta{
		{Table: "counts", Family: "c", Row: []byte("x"), Qualifier: []byte("h"), Delta: 2, Time: 100, Offset: 10},
		{Table: "counts", Family: "c", Row: []byte("x"), Qualifier: []byte("d"), Delta: 1, Time: 90, Offset: 14},
	}
	if d := cmp.Diff(wantCounters, got.Store.Counters); d != "" {
		t.Errorf("Got other counters (-want +got):\n%s", d)
	}
	letter, err := (&DeadLetter{Pipeline: "p", Topic: "t", Offset: 15, Value: []byte("raw"), Stage: "decode", Class: "json", Reason: "bad"}).Mutation()
	if err != nil {
		t.Fatal(err)
	}
	wantMutations := []store.Mutation{
		{Offset: 10, Mutation: putOf("events", "r1", "a", "1", "b", "")},
		{Offset: 14, Mutation: putOf("events", "r2", "a", "2")},
		{Offset: 15, Mutation: letter},
	}
	if n := len(got.Store.Puts); n != 1 {
		t.Errorf("Got %d packed puts, want 1: that of two columns", n)
	}
	if d := cmp.Diff(wantMutations, got.Store.Unpacked().Mutations); d != "" {
		t.Errorf("Got other mutations (-want +got):\n%s", d)
	}
	if d := cmp.Diff([]Letters{{"decode", "json", 1}}, got.Dead); d != "" {
		t.Errorf("Got other dead letters (-want +got):\n%s", d)
	}
	if !b.Empty() || b.Next() != 20 {
		t.Errorf("Got Empty %v and Next %d after Take, want true and 20", b.Empty(), b.Next())
	}
}

func TestAddCopies(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	row, value, counter := []byte("row"), []byte("value"), []byte("page")
	ms := []cell.Mutation{{Table: "t", Row: row}, {Table: "c", Row: counter}, {Table: "t", Row: row}}
	ms[0].Put("e", []byte("q"), 1, value)
	ms[2].Put("e", []byte("q"), 1, value)
	ms[2].Put("e", []byte("r"), 1, value)
	ms[1].Ops = []cell.Op{{Type: cell.OpIncrement, Family: "h", Qualifier: []byte("q"), Delta: 1}}
	b.Separate(1)
	for range 2 { // the counter of the first record stays as it is, the others are summed
		for _, part := range [][]cell.Mutation{ms, ms[1:]} { // once with a put of one column, once packed
			if err := b.Add(t.Context(), b.Next(), part); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, s := range [][]byte{row, value, counter} {
		clear(s)
	}
	clear(ms[0].Ops)
	got := b.Take(source, 0, 0, &store.Progress{}, "")
	all := got.Store.Unpacked().Mutations
	if len(got.Store.Puts) != 2 || len(all) != 6 || len(got.Store.Counters) != 2 {
		t.Errorf("Got %d packed puts of %d, and %d counters", len(got.Store.Puts), len(all), len(got.Store.Counters))
	}
	for i := range all {
		m := &all[i]
		if string(m.Row) != "row" || string(m.Ops[0].Value) != "value" || m.Ops[0].Type != cell.OpPut {
			t.Errorf("Got mutation %+v changed after Add", m)
		}
	}
	for _, c := range got.Store.Counters {
		if string(c.Row) != "page" {
			t.Errorf("Got counter row %q changed after Add", c.Row)
		}
	}
}

func TestSeparateKeepsIncrementsOfARecordApart(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, nil)
	b.Separate(2)
	for offset := range int64(4) {
		add(t, b, offset, incrementOf("c", "x", 1, "q"))
	}
	got := b.Take(source, 0, 0, &store.Progress{}, "")
	type od struct{ Offset, Delta int64 }
	var have []od
	for _, c := range got.Store.Counters {
		have = append(have, od{c.Offset, c.Delta})
	}
	if d := cmp.Diff([]od{{0, 1}, {1, 1}, {2, 2}}, have); d != "" {
		t.Errorf("Got other increments (-want +got):\n%s", d)
	}
}

// TestSeparateOption: for an engine whose batches are not atomic nothing is summed,
// and deletes, which have nothing to do with counters there, share batches with them.
func TestSeparateOption(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, &Options{Separate: true})
	b.Separate(1) // changes nothing
	del := cell.Mutation{Table: "t", Row: []byte("x")}
	del.DeleteColumn("f", []byte("q"), 5)
	add(t, b, 0, incrementOf("c", "x", 1, "q"), del)
	add(t, b, 1, incrementOf("c", "x", 1, "q"))
	add(t, b, 2, del)
	add(t, b, 3, incrementOf("c", "y", 1, "q"))
	got := b.Take(source, 0, 0, &store.Progress{}, "")
	var offsets []int64
	for _, c := range got.Store.Counters {
		offsets = append(offsets, c.Offset)
	}
	if d := cmp.Diff([]int64{0, 1, 3}, offsets); d != "" || len(got.Store.Mutations) != 2 || len(got.Store.Records) != 0 {
		t.Errorf("Got %d mutations, %d records and increments (-want +got):\n%s", len(got.Store.Mutations), len(got.Store.Records), d)
	}
	if got.Counts.Applied != 4 || got.Bytes <= 0 {
		t.Errorf("Got %+v", got.Summary)
	}
}

// TestCountsFrom: what an increment counts for does not depend on the batch that it is in. The
// bound is that of the instant at which a batch is begun, whoever had its memory before.
func TestCountsFrom(t *testing.T) {
	t.Parallel()
	from := cell.Timestamp(0)
	b := newBuffer(t, &Options{CountsFrom: func(string, string) cell.Timestamp { return from }})
	at := func(at cell.Timestamp) cell.Mutation {
		m := incrementOf("c", "x", 1, "q")
		m.Ops[0].Time = at
		return m
	}
	next := int64(0)
	for range 3 {
		from += 100
		for _, m := range []cell.Mutation{at(from + 5), at(from - 1), at(from), at(from - 2)} {
			add(t, b, next, m)
			next++
		}
		got := b.Take(source, 0, next-4, &store.Progress{Next: next - 4}, "")
		var sums [][2]int64
		for _, c := range got.Store.Counters {
			sums = append(sums, [2]int64{c.Delta, int64(c.Time)})
		}
		if d := cmp.Diff([][2]int64{{2, int64(from) + 5}, {2, int64(from) - 1}}, sums); d != "" {
			t.Errorf("from %d: deltas and times (-want +got)\n%s", from, d)
		}
		got.Release()
	}
}

// A batch does not say whether a delete or an increment of it comes first, so
// they may not share one.
func TestDeletesAndIncrementsNeverShareABatch(t *testing.T) {
	t.Parallel()
	del := cell.Mutation{Table: "c", Row: []byte("x")}
	del.DeleteRow(cell.Latest)
	inc := incrementOf("c", "x", 1, "q")
	for name, c := range map[string]struct{ first, second []cell.Mutation }{
		"delete then increment": {[]cell.Mutation{del}, []cell.Mutation{inc}},
		"increment then delete": {[]cell.Mutation{inc}, []cell.Mutation{del}},
		"both in one record":    {[]cell.Mutation{inc}, []cell.Mutation{inc, del}},
		"both, then one":        {[]cell.Mutation{del, inc}, []cell.Mutation{putOf("t", "r", "a", "1")}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBuffer(t, nil)
			add(t, b, 0, c.first...)
			if err := b.Add(t.Context(), 1, c.second); !errors.Is(err, ErrFull) {
				t.Fatalf("Got %v, want ErrFull", err)
			}
			first := b.Take(source, 0, 0, &store.Progress{}, "")
			if first.Progress.Next != 1 {
				t.Errorf("Got Next %d, want 1: a refused record must not be covered", first.Progress.Next)
			}
			add(t, b, 1, c.second...)
			second := b.Take(source, 0, 1, &first.Progress, "")
			if second.Progress.Applied != 2 || !second.Progress.Balanced() {
				t.Errorf("Got progress %+v", second.Progress)
			}
		})
	}
}

func TestFullAndDue(t *testing.T) {
	t.Parallel()
	b := newBuffer(t, &Options{MaxRecords: 3, MaxBytes: 1 << 20, MaxAge: time.Minute})
	if _, ok := b.Due(); ok {
		t.Error("Got a deadline for an empty buffer")
	}
	b.Filter(0)
	b.Filter(1)
	if b.Full() {
		t.Error("Got full after 2 of 3 records")
	}
	due, ok := b.Due()
	if wait := time.Until(due); !ok || wait <= 50*time.Second || wait > time.Minute {
		t.Errorf("Got due in %v, %v, want a minute from the first record", wait, ok)
	}
	b.Filter(2)
	if !b.Full() {
		t.Error("Got not full after 3 of 3 records")
	}
	b.Take(source, 0, 0, &store.Progress{}, "").Release()
	add(t, b, 3, putOf("t", "r", "a", string(make([]byte, 1<<20))))
	if !b.Full() {
		t.Error("Got not full above MaxBytes")
	}
}

func TestNewRejects(t *testing.T) {
	t.Parallel()
	for _, o := range []*Options{{MaxRecords: -1}, {MaxBytes: -1}, {MaxAge: -1}} {
		if _, err := New(o); err == nil {
			t.Errorf("Got no error for %+v", o)
		}
	}
	if _, err := NewBudget(0); err == nil {
		t.Error("Got no error for a budget of 0")
	}
}

// memory returns what the slices of the batch hold, but for what is a record's own.
func (b *Batch) memory() (n int64) {
	for _, c := range b.chunks {
		n += int64(cap(c))
	}
	for _, c := range b.opChunks {
		n += int64(cap(c)) * opSize
	}
	if b.body != nil {
		n += b.size()
	}
	return n
}

// A record that is larger than the budget is refused, and takes nothing.
func TestRecordLargerThanTheBudget(t *testing.T) {
	t.Parallel()
	budget, err := NewBudget(128 << 10)
	if err != nil {
		t.Fatal(err)
	}
	b := newBuffer(t, &Options{Budget: budget})
	b.Start(0, Mark{})
	err = b.Add(t.Context(), 0, []cell.Mutation{putOf("t", "r", "q", strings.Repeat("x", 128<<10))})
	if large, ok := errors.AsType[*memory.TooLargeError](err); !ok || large.Most != 128<<10 {
		t.Errorf("Got %v, want an error that says how much is too much", err)
	}
	if !b.Empty() || budget.Used() != 0 {
		t.Errorf("Got %d bytes held by what was refused", budget.Used())
	}
	// What fits alone does not beside what its batch has borrowed.
	fits := []cell.Mutation{putOf("t", "r", "q", strings.Repeat("x", 64<<10))}
	lent, _ := budget.share.Try(64 << 10)
	b.Lent(lent.Bytes())
	if err := b.Add(t.Context(), 0, fits); err == nil {
		t.Error("Got a record of 64 KiB beside as much that is lent")
	}
	lent.Release()
	b.Lent(0)
	if err := b.Add(t.Context(), 0, fits); err != nil {
		t.Error(err)
	}
	b.Close()
	if budget.Used() != 0 {
		t.Errorf("Got %d bytes held after the end", budget.Used())
	}
}

// Whatever is added, taken and released: the budget holds at least the content
// while it lives and nothing afterwards, offsets balance, and every operation
// comes out once.
func TestRandomUse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		budget, err := NewBudget(int64(rapid.IntRange(160<<10, 1<<20).Draw(t, "limit")))
		if err != nil {
			t.Fatal(err)
		}
		b, err := New(&Options{MaxRecords: 50, Budget: budget})
		if err != nil {
			t.Fatal(err)
		}
		var held []*Batch
		var progress store.Progress
		var ops, sum, wantOps, wantSum int64
		take := func() {
			batch := b.Take(source, 0, progress.Next, &progress, "")
			if !batch.Progress.Balanced() {
				t.Fatalf("Got %+v, not balanced", batch.Progress)
			}
			progress = batch.Progress
			all := batch.Store.Unpacked().Mutations
			for i := range all {
				if m := &all[i]; m.Table == "t" {
					ops += int64(len(m.Ops))
				}
			}
			for _, c := range batch.Store.Counters {
				sum += c.Delta
			}
			held = append(held, batch)
		}
		release := func() {
			if len(held) > 0 {
				held[0].Release()
				held = held[1:]
			}
		}
		offset := int64(0)
		for range rapid.IntRange(0, 200).Draw(t, "steps") {
			offset += int64(rapid.SampledFrom([]int{0, 0, 0, 1, 5}).Draw(t, "gap"))
			var record func(ctx context.Context) error
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				b.Filter(offset)
				offset++
				continue
			case 1:
				d := &DeadLetter{Offset: offset, Value: make([]byte, rapid.IntRange(0, 40_000).Draw(t, "value"))}
				record = func(ctx context.Context) error { return b.Dead(ctx, d) }
			case 2:
				take()
				continue
			case 3:
				release()
				continue
			case 4:
				b.Separate(offset + 10)
				continue
			default:
				p := putOf("t", "r", "a", string(make([]byte, rapid.IntRange(0, 20_000).Draw(t, "value"))), "b", "")
				i := incrementOf("c", fmt.Sprint(offset%7), 1, "x", "y")
				record = func(ctx context.Context) error { return b.Add(ctx, offset, []cell.Mutation{p, i}) }
				wantOps, wantSum = wantOps+2, wantSum+2
			}
			for {
				ctx, cancel := context.WithCancel(context.Background())
				cancel() // never wait
				err := record(ctx)
				if err == nil {
					break
				}
				if errors.Is(err, ErrFull) {
					if b.Empty() {
						t.Fatal("Got ErrFull from an empty buffer")
					}
					take()
				} else if len(held) == 0 {
					t.Fatalf("Got %v with nothing held", err)
				}
				release()
			}
			offset++
			var content int64
			for _, h := range held {
				content += h.Bytes
			}
			if used := budget.Used(); used < content+b.Bytes() {
				t.Fatalf("Got %d bytes of the budget for %d of content", used, content+b.Bytes())
			} else if _, _, idle := budget.share.Held(); used+idle > budget.Limit() {
				t.Fatalf("Got %d bytes used and %d idle of a budget of %d", used, idle, budget.Limit())
			}
			for _, batch := range append(held[:len(held):len(held)], b.cur) {
				if got := batch.memory(); got+batch.spare > batch.grant.Bytes() || batch.Bytes > batch.grant.Bytes() {
					t.Fatalf("Got %d bytes of memory, %d of content, %d spare, %d granted", got, batch.Bytes, batch.spare, batch.grant.Bytes())
				}
			}
		}
		take()
		for len(held) > 0 {
			release()
		}
		b.Close()
		if budget.Used() != 0 {
			t.Fatalf("Got %d bytes held after everything was released", budget.Used())
		}
		if ops != wantOps || sum != wantSum {
			t.Fatalf("Got %d puts and a sum of %d, want %d and %d", ops, sum, wantOps, wantSum)
		}
		if progress.Next != offset && progress.Next > offset {
			t.Fatalf("Got Next %d, want at most %d", progress.Next, offset)
		}
	})
}

// event is what the benchmark of the whole pipeline makes of 200 bytes of JSON:
// one row of six columns and three counters.
func event(i int) []cell.Mutation {
	row := fmt.Appendf(nil, "%04x/u%07d/%016x%02x", i*40503&0xffff, i%1_000_000, 1<<62-i, i&3)
	page := fmt.Appendf(nil, "/page/%05d", i*i%100_000)
	m := cell.Mutation{Table: "events", Row: row}
	for _, c := range []string{"agent", "country", "duration_ms", "page", "referrer", "user"} {
		m.Put("e", []byte(c), 1, []byte("value of "+c))
	}
	k := cell.Mutation{Table: "pageview_counts", Row: page}
	for _, c := range []string{"minute", "hour", "day"} {
		k.Ops = append(k.Ops, cell.Op{Type: cell.OpIncrement, Family: c, Qualifier: []byte("202601011234"), Time: 1, Delta: 1})
	}
	return []cell.Mutation{m, k}
}

// BenchmarkAdd adds events as a mapper emits them: in memory that is reused, so
// that it is in the processor's cache, with another row and page each time.
func BenchmarkAdd(b *testing.B) {
	ms := event(0)
	row, page := ms[0].Row, ms[1].Row
	rng := rand.New(rand.NewPCG(1, 2))
	pages := rand.NewZipf(rng, 1.1, 1, 99_999)
	picks := make([]uint32, 1<<16)
	for i := range picks {
		picks[i] = uint32(pages.Uint64())
	}
	buf := newBuffer(b, nil)
	var prev store.Progress
	ctx := b.Context()
	run := func(from, to int64) {
		for i := from; i < to; i++ {
			binary.BigEndian.PutUint64(row, uint64(i)*0x9E3779B97F4A7C15)
			binary.BigEndian.PutUint32(page, picks[i&0xffff])
			if err := buf.Add(ctx, i, ms); err != nil {
				b.Fatal(err)
			}
			if buf.Full() {
				t := buf.Take(source, 0, prev.Next, &prev, "v")
				prev = t.Progress
				t.Release()
			}
		}
	}
	const warm = 100_000
	run(0, warm)
	b.ReportAllocs()
	b.ResetTimer()
	run(warm, warm+int64(b.N))
}

func TestAddDoesNotAllocate(t *testing.T) {
	const n = 4096
	events := make([][]cell.Mutation, n)
	for i := range events {
		events[i] = event(i)
	}
	buf := newBuffer(t, &Options{MaxRecords: n})
	var prev store.Progress
	offset := int64(0)
	fill := func() {
		for i := range events {
			if err := buf.Add(t.Context(), offset, events[i]); err != nil {
				t.Fatal(err)
			}
			offset++
		}
		b := buf.Take(source, 0, prev.Next, &prev, "v")
		prev = b.Progress
		b.Release()
	}
	fill()
	fill()
	if got := testing.AllocsPerRun(5, fill); got > 20 {
		t.Errorf("Got %v allocations for %d records, want none a record", got, n)
	}
}
