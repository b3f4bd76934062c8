package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/store"
)

// ledger writes batches that each count one event of its partition in a row, in a
// counter and in the offset, so that the three must agree at every instant.
type ledger struct {
	db   *DB
	next [3]int64 // offsets acknowledged, by partition
	bulk bool     // what apply says of its batches
}

func (l *ledger) apply(t testing.TB, partition, events int) error {
	from, next := l.next[partition], l.next[partition]+int64(events)
	b := store.Batch{Bulk: l.bulk}
	for o := from; o < next; o++ {
		b.Add(o, *put(fmt.Sprintf("p%d-%06d", partition, o), cell.Timestamp(o+1), "f", "a", "1", "b", "2"))
	}
	b.Counters = append(b.Counters, store.CounterDelta{
		Table: "t", Family: "n", Row: fmt.Appendf(nil, "p%d", partition), Qualifier: []byte("events"), Delta: int64(events), Time: 5, Offset: from,
	})
	if from == 0 {
		from = store.Absent
	}
	b.Advance(store.Source{Pipeline: "p", Topic: "x"}, int32(partition), from, store.Progress{Next: next, Applied: next})
	err := l.db.Apply(t.Context(), &b)
	if err == nil {
		l.next[partition] = next
	}
	return err
}

// offsets returns the stored offsets by partition.
func offsets(t testing.TB, r store.Reader) (next [3]int64) {
	t.Helper()
	all, err := store.AllProgress(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		next[p.Partition] = p.Progress.Next
	}
	return next
}

// check reads a store and fails where rows, counters and offsets disagree, or
// where less is there than acknowledged.
func check(t testing.TB, r store.Reader, acknowledged [3]int64) {
	t.Helper()
	var counts, found [3]int64
	offsets := offsets(t, r)
	sc := r.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		p := row.Key[1] - '0'
		if len(row.Key) == 2 {
			counts[p] = int64(binary.BigEndian.Uint64(row.Cells[0].Value))
			continue
		}
		if len(row.Cells) != 2 {
			t.Fatalf("row %s has %d cells", row.Key, len(row.Cells))
		}
		found[p]++
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	if offsets != counts || offsets != found {
		t.Fatalf("Got offsets %v, counters %v, rows %v. Want them equal", offsets, counts, found)
	}
	for p := range offsets {
		if offsets[p] < acknowledged[p] {
			t.Fatalf("partition %d: offset %d after the crash, %d was acknowledged", p, offsets[p], acknowledged[p])
		}
	}
}

// Power fails at a random moment, any part of what was not synced is lost, and
// the store goes on from what is left (invariants I2, I3).
func TestCrashesLoseNothingAcknowledged(t *testing.T) {
	t.Parallel()
	for seed := range thinned.Of[uint64](12, 1) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			rng := rand.New(rand.NewPCG(seed, 7))
			mem := crashfs.New()
			o := bulk(mem)
			o.RewriteInterval = 0
			var l ledger
			for life := range 8 {
				db, err := Open("db", o)
				if err != nil {
					t.Fatalf("life %d: %v", life, err)
				}
				l.db = db
				if life == 0 {
					create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
				}
				check(t, db, l.next)
				l.next = offsets(t, db) // what was stored but not acknowledged is among it
				crash := 1 + rng.IntN(30)
				var clone crashfs.FS
				var acknowledged [3]int64
				for step := range crash + 5 {
					if step == crash {
						acknowledged = l.next
						clone = mem.Crash(rng.IntN(101), rng)
					}
					l.bulk = seed%3 > 0 && rng.IntN(2) == 0
					if err := l.apply(t, rng.IntN(3), 1+rng.IntN(40)); err != nil {
						t.Fatal(err)
					}
					switch rng.IntN(12) {
					case 0:
						err = db.Flush(t.Context())
					case 1:
						err = db.MajorCompact(t.Context(), "t")
					}
					if err != nil {
						t.Fatal(err)
					}
				}
				if err := db.Close(); err != nil {
					t.Fatal(err)
				}
				mem, o.FS, l.next = clone, clone, acknowledged
			}
		})
	}
}

