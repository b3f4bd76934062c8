package pebblestore

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// States of a request.
const (
	requestWaiting int32 = iota
	requestTaken
	requestAbandoned
)

// request is one call that the commit loop answers. Exactly one of batch, rows
// and alone is set.
type request struct {
	state atomic.Int32
	done  chan struct{}
	err   error

	batch    *store.Batch
	prepared *prepared       // of batch; nil = it is not
	dropped  store.Unapplied // of batch

	rows    []*cell.Mutation
	cond    *store.Cond
	results []store.Result
	errs    []error

	// alone runs between two commits, with the loop to itself, which it holds for kind.
	alone func() error
	kind  HoldKind
}

// events is how much the request adds to a commit.
func (r *request) events() int {
	if r.batch != nil {
		return len(r.batch.Puts) + len(r.batch.Mutations) + len(r.batch.Counters) + len(r.batch.Records) + 1
	}
	return len(r.rows)
}

func (r *request) finish(err error) {
	r.err = err
	close(r.done)
}

// withdraw takes r back from the loop, unless the loop has taken it.
func (r *request) withdraw() bool {
	return r.state.CompareAndSwap(requestWaiting, requestAbandoned) || r.state.Load() == requestAbandoned
}

// fatalGrace is how long a caller waits for its request after the engine has
// stopped: long enough for a commit that was under way elsewhere to end.
const fatalGrace = time.Second

// submit has the commit loop answer r, unless ctx is done or the loop is stalled. A request
// that the loop has begun is waited for even then: only its outcome is the truth, and the
// loop reads the caller's slices until then.
func (db *DB) submit(ctx context.Context, r *request) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if err := ctx.Err(); err != nil { // else the loop, where it is idle, may take r all the same
		return fmt.Errorf("wait for the commit loop: %w", err)
	}
	if err := db.log.failure(); err != nil {
		return err
	}
	r.done = make(chan struct{})
	stalled := db.watch.waiting()
	refuse := func() error {
		db.metrics.commitsRefused.Add(1)
		return stalled.err()
	}
	select {
	case db.requests <- r:
	case <-stalled.begun:
		return refuse()
	case <-ctx.Done():
		return fmt.Errorf("wait for the commit loop: %w", ctx.Err())
	case <-db.log.failed:
		return db.log.err
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.withdraw() {
			return fmt.Errorf("wait for the commit loop: %w", ctx.Err())
		}
	case <-stalled.begun:
		if r.withdraw() {
			return refuse()
		}
	case <-db.log.failed:
	}
	select {
	case <-r.done:
		return r.err
	case <-db.log.failed:
	}
	grace := time.NewTimer(fatalGrace)
	defer grace.Stop()
	select {
	case <-r.done:
		return r.err
	case <-grace.C:
		return db.log.err
	}
}

// Apply applies all of b, or none of it.
func (db *DB) Apply(ctx context.Context, b *store.Batch) error {
	if b.Empty() {
		if err := db.enter(); err != nil {
			return err
		}
		db.leave()
		return nil
	}
	if db.opts.ReadOnly {
		return fmt.Errorf("apply batch: %w", store.ErrReadOnly)
	}
	r := &request{batch: b, prepared: db.prepare(b)}
	if err := db.submit(ctx, r); err != nil {
		if r.withdraw() {
			db.recycle(r)
		}
		return err
	}
	b.Unapplied = r.dropped
	return nil
}

// MutateRow applies m to its row if cond is nil or holds.
func (db *DB) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if db.opts.ReadOnly {
		return store.Result{}, fmt.Errorf("mutate row: %w", store.ErrReadOnly)
	}
	r := &request{cond: cond, rows: []*cell.Mutation{m}, results: make([]store.Result, 1), errs: make([]error, 1)}
	if err := db.submit(ctx, r); err != nil {
		return store.Result{}, err
	}
	return r.results[0], r.errs[0]
}

// MutateRows applies ms in order in one commit; each has its own outcome.
func (db *DB) MutateRows(ctx context.Context, ms []*cell.Mutation) ([]store.Result, []error) {
	r := &request{rows: ms, results: make([]store.Result, len(ms)), errs: make([]error, len(ms))}
	var err error
	switch {
	case db.opts.ReadOnly:
		err = fmt.Errorf("mutate rows: %w", store.ErrReadOnly)
	case len(ms) > 0:
		err = db.submit(ctx, r)
	}
	if err == nil {
		return r.results, r.errs
	}
	// The loop may still hold r's slices where the engine has stopped.
	results, errs := make([]store.Result, len(ms)), make([]error, len(ms))
	for i := range errs {
		errs[i] = err
	}
	return results, errs
}

// exclusive runs f in the commit loop, between two commits; kind says what for.
func (db *DB) exclusive(ctx context.Context, kind HoldKind, f func() error) error {
	return db.submit(ctx, &request{alone: f, kind: kind})
}

// run is the commit loop. Whatever waits when a commit has returned is the next
// commit: load makes commits large, not a timer.
func (db *DB) run() {
	defer close(db.stopped)
	var group []*request
	var next *request
	for {
		if next == nil {
			select {
			case next = <-db.requests:
			case <-db.stop:
				return
			}
		}
		if next.alone != nil {
			if next.state.CompareAndSwap(requestWaiting, requestTaken) {
				db.rows.writing()
				db.watch.begin(next.kind)
				err := next.alone()
				db.metrics.holds[next.kind].observe(db.watch.end())
				db.rows.written()
				next.finish(err)
			}
			next = nil
			continue
		}
		group, next = db.gather(group[:0], next)
		if len(group) > 0 {
			db.commitGroup(group)
		}
	}
}

