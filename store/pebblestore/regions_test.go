package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/region"
	"sluice/store"
)

// A region of more keys than are read is cut by the sizes of its blocks: the
// halves are about equal by bytes, whatever the keys look like. How equal depends on
// which files the compactions beside have made by then: a few blocks of the thirty.
func TestSplitPointOfLargeRegion(t *testing.T) {
	t.Parallel()
	const rows = 3 * exactKeys
	for _, c := range []struct {
		name string
		row  func(i int) []byte
		size func(i int) int
		low  float64 // share of the bytes before the split point
		high float64
	}{
		{"even", func(i int) []byte { return fmt.Appendf(nil, "row-%07d", i) }, func(int) int { return 20 }, 0.40, 0.60},
		{"long common prefix", func(i int) []byte { return fmt.Appendf(nil, "%s%07d", bytes.Repeat([]byte("p"), 200), i) }, func(int) int { return 20 }, 0.40, 0.60},
		{"zeros", func(i int) []byte { return []byte{0, 0, byte(i >> 16), byte(i >> 8), byte(i), 0} }, func(int) int { return 20 }, 0.40, 0.60},
		{"clustered", func(i int) []byte {
			if i%3 == 0 {
				return fmt.Appendf(nil, "a%07d", i)
			}
			return fmt.Appendf(nil, "z/%07d", i)
		}, func(int) int { return 20 }, 0.40, 0.60},
		{"large at the end", func(i int) []byte { return fmt.Appendf(nil, "row-%07d", i) }, func(i int) int { return 10 + 90*(i/(rows*2/3)) }, 0.40, 0.60},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			db := open(t, "db", memory())
			create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
			rng := rand.New(rand.NewPCG(1, 2))
			sizes := map[string]int{}
			total := 0
			for i := 0; i < rows; {
				var b store.Batch
				for range 5000 {
					value := make([]byte, c.size(i))
					for j := range value {
						value[j] = byte(rng.Uint32())
					}
					m := cell.Mutation{Table: "t", Row: c.row(i)}
					m.Put("f", []byte("q"), 5, value)
					b.Add(int64(i), m)
					sizes[string(m.Row)] = len(value) + len(m.Row)
					total += len(value) + len(m.Row)
					i++
				}
				if err := db.Apply(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
			}
			at, err := db.SplitPoint(t.Context(), "t", nil)
			if err != nil {
				t.Fatal(err)
			}
			left := 0
			for row, n := range sizes {
				if row < string(at) {
					left += n
				}
			}
			if share := float64(left) / float64(total); share < c.low || share > c.high || sizes[string(at)] == 0 {
				t.Errorf("%q has %.2f of the bytes before it, want %.2f to %.2f, and is a row: %v", at, share, c.low, c.high, sizes[string(at)] > 0)
			}
			if err := db.SplitRegion(t.Context(), "t", at); err != nil {
				t.Fatal(err)
			}
			stats, err := db.RegionStats(t.Context(), "t")
			if err != nil {
				t.Fatal(err)
			}
			if a, b := float64(stats[0].Bytes), float64(stats[1].Bytes); a < 0.5*b || b < 0.5*a {
				t.Errorf("the halves have %v and %v bytes in files", a, b)
			}
		})
	}
}

// One row of many columns cannot be cut.
func TestSplitPointOfWideRow(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", counterFamily("n"))
	var b store.Batch
	for i := range 2 * exactKeys {
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("r"), Qualifier: fmt.Appendf(nil, "%06d", i), Delta: 1, Time: 5, Offset: -1})
	}
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if at, err := db.SplitPoint(t.Context(), "t", nil); !errors.Is(err, store.ErrRefused) {
		t.Errorf("SplitPoint = %q, %v; want ErrRefused", at, err)
	}
}

