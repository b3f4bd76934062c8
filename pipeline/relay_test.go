package pipeline

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// fakeTopic is a dead-letter topic that can be down or refuse single letters.
type fakeTopic struct {
	mu      sync.Mutex
	down    bool
	why     error // of a topic that is down; nil = no broker answered
	refuses map[int64]bool
	most    int // bytes of a letter; 0 = no bound
	last    kafka.Message
	got     map[string]int
	calls   int
}

func (p *fakeTopic) produce(_ context.Context, _ string, letters []kafka.Message) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls++
	switch {
	case p.down && p.why != nil:
		return p.why
	case p.down:
		return errors.New("no broker answered")
	}
	for i := range letters {
		offset, err := strconv.ParseInt(header(&letters[i], "x-orig-offset"), 10, 64)
		if err != nil {
			return err
		}
		size := len(letters[i].Value)
		for _, h := range letters[i].Headers {
			size += len(h.Value)
		}
		switch {
		case p.refuses[offset]:
			return errors.New("record is not wanted")
		case p.most > 0 && size > p.most:
			return fmt.Errorf("produce: %w", kafka.ErrTooLarge)
		}
	}
	if p.got == nil {
		p.got = map[string]int{}
	}
	for i := range letters {
		p.got[string(letters[i].Key)]++
		p.last = letters[i]
	}
	return nil
}

// header returns the last header of m with this key, "" where it has none.
func header(m *kafka.Message, key string) (value string) {
	for _, h := range m.Headers {
		if string(h.Key) == key {
			value = string(h.Value)
		}
	}
	return value
}

func (p *fakeTopic) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

func (p *fakeTopic) letters() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int{}
	for k, n := range p.got {
		out[k] = n
	}
	return out
}

// startRelaying starts the relay of p, and returns what ends it.
func startRelaying(p *Pipeline, out producer) (stop func()) {
	p.opts.DeadLetterTopic = "dead"
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	p.startRelay(ctx, &wg, out)
	return func() { cancel(); wg.Wait() }
}

