package pebblestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/store"
)

// eager returns the options of memory for a store that rewrites any garbage, when
// it is asked to.
func eager() *Options {
	o := memory()
	o.RewriteInterval, o.RewriteMinGarbage, o.RewriteKeysPerSecond = -1, -1, -1
	return o
}

func tidy(t testing.TB, db *DB) {
	t.Helper()
	if err := db.Tidy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestTidyRemovesGarbageOfEveryKind(t *testing.T) {
	t.Parallel()
	now := cell.Timestamp(10_000_000)
	expiring := store.NewFamily("f")
	expiring.TTL = 100
	minVersions := expiring
	minVersions.MinVersions, minVersions.Versions = 1, 3
	purging := store.NewFamily("f")
	purging.TimeToPurgeDeletes = 50_000
	keeping := store.NewFamily("f")
	keeping.KeepDeleted = store.KeepDeletedTrue
	inOrder := store.NewFamily("f")
	inOrder.NewVersionBehavior = true
	keepingInOrder := inOrder
	keepingInOrder.KeepDeleted = store.KeepDeletedTrue
	counting := counterFamily("f")
	counting.TTL = 100
	remove := func(at cell.Timestamp) *cell.Mutation {
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		m.DeleteColumn("f", []byte("a"), at)
		return m
	}
	count := func(at cell.Timestamp) *cell.Mutation {
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		m.Increment("f", []byte("a"), 1)
		m.Ops[0].Time = at
		return m
	}
	mortal := put("r", now, "f", "a", "1")
	mortal.Ops[0].TTL = 1000
	for _, test := range []struct {
		name   string
		f      store.FamilyDescriptor
		writes []*cell.Mutation
		pass   int64 // ms, before the rewrite
		keys   int   // left
		raw    []string
	}{
		{"nothing", store.NewFamily("f"), []*cell.Mutation{put("r", 10, "f", "a", "1")}, 0, 1, []string{"r: f:a@10=1"}},
		{"versions in excess", store.NewFamily("f"), []*cell.Mutation{put("r", 10, "f", "a", "1"), put("r", 11, "f", "a", "2")}, 0, 1, []string{"r: f:a@11=2"}},
		{"masked put and its marker", store.NewFamily("f"), []*cell.Mutation{put("r", 10, "f", "a", "1"), remove(20)}, 0, 0, nil},
		{"marker before it may go", purging, []*cell.Mutation{put("r", now, "f", "a", "1"), remove(now)}, 50_000, 1, []string{"r: f:a@10000000=DeleteColumn"}},
		{"marker that may go", purging, []*cell.Mutation{put("r", now, "f", "a", "1"), remove(now)}, 50_001, 0, nil},
		{"deleted cells that are kept", keeping, []*cell.Mutation{put("r", 10, "f", "a", "1"), remove(20)}, 0, 2, []string{"r: f:a@20=DeleteColumn f:a@10=1"}},
		{"family's TTL", expiring, []*cell.Mutation{put("r", now, "f", "a", "1", "b", "2")}, 100_001, 0, nil},
		{"family's TTL, not over", expiring, []*cell.Mutation{put("r", now, "f", "a", "1")}, 100_000, 1, []string{"r: f:a@10000000=1"}},
		{"MIN_VERSIONS", minVersions, []*cell.Mutation{put("r", now, "f", "a", "1"), put("r", now+1, "f", "a", "2")}, 200_000, 1, []string{"r: f:a@10000001=2"}},
		{"cell's TTL", store.NewFamily("f"), []*cell.Mutation{mortal, put("r", 11, "f", "b", "2")}, 1001, 1, []string{"r: f:b@11=2"}},
		{"NEW_VERSION_BEHAVIOR", inOrder, []*cell.Mutation{put("r", 10, "f", "a", "1"), remove(20), put("r", 11, "f", "a", "2")}, 0, 1, []string{"r: f:a@11=2"}},
		{"NEW_VERSION_BEHAVIOR and deleted cells that are kept", keepingInOrder, []*cell.Mutation{put("r", 10, "f", "a", "1"), remove(20)}, 0, 2, []string{"r: f:a@20=DeleteColumn f:a@10=1"}},
		{"counter's TTL", counting, []*cell.Mutation{count(now)}, 100_001, 0, nil},
		{"counter's TTL, not over", counting, []*cell.Mutation{count(now), count(now + 1)}, 100_000, 1, []string{"r: f:a@10000001=2"}},
	} {
		for _, flushed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, flushed=%v", test.name, flushed), func(t *testing.T) {
				t.Parallel()
				clock := int64(now)
				o := eager()
				o.Now = func() cell.Timestamp { return cell.Timestamp(clock) }
				db := open(t, "db", o)
				create(t, db, "t", test.f)
				for _, m := range test.writes {
					mutate(t, db, m)
					if flushed {
						// Pebble's flush only: HBase's removes garbage, too.
						if err := db.flushMemTables(t.Context()); err != nil {
							t.Fatal(err)
						}
					}
				}
				clock += test.pass
				scan := &store.Scan{Table: "t", Versions: store.AllVersions}
				before := rows(t, db, scan)
				snap, err := db.Snapshot(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer snap.Close()
				held := rows(t, snap, rawAll)
				tidy(t, db)
				want(t, db, scan, before...)
				want(t, db, rawAll, test.raw...)
				want(t, snap, rawAll, held...)
				if got := keys(t, db, "f"); got != test.keys {
					t.Errorf("Got %d key-values, want %d", got, test.keys)
				}
				rewrites := db.Metrics().Rewrites
				tidy(t, db)
				if got := db.Metrics().Rewrites; got != rewrites {
					t.Errorf("Got %d rewrites of a tidy table", got-rewrites)
				}
			})
		}
	}
}

