package pebblestore

import "testing"

// TestMaxOpenFiles: the engine leaves most of the files that the process may have open to
// others, as it gives none back.
func TestMaxOpenFiles(t *testing.T) {
	for _, c := range []struct {
		limit uint64
		known bool
		want  int
	}{
		{0, false, 4096}, {256, true, 64}, {1024, true, 256}, {16384, true, 4096}, {1 << 20, true, 4096}, {1<<64 - 1, true, 4096},
	} {
		if got := maxOpenFiles(c.limit, c.known); got != c.want {
			t.Errorf("of %d (%t): %d, want %d", c.limit, c.known, got, c.want)
		}
	}
}
