package jobs

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/store"
)

// oneRegion is n rows of the access log in one region.
func oneRegion(n int) *jobstest.Memory {
	m := jobstest.NewMemory()
	rows := accessLogSource(n).Tables["access_log"].Rows
	m.Add("access_log", []store.FamilyDescriptor{store.NewFamily("l")}, nil, rows)
	return m
}

// TestHandoffMakesTheSameFiles exports a table of one region with a core left over,
// which encodes what another scans, and with none.
func TestHandoffMakesTheSameFiles(t *testing.T) {
	t.Parallel()
	spec := accessLog()
	spec.TargetFileBytes = 20_000
	src := oneRegion(5000)
	export := func(parallelism int) map[string][]byte {
		out := t.TempDir()
		m, err := Run(t.Context(), &RunOptions{
			Job: mustCompile(t, "log", spec, src.Tables["access_log"].Schema), Source: src, Out: out, Parallelism: parallelism,
			LogicalTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Now: func() time.Time { return time.Unix(1, 0) }, batchRows: 100,
		})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Files) < 6 || m.Totals[0].Rows != 5000 {
			t.Fatalf("%d files with %d rows: the test wants some of each format", len(m.Files), m.Totals[0].Rows)
		}
		return tree(t, out)
	}
	alone := export(1)
	for _, parallelism := range []int{2, 5} {
		if d := jobstest.Diff(alone, export(parallelism)); d != "" {
			t.Errorf("parallelism %d: %s", parallelism, d)
		}
	}
}

// TestHandoffReportsErrors: the error of a run is that of the scan or of the writing,
// whichever of the two goroutines has it, and nothing stays.
func TestHandoffReportsErrors(t *testing.T) {
	t.Parallel()
	spec := accessLog()
	spec.Columns[3].From = "l:agent" // no number
	src := oneRegion(1000)
	rows := src.Tables["access_log"].Rows
	for i := range rows[:900] {
		for j := range rows[i].Cells {
			if c := &rows[i].Cells[j]; string(c.Qualifier) == "agent" {
				*c = jobstest.Put("l", "agent", cell.Timestamp(5), "7")
			}
		}
	}
	out := t.TempDir()
	_, err := Run(t.Context(), &RunOptions{
		Job: mustCompile(t, "log", spec, src.Tables["access_log"].Schema), Source: src, Out: out, Parallelism: 2, batchRows: 10,
	})
	var refused *columnar.ConvertError
	if !errors.As(err, &refused) || string(refused.Row) != "r000900\x00" {
		t.Errorf("scan: Got %v, want what is wrong with row 900", err)
	}
	if left := tree(t, out); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
	spec.Columns[3].From, spec.TargetFileBytes = "l:status", 1
	full := errors.New("disk full")
	_, err = Run(t.Context(), &RunOptions{
		Job: mustCompile(t, "log", spec, src.Tables["access_log"].Schema), Source: src, Target: fillingTarget{localTarget(t, out), full}, Parallelism: 2, batchRows: 10,
	})
	if !errors.Is(err, full) {
		t.Errorf("write: Got %v, want %v", err, full)
	}
	if left := tree(t, out); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// fillingTarget has room for five files a run.
type fillingTarget struct {
	target.Target
	full error
}

func (f fillingTarget) Begin(ctx context.Context, dir, id string) (target.Upload, error) {
	u, err := f.Target.Begin(ctx, dir, id)
	return &fillingUpload{Upload: u, full: f.full}, err
}

type fillingUpload struct {
	target.Upload
	full  error
	files atomic.Int32
}

func (u *fillingUpload) Create(ctx context.Context, name string) (io.WriteCloser, error) {
	if u.files.Add(1) > 5 {
		return nil, u.full
	}
	return u.Upload.Create(ctx, name)
}

func localTarget(t *testing.T, dir string) target.Target {
	t.Helper()
	l, err := target.CreateLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	})
	return l
}
