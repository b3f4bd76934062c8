package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// deadline bounds every wait of a test; nothing that works comes near it.
const deadline = 2 * time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	t.Cleanup(cancel)
	return ctx
}

// startCluster starts a cluster on an in-memory network and returns a client.
func startCluster(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *Client) {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	ports := []int{1, 2, 3}
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.Ports(ports...), kfake.ListenFn(net.Listen), kfake.GroupMinSessionTimeout(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	c := newTestClient(t, &Options{Brokers: []string{"127.0.0.1:1", "127.0.0.1:2", "127.0.0.1:3"}, Dial: net.DialContext})
	return cluster, c
}

// startBroker starts one broker with the topic t on an in-memory network and
// returns what a client of it needs.
func startBroker(t testing.TB, opts ...kfake.Opt) (*kfake.Cluster, *Options) {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	cluster, err := kfake.NewCluster(append([]kfake.Opt{
		kfake.Ports(1), kfake.ListenFn(net.Listen), kfake.SeedTopics(1, "t"), kfake.GroupMinSessionTimeout(time.Second),
	}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	return cluster, &Options{Brokers: []string{"127.0.0.1:1"}, Dial: net.DialContext}
}

func newTestClient(t testing.TB, o *Options) *Client {
	t.Helper()
	if o.Logger == nil && testing.Verbose() {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	c, err := NewClient(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// startFetcher runs a fetcher until the test ends.
func startFetcher(t testing.TB, c *Client, o *FetchOptions) *Fetcher {
	t.Helper()
	f := c.NewFetcher(o)
	runFetcher(t, f)
	return f
}

// runFetcher runs f until the test ends.
func runFetcher(t testing.TB, f *Fetcher) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = f.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

// awaitMetrics returns the first metrics that ok accepts. What background loops
// count is behind what their readers see.
func awaitMetrics(t testing.TB, c *Client, ok func(Metrics) bool) Metrics {
	t.Helper()
	ctx := testContext(t)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		m := c.Metrics()
		if ok(m) {
			return m
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Got metrics %+v", m)
		}
	}
}

// readTo reads until the offset next is reached and returns the values.
func readTo(t testing.TB, r *PartitionReader, next int64) []string {
	t.Helper()
	ctx := testContext(t)
	var values []string
	last := int64(-1)
	for {
		b, err := r.Next(ctx)
		if err != nil {
			t.Fatalf("after %d records, offset %d: %v", len(values), last, err)
		}
		if last >= 0 && b.From != last {
			t.Fatalf("batch of [%d, %d) after %d", b.From, b.Next, last)
		}
		last = b.Next
		for _, rec := range b.Records {
			values = append(values, string(rec.Value))
		}
		b.Release()
		if last >= next {
			return values
		}
	}
}

func numbered(from, to int) []Message {
	var msgs []Message
	for i := from; i < to; i++ {
		msgs = append(msgs, Message{Key: fmt.Append(nil, "k", i), Value: fmt.Append(nil, i), Partition: 0})
	}
	return msgs
}

func values(from, to int) []string {
	var vs []string
	for i := from; i < to; i++ {
		vs = append(vs, fmt.Sprint(i))
	}
	return vs
}

func produce(t testing.TB, c *Client, topic string, msgs ...Message) {
	t.Helper()
	p := c.NewProducer(nil)
	if err := p.Produce(testContext(t), topic, msgs...); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestProduceAndFetch(t *testing.T) {
	t.Parallel()
	for _, codec := range []Compression{None, Gzip, Snappy, LZ4, Zstd} {
		t.Run(string(codec), func(t *testing.T) {
			t.Parallel()
			_, c := startCluster(t, kfake.SeedTopics(1, "t"))
			p := c.NewProducer(&ProducerOptions{Compression: codec, BatchBytes: 4 << 10})
			if err := p.Produce(testContext(t), "t", numbered(0, 1000)...); err != nil {
				t.Fatal(err)
			}
			r := startFetcher(t, c, nil).Add("t", 0, 10)
			defer r.Close()
			if got := readTo(t, r, 1000); !slices.Equal(got, values(10, 1000)) {
				t.Errorf("Got %d records %.10v…, want 990", len(got), got)
			}
		})
	}
}

// What a broker says of a code is added, unless it is the code.
func TestCodeWithWhatTheBrokerSays(t *testing.T) {
	t.Parallel()
	for said, want := range map[string]string{
		"":                               "TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user WRITE on the topic",
		"TOPIC_AUTHORIZATION_FAILED":     "TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user WRITE on the topic",
		"Topic authorization failed for": "TOPIC_AUTHORIZATION_FAILED; the brokers' ACLs must allow this user WRITE on the topic: Topic authorization failed for",
	} {
		e := codeTopicAuthorization
		if got := e.with(e.denied(needsWrite), &said); got.Error() != want || !errors.Is(got, ErrAuth) {
			t.Errorf("%q: Got %v", said, got)
		}
	}
	if got := codeTopicAuthorization.with(codeTopicAuthorization, nil); got != error(codeTopicAuthorization) {
		t.Errorf("Got %v", got)
	}
}
