package pipeline

import (
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
	"sluice/store/pebblestore"
)

// The fault schedules in which the log is not what it was: made anew, truncated, or
// without what the store has not applied yet.

// loadPages appends n records to each partition, of eight pages from first on.
func (s *schedule) loadPages(n int, first rune) {
	for partition := range int32(3) {
		for range n {
			s.b.produce(partition, string(first+rune(s.rng.IntN(8))))
		}
	}
}

// both is what two logs become, the second after the first.
func both(first, second contents) contents {
	c := contents{Counts: maps.Clone(first.Counts), Events: maps.Clone(first.Events), Letters: maps.Clone(first.Letters)}
	for page, n := range second.Counts {
		c.Counts[page] += n
	}
	maps.Copy(c.Events, second.Events) // at the same offsets
	maps.Copy(c.Letters, second.Letters)
	c.Progress.Next = first.Progress.Next + second.Progress.Next
	c.Progress.Applied = first.Progress.Applied + second.Progress.Applied
	return c
}

// holds compares the store's contents, and wants no problem in the audit but those
// that have the text.
func (s *schedule) holds(wanted contents, problem string) {
	s.t.Helper()
	if d := cmp.Diff(wanted, readContents(s.t, s.e)); d != "" {
		s.t.Errorf("Got other contents (-want +got):\n%s", d)
	}
	found := problem == ""
	for _, a := range audit(s.t.(*testing.T), s.e, s.b, false) {
		for _, text := range a.Problems {
			if problem == "" || !strings.Contains(text, problem) {
				s.t.Errorf("Got problem %q in the audit of %+v", text, a.Progress)
			}
			found = found || strings.Contains(text, problem)
		}
	}
	if !found {
		s.t.Errorf("Got no problem %q in the audit", problem)
	}
}

func testTopicMadeAnew(t *testing.T, records int, withoutIDs error) {
	t.Parallel()
	for _, ids := range []bool{true, false} {
		t.Run(fmt.Sprintf("ids %v", ids), func(t *testing.T) {
			t.Parallel()
			s := newSchedule(t, newEngine(t))
			s.loadPages(50, 'a')
			s.finish()
			old := want(s.b)
			if ids {
				s.b.recreate()
			} else {
				s.b.change(func() {
					for n := range s.b.logs {
						s.b.logs[n] = &fakeLog{}
					}
				})
			}
			s.loadPages(records, 'A')
			wanted := ErrTopicChanged
			if !ids {
				wanted = withoutIDs
			}
			if err := s.start(s.e).failed(); !errors.Is(err, wanted) {
				t.Errorf("Got %v, want %v", err, wanted)
			}
			if d := cmp.Diff(old, readContents(t, s.e)); d != "" {
				t.Errorf("Got other contents than the old topic had (-want +got):\n%s", d)
			}
			if !ids {
				return // nothing tells the two logs apart but their records
			}
			for range 2 { // the second finds nothing to do
				r := s.start(s.e, func(o *Options) { o.OnTopicChange = NewIncarnation })
				r.caughtUp(s.b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				s.holds(both(old, want(s.b)), "")
			}
			if n := len(allProgress(t, s.e)); n != 6 {
				t.Errorf("Got the progress of %d partitions, want three of either topic", n)
			}
		})
	}
}

func TestSchedule18TopicMadeAnewSmaller(t *testing.T) { testTopicMadeAnew(t, 20, ErrDataLoss) }

func TestSchedule19TopicMadeAnewLarger(t *testing.T) { testTopicMadeAnew(t, 90, ErrTopicChanged) }

func TestSchedule20TopicMadeAnewTheSameSize(t *testing.T) {
	testTopicMadeAnew(t, 50, ErrTopicChanged)
}

// A leader that was not in sync: the log of one partition ends before what was applied,
// or holds other records there by now. Nothing of it is applied, whatever the policies,
// and what was applied before stays as it was, each record once.
func TestSchedule21TruncatedLog(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		running bool
		grown   int
		want    error
		problem string // in the audit
	}{
		"while down":           {false, 0, ErrDataLoss, "it was truncated"},
		"while running":        {true, 0, ErrDataLoss, "it was truncated"},
		"and grown while down": {false, 80, ErrTopicChanged, "the log is not the one that was applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newSchedule(t, newEngine(t))
			s.load(200)
			for range 20 {
				s.b.produce(1, "a")
			}
			whatever := func(o *Options) { o.OnDataLoss, o.OnTopicChange = SkipLostData, NewIncarnation }
			r := s.start(s.e, whatever)
			r.caughtUp(s.b)
			before := want(s.b)
			if !c.running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			s.b.change(func() {
				l := s.b.logs[1]
				l.records, l.end = l.records[:len(l.records)-20], l.end-20
			})
			for range c.grown {
				s.b.produce(1, "b")
			}
			if !c.running {
				r = s.start(s.e, whatever)
			}
			if err := r.failed(); !errors.Is(err, c.want) || !strings.Contains(err.Error(), "t/1") {
				t.Errorf("Got %v, want %v of t/1", err, c.want)
			}
			s.holds(before, c.problem)
		})
	}
}