// The crash comes while several writers wait for their commits.
func TestCrashAmidConcurrentCommits(t *testing.T) {
	t.Parallel()
	mem := crashfs.New()
	o := bulk(mem)
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	var acknowledged [3]atomic.Int64
	var writers sync.WaitGroup
	stop := make(chan struct{})
	for p := range 3 {
		writers.Go(func() {
			l := ledger{db: db}
			for {
				select {
				case <-stop:
					return
				default:
				}
				l.bulk = l.next[p]%2 > 0
				if err := l.apply(t, p, 5); err != nil {
					t.Error(err)
					return
				}
				acknowledged[p].Store(l.next[p])
			}
		})
	}
	rng := rand.New(rand.NewPCG(3, 4))
	type crash struct {
		fs           crashfs.FS
		acknowledged [3]int64
	}
	var crashes []crash
	for i := range 20 {
		for db.Metrics().Commits < int64(3*i) {
			runtime.Gosched()
		}
		var c crash
		for p := range 3 {
			c.acknowledged[p] = acknowledged[p].Load()
		}
		c.fs = mem.Crash(50, rng)
		crashes = append(crashes, c)
	}
	close(stop)
	writers.Wait()
	for i, c := range crashes {
		db, err := Open("db", &Options{FS: c.fs, MemTableBytes: 64 << 10, CacheBytes: 1 << 20})
		if err != nil {
			t.Fatalf("crash %d: %v", i, err)
		}
		check(t, db, c.acknowledged)
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// meteredFS is a file system whose free space is what the test says.
type meteredFS struct {
	vfs.FS
	free atomic.Uint64
}

func (m *meteredFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: m.free.Load()}, nil
}

// Out of disk, writes fail at once and nothing of them stays; reads go on; with
// room again writes do, too (invariant I8).
func TestFullDiskPausesWrites(t *testing.T) {
	t.Parallel()
	disk := &meteredFS{FS: vfs.NewMem()}
	disk.free.Store(1 << 30)
	db := open(t, "db", &Options{FS: disk, CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db}
	if err := l.apply(t, 0, 3); err != nil {
		t.Fatal(err)
	}
	disk.free.Store(1 << 20)
	err := l.apply(t, 0, 3)
	if !errors.Is(err, store.ErrDiskFull) || !errors.Is(err, store.ErrTransient) {
		t.Fatalf("Got %v, want ErrDiskFull", err)
	}
	if _, err := db.MutateRow(t.Context(), nil, put("r", 1, "f", "q", "v")); !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("Got %v, want ErrDiskFull", err)
	}
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: "u", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("Got %v, want ErrDiskFull", err)
	}
	if err := db.Flush(t.Context()); !errors.Is(err, store.ErrDiskFull) {
		t.Fatalf("Got %v, want ErrDiskFull", err)
	}
	check(t, db, [3]int64{3})
	disk.free.Store(1 << 30)
	if err := l.apply(t, 0, 3); err != nil {
		t.Fatal(err)
	}
	check(t, db, [3]int64{6})
	if m := db.Metrics(); m.CommitsRefused != 2 {
		t.Errorf("Got %d refused commits, want 2", m.CommitsRefused)
	}
}

