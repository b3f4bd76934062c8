package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// wideRow writes columns×versions cells of 100 bytes into row w, six columns a put,
// beside two small rows.
func wideRow(t testing.TB, db *DB, columns, versions int) {
	t.Helper()
	f := store.NewFamily("f")
	f.Versions = 2
	create(t, db, "t", f)
	mutate(t, db, put("a", 1, "f", "q", "v"))
	mutate(t, db, put("z", 1, "f", "q", "v"))
	value := bytes.Repeat([]byte("0123456789"), 10)
	var b store.Batch
	for v := range versions {
		for i := 0; i < columns; i += 6 {
			m := cell.Mutation{Table: "t", Row: []byte("w")}
			for c := i; c < min(i+6, columns); c++ {
				m.Put("f", fmt.Appendf(nil, "column-%08d", c), cell.Timestamp(v+1), value)
			}
			if b.Add(int64(i), m); len(b.Mutations) == 5000 || i+6 >= columns {
				if err := db.Apply(t.Context(), &b); err != nil {
					t.Fatal(err)
				}
				b.Reset()
			}
		}
	}
}

// heldBytes is what an open scan has of rows in memory.
func heldBytes(db *DB) (n int) {
	db.mu.Lock()
	defer db.mu.Unlock()
	for s := range db.sources {
		n += cap(s.arena.buf) + cap(s.spare.buf) + 120*cap(s.cells)
		for i := range s.cursors {
			r := &s.cursors[i].reader
			n += cap(r.hold.buf) + cap(r.res.versionBytes.buf) + 100*cap(r.pending)
		}
	}
	return n
}

// A row that is larger than what a reader may use comes in parts, and a scan holds
// no more of it than a part and its fragments (design D3).
func TestWideRowIsReadInParts(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 80,000 columns of one row, with nothing beside it")
	}
	t.Parallel()
	o := eager()
	o.MemTableBytes = 8 << 20
	db := open(t, "db", o)
	const columns = 80_000 // about 24 MB with two versions
	wideRow(t, db, columns, 3)
	for _, s := range []store.Scan{
		{Table: "t", MaxResultBytes: 64 << 10, Versions: 2},
		{Table: "t", MaxResultBytes: 64 << 10, Versions: 2, Reversed: true},
		{Table: "t", MaxResultBytes: 64 << 10, Start: []byte("w"), Stop: []byte("w"), StopInclusive: true},
		{Table: "t", Batch: 100},
	} {
		sc := db.Scan(t.Context(), &s)
		cells, parts, most := 0, 0, 0
		for sc.Next() {
			if row := sc.Row(); string(row.Key) == "w" {
				cells += len(row.Cells)
				parts++
			}
			most = max(most, heldBytes(db))
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		sc.Close()
		if cells != columns*max(s.Versions, 1) || parts < 50 {
			t.Errorf("scan %+v: got %d cells in %d parts", s, cells, parts)
		}
		if most > 6<<20 {
			t.Errorf("scan %+v held %d bytes of the row", s, most)
		}
	}
}

// So is a row that one put makes: what it has beyond what may be packed of a row is a key
// a cell, each counted once.
func TestWidePutIsReadInParts(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	const columns = 40_000
	m := cell.Mutation{Table: "t", Row: []byte("w")}
	for c := range columns {
		m.Put("f", fmt.Appendf(nil, "column-%08d", c), 1, make([]byte, 20))
	}
	mutate(t, db, &m)
	if got := db.packing.total.Load(); got > columns*40 {
		t.Errorf("Got %d bytes counted of a row of %d", got, columns*(15+20))
	}
	sc := db.Scan(t.Context(), &store.Scan{Table: "t", MaxResultBytes: 64 << 10})
	defer sc.Close()
	cells, most := 0, 0
	for sc.Next() {
		cells += len(sc.Row().Cells)
		most = max(most, heldBytes(db))
	}
	if err := sc.Err(); err != nil || cells != columns {
		t.Errorf("Got %d cells, %v", cells, err)
	}
	// 1 MiB of the row is packed, 30,000 cells: entries and cells of some 200 bytes each.
	if most > 16<<20 {
		t.Errorf("the scan held %d bytes of the row", most)
	}
}

func TestPackingStops(t *testing.T) {
	t.Parallel()
	var p packing
	p.seed = open(t, "db", memory()).packing.seed
	packed := 0
	for range 5000 {
		if p.allows(16, 1, []byte("wide"), 1000) {
			packed += 1000
		}
	}
	if packed < maxFragmentBytes || packed > maxFragmentBytes+2000 {
		t.Errorf("Got %d bytes packed of one row", packed)
	}
	refused := 0 // rows that share the wide one's count
	for i := range 100_000 {
		if !p.allows(16, 1, fmt.Append(nil, i), 100) {
			refused++
		}
	}
	if refused > 100 {
		t.Errorf("%d of 100,000 rows of 100 bytes are not packed", refused)
	}
	p.total.Store(packingEpoch)
	if !p.allows(16, 1, []byte("wide"), 1000) {
		t.Error("the count does not begin anew")
	}
}