// The store tidies up random rows, with deletes of all kinds and
// everything that families say of what is kept. What scans of all times show stays.
func TestTidyChangesNoScan(t *testing.T) {
	t.Parallel()
	for seed := range thinned.Of[uint64](60, 1) {
		rng := rand.New(rand.NewPCG(seed, 3))
		now := cell.Timestamp(10_000_000)
		o := eager()
		o.Now, o.RewriteKeys, o.maxRewrittenRow = func() cell.Timestamp { return now }, 1+rng.IntN(20), []int{0, 1, 100}[rng.IntN(3)]
		db := open(t, "", o)
		var families []store.FamilyDescriptor
		for _, name := range []string{"f", "g"} {
			f := store.NewFamily(name)
			f.Versions = []int{1, 2, 3, store.AllVersions}[rng.IntN(4)]
			f.NewVersionBehavior = rng.IntN(3) == 0
			f.KeepDeleted = []store.KeepDeleted{store.KeepDeletedFalse, store.KeepDeletedTrue, store.KeepDeletedTTL}[rng.IntN(3)]
			if rng.IntN(2) == 0 {
				f.TTL, f.MinVersions = 20, rng.IntN(min(f.Versions, 2)+1)
			}
			if rng.IntN(3) == 0 {
				f.TimeToPurgeDeletes = int64(rng.IntN(30_000))
			}
			families = append(families, f)
		}
		create(t, db, "t", families...)
		any := func(of ...string) string { return of[rng.IntN(len(of))] }
		write := func() {
			m := &cell.Mutation{Table: "t", Row: []byte(any("a", "a\x00"))}
			family, qualifier, at := any("f", "g"), []byte(any("", "q", "q\x00")), now+cell.Timestamp(rng.IntN(12)-9)*3000
			switch rng.IntN(8) {
			case 0:
				m.Delete(family, qualifier, at)
			case 1:
				m.DeleteColumn(family, qualifier, at)
			case 2:
				m.DeleteFamily(family, at)
			case 3:
				m.DeleteFamilyVersion(family, at)
			default:
				life := max(0, int64(rng.IntN(40)-20)*1000)
				for _, q := range []string{"", "q", "q\x00"}[rng.IntN(3):] {
					m.Put(family, []byte(q), at, []byte(any("", "v", "w")))
					m.Ops[len(m.Ops)-1].TTL = life
				}
			}
			if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
				t.Fatal(err)
			}
		}
		scans := []*store.Scan{{Table: "t"}, {Table: "t", Versions: 2}, {Table: "t", Versions: store.AllVersions, Reversed: true}}
		for range 8 {
			for range 1 + rng.IntN(12) {
				write()
			}
			now += cell.Timestamp([]int{0, 0, 1, 7000}[rng.IntN(4)])
			var before [][]string
			for _, s := range scans {
				before = append(before, rows(t, db, s))
			}
			tidy(t, db)
			for i, s := range scans {
				if d := cmp.Diff(before[i], rows(t, db, s)); d != "" {
					t.Fatalf("seed %d, %d versions of %+v (-before +after):\n%s", seed, s.Versions, families, d)
				}
			}
		}
	}
}

