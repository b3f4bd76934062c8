package jobs

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"sluice/cell"
	"sluice/internal/roomy"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

func TestMain(m *testing.M) {
	roomy.Use()
	goleak.VerifyTestMain(m)
}

// clock returns times one second apart, to whichever goroutine asks.
func clock() func() time.Time {
	var mu sync.Mutex
	t := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return func() time.Time {
		mu.Lock()
		defer mu.Unlock()
		t = t.Add(time.Second)
		return t
	}
}

// accessLog is the job of examples/access-log.yaml with the row key on top.
func accessLog() *Spec {
	return &Spec{
		Table: "access_log",
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "client", From: "l:client", Type: "string"},
			{Name: "time", From: "$timestamp", Type: "timestamp"},
			{Name: "status", From: "l:status", Type: "int64", Coding: "text"},
			{Name: "bytes", From: "l:bytes", Type: "int64", Coding: "text"},
		},
		Formats: []string{Parquet, Arrow},
	}
}

// accessLogSource has n rows in three regions, of which the last has none; every
// third row has no bytes.
func accessLogSource(n int) *jobstest.Memory {
	m := jobstest.NewMemory()
	var rows []cell.Row
	for i := range n {
		cells := []cell.Cell{jobstest.Put("l", "agent", 5, "curl")}
		if i%3 != 0 {
			cells = append(cells, jobstest.Put("l", "bytes", 5, fmt.Sprint(i*10)))
		}
		cells = append(cells, jobstest.Put("l", "client", 1700000000000+cell.Timestamp(i), fmt.Sprintf("10.0.0.%d", i%7)), jobstest.Put("l", "status", 5, "200"))
		rows = append(rows, jobstest.Row(fmt.Sprintf("r%06d\x00", i), cells...))
	}
	m.Add("access_log", []store.FamilyDescriptor{store.NewFamily("l")}, []string{fmt.Sprintf("r%06d", n/2), "s"}, rows)
	m.Progress(&store.Source{Pipeline: "p", Topic: "access-log", ClusterID: "c", TopicID: [16]byte{1}}, 3, &store.Progress{Next: 77})
	return m
}

// readAll reads a file of a run back as one row of texts each; null is "-".
func readAll(t *testing.T, dir string, f *File) [][]string {
	t.Helper()
	return readOf(t, &Manifest{}, dir, f)
}

// readOf is readAll with the columns that m says its directory has.
func readOf(t *testing.T, m *Manifest, dir string, f *File) [][]string {
	t.Helper()
	file, err := os.Open(filepath.Join(dir, f.Path))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r, err := m.read(f, file, info.Size())
	if err != nil {
		t.Fatalf("read %s: %v", f.Path, err)
	}
	defer r.Close()
	var rows [][]string
	for {
		b, err := r.Next()
		if err == io.EOF {
			return rows
		}
		if err != nil {
			t.Fatalf("read %s: %v", f.Path, err)
		}
		for i := range b.Rows() {
			row := make([]string, len(b.Columns()))
			for c := range row {
				row[c] = text(b.Vector(c), i)
			}
			rows = append(rows, row)
		}
	}
}

func text(v *columnar.Vector, i int) string {
	switch _, isMap := v.Type().Map(); {
	case isMap && !v.IsNull(i):
		var entries []string
		for e, end := v.EntriesOf(i); e < end; e++ {
			entries = append(entries, text(v.Keys(), e)+"="+text(v.Values(), e))
		}
		return strings.Join(entries, ",")
	case v.IsNull(i):
		return "-"
	case v.Type().Storage() == columnar.Int64:
		return string(v.Type().AppendNumber(nil, v.Int64s()[i]))
	case v.Type().Storage() == columnar.Decimal128:
		return string(v.Type().AppendDecimal(nil, v.Decimals()[i]))
	case v.Type() == columnar.Float64:
		return fmt.Sprint(v.Float64s()[i])
	case v.Type() == columnar.Bool:
		return fmt.Sprint(v.Bool(i))
	}
	return string(v.Bytes(i))
}

