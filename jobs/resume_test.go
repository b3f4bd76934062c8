package jobs

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/cell"
	"sluice/internal/thinned"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
	"sluice/store/memstore"
)

var errKilled = errors.New("killed")

// killing is a local target whose process dies at a step: from then on nothing has
// an effect any more, and the system has taken its locks away.
type killing struct {
	*target.Local
	die int   // the step, from 1; 0 = none
	err error // of a target that refuses everything from that step on, whose process lives; nil = it dies

	mu      sync.Mutex
	steps   []string // so far, by name
	dead    bool
	uploads []target.Resumable
	created []string // files
	noted   []string // notes that were kept
}

// step is one named moment; it returns errKilled from the last one on.
func (k *killing) step(format string, args ...any) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.dead && k.err != nil:
		return k.err
	case k.dead:
		return errKilled
	}
	k.steps = append(k.steps, fmt.Sprintf(format, args...))
	if len(k.steps) != k.die {
		return nil
	}
	k.dead = true
	if k.err != nil {
		return k.err
	}
	for _, u := range k.uploads {
		_ = u.Leave() // as the end of the process does: files are closed, locks go
	}
	return errKilled
}

// around does something between two steps.
func (k *killing) around(name string, do func() error) error {
	if err := k.step("before %s", name); err != nil {
		return err
	}
	if err := do(); err != nil || k.err != nil && name != "commit" { // what is refused is not done; of a commit the answer may be lost
		return err
	}
	return k.step("after %s", name)
}

func (k *killing) take(u target.Resumable) target.Resumable {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.uploads = append(k.uploads, u)
	return &killingUpload{Resumable: u, k: k}
}

func (k *killing) Begin(ctx context.Context, dir, id string) (u target.Upload, err error) {
	err = k.around("begin", func() error {
		if u, err = k.Local.Begin(ctx, dir, id); err == nil {
			u = k.take(u.(target.Resumable))
		}
		return err
	})
	return u, err
}

func (k *killing) Resume(ctx context.Context, dir, id string) (u target.Resumable, err error) {
	err = k.around("resume", func() error {
		if u, err = k.Local.Resume(ctx, dir, id); err == nil {
			u = k.take(u)
		}
		if errors.Is(err, target.ErrNotFound) {
			return nil
		}
		return err
	})
	if err == nil && u == nil {
		err = target.ErrNotFound
	}
	return u, err
}

func (k *killing) Update(ctx context.Context, name string, change func([]byte) ([]byte, error)) error {
	return k.around("update "+name, func() error { return k.Local.Update(ctx, name, change) })
}

type killingUpload struct {
	target.Resumable
	k *killing
}

func (u *killingUpload) Create(ctx context.Context, name string) (w io.WriteCloser, err error) {
	err = u.k.around("create "+name, func() error {
		w, err = u.Resumable.Create(ctx, name)
		u.k.mu.Lock()
		defer u.k.mu.Unlock()
		u.k.created = append(u.k.created, name)
		return err
	})
	return &killingFile{WriteCloser: w, k: u.k, name: name}, err
}

func (u *killingUpload) Note(ctx context.Context, name string, data []byte) error {
	return u.k.around("note "+name, func() error {
		err := u.Resumable.Note(ctx, name, data)
		if err == nil {
			u.k.mu.Lock()
			defer u.k.mu.Unlock()
			u.k.noted = append(u.k.noted, name)
		}
		return err
	})
}

func (u *killingUpload) Retain(ctx context.Context, keep map[string]int64) error {
	return u.k.around("retain", func() error { return u.Resumable.Retain(ctx, keep) })
}

func (u *killingUpload) Commit(ctx context.Context, name string, data []byte) error {
	return u.k.around("commit", func() error { return u.Resumable.Commit(ctx, name, data) })
}

func (u *killingUpload) Abort() error {
	if u.k.err != nil {
		return u.Resumable.Abort()
	}
	return u.k.around("abort", u.Resumable.Abort)
}

func (u *killingUpload) Leave() error {
	if u.k.err != nil {
		return u.Resumable.Leave()
	}
	return u.k.around("leave", u.Resumable.Leave)
}

type killingFile struct {
	io.WriteCloser
	k    *killing
	name string
	torn bool
}

