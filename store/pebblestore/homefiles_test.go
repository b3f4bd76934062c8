package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestMovedDirectory: a store whose directory was moved away stops, and touches nothing of
// the store that is in its place by then, which keeps all that it was given.
func TestMovedDirectory(t *testing.T) {
	t.Parallel()
	for name, notice := range map[string]func(t *testing.T, db *DB){
		"write": func(t *testing.T, db *DB) {
			for i := range 20 {
				if err := putMoved(t, db, i); err != nil {
					break
				}
			}
		},
		"flush": func(t *testing.T, db *DB) { _ = db.Flush(t.Context()) },
		"close": func(t *testing.T, db *DB) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			o := &Options{MemTableBytes: 1 << 20, CacheBytes: 1 << 20, MinFreeBytes: -1, RewriteInterval: -1}
			other := openMoved(t, dir+".other", o)
			for i := range 10 {
				if err := putMoved(t, other, i); err != nil {
					t.Fatal(err)
				}
			}
			if err := other.Close(); err != nil {
				t.Fatal(err)
			}
			old := openMoved(t, dir, o)
			if err := putMoved(t, old, 0); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(os.Rename(dir, dir+".away"), os.Rename(dir+".other", dir)); err != nil {
				t.Fatal(err)
			}
			notice(t, old)
			if name != "close" {
				if err := putMoved(t, old, 99); !errors.Is(err, store.ErrClosed) {
					t.Errorf("Put into a store whose directory was moved: got %v, want ErrClosed", err)
				}
				select {
				case <-old.Stopped():
				default:
					t.Error("the store has not stopped")
				}
			}
			_ = old.Close()
			countMoved(t, dir, o, 10)
			countMoved(t, dir+".away", o, 1)
		})
	}
}

// TestRemovedLock: a store whose directory or lock is gone stops and says so, as another
// process can have a directory whose lock was removed.
func TestRemovedLock(t *testing.T) {
	t.Parallel()
	for name, remove := range map[string]func(dir string) error{
		"directory": func(dir string) error { return os.Rename(dir, dir+".away") },
		"lock":      func(dir string) error { return os.Remove(filepath.Join(dir, lockFile)) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "data")
			db := openMoved(t, dir, &Options{CacheBytes: 1 << 20, MinFreeBytes: -1, RewriteInterval: -1})
			if err := remove(dir); err != nil {
				t.Fatal(err)
			}
			err := putMoved(t, db, 0)
			if want := filepath.Join(dir, lockFile) + " is gone"; !errors.Is(err, store.ErrClosed) || !strings.Contains(err.Error(), want) {
				t.Errorf("Put: got %v, want ErrClosed with %q", err, want)
			}
			_ = db.Close()
		})
	}
}

func openMoved(t *testing.T, dir string, o *Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil && !errors.Is(err, store.ErrTableExists) {
		t.Fatal(err)
	}
	return db
}

// putMoved puts the i-th row, which takes half a memtable.
func putMoved(t *testing.T, db *DB, i int) error {
	t.Helper()
	m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "row%02d", i)}
	m.Put("f", nil, cell.Latest, bytes.Repeat([]byte{byte(i)}, 500<<10))
	_, err := db.MutateRow(t.Context(), nil, m)
	return err
}

// countMoved counts the rows of the store in dir. It opens a copy: the lock of a store that
// has stopped is the process's.
func countMoved(t *testing.T, dir string, o *Options, want int) {
	t.Helper()
	whole := dir + ".copy"
	if err := os.CopyFS(whole, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	db, err := Open(whole, o)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	n := 0
	for sc.Next() {
		n++
	}
	if err := sc.Err(); err != nil || n != want {
		t.Errorf("%s has %d rows (%v), want %d", dir, n, err, want)
	}
}
