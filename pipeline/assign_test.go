package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/memory"
	"sluice/store"
)

// ingest runs a pipeline until it has all of b, and stops it.
func ingest(t *testing.T, e store.Engine, b *fakeBroker, opts ...testOption) {
	t.Helper()
	r := start(t, newTest(t, e, b, opts...), b.info.partitions...)
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// trim removes the records below offset, as retention does.
func (b *fakeBroker) trim(partition int32, offset int64) {
	b.change(func() {
		l := b.logs[partition]
		for len(l.records) > 0 && l.records[0].Offset < offset {
			l.gone, l.records = append(l.gone, l.records[0]), l.records[1:]
		}
		l.start, l.end = offset, max(l.end, offset)
	})
}

// recreate makes the topic anew, empty, under another id.
func (b *fakeBroker) recreate() {
	b.change(func() {
		b.info.id[0]++
		for n := range b.logs {
			b.logs[n] = &fakeLog{}
		}
	})
}

func fromTime(ms int64) testOption {
	return func(o *Options) { o.Start = Start{From: StartAtTime, Time: time.UnixMilli(ms)} }
}

func fromLatest(o *Options) { o.Start = Start{From: StartLatest} }

func TestStart(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		opts  []testOption
		first int64
	}{
		"earliest":  {nil, 2},
		"latest":    {[]testOption{fromLatest}, 5},
		"timestamp": {[]testOption{fromTime(1003)}, 3},
		"future":    {[]testOption{fromTime(9999)}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "b", "c", "d", "e")
			b.trim(0, 2)
			ingest(t, e, b, c.opts...)
			// Where it began is stored before the first record is: what comes
			// while nobody looks is not skipped.
			b.produce(0, "f")
			ingest(t, e, b, c.opts...)
			got := readContents(t, e)
			if want := 6 - c.first; got.Progress.Applied != want || int64(len(got.Counts)) != want {
				t.Errorf("Got %+v, want %d records from offset %d on", got, want, c.first)
			}
			if got.Progress.Lost != 0 {
				t.Errorf("Got %d lost, want none: they were gone before the beginning", got.Progress.Lost)
			}
		})
	}
}

func TestAddedPartitionBeginsAtItsFirstRecord(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "old")
	ingest(t, e, b, fromLatest)
	b.change(func() {
		b.info.partitions = append(b.info.partitions, 1)
		b.logs[1] = &fakeLog{}
	})
	b.produce(1, "new", "new")
	ingest(t, e, b, fromLatest)
	if got := readContents(t, e).Counts; got["new"] != 2 || got["old"] != 0 {
		t.Errorf("Got counts %v, want new 2", got)
	}
}

// A member begins the partitions that others have for now, too, such as one that
// has died and is not yet missed: when they come to it later, what is in them
// from before is no addition.
func TestAllPartitionsBeginTogether(t *testing.T) {
	t.Parallel()
	beginTogether(t)
}

// So does a process that reads named partitions: the one that reads the others comes
// later, and begins where the topic was begun, not with what was there before.
func TestNamedPartitionsBeginTogether(t *testing.T) {
	t.Parallel()
	beginTogether(t, func(o *Options) { o.Static, o.Partitions = true, []int32{0} })
}

// beginTogether has a process with opts begin a topic of two partitions of which it reads
// the first, and another one go on with both.
func beginTogether(t *testing.T, opts ...testOption) {
	t.Helper()
	e, b := newEngine(t), newFakeBroker(2)
	b.produce(0, "old")
	b.produce(1, "old", "old")
	r := start(t, newTest(t, e, b, append(opts, fromLatest)...), 0)
	waitFor(t, func() bool { return r.first().Owned })
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	b.produce(0, "new")
	b.produce(1, "new")
	ingest(t, e, b, fromLatest)
	if got := readContents(t, e).Counts; got["new"] != 2 || got["old"] != 0 {
		t.Errorf("Got counts %v, want new 2", got)
	}
}

