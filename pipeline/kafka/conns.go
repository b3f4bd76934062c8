package kafka

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
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
	mechanism func() sasl.Mechanism // nil = none
	makeNone  bool                  // what kafka-go asks of topics does not make them
	dialer    func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex // guards below
	closed  bool
	conns   map[net.Conn]struct{}
	seed    string              // of o.Brokers, connected with last
	reached map[string]struct{} // other addresses that were connected with
	others  map[string]struct{} // addresses where something else answers
}

func newConnSet(o *Options, mechanism func() sasl.Mechanism) *connSet {
	dial := o.Dial
	if dial == nil {
		dial = (&net.Dialer{Timeout: o.DialTimeout}).DialContext
	}
	return &connSet{o: o, mechanism: mechanism, dialer: dial, conns: make(map[net.Conn]struct{}), reached: make(map[string]struct{}), others: make(map[string]struct{})}
}

func (s *connSet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.o.DialTimeout)
	defer cancel()
	raw, err := s.dialer(ctx, network, address)
	if err = s.dialed(address, err); err != nil {
		return nil, err
	}
	// What a peer that stops answering would block forever ends with ctx.
	stop := context.AfterFunc(ctx, func() { _ = raw.SetDeadline(time.Unix(1, 0)) })
	c, auth, err := s.secure(ctx, raw, address)
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
	tracked := &trackedConn{Conn: c, raw: raw, set: s, address: address, auth: auth}
	if s.o.watch != nil {
		return s.o.watch(tracked), nil
	}
	return tracked, nil
}

// errAdvertised: the cluster names an address of a broker that cannot be reached.
var errAdvertised = errors.New("cannot be reached from here")

// dialed notes what became of a dial. Its error is err, and says where the address is from
// where that is the cluster and nothing was ever reached there.
func (s *connSet) dialed(address string, err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	given := slices.Contains(s.o.Brokers, address)
	switch {
	case err == nil && given:
		s.seed = address
	case err == nil:
		s.reached[address] = struct{}{}
	case given || s.seed == "":
	default:
		if _, ok := s.reached[address]; !ok {
			return fmt.Errorf("broker %s, which %s names, %w: %w; check that it runs, and its advertised.listeners", address, s.seed, errAdvertised, err)
		}
	}
	return err
}

// other notes that what answers at address is no broker.
func (s *connSet) other(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.others[address] = struct{}{}
}

// forgetOthers has onlyOthers look at what answers from now on.
func (s *connSet) forgetOthers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.others)
}

// onlyOthers reports whether something else has answered at each of o.Brokers.
func (s *connSet) onlyOthers() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range s.o.Brokers {
		if _, ok := s.others[b]; !ok {
			return false
		}
	}
	return true
}

// secure encrypts and authenticates a new connection. Its session is nil where it
// has no end.
func (s *connSet) secure(ctx context.Context, c net.Conn, address string) (net.Conn, *authSession, error) {
	if s.o.TLS != nil {
		config := s.o.TLS.Clone()
		if s.o.RootCAs != nil {
			config.RootCAs = s.o.RootCAs()
		}
		if config.ServerName == "" {
			host, _, err := net.SplitHostPort(address)
			if err != nil {
				return nil, nil, fmt.Errorf("broker address %q: %w", address, err)
			}
			config.ServerName = host
		}
		t := tls.Client(c, config)
		if err := t.HandshakeContext(ctx); err != nil {
			return nil, nil, tlsError(address, err)
		}
		c = t
	}
	if s.mechanism == nil {
		return c, nil, nil
	}
	started := time.Now()
	lifetime, err := s.authenticate(ctx, c, address)
	switch {
	case err != nil && alert(err):
		return nil, nil, tlsError(address, err)
	case err != nil:
		return nil, nil, err
	case lifetime == 0:
		return c, nil, nil
	}
	return c, newAuthSession(started, lifetime), nil
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
	auth     *authSession // nil = authenticated for good

	deadlines deadlines
	lookups   lookups
	greeting  greeting
}

// Write writes. It is for one goroutine at a time, as kafka-go has it.
func (c *trackedConn) Write(b []byte) (int, error) {
	if c.set.makeNone {
		b = c.lookups.edit(b)
	}
	if c.auth != nil {
		if err := c.renew(); err != nil {
			return 0, err
		}
		c.auth.writes(b)
	}
	c.greeting.writes(b)
	return c.Conn.Write(b)
}

// Read reads. A broker that does not accept our certificate says so only now: in
// TLS 1.3 the handshake has ended for the client before the broker looks at it.
func (c *trackedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if wrong := c.greeting.reads(b[:n]); wrong != nil {
		c.set.other(c.address)
		return 0, fmt.Errorf("broker %s: %w", c.address, wrong)
	}
	if c.auth != nil {
		c.auth.reads(b[:n])
	}
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
