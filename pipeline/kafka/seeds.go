package kafka

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// seeds are the addresses to start from, as one address of kafka-go's transport. Given
// several, that has for all of them together the time of one dial, in an order that it
// draws anew each time: a seed whose host is off takes the time of those behind it, and one
// that is frozen may be drawn again and again.
//
// Behind them are the addresses of the brokers that the cluster has named: kafka-go asks the
// address that it was given for metadata for ever, and a cluster goes on without that
// broker. As they may be out of reach from here, they are for when no seed answers.
type seeds struct {
	addrs []string

	mu      sync.Mutex           // guards below
	next    int                  // counts what was dialed of addrs
	failed  int                  // dials of addrs, one after the other; 0 = the last one was answered
	down    map[string]time.Time // of addrs: since when the last dial has no answer
	calls   int                  // counts those of dial while all of addrs fail
	learned []string             // of the brokers, without those in addrs
}

// seedNetwork is the network of seeds, and seedAddress is their address for kafka-go's
// consumer group, which dials host:port. No server listens at port 0.
const (
	seedNetwork = "seeds"
	seedAddress = "brokers:0"
)

// downFor is how long others are dialed before a seed that did not answer: as long as a
// request waits for its answer. Then it has its turn, as the others may be no brokers.
const downFor = 10 * time.Second

var _ net.Addr = (*seeds)(nil)

func newSeeds(addrs []string) *seeds {
	return &seeds{addrs: addrs, next: rand.IntN(len(addrs)), down: map[string]time.Time{}} // clients that start together are spread
}

// Network is known to connSet.dial.
func (s *seeds) Network() string { return seedNetwork }

// String names all of them; kafka-go takes what has commas for several.
func (s *seeds) String() string { return strings.Join(s.addrs, " ") }

// learn notes the brokers of the cluster.
func (s *seeds) learn(brokers []kmsg.MetadataResponseBroker) {
	if len(brokers) == 0 {
		return // a broker that has just started and knows none yet
	}
	learned := make([]string, 0, len(brokers))
	for i := range brokers {
		if addr := net.JoinHostPort(brokers[i].Host, strconv.Itoa(int(brokers[i].Port))); !slices.Contains(s.addrs, addr) {
			learned = append(learned, addr)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learned = learned
}

// order returns what a call dials, one after the other: the seed after the one of the last
// call first, but those that are down last, so that each costs a caller the time of one dial,
// whatever others dial meanwhile. Once all of them have failed, every other call begins with
// the brokers, as a dial to a host that is off takes all of the call's time.
func (s *seeds) order() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var up, down []string
	for _, addr := range turned(s.addrs, s.next) {
		if time.Since(s.down[addr]) < downFor {
			down = append(down, addr)
		} else {
			up = append(up, addr)
		}
	}
	given, learned := append(up, down...), turned(s.learned, s.calls/2)
	if s.failed >= len(s.addrs) {
		s.calls++
		if s.calls%2 == 1 {
			return append(learned, given...)
		}
	}
	return append(given, learned...)
}

// turned returns list from its nth element on, and then those before it.
func turned(list []string, n int) []string {
	if len(list) == 0 {
		return nil
	}
	n %= len(list)
	return slices.Concat(list[n:], list[:n])
}

// dialed notes what became of a dial of addr, one of addrs.
func (s *seeds) dialed(addr string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next++
	if err == nil || refuses(err) {
		s.failed, s.calls = 0, 0
		delete(s.down, addr)
		return
	}
	s.failed++
	s.down[addr] = time.Now()
}

// refuses reports whether err is of a broker that is there and does not take this client:
// others are not asked in its place, as credentials that are wrong lock accounts.
func refuses(err error) bool { return errors.Is(err, ErrAuth) || errors.Is(err, ErrTLS) }

// dial connects with the seed after the one of the last call that is not down: each has its
// turn, however the others fail. One that refuses at once is passed over. Its error is a seed's, where
// one was dialed.
func (s *seeds) dial(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) (net.Conn, error) {
	var failed error
	ofSeed := false
	for _, addr := range s.order() {
		seed := slices.Contains(s.addrs, addr)
		if !seed && refuses(failed) {
			break
		}
		c, err := dial(ctx, "tcp", addr)
		if seed {
			s.dialed(addr, err)
		}
		if err == nil {
			return c, nil
		}
		if seed || !ofSeed {
			failed, ofSeed = err, seed
		}
		// The system may notice the deadline a moment before ctx does.
		if end, ok := ctx.Deadline(); ctx.Err() != nil || ok && !time.Now().Before(end) {
			break
		}
	}
	return nil, failed
}
