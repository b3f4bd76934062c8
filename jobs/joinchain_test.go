package jobs

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
	"sluice/store"
	"sluice/store/memstore"
)

// TestJoinIncrements: an increment is a side of a join as the table that it and the runs
// before it make up, whichever way it is named, in a directory and in a bucket.
func TestJoinIncrements(t *testing.T) {
	t.Parallel()
	fake := targettest.NewFakeS3(t)
	open := func(at string) (target.Target, error) {
		return target.NewS3(&target.S3Options{
			Endpoint: fake.URL(), Bucket: "bucket", Prefix: strings.TrimPrefix(at, "s3://bucket/"), AccessKey: "access", SecretKey: "secret", Backoff: time.Microsecond,
		})
	}
	s := newIncremental(t, t.TempDir(), 10)
	const n = 3 * columnar.DefaultBatchRows // the middle batch of the full run is passed on as it is
	key := func(i int) string { return fmt.Sprintf("k%06d", i) }
	for i := range n {
		s.put(key(i), fmt.Sprint("v", i), cell.Latest)
	}
	exports, err := open("s3://bucket/exports")
	if err != nil {
		t.Fatal(err)
	}
	defer exports.Close()
	var first, last *Manifest
	runs := func() {
		if err := HoldChanges(t.Context(), s.job, s, s.at); err != nil {
			t.Fatal(err)
		}
		for _, o := range []RunOptions{{Target: exports}, {}} {
			snapshot, err := s.Snapshot(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			// The store knows one hold of a job: each target has a job of its own.
			job := s.job
			if o.Target != nil {
				job = mustCompile(t, "b", &s.job.spec, nil)
				if err := HoldChanges(t.Context(), job, s, s.at); err != nil {
					t.Fatal(err)
				}
			}
			o.Job, o.Source, o.Holder, o.StoreID, o.LogicalTime, o.Now = job, snapshot, s, "s", s.at, func() time.Time { return s.at }
			last, err = Run(t.Context(), &o)
			if err := errors.Join(err, snapshot.Close()); err != nil {
				t.Fatal(err)
			}
			if first == nil && o.Target == nil {
				first = last
			}
		}
		s.at = s.at.Add(time.Hour)
	}
	runs()
	gone := &cell.Mutation{Table: "t", Row: []byte(key(0))}
	gone.DeleteRow(cell.Latest)
	s.mutate(gone)
	s.put(key(n-1), "second", cell.Latest)
	s.put("k", "before all", cell.Latest)
	runs()
	s.put(key(n-1), "third", cell.Latest)
	s.put("z", "after all", cell.Latest)
	runs()
	want := [][]string{{"k", "before all"}}
	for i := 1; i < n-1; i++ {
		want = append(want, []string{key(i), fmt.Sprint("v", i)})
	}
	want = append(want, []string{key(n - 1), "third"}, []string{"z", "after all"})
	if last.Incremental.Number != 2 {
		t.Fatalf("Got %+v", last.Incremental)
	}
	inJob := filepath.Join(s.out, "j")
	inRun := filepath.Join(s.out, runDir("j", last.LogicalTime))
	runOf := path.Base(strings.ReplaceAll(runDir("b", last.LogicalTime), `\`, "/"))
	for _, at := range []string{inJob, inRun, filepath.Join(inRun, ManifestName), "s3://bucket/exports/b", "s3://bucket/exports/b/" + runOf} {
		for _, method := range []string{join.Merge, join.Hash} {
			spec := &JoinSpec{Left: JoinSide{Run: at}, Right: JoinSide{Run: inJob}, Spec: join.Spec{
				Kind: join.Inner, Method: method, On: []join.On{{Left: "key"}},
				Columns: []join.Column{{Name: "key", From: "key.key"}, {Name: "q", From: "left.q"}},
			}}
			joined, err := CompileJoin("joined", spec, nil)
			if err != nil {
				t.Fatal(err)
			}
			out := t.TempDir()
			m, err := RunJoin(t.Context(), &JoinOptions{Join: joined, Out: out, OpenBucket: open})
			if err != nil {
				t.Errorf("%s, %s: %v", at, method, err)
				continue
			}
			got := sorted(readFormat(t, filepath.Join(out, runDir("joined", m.LogicalTime)), m, Parquet))
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s, %s (-want +got):\n%s", at, method, d)
			}
			if right := m.Join.Right; right.Sequence != last.Sequence || right.RunID != last.RunID {
				t.Errorf("%s: Got %+v, want what the increment is", at, right)
			}
		}
	}
	// An import knows the job's directory alone, and needs the runs beside.
	for at, why := range map[string]string{inJob: "", inRun: "name the job's directory"} {
		to, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		defer to.Close()
		d, err := s.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		from, err := target.OpenLocal(at)
		if err != nil {
			t.Fatal(err)
		}
		defer from.Close()
		if err := to.CreateTable(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
		done, err := Import(t.Context(), &ImportOptions{From: from, To: to, Into: "t"})
		if why == "" && (err != nil || done.Rows != int64(len(want))) || why != "" && (!errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), why)) {
			t.Errorf("%s: Got %+v, %v", at, done, err)
		}
	}
	if err := os.RemoveAll(filepath.Join(s.out, runDir("j", first.LogicalTime))); err != nil {
		t.Fatal(err)
	}
	if _, err := openRunInput(t.Context(), inJob, nil); err == nil || !strings.Contains(err.Error(), "which is missing") {
		t.Errorf("Got %v without the full run", err)
	}
}

// TestIncrementByLink: an increment that a symbolic link names goes on from the runs beside its
// own directory.
func TestIncrementByLink(t *testing.T) {
	t.Parallel()
	s := newIncremental(t, t.TempDir(), 10)
	s.put("a", "v", cell.Latest)
	full := s.run(t, RunOptions{})
	s.put("b", "v", cell.Latest)
	last := s.run(t, RunOptions{})
	link := filepath.Join(t.TempDir(), "current")
	if err := os.Symlink(filepath.Join(s.out, runDir("j", last.LogicalTime)), link); err != nil {
		t.Skip(err) // Windows lets few make them
	}
	in, err := openRunInput(t.Context(), link, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil || len(in.chain.runs) != 2 {
		t.Errorf("Got %d runs, %v", len(in.chain.runs), err)
	}
	m, dir, err := ReadRun(t.Context(), link)
	if err != nil {
		t.Fatal(err)
	}
	before, err := ReadChainBeside(t.Context(), m, dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	code, err := Snippet(DuckDB, m, dir, before...)
	for _, run := range []*Manifest{full, last} {
		if part := filepath.ToSlash(filepath.Join(s.out, runDir("j", run.LogicalTime), "part-")); err != nil || !strings.Contains(code, part) {
			t.Errorf("Got %v\n%s\nwant %s in it", err, code, part)
		}
	}
}
