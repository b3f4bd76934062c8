package pebblestore

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/store"
	"sluice/store/memstore"
)

// overwritten applies the same random history of one row to both: packed puts of a few
// sets of columns, single cells and markers of every kind, at few times, so that they
// meet.
func overwritten(t *testing.T, rng *rand.Rand, engines ...store.Engine) {
	t.Helper()
	sets := [][]string{{"a", "b", "c"}, {"a", "b", "c"}, {"a", "c"}, {"", "b"}, {"b", "d"}, {"a"}}
	if rng.IntN(3) == 0 {
		sets = [][]string{{"", "b"}}
	}
	for range 5 + rng.IntN(60) {
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		at := cell.Timestamp(1 + rng.IntN(40))
		q := []byte([]string{"", "", "a", "b", "c", "d"}[rng.IntN(6)])
		switch n := rng.IntN(40); n {
		case 0:
			m.Delete("f", q, at)
		case 1:
			m.DeleteColumn("f", q, at)
		case 2:
			m.DeleteFamily("f", at)
		case 3:
			m.DeleteFamilyVersion("f", at)
		default:
			for _, q := range sets[rng.IntN(len(sets))] {
				m.Put("f", []byte(q), at, []byte{byte(n), byte(rng.IntN(256))})
			}
			if n < 8 {
				for i := range m.Ops {
					m.Ops[i].TTL = 30 // some are over, some are not
				}
			}
		}
		for _, e := range engines {
			if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// What packed puts hide is the same whether they are unpacked or not: the model
// engine knows nothing of packed puts.
func TestHiddenPutsAreTheModels(t *testing.T) {
	t.Parallel()
	seeds := thinned.Of(uint64(120), 30)
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 1))
		f := store.NewFamily("f")
		f.Versions = 1 + rng.IntN(4)
		if rng.IntN(4) == 0 {
			f.KeepDeleted = store.KeepDeletedTrue
		}
		if rng.IntN(6) == 0 {
			f.NewVersionBehavior = true
		}
		now := func() cell.Timestamp { return 50 }
		model, err := memstore.New(&memstore.Options{Now: now})
		if err != nil {
			t.Fatal(err)
		}
		// Of 120 stores on a disk in memory the logs, which are made as large as a memtable,
		// would need 16 GB by the end.
		db := open(t, "db", &Options{Sync: SyncNever, Now: now, FS: vfs.NewMem()})
		for _, e := range []store.Admin{model, db} {
			if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}}, nil); err != nil {
				t.Fatal(err)
			}
		}
		overwritten(t, rng, model, db)
		for range 30 {
			s := &store.Scan{Table: "t", Versions: rng.IntN(4)}
			if rng.IntN(2) == 0 {
				s.Start, s.Stop, s.StopInclusive = []byte("r"), []byte("r"), true
			}
			if rng.IntN(3) == 0 {
				s.Time = &cell.TimeRange{Max: cell.Timestamp(1 + rng.IntN(42))}
			}
			switch rng.IntN(6) {
			case 0:
				s.Columns = []store.Column{{Family: "f", Qualifier: []byte("b")}}
			case 1:
				s.Raw, s.Versions = true, 0
			}
			if got, want := rows(t, db, s), rows(t, model, s); !slices.Equal(got, want) {
				t.Fatalf("seed %d, scan %+v:\ngot  %q\nwant %q", seed, s, got, want)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := model.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// BenchmarkGetOverwrittenRow gets a row that was overwritten 10,000 times since the
// last rewrite.
func BenchmarkGetOverwrittenRow(b *testing.B) {
	db := open(b, b.TempDir(), &Options{Sync: SyncNever})
	create(b, db, "t", store.NewFamily("f"))
	for i := range 10_000 {
		if _, err := db.MutateRow(b.Context(), nil, put("r", cell.Timestamp(i+1), "f", "n", "one", "o", "two", "p", "three", "q", "four")); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if getCount(b, db, "r") != "one" {
			b.Fatal("the row is not there")
		}
	}
}
