package jobs

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/jobstest"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// newExpiring is newIncremental for a table whose cells expire, and a job that asks for
// that.
func newExpiring(t *testing.T, out string, every int, pebble bool) *incrementalStore {
	s := newIncremental(t, out, every)
	if err := s.incrementalEngine.Close(); err != nil {
		t.Fatal(err)
	}
	if pebble {
		o := *jobstest.PebbleOptions()
		o.Now = s.now
		db, err := pebblestore.Open(filepath.Join(out, "data"), &o)
		if err != nil {
			t.Fatal(err)
		}
		s.incrementalEngine = db
	} else {
		m, err := memstore.New(&memstore.Options{Now: s.now})
		if err != nil {
			t.Fatal(err)
		}
		s.incrementalEngine = m
	}
	f, n, kept := store.NewFamily("f"), store.NewFamily("n"), store.NewFamily("kept")
	f.TTL, f.Versions = 3*3600, 2
	n.Counter, n.TTL = true, 5*3600
	kept.Versions = 2
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, kept, n}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("c")}); err != nil {
		t.Fatal(err)
	}
	spec := s.job.spec
	spec.Incremental.Expired = ReportExpired
	spec.Columns = slices.Clone(spec.Columns)
	spec.Columns[2].From = "kept:q"
	s.job = mustCompile(t, "j", &spec, d)
	return s
}

// TestIncrementsWithExpiry is TestFullAndIncrements of a job that asks for what has
// expired, by TTLs of families and of cells, in rows that nobody changes, also where
// flushes and compactions have removed the last trace of it.
func TestIncrementsWithExpiry(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jobstest.Check(t, func(rt *rapid.T) {
		out, err := os.MkdirTemp(dir, "")
		if err != nil {
			rt.Fatal(err)
		}
		pebble := rapid.IntRange(0, 2).Draw(rt, "engine") == 0 // it takes ten times as long
		s := newExpiring(t, out, rapid.IntRange(2, 8).Draw(rt, "full every"), pebble)
		defer func() {
			if err := s.Close(); err != nil {
				rt.Error(err)
			}
		}()
		for range rapid.IntRange(1, 7).Draw(rt, "runs") {
			for range rapid.IntRange(0, 5).Draw(rt, "mutations") {
				m := &cell.Mutation{Table: "t", Row: []byte(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(rt, "row"))}
				hours := cell.Timestamp(rapid.IntRange(0, 6).Draw(rt, "hours ago"))
				at := s.now() - hours*3600_000
				switch rapid.IntRange(0, 6).Draw(rt, "what") {
				case 0, 1:
					m.Put("f", []byte("q"), at, []byte("v"))
				case 2, 3:
					m.Put("kept", []byte("q"), at, []byte(rapid.SampledFrom([]string{"v", "w", "hidden"}).Draw(rt, "value")))
					m.Ops[0].TTL = int64(rapid.IntRange(0, 4).Draw(rt, "TTL")) * 3600_000
				case 4:
					m.Increment("n", []byte("q"), 1)
				case 5:
					m.DeleteColumn("f", []byte("q"), at)
				case 6:
					m.DeleteRow(at)
				}
				s.mutate(m)
			}
			s.disturb(rt)
			// What expires now is rewritten before a run has seen it.
			s.at = s.at.Add(time.Duration(rapid.IntRange(0, 5).Draw(rt, "hours")) * time.Hour)
			s.disturb(rt)
			s.step = time.Duration(rapid.IntRange(1, 30).Draw(rt, "minutes")) * 5 * time.Minute
			s.run(rt, RunOptions{Parallelism: 2})
		}
		s.run(rt, RunOptions{})
		s.step = time.Nanosecond // nothing expires between the chain and the full run
		s.same(rt)
	})
}

// disturb flushes or compacts, or not.
func (s *incrementalStore) disturb(rt *rapid.T) {
	var err error
	switch rapid.IntRange(0, 4).Draw(rt, "disturb") {
	case 0:
		err = s.Flush(s.t.Context())
	case 1, 2:
		err = errors.Join(s.Flush(s.t.Context()), s.MajorCompact(s.t.Context(), "t"))
	}
	if err != nil {
		rt.Fatal(err)
	}
}

// TestExpiredCost: an increment that reports what has expired reads every row of the
// families once, and the rows that it holds once more; and holds no others.
func TestExpiredCost(t *testing.T) {
	t.Parallel()
	for _, pebble := range []bool{false, true} {
		s := newExpiring(t, t.TempDir(), 9, pebble)
		for i := range 200 {
			m := &cell.Mutation{Table: "t", Row: []byte("r" + strconv.Itoa(1000+i))}
			m.Put("kept", []byte("q"), s.now(), []byte("v"))
			if i%50 == 0 {
				m.Ops[0].TTL = (90 * time.Minute).Milliseconds()
			}
			s.mutate(m)
		}
		s.run(t, RunOptions{})
		for i, want := range []int64{4, 0} { // 1 h, then 2 h after the writing; 3 h
			s.log.Reset()
			m := s.run(t, RunOptions{})
			looked := regexp.MustCompile(`have expired".* rows=(\d+)`).FindStringSubmatch(s.log.String())
			if m.Totals[0].Rows != want || looked == nil || looked[1] != "200" {
				t.Errorf("pebble %t, run %d: Got %d rows, want %d; log %s", pebble, i, m.Totals[0].Rows, want, s.log.String())
			}
		}
		// A rewrite takes the last trace of what had expired: the rows are named once.
		if err := errors.Join(s.Flush(t.Context()), s.MajorCompact(t.Context(), "t")); err != nil {
			t.Fatal(err)
		}
		if m := s.run(t, RunOptions{}); m.Totals[0].Rows != 4 {
			t.Errorf("pebble %t: after a rewrite: Got %d rows, want 4", pebble, m.Totals[0].Rows)
		}
		if m := s.run(t, RunOptions{}); m.Totals[0].Rows != 0 {
			t.Errorf("pebble %t: after that: Got %d rows", pebble, m.Totals[0].Rows)
		}
		s.step = time.Nanosecond
		s.same(t)
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestExpiredChain: a run goes on only from one that has reported what had expired.
func TestExpiredChain(t *testing.T) {
	t.Parallel()
	s := newExpiring(t, t.TempDir(), 9, false)
	defer s.Close()
	s.run(t, RunOptions{})
	number := func(expired string, want int) {
		t.Helper()
		spec := s.job.spec
		spec.Incremental.Expired = expired
		d, err := s.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		s.job = mustCompile(t, "j", &spec, d)
		s.log.Reset()
		m := s.run(t, RunOptions{})
		if m.Incremental.Number != want || want == 0 && !strings.Contains(s.log.String(), "the job was changed") {
			t.Errorf("expired %q: Got %+v, want number %d; log %s", expired, m.Incremental, want, s.log.String())
		}
	}
	number(ReportExpired, 1)
	number(IgnoreExpired, 0)
	number("", 1)
	number(ReportExpired, 0)
	for expired, want := range map[string]string{"yes": "incremental.expired: \"yes\" is not ignore or report"} {
		spec := s.job.spec
		spec.Incremental.Expired = expired
		if _, err := Compile("j", &spec, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
	spec := s.job.spec
	spec.Incremental = Incremental{Expired: ReportExpired}
	if _, err := Compile("j", &spec, nil); err == nil || !strings.Contains(err.Error(), "incremental.full_every: it is missing") {
		t.Errorf("Got %v", err)
	}
}
