package pebblestore

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// keys returns how many key-values a family of table t has.
func keys(t testing.TB, db *DB, family string) int {
	t.Helper()
	tab, err := db.catalog.Load().lookup("t")
	if err != nil {
		t.Fatal(err)
	}
	f, _ := tab.family(family)
	low, high := rowBounds(f.tag, tab.id, f.id, cell.Range{})
	it, err := db.pebble.NewIter(&pebble.IterOptions{LowerBound: low, UpperBound: high})
	if err != nil {
		t.Fatal(err)
	}
	defer it.Close()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		n++
	}
	return n
}

// rewriteAround rewrites s, which must change something, and calls during between the
// first step and the last.
func rewriteAround(t *testing.T, db *DB, s *span, during func(r *rewrite)) {
	t.Helper()
	var r *rewrite
	if err := db.exclusive(t.Context(), HoldSchema, func() (err error) {
		r, err = db.newRewrite(s)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	if changed, err := r.write(t.Context(), math.MaxInt); err != nil || !changed {
		t.Fatalf("Got changed %t, %v. Want a change", changed, err)
	}
	during(r)
	if err := errors.Join(r.replace(t.Context()), r.close()); err != nil {
		t.Fatal(err)
	}
}

var rawAll = &store.Scan{Table: "t", Raw: true, Versions: store.AllVersions}

func TestCompactionRemovesWhatNoReadSees(t *testing.T) {
	t.Parallel()
	o := memory()
	o.RewriteKeys = 7 // spans end inside the table
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	const n = 40
	for i := range n {
		row := fmt.Sprintf("r%02d", i)
		mutate(t, db, put(row, 10, "f", "a", "old", "b", "old"))
		mutate(t, db, put(row, 20, "f", "a", "new", "b", "new", "c", "new"))
		mutate(t, db, put(row, 20, "g", "x", "g"))
		if i%2 == 0 {
			d := &cell.Mutation{Table: "t", Row: []byte(row)}
			d.DeleteColumn("f", []byte("b"), 30)
			mutate(t, db, d)
		}
		if i%4 == 0 {
			d := &cell.Mutation{Table: "t", Row: []byte(row)}
			d.DeleteRow(40)
			mutate(t, db, d)
		}
	}
	scan := &store.Scan{Table: "t"}
	before := rows(t, db, scan)
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	snap, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Close()
	raw := rows(t, snap, rawAll)
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, scan, before...)
	want(t, db, rawAll, before...)
	want(t, snap, rawAll, raw...) // what a snapshot has seen stays
	if got := keys(t, db, "f"); got != 30 {
		t.Errorf("Got %d key-values in f, want one for each of 30 rows", got)
	}
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, rawAll, before...)
	if m := db.Metrics(); m.ReclaimedKeys == 0 || m.RewrittenKeys < m.ReclaimedKeys {
		t.Errorf("Got %d keys rewritten, %d reclaimed", m.RewrittenKeys, m.ReclaimedKeys)
	}
}

func TestCompactionFoldsFragments(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	f := store.NewFamily("f")
	f.Versions = 3
	create(t, db, "t", f)
	mutate(t, db, put("r", 10, "f", "a", "1", "c", "1"))
	mutate(t, db, put("r", 10, "f", "b", "2", "d", "2"))
	mutate(t, db, put("r", 10, "f", "c", "3"))
	mutate(t, db, put("r", 11, "f", "c", "4"))
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := &store.Scan{Table: "t", Versions: 3}
	line := "r: f:a@10=1 f:b@10=2 f:c@11=4 f:c@10=3 f:d@10=2"
	want(t, db, all, line)
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, all, line)
	if got := keys(t, db, "f"); got != 2 {
		t.Errorf("Got %d key-values, want one for each time", got)
	}
	// A column of a folded value keeps its own sequence: a later write of the
	// same coordinates still wins.
	mutate(t, db, put("r", 10, "f", "a", "5"))
	want(t, db, all, "r: f:a@10=5 f:b@10=2 f:c@11=4 f:c@10=3 f:d@10=2")
}

func TestFlushAndCompactionTellFilesFromMemory(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	older := &store.Scan{Table: "t", Time: &cell.TimeRange{Min: 0, Max: 2}}
	flush := func() {
		t.Helper()
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	// Both versions in one flush: the older goes.
	mutate(t, db, put("a", 1, "f", "q", "old"))
	mutate(t, db, put("a", 2, "f", "q", "new"))
	want(t, db, older, "a: f:q@1=old")
	flush()
	want(t, db, older)
	// In two flushes it stays until a compaction.
	mutate(t, db, put("b", 1, "f", "q", "old"))
	flush()
	mutate(t, db, put("b", 2, "f", "q", "new"))
	if err := db.MinorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, older, "b: f:q@1=old")
	flush()
	want(t, db, older, "b: f:q@1=old")
	if err := db.MinorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, older)
	// Markers stay through a minor compaction and go with a major one.
	d := &cell.Mutation{Table: "t", Row: []byte("b")}
	d.DeleteColumn("f", []byte("q"), 5)
	mutate(t, db, d)
	flush()
	if err := db.MinorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, rawAll, "a: f:q@2=new", "b: f:q@5=DeleteColumn")
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"a: f:q@2=new"}, rows(t, db, rawAll)); d != "" {
		t.Fatal(d)
	}
}

