package join

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

var spillMaps, _ = columnar.Map(columnar.Int64)

var spillColumns = []columnar.Column{
	{Name: "s", Type: columnar.String, Nullable: true},
	{Name: "n", Type: columnar.Int64, Nullable: true},
	{Name: "f", Type: columnar.Float64, Nullable: true},
	{Name: "b", Type: columnar.Bool, Nullable: true},
	{Name: "m", Type: spillMaps, Nullable: true},
}

// FuzzSpilled: bytes that are no row are refused, and those that are one are written
// as they were read, but for lengths and truths that are written in other ways.
func FuzzSpilled(f *testing.F) {
	f.Add([]byte("\x01k\x01\x02ab\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x01\x00\x01\x01"))
	f.Add([]byte("\x01k\x00\x00\x00\x00\x01\x02\x01\x01a\x01\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00"))
	f.Add([]byte("\x01k\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x00"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := columnar.NewBatch(spillColumns)
		key, _, err := takeSpilled(data, b)
		if err != nil {
			if !errors.Is(err, ErrSpill) {
				t.Errorf("Got %v, want ErrSpill", err)
			}
			return
		}
		again := columnar.NewBatch(spillColumns)
		key2, rest, err := takeSpilled(appendSpilled(nil, key, spillColumns, ref{b, 0}), again)
		if err != nil || len(rest) > 0 || string(key) != string(key2) {
			t.Errorf("Got key %q, %d bytes more, %v, want key %q", key2, len(rest), err, key)
		}
		if d := cmp.Diff(columnartest.Texts(b), columnartest.Texts(again)); d != "" {
			t.Error(d)
		}
	})
}

// TestSpillDamaged: a bit that was turned on the disk is an error, not a row.
func TestSpillDamaged(t *testing.T) {
	t.Parallel()
	d := &disk{dir: t.TempDir(), limit: 1 << 20}
	f, err := d.create()
	if err != nil {
		t.Fatal(err)
	}
	p := newParts(f, nil, 0, 0)
	for _, key := range []string{"a", "b", "c"} {
		if err := p.add([]byte(key), ref{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.flushAll(); err != nil {
		t.Fatal(err)
	}
	i := p.of([]byte("a"))
	if _, err := p.input(i).Next(); err != nil {
		t.Fatal(err)
	}
	if _, err := f.f.WriteAt([]byte("x"), p.extents[i][0].offset+1); err != nil {
		t.Fatal(err)
	}
	if _, err := p.input(i).Next(); !errors.Is(err, ErrSpill) {
		t.Errorf("Got %v, want ErrSpill", err)
	}
	if d.used == 0 {
		t.Error("Got no bytes used")
	}
	if err := f.close(); err != nil || d.used != 0 {
		t.Errorf("Got %v, %d bytes used after close", err, d.used)
	}
	if left, err := os.ReadDir(d.dir); err != nil || len(left) > 0 {
		t.Errorf("Got %v, %v in the directory", left, err)
	}
}

// TestParts: the parts of a level say nothing about those of the next, or a part
// would stay whole for ever.
func TestParts(t *testing.T) {
	t.Parallel()
	level := []*parts{{level: 0}, {level: 1}}
	var first, both [fanOut]int
	for i := range 32 * fanOut * fanOut {
		key := []byte{byte(i), byte(i >> 8), 'k'}
		first[level[0].of(key)]++
		if level[0].of(key) == 0 {
			both[level[1].of(key)]++
		}
	}
	for i := range fanOut {
		if first[i] < 900 || first[i] > 1150 || both[i] < 10 || both[i] > 60 {
			t.Errorf("part %d: Got %d keys, want about 1024; of the first part again, %d, want about 32", i, first[i], both[i])
		}
	}
}
