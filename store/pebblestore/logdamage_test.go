package pebblestore

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/store"
)

// A bit of the log has flipped: the store is not opened without the commits that stand behind
// it, without an error (invariant I7), however close to the end of the log that is. In the
// last record, and sometimes in the one before, it looks as a crash amid its write would.
func TestFlippedBitOfLog(t *testing.T) {
	t.Parallel()
	for _, size := range []int{100, 9_000} { // all in one block, and in several
		mem := crashfs.New()
		o := bulk(mem)
		o.MemTableBytes = 1 << 20
		db := open(t, "db", o)
		create(t, db, "t", store.NewFamily("f"))
		value := strings.Repeat("v", size)
		for i := range 10 {
			mutate(t, db, put("r", cell.Timestamp(i+1), "f", "q", value))
		}
		rng := rand.New(rand.NewPCG(1, 2))
		left := mem.Crash(0, rng)
		names, err := left.List("db")
		if err != nil {
			t.Fatal(err)
		}
		var log string
		var data []byte
		for _, name := range names {
			if path := left.PathJoin("db", name); strings.HasSuffix(name, ".log") && path > log {
				log, data = path, readAll(t, left, path)
			}
		}
		// The record before the last begins there, or behind. The last may have been begun
		// before Pebble had noted that this one was on disk.
		last := bytes.LastIndex(data[:bytes.LastIndex(data, []byte(value))], []byte(value)) - 200
		if last < 7*size {
			t.Fatalf("the record before the last of %s is at %d: the test shows nothing", log, last)
		}
		for n := 0; n < last; n += 1 + size/20 {
			fs := mem.Crash(0, rng)
			flipped := bytes.Clone(data)
			flipped[n] ^= 1 << rng.IntN(8)
			writeAll(t, fs, log, flipped)
			o := bulk(fs)
			o.MemTableBytes = 1 << 20
			again, err := Open("db", o)
			if err == nil {
				tables, _ := again.Tables(t.Context())
				t.Errorf("byte %d of %d: got no error, and the tables %q", n, len(data), tables)
				again.Close()
			} else if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), log) {
				t.Errorf("byte %d: got %v, want an ErrCorrupt that names %s", n, err, log)
			}
		}
	}
}
