// The race detector has an allocator of its own in the place of the C library's.

//go:build !race

package cmemory

import (
	"bytes"
	"fmt"
	"os"
	"runtime/debug"
	"strconv"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"golang.org/x/sync/errgroup"
)

// What memtables took is given back when they are gone. Without Bound, 90 to 170 MiB are
// not.
func TestBound(t *testing.T) {
	if err := Bound(); err != nil {
		t.Fatal(err)
	}
	before := resident(t)
	var g errgroup.Group
	for range 4 {
		g.Go(func() error {
			for range 2 {
				if err := fill(t.TempDir()); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	debug.FreeOSMemory() // Go's
	if after := resident(t); after > before+64<<20 {
		t.Errorf("%d MiB are resident, and %d MiB were", after>>20, before>>20)
	}
}

// fill fills memtables of 16 MiB of a store in dir.
func fill(dir string) error {
	cache := pebble.NewCache(1 << 20)
	defer cache.Unref()
	db, err := pebble.Open(dir, &pebble.Options{Cache: cache, MemTableSize: 16 << 20, MemTableStopWritesThreshold: 4})
	if err != nil {
		return err
	}
	value := make([]byte, 1<<10)
	for i := range 40 << 10 {
		if err := db.Set(strconv.AppendInt(nil, int64(i), 10), value, pebble.NoSync); err != nil {
			return err
		}
	}
	return db.Close()
}

// resident returns the bytes of the process that are in memory, and not of a file.
func resident(t *testing.T) int64 {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	var kib int64
	_, line, _ := bytes.Cut(status, []byte("RssAnon:"))
	if _, err := fmt.Sscan(string(line), &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
