package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
	"sluice/store"
)

func withPoison(p Poison) testOption { return func(o *Options) { o.Poison = p } }

func TestPolicies(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name     string
		policies map[string]Policy
		letters  map[string]string
		dropped  int64
	}{
		{"none", nil, map[string]string{"t/0/1": "decode/test", "t/0/3": "store/cell_too_large", "t/0/4": "map/panic"}, 0},
		{"class", map[string]Policy{"test": DropRecords}, map[string]string{"t/0/3": "store/cell_too_large", "t/0/4": "map/panic"}, 1},
		{"stage", map[string]Policy{"store": DropRecords, "map": DropRecords}, map[string]string{"t/0/1": "decode/test"}, 2},
		{"class before stage", map[string]Policy{"decode": DropRecords, "test": KeepLetters, "store": DropRecords}, map[string]string{"t/0/1": "decode/test", "t/0/4": "map/panic"}, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "bad", "b", "huge", "panic", "c")
			p := newTest(t, e, b, withPoison(Poison{Policies: c.policies}))
			r := start(t, p, 0)
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			got := readContents(t, e)
			if d := cmp.Diff(c.letters, got.Letters); d != "" {
				t.Errorf("Got other letters (-want +got):\n%s", d)
			}
			all, err := store.AllProgress(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if g := all[0].Progress; g.Dropped != c.dropped || g.Applied != 3 || g.Dead != int64(len(c.letters)) {
				t.Errorf("Got %+v, want 3 applied and %d dropped", g, c.dropped)
			}
			if m := p.Metrics(); m.Dropped != c.dropped {
				t.Errorf("Got %d dropped in the metrics, want %d", m.Dropped, c.dropped)
			}
		})
	}
}

// What is before the record is applied, nothing after it, and the error says where.
func TestPolicyFailStopsAtTheRecord(t *testing.T) {
	t.Parallel()
	for value, class := range map[string]string{"bad": "test", "huge": "cell_too_large"} {
		t.Run(class, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "b")
			ingest(t, e, b)
			b.produce(0, "c", value, "d")
			policies := withPoison(Poison{Policies: map[string]Policy{class: StopPipeline}})
			r := start(t, newTest(t, e, b, policies), 0)
			err := r.failed()
			var poison *PoisonError
			if !errors.Is(err, ErrPoison) || !errors.As(err, &poison) || poison.Offset != 3 || poison.Err.Class != class ||
				!strings.Contains(err.Error(), "t/0, offset 3") {
				t.Errorf("Got %v, want an error that names offset 3 and class %s", err, class)
			}
			got := readContents(t, e)
			if got.Counts["d"] != 0 || len(got.Letters) != 0 {
				t.Errorf("Got %+v, want nothing of what follows", got)
			}
			if class == "test" && (got.Counts["c"] != 1 || got.Progress.Next != 3) {
				t.Errorf("Got %+v, want all before offset 3", got)
			}
			ingest(t, e, b) // with the mapping as it is, the record is a letter
			checkContents(t, e, b)
		})
	}
}

// A table that is created late: the records wait for it, and none is dead.
func TestPolicyRetryWaitsForACure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(1)
		admin := e.(store.Admin)
		if err := e.(store.TableSwitcher).DisableTable(t.Context(), "events"); err != nil {
			t.Fatal(err)
		}
		if err := admin.DropTable(t.Context(), "events"); err != nil {
			t.Fatal(err)
		}
		b.produce(0, "a", "skip", "b")
		p := newTest(t, e, b, withPoison(Poison{Policies: map[string]Policy{"no_such_table": RetryRecords}, Retries: 100}))
		r := start(t, p, 0)
		<-time.After(10 * time.Second) // of the bubble's clock
		synctest.Wait()
		if s := r.first(); s.Paused != "a record is tried again: no_such_table" || s.Progress.Next != 0 {
			t.Errorf("Got %+v, want a pause", s)
		}
		events := &store.TableDescriptor{Name: "events", MaxCellBytes: maxCell, Families: []store.FamilyDescriptor{store.NewFamily("e")}}
		if err := admin.CreateTable(t.Context(), events, nil); err != nil {
			t.Fatal(err)
		}
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, e, b)
		if s := r.first(); s.Paused != "" {
			t.Errorf("Got pause %q after the cure", s.Paused)
		}
	})
}

func TestPolicyRetryGivesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "bad", "b", "huge", "c", "read-only")
		begun := time.Now()
		p := newTest(t, e, b, withPoison(Poison{Policies: map[string]Policy{"decode": RetryRecords, "store": RetryRecords}, Retries: 3}))
		r := start(t, p, 0)
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, e, b)
		for d, err := range ScanLetters(t.Context(), e, &LetterFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			if d.Attempts != 4 {
				t.Errorf("Got letter %d after %d attempts, want 4", d.Offset, d.Attempts)
			}
		}
		// Two records, three waits each that double from a millisecond.
		if took := time.Since(begun); took < 14*time.Millisecond {
			t.Errorf("Got all tries within %v", took)
		}
	})
}

func TestBreakerPausesThePartition(t *testing.T) {
	t.Parallel()
	for _, poison := range []string{"bad", "huge"} {
		t.Run(poison, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(2)
			for range 200 {
				b.produce(0, "a", "a", "a", "a", "a", "a", "a", "a", "a", poison)
				b.produce(1, "b")
			}
			policies := withPoison(Poison{TripAt: 20, Window: 100})
			p := newTest(t, e, b, policies)
			r := start(t, p, 0, 1)
			r.caughtUp(b) // a tenth is borne
			for range 100 {
				b.produce(0, poison, "a")
				b.produce(1, "b")
			}
			waitFor(t, func() bool { return r.first().Tripped != "" })
			waitFor(t, func() bool { s := r.Status().Partitions[1]; return s.Progress.Next == 300 }) // the others go on
			s := r.first()
			if m := p.Metrics(); m.Trips != 1 {
				t.Errorf("Got %d trips, want 1", m.Trips)
			}
			if !strings.Contains(s.Paused, "21 of 100 offsets") || !strings.Contains(s.Paused, "trip_at") {
				t.Errorf("Got pause %q, want how many of how many and what to do", s.Paused)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			got := readContents(t, e)
			if n := int64(len(got.Letters)); n > 200+21 || n < 200+10 || n != got.Progress.Dead {
				t.Errorf("Got %d letters, want those before the breaker opened", n)
			}
			before := s.Progress.Next

			// Another owner of the same process stays at it; a new process begins
			// to count anew.
			r = start(t, p, 0)
			waitFor(t, func() bool { return r.first().Paused != "" })
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if s := r.first(); s.Progress.Next != before {
				t.Errorf("Got to offset %d, want it to stay at %d", s.Progress.Next, before)
			}
			r = start(t, newTest(t, e, b, withPoison(Poison{TripAt: 60, Window: 100})), 0, 1)
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, e, b)
		})
	}
}

