package tables

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
)

// TestCompareFindsDifferences compares random tables that are alike, with other
// regions and rows in parts of any size, and what was found with what was written,
// compared here.
func TestCompareFindsDifferences(t *testing.T) {
	t.Parallel()
	type coordinates struct {
		row, family, qualifier string
		at                     cell.Timestamp
	}
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[abc\x00]{1,2}`)
		splits := rapid.SliceOfNDistinct(key, 0, 3, rapid.ID[string])
		left, right := jobstest.OpenMemory(t, splits.Draw(rt, "left splits")...), jobstest.OpenMemory(t, splits.Draw(rt, "right splits")...)
		models := [2]map[coordinates]string{{}, {}}
		write := func(side int, c coordinates, value string) {
			models[side][c] = value
			jobstest.Mutate(t, []*memstore.Store{left, right}[side], "t", c.row, jobstest.PutOp(c.family, c.qualifier, c.at, value))
		}
		for range rapid.IntRange(0, 30).Draw(rt, "writes") {
			c := coordinates{
				row: key.Draw(rt, "row"), family: rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "family"),
				qualifier: rapid.SampledFrom([]string{"", "a"}).Draw(rt, "qualifier"), at: cell.Timestamp(rapid.IntRange(1, 2).Draw(rt, "time")),
			}
			value := rapid.SampledFrom([]string{"", "v", "vv"}).Draw(rt, "value")
			where := rapid.IntRange(0, 9).Draw(rt, "where")
			if where != 0 {
				write(0, c, value)
			}
			if where != 1 {
				write(1, c, value)
			}
		}
		families := rapid.SampledFrom([][]string{nil, {"g"}}).Draw(rt, "families")
		rows := cell.Range{Stop: []byte(rapid.StringMatching(`[bc]?`).Draw(rt, "stop"))}
		got, err := Compare(t.Context(), &CompareOptions{
			Left: jobstest.SnapshotOf(t, left), Right: jobstest.SnapshotOf(t, right), LeftTable: "t", Rows: rows, Families: families, Raw: rapid.Bool().Draw(rt, "raw"),
			Differences: 3, Parallelism: 2, partBytes: rapid.SampledFrom([]int{1, 5, 0}).Draw(rt, "part"),
		})
		if err != nil {
			rt.Fatal(err)
		}
		// The rows of both sides, each as its cells.
		all := map[string][2]map[coordinates]string{}
		for side, model := range models {
			for c, value := range model {
				if !rows.Contains([]byte(c.row)) || families != nil && !slices.Contains(families, c.family) {
					continue
				}
				sides, ok := all[c.row]
				if !ok {
					sides = [2]map[coordinates]string{{}, {}}
				}
				sides[side][c] = value
				all[c.row] = sides
			}
		}
		var want ComparedRows
		var differ []string
		for row, sides := range all {
			switch {
			case len(sides[1]) == 0:
				want.OnlyLeft++
			case len(sides[0]) == 0:
				want.OnlyRight++
			case cmp.Equal(sides[0], sides[1]):
				want.Same++
				continue
			default:
				want.Different++
			}
			differ = append(differ, row)
		}
		if d := cmp.Diff(want, got.ComparedRows); d != "" {
			rt.Fatalf("(-want +got)\n%s", d)
		}
		slices.Sort(differ)
		for i, d := range got.Differences {
			if string(d.Row) != differ[i] {
				rt.Fatalf("difference %d is row %q, want %q", i, d.Row, differ[i])
			}
			for side, c := range []*cell.Cell{d.Left, d.Right} {
				if c == nil {
					continue
				}
				at := coordinates{row: differ[i], family: c.Family, qualifier: string(c.Qualifier), at: c.Time}
				here, there := models[side], models[1-side]
				if v, ok := here[at]; !ok || v != string(c.Value) {
					rt.Fatalf("%v: side %d has no such cell", &d, side)
				}
				if v, ok := there[at]; ok && v == string(c.Value) {
					rt.Fatalf("%v: both sides have this cell", &d)
				}
			}
			if d.Left == nil && d.Right == nil {
				rt.Fatalf("%v: nothing differs", &d)
			}
		}
		if len(got.Differences) != min(3, len(differ)) || got.Equal() != (len(differ) == 0) {
			rt.Fatalf("%d differences are named, equal %t; %d rows differ", len(got.Differences), got.Equal(), len(differ))
		}
		for _, r := range got.Ranges {
			equal := r.Different+r.OnlyLeft+r.OnlyRight == 0
			if equal != (r.LeftSHA256 == r.RightSHA256) {
				rt.Fatalf("range %q: equal %t, digests %s and %s", r.Rows, equal, r.LeftSHA256, r.RightSHA256)
			}
		}
	})
}

// TestCompare: counters, times to live, delete markers, families, and errors.
func TestCompare(t *testing.T) {
	t.Parallel()
	now := cell.Timestamp(1000)
	e, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return now }})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	jobstest.CreateTable(t, e, "t", "m")
	jobstest.CreateTable(t, e, "u")
	if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: "other", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"t", "u"} {
		jobstest.Mutate(t, e, table, "a", jobstest.PutOp("f", "x", 1, "1"), jobstest.PutOp("f", "x", 2, "2"))
		jobstest.Mutate(t, e, table, "n", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 5, Delta: 3})
	}
	compare := func(o CompareOptions) *Comparison {
		t.Helper()
		s := jobstest.SnapshotOf(t, e)
		o.Left, o.Right, o.LeftTable, o.RightTable = s, s, "t", "u"
		c, err := Compare(t.Context(), &o)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	var last work.Progress
	if c := compare(CompareOptions{Progress: func(p work.Progress) { last = p }}); !c.Equal() || c.Same != 2 || len(c.Ranges) != 2 || last.Rows != 2 || last.Done != 1 {
		t.Errorf("Got %+v, %+v", c, last)
	}
	jobstest.Mutate(t, e, "u", "z", cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 9})
	if c := compare(CompareOptions{}); !c.Equal() {
		t.Errorf("a delete marker that masks nothing is seen: %v", c.Differences)
	}
	if c := compare(CompareOptions{Raw: true}); c.OnlyRight != 1 || c.Differences[0].Left != nil || c.Differences[0].Right.Kind != cell.KindDeleteFamily {
		t.Errorf("raw: Got %+v", c)
	}
	jobstest.Mutate(t, e, "u", "n", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("c"), Time: 5, Delta: 1})
	c := compare(CompareOptions{})
	if c.Different != 1 || len(c.Differences) != 1 {
		t.Fatalf("Got %+v", c)
	}
	if d, want := c.Differences[0].String(), `n: n:c at 5, Put, "\x00\x00\x00\x00\x00\x00\x00\x03", and n:c at 5, Put, "\x00\x00\x00\x00\x00\x00\x00\x04" on the right`; d != want {
		t.Errorf("Got %s, want %s", d, want)
	}
	if c := compare(CompareOptions{Families: []string{"f"}}); !c.Equal() {
		t.Errorf("family f: Got %v", c.Differences)
	}
	// What expires between the two reads is no difference.
	jobstest.Mutate(t, e, "t", "ttl", cell.Op{Type: cell.OpPut, Family: "f", Qualifier: []byte("x"), Time: 1000, Value: []byte("v"), TTL: 10})
	if c := compare(CompareOptions{}); c.OnlyLeft != 1 {
		t.Errorf("before it expires: Got %+v", c)
	}
	s := jobstest.SnapshotOf(t, e)
	expiring := expiringSource{s, func() { now = 2000 }}
	c, err = Compare(t.Context(), &CompareOptions{Left: expiring, Right: s, LeftTable: "t", RightTable: "u", Families: []string{"f"}, Parallelism: 1})
	if err != nil || !c.Equal() {
		t.Errorf("after it has expired: Got %+v, %v", c, err)
	}

	for _, test := range []struct {
		o    CompareOptions
		want error
	}{
		{CompareOptions{LeftTable: "none"}, store.ErrTableNotFound},
		{CompareOptions{LeftTable: "t", RightTable: "none"}, store.ErrTableNotFound},
		{CompareOptions{LeftTable: "t", RightTable: "other"}, store.ErrFamilyNotFound},
		{CompareOptions{LeftTable: "other", RightTable: "t"}, store.ErrFamilyNotFound},
		{CompareOptions{LeftTable: "t", RightTable: "u", Families: []string{"h"}}, store.ErrFamilyNotFound},
	} {
		test.o.Left, test.o.Right = s, s
		if _, err := Compare(t.Context(), &test.o); !errors.Is(err, test.want) {
			t.Errorf("%s, %s: Got %v, want %v", test.o.LeftTable, test.o.RightTable, err, test.want)
		}
	}
	if _, err := Compare(t.Context(), &CompareOptions{}); err == nil || !strings.Contains(err.Error(), "CompareOptions") {
		t.Errorf("Got %v", err)
	}
}

// Cells that differ in their own times to live alone say so.
func TestDifferenceNamesTTL(t *testing.T) {
	t.Parallel()
	left := cell.Cell{Family: "f", Qualifier: []byte("q"), Time: 5, Kind: cell.KindPut, Value: []byte("v"), TTL: 4000}
	right := left
	right.TTL = 0
	d := &Difference{Row: []byte("r"), Left: &left, Right: &right}
	if got, want := d.String(), `r: f:q at 5, Put, "v" with a TTL of 4000 ms, and f:q at 5, Put, "v" without a TTL of its own on the right`; got != want {
		t.Errorf("Got %s, want %s", got, want)
	}
}

// expiringSource sets the clock forward behind its first scan of a whole region.
type expiringSource struct {
	store.Snapshot
	expire func()
}

func (s expiringSource) Scan(ctx context.Context, sc *store.Scan) store.Scanner {
	defer s.expire()
	return s.Snapshot.Scan(ctx, sc)
}

// TestCompareSaysWhatItCannotTrust: a scan that fails on either side, and an instant
// that was lost, are errors and not differences.
func TestCompareSaysWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	good, bad := jobstest.NewMemory(), jobstest.NewMemory()
	for _, m := range []*jobstest.Memory{good, bad} {
		m.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"b"}, []cell.Row{
			jobstest.Row("a", jobstest.Put("f", "x", 1, "v")), jobstest.Row("b", jobstest.Put("f", "x", 1, "v")), jobstest.Row("c", jobstest.Put("f", "x", 1, "v")),
		})
	}
	bad.Scanned = func(row []byte) error {
		if string(row) == "c" {
			return store.ErrCorrupt
		}
		return nil
	}
	for _, sides := range [][2]instant.Source{{good, bad}, {bad, good}} {
		if _, err := Compare(t.Context(), &CompareOptions{Left: sides[0], Right: sides[1], LeftTable: "t"}); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Got %v, want ErrCorrupt", err)
		}
	}
	if _, err := Compare(t.Context(), &CompareOptions{Left: good, Right: jobstest.Lost{Memory: good}, LeftTable: "t"}); !errors.Is(err, jobstest.ErrLost) {
		t.Errorf("Got %v, want errLost", err)
	}
}