func TestLostRecords(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail, running %v", running), func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "a")
			r := start(t, newTest(t, e, b), 0)
			r.caughtUp(b)
			if !running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			b.trim(0, 7)
			if !running {
				r = start(t, newTest(t, e, b), 0)
			}
			err := r.failed()
			var lost *DataLossError
			if !errors.As(err, &lost) || !errors.Is(err, ErrDataLoss) || lost.From != 2 || lost.To != 7 {
				t.Fatalf("Got %v, want offsets 2 to 7 lost", err)
			}
			for _, part := range []string{"t/0", "2 to 6", "on_data_loss: skip"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Got message %q without %q", err, part)
				}
			}
		})
		t.Run(fmt.Sprintf("skip, running %v", running), func(t *testing.T) {
			t.Parallel()
			skip := func(o *Options) { o.OnDataLoss = SkipLostData }
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "a")
			r := start(t, newTest(t, e, b, skip), 0)
			r.caughtUp(b)
			if !running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			b.trim(0, 7)
			b.produce(0, "b")
			if !running {
				r = start(t, newTest(t, e, b, skip), 0)
			}
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			got := readContents(t, e)
			if got.Progress.Lost != 5 || got.Progress.Applied != 3 || got.Progress.Next != 8 || got.Counts["b"] != 1 {
				t.Errorf("Got %+v, want 5 lost and 3 applied", got)
			}
			if m := r.Metrics(); m.Lost != 5 {
				t.Errorf("Got %d lost in the metrics, want 5", m.Lost)
			}
		})
	}
}

// Records that were fetched before retention took them are applied.
func TestFetchedRecordsAreNotLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, b := newEngine(t), newFakeBroker(1)
		leave := make(chan struct{})
		e := holdingFirst(mem, leave)
		r := start(t, newTest(t, e, b, func(o *Options) { o.OnDataLoss = SkipLostData }), 0)
		b.produce(0, "a")
		synctest.Wait() // it is in the engine
		b.produce(0, "b", "c")
		synctest.Wait() // they are buffered behind it
		b.trim(0, 7)
		synctest.Wait()
		close(leave)
		b.produce(0, "d")
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		if got := readContents(t, mem); got.Progress.Lost != 4 || got.Progress.Applied != 4 || got.Counts["b"] != 1 {
			t.Errorf("Got %+v, want 4 lost and 4 applied", got)
		}
	})
}

func TestTruncatedLogStopsWhateverThePolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []DataLossPolicy{FailOnDataLoss, SkipLostData} {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "c")
		ingest(t, e, b)
		b.change(func() { b.logs[0].end, b.logs[0].records = 1, b.logs[0].records[:1] })
		r := start(t, newTest(t, e, b, func(o *Options) { o.OnDataLoss = policy }), 0)
		err := r.failed()
		if !errors.Is(err, ErrDataLoss) || !strings.Contains(err.Error(), "the log ends at 1") || strings.Contains(err.Error(), "created anew") {
			t.Errorf("Got %v, want the end of the log named", err)
		}
	}
}

// Without topic ids a log that ends early may be that of a topic that was created anew, and
// its epochs do not tell how much of it is the same.
func TestShorterLogWithoutTopicID(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.info.id, b.epochs = [16]byte{}, map[int32]int64{0: 2}
	b.produce(0, "a", "b", "c")
	ingest(t, e, b)
	b.change(func() { b.logs[0] = &fakeLog{} })
	b.produce(0, "d", "e")
	err := start(t, newTest(t, e, b), 0).failed()
	for _, part := range []string{"the log ends at 2", "created anew", "start: earliest"} {
		if !errors.Is(err, ErrDataLoss) || !strings.Contains(err.Error(), part) || strings.Contains(err.Error(), "up to which it is the same") {
			t.Errorf("Got %v, want ErrDataLoss with %q, and no offset to go on at", err, part)
		}
	}
}

// A group that reads uncommitted records commits offsets inside of transactions
// that are open.
func TestStartInsideAnOpenTransaction(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b")
		b.change(func() { b.logs[0].open = 3 })
		r := start(t, newTest(t, e, b, func(o *Options) { o.Start = Start{From: StartCommitted} }), 0)
		waitFor(t, func() bool { return r.first().Progress.Next == 5 })
		b.change(func() { b.logs[0].end, b.logs[0].open = 5, 0 }) // aborted
		b.produce(0, "c")
		waitStored(t, e, b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		if got := readContents(t, e); got.Counts["c"] != 1 || len(got.Counts) != 1 || got.Progress.Applied != 1 {
			t.Errorf("Got %+v, want c alone", got)
		}
	})
}

