//go:build integration

package integration

import (
	"os"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store/pebblestore"
	"sluice/store/storetest"
)

// I1: HBase's AcidGuaranteesTestTool for 20 s (SLUICE_ACID; make soak: a minute), on a disk and with
// every commit synced.
func TestAcidGuarantees(t *testing.T) {
	t.Parallel()
	duration := 20 * time.Second
	if soaking {
		duration = time.Minute
	}
	if s := os.Getenv("SLUICE_ACID"); s != "" {
		var err error
		if duration, err = time.ParseDuration(s); err != nil {
			t.Fatalf("SLUICE_ACID: %v", err)
		}
	}
	begin := time.Now()
	db, err := pebblestore.Open(t.TempDir(), &pebblestore.Options{
		// Monotonic, which the wall clock is not.
		Now:           func() cell.Timestamp { return cell.Timestamp(begin.UnixMilli() + time.Since(begin).Milliseconds()) },
		MemTableBytes: 1 << 20, RewriteKeys: 100,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	storetest.AcidGuarantees(t, db, &storetest.AcidOptions{Duration: duration})
}
