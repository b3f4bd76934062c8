package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// rewriteFile is the name, in the data directory, of the sstable that a rewrite
// is making. There is one at a time: the commit loop makes it.
const rewriteFile = "rewrite.sst"

// writtenSpan is where a family was written since the last flush: the keys in
// [low, high).
type writtenSpan struct{ low, high []byte }

// noteWritten remembers where c has written, for the next flush, and takes it for
// flushed once a memtable of data has gone by.
func (db *DB) noteWritten(c *commit) {
	db.unflushedBytes += uint64(len(c.buf))
	if db.unflushedBytes > db.opts.MemTableBytes {
		db.markFlushed()
		return
	}
	// write has sorted c.kvs, so that a family is one run of them.
	for i := 0; i < len(c.kvs); {
		n := i + 1
		for n < len(c.kvs) && c.kvs[n].head>>16 == c.kvs[i].head>>16 {
			n++
		}
		low, last := c.rowPrefix(i), c.rowPrefix(n-1)
		if w := db.written[c.kvs[i].head>>16]; w == nil {
			db.written[c.kvs[i].head>>16] = &writtenSpan{low: bytes.Clone(low), high: rowEnd(last)}
		} else {
			if bytes.Compare(low, w.low) < 0 {
				w.low = append(w.low[:0], low...)
			}
			if bytes.Compare(last, w.high) > 0 {
				w.high = rowEnd(last)
			}
		}
		i = n
	}
}

// markFlushed makes everything written so far what a compaction may touch. The
// next commit stores it.
func (db *DB) markFlushed() {
	db.flushed = db.sequence.Load()
	db.unflushedBytes = 0
	clear(db.written)
}

// loadFlushed makes what was written after the last flush of an earlier run what
// the next flush looks at: anywhere.
func (db *DB) loadFlushed() {
	if db.flushed == db.sequence.Load() {
		return
	}
	for _, t := range db.catalog.Load().tables {
		for i := range t.fams {
			if f := &t.fams[i]; f.tag == cell.TagData {
				low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
				db.written[familyHead(low)] = &writtenSpan{low: low, high: cell.PrefixEnd(low)}
			}
		}
	}
}

// sequenceValue is the stored form of the last sequence: a system value, whose
// payload is the sequence up to which cells were flushed.
func (db *DB) sequenceValue(now cell.Timestamp, sequence uint64) []byte {
	return appendSystemValue(nil, now, sequence, binary.BigEndian.AppendUint64(nil, db.flushed))
}

// Flush writes what is in memory to disk. As HBase's flush it drops what the
// cells written since the last flush mask among themselves; a family in which
// they lie too far apart for one rewrite (Options.RewriteKeys) is left to a
// compaction.
func (db *DB) Flush(ctx context.Context) error {
	if db.opts.ReadOnly {
		return fmt.Errorf("flush: %w", store.ErrReadOnly)
	}
	err := db.exclusive(ctx, func() error {
		if err := db.checkSpace(); err != nil {
			return err
		}
		if err := db.pebble.Flush(); err != nil {
			return engineError(err)
		}
		for _, t := range db.catalog.Load().tables {
			for i := range t.fams {
				if err := db.flushFamily(t, &t.fams[i]); err != nil {
					return fmt.Errorf("table %s, family %s: %w", t.desc.Name, t.fams[i].desc.Name, err)
				}
			}
		}
		db.markFlushed()
		// Without a sync: after a crash more counts as unflushed, no harm.
		return engineError(db.pebble.Set(sequenceKey(), db.sequenceValue(db.opts.Now(), db.flushed), pebble.NoSync))
	})
	if err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

func (db *DB) flushFamily(t *table, f *family) error {
	if f.tag != cell.TagData {
		return nil
	}
	prefix := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	w := db.written[familyHead(prefix)]
	if w == nil {
		return nil
	}
	r := db.newRewrite(t, f, rewriteFlush)
	_, err := r.span(w.low, w.high, false)
	return err
}

// familyHead is the first six bytes of a key as the commit orders by them.
func familyHead(prefix []byte) uint64 {
	var h uint64
	for _, b := range prefix[:prefixBytes] {
		h = h<<8 | uint64(b)
	}
	return h
}

// rowEnd returns the key after all keys with this row prefix, which ends with
// the terminator 00 01.
func rowEnd(prefix []byte) []byte {
	end := bytes.Clone(prefix)
	end[len(end)-1]++
	return end
}

// MajorCompact rewrites table so that only what a read can see remains, delete
// markers included. As in HBase it does not touch what was not flushed. The
// commit loop rewrites Options.RewriteKeys keys at a time and commits between.
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
	var names []string
	err := db.exclusive(ctx, func() error {
		t, err := db.catalog.Load().lookup(name)
		if err != nil {
			return err
		}
		for i := range t.fams {
			names = append(names, t.fams[i].desc.Name)
		}
		// An excise of keys that are in a memtable forces a flush: better one
		// now than one for every span.
		return engineError(db.pebble.Flush())
	})
	for i := 0; err == nil && i < len(names); i++ {
		err = db.compactFamily(ctx, name, names[i], how)
	}
	if err != nil {
		return fmt.Errorf("compact %s: %w", name, err)
	}
	return nil
}

