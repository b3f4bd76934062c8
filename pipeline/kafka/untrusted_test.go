package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// cuttable is a network whose connections can be cut.
type cuttable struct {
	mu    sync.Mutex
	conns []net.Conn
}

func (n *cuttable) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, network, address)
	if err == nil {
		n.mu.Lock()
		n.conns = append(n.conns, c)
		n.mu.Unlock()
	}
	return c, err
}

func (n *cuttable) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		_ = c.Close()
	}
	n.conns = nil
}

// shared is a log that is read while it is written.
type shared struct {
	mu   sync.Mutex
	text strings.Builder
}

func (s *shared) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

func (s *shared) has(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Contains(s.text.String(), text)
}

// A certificate that goes bad while partitions are read fails their readers, and ends
// neither the fetcher, nor a group, nor a static assignment: with a good one they go on.
func TestCertificateGoesBad(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	good, bad := ca.issue(time.Now().Add(time.Hour)), newAuthority(t).issue(time.Now().Add(time.Hour))
	var shown atomic.Pointer[tls.Certificate]
	shown.Store(&good)
	_, addr := startSecure(t, kfake.TLS(&tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return shown.Load(), nil },
	}))
	network := new(cuttable)
	var log shared
	c := newTestClient(t, &Options{
		Brokers: []string{addr}, Dial: network.dial, RequestTimeout: 2 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
		TLS:    &tls.Config{RootCAs: ca.pool(), MinVersion: tls.VersionTLS12},
	})
	produce(t, c, "t", numbered(0, 10)...)
	f := c.NewFetcher(nil)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- f.Run(ctx) }()
	r := f.Add("t", 0, 0)
	readTo(t, r, 10)
	m := joinWith(t, c, &GroupOptions{ID: "g", Topics: []string{"t"}, SessionTimeout: time.Second, RetryBackoff: 20 * time.Millisecond})
	m.await(t, owns(1))
	s, err := c.Assign(testContext(t), &AssignOptions{Topics: []string{"t"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	taken, err := s.Next(testContext(t))
	if err != nil {
		t.Fatal(err)
	}

	shown.Store(&bad)
	network.cut()
	if _, err := r.Next(testContext(t)); !errors.Is(err, ErrTLS) {
		t.Errorf("Got %v, want ErrTLS", err)
	}
	taken.Run(func(context.Context) {}) // ends the generation
	next := make(chan error, 1)
	go func() {
		_, err := s.Next(testContext(t))
		next <- err
	}()
	for { // until the group has met the certificate, too
		if _, err := c.Topic(testContext(t), "t"); !errors.Is(err, ErrTLS) {
			t.Fatalf("Got %v, want ErrTLS", err)
		}
		if log.has("group is not joined") {
			break
		}
	}
	select {
	case err := <-ended:
		t.Fatalf("the fetcher has ended: %v", err)
	case err := <-next:
		t.Fatalf("the static assignment has ended: %v", err)
	case err := <-m.failed:
		t.Fatalf("the group has ended: %v", err)
	default:
	}

	shown.Store(&good)
	r.Close()
	produce(t, c, "t", numbered(10, 20)...)
	readTo(t, f.Add("t", 0, 10), 20)
	m.await(t, owns(1))
	if err := <-next; err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v", err)
	}
}
