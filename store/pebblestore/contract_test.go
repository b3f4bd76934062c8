package pebblestore_test

import (
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
	"sluice/store/storetest"
)

// disks are file systems in memory, one a directory, so that an engine that is
// opened again finds what it had. Thousands of cases on real files take a minute.
type disks struct {
	mu sync.Mutex
	of map[string]*vfs.MemFS
}

func (d *disks) open(t *testing.T, o storetest.Options) store.Engine {
	d.mu.Lock()
	fs := d.of[o.Dir]
	if fs == nil {
		if d.of == nil {
			d.of = map[string]*vfs.MemFS{}
		}
		fs = vfs.NewMem()
		d.of[o.Dir] = fs
		t.Cleanup(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.of, o.Dir)
		})
	}
	d.mu.Unlock()
	db, err := pebblestore.Open(o.Dir, &pebblestore.Options{Now: o.Now, FS: fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func TestContract(t *testing.T) {
	t.Parallel()
	storetest.Run(t, new(disks).open)
}

func TestMetamorphic(t *testing.T) {
	t.Parallel()
	model := func(t *testing.T, o storetest.Options) store.Engine {
		s, err := memstore.New(&memstore.Options{Now: o.Now})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	storetest.Metamorphic(t, model, new(disks).open)
}
