package kafka

import (
	"context"
	"fmt"
	"time"
)

// unrouted reports whether a partition needs its leader now, and if none does,
// when to look again.
func (f *Fetcher) unrouted() (next time.Duration, need bool) {
	next = metadataInterval
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		r.mu.Lock()
		if r.node == anyNode && r.err == nil {
			if wait := r.retryAt.Sub(now); wait <= 0 {
				need = true
			} else {
				next = min(next, wait)
			}
		}
		r.mu.Unlock()
	}
	return next, need
}

// failUnrouted makes err that of the partitions that need their leader now.
func (f *Fetcher) failUnrouted(err error) {
	now := time.Now()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.readers {
		r.mu.Lock()
		if r.node == anyNode && r.err == nil && !r.retryAt.After(now) {
			r.err = err
			r.signal()
		}
		r.mu.Unlock()
	}
}

// refresh asks for the leaders of all partitions, once.
func (f *Fetcher) refresh(ctx context.Context) error {
	f.mu.Lock()
	seen := make(map[string]bool)
	var names []string
	for key := range f.readers {
		if !seen[key.topic] {
			seen[key.topic] = true
			names = append(names, key.topic)
		}
	}
	f.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	rctx, cancel := context.WithTimeout(ctx, f.c.o.RequestTimeout)
	defer cancel()
	got, err := f.c.topicsOnce(rctx, names...)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for name, m := range got.metas {
		if _, ok := f.ids[name]; !ok {
			f.ids[name] = m.ID
		}
	}
	for key, r := range f.readers {
		id := f.route(r, got.metas[key.topic], got.errs[key.topic], f.ids[key.topic])
		if id == anyNode {
			continue
		}
		f.node(ctx, id).signal()
	}
	return nil
}

// node returns the broker of that id, whose loops it starts at the first time. f.mu
// is held.
func (f *Fetcher) node(ctx context.Context, id int32) *leaderNode {
	n := f.nodes[id]
	if n == nil {
		n = &leaderNode{id: id, wake: make(chan struct{}, 1)}
		f.nodes[id] = n
		for range fetchesPerLeader {
			f.loops.Go(func() { f.fetchLoop(ctx, n) })
		}
	}
	return n
}

// route sets the leader of r as the metadata say, and returns it. f.mu is held.
func (f *Fetcher) route(r *PartitionReader, m *topicMeta, e code, want [16]byte) int32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err != nil {
		return anyNode
	}
	now := time.Now()
	// Metadata without an id say nothing of which topic it is.
	untold := m != nil && m.ID == [16]byte{} && want != [16]byte{}
	if m != nil && !untold && m.ID != want {
		r.err = fmt.Errorf("%w: its id is %x, and was %x: its offsets begin again", ErrTopicChanged, m.ID, want)
		r.signal()
		return anyNode
	}
	var l leader
	known := false
	if m != nil && !untold {
		l, known = m.leaders[r.partition]
	}
	if !known {
		if e.auth() {
			r.err = e.denied(needsDescribe)
			r.signal()
			return anyNode
		}
		// A broker that has just started may not know it yet.
		if r.missing.IsZero() {
			r.missing = now
		}
		if now.Sub(r.missing) > f.c.o.RequestTimeout && untold {
			r.err = fmt.Errorf("%w: its id was %x", errUntold, want)
			r.signal()
			return anyNode
		}
		if now.Sub(r.missing) > f.c.o.RequestTimeout {
			r.err = fmt.Errorf("%w, or it has no such partition", ErrTopicNotFound)
			r.signal()
			return anyNode
		}
		r.node, r.replica = anyNode, anyNode
		r.backoff(now)
		return anyNode
	}
	r.missing = time.Time{}
	switch {
	case l.node < 0:
		r.node = anyNode
		r.backoff(now)
	case l.epoch < r.epoch:
		// A broker that lags behind; we have heard of a later leader.
		if r.node == anyNode {
			r.backoff(now)
		}
	default:
		if r.epoch >= 0 && l.epoch > r.epoch {
			f.c.metrics.leaderMoves.Add(1)
			f.logger.Info("partition has a new leader", "topic", r.topic, "partition", r.partition, "node", l.node)
		}
		if l.epoch > r.epoch {
			r.replica = anyNode
			r.unchecked = r.lastEpoch >= 0
		}
		r.node, r.epoch = l.node, l.epoch
	}
	return r.node
}

// backoff sets when the partition is tried again. r.mu is held.
func (r *PartitionReader) backoff(now time.Time) {
	r.failures++
	r.barren = 0
	r.retryAt = now.Add(min(minRetry<<min(r.failures-1, 10), maxRetry))
}
