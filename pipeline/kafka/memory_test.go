package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/memory"
)

func newMemory(t testing.TB, limit int64) *memory.Budget {
	t.Helper()
	m, err := memory.New(limit)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// checkMemory reports where m holds more than its limit. One item that is larger than
// its share is counted in the next one, too, as far as that has lent.
func checkMemory(t testing.TB, m *memory.Budget) {
	t.Helper()
	for _, s := range []*memory.Share{m.Fetched(), m.Decoded()} {
		granted, used, idle := s.Held()
		if granted > s.Limit() {
			t.Errorf("Got %d bytes of %s memory, want %d at most", granted, s.Name(), s.Limit())
		}
		if used > granted && granted < s.Limit() {
			t.Errorf("Got %d bytes of %s slices in use, and %d granted", used, s.Name(), granted)
		}
		if used+idle > s.Limit() && idle > 0 {
			t.Errorf("Got %d bytes of %s slices in use and %d idle, want %d at most", used, s.Name(), idle, s.Limit())
		}
	}
}

// checkGivenBack waits until m holds nothing.
func checkGivenBack(t testing.TB, m *memory.Budget) {
	t.Helper()
	for ctx := testContext(t); ; {
		left := m.Used()
		for _, s := range m.Shares() {
			_, used, _ := s.Held()
			left += used
		}
		if left == 0 {
			return
		}
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatalf("Got %d bytes that were not given back", left)
		}
	}
}

// scrambled are n bytes that no codec makes smaller.
func scrambled(n int) []byte {
	b := make([]byte, n)
	rnd := rand.NewChaCha8([32]byte{1})
	_, _ = rnd.Read(b) // never fails
	return b
}

// However much there is to read, and whoever does not release what it has read: what
// was fetched and decoded stays within the memory, and everything comes in the end.
func TestFetchWithinMemory(t *testing.T) {
	t.Parallel()
	for _, codec := range []Compression{None, Zstd, LZ4, Gzip, Snappy} {
		t.Run(string(codec), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testFetchWithinMemory(t, codec) })
		})
	}
}

