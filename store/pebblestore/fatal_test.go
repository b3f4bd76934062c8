package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"sluice/store"
)

// failing returns a disk whose calls fail that bad says of, once it is broken.
func failing(bad func(op errorfs.Op) bool) (_ vfs.FS, broken *atomic.Bool) {
	return failingWith(syscall.EIO, bad)
}

// failingWith returns one whose calls fail with err.
func failingWith(err error, bad func(op errorfs.Op) bool) (_ vfs.FS, broken *atomic.Bool) {
	broken = new(atomic.Bool)
	return errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if broken.Load() && bad(op) {
			return err
		}
		return nil
	})), broken
}

// ends fails the test where f does not return.
func ends(t *testing.T, what string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Fatalf("%s waits for ever", what)
	}
}

// Where Pebble can go on no longer, callers get an error, and none of them hangs, the
// readers among them: Pebble may hold its locks for good (invariant I8).
func TestStoppedEngineFailsCallers(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(op errorfs.Op) bool{
		"manifest": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST")
		},
		"next log": func(op errorfs.Op) bool {
			return (op.Kind == errorfs.OpCreate || op.Kind == errorfs.OpReuseForWrite) && strings.HasSuffix(op.Path, ".log")
		},
		"last log": func(op errorfs.Op) bool {
			return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log")
		},
		"directory of the next log": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == "db" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, broken := failing(bad)
			o := bulk(disk)
			db, err := Open("db", o)
			if err != nil {
				t.Fatal(err)
			}
			create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
			l := ledger{db: db}
			for range 3 {
				if err := l.apply(t, 0, 30); err != nil {
					t.Fatal(err)
				}
			}
			scan := db.Scan(t.Context(), &store.Scan{Table: "t"})
			if !scan.Next() {
				t.Fatal(scan.Err())
			}
			snap, err := db.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			ends(t, "Flush", func() { err = db.Flush(t.Context()) })
			if !errors.Is(err, store.ErrClosed) || !errors.Is(err, store.ErrTransient) {
				t.Fatalf("Got %v of a flush, want an ErrClosed that is an ErrTransient", err)
			}
			for what, call := range map[string]func(ctx context.Context) error{
				"scan": func(ctx context.Context) error {
					sc := db.Scan(ctx, &store.Scan{Table: "t"})
					sc.Next()
					return errors.Join(sc.Err(), sc.Close())
				},
				"get": func(ctx context.Context) error {
					sc := db.Scan(ctx, &store.Scan{Table: "t", Start: []byte("p0"), Stop: []byte("p0\x00")})
					sc.Next()
					return errors.Join(sc.Err(), sc.Close())
				},
				"scan of a snapshot": func(ctx context.Context) error {
					sc := snap.Scan(ctx, &store.Scan{Table: "t"})
					sc.Next()
					return errors.Join(sc.Err(), sc.Close())
				},
				"regions": func(ctx context.Context) error { _, err := db.Regions(ctx, "t"); return err },
				"region stats": func(ctx context.Context) error {
					_, err := db.RegionStats(ctx, "t")
					return err
				},
				"split point": func(ctx context.Context) error { _, err := db.SplitPoint(ctx, "t", nil); return err },
				"apply":       func(context.Context) error { return l.apply(t, 0, 1) },
				"flush":       db.Flush,
				"compact":     func(ctx context.Context) error { return db.MajorCompact(ctx, "t") },
				"tidy":        db.Tidy,
				"checkpoint":  func(ctx context.Context) error { _, err := db.Checkpoint(ctx, "copy"); return err },
				"alter": func(ctx context.Context) error {
					return db.SplitRegion(ctx, "t", []byte("m"))
				},
				"snapshot": func(ctx context.Context) error { _, err := db.Snapshot(ctx); return err },
				"close":    func(context.Context) error { return db.Close() },
			} {
				ends(t, what, func() { err = call(t.Context()) })
				if !errors.Is(err, store.ErrClosed) {
					t.Errorf("%s: got %v, want ErrClosed", what, err)
				}
			}
			ends(t, "what was open", func() { scan.Close(); snap.Close(); db.Metrics() })
		})
	}
}

