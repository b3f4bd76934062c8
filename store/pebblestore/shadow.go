package pebblestore

import (
	"bytes"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// shadows keeps apart the packed puts of a row and family that newer ones hide. A row
// that is overwritten often has thousands of them until they are rewritten, and to
// unpack and sort them all to see the newest would take a get milliseconds.
//
// A packed put is hidden where as many newer ones as versions are read have all its
// columns, each at a time of its own. Whatever masks those masks it, too (a marker
// reaches back from its time), but for the markers of one version, after which it is
// looked at again (familyReader.reveal). Newer ones that can vanish alone do not count:
// those with a TTL, and those that are too new for the scan.
type shadows struct {
	groups []shadowGroup
	hidden []fragment // newest first
}

// shadowGroup are packed puts with the same columns.
type shadowGroup struct {
	newest []byte         // value of one
	times  int            // different times
	oldest cell.Timestamp // of them
}

const (
	// maxShadowVersions bounds the versions up to which hiding is worth its while.
	maxShadowVersions = 16
	// maxShadowGroups bounds how many sets of columns are told apart.
	maxShadowGroups = 4
)

// begin starts a row.
func (s *shadows) begin() { s.groups, s.hidden = s.groups[:0], s.hidden[:0] }

// hides reports whether f is hidden by those that came before it, all of which sort
// before it, and keeps it then. versions is how many versions of a column are read,
// high the time from which on none is.
func (s *shadows) hides(f fragment, versions int, high cell.Timestamp) bool {
	if versions < 1 || versions > maxShadowVersions || f.time >= high {
		return false
	}
	for i := range s.groups {
		g := &s.groups[i]
		within, same, ttl := coveredBy(f.value, g.newest)
		switch {
		case !within || f.time >= g.oldest:
		case g.times >= versions:
			s.hidden = append(s.hidden, f)
			return true
		case same && ttl == 0:
			g.times, g.oldest = g.times+1, f.time
			return false
		}
	}
	var p cell.Packed
	if len(s.groups) < maxShadowGroups && p.Reset(f.value, 0) == nil && p.TTL == 0 {
		s.groups = append(s.groups, shadowGroup{newest: f.value, times: 1, oldest: f.time})
	}
	return false
}

// coveredBy reports whether all columns of packed value a are columns of b, and
// whether they are the same, and returns a's TTL. Corrupt values are covered by none:
// who unpacks them says so.
func coveredBy(a, b []byte) (within, same bool, ttl int64) {
	var p, q cell.Packed
	if p.Reset(a, 0) != nil || q.Reset(b, 0) != nil {
		return false, false, 0
	}
	same = true
	for p.Next() {
		for {
			if !q.Next() {
				return false, false, p.TTL
			}
			c := bytes.Compare(q.Qualifier, p.Qualifier)
			if c > 0 {
				return false, false, p.TTL
			}
			if c == 0 {
				break
			}
			same = false
		}
	}
	if q.Next() {
		same = false
	}
	return p.Err() == nil && q.Err() == nil, same, p.TTL
}

// reveal takes the hidden packed puts back among the pending cells, those of their
// cells that sort after the cell after: where it is a marker of one version, the
// version that was counted in their place may be the one that it masks. nil = all.
func (r *familyReader) reveal(after *entry) error {
	hidden := r.shadows.hidden
	r.pending = slices.Delete(r.pending, 0, r.next)
	r.next = 0
	for i := range hidden {
		if err := r.unpack(&hidden[i], after); err != nil {
			return err
		}
	}
	slices.SortFunc(r.pending, func(a, b entry) int { return a.compare(&b) })
	r.shadows.hidden = hidden[:0]
	return nil
}

// unpack appends the cells of f that sort after the cell after, nil = all, to those
// that are pending.
func (r *familyReader) unpack(f *fragment, after *entry) error {
	if err := r.packed.Reset(f.value, f.sequence); err != nil {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	for r.packed.Next() {
		e := entry{
			qualifier: r.packed.Qualifier, time: f.time, kind: cell.KindPut, sequence: r.packed.Sequence,
			ttl: r.packed.TTL, value: r.packed.Value, stable: true,
		}
		if after == nil || after.compare(&e) < 0 {
			r.pending = append(r.pending, e)
		}
	}
	if err := r.packed.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return nil
}
