package pebblestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/roomy"
	"sluice/store"
)

func TestMain(m *testing.M) {
	roomy.Use()
	os.Exit(m.Run())
}

// open opens a store that is closed with the test.
func open(t testing.TB, dir string, o *Options) *DB {
	t.Helper()
	db, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return db
}

// memory returns options for a store in memory with a clock that stands still.
func memory() *Options {
	return &Options{FS: vfs.NewMem(), MemTableBytes: 1 << 20, CacheBytes: 1 << 20, Now: func() cell.Timestamp { return 10_000_000 }}
}

func create(t testing.TB, db *DB, name string, families ...store.FamilyDescriptor) {
	t.Helper()
	if err := db.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: families}, nil); err != nil {
		t.Fatal(err)
	}
}

func counterFamily(name string) store.FamilyDescriptor {
	f := store.NewFamily(name)
	f.Counter = true
	return f
}

func put(row string, t cell.Timestamp, family string, columns ...string) *cell.Mutation {
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	for i := 0; i < len(columns); i += 2 {
		m.Put(family, []byte(columns[i]), t, []byte(columns[i+1]))
	}
	return m
}

// rows returns what a scan yields, one line a row.
func rows(t testing.TB, r store.Reader, s *store.Scan) []string {
	t.Helper()
	sc := r.Scan(t.Context(), s)
	defer sc.Close()
	var out []string
	for sc.Next() {
		row := sc.Row()
		var b strings.Builder
		fmt.Fprintf(&b, "%s:", row.Key)
		for _, c := range row.Cells {
			fmt.Fprintf(&b, " %s:%s@%d=", c.Family, c.Qualifier, c.Time)
			if c.Kind != cell.KindPut {
				b.WriteString(c.Kind.String())
			} else if len(c.Value) == 8 {
				fmt.Fprintf(&b, "%d", int64(binary.BigEndian.Uint64(c.Value)))
			} else {
				b.Write(c.Value)
			}
		}
		out = append(out, b.String())
	}
	if err := sc.Err(); err != nil {
		t.Fatalf("scan: %v", err)
	}
	return out
}

func want(t testing.TB, r store.Reader, s *store.Scan, lines ...string) {
	t.Helper()
	if d := cmp.Diff(lines, rows(t, r, s)); d != "" {
		t.Fatalf("scan %+v (-want +got):\n%s", s, d)
	}
}

func mutate(t testing.TB, db *DB, m *cell.Mutation) store.Result {
	t.Helper()
	r, err := db.MutateRow(t.Context(), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestReopenKeepsEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	db, err := Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	mutate(t, db, put("r1", 5, "f", "b", "2", "a", "1"))
	m := &cell.Mutation{Table: "t", Row: []byte("r1")}
	m.Increment("n", []byte("hits"), 3)
	m.Ops[0].Time = 7
	mutate(t, db, m)
	src := store.Source{Pipeline: "p", Topic: "x"}
	var b store.Batch
	b.Advance(src, 2, store.Absent, store.Progress{Next: 9, Applied: 9, LastOffset: 8})
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	sequence := db.Metrics().Sequence
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	db = open(t, dir, nil)
	want(t, db, &store.Scan{Table: "t"}, "r1: f:a@5=1 f:b@5=2 n:hits@7=3")
	p, ok, err := store.ReadProgress(t.Context(), db, &src, 2)
	if err != nil || !ok || p.Next != 9 {
		t.Fatalf("Got progress %+v, %v, %v. Want next 9", p, ok, err)
	}
	if got := db.Metrics().Sequence; got != sequence {
		t.Fatalf("Got sequence %d after reopening, want %d", got, sequence)
	}
}

func TestStaleBatchLeavesNothing(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	src := store.Source{Pipeline: "p", Topic: "x"}
	batch := func(from, next int64) *store.Batch {
		var b store.Batch
		b.Add(from, *put(fmt.Sprintf("r%d", from), 1, "f", "q", "v"))
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("c"), Qualifier: []byte("q"), Delta: 1, Time: 5})
		b.Advance(src, 0, from, store.Progress{Next: next})
		return &b
	}
	if err := db.Apply(t.Context(), batch(store.Absent, 10)); err != nil {
		t.Fatal(err)
	}
	for _, from := range []int64{store.Absent, 9, 11} {
		if err := db.Apply(t.Context(), batch(from, 20)); !errors.Is(err, store.ErrStale) {
			t.Fatalf("Got %v from offset %d, want ErrStale", err, from)
		}
	}
	want(t, db, &store.Scan{Table: "t"}, "c: n:q@5=1", "r-1: f:q@1=v")
}

