package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"sort"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

// writtenSpan is where a family was written since the last flush: the keys in
// [low, high).
type writtenSpan struct{ low, high []byte }

// noteWritten remembers where c has written, for the next flush, and takes it for
// flushed once a memtable of data has gone by.
func (db *DB) noteWritten(c *commit) {
	db.loop.unflushedBytes += uint64(len(c.buf))
	if db.loop.unflushedBytes > db.opts.MemTableBytes {
		db.markFlushed()
		return
	}
	// write has sorted c.kvs, so that a family is one run of them. A stored key
	// has 27 bytes or more.
	family := func(i int) uint64 { return binary.BigEndian.Uint64(c.buf[c.kvs[i].start:]) >> 16 }
	for i := 0; i < len(c.kvs); {
		head := family(i)
		n := i + sort.Search(len(c.kvs)-i, func(k int) bool { return family(i+k) != head })
		low, last := c.rowPrefix(i), c.rowPrefix(n-1)
		if w := db.loop.written[head]; w == nil {
			db.loop.written[head] = &writtenSpan{low: bytes.Clone(low), high: rowEnd(last)}
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
	db.loop.flushed = db.sequence.Load()
	db.loop.unflushedBytes = 0
	clear(db.loop.written)
}

// loadFlushed makes what was written after the last flush of an earlier run what
// the next flush looks at: anywhere.
func (db *DB) loadFlushed() {
	if db.loop.flushed == db.sequence.Load() {
		return
	}
	for _, t := range db.catalog.Load().tables {
		for i := range t.fams {
			if f := &t.fams[i]; f.tag == cell.TagData {
				low := cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
				db.loop.written[familyHead(low)] = &writtenSpan{low: low, high: cell.PrefixEnd(low)}
			}
		}
	}
}

// sequenceValue is the stored form of the last sequence: a system value, whose
// payload is the sequence up to which cells were flushed.
func (db *DB) sequenceValue(now cell.Timestamp, sequence uint64) []byte {
	return appendSystemValue(nil, now, sequence, binary.BigEndian.AppendUint64(nil, db.loop.flushed))
}

// Flush writes what is in memory to disk. As HBase's flush it drops what the
// cells written since the last flush mask among themselves; a family in which
// they lie too far apart for one rewrite (Options.RewriteKeys) is left to a
// compaction.
func (db *DB) Flush(ctx context.Context) error {
	if err := db.flush(ctx); err != nil {
		return fmt.Errorf("flush: %w", err)
	}
	return nil
}

func (db *DB) flush(ctx context.Context) error {
	if db.opts.ReadOnly {
		return store.ErrReadOnly
	}
	// Beside the loop what takes long, in it what was written meanwhile.
	if err := db.flushMemTables(ctx); err != nil {
		return err
	}
	var spans []*span
	err := db.exclusive(ctx, HoldFlush, func() error {
		if err := db.flushMemTables(ctx); err != nil {
			return err
		}
		after := db.loop.flushed
		spans = db.writtenSpans()
		db.markFlushed()
		for _, s := range spans {
			s.after, s.upTo = after, db.loop.flushed
		}
		// Without a sync: after a crash more counts as unflushed, no harm.
		return engineError(db.pebble.Set(sequenceKey(), db.sequenceValue(db.opts.Now(), db.loop.flushed), pebble.NoSync))
	})
	for _, s := range spans {
		if err != nil {
			return err
		}
		_, _, err = db.rewriteSpan(ctx, s)
	}
	return err
}

// writtenSpans returns what was written since the last flush, to be rewritten.
func (db *DB) writtenSpans() []*span {
	var spans []*span
	for _, t := range db.catalog.Load().tables {
		for i := range t.fams {
			f := &t.fams[i]
			if f.tag != cell.TagData {
				continue
			}
			if w := db.loop.written[familyHead(cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id))]; w != nil {
				spans = append(spans, &span{
					table: t.desc.Name, family: f.desc.Name, low: w.low, high: w.high,
					how: rewriteFlush, whole: true, earliestPut: math.MaxInt64,
				})
			}
		}
	}
	return spans
}

// flushMemTables writes Pebble's memtables to disk. It fails where a flush does: Pebble
// repeats that, and whoever waited for it would wait for as long as the disk is bad.
func (db *DB) flushMemTables(ctx context.Context) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if err := db.log.failure(); err != nil {
		return err
	}
	trouble := db.log.trouble()
	if err := db.checkSpace(); err != nil {
		return err
	}
	// Beside the caller, as Pebble may hold for good the locks that this waits for.
	var flushed <-chan struct{}
	begun := make(chan error, 1)
	go func() {
		var err error
		flushed, err = db.pebble.AsyncFlush()
		begun <- err
	}()
	select {
	case err := <-begun:
		if err != nil {
			return engineError(err)
		}
	case <-db.log.failed:
		return db.log.err
	}
	for {
		select {
		case <-flushed:
			return nil
		case <-db.log.failed:
			return db.log.err
		case <-trouble:
			trouble = db.log.trouble()
			if err := db.log.flushError(db.dir); err != nil {
				return err
			}
		case <-ctx.Done():
			return fmt.Errorf("wait for the memtables: %w", ctx.Err())
		}
	}
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
