package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// sized is a Source whose rows take 100 bytes each.
type sized struct {
	*jobstest.Memory
	err error
}

func (s sized) RangeBytes(_ context.Context, table string, families []string, rows cell.Range) (int64, error) {
	n := int64(0)
	for _, r := range s.Tables[table].Rows {
		if rows.Contains(r.Key) {
			n += 100
		}
	}
	return n, s.err
}

// TestPlan compares plans with what the run then does: exact where every row was
// in the sample, near where it is extrapolated, and less where nothing tells.
func TestPlan(t *testing.T) {
	t.Parallel()
	const n = 40000
	src := accessLogSource(n)
	job := mustCompile(t, "access_log", accessLog(), nil)
	m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		src    instant.Source
		sample int64
		basis  string
	}{
		"counted":      {src, 0, Counted},
		"estimated":    {sized{src, nil}, 9000, Estimated},
		"at least":     {src, 9000, AtLeast},
		"unknown size": {sized{src, store.ErrUnsupported}, 9000, AtLeast},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, err := Plan(t.Context(), &PlanOptions{Job: job, Source: tt.src, SampleRows: tt.sample})
			if err != nil {
				t.Fatal(err)
			}
			if p.Basis != tt.basis || len(p.Splits) != 3 || p.Sequence != 42 {
				t.Fatalf("Got %+v, want %s of 3 splits", p, tt.basis)
			}
			if tt.basis == AtLeast {
				if p.Count < 9000 || p.Count >= n {
					t.Errorf("Got at least %d rows of %d", p.Count, n)
				}
				return
			}
			if off := float64(p.Count)/n - 1; off < -0.001 || off > 0.001 || (tt.basis == Counted && off != 0) {
				t.Errorf("Got %d rows, want %d", p.Count, n)
			}
			for _, f := range p.Formats {
				total := m.Totals[slices.IndexFunc(m.Totals, func(t Total) bool { return t.Format == f.Format })]
				// A sample's dictionaries and footer count as if they grew with the
				// rows, which shows in files as small as these.
				if ratio := float64(f.Bytes) / float64(total.Bytes); ratio < 0.8 || ratio > 1.5 || f.Files != total.Files {
					t.Errorf("%s: got %d bytes in %d files, the run wrote %d in %d", f.Format, f.Bytes, f.Files, total.Bytes, total.Files)
				}
			}
		})
	}
}

// TestPlanFiles has a target size that cuts a region into several files.
func TestPlanFiles(t *testing.T) {
	t.Parallel()
	spec := accessLog()
	spec.Formats, spec.TargetFileBytes = []string{Arrow}, 500_000
	p, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", spec, nil), Source: accessLogSource(40000)})
	if err != nil {
		t.Fatal(err)
	}
	want := 0
	for _, s := range p.Splits {
		want += int((s.Formats[0].Bytes + 499_999) / 500_000)
	}
	if p.Formats[0].Files != want || want < 4 {
		t.Errorf("Got %d files for %d bytes, want %d", p.Formats[0].Files, p.Formats[0].Bytes, want)
	}
}

func TestPlanEmptyAndFailing(t *testing.T) {
	t.Parallel()
	job := mustCompile(t, "access_log", accessLog(), nil)
	p, err := Plan(t.Context(), &PlanOptions{Job: job, Source: accessLogSource(0)})
	if err != nil {
		t.Fatal(err)
	}
	if p.Count != 0 || p.Basis != Counted || p.Formats[0].Files != 1 || p.Formats[1].Files != 1 {
		t.Errorf("Got %+v, want one file of each format", p)
	}
	bad := accessLogSource(30)
	bad.Tables["access_log"].Rows[20].Cells[1] = jobstest.Put("l", "bytes", 1, "many")
	var refused *columnar.ConvertError
	if _, err := Plan(t.Context(), &PlanOptions{Job: job, Source: bad}); !errors.As(err, &refused) {
		t.Errorf("Got %v, want a ConvertError", err)
	}
	if _, err := Plan(t.Context(), &PlanOptions{Job: job, Source: jobstest.NewMemory()}); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
	gone := errors.New("gone")
	if _, err := Plan(t.Context(), &PlanOptions{Job: job, Source: sized{accessLogSource(50), gone}, SampleRows: 10}); !errors.Is(err, gone) {
		t.Errorf("Got %v, want that of the Sizer", err)
	}
}

// TestPlanCells cuts the sample between rows, however many cells one has.
func TestPlanCells(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	wide := jobstest.Row("wide")
	for i := range 1000 {
		wide.Cells = append(wide.Cells, jobstest.Put("f", fmt.Sprintf("%04d", i), 1, "v"))
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, nil, []cell.Row{wide, jobstest.Row("z", jobstest.Put("f", "q", 1, "v"))})
	job := mustCompile(t, "j", &Spec{Table: "t", Rows: "cell", Columns: []columnar.ColumnSpec{{Name: "v", From: "$value", Type: "string"}}}, nil)
	p, err := Plan(t.Context(), &PlanOptions{Job: job, Source: src, SampleRows: 10})
	if err != nil {
		t.Fatal(err)
	}
	if d := jobstest.Diff(int64(1000), p.Count); d != "" || p.Basis != AtLeast {
		t.Errorf("Got %d rows, %s, want the whole first row and at least", p.Count, p.Basis)
	}
}

// TestPlanSorted: the files of a job that is sorted hold rows of all regions.
func TestPlanSorted(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(400)
	spec.Sort = []SortColumn{{Column: "v"}}
	for name, by := range map[string][]string{"whole": nil, "partitions": {"truth"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := *spec
			spec.PartitionBy, spec.MaxPartitions = by, 2*len(by)
			p, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", &spec, nil), Source: src})
			if err != nil {
				t.Fatal(err)
			}
			m, _ := published(t, src, &spec, RunOptions{})
			if p.Basis != Counted || len(p.Splits) != 4 || p.Formats[0].Files != m.Totals[0].Files || p.Splits[0].Formats[0].Files != 0 {
				t.Errorf("Got %+v, and the run wrote %+v", p, m.Totals)
			}
		})
	}
}

// TestPlanWhere: rows that the conditions leave out are in the sample.
func TestPlanWhere(t *testing.T) {
	t.Parallel()
	src, spec := partitioned(400)
	spec.PartitionBy, spec.MaxPartitions = nil, 0
	spec.Where = []columnar.Predicate{{Column: "v", Op: "in", Values: []string{"v1", "v399"}}}
	p, err := Plan(t.Context(), &PlanOptions{Job: mustCompile(t, "j", spec, nil), Source: sized{src, nil}, SampleRows: 50})
	if err != nil {
		t.Fatal(err)
	}
	if p.Basis != Estimated || p.Splits[0].Count != 2 || p.Splits[2].Count != 0 {
		t.Errorf("Got %+v, want one row of the first 50 of 100, twice, and none of the others", p)
	}
}