// Write writes half, and then the rest.
func (f *killingFile) Write(b []byte) (n int, err error) {
	if f.torn {
		return f.WriteCloser.Write(b)
	}
	f.torn = true
	if n, err = f.WriteCloser.Write(b[:len(b)/2]); err != nil {
		return n, err
	}
	if err := f.k.step("half of %s", f.name); err != nil {
		return n, err
	}
	more, err := f.WriteCloser.Write(b[len(b)/2:])
	return n + more, err
}

func (f *killingFile) Close() error {
	return f.k.around("close "+f.name, f.WriteCloser.Close)
}

// resumeCase is a table and a job whose files are cut often, and not at the same
// rows in both formats; with seeds from 3 on they are divided into partitions.
func resumeCase(t *testing.T, seed uint64) (*Job, *jobstest.Memory) {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 24 + rng.IntN(8) {
		row := jobstest.Row(fmt.Sprintf("%c%03d", 'a'+rng.IntN(6), i))
		if seed >= 3 && i%4 > 0 {
			row.Cells = append(row.Cells, jobstest.Put("f", "half", 7, fmt.Sprint("a/", i%2)))
		}
		if rng.IntN(4) > 0 {
			row.Cells = append(row.Cells, jobstest.Put("f", "n", cell.Timestamp(i), fmt.Sprint(rng.Int64())))
		}
		row.Cells = append(row.Cells, jobstest.Put("f", "text", 7, strings.Repeat("x", rng.IntN(200))))
		rows = append(rows, row)
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"c", "e", "z"}, rows)
	spec := &Spec{
		Table: "t", Formats: []string{Parquet, Arrow}, TargetFileBytes: 700, RowGroupBytes: 1 << 10,
		Columns: []columnar.ColumnSpec{
			{Name: "key", From: "$row", Type: "bytes"},
			{Name: "n", From: "f:n", Type: "int64"},
			{Name: "text", From: "f:text", Type: "string"},
		},
	}
	if seed%2 == 1 {
		spec.Rows, spec.Columns = "cell", propertyColumns("cell")
	}
	switch {
	case seed >= 3 && spec.Rows == "cell":
		spec.PartitionBy = []string{"qualifier"}
	case seed >= 3:
		spec.Columns = append(spec.Columns, columnar.ColumnSpec{Name: "half", From: "f:half", Type: "string"})
		spec.PartitionBy, spec.MaxPartitions = []string{"half"}, 4
	}
	return mustCompile(t, "j", spec, src.Tables["t"].Schema), src
}

var resumeTime = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func resumeOptions(job *Job, src instant.Source, tg target.Target, parallelism int) *RunOptions {
	return &RunOptions{
		Job: job, Source: src, Target: tg, Parallelism: parallelism, LogicalTime: resumeTime, Checkpoint: "cp",
		Now: func() time.Time { return resumeTime }, batchRows: 3,
	}
}

// contents returns every file below dir, _tmp included.
func contents(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		files[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// sums makes contents short enough to print.
func sums(files map[string]string) map[string]string {
	for name, data := range files {
		if path.Ext(name) != ".json" {
			files[name] = fmt.Sprintf("%d bytes, %x", len(data), sha256.Sum256([]byte(data)))
		}
	}
	return files
}

// runKilled runs once in dir, killed at a step, and returns the target.
func runKilled(t *testing.T, job *Job, src instant.Source, dir string, die, parallelism int) (*killing, *Manifest, error) {
	t.Helper()
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	k := &killing{Local: l, die: die}
	m, err := Run(t.Context(), resumeOptions(job, src, k, parallelism))
	if e := l.Close(); e != nil {
		t.Fatal(e)
	}
	return k, m, err
}

// TestResumeKilled kills a run at every named step, and the runs that resume it at
// steps of their own: the last one leaves, byte for byte, what an uninterrupted run
// leaves, manifest and _latest.json included, and finished files are not written
// again.
func TestResumeKilled(t *testing.T) {
	t.Parallel()
	for seed := range thinned.Of[uint64](5, 2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			job, src := resumeCase(t, seed)
			one := 8
			if seed == 0 && !testing.Short() {
				one = 1 // it dies at every step
			}
			resumeKilled(t, job, src, seed, one)
		})
	}
}