// A commit leaves the free-space limit: neither the log must meet a full disk, which stops
// the engine for good, nor the flush.
func TestCommitLeavesFreeSpace(t *testing.T) {
	t.Parallel()
	for _, bulk := range []bool{false, true} {
		disk := &meteredFS{FS: vfs.NewMem()}
		disk.free.Store(1 << 30)
		db := open(t, "db", &Options{FS: disk, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, MinFreeBytes: 8 << 20, MinBulkKeys: 1})
		create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
		apply := func(from int64, bytes int) error {
			b := store.Batch{Bulk: bulk}
			b.Add(0, *put(fmt.Sprint(bytes), 1, "f", "q", strings.Repeat("x", bytes)))
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("n"), Qualifier: []byte("q"), Delta: 1, Time: 5})
			b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, from, store.Progress{Next: from + 2})
			return db.Apply(t.Context(), &b)
		}
		if err := apply(store.Absent, 1); err != nil {
			t.Fatal(err)
		}
		disk.free.Store(10<<20 + 1<<19)
		if err := apply(1, 3<<20); !errors.Is(err, store.ErrDiskFull) || !strings.Contains(err.Error(), "MiB left, writes need 1") {
			t.Errorf("Got %v, want ErrDiskFull", err)
		}
		if err := apply(1, 1<<20); err != nil {
			t.Errorf("Got %v of what fits", err)
		}
		disk.free.Store(1 << 30)
		if err := apply(3, 3<<20); err != nil {
			t.Error(err)
		}
		if got := rows(t, db, &store.Scan{Table: "t", Start: []byte("n")}); len(got) != 1 || got[0] != "n: n:q@5=3" {
			t.Errorf("Got %q, want a counter of 3", got)
		}
		if m := db.Metrics(); m.CommitsRefused != 1 || m.CommitErrors != 0 {
			t.Errorf("Got %d refused, %d failed", m.CommitsRefused, m.CommitErrors)
		}
	}
}

// brokenFS fails every write to a WAL once it is broken.
type brokenFS struct {
	vfs.FS
	broken atomic.Bool
}

func (b *brokenFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := b.FS.Create(name, c)
	return &brokenFile{File: f, fs: b}, err
}

func (b *brokenFS) ReuseForWrite(o, n string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := b.FS.ReuseForWrite(o, n, c)
	return &brokenFile{File: f, fs: b}, err
}

type brokenFile struct {
	vfs.File
	fs *brokenFS
}

func (f *brokenFile) fail() error {
	if f.fs.broken.Load() {
		return syscall.EIO
	}
	return nil
}

func (f *brokenFile) Write(p []byte) (int, error) {
	if err := f.fail(); err != nil {
		return 0, err
	}
	return f.File.Write(p)
}

func (f *brokenFile) Sync() error     { return errors.Join(f.fail(), f.File.Sync()) }
func (f *brokenFile) SyncData() error { return errors.Join(f.fail(), f.File.SyncData()) }
func (f *brokenFile) SyncTo(n int64) (bool, error) {
	if err := f.fail(); err != nil {
		return false, err
	}
	return f.File.SyncTo(n)
}

// A WAL that cannot be written fails the caller with an error that says what to
// do; nobody hangs, nothing is acknowledged, and the process is not ended.
func TestBrokenLogFailsCallers(t *testing.T) {
	t.Parallel()
	disk := &brokenFS{FS: vfs.NewMem()}
	db, err := Open("db", &Options{FS: disk, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db}
	if err := l.apply(t, 0, 3); err != nil {
		t.Fatal(err)
	}
	disk.broken.Store(true)
	if err := l.apply(t, 0, 3); err == nil {
		t.Fatal("a batch was acknowledged that is in no log")
	} else if !errors.Is(err, store.ErrTransient) || !errors.Is(err, store.ErrClosed) {
		// Closed: whoever waits for it in this process must not go on.
		t.Fatalf("Got %v, want an ErrTransient that is an ErrClosed", err)
	}
	if _, err := db.MutateRow(t.Context(), nil, put("r", 1, "f", "q", "v")); err == nil {
		t.Fatal("a write was acknowledged after the log had failed")
	}
	if err := db.Close(); err == nil {
		t.Fatal("Close hides that the engine has stopped")
	}
}

// unreadableFS fails every read while it is broken.
type unreadableFS struct {
	vfs.FS
	broken atomic.Bool
}

func (u *unreadableFS) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := u.FS.Create(name, c)
	return &unreadableFile{File: f, fs: u}, err
}

func (u *unreadableFS) Open(name string, o ...vfs.OpenOption) (vfs.File, error) {
	f, err := u.FS.Open(name, o...)
	return &unreadableFile{File: f, fs: u}, err
}

