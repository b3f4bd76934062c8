package pebblestore_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store/pebblestore"
	"sluice/store/storetest"
)

// I1, in short; internal/integration runs it for a minute.
func TestAcidGuarantees(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	db, err := pebblestore.Open("data", &pebblestore.Options{
		// Monotonic, which the wall clock is not.
		Now:        func() cell.Timestamp { return cell.Timestamp(begin.UnixMilli() + time.Since(begin).Milliseconds()) },
		FS:         vfs.NewMem(),
		CacheBytes: 1 << 20, MemTableBytes: 256 << 10, RewriteKeys: 50,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storetest.AcidGuarantees(t, db, nil)
}
