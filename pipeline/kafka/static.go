package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// AssignOptions says which partitions to read without a consumer group's leave.
type AssignOptions struct {
	// Topics to read. Required; they must exist.
	Topics []string
	// Partitions of every topic. nil = all, those that are added included.
	Partitions []int32
	// GroupID is the consumer group in whose name offsets are shown to Kafka;
	// it must have no members. "" shows none.
	GroupID string
	// PartitionWatch is the interval at which new partitions are looked for.
	// Default 5 s.
	PartitionWatch time.Duration
	// AwaitTopics and Waiting are as those of GroupOptions.
	AwaitTopics bool
	Waiting     func(err error)
}

// Validate reports what is missing or contradictory.
func (o *AssignOptions) Validate() error {
	switch {
	case len(o.Topics) == 0:
		return errors.New("kafka: static assignment without topics")
	case o.PartitionWatch < 0:
		return errors.New("kafka: static assignment: negative duration")
	}
	seen := make(map[int32]bool)
	for _, p := range o.Partitions {
		if p < 0 || seen[p] {
			return fmt.Errorf("kafka: static assignment: partition %d is negative or named twice", p)
		}
		seen[p] = true
	}
	return nil
}

// Static is an assignment that nobody takes away: its generations end only when
// partitions are added, a function of theirs returns, or it is closed. There is no
// coordinator to wait for, and nobody to take over either. Next is for one
// goroutine.
type Static struct {
	c  *Client
	o  AssignOptions
	id int32 // of the last generation

	mu     sync.Mutex // guards below
	closed bool
	last   *staticGeneration // nil before the first
}

// Assign returns a static assignment. It checks that the topics and partitions
// exist: the error wraps ErrTopicNotFound where one does not.
func (c *Client) Assign(ctx context.Context, o *AssignOptions) (*Static, error) {
	if o == nil {
		o = &AssignOptions{}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Static{c: c, o: *o}
	s.o.Topics, s.o.Partitions = slices.Clone(o.Topics), slices.Clone(o.Partitions)
	slices.Sort(s.o.Partitions)
	if s.o.Waiting == nil {
		s.o.Waiting = func(error) {}
	}
	if s.o.PartitionWatch == 0 {
		s.o.PartitionWatch = 5 * time.Second
	}
	if _, err := s.assignment(ctx); err != nil {
		return nil, fmt.Errorf("assign partitions: %w", err)
	}
	return s, nil
}

// assignment is what is to be read now.
func (s *Static) assignment(ctx context.Context) (Assignment, error) {
	return s.c.Partitions(ctx, s.o.Partitions, s.o.Topics...)
}

// Partitions returns the partitions parts of each of the topics, all that it has where parts
// is nil. Its error is as that of Topic where a topic is not there; where one lacks some of
// parts, it is a *TopicError that wraps ErrTopicNotFound, too, and names them.
func (c *Client) Partitions(ctx context.Context, parts []int32, topics ...string) (Assignment, error) {
	metas, err := c.topicsWith(ctx, parts, topics...)
	if err != nil {
		return nil, err
	}
	a := make(Assignment, len(metas))
	for _, topic := range topics {
		has := metas[topic].Partitions
		if parts == nil {
			a[topic] = slices.Clone(has) // others have the answer, too
			continue
		}
		a[topic] = slices.Clone(parts)
		var missing []string
		for _, p := range parts {
			if _, ok := slices.BinarySearch(has, p); !ok {
				missing = append(missing, strconv.Itoa(int(p)))
			}
		}
		if len(missing) > 0 {
			return nil, &TopicError{topic, fmt.Errorf("%w: %s has no partition %s: it has %d, numbered from 0", ErrTopicNotFound, topic, strings.Join(missing, ", "), len(has))}
		}
	}
	return a, nil
}

// Next returns the first generation at once, and the next one when the last has
// ended and every function of its Run has returned. Brokers that do not answer are
// waited for, and so is one that can be trusted, and a topic that is refused, after the first
// generation. Its error wraps
// ErrTopicNotFound, ErrAuth or ErrTLS, ErrClosed after Close, or is ctx's.
func (s *Static) Next(ctx context.Context) (*Generation, error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	if last != nil {
		select {
		case <-last.done:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a generation: %w", ctx.Err())
		}
		last.running.Wait()
	}
	for warned := false; ; warned = true {
		a, err := s.assignment(ctx)
		switch {
		case err == nil:
			s.o.Waiting(nil)
			return s.begin(a)
		case ctx.Err() != nil:
			return nil, fmt.Errorf("wait for a generation: %w", ctx.Err())
		case lasting(err) && !errors.Is(err, ErrUnreachable) && (last == nil || !s.awaits(err)):
			return nil, fmt.Errorf("assign partitions: %w", err)
		case !warned:
			s.c.o.Logger.Warn("partitions are not known, trying again", "err", err)
		}
		s.o.Waiting(err)
		if err := sleep(ctx, maxRetry); err != nil {
			return nil, fmt.Errorf("wait for a generation: %w", err)
		}
	}
}

// awaits reports whether err, which lasts, is waited out after the first generation.
func (s *Static) awaits(err error) bool {
	return errors.Is(err, ErrTLS) || OfTopic(err) || s.o.AwaitTopics && errors.Is(err, ErrTopicNotFound)
}

// begin begins a generation.
func (s *Static) begin(a Assignment) (*Generation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, fmt.Errorf("static assignment: %w", ErrClosed)
	}
	s.id++
	s.last = &staticGeneration{s: s, done: make(chan struct{})}
	s.last.run(func(ctx context.Context) { s.watch(ctx, a) })
	s.c.metrics.rebalances.Add(1)
	return &Generation{ID: s.id, MemberID: "static", Assignment: a, static: s.last}, nil
}