// checkAfterLoss compares with all that was ever produced, up to the stored offsets and
// without the ranges that are stored as lost. It returns how many offsets these are.
func (s *schedule) checkAfterLoss() int64 {
	s.t.Helper()
	left, lost := map[int32]*fakeLog{}, int64(0)
	for _, p := range allProgress(s.t.(*testing.T), s.e) {
		l := s.b.logs[p.Partition]
		kept := &fakeLog{end: p.Progress.Next}
		for _, r := range slices.Concat(l.gone, l.records) {
			gone := slices.ContainsFunc(p.Progress.Gaps.All(), func(g store.Gap) bool { return g.From <= r.Offset && r.Offset < g.To })
			if !gone && r.Offset < p.Progress.Next {
				kept.records = append(kept.records, r)
			}
		}
		left[p.Partition] = kept
		lost += p.Progress.Gaps.Offsets()
	}
	wanted := want(&fakeBroker{logs: left})
	wanted.Progress.Lost = lost
	wanted.Progress.Control -= lost
	s.holds(wanted, "")
	return lost
}

// finishAfterLoss lets a last process find that nothing is left to do and to lose.
func (s *schedule) finishAfterLoss() {
	s.t.Helper()
	before := s.checkAfterLoss()
	r := s.start(s.e)
	r.caughtUp(s.b)
	if err := r.close(); err != nil {
		s.t.Fatal(err)
	}
	if after := s.checkAfterLoss(); after != before {
		s.t.Errorf("Got %d offsets lost, after %d before", after, before)
	}
	if !stored(s.t, s.e, s.b) {
		s.t.Error("Got a part of the log that is not stored")
	}
}

func skipLost(o *Options) { o.OnDataLoss = SkipLostData }

// Retention takes records before they are applied: each is either applied once or
// stored as lost.
func testRetention(t *testing.T, running bool) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	var n atomic.Int64
	e := &faultyEngine{Engine: s.e, fault: func(*store.Batch) (bool, error) {
		switch n.Add(1) % 7 { // what is lost is stored in a batch, too
		case 3:
			return true, store.ErrTransient
		case 5:
			return false, store.ErrTransient
		}
		return true, nil
	}}
	r := s.start(e, skipLost)
	waitFor(t, func() bool { return len(allProgress(t, s.e)) == 3 })
	for range 15 {
		if !running {
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
		}
		s.load(120)
		for n := range int32(3) {
			if l := s.b.logs[n]; s.rng.IntN(2) == 0 {
				s.b.trim(n, l.start+s.rng.Int64N(l.end-l.start+1))
			}
		}
		if !running {
			r = s.start(e, skipLost)
		}
		waitStored(t, s.e, s.b)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	if lost := s.checkAfterLoss(); lost == 0 && !running {
		t.Error("Got nothing lost: the schedule shows nothing")
	}
	s.finishAfterLoss()
}

func TestSchedule22RetentionWhileDown(t *testing.T) { testRetention(t, false) }

func TestSchedule23RetentionWhileRunning(t *testing.T) { testRetention(t, true) }