// TestResumeKilledModes is TestResumeKilled of older versions and of histories, of
// which a row, or a column, may be in two batches.
func TestResumeKilledModes(t *testing.T) {
	t.Parallel()
	for i, c := range []struct{ mode, partition string }{
		{ModeVersions, ""}, {ModeHistory, ""}, {ModeVersions, "family"}, {ModeHistory, "op"},
	} {
		t.Run(strings.TrimSpace(c.mode+" "+c.partition), func(t *testing.T) {
			t.Parallel()
			job, src := modeCase(t, c.mode, c.partition)
			resumeKilled(t, job, src, uint64(i), 0)
		})
	}
}

// modeCase is resumeCase of a job with a mode: a table with versions and delete
// markers.
func modeCase(t *testing.T, mode, partition string) (*Job, instant.Source) {
	t.Helper()
	e, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return 1e12 }})
	if err != nil {
		t.Fatal(err)
	}
	f, g := store.NewFamily("f"), store.NewFamily("g")
	f.Versions, g.Versions = 4, 4
	d := &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f, g}}
	if err := e.CreateTable(t.Context(), d, [][]byte{[]byte("c"), []byte("e"), []byte("z")}); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(uint64(len(mode)), 3))
	for i := range 12 {
		m := &cell.Mutation{Table: "t", Row: fmt.Appendf(nil, "%c%03d", 'a'+i%6, i)}
		for v := range cell.Timestamp(4) {
			m.Put("f", []byte("text"), 10+v, []byte(strings.Repeat("x", rng.IntN(120))))
			m.Put("g", fmt.Appendf(nil, "q%d", v), 10+v, fmt.Appendf(nil, "%d", rng.Int64()))
		}
		switch i % 4 {
		case 0:
			m.DeleteColumn("f", []byte("text"), 11)
		case 1:
			m.DeleteFamily("g", 12)
		}
		if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	snapshot, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(snapshot.Close(), e.Close()); err != nil {
			t.Error(err)
		}
	})
	spec := &Spec{
		Table: "t", Rows: "cell", Mode: mode, Formats: []string{Parquet, Arrow}, TargetFileBytes: 700, RowGroupBytes: 1 << 10, Columns: slices.Clone(historyColumns),
	}
	if mode == ModeVersions {
		spec.Versions, spec.Columns = 3, versionColumns()
	}
	if partition != "" {
		spec.PartitionBy, spec.MaxPartitions = []string{partition}, 4
	}
	return mustCompile(t, "j", spec, d), snapshot
}

