package memstore

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// keyed is a row with its key.
type keyed struct {
	key string
	row *row
}

// source yields resolved rows (store.RowSource).
type source struct {
	sel    *store.Selection
	now    cell.Timestamp // TTLs are judged at the instant at which the scan was opened
	rows   []keyed        // in the scan's order
	closed *closed
	row    cell.Row
}

// rowsOf returns the rows of t that sel wants, in its order.
func rowsOf(t *table, sel *store.Selection) []keyed {
	if sel.Empty() {
		return nil
	}
	r := sel.Rows()
	if len(r.Stop) == len(r.Start)+1 && string(r.Stop[:len(r.Start)]) == string(r.Start) && r.Stop[len(r.Start)] == 0 {
		if found := t.rows[string(r.Start)]; found != nil {
			return []keyed{{string(r.Start), found}}
		}
		return nil
	}
	var rows []keyed
	for k, v := range t.rows {
		if r.Contains([]byte(k)) {
			rows = append(rows, keyed{k, v})
		}
	}
	slices.SortFunc(rows, func(a, b keyed) int { return bytes.Compare([]byte(a.key), []byte(b.key)) })
	if sel.Reversed() {
		slices.Reverse(rows)
	}
	return rows
}

func scan(ctx context.Context, tables map[string]*table, now cell.Timestamp, c *closed, s *store.Scan) store.Scanner {
	if err := c.err(); err != nil {
		return store.FailedScanner(fmt.Errorf("scan %s: %w", s.Table, err))
	}
	t := lookup(tables, s.Table)
	if t == nil {
		return store.FailedScanner(fmt.Errorf("scan: %w: %s", store.ErrTableNotFound, s.Table))
	}
	if err := t.served(); err != nil {
		return store.FailedScanner(fmt.Errorf("scan: %w", err))
	}
	sel, err := store.NewSelection(s, t.desc)
	if err != nil {
		return store.FailedScanner(err)
	}
	if !sel.Empty() {
		t.load.Read(sel.Rows(), int64(now))
	}
	return store.NewScanner(ctx, sel, &source{sel: sel, now: now, rows: rowsOf(t, sel), closed: c})
}

// Scan starts sc on the rows as they are now.
func (s *Store) Scan(ctx context.Context, sc *store.Scan) store.Scanner {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return scan(ctx, s.tables, s.now(), s.closed, sc)
}

// Table returns the schema of a table.
func (s *Store) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return descriptor(s.tables, s.closed, name)
}

// CountsFrom implements store.CounterExpirer.
func (s *Store) CountsFrom(table, family string) cell.Timestamp {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if d, err := descriptor(s.tables, s.closed, table); err == nil {
		if f := d.Family(family); f != nil && f.TTL != store.Forever {
			return s.now() - cell.Timestamp(f.TTL)*1000
		}
	}
	return math.MinInt64
}

