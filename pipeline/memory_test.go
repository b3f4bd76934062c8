package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
	"sluice/store"
)

// meteredEngine notes how much memory is held at each batch.
type meteredEngine struct {
	store.Engine
	memory *memory.Budget
	most   atomic.Int64
}

func (e *meteredEngine) Apply(ctx context.Context, b *store.Batch) error {
	e.look()
	defer e.look()
	return e.Engine.Apply(ctx, b)
}

func (e *meteredEngine) look() { e.most.Store(max(e.most.Load(), e.memory.Used())) }

// bulk produces n records of about size bytes, compressed, in batches of some.
func (c *cluster) bulk(n, size int) {
	c.t.Helper()
	for n > 0 {
		var msgs []kafka.Message
		for range min(n, 200) {
			page := fmt.Sprint("page", c.total%7)
			msgs = append(msgs, kafka.Message{
				Partition: kafka.AnyPartition,
				Value:     fmt.Appendf(nil, `{"user":"u%d","page":%q,"pad":%q}`, c.total, page, strings.Repeat("x", size)),
			})
			c.pages[page]++
			c.total++
		}
		if err := c.out.Produce(c.t.Context(), "pages", msgs...); err != nil {
			c.t.Fatal(err)
		}
		n -= len(msgs)
	}
}

// A disk that is full, or a store that does not answer, while there are many times
// more records than memory: what is held stays within the limit, the members stay in
// their group, all is applied once the store takes it, and nothing is held at the end.
func TestFetchWithinMemory(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]error{"full disk": store.ErrDiskFull, "busy store": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFetchWithinMemory(t, refuse) })
		})
	}
}

