package pebblestore

import (
	"context"
	"errors"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// filterFill reads the keys of a store that has some into its filters.
type filterFill struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// filterChunk is how many keys go into a filter at once: a tenth of a millisecond of the
// commit loop.
const filterChunk = 1 << 12

// filterSource is keys of which there is a filter.
type filterSource struct {
	what      string
	low, high []byte
	off       bool
	key       func(stored []byte) (filterKey, error)
	add       func(filterKey)
	complete  func()
	it        *pebble.Iterator
}

// filterKey is what a filter knows of a key.
type filterKey struct {
	at   oncePeriod // of an event id
	hash uint64
}

// filterSources returns what has filters.
func (db *DB) filterSources() []*filterSource {
	counters, ids := db.loop.counters.filter, db.loop.onces
	forEver := cell.AppendFamilyPrefix(nil, cell.TagSystem, onceID, systemFamily)
	recent := cell.AppendFamilyPrefix(nil, cell.TagSystem, recentID, systemFamily)
	return []*filterSource{
		{
			what: "counters", low: []byte{cell.TagCounter}, high: []byte{cell.TagCounter + 1}, off: counters.off,
			key:      func(stored []byte) (filterKey, error) { return filterKey{hash: db.loop.counters.hash(stored)}, nil },
			add:      func(k filterKey) { counters.add(k.hash) },
			complete: func() { counters.complete = true },
		},
		{
			what: "event ids", low: forEver, high: cell.PrefixEnd(forEver), off: ids.off,
			key: func(stored []byte) (filterKey, error) {
				id, _, _, err := cell.DecodePart(stored[len(forEver):], nil)
				return filterKey{hash: ids.hash(id)}, err
			},
			add: func(k filterKey) { ids.add(k.at, k.hash) }, complete: func() { ids.complete = true },
		},
		{
			what: "recent event ids", low: recent, high: cell.PrefixEnd(recent), off: ids.off,
			key: func(stored []byte) (filterKey, error) {
				at, id, err := decodeRecent(stored[len(recent):])
				return filterKey{at, ids.hash(id)}, err
			},
			add: func(k filterKey) { ids.add(k.at, k.hash) }, complete: func() { ids.recent = true },
		},
	}
}

// startFilters makes the filters complete: at once where no key of theirs is stored, or
// beside the commits. It is called before the commit loop runs.
func (db *DB) startFilters() (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	db.filling = &filterFill{cancel: cancel, done: make(chan struct{})}
	var left []*filterSource
	for _, s := range db.filterSources() {
		if s.off {
			continue
		}
		if s.it, err = db.pebble.NewIter(&pebble.IterOptions{LowerBound: s.low, UpperBound: s.high}); err == nil && s.it.First() {
			left = append(left, s)
			continue
		}
		if err == nil {
			err = s.it.Close()
		}
		if err != nil {
			break
		}
		s.complete()
	}
	if err != nil || len(left) == 0 {
		for _, s := range left {
			err = errors.Join(err, s.it.Close())
		}
		close(db.filling.done)
		cancel()
		return engineError(err)
	}
	go func() {
		defer close(db.filling.done)
		defer cancel()
		for _, s := range left {
			if err := db.fillFilter(ctx, s); err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrClosed) {
				// Whoever needs what cannot be read is told.
				db.opts.Logger.Warn(s.what+" are looked up one by one: they could not be read at once", "err", err)
			}
		}
	}()
	return nil
}

// fillFilter reads on from the source's iterator, which it closes. What is written meanwhile
// the commits add.
func (db *DB) fillFilter(ctx context.Context, s *filterSource) (err error) {
	defer func() {
		if e := db.closeIterator(s.it); err == nil {
			err = e
		}
	}()
	keys := make([]filterKey, 0, filterChunk)
	take := func(complete bool) error {
		defer func() { keys = keys[:0] }()
		for {
			err := db.exclusive(ctx, HoldFilter, func() error {
				for _, k := range keys {
					s.add(k)
				}
				if complete {
					s.complete()
				}
				return nil
			})
			if !errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrClosed) {
				return err
			}
			// The disk does not answer, and this was not taken.
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second):
			}
		}
	}
	for ok := true; ok; ok = s.it.Next() {
		key, err := s.key(s.it.Key())
		if err != nil {
			return engineError(err)
		}
		if keys = append(keys, key); len(keys) < filterChunk {
			continue
		}
		if err := take(false); err != nil {
			return err
		}
	}
	if err := s.it.Error(); err != nil {
		return engineError(err)
	}
	return take(true)
}

// stop ends the reading.
func (f *filterFill) stop() {
	f.cancel()
	<-f.done
}
