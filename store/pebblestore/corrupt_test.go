package pebblestore

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/store"
)

// TestCorruptBlockIsOneLine: what is said of a damaged block, in the error and in the log,
// is for people: its file and what was found, in one line, and not the stack of the
// engine.
func TestCorruptBlockIsOneLine(t *testing.T) {
	t.Parallel()
	fsys := vfs.NewMem()
	var log bytes.Buffer
	o := memory()
	o.FS, o.Logger = fsys, slog.New(slog.NewTextHandler(&log, nil))
	db, err := Open("db", o)
	if err != nil {
		t.Fatal(err)
	}
	create(t, db, "t", store.NewFamily("f"))
	for i := range 2000 {
		mutate(t, db, put(fmt.Sprintf("row%04d", i), cell.Timestamp(i+1), "f", "q", fmt.Sprintf("value %d", i*i)))
	}
	if err := errors.Join(db.Flush(t.Context()), db.Close()); err != nil {
		t.Fatal(err)
	}
	names, err := fsys.List("db")
	if err != nil {
		t.Fatal(err)
	}
	largest := ""
	var whole []byte
	for _, name := range names {
		path := fsys.PathJoin("db", name)
		if data := readAll(t, fsys, path); strings.HasSuffix(name, ".sst") && len(data) > len(whole) {
			largest, whole = path, data
		}
	}
	whole[len(whole)/2] ^= 1
	writeAll(t, fsys, largest, whole)

	if db, err = Open("db", o); err != nil {
		t.Fatal(err)
	}
	sc := db.Scan(t.Context(), &store.Scan{Table: "t"})
	for sc.Next() {
	}
	err = sc.Err()
	_ = sc.Close() // the same error
	if err := db.Close(); err != nil {
		t.Error(err)
	}
	if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), largest) || strings.ContainsAny(err.Error(), "\n<") {
		t.Errorf("Got %v, want ErrCorrupt of %s in one line", err, largest)
	}
	if text := log.String(); !strings.Contains(text, "file="+largest) || strings.Contains(text, "stack trace") {
		t.Errorf("Got log %s", text)
	}
}
