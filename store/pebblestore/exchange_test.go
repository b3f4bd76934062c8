package pebblestore

import (
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"sluice/cell"
	"sluice/store"
)

// TestReplaceFamiliesBesideReads: a read that begins while a replacement is on its way to
// disk finds what the family had before or what it has after, by a scan and by a get.
func TestReplaceFamiliesBesideReads(t *testing.T) {
	t.Parallel()
	var armed atomic.Bool
	reached, release := make(chan struct{}), make(chan struct{})
	o := memory()
	o.FS = errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if strings.HasSuffix(op.Path, ".log") && armed.CompareAndSwap(true, false) {
				close(reached)
				<-release
			}
		}
		return nil
	}))
	db := open(t, "db", o)
	create(t, db, "t", counterFamily("n"), counterFamily("new"))
	count := func(family string, n int64) {
		t.Helper()
		m := &cell.Mutation{Table: "t", Row: []byte("r")}
		m.Increment(family, []byte("c"), n)
		m.Ops[0].Time = 1
		mutate(t, db, m)
	}
	count("n", 5)
	count("new", 7)
	armed.Store(true)
	done := make(chan error, 1)
	go func() {
		done <- db.ReplaceFamilies(t.Context(), []store.FamilyReplacement{{Table: "t", Family: "n", By: "new"}})
	}()
	<-reached
	columns := []store.Column{{Family: "n", All: true}}
	for what, s := range map[string]*store.Scan{
		"scan": {Table: "t", Columns: columns}, "get": {Table: "t", Columns: columns, Start: []byte("r"), Stop: []byte("r"), StopInclusive: true},
	} {
		switch got := strings.Join(rows(t, db, s), ""); got {
		case "r: n:c@1=5", "r: n:c@1=7":
		default:
			t.Errorf("a %s amid the replacement gives %q", what, got)
		}
	}
	close(release)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	want(t, db, &store.Scan{Table: "t"}, "r: n:c@1=7")
}
