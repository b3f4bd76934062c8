package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// sessions is what a broker does with sessions that end and kfake does not: it
// closes a connection that asks for something after the end, and one that
// authenticates twice in a second.
type sessions struct {
	lifetime time.Duration
	stall    time.Duration // of the broker, between the arrival of a request and its look at it

	mu              sync.Mutex
	ended, hasty    int
	authentications int
}

func (s *sessions) dial(dial func(ctx context.Context, network, addr string) (net.Conn, error)) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := dial(ctx, network, addr)
		return &sessionConn{Conn: c, s: s}, err
	}
}

// set changes how long sessions are from now on, whatever the broker says, and how late it
// looks at requests.
func (s *sessions) set(lifetime, stall time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lifetime, s.stall = lifetime, stall
}

// sessionConn sees the requests of a client.
type sessionConn struct {
	net.Conn
	s      *sessions
	buf    []byte
	shaken time.Time
	end    time.Time
	gone   bool // the broker has ended it
}

// hangUp is a broker that reads b and ends the connection. The lock is held.
func (c *sessionConn) hangUp(b []byte) (int, error) {
	c.gone = true
	time.AfterFunc(c.s.stall, func() { _ = c.Close() })
	return len(b), nil
}

func (c *sessionConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.gone {
		return 0, io.EOF
	}
	return n, err
}

func (c *sessionConn) Write(b []byte) (int, error) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	if c.gone {
		return len(b), nil
	}
	now := time.Now()
	c.buf = append(c.buf, b...)
	for len(c.buf) >= 6 {
		switch kmsg.Key(int16(binary.BigEndian.Uint16(c.buf[4:]))) {
		case kmsg.SASLHandshake:
			if !c.shaken.IsZero() && now.Sub(c.shaken) < time.Second {
				c.s.hasty++
				return c.hangUp(b)
			}
			c.shaken = now
			c.s.authentications++
		case kmsg.SASLAuthenticate:
			c.end = now.Add(c.s.lifetime)
		default:
			if now.Add(c.s.stall).After(c.end) {
				c.s.ended++
				return c.hangUp(b)
			}
		}
		size := 4 + int(binary.BigEndian.Uint32(c.buf))
		if len(c.buf) < size {
			break
		}
		c.buf = c.buf[size:]
	}
	return c.Conn.Write(b)
}

// For three minutes of a broker that ends sessions after three seconds, and after
// one: no connection is lost, no record twice, and the group rests.
func TestReauthentication(t *testing.T) {
	t.Parallel()
	for _, mechanism := range []string{"PLAIN", "SCRAM-SHA-512"} {
		for _, lifetime := range []time.Duration{time.Second, 3 * time.Second} {
			t.Run(fmt.Sprint(mechanism, lifetime), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { testReauthentication(t, mechanism, &sessions{lifetime: lifetime}) })
			})
		}
	}
}

// A broker that is busy looks at a request some time after it was sent, and ends the
// connection where the session has ended meanwhile: there must be as much of it left.
func TestReauthenticationOfBusyBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		testReauthentication(t, "PLAIN", &sessions{lifetime: 3 * time.Second, stall: 900 * time.Millisecond})
	})
}

// kafka-go leaves the deadline of an answer on the connection of a group. It has passed
// when the next heartbeat comes, and is not the authentication's before that.
func TestReauthenticationHasItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, o := startBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret),
			kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "3000"}))
		o.SASL, o.RequestTimeout = SASL{"PLAIN", "u", secret}, time.Second
		c := newTestClient(t, o)
		m := joinWith(t, c, &GroupOptions{ID: "g", Topics: []string{"t"}, StoreID: "store", SessionTimeout: 10 * time.Second, Heartbeat: 3 * time.Second})
		m.await(t, owns(1))
		time.Sleep(time.Minute) // in the bubble
		if n := c.Metrics(); n.Rebalances != 1 {
			t.Errorf("Got %d generations in a minute, want 1", n.Rebalances)
		}
	})
}