func TestRefusedRecordsAreNamed(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	f := store.NewFamily("f")
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, counterFamily("n")}, MaxTimestampSlop: 1000, MaxCellBytes: 200}
	if err := db.CreateTable(t.Context(), d, nil); err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Add(1, *put("ok", 1, "f", "q", "v"))
	b.Add(2, *put("", 1, "f", "q", "v"))
	b.Add(3, *put("r", 1, "zz", "q", "v"))
	b.Add(4, *put("r", 1, "f", "q", strings.Repeat("x", 300)))
	b.Add(5, *put("r", 20_000_000, "f", "q", "v"))
	b.Add(6, cell.Mutation{Table: "nosuch", Row: []byte("r"), Ops: []cell.Op{{Type: cell.OpPut, Family: "f"}}})
	b.Add(7, *put("r", 1, "n", "q", "v"))
	b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "f", Row: []byte("c"), Qualifier: []byte("q"), Delta: 1, Time: 5, Offset: 8})
	b.Record(9, nil, nil, *put("r", -1, "f", "q", "v"))
	b.Advance(store.Source{Pipeline: "p"}, 0, store.Absent, store.Progress{Next: 10})
	err := db.Apply(t.Context(), &b)
	var be *store.BatchError
	if !errors.As(err, &be) {
		t.Fatalf("Got %v, want a BatchError", err)
	}
	var got []int64
	for _, r := range be.Refused {
		got = append(got, r.Offset)
	}
	if d := cmp.Diff([]int64{2, 3, 4, 5, 6, 7, 8, 9}, got); d != "" {
		t.Fatalf("refused (-want +got):\n%s\n%v", d, err)
	}
	for i, is := range []error{store.ErrInvalidArgument, store.ErrFamilyNotFound, store.ErrCellTooLarge, store.ErrTimestampTooFar, store.ErrTableNotFound, store.ErrRefused, store.ErrRefused, store.ErrInvalidArgument} {
		if !errors.Is(be.Refused[i].Err, is) {
			t.Errorf("offset %d: got %v, want %v", be.Refused[i].Offset, be.Refused[i].Err, is)
		}
	}
	want(t, db, &store.Scan{Table: "t"})
	want(t, db, &store.Scan{Table: store.OffsetsTable})
}

func TestSecondProcessIsTurnedAway(t *testing.T) {
	t.Parallel()
	if dir := os.Getenv("PEBBLESTORE_TEST_OPEN"); dir != "" {
		_, err := Open(dir, nil)
		fmt.Printf("locked=%v %v\n", errors.Is(err, store.ErrLocked), err)
		return
	}
	dir := t.TempDir()
	open(t, dir, nil)
	if _, err := Open(dir, nil); !errors.Is(err, store.ErrLocked) {
		t.Fatalf("Got %v from a second Open in the process, want ErrLocked", err)
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestSecondProcessIsTurnedAway$")
	cmd.Env = append(os.Environ(), "PEBBLESTORE_TEST_OPEN="+dir)
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "locked=true") {
		t.Fatalf("Got %v\n%s\nwant locked=true", err, out)
	}
}

