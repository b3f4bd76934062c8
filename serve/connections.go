package serve

import (
	"log/slog"
	"net"
	"sync"
	"time"
)

const (
	// maxConnections bounds Options.MaxConnections where nobody has set it.
	maxConnections = 1 << 16
	// fullPause is the least time between two warnings that no more are taken.
	fullPause = time.Minute
)

// boundedListener has a bounded number of connections open. Each is an open file, and who has
// no token can connect, too: without a bound the store could open none any more, and commits
// would wait.
type boundedListener struct {
	net.Listener
	what   string // they are of
	log    *slog.Logger
	taken  chan struct{} // a token for each open connection
	closed chan struct{}
	once   sync.Once
	warned time.Time // Accept's
}

func newBoundedListener(l net.Listener, n int, log *slog.Logger) *boundedListener {
	return &boundedListener{Listener: l, what: "HTTP", log: log, taken: make(chan struct{}, n), closed: make(chan struct{})}
}

// BoundedListener returns a listener of l that has at most n connections open, of what is
// named; others wait until one is closed. Of two goroutines none may accept beside the other.
func BoundedListener(l net.Listener, n int, what string, log *slog.Logger) net.Listener {
	b := newBoundedListener(l, n, log)
	b.what = what
	return b
}

// Accept waits for a connection, and before that until there may be another one. It is not
// for concurrent use: http.Server has one goroutine that accepts.
func (l *boundedListener) Accept() (net.Conn, error) {
	select {
	case l.taken <- struct{}{}:
	default:
		if now := time.Now(); now.Sub(l.warned) >= fullPause {
			l.warned = now
			l.log.Warn("as many "+l.what+" connections are open as may be: others wait until one is closed; "+
				"find who keeps them, or raise the limit of open files (ulimit -n)", "connections", cap(l.taken))
		}
		select {
		case l.taken <- struct{}{}:
		case <-l.closed:
			return nil, net.ErrClosed
		}
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.taken
		return nil, err
	}
	return &boundedConn{Conn: c, listener: l}, nil
}

// Close implements net.Listener.
func (l *boundedListener) Close() error {
	l.once.Do(func() { close(l.closed) })
	return l.Listener.Close()
}

// boundedConn gives its place back when it is closed.
type boundedConn struct {
	net.Conn
	listener *boundedListener
	once     sync.Once
}

func (c *boundedConn) Close() error {
	err := c.Conn.Close()
	c.once.Do(func() { <-c.listener.taken })
	return err
}
