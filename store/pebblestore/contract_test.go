package pebblestore_test

import (
	"hash/fnv"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice/internal/crashfs"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
	"sluice/store/storetest"
)

// disks are file systems in memory, one a directory, so that an engine that is
// opened again finds what it had. Thousands of cases on real files take a minute.
type disks struct {
	mu sync.Mutex
	of map[string]*crashfs.FS
}

func (d *disks) open(t *testing.T, o storetest.Options) store.Engine {
	d.mu.Lock()
	fs := d.of[o.Dir]
	if fs == nil {
		if d.of == nil {
			d.of = map[string]*crashfs.FS{}
		}
		made := crashfs.New()
		fs = &made
		d.of[o.Dir] = fs
		t.Cleanup(func() {
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.of, o.Dir)
		})
	}
	d.mu.Unlock()
	options := &pebblestore.Options{Now: o.Now, FS: *fs, CacheBytes: 1 << 20, MemTableBytes: 256 << 10, RewriteInterval: -1, RewriteMinGarbage: -1, RewriteKeysPerSecond: -1, MinBulkKeys: 1}
	options.InBlocks(1) // a key or so, so that scans leave out what is too old for them
	// Rewrites take rows whole, a column at a time, and some columns at a time.
	h := fnv.New32a()
	h.Write([]byte(o.Dir))
	options.InPieces([...]int{0, 1, 100}[h.Sum32()%3])
	if o.Rewriting {
		options.RewriteInterval, options.RewriteKeys = 200*time.Microsecond, 3
	}
	db, err := pebblestore.Open(o.Dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// crash leaves of what was not synced a random part, at a moment at which a
// rewrite may be under way.
func (d *disks) crash(t *testing.T, e store.Engine, o storetest.Options) {
	d.mu.Lock()
	fs := d.of[o.Dir]
	left := fs.Crash(50, rand.New(rand.NewPCG(uint64(len(o.Dir)), uint64(o.Now()))))
	d.of[o.Dir] = &left
	d.mu.Unlock()
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestContract(t *testing.T) {
	t.Parallel()
	limits := &storetest.Limits{}
	limits.Shorten("reshaped") // while regions move
	storetest.RunWithin(t, new(disks).open, limits)
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
	d := new(disks)
	storetest.Metamorphic(t, model, d.open, d.crash)
}

func TestChanges(t *testing.T) {
	t.Parallel()
	d := new(disks)
	storetest.Changes(t, d.open, d.crash)
}
