package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/config"
	"sluice/store"
)

func TestRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	env := func(name string) (string, bool) { return dir + "/data", name == "SLUICE_DATA" }
	file := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(file, []byte("store: {dir: \"${SLUICE_DATA}\"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	args := []string{"-c", file, "-n", "2", "counts", "day"}
	if err := run(t.Context(), args, &out, env); err == nil || !strings.Contains(err.Error(), "no store") {
		t.Errorf("Got %v before there is a store", err)
	}

	c, err := config.Load(file, env)
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := config.MakeStore(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	days := store.NewFamily("day")
	days.Counter = true
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "counts", Families: []store.FamilyDescriptor{days}}, nil); err != nil {
		t.Fatal(err)
	}
	counts, err := store.OpenTable(t.Context(), e, "counts")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range []string{"/", "/cart", "/", "/about", "/cart", "/"} {
		if _, err := counts.Increment(t.Context(), []byte(page), "day", []byte("20261129"), 1); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	if err := run(t.Context(), args, &out, env); err != nil {
		t.Fatal(err)
	}
	if got, want := out.String(), "           3  /\n           2  /cart\n"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
	if err := run(t.Context(), args[:4], &out, env); err == nil || !strings.Contains(err.Error(), "usage") {
		t.Errorf("Got %v without a table", err)
	}
}
