package pebblestore

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/store"
)

// TestFlushPause: a flush waits after one that failed; others do not, and it does not where
// nothing has failed for a while.
func TestFlushPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, lockFile), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		log := newPebbleLog(slog.New(slog.DiscardHandler))
		h, err := newHomeFiles(vfs.Default, dir, log)
		if err != nil {
			t.Fatal(err)
		}
		took := func(c vfs.DiskWriteCategory) time.Duration {
			begun := time.Now()
			f, err := h.Create(filepath.Join(dir, "000001.sst"), c)
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Fatal(err)
			}
			return time.Since(begun)
		}
		for _, step := range []struct {
			fails bool
			c     vfs.DiskWriteCategory
			want  time.Duration
		}{
			{false, flushCategory, 0}, {true, "pebble-compaction", 0}, {false, flushCategory, flushPause}, {false, flushCategory, 0}, {true, flushCategory, flushPause},
		} {
			if step.fails {
				log.events().BackgroundError(syscall.ENOSPC)
			}
			if got := took(step.c); got != step.want {
				t.Errorf("%+v took %s", step, got)
			}
		}
	})
}

// namingFS knows what its tables were begun for.
type namingFS struct {
	vfs.FS
	flushes atomic.Int64
}

func (f *namingFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasSuffix(name, ".sst") && c == flushCategory {
		f.flushes.Add(1)
	}
	return f.FS.Create(name, c)
}

// TestFlushCategory: Pebble says of the tables of a flush that they are.
func TestFlushCategory(t *testing.T) {
	t.Parallel()
	disk := &namingFS{FS: vfs.NewMem()}
	db := open(t, "db", &Options{FS: disk, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	create(t, db, "t", store.NewFamily("f"))
	if _, err := db.MutateRow(t.Context(), nil, put("r", 1, "f", "q", "v")); err != nil {
		t.Fatal(err)
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if disk.flushes.Load() == 0 {
		t.Error("no table was begun for a flush")
	}
}
