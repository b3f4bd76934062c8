package schedule

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"sluice/internal/thinned"
)

// zones is forty zones: with and without changes of the clocks, on both
// hemispheres, at midnight, by half an hour, over Ramadan, with laws that changed,
// and a day that was left out.
var zones = []string{
	"UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "Europe/Istanbul", "Europe/Volgograd",
	"Atlantic/Azores", "America/New_York", "America/Chicago", "America/Phoenix", "America/Los_Angeles", "America/St_Johns",
	"America/Havana", "America/Asuncion", "America/Santiago", "America/Sao_Paulo", "America/Caracas", "America/Nuuk",
	"America/Scoresbysund", "Africa/Cairo", "Africa/Casablanca", "Africa/El_Aaiun", "Africa/Juba", "Africa/Windhoek",
	"Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Gaza", "Asia/Beirut", "Asia/Pyongyang", "Asia/Tokyo", "Asia/Amman",
	"Australia/Lord_Howe", "Australia/Sydney", "Australia/Eucla", "Pacific/Apia", "Pacific/Chatham", "Pacific/Norfolk",
}

// TestTenYears has a daily schedule in each of forty zones for the ten years from
// 2011: by policy, on every local day it runs once, at most once, or as often as
// the wall clock shows its time.
func TestTenYears(t *testing.T) {
	t.Parallel()
	if len(zones) != 40 {
		t.Fatalf("%d zones", len(zones))
	}
	for _, zone := range thinned.Of(zones, zones[:4]) {
		loc, err := time.LoadLocation(zone)
		if err != nil {
			t.Fatal(err)
		}
		begin, end := time.Date(2011, 1, 1, 0, 0, 0, 0, loc), time.Date(2021, 1, 1, 0, 0, 0, 0, loc)
		for _, clock := range []struct{ hour, minute int }{{0, 0}, {1, 30}, {2, 15}, {23, 45}} {
			times := map[string]int{} // how often the clock shows the time, by day; 1 is left out
			for day := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2021; day = day.AddDate(0, 0, 1) {
				if n := shown(loc, day, clock.hour, clock.minute); n != 1 {
					times[day.Format(time.DateOnly)] = n
				}
			}
			for _, dst := range []string{After, Skip, Literal} {
				s := compile(t, &Spec{Cron: fmt.Sprintf("%d %d * * *", clock.minute, clock.hour), Zone: zone, DST: dst})
				runs := map[string]int{}
				last := begin.Add(-time.Second)
				for next := s.Next(last); next.Before(end); next = s.Next(next) {
					if !next.After(last) {
						t.Fatalf("%s: %s after %s", zone, next, last)
					}
					last = next
					l := next.In(loc)
					day := l.Format(time.DateOnly)
					if l.Hour() != clock.hour || l.Minute() != clock.minute {
						from, _ := l.ZoneBounds()
						_, before := from.Add(-time.Second).Zone()
						_, offset := l.Zone()
						// The skipped time, on the clock that was not put forward.
						shown := from.In(time.FixedZone("", before))
						day = shown.Format(time.DateOnly)
						missing := time.Date(shown.Year(), shown.Month(), shown.Day(), clock.hour, clock.minute, 0, 0, shown.Location())
						if missing.Before(shown) {
							missing = missing.AddDate(0, 0, 1)
							day = missing.Format(time.DateOnly)
						}
						if dst != After || !from.Equal(l) || !missing.Before(shown.Add(time.Duration(offset-before)*time.Second)) {
							t.Errorf("%s, %02d:%02d, %s: runs at %s", zone, clock.hour, clock.minute, dst, l)
						}
					}
					runs[day]++
				}
				for day := time.Date(2011, 1, 1, 0, 0, 0, 0, time.UTC); day.Year() < 2021; day = day.AddDate(0, 0, 1) {
					name := day.Format(time.DateOnly)
					want, ok := times[name]
					if !ok {
						want = 1
					}
					switch dst {
					case After:
						want = 1
						if zone == "Pacific/Apia" && name == "2011-12-30" && clock.hour+clock.minute == 0 {
							want = 0 // the day was left out: its midnight is that of the 31st
						}
					case Skip:
						want = min(want, 1)
					}
					if runs[name] != want {
						t.Errorf("%s, %s, %02d:%02d, %s: got %d runs, want %d", zone, name, clock.hour, clock.minute, dst, runs[name], want)
					}
				}
			}
		}
	}
}

// shown returns how often the wall clock shows a time on a day, by looking at
// every quarter of an hour in which it may: clocks change by quarters.
func shown(loc *time.Location, day time.Time, hour, minute int) int {
	_, before := day.Add(-16 * time.Hour).In(loc).Zone()
	_, after := day.Add(40 * time.Hour).In(loc).Zone()
	if before == after {
		return 1 // no change of the clocks on that day
	}
	n := 0
	y, m, d := day.Date()
	noon := time.Date(y, m, d, hour, minute, 0, 0, time.UTC).Add(-14 * time.Hour)
	for i := range 4 * 26 {
		l := noon.Add(time.Duration(i) * 15 * time.Minute).In(loc)
		if l.Year() == y && l.Month() == m && l.Day() == d && l.Hour() == hour && l.Minute() == minute {
			n++
		}
	}
	return n
}

