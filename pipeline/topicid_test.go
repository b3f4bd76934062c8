package pipeline

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/store"
)

// Brokers that are upgraded to tell topic ids make the topic look anew. It is not
// applied from its start, which would count all of it twice, whatever the policy.
func TestFirstTopicIDStopsWhateverThePolicy(t *testing.T) {
	t.Parallel()
	for _, policy := range []TopicChangePolicy{FailOnTopicChange, NewIncarnation} {
		for _, running := range []bool{false, true} {
			e, b := newEngine(t), newFakeBroker(1)
			id := b.info.id
			b.change(func() { b.info.id = [16]byte{} })
			b.produce(0, "a", "b")
			r := start(t, newTest(t, e, b, func(o *Options) { o.OnTopicChange = policy }), 0)
			r.caughtUp(b)
			if !running {
				if err := r.close(); err != nil {
					t.Fatal(err)
				}
			}
			b.change(func() {
				b.info.id = id
				if running { // what makes a reader look again
					b.logs[0].start, b.logs[0].end = 3, 3
				}
			})
			if !running {
				r = start(t, newTest(t, e, b, func(o *Options) { o.OnTopicChange = policy }), 0)
			}
			err := r.failed()
			if !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "start: committed") || strings.Contains(err.Error(), "new_incarnation") {
				t.Errorf("policy %v, running %v: Got %v", policy, running, err)
			}
			if got := readContents(t, e); got.Counts["a"] != 1 || got.Progress.Applied != 2 {
				t.Errorf("policy %v, running %v: Got %+v, want each record once", policy, running, got)
			}
		}
	}
}

// Brokers that tell no topic id for a while, as amid a downgrade, where one is stored, do not
// say that the topic is another one: it is waited for, whatever the policy.
func TestVanishedTopicIDIsWaitedFor(t *testing.T) {
	t.Parallel()
	for _, policy := range []TopicChangePolicy{FailOnTopicChange, NewIncarnation} {
		for _, running := range []bool{false, true} {
			t.Run(fmt.Sprintf("policy %v, running %v", policy, running), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					e, b := newEngine(t), newFakeBroker(1)
					id := b.info.id
					b.produce(0, "a", "b")
					o := func(o *Options) { o.OnTopicChange = policy }
					r := start(t, newTest(t, e, b, o), 0)
					r.caughtUp(b)
					if !running {
						if err := r.close(); err != nil {
							t.Fatal(err)
						}
					}
					b.change(func() {
						b.info.id = [16]byte{}
						if running { // what makes a reader look again
							b.logs[0].start = 3
						}
					})
					if running {
						time.Sleep(time.Second)
						b.change(func() { b.logs[0].start = 0 })
					} else {
						r = start(t, newTest(t, e, b, o), 0)
					}
					b.produce(0, "c")
					time.Sleep(10 * time.Second)
					if got := readContents(t, e); got.Progress.Applied != 2 {
						t.Errorf("Got %+v while no id is told, want what was applied before", got)
					}
					b.change(func() { b.info.id = id })
					time.Sleep(maxRetryWait)
					r.caughtUp(b)
					if err := r.close(); err != nil {
						t.Error(err)
					}
					if d := cmp.Diff(want(b), readContents(t, e)); d != "" {
						t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
					}
				})
			})
		}
	}
}

// The way on that the error and docs/operations.md tell: the stored offsets become the
// group's, and a pipeline of another name begins at them. What Kafka had of the group
// before lags behind, as it does after a kill, and would have records counted twice.
func TestFirstTopicIDGoesOnUnderAnotherName(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(2)
	id := b.info.id
	b.change(func() { b.info.id = [16]byte{} })
	b.produce(0, "a", "b", "-", "skip")
	b.produce(1, "a")
	ingest(t, e, b)
	stored := map[int32]int64{}
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		stored[p.Partition] = p.Progress.Next
	}
	if d := cmp.Diff(map[int32]int64{0: 4, 1: 1}, stored); d != "" {
		t.Fatalf("Got other stored offsets (-want +got):\n%s", d)
	}
	b.change(func() { b.info.id, b.committed = id, map[int32]int64{0: 1, 1: 0} })
	b.produce(0, "c", "bad")
	b.produce(1, "b", "c")
	if err := start(t, newTest(t, e, b), 0, 1).failed(); !errors.Is(err, ErrTopicChanged) || !strings.Contains(err.Error(), "Topic ids") {
		t.Fatalf("Got %v, want ErrTopicChanged and where the way on is told", err)
	}

	b.change(func() { b.committed = stored }) // kafka-consumer-groups --reset-offsets --to-offset
	another := func(o *Options) { o.Name, o.Start = "p2", Start{From: StartCommitted} }
	ingest(t, e, b, another)
	b.produce(0, "a")
	ingest(t, e, b, another)
	expected := want(b)
	expected.Progress.Next += stored[0] + stored[1] // the offsets of the name before stay
	if d := cmp.Diff(expected, readContents(t, e)); d != "" {
		t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
	}
}
