package jobstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// OpenMemory returns a model engine with table t: families f, g (100 versions) and
// n (counters), and regions cut at splits.
func OpenMemory(t testing.TB, splits ...string) *memstore.Store {
	t.Helper()
	e, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	CreateTable(t, e, "t", splits...)
	return e
}

// CreateTable makes a table as that of OpenMemory.
func CreateTable(t testing.TB, e store.Admin, name string, splits ...string) {
	t.Helper()
	d := &store.TableDescriptor{Name: name}
	for _, f := range []string{"f", "g", "n"} {
		fd := store.NewFamily(f)
		if fd.Counter = f == "n"; !fd.Counter {
			fd.Versions = 100
		}
		d.Families = append(d.Families, fd)
	}
	var keys [][]byte
	for _, s := range splits {
		keys = append(keys, []byte(s))
	}
	if err := e.CreateTable(t.Context(), d, keys); err != nil {
		t.Fatal(err)
	}
}

// Mutate applies ops to one row.
func Mutate(t testing.TB, e store.Engine, table, row string, ops ...cell.Op) {
	t.Helper()
	if _, err := e.MutateRow(t.Context(), nil, &cell.Mutation{Table: table, Row: []byte(row), Ops: ops}); err != nil {
		t.Fatal(err)
	}
}

// PutOp returns a put of a value.
func PutOp(family, qualifier string, at cell.Timestamp, value string) cell.Op {
	return cell.Op{Type: cell.OpPut, Family: family, Qualifier: []byte(qualifier), Time: at, Value: []byte(value)}
}

// SnapshotOf returns a snapshot that the end of the test closes.
func SnapshotOf(t testing.TB, e store.Snapshotter) store.Snapshot {
	t.Helper()
	s, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// NewEngine returns a model engine without tables.
func NewEngine(t testing.TB) *memstore.Store {
	t.Helper()
	m, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// PebbleOptions are small; the clock stands still, as it dates offsets.
func PebbleOptions() *pebblestore.Options {
	return &pebblestore.Options{Now: func() cell.Timestamp { return 1e12 }, CacheBytes: 1 << 20, MemTableBytes: 1 << 20, MinFreeBytes: -1, RewriteInterval: -1, Sync: pebblestore.SyncNever}
}

// OpenPebble opens an embedded engine in dir, which the end of the test closes.
func OpenPebble(t testing.TB, dir string) *pebblestore.DB {
	t.Helper()
	db, err := pebblestore.Open(dir, PebbleOptions())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Cut is an engine of a process that is killed after Left steps: a write counts as
// two, so that one can be done and not heard of.
type Cut struct {
	store.Engine
	Left atomic.Int64
}

// ErrCut is the error of every write after the kill of a Cut.
var ErrCut = errors.New("killed here")

func (k *Cut) step() error {
	if k.Left.Add(-1) < 0 {
		return ErrCut
	}
	return nil
}

// Apply implements store.Engine.
func (k *Cut) Apply(ctx context.Context, b *store.Batch) error {
	if err := k.step(); err != nil {
		return err
	}
	return errors.Join(k.Engine.Apply(ctx, b), k.step())
}

// MutateRow implements store.Engine.
func (k *Cut) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := k.step(); err != nil {
		return store.Result{}, err
	}
	r, err := k.Engine.MutateRow(ctx, cond, m)
	return r, errors.Join(err, k.step())
}

// Sequenced is an engine that nobody writes to while it is read.
type Sequenced struct{ store.Engine }

// Sequence is always 0.
func (Sequenced) Sequence() uint64 { return 0 }

// Thawed is an engine that cannot freeze an instant. Before is called before each
// scan of a user table with how many there were, by one goroutine at a time.
type Thawed struct {
	store.Engine
	Before func(scan int)
	mu     sync.Mutex
	Scans  int
}

// Scan implements store.Reader.
func (e *Thawed) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if e.Before != nil && store.NamespaceOf(s.Table) != store.SystemNamespace {
		e.mu.Lock()
		e.Scans++
		e.Before(e.Scans)
		e.mu.Unlock()
	}
	return e.Engine.Scan(ctx, s)
}

// Remade is a Thawed that tells when a table was made anew.
type Remade struct {
	*Thawed
	made atomic.Int64
}

// Remake makes every table another one.
func (e *Remade) Remake() { e.made.Add(1) }

// Incarnation says which one a table is.
func (e *Remade) Incarnation(context.Context, string) (string, error) {
	return fmt.Sprint("made anew ", e.made.Load(), " times"), nil
}

// Lost is a source that is lost after it was read.
type Lost struct{ *Memory }

// ErrLost is why a Lost source is lost.
var ErrLost = errors.New("the lease is over")

// Err is what a source with a lease has.
func (Lost) Err() error { return ErrLost }

// EqualTables fails where two tables are not the same, all versions of each cell, raw or
// as they are read.
func EqualTables(t testing.TB, left, right store.Reader, raw bool, leftTable, rightTable string) {
	t.Helper()
	if d := cmp.Diff(cellsOf(t, left, raw, leftTable), cellsOf(t, right, raw, rightTable)); d != "" {
		t.Errorf("raw %t: %s and %s (-left +right):\n%s", raw, leftTable, rightTable, d)
	}
}

// cellsOf returns what each cell of a table is, in order.
func cellsOf(t testing.TB, r store.Reader, raw bool, table string) (all []string) {
	t.Helper()
	sc := r.Scan(t.Context(), &store.Scan{Table: table, Raw: raw, Versions: store.AllVersions})
	defer sc.Close()
	for sc.Next() {
		row := sc.Row()
		for i := range row.Cells {
			c := &row.Cells[i]
			all = append(all, fmt.Sprintf("%q %s:%q at %d %s ttl %d = %q", row.Key, c.Family, c.Qualifier, c.Time, c.Kind, c.TTL, c.Value))
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}