// TestTenYearsOfWork runs a schedule in each zone for ten years of virtual time,
// with runs that take long, fail and are cancelled, processes that are killed and
// come back late, state that goes through JSON, and a clock that is set back and
// forth. Every logical time is settled exactly once: it ran to an end, was skipped
// or was missed; none is published twice (invariant I10).
func TestTenYearsOfWork(t *testing.T) {
	t.Parallel()
	for i, zone := range thinned.Of(zones, zones[:12]) {
		rng := rand.New(rand.NewPCG(uint64(i), 40))
		spec := &Spec{
			Cron: []string{"30 2 * * *", "0 */6 * * *", "0 4 * * mon", "@every 12h"}[i%4], Zone: zone, Jitter: time.Hour,
			DST: []string{After, Skip, Literal}[i%3], Overlap: []string{OverlapSkip, QueueOne, Cancel}[i/3%3], CatchUp: []string{None, Last, All}[i/9%3],
		}
		s := compile(t, spec)
		now := time.Date(2016, 1, 1, 0, 0, 0, 0, time.UTC)
		end := now.AddDate(10, 0, 0)
		begun := now
		settled, published := map[time.Time]string{}, map[time.Time]int{}
		var counted int64
		note := func(d Decision) {
			for _, e := range d.Entries {
				counted += e.Count
				if e.Count == 1 {
					if was := settled[e.Logical]; was != "" {
						t.Fatalf("%s: %s is %s after it was %s", zone, e.Logical, e.Result, was)
					}
				}
				settled[e.Logical] = e.Result
			}
		}
		m := NewMachine(s, State{})
		var working, done time.Time
		for now.Before(end) {
			var d Decision
			switch {
			case !working.IsZero() && !now.Before(done):
				e := Entry{Logical: working, Result: []string{OK, OK, OK, Published, Failed}[rng.IntN(5)]}
				if e.Result == OK {
					published[working]++
				}
				working = time.Time{}
				d = m.Ended(now, e)
			default:
				d = m.Tick(now)
			}
			note(d)
			if d.Cancel {
				if working.IsZero() {
					t.Fatalf("%s: cancels nothing", zone)
				}
				e := Entry{Logical: working, Result: Cancelled}
				working = time.Time{}
				d = m.Ended(now, e)
				note(d)
			}
			if !d.Start.IsZero() {
				if !working.IsZero() {
					t.Fatalf("%s: %s starts while %s is at work", zone, d.Start, working)
				}
				working = d.Start
				done = now.Add(time.Duration(rng.ExpFloat64() * float64(2*time.Hour)))
			}
			switch rng.IntN(20) {
			case 0: // killed, and back after a while
				m, working = restarted(t, s, m), time.Time{}
				now = now.Add(time.Duration(rng.ExpFloat64() * float64(30*time.Hour)))
			case 1: // the clock is set back
				now = setBack(rng, now, begun)
			default:
				wake := d.Wake
				if !working.IsZero() && done.Before(wake) {
					wake = done
				}
				now = now.Add(max(time.Second, wake.Sub(now)))
			}
		}
		st := m.State()
		want := decidedSince(s, begun, st)
		if got := counted + int64(len(st.Pending)); got != want || want < 400 {
			t.Errorf("%s, %+v: %d times are settled or pending, want %d", zone, *spec, got, want)
		}
		var sum int64
		for _, n := range st.Results {
			sum += n
		}
		if sum != counted {
			t.Errorf("%s: results count %d, entries %d", zone, sum, counted)
		}
		for at, n := range published {
			if n > 1 {
				t.Errorf("%s: %s was published %d times", zone, at, n)
			}
		}
		if len(published) < 100 {
			t.Errorf("%s: only %d runs", zone, len(published))
		}
	}
}

// setBack sets a clock back by up to three hours, no further than begun.
func setBack(rng *rand.Rand, now, begun time.Time) time.Time {
	now = now.Add(-time.Duration(rng.Int64N(int64(3 * time.Hour))))
	if now.Before(begun) {
		return begun
	}
	return now
}

// decidedSince counts the times of s since begun that st says are decided.
func decidedSince(s *Schedule, begun time.Time, st State) (n int64) {
	for next := s.Next(begun.Add(-s.offset)); !next.IsZero() && !next.After(st.Decided); next = s.Next(next) {
		n++
	}
	return n
}

// restarted returns the machine that a new process makes of what m has stored.
func restarted(t *testing.T, s *Schedule, m *Machine) *Machine {
	t.Helper()
	b, err := json.Marshal(m.State())
	if err != nil {
		t.Fatal(err)
	}
	var st State
	if err := json.Unmarshal(b, &st); err != nil {
		t.Fatal(err)
	}
	return NewMachine(s, st)
}
