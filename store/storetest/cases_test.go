package storetest_test

import (
	"os"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
	"sluice/store/storetest"
)

// TestCases runs the case files of $SLUICE_CASES on every engine, in every storage
// situation. The shared ones run in the engines' own packages.
func TestCases(t *testing.T) {
	t.Parallel()
	if os.Getenv("SLUICE_CASES") == "" {
		t.Skip("SLUICE_CASES names no directory of case files; the shared ones are run by store/memstore and store/pebblestore")
	}
	t.Run("memstore", func(t *testing.T) {
		t.Parallel()
		storetest.RunCases(t, func(t *testing.T, o storetest.Options) store.Engine {
			db, err := memstore.New(&memstore.Options{Now: o.Now})
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
	})
	t.Run("pebblestore", func(t *testing.T) {
		t.Parallel()
		var disks sync.Map // directory → vfs.FS
		storetest.RunCases(t, func(t *testing.T, o storetest.Options) store.Engine {
			fs, _ := disks.LoadOrStore(o.Dir, vfs.NewMem())
			db, err := pebblestore.Open(o.Dir, &pebblestore.Options{
				Now: o.Now, FS: fs.(vfs.FS), CacheBytes: 1 << 20, MemTableBytes: 256 << 10, RewriteInterval: -1,
			})
			if err != nil {
				t.Fatal(err)
			}
			return db
		})
	})
}
