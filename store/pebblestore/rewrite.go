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
)

// rewriteFile is the name, in the data directory, of the sstable that a rewrite
// is making. There is one at a time.
const rewriteFile = "rewrite.sst"

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
	rows      *rowRewriter
	low, high []byte // high comes down to where the rewrite has stopped
	next      []byte // where to go on; nil = the span is done
	path      string // of the new sstable
	late      *lateWrites

	held    bool          // somebody wants to know what has changed in the table
	since   uint64        // after this
	changes *pebble.Batch // what the cells that are left do not tell of that; nil = nothing
	unsure  [][]byte      // prefixes of rows that the rewrite changes, or of which it may change what is seen

	changed []uint64 // hashes, sorted in the end, of the rows that lost cells
	seed    maphash.Seed
}

// turnRows is how many rows come before a look whether others have a turn.
const turnRows = 32

// rowsOf returns what rewrites s as the store is now, with an iterator from low to high.
// It is nil where the span's family is gone. It runs in the commit loop.
func (db *DB) rowsOf(s *span) (rows *rowRewriter, low, high []byte, err error) {
	t, err := db.catalog.Load().lookup(s.table)
	if err != nil {
		return nil, nil, nil, err
	}
	f, _ := t.family(s.family)
	if f == nil || f.tag == cell.TagSystem {
		return nil, nil, nil, nil
	}
	low = cell.AppendFamilyPrefix(nil, f.tag, t.id, f.id)
	high = cell.PrefixEnd(low)
	if s.low != nil {
		if !bytes.HasPrefix(s.low, low) {
			// Dropped and made anew meanwhile, with other keys: from here
			// to there are those of other tables.
			return nil, nil, nil, nil
		}
		low = s.low
	}
	if s.high != nil {
		high = s.high
	}
	if err := db.checkSpace(); err != nil {
		return nil, nil, nil, err
	}
	rows = db.newRowRewriter(t, f, s, cmp.Or(s.upTo, db.loop.flushed))
	if rows.it, err = db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high}); err != nil {
		return nil, nil, nil, engineError(err)
	}
	return rows, low, high, nil
}

// newRewrite begins s, of which the commits tell it from now on what they write. It is nil
// where the span's family is gone. It runs in the commit loop.
func (db *DB) newRewrite(s *span) (*rewrite, error) {
	rows, low, high, err := db.rowsOf(s)
	if rows == nil {
		return nil, err
	}
	r := &rewrite{
		db: db, s: s, rows: rows, low: low, high: high, path: db.opts.FS.PathJoin(db.dir, rewriteFile),
		late: &lateWrites{tag: rows.f.tag, low: low, high: high}, seed: maphash.MakeSeed(),
	}
	c := db.catalog.Load()
	r.since, r.held = c.held[rows.t.id]
	rows.tellExpired, rows.tellUnsure = r.held && c.holdsExpired(rows.t), r.held
	db.loop.late = r.late
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
	rows := r.rows
	for ok, n := rows.it.First(), 0; ok || rows.more; n++ {
		if n%turnRows == turnRows-1 {
			turn.Give()
		}
		if rows.done.keys >= limit && !rows.more {
			if r.s.whole {
				return false, nil
			}
			r.next = bytes.Clone(rows.it.Key()[:cell.SplitKey(rows.it.Key())])
			r.high = r.next
			break
		}
		if rows.done.keys >= probe {
			probe = rows.done.keys + probeKeys
			if err := r.interrupted(ctx); err != nil {
				return false, err
			}
		}
		if ok, err = rows.readRow(); err != nil {
			return false, err
		}
		o, err := rows.compactRow()
		if err == nil {
			err = r.note(o)
		}
		if err != nil {
			return false, err
		}
		changed = changed || o.differs
		for i := range rows.out {
			if err := w.Set(rows.out[i].key, rows.out[i].value); err != nil {
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
	return changed, engineError(rows.it.Error())
}

// interrupted reports why what reads rows to rewrite them must end.
func (db *DB) interrupted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("rewrite: %w", err)
	}
	return db.log.failure()
}

// interrupted reports why a rewrite that is under way must end.
func (r *rewrite) interrupted(ctx context.Context) error {
	if err := r.db.interrupted(ctx); err != nil {
		return err
	}
	if r.late.overflown.Load() {
		return errOvertaken
	}
	return nil
}

// close ends the rewrite, wherever it is.
func (r *rewrite) close() error {
	r.late.ended.Store(true)
	err := r.db.closeIterator(r.rows.it)
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