func testFetchWithinMemory(t *testing.T, codec Compression) {
	const partitions, records = 6, 600
	_, c := startCluster(t, kfake.SeedTopics(partitions, "t"))
	var msgs []Message
	noise := scrambled(2000)
	for i := range partitions * records {
		msgs = append(msgs, Message{
			Value: append(noise[i%1000:i%1000+500:i%1000+500], make([]byte, 500)...), Partition: int32(i % partitions),
			Headers: []Header{{Key: []byte("h"), Value: []byte("v")}},
		})
	}
	if err := c.NewProducer(&ProducerOptions{Compression: codec, BatchBytes: 16 << 10}).Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, 1<<20)
	f := c.NewFetcher(&FetchOptions{Memory: m})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	readers := make([]*PartitionReader, partitions)
	for p := range readers {
		readers[p] = f.Add("t", int32(p), 0)
	}
	hold := make(chan struct{})
	var reading sync.WaitGroup
	for _, r := range readers {
		batches := make(chan *Batch, 1)
		reading.Go(func() { // as a worker's second goroutine does
			defer close(batches)
			for next := int64(0); next < records; {
				b, err := r.Next(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				checkMemory(t, m)
				next = b.Next
				batches <- b
			}
		})
		reading.Go(func() {
			n := 0
			for b := range batches {
				<-hold
				checkMemory(t, m)
				n += len(b.Records)
				for i := range b.Records {
					if r := &b.Records[i]; len(r.Value) != 1000 || len(r.Headers) != 1 || string(r.Headers[0].Value) != "v" {
						t.Errorf("Got %d bytes and headers %v at offset %d", len(r.Value), r.Headers, r.Offset)
					}
				}
				b.Release()
			}
			if n != records {
				t.Errorf("Got %d records, want %d", n, records)
			}
		})
	}
	for range 100 { // nobody takes anything
		<-time.After(time.Second)
		checkMemory(t, m)
	}
	before := c.Metrics().FetchedBytes
	<-time.After(time.Minute)
	if more := c.Metrics().FetchedBytes - before; more != 0 {
		t.Errorf("Got %d bytes fetched that there is no memory for", more)
	}
	close(hold)
	reading.Wait()
	for _, r := range readers {
		r.Close()
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	checkGivenBack(t, m)
}

// A record batch larger than its share passes alone, and the others' after it.
func TestGiantBatchPassesAlone(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]Compression{"stored": None, "stored, of many records": None, "unfolded": Zstd} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, c := startCluster(t, kfake.SeedTopics(3, "t"))
				p := c.NewProducer(&ProducerOptions{Compression: codec, BatchBytes: 2 << 20})
				var msgs []Message
				for i := range 3 * 2500 {
					if name == "stored, of many records" { // they take more than what is left of their share
						msgs = append(msgs, Message{Value: bytes.Repeat([]byte("x"), 100), Partition: int32(i % 3)})
						continue
					}
					if i == 300 {
						break
					}
					size := 500
					if i == 150 {
						size = 300 << 10 // of a share of 256 KiB
					}
					msgs = append(msgs, Message{Value: bytes.Repeat([]byte("x"), size), Partition: int32(i % 3)})
				}
				if err := p.Produce(testContext(t), "t", msgs...); err != nil {
					t.Fatal(err)
				}
				m := newMemory(t, 3<<19)
				f := startFetcher(t, c, &FetchOptions{Memory: m})
				var reading sync.WaitGroup
				for n := range int32(3) {
					r := f.Add("t", n, 0)
					reading.Go(func() {
						defer r.Close()
						for next := int64(0); next < int64(len(msgs)/3); {
							b, err := r.Next(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							checkMemory(t, m)
							next = b.Next
							b.Release()
						}
					})
				}
				reading.Wait()
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// What no waiting can make fit stops its partition with an error that says what and
// where, and holds up no other.
func TestGiantBatchIsRefused(t *testing.T) {
	t.Parallel()
	for name, codec := range map[string]Compression{"stored": None, "unfolded": Zstd, "unfolded in blocks": LZ4, "guessed": Gzip} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, c := startCluster(t, kfake.SeedTopics(2, "t"))
			p := c.NewProducer(&ProducerOptions{Compression: codec, BatchBytes: 4 << 20})
			for _, msg := range []Message{
				{Value: []byte("a"), Partition: 0},
				{Value: bytes.Repeat([]byte("x"), 900<<10), Partition: 0},
				{Value: []byte("b"), Partition: 1},
			} {
				if err := p.Produce(testContext(t), "t", msg); err != nil {
					t.Fatal(err)
				}
			}
			m := newMemory(t, 1<<20)
			f := startFetcher(t, c, &FetchOptions{Memory: m})
			r, other := f.Add("t", 0, 0), f.Add("t", 1, 0)
			if got := readTo(t, r, 1); len(got) != 1 || got[0] != "a" {
				t.Errorf("Got %q before the batch", got)
			}
			err := nextError(t, r)
			if large, ok := errors.AsType[*memory.TooLargeError](err); !ok || large.Bytes <= large.Most {
				t.Errorf("Got %v, want a memory.TooLargeError", err)
			} else if s := err.Error(); !strings.Contains(s, "t/0") || !strings.Contains(s, "offset 1") || !strings.Contains(s, "raise memory") {
				t.Errorf("Got %q, want the place and what to do", s)
			}
			if got := readTo(t, other, 1); len(got) != 1 || got[0] != "b" {
				t.Errorf("Got %q of the other partition", got)
			}
			r.Close()
			other.Close()
		})
	}
}

// A record batch larger than the fetched memory borrows decoded memory. One that would
// unfold into the decoded memory, and does not beside what is lent, is refused with its
// place: it must not wait for what it holds itself.
func TestGiantBatchBesideWhatItBorrows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := startCluster(t, kfake.SeedTopics(1, "t"))
		p := c.NewProducer(&ProducerOptions{Compression: Zstd, BatchBytes: 4 << 20})
		giant := append(scrambled(340<<10), make([]byte, 240<<10)...) // of 256 KiB fetched and as much decoded
		for _, value := range [][]byte{[]byte("a"), giant} {
			if err := p.Produce(testContext(t), "t", Message{Value: value}); err != nil {
				t.Fatal(err)
			}
		}
		m := newMemory(t, 3<<19)
		f := startFetcher(t, c, &FetchOptions{Memory: m})
		lent := f.mem.raw.Bytes(340<<10) - m.Fetched().Limit()
		need := f.mem.arenas.Bytes(len(giant)) + f.mem.records.Bytes(1)
		if lent <= 0 || need > m.Decoded().Most(0) || need <= m.Decoded().Most(lent) {
			t.Fatalf("the batch takes %d bytes decoded and borrows %d, beside which it fits or without which it does not", need, lent)
		}
		r := f.Add("t", 0, 0)
		if got := readTo(t, r, 1); len(got) != 1 || got[0] != "a" {
			t.Errorf("Got %q before the batch", got)
		}
		err := nextError(t, r)
		large, ok := errors.AsType[*memory.TooLargeError](err)
		if !ok || large.Share != "decoded" || large.Bytes != need || large.Most != m.Decoded().Most(lent) || !strings.Contains(err.Error(), "fetch t/0: kafka: record batch is too large: offset 1: ") {
			t.Errorf("Got %v, want %d bytes of decoded memory refused at offset 1 of t/0, of %d at most", err, need, m.Decoded().Most(lent))
		}
		r.Close()
		checkGivenBack(t, m)
	})
}

