package roomy

import (
	"os"
	"path/filepath"
	"testing"
)

func TestUse(t *testing.T) {
	usual := t.TempDir()
	for _, name := range []string{"TMPDIR", "GOTMPDIR"} {
		t.Setenv(name, usual) // and is restored at the end
	}
	Use()
	if got := os.TempDir(); got != usual {
		t.Errorf("Got the temporary directory %s, want %s, as TMPDIR says", got, usual)
	}

	for _, name := range []string{"TMPDIR", "GOTMPDIR"} {
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	usual = os.TempDir()
	Use()
	if free(memory) < least {
		if got := os.TempDir(); got != usual {
			t.Errorf("Got the temporary directory %s, want %s: there is no room in memory", got, usual)
		}
		return
	}
	if got := os.TempDir(); got != memory {
		t.Errorf("Got the temporary directory %s, want %s", got, memory)
	}
}

func TestFree(t *testing.T) {
	if got := free(filepath.Join(t.TempDir(), "nothing")); got != 0 {
		t.Errorf("Got %d bytes free in a directory that is not there", got)
	}
}
