package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// maxLateBytes bounds what commits may write into a span while it is rewritten: it
// is written twice more, in one step of the commit loop.
const maxLateBytes = 4 << 20

// maxQueuedMemTables is how many memtables may wait for their flush when a span is
// replaced: with more of them Pebble would flush in the midst of it.
const maxQueuedMemTables = 2

// Reasons to begin a rewrite again.
var (
	errOvertaken = errors.New("pebblestore: more was written into the span than a rewrite can put on top")
	errAltered   = errors.New("pebblestore: the family was altered while it was rewritten")
)

// rewriteSpan rewrites the beginning of s, at most Options.RewriteKeys keys, and
// returns where to go on, nil at the end. Only its first and its last step stop the
// commit loop.
func (db *DB) rewriteSpan(ctx context.Context, s *span) (next []byte, done rewritten, err error) {
	if err := db.enter(); err != nil {
		return nil, done, err
	}
	defer db.leave()
	select {
	case db.rewriting <- struct{}{}:
	case <-ctx.Done():
		return nil, done, fmt.Errorf("wait for another rewrite: %w", ctx.Err())
	}
	defer func() { <-db.rewriting }()
	if s.limit == 0 {
		s.limit = db.opts.RewriteKeys
	}
	for {
		next, done, err = db.tryRewrite(ctx, s, s.limit)
		switch {
		case err == nil:
			s.limit = min(2*s.limit, db.opts.RewriteKeys)
			return next, done, nil
		case errors.Is(err, errOvertaken) && s.limit > 1:
			s.limit /= 2
		case !errors.Is(err, errAltered):
			return nil, done, err
		}
		db.metrics.rewriteRetries.Add(1)
	}
}

func (db *DB) tryRewrite(ctx context.Context, s *span, limit int) (next []byte, done rewritten, err error) {
	var r *rewrite
	if err := db.exclusive(ctx, HoldRewrite, func() (err error) {
		r, err = db.newRewrite(s)
		return err
	}); err != nil || r == nil {
		return nil, done, err
	}
	defer func() { err = errors.Join(err, r.close()) }()
	changed, err := r.write(ctx, limit)
	if err != nil {
		return nil, done, err
	}
	done = r.rows.done
	db.metrics.rewritten.Add(int64(done.keys))
	if !changed {
		return r.next, done, nil
	}
	if err := r.replace(ctx); err != nil {
		return nil, done, err
	}
	db.metrics.reclaimed.Add(int64(done.keys - done.left))
	db.metrics.reclaimedBytes.Add(done.bytes - done.leftBytes)
	return r.next, done, nil
}

// replace puts the new sstable in the place of the span.
func (r *rewrite) replace(ctx context.Context) error {
	db := r.db
	if m := db.pebble.Metrics(); m.MemTable.Count > maxQueuedMemTables {
		if err := db.flushMemTables(ctx); err != nil {
			return err
		}
	}
	if err := r.storeChanges(); err != nil {
		return err
	}
	// Most of the late writes are prepared beside the loop.
	b := db.pebble.NewBatch()
	defer b.Close()
	var late *lateWrites
	if err := db.exclusive(ctx, HoldRewrite, func() error {
		late = r.late
		r.late = &lateWrites{tag: late.tag, low: r.low, high: r.high}
		r.late.overflown.Store(late.overflown.Load())
		db.loop.late = r.late
		return nil
	}); err != nil {
		return err
	}
	restored := map[string]struct{}{}
	if err := r.onTop(b, late, restored); err != nil {
		return err
	}
	return db.exclusive(ctx, HoldRewrite, func() error {
		defer db.metrics.rewriteStops.since(time.Now())
		db.loop.late = nil
		if r.late.overflown.Load() || len(b.Repr()) > 2*maxLateBytes {
			return errOvertaken
		}
		if t, err := db.catalog.Load().lookup(r.s.table); err != nil || t.id != r.rows.t.id {
			return errAltered
		} else if f, _ := t.family(r.s.family); f == nil || f.id != r.rows.f.id || !sameRetention(f.desc, r.rows.f.desc) {
			return errAltered
		}
		if err := r.onTop(b, r.late, restored); err != nil {
			return err
		}
		if err := r.touch(b); err != nil { // last: it allots the sequence that b stores
			return err
		}
		return r.swap(b)
	})
}

// sameRetention reports whether two schemas of a family keep the same cells.
func sameRetention(a, b *store.FamilyDescriptor) bool {
	return a.Versions == b.Versions && a.MinVersions == b.MinVersions && a.TTL == b.TTL && a.KeepDeleted == b.KeepDeleted &&
		a.NewVersionBehavior == b.NewVersionBehavior && a.TimeToPurgeDeletes == b.TimeToPurgeDeletes
}

// swap replaces the span and writes what belongs on top of it. Both survive a
// crash or neither: what belongs on top is stored elsewhere first, and Open writes
// it where it finds it.
func (r *rewrite) swap(onTop *pebble.Batch) error {
	db := r.db
	if !onTop.Empty() {
		value := appendSystemValue(nil, db.opts.Now(), db.sequence.Load(), onTop.Repr())
		if err := db.pebble.Set(redoKey(), value, pebble.Sync); err != nil {
			return engineError(err)
		}
		if err := onTop.Delete(redoKey(), nil); err != nil {
			return err
		}
	}
	db.swap.Lock()
	defer db.swap.Unlock()
	excise := pebble.KeyRange{Start: r.low, End: r.high}
	var err error
	if r.rows.done.left == 0 {
		err = db.pebble.Excise(context.Background(), excise)
	} else {
		_, err = db.pebble.IngestAndExcise(context.Background(), []string{r.path}, nil, nil, excise)
	}
	if err == nil {
		db.metrics.rewrites.Add(1)
	}
	if onTop.Empty() {
		return engineError(err)
	}
	// Without a sync: until it is on disk the redo record is.
	if e := db.pebble.Apply(onTop, pebble.NoSync); e != nil {
		db.log.fail(fmt.Errorf("%w: a rewrite could not write what it had put aside: %w; restart the process, nothing acknowledged is lost", store.ErrClosed, e))
		return errors.Join(engineError(err), db.log.err)
	}
	return engineError(err)
}

