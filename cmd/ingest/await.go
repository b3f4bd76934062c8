package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sluice/config"
	"sluice/pipeline/kafka"
)

// kafkaStart is what the pipelines wait for before they run: a broker that answers, and
// each of them its topics, with the partitions that it names.
type kafkaStart struct {
	client *kafka.Client
	log    *slog.Logger
	topics map[string][]string // by pipeline
	parts  map[string][]int32  // likewise: those that its static assignment names, of each topic; nil = all
	// timeout is for the topics, once a broker answers; where exit is set, for the
	// broker as well.
	timeout time.Duration
	exit    bool

	mu     sync.Mutex          // guards below
	broker error               // why no broker has answered yet; nil = one has, or nobody has asked yet
	stands map[string]standing // by pipeline
}

// standing is how far a pipeline is.
type standing struct {
	state startState
	why   error // it does not run
}

type startState int

const (
	trying startState = iota // its topics, or is yet to
	late                     // the same, timeout after it has begun
	running
	ended
)

func newKafkaStart(c *kafka.Client, cfg *config.Config, log *slog.Logger) *kafkaStart {
	s := &kafkaStart{client: c, log: log, topics: map[string][]string{}, parts: map[string][]int32{}, stands: map[string]standing{}, timeout: cfg.Kafka.StartTimeout, exit: cfg.Kafka.ExitIfUnreachable}
	for _, name := range cfg.PipelineNames() {
		p := cfg.Pipelines[name]
		s.topics[name], s.parts[name] = p.Topics, p.KafkaPartitions()
	}
	return s
}

// waiting returns why a pipeline was not begun, nil where it was, or nobody has asked yet;
// and whether it never will be.
func (s *kafkaStart) waiting(pipeline string) (why error, never bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.broker != nil {
		return s.broker, false
	}
	p := s.stands[pipeline]
	return p.why, p.why != nil && p.state == ended
}

func (s *kafkaStart) waitsForBroker(why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.broker = why
}

func (s *kafkaStart) note(pipeline string, state startState, why error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stands[pipeline] = standing{state, why}
}

// idle reports whether no pipeline runs, nor is soon to.
func (s *kafkaStart) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name := range s.topics {
		if state := s.stands[name].state; state == trying || state == running {
			return false
		}
	}
	return true
}

// Times between two tries: where all wait, and where one pipeline does beside others. A
// topic that is missing has the names of all asked for, to tell those that are near.
const (
	startPause   = 500 * time.Millisecond
	lastingPause = 5 * time.Second
)

// topicReminder is how often it is said again that a topic is waited for.
const topicReminder = 5 * time.Minute

// errStartTimeout is the cause of the end of a context.
var errStartTimeout = errors.New("kafka.start_timeout is over")

// awaitBroker waits for a broker that answers, as long as it takes unless exit is set.
// Brokers that refuse this client end it at once.
func (s *kafkaStart) awaitBroker(ctx context.Context) error {
	var all []string
	for _, topics := range s.topics {
		all = append(all, topics...)
	}
	if s.exit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, errStartTimeout)
		defer cancel()
	}
	defer s.waitsForBroker(nil)
	var last error // but what only says that ctx has ended
	for {
		err := s.client.Await(ctx, func(ctx context.Context) error {
			_, err := s.client.Topics(ctx, all...)
			return err
		}, func(err error) {
			if err != nil {
				last = err
			}
			s.waitsForBroker(err)
		})
		_, answered := errors.AsType[*kafka.TopicError](err)
		switch {
		case err == nil, answered:
			return nil
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStartTimeout):
			return ctx.Err()
		case ctx.Err() != nil:
			if last == nil {
				last = fmt.Errorf("%w: %w", kafka.ErrUnreachable, err)
			}
			return s.gaveUp(last)
		case !kafka.Temporary(err):
			return err // a wrong password that is sent again and again locks accounts
		}
		last = err
		pause(ctx, startPause)
	}
}

// awaitTopics waits for the topics of a pipeline, which is taken for running then, until it
// is noted to have ended: as long as another one runs, and for timeout otherwise. Brokers
// that refuse this client end it at once.
func (s *kafkaStart) awaitTopics(ctx context.Context, pipeline string) error {
	err := s.tryTopics(ctx, pipeline)
	switch {
	case err == nil:
		s.note(pipeline, running, nil)
	case ctx.Err() == nil:
		s.note(pipeline, ended, err)
	}
	return err
}

func (s *kafkaStart) tryTopics(ctx context.Context, pipeline string) error {
	begun := time.Now()
	state, wait := trying, startPause
	var said string
	var warned time.Time
	for ; ; pause(ctx, wait) {
		err := s.client.Await(ctx, func(ctx context.Context) error {
			_, err := s.client.Partitions(ctx, s.parts[pipeline], s.topics[pipeline]...)
			return err
		}, func(err error) {
			s.note(pipeline, state, err)
			if err != nil {
				begun = time.Now() // the timeout is for the topics alone
			}
		})
		_, answered := errors.AsType[*kafka.TopicError](err)
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil:
			return ctx.Err()
		case !answered && !kafka.Temporary(err):
			return err
		}
		if time.Since(begun) >= s.timeout {
			state, wait = late, lastingPause
		}
		s.note(pipeline, state, err)
		if state == late && s.idle() {
			return s.gaveUp(err)
		}
		if text := err.Error(); text != said || time.Since(warned) >= topicReminder {
			s.log.Warn("a topic cannot be described, waiting for it", "pipeline", pipeline, "err", err)
			said, warned = text, time.Now()
		}
	}
}

// pause waits for d before the next try, which says so where ctx has ended.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

func (s *kafkaStart) gaveUp(last error) error {
	if errors.Is(last, kafka.ErrTopicNotFound) {
		last = fmt.Errorf("%w; create it, or correct the pipeline's topics or partitions", last)
	}
	return fmt.Errorf("not ready within kafka.start_timeout (%s): %w", s.timeout, last)
}
