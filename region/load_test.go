package region

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

func TestLoad(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-b#1", "b-d#2", "d-#3")
	l := NewLoad(m)
	l.Wrote([]byte("a"), 1)
	l.Wrote([]byte("b"), 1)
	l.Read(cell.Range{}, 1)
	l.Read(cell.Range{Start: []byte("b"), Stop: []byte("d")}, 1)
	l.Read(cell.Range{Start: []byte("c"), Stop: []byte("c\x00")}, 1)
	l.Read(cell.Range{Start: []byte("z"), Stop: []byte("a")}, 1)
	counts := func(l *Load) (out [][2]int64) {
		for i := range l.regions.Len() {
			out = append(out, [2]int64{l.Region(i).Reads.Total(), l.Region(i).Writes.Total()})
		}
		return out
	}
	if d := cmp.Diff([][2]int64{{1, 1}, {3, 1}, {1, 0}}, counts(l)); d != "" {
		t.Errorf("reads and writes (-want +got)\n%s", d)
	}
	split, err := m.Split([]byte("c"), 9)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([][2]int64{{1, 1}, {0, 0}, {0, 0}, {1, 0}}, counts(l.Follow(split))); d != "" {
		t.Errorf("after a split (-want +got)\n%s", d)
	}
	var none *Load
	if d := cmp.Diff([][2]int64{{0, 0}, {0, 0}, {0, 0}}, counts(none.Follow(m))); d != "" {
		t.Errorf("of nothing (-want +got)\n%s", d)
	}
}

// A tally adds each mutation to its load and region when it is flushed, whatever their
// order, and nothing of what is discarded. Its memory holds no counts of before.
func TestTally(t *testing.T) {
	t.Parallel()
	l, other := NewLoad(mapOf(t, "-b#1", "b-d#2", "d-#3")), NewLoad(mapOf(t, "-#7"))
	writes := func(l *Load) (out []int64) {
		for i := range l.regions.Len() {
			out = append(out, l.Region(i).Writes.Total())
		}
		return out
	}
	check := func(when string, want, wantOther []int64) {
		t.Helper()
		if d := cmp.Diff([][]int64{want, wantOther}, [][]int64{writes(l), writes(other)}); d != "" {
			t.Errorf("%s (-want +got)\n%s", when, d)
		}
	}
	var tally Tally
	for _, row := range []string{"a", "a", "c", "a", "d", "e"} {
		tally.Wrote(l, []byte(row))
		tally.Wrote(other, []byte(row))
	}
	tally.Wrote(other, []byte("z"))
	check("tallied", []int64{0, 0, 0}, []int64{0})
	for range 2 {
		tally.Flush(1)
		check("flushed", []int64{3, 1, 2}, []int64{7})
	}
	tally.Wrote(other, []byte("z"))
	tally.Wrote(l, []byte("a"))
	tally.Discard()
	tally.Wrote(l, []byte("c"))
	tally.Flush(1)
	check("discarded, and flushed again", []int64{3, 2, 2}, []int64{7})
}

// The middle parts the bytes as evenly as rows allow: no other cut is better by
// more than the row that it is at.
func TestMiddle(t *testing.T) {
	t.Parallel()
	for _, sizes := range [][]int64{nil, {7}} {
		if i, ok := Middle(sizes); ok {
			t.Errorf("Middle(%v) = %d", sizes, i)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 100), 2, 20).Draw(t, "sizes")
		apart := func(i int) (d int64) {
			for j, s := range sizes {
				if j < i {
					d += s
				} else {
					d -= s
				}
			}
			return max(d, -d)
		}
		got, ok := Middle(sizes)
		if !ok || got < 1 || got >= len(sizes) {
			t.Fatalf("Middle(%v) = %d, %v", sizes, got, ok)
		}
		for i := 1; i < len(sizes); i++ {
			if apart(i) < apart(got) {
				t.Fatalf("Middle(%v) = %d, %d apart; %d is %d apart", sizes, got, apart(got), i, apart(i))
			}
		}
	})
}

// A table that is created by SplitPoints or cut anywhere counts every row in one
// region.
func TestLoadFollowsChanges(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		l := NewLoad(m)
		row := drawRow(t, "row")
		l.Wrote(row, 1)
		var n int64
		for i := range m.Len() {
			n += l.Region(i).Writes.Total()
		}
		if n != 1 || l.Region(m.Locate(row)).Writes.Total() != 1 {
			t.Fatalf("a write of %q was counted %d times", row, n)
		}
	})
}