func TestSnapshotIsOneInstant(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	mutate(t, db, put("a", 1, "f", "q", "old"))
	s, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	mutate(t, db, put("a", 2, "f", "q", "new"))
	mutate(t, db, put("b", 2, "g", "q", "new"))
	if err := errors.Join(db.DisableTable(t.Context(), "t"), db.DropTable(t.Context(), "t")); err != nil {
		t.Fatal(err)
	}
	want(t, s, &store.Scan{Table: "t"}, "a: f:q@1=old")
	running := s.Scan(t.Context(), &store.Scan{Table: "t"})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if running.Next() || !errors.Is(running.Err(), store.ErrClosed) {
		t.Fatalf("Got %v from a scan of a closed snapshot, want ErrClosed", running.Err())
	}
	if err := running.Close(); err != nil {
		t.Fatal(err)
	}
	if sc := s.Scan(t.Context(), &store.Scan{Table: "t"}); !errors.Is(sc.Err(), store.ErrClosed) {
		t.Fatalf("Got %v from a closed snapshot, want ErrClosed", sc.Err())
	}
}

// TestSnapshotClosedWhileAScanBegins: a scan whose iterators were made just before the snapshot
// is closed ends with it, as one that runs does.
func TestSnapshotClosedWhileAScanBegins(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("a", 1, "f", "q", "v"))
	r, err := db.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s := r.(*Snapshot)
	begin := func(o *pebble.IterOptions) (*pebble.Iterator, error) {
		it, err := s.clone(t.Context())(o)
		return it, errors.Join(err, s.Close())
	}
	sc := db.scan(t.Context(), &store.Scan{Table: "t"}, s.catalog, begin, s)
	if sc.Next() || !errors.Is(sc.Err(), store.ErrClosed) {
		t.Errorf("Got %v from a scan of a closed snapshot, want ErrClosed", sc.Err())
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	if m := db.Metrics(); m.OpenScans != 0 || m.OpenSnapshots != 0 {
		t.Errorf("%d scans and %d snapshots are open", m.OpenScans, m.OpenSnapshots)
	}
}

func TestCheckpointOpensReadOnly(t *testing.T) {
	t.Parallel()
	o := memory()
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("a", 1, "f", "q", "in"))
	sequence, err := db.Checkpoint(t.Context(), "cp")
	if err != nil {
		t.Fatal(err)
	}
	mutate(t, db, put("b", 1, "f", "q", "out"))
	if _, err := db.Checkpoint(t.Context(), "cp"); !errors.Is(err, store.ErrInvalidArgument) {
		t.Fatalf("Got %v for a directory that exists, want ErrInvalidArgument", err)
	}
	if m := db.Metrics(); m.Checkpoints != 1 || m.CheckpointHoldMax <= 0 || m.CheckpointHoldSeconds != m.CheckpointHoldMax || m.RewriteHoldMax != 0 {
		t.Errorf("Got %d checkpoints of %v s, the longest %v s, and %v s of rewrites", m.Checkpoints, m.CheckpointHoldSeconds, m.CheckpointHoldMax, m.RewriteHoldMax)
	}
	ro := *o
	ro.ReadOnly = true
	cp := open(t, "cp", &ro)
	want(t, cp, &store.Scan{Table: "t"}, "a: f:q@1=in")
	if got := cp.Metrics().Sequence; got != sequence {
		t.Fatalf("Got sequence %d in the checkpoint, want %d", got, sequence)
	}
	if _, err := cp.MutateRow(t.Context(), nil, put("c", 1, "f", "q", "v")); !errors.Is(err, store.ErrReadOnly) {
		t.Fatalf("Got %v from a write, want ErrReadOnly", err)
	}
}