// A disk on which the engine cannot be opened is an error of Open, which neither waits nor
// panics.
func TestOpenOnFailingDisk(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(op errorfs.Op) bool{
		"manifest": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST")
		},
		"marker": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpCreate && strings.Contains(op.Path, "marker.manifest")
		},
		"log": func(op errorfs.Op) bool {
			return op.Kind.ReadOrWrite() == errorfs.OpIsWrite && strings.HasSuffix(op.Path, ".log")
		},
		"directory": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == "db" },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, broken := failing(bad)
			broken.Store(true)
			ends(t, "Open", func() {
				db, err := Open("db", bulk(disk))
				if err == nil {
					err = db.Close()
				}
				if err == nil || !strings.Contains(err.Error(), syscall.EIO.Error()) {
					t.Errorf("Got %v, want the disk's error", err)
				}
			})
		})
	}
}

// A checkpoint that cannot be synced is an error of its own, leaves nothing, and stops nobody.
func TestCheckpointOnFailingDisk(t *testing.T) {
	t.Parallel()
	for name, bad := range map[string]func(op errorfs.Op) bool{
		"directory": func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileSync && op.Path == "copy" },
		"log": func(op errorfs.Op) bool {
			return op.Kind == errorfs.OpCreate && strings.HasPrefix(op.Path, "copy/") && strings.HasSuffix(op.Path, ".log")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			disk, broken := failing(bad)
			db := open(t, "db", bulk(disk))
			create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
			l := ledger{db: db}
			if err := l.apply(t, 0, 30); err != nil {
				t.Fatal(err)
			}
			broken.Store(true)
			if _, err := db.Checkpoint(t.Context(), "copy"); !errors.Is(err, syscall.EIO) {
				t.Fatalf("Got %v, want the disk's error", err)
			}
			broken.Store(false)
			if err := l.apply(t, 0, 3); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Checkpoint(t.Context(), "copy"); err != nil {
				t.Fatal(err)
			}
			o := bulk(disk)
			o.ReadOnly = true
			check(t, open(t, "copy", o), l.next)
		})
	}
}

// A disk that is full is ErrDiskFull also where Pebble finds out while it syncs a directory,
// at which it panics.
func TestCheckpointOnFullDisk(t *testing.T) {
	t.Parallel()
	full := new(atomic.Bool)
	disk := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if full.Load() && op.Kind == errorfs.OpFileSync && op.Path == "copy" {
			return syscall.ENOSPC
		}
		return nil
	}))
	db := open(t, "db", bulk(disk))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	full.Store(true)
	if _, err := db.Checkpoint(t.Context(), "copy"); !errors.Is(err, store.ErrDiskFull) || !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Got %v, want ErrDiskFull", err)
	}
}

// What a full disk has left and what writes need are never told as one number.
func TestRoomIsToldApart(t *testing.T) {
	t.Parallel()
	disk := &meteredFS{FS: vfs.NewMem()}
	disk.free.Store(1 << 30)
	db := open(t, "db", &Options{FS: disk, MinFreeBytes: 10 << 20})
	disk.free.Store(10<<20 + 1<<18)
	if err := db.checkRoom(1 << 19); !errors.Is(err, store.ErrDiskFull) || !strings.Contains(err.Error(), "has 10 MiB left, writes need 11 MiB") {
		t.Errorf("Got %v", err)
	}
	disk.free.Store(10<<20 - 1)
	if err := db.checkRoom(0); !errors.Is(err, store.ErrDiskFull) || !strings.Contains(err.Error(), "has 9 MiB left, writes need 10 MiB") {
		t.Errorf("Got %v", err)
	}
}

// A read that fails names its file and its reason once.
func TestReadErrorIsToldOnce(t *testing.T) {
	t.Parallel()
	disk, broken := failing(func(op errorfs.Op) bool { return op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") })
	db := open(t, "db", &Options{FS: disk, CacheBytes: 1 << 10})
	create(t, db, "t", store.NewFamily("f"))
	for i := range 300 {
		if _, err := db.MutateRow(t.Context(), nil, put(fmt.Sprint(i), 1, "f", "q", strings.Repeat("x", 10_000))); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	broken.Store(true)
	for what, s := range map[string]*store.Scan{
		"a scan": {Table: "t"},
		"a row":  {Table: "t", Start: []byte("7"), Stop: []byte("7"), StopInclusive: true},
	} {
		sc := db.Scan(t.Context(), s)
		for sc.Next() {
		}
		if err := sc.Err(); !errors.Is(err, syscall.EIO) {
			t.Errorf("%s: Got %v, want the disk's error", what, err)
		}
		if err := sc.Close(); err != nil {
			t.Errorf("%s: Got %v of Close, when it was told", what, err)
		}
	}
	broken.Store(false)
}