// Retention overtakes a partition whose store does not answer for a while: what was
// not read is lost, and said to be, to the offset.
func TestSchedule23RetentionOvertakesAPausedPartition(t *testing.T) {
	t.Parallel()
	for _, policy := range []DataLossPolicy{FailOnDataLoss, SkipLostData} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			t.Parallel()
			s := newSchedule(t, newEngine(t))
			var busy atomic.Bool
			e := &faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
				if busy.Load() && b.Advances[0].From >= 0 {
					return false, store.ErrTransient
				}
				return true, nil
			}}
			r := s.start(e, func(o *Options) { o.OnDataLoss = policy })
			s.loadPages(50, 'a')
			r.caughtUp(s.b)
			busy.Store(true)
			s.loadPages(500, 'a')
			waitFor(t, func() bool { return r.Metrics().Pauses > 0 })
			s.b.trim(1, 400)
			busy.Store(false)
			if policy == FailOnDataLoss {
				var lost *DataLossError
				err := r.failed()
				next := int64(-1)
				for _, p := range allProgress(t, s.e) {
					if p.Partition == 1 {
						next = p.Progress.Next
					}
				}
				if !errors.As(err, &lost) || lost.From != next || lost.To != 400 || lost.Topic != "t" || lost.Partition != 1 {
					t.Errorf("Got %v, want offsets %d to 399 of t/1 lost", err, next)
				}
				if n := s.checkAfterLoss(); n != 0 {
					t.Errorf("Got %d offsets stored as lost by a pipeline that stops there", n)
				}
				r = s.start(s.e, skipLost) // as the message says
			}
			r.caughtUp(s.b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			// It reads ahead two batches of the broker, of 40 offsets at most each,
			// and buffers three of 16: what is far behind is lost for sure.
			if lost := s.checkAfterLoss(); lost < 100 || lost > 350 {
				t.Errorf("Got %d offsets lost, want most of 50 to 399", lost)
			}
			s.finishAfterLoss()
		})
	}
}

