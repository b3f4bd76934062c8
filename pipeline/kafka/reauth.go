package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// reauthGap is the shortest time between two authentications of a connection: a
// broker takes the second within a second for a mistake (Kafka's KafkaChannel,
// MIN_REAUTH_INTERVAL_ONE_SECOND_NANOS).
const reauthGap = time.Second

// reauthMargin is how much of a session is to be left when a connection is
// authenticated again, where a session is twice as long: a broker that is busy, or
// collects its garbage, looks at a request only some time after it has come, and ends
// the connection where the session has ended meanwhile.
const reauthMargin = time.Second

// maxLifetime bounds what a broker may say, so that it fits a Duration.
const maxLifetime = 365 * 24 * time.Hour

// authSession authenticates a connection again before the broker's
// connections.max.reauth.ms, or the end of its credentials, makes the broker close
// it at the next request (KIP-368); kafka-go has no notion of it. That happens
// between two requests, when none is unanswered, in the goroutine that writes the
// next; to kafka-go it is a write that takes a few round trips. A connection that
// is idle is left alone: a broker accepts the authentication of a session that has
// expired.
type authSession struct {
	idle chan struct{} // has one element after the last answer

	mu       sync.Mutex // guards below
	renewAt  time.Time  // zero = never
	until    time.Time  // the broker ends the session no earlier
	open     int        // requests whose answer has not been read
	requests frames
	answers  frames
}

func newAuthSession(started time.Time, lifetime time.Duration) *authSession {
	s := &authSession{idle: make(chan struct{}, 1)}
	s.granted(started, lifetime)
	return s
}

// granted notes for how long the authentication that began at started holds; 0 =
// for good.
func (s *authSession) granted(started time.Time, lifetime time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if lifetime <= 0 {
		s.renewAt, s.until = time.Time{}, time.Time{}
		return
	}
	s.until = started.Add(lifetime)
	// The broker counts from the end of the exchange, and Java's clients begin
	// anew at 85 % to 95 % of it.
	margin := max(lifetime/100*15, min(reauthMargin, lifetime/2))
	s.renewAt = s.until.Add(-margin)
	if least := time.Now().Add(reauthGap); s.renewAt.Before(least) {
		s.renewAt = least
	}
}

// due reports whether the next write begins a request that is not to be sent
// before the connection is authenticated again, and how many are unanswered.
func (s *authSession) due() (due bool, open int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.renewAt.IsZero() && !s.requests.within() && !time.Now().Before(s.renewAt), s.open
}

// ends returns when the connection is to be authenticated again, zero for never, and when
// the broker ends its session at the earliest.
func (s *authSession) ends() (renewAt, until time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.renewAt, s.until
}

// writes notes what is about to be written.
func (s *authSession) writes(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begun, _ := s.requests.add(b)
	s.open += begun
}

// reads notes what was read.
func (s *authSession) reads(b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ended := s.answers.add(b)
	if s.open -= ended; ended > 0 && s.open <= 0 {
		select {
		case s.idle <- struct{}{}:
		default:
		}
	}
}

// renew authenticates the connection again when it is time.
func (c *trackedConn) renew() error {
	due, open := c.auth.due()
	if !due {
		return nil
	}
	_, until := c.auth.ends()
	ctx, cancel := context.WithTimeout(context.Background(), c.set.o.DialTimeout)
	defer cancel()
	for open > 0 {
		select {
		case <-c.auth.idle:
		case <-ctx.Done():
			return fmt.Errorf("broker %s, %v: %d requests are unanswered, and its session ends at %s", c.address, c.set.o.SASL, open, until.Format(time.RFC3339Nano))
		}
		_, open = c.auth.due()
	}
	// kafka-go's deadlines are for its own requests; that of the last answer may have
	// passed.
	if err := c.deadlines.suspend(c.Conn); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.raw.Close() })
	defer stop()
	started := time.Now()
	lifetime, err := c.set.authenticate(ctx, c.Conn, c.address)
	if err != nil {
		return err
	}
	if err := c.deadlines.resume(c.Conn); err != nil {
		return err
	}
	c.auth.granted(started, lifetime)
	c.set.o.Logger.Debug("broker connection is authenticated again", "broker", c.address, "lifetime", lifetime)
	return nil
}

// deadlines are those that kafka-go has set on a connection. While they are
// suspended they are only noted, and the connection has none.
type deadlines struct {
	mu          sync.Mutex // guards below, and the order of what is set on the connection
	suspended   bool
	read, write time.Time
}

// set notes deadlines, and sets them on c unless they are suspended; nil is one that
// stays as it is.
func (d *deadlines) set(c net.Conn, read, write *time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if read != nil {
		d.read = *read
	}
	if write != nil {
		d.write = *write
	}
	switch {
	case d.suspended:
		return nil
	case write == nil:
		return c.SetReadDeadline(*read)
	case read == nil:
		return c.SetWriteDeadline(*write)
	}
	return errors.Join(c.SetReadDeadline(*read), c.SetWriteDeadline(*write))
}

func (d *deadlines) suspend(c net.Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.suspended = true
	return c.SetDeadline(time.Time{})
}

func (d *deadlines) resume(c net.Conn) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.suspended = false
	return errors.Join(c.SetReadDeadline(d.read), c.SetWriteDeadline(d.write))
}

// SetDeadline sets both deadlines.
func (c *trackedConn) SetDeadline(t time.Time) error { return c.deadlines.set(c.Conn, &t, &t) }

// SetReadDeadline sets the deadline of reads.
func (c *trackedConn) SetReadDeadline(t time.Time) error { return c.deadlines.set(c.Conn, &t, nil) }

// SetWriteDeadline sets the deadline of writes.
func (c *trackedConn) SetWriteDeadline(t time.Time) error { return c.deadlines.set(c.Conn, nil, &t) }

// frames follows the frames of one direction of a connection: four bytes of size,
// big-endian, and as many bytes.
type frames struct {
	head [4]byte
	have int // bytes of head
	left int // bytes of the frame that are to come
}

// within reports whether a frame has begun and not ended.
func (f *frames) within() bool { return f.have > 0 }

// add takes the next bytes and returns how many frames begin and end in them.
func (f *frames) add(b []byte) (begun, ended int) {
	for len(b) > 0 {
		if f.have < len(f.head) {
			if f.have == 0 {
				begun++
			}
			n := copy(f.head[f.have:], b)
			f.have, b = f.have+n, b[n:]
			if f.have < len(f.head) {
				break
			}
			f.left = int(max(int32(binary.BigEndian.Uint32(f.head[:])), 0))
		}
		n := min(f.left, len(b))
		f.left, b = f.left-n, b[n:]
		if f.left == 0 {
			f.have = 0
			ended++
		}
	}
	return begun, ended
}
