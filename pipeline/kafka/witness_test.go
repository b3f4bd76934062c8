package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// witnesses look at the connections of a client to brokers that end sessions, and at what
// each one does, below TLS and SASL. A broker, or this process, that stands still for
// longer than what is left of a session is no fault of the client: the broker ends the
// connection then, late. Everything else that ends one is.
type witnesses struct {
	mu     sync.Mutex // guards below, and what is in each
	all    []*witness
	faults []string
	late   int                // connections that were ended after their session
	proven map[kmsg.Key][]int // kinds of requests answered → the sessions of a connection they were answered in
}

// witness is one connection.
type witness struct {
	*trackedConn
	of *witnesses

	// guarded by of.mu
	renewAt, until    time.Time
	session           int // how many there were before this one
	requests, answers frames
	head              []byte // of the request that is being written: size and key
	open              []kmsg.Key
	over              bool // closed by us, or ended by the broker
}

func (w *witnesses) watch(c *trackedConn) net.Conn {
	one := &witness{trackedConn: c, of: w}
	if c.auth != nil {
		one.renewAt, one.until = c.auth.ends()
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, one)
	return one
}

// endless reports whether some session has no end.
func (w *witnesses) endless() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.ContainsFunc(w.all, func(one *witness) bool { return one.renewAt.IsZero() })
}

func (w *witnesses) fault(one *witness, format string, a ...any) {
	w.faults = append(w.faults, fmt.Sprintf("connection from %s, session %d: ", one.LocalAddr(), one.session)+fmt.Sprintf(format, a...))
}

// outlived reports whether requests of each kind were answered in a third session of a
// connection, or a later one.
func (w *witnesses) outlived(kinds ...kmsg.Key) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, k := range kinds {
		if !slices.ContainsFunc(w.proven[k], func(session int) bool { return session >= 2 }) {
			return false
		}
	}
	return true
}

// Write notes the requests that begin, and whether the session was renewed where it was
// time.
func (c *witness) Write(b []byte) (int, error) {
	begun := time.Now()
	c.of.mu.Lock()
	due := !c.requests.within() && !c.renewAt.IsZero() && !begun.Before(c.renewAt)
	c.note(b)
	c.of.mu.Unlock()
	n, err := c.trackedConn.Write(b)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	renewed := false
	if c.auth != nil {
		renewAt, until := c.auth.ends()
		if renewed = renewAt != c.renewAt; renewed {
			c.renewAt, c.until = renewAt, until
			c.session++
		}
	}
	switch {
	case !due || renewed || c.over:
	case err == nil:
		c.of.fault(c, "a request was sent that was not to be before the connection is authenticated again")
	case time.Since(begun) < c.set.o.DialTimeout:
		c.of.fault(c, "it cannot be authenticated again: %v", err)
	default: // the broker has said nothing for as long
		c.over = true
		c.of.late++
	}
	return n, err
}

// note notes the requests that begin in b. The lock is held.
func (c *witness) note(b []byte) {
	for len(b) > 0 {
		// A frame at a time, as far as the key: it comes two bytes after the size.
		if !c.requests.within() {
			c.head = c.head[:0]
		}
		n := 1
		if len(c.head) == 6 {
			n = max(min(c.requests.left, len(b)), 1)
		} else if c.head = append(c.head, b[0]); len(c.head) == 6 {
			c.open = append(c.open, kmsg.Key(int16(binary.BigEndian.Uint16(c.head[4:]))))
		}
		c.requests.add(b[:n])
		b = b[n:]
	}
}

// Read notes the answers that end, and who ended the connection.
func (c *witness) Read(b []byte) (int, error) {
	n, err := c.trackedConn.Read(b)
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	_, ended := c.answers.add(b[:n])
	for ; ended > 0 && len(c.open) > 0; ended-- {
		if c.of.proven == nil {
			c.of.proven = map[kmsg.Key][]int{}
		}
		c.of.proven[c.open[0]] = append(c.of.proven[c.open[0]], c.session)
		c.open = c.open[1:]
	}
	if c.over || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, syscall.ECONNRESET) {
		return n, err
	}
	c.over = true
	if left := time.Until(c.until); left > 0 {
		c.of.fault(c, "the broker ended it %v before the end of its session, with the requests %v unanswered", left, c.open)
	} else {
		c.of.late++
	}
	return n, err
}

// Close notes that it was us.
func (c *witness) Close() error {
	c.of.mu.Lock()
	c.over = true
	c.of.mu.Unlock()
	return c.trackedConn.Close()
}