func relayed(t *testing.T, e store.Engine) (n int) {
	t.Helper()
	sc := e.Scan(t.Context(), &store.Scan{Table: store.OutboxTable})
	defer sc.Close()
	for sc.Next() {
		d, err := buffer.DecodeDeadLetter(sc.Row())
		if err != nil {
			t.Fatal(err)
		}
		if d.Relayed {
			n++
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestDeadTopicDelaysLettersOnly(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(2)
	out := &fakeTopic{down: true}
	p := newTest(t, e, b)
	stop := startRelaying(p, out)
	r := start(t, p, 0, 1)
	for i := range 700 { // more than a round
		b.produce(int32(i%2), "bad", "a")
	}
	r.caughtUp(b)
	checkContents(t, e, b)
	waitFor(t, func() bool { return p.Metrics().RelayErrors > 1 })
	if n := relayed(t, e); n != 0 {
		t.Errorf("Got %d letters marked while the topic was down", n)
	}
	out.set(func() { out.down = false })
	waitFor(t, func() bool { return p.Metrics().Relayed == 700 })
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	stop()
	want := map[string]int{}
	for i := range 700 {
		want[fmt.Sprintf("t/%d/%d", i%2, i/2*2)] = 1
	}
	if d := cmp.Diff(want, out.letters()); d != "" {
		t.Errorf("Got other letters (-want +got):\n%s", d)
	}
	if n := relayed(t, e); n != 700 {
		t.Errorf("Got %d letters marked, want 700", n)
	}
}

// Why letters wait is logged once, and again where somebody did what was asked for and that
// was not all.
func TestRelaySaysWhyNow(t *testing.T) {
	t.Parallel()
	denied := errors.New("TOPIC_AUTHORIZATION_FAILED")
	needs := func(what string) error {
		return fmt.Errorf("produce to dead: %w", fmt.Errorf("%w; the brokers' ACLs must allow %s", denied, what))
	}
	e, b, log := newEngine(t), newFakeBroker(1), new(jsonLog)
	b.produce(0, "bad", "bad")
	ingest(t, e, b)
	out := &fakeTopic{down: true, why: needs("DESCRIBE")}
	p := newTest(t, e, b, func(o *Options) { o.Logger = slog.New(slog.NewJSONHandler(log, nil)) })
	stop := startRelaying(p, out)
	tried := func() {
		n := p.Metrics().RelayErrors
		waitFor(t, func() bool { return p.Metrics().RelayErrors > n+3 })
	}
	tried()
	out.set(func() { out.why = needs("WRITE") })
	tried()
	out.set(func() { out.down = false })
	waitFor(t, func() bool { return p.Metrics().Relayed == 2 })
	stop()
	const waits = "dead letters wait in the outbox"
	if got := log.causes(t, waits); len(got) != 2 || !strings.Contains(got[0], "DESCRIBE") || !strings.Contains(got[1], "WRITE") {
		t.Errorf("Got %d causes, want what each asks for, once: %q", len(got), got)
	}
}

func TestRelayGoesOnAfterARestart(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "bad", "bad")
	ingest(t, e, b) // no relay
	out := &fakeTopic{}
	p := newTest(t, e, b)
	stop := startRelaying(p, out)
	waitFor(t, func() bool { return p.Metrics().Relayed == 2 })
	stop()

	// Marked letters are not sent again, nor those of another pipeline.
	other := newTest(t, e, b, func(o *Options) { o.Name = "q" })
	stop = startRelaying(other, &fakeTopic{down: true})
	p = newTest(t, e, b)
	stop2 := startRelaying(p, out)
	r := start(t, p, 0)
	b.produce(0, "bad")
	r.caughtUp(b)
	waitFor(t, func() bool { return p.Metrics().Relayed == 1 })
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	stop()
	stop2()
	if d := cmp.Diff(map[string]int{"t/0/0": 1, "t/0/1": 1, "t/0/2": 1}, out.letters()); d != "" {
		t.Errorf("Got other letters (-want +got):\n%s", d)
	}
	if m := other.Metrics(); m.RelayErrors != 0 {
		t.Errorf("Got %d errors of a relay with nothing to do", m.RelayErrors)
	}
}

// A letter that the topic never takes must not hold up the others.
func TestRefusedLetterDoesNotBlock(t *testing.T) {
	t.Parallel()
	for _, refused := range [][]int64{{0}, {2}, {4}, {0, 2}, {1, 2}, {0, 1, 2, 3}, {2, 3, 4}} {
		t.Run(fmt.Sprint(refused), func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "bad", "bad", "bad", "bad", "bad")
			ingest(t, e, b)
			out := &fakeTopic{refuses: map[int64]bool{}}
			for _, o := range refused {
				out.refuses[o] = true
			}
			p := newTest(t, e, b)
			stop := startRelaying(p, out)
			waitFor(t, func() bool { return p.Metrics().Relayed == int64(5-len(refused)) })
			waitFor(t, func() bool { return p.Metrics().RelayErrors > 1 }) // it is tried again
			out.set(func() { out.refuses = nil })
			waitFor(t, func() bool { return p.Metrics().Relayed == 5 })
			stop()
			for key, n := range out.letters() {
				if n != 1 {
					t.Errorf("Got letter %s %d times", key, n)
				}
			}
		})
	}
}

// Letters that cannot be marked are sent once while the process runs, and once
// more by the next one; never zero times.
func TestLostMarkSendsTwice(t *testing.T) {
	t.Parallel()
	mem, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "bad", "bad", "bad")
	ingest(t, mem, b)
	out := &fakeTopic{}
	fail := make(chan error, 10)
	for range cap(fail) {
		fail <- store.ErrDiskFull
	}
	p := newTest(t, &markFailer{Engine: mem, fail: fail}, b)
	stop := startRelaying(p, out)
	waitFor(t, func() bool { return len(fail) == 0 })
	stop()
	if n := relayed(t, mem); n == 0 {
		if d := cmp.Diff(map[string]int{"t/0/0": 1, "t/0/1": 1, "t/0/2": 1}, out.letters()); d != "" {
			t.Errorf("Got other letters (-want +got):\n%s", d)
		}
	}
	p = newTest(t, mem, b)
	stop = startRelaying(p, out)
	waitFor(t, func() bool { return relayed(t, mem) == 3 })
	stop()
	for letter, n := range out.letters() {
		if n > 2 {
			t.Errorf("Got letter %s %d times, want 2 at most", letter, n)
		}
	}
}

// A row of the outbox that is no letter, such as one that somebody put there by
// hand, holds up no letter.
func TestUnreadableLetterDoesNotBlock(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	junk := cell.Mutation{Table: store.OutboxTable, Row: buffer.AppendOutboxPrefix(nil, "p")}
	junk.Put(store.OutboxFamily, []byte("note"), 1, []byte("look at these"))
	if _, err := e.MutateRow(t.Context(), nil, &junk); err != nil {
		t.Fatal(err)
	}
	b.produce(0, "bad", "bad")
	ingest(t, e, b)
	out := &fakeTopic{}
	p := newTest(t, e, b)
	stop := startRelaying(p, out)
	waitFor(t, func() bool { return p.Metrics().Relayed == 2 })
	stop()
	if d := cmp.Diff(map[string]int{"t/0/0": 1, "t/0/1": 1}, out.letters()); d != "" {
		t.Errorf("Got other letters (-want +got):\n%s", d)
	}
}