// schemaState prints all that the catalog says, and fails where a region map has a
// gap or an overlap (invariant I4).
func schemaState(t testing.TB, db *DB) string {
	t.Helper()
	c := db.catalog.Load()
	var out []string
	for _, n := range c.spaces.Users() {
		out = append(out, "namespace "+n.Name)
	}
	for name, tab := range c.tables {
		if tab.system {
			continue
		}
		if _, err := region.NewMap(name, tab.regions.All()); err != nil {
			t.Fatal(err)
		}
		s := fmt.Sprintf("table %s id %d disabled %v:", name, tab.id, tab.disabled)
		for i := range tab.fams {
			s += fmt.Sprintf(" %s#%d", tab.fams[i].desc.Name, tab.fams[i].id)
		}
		for _, r := range tab.regions.All() {
			s += fmt.Sprintf(" [%s,%s)", r.Start, r.Stop)
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return fmt.Sprint(out)
}

// changeSchema makes a random change of the schema; one that is refused changes nothing.
func changeSchema(t testing.TB, db *DB, rng *rand.Rand) {
	t.Helper()
	ctx := t.Context()
	table := []string{"t", "ns:t", "ns:u"}[rng.IntN(3)]
	row := func() []byte { return []byte{byte('a' + rng.IntN(26))} }
	d := &store.TableDescriptor{Name: table, Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if rng.IntN(2) == 0 {
		d.Families = append(d.Families, store.NewFamily("g"))
	}
	var err error
	switch rng.IntN(12) {
	case 0:
		err = db.CreateNamespace(ctx, &store.Namespace{Name: "ns"})
	case 1:
		err = db.DropNamespace(ctx, "ns")
	case 2, 3:
		err = db.CreateTable(ctx, d, [][]byte{[]byte("m")})
	case 4:
		err = db.AlterTable(ctx, d)
	case 5:
		err = db.DisableTable(ctx, table)
	case 6:
		err = db.EnableTable(ctx, table)
	case 7:
		err = db.TruncateTable(ctx, table, rng.IntN(2) == 0)
	case 8:
		err = db.DropTable(ctx, table)
	case 9, 10:
		err = db.SplitRegion(ctx, table, row())
	case 11:
		err = db.MergeRegions(ctx, table, row(), row())
	}
	for _, class := range []error{
		nil, store.ErrTableNotFound, store.ErrTableExists, store.ErrNamespaceNotFound, store.ErrNamespaceExists,
		store.ErrRefused, store.ErrInvalidArgument, store.ErrMergeRegion,
	} {
		if errors.Is(err, class) {
			return
		}
	}
	t.Errorf("a change of the schema: %v", err)
}

// Power fails while the schema changes: every change that was acknowledged is
// there, the one under way is there whole or not at all, and regions tile their
// table (invariants I3, I4).
func TestCrashesLeaveWholeSchemas(t *testing.T) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 11))
			mem := crashfs.New()
			db := open(t, "db", &Options{FS: mem, MemTableBytes: 64 << 10, CacheBytes: 1 << 20})
			states := []string{schemaState(t, db)} // after each change
			crashNow := make(chan int)             // how many states there are
			go func() {
				defer close(crashNow)
				changes := rand.New(rand.NewPCG(seed, 12))
				for i := range 150 {
					if i%10 == 0 {
						crashNow <- len(states) // and goes on while the disk is copied
					}
					changeSchema(t, db, changes)
					states = append(states, schemaState(t, db))
				}
			}()
			type crash struct {
				fs    crashfs.FS
				after int
			}
			var crashes []crash
			for after := range crashNow {
				crashes = append(crashes, crash{mem.Crash(rng.IntN(101), rng), after})
			}
			for _, c := range crashes {
				again, err := Open("db", &Options{FS: c.fs, MemTableBytes: 64 << 10, CacheBytes: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				got := schemaState(t, again)
				// The clone took its time: changes after it began may be in it.
				if !slices.Contains(states[c.after-1:], got) {
					t.Errorf("after a crash behind change %d: got\n%s\nwant one of\n%s", c.after-1, got, strings.Join(states[c.after-1:], "\n"))
				}
				if err := again.Close(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// Splits and merges neither stop readers and writers nor cost them anything.
func TestReshapingStopsNobody(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		db, err := Open("db", memory())
		if err != nil {
			rt.Fatal(err)
		}
		defer db.Close()
		create(t, db, "t", store.NewFamily("f"))
		mutate(t, db, put("a", 1, "f", "q", "1"))
		mutate(t, db, put("x", 1, "f", "q", "1"))
		sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
		defer sc.Close()
		if !sc.Next() {
			rt.Fatal(sc.Err())
		}
		for range rapid.IntRange(1, 5).Draw(rt, "splits") {
			at := []byte{byte(rapid.IntRange('b', 'y').Draw(rt, "at"))}
			if err := db.SplitRegion(t.Context(), "t", at); err != nil && !errors.Is(err, store.ErrInvalidArgument) {
				rt.Fatal(err)
			}
		}
		mutate(t, db, put("m", 1, "f", "q", "1"))
		if !sc.Next() || string(sc.Row().Key) != "x" {
			rt.Fatalf("a scan lost its way: %v", sc.Err())
		}
		m, err := db.Regions(t.Context(), "t")
		if err != nil {
			rt.Fatal(err)
		}
		if m.Len() > 1 {
			if err := db.MergeRegions(t.Context(), "t", append(m.Splits(), nil)...); err != nil {
				rt.Fatal(err)
			}
		}
		if sc.Next() || sc.Err() != nil {
			rt.Fatalf("a scan has more: %v", sc.Err())
		}
	})
}