// A table that is dropped and made anew while it is compacted has other keys:
// the compaction must not go on from the old ones, over everything in between.
func TestCompactionLeavesOtherTablesAlone(t *testing.T) {
	t.Parallel()
	var db *DB
	var armed atomic.Bool
	changed := make(chan error, 3)
	o := memory()
	o.RewriteKeys = 2
	o.Now = func() cell.Timestamp {
		if armed.CompareAndSwap(true, false) {
			// In the commit loop, inside the first step: what is sent now runs
			// before the second.
			for i, change := range []func() error{
				func() error { return db.DisableTable(t.Context(), "t") },
				func() error { return db.DropTable(t.Context(), "t") },
				func() error {
					return db.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil)
				},
			} {
				go func() { changed <- change() }()
				for len(db.requests) < i+1 {
					continue
				}
			}
		}
		return 10_000_000
	}
	db = open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	versions := store.NewFamily("f")
	versions.Versions = 5
	create(t, db, "u", versions)
	for i := range 6 {
		row := fmt.Sprintf("r%d", i)
		mutate(t, db, put(row, 10, "f", "q", "old"))
		for _, at := range []cell.Timestamp{10, 20} {
			m := put(row, at, "f", "q", "v")
			m.Table = "u"
			mutate(t, db, m)
		}
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	all := &store.Scan{Table: "u", Versions: store.AllVersions}
	before := rows(t, db, all)
	armed.Store(true)
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := <-changed; err != nil {
			t.Fatal(err)
		}
	}
	want(t, db, all, before...)
}

// A row of which cells were folded while it was written has them twice, in the fragment
// and by themselves, as they are restored beneath the write; the next rewrite takes each
// once, also where it leaves one that was not flushed and drops its neighbour.
func TestRewriteOfFoldedCellsThatWereRestored(t *testing.T) {
	t.Parallel()
	var clock atomic.Int64
	clock.Store(1000)
	o := eager()
	o.Now = func() cell.Timestamp { return cell.Timestamp(clock.Load()) }
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	write := func(m *cell.Mutation, ttl int64) {
		t.Helper()
		for i := range m.Ops {
			m.Ops[i].TTL = ttl
		}
		mutate(t, db, m)
	}
	write(put("r", 20, "f", "b", "2"), 5000)
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(put("r", 20, "f", "a", "1"), 5000)
	write(put("r", 10, "f", "x", "over"), 1)
	s := &span{table: "t", family: "f", how: rewriteMajor, upTo: math.MaxUint64, earliestPut: math.MinInt64, tidy: true}
	rewriteAround(t, db, s, func(*rewrite) { mutate(t, db, put("r", 30, "f", "c", "late")) })
	if got := keys(t, db, "f"); got != 1+3+1 {
		t.Fatalf("Got %d key-values, want a fragment, 3 restored cells and a late one", got)
	}
	clock.Store(5021)
	if err := db.MajorCompact(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	want(t, db, rawAll, "r: f:a@20=1 f:c@30=late f:x@10=over")
	tidy(t, db)
	want(t, db, rawAll, "r: f:c@30=late")
}

// Puts of one time that are too large to be folded go back to the key-values that they
// came from, also where an older write of some of their columns stays in these.
func TestRewriteOfPutsTooLargeToFold(t *testing.T) {
	t.Parallel()
	o := eager()
	o.MemTableBytes = 8 << 20 // what is not flushed stays so
	db := open(t, "db", o)
	kept := store.NewFamily("f")
	kept.NewVersionBehavior, kept.KeepDeleted = true, store.KeepDeletedTrue
	create(t, db, "t", kept, store.NewFamily("g"))
	large := strings.Repeat("x", maxPackedBytes*2/3)
	for _, family := range []string{"f", "g"} {
		mutate(t, db, put("r", 20, family, "a", "1", "b", "1", "c", "1", "d", large))
		mutate(t, db, put("r", 20, family, "a", "2", "b", "2", "e", large))
	}
	all := &store.Scan{Table: "t", Versions: store.AllVersions}
	lines := rows(t, db, all)
	for range 2 {
		if err := db.MinorCompact(t.Context(), "t"); err != nil { // what was not flushed all stays
			t.Fatal(err)
		}
		want(t, db, all, lines...)
		tidy(t, db) // f keeps all, and g the latest
		want(t, db, all, lines...)
	}
}

// Cells of one key-value that two rewrites have folded, and that were restored beneath late
// writes, can be left in two fragments of one time whose newest cells are of one commit:
// these cannot have one key.
func TestRewriteOfFragmentsWithOneSequence(t *testing.T) {
	t.Parallel()
	db := open(t, "db", eager())
	create(t, db, "t", store.NewFamily("f"))
	write := func(time cell.Timestamp, columns ...string) {
		t.Helper()
		mutate(t, db, put("r", time, "f", columns...))
	}
	s := &span{table: "t", family: "f", how: rewriteMajor, upTo: math.MaxUint64, earliestPut: math.MinInt64, tidy: true}
	write(20, "a", "1", "c", "1", "x", "1", "y", "1")
	for _, columns := range []string{"xy", "ac"} {
		for _, c := range columns {
			write(20, string(c), "2")
		}
		rewriteAround(t, db, s, func(*rewrite) { write(30, "late", columns) })
	}
	all := &store.Scan{Table: "t", Versions: store.AllVersions}
	lines := rows(t, db, all)
	if err := db.MinorCompact(t.Context(), "t"); err != nil { // what was not flushed all stays
		t.Fatal(err)
	}
	want(t, db, all, lines...)
	tidy(t, db)
	want(t, db, all, lines...)
}
