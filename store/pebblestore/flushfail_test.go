package pebblestore

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"sluice/store"
)

// Where what is in memory cannot be written to disk, commits are refused with the reason and
// do not wait in Pebble, in front of all others, until the disk is well; then they are taken
// again (invariant I8). So are flushes.
func TestFailingFlushRefusesCommits(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(op errorfs.Op) bool{
		"create": func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") },
		"write": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst")
		},
		"sync": func(op errorfs.Op) bool {
			return (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) && strings.HasSuffix(op.Path, ".sst")
		},
	} {
		for _, disk := range []struct {
			err, want error
		}{{syscall.EIO, store.ErrTransient}, {syscall.EDQUOT, store.ErrDiskFull}} {
			t.Run(name+" "+disk.err.Error(), func(t *testing.T) {
				t.Parallel()
				fsys, broken := failingWith(disk.err, bad)
				db := open(t, "db", bulk(fsys))
				create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
				l := ledger{db: db}
				if err := l.apply(t, 0, 30); err != nil {
					t.Fatal(err)
				}
				broken.Store(true)
				var err error
				ends(t, "Apply", func() {
					for err == nil { // the memtable is full some time
						err = l.apply(t, 1, 50)
						// Commits that are faster than the disk is bad wait in Pebble.
						for err == nil && db.pebble.Metrics().MemTable.Count > 1 && db.log.flushFail.Load() == nil {
							runtime.Gosched()
						}
					}
				})
				if !errors.Is(err, disk.want) || errors.Is(err, store.ErrClosed) || !errors.Is(err, disk.err) {
					t.Fatalf("Got %v, want %v for %v", err, disk.want, disk.err)
				}
				if at := new(fs.PathError); name == "sync" && (!errors.As(err, &at) || !strings.HasSuffix(at.Path, ".sst")) {
					t.Errorf("Got %v, want the name of the file", err)
				}
				ends(t, "Flush", func() { err = db.Flush(t.Context()) })
				if !errors.Is(err, disk.want) {
					t.Errorf("Got %v of a flush, want %v", err, disk.want)
				}
				check(t, db, l.next)
				broken.Store(false)
				ends(t, "what comes when the disk is well", func() {
					for err = l.apply(t, 1, 5); errors.Is(err, disk.want); err = l.apply(t, 1, 5) {
						runtime.Gosched()
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if err := db.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
				check(t, db, l.next)
			})
		}
	}
}

// A flush that has nothing to write, as what was set was deleted, has not failed, although Pebble
// tells of an error.
func TestEmptyFlush(t *testing.T) {
	t.Parallel()
	log := newPebbleLog(slog.New(slog.DiscardHandler))
	events := log.events()
	ended := events.FlushEnd
	told := make(chan error, 1)
	events.FlushEnd = func(i pebble.FlushInfo) { ended(i); told <- i.Err }
	db, err := pebble.Open("db", &pebble.Options{FS: vfs.NewMem(), EventListener: events, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	log.flushFail.Store(new(error))
	if err := errors.Join(db.Set([]byte("k"), nil, pebble.NoSync), db.SingleDelete([]byte("k"), pebble.NoSync), db.Flush()); err != nil {
		t.Fatal(err)
	}
	if err := <-told; err == nil || err.Error() != emptyFlush {
		t.Fatalf("Got %v of a flush of nothing, want %q", err, emptyFlush)
	}
	if log.flushFail.Load() != nil {
		t.Error("commits are refused after it")
	}
}

// What is written beside the log and the memtables names its files, too.
func TestFailingSyncOfBulkCommit(t *testing.T) {
	t.Parallel()
	fsys, broken := failing(func(op errorfs.Op) bool {
		return (op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo) && strings.HasSuffix(op.Path, ".sst")
	})
	db := open(t, "db", bulk(fsys))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db, bulk: true}
	broken.Store(true)
	err := l.apply(t, 0, 30)
	if at := new(fs.PathError); !errors.As(err, &at) || !strings.HasSuffix(at.Path, ".sst") || !errors.Is(err, syscall.EIO) {
		t.Errorf("Got %v, want the name of the file", err)
	}
	broken.Store(false)
	if err := l.apply(t, 0, 30); err != nil {
		t.Fatal(err)
	}
	check(t, db, l.next)
}

// A store whose log cannot be written to tables is not opened, which does not wait for the disk,
// and loses nothing.
func TestFailingFlushOfOpen(t *testing.T) {
	t.Parallel()
	for _, disk := range []struct{ err, want error }{{syscall.EIO, syscall.EIO}, {syscall.ENOSPC, store.ErrDiskFull}} {
		mem := vfs.NewCrashableMem()
		db := open(t, "db", bulk(mem))
		create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
		l := ledger{db: db}
		if err := l.apply(t, 0, 30); err != nil {
			t.Fatal(err)
		}
		killed := mem.CrashClone(vfs.CrashCloneCfg{})
		bad := errorfs.Wrap(killed, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileWrite && strings.HasSuffix(op.Path, ".sst") {
				return disk.err
			}
			return nil
		}))
		ends(t, "Open", func() {
			db, err := Open("db", bulk(bad))
			if err == nil {
				err = db.Close()
			}
			if !errors.Is(err, disk.want) || !strings.Contains(err.Error(), "write what is in the log to tables") {
				t.Errorf("Got %v, want %v", err, disk.want)
			}
		})
		check(t, open(t, "db", bulk(mem.CrashClone(vfs.CrashCloneCfg{}))), l.next)
	}
}

// Compactions that fail are nothing that commits depend on.
func TestFailingCompactionRefusesNothing(t *testing.T) {
	t.Parallel()
	log := newPebbleLog(slog.New(slog.DiscardHandler))
	log.events().BackgroundError(syscall.EIO)
	if err := log.flushError("db"); err != nil {
		t.Fatalf("Got %v after a compaction that failed", err)
	}
}

// A flush that Pebble gives up and repeats, as a rewrite has replaced keys from among those that
// it writes, is no trouble of the disk: nothing is refused, waits or is told. It does not end
// what was said of one that failed before.
func TestCancelledFlushIsNoTrouble(t *testing.T) {
	t.Parallel()
	var told strings.Builder
	log := newPebbleLog(slog.New(slog.NewTextHandler(&told, nil)))
	log.opening.Store(true)
	trouble := log.trouble()
	cancelled := fmt.Errorf("flush: %w", pebble.ErrCancelledCompaction)
	cancel := func() {
		log.events().FlushEnd(pebble.FlushInfo{Err: cancelled})
		log.events().BackgroundError(cancelled)
	}
	cancel()
	select {
	case <-trouble:
		t.Error("who waits for the flush is told that it failed")
	default:
	}
	if err := errors.Join(log.flushError("db"), log.failure()); err != nil || told.Len() > 0 || log.pause() > 0 {
		t.Errorf("Got %v, a pause of %s and\n%s", err, log.pause(), told.String())
	}
	log.opening.Store(false)
	log.events().FlushEnd(pebble.FlushInfo{Err: syscall.EIO})
	cancel()
	if err := log.flushError("db"); !errors.Is(err, syscall.EIO) {
		t.Errorf("Got %v", err)
	}
}

// A flush that somebody has asked for fails with the disk, and does not wait until that is
// well; nor does one in the commit loop, which all others wait for.
func TestAskedFlushFails(t *testing.T) {
	t.Parallel()
	tables := func(op errorfs.Op) bool { return op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") }
	for name, flush := range map[string]func(t *testing.T, db *DB) error{
		"Flush":        func(t *testing.T, db *DB) error { return db.Flush(t.Context()) },
		"MajorCompact": func(t *testing.T, db *DB) error { return db.MajorCompact(t.Context(), "t") },
		"in the loop": func(t *testing.T, db *DB) error {
			return db.exclusive(t.Context(), HoldFlush, func() error { return db.flushMemTables(t.Context()) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fsys, broken := failing(tables)
			db := open(t, "db", bulk(fsys))
			create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
			l := ledger{db: db}
			if err := l.apply(t, 0, 30); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			var err error
			ends(t, name, func() { err = flush(t, db) })
			if !errors.Is(err, store.ErrTransient) || !errors.Is(err, syscall.EIO) {
				t.Errorf("Got %v, want an ErrTransient for %v", err, syscall.EIO)
			}
			broken.Store(false)
			ends(t, "what comes when the disk is well", func() {
				for err = flush(t, db); errors.Is(err, store.ErrTransient); err = flush(t, db) {
					runtime.Gosched()
				}
			})
			if err != nil {
				t.Error(err)
			}
			check(t, db, l.next)
		})
	}
}
