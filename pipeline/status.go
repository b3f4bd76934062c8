package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// CommitBounds are the upper bounds, in seconds, of the buckets of
// Metrics.Commits; one more bucket holds what is slower.
var CommitBounds = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10}

// Histogram counts durations.
type Histogram struct {
	Counts [len(CommitBounds) + 1]int64 // each duration in one bucket only
	Count  int64
	Sum    float64 // seconds
}

func (h *Histogram) add(d time.Duration) {
	s := d.Seconds()
	i, _ := slices.BinarySearch(CommitBounds[:], s)
	h.Counts[i]++
	h.Count++
	h.Sum += s
}

// PartitionStatus is one partition that this process owns or has owned.
type PartitionStatus struct {
	Topic     string
	Partition int32
	Owned     bool           // assigned to this process now
	Failed    bool           // it was when the pipeline stopped with an error; nobody looks at it since
	Begun     bool           // Progress and the offsets below are known, since it was assigned
	Progress  store.Progress // as stored; Progress.Next is the stored offset
	Position  int64          // next offset to buffer; ≥ Progress.Next
	LogStart  int64          // first offset that Kafka has
	LogEnd    int64          // end of what may be read (last stable offset); as of the last fetch
	Lag       int64          // LogEnd - Progress.Next, not below 0
	Since     int64          // timestamp of the oldest record that waits, ms since the Unix epoch, or the latest time that it is known to be after; 0 = none waits
	Rate      float64        // records applied a second, over about the last ten
	Paused    string         // why it waits; empty = it does not
	Tripped   string         // why its breaker is open, so that it waits (Poison.CloseAfter); empty = it is not
	Redriven  int64          // of Progress.Dead, had their effect after all; looked at now and then
	Purged    int64          // of Progress.Dead, were removed while they were dead; looked at now and then
	Backfill  bool           // it is applied in bulk (Options.Backfill)
	Abandoned int64          // unread offsets of topics that had the name before, as far as is known; since the pipeline was made
}

// Status is a pipeline at one moment.
type Status struct {
	Name    string
	Running bool
	Err     error // why it stopped; nil while it runs and after a stop that was asked for
	// Waiting is why nothing is read: no broker answers, the group is not joined, or a topic
	// cannot be begun. Empty = nothing is known to be in the way.
	Waiting string
	// Unreachable says that Waiting is for a broker that answers.
	Unreachable bool
	Generation  int32 // of the consumer group; -1 = none yet
	MemberID    string
	Partitions  []PartitionStatus // by topic and partition
}

// DeadLetterKey is what dead letters are counted by.
type DeadLetterKey struct {
	Stage string
	Class string
}

// Metrics are totals since the pipeline was made, over all its partitions, and
// gauges. Only what was stored counts.
type Metrics struct {
	Applied, Filtered, Dead, Dropped, Control, Lost int64 // records
	Duplicate                                       int64 // records whose event id was used before
	Unmet                                           int64 // records of which no check held
	Aborted                                         int64 // of Control: records of aborted transactions
	Late                                            int64 // of Applied, Duplicate and Unmet: late events
	Ops                                             buffer.Ops
	Batches                                         int64
	Commits                                         Histogram     // durations of Engine.Apply
	Stale                                           int64         // batches that another owner had overtaken
	Fenced                                          int64         // batches that were not sent for that, or as the partition was taken away
	Held                                            time.Duration // that partitions read nothing as the store, or memory, was busy
	Refusals                                        int64         // records that the store refused
	Pauses                                          int64
	Backfills                                       int64 // times that a partition began to be applied in bulk
	Trips                                           int64 // breakers that have opened
	Rebalances                                      int64
	Relayed                                         int64 // dead letters produced to the topic
	RelayErrors                                     int64
	BufferBytes                                     int64 // buffered, by all users of the memory
	BufferLimit                                     int64
	DeadLetters                                     map[DeadLetterKey]int64
}

// What a pipeline may wait for, before its partitions do.
const (
	waitsForBroker     = iota // any that answers
	waitsForGeneration        // of the group
	waitsForTopic             // one that can be begun
	waits
)

// status is what a pipeline tells about itself.
type status struct {
	mu         sync.Mutex
	running    bool
	stopped    bool
	err        error
	waiting    [waits]error
	generation int32
	memberID   string
	partitions map[partitionKey]*partitionState
	assigned   []*partitionState                  // last
	redrives   map[incarnationKey]buffer.Redriven // what became of dead letters since
	metrics    Metrics
	changed    chan struct{} // closed when something is stored or the pipeline stops
}

type partitionKey struct {
	topic     string
	partition int32
}

// incarnationKey is a partition of a topic that may be created anew.
type incarnationKey struct {
	partitionKey
	topicID [16]byte
}

func newStatus() *status {
	return &status{
		generation: -1,
		partitions: map[partitionKey]*partitionState{},
		metrics:    Metrics{DeadLetters: map[DeadLetterKey]int64{}},
		changed:    make(chan struct{}),
	}
}

// broadcast wakes who waits for a change. The lock is held.
func (s *status) broadcast() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *status) partition(topic string, n int32, poison *Poison) *partitionState {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := partitionKey{topic, n}
	p := s.partitions[k]
	if p == nil {
		p = &partitionState{s: s, breaker: newBreaker(poison), wake: make(chan struct{}, 1), PartitionStatus: PartitionStatus{Topic: topic, Partition: n}}
		s.partitions[k] = p
	}
	return p
}

// asks notes that the store is asked for partitions of a topic. answered is to be called
// when it has answered, whatever that is.
func (s *status) asks(topic string, partitions ...int32) (answered func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range partitions {
		if p := s.partitions[partitionKey{topic, n}]; p != nil {
			p.asked = time.Now()
		}
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, n := range partitions {
			if p := s.partitions[partitionKey{topic, n}]; p != nil {
				p.asked = time.Time{}
			}
		}
	}
}

