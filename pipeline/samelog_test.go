package pipeline

import (
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// Brokers that are those of another cluster now have another log, whatever id they give the
// topic: some give none, and a cluster that was copied gives the same.
func TestAnotherClusterWhileRunning(t *testing.T) {
	t.Parallel()
	for _, id := range [][16]byte{{}, {1}} {
		e, b := newEngine(t), newFakeBroker(1)
		b.info.id = id
		b.produce(0, "a", "b")
		r := start(t, newTest(t, e, b), 0)
		r.caughtUp(b)
		b.change(func() { b.broken = errors.New("restarts") })
		waitFor(t, func() bool { return r.first().Paused != "" })
		b.change(func() { b.broken, b.info.clusterID = nil, "other" })
		b.produce(0, "c")
		var changed *TopicChangedError
		err := r.failed()
		if !errors.As(err, &changed) || !errors.Is(err, ErrTopicChanged) || changed.sameID || !strings.Contains(err.Error(), "other") {
			t.Errorf("id %x: Got %v, want another cluster's topic", id, err)
		}
		if got := readContents(t, e).Counts["c"]; got != 0 {
			t.Errorf("id %x: Got %d records of the other cluster applied", id, got)
		}
	}
}

// What a truncated log and what was applied have in common ends with the log, at the latest:
// a leader tells where an epoch ends that goes on, too.
func TestCommonEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		epoch                 int32
		epochEnd, end, common int64
	}{
		{-1, 2, 3, -1},
		{0, 2, 3, 2},
		{0, 3, 3, 3},
		{0, 5, 3, 3},
		{0, -1, 3, -1},
	} {
		b := newFakeBroker(1)
		b.epochs = map[int32]int64{0: tc.epochEnd}
		stored := &store.PartitionProgress{Source: store.Source{Topic: "t", TopicID: [16]byte{1}}, Progress: store.Progress{LeaderEpoch: tc.epoch}}
		if got, err := commonEnd(t.Context(), b, stored, tc.end); err != nil || got != tc.common {
			t.Errorf("%+v: Got %d and %v", tc, got, err)
		}
		b.earlier = true // it may have records that were never replicated in the place of the epoch's
		if got, err := commonEnd(t.Context(), b, stored, tc.end); err != nil || got != -1 {
			t.Errorf("%+v without the epoch: Got %d and %v, want that nothing tells", tc, got, err)
		}
		b.earlier = false
		stored.Source.TopicID = [16]byte{} // it may be a new topic, whose epochs begin anew
		if got, err := commonEnd(t.Context(), b, stored, tc.end); err != nil || got != -1 {
			t.Errorf("%+v without a topic id: Got %d and %v, want that nothing tells", tc, got, err)
		}
	}
}

// Offsets that were given up are none of what was applied, and may be readable now: with
// more memory, or as a replica has a good copy. They are not taken for another log. A
// record before them is.
func TestSkippedOffsetsAreNotCompared(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{false, true} {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "-")
		ingest(t, e, b)
		b.produce(0, "c", "d")
		all := allProgress(t, e)
		given := all[0].Progress
		given.Skip(5, store.SkippedTooLarge)
		var batch store.Batch
		batch.Advance(all[0].Source, 0, all[0].Progress.Next, given)
		if err := e.Apply(t.Context(), &batch); err != nil {
			t.Fatal(err)
		}
		if other {
			b.change(func() {
				l := b.logs[0]
				l.records = append(l.records[:2:2], append([]kafka.Record{fakeRecord(2, 1002, "x")}, l.records[2:]...)...)
			})
		}
		b.produce(0, "e")
		r := start(t, newTest(t, e, b), 0)
		if other {
			var changed *TopicChangedError
			if err := r.failed(); !errors.As(err, &changed) || changed.common != 2 {
				t.Errorf("Got %v, want another log from offset 2 on", err)
			}
			continue
		}
		waitFor(t, func() bool { return stored(t, e, b) || len(r.done) > 0 })
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(map[string]int64{"a": 1, "b": 1, "e": 1}, readContents(t, e).Counts); d != "" {
			t.Errorf("Got other counts (-want +got):\n%s", d)
		}
	}
}

// What a log tells of itself never goes back. Where it does, the partition is opened again,
// and so compared, before more of it is applied.
func TestWhatGoesBackIsOpenedAgain(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		logStart, stable int64
		epoch            int32
		want             error
	}{
		"as before":               {2, 10, 4, nil},
		"further":                 {3, 11, 5, nil},
		"of an unknown epoch":     {2, 10, -1, nil},
		"the start goes back":     {1, 10, 4, errReopen},
		"the last stable offset":  {2, 9, 4, errReopen},
		"the leader's epoch does": {2, 10, 3, errReopen},
	} {
		w, err := newTest(t, newEngine(t), newFakeBroker(1)).newWorker(store.Source{Pipeline: "p", Topic: "t"}, 0)
		if err != nil {
			t.Fatal(err)
		}
		w.buf.Start(5, buffer.Mark{})
		w.logStart, w.stable, w.epoch = 2, 10, 4
		got := w.batch(t.Context(), t.Context(), &kafka.Batch{From: 5, Next: 7, LogStart: tc.logStart, LastStable: tc.stable, LeaderEpoch: tc.epoch})
		if !errors.Is(got, tc.want) {
			t.Errorf("%s: Got %v, want %v", name, got, tc.want)
		}
		if read := w.buf.Next() == 7; read != (tc.want == nil) {
			t.Errorf("%s: Got the batch buffered: %t", name, read)
		}
		w.buf.Close()
	}
}

// A coordinator that takes no offsets, as of a topic that is gone, is named once, and once
// again when it does.
func TestOffsetsThatAreNotShownAreSaidOnce(t *testing.T) {
	t.Parallel()
	c, e, log := newCluster(t, map[string]int{"pages": 1}), newEngine(t), new(jsonLog)
	m := c.run(e, often, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	const trouble, over = "offsets are not shown to kafka, trying again", "offsets are shown to kafka again"
	for range 2 {
		c.produce("pages", 10)
		m.wait(c.ends("pages"))
		faults := c.broker.Cluster().Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.OffsetCommit}, Err: kerr.UnknownTopicOrPartition, Count: 5})
		waitFor(t, func() bool { return faults.Hits() == 5 })
		shown := len(log.places(t, over))
		waitFor(t, func() bool { return len(log.places(t, over)) > shown })
	}
	m.close()
	if n, again := len(log.places(t, trouble)), len(log.places(t, over)); n != 2 || again != 2 {
		t.Errorf("Got %d lines of trouble that came twice, and %d of its end", n, again)
	}
}