// compactFamily rewrites one family, one span at a time.
func (db *DB) compactFamily(ctx context.Context, name, familyName string, how rewriting) error {
	earliest := cell.Timestamp(math.MaxInt64)
	var at []byte
	for scanning := true; ; {
		done := false
		err := db.exclusive(ctx, func() error {
			t, err := db.catalog.Load().lookup(name)
			if err != nil {
				return err
			}
			f, _ := t.family(familyName)
			if f == nil || f.tag != cell.TagData {
				done = true
				return nil
			}
			if err := db.checkSpace(); err != nil {
				return err
			}
			low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
			high := cell.PrefixEnd(low)
			if at != nil {
				if !bytes.HasPrefix(at, low) {
					// Dropped and made anew meanwhile, with other keys: from
					// here to there are those of other tables.
					done = true
					return nil
				}
				low = at
			}
			r := db.newRewrite(t, f, how)
			if scanning = scanning && how == rewriteMajor && f.desc.KeepDeleted != store.KeepDeletedFalse; scanning {
				if at, err = r.findEarliest(low, high, &earliest); at == nil {
					scanning = false
				}
				return err
			}
			r.c.earliestPut = earliest
			at, err = r.span(low, high, true)
			done = at == nil
			return err
		})
		if err != nil || done {
			return err
		}
	}
}

// rewrite writes the keys of a span of one family again, without what compaction
// drops. It runs in the commit loop, with nothing beside it.
type rewrite struct {
	db      *DB
	f       *family
	c       compaction
	flushed uint64

	row     arena
	entries []entry // of the current row
	origin  []storedKV
	packed  cell.Packed
	out     []storedKV
}

type storedKV struct{ key, value []byte }

func (db *DB) newRewrite(t *table, f *family, how rewriting) *rewrite {
	return &rewrite{db: db, f: f, flushed: db.flushed, c: compaction{f: f.desc, how: how, now: db.opts.Now(), earliestPut: math.MaxInt64}}
}