func (s *status) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = true
}

// awaits notes why one of waits is waited for; nil = it is not.
func (s *status) awaits(what int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting[what] = err
	s.broadcast()
}

func (s *status) stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.stopped, s.err = false, true, err
	s.broadcast()
}

func (s *status) generationBegins(id int32, member string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation, s.memberID = id, member
	s.metrics.Rebalances++
	s.broadcast()
}

// redriven notes what became of the dead letters of each partition since.
func (s *status) redriven(all []buffer.Redriven) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.redrives = make(map[incarnationKey]buffer.Redriven, len(all))
	for _, n := range all {
		s.redrives[incarnationKey{partitionKey{n.Topic, n.Partition}, n.TopicID}] = n
	}
}

// ends notes what the logs of a topic hold.
func (s *status) ends(topic string, id [16]byte, spans map[int32]span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for n, log := range spans {
		if st := s.partitions[partitionKey{topic, n}]; st != nil && st.topicID == id {
			st.LogStart, st.LogEnd = max(st.LogStart, log.start), max(st.LogEnd, log.end)
			st.look()
		}
	}
}

// storedOffsets returns the stored offsets of the assigned partitions.
func (s *status) storedOffsets(assignment map[string][]int32) map[string]map[int32]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]map[int32]int64{}
	for topic, partitions := range assignment {
		for _, n := range partitions {
			st := s.partitions[partitionKey{topic, n}]
			if st == nil || st.Progress == (store.Progress{}) {
				continue
			}
			if out[topic] == nil {
				out[topic] = map[int32]int64{}
			}
			out[topic][n] = st.Progress.Next
		}
	}
	return out
}

// unread returns where the log of a source's partition ended when it was looked at last; -1
// where this process has not seen it.
func (s *status) unread(src *store.Source, n int32) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.partitions[partitionKey{src.Topic, n}]; p != nil && p.topicID == src.TopicID {
		return p.LogEnd
	}
	return -1
}

// abandon notes n unread offsets of a topic that was created anew.
func (s *status) abandon(topic string, partition int32, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.metrics.Lost += n
	if p := s.partitions[partitionKey{topic, partition}]; p != nil {
		p.Abandoned += n
	}
}

// CloseBreakers closes every breaker that is open, as a new start of the process
// would: its partition goes on at the record at which it has opened, counting from
// none. It returns how many partitions that are.
func (p *Pipeline) CloseBreakers() int {
	s := p.status
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for _, st := range s.partitions {
		if st.Tripped == "" {
			continue
		}
		n++
		st.Tripped, st.Paused, st.closed = "", "", true
		select {
		case st.wake <- struct{}{}:
		default:
		}
	}
	s.broadcast()
	return n
}

// Status returns what the pipeline does now. The result is the caller's.
func (p *Pipeline) Status() Status {
	s := p.status
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	out := Status{Name: p.opts.Name, Running: s.running, Err: s.err, Generation: s.generation, MemberID: s.memberID}
	for _, why := range s.waiting {
		if why != nil && !s.stopped {
			out.Waiting = cmp.Or(out.Waiting, why.Error())
			out.Unreachable = out.Unreachable || errors.Is(why, kafka.ErrUnreachable)
		}
	}
	for _, st := range s.partitions {
		ps := st.PartitionStatus
		ps.Lag = max(ps.LogEnd-ps.Progress.Next, 0)
		ps.Rate, ps.Paused = st.rate.value(now), st.paused(now)
		ps.Begun, ps.Since = st.begun, st.waitsSince()
		since := s.redrives[incarnationKey{partitionKey{st.Topic, st.Partition}, st.topicID}]
		ps.Redriven, ps.Purged = since.Applied+since.Filtered, since.PurgedDead
		out.Partitions = append(out.Partitions, ps)
	}
	slices.SortFunc(out.Partitions, func(a, b PartitionStatus) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return out
}

// Metrics returns the pipeline's totals and gauges. The result is the caller's.
func (p *Pipeline) Metrics() Metrics {
	s := p.status
	s.mu.Lock()
	m := s.metrics
	m.DeadLetters = maps.Clone(m.DeadLetters)
	s.mu.Unlock()
	buffered := p.opts.Memory.Buffered()
	m.BufferBytes, m.BufferLimit = buffered.Used(), buffered.Limit()
	return m
}

// WaitStored returns when the stored offset of every partition in ends, by topic,
// has reached the offset given there. Its error wraps ErrStopped where the
// pipeline stops before, and ctx's where that ends. Partitions that this process
// does not own are waited for, too: they must be assigned to it some time.
func (p *Pipeline) WaitStored(ctx context.Context, ends map[string]map[int32]int64) error {
	s := p.status
	for {
		s.mu.Lock()
		missing := ""
		for topic, partitions := range ends {
			for n, end := range partitions {
				st := s.partitions[partitionKey{topic, n}]
				switch {
				case st == nil && end > 0:
					missing = fmt.Sprintf("%s/%d is not begun, offset %d is to come", topic, n, end)
				case st != nil && st.Progress.Next < end:
					missing = fmt.Sprintf("%s/%d is at offset %d of %d", topic, n, st.Progress.Next, end)
				}
			}
		}
		stopped, err, changed := s.stopped, s.err, s.changed
		s.mu.Unlock()
		switch {
		case missing == "":
			return nil
		case stopped && err != nil:
			return fmt.Errorf("%w: %w", ErrStopped, err)
		case stopped:
			return fmt.Errorf("%w: %s", ErrStopped, missing)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the pipeline %s: %s: %w", p.opts.Name, missing, ctx.Err())
		}
	}
}