// After a leader change the new leader may learn the end of the log late.
func TestShortLogIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "c")
		ingest(t, e, b)
		p := newTest(t, e, b)
		p.retry = firstRetryWait
		b.change(func() { b.logs[0].end = 1 })
		r := start(t, p, 0)
		<-time.After(3 * time.Second)
		b.change(func() { b.logs[0].end = 3 })
		b.produce(0, "d")
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, e, b)
	})
}

func TestOtherRecordsAtTheSameOffsetsStop(t *testing.T) {
	t.Parallel()
	for _, policy := range []TopicChangePolicy{FailOnTopicChange, NewIncarnation} {
		for _, told := range []bool{true, false} {
			e, b := newEngine(t), newFakeBroker(1)
			if !told { // then nothing but its records tells that a topic was made anew
				b.info.id = [16]byte{}
			}
			b.produce(0, "a", "b", "c")
			ingest(t, e, b)
			b.change(func() { b.logs[0] = &fakeLog{} })
			b.produce(0, "a", "b", "other", "d")
			err := start(t, newTest(t, e, b, func(o *Options) { o.OnTopicChange = policy }), 0).failed()
			if !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "fingerprint") {
				t.Errorf("Got %v, want the fingerprint named", err)
			}
			if strings.Contains(err.Error(), "created anew") == told || strings.Contains(err.Error(), "start: earliest") == told {
				t.Errorf("ids are told: %t: Got %v", told, err)
			}
			if got := readContents(t, e); got.Progress.Next != 3 {
				t.Errorf("Got %+v, want nothing applied of the other log", got)
			}
		}
	}
}

// A broker that cannot give the last applied record for a while is waited for: nothing is
// applied of a log that was not compared. One that has it no more, as compaction has taken
// it and nothing follows, is believed by its epochs alone.
func TestComparingIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, other := range []bool{true, false} {
		t.Run(fmt.Sprint("other ", other), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				e, b := newEngine(t), newFakeBroker(1)
				b.produce(0, "a", "b", "c")
				ingest(t, e, b)
				if other {
					b.change(func() { b.logs[0] = &fakeLog{} })
					b.produce(0, "a", "b", "other")
				}
				b.change(func() { b.silent = map[int32]bool{0: true} })
				b.produce(0, "d")
				p := newTest(t, e, b)
				p.retry = firstRetryWait
				r := start(t, p, 0)
				for range 3 {
					<-time.After(time.Minute)
					if s := r.first(); s.Progress.Next > 3 || !strings.Contains(s.Paused, "offset 2") || !strings.Contains(s.Paused, "not compared") {
						t.Errorf("Got %+v, want it paused before offset 3", s)
					}
				}
				b.change(func() { b.silent = nil })
				if other {
					if err := r.failed(); !errors.Is(err, ErrTopicChanged) {
						t.Errorf("Got %v, want ErrTopicChanged", err)
					}
					if got := readContents(t, e); got.Progress.Next != 3 || got.Counts["d"] != 0 {
						t.Errorf("Got %+v, want nothing applied of the other log", got)
					}
					return
				}
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				checkContents(t, e, b)
			})
		})
	}
	t.Run("compacted", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "b", "c")
			ingest(t, e, b)
			b.change(func() { b.silent, b.barren = map[int32]bool{0: true}, true })
			p := newTest(t, e, b)
			p.retry = firstRetryWait
			r := start(t, p, 0)
			<-time.After(time.Minute)
			if s := r.first(); s.Paused != "" || s.Progress.Next != 3 || s.LogEnd != 3 {
				t.Errorf("Got %+v, want it to wait for records", s)
			}
			b.change(func() { b.silent = nil })
			b.produce(0, "d")
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			checkContents(t, e, b)
		})
	})
}

// A batch that is spoiled after it was applied stops nothing: nothing of it is needed. The
// epochs are compared all the same.
func TestGoesOnBehindASpoiledBatch(t *testing.T) {
	t.Parallel()
	for _, reason := range []error{errors.New("CRC-32C"), memory.ErrTooLarge} {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "c")
		ingest(t, e, b)
		b.change(func() { b.rotten, b.rot = 3, reason })
		b.produce(0, "d")
		b.change(func() { b.epochs = map[int32]int64{0: 1} })
		if err := start(t, newTest(t, e, b), 0).failed(); !errors.Is(err, ErrTopicChanged) {
			t.Errorf("Got %v of another log, want ErrTopicChanged", err)
		}
		b.change(func() { b.epochs = nil })
		ingest(t, e, b)
		if d := cmp.Diff(want(b), readContents(t, e)); d != "" {
			t.Errorf("Got other contents (-want +got):\n%s", d)
		}
	}
}