// outliveSessions uses every kind of connection, pause apart, until each was used in three
// sessions, and tells what any of them did wrong. The topic has one partition, and no
// records.
func outliveSessions(t *testing.T, c *Client, topic string, w *witnesses, pause time.Duration) {
	t.Helper()
	ctx := testContext(t)
	m := joinWith(t, c, &GroupOptions{ID: topic, Topics: []string{topic}})
	gen := m.await(t, owns(1))
	p, r := c.NewProducer(nil), startFetcher(t, c, nil).Add(topic, 0, 0)
	tick := time.NewTicker(pause)
	defer tick.Stop()
	var got []string
	rounds := 0
	for ; !w.outlived(kmsg.Produce, kmsg.Fetch, kmsg.Heartbeat, kmsg.OffsetCommit); rounds++ {
		if err := p.Produce(ctx, topic, numbered(rounds, rounds+1)...); err != nil {
			t.Fatal(err)
		}
		got = append(got, readTo(t, r, int64(rounds+1))...)
		for gen.Commit(ctx, map[string]map[int32]int64{topic: {0: int64(rounds + 1)}}) != nil {
			gen = m.await(t, owns(1)) // the group has moved on, as after a connection that was ended late
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Got requests answered in the sessions %v, want each in a third one", w.proven)
		}
	}
	if !slices.Equal(got, values(0, rounds)) {
		t.Errorf("Got %v", got)
	}
	errs := c.Metrics().Errors["connection"]
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.faults) > 0 {
		t.Errorf("Got\n%s", strings.Join(w.faults, "\n"))
	}
	if w.late == 0 && errs > 0 {
		t.Errorf("Got %d errors of connections of which the broker ended none", errs)
	}
	t.Logf("%d connections, %d rounds, %d ended late", len(w.all), rounds, w.late)
}

// The witnesses of a client that does what it should have nothing to tell, and a broker
// that stands still for a while is noticed.
func TestSessionsAreOutlived(t *testing.T) {
	t.Parallel()
	for name, late := range map[string]bool{"quick broker": false, "late broker": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &sessions{lifetime: 3 * time.Second}
				c, w := watchedClient(t, s, func(*trackedConn) {})
				if late {
					time.AfterFunc(4*time.Second, func() { s.set(3*time.Second, 3*time.Second) })
					time.AfterFunc(7*time.Second, func() { s.set(3*time.Second, 0) })
				}
				outliveSessions(t, c, "t", w, time.Second)
				if late != (w.late > 0) || w.endless() {
					t.Errorf("Got %d connections ended late", w.late)
				}
			})
		})
	}
}

// They do tell of one that never authenticates again, and of a broker that ends a session
// too soon.
func TestWitnessesTell(t *testing.T) {
	t.Parallel()
	for want, mutant := range map[string]func(s *sessions, c *trackedConn){
		"not to be before":          func(_ *sessions, c *trackedConn) { c.auth = nil },
		"before the end of its":     func(s *sessions, _ *trackedConn) { s.set(time.Second/2, 0) },
		"cannot be authenticated a": func(_ *sessions, c *trackedConn) { c.set.mechanism, _ = SASL{"PLAIN", "u", "wrong"}.mechanism(nil) },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &sessions{lifetime: 3 * time.Second}
				c, w := watchedClient(t, s, func(c *trackedConn) { mutant(s, c) })
				for range 8 {
					_, _ = c.Topic(testContext(t), "t") // as it may
					time.Sleep(time.Second)             // in the bubble
				}
				w.mu.Lock()
				defer w.mu.Unlock()
				if !slices.ContainsFunc(w.faults, func(f string) bool { return strings.Contains(f, want) }) {
					t.Errorf("Got %q, want one that says %q", w.faults, want)
				}
			})
		})
	}
}

// watchedClient returns a client of a broker that ends sessions as s says, with witnesses
// of its connections, to each of which f was done.
func watchedClient(t *testing.T, s *sessions, f func(*trackedConn)) (*Client, *witnesses) {
	_, o := startBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": fmt.Sprint(s.lifetime.Milliseconds())}))
	w := new(witnesses)
	o.Dial, o.SASL = s.dial(o.Dial), SASL{"PLAIN", "u", secret}
	o.watch = func(c *trackedConn) net.Conn {
		watched := w.watch(c)
		f(c)
		return watched
	}
	return newTestClient(t, o), w
}