func descriptor(tables map[string]*table, c *closed, name string) (*store.TableDescriptor, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	t := lookup(tables, name)
	if t == nil {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.desc, nil
}

// Regions returns the region map of a table.
func (s *Store) Regions(_ context.Context, name string) (*region.Map, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return regions(s.tables, s.closed, name)
}

func regions(tables map[string]*table, c *closed, name string) (*region.Map, error) {
	if err := c.err(); err != nil {
		return nil, err
	}
	t := lookup(tables, name)
	if t == nil {
		return nil, fmt.Errorf("%w: %s", store.ErrTableNotFound, name)
	}
	return t.regions, nil
}

// NextRow returns the next row that has a cell for the scan.
func (src *source) NextRow(skip func(row []byte) bool) (*cell.Row, error) {
	for len(src.rows) > 0 {
		if err := src.closed.err(); err != nil {
			return nil, fmt.Errorf("scan: %w", err)
		}
		next := src.rows[0]
		src.rows = src.rows[1:]
		key := []byte(next.key)
		if skip != nil && skip(key) {
			if src.sel.Stopped() {
				return nil, nil
			}
			src.seek(src.sel.SeekRow(key))
			continue
		}
		src.row = cell.Row{Key: key}
		for _, f := range src.sel.Families() {
			src.row.Cells = append(src.row.Cells, resolve(&f, next.row.family(f.Family.Name).all(), src.sel.Raw(), src.now)...)
		}
		if len(src.row.Cells) > 0 {
			return &src.row, nil
		}
	}
	return nil, nil
}

// seek passes the rows before next; nil is the next row.
func (src *source) seek(next []byte) {
	if next == nil {
		return
	}
	at := slices.IndexFunc(src.rows, func(k keyed) bool {
		if src.sel.Reversed() {
			return bytes.Compare([]byte(k.key), next) < 0
		}
		return bytes.Compare([]byte(k.key), next) >= 0
	})
	if at < 0 {
		at = len(src.rows)
	}
	src.rows = src.rows[at:]
}

// Close releases nothing: the rows are immutable.
func (src *source) Close() error { return nil }

// resolve returns, copied and in storage order, what a scan is offered of one
// row's cells of one family.
func resolve(sf *store.SelectedFamily, all []written, raw bool, now cell.Timestamp) []cell.Cell {
	var kept []written
	switch {
	case raw:
		kept = resolveRaw(sf, all)
	case sf.Family.NewVersionBehavior:
		kept = resolveInSequence(sf, all, now)
	default:
		kept = resolveByTime(sf, all, now)
	}
	kept = filter(kept, func(w *written) bool { return w.Time >= sf.Oldest })
	cells := make([]cell.Cell, len(kept))
	for i := range kept {
		cells[i] = kept[i].Cell
		cells[i].Qualifier, cells[i].Value = bytes.Clone(cells[i].Qualifier), bytes.Clone(cells[i].Value)
	}
	return cells
}

// resolveByTime is the declarative model of a normal read, step by step.
func resolveByTime(sf *store.SelectedFamily, all []written, now cell.Timestamp) []written {
	f := sf.Family
	cells := filter(all, func(w *written) bool { // 1. own time to live
		return w.Kind.IsDelete() || !store.CellExpired(w.Time, w.TTL, now)
	})
	cells = collapse(cells) // 2. the later write of equal coordinates
	if f.MinVersions == 0 { // 3. the family's time to live
		cells = filter(cells, func(w *written) bool { return !f.Expired(w.Time, now) })
	}
	markers := liveMarkers(sf, cells) // 4.
	puts := filter(cells, func(w *written) bool {
		return !w.Kind.IsDelete() &&
			!slices.ContainsFunc(markers, func(m written) bool { return masks(&m, w) }) && // 5.
			inRange(sf.Time, w.Time) && // 6.
			sf.Wants(w.Qualifier) // 7.
	})
	return countVersions(sf, puts, now, true) // 8. and 9.
}

// resolveInSequence is NEW_VERSION_BEHAVIOR: the column's history is replayed in
// the order of its writes. A marker takes away what was written before it, and
// what a later put pushes out beyond VERSIONS never comes back.
func resolveInSequence(sf *store.SelectedFamily, all []written, now cell.Timestamp) []written {
	f := sf.Family
	cells := filter(all, func(w *written) bool {
		return (w.Kind.IsDelete() || !store.CellExpired(w.Time, w.TTL, now)) && (f.MinVersions > 0 || !f.Expired(w.Time, now))
	})
	markers := liveMarkers(sf, cells)
	slices.SortFunc(cells, func(a, b written) int { return int(int64(a.sequence) - int64(b.sequence)) })
	var live []written
	for _, w := range cells {
		if w.Kind.IsDelete() {
			if slices.ContainsFunc(markers, func(m written) bool { return m.sequence == w.sequence }) {
				live = slices.DeleteFunc(live, func(p written) bool { return masks(&w, &p) })
			}
			continue
		}
		live = slices.DeleteFunc(live, func(p written) bool { return p.Time == w.Time && bytes.Equal(p.Qualifier, w.Qualifier) })
		live = append(live, w)
		column := filter(live, func(p *written) bool { return bytes.Equal(p.Qualifier, w.Qualifier) })
		if len(column) > f.Versions {
			oldest := slices.MinFunc(column, func(a, b written) int { return int(a.Time - b.Time) })
			live = slices.DeleteFunc(live, func(p written) bool { return p.sequence == oldest.sequence })
		}
	}
	slices.SortFunc(live, compareWritten)
	return countVersions(sf, filter(live, func(w *written) bool {
		return inRange(sf.Time, w.Time) && sf.Wants(w.Qualifier)
	}), now, false)
}

// resolveRaw is a raw read: no time to live, no masking, no VERSIONS. Markers do
// not count, but end with their column once it has more puts than were asked for.
func resolveRaw(sf *store.SelectedFamily, all []written) []written {
	cells := filter(collapse(all), func(w *written) bool { return inRange(sf.Time, w.Time) })
	var kept []written
	puts := 0
	for i, w := range cells {
		if i == 0 || !bytes.Equal(w.Qualifier, cells[i-1].Qualifier) {
			puts = 0
		}
		if !w.Kind.IsDelete() {
			puts++
		}
		if puts <= sf.Versions {
			kept = append(kept, w)
		}
	}
	return kept
}

// countVersions keeps of each column's puts, newest first, those that its family
// keeps and the scan is offered. MIN_VERSIONS = m > 0 keeps expired puts up to
// position m. Where the scan names columns, HBase's ExplicitColumnTracker still
// returns the first expired one at position m or beyond, as the column's last
// (explicitQuirk).
func countVersions(sf *store.SelectedFamily, puts []written, now cell.Timestamp, explicitQuirk bool) []written {
	var kept []written
	position, ended := 0, false
	m := sf.Family.MinVersions
	for i, w := range puts {
		if i == 0 || !bytes.Equal(w.Qualifier, puts[i-1].Qualifier) {
			position, ended = 0, false
		}
		if position++; ended || position > sf.Versions {
			continue
		}
		if sf.Family.Expired(w.Time, now) {
			explicit := explicitQuirk && sf.Qualifiers != nil
			switch {
			case explicit && position >= m:
				ended = true
			case position > m:
				ended = true
				continue
			}
		}
		kept = append(kept, w)
	}
	return kept
}

// liveMarkers returns the markers that a read in sf's time range heeds: with
// KEEP_DELETED_CELLS those inside it, otherwise those later than it, too.
func liveMarkers(sf *store.SelectedFamily, cells []written) []written {
	return filter(cells, func(w *written) bool {
		if !w.Kind.IsDelete() || sf.Time == nil {
			return w.Kind.IsDelete()
		}
		return w.Time >= sf.Time.Min && (sf.Family.KeepDeleted == store.KeepDeletedFalse || w.Time < sf.Time.Max)
	})
}

// masks reports whether marker m masks put p by its time.
func masks(m, p *written) bool {
	switch m.Kind {
	case cell.KindDeleteFamily:
		return p.Time <= m.Time
	case cell.KindDeleteFamilyVersion:
		return p.Time == m.Time
	case cell.KindDeleteColumn:
		return p.Time <= m.Time && bytes.Equal(p.Qualifier, m.Qualifier)
	case cell.KindDelete:
		return p.Time == m.Time && bytes.Equal(p.Qualifier, m.Qualifier)
	}
	return false
}

func inRange(r *cell.TimeRange, t cell.Timestamp) bool { return r == nil || r.Contains(t) }

// filter returns a new slice of the cells that keep holds for.
func filter(cells []written, keep func(*written) bool) []written {
	var kept []written
	for i := range cells {
		if keep(&cells[i]) {
			if kept == nil {
				kept = make([]written, 0, len(cells)-i)
			}
			kept = append(kept, cells[i])
		}
	}
	return kept
}

// collapse returns cells in storage order, of equal coordinates the later write.
func collapse(cells []written) []written {
	sorted := slices.Clone(cells)
	slices.SortFunc(sorted, compareWritten)
	return slices.CompactFunc(sorted, func(a, b written) bool {
		return a.Time == b.Time && a.Kind == b.Kind && bytes.Equal(a.Qualifier, b.Qualifier)
	})
}