// A table that is not to be compacted is rewritten by nothing, and again when it is no
// longer so.
func TestTidyHeedsCompactionEnabled(t *testing.T) {
	t.Parallel()
	db := open(t, "db", eager())
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("r", 10, "f", "a", "1"))
	mutate(t, db, put("r", 11, "f", "a", "2"))
	enable := func(on string) {
		t.Helper()
		d, err := db.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		if err := d.SetAttribute(store.AttrCompaction, on); err != nil {
			t.Fatal(err)
		}
		if err := db.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	enable("false")
	tidy(t, db)
	for what, err := range map[string]error{"MajorCompact": db.MajorCompact(t.Context(), "t"), "MinorCompact": db.MinorCompact(t.Context(), "t")} {
		if !errors.Is(err, store.ErrRefused) {
			t.Errorf("%s: %v; want ErrRefused", what, err)
		}
	}
	if m := db.Metrics(); m.RewrittenKeys != 0 || m.GarbageSampledKeys != 0 {
		t.Errorf("%d keys were rewritten, %d looked at", m.RewrittenKeys, m.GarbageSampledKeys)
	}
	enable("true")
	tidy(t, db)
	if m := db.Metrics(); m.ReclaimedKeys != 1 {
		t.Errorf("%d keys were left out, want 1", m.ReclaimedKeys)
	}
}

// Only spans with enough garbage are rewritten, and what is known to have no more
// of it is not looked at.
func TestTidyChoosesSpans(t *testing.T) {
	t.Parallel()
	o := eager()
	o.RewriteMinGarbage = 0.2
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	const n = 2000
	for i := range n {
		mutate(t, db, put(fmt.Sprintf("r%05d", i), 10, "f", "a", "1"))
		if i%10 == 0 {
			mutate(t, db, put(fmt.Sprintf("r%05d", i), 11, "f", "a", "2"))
		}
	}
	if err := db.flushMemTables(t.Context()); err != nil {
		t.Fatal(err)
	}
	tidy(t, db)
	if m := db.Metrics(); m.Rewrites != 0 || m.GarbageBytes == 0 || m.GarbageSampledKeys == 0 {
		t.Fatalf("Got %d rewrites, %d bytes of garbage, %d keys sampled. Want none, some and some", m.Rewrites, m.GarbageBytes, m.GarbageSampledKeys)
	}
	sampled := db.Metrics().GarbageSampledKeys
	tidy(t, db)
	if got := db.Metrics().GarbageSampledKeys; got != sampled {
		t.Errorf("Got %d keys sampled of a store in which nothing has happened", got-sampled)
	}
	for i := range n {
		mutate(t, db, put(fmt.Sprintf("r%05d", i), 12, "f", "a", "3"))
	}
	tidy(t, db)
	if got := keys(t, db, "f"); got != n {
		t.Errorf("Got %d key-values, want %d", got, n)
	}
	if m := db.Metrics(); m.Rewrites == 0 || m.GarbageBytes != 0 || m.RewriteHoldMax == 0 || m.ReclaimedBytes == 0 {
		t.Errorf("Got %+v", m)
	}
}

// hookFS calls on before some operations of a file system.
type hookFS struct {
	vfs.FS
	on atomic.Pointer[func(op, name string)]
}

func (h *hookFS) call(op, name string) {
	if f := h.on.Load(); f != nil {
		(*f)(op, filepath.Base(name))
	}
}