// Where retention has taken the last applied record, the epochs are compared all the same.
func TestEpochsAreComparedBehindRetention(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "b", "-")
	ingest(t, e, b)
	b.produce(0, "c")
	b.trim(0, 3)
	b.change(func() { b.epochs = map[int32]int64{0: 1} })
	err := start(t, newTest(t, e, b), 0).failed()
	if !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "leader epoch 0 ending at offset 1") {
		t.Errorf("Got %v, want the epoch named", err)
	}
	if got := readContents(t, e); got.Progress.Next != 3 {
		t.Errorf("Got %+v, want nothing applied of the other log", got)
	}
	// The epoch before goes on behind the record: it is another log, whose leader was away.
	b.change(func() { b.epochs, b.earlier = nil, true })
	err = start(t, newTest(t, e, b), 0).failed()
	if !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "leader epoch -1 before offset 4, and none later up to epoch 0") || strings.Contains(err.Error(), "up to which it is the same") {
		t.Errorf("Got %v, want the epochs named", err)
	}
	b.change(func() { b.earlier = false })
	ingest(t, e, b)
	if got := readContents(t, e); got.Progress.Next != 4 || got.Counts["c"] != 1 {
		t.Errorf("Got %+v, want c applied", got)
	}
}

// The end of a transaction, or an aborted record, is no record: where it is truncated and
// another record written in its place, the last applied one is as it was.
func TestRecordsInPlaceOfMarkersStop(t *testing.T) {
	t.Parallel()
	for _, again := range [][]string{{"other", "d"}, {"other"}, {"-", "other", "d"}, {"-", "other"}} {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "-", "-")
		ingest(t, e, b)
		b.change(func() { b.logs[0].end = 2 })
		b.produce(0, again...)
		if len(again) == 1 {
			b.produce(0, "-")
		}
		err := start(t, newTest(t, e, b), 0).failed()
		if !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "found a record at offset") {
			t.Errorf("%q: Got %v, want the record that was not there", again, err)
		}
		if got := readContents(t, e); got.Progress.Next != 4 {
			t.Errorf("%q: Got %+v, want nothing applied of the other log", again, got)
		}
	}
}

// Markers in place of markers are no loss.
func TestMarkersInPlaceOfMarkersGoOn(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "b", "-", "-")
	ingest(t, e, b)
	b.change(func() { b.logs[0].end = 2 })
	b.produce(0, "-", "-", "c")
	ingest(t, e, b)
	checkContents(t, e, b)
}

// Many records of a log are alike; their times are not.
func TestSameRecordsOfAnotherTimeStop(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "a", "a")
	ingest(t, e, b)
	b.produce(0, "a")
	b.change(func() {
		for i := range b.logs[0].records {
			b.logs[0].records[i].Timestamp += 5
		}
	})
	if err := start(t, newTest(t, e, b), 0).failed(); !errors.Is(err, ErrTopicChanged) {
		t.Errorf("Got %v, want ErrTopicChanged", err)
	}
	if got := readContents(t, e); got.Progress.Next != 3 {
		t.Errorf("Got %+v, want nothing applied of the other log", got)
	}
}

func TestCompactedLastRecordIsNoChange(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "b", "c")
	ingest(t, e, b)
	b.produce(0, "d")
	b.change(func() { b.logs[0].records = b.logs[0].records[3:] })
	ingest(t, e, b)
	if got := readContents(t, e); got.Progress.Applied != 4 {
		t.Errorf("Got %+v, want 4 applied", got)
	}
}

