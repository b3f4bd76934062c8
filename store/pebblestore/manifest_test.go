package pebblestore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/crashfs"
	"sluice/internal/thinned"
	"sluice/store"
)

// A bit of the manifest has flipped: the store is not opened as it was before the record
// that the bit is in, without an error (invariant I7). In the last record it looks as a crash
// amid its write would.
func TestFlippedBitOfManifest(t *testing.T) {
	t.Parallel()
	mem := crashfs.New()
	db := open(t, "db", bulk(mem))
	create(t, db, "t", store.NewFamily("f"), counterFamily("n"))
	l := ledger{db: db}
	for i := range 8 {
		l.bulk = i%2 == 0
		if err := l.apply(t, i%3, 10); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	rng := rand.New(rand.NewPCG(1, 2))
	at, err := pebble.Peek("db", mem)
	if err != nil {
		t.Fatal(err)
	}
	data := manifestBytes(t, mem.Crash(0, rng), at.ManifestFilename)
	last, damaged := 0, 0
	for r := record.NewReader(bytes.NewReader(data), 0); ; {
		begin := r.Offset()
		if _, err := r.Next(); err != nil {
			break
		}
		last = int(begin)
	}
	for n := 0; n < last; n += 5 {
		fs := mem.Crash(0, rng)
		flipped := bytes.Clone(data)
		flipped[n] ^= 1 << rng.IntN(8)
		file, err := fs.Create(at.ManifestFilename, vfs.WriteCategoryUnspecified)
		if err == nil {
			_, err = file.Write(flipped)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		again, err := Open("db", bulk(fs))
		if err == nil {
			got := offsets(t, again)
			t.Errorf("byte %d of %d: got offsets %v and no error, %v were acknowledged", n, len(data), got, l.next)
			again.Close()
			continue
		}
		damaged++
		if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), at.ManifestFilename) {
			t.Errorf("byte %d: got %v, want an ErrCorrupt that names %s", n, err, at.ManifestFilename)
		}
	}
	if damaged < 20 {
		t.Errorf("Got %d damaged manifests: the test shows nothing", damaged)
	}
}

