package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/turns"
	"sluice/store"
)

// rewriteFile is the name, in the data directory, of the sstable that a rewrite
// is making. There is one at a time.
const rewriteFile = "rewrite.sst"

// maxRewrittenRow is the size up to which a rewrite holds a row in memory. A
// larger one is compacted a piece at a time, and its fragments become a key a cell.
const maxRewrittenRow = 16 << 20

// probeKeys is how many keys a rewrite reads between two looks whether it should
// go on.
const probeKeys = 1024

// span is a part of one family that is to be rewritten, and how.
type span struct {
	table, family string
	low, high     []byte // of its keys; nil = the family's
	how           rewriting
	whole         bool   // all of it in one rewrite, or not at all
	after, upTo   uint64 // it touches cells with after < sequence ≤ upTo; upTo 0 = what was flushed
	earliestPut   cell.Timestamp
	tidy          bool // the store does it by itself
	limit         int  // of keys in one rewrite; 0 = Options.RewriteKeys
}

// rewritten is what a rewrite did.
type rewritten struct {
	keys, left        int   // read, and left of them
	bytes, leftBytes  int64 // of those
	rows, changedRows int
}

func (n *rewritten) add(o rewritten) {
	n.keys, n.left = n.keys+o.keys, n.left+o.left
	n.bytes, n.leftBytes = n.bytes+o.bytes, n.leftBytes+o.leftBytes
	n.rows, n.changedRows = n.rows+o.rows, n.changedRows+o.changedRows
}

// rewrite writes the keys of a span of one family again, without what compaction
// drops. Beginning and end are steps of the commit loop; between them commits go
// on, and what they write into the span is put on top of the result.
type rewrite struct {
	db        *DB
	s         *span
	t         *table
	f         *family
	c         compaction
	upTo      uint64
	low, high []byte // high comes down to where the rewrite has stopped
	next      []byte // where to go on; nil = the span is done
	it        *pebble.Iterator
	path      string // of the new sstable
	done      rewritten
	late      *lateWrites // nil = nothing will be replaced

	held    bool          // somebody wants to know what has changed in the table
	expired bool          // and in which rows cells are removed that had expired
	since   uint64        // after this
	changes *pebble.Batch // what the cells that are left do not tell of that; nil = nothing
	unsure  [][]byte      // prefixes of rows that the rewrite changes, or of which it may change what is seen

	changed []uint64 // hashes, sorted in the end, of the rows that lost cells
	seed    maphash.Seed

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
	out       []storedKV
	outBuf    arena
	groups    []group
	groupOf   map[groupKey]int
}

// turnRows is how many rows come before a look whether others have a turn.
const turnRows = 32

type storedKV struct{ key, value []byte }

// newRewrite begins s as the store is now. It returns nil where the span's family
// is gone. It runs in the commit loop.
func (db *DB) newRewrite(s *span) (*rewrite, error) {
	t, err := db.catalog.Load().lookup(s.table)
	if err != nil {
		return nil, err
	}
	f, _ := t.family(s.family)
	if f == nil || f.tag == cell.TagSystem {
		return nil, nil
	}
	low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	high := cell.PrefixEnd(low)
	if s.low != nil {
		if !bytes.HasPrefix(s.low, low) {
			// Dropped and made anew meanwhile, with other keys: from here
			// to there are those of other tables.
			return nil, nil
		}
		low = s.low
	}
	if s.high != nil {
		high = s.high
	}
	if err := db.checkSpace(); err != nil {
		return nil, err
	}
	r := &rewrite{
		db: db, s: s, t: t, f: f, low: low, high: high, upTo: s.upTo, seed: maphash.MakeSeed(),
		path: db.opts.FS.PathJoin(db.dir, rewriteFile),
		c:    compaction{f: f.desc, how: s.how, now: db.opts.Now(), earliestPut: s.earliestPut, tidy: s.tidy},
	}
	r.c.until = expiredUntil(f.desc, r.c.now)
	r.since, r.held = db.catalog.Load().held[t.id]
	r.expired = db.catalog.Load().holdsExpired(t)
	if r.upTo == 0 {
		r.upTo = db.flushed
	}
	if r.it, err = db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high}); err != nil {
		return nil, engineError(err)
	}
	return r, nil
}

