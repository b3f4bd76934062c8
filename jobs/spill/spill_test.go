package spill

import (
	"errors"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

var (
	spillMaps, _    = columnar.Map(columnar.Int64)
	spillDecimal, _ = columnar.Decimal(38, 2)
)

var spillColumns = []columnar.Column{
	{Name: "s", Type: columnar.String, Nullable: true},
	{Name: "n", Type: columnar.Int64, Nullable: true},
	{Name: "f", Type: columnar.Float64, Nullable: true},
	{Name: "b", Type: columnar.Bool, Nullable: true},
	{Name: "m", Type: spillMaps, Nullable: true},
	{Name: "d", Type: spillDecimal, Nullable: true},
}

// FuzzRow: bytes that are no row are refused, and those that are one are written
// as they were read, but for lengths and truths that are written in other ways.
func FuzzRow(f *testing.F) {
	f.Add([]byte("\x01\x02ab\x01\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x01\x01\x00\x01\x01"))
	f.Add([]byte("\x00\x00\x00\x00\x01\x02\x01\x01a\x01\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\x01\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x00"))
	f.Add([]byte("\x00\x00\x00\x00\x00\x01\x01\x00\x00\x00\x00\x00\x00\x00\xff\xff\xff\xff\xff\xff\xff\x7f"))
	f.Add([]byte("\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k"))
	f.Fuzz(func(t *testing.T, data []byte) {
		b := columnar.NewBatch(spillColumns)
		if _, err := TakeRow(data, b); err != nil {
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("Got %v, want ErrDamaged", err)
			}
			return
		}
		again := columnar.NewBatch(spillColumns)
		rest, err := TakeRow(AppendRow(nil, b, 0), again)
		if err != nil || len(rest) > 0 {
			t.Errorf("Got %d bytes more, %v", len(rest), err)
		}
		if d := cmp.Diff(columnartest.Texts(b), columnartest.Texts(again)); d != "" {
			t.Error(d)
		}
	})
}

// TestSized: a length that is more than there is, is refused.
func TestSized(t *testing.T) {
	t.Parallel()
	b, rest, ok := TakeSized(append(AppendSized(nil, []byte("ab")), 'c'))
	if !ok || string(b) != "ab" || string(rest) != "c" {
		t.Errorf("Got %q, %q, %t", b, rest, ok)
	}
	for _, bad := range []string{"", "\x03ab", "\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01k", "\x80"} {
		if _, _, ok := TakeSized([]byte(bad)); ok {
			t.Errorf("%q: Got no refusal", bad)
		}
	}
}

// TestFile: pieces come back in any order; a bit that was turned on the disk is an
// error; what a disk may hold is all files together; and nothing is left of a file.
func TestFile(t *testing.T) {
	t.Parallel()
	d := &Disk{Dir: t.TempDir(), Limit: 10}
	var files [2]*File
	var extents [2]Extent
	for i, text := range []string{"abc", "defg"} {
		var err error
		if files[i], err = d.Create(); err != nil {
			t.Fatal(err)
		}
		if extents[i], err = files[i].Append([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := files[0].Append([]byte("long")); !errors.Is(err, ErrFull) {
		t.Errorf("Got %v, want ErrFull", err)
	}
	second, err := files[0].Append([]byte("xyz"))
	if err != nil || d.Used() != 10 {
		t.Errorf("Got %v, %d bytes used", err, d.Used())
	}
	for _, c := range []struct {
		extent Extent
		want   string
	}{{second, "xyz"}, {extents[0], "abc"}} {
		if got, err := files[0].Read(nil, c.extent); err != nil || string(got) != c.want {
			t.Errorf("Got %q, %v, want %q", got, err, c.want)
		}
	}
	if _, err := files[1].f.WriteAt([]byte("x"), extents[1].Offset+1); err != nil {
		t.Fatal(err)
	}
	if _, err := files[1].Read(nil, extents[1]); !errors.Is(err, ErrDamaged) {
		t.Errorf("Got %v, want ErrDamaged", err)
	}
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	if d.Used() != 0 {
		t.Errorf("Got %d bytes used after Close", d.Used())
	}
	if left, err := os.ReadDir(d.Dir); err != nil || len(left) > 0 {
		t.Errorf("Got %v, %v in the directory", left, err)
	}
	if _, err := new(Disk).Create(); err == nil {
		t.Error("Got a file without a directory")
	}
}