// span rewrites [low, high), or, where partly is true, its beginning of at most
// RewriteKeys keys, and returns where to go on, nil at the end. Without partly a
// larger span is left as it is.
func (r *rewrite) span(low, high []byte, partly bool) (next []byte, err error) {
	db := r.db
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return nil, engineError(err)
	}
	defer func() { err = errors.Join(err, engineError(it.Close())) }()
	path := db.opts.FS.PathJoin(db.dir, rewriteFile)
	file, err := db.opts.FS.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, diskError(err)
	}
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), db.tableOptions())
	closed := false
	defer func() {
		if !closed {
			err = errors.Join(err, engineError(w.Close()))
		}
		// An ingest has moved it.
		if e := db.opts.FS.Remove(path); err == nil && e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = diskError(e)
		}
	}()
	read, written, changed := 0, 0, false
	for ok := it.First(); ok; {
		if read >= db.opts.RewriteKeys {
			if !partly {
				return nil, nil
			}
			next = bytes.Clone(it.Key()[:cell.SplitKey(it.Key())])
			break
		}
		if ok, err = r.readRow(it); err != nil {
			return nil, err
		}
		read += len(r.origin)
		differs, err := r.compactRow()
		if err != nil {
			return nil, err
		}
		changed = changed || differs
		for i := range r.out {
			if err := w.Set(r.out[i].key, r.out[i].value); err != nil {
				return nil, engineError(err)
			}
		}
		written += len(r.out)
	}
	if err := it.Error(); err != nil {
		return nil, engineError(err)
	}
	db.metrics.rewritten.Add(int64(read))
	if !changed {
		return next, nil
	}
	closed = true
	if err := w.Close(); err != nil {
		return nil, engineError(err)
	}
	if next != nil {
		high = next
	}
	excise := pebble.KeyRange{Start: low, End: high}
	db.swap.Lock()
	if written == 0 {
		err = db.pebble.Excise(context.Background(), excise)
	} else {
		_, err = db.pebble.IngestAndExcise(context.Background(), []string{path}, nil, nil, excise)
	}
	db.swap.Unlock()
	if err != nil {
		return nil, engineError(err)
	}
	db.metrics.reclaimed.Add(int64(read - written))
	return next, nil
}

// tableOptions are those of Pebble's own files at the lowest level.
func (db *DB) tableOptions() sstable.WriterOptions {
	o := db.pebbleOpts.MakeWriterOptions(6, db.pebble.TableFormat())
	o.DisableValueBlocks = true // as the span policy says for Pebble's own files
	return o
}

// readRow reads the row that it is on, unpacked and in order, and moves to the
// next.
func (r *rewrite) readRow(it *pebble.Iterator) (bool, error) {
	r.row.reset()
	r.entries, r.origin = r.entries[:0], r.origin[:0]
	split := cell.SplitKey(it.Key())
	var prefix []byte
	ok := true
	for ; ok; ok = it.Next() {
		if prefix != nil && !bytes.HasPrefix(it.Key(), prefix) {
			break
		}
		value, err := it.ValueAndErr()
		if err != nil {
			return false, engineError(err)
		}
		kv := storedKV{key: r.row.copy(it.Key()), value: r.row.copy(value)}
		if prefix == nil {
			prefix = kv.key[:split]
		}
		r.origin = append(r.origin, kv)
		if err := r.decode(kv, split); err != nil {
			return false, err
		}
	}
	slices.SortFunc(r.entries, func(a, b entry) int { return a.compare(&b) })
	return ok, nil
}

// decode appends the cells of one key-value.
func (r *rewrite) decode(kv storedKV, split int) error {
	bad := func(err error) error { return fmt.Errorf("%w: key %x: %w", store.ErrCorrupt, kv.key, err) }
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
		if err := r.packed.Reset(kv.value, e.sequence); err != nil {
			return bad(err)
		}
		for r.packed.Next() {
			p := e
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
	}
	r.entries = append(r.entries, e)
	return nil
}

// compactRow makes r.out what of the row stays, and reports whether that differs
// from what is there.
func (r *rewrite) compactRow() (bool, error) {
	subject := func(e entry) bool { return (e.sequence > r.flushed) == (r.c.how == rewriteFlush) }
	var aside, cells []entry
	for _, e := range r.entries {
		if subject(e) {
			cells = append(cells, e)
		} else {
			aside = append(aside, e)
		}
	}
	all := len(cells)
	kept := r.c.run(cells)
	fold := r.c.how != rewriteFlush && len(r.origin) > 1
	if len(kept) == all && !fold {
		r.out = append(r.out[:0], r.origin...)
		return false, nil
	}
	kept = append(slices.Clone(kept), aside...)
	slices.SortFunc(kept, func(a, b entry) int { return a.compare(&b) })
	r.encode(kept, fold)
	return len(r.out) != len(r.origin) || len(kept) != len(r.entries), nil
}

