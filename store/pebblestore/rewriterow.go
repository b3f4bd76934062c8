package pebblestore

import (
	"bytes"
	"cmp"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// maxRewrittenRow is the size up to which a rewrite holds a row in memory. A
// larger one is compacted a piece at a time, and its fragments become a key a cell.
const maxRewrittenRow = 16 << 20

// rowRewriter reads the rows of one family, one after the other, and makes of each the
// key-values that stay of it. It changes nothing, and belongs to one goroutine.
type rowRewriter struct {
	t  *table
	f  *family
	c  compaction
	it *pebble.Iterator

	after, upTo uint64 // it touches cells with after < sequence ≤ upTo
	maxRow      int    // bytes of a row that is held in memory
	tellExpired bool   // rowOutcome.expired is asked for
	tellUnsure  bool   // rowOutcome.unsure is
	done        rewritten

	row       arena
	entries   []entry // of the current row
	origin    []storedKV
	fragments int      // of the row so far, packed
	unpacked  unpacked // of a row in pieces
	inherited int      // of entries, family markers of the row's earlier pieces
	piece     int      // number of the current row's current piece; 0 = the first
	size      int      // of the current piece
	more      bool     // the row has further pieces
	timed     bool     // a cell with a TTL of its own was seen
	packed    cell.Packed
	aside     []entry
	cells     []entry
	out       []storedKV // what stays of the row, in key order
	outBuf    arena
	groups    []group
	groupOf   map[groupKey]int
}

type storedKV struct{ key, value []byte }

// rowOutcome is what a rewrite does to a row, or to a piece of one.
type rowOutcome struct {
	differs bool // what stays, from what is there
	dropped bool // a cell, or a counter, is
	// Of a row with dropped cells:
	expired bool // one of its cells, or counters, had expired
	unsure  bool // what is seen of the row may be something else then
	newest  uint64
	left    uint64 // the newest sequence of what stays; newest is that of what was there
}

// newRowRewriter returns what rewrites rows of f as s says, all of its cells up to the
// sequence upTo. The caller sets the iterator, and closes it.
func (db *DB) newRowRewriter(t *table, f *family, s *span, upTo uint64) *rowRewriter {
	r := &rowRewriter{
		t: t, f: f, after: s.after, upTo: upTo, maxRow: db.opts.maxRewrittenRow,
		c: compaction{f: f.desc, how: s.how, now: db.opts.Now(), earliestPut: s.earliestPut, tidy: s.tidy},
	}
	r.c.until = expiredUntil(f.desc, r.c.now)
	return r
}

// readRow reads the row that the iterator is on, unpacked and in order, and moves
// to the next; of a row larger than maxRewrittenRow it reads the next piece, whole
// columns, and more tells that there are others.
func (r *rowRewriter) readRow() (ok bool, err error) {
	it := r.it
	inherited := r.carryOver()
	r.row.reset()
	r.entries, r.origin, r.inherited = append(r.entries[:0], inherited...), r.origin[:0], len(inherited)
	split := cell.SplitKey(it.Key())
	var prefix []byte
	size := 0
	for ok = true; ok; ok = it.Next() {
		key := it.Key()
		if prefix != nil && !bytes.HasPrefix(key, prefix) {
			break
		}
		if size > r.maxRow && r.columnEnds(key, split) {
			r.more = true
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return false, engineError(err)
		}
		kv := storedKV{key: r.row.copy(key), value: r.row.copy(value)}
		if prefix == nil {
			prefix = kv.key[:split]
		}
		size += len(key) + len(value)
		r.origin = append(r.origin, kv)
		if err := r.decode(kv, split); err != nil {
			return false, err
		}
	}
	r.done.keys += len(r.origin)
	r.done.bytes += int64(size)
	r.size = size
	if r.piece == 0 {
		r.done.rows++
	}
	switch {
	case r.fragments == 0:
	case r.more || r.piece > 0:
		return ok, r.unpack(it, split)
	case len(r.origin) > 1:
		r.merge()
	}
	return ok, nil
}

// unpacked are the cells of a row's fragments that its pieces have not come to yet,
// in key order.
type unpacked struct {
	cells []entry
	next  int
	bytes arena // of their qualifiers and values
}

// unpack puts the fragments' cells of the piece's columns among its entries. All of
// a row's fragments are in its first piece.
func (r *rowRewriter) unpack(it *pebble.Iterator, split int) error {
	u := &r.unpacked
	if r.piece == 0 {
		u.cells, u.next = u.cells[:0], 0
		u.bytes.reset()
		r.entries = slices.DeleteFunc(r.entries, func(e entry) bool {
			if e.origin < 0 || r.origin[e.origin].kind() != cell.KindPacked {
				return false
			}
			e.qualifier, e.value, e.origin = u.bytes.copy(e.qualifier), u.bytes.copy(e.value), unpackedOrigin
			u.cells = append(u.cells, e)
			return true
		})
		slices.SortFunc(u.cells, func(a, b entry) int { return a.compare(&b) })
	}
	end := len(u.cells)
	if r.more { // whole columns, before that of the next key
		qualifier, _, _, err := cell.DecodePart(it.Key()[split:], nil)
		if err != nil {
			return fmt.Errorf("%w: key %x: %w", store.ErrCorrupt, it.Key(), err)
		}
		for end = u.next; end < len(u.cells) && bytes.Compare(u.cells[end].qualifier, qualifier) < 0; end++ {
		}
	}
	r.entries = append(r.entries, u.cells[u.next:end]...)
	u.next = end
	slices.SortStableFunc(r.entries, func(a, b entry) int { return a.compare(&b) })
	r.once()
	return nil
}

// once drops what the entries, in order, have twice: a row that was written while its
// fragments were unpacked, or its cells folded, has cells by themselves and in a fragment,
// as what it had was restored.
func (r *rowRewriter) once() {
	r.entries = slices.CompactFunc(r.entries, func(a, b entry) bool { return a.compare(&b) == 0 })
}

// kind is that of the cell or cells of a TagData key.
func (kv *storedKV) kind() cell.Kind { return cell.Kind(^kv.key[len(kv.key)-9]) }

// merge puts the row's entries in order, each once. Each fragment's are in order, and so
// are the others between two of them.
func (r *rowRewriter) merge() {
	const most = 8 // runs; with more of them a sort compares less
	var heads, ends [most]int
	n := 0
	for i := range r.entries {
		if i > 0 && r.entries[i-1].compare(&r.entries[i]) < 0 {
			continue
		}
		if n == most {
			slices.SortFunc(r.entries, func(a, b entry) int { return cmp.Or(a.compare(&b), cmp.Compare(a.origin, b.origin)) })
			r.once()
			return
		}
		if n > 0 {
			ends[n-1] = i
		}
		heads[n] = i
		n++
	}
	if n < 2 {
		return
	}
	ends[n-1] = len(r.entries)
	merged := r.cells[:0]
	for len(merged) < len(r.entries) {
		least := -1
		for i := range n {
			if heads[i] < ends[i] && (least < 0 || r.entries[heads[i]].compare(&r.entries[heads[least]]) < 0) {
				least = i
			}
		}
		merged = append(merged, r.entries[heads[least]])
		heads[least]++
	}
	r.entries, r.cells = merged, r.entries
	r.once()
}

// carryOver begins the next row, or the next piece of one, and returns the family
// markers that the pieces before have had: they mask cells of this one, too.
func (r *rowRewriter) carryOver() []entry {
	if !r.more {
		r.piece, r.fragments = 0, 0
		return nil
	}
	r.more = false
	r.piece++
	var markers []entry
	for _, e := range r.entries {
		if len(e.qualifier) > 0 {
			break
		}
		if e.kind == cell.KindDeleteFamily || e.kind == cell.KindDeleteFamilyVersion {
			e.qualifier, e.origin = emptyQualifier, inheritedOrigin
			markers = append(markers, e)
		}
	}
	return markers
}

// The origins of entries that are no key-value of the piece: markers that an earlier
// piece of the row holds, and cells of the row's fragments.
const (
	inheritedOrigin = -1
	unpackedOrigin  = -3
)

// columnEnds reports whether key, of the current row, begins another column than
// the key before it.
func (r *rowRewriter) columnEnds(key []byte, split int) bool {
	if r.f.tag != cell.TagData {
		return true // one key a column
	}
	last := r.origin[len(r.origin)-1].key
	return !bytes.Equal(last[split:len(last)-versionBytes], key[split:max(split, len(key)-versionBytes)])
}

// decode appends the cells of one key-value, the last of origin.
func (r *rowRewriter) decode(kv storedKV, split int) error {
	bad := func(err error) error { return fmt.Errorf("%w: key %x: %w", store.ErrCorrupt, kv.key, err) }
	if r.f.tag == cell.TagCounter {
		return nil
	}
	suffix := kv.key[split:]
	if len(suffix) < 2+versionBytes {
		return bad(cell.ErrCorruptKey)
	}
	qualifier, _, _, err := cell.DecodePart(suffix, nil)
	if err != nil {
		return bad(err)
	}
	e := entry{qualifier: qualifier, origin: len(r.origin) - 1}
	e.time, e.kind, e.sequence = cell.DecodeVersion(suffix[len(suffix)-versionBytes:])
	switch e.kind {
	case cell.KindPacked:
		r.fragments++
		if err := r.packed.Reset(kv.value, e.sequence); err != nil {
			return bad(err)
		}
		for r.packed.Next() {
			p := e
			r.timed = r.timed || r.packed.TTL != 0
			p.kind, p.qualifier, p.value, p.sequence, p.ttl = cell.KindPut, r.packed.Qualifier, r.packed.Value, r.packed.Sequence, r.packed.TTL
			r.entries = append(r.entries, p)
		}
		if err := r.packed.Err(); err != nil {
			return bad(err)
		}
		return nil
	case cell.KindPut:
		if e.ttl, e.value, err = cell.DecodeValue(kv.value); err != nil {
			return bad(err)
		}
		r.timed = r.timed || e.ttl != 0
	}
	r.entries = append(r.entries, e)
	return nil
}

// compactRow makes r.out what of the row stays.
func (r *rowRewriter) compactRow() (o rowOutcome, err error) {
	if r.f.tag == cell.TagCounter {
		o, err = r.compactCounters()
	} else {
		o = r.compactCells()
	}
	if err != nil {
		return o, err
	}
	r.done.left += len(r.out)
	for i := range r.out {
		r.done.leftBytes += int64(len(r.out[i].key) + len(r.out[i].value))
	}
	if o.dropped {
		r.done.changedRows++
	}
	return o, nil
}

// prefix is that of the keys of the current row.
func (r *rowRewriter) prefix() []byte {
	key := r.origin[0].key
	return key[:cell.SplitKey(key)]
}

// latest returns the latest sequence of cells.
func latest(cells []entry) (sequence uint64) {
	for i := range cells {
		sequence = max(sequence, cells[i].sequence)
	}
	return sequence
}

// compactCounters drops the counters that their family's TTL has passed. They do
// not share rows with what is dropped elsewhere: a late increment is counted from
// 0 whether they are there or not.
func (r *rowRewriter) compactCounters() (o rowOutcome, err error) {
	r.out = r.out[:0]
	for _, kv := range r.origin {
		var e counter
		if err := e.decode(r.f, kv.value); err != nil {
			return o, corruptCounter(r.t, r.f, kv.key, err)
		}
		o.newest = max(o.newest, e.value.Sequence)
		if e.value.Time >= r.c.until {
			r.out = append(r.out, kv)
			o.left = max(o.left, e.value.Sequence)
		}
	}
	o.dropped = len(r.out) < len(r.origin)
	o.differs, o.expired = o.dropped, o.dropped && r.tellExpired
	return o, nil
}

// subject reports whether the rewrite may touch the cell.
func (r *rowRewriter) subject(e *entry) bool { return e.sequence > r.after && e.sequence <= r.upTo }

// subjectAll reports whether it may touch all cells of the row.
func (r *rowRewriter) subjectAll() bool {
	for i := range r.entries {
		if !r.subject(&r.entries[i]) {
			return false
		}
	}
	return true
}

// seenDiffers reports whether a rewrite that leaves kept of the current row may
// change what is seen of it, as some of HBase's do: a compaction does not look at
// what is apart, as it was not flushed, such as a marker that masks a version that
// counts, and what kept delete markers mask counts among the versions. Of
// NEW_VERSION_BEHAVIOR, and of a row in pieces, whose markers are in other pieces,
// it is not known.
func (r *rowRewriter) seenDiffers(kept []entry, apart bool) bool {
	switch {
	case r.f.desc.KeepDeleted != store.KeepDeletedFalse || r.f.desc.NewVersionBehavior:
		return true
	case !apart:
		return false
	case r.more || r.piece > 0:
		return true
	}
	return !slices.EqualFunc(r.seen(r.entries), r.seen(kept), func(a, b entry) bool { return a.compare(&b) == 0 })
}

// seen returns the puts among a row's cells that a read of all versions sees now, without
// KEEP_DELETED_CELLS and NEW_VERSION_BEHAVIOR: those that a major compaction leaves of
// cells that were all flushed.
func (r *rowRewriter) seen(cells []entry) []entry {
	all := compaction{f: r.f.desc, how: rewriteMajor, now: r.c.now, until: r.c.until}
	return slices.DeleteFunc(all.run(slices.Clone(cells)), func(e entry) bool { return e.kind.IsDelete() })
}

func (r *rowRewriter) compactCells() rowOutcome {
	o := rowOutcome{newest: latest(r.entries)}
	total := len(r.entries) - r.inherited
	fold := r.c.how != rewriteFlush && len(r.origin) > 1 && !r.more && r.piece == 0 && r.size <= maxFragmentBytes
	cells, aside := r.entries, r.aside[:0]
	if !r.subjectAll() {
		cells = r.cells[:0]
		for i := range r.entries {
			if e := &r.entries[i]; r.subject(e) {
				cells = append(cells, *e)
			} else {
				aside = append(aside, *e)
			}
		}
		r.cells, r.aside = cells, aside
	} else if r.more || r.piece > 0 {
		// The next piece wants to know the markers, and run works in place.
		cells = append(r.cells[:0], cells...)
		r.cells = cells
	}
	o.expired = r.tellExpired && slices.ContainsFunc(cells, r.c.over)
	kept := r.c.run(cells)
	if r.inherited > 0 || len(aside) > 0 {
		kept = slices.DeleteFunc(append(kept[:len(kept):len(kept)], aside...), func(e entry) bool { return e.origin == inheritedOrigin })
		slices.SortFunc(kept, func(a, b entry) int { return a.compare(&b) })
	}
	if o.dropped = len(kept) < total; o.dropped {
		o.unsure, o.left = r.tellUnsure && r.seenDiffers(kept, len(aside) > 0), latest(kept)
	}
	switch {
	case r.fragments > 0 && (r.more || r.piece > 0):
		r.encodeSingly(kept, func(e *entry) bool { return e.origin >= 0 })
		o.differs = true
	case !o.dropped && !fold:
		r.out = append(r.out[:0], r.origin...)
	case r.fragments == 0 && !fold:
		// A key a cell: those that stay are as they were.
		r.out = r.out[:0]
		for i := range kept {
			r.out = append(r.out, r.origin[kept[i].origin])
		}
		o.differs = true
	default:
		r.encode(kept, fold)
		o.differs = o.dropped || len(r.out) != len(r.origin)
	}
	return o
}