// readFormat reads all files of one format in the manifest's order.
func readFormat(t *testing.T, dir string, m *Manifest, format string) [][]string {
	t.Helper()
	var rows [][]string
	for i := range m.Files {
		if m.Files[i].Format == format {
			rows = append(rows, readOf(t, m, dir, &m.Files[i])...)
		}
	}
	return rows
}

func TestRun(t *testing.T) {
	t.Parallel()
	const n = 20000
	src := accessLogSource(n)
	out := t.TempDir()
	job := mustCompile(t, "access_log", accessLog(), src.Tables["access_log"].Schema)
	var last work.Progress
	rec := new(Recorder)
	m, err := Run(t.Context(), &RunOptions{
		Job: job, Source: src, Out: out, Parallelism: 2, Engine: "mem", Version: "v0", Now: clock(), Recorder: rec,
		Progress: func(p work.Progress) { last = p },
	})
	if err != nil {
		t.Fatal(err)
	}
	var want [][]string
	for i := range n {
		b := fmt.Sprint(i * 10)
		if i%3 == 0 {
			b = "-"
		}
		want = append(want, []string{fmt.Sprintf("r%06d\x00", i), fmt.Sprintf("10.0.0.%d", i%7), fmt.Sprint((1700000000000 + i) * 1000), "200", b})
	}
	dir := filepath.Join(out, "access_log", "run="+m.LogicalTime.Format("20060102T150405Z")+"-"+m.RunID)
	for _, format := range []string{Parquet, Arrow} {
		if d := jobstest.Diff(want, readFormat(t, dir, m, format)); d != "" {
			t.Errorf("%s: %s", format, d)
		}
	}
	if len(m.Files) != 4 || last.RegionsDone != 3 || last.Rows != n || last.Files != 4 {
		t.Errorf("Got %d files and progress %+v, want 2 files in 2 of 3 regions", len(m.Files), last)
	}
	wantOffsets := []Offset{{Pipeline: "p", Topic: "access-log", ClusterID: "c", TopicID: "01" + strings.Repeat("00", 15), Partition: 3, Next: 77}}
	if d := jobstest.Diff(wantOffsets, m.Offsets); d != "" {
		t.Error(d)
	}
	if m.Files[0].MinRow != `r000000\x00` || m.Sequence != 42 || !cmp.Equal(m.SortedBy, []string{"key"}) {
		t.Errorf("Got first row %s, sequence %d, sorted by %v", m.Files[0].MinRow, m.Sequence, m.SortedBy)
	}
	if got := rec.Metrics(); got.Finished != 1 || got.Rows != n || got.Files != 4 || got.Failed != 0 {
		t.Errorf("Got metrics %+v", got)
	}
	for _, at := range []string{dir, filepath.Join(out, "access_log"), filepath.Join(dir, ManifestName), filepath.Join(out, "access_log", LatestName)} {
		r, err := Verify(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Err(); err != nil || !r.OK() || len(r.Files) != 4 || r.Dir != dir {
			t.Errorf("Verify(%s): %v, dir %s", at, err, r.Dir)
		}
	}
	if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Got %v for _tmp, want it gone", err)
	}
}

