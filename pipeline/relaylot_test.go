package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
)

// meteredTopic notes how large the letters are that it is given at once, and what is
// held of the memory meanwhile.
type meteredTopic struct {
	fakeTopic
	memory *memory.Budget

	mu        sync.Mutex
	most      int64 // bytes at once
	uncounted int64 // the most bytes that were not in the memory
}

func (p *meteredTopic) produce(ctx context.Context, topic string, letters []kafka.Message) error {
	size := int64(0)
	for i := range letters {
		size += int64(len(letters[i].Key) + len(letters[i].Value))
		for _, h := range letters[i].Headers {
			size += int64(len(h.Key) + len(h.Value))
		}
	}
	p.mu.Lock()
	p.most = max(p.most, size)
	p.uncounted = max(p.uncounted, size-p.memory.Used())
	p.mu.Unlock()
	return p.fakeTopic.produce(ctx, topic, letters)
}

// withMemory is a pipeline of a budget of its own.
func withMemory(t *testing.T, limit int64) (*memory.Budget, testOption) {
	t.Helper()
	m, err := memory.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	return m, func(o *Options) { o.Memory = m }
}

// Letters that are relayed are in the one memory, with their headers, and as many at
// once as its part allows.
func TestRelayWithinMemory(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ value, headers, header int }{
		"values":       {value: 8 << 10},
		"headers":      {headers: 2, header: 4 << 10},
		"many headers": {headers: 200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			const n = 300
			for i := range n {
				b.produce(0, "bad"+strings.Repeat("x", c.value))
				for range c.headers {
					h := kafka.Header{Key: []byte("h"), Value: make([]byte, c.header)}
					b.logs[0].records[i].Headers = append(b.logs[0].records[i].Headers, h)
				}
			}
			ingest(t, e, b)
			m, option := withMemory(t, 1<<20)
			out := &meteredTopic{memory: m}
			p := newTest(t, e, b, option)
			stop := startRelaying(p, out)
			waitFor(t, func() bool { return p.Metrics().Relayed == n })
			stop()
			if most := m.Buffered().Limit() / 8; out.most > most || out.uncounted > 0 {
				t.Errorf("Got %d bytes of letters at once, %d of them not counted, want %d at most, 0", out.most, out.uncounted, most)
			}
			if m.Used() != 0 {
				t.Errorf("Got %d bytes held after the end", m.Used())
			}
			if len(out.letters()) != n {
				t.Errorf("Got %d letters, want %d", len(out.letters()), n)
			}
		})
	}
}

// The relay takes no memory that partitions have, and goes on when there is some.
func TestRelayWaitsForMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(1)
		b.produce(0, "bad", "bad")
		ingest(t, e, b)
		m, option := withMemory(t, 1<<20)
		full, ok := m.Buffered().Try(m.Buffered().Limit())
		if !ok {
			t.Fatal("Got no memory of an empty budget")
		}
		p := newTest(t, e, b, option)
		stop := startRelaying(p, &fakeTopic{})
		defer stop()
		synctest.Wait()
		if n := relayed(t, e); n != 0 {
			t.Errorf("Got %d letters relayed without memory", n)
		}
		full.Release()
		waitFor(t, func() bool { return p.Metrics().Relayed == 2 })
	})
}

// A letter that is larger than the part of the relays goes alone; one that is larger
// than the memory stays in the outbox, says so, and holds up no other.
func TestRelayOfLargeLetters(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "bad", "bad"+strings.Repeat("x", 150<<10), "bad"+strings.Repeat("x", 400<<10), "bad")
	ingest(t, e, b)
	m, option := withMemory(t, 1<<20)
	out := &meteredTopic{memory: m}
	p := newTest(t, e, b, option)
	stop := startRelaying(p, out)
	waitFor(t, func() bool { return p.Metrics().Relayed == 3 && p.Metrics().RelayErrors > 2 })
	stop()
	want := map[string]int{"t/0/0": 1, "t/0/1": 1, "t/0/3": 1}
	if d := cmp.Diff(want, out.letters()); d != "" || out.uncounted > 0 {
		t.Errorf("Got %d bytes not counted, other letters (-want +got):\n%s", out.uncounted, d)
	}

	_, option = withMemory(t, 4<<20)
	p = newTest(t, e, b, option)
	stop = startRelaying(p, out)
	waitFor(t, func() bool { return p.Metrics().Relayed == 1 })
	stop()
	want["t/0/2"] = 1
	if d := cmp.Diff(want, out.letters()); d != "" {
		t.Errorf("Got other letters with more memory (-want +got):\n%s", d)
	}
}

// Relays of one memory share their part of it.
func TestRelaysShareTheirMemory(t *testing.T) {
	t.Parallel()
	m, option := withMemory(t, 1<<20)
	var alone int64
	for n := int64(1); n <= 3; n++ {
		p := newTest(t, newEngine(t), newFakeBroker(1), option, func(o *Options) { o.Name = fmt.Sprint("p", n) })
		defer startRelaying(p, &fakeTopic{})()
		if n == 1 {
			alone = p.relay.most()
		}
		if got := p.relay.most(); got != alone/n || got*n > m.Buffered().Limit()/8 {
			t.Errorf("Got %d bytes for each of %d relays, want %d", got, n, alone/n)
		}
	}
}
