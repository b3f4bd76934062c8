package jobs

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// textsOf returns the rows of a batch as readFormat tells those of files.
func textsOf(b *columnar.Batch) [][]string {
	rows := make([][]string, b.Rows())
	for i := range rows {
		for c := range b.Columns() {
			rows[i] = append(rows[i], text(b.Vector(c), i))
		}
	}
	return rows
}

// readParts returns the rows of each part, which are read side by side.
func readParts(ctx context.Context, r *Reading) (parts [][][]string, err error) {
	parts = make([][][]string, len(r.Parts()))
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i := range parts {
		wg.Go(func() {
			errs[i] = r.Read(ctx, i, func(b *columnar.Batch) error {
				parts[i] = append(parts[i], textsOf(b)...)
				return nil
			})
		})
	}
	wg.Wait()
	return parts, errors.Join(errs...)
}

// I5: over random histories, a reading is what the table held when its snapshot was taken,
// while the table is written, split, merged and rewritten, and again when it is read again.
func TestReadingIsModelWhileTheTableMoves(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	cases := 0
	jobstest.Check(t, func(rt *rapid.T) {
		cases++
		m, d, take := newMovingTable(t, rt, db, cases)
		steps := rapid.Custom(drawStep)
		take(rapid.SliceOfN(steps, 0, 40).Draw(rt, "before"))
		job := mustCompile(t, "j", &Spec{Table: d.Name, PartitionBy: []string{"p"}, Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "string"}, {Name: "p", From: "f:p", Type: "string"}, {Name: "q", From: "f:q", Type: "string"}, {Name: "n", From: "n:q", Type: "int64"},
		}}, d)
		snapshot, err := db.Snapshot(t.Context())
		if err != nil {
			rt.Fatal(err)
		}
		want := m.rows()
		r, err := OpenReading(t.Context(), &ReadOptions{Job: job, Source: snapshot, BatchBytes: 1})
		if err != nil {
			rt.Fatal(err)
		}
		for _, during := range [][]step{rapid.SliceOfN(steps, 0, 20).Draw(rt, "during"), nil} {
			var got [][]string
			for i := range r.Parts() {
				before := len(got)
				if err := r.Read(t.Context(), i, func(b *columnar.Batch) error {
					got = append(got, textsOf(b)...)
					if len(during) == 0 {
						return nil
					}
					err := m.take(t, &during[0])
					during = during[1:]
					return err
				}); err != nil {
					rt.Fatal(err)
				}
				for _, row := range got[before:] {
					if !r.Parts()[i].Rows.Contains([]byte(row[0])) {
						rt.Fatalf("row %s is not of part %v", row[0], r.Parts()[i].Rows)
					}
				}
			}
			if d := cmp.Diff(want, got, cmpopts.EquateEmpty()); d != "" {
				rt.Fatalf("(-model +reading):\n%s", d)
			}
			take(during) // for which the reading was too short
		}
		if err := errors.Join(snapshot.Close(), db.DisableTable(t.Context(), d.Name), db.DropTable(t.Context(), d.Name)); err != nil {
			rt.Fatal(err)
		}
	})
}

// TestReadingIsRun: the parts of a reading are those of a run, and so are their rows, in
// batches that are bounded.
func TestReadingIsRun(t *testing.T) {
	t.Parallel()
	src := largeRegion(t)
	m, dir := published(t, src, largeSpec(), RunOptions{cutBytes: 400 << 10})
	want := readFormat(t, dir, m, Parquet)
	const most = 50 << 10
	r, err := OpenReading(t.Context(), &ReadOptions{Job: mustCompile(t, "j", largeSpec(), nil), Source: src, BatchBytes: most, cutBytes: 400 << 10})
	if err != nil {
		t.Fatal(err)
	}
	if files := len(m.Files) / 2; len(r.Parts()) != files || files < 3 {
		t.Errorf("Got %d parts, a run had %d", len(r.Parts()), files)
	}
	parts, err := readParts(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if got := slices.Concat(parts...); !slices.EqualFunc(want, got, slices.Equal) {
		t.Errorf("Got %d rows, others than the %d of a run", len(got), len(want))
	}
	if err := r.Read(t.Context(), 0, func(b *columnar.Batch) error {
		if n := b.Bytes(); n > most+2*packedBytes {
			t.Errorf("Got a batch of %d bytes", n)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestReadingEnds(t *testing.T) {
	t.Parallel()
	src := largeRegion(t)
	job := mustCompile(t, "j", largeSpec(), nil)
	r, err := OpenReading(t.Context(), &ReadOptions{Job: job, Source: src, BatchBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	if err := r.Read(t.Context(), 0, func(*columnar.Batch) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("Got %v", err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := r.Read(ctx, 0, func(*columnar.Batch) error { cancel(enough); return nil }); !errors.Is(err, enough) {
		t.Errorf("Got %v", err)
	}
	m := jobstest.NewMemory()
	m.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, nil)
	if r, err = OpenReading(t.Context(), &ReadOptions{Job: job, Source: jobstest.Lost{Memory: m}}); err != nil {
		t.Fatal(err)
	}
	if err := r.Read(t.Context(), 0, func(*columnar.Batch) error { return nil }); !errors.Is(err, jobstest.ErrLost) {
		t.Errorf("Got %v", err)
	}
}

func TestReadingRefuses(t *testing.T) {
	t.Parallel()
	spec := largeSpec()
	spec.Sort = []SortColumn{{Column: "n"}}
	_, err := OpenReading(t.Context(), &ReadOptions{Job: mustCompile(t, "j", spec, nil), Source: jobstest.NewMemory()})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "job j has sort") {
		t.Errorf("Got %v", err)
	}
	_, err = OpenReading(t.Context(), &ReadOptions{Job: mustCompile(t, "j", largeSpec(), nil), Source: jobstest.NewMemory()})
	if !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v", err)
	}
}
