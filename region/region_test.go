package region

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
)

// mapOf makes the map of table t from "start-stop#id" words; "" is unbounded.
func mapOf(t *testing.T, words ...string) *Map {
	t.Helper()
	var regions []Info
	for _, w := range words {
		regions = append(regions, infoOf(t, w))
	}
	m, err := NewMap("t", regions)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func infoOf(t *testing.T, word string) Info {
	t.Helper()
	keys, id, _ := strings.Cut(word, "#")
	start, stop, _ := strings.Cut(keys, "-")
	i := Info{Table: "t", Start: []byte(start), Stop: []byte(stop)}
	if _, err := fmt.Sscan(id, &i.ID); err != nil {
		t.Fatalf("%q: %v", word, err)
	}
	return i
}

func words(m *Map) []string {
	var out []string
	for _, r := range m.All() {
		out = append(out, fmt.Sprintf("%s-%s#%d", r.Start, r.Stop, r.ID))
	}
	return out
}

func TestNewMap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		regions string
		want    string // part of the error; "" = none
	}{
		{"-#1", ""},
		{"-b#1 b-d#1 d-#2", ""},
		{"", "no regions"},
		{"a-#1", "starts at"},
		{"-b#1", "stops at"},
		{"-b#1 c-#1", "starts at"},
		{"-c#1 b-#1", "starts at"},
		{"-b#1 b-b#1 b-#1", "before its start"},
		{"-b#1 b-a#1 a-#1", "before its start"},
		{"-#1 -#1", "starts at"},
		{"-b#1 b-#1 d-#1", "starts at"},
	} {
		var regions []Info
		for _, w := range strings.Fields(c.regions) {
			regions = append(regions, infoOf(t, w))
		}
		_, err := NewMap("t", regions)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("NewMap(%s): %v; want %q", c.regions, err, c.want)
		}
	}
	if _, err := NewMap("other", []Info{infoOf(t, "-#1")}); err == nil {
		t.Error("NewMap took a region of another table")
	}
}

func TestLocate(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-b#1", "b-d#1", "d-#1")
	for row, want := range map[string]int{"": 0, "a": 0, "a\xff": 0, "b": 1, "b\x00": 1, "c\xff\xff": 1, "d": 2, "\xff\xff": 2} {
		if got := m.Locate([]byte(row)); got != want {
			t.Errorf("Locate(%q) = %d, want %d", row, got, want)
		}
		if r := m.At(m.Locate([]byte(row))).Range(); !r.Contains([]byte(row)) {
			t.Errorf("%q is not in its region", row)
		}
	}
	if m.Len() != 3 || m.Table() != "t" {
		t.Errorf("Len = %d, Table = %s", m.Len(), m.Table())
	}
	m.All()[0].Table = "changed"
	if m.At(0).Table != "t" {
		t.Error("All shares its slice with the map")
	}
}

func TestCreate(t *testing.T) {
	t.Parallel()
	m, err := Create("t", [][]byte{[]byte("b"), []byte("d")}, 7)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"-b#7", "b-d#7", "d-#7"}, words(m)); diff != "" {
		t.Errorf("Create (-want +got)\n%s", diff)
	}
	if m, err = Create("t", nil, 7); err != nil || m.Len() != 1 {
		t.Errorf("Create without splits: %v", err)
	}
	for _, splits := range [][][]byte{{nil}, {[]byte("b"), []byte("b")}, {[]byte("b"), []byte("a")}, {make([]byte, cell.MaxRowLength+1)}} {
		if _, err := Create("t", splits, 7); !errors.Is(err, ErrSplit) {
			t.Errorf("Create(%.20q): %v; want ErrSplit", splits, err)
		}
	}
}

