//go:build integration

package kafka

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// realClient returns a client of the Kafka cluster that SLUICE_KAFKA names
// (a bootstrap list, comma-separated), and a topic name of its own.
func realClient(t *testing.T) (*Client, string) {
	t.Helper()
	brokers := os.Getenv("SLUICE_KAFKA")
	if brokers == "" {
		t.Skip("SLUICE_KAFKA is not set: it names the bootstrap addresses of a real Kafka")
	}
	c := newTestClient(t, &Options{Brokers: strings.Split(brokers, ",")})
	return c, fmt.Sprintf("kafka-test-%s-%d", strings.ReplaceAll(t.Name(), "/", "-"), time.Now().UnixNano())
}

// realListeners returns the options of every listener of the cluster that asks for
// TLS or SASL. SLUICE_KAFKA_TLS, _SASL and _SASLTLS are their bootstrap lists,
// _CA the file of the CA that issued the brokers' certificates, _USER and _PASSWORD
// what PLAIN and both SCRAMs accept.
func realListeners(t *testing.T) map[string]*Options {
	t.Helper()
	env := func(name string) string { return os.Getenv("SLUICE_KAFKA_" + name) }
	var trust *tls.Config
	if file := env("CA"); file != "" {
		pem, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		trust = &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
		if !trust.RootCAs.AppendCertsFromPEM(pem) {
			t.Fatalf("no certificate in %s", file)
		}
	}
	all := make(map[string]*Options)
	if b := env("TLS"); b != "" {
		all["TLS"] = &Options{Brokers: strings.Split(b, ","), TLS: trust}
	}
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"} {
		s := SASL{mechanism, env("USER"), env("PASSWORD")}
		if b := env("SASL"); b != "" {
			all[mechanism] = &Options{Brokers: strings.Split(b, ","), SASL: s}
		}
		if b := env("SASLTLS"); b != "" {
			all[mechanism+" in TLS"] = &Options{Brokers: strings.Split(b, ","), SASL: s, TLS: trust}
		}
	}
	for _, o := range all { // a busy machine is no error
		o.DialTimeout, o.RequestTimeout = 20*time.Second, time.Minute
	}
	if len(all) == 0 {
		t.Skip("SLUICE_KAFKA_TLS, _SASL and _SASLTLS are not set: they name listeners of a real Kafka")
	}
	return all
}

func TestRealListeners(t *testing.T) {
	for name, o := range realListeners(t) {
		t.Run(name, func(t *testing.T) {
			c := newTestClient(t, o)
			topic := fmt.Sprintf("kafka-test-listeners-%d", time.Now().UnixNano())
			create(t, c, topic, 1)
			produce(t, c, topic, numbered(0, 10)...)
			if got := readTo(t, startFetcher(t, c, nil).Add(topic, 0, 0), 10); !slices.Equal(got, values(0, 10)) {
				t.Errorf("Got %v", got)
			}
			joinWith(t, c, &GroupOptions{ID: topic, Topics: []string{topic}}).await(t, owns(1))

			if o.SASL.Mechanism != "" {
				bad := *o
				bad.SASL.Password = "wrong-" + secret
				_, err := newTestClient(t, &bad).Topic(testContext(t), topic)
				if !errors.Is(err, ErrAuth) || strings.Contains(err.Error(), secret) ||
					!strings.Contains(err.Error(), o.Brokers[0]) || !strings.Contains(err.Error(), o.SASL.Mechanism) {
					t.Errorf("Got %v with a wrong password, want ErrAuth naming broker and mechanism", err)
				}
			}
			if o.TLS != nil {
				bad := *o
				bad.TLS = &tls.Config{MinVersion: tls.VersionTLS12} // the system's CAs
				_, err := newTestClient(t, &bad).Topic(testContext(t), topic)
				if !errors.Is(err, ErrTLS) || !strings.Contains(err.Error(), o.Brokers[0]) {
					t.Errorf("Got %v without the CA, want ErrTLS naming the broker", err)
				}
			}
		})
	}
}

