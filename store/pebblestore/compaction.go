package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// rewriting is one of the three ways in which HBase writes its store files.
type rewriting uint8

const (
	rewriteFlush rewriting = iota // what was written since the last flush
	rewriteMinor                  // what was there at the last flush; markers stay
	rewriteMajor                  // the same; markers go
)

// MajorCompact rewrites table so that only what a read can see remains, delete
// markers included. As in HBase it does not touch what was not flushed. It goes on
// beside the commits, Options.RewriteKeys keys at a time; of a row that is written
// meanwhile everything stays until the next compaction.
func (db *DB) MajorCompact(ctx context.Context, name string) error {
	return db.compact(ctx, name, rewriteMajor)
}

// MinorCompact is MajorCompact, but delete markers stay.
func (db *DB) MinorCompact(ctx context.Context, name string) error {
	return db.compact(ctx, name, rewriteMinor)
}

func (db *DB) compact(ctx context.Context, name string, how rewriting) error {
	if db.opts.ReadOnly {
		return fmt.Errorf("compact %s: %w", name, store.ErrReadOnly)
	}
	if err := db.enter(); err != nil {
		return fmt.Errorf("compact %s: %w", name, err)
	}
	defer db.leave()
	t, err := db.catalog.Load().lookup(name)
	if err == nil {
		err = t.desc.CheckCompact()
	}
	if err == nil {
		// A span whose keys are in a memtable takes longer to replace.
		err = db.flushMemTables(ctx)
	}
	for i := 0; err == nil && i < len(t.fams); i++ {
		err = db.compactFamily(ctx, t, &t.fams[i], how)
	}
	if err != nil {
		return fmt.Errorf("compact %s: %w", name, err)
	}
	return nil
}

// compactFamily rewrites one family, one span at a time.
func (db *DB) compactFamily(ctx context.Context, t *table, f *family, how rewriting) error {
	if f.tag == cell.TagSystem {
		return nil
	}
	s := &span{table: t.desc.Name, family: f.desc.Name, how: how, earliestPut: math.MaxInt64}
	if how == rewriteMajor && f.tag == cell.TagData && f.desc.KeepDeleted != store.KeepDeletedFalse {
		if err := db.earliestPut(ctx, s); err != nil {
			return err
		}
	}
	low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	pieces, err := db.pieces(low, cell.PrefixEnd(low))
	if err != nil {
		return err
	}
	for _, p := range pieces {
		s.high = p.high
		for s.low = p.low; s.low != nil; {
			if s.low, _, err = db.rewriteSpan(ctx, s); err != nil {
				return err
			}
		}
	}
	return nil
}

// earliestPut sets s.earliestPut to the time of the family's oldest put that was
// flushed.
func (db *DB) earliestPut(ctx context.Context, s *span) (err error) {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	var r *rowRewriter
	if err := db.exclusive(ctx, HoldRewrite, func() (err error) {
		r, _, _, err = db.rowsOf(s)
		return err
	}); err != nil || r == nil {
		return err
	}
	defer func() { err = errors.Join(err, db.closeIterator(r.it)) }()
	keys := 0
	for ok := r.it.First(); ok; ok = r.it.Next() {
		if keys++; keys%probeKeys == 0 {
			if err := db.interrupted(ctx); err != nil {
				return err
			}
		}
		value, err := r.it.ValueAndErr()
		if err != nil {
			return engineError(err)
		}
		kv := storedKV{key: r.it.Key(), value: value}
		r.entries, r.origin = r.entries[:0], append(r.origin[:0], kv)
		if err := r.decode(kv, cell.SplitKey(kv.key)); err != nil {
			return err
		}
		for i := range r.entries {
			if e := &r.entries[i]; e.kind == cell.KindPut && e.sequence <= r.upTo {
				s.earliestPut = min(s.earliestPut, e.time)
			}
		}
	}
	return engineError(r.it.Error())
}

// compaction decides what of one family is written again. It is HBase's
// CompactionScanQueryMatcher with its subclasses.
type compaction struct {
	f           *store.FamilyDescriptor
	how         rewriting
	now         cell.Timestamp
	until       cell.Timestamp // older cells are beyond the family's TTL
	tidy        bool           // the store does it by itself
	earliestPut cell.Timestamp // of all inputs; only where the family keeps deleted cells

	markers []entry // of the row, that mask
	keeping []entry // those that mask without dropping; only where tidy
	live    []entry
}

func (c *compaction) expired(t cell.Timestamp) bool { return t < c.until }

// over reports whether the time to live of a cell or a marker is over.
func (c *compaction) over(e entry) bool {
	return e.kind == cell.KindPut && expired(e.time, e.ttl, c.now) || c.expired(e.time)
}

