package pipeline

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// readOnly makes a table READONLY, or not.
func readOnly(t testing.TB, e store.Engine, table string, yes bool) {
	t.Helper()
	d, err := e.Table(t.Context(), table)
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	d.ReadOnly = yes
	if err := e.(store.Admin).AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
}

// TestReadOnlyTablePauses (I2, I9): a table that is READONLY is a table of which an operator
// wants no changes for a while. What it takes waits for it whole, the other table's part of a
// record included, and nothing becomes a dead letter that is none without it. A policy for all
// that the store refuses is about records, and changes nothing of that.
func TestReadOnlyTablePauses(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		for _, poison := range []Poison{
			{},
			{TripAt: 60, Window: 100, Policies: map[string]Policy{"store": DropRecords, "decode": KeepLetters, "cell_too_large": KeepLetters}},
			{TripAt: 60, Window: 100, Policies: map[string]Policy{"store": StopPipeline, "cell_too_large": KeepLetters}},
		} {
			t.Run(fmt.Sprint(name, poison.Policies), func(t *testing.T) {
				t.Parallel()
				e, b := open(t), newFakeBroker(1)
				p := newTest(t, e, b, withPoison(poison))
				r := start(t, p, 0)
				refusals := int64(0)
				for _, table := range []string{"events", "counts"} {
					b.produce(0, "a", "bad", "b")
					r.caughtUp(b)
					readOnly(t, e, table, true)
					before := r.first().Progress.Next
					for range 50 { // more than a batch
						b.produce(0, "a", "bad", "b", "huge")
					}
					want := "table read-only: alter '" + table + "', READONLY => false in the shell"
					waitFor(t, func() bool { return r.first().Paused == want })
					if err := r.close(); err != nil { // killed or not, the next owner waits, too
						t.Fatal(err)
					}
					r = start(t, p, 0)
					b.produce(0, "c")
					waitFor(t, func() bool { return r.first().Paused == want })
					if s := r.first(); s.Progress.Next != before || s.Tripped != "" {
						t.Errorf("Got %+v, want it to stay at offset %d", s, before)
					}
					readOnly(t, e, table, false)
					r.caughtUp(b)
					if s := r.first(); s.Paused != "" {
						t.Errorf("Got pause %q", s.Paused)
					}
					refusals += 50
				}
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, e, b)
				if m := p.Metrics(); m.Refusals < refusals || m.Dropped != 0 || m.Trips != 0 || m.Held == 0 {
					t.Errorf("Got %+v, want the waits to be the store's", m)
				}
			})
		}
	}
}

// TestReadOnlyTableIsNoRefusal: while a table is READONLY, no record counts as refused, what is
// summed is not taken apart for it, and the log says it once.
func TestReadOnlyTableIsNoRefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(2)
		readOnly(t, e, "counts", true)
		b.produce(0, "a", "a", "a")
		applies, largest := 0, 0
		f := &faultyEngine{Engine: e, fault: func(s *store.Batch) (bool, error) {
			applies, largest = applies+1, max(largest, len(s.Counters))
			return true, nil
		}}
		var log strings.Builder
		p := newTest(t, f, b, func(o *Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
		r := start(t, p, 0)
		<-time.After(4 * time.Minute) // of the bubble's clock
		synctest.Wait()
		m := p.Metrics()
		if m.Refusals != 0 || m.Dead != 0 || largest != 1 {
			t.Errorf("Got %d refusals, %d letters, %d counters in a batch, want one sum that waits", m.Refusals, m.Dead, largest)
		}
		if applies < 20 || applies > 200 {
			t.Errorf("Got %d tries in four minutes, want one every five seconds", applies)
		}
		if m.Held < 3*time.Minute {
			t.Errorf("Got %v of waiting for the store", m.Held)
		}
		readOnly(t, e, "counts", false)
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, e, b)
		if n := strings.Count(log.String(), "is paused"); n != 1 || !strings.Contains(log.String(), "table counts") {
			t.Errorf("Got %d warnings, want one that names the table:\n%s", n, log.String())
		}
	})
}

// TestPolicyOfReadOnlyTable: a policy that is given for the class is what happens.
func TestPolicyOfReadOnlyTable(t *testing.T) {
	t.Parallel()
	class := func(p Policy) map[string]Policy { return map[string]Policy{"read_only_table": p} }
	letters := map[string]string{"t/0/2": "store/read_only_table", "t/0/3": "store/read_only_table"}
	for policy, want := range map[Policy]struct {
		letters map[string]string
		dropped int64
		err     error
	}{
		KeepLetters:  {letters, 0, nil},
		DropRecords:  {nil, 2, nil},
		RetryRecords: {letters, 0, nil},
		StopPipeline: {nil, 0, ErrPoison},
	} {
		t.Run(policy.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, b := newEngine(t), newFakeBroker(1)
				b.produce(0, "a", "b")
				ingest(t, e, b)
				readOnly(t, e, "events", true)
				b.produce(0, "c", "d")
				p := newTest(t, e, b, withPoison(Poison{Policies: class(policy), Retries: 2}))
				r := start(t, p, 0)
				if want.err != nil {
					if err := r.failed(); !errors.Is(err, want.err) || !strings.Contains(err.Error(), "read_only_table") {
						t.Errorf("Got %v, want %v", err, want.err)
					}
				} else {
					r.caughtUp(b)
					if err := r.close(); err != nil {
						t.Fatal(err)
					}
				}
				got := readContents(t, e)
				if len(got.Letters)+len(want.letters) > 0 {
					if d := cmp.Diff(want.letters, got.Letters); d != "" {
						t.Errorf("Got other letters (-want +got):\n%s", d)
					}
				}
				if m := p.Metrics(); m.Dropped != want.dropped || got.Counts["c"]+got.Counts["d"] != 0 {
					t.Errorf("Got %d dropped, counts %v", m.Dropped, got.Counts)
				}
			})
		})
	}
}

// TestRedriveOfReadOnlyTable: a redrive into a table that is READONLY ends with what to do, and
// leaves the letters as they were.
func TestRedriveOfReadOnlyTable(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, table := range []string{"events", "counts"} {
				e, b := open(t), newFakeBroker(1)
				b.produce(0, "a", "bad:a", "bad:huge", "bad:b")
				ingest(t, e, b)
				readOnly(t, e, table, true)
				before := readContents(t, e)
				for range 2 {
					got, err := redriveWith(t.Context(), e, &RedriveOptions{})
					if want := "alter '" + table + "', READONLY => false in the shell"; !errors.Is(err, store.ErrTableReadOnly) || !strings.Contains(err.Error(), want) || got != (RedriveCounts{}) {
						t.Errorf("Got %+v, %v, want %s", got, err, want)
					}
				}
				if d := cmp.Diff(before, readContents(t, e)); d != "" {
					t.Errorf("a redrive that could do nothing changed (-want +got):\n%s", d)
				}
				readOnly(t, e, table, false)
				got, err := redriveWith(t.Context(), e, &RedriveOptions{})
				if want := (RedriveCounts{Applied: 2, Refused: 1}); err != nil || got != want {
					t.Errorf("Got %+v, %v, want %+v", got, err, want)
				}
				for d, err := range ScanLetters(t.Context(), e, &LetterFilter{State: DeadLetters}) {
					if err != nil || d.Class != "cell_too_large" || d.Attempts != 2 {
						t.Errorf("Got %+v, %v, want the letter refused twice", d, err)
					}
				}
				if d := cmp.Diff(wantMended(b), readContents(t, e)); d != "" {
					t.Errorf("Got other contents than the mended log has (-want +got):\n%s", d)
				}
			}
		})
	}
}
