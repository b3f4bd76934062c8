package pipeline

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pipeline/kafka"
	"sluice/store"
)

// produceNow appends a record with the time that it is.
func (b *fakeBroker) produceNow(partition int32, value string) {
	b.change(func() {
		l := b.logs[partition]
		l.records = append(l.records, fakeRecord(l.end, time.Now().UnixMilli(), value))
		l.end++
	})
}

// A partition is as far behind as its oldest record that is not applied: not as the
// newest that is, which in a quiet topic is of yesterday, and from the first record on.
func TestBehindInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(1)
		e := &heldEngine{Engine: newEngine(t)}
		hold := func() (release func()) {
			held := make(chan struct{})
			e.mu.Lock()
			defer e.mu.Unlock()
			e.held = held
			return func() { close(held) }
		}
		hold()()
		p := newTest(t, e, b)
		r := start(t, p, 0)
		since := func() time.Time {
			t.Helper()
			synctest.Wait()
			s := p.Status().Partitions
			if len(s) != 1 || !s[0].Begun {
				t.Fatalf("Got %+v, want one partition that is begun", s)
			}
			if s[0].Since == 0 {
				return time.Time{}
			}
			return time.UnixMilli(s[0].Since)
		}
		for range 2 { // nothing is applied yet; what is applied is of yesterday
			if got := since(); !got.IsZero() {
				t.Errorf("Got records since %v, want none that wait", got)
			}
			<-time.After(24 * time.Hour)
			release := hold()
			want := time.Now()
			for range 3 {
				b.produceNow(0, "a")
				if got := since(); !got.Equal(want) {
					t.Errorf("Got records since %v, want %v", got, want)
				}
				<-time.After(time.Minute)
			}
			release()
			r.caughtUp(b)
		}
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
}

func TestWaitsSince(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		now := time.Now().UnixMilli()
		batch := func(first int64, n int, at int64) *kafka.Batch {
			b := &kafka.Batch{Next: first + int64(n), LastStable: 30}
			for i := range int64(n) {
				b.Records = append(b.Records, kafka.Record{Offset: first + i, Timestamp: at + i})
			}
			return b
		}
		s := newStatus()
		p := s.partition("t", 0, &Poison{})
		step := func(what string, want int64) {
			t.Helper()
			if got := p.waitsSince(); got != want {
				t.Errorf("%s: Got %d, want %d", what, got-now, want-now)
			}
		}
		p.assign(true)
		<-time.After(time.Minute)
		step("assigned and not begun", now)
		p.opened(&store.Progress{Next: 10, LastTime: now - 5000}, span{end: 10})
		now = time.Now().UnixMilli()
		step("all is applied", 0)
		<-time.After(time.Minute)
		s.ends("t", [16]byte{}, map[int32]span{0: {end: 30}})
		step("there are more, not fetched", now)
		p.fetching(batch(8, 12, now-7000), 10)
		p.fetching(batch(20, 10, now-3000), 20)
		step("fetched", now-7000+2)
		p.fetching(batch(10, 10, now), 10) // once more, after trouble
		step("fetched again", now-7000+2)
		advance := func(next, last int64) {
			p.Progress.Next, p.Progress.LastTime = next, last
			p.look()
		}
		advance(15, now-6500)
		step("inside a batch", now-6500)
		advance(20, now-6000)
		step("at the next batch", now-3000)
		advance(30, now-1000)
		now = time.Now().UnixMilli()
		step("all is applied again", 0)
		<-time.After(time.Minute)
		p.pause("why", "why")
		step("paused, and the log was not looked at", now)
		s.ends("t", [16]byte{}, map[int32]span{0: {end: 30}})
		now = time.Now().UnixMilli()
		step("paused, and there is no more", now)
	})
}

// The partitions of a pipeline that has failed stay, with what is known of them.
func TestFailedPartitionsStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, client := virtualCluster(t, 2)
		e := newEngine(t)
		p, err := New(&Options{
			Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e), Engine: e, StoreID: "s1", Logger: testLogger(t),
			Poison: Poison{Policies: map[string]Policy{"decode": StopPipeline}},
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Run(context.Background()) }()
		c.bulk(10, 10)
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
		at := time.Now().Add(-time.Hour)
		if err := c.out.Produce(t.Context(), "pages", kafka.Message{Partition: 1, Value: []byte("bad"), Time: at}); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrPoison) {
			t.Fatalf("Got %v, want a poison record", err)
		}
		s := p.Status()
		if len(s.Partitions) != 2 {
			t.Fatalf("Got %+v, want two partitions", s.Partitions)
		}
		for _, ps := range s.Partitions {
			if ps.Owned || !ps.Failed || !ps.Begun || ps.Since == 0 {
				t.Errorf("Got %+v, want one that has failed and is behind", ps)
			}
		}
		if got := s.Partitions[1]; got.Since != at.UnixMilli() || got.Lag != 1 {
			t.Errorf("Got a lag of %d since %d, want 1 since %d", got.Lag, got.Since, at.UnixMilli())
		}
	})
}

// A partition that cannot be begun is shown all the same.
func TestPartitionThatCannotBeginIsShown(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newFakeBroker(1)
		b.broken = errors.New("no")
		p := newTest(t, newEngine(t), b)
		now := time.Now().UnixMilli()
		leave := p.status.own(map[string][]int32{"t": {0}}, &p.opts.Poison)
		r := start(t, p, 0)
		<-time.After(time.Hour)
		s := p.Status().Partitions
		if len(s) != 1 || !s[0].Owned || s[0].Begun || s[0].Since != now {
			t.Errorf("Got %+v, want one that is not begun since %d", s, now)
		}
		b.change(func() { b.broken = nil })
		waitFor(t, func() bool { return p.Status().Partitions[0].Begun })
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		leave()
		if p.Status().Partitions[0].Owned {
			t.Error("Got a partition that is owned after the end")
		}
	})
}