// gather takes first and what waits behind it, up to the limit of a commit or a
// request that needs the loop for itself, which it returns.
func (db *DB) gather(group []*request, first *request) (_ []*request, rest *request) {
	events, limit := 0, db.opts.MaxCommitEvents
	for r := first; ; {
		if r.alone != nil {
			return group, r
		}
		if r.state.CompareAndSwap(requestWaiting, requestTaken) {
			group = append(group, r)
			events += r.events()
			if r.batch != nil && r.batch.Bulk {
				limit = max(limit, db.opts.MaxBulkEvents)
			}
		}
		if events >= limit {
			return group, nil
		}
		select {
		case r = <-db.requests:
		default:
			return group, nil
		}
	}
}

// commitGroup evaluates the requests in order and commits what they write, as
// one unless that would be too large.
func (db *DB) commitGroup(group []*request) {
	for len(group) > 0 {
		group = group[db.commitSome(group):]
	}
}

// commitSome commits the first requests of group and returns how many.
func (db *DB) commitSome(group []*request) int {
	db.watch.begin(HoldCommit)
	if err := db.checkSpace(); err != nil {
		db.watch.end()
		db.metrics.commitsRefused.Add(1)
		for _, r := range group {
			db.recycle(r)
			r.finish(err)
		}
		return len(group)
	}
	c := &db.loop.commit
	c.begin(db.catalog.Load(), db.opts.Now(), db.sequence.Load())
	outcomes := make([]error, len(group))
	for i, r := range group {
		if i > 0 && len(c.buf) >= db.opts.MaxCommitBytes {
			group = group[:i]
			break
		}
		if r.batch != nil {
			r.dropped, outcomes[i] = c.batch(r.batch, r.prepared)
			db.recycle(r)
			continue
		}
		for j, m := range r.rows {
			r.results[j], r.errs[j] = c.row(r.cond, m)
		}
	}
	c.end()
	var err error
	if n := len(c.buf); n > largeCommit {
		if !c.inTables() {
			n *= 2 // in the log, and in the table of its flush
		}
		err = db.checkRoom(n)
	}
	refused := err != nil
	switch {
	case refused, c.empty():
	case c.inTables():
		err = db.ingestStaged(c)
	default:
		err = db.commitStaged(c)
	}
	c.settle(err == nil)
	if err != nil {
		// What the caches hold is what was stored before, but whether it
		// still is, only the store knows.
		db.loop.counters.clear()
		clear(db.loop.offsets)
		err = fmt.Errorf("commit: %w", err)
	}
	if took := db.watch.end(); refused {
		db.metrics.commitsRefused.Add(1)
	} else {
		db.metrics.observe(c, len(group), took, err)
	}
	for i, r := range group {
		if outcomes[i] == nil {
			outcomes[i] = err
		}
		r.finish(outcomes[i])
	}
	db.loop.counters.age()
	if len(db.loop.offsets) > maxCachedOffsets {
		clear(db.loop.offsets)
	}
	return len(group)
}

// largeCommit is how many bytes of a commit are looked at beside the free-space limit, which
// has room for smaller ones: a log that cannot be written stops the engine for good, and a
// flush that fails refuses all commits.
const largeCommit = 1 << 20

// maxCachedOffsets bounds the cache of offsets: far more partitions than one
// process reads.
const maxCachedOffsets = 100_000

// row stages one row mutation of the API.
func (c *commit) row(cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := store.CheckNil(m); err != nil {
		return store.Result{}, err
	}
	t, err := c.table(m.Table)
	if err != nil {
		return store.Result{}, err
	}
	mark := c.mark()
	holds, tested, err := store.CheckCondition(t.desc, m.Row, cond, c.readRow)
	if err != nil {
		return store.Result{}, err
	}
	if !holds {
		c.conflicts++
		return store.Result{}, nil
	}
	cells, err := c.mutate(t, m, tested)
	if err != nil {
		c.rollback(mark)
		return store.Result{}, err
	}
	return store.Result{Applied: true, Cells: cells}, nil
}

// commitStaged writes what c holds and returns when it is as durable as the
// options say.
func (db *DB) commitStaged(c *commit) error {
	if db.loop.batch == nil {
		// A batch of the largest usual size keeps its memory: fresh pages
		// cost as much as copying twice.
		db.loop.batch = db.pebble.NewBatch(pebble.WithInitialSizeBytes(1<<20), pebble.WithMaxRetainedSizeBytes(16<<20))
	}
	b := db.loop.batch
	defer b.Reset()
	if err := c.write(b); err != nil {
		return engineError(err)
	}
	db.rows.writing()
	bytes, keys := b.Len(), b.Count()
	err := db.pebble.Apply(b, db.writeOptions(c.sync))
	db.rows.written()
	if err != nil {
		return engineError(err)
	}
	if err := db.noteMemtable(bytes, keys); err != nil {
		return engineError(err)
	}
	db.sequence.Store(c.seq)
	db.noteWritten(c)
	db.noteLate(c)
	return nil
}

func (db *DB) writeOptions(sync bool) *pebble.WriteOptions {
	if !sync || db.opts.Sync == SyncNever {
		return pebble.NoSync
	}
	return pebble.Sync
}
