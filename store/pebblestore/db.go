package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/lastknown"
	"sluice/region"
	"sluice/store"
)

// DB is an open store. It implements store.Engine and every optional interface
// of package store.
type DB struct {
	dir    string
	opts   *Options
	log    *pebbleLog
	pebble *pebble.DB
	lock   *pebble.Lock
	cache  *pebble.Cache
	files  *logFiles
	home   *homeFiles // nil where the files are not the operating system's

	pebbleOpts *pebble.Options
	gate       *compactionGate

	catalog  atomic.Pointer[catalog]
	sequence atomic.Uint64 // of the last commit
	metrics  meters
	engine   lastknown.Value[*pebble.Metrics] // Pebble's

	requests chan *request
	watch    *loopWatch
	stop     chan struct{} // closed when the loop is to end
	stopped  chan struct{} // closed when it has

	// swap excludes new iterators while a rewrite replaces a span: Pebble
	// shows one that is made between the two steps of an ingest neither the
	// old keys nor the new. It does the same while the catalog changes.
	swap sync.RWMutex

	rows rowIterators

	packing   packing
	preparing chan *prepared // free ones

	redone    bool          // Open has finished a rewrite that a crash cut short
	rewriting chan struct{} // holds a token while a span is rewritten
	retention *retention
	filling   *filterFill // nil where the directory is only read

	manifest atomic.Bool // Pebble has written one since it was opened
	making   atomic.Bool // the store is new, and what it begins with is flushed

	mu      sync.Mutex
	id      string // of the store
	closed  bool
	ended   chan struct{}  // closed when Close is done
	calls   sync.WaitGroup // running calls; Add under mu, while not closed
	sources map[*rowSource]struct{}
	snaps   map[*Snapshot]struct{}

	loop loopState
}

// loopState is what belongs to the commit loop, and to Open before there is one. Whatever
// else needs it runs in the loop (DB.exclusive); the hashes of counters and event ids, whose
// seeds never change, anybody may take.
type loopState struct {
	counters *counterCache
	onces    *onceFilters
	offsets  map[string]*offset
	commit   commit
	batch    *pebble.Batch // of the last commit, for its memory; nil = none was

	// For flushes and compactions, which tell what was flushed from what was
	// not as HBase does. The keys of written are familyHead's.
	flushed        uint64 // cells up to this sequence are "in files"
	unflushedBytes uint64
	small          smallCommits
	written        map[uint64]*writtenSpan
	late           *lateWrites // of the rewrite that is under way; nil = none
}

var (
	_ store.Engine         = (*DB)(nil)
	_ store.Admin          = (*DB)(nil)
	_ store.TableSwitcher  = (*DB)(nil)
	_ store.Namespacer     = (*DB)(nil)
	_ store.RegionMeter    = (*DB)(nil)
	_ store.Snapshotter    = (*DB)(nil)
	_ store.Checkpointer   = (*DB)(nil)
	_ store.Compactor      = (*DB)(nil)
	_ store.RowMutator     = (*DB)(nil)
	_ store.CounterExpirer = (*DB)(nil)
)

// Open opens the store in dir, which is made where it does not exist (unless
// o.ReadOnly). o may be nil. The error wraps store.ErrLocked where another
// process has dir, store.ErrDiskFull, store.ErrCorrupt, or store.ErrUnsupported
// where a newer program wrote it. Close the DB.
func Open(dir string, o *Options) (*DB, error) {
	if o != nil {
		if err := o.Validate(); err != nil {
			return nil, err
		}
	}
	opts := o.withDefaults()
	db := &DB{
		dir: dir, opts: opts, log: newPebbleLog(opts.Logger),
		requests: make(chan *request, 256), watch: newLoopWatch(opts.Logger), stop: make(chan struct{}), stopped: make(chan struct{}),
		sources: map[*rowSource]struct{}{}, snaps: map[*Snapshot]struct{}{},
		rewriting: make(chan struct{}, 1), ended: make(chan struct{}),
		loop: loopState{
			counters: newCounterCache(opts.CounterCacheEntries, opts.CounterFilterBytes), onces: newOnceFilters(opts.OnceFilterBytes),
			offsets: map[string]*offset{}, written: map[uint64]*writtenSpan{},
		},
	}
	db.rows.open = func() (*pebble.Iterator, error) {
		return db.newIterator(context.Background(), &pebble.IterOptions{UseL6Filters: true})
	}
	db.rows.closing = db.closeIterator
	db.packing.seed = maphash.MakeSeed()
	db.retention = newRetention(db)
	db.preparing = newPreparing(&db.packing)
	db.loop.commit.db, db.loop.commit.readRow, db.loop.commit.packing = db, db.loop.commit.read, &db.packing
	if err := db.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), db.release())
	}
	if !opts.ReadOnly {
		if err := db.startFilters(); err != nil {
			return nil, errors.Join(fmt.Errorf("open store %s: %w", dir, err), db.release())
		}
	}
	go db.run()
	if !opts.ReadOnly && opts.RewriteInterval > 0 {
		db.retention.start(opts.RewriteInterval)
	}
	return db, nil
}