// resumeKilled is TestResumeKilled of one job, for each step with a chance of one in
// one; 0 = at some twenty steps, one as far from the other.
func resumeKilled(t *testing.T, job *Job, src instant.Source, seed uint64, one int) {
	t.Helper()
	clean := t.TempDir()
	all, _, err := runKilled(t, job, src, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	want := sums(contents(t, clean))
	if len(all.steps) < 80 || len(want) < 10 {
		t.Fatalf("Got %d steps and %d files, want a job with more", len(all.steps), len(want))
	}
	rng := rand.New(rand.NewPCG(seed, 2))
	for die := 1; die <= len(all.steps); die++ {
		if one > 0 && rng.IntN(one) > 0 || one == 0 && die%max(1, len(all.steps)/22) > 0 {
			continue
		}
		dir := t.TempDir()
		how := []string{all.steps[die-1]}
		noted := map[string]bool{}
		for attempt := 0; ; attempt++ {
			at, parallelism := die, 1
			if attempt > 0 {
				parallelism = 1 + rng.IntN(2)
				at = rng.IntN(80) // 0, or beyond its last step: not killed
			}
			if attempt == 2 {
				at = 0
			}
			k, _, err := runKilled(t, job, src, dir, at, parallelism)
			for _, name := range k.created {
				region := 0
				if _, err := fmt.Sscanf(path.Base(name), "part-%06d", &region); err != nil {
					t.Fatal(err)
				}
				if noted[name] || noted[splitNote(region)] {
					t.Errorf("killed at %v: %s was finished, and written again", how, name)
				}
			}
			for _, name := range k.noted {
				noted[name] = true
			}
			if err == nil || errors.Is(err, target.ErrExists) && !errors.Is(err, errKilled) {
				break
			}
			if !errors.Is(err, errKilled) {
				t.Fatalf("killed at %v: %v", how, err)
			}
			if attempt > 0 {
				how = append(how, k.steps[len(k.steps)-1])
			}
		}
		if d := jobstest.Diff(want, sums(contents(t, dir))); d != "" {
			t.Fatalf("killed at %v: %s", how, d)
		}
	}
}

// TestResumeScansTheRest: of a region that was cut off, the rows up to its last
// finished file are not read again; nor is a finished region.
func TestResumeScansTheRest(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 2)
	spec := job.spec
	spec.Formats = []string{Arrow} // two formats would go on from the one that is behind
	job = mustCompile(t, "j", &spec, nil)
	dir := t.TempDir()
	all, _, err := runKilled(t, job, src, t.TempDir(), 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	die := 1 + slices.Index(all.steps, "before create part-000001-0001.arrow")
	if die == 0 {
		t.Fatalf("no such step in %v", all.steps)
	}
	if _, _, err := runKilled(t, job, src, dir, die, 1); !errors.Is(err, errKilled) {
		t.Fatalf("Got %v, want it killed", err)
	}
	left, err := ListUnfinished(t.Context(), dir)
	if err != nil || len(left) != 1 {
		t.Fatalf("Got %+v, %v, want one run", left, err)
	}
	want := Unfinished{Job: "j", RunID: runID("j", resumeTime), LogicalTime: resumeTime, StartedAt: resumeTime, Checkpoint: "cp", Sequence: 42}
	got := left[0]
	if got.Files < 3 || got.Bytes == 0 {
		t.Errorf("Got %d files of %d bytes finished", got.Files, got.Bytes)
	}
	got.Files, got.Bytes = 0, 0
	if d := jobstest.Diff(want, got); d != "" {
		t.Error(d)
	}
	first := ""
	src.Scanned = func(row []byte) error {
		if first == "" {
			first = string(row)
		}
		return nil
	}
	var progress work.Progress
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := resumeOptions(job, src, l, 1)
	o.Progress = func(p work.Progress) { progress = p }
	m, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(m.Files, func(f File) bool { return f.Path == "part-000001-0000.arrow" })
	if i < 0 || first <= m.Files[i].MaxRow {
		t.Errorf("Got row %s read first, %s was in a finished file", first, m.Files[i].MaxRow)
	}
	if progress.Rows != m.Totals[0].Rows || progress.Files != len(m.Files) || progress.RegionsDone != progress.Regions {
		t.Errorf("Got progress %+v at the end, want %d rows, %d files", progress, m.Totals[0].Rows, len(m.Files))
	}
}

// TestResumeRefused: what is left of another instant, of another definition of the
// job, or damaged, is not used.
func TestResumeRefused(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	clean := t.TempDir()
	all, _, err := runKilled(t, job, src, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	die := 1 + slices.Index(all.steps, "after note split-000001")
	for name, test := range map[string]func(dir string, o *RunOptions){
		"another checkpoint": func(_ string, o *RunOptions) { o.Checkpoint = "other" },
		"another sequence": func(_ string, o *RunOptions) {
			later := *src
			later.At++
			o.Source = &later
		},
		"another program": func(_ string, o *RunOptions) { o.Version = "2" },
		"another job": func(_ string, o *RunOptions) {
			s := job.spec
			s.StartRow = "a"
			o.Job = mustCompile(t, "j", &s, nil)
		},
		"a file is missing": func(dir string, _ *RunOptions) {
			if err := os.Remove(filepath.Join(dir, "files", "part-000000-0000.parquet")); err != nil {
				t.Fatal(err)
			}
		},
		"a file is shorter": func(dir string, _ *RunOptions) {
			if err := os.Truncate(filepath.Join(dir, "files", "part-000000-0000.parquet"), 10); err != nil {
				t.Fatal(err)
			}
		},
		"a note is missing": func(dir string, _ *RunOptions) {
			if err := os.Remove(filepath.Join(dir, "notes", "part-000000-0000.parquet")); err != nil {
				t.Fatal(err)
			}
		},
		"a note is damaged": func(dir string, _ *RunOptions) {
			if err := os.WriteFile(filepath.Join(dir, "notes", "part-000000-0000.parquet"), []byte("{"), 0o666); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if _, _, err := runKilled(t, job, src, dir, die, 1); !errors.Is(err, errKilled) {
				t.Fatalf("Got %v, want it killed", err)
			}
			l, err := target.OpenLocal(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			k := &killing{Local: l}
			o := resumeOptions(job, src, k, 1)
			test(filepath.Join(dir, "_tmp", runID("j", resumeTime)), o)
			m, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			if len(k.created) != len(m.Files) {
				t.Errorf("Got %d files written for %d: some are of the run before", len(k.created), len(m.Files))
			}
			if r, err := Verify(t.Context(), filepath.Join(dir, "j")); err != nil || !r.OK() {
				t.Errorf("Verify: %v, %v", err, r.Err())
			}
		})
	}
}

// failAfter is src, which fails with err after some rows.
func failAfter(src *jobstest.Memory, rows int, err error) *jobstest.Memory {
	failing := *src
	failing.Scanned = func([]byte) error {
		if rows--; rows < 0 {
			return err
		}
		return nil
	}
	return &failing
}

// TestResumeAfterError: an error that may pass leaves what is finished; others, and
// runs without a checkpoint, leave nothing.
func TestResumeAfterError(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	passing := fmt.Errorf("out of reach: %w", store.ErrTransient)
	for name, test := range map[string]struct {
		err  error
		set  func(o *RunOptions)
		kept bool
	}{
		"transient":     {err: passing, kept: true},
		"no checkpoint": {err: passing, set: func(o *RunOptions) { o.Checkpoint = "" }},
		"corrupt":       {err: store.ErrCorrupt},
		"disk full":     {err: &os.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}},
		"quota full":    {err: &os.PathError{Op: "write", Path: "x", Err: syscall.EDQUOT}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			l, err := target.OpenLocal(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			o := resumeOptions(job, failAfter(src, 12, test.err), l, 1)
			if test.set != nil {
				test.set(o)
			}
			_, err = Run(t.Context(), o)
			if !errors.Is(err, test.err) || errors.Is(err, ErrResumable) != test.kept {
				t.Errorf("Got %v, want %v, resumable %t", err, test.err, test.kept)
			}
			left, err := ListUnfinished(t.Context(), dir)
			if err != nil || len(left) != 0 != test.kept {
				t.Errorf("Got %+v, %v", left, err)
			}
			if files := contents(t, dir); !test.kept && len(files) > 0 {
				t.Errorf("it left %v", sums(files))
			}
		})
	}
	t.Run("cancelled", func(t *testing.T) {
		t.Parallel()
		dir := t.TempDir()
		ctx, cancel := context.WithCancel(t.Context())
		stopping := *src
		stopping.Scanned = func([]byte) error { cancel(); return nil }
		l, err := target.OpenLocal(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		if _, err := Run(ctx, resumeOptions(job, &stopping, l, 1)); !errors.Is(err, context.Canceled) || errors.Is(err, ErrResumable) {
			t.Errorf("Got %v, want Canceled", err)
		}
		if files := contents(t, dir); len(files) > 0 {
			t.Errorf("it left %v", sums(files))
		}
	})
}

// TestResumeAfterInterruption: a run whose ctx was cancelled with a cause that wraps
// ErrResumable leaves what it has finished, as after any error that may pass; one that
// was merely cancelled does not.
func TestResumeAfterInterruption(t *testing.T) {
	t.Parallel()
	for _, keep := range []bool{true, false} {
		src := accessLogSource(300)
		job := mustCompile(t, "access_log", accessLog(), nil)
		o := &RunOptions{Job: job, Source: src, Out: t.TempDir(), Parallelism: 1, Checkpoint: "c", LogicalTime: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
		ctx, cancel := context.WithCancelCause(t.Context())
		o.Progress = func(p work.Progress) {
			switch {
			case p.Files == 0:
			case keep:
				cancel(fmt.Errorf("the process ends: %w", ErrResumable))
			default:
				cancel(nil)
			}
		}
		_, err := Run(ctx, o)
		if err == nil || errors.Is(err, ErrResumable) != keep {
			t.Fatalf("Got %v, want one that can be resumed: %t", err, keep)
		}
		left, err := ListUnfinished(t.Context(), o.Out)
		if err != nil && !errors.Is(err, target.ErrNotFound) || (len(left) == 1) != keep {
			t.Fatalf("Got %+v, %v left, want something: %t", left, err, keep)
		}
		first := -1 // files when it begins
		o.Progress = func(p work.Progress) {
			if first < 0 {
				first = p.Files
			}
		}
		if _, err := Run(t.Context(), o); err != nil || (first > 0) != keep {
			t.Errorf("Got %v beginning with %d files, want some: %t", err, first, keep)
		}
	}
}

// TestResumeInterruptedAgain: a run that is interrupted while it takes up what was left of
// it leaves what is finished.
func TestResumeInterruptedAgain(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	dir := t.TempDir()
	killed, _, _ := runKilled(t, job, src, dir, 30, 1)
	before := contents(t, dir)
	if len(killed.noted) == 0 {
		t.Fatal("nothing is finished")
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	asked := 0
	interrupted := weighing{src, func() error {
		if asked++; asked > 4 { // once for each region
			cancel(fmt.Errorf("the process ends: %w", ErrResumable))
		}
		return ctx.Err()
	}}
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o := resumeOptions(job, interrupted, l, 1)
	o.Progress = func(work.Progress) {}
	if _, err := Run(ctx, o); !errors.Is(err, ErrResumable) || context.Cause(ctx) == nil {
		t.Errorf("Got %v", err)
	}
	after := contents(t, dir)
	for name, data := range before {
		if strings.Contains(name, "/notes/") && after[name] != data {
			t.Errorf("%s is gone", name)
		}
	}
}

// weighing is a source that asks before it tells how large rows are.
type weighing struct {
	instant.Source
	ask func() error
}

// RangeBytes implements instant.Sizer.
func (w weighing) RangeBytes(context.Context, string, []string, cell.Range) (int64, error) {
	return 1, w.ask()
}

// TestResumeBusy: a run that another process is at is not begun a second time.
func TestResumeBusy(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	dir := t.TempDir()
	l, err := target.OpenLocal(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	once := sync.Once{}
	working := *src
	working.Scanned = func([]byte) error {
		once.Do(func() {
			if _, err := Run(t.Context(), resumeOptions(job, src, l, 1)); !errors.Is(err, target.ErrBusy) {
				t.Errorf("Got %v, want ErrBusy", err)
			}
		})
		return nil
	}
	if _, err := Run(t.Context(), resumeOptions(job, &working, l, 1)); err != nil {
		t.Error(err)
	}
}

// TestResumeEmptyTable: a table without rows has a file of each format, killed
// between them or not.
func TestResumeEmptyTable(t *testing.T) {
	t.Parallel()
	job, src := resumeCase(t, 0)
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"c"}, nil)
	clean := t.TempDir()
	all, _, err := runKilled(t, job, src, clean, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	for die := range all.steps {
		dir := t.TempDir()
		if _, _, err := runKilled(t, job, src, dir, die+1, 1); !errors.Is(err, errKilled) {
			t.Fatalf("%s: got %v", all.steps[die], err)
		}
		if _, _, err := runKilled(t, job, src, dir, 0, 1); err != nil && !errors.Is(err, target.ErrExists) {
			t.Fatalf("%s: %v", all.steps[die], err)
		}
		if d := jobstest.Diff(sums(contents(t, clean)), sums(contents(t, dir))); d != "" {
			t.Errorf("%s: %s", all.steps[die], d)
		}
	}
}

// FuzzDecodeWork: notes of any bytes are refused or are consistent.
func FuzzDecodeWork(f *testing.F) {
	state, err := encodeJSON(&runState{FormatVersion: ManifestVersion, Job: "j", RunID: "r"})
	if err != nil {
		f.Fatal(err)
	}
	file, err := encodeJSON(&workNote{FormatVersion: ManifestVersion, Region: 1, File: &File{
		Path: partName(1, 0, Arrow), Format: Arrow, Rows: 1, Bytes: 2, SHA256: strings.Repeat("0", 64), MinRow: "a", MaxRow: "b",
	}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(state, partName(1, 0, Arrow), file, splitNote(1), []byte(`{"format_version":1,"region":1}`))
	f.Fuzz(func(t *testing.T, state []byte, name string, note []byte, name2 string, note2 []byte) {
		w, err := decodeWork(map[string][]byte{name: note, name2: note2, noteRun: state})
		if err != nil {
			if !errors.Is(err, ErrManifest) {
				t.Errorf("Got %v, want ErrManifest", err)
			}
			return
		}
		if n := len(w.all()) + len(w.done); n > 2 {
			t.Errorf("Got %d files and regions of 2 notes", n)
		}
	})
}