func (h *hookFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	h.call("create", name)
	return h.FS.Create(name, c)
}

func (h *hookFS) Link(o, n string) error {
	h.call("link", o)
	return h.FS.Link(o, n)
}

func (h *hookFS) Remove(name string) error {
	h.call("remove", name)
	return h.FS.Remove(name)
}

// What is written while a span is rewritten is there afterwards, and what it makes
// visible again is, too.
func TestRewriteKeepsLateWrites(t *testing.T) {
	t.Parallel()
	disk := &hookFS{FS: vfs.NewMem()}
	o := eager()
	o.FS = disk
	db := open(t, "db", o)
	n := counterFamily("n")
	n.TTL = 100
	create(t, db, "t", store.NewFamily("f"), n)
	increment := func(row string, at cell.Timestamp) *cell.Mutation {
		m := &cell.Mutation{Table: "t", Row: []byte(row)}
		m.Increment("n", []byte("c"), 5)
		m.Ops[0].Time = at
		return m
	}
	for _, row := range []string{"a", "b", "c", "d"} {
		for at := range cell.Timestamp(3) {
			mutate(t, db, put(row, 10+at, "f", "q", fmt.Sprint(at), "p", fmt.Sprint(at)))
		}
		mutate(t, db, increment(row, 9_950_000))
	}
	var clock atomic.Int64
	db.opts.Now = func() cell.Timestamp { return cell.Timestamp(10_000_000 + clock.Load()) }
	clock.Store(60_000) // counters are gone
	late := func(op, name string) {
		if op != "create" || name != rewriteFile {
			return
		}
		for _, m := range []*cell.Mutation{
			put("aa", 20, "f", "q", "new"),
			put("b", 20, "f", "q", "late"),
			increment("b", 10_050_000), // once for each family
		} {
			if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
				t.Error(err)
			}
		}
		// The newest version goes: as nothing has been rewritten yet, the one
		// before it is seen, and must stay so.
		d := &cell.Mutation{Table: "t", Row: []byte("c")}
		d.Delete("f", []byte("q"), 12)
		if _, err := db.MutateRow(t.Context(), nil, d); err != nil {
			t.Error(err)
		}
	}
	disk.on.Store(&late)
	tidy(t, db)
	disk.on.Store(nil)
	want(t, db, &store.Scan{Table: "t", Columns: []store.Column{{Family: "f", All: true}}},
		"a: f:p@12=2 f:q@12=2", "aa: f:q@20=new", "b: f:p@12=2 f:q@20=late", "c: f:p@12=2 f:q@11=1", "d: f:p@12=2 f:q@12=2")
	if _, closer, err := db.pebble.Get(redoKey()); err == nil {
		closer.Close()
		t.Error("the redo record is still there")
	}
	tidy(t, db)
	want(t, db, rawAll,
		"a: f:p@12=2 f:q@12=2", "aa: f:q@20=new", "b: f:p@12=2 f:q@20=late n:c@10050000=10", "c: f:p@12=2 f:q@11=1", "d: f:p@12=2 f:q@12=2")
}