func manifestBytes(t *testing.T, fs vfs.FS, name string) []byte {
	t.Helper()
	file, err := fs.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	data, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// What a crash has cut is no damage, wherever it was cut; a flipped bit is, but for the last
// record.
func TestDamagedRecord(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	w := record.NewWriter(&b)
	rng := rand.New(rand.NewPCG(1, 2))
	last := 0
	for _, size := range []int{100, 0, 3 * manifestBlock, manifestBlock - 3*chunkHeader - 100 - 3, 7, manifestBlock, 1, 90_000} {
		last = int(w.Size())
		r, err := w.Next()
		if err == nil {
			_, err = r.Write(bytes.Repeat([]byte{byte(rng.Uint32())}, size))
		}
		if err = errors.Join(err, w.Flush()); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	data := b.Bytes()
	every := thinned.Of(300, 3000)
	for n := 0; n <= len(data); n += 1 + rng.IntN(every) {
		if at := damagedRecord(data[:n]); at >= 0 {
			t.Errorf("cut at %d: got damage at %d", n, at)
		}
		torn := append(bytes.Clone(data[:n]), make([]byte, 100)...)
		if at := damagedRecord(torn); at >= 0 {
			t.Errorf("cut at %d, with zeros behind: got damage at %d", n, at)
		}
	}
	for n := 0; n < len(data); n += 1 + rng.IntN(every) {
		flipped := bytes.Clone(data)
		flipped[n] ^= 1 << rng.IntN(8)
		if n%manifestBlock > manifestBlock-chunkHeader {
			continue // perhaps behind the last chunk of a block
		}
		if at := damagedRecord(flipped); (at >= 0) != (n < last) {
			t.Errorf("flipped at %d of %d, the last record at %d: got damage at %d", n, len(data), last, at)
		}
	}
}

// A copy of the directory that has left out its empty files is not opened as an empty store,
// and keeps what it has: an error says what is missing (invariant I7). What a crash amid the
// making of a store leaves is no such copy.
func TestMissingMarker(t *testing.T) {
	t.Parallel()
	for _, marker := range []string{"marker.manifest", "marker.format-version", "marker"} {
		mem := vfs.NewMem()
		o := bulk(mem)
		db := open(t, "db", o)
		create(t, db, "t", store.NewFamily("f"))
		mutate(t, db, put("r", 1, "f", "q", "v"))
		if err := errors.Join(db.Flush(t.Context()), db.Close()); err != nil {
			t.Fatal(err)
		}
		// Now everything is in tables.
		if err := open(t, "db", o).Close(); err != nil {
			t.Fatal(err)
		}
		whole := vfs.NewMem()
		if _, err := vfs.Clone(mem, whole, "db", "db"); err != nil {
			t.Fatal(err)
		}
		list := func() []string {
			names, err := mem.List("db")
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(names)
			return names
		}
		for _, name := range list() {
			if strings.HasPrefix(name, marker) {
				if err := mem.Remove(mem.PathJoin("db", name)); err != nil {
					t.Fatal(err)
				}
			}
		}
		before := list()
		if db, err := Open("db", o); err == nil {
			tables, _ := db.Tables(t.Context())
			t.Errorf("without %s.*: got a store with the tables %q and no error", marker, tables)
			db.Close()
		} else if !errors.Is(err, store.ErrCorrupt) || !strings.Contains(err.Error(), "db/"+marker) {
			t.Errorf("without %s.*: got %v, want an ErrCorrupt that names it", marker, err)
		}
		if d := cmp.Diff(before, list()); d != "" {
			t.Errorf("without %s.*: it is not opened, and its files change (-before +after):\n%s", marker, d)
		}
		names, err := whole.List("db")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			if strings.HasPrefix(name, marker) {
				writeAll(t, mem, mem.PathJoin("db", name), nil)
			}
		}
		want(t, open(t, "db", o), &store.Scan{Table: "t"}, "r: f:q@1=v")
	}
}

// A manifest that is cut off where it names no tables yet, as by a copy that was interrupted:
// no other store is made in its place, and its tables stay (invariant I7). Where it is cut off
// later, at the end of a record, nothing tells it from an earlier manifest.
func TestCutManifest(t *testing.T) {
	t.Parallel()
	mem := vfs.NewMem()
	db := open(t, "db", bulk(mem))
	create(t, db, "t", store.NewFamily("f"))
	for i := range 3 { // so that the last logs have nothing of the catalog
		mutate(t, db, put("r", cell.Timestamp(i+1), "f", "q", "v"))
		if err := db.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	id := db.ID()
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	at, err := pebble.Peek("db", mem)
	if err != nil {
		t.Fatal(err)
	}
	whole := readAll(t, mem, at.ManifestFilename)
	opened, refused := 0, 0
	for n := 1; n <= len(whole); n++ {
		left := vfs.NewMem()
		if _, err := vfs.Clone(mem, left, "db", "db"); err != nil {
			t.Fatal(err)
		}
		writeAll(t, left, at.ManifestFilename, bytes.Clone(whole[:n])) // Pebble spoils what was written, with -race
		db, err := Open("db", bulk(left))
		if err == nil {
			opened++
			if db.ID() != id {
				t.Errorf("%d of %d bytes: opened as another store", n, len(whole))
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
			continue
		}
		refused++
		names, err := left.List("db")
		if err != nil {
			t.Fatal(err)
		}
		before, err := mem.List("db")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range before {
			if isTable(name) && !slices.Contains(names, name) {
				t.Errorf("%d of %d bytes: %s is gone", n, len(whole), name)
			}
		}
	}
	if opened == 0 || refused == 0 {
		t.Errorf("Got %d stores opened and %d refused: the test shows nothing", opened, refused)
	}
}

// The marker of a manifest can be on disk before the manifest's name, where power fails when a
// store is made: Open makes it then, unless there is anything of a store.
func TestMarkerWithoutManifest(t *testing.T) {
	t.Parallel()
	for _, other := range []string{"", "000005.sst", "000002.log"} {
		mem := crashfs.New()
		if err := mem.MkdirAll("db", 0o755); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"marker.manifest.000001.MANIFEST-000001", other} {
			if name == "" {
				continue
			}
			f, err := mem.Create(mem.PathJoin("db", name), vfs.WriteCategoryUnspecified)
			if err == nil {
				err = f.Close()
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		db, err := Open("db", bulk(mem))
		if (err == nil) != (other == "") {
			t.Errorf("a marker and %q: got %v", other, err)
		}
		if err == nil {
			err = db.Close()
		}
		if other == "" && err != nil {
			t.Error(err)
		}
	}
}

// A store that power failed to be made is made by the next Open.
func TestCrashAmidCreation(t *testing.T) {
	t.Parallel()
	// crash has power fail before a write, and reports whether there are so many.
	crash := func(write int64, percent int) bool {
		mem := crashfs.New()
		var n atomic.Int64
		var left crashfs.FS
		db, err := Open("db", bulk(mem.OnWrite(func() {
			if n.Add(1) == write {
				left = mem.Crash(percent, rand.New(rand.NewPCG(1, uint64(write))))
			}
		})))
		if err == nil {
			err = db.Close()
		}
		if err != nil {
			t.Fatal(err)
		}
		if n.Load() < write {
			return false
		}
		if db, err = Open("db", bulk(left)); err == nil {
			err = db.Close()
		}
		if err != nil {
			t.Errorf("crash before write %d, %d %% of the rest is there: %v", write, percent, err)
		}
		return true
	}
	for _, percent := range []int{0, 50, 100} {
		write := int64(1)
		for crash(write, percent) {
			write++
		}
		if write < 10 {
			t.Errorf("Got %d writes: the test shows nothing", write-1)
		}
	}
}
