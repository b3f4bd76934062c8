package pebblestore

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

func TestKeyFilterForgetsNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	f := newKeyFilter(4 << 20)
	f.complete = true
	n := firstFilterKeys * 3 // two layers, the second not full
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = rng.Uint64()
		f.add(hashes[i])
	}
	if len(f.layers) != 2 || f.off {
		t.Fatalf("Got %d layers, off %t", len(f.layers), f.off)
	}
	for _, h := range hashes {
		if f.absent(h) {
			t.Fatalf("Got %x absent, which was added", h)
		}
	}
	passed := 0
	for range n {
		if !f.absent(rng.Uint64()) {
			passed++
		}
	}
	// 1.5 % of each layer, if it were full.
	if share := float64(passed) / float64(n); share > 0.03 {
		t.Errorf("Got %.2f %% of other keys passed, want 3 %% at most", 100*share)
	}
}

// A filter that is full, or that does not have everything, excludes nothing.
func TestKeyFilterExcludesNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	full := newKeyFilter(2 * firstFilterKeys * filterBitsPerKey / 8)
	full.complete = true
	if !full.absent(1) {
		t.Error("Got a counter in an empty filter")
	}
	for range 3 * firstFilterKeys {
		full.add(rng.Uint64())
	}
	for name, f := range map[string]*keyFilter{"full": full, "incomplete": newKeyFilter(1 << 20), "none": newKeyFilter(-1)} {
		f.add(7)
		for range 1000 {
			if f.absent(rng.Uint64()) {
				t.Errorf("%s: Got a counter excluded", name)
				break
			}
		}
	}
}

// A store that is opened again counts on where it was, before and after the filter
// knows what is stored, and then looks nothing up that is not.
func TestKeyFilterOfStoredCounters(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	const stored = filterChunk + 1000
	apply := func(db *DB, from, to int) {
		t.Helper()
		var b store.Batch
		for i := from; i < to; i++ {
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: fmt.Appendf(nil, "r%06d", i), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: -1})
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	o := &Options{FS: fs, MinFreeBytes: -1, RewriteInterval: -1}
	db := open(t, "db", o)
	create(t, db, "t", counterFamily("n"))
	apply(db, 0, stored)
	if c := db.loop.counters; c.skipped < stored*9/10 {
		t.Errorf("Got %d look-ups spared in an empty store of %d new counters", c.skipped, stored)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, "db", o)
	apply(db, 0, 100) // perhaps before the filter knows them
	<-db.filling.done
	apply(db, 50, stored)
	apply(db, stored, stored+2000)
	sum := func() (n int64) {
		scan := db.Scan(t.Context(), &store.Scan{Table: "t"})
		defer scan.Close()
		for scan.Next() {
			n += int64(binary.BigEndian.Uint64(scan.Row().Cells[0].Value))
		}
		if err := scan.Err(); err != nil {
			t.Fatal(err)
		}
		return n
	}
	if got, want := sum(), int64(2*stored+50+2000); got != want {
		t.Errorf("Got a sum of %d, want %d", got, want)
	}
	if err := db.exclusive(t.Context(), HoldSchema, func() error {
		if f := db.loop.counters.filter; !f.complete || f.off {
			t.Errorf("Got filter complete %t, off %t", f.complete, f.off)
		}
		if got := db.loop.counters.skipped; got < 1800 {
			t.Errorf("Got %d look-ups spared, want most of 2,000", got)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// A store that is closed while its counters are read closes.
func TestCounterFilterOfClosedStore(t *testing.T) {
	t.Parallel()
	fs := vfs.NewMem()
	for i := range 100 {
		var log strings.Builder
		db, err := Open("db", &Options{FS: fs, MinFreeBytes: -1, Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			create(t, db, "t", counterFamily("n"))
			m := cell.Mutation{Table: "t", Row: []byte("r")}
			m.Increment("n", []byte("q"), 1)
			if _, err := db.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if log.Len() > 0 {
			t.Errorf("Got %s", log.String())
		}
	}
}
