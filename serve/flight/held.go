package flight

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/apache/arrow/go/v15/arrow"

	"sluice/jobs"
)

// heldFlight is an instant of a job that tickets are out for.
type heldFlight struct {
	id      flightID
	job     string
	table   string
	reading *jobs.Reading
	schema  *arrow.Schema
	source  Source
	opened  time.Time // when the instant was taken

	ended context.Context // of its streams; the cause says why
	stop  context.CancelCauseFunc

	// Guarded by shelf.mu.
	expires time.Time // where nobody uses it before
	limit   time.Time // and however it is used
	streams int       // that read it
	gone    bool      // from the shelf
}

// shelf is the flights that are held. Whoever takes a flight off it that has no streams,
// or the last stream of one that was taken off, closes its source: so all methods return
// the flights that their caller has to end.
type shelf struct {
	hold, maxHold time.Duration
	most          int
	now           func() time.Time

	mu      sync.Mutex // never held while a source is opened, read or closed
	flights map[flightID]*heldFlight
	opening int  // that will be added
	ending  int  // that are off the shelf, and that streams still read
	closed  bool // nothing is added any more
}

// Why flights are not there, or end.
var (
	errNoFlight  = errors.New("there is no such ticket: its flight is over (flight.hold after its last use), was released, or was another daemon's; ask for a new one with GetFlightInfo")
	errReleased  = errors.New("the flight was released; ask for a new one with GetFlightInfo")
	errFlightEnd = errors.New("the flight has been held for as long as one may be (flight.max_hold); ask for a new one with GetFlightInfo, or raise that")
)

// fullError: as many flights are held as may be.
type fullError struct {
	most int
	next time.Duration // until the first of them ends, unless somebody reads it; 0 = unknown
}

func (e *fullError) Error() string {
	when := ""
	if e.next > 0 {
		when = fmt.Sprintf(" (the next ends in %v unless it is read)", e.next.Round(time.Second))
	}
	return fmt.Sprintf("as many flights are held as may be, %d%s: release those that were read (the actions release and CancelFlightInfo), wait, or raise flight.max_flights", e.most, when)
}

// reserve keeps a place for a flight, for add or give.
func (s *shelf) reserve() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errStopping
	}
	if len(s.flights)+s.opening+s.ending < s.most {
		s.opening++
		return nil
	}
	full := &fullError{most: s.most}
	for _, f := range s.flights {
		if left := f.expires.Sub(s.now()); f.streams == 0 && left > 0 && (full.next == 0 || left < full.next) {
			full.next = left
		}
	}
	return full
}

// give gives a reserved place back.
func (s *shelf) give() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
}

// add puts a flight in its reserved place, and returns when it expires. Its error is
// errStopping, after which the flight is the caller's.
func (s *shelf) add(f *heldFlight) (time.Time, error) {
	f.ended, f.stop = context.WithCancelCause(context.Background())
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opening--
	if s.closed {
		return time.Time{}, errStopping
	}
	now := s.now()
	f.expires, f.limit = now.Add(s.hold), now.Add(s.maxHold)
	s.flights[f.id] = f
	return f.expires, nil
}

// use returns the flight, for which a stream is counted until unuse. Its error is
// errNoFlight.
func (s *shelf) use(id flightID) (*heldFlight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	if f == nil || f.isOver(s.now()) {
		return nil, errNoFlight
	}
	f.streams++
	return f, nil
}

// isOver reports whether the flight can be read no more. It needs shelf.mu.
func (f *heldFlight) isOver(now time.Time) bool {
	return !now.Before(f.limit) || f.streams == 0 && !now.Before(f.expires)
}

// unuse ends a stream of f.
func (s *shelf) unuse(f *heldFlight) (ended []*heldFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.streams--
	s.extend(f)
	if f.gone && f.streams == 0 {
		s.ending--
		return []*heldFlight{f}
	}
	return nil
}

// extend lets f live for hold from now. It needs mu.
func (s *shelf) extend(f *heldFlight) {
	if t := s.now().Add(s.hold); t.After(f.expires) {
		f.expires = t
	}
	if f.expires.After(f.limit) {
		f.expires = f.limit
	}
}

// renew extends the time of a flight and returns when it expires. Its error is errNoFlight.
func (s *shelf) renew(id flightID) (time.Time, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	if f == nil || f.isOver(s.now()) {
		return time.Time{}, errNoFlight
	}
	s.extend(f)
	return f.expires, nil
}

// release takes a flight away, and ends its streams. Its error is errNoFlight.
func (s *shelf) release(id flightID) ([]*heldFlight, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.flights[id]
	if f == nil {
		return nil, errNoFlight
	}
	return s.take(f, errReleased, nil), nil
}

// over takes away the flights whose time is over.
func (s *shelf) over() (ended []*heldFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	for _, f := range s.flights {
		if f.isOver(now) {
			ended = s.take(f, errFlightEnd, ended)
		}
	}
	return ended
}

// clear takes all flights away, for good.
func (s *shelf) clear(cause error) (ended []*heldFlight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for _, f := range s.flights {
		ended = s.take(f, cause, ended)
	}
	return ended
}

// take takes f off the shelf, and appends it to ended where it has no streams. It needs mu.
func (s *shelf) take(f *heldFlight, cause error, ended []*heldFlight) []*heldFlight {
	delete(s.flights, f.id)
	f.gone = true
	f.stop(cause)
	if f.streams > 0 {
		s.ending++
		return ended
	}
	return append(ended, f)
}

// len returns how many flights are held, those too that only streams read.
func (s *shelf) len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.flights) + s.ending
}