// A row beyond what a rewrite holds is compacted a piece at a time; what is dropped
// of it stays dropped whatever piece its marker is in.
func TestRewriteOfWideRow(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: 60,000 columns of one row, with nothing beside it")
	}
	t.Parallel()
	o := eager()
	o.MemTableBytes = 8 << 20
	db := open(t, "db", o)
	for i := range db.packing.bytes {
		db.packing.bytes[i].Store(maxFragmentBytes + 1) // a key a cell from the beginning
	}
	const columns = 60_000
	wideRow(t, db, columns, 3)
	d := &cell.Mutation{Table: "t", Row: []byte("w")}
	d.DeleteFamily("f", 2)
	mutate(t, db, d)
	line := rows(t, db, &store.Scan{Table: "t"})
	tidy(t, db)
	want(t, db, &store.Scan{Table: "t"}, line...)
	if got := keys(t, db, "f"); got != columns+2 {
		t.Errorf("Got %d key-values, want %d", got, columns+2)
	}
}

// The fragments of a row that is compacted in pieces become a key a cell, garbage
// among them goes, and what is left is in every piece where it belongs.
func TestRewriteOfWideRowWithFragments(t *testing.T) {
	t.Parallel()
	o := eager()
	o.maxRewrittenRow = 2000
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	const columns = 500
	for version := range cell.Timestamp(4) {
		var packed []string
		for i := range columns {
			switch q := fmt.Sprintf("q%04d", i); {
			case i%4 == int(version):
				mutate(t, db, put("w", 10+version, "f", q, "single")) // a key
			case i%3 > 0:
				packed = append(packed, q, fmt.Sprintf("packed %d", version))
			}
		}
		mutate(t, db, put("w", 10+version, "f", packed...))
	}
	mutate(t, db, put("w", 20, "f", "", "unnamed", "q0001", "newest"))
	d := &cell.Mutation{Table: "t", Row: []byte("w")}
	d.DeleteFamily("f", 11)
	d.DeleteColumn("f", []byte("q0400"), 30)
	mutate(t, db, d)
	line := rows(t, db, &store.Scan{Table: "t"})
	all := rows(t, db, &store.Scan{Table: "t", Versions: 5})
	for range 2 {
		tidy(t, db)
		want(t, db, &store.Scan{Table: "t"}, line...)
		want(t, db, &store.Scan{Table: "t", Versions: 5}, all...)
		if got, cells := keys(t, db, "f"), strings.Count(line[0], " f:"); got < cells || got > cells+3 {
			t.Errorf("Got %d key-values of %d cells", got, cells)
		}
	}
}

// A row that is taken in pieces while it is written has its cells twice, by themselves
// and in the fragments that are restored beneath the write; the next rewrite in pieces
// takes each once.
func TestRewriteOfRestoredFragmentsInPieces(t *testing.T) {
	t.Parallel()
	o := memory()
	o.RewriteInterval = -1
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	for _, m := range []*cell.Mutation{
		put("w", 10, "f", "a", "old", "c", "old"),
		put("w", 20, "f", "a", "new", "c", "new", "e", "new"),
		put("w", 11, "f", "b", "single"), // the keys that the pieces end at
		put("w", 12, "f", "d", "single"),
	} {
		mutate(t, db, m)
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	db.opts.maxRewrittenRow = 1

	rewriteAround(t, db, &span{table: "t", family: "f", how: rewriteMajor, earliestPut: math.MaxInt64}, func(r *rewrite) {
		if done := r.rows.done; done.keys != 4 || done.left != 5 {
			t.Fatalf("Got %+v. Want 5 cells of 4 keys", done)
		}
		mutate(t, db, put("w", 30, "f", "b", "late"))
	})
	if got := keys(t, db, "f"); got != 5+2+1 {
		t.Fatalf("Got %d key-values, want 5 cells, 2 restored fragments and a late cell", got)
	}

	line := "w: f:a@20=new f:b@30=late f:c@20=new f:d@12=single f:e@20=new"
	want(t, db, &store.Scan{Table: "t"}, line)
	for range 2 {
		if err := errors.Join(db.Flush(t.Context()), db.MajorCompact(t.Context(), "t")); err != nil {
			t.Fatal(err)
		}
		want(t, db, &store.Scan{Table: "t"}, line)
		want(t, db, rawAll, line)
		if got := keys(t, db, "f"); got != 5 {
			t.Errorf("Got %d key-values, want one for each of 5 cells", got)
		}
	}
}

// BenchmarkScanWideRow reads one row of 500 MB in parts of 1 MiB. It reports what
// the scan has held of it in memory at most.
func BenchmarkScanWideRow(b *testing.B) {
	db := open(b, b.TempDir(), &Options{RewriteInterval: -1, Sync: SyncNever})
	const columns = 4_400_000 // of 15 bytes, with values of 100
	wideRow(b, db, columns, 1)
	b.ReportAllocs()
	most, size := 0, 0
	for b.Loop() {
		sc := db.Scan(b.Context(), &store.Scan{Table: "t", MaxResultBytes: 1 << 20})
		cells := 0
		size = 0
		for sc.Next() {
			row := sc.Row()
			cells += len(row.Cells)
			for i := range row.Cells {
				size += len(row.Cells[i].Qualifier) + len(row.Cells[i].Value)
			}
			most = max(most, heldBytes(db))
		}
		if err := sc.Err(); err != nil || cells != columns+2 {
			b.Fatalf("%d cells: %v", cells, err)
		}
		sc.Close()
	}
	b.ReportMetric(float64(size)/1e6, "MB/row")
	b.ReportMetric(float64(most)/1e6, "MB-held")
	b.ReportMetric(float64(size)*float64(b.N)/1e6/b.Elapsed().Seconds(), "MB/s")
}
