package pebblestore

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"

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