// A breaker that may close by itself tries a tenth of a window after a while: it opens
// again where that is poison, too, and is closed where it is not.
func TestBreakerClosesAfterAWhile(t *testing.T) {
	t.Parallel()
	for _, poison := range []string{"bad", "huge"} {
		t.Run(poison, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, b := newEngine(t), newFakeBroker(1)
				begun := time.Now()
				for range 100 {
					b.produce(0, poison)
				}
				p := newTest(t, e, b, withPoison(Poison{TripAt: 20, Window: 100, CloseAfter: 20 * time.Second}))
				r := start(t, p, 0)
				// 20 of the first window, then 2 a try.
				for i, want := range []int64{20, 22, 24, 26} {
					waitFor(t, func() bool { return p.Metrics().Trips == int64(i+1) && r.first().Progress.Next == want })
					if s := r.first(); !strings.Contains(s.Tripped, "every 20s") || s.Paused == "" {
						t.Errorf("Got %+v, want it to say when it tries again", s)
					}
				}
				if took := time.Since(begun); took < time.Minute {
					t.Errorf("Got four tries within %v", took)
				}
				// What is left is good by the time of the next try, and of the one
				// after the rebalance in between.
				b.change(func() {
					for i := range b.logs[0].records[26:] {
						b.logs[0].records[26+i].Value = []byte("a")
					}
				})
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				r = start(t, p, 0)
				r.caughtUp(b)
				for range 100 {
					b.produce(0, "a", "a", "a", "a", "a", "a", "a", "a", "a", poison)
				}
				r.caughtUp(b) // as before it had opened
				if s := r.first(); s.Tripped != "" || s.Paused != "" || p.Metrics().Trips != 4 {
					t.Errorf("Got %+v, %d trips, want it closed", s, p.Metrics().Trips)
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, e, b)
			})
		})
	}
}

// A breaker that is closed by hand counts from none, whether its partition has a
// worker then or gets one later.
func TestBreakerClosedByHand(t *testing.T) {
	t.Parallel()
	for _, after := range []time.Duration{0, time.Hour} {
		synctest.Test(t, func(t *testing.T) {
			e, b := newEngine(t), newFakeBroker(2)
			for range 60 {
				b.produce(0, "bad")
				b.produce(1, "b")
			}
			p := newTest(t, e, b, withPoison(Poison{TripAt: 20, Window: 100, CloseAfter: after}))
			r := start(t, p, 0, 1)
			waitFor(t, func() bool { return r.first().Tripped != "" && r.Status().Partitions[1].Progress.Next == 60 })
			if n := p.CloseBreakers(); n != 1 {
				t.Errorf("Got %d breakers closed, want 1", n)
			}
			waitFor(t, func() bool { return p.Metrics().Trips == 2 && r.first().Progress.Next == 40 })
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if n := p.CloseBreakers(); n != 1 {
				t.Errorf("Got %d breakers closed between two owners, want 1", n)
			}
			if s := r.first(); s.Tripped != "" || s.Paused != "" {
				t.Errorf("Got %+v", s)
			}
			r = start(t, p, 0, 1)
			r.caughtUp(b) // the last 20
			if n := p.CloseBreakers(); n != 0 || p.Metrics().Trips != 2 {
				t.Errorf("Got %d breakers closed, %d trips; want none and 2", n, p.Metrics().Trips)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, e, b)
		})
	}
}

func TestBreaker(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		p      Poison
		failed func(offset int64) bool
		at     int64 // -1 = never
	}{
		{"off", Poison{Window: 10}, func(int64) bool { return true }, -1},
		{"all", Poison{Window: 10, TripAt: 50}, func(int64) bool { return true }, 5},
		{"every second at 50", Poison{Window: 10, TripAt: 50}, func(o int64) bool { return o%2 == 0 }, -1},
		{"every second at 40", Poison{Window: 10, TripAt: 40}, func(o int64) bool { return o%2 == 0 }, 8},
		{"late", Poison{Window: 100, TripAt: 10}, func(o int64) bool { return o >= 500 }, 510},
		{"one in a hundred", Poison{Window: 1000, TripAt: 1}, func(o int64) bool { return o%100 == 0 }, -1},
		{"any", Poison{Window: 10, TripAt: 1}, func(o int64) bool { return o == 7 }, 7},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b, at := newBreaker(&c.p), int64(-1)
			for o := int64(0); o < 5000 && at < 0; o++ {
				if c.failed(o) && b.fail(o) {
					at = o
				}
				if o%7 == 0 && c.failed(o) && b.fail(o) != (at >= 0) { // read again
					t.Fatalf("Got another answer for offset %d the second time", o)
				}
			}
			if at != c.at {
				t.Errorf("Got it to open at %d, want %d", at, c.at)
			}
		})
	}
}