// run returns what of one row's cells, in key order, stays. The slice is cells'.
func (c *compaction) run(cells []entry) []entry {
	if c.f.NewVersionBehavior {
		return c.runInSequence(cells)
	}
	c.markers, c.keeping = c.markers[:0], c.keeping[:0]
	kept := cells[:0]
	puts, seen, full := 0, 0, false
	var last struct { // that had not expired
		qualifier []byte
		time      cell.Timestamp
		kind      cell.Kind
	}
	for i := range cells {
		e := &cells[i]
		if e.ttl != 0 && e.kind == cell.KindPut && expired(e.time, e.ttl, c.now) || c.f.MinVersions == 0 && c.expired(e.time) {
			continue
		}
		switch {
		case last.kind == 0 || !bytes.Equal(e.qualifier, last.qualifier):
			puts, seen, full = 0, 0, false
		case e.time == last.time && e.kind == last.kind:
			continue // the later write stays
		}
		last.qualifier, last.time, last.kind = e.qualifier, e.time, e.kind
		if e.kind.IsDelete() {
			stays, counted := c.marker(e)
			if !stays {
				continue
			}
			if !counted {
				kept = append(kept, *e)
				continue
			}
		} else {
			if masked(c.markers, e) {
				continue
			}
			puts++
			// HBase counts what kept markers mask, too, and drops cells that are seen for
			// it; unasked, nobody should.
			if c.tidy && !masked(c.keeping, e) {
				if seen++; seen <= c.f.Versions && (seen <= c.f.MinVersions || !c.expired(e.time)) {
					kept = append(kept, *e)
					continue
				}
			}
		}
		// Markers that are kept do not count, but go once the column is full.
		if full || puts > c.f.Versions || puts > c.f.MinVersions && c.expired(e.time) {
			full = true
			continue
		}
		kept = append(kept, *e)
	}
	return kept
}

// masked reports whether one of markers masks a put.
func masked(markers []entry, put *entry) bool {
	for i := range markers {
		if markers[i].masks(put) {
			return true
		}
	}
	return false
}

// marker reports whether a delete marker stays, and whether it goes once its
// column is full.
func (c *compaction) marker(e *entry) (stays, counted bool) {
	resolves := c.f.KeepDeleted == store.KeepDeletedFalse || c.f.KeepDeleted == store.KeepDeletedTTL && c.expired(e.time)
	if resolves {
		if c.how != rewriteMajor && slices.ContainsFunc(c.markers, func(m entry) bool { return m.covers(e) }) {
			return false, false
		}
		c.markers = append(c.markers, *e)
	} else if c.tidy {
		c.keeping = append(c.keeping, *e)
	}
	switch {
	case c.how != rewriteMajor:
		return true, false
	case c.f.TimeToPurgeDeletes > 0 && int64(c.now-e.time) <= c.f.TimeToPurgeDeletes:
		return true, false
	case resolves, e.time < c.earliestPut:
		return false, false // nothing is left that it could mask
	}
	// In HBase a marker of the family goes once the column without a name is full, among
	// whose cells it is, and what it masks elsewhere is seen again; unasked, it stays.
	ofFamily := e.kind == cell.KindDeleteFamily || e.kind == cell.KindDeleteFamilyVersion
	return true, !c.tidy || !ofFamily
}

// runInSequence is NEW_VERSION_BEHAVIOR: only a major compaction drops anything.
func (c *compaction) runInSequence(cells []entry) []entry {
	if c.how != rewriteMajor {
		return cells
	}
	var family, kept []entry
	alive := slices.DeleteFunc(slices.Clone(cells), func(e entry) bool {
		return e.kind == cell.KindPut && expired(e.time, e.ttl, c.now) || c.f.MinVersions == 0 && c.expired(e.time)
	})
	if c.tidy && c.f.KeepDeleted != store.KeepDeletedFalse {
		return alive // HBase breaks KEEP_DELETED_CELLS here; unasked, nobody should
	}
	for _, e := range alive {
		if e.kind == cell.KindDeleteFamily || e.kind == cell.KindDeleteFamilyVersion {
			family = append(family, e)
		}
	}
	for i := 0; i < len(alive); {
		n := i
		var column []entry
		for ; n < len(alive) && bytes.Equal(alive[n].qualifier, alive[i].qualifier); n++ {
			if k := alive[n].kind; k != cell.KindDeleteFamily && k != cell.KindDeleteFamilyVersion {
				column = append(column, alive[n])
			}
		}
		for position, e := range survivors(column, family, c.f.Versions, &c.live) {
			if position < c.f.MinVersions || !c.expired(e.time) {
				kept = append(kept, e)
			}
		}
		i = n
	}
	for _, e := range cells {
		young := c.f.TimeToPurgeDeletes > 0 && int64(c.now-e.time) <= c.f.TimeToPurgeDeletes
		if e.kind.IsDelete() && (young || c.f.KeepDeleted != store.KeepDeletedFalse && !c.expired(e.time)) {
			kept = append(kept, e)
		}
	}
	slices.SortFunc(kept, func(a, b entry) int { return a.compare(&b) })
	return kept
}

// masks reports whether marker e masks put p by its time.
func (e *entry) masks(p *entry) bool {
	switch e.kind {
	case cell.KindDeleteFamily:
		return p.time <= e.time
	case cell.KindDeleteFamilyVersion:
		return p.time == e.time
	case cell.KindDeleteColumn:
		return p.time <= e.time && bytes.Equal(p.qualifier, e.qualifier)
	case cell.KindDelete:
		return p.time == e.time && bytes.Equal(p.qualifier, e.qualifier)
	}
	return false
}

// covers reports whether marker e masks all that marker o masks (HBASE-30036).
func (e *entry) covers(o *entry) bool {
	switch e.kind {
	case cell.KindDeleteFamily:
		return o.time <= e.time
	case cell.KindDeleteColumn:
		return (o.kind == cell.KindDeleteColumn || o.kind == cell.KindDelete) && o.time <= e.time && bytes.Equal(o.qualifier, e.qualifier)
	case cell.KindDeleteFamilyVersion:
		return (o.kind == cell.KindDeleteFamilyVersion || o.kind == cell.KindDelete) && o.time == e.time
	}
	return false
}