// encode makes r.out the key-values of cells, in key order. Puts that came from
// one key-value stay together; with fold all puts of one time and TTL do, up to
// the size of a packed value.
func (r *rewrite) encode(cells []entry, fold bool) {
	prefix := r.origin[0].key[:cell.SplitKey(r.origin[0].key)]
	r.out = r.out[:0]
	type group struct {
		time   cell.Timestamp
		ttl    int64
		origin int
	}
	size := map[group]int{}
	if fold {
		for i := range cells {
			if e := &cells[i]; e.kind == cell.KindPut {
				size[group{e.time, e.ttl, -1}] += len(e.qualifier) + len(e.value)
			}
		}
	}
	groups := map[group][]*entry{}
	var order []group
	for i := range cells {
		e := &cells[i]
		if e.kind != cell.KindPut {
			r.out = append(r.out, storedKV{key: r.single(prefix, e), value: cell.AppendValue(nil, 0, nil)})
			continue
		}
		g := group{e.time, e.ttl, -1}
		if !fold || size[g] > maxPackedBytes {
			g.origin = e.origin
		}
		// A packed value holds a column once; an older write of the same
		// coordinates goes with the key-value that it came from.
		if l := groups[g]; g.origin < 0 && len(l) > 0 && bytes.Equal(l[len(l)-1].qualifier, e.qualifier) {
			g.origin = e.origin
		}
		if groups[g] == nil {
			order = append(order, g)
		}
		groups[g] = append(groups[g], e)
	}
	for _, g := range order {
		r.out = append(r.out, r.pack(prefix, groups[g]))
	}
	slices.SortFunc(r.out, func(a, b storedKV) int { return bytes.Compare(a.key, b.key) })
}

func (r *rewrite) single(prefix []byte, e *entry) []byte {
	return cell.AppendVersion(cell.AppendPart(bytes.Clone(prefix), e.qualifier), e.time, e.kind, e.sequence)
}

// pack returns the key-value of puts of one time and TTL, in order of their
// qualifiers. Its sequence is the highest of theirs, so that no two collide.
func (r *rewrite) pack(prefix []byte, puts []*entry) storedKV {
	first := puts[0]
	if len(puts) == 1 {
		return storedKV{key: r.single(prefix, first), value: cell.AppendValue(nil, first.ttl, first.value)}
	}
	highest, same := first.sequence, true
	for _, e := range puts[1:] {
		highest, same = max(highest, e.sequence), same && e.sequence == first.sequence
	}
	value := cell.AppendPackedHeader(nil, first.ttl, !same)
	for _, e := range puts {
		value = cell.AppendPackedColumn(value, e.qualifier, e.value)
		if !same {
			value = cell.AppendPackedSequence(value, e.sequence)
		}
	}
	key := append(bytes.Clone(prefix), 0, 1)
	return storedKV{key: cell.AppendVersion(key, first.time, cell.KindPacked, highest), value: value}
}

// findEarliest lowers *earliest to the time of the oldest put of [low, high) that
// was flushed, over at most RewriteKeys keys, and returns where to go on.
func (r *rewrite) findEarliest(low, high []byte, earliest *cell.Timestamp) (next []byte, err error) {
	it, err := r.db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		return nil, engineError(err)
	}
	defer func() { err = errors.Join(err, engineError(it.Close())) }()
	read := 0
	for ok := it.First(); ok; {
		if read >= r.db.opts.RewriteKeys {
			return bytes.Clone(it.Key()[:cell.SplitKey(it.Key())]), nil
		}
		if ok, err = r.readRow(it); err != nil {
			return nil, err
		}
		read += len(r.origin)
		for i := range r.entries {
			if e := &r.entries[i]; e.kind == cell.KindPut && e.sequence <= r.flushed {
				*earliest = min(*earliest, e.time)
			}
		}
	}
	return nil, engineError(it.Error())
}
