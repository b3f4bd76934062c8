package rowsort

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/internal/turns"
	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
	"sluice/jobs/spill"
)

var columns = []columnar.Column{
	{Name: "text", Type: columnar.String, Nullable: true},
	{Name: "n", Type: columnar.Int64, Nullable: true},
}

// keyOf is a key of 8 bytes or more; more are of a random length.
func keyOf(n uint64, more string) []byte { return append(fmt.Appendf(nil, "%08x", n), more...) }

// sorted reads all rows as key and values.
func sorted(ctx context.Context, s *Sorter) ([][]string, error) {
	rows, err := s.Sorted(ctx)
	if err != nil {
		return nil, err
	}
	var got [][]string
	b := columnar.NewBatch(columns)
	for {
		ok, err := rows.Next()
		if err != nil || !ok {
			return got, err
		}
		b.Reset()
		if err := rows.AppendTo(b); err != nil {
			return nil, err
		}
		got = append(got, append([]string{string(rows.Key())}, columnartest.Texts(b)[0]...))
	}
}

// TestSort compares with a sort in memory: any memory, collectors and rows give the
// same, what is held stays within its bound, and nothing is left of the files.
func TestSort(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 250).Draw(t, "rows")
		checkSort(t, dir, &Options{
			Collectors:  rapid.IntRange(1, 3).Draw(t, "collectors"),
			MemoryBytes: rapid.SampledFrom([]int64{1, 3_000, 20_000, 1 << 20}).Draw(t, "memory"),
		}, n, rapid.Uint64().Draw(t, "order"), rapid.IntRange(-1, max(0, n-1)).Draw(t, "large row"))
	})
	// Sizes that are known to be sorted in memory, on disk, and on disk in several passes.
	for _, tc := range []struct {
		memory          int64
		spilled, passes bool
	}{{1 << 20, false, false}, {20_000, true, false}, {1, true, true}} {
		spilled, passes := checkSort(t, dir, &Options{Collectors: 2, MemoryBytes: tc.memory}, 250, 1, -1)
		if spilled != tc.spilled || passes != tc.passes {
			t.Errorf("Got written to disk %t, several passes %t with %d bytes of memory, want %t and %t", spilled, passes, tc.memory, tc.spilled, tc.passes)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("Got %v, %v in the directory", left, err)
	}
}

