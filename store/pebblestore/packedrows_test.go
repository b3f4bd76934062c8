package pebblestore

import (
	"context"
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// TestPackedRows reads random rows of several columns, some of them written more than
// once, deleted, short-lived or expired, as they are stored: they must be those that a
// scan gives as cells.
func TestPackedRows(t *testing.T) {
	t.Parallel()
	const now = 10_000_000 // memory's
	rapid.Check(t, func(t *rapid.T) {
		o := memory()
		o.blockBytes = 100 // a row or so
		db, err := Open("", o)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		f := store.NewFamily("f")
		f.Versions = rapid.IntRange(1, 3).Draw(t, "VERSIONS")
		f.NewVersionBehavior = rapid.IntRange(0, 3).Draw(t, "NEW_VERSION_BEHAVIOR") == 0
		if rapid.Bool().Draw(t, "TTL") {
			f.TTL = 100
			f.MinVersions = rapid.IntRange(0, f.Versions).Draw(t, "MIN_VERSIONS")
		}
		if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}}, nil); err != nil {
			t.Fatal(err)
		}
		times := rapid.SampledFrom([]cell.Timestamp{1, now - 200_000, now - 100_000, now - 99_999, now - 5, now})
		names := rapid.SampledFrom([]string{"", "a", "b\x00", "c"})
		rows := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xff}), 1, 3)
		calm := rapid.Bool().Draw(t, "puts alone") // so that many rows can be folded
		n := 0
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			var b store.Batch
			for range rapid.IntRange(1, 12).Draw(t, "writes") {
				n++
				m := cell.Mutation{Table: "t", Row: rows.Draw(t, "row")}
				at := times.Draw(t, "time")
				what := rapid.IntRange(0, 9).Draw(t, "what")
				if calm {
					what = max(what, 2)
				}
				switch what {
				case 0:
					m.DeleteFamily("f", at)
				case 1:
					m.DeleteColumn("f", []byte(names.Draw(t, "qualifier")), at)
				case 2:
					m.Put("f", []byte(names.Draw(t, "qualifier")), at, fmt.Appendf(nil, "one %d", n))
				default:
					for _, q := range rapid.SliceOfNDistinct(names, 2, 4, rapid.ID).Draw(t, "qualifiers") {
						m.Put("f", []byte(q), at, fmt.Appendf(nil, "%d of %s", n, q))
					}
					if !calm && rapid.IntRange(0, 5).Draw(t, "life") == 0 {
						for i := range m.Ops {
							m.Ops[i].TTL = 150_000
						}
					}
				}
				b.Add(0, m)
			}
			if err := db.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 2).Draw(t, "flush") == 0 { // tables leave out blocks
				if err := db.Flush(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if rapid.IntRange(0, 3).Draw(t, "compact") == 0 {
			if err := db.MajorCompact(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
		}
		scan := &store.Scan{Table: "t", Versions: rapid.IntRange(1, 3).Draw(t, "versions"), Limit: rapid.IntRange(0, 6).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "some time") {
			scan.Time = &cell.TimeRange{Min: times.Draw(t, "min"), Max: math.MaxInt64}
			scan.Time.Max = max(scan.Time.Min, rapid.SampledFrom([]cell.Timestamp{now - 5, now, math.MaxInt64}).Draw(t, "max"))
		}
		scan.Reversed = rapid.IntRange(0, 5).Draw(t, "reversed") == 0
		if rapid.Bool().Draw(t, "some rows") {
			f := &store.MultiRowRangeFilter{}
			for range rapid.IntRange(1, 5).Draw(t, "ranges") {
				row := rows.Draw(t, "row")
				f.Ranges = append(f.Ranges, store.RowRange{Start: row, Stop: append(row, rapid.SampledFrom([]byte{0, 0xff}).Draw(t, "to")), StopInclusive: true})
			}
			scan.Filter = f
		}
		for _, fold := range []bool{false, true} {
			want, _ := readPacked(t, db, scan, 0, fold)
			if d := cmp.Diff(byGets(t, db, scan, fold), want); d != "" {
				t.Fatalf("Of a scan, folded: %t (-row by row +scanned):\n%s", fold, d)
			}
			got, packed := readPacked(t, db, scan, rapid.IntRange(1, 4).Draw(t, "at once"), fold)
			if d := cmp.Diff(want, got); d != "" {
				t.Fatalf("%d rows were packed, folded: %t (-cells +as stored):\n%s", packed, fold, d)
			}
		}
	})
}

// TestPackedRowsGiven counts the rows that are given as they are stored: those of one put,
// and folded also those of several.
func TestPackedRowsGiven(t *testing.T) {
	t.Parallel()
	db, err := Open("", memory())
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	put := func(row string, at cell.Timestamp, qualifiers ...string) {
		var b store.Batch
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		for _, q := range qualifiers {
			m.Put("f", []byte(q), at, []byte(q))
		}
		b.Add(0, m)
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	put("one put", 1, "a", "b")
	put("one put, too", 1, "a", "b")
	put("two puts", 1, "a", "b")
	put("two puts", 2, "b", "c")
	put("one cell", 1, "a")
	put("several cells", 1, "a")
	put("several cells", 2, "b")
	for fold, want := range map[bool]int{false: 2, true: 5} {
		if _, packed := readPacked(t, db, &store.Scan{Table: "t", Versions: 1}, 4, fold); packed != want {
			t.Errorf("%d rows were given as they are stored, want %d, folded: %t", packed, want, fold)
		}
	}
}

// contextTB is a test, be it one of rapid's.
type contextTB interface {
	rapid.TB
	Context() context.Context
}

// readPacked prints the cells of a scan, whose rows come as they are stored, most at once,
// where they can; and how many these were. With fold they are folded where they can, and
// the time is only that of the newest cell of a row's newest versions.
func readPacked(t contextTB, db *DB, scan *store.Scan, most int, fold bool) (got []string, packed int) {
	sc := db.Scan(t.Context(), scan).(store.PackedScanner)
	defer sc.Close()
	add := func(row *cell.Row) {
		newest := cell.Timestamp(0)
		for _, c := range row.Cells {
			newest = max(newest, c.Time)
			if fold {
				c.Time = 0
			}
			got = append(got, fmt.Sprintf("%q %s:%q %d %s %d", row.Key, c.Family, c.Qualifier, c.Time, c.Value, c.TTL))
		}
		got = append(got, fmt.Sprint(newest))
	}
	rows := cell.PackedRows{Fold: fold}
	for {
		for most > 0 && sc.NextPacked(&rows, most, 1000) > 0 {
			for i := range rows.Len() {
				row, err := rows.Row(i, nil)
				if err != nil {
					t.Fatal(err)
				}
				add(&row)
				packed++
			}
		}
		if !sc.Next() {
			break
		}
		add(sc.Row())
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return got, packed
}

// byGets is readPacked with a scan of each row, which leaves no blocks out.
func byGets(t contextTB, db *DB, scan *store.Scan, fold bool) (got []string) {
	all := db.Scan(t.Context(), &store.Scan{Table: "t", Raw: true, Versions: store.AllVersions, Filter: scan.Filter, Reversed: scan.Reversed})
	defer all.Close()
	for n := 0; all.Next() && (scan.Limit == 0 || n < scan.Limit); {
		one := *scan
		one.Filter, one.Reversed, one.Start, one.Stop, one.StopInclusive = nil, false, all.Row().Key, all.Row().Key, true
		if row, _ := readPacked(t, db, &one, 0, fold); row != nil {
			got = append(got, row...)
			n++
		}
	}
	if err := all.Err(); err != nil {
		t.Fatal(err)
	}
	return got
}
