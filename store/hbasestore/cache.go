package hbasestore

import (
	"context"
	"sync"
	"time"
)

// cache keeps what was loaded by the name of its table, for a time.
type cache[V any] struct {
	maxAge time.Duration
	load   func(ctx context.Context, table string) (V, error)

	mu      sync.Mutex // guards what follows
	entries map[string]cached[V]
	changes int // calls of forget: what was loaded before one is not kept after it
	loads   int // that were begun
}

type cached[V any] struct {
	value V
	at    time.Time
	load  int // its number, counted from 1
}

func newCache[V any](maxAge time.Duration, load func(context.Context, string) (V, error)) *cache[V] {
	return &cache[V]{maxAge: maxAge, load: load, entries: map[string]cached[V]{}}
}

// get returns what is known of table, loaded where it is too old. fresh says that
// it was loaded by this call.
func (c *cache[V]) get(ctx context.Context, table string) (v V, fresh bool, err error) {
	return c.since(ctx, table, c.mark())
}

// mark is now, for since.
func (c *cache[V]) mark() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.loads
}

// since is get for one of several that share what they find out: fresh says that it was
// loaded after mark.
func (c *cache[V]) since(ctx context.Context, table string, mark int) (v V, fresh bool, err error) {
	c.mu.Lock()
	e, ok := c.entries[table]
	changes := c.changes
	old := !ok || time.Since(e.at) >= c.maxAge
	if old {
		c.loads++
	}
	load := c.loads
	c.mu.Unlock()
	if !old {
		return e.value, e.load > mark, nil
	}
	at := time.Now()
	if v, err = c.load(ctx, table); err != nil {
		return v, true, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if changes == c.changes {
		c.entries[table] = cached[V]{v, at, load}
	}
	return v, true, nil
}

// forget drops what is known of table.
func (c *cache[V]) forget(table string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	delete(c.entries, table)
}

// known returns what is known of table, however old; ok = something is.
func (c *cache[V]) known(table string) (v V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e, ok := c.entries[table]
	return e.value, ok
}
