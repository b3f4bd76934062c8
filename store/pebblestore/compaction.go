package pebblestore

import (
	"bytes"
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

// compaction decides what of one family is written again. It is HBase's
// CompactionScanQueryMatcher with its subclasses.
type compaction struct {
	f           *store.FamilyDescriptor
	how         rewriting
	now         cell.Timestamp
	earliestPut cell.Timestamp // of all inputs; only where the family keeps deleted cells

	markers []entry // of the row, that mask
	live    []entry
}

func (c *compaction) expired(t cell.Timestamp) bool { return t < expiredUntil(c.f, c.now) }

// run returns what of one row's cells, in key order, stays. The slice is cells'.
func (c *compaction) run(cells []entry) []entry {
	if c.f.NewVersionBehavior {
		return c.runInSequence(cells)
	}
	cells = slices.DeleteFunc(cells, func(e entry) bool {
		return e.kind == cell.KindPut && expired(e.time, e.ttl, c.now) || c.f.MinVersions == 0 && c.expired(e.time)
	})
	cells = slices.CompactFunc(cells, func(a, b entry) bool {
		return a.time == b.time && a.kind == b.kind && bytes.Equal(a.qualifier, b.qualifier)
	})
	c.markers = c.markers[:0]
	kept := cells[:0]
	puts, full := 0, false
	var column []byte
	for i := range cells {
		e := cells[i]
		if i == 0 || !bytes.Equal(e.qualifier, column) {
			puts, full, column = 0, false, e.qualifier
		}
		if e.kind.IsDelete() {
			stays, counted := c.marker(&e)
			if !stays {
				continue
			}
			if !counted {
				kept = append(kept, e)
				continue
			}
		} else {
			if slices.ContainsFunc(c.markers, func(m entry) bool { return m.masks(&e) }) {
				continue
			}
			puts++
		}
		// Markers that are kept do not count, but go once the column is full.
		if full || puts > c.f.Versions || puts > c.f.MinVersions && c.expired(e.time) {
			full = true
			continue
		}
		kept = append(kept, e)
	}
	return kept
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
	}
	switch {
	case c.how != rewriteMajor:
		return true, false
	case c.f.TimeToPurgeDeletes > 0 && int64(c.now-e.time) <= c.f.TimeToPurgeDeletes:
		return true, false
	case resolves, e.time < c.earliestPut:
		return false, false // nothing is left that it could mask
	}
	return true, true
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