func testReauthentication(t *testing.T, mechanism string, s *sessions) {
	_, o := startBroker(t, kfake.EnableSASL(), kfake.Superuser(mechanism, "u", secret),
		kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": fmt.Sprint(s.lifetime.Milliseconds())}))
	o.Dial, o.SASL = s.dial(o.Dial), SASL{mechanism, "u", secret}
	out := new(logs)
	o.Logger = slog.New(slog.NewTextHandler(out, nil))
	c := newTestClient(t, o)
	m := join(t, c, "store", "t")
	first := m.await(t, owns(1))
	r := startFetcher(t, c, nil).Add("t", 0, 0)
	const rounds = 30
	var got []string
	for i := range rounds {
		produce(t, c, "t", numbered(i, i+1)...)
		got = append(got, readTo(t, r, int64(i+1))...)
		if err := first.Commit(t.Context(), map[string]map[int32]int64{"t": {0: int64(i + 1)}}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second) // in the bubble
	}
	if diff := cmp.Diff(values(0, rounds), got); diff != "" {
		t.Errorf("records (-want +got):\n%s", diff)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended > 0 || s.hasty > 0 || s.authentications < rounds {
		t.Errorf("Got %d sessions ended by the broker, %d authentications too soon, %d in all", s.ended, s.hasty, s.authentications)
	}
	if n := c.Metrics(); n.Rebalances != 1 || n.Retries > 0 || len(n.Errors) > 0 {
		t.Errorf("Got %d generations, %d retries, errors %v; want one and none", n.Rebalances, n.Retries, n.Errors)
	}
	warnings := strings.ReplaceAll(out.String(), plainWarning, "")
	if strings.Contains(warnings, "level=WARN") || strings.Contains(out.String(), secret) {
		t.Errorf("Got the log\n%s", out)
	}
}

// A password that has changed is found at the end of the session, not at the next
// restart.
func TestReauthenticationRefused(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cluster, o := startBroker(t, kfake.EnableSASL(), kfake.Superuser("PLAIN", "u", secret),
			kfake.BrokerConfigs(map[string]string{"connections.max.reauth.ms": "60000"}))
		o.SASL = SASL{"PLAIN", "u", secret}
		c := newTestClient(t, o)
		produce(t, c, "t", numbered(0, 1)...)
		r := startFetcher(t, c, nil).Add("t", 0, 0)
		readTo(t, r, 1)
		cluster.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.SASLAuthenticate}, TopLevel: true, Err: kerr.SaslAuthenticationFailed, Count: -1})
		start := time.Now()
		for {
			b, err := r.Next(t.Context())
			if err != nil {
				checkRefusal(t, err, ErrAuth, "localhost:1", "PLAIN")
				break
			}
			b.Release()
		}
		// Sooner where a new connection is the first that asks.
		if took := time.Since(start); took > time.Minute {
			t.Errorf("Got the refusal after %v, want it before the session of a minute ends", took)
		}
	})
}

// A request whose answer does not come holds the next one back for as long as the
// making of a connection may take; one that comes lets it go on.
func TestReauthenticationWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, answered := range []bool{true, false} {
			ours, theirs := net.Pipe()
			set := &connSet{o: &Options{DialTimeout: time.Second, SASL: SASL{"PLAIN", "u", secret}}}
			var err error
			if set.mechanism, err = set.o.SASL.mechanism(nil); err != nil {
				t.Fatal(err)
			}
			c := &trackedConn{Conn: ours, raw: ours, set: set, address: "b:1", auth: newAuthSession(time.Now(), 10*time.Second)}
			go func() { _, _ = io.Copy(io.Discard, theirs) }()
			frame := []byte{0, 0, 0, 2, 7, 7}
			if _, err := c.Write(frame); err != nil {
				t.Fatal(err)
			}
			time.Sleep(9 * time.Second)
			if answered {
				go func() {
					time.Sleep(time.Second / 2)
					_, _ = theirs.Write(frame) // and no word about the authentication
				}()
				go func() { _, _ = io.ReadFull(c, make([]byte, len(frame))) }()
			}
			start := time.Now()
			_, err = c.Write(frame)
			want := "1 requests are unanswered"
			if answered {
				want = "closed pipe" // by the deadline
			}
			if err == nil || !strings.Contains(err.Error(), want) || time.Since(start) != time.Second {
				t.Errorf("answered %v: got %v after %v, want %q", answered, err, time.Since(start), want)
			}
			_, _ = ours.Close(), theirs.Close()
		}
	})
}

func TestFrames(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 9).Draw(t, "sizes")
		var all []byte
		starts := []int{}
		ends := []int{}
		for _, n := range sizes {
			starts = append(starts, len(all))
			all = binary.BigEndian.AppendUint32(all, uint32(n))
			all = append(all, make([]byte, n)...)
			ends = append(ends, len(all))
		}
		var f frames
		for at := 0; at < len(all); {
			n := rapid.IntRange(1, len(all)-at).Draw(t, "n")
			begun, ended := f.add(all[at : at+n])
			in := func(p, from int) bool { return p >= from && p < from+n }
			wantBegun, wantEnded := 0, 0
			for i := range sizes {
				if in(starts[i], at) {
					wantBegun++
				}
				if in(ends[i]-1, at) {
					wantEnded++
				}
			}
			at += n
			if begun != wantBegun || ended != wantEnded || f.within() == slices.Contains(ends, at) {
				t.Fatalf("Got %d begun, %d ended, within %v at %d; want %d, %d", begun, ended, f.within(), at, wantBegun, wantEnded)
			}
		}
	})
}