// redoKey is where a rewrite stores what belongs on top of its span. Programs that
// do not know of it refuse the catalog row that it is in.
func redoKey() []byte { return catalogKey(rowRedo, qualBatch) }

// redo finishes a rewrite that a crash cut short.
func (db *DB) redo() error {
	value, closer, err := db.pebble.Get(redoKey())
	if errors.Is(err, pebble.ErrNotFound) {
		return nil
	} else if err != nil {
		return engineError(err)
	}
	defer closer.Close()
	if db.opts.ReadOnly {
		return fmt.Errorf("%w: a crash cut a rewrite short: open it once for writing", store.ErrReadOnly)
	}
	_, _, batch, err := decodeSystemValue(value)
	if err != nil {
		return err
	}
	b := db.pebble.NewBatch()
	defer b.Close()
	if err := b.SetRepr(bytes.Clone(batch)); err != nil {
		return fmt.Errorf("%w: redo record: %w", store.ErrCorrupt, err)
	}
	if err := b.Delete(redoKey(), nil); err != nil {
		return err
	}
	db.redone = true
	return engineError(db.pebble.Apply(b, pebble.Sync))
}

// onTop adds to b what late writes need on top of the new span: of each row that
// they touch and that the rewrite took cells from, those cells, as they change
// again what is seen of the row; then the late writes themselves.
func (r *rewrite) onTop(b *pebble.Batch, w *lateWrites, restored map[string]struct{}) error {
	for i := range w.ops {
		o := &w.ops[i]
		key := w.buf[o.start : o.start+o.key]
		if bytes.Compare(key, r.high) >= 0 {
			continue
		}
		if err := r.restore(b, key[:cell.SplitKey(key)], restored); err != nil {
			return err
		}
		var err error
		if o.deleted {
			err = b.Delete(key, nil)
		} else {
			err = b.Set(key, w.buf[o.start+o.key:o.start+o.key+o.value], nil)
		}
		if err != nil {
			return engineError(err)
		}
	}
	return nil
}

// restore adds the cells that a row had when the rewrite began, where the rewrite
// took some. Counters change by themselves only.
func (r *rewrite) restore(b *pebble.Batch, prefix []byte, restored map[string]struct{}) error {
	if r.rows.f.tag == cell.TagCounter {
		return nil
	}
	if _, found := slices.BinarySearch(r.changed, r.hash(prefix)); !found {
		return nil
	}
	if _, done := restored[string(prefix)]; done {
		return nil
	}
	restored[string(prefix)] = struct{}{}
	it := r.rows.it
	for ok := it.SeekGE(prefix); ok && bytes.HasPrefix(it.Key(), prefix); ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		if err := b.Set(it.Key(), value, nil); err != nil {
			return engineError(err)
		}
	}
	return engineError(it.Error())
}

// lateWrites are what commits write into a span while it is rewritten, in their
// order. They belong to the commit loop until it gives them away.
type lateWrites struct {
	tag       byte
	low, high []byte
	buf       []byte
	ops       []lateOp

	overflown atomic.Bool // it is more than maxLateBytes, and not complete
	ended     atomic.Bool // the rewrite is over
}

// lateOp is one key in lateWrites.buf, with its value unless it was deleted.
type lateOp struct {
	start, key, value int
	deleted           bool
}

// noteLate tells the rewrite that is under way what c has written.
func (db *DB) noteLate(c *commit) {
	w := db.loop.late
	if w == nil {
		return
	}
	if w.ended.Load() {
		db.loop.late = nil
		return
	}
	if w.tag == cell.TagCounter {
		w.noteCounters(c)
	} else {
		w.noteCells(c)
	}
	if len(w.buf) > maxLateBytes {
		w.overflown.Store(true)
		db.loop.late = nil
	}
}

// noteCells takes the commit's cells, which write has sorted.
func (w *lateWrites) noteCells(c *commit) {
	key := c.stagedKey
	i := sort.Search(len(c.kvs), func(i int) bool { return bytes.Compare(key(i), w.low) >= 0 })
	for ; i < len(c.kvs) && bytes.Compare(key(i), w.high) < 0; i++ {
		s := &c.kvs[i]
		w.ops = append(w.ops, lateOp{start: len(w.buf), key: s.key, value: s.value})
		w.buf = append(w.buf, c.buf[s.start:s.start+s.key+s.value]...)
	}
}

func (w *lateWrites) noteCounters(c *commit) {
	for _, e := range c.dirty {
		if e.key < string(w.low) || e.key >= string(w.high) || !e.exists && !e.oldHave {
			continue
		}
		o := lateOp{start: len(w.buf), key: len(e.key), deleted: !e.exists}
		w.buf = append(w.buf, e.key...)
		if e.exists {
			w.buf = e.append(w.buf)
			o.value = len(w.buf) - o.start - o.key
		}
		w.ops = append(w.ops, o)
	}
}
