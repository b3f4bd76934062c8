package pebblestore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage/objstorageprovider"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Names, in the data directory, of the tables that a bulk commit is making. The
// kinds of keys lie apart, so that those of one ingest never overlap.
const (
	bulkSystemFile  = "bulk-system.sst"
	bulkCounterFile = "bulk-counters.sst"
	bulkDataFile    = "bulk-data.sst"
	bulkUpperFile   = "bulk-data-upper.sst" // the upper half of the cells
)

// inTables reports whether c is committed as tables: it has a bulk batch and is worth
// it. One that forgets event ids, once a period, is not: that is a range.
func (c *commit) inTables() bool {
	least := c.db.opts.MinBulkKeys
	return c.bulk && least >= 0 && len(c.kvs)+len(c.dirty) >= least && len(c.sweeps) == 0
}

// ingestStaged commits what c holds as sorted tables that Pebble takes over, all of
// them at one instant: neither log nor memtable see it (design D8). It is as
// durable as a synced commit when it returns.
func (db *DB) ingestStaged(c *commit) error {
	var paths, dataPaths []string
	changes := c.uncounted()
	data := make(chan error, 1)
	go func() {
		var err error
		dataPaths, err = db.writeData(c, changes)
		data <- err
	}()
	counted, err := db.writeBulkCounters(c)
	if err == nil {
		err = db.writeSystem(c)
	}
	if err = errors.Join(err, <-data); err == nil {
		paths = append(paths, db.bulkPath(bulkSystemFile))
		if counted {
			paths = append(paths, db.bulkPath(bulkCounterFile))
		}
		err = db.ingest(append(paths, dataPaths...))
	}
	if err != nil {
		return errors.Join(engineError(err), db.removeBulkFiles())
	}
	db.metrics.bulkCommits.Add(1)
	db.gate.gather(uint64(len(c.buf)))
	db.sequence.Store(c.seq)
	db.noteWritten(c)
	db.noteLate(c)
	return nil
}

// ingest has Pebble take the tables over. The log goes to disk first: what it may
// still lose came before the tables, and must not be lost where they are not. (The
// end of a rewrite is such a thing: Open would do it again, on top of them.)
func (db *DB) ingest(paths []string) error {
	if err := db.pebble.LogData(nil, pebble.Sync); err != nil {
		return err
	}
	db.rows.writing()
	defer db.rows.written()
	return db.pebble.Ingest(context.Background(), paths)
}

// writeData writes the cells of c, which it sorts, and changes behind them, as two
// tables, one beside the other: that is what a bulk commit takes longest for. It
// returns their paths.
func (db *DB) writeData(c *commit, changes [][]byte) (paths []string, err error) {
	c.sort()
	middle := len(c.kvs) / 2
	lower, upper := c.kvs[:middle], c.kvs[middle:]
	done := make(chan error, 1)
	go func() { done <- db.writeCells(c, bulkUpperFile, upper, changes) }()
	err = errors.Join(db.writeCells(c, bulkDataFile, lower, nil), <-done)
	if len(lower) > 0 {
		paths = append(paths, db.bulkPath(bulkDataFile))
	}
	if len(upper)+len(changes) > 0 {
		paths = append(paths, db.bulkPath(bulkUpperFile))
	}
	return paths, err
}

// writeCells writes cells of c and changes behind them as a table; none where there
// are none.
func (db *DB) writeCells(c *commit, name string, kvs []staged, changes [][]byte) error {
	if len(kvs)+len(changes) == 0 {
		return nil
	}
	return db.writeBulkFile(name, func(w *sstable.Writer) error {
		for i := range kvs {
			c.prefetch(kvs, i)
			s := &kvs[i]
			value := s.start + s.key
			if err := w.Set(c.buf[s.start:value], c.buf[value:value+s.value]); err != nil {
				return err
			}
		}
		for _, key := range changes {
			if err := w.Set(key, nil); err != nil {
				return err
			}
		}
		return nil
	})
}

// writeBulkCounters writes the counters of c, and reports whether it has any: those that
// it has made and taken back are none.
func (db *DB) writeBulkCounters(c *commit) (counted bool, err error) {
	if !slices.ContainsFunc(c.dirty, func(e *counter) bool { return e.exists || e.oldHave }) {
		return false, nil
	}
	c.sortCounters()
	var key, value []byte
	return true, db.writeBulkFile(bulkCounterFile, func(w *sstable.Writer) error {
		for i, e := range c.dirty {
			c.prefetchDirty(i)
			key = append(key[:0], e.key...)
			var err error
			switch {
			case e.exists:
				value = e.append(value[:0])
				err = w.Set(key, value)
			case e.oldHave:
				err = w.Delete(key)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// writeSystem writes what c writes into system tables.
func (db *DB) writeSystem(c *commit) error {
	var kvs []storedKV
	var arena []byte // one that grows leaves what it has held to kvs
	own := func(b []byte) []byte {
		n := len(arena)
		arena = append(arena, b...)
		return arena[n:len(arena):len(arena)]
	}
	if err := c.system(func(key, value []byte) error {
		kvs = append(kvs, storedKV{key: own(key), value: own(value)})
		return nil
	}); err != nil {
		return err
	}
	slices.SortFunc(kvs, func(a, b storedKV) int { return bytes.Compare(a.key, b.key) })
	// An offset that two members have advanced is there twice, with one value.
	kvs = slices.CompactFunc(kvs, func(a, b storedKV) bool { return bytes.Equal(a.key, b.key) })
	return db.writeBulkFile(bulkSystemFile, func(w *sstable.Writer) error {
		for i := range kvs {
			if err := w.Set(kvs[i].key, kvs[i].value); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) bulkPath(name string) string { return db.opts.FS.PathJoin(db.dir, name) }

// writeBulkFile makes a table of what fill sets, in the order of the keys. It is on
// disk when writeBulkFile returns.
func (db *DB) writeBulkFile(name string, fill func(*sstable.Writer) error) (err error) {
	path := db.bulkPath(name)
	// One that was left is perhaps a name of a table that Pebble has: it must not
	// be cut.
	if err := db.removeFile(path); err != nil {
		return err
	}
	file, err := createNamed(db.opts.FS, path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("make %s: %w", path, err)
	}
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{BytesPerSync: db.pebbleOpts.BytesPerSync})
	// Of the level where most of it goes first.
	o := db.pebbleOpts.MakeWriterOptions(0, db.pebble.TableFormat())
	o.DisableValueBlocks = true // as the span policy says for Pebble's own files
	// The table lives until the next compaction. The log is not compressed either.
	o.Compression = sstable.NoCompression
	w := sstable.NewWriter(objstorageprovider.NewFileWritable(file), o)
	defer func() { err = errors.Join(err, w.Close()) }()
	return fill(w)
}

func (db *DB) removeFile(path string) error {
	if err := db.opts.FS.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// removeBulkFiles removes what a bulk commit that failed, or that a crash cut
// short, has left.
func (db *DB) removeBulkFiles() error {
	var errs []error
	for _, name := range []string{bulkSystemFile, bulkCounterFile, bulkDataFile, bulkUpperFile} {
		errs = append(errs, db.removeFile(db.bulkPath(name)))
	}
	return diskError(errors.Join(errs...))
}
