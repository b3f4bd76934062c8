package pebblestore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// familyReader reads one family of one row at a time: it takes the row's
// key-values in key order, merges packed fragments with single cells, and lets
// its resolver decide what is seen.
type familyReader struct {
	fam *family
	res resolver

	fragments []fragment // not hidden
	shadows   shadows
	pending   []entry // of the fragments and the empty qualifier, in order
	next      int     // first of pending not yet pushed
	sources   int     // runs in pending that are sorted each
	streaming bool    // past the empty qualifier
	plain     bool    // streaming, and the resolver's plain holds
	packed    cell.Packed
	passed    int // key-values in a row that nobody needed
	scratch   []byte
	seek      []byte // skip's
	entry     entry  // add's
	hold      arena  // what must live as long as the row is read: a part of it may be returned before
}

// fragment is one packed put; value is in familyReader.hold.
type fragment struct {
	time     cell.Timestamp
	sequence uint64
	value    []byte
}

// begin starts a row.
func (r *familyReader) begin() {
	r.res.reset()
	r.fragments, r.pending, r.next, r.sources, r.streaming = r.fragments[:0], r.pending[:0], 0, 0, false
	r.passed, r.scratch = 0, r.scratch[:0]
	r.shadows.begin()
	r.hold.reset()
}

// add takes the next key-value: suffix is the key from the qualifier on. Neither
// is kept.
func (r *familyReader) add(suffix, value []byte) error {
	switch r.fam.tag {
	case cell.TagCounter:
		return r.addCounter(suffix, value)
	case cell.TagSystem:
		return r.addSystem(suffix, value)
	}
	if len(suffix) < 2+versionBytes {
		return fmt.Errorf("%w: key suffix of %d bytes", store.ErrCorrupt, len(suffix))
	}
	t, kind, sequence := cell.DecodeVersion(suffix[len(suffix)-versionBytes:])
	if !r.streaming && suffix[0] == 0 && suffix[1] == 1 {
		return r.addUnnamed(t, kind, sequence, value)
	}
	n := len(suffix) - versionBytes
	qualifier := suffix[: n-2 : n-2] // where nothing is escaped
	if suffix[n-2] != 0 || suffix[n-1] != 1 || bytes.IndexByte(qualifier, 0) >= 0 {
		var err error
		if qualifier, _, r.scratch, err = cell.DecodePart(suffix, r.scratch[:0]); err != nil {
			return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
	}
	if !r.streaming {
		if err := r.stream(); err != nil {
			return err
		}
	}
	if kind == cell.KindPut && r.plain && t >= r.res.expiredUntil && len(value) > 0 && value[0] == 0 &&
		r.next == len(r.pending) && !(r.res.inColumn && bytes.Equal(qualifier, r.res.column)) {
		r.res.pushPlain(qualifier, t, value[1:])
		return nil
	}
	e := &r.entry
	e.qualifier, e.time, e.kind, e.sequence, e.ttl, e.value = qualifier, t, kind, sequence, 0, nil
	if kind == cell.KindPut {
		var err error
		if e.ttl, e.value, err = cell.DecodeValue(value); err != nil {
			return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
	}
	for r.next < len(r.pending) && r.pending[r.next].compare(e) < 0 {
		r.res.push(&r.pending[r.next])
		r.next++
	}
	if kind == cell.KindDelete && len(r.shadows.hidden) > 0 {
		if err := r.reveal(e); err != nil {
			return err
		}
	}
	r.res.push(e)
	return nil
}

// addUnnamed takes a key-value with the empty qualifier: a family marker, a
// packed fragment or a cell of the empty qualifier. They sort by time, so that
// cells wait until all fragments are known.
func (r *familyReader) addUnnamed(t cell.Timestamp, kind cell.Kind, sequence uint64, value []byte) error {
	if kind == cell.KindPacked {
		f := fragment{time: t, sequence: sequence, value: r.hold.copy(value)}
		if len(r.fragments) > 0 && !r.res.raw && !r.res.nvb {
			if len(r.shadows.groups) == 0 { // the first is the only one in most rows, and hides nothing
				r.shadows.hides(r.fragments[0], r.res.sel.Versions, r.res.high)
			}
			if r.shadows.hides(f, r.res.sel.Versions, r.res.high) {
				return nil
			}
		}
		r.fragments = append(r.fragments, f)
		return nil
	}
	e := entry{qualifier: emptyQualifier, time: t, kind: kind, sequence: sequence, stable: true}
	switch kind {
	case cell.KindDeleteFamily, cell.KindDeleteFamilyVersion:
		if !r.res.raw {
			r.res.familyMarker(&e)
			return nil
		}
	case cell.KindPut:
		var err error
		if e.ttl, e.value, err = cell.DecodeValue(value); err != nil {
			return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
		}
		e.value = r.hold.copy(e.value)
	}
	if len(r.pending) == 0 {
		r.sources++
	}
	r.pending = append(r.pending, e)
	return nil
}

var emptyQualifier = []byte{}

// usualColumns is room for the cells of a row that is read alone.
const usualColumns = 8

// versionBytes is the length of cell.AppendVersion's code.
const versionBytes = 8 + 1 + 8

// stream unpacks the fragments: from here on, cells are pushed as they come.
func (r *familyReader) stream() error {
	r.streaming, r.plain = true, r.res.plain()
	for i := range r.fragments {
		r.sources++
		if err := r.unpack(&r.fragments[i], nil); err != nil {
			return err
		}
	}
	oneVersion := func(e entry) bool { return e.kind == cell.KindDelete }
	if len(r.shadows.hidden) > 0 && (len(r.res.familyVersions) > 0 || slices.ContainsFunc(r.pending, oneVersion)) {
		return r.reveal(nil)
	}
	if r.sources > 1 {
		slices.SortFunc(r.pending, func(a, b entry) int { return a.compare(&b) })
	}
	return nil
}

// end finishes the row.
func (r *familyReader) end() error {
	if !r.streaming {
		if len(r.fragments) == 1 && len(r.pending) == 0 && r.res.deleteFamily == noTime &&
			len(r.res.familyVersions) == 0 && len(r.res.familyMarkers) == 0 {
			return r.emitFragment()
		}
		if err := r.stream(); err != nil {
			return err
		}
	}
	for ; r.next < len(r.pending); r.next++ {
		r.res.push(&r.pending[r.next])
	}
	r.res.endColumn()
	return nil
}

// emitFragment is the short way of the commonest row: one packed put and nothing
// else, so that every column has one version and nothing masks it.
func (r *familyReader) emitFragment() error {
	f, res := &r.fragments[0], &r.res
	if err := r.packed.Reset(f.value, f.sequence); err != nil {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	switch {
	case f.time < res.oldest || f.time >= res.high:
		return nil
	case !res.raw && expired(f.time, r.packed.TTL, res.now):
		return nil
	case !res.raw && f.time < res.expiredUntil && res.sel.Family.MinVersions == 0:
		return nil
	}
	out := slices.Grow(*res.out, usualColumns)
	if !res.selective {
		out = r.packed.AppendCells(out, res.sel.Family.Name, f.time)
	} else {
		for p := &r.packed; p.Next(); {
			if !res.wanted(p.Qualifier) {
				if res.exhausted() {
					break
				}
				continue
			}
			out = append(out, cell.Cell{Family: res.sel.Family.Name, Qualifier: p.Qualifier, Time: f.time, Kind: cell.KindPut, Value: p.Value, TTL: p.TTL})
		}
	}
	*res.out = out
	if err := r.packed.Err(); err != nil {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	return nil
}

// skipTo returns the qualifier of the next cell that can matter, where those
// before it cannot: after is true where it is the current column's successor,
// rowDone where nothing more of the row matters. ok is false where the next cell
// matters.
func (r *familyReader) skipTo() (qualifier []byte, after, rowDone, ok bool) {
	res := &r.res
	if !r.streaming || !res.inColumn || !res.done {
		return nil, false, false, false
	}
	if quals := res.sel.Qualifiers; quals != nil {
		at := res.at
		if at < len(quals) && string(quals[at]) == string(res.column) {
			at++
		}
		if at == len(quals) {
			return nil, false, true, true
		}
		return quals[at], false, false, true
	}
	if ranges := res.sel.Ranges; ranges != nil {
		if res.at == len(ranges) {
			return nil, false, true, true
		}
		if start := ranges[res.at].Start; string(res.column) < string(start) {
			return start, false, false, true
		}
	}
	return res.column, true, false, true
}

// skip counts the key-value that was added last where nobody needs those that follow
// it. ok is true where a seek passes them sooner than steps do: to the key seek, valid
// until the next call, or past the row's whole family where seek is nil. Then the cells
// that are left cannot be seen, fragments included: they were pushed, or sort after
// every selected column. prefix is the row's; alone says that no other row is read
// after it, so that the end of what matters is the end.
func (r *familyReader) skip(prefix []byte, alone bool) (seek []byte, ok bool) {
	qualifier, after, rowDone, ok := r.skipTo()
	if !ok {
		r.passed = 0
		return nil, false
	}
	if rowDone && alone {
		return nil, true
	}
	if r.passed++; r.passed < stepKeys {
		return nil, false
	}
	r.passed = 0
	if rowDone {
		return nil, true
	}
	r.seek = cell.AppendPart(append(r.seek[:0], prefix...), qualifier)
	if after {
		r.seek[len(r.seek)-1]++
	}
	return r.seek, true
}

func (r *familyReader) addCounter(suffix, value []byte) error {
	if r.fam.desc.Distinct {
		d, err := counters.DecodeDistinct(value)
		if err != nil {
			return fmt.Errorf("%w: distinct count: %w", store.ErrCorrupt, err)
		}
		return r.addInPlace(suffix, d.Time, d.Sequence, value[counters.DistinctHeader:])
	}
	v, err := counters.DecodeValue(value)
	if err != nil {
		return fmt.Errorf("%w: counter: %w", store.ErrCorrupt, err)
	}
	var count [8]byte
	binary.BigEndian.PutUint64(count[:], uint64(v.Count))
	return r.addInPlace(suffix, cell.Timestamp(v.Time), v.Sequence, count[:])
}

func (r *familyReader) addSystem(suffix, value []byte) error {
	t, sequence, payload, err := decodeSystemValue(value)
	if err != nil {
		return err
	}
	return r.addInPlace(suffix, t, sequence, payload)
}

// addInPlace takes a cell whose key is overwritten: the only version of its
// column.
func (r *familyReader) addInPlace(suffix []byte, t cell.Timestamp, sequence uint64, value []byte) error {
	qualifier, _, scratch, err := cell.DecodePart(suffix, r.scratch[:0])
	if r.scratch = scratch; err != nil {
		return fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	r.streaming = true
	r.res.push(&entry{qualifier: qualifier, time: t, kind: cell.KindPut, sequence: sequence, value: value})
	return nil
}

// appendSystemValue appends the stored form of a system cell: the time and the
// sequence at which it was written (8 bytes big-endian each) and the payload.
func appendSystemValue(dst []byte, t cell.Timestamp, sequence uint64, payload []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(t))
	dst = binary.BigEndian.AppendUint64(dst, sequence)
	return append(dst, payload...)
}

func decodeSystemValue(b []byte) (t cell.Timestamp, sequence uint64, payload []byte, err error) {
	if len(b) < 16 {
		return 0, 0, nil, fmt.Errorf("%w: system value of %d bytes", store.ErrCorrupt, len(b))
	}
	return cell.Timestamp(binary.BigEndian.Uint64(b)), binary.BigEndian.Uint64(b[8:]), b[16:], nil
}
