package memstore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// rewrite is one of the three ways in which HBase writes store files.
type rewrite uint8

const (
	flush rewrite = iota // memory into a new file
	minor                // all files into one; markers stay
	major                // all files into one; markers go
)

// Flush moves every table's memory to disk, dropping what HBase's flush drops:
// expired puts, puts masked by markers of the same memory and versions in excess
// of VERSIONS there, and redundant markers.
func (s *Store) Flush(ctx context.Context) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	defer s.mu.Unlock()
	for _, t := range s.tables {
		s.rewrite(t, flush)
	}
	return nil
}

// MinorCompact makes one file of the table's, dropping what HBase's minor
// compaction of all of them drops.
func (s *Store) MinorCompact(ctx context.Context, table string) error {
	return s.compact(ctx, table, minor)
}

// MajorCompact makes one file of the table's, dropping whatever no read can see,
// markers included. As in HBase it does not touch what was not flushed.
func (s *Store) MajorCompact(ctx context.Context, table string) error {
	return s.compact(ctx, table, major)
}

func (s *Store) compact(ctx context.Context, table string, how rewrite) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("compact %s: %w", table, err)
	}
	defer s.mu.Unlock()
	t := lookup(s.tables, table)
	if t == nil {
		return fmt.Errorf("compact: %w: %s", store.ErrTableNotFound, table)
	}
	if err := t.desc.CheckCompact(); err != nil {
		return fmt.Errorf("compact %s: %w", table, err)
	}
	s.rewrite(t, how)
	return nil
}

// rewrite rewrites t. As HBase's it may change what is seen of a row.
func (s *Store) rewrite(t *table, how rewrite) {
	now := s.now()
	s.sequence++
	for i := range t.desc.Families {
		f := &t.desc.Families[i]
		if f.InPlace() {
			continue // overwritten in place: nothing to drop
		}
		earliest := cell.Timestamp(math.MaxInt64)
		for _, r := range t.rows {
			for _, w := range r.family(f.Name).disk {
				if !w.Kind.IsDelete() {
					earliest = min(earliest, w.Time)
				}
			}
		}
		c := compaction{f: f, how: how, now: now, earliestPut: earliest}
		for key, r := range t.rows {
			v := r.family(f.Name)
			before := len(v.disk) + len(v.mem)
			if how == flush {
				v = versions{disk: slices.Concat(v.disk, c.run(v.mem))}
			} else {
				v.disk = c.run(v.disk)
			}
			if len(v.disk)+len(v.mem) != before {
				t.changed[key] = s.sequence
			}
			if r = r.with(f.Name, v); r == nil {
				delete(t.rows, key)
			} else {
				t.rows[key] = r
			}
		}
	}
}

// compaction is HBase's CompactionScanQueryMatcher with its subclasses, over one
// family of one row.
type compaction struct {
	f           *store.FamilyDescriptor
	how         rewrite
	now         cell.Timestamp
	earliestPut cell.Timestamp // of all inputs
}

// run returns what of cells is written again.
func (c *compaction) run(cells []written) []written {
	if c.f.NewVersionBehavior {
		return c.runInSequence(cells)
	}
	cells = filter(cells, func(w *written) bool {
		return (w.Kind.IsDelete() || !store.CellExpired(w.Time, w.TTL, c.now)) && (c.f.MinVersions > 0 || !c.f.Expired(w.Time, c.now))
	})
	cells = collapse(cells)
	var kept, tracked []written
	puts, ended := 0, false
	for i := range cells {
		w := &cells[i]
		if i == 0 || !bytes.Equal(w.Qualifier, cells[i-1].Qualifier) {
			puts, ended = 0, false
		}
		if w.Kind.IsDelete() {
			// With kept deletes cells go by versions and time only.
			if c.f.KeepDeleted == store.KeepDeletedFalse || c.f.KeepDeleted == store.KeepDeletedTTL && c.f.Expired(w.Time, c.now) {
				if c.how != major && slices.ContainsFunc(tracked, func(m written) bool { return redundant(&m, w) }) {
					continue
				}
				tracked = append(tracked, *w)
			}
			if c.how != major {
				kept = append(kept, *w)
				continue
			}
			if c.f.TimeToPurgeDeletes > 0 && int64(c.now-w.Time) <= c.f.TimeToPurgeDeletes {
				kept = append(kept, *w)
				continue
			}
			if c.f.KeepDeleted == store.KeepDeletedFalse || c.f.KeepDeleted == store.KeepDeletedTTL && c.f.Expired(w.Time, c.now) {
				continue
			}
			if w.Time < c.earliestPut {
				continue // nothing is left that it could mask
			}
		} else {
			if slices.ContainsFunc(tracked, func(m written) bool { return masks(&m, w) }) {
				continue
			}
			puts++
		}
		// Markers that are kept do not count, but go once the column is full.
		if ended || puts > c.f.Versions || puts > c.f.MinVersions && c.f.Expired(w.Time, c.now) {
			ended = true
			continue
		}
		kept = append(kept, *w)
	}
	return kept
}

// runInSequence is NEW_VERSION_BEHAVIOR: only a major compaction drops anything.
func (c *compaction) runInSequence(cells []written) []written {
	if c.how != major {
		return cells
	}
	sf := store.SelectedFamily{Family: c.f, Versions: c.f.Versions}
	kept := resolveInSequence(&sf, cells, c.now)
	for _, w := range cells {
		young := c.f.TimeToPurgeDeletes > 0 && int64(c.now-w.Time) <= c.f.TimeToPurgeDeletes
		if w.Kind.IsDelete() && (young || c.f.KeepDeleted != store.KeepDeletedFalse && !c.f.Expired(w.Time, c.now)) {
			kept = append(kept, w)
		}
	}
	return kept
}

// redundant reports whether everything that marker w masks is masked by the
// marker m, too, which sorts before it (HBASE-30036).
func redundant(m, w *written) bool {
	switch m.Kind {
	case cell.KindDeleteFamily:
		return w.Time <= m.Time
	case cell.KindDeleteColumn:
		return (w.Kind == cell.KindDeleteColumn || w.Kind == cell.KindDelete) && w.Time <= m.Time && bytes.Equal(w.Qualifier, m.Qualifier)
	case cell.KindDeleteFamilyVersion:
		return (w.Kind == cell.KindDeleteFamilyVersion || w.Kind == cell.KindDelete) && w.Time == m.Time
	}
	return false
}