// A log that was truncated, written again beyond the stored offset, and compacted
// has no record to compare: its epochs tell.
func TestTruncatedAndCompactedLogStops(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		end  int64
		stop bool
	}{{0, true}, {2, true}, {3, false}, {-1, false}} {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "a", "b", "c")
		ingest(t, e, b)
		b.produce(0, "d", "e")
		b.change(func() {
			b.logs[0].records = b.logs[0].records[3:] // offset 2 is compacted away
			b.epochs = map[int32]int64{0: tc.end}
		})
		if !tc.stop {
			ingest(t, e, b)
			continue
		}
		err := start(t, newTest(t, e, b, func(o *Options) { o.OnTopicChange, o.OnDataLoss = NewIncarnation, SkipLostData }), 0).failed()
		if want := fmt.Sprintf("leader epoch 0 ending at offset %d", tc.end); !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %q in it", err, want)
		}
		if got := readContents(t, e); got.Progress.Next != 3 {
			t.Errorf("Got %+v, want nothing applied of the other log", got)
		}
	}
}

// A log that ends before what was applied stops the pipeline, whatever the policies. The
// message and the audit name the offset at which another one goes on, without a record
// counted twice or left out.
func TestTruncatedLogNamesWhereToGoOn(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		left  int      // of five records that were applied
		since []string // records that the log has got since
		epoch int64    // where the epoch of the last applied record ends
		at    string   // in the message; empty = no offset is named
		audit string
	}{
		"as it was":     {3, nil, 3, "go on at offset 3,", "the log ends at 3: it was truncated"},
		"with others":   {3, []string{"x"}, 3, "go on at offset 3,", "the log ends at 4, and has other records from 3 on: it was truncated"},
		"of no epochs":  {3, []string{"x"}, -1, "", "the log ends at 4: it was truncated"},
		"with nothing":  {0, nil, 0, "go on at offset 0,", "the log ends at 0: it was truncated"},
		"written again": {3, []string{"x", "y", "z"}, 3, "go on at offset 3,", "leader epoch 0 ending at offset 3"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "b", "c", "a", "b")
			ingest(t, e, b)
			b.change(func() {
				l := b.logs[0]
				l.records, l.end = l.records[:tc.left], int64(tc.left)
				b.epochs = map[int32]int64{0: tc.epoch}
			})
			b.produce(0, tc.since...)
			err := start(t, newTest(t, e, b, func(o *Options) { o.OnTopicChange, o.OnDataLoss = NewIncarnation, SkipLostData }), 0).failed()
			if err == nil || !strings.Contains(err.Error(), "docs/operations.md, Truncated logs") || strings.Contains(err.Error(), "from its start") ||
				tc.at != "" && !strings.Contains(err.Error(), tc.at) || tc.at == "" && strings.Contains(err.Error(), "at offset") {
				t.Errorf("Got %v, want %q in it", err, tc.at)
			}
			if got := strings.Join(audit(t, e, b, false)[0].Problems, "\n"); !strings.Contains(got, tc.audit) {
				t.Errorf("Got problems %q, want %q", got, tc.audit)
			}
			if tc.at == "" {
				return
			}
			// As docs/operations.md says.
			b.change(func() { b.committed = map[int32]int64{0: tc.epoch} })
			r := start(t, newTest(t, e, b, func(o *Options) { o.Name, o.Start = "other", Start{From: StartCommitted} }), 0)
			b.produce(0, "e")
			r.caughtUp(b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			wanted := map[string]int64{"a": 2, "b": 2, "c": 1, "e": 1}
			for _, page := range tc.since {
				wanted[page]++
			}
			if d := cmp.Diff(wanted, readContents(t, e).Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
		})
	}
}

// A topic made anew with fewer partitions cannot be begun before the group has dealt them
// anew. That it is a new one is said once, when it is.
func TestFewerPartitionsMadeAnew(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	said := 0
	anew := func(o *Options) {
		o.OnTopicChange = NewIncarnation
		o.Logger = slog.New(slog.NewTextHandler(writerFunc(func(line []byte) (int, error) {
			mu.Lock()
			defer mu.Unlock()
			if strings.Contains(string(line), "topic is a new one") {
				said++
			}
			return len(line), nil
		}), nil))
	}
	e, b := newEngine(t), newFakeBroker(2)
	b.produce(0, "a")
	ingest(t, e, b)
	b.recreate()
	b.change(func() { delete(b.logs, 1) })
	p := newTest(t, e, b, anew)
	for range 3 {
		if _, err := p.prepare(t.Context(), "t", []int32{0, 1}); err == nil || said != 0 {
			t.Fatalf("Got %v, said %d times, while partition 1 is dealt", err, said)
		}
	}
	for range 2 {
		if _, err := p.prepare(t.Context(), "t", []int32{0}); err != nil || said != 1 {
			t.Errorf("Got %v, said %d times", err, said)
		}
	}
}