// loseReply returns e, which loses the reply to the first batch that is not the first of its
// partition, and calls meanwhile before.
func loseReply(e store.Engine, meanwhile func()) *faultyEngine {
	var once sync.Once
	return &faultyEngine{Engine: e, fault: func(s *store.Batch) (_ bool, err error) {
		if s.Advances[0].From >= 0 {
			once.Do(func() {
				meanwhile()
				err = store.ErrTransient
			})
		}
		return true, err
	}}
}

// A batch that was applied although its reply was lost has letters, too.
func TestLettersOfALostReplyAreRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, b := newEngine(t), newFakeBroker(1)
		e := loseReply(mem, func() {})
		out := &fakeTopic{}
		p := newTest(t, e, b)
		stop := startRelaying(p, out)
		defer stop()
		r := start(t, p, 0)
		synctest.Wait() // the relay has seen that there is nothing
		b.produce(0, "bad", "a")
		r.caughtUp(b)
		waitFor(t, func() bool { return relayed(t, mem) == 1 })
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, mem, b)
	})
}

// A process that relays already takes over a partition from one that was killed before
// it had relayed what it had stored.
func TestLettersOfAKilledProcessAreRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e, b := newEngine(t), newFakeBroker(2)
		out := &fakeTopic{}
		p := newTest(t, e, b)
		stop := startRelaying(p, out)
		defer stop()
		stay := start(t, p, 1)
		synctest.Wait() // the relay has seen that there is nothing
		dead := start(t, newTest(t, e, b), 0)
		b.produce(0, "bad", "a")
		dead.caughtUp(b)
		if err := errors.Join(dead.close(), stay.close()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if n := relayed(t, e); n != 0 {
			t.Fatalf("Got %d letters relayed by nobody", n)
		}
		r := start(t, p, 0, 1)
		r.caughtUp(b)
		waitFor(t, func() bool { return relayed(t, e) == 1 })
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		checkContents(t, e, b)
	})
}

// A batch whose reply was lost is the last one of its topic, which is created anew: its
// letters are relayed all the same.
func TestLettersBeforeANewTopicAreRelayed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		mem, b := newEngine(t), newFakeBroker(1)
		e := loseReply(mem, func() {
			b.change(func() {
				b.info.id = [16]byte{2}
				b.logs[0] = &fakeLog{}
			})
		})
		out := &fakeTopic{}
		p := newTest(t, e, b, func(o *Options) { o.OnTopicChange = NewIncarnation })
		stop := startRelaying(p, out)
		defer stop()
		r := start(t, p, 0)
		synctest.Wait() // the relay has seen that there is nothing
		b.produce(0, "bad", "a")
		waitFor(t, func() bool { return len(allProgress(t, mem)) == 2 })
		b.produce(0, "a", "a")
		waitFor(t, func() bool { return readProgress(t, mem) == 4 })
		waitFor(t, func() bool { return relayed(t, mem) == 1 })
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
	})
}

type markFailer struct {
	store.Engine
	fail chan error
}

func (e *markFailer) Apply(ctx context.Context, b *store.Batch) error {
	select {
	case err := <-e.fail:
		return err
	default:
		return e.Engine.Apply(ctx, b)
	}
}

func TestLetterHeaders(t *testing.T) {
	t.Parallel()
	d := &buffer.DeadLetter{
		Pipeline: "p", Topic: "t", TopicID: [16]byte{1, 15: 0xff}, Partition: 2, Offset: 7, Time: 9, Key: []byte("k"),
		Stage: "map", Class: "c", Reason: "r", MappingVersion: "v",
		Headers: []buffer.Header{{Key: []byte("own"), Value: nil}},
	}
	want := []string{
		"own=", "x-orig-topic=t", "x-orig-topic-id=010000000000000000000000000000ff", "x-orig-partition=2", "x-orig-offset=7", "x-orig-timestamp=9", "x-orig-key=k",
		"x-stage=map", "x-error-class=c", "x-error-message=r", "x-attempts=1", "x-pipeline=p", "x-mapping-version=v",
	}
	var got []string
	for _, h := range letterHeaders(d) {
		got = append(got, string(h.Key)+"="+string(h.Value))
	}
	if !slices.Equal(got, want) {
		t.Errorf("Got %q, want %q", got, want)
	}
}

