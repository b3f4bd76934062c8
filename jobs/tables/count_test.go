package tables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/work"
	"sluice/store"
)

// TestCountSmallCells: of a wide row of small cells, a count and a comparison hold few at a
// time: each takes several times what its key and value do.
func TestCountSmallCells(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t)
	const cells = 200_000
	var ops []cell.Op
	for i := range cells {
		ops = append(ops, jobstest.PutOp("f", fmt.Sprintf("%08d", i), 1, "12345678"))
	}
	jobstest.Mutate(t, e, "t", "row", ops...)
	src := &watched{Source: jobstest.SnapshotOf(t, e)}
	got, err := Count(t.Context(), &CountOptions{Source: src, Table: "t"})
	if err != nil || got.Rows != 1 || got.Cells != cells {
		t.Errorf("Got %+v, %v", got, err)
	}
	same, err := Compare(t.Context(), &CompareOptions{Left: src, LeftTable: "t", Right: src, RightTable: "t"})
	if err != nil || same.Same != 1 || same.LeftCells != cells {
		t.Errorf("Got %+v, %v", same, err)
	}
	const header = 88 // of a cell.Cell
	if bytes := src.most * (header + 17); bytes > 8<<20 {
		t.Errorf("%d cells were in memory at a time, about %d bytes", src.most, bytes)
	}
}

// watched is a source that looks how many cells a Row has.
type watched struct {
	instant.Source
	most int
}

// Scan implements store.Reader.
func (w *watched) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return &watchedScanner{w.Source.Scan(ctx, s), w}
}

type watchedScanner struct {
	store.Scanner
	by *watched
}

// Next implements store.Scanner.
func (s *watchedScanner) Next() bool {
	ok := s.Scanner.Next()
	if ok {
		s.by.most = max(s.by.most, len(s.Row().Cells))
	}
	return ok
}

// TestCountIsTable counts random tables of random regions, rows in parts of any
// size, and compares with what was written and not deleted, counted here.
func TestCountIsTable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		key := rapid.StringMatching(`[abc\x00]{1,2}`)
		splits := rapid.SliceOfNDistinct(key, 0, 3, rapid.ID[string]).Draw(rt, "splits")
		e := jobstest.OpenMemory(t, splits...)
		type column struct {
			row, family, qualifier string
			at                     cell.Timestamp
		}
		model, masked := map[column]string{}, map[column]bool{}
		for range rapid.IntRange(0, 40).Draw(rt, "writes") {
			c := column{
				row: key.Draw(rt, "row"), family: rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "family"),
				qualifier: rapid.SampledFrom([]string{"", "a", "b"}).Draw(rt, "qualifier"), at: cell.Timestamp(rapid.IntRange(1, 3).Draw(rt, "time")),
			}
			if rapid.IntRange(0, 3).Draw(rt, "delete") == 0 {
				jobstest.Mutate(t, e, "t", c.row, cell.Op{Type: cell.OpDelete, Family: c.family, Qualifier: []byte(c.qualifier), Time: c.at})
				masked[c] = true
				delete(model, c)
				continue
			}
			value := rapid.StringN(0, 9, -1).Draw(rt, "value")
			jobstest.Mutate(t, e, "t", c.row, jobstest.PutOp(c.family, c.qualifier, c.at, value))
			if !masked[c] { // a marker masks what is put later, too
				model[c] = value
			}
		}
		families := rapid.SampledFrom([][]string{nil, {"f"}, {"f", "g"}}).Draw(rt, "families")
		rows := cell.Range{Start: []byte(rapid.StringMatching(`[abc]?`).Draw(rt, "start"))}
		got, err := Count(t.Context(), &CountOptions{
			Source: jobstest.SnapshotOf(t, e), Table: "t", Rows: rows, Families: families, Parallelism: rapid.IntRange(0, 3).Draw(rt, "parallelism"),
			partBytes: rapid.SampledFrom([]int{1, 10, 0}).Draw(rt, "part"),
		})
		if err != nil {
			rt.Fatal(err)
		}
		read := func(c column) bool {
			return rows.Contains([]byte(c.row)) && (families == nil || slices.Contains(families, c.family))
		}
		count := func(in func(column) bool) (n Counts) {
			seen := map[string]bool{}
			for c, value := range model {
				if read(c) && in(c) {
					seen[c.row] = true
					n.Cells++
					n.Bytes += int64(20 + len(c.row) + len(c.family) + len(c.qualifier) + len(value))
				}
			}
			n.Rows = int64(len(seen))
			return n
		}
		if d := cmp.Diff(count(func(column) bool { return true }), got.Counts); d != "" {
			rt.Fatalf("all (-want +got)\n%s", d)
		}
		for _, f := range got.Families {
			if d := cmp.Diff(count(func(c column) bool { return c.family == f.Family }), f.Counts); d != "" {
				rt.Fatalf("family %s (-want +got)\n%s", f.Family, d)
			}
		}
		stop := rows.Start
		for _, r := range got.Regions {
			if !bytes.Equal(r.Rows.Start, stop) {
				rt.Fatalf("a region begins at %q, the one before ends at %q", r.Rows.Start, stop)
			}
			stop = r.Rows.Stop
			if d := cmp.Diff(count(func(c column) bool { return r.Rows.Contains([]byte(c.row)) }), r.Counts); d != "" {
				rt.Fatalf("region %q (-want +got)\n%s", r.Rows.Start, d)
			}
		}
		if len(stop) != 0 {
			rt.Fatalf("the last region ends at %q", stop)
		}
	})
}