// checkSort sorts n rows, of which one may be large, with files in dir, and reports
// whether there were some, and some of files.
func checkSort(t rapid.TB, dir string, o *Options, n int, seed uint64, large int) (spilled, passes bool) {
	t.Helper()
	d := &spill.Disk{Dir: dir, Limit: math.MaxInt64}
	o.Columns, o.Disk = columns, d
	s := New(o)
	var want [][]string
	b := columnar.NewBatch(columns)
	for _, i := range rand.New(rand.NewPCG(seed, 1)).Perm(n) {
		b.Reset()
		text := fmt.Sprint("row ", i)
		if i == large {
			text = string(bytes.Repeat([]byte{'x'}, 10_000))
		}
		if err := b.Vector(0).AppendBytes([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if i%3 == 0 {
			b.Vector(1).AppendNull()
		} else {
			b.Vector(1).AppendInt64(int64(i))
		}
		key := keyOf(uint64(i/2), text[:i%2*4])
		c := s.Collector(i % o.Collectors)
		if err := c.Add(key, b, 0); err != nil {
			t.Fatal(err)
		}
		if c.held > max(c.limit, 20_000) && len(c.entries) > 1 {
			t.Fatalf("%d bytes are held in %d rows, the limit is %d", c.held, len(c.entries), c.limit)
		}
		want = append(want, append([]string{string(key)}, columnartest.Texts(b)[0]...))
	}
	slices.SortFunc(want, func(a, b []string) int { return cmp.Compare(a[0], b[0]) })
	spilled = d.Used() > 0
	got, err := sorted(context.Background(), s)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Fatal(diff)
	}
	passes = len(s.files) > 0
	if err := s.Close(); err != nil || d.Used() != 0 {
		t.Fatalf("Got %v, %d bytes used after Close", err, d.Used())
	}
	return spilled, passes
}

// fill adds n rows that do not fit.
func fill(t *testing.T, s *Sorter, n int) error {
	t.Helper()
	b := columnar.NewBatch(columns)
	if err := b.Vector(0).AppendBytes(bytes.Repeat([]byte{'x'}, 50)); err != nil {
		t.Fatal(err)
	}
	b.Vector(1).AppendInt64(7)
	for i := range n {
		if err := s.Collector(0).Add(keyOf(uint64(i)*7919%uint64(n), fmt.Sprint(i)), b, 0); err != nil {
			return err
		}
	}
	return nil
}

// TestSortYields sorts while another goroutine is ready, on one core.
func TestSortYields(t *testing.T) { // not parallel: turns.During
	s := New(&Options{Columns: columns, MemoryBytes: 64 << 20, Disk: &spill.Disk{}})
	defer s.Close()
	const rows = 20_000 // some 15 comparisons each
	if err := fill(t, s, rows); err != nil {
		t.Fatal(err)
	}
	if got := turns.During(s.Collector(0).sort); got < 8*rows/turnSteps {
		t.Errorf("Another goroutine had %d turns while %d rows were sorted", got, rows)
	}
}

// TestSortStops: whatever ends a sort, nothing is left of its files, and the error says
// what to do.
func TestSortStops(t *testing.T) {
	t.Parallel()
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		disk *spill.Disk
		ctx  context.Context

		want error
	}{
		"no directory": {disk: &spill.Disk{}, want: ErrMemory},
		"missing":      {disk: &spill.Disk{Dir: t.TempDir() + "/none", Limit: math.MaxInt64}, want: os.ErrNotExist},
		"full":         {disk: &spill.Disk{Dir: t.TempDir(), Limit: 20_000}, want: spill.ErrFull},
		"full later":   {disk: &spill.Disk{Dir: t.TempDir(), Limit: 200_000}, want: spill.ErrFull},
		"cancelled":    {disk: &spill.Disk{Dir: t.TempDir(), Limit: math.MaxInt64}, ctx: cancelled, want: context.Canceled},
		"done":         {disk: &spill.Disk{Dir: t.TempDir(), Limit: math.MaxInt64}},
	} {
		s := New(&Options{Columns: columns, MemoryBytes: 4_000, Disk: test.disk})
		err := fill(t, s, 2_000)
		if err == nil {
			_, err = sorted(cmp.Or(test.ctx, t.Context()), s)
		}
		if !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: Got %v, want %v", name, err, test.want)
		}
		if err := s.Close(); err != nil || test.disk.Used() != 0 {
			t.Errorf("%s: Got %v, %d bytes used after Close", name, err, test.disk.Used())
		}
		if left, err := os.ReadDir(test.disk.Dir); test.disk.Dir != "" && name != "missing" && (err != nil || len(left) > 0) {
			t.Errorf("%s: Got %v, %v in the directory", name, left, err)
		}
	}
}

// FuzzRun: blocks that are none are refused.
func FuzzRun(f *testing.F) {
	w := &runWriter{block: 1 << 20}
	for _, key := range []string{"a", "ab", "abc", "b"} {
		if err := w.add([]byte(key), []byte{0, 0}); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(w.buffer)
	f.Add([]byte("\x01\x00\x00"))
	f.Add([]byte("\x00\x05ab"))
	f.Add([]byte("\x00\x01a\x09"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) == 0 {
			return
		}
		s := &runSource{rest: data}
		for {
			ok, err := s.next()
			if err != nil && !errors.Is(err, spill.ErrDamaged) {
				t.Errorf("Got %v, want ErrDamaged", err)
			}
			if err != nil || !ok {
				return
			}
			b := columnar.NewBatch(columns)
			if err := (&Rows{heap: []source{s}}).AppendTo(b); err != nil && !errors.Is(err, spill.ErrDamaged) {
				t.Errorf("Got %v, want ErrDamaged", err)
			}
		}
	})
}
