package target_test

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sluice/jobs/target"
)

// TestLocalPipe: a named pipe in the place of a file is an error, and not waited for.
func TestLocalPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := syscall.Mkfifo(filepath.Join(dir, "part"), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if f, err := l.Open(t.Context(), "part"); err == nil || !strings.Contains(err.Error(), "part is not a file") {
		t.Errorf("Got %v, %v", f, err)
	}
}