func (db *DB) open() error {
	fsys := db.opts.FS
	if !db.opts.ReadOnly {
		if err := makeDir(fsys, db.dir); err != nil {
			return diskError(err)
		}
		if err := db.checkSpace(); err != nil {
			return err
		}
	} else if _, err := fsys.Stat(db.dir); err != nil {
		return diskError(err)
	}
	lock, err := pebble.LockDirectory(db.dir, fsys)
	if err != nil {
		if e := diskError(err); errors.Is(e, store.ErrDiskFull) || errors.Is(e, fs.ErrPermission) || errors.Is(e, fs.ErrNotExist) {
			return e
		}
		return fmt.Errorf("%w: stop it, or use it through its address (%w)", store.ErrLocked, err)
	}
	db.lock = lock
	if fsys == vfs.Default {
		if db.home, err = newHomeFiles(fsys, db.dir, db.log); err != nil {
			return diskError(err)
		}
		fsys = db.home
		db.opts.FS = fsys
	}
	names, err := fsys.List(db.dir)
	if err != nil {
		return diskError(err)
	}
	if err := db.checkManifest(names); err != nil {
		return err
	}
	if err := db.checkLog(names); err != nil {
		return err
	}
	po := db.opts.pebbleOptions(db.log)
	db.cache = po.Cache
	po.Lock = lock
	kept := &keptFiles{FS: fsys}
	db.files = &logFiles{FS: kept, dir: db.dir, log: db.log}
	po.FS = db.files
	db.gate = newCompactionGate()
	db.gate.pause = db.log.pause
	po.Experimental.CompactionScheduler = db.gate
	flushed := po.EventListener.FlushEnd
	po.EventListener.FlushEnd = func(i pebble.FlushInfo) {
		if flushed(i); i.Err == nil && !db.making.Load() {
			db.gate.gather(i.InputBytes)
		}
	}
	po.EventListener.ManifestCreated = func(i pebble.ManifestCreateInfo) {
		if i.Err == nil {
			db.manifest.Store(true)
		}
	}
	po.EnsureDefaults()
	db.pebbleOpts = po
	if db.pebble, err = db.log.begin(func() (*pebble.DB, error) { return pebble.Open(db.dir, po) }); err != nil {
		return diskError(err)
	}
	db.files.opened.Store(true)
	if !db.opts.ReadOnly {
		// What a rewrite has left behind that a crash cut short.
		if err := fsys.Remove(fsys.PathJoin(db.dir, rewriteFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return diskError(err)
		}
		if err := db.removeBulkFiles(); err != nil {
			return err
		}
	}
	if err := db.redo(); err != nil {
		return err
	}
	if err := db.load(!slices.ContainsFunc(names, isTable)); err != nil || db.opts.ReadOnly {
		return err
	}
	if err := kept.remove(); err != nil {
		return diskError(err)
	}
	return db.forgetOnces()
}

// makeDir makes dir and what is missing above it, so that all of them survive a
// power failure: what is synced inside a directory does not name the directory.
func makeDir(fsys vfs.FS, dir string) error {
	var parents []string
	for at := dir; ; {
		if _, err := fsys.Stat(at); err == nil {
			break
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		parent := fsys.PathDir(at)
		if parents = append(parents, parent); parent == at || parent == "." {
			break
		}
		at = parent
	}
	if err := fsys.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	for _, parent := range parents {
		d, err := fsys.OpenDir(parent)
		if err != nil {
			return err
		}
		if err := errors.Join(d.Sync(), d.Close()); err != nil {
			return err
		}
	}
	return nil
}

// release gives back what open took.
func (db *DB) release() error {
	var errs []error
	if db.pebble != nil {
		db.files.opened.Store(false)
		errs = append(errs, engineError(db.pebble.Close()))
	}
	if db.lock != nil {
		errs = append(errs, db.lock.Close())
	}
	if db.cache != nil {
		db.cache.Unref()
	}
	return errors.Join(errs...)
}

// Traits says that batches are atomic and, unless commits are not synced,
// durable.
func (db *DB) Traits() store.Traits {
	return store.Traits{Name: "pebble", Atomic: store.AtomicBatch, Durable: db.opts.Sync == SyncCommits}
}

// Close waits for running calls, fails open scans and snapshots with
// store.ErrClosed, and closes the directory. Every later call fails with
// store.ErrClosed.
func (db *DB) Close() error {
	db.mu.Lock()
	if db.closed {
		db.mu.Unlock()
		<-db.ended
		return nil
	}
	db.closed = true
	db.mu.Unlock()
	defer close(db.ended)
	defer db.watch.close()
	if err := db.log.failure(); err != nil {
		return err // Pebble is stuck for good; only the process can let go of it
	}
	db.retention.stop()
	if db.filling != nil {
		db.filling.stop()
	}
	db.calls.Wait()
	close(db.stop)
	<-db.stopped
	db.mu.Lock()
	sources, snaps := db.sources, db.snaps
	db.sources, db.snaps = nil, nil
	db.mu.Unlock()
	var errs []error
	for s := range sources {
		errs = append(errs, s.abort(store.ErrClosed))
	}
	for s := range snaps {
		errs = append(errs, s.close())
	}
	db.rows.close()
	return errors.Join(append(errs, db.release())...)
}

// closeIterator closes an iterator, or leaves it open where Pebble is stuck, which may hold
// for good what the close waits for.
func (db *DB) closeIterator(it *pebble.Iterator) error {
	if err := db.log.failure(); err != nil {
		return err
	}
	return engineError(it.Close())
}

// enter begins a call, unless the store is closed or Pebble stuck; leave ends it.
func (db *DB) enter() error {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.closed {
		return store.ErrClosed
	}
	if err := db.log.failure(); err != nil {
		return err // Pebble's locks may be held for good
	}
	db.calls.Add(1)
	return nil
}

func (db *DB) leave() { db.calls.Done() }

// Table returns the schema of a table.
func (db *DB) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err != nil {
		return nil, err
	}
	return t.desc, nil
}

// CountsFrom implements store.CounterExpirer.
func (db *DB) CountsFrom(name, family string) cell.Timestamp {
	if t, err := db.catalog.Load().lookup(name); err == nil {
		if f, i := t.family(family); i >= 0 {
			return expiredUntil(f.desc, db.opts.Now())
		}
	}
	return noTime
}

// Regions returns the region map of a table.
func (db *DB) Regions(_ context.Context, name string) (*region.Map, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err != nil {
		return nil, err
	}
	return t.regions, nil
}

// Scan starts s on the store as it is now, between two commits.
func (db *DB) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if err := db.enter(); err != nil {
		return store.FailedScanner(err)
	}
	defer db.leave()
	for {
		c := db.catalog.Load()
		sc := db.scan(ctx, s, c, db.liveIterators(ctx), nil)
		if db.catalog.Load() == c {
			return sc
		}
		_ = sc.Close() // its iterators may be of the next catalog, in which a family has other keys
	}
}