// watch returns, which ends the generation, when the topics have partitions that it
// has not.
func (s *Static) watch(ctx context.Context, a Assignment) {
	t := time.NewTicker(s.o.PartitionWatch)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		}
		// A topic that is gone is its readers' to report.
		now, err := s.assignment(ctx)
		if err == nil && !maps.EqualFunc(a, now, slices.Equal) {
			return
		}
	}
}

// Close ends the generation and waits for the functions of its Run.
func (s *Static) Close() error {
	s.mu.Lock()
	s.closed = true
	last := s.last
	s.mu.Unlock()
	if last != nil {
		last.end()
		last.running.Wait()
	}
	return nil
}

// staticGeneration is a Generation without a group.
type staticGeneration struct {
	s       *Static
	running sync.WaitGroup

	once sync.Once
	done chan struct{} // closed when the generation has ended
}

func (g *staticGeneration) end() { g.once.Do(func() { close(g.done) }) }

// run is Generation.Run.
func (g *staticGeneration) run(fn func(ctx context.Context)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	g.running.Go(func() {
		defer cancel(nil)
		select {
		case <-g.done:
			cancel(ErrGenerationEnded)
		case <-ctx.Done():
		}
	})
	g.running.Go(func() {
		defer cancel(nil)
		defer g.end()
		select {
		case <-g.done: // fn shall see a ctx that has ended
			cancel(ErrGenerationEnded)
		default:
		}
		fn(ctx)
	})
}

// commit is Generation.Commit: as a consumer that manages its partitions itself.
func (g *staticGeneration) commit(ctx context.Context, offsets map[string]map[int32]int64) error {
	if g.s.o.GroupID == "" {
		return nil
	}
	c := g.s.c
	err := c.attempt(ctx, func(ctx context.Context) error {
		node, err := c.coordinator(ctx, g.s.o.GroupID)
		if err != nil {
			return err
		}
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group = 5, g.s.o.GroupID // 6 would have a leader epoch
		req.Generation = -1
		for topic, parts := range offsets {
			rt := kmsg.NewOffsetCommitRequestTopic()
			rt.Topic = topic
			for p, offset := range parts {
				rp := kmsg.NewOffsetCommitRequestTopicPartition()
				rp.Partition, rp.Offset = p, offset
				rt.Partitions = append(rt.Partitions, rp)
			}
			req.Topics = append(req.Topics, rt)
		}
		resp, err := c.request(ctx, node, req)
		if err != nil {
			return err
		}
		for _, t := range resp.(*kmsg.OffsetCommitResponse).Topics {
			for _, p := range t.Partitions {
				if e := code(p.ErrorCode); e != codeNone {
					return fmt.Errorf("%s/%d: %w", t.Topic, p.Partition, e.deniedCommit())
				}
			}
		}
		return nil
	})
	if e := code(0); errors.As(err, &e) && (e == codeUnknownMemberID || e == codeIllegalGeneration) {
		return fmt.Errorf("commit offsets of group %s, which has members of its own: choose another group id: %w", g.s.o.GroupID, err)
	}
	if err != nil {
		return fmt.Errorf("commit offsets of group %s: %w", g.s.o.GroupID, err)
	}
	return nil
}