func TestHistogramAndRate(t *testing.T) {
	t.Parallel()
	var h Histogram
	for _, d := range []time.Duration{0, 500 * time.Microsecond, 600 * time.Microsecond, time.Minute} {
		h.add(d)
	}
	if h.Counts[0] != 2 || h.Counts[1] != 1 || h.Counts[len(CommitBounds)] != 1 || h.Count != 4 || h.Sum < 60 || h.Sum > 60.01 {
		t.Errorf("Got %+v", h)
	}
	var r rate
	now := time.Unix(0, 0)
	for range 1000 {
		now = now.Add(100 * time.Millisecond)
		r.add(now, 50)
	}
	if v := r.value(now); v < 490 || v > 510 {
		t.Errorf("Got a rate of %v for 500 a second", v)
	}
	if v := r.value(now.Add(time.Minute)); v > 2 {
		t.Errorf("Got a rate of %v a minute after the last record", v)
	}
}

func TestClampOfLetterTimes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ time, want int64 }{{-1, 0}, {5, 5}, {int64(cell.Latest), int64(cell.Latest) - 1}} {
		m, err := (&buffer.DeadLetter{Time: c.time}).Mutation()
		if err != nil {
			t.Fatal(err)
		}
		if got := int64(m.Ops[0].Time); got != c.want {
			t.Errorf("Got cell time %d for record time %d, want %d", got, c.time, c.want)
		}
	}
}

// A letter that is too large for the topic is sent as far as it fits, once.
func TestLetterTooLargeForItsTopicIsCut(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name          string
		value, header int
		most          int // that the topic takes
		truncated     string
		left          [2]int // bytes of the value, at least and at most
	}{
		{"fits", 1000, 10, 2000, "", [2]int{1000, 1000}},
		{"value", 1000, 10, 700, "value", [2]int{200, 500}},
		{"value, much", 100_000, 10, 1000, "value", [2]int{200, 1000}},
		{"headers", 10, 5000, 2000, "value, headers and key", [2]int{0, 0}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "bad"+strings.Repeat("x", c.value-3), "bad")
			b.logs[0].records[1].Headers = []kafka.Header{{Key: []byte("h"), Value: make([]byte, c.header)}}
			p := newTest(t, e, b)
			out := &fakeTopic{most: c.most}
			stop := startRelaying(p, out)
			r := start(t, p, 0)
			r.caughtUp(b)
			waitFor(t, func() bool { return p.Metrics().Relayed == 2 })
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			stop()
			if d := cmp.Diff(map[string]int{"t/0/1": 1, "t/0/2": 1}, out.letters()); d != "" {
				t.Errorf("Got other letters (-want +got):\n%s", d)
			}
			if n := relayed(t, e); n != 2 {
				t.Errorf("Got %d letters marked, want 2", n)
			}

			// Not again after a restart; and the letter itself says what it is.
			again := &fakeTopic{most: c.most}
			p = newTest(t, e, b)
			stop = startRelaying(p, again)
			b.produce(0, "bad")
			r = start(t, p, 0)
			r.caughtUp(b)
			waitFor(t, func() bool { return p.Metrics().Relayed == 1 })
			if err := r.close(); err != nil {
				t.Fatal(err)
			}
			stop()
			if d := cmp.Diff(map[string]int{"t/0/3": 1}, again.letters()); d != "" {
				t.Errorf("Got other letters after a restart (-want +got):\n%s", d)
			}
			for d, err := range ScanLetters(t.Context(), e, &LetterFilter{Places: []Place{{"t", 0, 1}}}) {
				if err != nil {
					t.Fatal(err)
				}
				if len(d.Value) != c.value || len(d.Headers) != 1 {
					t.Errorf("Got %d bytes and %d headers in the outbox, want it whole", len(d.Value), len(d.Headers))
				}
				one := &fakeTopic{most: c.most}
				relay := relay{engine: e, out: one, topic: "dead", log: p.log, status: p.status, unmarked: map[string]struct{}{}}
				if err := relay.send(t.Context(), []*buffer.DeadLetter{d}); err != nil {
					t.Fatal(err)
				}
				m := &one.last
				if got := header(m, "x-truncated"); got != c.truncated || len(m.Value) < c.left[0] || len(m.Value) > c.left[1] {
					t.Errorf("Got %d bytes, truncated %q, want %d to %d, %q", len(m.Value), got, c.left[0], c.left[1], c.truncated)
				}
				if !strings.HasPrefix(string(d.Value), string(m.Value)) {
					t.Error("Got other bytes than the value begins with")
				}
				if c.truncated != "" && (header(m, "x-orig-value-bytes") != strconv.Itoa(c.value) || header(m, "x-outbox-row") != hex.EncodeToString(d.AppendRow(nil))) {
					t.Errorf("Got headers %q, want the size and the row of the whole", m.Headers)
				}
			}
		})
	}
}