// The oldest record that retention has left may be the last applied one: it is compared.
func TestOldestRecordIsCompared(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "b")
	ingest(t, e, b)
	b.trim(0, 1)
	b.change(func() { b.logs[0].records[0].Value = []byte("other") })
	b.produce(0, "c")
	var changed *TopicChangedError
	if err := start(t, newTest(t, e, b), 0).failed(); !errors.As(err, &changed) {
		t.Errorf("Got %v, want another log", err)
	}
}

// A log never begins earlier than it did: one that does is compared before more of it is
// applied.
func TestLogThatGrowsBackwards(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "b")
	b.trim(0, 1)
	r := start(t, newTest(t, e, b), 0)
	r.caughtUp(b)
	b.change(func() {
		l := &fakeLog{end: 3}
		for i := range l.end {
			l.records = append(l.records, fakeRecord(i, 1000+i, "other"))
		}
		b.logs[0] = l
	})
	var changed *TopicChangedError
	if err := r.failed(); !errors.As(err, &changed) {
		t.Errorf("Got %v, want another log", err)
	}
	if got := readContents(t, e).Counts["other"]; got != 0 {
		t.Errorf("Got %d records of the other log applied", got)
	}
}

// Where nothing tells how far the offsets go that cannot be read, none is made up.
func TestUnreadableWithoutEnd(t *testing.T) {
	t.Parallel()
	for to, want := range map[int64]int64{-1: -1, 4: -1, 5: -1, 6: 6} {
		var bad *UnreadableError
		if err := (&worker{p: &Pipeline{}}).unreadable(5, to, store.SkippedCorrupt, errors.New("test")); !errors.As(err, &bad) || bad.To != want {
			t.Errorf("to %d: Got %+v, want %d", to, bad, want)
		}
	}
}

func TestTopicMadeAnew(t *testing.T) {
	t.Parallel()
	for _, running := range []bool{false, true} {
		t.Run(fmt.Sprintf("fail, running %v", running), func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(2)
			b.produce(0, "a", "b")
			b.produce(1, "c")
			r := start(t, newTest(t, e, b), 0, 1)
			r.caughtUp(b)
			if !running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			b.recreate()
			b.produce(0, "x")
			if !running {
				r = start(t, newTest(t, e, b), 0, 1)
			}
			err := r.failed()
			var changed *TopicChangedError
			if !errors.As(err, &changed) || !errors.Is(err, ErrTopicChanged) {
				t.Fatalf("Got %v, want a topic change", err)
			}
			for _, part := range []string{"topic id 01", "topic id 02", "on_topic_change: new_incarnation"} {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("Got message %q without %q", err, part)
				}
			}
			if got := readContents(t, e).Counts["x"]; got != 0 {
				t.Errorf("Got %d records of the new topic applied, want none", got)
			}
		})
		t.Run(fmt.Sprintf("new incarnation, running %v", running), func(t *testing.T) {
			t.Parallel()
			anew := func(o *Options) {
				o.OnTopicChange = NewIncarnation
				o.Start = Start{From: StartLatest} // of the first one only
			}
			e, b := newEngine(t), newFakeBroker(2)
			r := start(t, newTest(t, e, b, anew), 0, 1)
			waitFor(t, func() bool { return r.first().Owned })
			waitStored(t, e, b)
			waitFor(t, func() bool { n := len(allProgress(t, e)); return n == 2 })
			b.produce(0, "a", "b", "c")
			b.produce(1, "d")
			waitStored(t, e, b)
			if !running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			b.recreate()
			b.produce(0, "x", "x")
			b.produce(1, "y")
			if !running {
				r = start(t, newTest(t, e, b, anew), 0, 1)
			}
			waitStored(t, e, b)
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			got := readContents(t, e)
			if got.Counts["a"] != 1 || got.Counts["d"] != 1 || got.Counts["x"] != 2 || got.Counts["y"] != 1 || got.Progress.Applied != 7 {
				t.Errorf("Got %+v, want both topics applied", got)
			}
		})
	}
}

// lateBroker tells the topic as it was before it was made anew, so many times.
type lateBroker struct {
	*fakeBroker
	was  topicInfo
	left atomic.Int32
}