func testFetchWithinMemory(t *testing.T, refuse error) {
	c, client := virtualCluster(t, 4)
	m, err := memory.New(2 << 20)
	if err != nil {
		t.Fatal(err)
	}
	held := make(chan struct{})
	close(held)
	inner := newEngine(t)
	hold := &heldEngine{Engine: inner, refuse: refuse, held: held}
	e := &meteredEngine{Engine: hold, memory: m}
	p, err := New(&Options{
		Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, inner), Engine: e, Memory: m,
		StoreID: "s1", SessionTimeout: 6 * time.Second, Heartbeat: time.Second, Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	c.bulk(400, 1000)
	waitFor(t, func() bool { return readProgress(t, inner) == c.total })
	held = make(chan struct{})
	hold.mu.Lock()
	hold.held = held
	hold.mu.Unlock()
	for range 8 {
		c.bulk(400, 1000)
		<-time.After(time.Minute)
		e.look()
	}
	during := p.Status()
	if p.Metrics().Rebalances != 1 || len(during.Partitions) != 4 {
		t.Errorf("Got %d rebalances and %d partitions while the store is held, want 1 and 4", p.Metrics().Rebalances, len(during.Partitions))
	}
	if refuse == nil && m.Used() == 0 {
		t.Error("Got nothing held before a store that does not answer")
	}
	close(held)
	waitFor(t, func() bool { return readProgress(t, inner) == c.total })
	if generation := p.Status().Generation; generation != during.Generation {
		t.Errorf("Got generation %d, want %d as before", generation, during.Generation)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(fmt.Errorf("run: %w", err))
	}
	c.check(inner)
	if m.Used() != 0 || e.most.Load() > m.Limit() {
		t.Errorf("Got %d bytes held after the end and %d at most, want 0 and %d", m.Used(), e.most.Load(), m.Limit())
	}
	for _, s := range m.Shares()[:2] {
		if _, used, idle := s.Held(); used != 0 || idle > s.Limit() {
			t.Errorf("Got %d bytes of %s memory in use and %d idle after the end, want 0 and %d at most", used, s.Name(), idle, s.Limit())
		}
	}
}

// A record that becomes more than can be buffered is dealt with by policy. Where it is too
// large for a dead letter, too, its partition alone is paused, and says how to go on;
// what was before it is applied.
func TestRecordLargerThanMemory(t *testing.T) {
	t.Parallel()
	class := func(p Policy) testOption { return withPoison(Poison{Policies: map[string]Policy{"too_large": p}}) }
	for name, tc := range map[string]struct {
		value  string
		option testOption
		next   int64
		text   string // of the pause
		want   contents
	}{
		"letter": {
			strings.Repeat("x", 360<<10), func(*Options) {}, 4, "",
			contents{Letters: map[string]string{"t/0/2": "map/too_large"}, Progress: store.Progress{Dead: 1, Applied: 3}},
		},
		"dropped": {
			strings.Repeat("x", 800<<10), class(DropRecords), 4, "",
			contents{Letters: map[string]string{}, Progress: store.Progress{Applied: 3}},
		},
		"no letter": {
			strings.Repeat("x", 800<<10), func(*Options) {}, 2, "--from 2 --to 3 --reason too_large",
			contents{Letters: map[string]string{}, Progress: store.Progress{Applied: 2}},
		},
		"refused, no letter": {
			"bad" + strings.Repeat("x", 800<<10), func(*Options) {}, 2, "--from 2 --to 3 --reason too_large",
			contents{Letters: map[string]string{}, Progress: store.Progress{Applied: 2}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(2)
			m, err := memory.New(1 << 20)
			if err != nil {
				t.Fatal(err)
			}
			b.produce(0, "a", "b", tc.value, "c")
			b.produce(1, "a")
			r := start(t, newTest(t, e, b, func(o *Options) { o.Memory = m }, tc.option), 0, 1)
			waitFor(t, func() bool {
				all := r.Status().Partitions
				return len(all) == 2 && all[0].Progress.Next == tc.next && strings.Contains(all[0].Paused, tc.text) && all[1].Progress.Next == 1
			})
			if p := r.first().Paused; tc.text != "" && (!strings.Contains(p, memory.ErrTooLarge.Error()) && !strings.Contains(p, "raise memory")) {
				t.Errorf("Got pause %q, want it to say that memory is to be raised", p)
			}
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			got := readContents(t, e)
			if d := cmp.Diff(tc.want.Letters, got.Letters); d != "" {
				t.Errorf("letters (-want +got):\n%s", d)
			}
			if p := got.Progress; p.Dead != tc.want.Progress.Dead || p.Applied != tc.want.Progress.Applied+1 {
				t.Errorf("Got %+v, want %+v and one of the other partition", p, tc.want.Progress)
			}
			if m.Used() != 0 {
				t.Errorf("Got %d bytes held after the end", m.Used())
			}
		})
	}
}

// forgettingMapper tells when it is to forget.
type forgettingMapper struct {
	mapper
	forgets *atomic.Int64
}

func (m *forgettingMapper) Forget() {
	m.forgets.Add(1)
	m.mapper.Forget()
}

// The mapper of a partition keeps no large batch in memory that has given its memory back:
// with many partitions that would be many times what there is.
func TestLargeBatchesAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testLargeBatchesAreForgotten)
}

func testLargeBatchesAreForgotten(t *testing.T) {
	c, client := virtualCluster(t, 1)
	e := newEngine(t)
	p, err := New(&Options{Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e), Engine: e, StoreID: "s1", Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	var forgets atomic.Int64
	made := p.newMapper
	p.newMapper = func() mapper { return &forgettingMapper{made(), &forgets} }
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for i, tc := range []struct {
		records, size int
		want          int64
	}{{20, 10, 0}, {2, maxPinned, 1}, {20, 10, 1}, {200, maxPinned / 100, 2}} {
		c.bulk(tc.records, tc.size)
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
		if got := forgets.Load(); got != tc.want {
			t.Errorf("Got %d batches forgotten after those up to %d, want %d", got, i, tc.want)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	c.check(e)
}