// A breaker that is half open begins with the record at which it has opened: where
// that alone is more than so many percent of a tenth of a window, it does not stay there
// for ever.
func TestHalfOpenBreakerGoesOn(t *testing.T) {
	t.Parallel()
	for _, p := range []Poison{{TripAt: 5, Window: 100}, {TripAt: 1, Window: 90}, {TripAt: 50, Window: 1}} {
		b, at := newBreaker(&p), int64(0)
		for ; !b.fail(at); at++ {
		}
		b.try()
		if b.fail(at) {
			t.Errorf("%+v: opened again at the same record", p)
		}
		if !b.fail(at + 1) {
			t.Errorf("%+v: did not open again at the next", p)
		}
		b.try()
		if b.fail(at + 1) {
			t.Errorf("%+v: opened again at the same record", p)
		}
		at += 1 + int64(p.Window)
		for ; !b.fail(at); at++ {
		}
		if want := p.Window * p.TripAt / 100; int(at)-p.Window < want {
			t.Errorf("%+v: opened after %d", p, at)
		}
	}
}

func TestPoisonIsValidated(t *testing.T) {
	t.Parallel()
	for _, p := range []Poison{
		{TripAt: 100}, {TripAt: -1}, {Window: -1}, {Retries: -1}, {Policies: map[string]Policy{"json": 9}},
	} {
		o := Options{Name: "p", Topics: []string{"t"}, Engine: newEngine(t), Poison: p}
		if err := o.validate(); err == nil {
			t.Errorf("Got no error for %+v", p)
		}
	}
	for _, name := range PolicyNames() {
		if p, err := ParsePolicy(name); err != nil || p.String() != name {
			t.Errorf("Got %v, %v for %s", p, err, name)
		}
	}
	if _, err := ParsePolicy("dlqq"); err == nil || !strings.Contains(err.Error(), "dlq drop fail retry") {
		t.Errorf("Got %v, want an error that names the policies", err)
	}
	for _, class := range []string{"decode", "store", "json", "missing_field", "no_such_table", "panic"} {
		if !strings.Contains(fmt.Sprint(Classes()), class) {
			t.Errorf("Got no class %s in %v", class, Classes())
		}
	}
}

// TestLetterClassesAreDocumented: docs/mapping.md says of every class what happened.
func TestLetterClassesAreDocumented(t *testing.T) {
	doc, err := os.ReadFile("../docs/mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for line := range strings.Lines(string(doc)) {
		cells := strings.Split(line, "|")
		if len(cells) != 5 || !slices.Contains(mapping.Stages(), strings.TrimSpace(cells[1])) {
			continue
		}
		for class := range strings.SplitSeq(cells[2], ",") {
			named[strings.Trim(class, " `")] = true
		}
	}
	if got, want := slices.Sorted(maps.Keys(named)), LetterClasses(); !slices.Equal(got, want) {
		t.Errorf("got %q documented, want %q", got, want)
	}
}

// A topic that was made anew begins with offsets of its own: the failures of the old one
// must not stand in the way of those that open the breaker.
func TestBreakerOfANewTopic(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	for range 100 {
		b.produce(0, "a", "a", "a", "a", "a", "a", "a", "a", "a", "bad")
	}
	r := start(t, newTest(t, e, b, withPoison(Poison{TripAt: 20, Window: 100}), func(o *Options) { o.OnTopicChange = NewIncarnation }), 0)
	r.caughtUp(b) // a tenth is borne
	b.recreate()
	for range 100 {
		b.produce(0, "bad")
	}
	waitFor(t, func() bool { s := r.first(); return s.Tripped != "" || s.Progress.Next == 100 })
	if s := r.first(); !strings.Contains(s.Tripped, "21 of 100 offsets up to 20 ") {
		t.Errorf("Got %q at offset %d, want an open breaker", s.Tripped, s.Progress.Next)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}
