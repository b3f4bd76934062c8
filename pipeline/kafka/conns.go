package kafka

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go/sasl"
)

// connSet makes connections to brokers, encrypted and authenticated as the options
// say, and remembers them, so that Close can end those that kafka-go would leave to
// their deadlines. kafka-go has its own TLS and SASL, whose errors do not say which
// broker refuses whom.
type connSet struct {
	o         *Options
	mechanism sasl.Mechanism // nil = none
	dialer    func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex // guards below
	closed bool
	conns  map[net.Conn]struct{}
}

func newConnSet(o *Options, mechanism sasl.Mechanism) *connSet {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: o.DialTimeout}).DialContext
	}
	return &connSet{o: o, mechanism: mechanism, dialer: dial, conns: make(map[net.Conn]struct{})}
}

func (s *connSet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.DialTimeout)
	defer cancel()
	raw, err := s.dialer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	// What a peer that stops answering would block forever ends with ctx.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c, err := s.secure(ctx, raw, address)
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		_ = raw.Close() // never used
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = raw.Close() // never used
		return nil, ErrClosed
	}
	s.conns[raw] = struct{}{}
	return &trackedConn{Conn: c, raw: raw, set: s, address: address}, nil
}

// secure encrypts and authenticates a new connection.
func (s *connSet) secure(ctx context.Context, c net.Conn, address string) (net.Conn, error) {
	if s.o.TLS != nil {
		config := s.o.TLS
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, fmt.Errorf("broker address %q: %w", address, err)
			}
			config = config.Clone()
			config.ServerName = host
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, tlsError(address, err)
		}
		c = t
	}
	if s.mechanism != nil {
		if err := s.authenticate(ctx, c, address); err != nil {
			if alert(err) {
				return nil, tlsError(address, err)
			}
			return nil, err
		}
	}
	return c, nil
}

// closeAll ends every connection and refuses new ones.
func (s *connSet) closeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.conns {
		_ = c.Close() // what was in flight fails, which is the point
	}
	s.conns = nil
}

type trackedConn struct {
	net.Conn          // encrypted
	raw      net.Conn // below it
	set      *connSet
	address  string
}

// Read reads. A broker that does not accept our certificate says so only now: in
// TLS 1.3 the handshake has ended for the client before the broker looks at it.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err != nil && alert(err) {
		err = tlsError(c.address, err)
	}
	return n, err
}

// Close ends the connection and forgets it.
func (c *trackedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.conns, c.raw)
	c.set.mu.Unlock()
	return c.Conn.Close()
}
