package kafka

import (
	"context"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"time"
)

// seeds are the addresses to start from, as one address of kafka-go's transport. Given
// several, that has for all of them together the time of one dial, in an order that it
// draws anew each time: a seed whose host is off takes the time of those behind it, and one
// that is frozen may be drawn again and again.
type seeds struct {
	addrs []string
	next  atomic.Uint32 // counts what was dialed
}

// seedNetwork is the network of seeds.
const seedNetwork = "seeds"

var _ net.Addr = (*seeds)(nil)

func newSeeds(addrs []string) *seeds {
	s := &seeds{addrs: addrs}
	s.next.Store(rand.Uint32()) // clients that start together are spread
	return s
}

// Network is known to connSet.dial.
func (s *seeds) Network() string { return seedNetwork }

// String names all of them; kafka-go takes what has commas for several.
func (s *seeds) String() string { return strings.Join(s.addrs, " ") }

// dial connects with the seed after the one of the last call: each has its turn, however
// the others fail. One that refuses at once is passed over.
func (s *seeds) dial(ctx context.Context, dial func(ctx context.Context, network, address string) (net.Conn, error)) (c net.Conn, err error) {
	for range s.addrs {
		addr := s.addrs[(s.next.Add(1)-1)%uint32(len(s.addrs))]
		if c, err = dial(ctx, "tcp", addr); err == nil || ctx.Err() != nil {
			break
		}
		// The system may notice the deadline a moment before ctx does.
		if end, ok := ctx.Deadline(); ok && !time.Now().Before(end) {
			break
		}
	}
	return c, err
}
