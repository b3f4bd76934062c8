package kafka

import (
	"maps"
	"slices"
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
	// FetchSeconds are the times from a fetch request to its answer, the wait for
	// records at the broker (FetchOptions.MaxWait) included.
	FetchSeconds Histogram
}

// FetchBounds are the upper bounds, in seconds, of the buckets of
// Metrics.FetchSeconds; one more bucket holds what is slower.
var FetchBounds = [...]float64{0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10}

// Histogram counts durations.
type Histogram struct {
	Counts [len(FetchBounds) + 1]int64 // each duration in one bucket only
	Count  int64
	Sum    float64 // seconds
}

// counters are the live side of Metrics.
type counters struct {
	fetches, fullFetches, throttled, fetchedBytes, records, control, aborted, corrupt atomic.Int64
	outOfRange, leaderMoves, rebalances, produced, retries                            atomic.Int64

	mu           sync.Mutex // guards below
	errors       map[string]int64
	fetchSeconds Histogram
}

// fetched counts a fetch request that was answered after d.
func (c *counters) fetched(d time.Duration) {
	s := d.Seconds()
	i, _ := slices.BinarySearch(FetchBounds[:], s)
	c.mu.Lock()
	defer c.mu.Unlock()
	h := &c.fetchSeconds
	h.Counts[i]++
	h.Count++
	h.Sum += s
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
	m.Errors, m.FetchSeconds = maps.Clone(c.errors), c.fetchSeconds
	return m
}
