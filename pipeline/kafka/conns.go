package kafka

import (
	"context"
	"net"
	"sync"
	"time"
)

// connSet dials and remembers what it dialed, so that Close can end
// connections that kafka-go would leave to their deadlines.
type connSet struct {
	dialer func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex // guards below
	closed bool
	conns  map[net.Conn]struct{}
}

func newConnSet(dial func(context.Context, string, string) (net.Conn, error), timeout time.Duration) *connSet {
	if dial == nil {
		dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	return &connSet{dialer: dial, conns: make(map[net.Conn]struct{})}
}

func (s *connSet) dial(ctx context.Context, network, address string) (net.Conn, error) {
	c, err := s.dialer(ctx, network, address)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = c.Close() // never used
		return nil, ErrClosed
	}
	s.conns[c] = struct{}{}
	return &trackedConn{Conn: c, set: s}, nil
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
	net.Conn
	set *connSet
}

// Close ends the connection and forgets it.
func (c *trackedConn) Close() error {
	c.set.mu.Lock()
	delete(c.set.conns, c.Conn)
	c.set.mu.Unlock()
	return c.Conn.Close()
}