// TestCheckpointAfterKill: a process that is killed as it opens a store, when it has flushed
// the log of the one before and has none of its own yet, leaves nothing that the next one
// would flush. Checkpoints of that can be opened.
func TestCheckpointAfterKill(t *testing.T) {
	t.Parallel()
	mem := vfs.NewCrashableMem()
	opening, killed := false, (*vfs.MemFS)(nil)
	o := memory()
	o.FS = errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if opening && killed == nil && op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log") {
			killed = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 2))})
		}
		return nil
	}))
	for i := range 2 {
		db, err := Open("db", o)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			create(t, db, "t", store.NewFamily("f"))
			mutate(t, db, put("a", 1, "f", "q", "v"))
			// So that nothing is left to compact, which writes a manifest, too.
			if err := db.pebble.Compact(t.Context(), []byte{0}, []byte{0xff}, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		opening = true
	}
	o = memory()
	o.FS = killed
	db := open(t, "db", o)
	for _, dir := range []string{"cp1", "cp2"} {
		sequence, err := db.Checkpoint(t.Context(), dir)
		if err != nil {
			t.Fatal(err)
		}
		ro := *o
		ro.ReadOnly = true
		cp := open(t, dir, &ro)
		want(t, cp, &store.Scan{Table: "t"}, "a: f:q@1=v")
		if got := cp.Metrics().Sequence; got != sequence || cp.ID() != db.ID() {
			t.Errorf("%s: Got sequence %d of store %s, want %d of %s", dir, got, cp.ID(), sequence, db.ID())
		}
	}
}

func TestCloseFailsLaterCalls(t *testing.T) {
	t.Parallel()
	db, err := Open("db", memory())
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("a", 1, "f", "q", "v"))
	sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	if sc.Next() || !errors.Is(sc.Err(), store.ErrClosed) {
		t.Fatalf("Got %v from a scan after Close, want ErrClosed", sc.Err())
	}
	if err := sc.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := db.MutateRow(t.Context(), nil, put("a", 1, "f", "q", "v")); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("Got %v, want ErrClosed", err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}

// Two writers move money between two families of one row while readers add them
// up: a row is never seen half written (invariant I1).
func TestConcurrentReadersSeeWholeRows(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	mutate(t, db, put("r", 1, "f", "q", "0"))
	const writes = 300
	var writers, readers sync.WaitGroup
	stop := make(chan struct{})
	for w := range 2 {
		writers.Go(func() {
			for i := range writes {
				m := put("r", cell.Latest, "f", "q", fmt.Sprintf("%d-%d", w, i))
				m.Put("g", []byte("q"), cell.Latest, []byte(fmt.Sprintf("%d-%d", w, i)))
				if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 2 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
				if !sc.Next() {
					t.Error("no row", sc.Err())
				} else if c := sc.Row().Cells; len(c) == 2 && string(c[0].Value) != string(c[1].Value) {
					t.Errorf("Got %s and %s in one row", c[0].Value, c[1].Value)
				}
				sc.Close()
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// Texts of schemas and namespaces that the catalog cannot hold are refused: a delimiter of
// FF would be another one once the store is opened again.
func TestTextsOfTheCatalog(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	const binary = "\xff"
	for what, spoil := range map[string]func(*store.TableDescriptor) error{
		"delimiter":     func(d *store.TableDescriptor) error { return d.SetMetadata(store.MetaDelimiter, binary) },
		"attribute":     func(d *store.TableDescriptor) error { return d.SetAttribute("OWNER", binary) },
		"metadata":      func(d *store.TableDescriptor) error { return d.Families[0].SetMetadata(binary, "v") },
		"configuration": func(d *store.TableDescriptor) error { return d.Families[0].SetConfiguration("k", binary) },
	} {
		d, err := db.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		if err := spoil(d); err != nil {
			t.Fatal(err)
		}
		if err := db.AlterTable(t.Context(), d); !errors.Is(err, store.ErrInvalidSchema) {
			t.Errorf("alter with a binary %s: %v, want ErrInvalidSchema", what, err)
		}
		d.Name = "u"
		if err := db.CreateTable(t.Context(), d, nil); !errors.Is(err, store.ErrInvalidSchema) {
			t.Errorf("create with a binary %s: %v, want ErrInvalidSchema", what, err)
		}
	}
	n := &store.Namespace{Name: "n", Properties: map[string]string{"k": binary}}
	if err := db.CreateNamespace(t.Context(), n); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("create namespace: %v, want ErrInvalidArgument", err)
	}
}