type unreadableFile struct {
	vfs.File
	fs *unreadableFS
}

var errUnreadable = errors.New("input/output error")

func (f *unreadableFile) ReadAt(p []byte, at int64) (int, error) {
	if f.fs.broken.Load() {
		return 0, errUnreadable
	}
	return f.File.ReadAt(p, at)
}

func (f *unreadableFile) Read(p []byte) (int, error) {
	if f.fs.broken.Load() {
		return 0, errUnreadable
	}
	return f.File.Read(p)
}

// A disk that cannot be read is the store's trouble: no record is refused for it,
// as it would become a dead letter.
func TestUnreadableDiskRefusesNoRecord(t *testing.T) {
	t.Parallel()
	db, disk := openUnreadable(t)
	cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("12345678")}
	increase := cell.Mutation{Table: "t", Row: []byte("r08")}
	increase.Increment("f", []byte("q"), 1)
	for name, fill := range map[string]func(*store.Batch){
		"counter": func(b *store.Batch) {
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("r50"), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: 7})
		},
		"condition": func(b *store.Batch) { b.Record(7, nil, cond, *put("r07", 2, "f", "q", "v")) },
		"increment": func(b *store.Batch) { b.Add(7, increase) },
	} {
		var b store.Batch
		fill(&b)
		disk.broken.Store(true)
		err := db.Apply(t.Context(), &b)
		disk.broken.Store(false)
		var refused *store.BatchError
		if err == nil || errors.As(err, &refused) {
			t.Errorf("%s: got %v, want an error that refuses no record", name, err)
		}
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Errorf("%s: got %v once the disk can be read again", name, err)
		}
	}
}

// What one member of a commit cannot read is no trouble of the others.
func TestReadErrorIsItsReadersAlone(t *testing.T) {
	t.Parallel()
	db, disk := openUnreadable(t)
	var b store.Batch
	b.Add(1, *put("r01", 2, "f", "q", "v"))
	reads := &request{
		rows: []*cell.Mutation{put("r02", 2, "f", "q", "v")}, cond: &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal, Value: []byte("12345678")},
		results: make([]store.Result, 1), errs: make([]error, 1), done: make(chan struct{}),
	}
	writes := &request{batch: &b, done: make(chan struct{})}
	disk.broken.Store(true)
	err := db.exclusive(t.Context(), HoldSchema, func() error { db.commitGroup([]*request{writes, reads}); return nil })
	disk.broken.Store(false)
	if err != nil || writes.err != nil {
		t.Errorf("Got %v, %v for a batch that reads nothing", err, writes.err)
	}
	if !errors.Is(errors.Join(reads.err, reads.errs[0]), errUnreadable) {
		t.Errorf("Got %v, %v for a condition that cannot be read", reads.err, reads.errs[0])
	}
}

// openUnreadable returns a store of 100 rows and counters, none of them cached,
// and its disk.
func openUnreadable(t *testing.T) (*DB, *unreadableFS) {
	t.Helper()
	disk := &unreadableFS{FS: vfs.NewMem()}
	o := memory()
	o.FS = disk
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	var b store.Batch
	for i := range 100 {
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: fmt.Appendf(nil, "r%02d", i), Qualifier: []byte("q"), Delta: 1, Time: 1, Offset: int64(i)})
		b.Add(int64(i), *put(fmt.Sprintf("r%02d", i), 1, "f", "q", "12345678"))
	}
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.pebble.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
	o.CacheBytes = 1
	return open(t, "db", o), disk
}

// The directories that Open makes survive a power failure with what was written
// into them (invariant I3).
func TestCrashKeepsNewDirectories(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	o := memory()
	o.FS = mem
	db := open(t, "/a/b/db", o)
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("r", 1, "f", "q", "v"))
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	want(t, open(t, "/a/b/db", o), &store.Scan{Table: "t"}, "r: f:q@1=v")
}

