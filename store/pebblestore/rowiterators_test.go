package pebblestore

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// getCount returns the value of f:n in a row, or "" where there is none.
func getCount(t testing.TB, db *DB, row string) string {
	sc := db.Scan(t.Context(), &store.Scan{Table: "t", Start: []byte(row), Stop: []byte(row), StopInclusive: true})
	got := ""
	if sc.Next() {
		got = string(sc.Row().Cells[0].Value)
	}
	if err := sc.Err(); err != nil {
		t.Error(err)
	}
	if err := sc.Close(); err != nil {
		t.Error(err)
	}
	return got
}

// A get after a write sees it, whatever iterators are kept: of rows that are there,
// that are not, and that were deleted; after every kind of write.
func TestGetSeesWrites(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), nil)
	create(t, db, "t", store.NewFamily("f"), store.NewFamily("g"))
	apply := func(m *cell.Mutation) {
		t.Helper()
		if _, err := db.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 50 {
		row, want := fmt.Sprintf("row-%d", i%5), fmt.Sprint(i)
		apply(put(row, cell.Timestamp(i+1), "f", "n", want))
		if got := getCount(t, db, row); got != want {
			t.Fatalf("write %d: got %q", i, got)
		}
		if got := getCount(t, db, "nobody"); got != "" {
			t.Fatalf("write %d: an absent row has %q", i, got)
		}
		switch i % 5 {
		case 1:
			del := &cell.Mutation{Table: "t", Row: []byte(row)}
			del.DeleteRow(cell.Latest)
			apply(del)
			if got := getCount(t, db, row); got != "" {
				t.Fatalf("delete %d: got %q", i, got)
			}
		case 2:
			if err := db.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		case 3:
			if err := db.MajorCompact(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
		}
	}
	if db.rows.idle == nil {
		t.Error("no iterator is kept")
	}
}

// Readers beside a writer never see a row go back.
func TestGetsAreMonotonic(t *testing.T) {
	t.Parallel()
	db := open(t, t.TempDir(), &Options{Sync: SyncNever})
	create(t, db, "t", store.NewFamily("f"))
	var acknowledged atomic.Int64
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for range 4 {
		wg.Go(func() {
			last := int64(0)
			for {
				select {
				case <-stop:
					return
				default:
				}
				least := acknowledged.Load()
				var got int64
				_, _ = fmt.Sscan(getCount(t, db, "row"), &got)
				if got < last || got < least {
					t.Errorf("got %d after %d was acknowledged and %d seen", got, least, last)
					return
				}
				last = got
			}
		})
	}
	for i := 1; i <= 2000; i++ {
		if _, err := db.MutateRow(t.Context(), nil, put("row", cell.Timestamp(i), "f", "n", fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
		acknowledged.Store(int64(i))
	}
	close(stop)
	wg.Wait()
}

// Iterators that nobody needs are closed by themselves, and no more are kept than a
// few: they hold files.
func TestIdleIteratorsEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		db := open(t, "data", &Options{FS: vfs.NewMem(), RewriteInterval: -1})
		create(t, db, "t", store.NewFamily("f"))
		var held []*foundRow
		if _, err := db.MutateRow(t.Context(), nil, put("row", 1, "f", "n", "1")); err != nil {
			t.Fatal(err)
		}
		sel, err := store.NewSelection(&store.Scan{Table: "t", Start: []byte("row"), Stop: []byte("row"), StopInclusive: true}, db.catalog.Load().tables["t"].desc)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 * maxIdleIterators {
			f, err := db.findRow(db.catalog.Load().tables["t"], sel)
			if err != nil || f == nil {
				t.Fatal(f, err)
			}
			held = append(held, f)
		}
		for _, f := range held {
			if err := f.close(); err != nil {
				t.Fatal(err)
			}
		}
		count := func() int {
			db.rows.mu.Lock()
			defer db.rows.mu.Unlock()
			return len(db.rows.idle)
		}
		if got := count(); got != maxIdleIterators {
			t.Errorf("%d iterators are kept, want %d", got, maxIdleIterators)
		}
		time.Sleep(idleIterators)
		synctest.Wait()
		if got := count(); got != 0 {
			t.Errorf("%d iterators are kept for ever", got)
		}
		if got := getCount(t, db, "row"); got != "1" {
			t.Errorf("got %q", got)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