func TestRunCells(t *testing.T) {
	t.Parallel()
	src := jobstest.NewMemory()
	counter := func(f string) store.FamilyDescriptor {
		d := store.NewFamily(f)
		d.Counter = true
		return d
	}
	count := func(n uint64) string { return string(binary.BigEndian.AppendUint64(nil, n)) }
	wide := jobstest.Row("/wide")
	const cells = 20000 // more than a batch: the files, full after each, must not be cut inside the row
	for i := range cells {
		wide.Cells = append(wide.Cells, jobstest.Put("day", fmt.Sprintf("%05d", i), 7, count(uint64(i))))
	}
	src.Add("path_counts", []store.FamilyDescriptor{counter("day"), counter("hour")}, nil, []cell.Row{
		jobstest.Row("/a", jobstest.Put("day", "1", 1, count(3)), jobstest.Put("hour", "2", 2, count(1))), wide, jobstest.Row("/x", jobstest.Put("day", "1", 1, count(4))),
	})
	job := mustCompile(t, "path_counts", &Spec{
		Table: "path_counts", Rows: "cell", Families: []string{"day"}, Formats: []string{Arrow}, TargetFileBytes: 1,
		Columns: []columnar.ColumnSpec{
			{Name: "path", From: "$row", Type: "string"},
			{Name: "unit", From: "$family", Type: "string"},
			{Name: "bucket", From: "$qualifier", Type: "string"},
			{Name: "n", From: "$value", Type: "int64"},
			{Name: "newest", From: "$timestamp", Type: "timestamp"},
		},
	}, src.Tables["path_counts"].Schema)
	out := t.TempDir()
	m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	want := [][]string{{"/a", "day", "1", "3", "1000"}}
	for i := range cells {
		want = append(want, []string{"/wide", "day", fmt.Sprintf("%05d", i), fmt.Sprint(i), "7000"})
	}
	want = append(want, []string{"/x", "day", "1", "4", "1000"})
	r, err := Verify(t.Context(), filepath.Join(out, "path_counts"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
	if d := jobstest.Diff(want, readFormat(t, r.Dir, m, Arrow)); d != "" {
		t.Error(d)
	}
	if !cmp.Equal(m.SortedBy, []string{"path", "unit", "bucket"}) || len(m.Files) != 2 {
		t.Errorf("Got %d files sorted by %v, want 2", len(m.Files), m.SortedBy)
	}
}

func TestRunEmptyTable(t *testing.T) {
	t.Parallel()
	src := accessLogSource(0)
	out := t.TempDir()
	job := mustCompile(t, "access_log", accessLog(), nil)
	m, err := Run(t.Context(), &RunOptions{Job: job, Source: src, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	want := []Total{{Format: Arrow, Files: 1, Bytes: m.Totals[0].Bytes}, {Format: Parquet, Files: 1, Bytes: m.Totals[1].Bytes}}
	if d := jobstest.Diff(want, m.Totals); d != "" {
		t.Error(d)
	}
	r, err := Verify(t.Context(), filepath.Join(out, "access_log"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
}

// TestRunChunks cuts a region's files at a size that each batch passes.
func TestRunChunks(t *testing.T) {
	t.Parallel()
	src := accessLogSource(40000)
	spec := accessLog()
	spec.TargetFileBytes, spec.RowGroupBytes = 1000, 1000
	spec.StartRow, spec.StopRow = "r000100", "r039900"
	out := t.TempDir()
	m, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "j", spec, nil), Source: src, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	r, err := Verify(t.Context(), filepath.Join(out, "j"))
	if err != nil || !r.OK() {
		t.Fatalf("Verify: %v, %v", err, r.Err())
	}
	if len(m.Files) != 12 || m.Totals[0].Rows != 39800 {
		t.Errorf("Got %d files with %d rows, want 2 formats x 2 regions x 3 chunks and 39800", len(m.Files), m.Totals[0].Rows)
	}
	if m.Files[0].MinRow != `r000100\x00` {
		t.Errorf("Got first row %s", m.Files[0].MinRow)
	}
}

func TestRunAgain(t *testing.T) {
	t.Parallel()
	src := accessLogSource(10)
	job := mustCompile(t, "access_log", accessLog(), nil)
	at := time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	o := &RunOptions{Job: job, Source: src, Out: t.TempDir(), LogicalTime: at}
	first, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Run(t.Context(), o); !errors.Is(err, target.ErrExists) {
		t.Errorf("Got %v for the same run, want ErrExists", err)
	}
	o.LogicalTime = at.Add(time.Hour)
	second, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if second.PreviousRunID != first.RunID {
		t.Errorf("Got previous run %s, want %s", second.PreviousRunID, first.RunID)
	}
	// A run for an earlier time does not become the latest.
	o.LogicalTime = at.Add(-time.Hour)
	if _, err := Run(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	runs, err := List(t.Context(), o.Out)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range runs {
		got = append(got, fmt.Sprintf("%s %s %d rows %d files latest=%t %v", r.Job, r.LogicalTime.Format("15:04"), r.Rows, r.Files, r.Latest, r.Err))
	}
	want := []string{
		"access_log 01:00 10 rows 4 files latest=true <nil>",
		"access_log 00:00 10 rows 4 files latest=false <nil>",
		"access_log 23:00 10 rows 4 files latest=false <nil>",
	}
	if d := jobstest.Diff(want, got); d != "" {
		t.Error(d)
	}
}

// visible returns what lies in out, apart from _tmp.
func visible(t *testing.T, out string) []string {
	t.Helper()
	var names []string
	err := filepath.WalkDir(out, func(p string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !strings.Contains(p, "_tmp") {
			names = append(names, p)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

func TestRunErrors(t *testing.T) {
	t.Parallel()
	spec := accessLog()
	bad := accessLogSource(3000)
	bad.Tables["access_log"].Rows[2500].Cells[1] = jobstest.Put("l", "bytes", 1, "many")
	stop := errors.New("disk gone")
	failing := accessLogSource(3000)
	failing.Scanned = func(row []byte) error {
		if string(row) > "r002000" {
			return stop
		}
		return nil
	}
	gone := accessLogSource(1)
	gone.Tables["access_log"].Schema.Families = []store.FamilyDescriptor{store.NewFamily("m")}
	unsorted := accessLogSource(100)
	rows := unsorted.Tables["access_log"].Rows
	rows[3], rows[4] = rows[4], rows[3]
	for name, tt := range map[string]struct {
		src  *jobstest.Memory
		want string
		is   error
	}{
		"conversion": {bad, `export access_log: table access_log, row "r002500\x00", column bytes (l:bytes): value "many" is not int64 in coding text: not a decimal number`, nil},
		"scan":       {failing, "disk gone", stop},
		"no table":   {jobstest.NewMemory(), "access_log", store.ErrTableNotFound},
		"no family":  {gone, "l in table access_log", store.ErrFamilyNotFound},
		"unsorted":   {unsorted, `row "r000003\x00" after "r000004\x00"`, store.ErrCorrupt},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "access_log", spec, nil), Source: tt.src, Out: out})
			if err == nil || !strings.Contains(err.Error(), tt.want) || (tt.is != nil && !errors.Is(err, tt.is)) {
				t.Errorf("Got %v, want %q", err, tt.want)
			}
			if got := visible(t, out); len(got) > 0 {
				t.Errorf("Got %v, want nothing visible", got)
			}
		})
	}
}

func TestRunLostSource(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "access_log", accessLog(), nil), Source: jobstest.Lost{Memory: accessLogSource(100)}, Out: out})
	if !errors.Is(err, jobstest.ErrLost) {
		t.Errorf("Got %v, want errLost", err)
	}
	if got := visible(t, out); len(got) > 0 {
		t.Errorf("Got %v, want nothing visible", got)
	}
}

func TestRunCancelled(t *testing.T) {
	t.Parallel()
	src := accessLogSource(50000)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("the caller's reason")
	out := t.TempDir()
	_, err := Run(ctx, &RunOptions{
		Job: mustCompile(t, "access_log", accessLog(), nil), Source: src, Out: out,
		Progress: func(p work.Progress) {
			if p.Rows > 0 {
				cancel(why)
			}
		},
	})
	cancel(why)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, why) {
		t.Fatalf("Got %v, want context.Canceled and its cause", err)
	}
	if got := visible(t, out); len(got) > 0 {
		t.Errorf("Got %v, want nothing visible", got)
	}
	if runs, err := List(t.Context(), out); err != nil || len(runs) > 0 {
		t.Errorf("Got %v, %v, want no run", runs, err)
	}
}
