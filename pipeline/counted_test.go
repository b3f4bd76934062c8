package pipeline

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/buffer"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// What a pipeline counts of itself.

// Ranges that Kafka lost are stored with the offset, in its commit, and outlive the
// process; the audit goes by them.
func TestLostRangesAreStored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	open := func() *pebblestore.DB {
		db, err := pebblestore.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	db := open()
	createTables(t, db)
	s := newSchedule(t, db)
	skip := func(o *Options) { o.OnDataLoss = SkipLostData }
	step := func(trim int64) {
		for range 20 {
			s.b.produce(0, "a")
		}
		if trim > 0 {
			s.b.trim(0, trim)
		}
		r := s.start(db, skip)
		r.caughtUp(s.b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	}
	step(0)  // 0-19
	step(30) // 20-29 are lost
	step(0)  // 40-59
	step(65) // 60-64 are lost
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open()
	defer db.Close()
	s.e = db
	want := []store.Gap{{From: 20, To: 30}, {From: 60, To: 65}}
	check := func(problem string) {
		t.Helper()
		for _, a := range audit(t, s.e, s.b, false) {
			if a.Partition != 0 {
				continue
			}
			if d := cmp.Diff(want, a.Progress.Gaps.All()); d != "" || a.Progress.Lost != 15 {
				t.Errorf("Got %d lost, ranges (-want +got):\n%s", a.Progress.Lost, d)
			}
			if !slices.Contains(a.Notes, "lost offsets: 20-29 60-64") {
				t.Errorf("Got notes %q, want the ranges", a.Notes)
			}
			if problem == "" && len(a.Problems) > 0 || problem != "" && !strings.Contains(strings.Join(a.Problems, "\n"), problem) {
				t.Errorf("Got problems %q, want %q", a.Problems, problem)
			}
		}
	}
	check("")
	s.b.change(func() { s.b.logs[0].start = 50 })
	check("offsets 60 to 64 are counted as lost, Kafka has them from 50 on")
}

// A lost range that is not counted as often is a problem, and so is one outside of
// what was applied; a range that is not known any more is none.
func TestAuditOfGaps(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		p             store.Progress
		problem, note string
	}{
		"good":      {store.Progress{First: 5, Next: 30, Applied: 20, Lost: 5, Gaps: store.Gaps("").With(10, 15)}, "", "lost offsets: 10-14"},
		"forgotten": {store.Progress{First: 5, Next: 30, Applied: 15, Lost: 10, Gaps: store.Gaps("").With(10, 15)}, "", "5 of them, is not known"},
		"too many":  {store.Progress{Next: 30, Applied: 26, Lost: 4, Gaps: store.Gaps("").With(10, 15)}, "4 offsets are counted as lost, the ranges 10-14 have 5", ""},
		"outside":   {store.Progress{First: 5, Next: 30, Applied: 20, Lost: 5, Gaps: store.Gaps("").With(0, 5)}, "outside of 5 to 29", ""},
		"aborted":   {store.Progress{Next: 30, Applied: 20, Control: 10, Aborted: 11}, "11 records of aborted transactions", ""},
		"late":      {store.Progress{Next: 30, Applied: 20, Control: 10, Late: 21}, "21 records are counted as late, of 20", ""},
	} {
		a := Audit{PartitionProgress: store.PartitionProgress{Progress: c.p}}
		a.counts()
		if got := strings.Join(a.Problems, "\n"); (got == "") != (c.problem == "") || !strings.Contains(got, c.problem) {
			t.Errorf("%s: got problems %q, want %q", name, got, c.problem)
		}
		if got := strings.Join(a.Notes, "\n"); !strings.Contains(got, c.note) {
			t.Errorf("%s: got notes %q, want %q", name, got, c.note)
		}
	}
}