// A partition that waits for decoded memory stops waiting where its context ends, and
// goes on where it was; Close ends it for good.
func TestNextWaitsForMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, c := startCluster(t, kfake.SeedTopics(1, "t"))
		produce(t, c, "t", numbered(0, 10)...)
		m := newMemory(t, 1<<20)
		f := startFetcher(t, c, &FetchOptions{Memory: m})
		all, ok := m.Decoded().Try(m.Decoded().Limit())
		if !ok {
			t.Fatal("Got no memory of a budget that nobody uses")
		}
		r := f.Add("t", 0, 0)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "t/0") {
			t.Errorf("Got %v, want the deadline", err)
		}
		closed := make(chan error, 1)
		go func() {
			_, err := r.Next(t.Context())
			closed <- err
		}()
		synctest.Wait()
		all.Release()
		if err := <-closed; err != nil {
			t.Errorf("Got %v once there was memory", err)
		}
		r.SeekTo(0)
		if all, ok = m.Decoded().Try(m.Decoded().Limit() - m.Decoded().Used()); !ok {
			t.Fatal("Got no memory that nobody uses")
		}
		go func() {
			_, err := r.Next(t.Context())
			closed <- err
		}()
		<-time.After(time.Minute)
		r.Close()
		if err := <-closed; !errors.Is(err, ErrClosed) {
			t.Errorf("Got %v of a reader that was closed while it waited, want ErrClosed", err)
		}
		all.Release()
	})
}

// stallingConn reads no more than some bytes until it is closed.
type stallingConn struct {
	net.Conn
	left   *atomic.Int64 // that it reads, while armed
	armed  *atomic.Bool
	closed chan struct{}
	once   sync.Once
}

func (s *stallingConn) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if s.armed.Load() && s.left.Add(int64(-n)) < 0 {
		<-s.closed
		return 0, net.ErrClosed
	}
	return n, err
}

func (s *stallingConn) Close() error {
	s.once.Do(func() { close(s.closed) })
	return s.Conn.Close()
}

