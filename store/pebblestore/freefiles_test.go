package pebblestore

import (
	"errors"
	"strings"
	"testing"

	"sluice/store"
)

// TestFreeFiles: a file system that takes no more files is a full disk.
func TestFreeFiles(t *testing.T) {
	for _, c := range []struct {
		n    uint64
		ok   bool
		full bool
	}{{0, false, false}, {0, true, true}, {minFreeFiles - 1, true, true}, {minFreeFiles, true, false}} {
		err := checkFreeFiles("/data", func(string) (uint64, bool) { return c.n, c.ok })
		if errors.Is(err, store.ErrDiskFull) != c.full || c.full && !strings.Contains(err.Error(), "inodes") {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if err := checkFreeFiles(t.TempDir(), freeFiles); err != nil {
		t.Error(err)
	}
}