func (db *DB) scan(ctx context.Context, s *store.Scan, c *catalog, open iterators, snap *Snapshot) store.Scanner {
	t, err := c.lookup(s.Table)
	if err != nil {
		return store.FailedScanner(err)
	}
	if err := t.served(); err != nil && snap == nil {
		return store.FailedScanner(fmt.Errorf("scan: %w", err))
	}
	sel, err := store.NewSelection(s, t.desc)
	if err != nil {
		return store.FailedScanner(err)
	}
	if !sel.Empty() {
		t.load.Read(sel.Rows(), int64(db.opts.Now()))
	}
	var found *foundRow
	if snap == nil && !sel.Empty() && sel.Rows().OneRow() && ctx.Err() == nil {
		if found, err = db.findRow(t, sel); found == nil {
			return store.FailedScanner(err) // nil where there is no such row
		}
	}
	src, err := newRowSource(ctx, t, sel, db.opts.Now(), found, open, db.closeIterator)
	if err != nil {
		return store.FailedScanner(err)
	}
	src.release = func() {
		db.mu.Lock()
		delete(db.sources, src)
		if snap != nil {
			delete(snap.sources, src)
		}
		db.mu.Unlock()
	}
	db.mu.Lock()
	closed := snap != nil && snap.sources == nil // since its iterators were made
	if !closed {
		db.sources[src] = struct{}{}
		if snap != nil {
			snap.sources[src] = struct{}{}
		}
	}
	db.mu.Unlock()
	if closed {
		return store.FailedScanner(errors.Join(fmt.Errorf("scan %s: %w", s.Table, store.ErrClosed), src.Close()))
	}
	return store.NewScanner(ctx, sel, src)
}
