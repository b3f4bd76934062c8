package pebblestore

import (
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
	total := 0
	rapid.Check(t, func(t *rapid.T) {
		db, err := Open("", memory())
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
		names := rapid.SampledFrom([]string{"", "a", "b", "c"})
		for range rapid.IntRange(1, 5).Draw(t, "batches") {
			var b store.Batch
			for range rapid.IntRange(1, 12).Draw(t, "writes") {
				m := cell.Mutation{Table: "t", Row: rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 0xff}), 1, 3).Draw(t, "row")}
				at := times.Draw(t, "time")
				switch rapid.IntRange(0, 9).Draw(t, "what") {
				case 0:
					m.DeleteFamily("f", at)
				case 1:
					m.DeleteColumn("f", []byte(names.Draw(t, "qualifier")), at)
				case 2:
					m.Put("f", []byte(names.Draw(t, "qualifier")), at, []byte("one"))
				default:
					for _, q := range rapid.SliceOfNDistinct(names, 2, 4, rapid.ID).Draw(t, "qualifiers") {
						m.Put("f", []byte(q), at, []byte("value of "+q))
					}
					if rapid.IntRange(0, 5).Draw(t, "life") == 0 {
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
		}
		scan := &store.Scan{Table: "t", Versions: rapid.IntRange(1, 3).Draw(t, "versions"), Limit: rapid.IntRange(0, 6).Draw(t, "limit")}
		if rapid.Bool().Draw(t, "some time") {
			scan.Time = &cell.TimeRange{Min: times.Draw(t, "min"), Max: math.MaxInt64}
			scan.Time.Max = max(scan.Time.Min, rapid.SampledFrom([]cell.Timestamp{now - 5, now, math.MaxInt64}).Draw(t, "max"))
		}
		scan.Reversed = rapid.IntRange(0, 5).Draw(t, "reversed") == 0
		want, _ := readPacked(t, db, scan, 0)
		got, packed := readPacked(t, db, scan, rapid.IntRange(1, 4).Draw(t, "at once"))
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("%d rows were packed (-cells +as stored):\n%s", packed, d)
		}
		total += packed
	})
	if total == 0 && !t.Failed() {
		t.Error("No row was given as it is stored")
	}
}

// readPacked prints the cells of a scan, whose rows come as they are stored, most at once,
// where they can; and how many these were.
func readPacked(t *rapid.T, db *DB, scan *store.Scan, most int) (got []string, packed int) {
	sc := db.Scan(t.Context(), scan).(store.PackedScanner)
	defer sc.Close()
	add := func(row *cell.Row) {
		for _, c := range row.Cells {
			got = append(got, fmt.Sprintf("%q %s:%s %d %s %d", row.Key, c.Family, c.Qualifier, c.Time, c.Value, c.TTL))
		}
		got = append(got, "")
	}
	var rows cell.PackedRows
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