// write makes the new sstable of the span's beginning of at most limit keys, whole
// rows, and reports whether anything is to be replaced. It runs beside the loop.
func (r *rewrite) write(ctx context.Context, limit int) (changed bool, err error) {
	file, err := createNamed(r.db.opts.FS, r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return false, diskError(err)
	}
	// As Pebble's own files it goes to disk bit by bit: one large sync would hold
	// up those of the log.
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: r.db.pebbleOpts.BytesPerSync})
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), r.db.tableOptions())
	defer func() {
		if e := engineError(w.Close()); err == nil {
			err = e
		}
	}()
	probe, turn := probeKeys, turns.Turn{}
	for ok, rows := r.it.First(), 0; ok || r.more; rows++ {
		if rows%turnRows == turnRows-1 {
			turn.Give()
		}
		if r.done.keys >= limit && !r.more {
			if r.s.whole {
				return false, nil
			}
			r.next = bytes.Clone(r.it.Key()[:cell.SplitKey(r.it.Key())])
			r.high = r.next
			break
		}
		if r.done.keys >= probe {
			probe = r.done.keys + probeKeys
			if err := r.interrupted(ctx); err != nil {
				return false, err
			}
		}
		if ok, err = r.readRow(); err != nil {
			return false, err
		}
		differs, err := r.compactRow()
		if err != nil {
			return false, err
		}
		changed = changed || differs
		for i := range r.out {
			if err := w.Set(r.out[i].key, r.out[i].value); err != nil {
				return false, engineError(err)
			}
		}
		if r.changes != nil && r.changes.Len() >= maxChangeBytes {
			if err := r.db.pebble.Apply(r.changes, pebble.NoSync); err != nil {
				return false, engineError(err)
			}
			r.changes.Reset()
		}
	}
	slices.Sort(r.changed)
	return changed, engineError(r.it.Error())
}

// interrupted reports why a rewrite that is under way must end.
func (r *rewrite) interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	if r.late != nil && r.late.overflown.Load() {
		return errOvertaken
	}
	return r.db.log.failure()
}

// close ends the rewrite, wherever it is.
func (r *rewrite) close() error {
	if r.late != nil {
		r.late.ended.Store(true)
	}
	err := r.db.closeIterator(r.it)
	if r.changes != nil {
		err = errors.Join(err, r.changes.Close())
	}
	// An ingest has moved the file.
	if e := r.db.opts.FS.Remove(r.path); e != nil && !errors.Is(e, fs.ErrNotExist) {
		err = errors.Join(err, diskError(e))
	}
	return err
}

// tableOptions are those of Pebble's own files at the lowest level.
func (db *DB) tableOptions() sstable.WriterOptions {
	o := db.pebbleOpts.MakeWriterOptions(6, db.pebble.TableFormat())
	o.DisableValueBlocks = true // as the span policy says for Pebble's own files
	return o
}

