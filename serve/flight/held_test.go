package flight

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
)

// clock is a time that a test moves.
type clock struct{ now time.Time }

func (c *clock) step(d time.Duration) { c.now = c.now.Add(d) }

// newShelf returns a shelf of one flight.
func newShelf(t *testing.T) (*shelf, *clock, *heldFlight) {
	t.Helper()
	c := &clock{time.Unix(1e9, 0)}
	s := &shelf{hold: time.Minute, maxHold: 10 * time.Minute, most: 2, now: func() time.Time { return c.now }, flights: map[flightID]*heldFlight{}}
	f := &heldFlight{id: newFlightID()}
	if err := s.reserve(); err != nil {
		t.Fatal(err)
	}
	expires, err := s.add(f)
	if err != nil || !expires.Equal(c.now.Add(time.Minute)) {
		t.Fatalf("Got %v, %v", expires, err)
	}
	return s, c, f
}

// A flight is over hold after its last use, or maxHold after it was opened.
func TestHold(t *testing.T) {
	t.Parallel()
	s, c, f := newShelf(t)
	c.step(59 * time.Second)
	if all := s.over(); len(all) != 0 {
		t.Error("It is over too soon")
	}
	if _, err := s.use(f.id); err != nil {
		t.Fatal(err)
	}
	c.step(5 * time.Minute)
	if all := s.over(); len(all) != 0 || f.ended.Err() != nil {
		t.Error("It is over while it is read")
	}
	if all := s.unuse(f); len(all) != 0 {
		t.Error("It is over with its stream")
	}
	c.step(59 * time.Second)
	if expires, err := s.renew(f.id); err != nil || !expires.Equal(c.now.Add(time.Minute)) {
		t.Errorf("Got %v, %v", expires, err)
	}
	c.step(time.Minute)
	// Nobody has looked yet.
	if _, err := s.use(f.id); !errors.Is(err, errNoFlight) {
		t.Errorf("Got %v", err)
	}
	if _, err := s.renew(f.id); !errors.Is(err, errNoFlight) {
		t.Errorf("Got %v", err)
	}
	if all := s.over(); len(all) != 1 || all[0] != f || s.len() != 0 {
		t.Errorf("Got %d flights", len(all))
	}
}

func TestMaxHold(t *testing.T) {
	t.Parallel()
	s, c, f := newShelf(t)
	if _, err := s.use(f.id); err != nil {
		t.Fatal(err)
	}
	for range 10 { // each extends it
		c.step(time.Minute)
		if _, err := s.renew(f.id); err != nil && c.now.Before(f.limit) {
			t.Fatal(err)
		}
	}
	if all := s.over(); len(all) != 0 {
		t.Error("What is read was given to be closed")
	}
	if !errors.Is(context.Cause(f.ended), errFlightEnd) {
		t.Errorf("Got %v", context.Cause(f.ended))
	}
	if _, err := s.use(f.id); !errors.Is(err, errNoFlight) {
		t.Errorf("Got %v", err)
	}
	if s.len() != 1 {
		t.Errorf("%d flights are held", s.len())
	}
	if all := s.unuse(f); len(all) != 1 || s.len() != 0 {
		t.Error("Nobody was given it to be closed")
	}
}

func TestFullShelf(t *testing.T) {
	t.Parallel()
	s, c, f := newShelf(t)
	if err := s.reserve(); err != nil {
		t.Fatal(err)
	}
	c.step(20 * time.Second)
	full := (*fullError)(nil)
	if err := s.reserve(); !errors.As(err, &full) || !strings.Contains(err.Error(), "2 (the next ends in 40s") {
		t.Errorf("Got %v", err)
	}
	s.give()
	if err := s.reserve(); err != nil {
		t.Error(err)
	}
	if all := s.clear(errStopping); len(all) != 1 || all[0] != f {
		t.Errorf("Got %d flights", len(all))
	}
	if _, err := s.add(&heldFlight{}); !errors.Is(err, errStopping) {
		t.Errorf("Got %v", err)
	}
	if err := s.reserve(); !errors.Is(err, errStopping) {
		t.Errorf("Got %v", err)
	}
}

// What was held too long ends while it is read, also where the client does not read, which
// hears why when it goes on.
func TestStreamIsEnded(t *testing.T) {
	t.Parallel()
	var late atomic.Bool // not before rows are sent, however slow the machine
	f := largeRows(t, 640, func(o *Options) {
		o.Now = func() time.Time {
			if late.Load() {
				return time.Now().Add(2 * DefaultMaxHold)
			}
			return time.Now()
		}
	})
	f.patience = 1
	stream, err := f.client.DoGet(authorized(t), f.get(t, "large").Endpoint[0].Ticket)
	if err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, "rows are sent", func() bool { return f.Metrics().Rows > 0 })
	late.Store(true)
	awaitTrue(t, "the instant is given back", func() bool { return f.open.Load() == 0 })
	for err == nil {
		_, err = stream.Recv()
	}
	wantStatus(t, err, codes.DeadlineExceeded, "flight.max_hold")
}
