package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/store"
)

// TestNewID: a copy becomes a store of its own, at the same commit, and stays so
// where power fails; the original keeps its name.
func TestNewID(t *testing.T) {
	t.Parallel()
	fsys := crashfs.New()
	o := memory()
	o.FS = fsys
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	mutate(t, db, put("a", 1, "f", "q", "v"))
	sequence, err := db.Checkpoint(t.Context(), "cp")
	if err != nil {
		t.Fatal(err)
	}
	ro := *o
	ro.ReadOnly = true
	read, err := Open("cp", &ro)
	if err != nil {
		t.Fatal(err)
	}
	if read.ID() != db.ID() || read.Format() != db.Format() || read.Dir() != "cp" {
		t.Errorf("the checkpoint %s is %s of format %d, the store %s of %d", read.Dir(), read.ID(), read.Format(), db.ID(), db.Format())
	}
	if _, err := read.NewID(t.Context()); !errors.Is(err, store.ErrReadOnly) {
		t.Errorf("Got %v of a store that was opened read-only, want ErrReadOnly", err)
	}
	if err := read.Close(); err != nil {
		t.Fatal(err)
	}
	cp := open(t, "cp", o)
	id, err := cp.NewID(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if id == db.ID() || id == "" || cp.ID() != id {
		t.Errorf("the copy is %q, says it is %q; the original is %q", id, cp.ID(), db.ID())
	}
	left := *o
	left.FS = fsys.Crash(0, rand.New(rand.NewPCG(1, 2)))
	after := open(t, "cp", &left)
	if after.ID() != id {
		t.Errorf("after a power failure the copy is %q, want %q", after.ID(), id)
	}
	if got := after.Metrics().Sequence; got != sequence {
		t.Errorf("the copy is at commit %d, want %d", got, sequence)
	}
	want(t, after, &store.Scan{Table: "t"}, "a: f:q@1=v")
	mutate(t, after, put("b", 1, "f", "q", "v"))
	want(t, after, &store.Scan{Table: "t"}, "a: f:q@1=v", "b: f:q@1=v")
}

// TestCheckFilesFindsFlippedBits damages a table at many places, one at a time.
func TestCheckFilesFindsFlippedBits(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	o := memory()
	o.FS = fsys
	db := open(t, "db", o)
	create(t, db, "t", store.NewFamily("f"))
	for i := range 200 {
		mutate(t, db, put(fmt.Sprintf("row%03d", i), cell.Timestamp(i+1), "f", "q", strings.Repeat("value", i)))
	}
	if err := db.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := db.CheckFiles(t.Context()); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v of a store that is written to, want ErrUnsupported", err)
	}
	if _, err := db.Checkpoint(t.Context(), "cp"); err != nil {
		t.Fatal(err)
	}
	ro := *o
	ro.ReadOnly = true
	cp := open(t, "cp", &ro)
	if err := cp.CheckFiles(t.Context()); err != nil {
		t.Fatal(err)
	}
	names, err := fsys.List("cp")
	if err != nil {
		t.Fatal(err)
	}
	tables := 0
	for _, name := range names {
		if !strings.HasSuffix(name, ".sst") {
			continue
		}
		tables++
		path := fsys.PathJoin("cp", name)
		whole := readAll(t, fsys, path)
		for i := range 50 {
			at := i * (len(whole) - 1) / 49
			damaged := bytes.Clone(whole)
			damaged[at] ^= 1
			writeAll(t, fsys, path, damaged)
			if err := cp.CheckFiles(t.Context()); !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), name) {
				t.Errorf("byte %d of %d of %s is damaged: Got %v", at, len(whole), name, err)
			}
		}
		writeAll(t, fsys, path, whole)
	}
	if tables == 0 {
		t.Error("the checkpoint has no tables")
	}
}

func readAll(t *testing.T, fsys vfs.FS, path string) []byte {
	t.Helper()
	f, err := fsys.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	data, err := io.ReadAll(f)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	return data
}

func writeAll(t *testing.T, fsys vfs.FS, path string, data []byte) {
	t.Helper()
	f, err := fsys.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.Write(data)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}
