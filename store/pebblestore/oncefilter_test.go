package pebblestore

import (
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// onces applies a batch of event ids, and returns how many were used before.
func onces(t *testing.T, db *DB, ttl int64, ids ...int) int64 {
	t.Helper()
	var b store.Batch
	for i, id := range ids {
		b.Records = append(b.Records, store.Record{
			Offset: int64(i), Once: fmt.Append([]byte{0}, id), OnceTTL: ttl, Mutations: []cell.Mutation{*put("r", cell.Latest, "f", "q", "v")},
		})
	}
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Unapplied.Duplicate
}

// Stores with filters of event ids, with full ones and with none find the same ids again,
// whatever the clock does, and however often they are opened.
func TestOnceFiltersForgetNothing(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(3, 4))
	var now atomic.Int64
	now.Store(1_000_000)
	var all []*Options
	var dbs []*DB
	for _, bytes := range []int64{0, firstFilterKeys * filterBitsPerKey / 8, -1} {
		o := &Options{FS: vfs.NewMem(), MinFreeBytes: -1, RewriteInterval: -1, OnceFilterBytes: bytes}
		o.Now = func() cell.Timestamp { return cell.Timestamp(now.Load()) }
		db, err := Open("d", o)
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", store.NewFamily("f"))
		all, dbs = append(all, o), append(dbs, db)
	}
	found := int64(0)
	for step := range 600 {
		ids := make([]int, 1+rng.IntN(20))
		for i := range ids {
			ids[i] = rng.IntN(400)
		}
		ttl := []int64{0, 1000, 1000, 3000}[rng.IntN(4)]
		if ttl == 0 { // these are used up
			for i := range ids {
				ids[i] += rng.IntN(10_000)
			}
		}
		var got [3]int64
		for i, db := range dbs {
			got[i] = onces(t, db, ttl, ids...)
		}
		if got[0] != got[2] || got[1] != got[2] {
			t.Fatalf("Step %d, ttl %d, at %d: %v of %v were used before, by filters, full ones and none", step, ttl, now.Load(), got, ids)
		}
		found += got[2]
		switch rng.IntN(30) {
		case 0:
			now.Add(-1500)
		case 1:
			now.Add(5000)
		case 2:
			for i := range dbs {
				if err := dbs[i].Close(); err != nil {
					t.Fatal(err)
				}
				var err error
				if dbs[i], err = Open("d", all[i]); err != nil {
					t.Fatal(err)
				}
				if rng.IntN(2) == 0 {
					<-dbs[i].filling.done
				}
			}
		default:
			now.Add(rng.Int64N(120))
		}
	}
	for _, db := range dbs {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if found < 500 {
		t.Errorf("%d ids were used before: the test shows little", found)
	}
}

// New event ids are not looked up, in a store that is opened again either, once it has read
// those that it has, and of what is forgotten the filters go.
func TestOnceFiltersSpareLookups(t *testing.T) {
	t.Parallel()
	var now atomic.Int64
	now.Store(1_000_000)
	o := &Options{FS: vfs.NewMem(), MinFreeBytes: -1, RewriteInterval: -1}
	o.Now = func() cell.Timestamp { return cell.Timestamp(now.Load()) }
	db, err := Open("d", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"))
	const n = filterChunk + 1000
	ids := func(from int) []int {
		all := make([]int, n)
		for i := range all {
			all[i] = from + i
		}
		return all
	}
	// spared uses ids, and checks how many are found, and how many look-ups that took.
	spared := func(what string, ttl int64, from int, want int64) {
		t.Helper()
		before := db.gate.reads.Load()
		if got := onces(t, db, ttl, ids(from)...); got != want {
			t.Errorf("%s, ttl %d: %d ids were used before, want %d", what, ttl, got, want)
		}
		looked := db.gate.reads.Load() - before
		if want == 0 && looked > n/10 || want > 0 && looked < n {
			t.Errorf("%s, ttl %d: %d look-ups for %d ids of which %d were used before", what, ttl, looked, n, want)
		}
	}
	for _, ttl := range []int64{0, 1000} {
		spared("new", ttl, 0, 0)
		spared("the same", ttl, 0, n)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if db, err = Open("d", o); err != nil {
		t.Fatal(err)
	}
	defer func() { db.Close() }()
	for _, ttl := range []int64{0, 1000} {
		if got := onces(t, db, ttl, ids(0)...); got != n { // perhaps before the filter knows them
			t.Errorf("opened again, ttl %d: %d ids were used before, want %d", ttl, got, n)
		}
	}
	<-db.filling.done
	for _, ttl := range []int64{0, 1000} {
		spared("read", ttl, 0, n)
		spared("new in the opened store", ttl, 1_000_000, 0)
	}
	for range 5 {
		now.Add(1000)
		spared("in the next period", 1000, int(now.Load())*n, 0)
	}
	if err := db.exclusive(t.Context(), HoldSchema, func() error {
		if got := len(db.loop.onces.periods); got != 3 { // for ever, this and the one before
			t.Errorf("Got %d filters: %v", got, db.loop.onces.periods)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}
