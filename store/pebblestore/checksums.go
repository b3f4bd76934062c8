package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/cockroachdb/pebble/v2/sstable"

	"sluice/store"
)

// CheckFiles reads every block of every table on disk and compares it with its
// checksum: what a copy of the directory must not begin with. (The log was checked
// when the store was opened.) The error wraps store.ErrCorrupt and names the file,
// or store.ErrUnsupported where the store was not opened read-only: its files come
// and go.
func (db *DB) CheckFiles(ctx context.Context) error {
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	if !db.opts.ReadOnly {
		return fmt.Errorf("check the files of %s: %w: it is open for writing", db.dir, store.ErrUnsupported)
	}
	names, err := db.opts.FS.List(db.dir)
	if err != nil {
		return fmt.Errorf("check the files of %s: %w", db.dir, diskError(err))
	}
	slices.Sort(names)
	for _, name := range names {
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("check the files of %s: %w", db.dir, err)
		}
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		path := db.opts.FS.PathJoin(db.dir, name)
		if err := db.checkFile(path); err != nil {
			return fmt.Errorf("%s: %w", path, engineError(err))
		}
	}
	return nil
}

func (db *DB) checkFile(path string) (err error) {
	file, err := db.opts.FS.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return errors.Join(err, file.Close())
	}
	r, err := sstable.NewReader(context.Background(), readable, db.pebbleOpts.MakeReaderOptions())
	if err != nil {
		return errors.Join(err, readable.Close())
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.ValidateBlockChecksums()
}