// A write that does not wait for the disk may be lost with power, alone and in its
// place in the log; the next one that waits takes it along.
func TestDurability(t *testing.T) {
	t.Parallel()
	lazy := &store.TableDescriptor{Name: "lazy", Families: []store.FamilyDescriptor{store.NewFamily("f")}}
	if err := lazy.SetAttribute(store.AttrDurability, "ASYNC_WAL"); err != nil {
		t.Fatal(err)
	}
	durable := func(table string, d cell.Durability) *cell.Mutation {
		m := put("r", 1, "f", "q", "v")
		m.Table, m.Durability = table, d
		return m
	}
	progress := func(b *store.Batch) {
		b.Advance(store.Source{Pipeline: "p", Topic: "x"}, 0, store.Absent, store.Progress{Next: 1})
	}
	prepared := func(last cell.Durability) func(*testing.T, *DB) {
		return func(t *testing.T, db *DB) {
			var b store.Batch
			for i := range minPrepared {
				m := durable("t", cell.AsyncWAL)
				m.Row = fmt.Appendf(nil, "r:%d", i)
				if i == minPrepared/2 {
					m.Durability = last
				}
				b.Add(int64(i), *m)
			}
			p := db.prepare(&b)
			if p == nil {
				t.Fatal("the batch is not prepared")
			}
			if err := db.submit(t.Context(), &request{batch: &b, prepared: p}); err != nil {
				t.Fatal(err)
			}
		}
	}
	tests := map[string]struct {
		write    func(*testing.T, *DB)
		survives bool
	}{
		"default":     {func(t *testing.T, db *DB) { mutate(t, db, durable("t", cell.UseDefault)) }, true},
		"sync":        {func(t *testing.T, db *DB) { mutate(t, db, durable("lazy", cell.SyncWAL)) }, true},
		"fsync":       {func(t *testing.T, db *DB) { mutate(t, db, durable("lazy", cell.FsyncWAL)) }, true},
		"async":       {func(t *testing.T, db *DB) { mutate(t, db, durable("t", cell.AsyncWAL)) }, false},
		"skip":        {func(t *testing.T, db *DB) { mutate(t, db, durable("t", cell.SkipWAL)) }, false},
		"table async": {func(t *testing.T, db *DB) { mutate(t, db, durable("lazy", cell.UseDefault)) }, false},
		"async before sync": {func(t *testing.T, db *DB) {
			mutate(t, db, durable("t", cell.AsyncWAL))
			m := durable("lazy", cell.SyncWAL)
			m.Row = []byte("other")
			mutate(t, db, m)
		}, true},
		"prepared batch":       {prepared(cell.UseDefault), true},
		"prepared async batch": {prepared(cell.AsyncWAL), false},
		"async batch": {func(t *testing.T, db *DB) {
			var b store.Batch
			b.Add(0, *durable("t", cell.AsyncWAL))
			if err := db.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}, false},
		"async batch with progress": {func(t *testing.T, db *DB) {
			var b store.Batch
			b.Add(0, *durable("t", cell.AsyncWAL))
			progress(&b)
			if err := db.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fs := vfs.NewCrashableMem()
			o := memory()
			o.FS = fs
			db := open(t, "db", o)
			create(t, db, "t", store.NewFamily("f"))
			if err := db.CreateTable(t.Context(), lazy, nil); err != nil {
				t.Fatal(err)
			}
			tt.write(t, db)
			after := *o
			after.FS = fs.CrashClone(vfs.CrashCloneCfg{})
			found := false
			again := open(t, "db", &after)
			for _, table := range []string{"t", "lazy"} {
				for _, row := range rows(t, again, &store.Scan{Table: table}) {
					found = found || row[:2] == "r:"
				}
			}
			if found != tt.survives {
				t.Errorf("after a power failure the row is there: %t, want %t", found, tt.survives)
			}
		})
	}
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	if _, err := db.MutateRow(t.Context(), nil, durable("t", cell.FsyncWAL+1)); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("an unknown durability: got %v", err)
	}
}
