package pipeline

import (
	"context"
	"errors"
	"fmt"
	"time"

	"sluice/pipeline/buffer"
	"sluice/store"
)

// applied is the outcome of one batch.
type applied struct {
	buffer.Summary
	took time.Duration
	err  error // errDropped where an earlier batch failed
}

// errDropped is the outcome of a batch behind one that was not applied.
var errDropped = errors.New("pipeline: an earlier batch was not applied")

// chain applies the batches of one partition one after the other, in the order
// given, while the next ones are filled. After the first error it drops what
// waits: those batches continue one that is not there.
//
// Batches are not applied side by side, because two calls of Engine.Apply may
// reach the engine in either order. The engine's own queue is fed by the other
// partitions meanwhile.
type chain struct {
	pending chan *buffer.Batch
	results chan applied
	waiting int // handed over, result not yet received
	limit   int
	create  func(ctx context.Context, table string) error // Options.CreateTable
	asks    func() (answered func())                      // is told of each call of Apply
}

// newChain starts a chain of at most limit batches. ctx bounds its calls of
// Apply; close ends it.
func newChain(ctx context.Context, e store.Engine, limit int, create func(ctx context.Context, table string) error, asks func() (answered func())) *chain {
	c := &chain{
		create:  create,
		asks:    asks,
		pending: make(chan *buffer.Batch, limit),
		results: make(chan applied, limit),
		limit:   limit,
	}
	go c.apply(ctx, e)
	return c
}

func (c *chain) apply(ctx context.Context, e store.Engine) {
	defer close(c.results)
	failed := false
	for b := range c.pending {
		r := applied{Summary: b.Summary, err: errDropped}
		if !failed {
			start := time.Now()
			answered := c.asks()
			r.err = c.applyBatch(ctx, e, &b.Store)
			answered()
			r.took = time.Since(start)
			failed = r.err != nil
			r.Unapplied = b.Store.Unapplied
		}
		// Released here and not by the worker, which may be waiting for just
		// this memory.
		b.Release()
		c.results <- r
	}
}

// applyBatch applies b, after creating the tables that it lacks and that may be
// created. A refused batch has changed nothing.
func (c *chain) applyBatch(ctx context.Context, e store.Engine, b *store.Batch) error {
	return creating(ctx, c.create, func() error { return e.Apply(ctx, b) })
}

// creating calls apply, and again where it lacks tables that create makes. create may be
// nil.
func creating(ctx context.Context, create func(ctx context.Context, table string) error, apply func() error) error {
	asked := map[string]bool{}
	for {
		err := apply()
		var refusal *store.BatchError
		if create == nil || !errors.As(err, &refusal) {
			return err
		}
		created := false
		for i := range refusal.Refused {
			r := &refusal.Refused[i]
			if asked[r.Table] || !errors.Is(r.Err, store.ErrTableNotFound) {
				continue
			}
			asked[r.Table] = true
			switch why := create(ctx, r.Table); {
			case why == nil:
				created = true
			case !errors.Is(why, store.ErrTableNotFound):
				return fmt.Errorf("create table %s: %w", r.Table, why)
			}
		}
		if !created {
			return err
		}
	}
}

// full reports whether a batch must end before the next is handed over.
func (c *chain) full() bool { return c.waiting == c.limit }

// add hands b over. The chain must not be full.
func (c *chain) add(b *buffer.Batch) {
	c.waiting++
	c.pending <- b // has room for limit batches
}

// close takes no more batches and calls each with the outcome of those that
// are still under way.
func (c *chain) close(each func(applied)) {
	close(c.pending)
	for r := range c.results {
		c.waiting--
		each(r)
	}
}
