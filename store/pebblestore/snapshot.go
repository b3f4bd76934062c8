package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/region"
	"sluice/store"
)

// Snapshot is the store between two commits: one iterator that the commit loop
// opened, of which every reader uses a clone. A pebble.Snapshot would not do: a
// rewrite removes what it has not read yet. It implements store.Snapshot.
type Snapshot struct {
	db       *DB
	catalog  *catalog
	sequence uint64
	sources  map[*rowSource]struct{} // under db.mu; nil = closed

	mu   sync.Mutex
	base *pebble.Iterator // nil = closed
}

var _ store.Snapshot = (*Snapshot)(nil)

// Snapshot returns the store as it is between two commits.
func (db *DB) Snapshot(ctx context.Context) (store.Snapshot, error) {
	s := &Snapshot{db: db, sources: map[*rowSource]struct{}{}}
	err := db.exclusive(ctx, HoldSnapshot, func() error {
		it, err := db.pebble.NewIter(nil)
		if err != nil {
			return engineError(err)
		}
		s.base, s.catalog, s.sequence = it, db.catalog.Load(), db.sequence.Load()
		db.mu.Lock()
		defer db.mu.Unlock()
		db.snaps[s] = struct{}{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return s, nil
}

// clone makes an iterator of the snapshot's instant.
func (s *Snapshot) clone(ctx context.Context) iterators {
	return func(o *pebble.IterOptions) (*pebble.Iterator, error) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.base == nil {
			return nil, store.ErrClosed
		}
		return s.base.CloneWithContext(ctx, pebble.CloneOptions{IterOptions: o})
	}
}

// enter begins a call on the snapshot, which its DB must wait for.
func (s *Snapshot) enter() error {
	if err := s.db.enter(); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.base == nil {
		s.db.leave()
		return store.ErrClosed
	}
	return nil
}

// Scan starts a scan of the snapshot.
func (s *Snapshot) Scan(ctx context.Context, scan *store.Scan) store.Scanner {
	if err := s.enter(); err != nil {
		return store.FailedScanner(err)
	}
	defer s.db.leave()
	return s.db.scan(ctx, scan, s.catalog, s.clone(ctx), s)
}

// Table returns the schema at the instant of the snapshot.
func (s *Snapshot) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.db.leave()
	t, err := s.catalog.lookup(name)
	if err != nil {
		return nil, err
	}
	return t.desc, nil
}

// Regions returns the region map at the instant of the snapshot.
func (s *Snapshot) Regions(_ context.Context, name string) (*region.Map, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.db.leave()
	t, err := s.catalog.lookup(name)
	if err != nil {
		return nil, err
	}
	return t.regions, nil
}

// Sequence is the sequence of the last commit that the snapshot contains.
func (s *Snapshot) Sequence() uint64 { return s.sequence }

// Close releases the snapshot; its running scans fail with store.ErrClosed.
func (s *Snapshot) Close() error {
	if err := s.db.enter(); err != nil {
		return nil // the DB has closed it, or is about to
	}
	defer s.db.leave()
	s.db.mu.Lock()
	delete(s.db.snaps, s)
	s.db.mu.Unlock()
	return s.close()
}

func (s *Snapshot) close() error {
	s.mu.Lock()
	base := s.base
	s.base = nil
	s.mu.Unlock()
	if base == nil {
		return nil
	}
	s.db.mu.Lock()
	sources := s.sources
	s.sources = nil
	s.db.mu.Unlock()
	var errs []error
	for src := range sources {
		errs = append(errs, src.abort(store.ErrClosed))
	}
	return errors.Join(append(errs, s.db.closeIterator(base))...)
}

// Checkpoint makes dir hold the store between two commits, mostly by hard links.
// Nothing is committed until it returns.
func (db *DB) Checkpoint(ctx context.Context, dir string) (uint64, error) {
	if _, err := db.opts.FS.Stat(dir); err == nil {
		return 0, fmt.Errorf("checkpoint %s: %w: it exists", dir, store.ErrInvalidArgument)
	}
	var sequence uint64
	err := db.exclusive(ctx, HoldCheckpoint, func() (err error) {
		if err := db.checkSpace(); err != nil {
			return err
		}
		defer db.metrics.checkpointStops.since(time.Now())
		sequence = db.sequence.Load()
		if err := db.writeManifest(ctx); err != nil {
			return err
		}
		half := true // what Pebble has made when it panics
		defer func() {
			if half {
				err = errors.Join(err, db.opts.FS.RemoveAll(dir))
			}
		}()
		return engineError(func() (err error) {
			defer catchDisk(&err)
			err = db.pebble.Checkpoint(dir, pebble.WithFlushedWAL())
			half = false
			return err
		}())
	})
	if err != nil {
		return 0, fmt.Errorf("checkpoint %s: %w", dir, err)
	}
	return sequence, nil
}

// writeManifest has Pebble (v2.1) write a manifest, if it has not since it was opened: of one
// that it has only read it copies nothing into a checkpoint, which nobody can open then. Opening
// flushes what is in the log, and so writes one, but where a process was killed when it had
// opened the store and written nothing. A flush does it, here of a value as it is. The caller
// is the commit loop.
func (db *DB) writeManifest(ctx context.Context) error {
	if db.manifest.Load() {
		return nil
	}
	key := catalogKey(rowStore, qualIdentity)
	value, done, err := db.pebble.Get(key)
	if err != nil {
		return engineError(err)
	}
	err = db.pebble.Set(key, value, pebble.NoSync)
	if err := errors.Join(err, done.Close()); err != nil {
		return engineError(err)
	}
	return db.flushMemTables(ctx)
}