// TestCount: versions, counters, what is masked, the instant, and progress.
func TestCount(t *testing.T) {
	t.Parallel()
	e := jobstest.OpenMemory(t, "m")
	jobstest.Mutate(t, e, "t", "a", jobstest.PutOp("f", "x", 1, "1"), jobstest.PutOp("f", "x", 2, "2"), jobstest.PutOp("g", "y", 1, "3"))
	jobstest.Mutate(t, e, "t", "m", cell.Op{Type: cell.OpIncrement, Family: "n", Qualifier: []byte("hits"), Time: 5, Delta: 7})
	jobstest.Mutate(t, e, "t", "z", jobstest.PutOp("f", "x", 1, "1"), cell.Op{Type: cell.OpDeleteFamily, Family: "f", Time: 9})
	s := jobstest.SnapshotOf(t, e)
	jobstest.Mutate(t, e, "t", "late", jobstest.PutOp("f", "x", 1, "1"))
	for _, c := range []struct {
		o       CountOptions
		want    Counts
		regions []int64 // rows
	}{
		{CountOptions{}, Counts{Rows: 2, Cells: 4, Bytes: 3*(20+1+1+1+1) + 20 + 1 + 1 + 4 + 8}, []int64{1, 1}},
		{CountOptions{Versions: 1}, Counts{Rows: 2, Cells: 3, Bytes: 2*24 + 34}, []int64{1, 1}},
		{CountOptions{Families: []string{"g"}}, Counts{Rows: 1, Cells: 1, Bytes: 24}, []int64{1, 0}},
		{CountOptions{Rows: cell.Range{Stop: []byte("m")}}, Counts{Rows: 1, Cells: 3, Bytes: 72}, []int64{1}},
		{CountOptions{Rows: cell.Range{Start: []byte("x"), Stop: []byte("y")}}, Counts{}, []int64{0}},
	} {
		var last work.Progress
		c.o.Source, c.o.Table, c.o.Progress = s, "t", func(p work.Progress) { last = p }
		got, err := Count(t.Context(), &c.o)
		if err != nil {
			t.Fatal(err)
		}
		var rows []int64
		for _, r := range got.Regions {
			rows = append(rows, r.Counts.Rows)
			if r.Stored != -1 {
				t.Errorf("%+v: %d bytes are stored, says a source that does not know", c.o, r.Stored)
			}
		}
		if d := cmp.Diff(c.want, got.Counts) + cmp.Diff(c.regions, rows); d != "" || got.Sequence != s.Sequence() {
			t.Errorf("families %v, rows %q, versions %d at %d (-want +got)\n%s", c.o.Families, c.o.Rows, c.o.Versions, got.Sequence, d)
		}
		if last.Rows != got.Rows || last.RegionsDone != len(rows) || last.Done != 1 {
			t.Errorf("the last progress is %+v, of %d rows", last, got.Rows)
		}
	}
	for _, c := range []struct {
		o    CountOptions
		want error
	}{
		{CountOptions{Table: "u"}, store.ErrTableNotFound},
		{CountOptions{Table: "t", Families: []string{"h"}}, store.ErrFamilyNotFound},
		{CountOptions{Table: "t", Versions: -1}, store.ErrInvalidArgument},
	} {
		c.o.Source = s
		if _, err := Count(t.Context(), &c.o); !errors.Is(err, c.want) {
			t.Errorf("Got %v, want %v", err, c.want)
		}
	}
	if _, err := Count(t.Context(), &CountOptions{Table: "t"}); err == nil {
		t.Error("no Source is no error")
	}
}

// TestCountSaysWhatItCannotTrust: a scan that fails and an instant that was lost are
// errors, not smaller counts.
func TestCountSaysWhatItCannotTrust(t *testing.T) {
	t.Parallel()
	m := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 10 {
		rows = append(rows, jobstest.Row(fmt.Sprintf("%02d", i), jobstest.Put("f", "a", 1, "v")))
	}
	m.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"05"}, rows)
	if _, err := Count(t.Context(), &CountOptions{Source: jobstest.Lost{Memory: m}, Table: "t"}); !errors.Is(err, jobstest.ErrLost) {
		t.Errorf("Got %v, want errLost", err)
	}
	m.Scanned = func(row []byte) error {
		if string(row) == "07" {
			return store.ErrCorrupt
		}
		return nil
	}
	if _, err := Count(t.Context(), &CountOptions{Source: m, Table: "t"}); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Got %v, want ErrCorrupt", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Count(ctx, &CountOptions{Source: m, Table: "t"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Got %v, want context.Canceled", err)
	}
}
