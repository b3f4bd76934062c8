package pipeline

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/memory"
	"sluice/store"
)

// producer sends dead letters to a topic and returns when all replicas have
// them. Its error wraps kafka.ErrTooLarge where the topic does not take one for
// its size.
type producer interface {
	produce(ctx context.Context, topic string, letters []kafka.Message) error
}

// relay sends what is in the outbox to the dead-letter topic, at least once, and
// marks it as sent. It runs beside the partitions: a topic that is down delays
// dead letters and nothing else.
type relay struct {
	engine   store.Engine
	out      producer
	memory   *memory.Share // buffered
	relays   *relays       // on it
	pipeline string
	topic    string
	retry    time.Duration
	log      *slog.Logger
	status   *status

	ring chan struct{}
	mu   sync.Mutex
	due  map[string][]byte // rows to look at: stop → start

	// passed are the rows of letters that failed; they have their next turn
	// after all others. Only run's goroutine uses it.
	passed map[string]struct{}
	// unmarked are the rows of letters that the topic has and that could not be
	// marked: a store that refuses writes for an hour must not fill the topic
	// with copies. Only run's goroutine uses it.
	unmarked map[string]struct{}
}

// wake tells the relay that the outbox may have letters of partition of s from
// offset on. It never blocks; a nil relay does nothing.
func (r *relay) wake(s *store.Source, partition int32, offset int64) {
	if r == nil {
		return
	}
	d := buffer.DeadLetter{Pipeline: s.Pipeline, Topic: s.Topic, TopicID: s.TopicID, Partition: partition, Offset: max(offset, 0)}
	start := d.AppendRow(nil)
	r.look(start, cell.PrefixEnd(start[:len(start)-8]))
}

// wakeAll tells the relay that any partition may have letters. It never blocks; a nil
// relay does nothing.
func (r *relay) wakeAll() {
	if r != nil {
		all := buffer.AppendOutboxPrefix(nil, r.pipeline)
		r.look(all, cell.PrefixEnd(all))
	}
}

// look has the rows [start, stop) looked at.
func (r *relay) look(start, stop []byte) {
	r.add(start, stop)
	select {
	case r.ring <- struct{}{}:
	default:
	}
}

func (r *relay) add(start, stop []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if old, ok := r.due[string(stop)]; !ok || bytes.Compare(start, old) < 0 {
		r.due[string(stop)] = start
	}
}

// run relays until ctx ends. It begins with every letter of the pipeline that an
// earlier process left behind.
func (r *relay) run(ctx context.Context) {
	r.wakeAll()
	wait := r.retry
	var waiting trouble
	for {
		err := r.round(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			if waiting.over() {
				r.log.Info("dead letters are relayed again", "topic", r.topic)
			}
			wait = r.retry
			select {
			case <-r.ring:
			case <-ctx.Done():
				return
			}
		default:
			r.status.relayed(0, 1)
			// That letters are tried again after others says no more than their error did.
			if (waiting.cause == "" || !errors.Is(err, errPassed)) && waiting.news(rootCause(err)) {
				r.log.Warn("dead letters wait in the outbox", "topic", r.topic, "err", err)
			}
			if sleep(ctx, wait) != nil {
				return
			}
			wait = min(2*wait, maxRetryWait)
		}
	}
}

// round looks at all rows that are due. What it could not relay is due again.
func (r *relay) round(ctx context.Context) error {
	r.mu.Lock()
	due := r.due
	r.due = map[string][]byte{}
	r.mu.Unlock()
	failures := 0
	var failure error
	for stop, start := range due {
		if failures < maxFailures {
			from, n, err := r.span(ctx, start, []byte(stop))
			failures += n
			if err == nil {
				continue
			}
			start, failure = from, err
		}
		r.add(start, []byte(stop))
	}
	if failures == 0 || len(r.passed) > maxPassed {
		clear(r.passed) // every other letter has had its turn
	}
	return failure
}

const (
	// maxFailures of single letters end a round: then the topic is down more
	// likely than that so many letters are wrong.
	maxFailures = 2
	// maxPassed bounds the letters that are remembered as having failed.
	maxPassed = 10_000
)

// span relays the letters in [start, stop), but for those that have failed
// since every other one had its turn. Where letters are left, it returns the row
// to begin at the next time, how many failed now, and an error.
func (r *relay) span(ctx context.Context, start, stop []byte) (from []byte, failures int, failure error) {
	left := func(row []byte, err error) {
		if from == nil || bytes.Compare(row, from) < 0 {
			from = row
		}
		failure = err
	}
	need := int64(0)
	for {
		l, err := r.read(ctx, start, stop, need)
		if err != nil {
			left(start, err)
			return from, failures + maxFailures, failure
		}
		if l.passed != nil {
			left(l.passed, l.why)
		}
		failures += r.sendAll(ctx, l.letters, maxFailures-failures, left)
		l.held.Release()
		if l.next == nil || failures >= maxFailures {
			return from, failures, failure
		}
		start, need = l.next, l.need
	}
}