// A real broker that ends sessions: each connection is authenticated again before its
// session ends, and goes on.
func TestRealReauthentication(t *testing.T) {
	for name, o := range realListeners(t) {
		if o.SASL.Mechanism == "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := new(witnesses)
			o.watch = w.watch
			c := newTestClient(t, o)
			topic := fmt.Sprintf("kafka-test-reauth-%d", time.Now().UnixNano())
			create(t, c, topic, 1)
			if w.endless() {
				t.Skip("sessions of the brokers have no end: connections.max.reauth.ms is not set")
			}
			outliveSessions(t, c, topic, w, 200*time.Millisecond)
		})
	}
}

// Sessions as a real broker has them: partitions come, rest, move on and leave.
func TestRealFetchSession(t *testing.T) {
	c, topic := realClient(t)
	const partitions, rounds = 20, 30
	create(t, c, topic, partitions)
	f := startFetcher(t, c, &FetchOptions{MaxWait: 20 * time.Millisecond})
	readers := make([]*PartitionReader, partitions)
	for p := range readers {
		readers[p] = f.Add(topic, int32(p), 0)
	}
	producer := c.NewProducer(nil)
	for i := range rounds {
		for _, p := range []int{0, i % partitions} {
			if err := producer.Produce(testContext(t), topic, Message{Value: fmt.Append(nil, i), Partition: int32(p)}); err != nil {
				t.Fatal(err)
			}
		}
		if i == rounds/2 {
			readers[1].Close()
		}
	}
	got := 0
	for p, r := range readers {
		if p == 1 {
			continue
		}
		end, err := c.ListOffsets(testContext(t), topic, []int32{int32(p)})
		if err != nil {
			t.Fatal(err)
		}
		got += len(readTo(t, r, end[int32(p)].End))
	}
	if want := 2*rounds - 2; got != want { // partition 1 had two
		t.Errorf("Got %d records, want %d", got, want)
	}
	if m := c.Metrics(); m.FullFetches > 6 || m.Fetches < 2*m.FullFetches {
		t.Errorf("Got %d full requests of %d", m.FullFetches, m.Fetches)
	}
}

// A producer whose answers are lost, and one whose numbers the broker has not got.
func TestRealProduceOnce(t *testing.T) {
	c, topic := realClient(t)
	create(t, c, topic, 1)
	var n atomic.Int64
	var d net.Dialer
	lossy := newTestClient(t, &Options{Brokers: c.o.Brokers, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &deafConn{Conn: conn, lose: func() bool { return n.Add(1)%4 == 0 && n.Load() < 40 }}, nil
	}})
	p := lossy.NewProducer(smallBatches)
	for i := range 10 {
		if err := p.Produce(testContext(t), topic, numbered(30*i, 30*i+30)...); err != nil {
			t.Fatal(err)
		}
	}
	if n.Load() < 20 {
		t.Errorf("Got %d produce requests, too few to lose answers", n.Load())
	}
	for _, s := range p.topics[topic].sequences {
		s.advance(1000) // as if the broker had lost what came before
	}
	if err := p.Produce(testContext(t), topic, numbered(300, 330)...); err != nil {
		t.Fatal(err)
	}
	if lossy.Metrics().Errors["out_of_order_sequence_number"] == 0 {
		t.Errorf("Got no gap in the numbers: %v", lossy.Metrics().Errors)
	}
	end, err := c.ListOffsets(testContext(t), topic, []int32{0})
	if err != nil {
		t.Fatal(err)
	}
	if got := readTo(t, startFetcher(t, c, nil).Add(topic, 0, 0), end[0].End); !slices.Equal(got, values(0, 330)) {
		t.Errorf("Got %d records, want each of 330 once", len(got))
	}
}

