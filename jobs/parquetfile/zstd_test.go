package parquetfile

import (
	"io"
	"runtime"
	"testing"
)

// TestShortFiles: a file of few rows takes memory for these, and not for an encoder of its
// own: increments write such files, and partitions many of them at once.
func TestShortFiles(t *testing.T) { // not parallel: it counts what the process allocates
	batches, _ := benchData()
	write := func() {
		w, err := NewWriter(io.Discard, benchColumns, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := w.Write(batches[0]); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Close(); err != nil {
			t.Fatal(err)
		}
	}
	write() // makes the encoders
	const files = 8
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range files {
		runtime.GC() // between two increments
		write()
	}
	runtime.ReadMemStats(&after)
	if a := (after.TotalAlloc - before.TotalAlloc) / files; a > 8<<20 {
		t.Errorf("a file of %d rows allocates %d KiB, want 8 MiB at most", benchRows, a>>10)
	} else {
		t.Logf("%d KiB a file of %d rows", a>>10, benchRows)
	}
}
