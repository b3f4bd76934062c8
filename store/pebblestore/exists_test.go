package pebblestore

import (
	"os"
	"path/filepath"
	"testing"
)

func TestExists(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	check := func(state string, want bool) {
		t.Helper()
		if got, err := Exists(dir); err != nil || got != want {
			t.Errorf("%s: Got %t, %v, want %t", state, got, err, want)
		}
	}
	check("missing", false)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	check("empty", false)
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("looking left %v, %v", entries, err)
	}
	db, err := Open(dir, &Options{MinFreeBytes: -1})
	if err != nil {
		t.Fatal(err)
	}
	check("open", true)
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	check("closed", true)
	markers, err := filepath.Glob(filepath.Join(dir, "marker.*"))
	if err != nil || len(markers) == 0 {
		t.Fatal(markers, err)
	}
	for _, marker := range markers {
		if err := os.Remove(marker); err != nil {
			t.Fatal(err)
		}
	}
	check("without its empty files", true)
	file := filepath.Join(dir, "LOCK")
	if _, err := Exists(file); err == nil {
		t.Error("a file is no directory, and no error says so")
	}
}
