package config

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"sluice/store"
)

// What is published inside the store's own directory would go with the store, or be
// taken for the store's and removed.
func TestTargetInsideTheStore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	for _, d := range []string{data, filepath.Join(data, "checkpoints"), filepath.Join(dir, "database")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(data, "checkpoints"), filepath.Join(dir, "link")); err != nil {
		t.Fatal(err)
	}
	c := Default()
	for _, test := range []struct {
		store, out string
		inside     bool
	}{
		{data, data, true},
		{data, filepath.Join(data, "checkpoints"), true},
		{data, filepath.Join(data, "new", "er"), true},
		{data, filepath.Join(dir, "link"), true},
		{data, filepath.Join(dir, "link", "below"), true},
		{data, filepath.Join(dir, "x", "..", "data", "x"), true},
		{data, filepath.Join(dir, "database"), false},
		{data, filepath.Join(dir, "out"), false},
		{data, dir, false},
		{filepath.Join(dir, "none yet"), filepath.Join(dir, "none yet", "out"), false},
	} {
		c.Store.Dir = test.store
		got, err := c.OpenTarget(test.out, true, nil)
		if err == nil {
			err = got.Close()
		}
		if errors.Is(err, store.ErrInvalidArgument) != test.inside || err != nil && !test.inside {
			t.Errorf("OpenTarget(%s) of the store %s: %v, want refused %t", test.out, test.store, err, test.inside)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "new")); err == nil {
		t.Error("a directory was made in the store's")
	}
}
