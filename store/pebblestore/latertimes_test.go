package pebblestore

import (
	"fmt"
	"math"
	"testing"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// newestCells are the newest cells of a scan's rows, by row, family and qualifier, and of
// each row the newest time.
func newestCells(t *rapid.T, db *DB, s *store.Scan) (cells map[string]string, times map[string]cell.Timestamp) {
	cells, times = map[string]string{}, map[string]cell.Timestamp{}
	sc := db.Scan(t.Context(), s)
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		for _, c := range row.Cells {
			at := fmt.Sprintf("%q %s:%q", row.Key, c.Family, c.Qualifier)
			if _, ok := cells[at]; ok {
				t.Fatalf("%s has two newest versions", at)
			}
			cells[at] = fmt.Sprintf("%x at %d", c.Value, c.Time)
			times[string(row.Key)] = max(times[string(row.Key)], c.Time)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return cells, times
}

// TestLaterTimesAreNewest: a cell that a scan of the times from some time on gives is the
// newest of its column, and where it gives one of a row, the newest time of the row is that
// of one of them. Increments of exports stand on that (jobs/changedrows.go).
func TestLaterTimesAreNewest(t *testing.T) {
	t.Parallel()
	const now = 10_000_000 // memory's
	found, hidden := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		ctx := t.Context()
		o := memory()
		o.blockBytes = 100 // a row or so
		db, err := Open("", o)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		f, n := store.NewFamily("f"), store.NewFamily("n")
		f.Versions = rapid.IntRange(1, 3).Draw(t, "VERSIONS")
		f.NewVersionBehavior = rapid.IntRange(0, 3).Draw(t, "NEW_VERSION_BEHAVIOR") == 0
		if rapid.Bool().Draw(t, "TTL") {
			f.TTL = 100
			f.MinVersions = rapid.IntRange(0, f.Versions).Draw(t, "MIN_VERSIONS")
		}
		if !f.NewVersionBehavior {
			f.KeepDeleted = store.KeepDeleted(rapid.IntRange(0, 2).Draw(t, "KEEP_DELETED_CELLS"))
		}
		n.Counter = true
		if err := db.CreateTable(ctx, &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, store.NewFamily("g"), n}}, nil); err != nil {
			t.Fatal(err)
		}
		times := rapid.SampledFrom([]cell.Timestamp{1, now - 200_000, now - 100_000, now - 99_999, now - 5, now})
		names := rapid.SampledFrom([]string{"", "a", "b\x00"})
		families := rapid.SampledFrom([]string{"f", "f", "f", "g"})
		for i := range rapid.IntRange(1, 25).Draw(t, "writes") {
			m := cell.Mutation{Table: "t", Row: []byte(rapid.SampledFrom([]string{"a", "b", "c\x00", "d"}).Draw(t, "row"))}
			family, name, at := families.Draw(t, "family"), []byte(names.Draw(t, "qualifier")), times.Draw(t, "time")
			switch rapid.IntRange(0, 10).Draw(t, "what") {
			case 0:
				m.DeleteFamily(family, at)
			case 1:
				m.DeleteColumn(family, name, at)
			case 2:
				m.Delete(family, name, at)
			case 3:
				m.DeleteFamilyVersion(family, at)
			case 4:
				m.Increment("n", name, 1)
				m.Ops[0].Time = at
			case 5:
				m.DeleteColumn("n", name, cell.Latest)
			case 6:
				m.Put(family, name, at, fmt.Appendf(nil, "one %d", i))
				m.Ops[0].TTL = rapid.SampledFrom([]int64{0, 150_000}).Draw(t, "life")
			default:
				for _, q := range rapid.SliceOfNDistinct(names, 2, 3, rapid.ID).Draw(t, "qualifiers") {
					m.Put(family, []byte(q), at, fmt.Appendf(nil, "%d of %s", i, q))
				}
			}
			if _, err := db.MutateRow(ctx, nil, &m); err != nil {
				t.Fatal(err)
			}
			switch rapid.IntRange(0, 7).Draw(t, "then") {
			case 0:
				err = db.Flush(ctx)
			case 1:
				err = db.MajorCompact(ctx, "t")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s := &store.Scan{Table: "t"}
		if rapid.Bool().Draw(t, "one family") {
			s.Columns = []store.Column{{Family: "f", All: true}}
		}
		cells, newest := newestCells(t, db, s)
		later := *s
		later.Time = &cell.TimeRange{Min: times.Draw(t, "from"), Max: math.MaxInt64}
		some, newestOfSome := newestCells(t, db, &later)
		for at, c := range some {
			if cells[at] != c {
				t.Fatalf("%s: %s, and of the times from %d on %s", at, cells[at], later.Time.Min, c)
			}
		}
		for row, at := range newestOfSome {
			if newest[row] != at {
				t.Fatalf("%q: newest at %d, and of the times from %d on at %d", row, newest[row], later.Time.Min, at)
			}
		}
		found += len(some)
		hidden += len(cells) - len(some)
	})
	if !t.Failed() && (found == 0 || hidden == 0) {
		t.Errorf("Got %d cells of later times, and %d others", found, hidden)
	}
}