// What a real broker says of epochs, and of a fetch after one that it does not have.
func TestRealEpochs(t *testing.T) {
	c, topic := realClient(t)
	create(t, c, topic, 1)
	produce(t, c, topic, numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add(topic, 0, 0)
	readTo(t, r, 10)
	r.mu.Lock()
	epoch := r.lastEpoch
	r.lastEpoch += 5
	r.mu.Unlock()
	for e, want := range map[int32]int64{epoch: 10, epoch + 5: -1} {
		if _, got, err := c.EpochEnd(testContext(t), topic, 0, e); err != nil || got != want {
			t.Errorf("Got %d and %v for epoch %d, want %d", got, err, e, want)
		}
	}
	produce(t, c, topic, numbered(10, 20)...)
	if got := readTo(t, r, 20); !slices.Equal(got, values(10, 20)) {
		t.Errorf("Got %v", got)
	}
}

func create(t *testing.T, c *Client, topic string, partitions int) *TopicInfo {
	t.Helper()
	for range 2 { // the second time it exists
		if err := c.CreateTopic(testContext(t), topic, partitions); err != nil {
			t.Fatal(err)
		}
	}
	info, err := c.Topic(testContext(t), topic)
	if err != nil {
		t.Fatal(err)
	}
	return info
}

func TestRealTopic(t *testing.T) {
	c, topic := realClient(t)
	info := create(t, c, topic, 3)
	if info.ID == [16]byte{} || info.ClusterID == "" || !slices.Equal(info.Partitions, []int32{0, 1, 2}) {
		t.Errorf("Got %+v", info)
	}
	_, err := c.Topic(testContext(t), topic+"x")
	if !errors.Is(err, ErrTopicNotFound) || !strings.Contains(err.Error(), "did you mean "+topic) {
		t.Errorf("Got %v, want ErrTopicNotFound and the near name", err)
	}
}

func TestRealCodecs(t *testing.T) {
	for _, codec := range []Compression{None, Gzip, Snappy, LZ4, Zstd} {
		t.Run(string(codec), func(t *testing.T) {
			c, topic := realClient(t)
			create(t, c, topic, 1)
			p := c.NewProducer(&ProducerOptions{Compression: codec})
			start := time.Now()
			if err := p.Produce(testContext(t), topic, numbered(0, 20000)...); err != nil {
				t.Fatal(err)
			}
			r := startFetcher(t, c, nil).Add(topic, 0, 0)
			if got := readTo(t, r, 20000); !slices.Equal(got, values(0, 20000)) {
				t.Errorf("Got %d records, want 20000", len(got))
			}
			offs, err := c.ListOffsets(testContext(t), topic, []int32{0})
			if err != nil || offs[0] != (Offsets{0, 20000}) {
				t.Errorf("Got %v, %v", offs, err)
			}
			at, err := c.OffsetsAt(testContext(t), topic, []int32{0}, start.Add(-time.Hour))
			if err != nil || at[0] != 0 {
				t.Errorf("Got %v, %v an hour ago", at, err)
			}
			at, err = c.OffsetsAt(testContext(t), topic, []int32{0}, time.Now().Add(time.Hour))
			if err != nil || at[0] != 20000 {
				t.Errorf("Got %v, %v in an hour", at, err)
			}
			r.SeekTo(30000)
			var oor *OutOfRangeError
			if err := nextError(t, r); !errors.As(err, &oor) || oor.End != 20000 {
				t.Errorf("Got %v beyond the end", err)
			}
		})
	}
}

func TestRealTransactions(t *testing.T) {
	for codec, name := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		t.Run(name, func(t *testing.T) {
			c, topic := realClient(t)
			create(t, c, topic, 1)
			var tx *txn
			for range 2 { // two producers, one after the other
				tx = newTxn(t, c, topic)
				tx.codec = int16(codec)
			}
			var want []string
			offset := int64(0)
			for i := range 10 {
				v := []string{fmt.Sprintf("%d-a", i), fmt.Sprintf("%d-b", i)}
				tx.produce(testContext(t), topic, v...)
				tx.end(testContext(t), i%3 != 0)
				offset += 3
				if i%3 != 0 {
					want = append(want, v...)
				}
			}
			r := startFetcher(t, c, nil).Add(topic, 0, 0)
			if got := readTo(t, r, offset); !slices.Equal(got, want) {
				t.Errorf("Got %v, want %v", got, want)
			}
			if m := c.Metrics(); m.Control != 10 || m.Aborted != 8 {
				t.Errorf("Got %d control, %d aborted, want 10 and 8", m.Control, m.Aborted)
			}
		})
	}
}