// readRow reads the row that the iterator is on, unpacked and in order, and moves
// to the next; of a row larger than maxRewrittenRow it reads the next piece, whole
// columns, and more tells that there are others.
func (r *rewrite) readRow() (ok bool, err error) {
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
		if size > r.db.opts.maxRewrittenRow && r.columnEnds(key, split) {
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
func (r *rewrite) unpack(it *pebble.Iterator, split int) error {
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
func (r *rewrite) once() {
	r.entries = slices.CompactFunc(r.entries, func(a, b entry) bool { return a.compare(&b) == 0 })
}

// kind is that of the cell or cells of a TagData key.
func (kv *storedKV) kind() cell.Kind { return cell.Kind(^kv.key[len(kv.key)-9]) }

// merge puts the row's entries in order, each once. Each fragment's are in order, and so
// are the others between two of them.
func (r *rewrite) merge() {
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
func (r *rewrite) carryOver() []entry {
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
func (r *rewrite) columnEnds(key []byte, split int) bool {
	if r.f.tag != cell.TagData {
		return true // one key a column
	}
	last := r.origin[len(r.origin)-1].key
	return !bytes.Equal(last[split:len(last)-versionBytes], key[split:max(split, len(key)-versionBytes)])
}

// decode appends the cells of one key-value, the last of origin.
func (r *rewrite) decode(kv storedKV, split int) error {
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

// compactRow makes r.out what of the row stays, in key order, and reports whether
// that differs from what is there.
func (r *rewrite) compactRow() (differs bool, err error) {
	dropped := false
	switch {
	case r.f.tag == cell.TagCounter:
		dropped, err = r.compactCounters()
		differs = dropped
	default:
		differs, dropped, err = r.compactCells()
	}
	if err != nil {
		return false, err
	}
	r.done.left += len(r.out)
	for i := range r.out {
		r.done.leftBytes += int64(len(r.out[i].key) + len(r.out[i].value))
	}
	if dropped {
		r.done.changedRows++
		if r.late != nil {
			r.changed = append(r.changed, r.hash(r.prefix()))
		}
	}
	return differs, nil
}

func (r *rewrite) hash(prefix []byte) uint64 { return maphash.Bytes(r.seed, prefix) }

// compactCounters drops the counters that their family's TTL has passed. They do
// not share rows with what is dropped elsewhere: a late increment is counted from
// 0 whether they are there or not.
func (r *rewrite) compactCounters() (dropped bool, err error) {
	r.out = r.out[:0]
	var newest, left uint64
	for _, kv := range r.origin {
		var e counter
		if err := e.decode(r.f, kv.value); err != nil {
			return false, corruptCounter(r.t, r.f, kv.key, err)
		}
		newest = max(newest, e.value.Sequence)
		if e.value.Time >= r.c.until {
			r.out = append(r.out, kv)
			left = max(left, e.value.Sequence)
		}
	}
	dropped = len(r.out) < len(r.origin)
	if dropped && r.held && r.expired {
		r.unsure = append(r.unsure, bytes.Clone(r.prefix()))
		return dropped, nil
	}
	return dropped, r.noteChange(newest, left)
}

// subject reports whether the rewrite may touch the cell.
func (r *rewrite) subject(e *entry) bool { return e.sequence > r.s.after && e.sequence <= r.upTo }

// subjectAll reports whether it may touch all cells of the row.
func (r *rewrite) subjectAll() bool {
	for i := range r.entries {
		if !r.subject(&r.entries[i]) {
			return false
		}
	}
	return true
}

func (r *rewrite) compactCells() (differs, dropped bool, err error) {
	total := len(r.entries) - r.inherited
	newest := latest(r.entries)
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
	over := r.held && r.expired && slices.ContainsFunc(cells, r.c.over)
	kept := r.c.run(cells)
	if r.inherited > 0 || len(aside) > 0 {
		kept = slices.DeleteFunc(append(kept[:len(kept):len(kept)], aside...), func(e entry) bool { return e.origin == inheritedOrigin })
		slices.SortFunc(kept, func(a, b entry) int { return a.compare(&b) })
	}
	if dropped = len(kept) < total; dropped && r.held {
		if over || r.seenDiffers(len(aside) > 0) {
			r.unsure = append(r.unsure, bytes.Clone(r.prefix()))
		} else if err := r.noteChange(newest, latest(kept)); err != nil {
			return false, false, err
		}
	}
	switch {
	case r.fragments > 0 && (r.more || r.piece > 0):
		r.encodeSingly(kept, func(e *entry) bool { return e.origin >= 0 })
		return true, dropped, nil
	case !dropped && !fold:
		r.out = append(r.out[:0], r.origin...)
		return false, false, nil
	case r.fragments == 0 && !fold:
		// A key a cell: those that stay are as they were.
		r.out = r.out[:0]
		for i := range kept {
			r.out = append(r.out, r.origin[kept[i].origin])
		}
		return true, true, nil
	}
	r.encode(kept, fold)
	return dropped || len(r.out) != len(r.origin), dropped, nil
}

// groupKey is what puts of one key-value have in common.
type groupKey struct {
	time   cell.Timestamp
	ttl    int64
	origin int // of its cells; folded = of several
}

const folded = -2

// group is the puts of one key-value that is to be written, in order of their
// qualifiers.
type group struct {
	puts []*entry
	size int
}

// encode makes r.out the key-values of cells, in key order. Puts that came from
// one key-value stay together; with fold all puts of one time and TTL do, up to
// the size of a packed value.
func (r *rewrite) encode(cells []entry, fold bool) {
	prefix := r.prefix()
	r.out = r.out[:0]
	r.outBuf.reset()
	groups := r.gather(cells, fold)
	for i := range cells {
		if e := &cells[i]; e.kind != cell.KindPut {
			r.out = append(r.out, r.origin[e.origin])
		}
	}
	for i := range groups {
		r.out = append(r.out, r.pack(prefix, groups[i].puts))
	}
	r.sortOut()
	if !r.outCollides() {
		return
	}
	// Cells of one commit were in several fragments, and are left as the newest of two of
	// them. Singly each has a key of its own.
	r.encodeSingly(cells, func(e *entry) bool { return e.kind != cell.KindPut })
	r.sortOut()
}

func (r *rewrite) sortOut() {
	slices.SortFunc(r.out, func(a, b storedKV) int { return bytes.Compare(a.key, b.key) })
}

// outCollides reports whether two key-values of out, in order, have one key.
func (r *rewrite) outCollides() bool {
	for i := 1; i < len(r.out); i++ {
		if bytes.Equal(r.out[i-1].key, r.out[i].key) {
			return true
		}
	}
	return false
}

// encodeSingly makes r.out the key-values of cells, a key each: that which it came from
// where stays says so.
func (r *rewrite) encodeSingly(cells []entry, stays func(e *entry) bool) {
	prefix := r.prefix()
	r.out = r.out[:0]
	for i := range cells {
		if e := &cells[i]; stays(e) {
			r.out = append(r.out, r.origin[e.origin])
		} else {
			r.out = append(r.out, single(prefix, e))
		}
	}
}

// single returns the key-value of a put by itself.
func single(prefix []byte, e *entry) storedKV {
	key := cell.AppendVersion(cell.AppendPart(bytes.Clone(prefix), e.qualifier), e.time, e.kind, e.sequence)
	return storedKV{key: key, value: cell.AppendValue(nil, e.ttl, e.value)}
}

// gather divides the puts of cells among groups.
func (r *rewrite) gather(cells []entry, fold bool) []group {
	if r.groupOf == nil {
		r.groupOf = map[groupKey]int{}
	}
	clear(r.groupOf)
	groups := r.groups[:0]
	var last groupKey
	at := -1
	find := func(k groupKey) *group {
		if at >= 0 && k == last {
			return &groups[at]
		}
		i, ok := r.groupOf[k]
		if !ok {
			i = len(groups)
			if i < cap(groups) {
				groups = groups[:i+1]
				groups[i].puts, groups[i].size = groups[i].puts[:0], 0
			} else {
				groups = append(groups, group{})
			}
			r.groupOf[k] = i
		}
		last, at = k, i
		return &groups[i]
	}
	for i := range cells {
		e := &cells[i]
		if e.kind != cell.KindPut {
			continue
		}
		k := groupKey{e.time, e.ttl, e.origin}
		if fold {
			k.origin = folded
			g := find(k)
			g.size += len(e.qualifier) + len(e.value)
			// A packed value holds a column once; an older write of the same
			// coordinates goes with the key-value that it came from.
			if n := len(g.puts); n == 0 || !bytes.Equal(g.puts[n-1].qualifier, e.qualifier) {
				g.puts = append(g.puts, e)
				continue
			}
			k.origin = e.origin
		}
		g := find(k)
		g.puts = append(g.puts, e)
	}
	if fold {
		groups = r.unfold(groups)
	}
	r.groups = groups
	return groups
}

// unfold gives the puts of groups that are too large for a packed value back to
// the key-values that they came from, beside older writes that are there still.
func (r *rewrite) unfold(groups []group) []group {
	n := len(groups)
	split := false
	for i := range n {
		if groups[i].size <= maxPackedBytes {
			continue
		}
		split = true
		for _, e := range groups[i].puts {
			k := groupKey{e.time, e.ttl, e.origin}
			at, ok := r.groupOf[k]
			if !ok {
				at = len(groups)
				r.groupOf[k] = at
				groups = append(groups, group{})
			}
			groups[at].puts = append(groups[at].puts, e)
		}
		groups[i].puts = groups[i].puts[:0]
	}
	if !split {
		return groups
	}
	for i := range groups {
		slices.SortFunc(groups[i].puts, func(a, b *entry) int { return bytes.Compare(a.qualifier, b.qualifier) })
	}
	return slices.DeleteFunc(groups, func(g group) bool { return len(g.puts) == 0 })
}

// pack returns the key-value of puts of one time and TTL, in order of their
// qualifiers. Its sequence is the highest of theirs, by which hardly two collide (see
// encode).
func (r *rewrite) pack(prefix []byte, puts []*entry) storedKV {
	first := puts[0]
	a := &r.outBuf
	if len(puts) == 1 {
		if o := r.origin[first.origin]; o.kind() == cell.KindPut {
			return o
		}
		return single(prefix, first)
	}
	highest, same, size := first.sequence, true, 1+8
	for _, e := range puts {
		highest, same = max(highest, e.sequence), same && e.sequence == first.sequence
		size += len(e.qualifier) + len(e.value) + 2*5 + 8
	}
	value := cell.AppendPackedHeader(a.room(size), first.ttl, !same)
	for _, e := range puts {
		value = cell.AppendPackedColumn(value, e.qualifier, e.value)
		if !same {
			value = cell.AppendPackedSequence(value, e.sequence)
		}
	}
	a.take(len(value))
	key := append(append(a.room(len(prefix)+2+versionBytes), prefix...), 0, 1)
	key = cell.AppendVersion(key, first.time, cell.KindPacked, highest)
	a.take(len(key))
	return storedKV{key: key, value: value}
}

// room returns an empty slice that n bytes can be appended to; take keeps what
// was.
func (a *arena) room(n int) []byte {
	if cap(a.buf)-len(a.buf) < n {
		a.buf = make([]byte, 0, max(4<<10, 2*cap(a.buf), n))
	}
	return a.buf[len(a.buf) : len(a.buf) : len(a.buf)+n]
}

func (a *arena) take(n int) { a.buf = a.buf[:len(a.buf)+n] }