// Power fails at every step of the replacement of spans that are written to
// meanwhile; whatever is lost of what was not synced, all that was acknowledged is
// there.
func TestCrashDuringRewrite(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 6))
	mem := vfs.NewCrashableMem()
	disk := &hookFS{FS: mem}
	o := &Options{FS: disk, MemTableBytes: 64 << 10, CacheBytes: 1 << 20, RewriteInterval: -1, RewriteMinGarbage: -1, RewriteKeysPerSecond: -1, RewriteKeys: 60}
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db}
	garbage := func() {
		for range 30 { // older versions of rows that are there
			p := rng.IntN(3)
			if l.next[p] == 0 {
				continue
			}
			row := fmt.Sprintf("p%d-%06d", p, rng.Int64N(l.next[p]))
			if _, err := db.MutateRow(t.Context(), nil, put(row, 0, "f", "a", "0", "b", "0")); err != nil {
				t.Fatal(err)
			}
		}
	}
	type crash struct {
		at           string
		fs           *vfs.MemFS
		acknowledged [3]int64
	}
	var crashes []crash
	during := func(op, name string) {
		if name != rewriteFile {
			return
		}
		if op == "create" {
			// Beside the loop: the writes come while the span is read.
			if err := l.apply(t, rng.IntN(3), 1+rng.IntN(10)); err != nil {
				t.Error(err)
			}
		}
		crashes = append(crashes, crash{op, mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: rng.IntN(101), RNG: rng}), l.next})
	}
	rounds := thinned.Of(8, 2)
	for range rounds {
		for p := range 3 {
			if err := l.apply(t, p, 20); err != nil {
				t.Fatal(err)
			}
		}
		garbage()
		disk.on.Store(&during)
		tidy(t, db)
		disk.on.Store(nil)
		check(t, db, l.next)
	}
	if m := db.Metrics(); m.Rewrites < int64(rounds) {
		t.Fatalf("Got %d rewrites", m.Rewrites)
	}
	redone := 0
	for i, c := range crashes {
		o.FS = c.fs
		db, err := Open("db", o)
		if err != nil {
			t.Fatalf("crash %d, before %s: %v", i, c.at, err)
		}
		if db.redone {
			redone++
		}
		check(t, db, c.acknowledged)
		tidy(t, db)
		check(t, db, c.acknowledged)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if redone == 0 {
		t.Errorf("none of %d crashes left a rewrite to finish", len(crashes))
	}
}

// The goroutine looks at every interval, and ends with the store.
func TestRetentionRunsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := eager()
		o.RewriteInterval = time.Hour
		f := store.NewFamily("f")
		f.TTL = 60
		o.Now = func() cell.Timestamp { return cell.Timestamp(time.Now().UnixMilli()) }
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		create(t, db, "t", f)
		mutate(t, db, put("r", cell.Timestamp(time.Now().UnixMilli()), "f", "a", "1"))
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := keys(t, db, "f"); got != 1 {
			t.Errorf("Got %d key-values before the interval is over", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, m := keys(t, db, "f"), db.Metrics(); got != 0 || m.GarbageLooks != 1 {
			t.Errorf("Got %d key-values after %d looks", got, m.GarbageLooks)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}

// A call that is under way when the store closes ends with an error, not with a
// store that is closed under it.
func TestCloseEndsRewrites(t *testing.T) {
	t.Parallel()
	disk := &hookFS{FS: vfs.NewMem()}
	o := eager()
	o.FS = disk
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"))
	for i := range 10 {
		mutate(t, db, put("r", cell.Timestamp(i), "f", "a", "1"))
	}
	closed := make(chan error, 1)
	closing := func(op, name string) {
		if op == "create" && name == rewriteFile {
			go func() { closed <- db.Close() }()
			for db.enter() == nil {
				db.leave()
			}
		}
	}
	disk.on.Store(&closing)
	if err := db.Tidy(context.Background()); err == nil {
		t.Error("Got no error")
	}
	if err := <-closed; err != nil {
		t.Fatal(err)
	}
}

func TestOptionsOfRetention(t *testing.T) {
	t.Parallel()
	if err := (&Options{RewriteMinGarbage: 1.5}).Validate(); err == nil {
		t.Error("a share of more than 1 passed")
	}
	o := (*Options)(nil).withDefaults()
	got := []any{o.RewriteInterval, o.RewriteMinGarbage, o.RewriteKeysPerSecond, o.RewriteKeys}
	if d := cmp.Diff([]any{15 * time.Minute, 0.2, 1_000_000, 500_000}, got); d != "" {
		t.Error(d)
	}
}

func TestBetween(t *testing.T) {
	t.Parallel()
	low, high := []byte("ab"), []byte("ac\x01")
	last := low
	for i := 1; i < 4; i++ {
		at := between(low, high, i, 4)
		if string(at) <= string(last) || string(at) >= string(high) {
			t.Errorf("Got %x after %x", at, last)
		}
		last = at
	}
	if got := between(low, high, 4, 4); string(got) != string(high) {
		t.Errorf("Got %x", got)
	}
}