// The store is put back to an older copy: the log is read again from there, and
// where it is gone the pipeline says so.
func TestSchedule34StoreIsRestored(t *testing.T) {
	t.Parallel()
	db, err := pebblestore.Open(filepath.Join(t.TempDir(), "db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	createTables(t, db)
	s := newSchedule(t, db)
	s.load(500)
	s.finish()
	copied := map[int32]int64{}
	for n, l := range s.b.logs {
		copied[n] = l.end
	}
	copies := []string{filepath.Join(t.TempDir(), "1"), filepath.Join(t.TempDir(), "2")}
	for _, dir := range copies {
		if _, err := db.Checkpoint(t.Context(), dir); err != nil {
			t.Fatal(err)
		}
	}
	s.load(500)
	s.finish()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	for i, dir := range copies {
		restored, err := pebblestore.Open(dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		s.e = restored
		for _, p := range allProgress(t, s.e) {
			if p.Progress.Next != copied[p.Partition] {
				t.Errorf("Got offset %d in a copy that was made at %d", p.Progress.Next, copied[p.Partition])
			}
		}
		if i == 0 {
			s.finish()
		} else {
			end := s.b.logs[1].end
			s.b.trim(1, end)
			var lost *DataLossError
			if err := s.start(s.e).failed(); !errors.As(err, &lost) || lost.Partition != 1 || lost.From != copied[1] || lost.To != end {
				t.Errorf("Got %v for a log that is gone, want offsets %d to %d of t/1 lost", err, copied[1], end-1)
			}
			if n := s.checkAfterLoss(); n != 0 {
				t.Errorf("Got %d offsets stored as lost by a pipeline that stops there", n)
			}
			r := s.start(s.e, skipLost)
			r.caughtUp(s.b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			if n := s.checkAfterLoss(); n != end-copied[1] {
				t.Errorf("Got %d offsets stored as lost, want %d", n, end-copied[1])
			}
			s.finishAfterLoss()
		}
		if err := restored.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What a topic still had unread when it was made anew is lost: as much of it as is known
// is stored with the old topic, and counted.
func TestUnreadRestOfAFormerTopicIsLost(t *testing.T) {
	t.Parallel()
	s := newSchedule(t, newEngine(t))
	var busy atomic.Bool
	e := &faultyEngine{Engine: s.e, fault: func(b *store.Batch) (bool, error) {
		if busy.Load() && len(b.Counters) > 0 && b.Advances[0].Source.TopicID == [16]byte{1} {
			return false, store.ErrTransient
		}
		return true, nil
	}}
	r := s.start(e, func(o *Options) { o.OnTopicChange = NewIncarnation })
	s.loadPages(50, 'a')
	r.caughtUp(s.b)
	old := want(s.b)
	busy.Store(true)
	s.loadPages(30, 'a')
	waitFor(t, func() bool {
		for _, p := range r.Status().Partitions {
			if p.LogEnd < 80 || p.Paused == "" {
				return false
			}
		}
		return true
	})
	s.b.recreate()
	s.loadPages(20, 'A')
	waitFor(t, func() bool {
		for _, p := range r.Status().Partitions {
			if p.Progress.Next != 20 || p.Abandoned != 30 {
				return false
			}
		}
		return true
	})
	if n := r.Metrics().Lost; n != 90 {
		t.Errorf("Got %d offsets lost, want 90", n)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	wanted := both(old, want(s.b))
	wanted.Progress.Lost, wanted.Progress.Next = 90, wanted.Progress.Next+90
	s.holds(wanted, "")
	for _, p := range allProgress(t, s.e) {
		if text := p.Progress.Skips.String(); p.Source.TopicID == s.b.info.id && text != "" || p.Source.TopicID != s.b.info.id && text != "50-79 recreated" {
			t.Errorf("Got %q given up of %+v", text, p)
		}
	}
}

// While a partition is paused its topic is made anew, with a longer log: the ends that are
// looked at meanwhile are not those of what the old one had unread.
func TestUnreadRestIsOfTheFormerTopic(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	for range 20 {
		b.produce(0, "bad")
	}
	p := newTest(t, e, b, withPoison(Poison{TripAt: 50, Window: 10}), func(o *Options) { o.OnTopicChange = NewIncarnation })
	r := start(t, p, 0)
	waitFor(t, func() bool { return r.first().Tripped != "" })
	unread := 20 - r.first().Progress.Next
	b.recreate()
	for range 100 {
		b.produce(0, "a")
	}
	p.lookAtEnds(t.Context(), map[string][]int32{"t": {0}})
	p.CloseBreakers()
	waitFor(t, func() bool { return r.first().Progress.Next == 100 && r.first().Progress.Dead == 0 })
	if got := r.first().Abandoned; got != unread {
		t.Errorf("Got %d offsets of the old topic lost, want %d", got, unread)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	for _, p := range allProgress(t, e) {
		if p.Source.TopicID == [16]byte{1} && p.Progress.Next != 20 {
			t.Errorf("Got the old topic's offsets up to %d, it had 20", p.Progress.Next)
		}
	}
}

// The lag of a partition that is paused grows with its log, also while another one of the
// topic has no leader.
func TestEndsBesideAPartitionWithoutLeader(t *testing.T) {
	t.Parallel()
	b := newFakeBroker(2)
	for range 20 {
		b.produce(0, "bad")
	}
	p := newTest(t, newEngine(t), b, withPoison(Poison{TripAt: 50, Window: 10}))
	r := start(t, p, 0, 1)
	waitFor(t, func() bool { return r.first().Tripped != "" })
	lag := r.first().Lag
	b.change(func() { b.offline = map[int32]bool{1: true} })
	b.produce(0, "a", "b", "c")
	p.lookAtEnds(t.Context(), map[string][]int32{"t": {0, 1}})
	if got := r.first().Lag; got != lag+3 {
		t.Errorf("Got a lag of %d after three more records, and %d before", got, lag)
	}
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// A topic that is made anew again before its log was looked at had nothing unread that is
// known.
func TestUnreadRestOfATopicThatWasNotSeen(t *testing.T) {
	t.Parallel()
	s := newStatus()
	p := s.partition("t", 0, &Poison{})
	first, second := store.Source{Topic: "t", TopicID: [16]byte{1}}, store.Source{Topic: "t", TopicID: [16]byte{2}}
	p.of(&first)
	p.opened(&store.Progress{Next: 50}, span{end: 80})
	p.of(&second)
	if end := s.unread(&second, 0); end > 0 {
		t.Errorf("Got end %d of a log that nobody has looked at", end)
	}
}