func TestSplit(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-m#100", "m-#200")
	for _, c := range []struct {
		at   string
		now  int64
		want []string // nil = ErrSplit
	}{
		{"g", 500, []string{"-g#500", "g-m#500", "m-#200"}},
		{"g", 100, []string{"-g#101", "g-m#101", "m-#200"}},
		{"g", 50, []string{"-g#101", "g-m#101", "m-#200"}},
		{"z", 201, []string{"-m#100", "m-z#201", "z-#201"}},
		{"\x00", 500, []string{"-\x00#500", "\x00-m#500", "m-#200"}},
		{"m\x00", 500, []string{"-m#100", "m-m\x00#500", "m\x00-#500"}},
		{"m", 500, nil},
		{"", 500, nil},
		{strings.Repeat("x", cell.MaxRowLength+1), 500, nil},
	} {
		before := words(m)
		got, err := m.Split([]byte(c.at), c.now)
		if c.want == nil {
			if !errors.Is(err, ErrSplit) {
				t.Errorf("Split(%.20q): %v; want ErrSplit", c.at, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Split(%q): %v", c.at, err)
			continue
		}
		if diff := cmp.Diff(c.want, words(got)); diff != "" {
			t.Errorf("Split(%q, %d) (-want +got)\n%s", c.at, c.now, diff)
		}
		if diff := cmp.Diff(before, words(m)); diff != "" {
			t.Errorf("Split(%q) changed its map\n%s", c.at, diff)
		}
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-b#10", "b-d#40", "d-f#20", "f-#30")
	for _, c := range []struct {
		first, last int
		want        []string // nil = ErrMerge
	}{
		{0, 1, []string{"-d#41", "d-f#20", "f-#30"}},
		{1, 2, []string{"-b#10", "b-f#41", "f-#30"}},
		{2, 3, []string{"-b#10", "b-d#40", "d-#31"}},
		{0, 3, []string{"-#41"}},
		{1, 1, nil},
		{2, 1, nil},
		{-1, 1, nil},
		{0, 4, nil},
	} {
		got, err := m.Merge(c.first, c.last)
		if c.want == nil {
			if !errors.Is(err, ErrMerge) {
				t.Errorf("Merge(%d, %d): %v; want ErrMerge", c.first, c.last, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("Merge(%d, %d): %v", c.first, c.last, err)
			continue
		}
		if diff := cmp.Diff(c.want, words(got)); diff != "" {
			t.Errorf("Merge(%d, %d) (-want +got)\n%s", c.first, c.last, diff)
		}
	}
	if diff := cmp.Diff([]string{"-b#10", "b-d#40", "d-f#20", "f-#30"}, words(m)); diff != "" {
		t.Errorf("Merge changed its map\n%s", diff)
	}
}

func drawRow(t *rapid.T, label string) []byte {
	return rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 'a', 'b', 0xFF}), 0, 4).Draw(t, label)
}

func equalInfo(a, b Info) bool {
	return a.Table == b.Table && a.ID == b.ID && string(a.Start) == string(b.Start) && string(a.Stop) == string(b.Stop)
}

// drawMap draws a map that has been through random splits and merges, and checks
// after each that what the map promises still holds (invariant I4).
func drawMap(t *rapid.T) *Map {
	m, err := Create("t", nil, 1)
	if err != nil {
		t.Fatal(err)
	}
	now := int64(1)
	names := map[string]bool{m.At(0).Name(): true}
	for range rapid.IntRange(0, 30).Draw(t, "changes") {
		now += rapid.Int64Range(-2, 2).Draw(t, "clock")
		before := m.All()
		var changed *Map
		if rapid.IntRange(0, 2).Draw(t, "change") > 0 {
			at := drawRow(t, "at")
			changed, err = m.Split(at, now)
			allowed := len(at) > 0 && !slices.ContainsFunc(before, func(r Info) bool { return string(r.Start) == string(at) })
			if allowed != (err == nil) {
				t.Fatalf("Split(%q) of %v: %v", at, words(m), err)
			}
		} else {
			first, last := rapid.IntRange(-1, m.Len()).Draw(t, "first"), rapid.IntRange(-1, m.Len()).Draw(t, "last")
			changed, err = m.Merge(first, last)
			if allowed := first >= 0 && first < last && last < m.Len(); allowed != (err == nil) {
				t.Fatalf("Merge(%d, %d) of %v: %v", first, last, words(m), err)
			}
		}
		if !slices.EqualFunc(before, m.regions, equalInfo) {
			t.Fatalf("a change changed the map it was made from\n%s", cmp.Diff(before, m.All()))
		}
		if err != nil {
			continue
		}
		for _, r := range changed.All() {
			old := slices.ContainsFunc(before, func(o Info) bool { return equalInfo(o, r) })
			if !old && names[r.Name()] {
				t.Fatalf("region name %q is used twice", r.Name())
			}
			names[r.Name()] = true
			for _, o := range before {
				if !old && o.Range().Contains(r.Start) && r.ID <= o.ID {
					t.Fatalf("region %v has no greater id than its parent %v", r, o)
				}
			}
		}
		m = changed
	}
	if _, err := NewMap("t", m.All()); err != nil {
		t.Fatalf("regions do not tile the table: %v", err)
	}
	return m
}

func TestAdjacent(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-g#1", "g-m#1", "m-t#1", "t-#1")
	for _, c := range []struct {
		rows        string // one a letter
		first, last int    // first == last: ErrMerge
	}{
		{"ag", 0, 1},
		{"ga", 0, 1},
		{"hs", 1, 2},
		{"zagm", 0, 3},
		{"nza", 0, 0},
		{"", 0, 0},
		{"a", 0, 0},
		{"ab", 0, 0},
		{"an", 0, 0},
		{"aag", 0, 0},
		{"agz", 0, 0},
	} {
		rows := make([][]byte, len(c.rows))
		for i := range rows {
			rows[i] = []byte{c.rows[i]}
		}
		first, last, err := m.Adjacent(rows)
		if c.first == c.last {
			if !errors.Is(err, ErrMerge) {
				t.Errorf("Adjacent(%s) = %d, %d, %v; want ErrMerge", c.rows, first, last, err)
			}
			continue
		}
		if err != nil || first != c.first || last != c.last {
			t.Errorf("Adjacent(%s) = %d, %d, %v; want %d, %d", c.rows, first, last, err, c.first, c.last)
		}
	}
}

func TestMapProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		row := drawRow(t, "row")
		var holders []int
		for i, r := range m.All() {
			if r.Range().Contains(row) {
				holders = append(holders, i)
			}
		}
		if got := m.Locate(row); len(holders) != 1 || holders[0] != got {
			t.Fatalf("%q is in regions %v of %v, Locate says %d", row, holders, words(m), got)
		}

		r := cell.Range{Start: drawRow(t, "start"), Stop: drawRow(t, "stop")}
		in := 0
		for n, o := range m.Overlapping(r) {
			if n > 0 && string(o.Range.Start) != string(m.At(o.Index).Start) {
				t.Fatalf("overlap %d of %v does not start where the one before stops", n, r)
			}
			if !equalInfo(*m.At(o.Index), o.Info) {
				t.Fatalf("overlap %d has another region's Info\n%s", n, cmp.Diff(*m.At(o.Index), o.Info))
			}
			if len(o.Range.Stop) != 0 && string(o.Range.Stop) <= string(o.Range.Start) {
				t.Fatalf("overlap %d of %v is empty: %v", n, r, o)
			}
			if !o.Range.Contains(row) {
				continue
			}
			in++
			if o.Index != m.Locate(row) {
				t.Fatalf("%q is in the overlap with region %d, Locate says %d", row, o.Index, m.Locate(row))
			}
		}
		if want := r.Contains(row); (in == 1) != want || in > 1 {
			t.Fatalf("%q is in %d overlaps of %v, want %v", row, in, r, want)
		}

		n := rapid.IntRange(1, 9).Draw(t, "parts")
		checkParts(t, r, SplitRange(r, n), n)
	})
}