// sendAll sends letters, and calls left with the row of each that is not taken and
// why. It returns how many these are. Where they are most, or ctx has ended, it gives
// up and calls left with the row to begin at.
func (r *relay) sendAll(ctx context.Context, letters []*buffer.DeadLetter, most int, left func(row []byte, err error)) (failures int) {
	for _, some := range together(letters) {
		err := r.send(ctx, some)
		// One letter may be what the topic refuses: the others must not
		// wait for it.
		for i := 0; err != nil && i < len(some); i++ {
			one := err
			if len(some) > 1 {
				one = r.send(ctx, some[i:i+1])
			}
			if one == nil {
				continue
			}
			d := some[i]
			row := d.AppendRow(nil)
			r.passed[string(row)] = struct{}{}
			one = fmt.Errorf("dead letter of %s/%d, offset %d: %w", d.Topic, d.Partition, d.Offset, one)
			left(row, one)
			if failures++; failures >= most || ctx.Err() != nil {
				// What was not tried follows this one, or is in front
				// of it where that was sent apart.
				left(letters[0].AppendRow(nil), one)
				return failures
			}
		}
	}
	return failures
}

// together returns the letters as they are sent: those that may be too large for
// the topic apart, as the others of their batch might be written and sent again.
func together(letters []*buffer.DeadLetter) [][]*buffer.DeadLetter {
	var small []*buffer.DeadLetter
	var apart [][]*buffer.DeadLetter
	for i, d := range letters {
		size := len(d.Key) + len(d.Value)
		for _, h := range d.Headers {
			size += len(h.Key) + len(h.Value)
		}
		if size > firstCut/8 {
			apart = append(apart, letters[i:i+1])
		} else {
			small = append(small, d)
		}
	}
	if len(small) > 0 {
		apart = append(apart, small)
	}
	return apart
}

// errPassed: a letter failed before and is tried again after the others.
var errPassed = errors.New("pipeline: the dead-letter topic did not take some letters")

// send produces letters that the topic may not have, and then marks them all.
func (r *relay) send(ctx context.Context, letters []*buffer.DeadLetter) error {
	if len(letters) == 0 {
		return nil
	}
	rows := make([]string, len(letters))
	var fresh []kafka.Message
	for i, d := range letters {
		rows[i] = string(d.AppendRow(nil))
		if _, ok := r.unmarked[rows[i]]; !ok {
			fresh = append(fresh, letterMessage(d))
		}
	}
	if len(fresh) > 0 {
		err := r.out.produce(ctx, r.topic, fresh)
		if len(letters) == 1 && errors.Is(err, kafka.ErrTooLarge) {
			err = r.sendCut(ctx, letters[0])
		}
		if err != nil {
			return fmt.Errorf("produce %d dead letters to %s: %w", len(fresh), r.topic, err)
		}
	}
	if err := r.mark(ctx, letters); err != nil {
		for _, row := range rows {
			r.unmarked[row] = struct{}{}
		}
		return fmt.Errorf("mark %d dead letters as relayed: %w", len(letters), err)
	}
	for _, row := range rows {
		delete(r.unmarked, row)
	}
	r.status.relayed(int64(len(letters)), 0)
	return nil
}

// mark marks letters as relayed. One that was purged meanwhile must not come back as
// its mark.
func (r *relay) mark(ctx context.Context, letters []*buffer.DeadLetter) error {
	now := time.Now().UnixMilli()
	if r.engine.Traits().Atomic != store.AtomicBatch {
		for _, d := range letters {
			m := d.RelayedMutation(now)
			if _, err := r.engine.MutateRow(ctx, d.There(), &m); err != nil {
				return err
			}
		}
		return nil
	}
	var b store.Batch
	for i, d := range letters {
		b.Record(int64(i), nil, d.There(), d.RelayedMutation(now))
	}
	return r.engine.Apply(ctx, &b)
}

// sendCut produces as much of d as the topic takes.
func (r *relay) sendCut(ctx context.Context, d *buffer.DeadLetter) error {
	for size := min(len(d.Value)/2, firstCut); ; size /= 2 {
		err := r.out.produce(ctx, r.topic, []kafka.Message{cutMessage(d, size)})
		if err == nil {
			r.log.Warn("dead letter is too large for its topic and was cut; the outbox has it whole",
				"topic", d.Topic, "partition", d.Partition, "offset", d.Offset, "bytes", len(d.Value))
		}
		if size < 0 || !errors.Is(err, kafka.ErrTooLarge) {
			return err
		}
		if size == 0 {
			size = -2 // half of it is -1
		}
	}
}

func (s *status) relayed(n, failures int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Relayed += n
	s.metrics.RelayErrors += failures
	s.broadcast()
}
