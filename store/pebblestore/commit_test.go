package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

func increment(row, qualifier string, delta int64) cell.Mutation {
	m := cell.Mutation{Table: "t", Row: []byte(row)}
	m.Increment("n", []byte(qualifier), delta)
	return m
}

func count(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// Members of one commit see those before them, and nothing of those that failed
// or were dropped: cells, counters and event ids.
func TestMembersSeeEachOther(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	equal := func(family, qualifier string, value []byte) *store.Cond {
		return &store.Cond{Family: family, Qualifier: []byte(qualifier), Op: store.Equal, Value: value}
	}
	var b store.Batch
	b.Record(1, nil, equal("f", "q", nil), *put("r", 1, "f", "q", "first"))
	b.Record(2, nil, equal("f", "q", nil), *put("r", 2, "f", "q", "second"))            // no longer absent
	b.Record(3, nil, equal("f", "q", []byte("first")), *put("r", 3, "f", "q", "third")) // sees the first
	b.Record(4, nil, nil, increment("c", "x", 5))
	b.Record(5, nil, equal("n", "x", count(5)), increment("c", "x", 2)) // sees the counter
	b.Record(6, nil, equal("n", "x", count(5)), increment("c", "x", 100))
	b.Record(7, []byte("id"), nil, increment("c", "y", 1))
	b.Record(8, []byte("id"), nil, increment("c", "y", 1)) // the same event
	del := cell.Mutation{Table: "t", Row: []byte("c")}
	del.DeleteColumn("n", []byte("y"), cell.Latest)
	b.Record(9, nil, nil, del, increment("c", "y", 40)) // from 0
	b.Record(10, []byte("other"), equal("f", "q", []byte("no")), increment("c", "z", 1))
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t"}, "c: n:x@10000000=7 n:y@10000000=40", "r: f:q@3=third")

	// An id whose record was dropped is free; one that was applied is not.
	b.Reset()
	b.Record(11, []byte("other"), nil, increment("c", "z", 1))
	b.Record(12, []byte("id"), nil, increment("c", "z", 1))
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t", Start: []byte("c"), Stop: []byte("d")}, "c: n:x@10000000=7 n:y@10000000=40 n:z@10000000=1")

	// A refused record takes the whole batch with it, and the caches forget.
	b.Reset()
	b.Record(13, []byte("new"), nil, increment("c", "x", 1000))
	b.Record(14, nil, nil, increment("c", "w", 1), *put("r", -1, "f", "q", "v"))
	var refused *store.BatchError
	if err := db.Apply(t.Context(), &b); !errors.As(err, &refused) || refused.Refused[0].Offset != 14 {
		t.Fatalf("Got %v, want record 14 refused", err)
	}
	b.Reset()
	b.Record(13, []byte("new"), nil, increment("c", "x", 1))
	if err := db.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t", Start: []byte("c"), Stop: []byte("d")}, "c: n:x@10000000=8 n:y@10000000=40 n:z@10000000=1")
	if m := db.Metrics(); m.Conflicts != 5 {
		t.Errorf("Got %d conflicts, want 5", m.Conflicts)
	}
}

// The counter cache is smaller than the counters: what it forgets it reads again.
func TestCountersOutgrowTheirCache(t *testing.T) {
	t.Parallel()
	o := memory()
	o.CounterCacheEntries = 10
	db := open(t, "db", o)
	f := counterFamily("n")
	f.TTL = 100
	create(t, db, "t", f)
	const n, rounds = 50, 4
	for range rounds {
		var b store.Batch
		for i := range n {
			b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: fmt.Appendf(nil, "r%02d", i), Qualifier: []byte("q"), Delta: int64(i), Time: o.Now()})
		}
		// Older than the TTL: counted as late, not stored.
		b.Counters = append(b.Counters, store.CounterDelta{Table: "t", Family: "n", Row: []byte("late"), Qualifier: []byte("q"), Delta: 1, Time: o.Now() - 100_001})
		if err := db.Apply(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	var lines []string
	for i := range n {
		lines = append(lines, fmt.Sprintf("r%02d: n:q@10000000=%d", i, i*rounds))
	}
	want(t, db, &store.Scan{Table: "t"}, lines...)
	if m := db.Metrics(); m.LateIncrements != rounds || m.CounterMisses <= n {
		t.Errorf("Got %d late increments, %d misses. Want %d, more than %d", m.LateIncrements, m.CounterMisses, rounds, n)
	}
	del := &cell.Mutation{Table: "t", Row: []byte("r07")}
	del.DeleteRow(cell.Latest)
	mutate(t, db, del)
	m := increment("r07", "q", 3)
	if r := mutate(t, db, &m); len(r.Cells) != 1 || !bytes.Equal(r.Cells[0].Value, count(3)) {
		t.Errorf("Got %+v after a delete, want 3", r.Cells)
	}
}

// Concurrent callers share commits, and every one gets its own answer.
// Requests that would make a commit too large wait for the next one.
func TestCommitsAreBoundedInBytes(t *testing.T) {
	t.Parallel()
	o := memory()
	o.MaxCommitBytes = 1
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	group := make([]*request, 5)
	for i := range group {
		var b store.Batch
		b.Add(int64(i), *put(fmt.Sprintf("r%d", i), 1, "f", "q", strings.Repeat("x", 60)))
		group[i] = &request{batch: &b, done: make(chan struct{})}
	}
	before := db.Metrics()
	if err := db.exclusive(t.Context(), HoldSchema, func() error { db.commitGroup(group); return nil }); err != nil {
		t.Fatal(err)
	}
	for i, r := range group {
		<-r.done
		if r.err != nil {
			t.Errorf("request %d: %v", i, r.err)
		}
	}
	after := db.Metrics()
	if n, requests := after.Commits-before.Commits, after.Requests-before.Requests; n != 5 || requests != 5 {
		t.Errorf("Got %d commits of %d requests, want 5 of 5", n, requests)
	}
	n := 0
	sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
	defer sc.Close()
	for sc.Next() {
		n++
	}
	if err := sc.Err(); err != nil || n != len(group) {
		t.Errorf("Got %d rows (%v), want %d", n, err, len(group))
	}
}

func TestConcurrentCommits(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	const callers, each = 8, 50
	var won [callers]int
	var wg sync.WaitGroup
	for c := range callers {
		wg.Go(func() {
			for i := range each {
				row := fmt.Sprintf("r%d", i)
				r, err := db.MutateRow(t.Context(), &store.Cond{Family: "f", Qualifier: []byte("owner"), Op: store.Equal}, put(row, cell.Latest, "f", "owner", fmt.Sprint(c)))
				if err != nil {
					t.Error(err)
				}
				if r.Applied {
					won[c]++
				}
				m := increment("all", "n", 1)
				if _, err := db.MutateRow(t.Context(), nil, &m); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range won {
		total += n
	}
	if total != each {
		t.Errorf("Got %d winners for %d rows", total, each)
	}
	want(t, db, &store.Scan{Table: "t", Start: []byte("all"), Stop: []byte("b")}, fmt.Sprintf("all: n:n@10000000=%d", callers*each))
}

func TestCancelledCallsReturn(t *testing.T) {
	t.Parallel()
	db := open(t, "db", memory())
	create(t, db, "t", store.NewFamily("f"))
	inside, leave := make(chan struct{}), make(chan struct{})
	done := make(chan error)
	go func() {
		done <- db.exclusive(context.Background(), HoldSchema, func() error {
			close(inside)
			<-leave
			return nil
		})
	}()
	<-inside
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := db.MutateRow(ctx, nil, put("r", 1, "f", "q", "v"))
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) {
		t.Fatalf("Got %v, want context.Canceled", err)
	}
	close(leave)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t"})
}

// deniedFS refuses to make anything, as a file system that is mounted read-only.
type deniedFS struct {
	vfs.FS
	err error
}

func (d deniedFS) MkdirAll(dir string, _ os.FileMode) error {
	return &os.PathError{Op: "mkdir", Path: dir, Err: d.err}
}

func TestOpenSaysWhatToDo(t *testing.T) {
	t.Parallel()
	full := &meteredFS{FS: vfs.NewMem()}
	for _, c := range []struct {
		name string
		o    *Options
		is   error
		says string
	}{
		{"read-only disk", &Options{FS: deniedFS{vfs.NewMem(), syscall.EROFS}}, fs.ErrPermission, "mounted read-only"},
		{"no permission", &Options{FS: deniedFS{vfs.NewMem(), syscall.EACCES}}, fs.ErrPermission, "must be writable"},
		{"no space", &Options{FS: deniedFS{vfs.NewMem(), syscall.ENOSPC}}, store.ErrDiskFull, "free some space"},
		{"little space", &Options{FS: full}, store.ErrDiskFull, "free some"},
		{"no store to read", &Options{FS: vfs.NewMem(), ReadOnly: true}, fs.ErrNotExist, "open store"},
	} {
		_, err := Open("db", c.o)
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s: got %v, want %v that says %q", c.name, err, c.is, c.says)
		}
	}
	if _, err := Open("db", &Options{Sync: 9}); err == nil {
		t.Error("an unknown sync policy was taken")
	}
}