// checkParts checks that parts tile r in at most n parts, none of them empty.
func checkParts(t interface{ Fatalf(string, ...any) }, r cell.Range, parts []cell.Range, n int) {
	if emptyRange(r) {
		if len(parts) != 0 {
			t.Fatalf("empty range %v has parts %v", r, parts)
		}
		return
	}
	if len(parts) == 0 || len(parts) > n {
		t.Fatalf("%d parts of %v, want 1..%d", len(parts), r, n)
	}
	at := r.Start
	for i, p := range parts {
		if string(p.Start) != string(at) || emptyRange(p) || len(p.Stop) == 0 && i < len(parts)-1 {
			t.Fatalf("part %d of %v is %v", i, r, p)
		}
		at = p.Stop
	}
	if string(at) != string(r.Stop) {
		t.Fatalf("parts of %v stop at %q", r, at)
	}
}

func TestOverlapping(t *testing.T) {
	t.Parallel()
	m := mapOf(t, "-b#1", "b-d#2", "d-#3")
	for _, c := range []struct {
		start, stop string
		want        []string
	}{
		{"", "", []string{"0 -b#1 [,b)", "1 b-d#2 [b,d)", "2 d-#3 [d,)"}},
		{"a", "c", []string{"0 -b#1 [a,b)", "1 b-d#2 [b,c)"}},
		{"b", "d", []string{"1 b-d#2 [b,d)"}},
		{"c", "c\x00", []string{"1 b-d#2 [c,c\x00)"}},
		{"e", "", []string{"2 d-#3 [e,)"}},
		{"", "a", []string{"0 -b#1 [,a)"}},
		{"c", "c", nil},
		{"d", "a", nil},
	} {
		var got []string
		for _, o := range m.Overlapping(cell.Range{Start: []byte(c.start), Stop: []byte(c.stop)}) {
			got = append(got, fmt.Sprintf("%d %s-%s#%d [%s,%s)", o.Index, o.Info.Start, o.Info.Stop, o.Info.ID, o.Range.Start, o.Range.Stop))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("Overlapping(%q, %q) (-want +got)\n%s", c.start, c.stop, diff)
		}
	}
}

func TestSplitRange(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		start, stop string
		n           int
		want        []string // starts of the parts after the first
	}{
		{"", "", 4, []string{"\x40", "\x80", "\xc0"}},
		{"", "\x80", 2, []string{"\x40"}},
		{"user/a", "user/c", 2, []string{"user/b"}},
		{"user/a", "user/b", 2, []string{"user/a\x80"}},
		{"a", "a\x00", 4, nil},
		{"a", "a\x00\x00\x01", 2, []string{"a\x00\x00\x00\x80"}},
		{"\xff\xff\xff\xff\xff\xff\xff\xff", "", 3, nil},
		{"", "", 1, nil},
		{"", "", 0, nil},
	} {
		r := cell.Range{Start: []byte(c.start), Stop: []byte(c.stop)}
		parts := SplitRange(r, c.n)
		checkParts(t, r, parts, max(1, c.n))
		var got []string
		for _, p := range parts[1:] {
			got = append(got, string(p.Start))
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("SplitRange(%q, %q, %d) (-want +got)\n%s", c.start, c.stop, c.n, diff)
		}
	}
}
