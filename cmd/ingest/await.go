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
// their topics.
type kafkaStart struct {
	client *kafka.Client
	log    *slog.Logger
	topics []string
	// timeout is for the topics, once a broker answers; where exit is set, for the
	// broker as well.
	timeout time.Duration
	exit    bool

	mu  sync.Mutex // guards below
	why string     // no broker has answered yet; empty = one has, or nobody has asked yet
}

func newKafkaStart(c *kafka.Client, cfg *config.Config, log *slog.Logger) *kafkaStart {
	s := &kafkaStart{client: c, log: log, timeout: cfg.Kafka.StartTimeout, exit: cfg.Kafka.ExitIfUnreachable}
	for _, name := range cfg.PipelineNames() {
		s.topics = append(s.topics, cfg.Pipelines[name].Topics...)
	}
	return s
}

// waiting returns why no broker has answered yet, empty where one has.
func (s *kafkaStart) waiting() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.why
}

func (s *kafkaStart) wait(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.why = ""
	if err != nil {
		s.why = err.Error()
	}
}

// errStartTimeout is the cause of the end of a context.
var errStartTimeout = errors.New("kafka.start_timeout is over")

// await waits for a broker that answers, as long as it takes unless exit is set, and
// then for the topics. Brokers that refuse this client end it at once.
func (s *kafkaStart) await(ctx context.Context) error {
	if len(s.topics) == 0 {
		return nil
	}
	defer s.wait(nil)
	if s.exit {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, s.timeout, errStartTimeout)
		defer cancel()
	}
	var last error         // but what only says that ctx has ended
	var answered time.Time // since when a broker answers; zero = it does not
	var warned string      // of a missing topic; empty = not yet
	for {
		err := s.client.Await(ctx, func(ctx context.Context) error {
			_, err := s.client.Topics(ctx, s.topics...)
			return err
		}, func(err error) {
			if err != nil {
				last, answered = err, time.Time{}
			}
			s.wait(err)
		})
		switch {
		case err == nil:
			return nil
		case ctx.Err() != nil && !errors.Is(context.Cause(ctx), errStartTimeout):
			return ctx.Err()
		case ctx.Err() != nil:
			if last == nil {
				last = fmt.Errorf("%w: %w", kafka.ErrUnreachable, err)
			}
			return s.gaveUp(last)
		case !errors.Is(err, kafka.ErrTopicNotFound) && !kafka.Temporary(err):
			return err // a wrong password that is sent again and again locks accounts
		}
		last = err
		if answered.IsZero() {
			answered = time.Now()
		}
		if time.Since(answered) >= s.timeout {
			return s.gaveUp(last)
		}
		if text := err.Error(); errors.Is(err, kafka.ErrTopicNotFound) && text != warned {
			s.log.Warn("a topic is missing, waiting for it", "at_most", s.timeout, "err", err)
			warned = text
		}
		pause := time.NewTimer(500 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done(): // the next try says so
		}
		pause.Stop()
	}
}

func (s *kafkaStart) gaveUp(last error) error {
	if errors.Is(last, kafka.ErrTopicNotFound) {
		last = fmt.Errorf("%w; create it, or correct the pipeline's topics", last)
	}
	return fmt.Errorf("not ready within kafka.start_timeout (%s): %w", s.timeout, last)
}