func (b *lateBroker) topic(ctx context.Context, name string) (topicInfo, error) {
	if b.left.Add(-1) >= 0 {
		return b.was, nil
	}
	return b.fakeBroker.topic(ctx, name)
}

// Of the brokers of a cluster one may know later than another that a topic was made anew:
// the log that is there then is the new topic's, and not one that has lost records.
func TestTopicMadeAnewBehindALateBroker(t *testing.T) {
	t.Parallel()
	for name, records := range map[string][]string{
		"a shorter log":                   {"x"},
		"a longer log":                    {"x", "y", "z", "x", "y"},
		"a longer log of another epoch":   {"x", "y", "z", "x", "y"},
		"an empty log":                    {},
		"a log that ends where it did so": {"x", "y", "z"},
	} {
		for _, policy := range []TopicChangePolicy{FailOnTopicChange, NewIncarnation} {
			t.Run(fmt.Sprintf("%s, policy %d", name, policy), func(t *testing.T) {
				t.Parallel()
				e, b := newEngine(t), newFakeBroker(1)
				b.produce(0, "a", "b", "c")
				ingest(t, e, b)
				late := &lateBroker{fakeBroker: b, was: b.info}
				late.left.Store(2) // that it is begun, and opened
				b.recreate()
				b.produce(0, records...)
				if strings.Contains(name, "epoch") {
					b.change(func() { b.epochs = map[int32]int64{0: 1} })
				}
				p := newTest(t, e, b, func(o *Options) { o.OnTopicChange = policy })
				p.broker = late
				r := start(t, p, 0)
				if policy == FailOnTopicChange {
					var changed *TopicChangedError
					if err := r.failed(); !errors.As(err, &changed) || changed.sameID || !strings.Contains(err.Error(), "topic id 02") {
						t.Errorf("Got %v, want the topic's new id", err)
					}
					return
				}
				b.change(func() { b.epochs = nil })
				r.caughtUp(b)
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
				if got := readContents(t, e); got.Progress.Applied != int64(3+len(records)) || got.Counts["x"]+got.Counts["y"]+got.Counts["z"] != int64(len(records)) {
					t.Errorf("Got %+v, want both topics applied", got)
				}
			})
		}
	}
}

func allProgress(t *testing.T, e store.Engine) []store.PartitionProgress {
	t.Helper()
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestBrokenBrokerIsWaitedOut(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.change(func() { b.broken = errors.New("no broker answered") })
	r := start(t, newTest(t, e, b), 0)
	b.change(func() { b.broken = nil })
	b.produce(0, "a")
	r.caughtUp(b)
	b.change(func() { b.broken = errors.New("no broker answered") })
	waitFor(t, func() bool { return strings.Contains(r.first().Paused, "no broker answered") })
	b.change(func() { b.broken = nil })
	waitFor(t, func() bool { return r.first().Paused == "" })
	b.produce(0, "bad", "b")
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	checkContents(t, e, b)
}

func TestOptionsAreChecked(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	good := Options{Name: "p", Topics: []string{"t"}, Engine: e}
	for name, change := range map[string]func(*Options){
		"name":          func(o *Options) { o.Name = "" },
		"rebuild's":     func(o *Options) { o.Name = "p~1" },
		"topics":        func(o *Options) { o.Topics = nil },
		"topic twice":   func(o *Options) { o.Topics = []string{"t", "t"} },
		"own letters":   func(o *Options) { o.DeadLetterTopic = "t" },
		"engine":        func(o *Options) { o.Engine = nil },
		"start":         func(o *Options) { o.Start.From = 9 },
		"time":          func(o *Options) { o.Start.From = StartAtTime },
		"in flight":     func(o *Options) { o.InFlight = 9 },
		"duration":      func(o *Options) { o.Heartbeat = -1 },
		"policy":        func(o *Options) { o.OnDataLoss = 9 },
		"other policy":  func(o *Options) { o.OnTopicChange = 9 },
		"client absent": func(*Options) {},
	} {
		o := good
		change(&o)
		if _, err := New(&o); err == nil {
			t.Errorf("%s: Got no error", name)
		}
	}
	if _, err := New(nil); err == nil {
		t.Error("Got no error for nil options")
	}
	o := good
	if err := o.validate(); err != nil {
		t.Errorf("Got %v for good options", err)
	}
}