func TestRealGroup(t *testing.T) {
	c, topic := realClient(t)
	create(t, c, topic, 4)
	opts := func(store string) *GroupOptions {
		return &GroupOptions{
			ID: topic, Topics: []string{topic}, StoreID: store, SessionTimeout: 6 * time.Second,
			Heartbeat: 100 * time.Millisecond, RetryBackoff: 100 * time.Millisecond,
		}
	}
	first := joinWith(t, c, opts("one"))
	old := first.await(t, owns(4))
	if err := old.Commit(testContext(t), map[string]map[int32]int64{topic: {0: 0}}); err != nil {
		t.Fatal(err)
	}
	other := joinWith(t, c, opts("two"))
	select {
	case err := <-other.failed:
		if !errors.Is(err, ErrOtherStore) || !strings.Contains(err.Error(), `"one"`) {
			t.Errorf("Got %v, want ErrOtherStore naming the store", err)
		}
	case <-testContext(t).Done():
		t.Fatal("the member of another store was not refused")
	}
	if err := other.group.Close(); err != nil {
		t.Fatal(err)
	}
	second := joinWith(t, c, opts("one"))
	second.await(t, owns(2))
	first.await(t, owns(2))
	if err := old.Commit(testContext(t), map[string]map[int32]int64{topic: {0: 0}}); !errors.Is(err, ErrGenerationEnded) {
		t.Errorf("Got %v from the commit of an old generation, want ErrGenerationEnded", err)
	}
}

func TestRealTopicCreatedAnew(t *testing.T) {
	c, topic := realClient(t)
	create(t, c, topic, 1)
	produce(t, c, topic, numbered(0, 10)...)
	r := startFetcher(t, c, nil).Add(topic, 0, 0)
	readTo(t, r, 10)
	deleteTopic(t, c, topic)
	create(t, c, topic, 1)
	if err := nextError(t, r); !errors.Is(err, ErrTopicChanged) && !errors.Is(err, ErrTopicNotFound) {
		t.Errorf("Got %v, want ErrTopicChanged", err)
	}
}

func deleteTopic(t *testing.T, c *Client, topic string) {
	t.Helper()
	ctx := testContext(t)
	node, err := c.controller(ctx)
	if err != nil {
		t.Fatal(err)
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 4, 5000, []string{topic}
	resp, err := c.request(ctx, node, req)
	if err != nil {
		t.Fatal(err)
	}
	if e := resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode; e != 0 {
		t.Fatal(kerr.ErrorForCode(e))
	}
}

// TestRealThroughput measures, and checks that nothing is lost.
func TestRealThroughput(t *testing.T) {
	c, topic := realClient(t)
	const partitions, n = 4, 300_000
	create(t, c, topic, partitions)
	msgs := make([]Message, n)
	value := make([]byte, 200)
	for i := range value {
		value[i] = byte('a' + i%26)
	}
	for i := range msgs {
		msgs[i] = Message{Value: value, Partition: AnyPartition}
	}
	start := time.Now()
	if err := c.NewProducer(nil).Produce(testContext(t), topic, msgs...); err != nil {
		t.Fatal(err)
	}
	t.Logf("produce: %.0f/s", n/time.Since(start).Seconds())
	start = time.Now()
	f := startFetcher(t, c, nil)
	total := 0
	for p := range int32(partitions) {
		offs, err := c.ListOffsets(testContext(t), topic, []int32{p})
		if err != nil {
			t.Fatal(err)
		}
		total += len(readTo(t, f.Add(topic, p, 0), offs[p].End))
	}
	t.Logf("fetch: %.0f/s", n/time.Since(start).Seconds())
	if total != n {
		t.Errorf("Got %d records, want %d", total, n)
	}
}