// Late events are added to the buckets of their own time, exactly, and counted; where
// they are refused instead they are dead letters.
func TestLateEvents(t *testing.T) {
	t.Parallel()
	for _, refuse := range []bool{false, true} {
		t.Run(fmt.Sprint("refuse ", refuse), func(t *testing.T) {
			t.Parallel()
			s := newSchedule(t, newEngine(t))
			plan, err := mapping.Compile(&mapping.Spec{
				Decode:    mapping.DecodeSpec{Format: "json"},
				EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms", AllowedLateness: time.Minute, RefuseLate: refuse},
				Rules: []mapping.RuleSpec{{
					Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `date(ts, "HHmm")`}},
				}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			want, late := map[string]int64{}, int64(0)
			const hour = 3_600_000
			for i := range 300 {
				n := int32(i % 3)
				s.b.change(func() {
					l := s.b.logs[n]
					back := []int64{0, 30_000, 60_000, 60_001, 2 * hour}[s.rng.IntN(5)] // ms
					r := ownRecord(fakeRecord(l.end, 3*hour+60_000*int64(i), fmt.Sprintf(`{"page":"p%d","ts":%d}`, i%4, 3*hour+60_000*int64(i)-back)))
					l.records, l.end = append(l.records, r), l.end+1
					if back > 60_000 {
						late++
						if refuse {
							return
						}
					}
					want[fmt.Sprintf("p%d/%s", i%4, time.UnixMilli(3*hour+60_000*int64(i)-back).UTC().Format("1504"))]++
				})
			}
			// Every third reply is lost: what is late is counted once all the same.
			var n atomic.Int64
			e := &faultyEngine{Engine: s.e, fault: func(*store.Batch) (bool, error) {
				if n.Add(1)%3 == 0 {
					return true, store.ErrTransient
				}
				return true, nil
			}}
			p := newTest(t, e, s.b, func(o *Options) { o.Flush.MaxRecords = 16 })
			p.newMapper = func() mapper { return plan.NewMapper() }
			r := start(t, p, 0, 1, 2)
			r.caughtUp(s.b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, readBuckets(t, s.e)); d != "" {
				t.Errorf("counts (-want +got):\n%s", d)
			}
			var got store.Progress
			for _, one := range allProgress(t, s.e) {
				got.Late += one.Progress.Late
				got.Applied += one.Progress.Applied
				got.Dead += one.Progress.Dead
				if !one.Progress.Balanced() {
					t.Errorf("Got %+v, out of balance", one.Progress)
				}
			}
			if late < 20 || refuse && (got.Late != 0 || got.Dead != late || got.Applied != 300-late) || !refuse && (got.Late != late || got.Dead != 0 || got.Applied != 300) {
				t.Errorf("Got %+v, %d are late of 300", got, late)
			}
		})
	}
}

// readBuckets returns the counts by row and qualifier.
func readBuckets(t *testing.T, e store.Engine) map[string]int64 {
	t.Helper()
	got := map[string]int64{}
	sc := e.Scan(t.Context(), &store.Scan{Table: "counts"})
	defer sc.Close()
	for sc.Next() {
		for i := range sc.Row().Cells {
			c := &sc.Row().Cells[i]
			got[string(sc.Row().Key)+"/"+string(c.Qualifier)] = int64(c.Value[7]) | int64(c.Value[6])<<8
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}

// Changes are counted by kind as they are stored, not as they are tried.
func TestOpsAreCounted(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	for range 30 {
		s.b.produce(0, "a", "b", "skip", "bad")
	}
	var n atomic.Int64
	e := &faultyEngine{Engine: s.e, fault: func(*store.Batch) (bool, error) {
		if n.Add(1)%3 == 2 {
			return false, store.ErrTransient
		}
		return true, nil
	}}
	r := s.start(e, func(o *Options) { o.Flush.MaxRecords = 8 })
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	got := r.Metrics().Ops
	if got.Puts != 60 || got.Deletes != 0 || got.Appends != 0 || got.Increments < 2 || got.Increments > 60 {
		t.Errorf("Got %+v, want 60 puts, and increments summed by batch", got)
	}
	if m := r.Metrics(); m.Held <= 0 || m.Fenced != 0 {
		t.Errorf("Got %v of backpressure by a store that is busy, %d batches fenced", m.Held, m.Fenced)
	}

	plan := ledgerPlan(t, time.Hour)
	b := newFakeBroker(1)
	for _, ev := range []ledgerEvent{{"1", "a", "set", "x"}, {"2", "a", "log", "x"}, {"3", "a", "reset", "x"}, {"4", "a", "count", ""}} {
		b.produce(0, ev.String())
	}
	p := newTest(t, newEngine(t), b)
	p.newMapper = func() mapper { return plan.NewMapper() }
	r = start(t, p, 0)
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(buffer.Ops{Increments: 2, Puts: 1, Deletes: 1, Appends: 1}, r.Metrics().Ops); d != "" {
		t.Errorf("changes of units (-want +got):\n%s", d)
	}
}

// Batches behind one that another owner has overtaken are not sent, nor is what is
// buffered when the partition is taken away for good; both are counted, and the new
// owner applies them.
func TestFencedWritesAreCounted(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	s.b.rng = nil // one batch of the broker
	for range 40 {
		s.b.produce(0, "a")
	}
	asleep, wake := make(chan struct{}), make(chan struct{})
	var sent atomic.Int64
	zombie := s.start(&faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
		if b.Advances[0].From < 0 {
			return true, nil
		}
		if sent.Add(1) == 1 {
			close(asleep)
			<-wake
		}
		return true, nil
	}}, func(o *Options) { o.InFlight = 3 })
	<-asleep
	// One batch of 16 is in the store, one waits, and 8 records are buffered.
	waitFor(t, func() bool { return zombie.first().Position == 40 })
	owner := s.start(s.e)
	owner.caughtUp(s.b)
	if err := owner.close(); err != nil {
		t.Fatal(err)
	}
	close(wake)
	waitFor(t, func() bool { return zombie.Metrics().Stale > 0 })
	if n := zombie.Metrics().Fenced; n != 2 {
		t.Errorf("Got %d batches fenced, want the 2 behind the stale one", n)
	}
	if err := zombie.close(); err != nil {
		t.Fatal(err)
	}
	s.finish()

	// A process that is not given the time to drain.
	b := newFakeBroker(1)
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	createTables(t, e)
	for range 15 {
		b.produce(0, "a")
	}
	stuck := make(chan struct{})
	p := newTest(t, &blocked{Engine: e, begun: stuck}, b, killed, func(o *Options) { o.Flush.MaxRecords = 10 })
	r := start(t, p, 0)
	<-stuck
	waitFor(t, func() bool { return r.first().Position == 15 }) // 5 are buffered
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if n := r.Metrics().Fenced; n != 1 {
		t.Errorf("Got %d batches fenced of a partition that was taken away with records buffered, want 1", n)
	}
}

// blocked answers no batch of a partition until the caller gives up.
type blocked struct {
	store.Engine
	begun chan struct{}
	asked atomic.Bool
}

func (e *blocked) Apply(ctx context.Context, b *store.Batch) error {
	if len(b.Advances) == 0 || b.Advances[0].From < 0 {
		return e.Engine.Apply(ctx, b)
	}
	if !e.asked.Swap(true) {
		close(e.begun)
	}
	<-ctx.Done()
	return ctx.Err()
}
