package kafka

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"
)

// Metrics is a copy of a client's counters. All of them only grow.
type Metrics struct {
	Fetches      int64         // fetch requests that were answered
	FullFetches  int64         // those of them outside of a session, or that began one
	Throttled    time.Duration // that brokers asked to wait for, quotas being exceeded
	FetchedBytes int64         // bytes of record batches in those answers, compressed
	Records      int64         // records handed to readers
	Control      int64         // control batches left out
	Aborted      int64         // records of aborted transactions left out
	Corrupt      int64         // record batches that could not be read
	OutOfRange   int64         // offsets asked for that the log did not hold
	LeaderMoves  int64         // partitions whose leader changed while they were fetched
	Rebalances   int64         // generations that began
	Produced     int64         // records that brokers acknowledged
	Retries      int64         // requests sent again
	// Errors counts error codes of brokers by their name in lower case
	// ("not_leader_or_follower"); "connection" is everything below the
	// protocol.
	Errors map[string]int64
}

// counters are the live side of Metrics.
type counters struct {
	fetches, fullFetches, throttled, fetchedBytes, records, control, aborted, corrupt atomic.Int64
	outOfRange, leaderMoves, rebalances, produced, retries                            atomic.Int64

	mu     sync.Mutex // guards below
	errors map[string]int64
}

func (c *counters) countError(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.errors == nil {
		c.errors = make(map[string]int64)
	}
	c.errors[name]++
}

func (c *counters) snapshot() Metrics {
	m := Metrics{
		Fetches:      c.fetches.Load(),
		FullFetches:  c.fullFetches.Load(),
		Throttled:    time.Duration(c.throttled.Load()),
		FetchedBytes: c.fetchedBytes.Load(),
		Records:      c.records.Load(),
		Control:      c.control.Load(),
		Aborted:      c.aborted.Load(),
		Corrupt:      c.corrupt.Load(),
		OutOfRange:   c.outOfRange.Load(),
		LeaderMoves:  c.leaderMoves.Load(),
		Rebalances:   c.rebalances.Load(),
		Produced:     c.produced.Load(),
		Retries:      c.retries.Load(),
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	m.Errors = maps.Clone(c.errors)
	return m
}