// A partition whose log is compared with its new leader's is no reason to keep memory that
// others of the leader have for their next answers.
func TestMemoryIsGivenBackAmidComparisons(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(2, "u"))
	if err := c.NewProducer(nil).Produce(testContext(t), "u", Message{Value: []byte("a"), Partition: 0}, Message{Value: []byte("b"), Partition: 1}); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, 8<<20)
	f := c.NewFetcher(&FetchOptions{Memory: m, MaxWait: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	moved, other := f.Add("u", 0, 0), f.Add("u", 1, 0)
	readTo(t, moved, 1)
	readTo(t, other, 1)
	wait := testContext(t)
	for range 100 {
		moved.mu.Lock()
		moved.unchecked = true // as route does
		moved.mu.Unlock()
		for compared := false; !compared; {
			if err := sleep(wait, time.Millisecond); err != nil {
				t.Fatal("Got no comparison")
			}
			moved.mu.Lock()
			compared = !moved.unchecked
			moved.mu.Unlock()
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	moved.Close()
	other.Close()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	checkGivenBack(t, m)
}

// Memory comes back whatever ends a fetch: errors of the broker, lost connections,
// seeks and closed readers, and a fetcher that stops while an answer is half read.
func TestMemoryIsGivenBack(t *testing.T) {
	t.Parallel()
	cluster, o := startBroker(t, kfake.SeedTopics(4, "u"))
	var left atomic.Int64
	var armed atomic.Bool
	dial := o.Dial
	o.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &stallingConn{Conn: conn, left: &left, armed: &armed, closed: make(chan struct{})}, nil
	}
	producer := newTestClient(t, &Options{Brokers: o.Brokers, Dial: dial})
	c := newTestClient(t, o)
	var msgs []Message
	for i := range 4000 {
		msgs = append(msgs, Message{Value: scrambled(500), Partition: int32(i % 4)})
	}
	if err := producer.NewProducer(&ProducerOptions{Compression: Zstd, BatchBytes: 8 << 10}).Produce(testContext(t), "u", msgs...); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, 1<<20)
	f := c.NewFetcher(&FetchOptions{Memory: m, MaxWait: time.Millisecond})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	fetches := 0
	cluster.ControlKey(int16(kmsg.Fetch), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		switch fetches++; fetches % 5 {
		case 1:
			return nil, errors.New("the connection breaks"), true
		case 3:
			resp := kreq.(*kmsg.FetchRequest).ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = int16(codeFetchSessionNotFound)
			return resp, nil, true
		}
		return nil, nil, false
	})
	readers := make([]*PartitionReader, 4)
	for p := range readers {
		readers[p] = f.Add("u", int32(p), 0)
	}
	for round := range 20 {
		for p, r := range readers {
			b, err := r.Next(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			checkMemory(t, m)
			b.Release()
			switch (round + p) % 4 {
			case 0:
				r.SeekTo(int64(round * 10))
			case 1:
				r.Close()
				readers[p] = f.Add("u", int32(p), int64(round*10))
			}
		}
	}
	left.Store(10_000)
	armed.Store(true)
	for _, r := range readers {
		r.SeekTo(0)
	}
	for ctx := testContext(t); left.Load() >= 0; {
		if err := sleep(ctx, time.Millisecond); err != nil {
			t.Fatal("Got no answer that is half read")
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	for _, r := range readers {
		r.Close()
	}
	checkMemory(t, m)                 // that is still being read into
	if err := c.Close(); err != nil { // the reading ends
		t.Error(err)
	}
	checkGivenBack(t, m)
}

// Two fetchers share one memory: a partition that stands still takes its part only.
func TestFetchersShareMemory(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(4, "t"))
	var msgs []Message
	for i := range 4000 {
		msgs = append(msgs, Message{Value: fmt.Appendf(nil, "%0500d", i), Partition: int32(i % 4)})
	}
	if err := c.NewProducer(&ProducerOptions{Compression: None, BatchBytes: 8 << 10}).Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, 1<<20)
	one, two := c.NewFetcher(&FetchOptions{Memory: m}), c.NewFetcher(&FetchOptions{Memory: m})
	lazy := []*PartitionReader{one.Add("t", 0, 0), one.Add("t", 1, 0), two.Add("t", 2, 0)}
	eager := two.Add("t", 3, 0)
	runFetcher(t, one)
	runFetcher(t, two)
	var held []*Batch
	for _, r := range lazy {
		b, err := r.Next(testContext(t))
		if err != nil {
			t.Fatal(err)
		}
		held = append(held, b)
	}
	if got := readTo(t, eager, 1000); len(got) != 1000 {
		t.Errorf("Got %d records beside partitions that stand still", len(got))
	}
	checkMemory(t, m)
	for _, b := range held {
		b.Release()
	}
	for _, r := range append(lazy, eager) {
		r.Close()
	}
}

// A request that is given up while its answer is read puts its partitions back, beside what
// takes memory for the answer. It is a test for the race detector.
func TestFailedBesideItsAnswer(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "u"))
	f := c.NewFetcher(&FetchOptions{Memory: newMemory(t, 8<<20)})
	r := f.Add("u", 0, 0)
	defer r.Close()
	ticket, err := f.mem.budget.Fetched().Ask(1, 0, func() {})
	if err != nil || !ticket.Granted() {
		t.Fatalf("Got no memory: %v", err)
	}
	parts := []asked{{r: r, grant: ticket.Take()}}
	fl := f.flight(parts)
	if !fl.begin() {
		t.Fatal("the answer may not be read")
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		for n := range 100 {
			if buf := fl.room(&fetchedPartition{topic: "u"}, n<<10); buf != nil {
				f.mem.raw.Put(buf)
			}
		}
		fl.end(nil)
	}()
	f.failed(t.Context(), &leaderNode{}, parts, errAbandoned)
	reading := fl.abandon()
	<-read
	if !reading {
		fl.drop(nil)
	}
}
