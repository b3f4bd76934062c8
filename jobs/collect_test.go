package jobs

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/target"
	"sluice/jobs/target/targettest"
	"sluice/store"
)

// childOut names, for the child process of TestCollectKilled, the directory to
// export to.
const childOut = "SLUICE_JOBS_TEST_OUT"

// TestExportingChild is not a test but the child process of TestCollectKilled: an
// export that stops in the middle of its second region and waits to be killed.
func TestExportingChild(t *testing.T) {
	out := os.Getenv(childOut)
	if out == "" {
		t.Skip("the child process of TestCollectKilled")
	}
	src := accessLogSource(3000)
	src.Scanned = func(row []byte) error {
		if string(row) > "r002000" {
			fmt.Println("\nwriting")
			_, err := io.Copy(io.Discard, os.Stdin) // until the parent is gone
			return errors.Join(errors.New("not killed"), err)
		}
		return nil
	}
	_, err := Run(t.Context(), &RunOptions{Job: mustCompile(t, "access_log", accessLog(), nil), Source: src, Out: out, Parallelism: 1})
	t.Fatalf("Got %v", err)
}

// startExport starts a child process that is writing a run below out.
func startExport(t *testing.T, out string) *exec.Cmd {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestExportingChild$")
	child.Env = append(os.Environ(), childOut+"="+out)
	stdin, err := child.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = child.Process.Kill() // gone already is as good
		_ = child.Wait()
	})
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		if lines.Text() == "writing" {
			return child
		}
	}
	t.Fatal("the child process ended before it wrote")
	return nil
}

// publishAt publishes a run of an access log's job for a time, at that time.
func publishAt(t *testing.T, job string, at time.Time, o RunOptions) *Manifest {
	t.Helper()
	o.Job, o.LogicalTime, o.Now = mustCompile(t, job, accessLog(), nil), at, func() time.Time { return at }
	m, err := Run(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func collectLocal(t *testing.T, out string, o CollectOptions) []string {
	t.Helper()
	l, err := target.OpenLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	o.Target = l
	found, err := Collect(t.Context(), &o)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, g := range found {
		got = append(got, fmt.Sprintf("%s %s stays=%t: %s", g.Job, g.Name, g.Stays, g.Reason))
	}
	return got
}

// TestCollectKilled has one export killed with SIGKILL and one that goes on: what
// the first has left is removed, the second is left alone, and so is what was
// published.
func TestCollectKilled(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	job := mustCompile(t, "access_log", accessLog(), nil)
	if _, err := Run(t.Context(), &RunOptions{Job: job, Source: accessLogSource(10), Out: out}); err != nil {
		t.Fatal(err)
	}
	killed, alive := startExport(t, out), startExport(t, out)
	l, err := target.OpenLocal(out)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	before, err := l.Leftovers(t.Context())
	if err != nil || len(before) != 2 || !before[0].Busy || !before[1].Busy {
		t.Fatalf("Got %+v, %v, want two uploads at work", before, err)
	}
	for _, g := range collectLocal(t, out, CollectOptions{}) {
		if !strings.HasSuffix(g, "stays=true: an export is writing it") {
			t.Errorf("Got %q for an export at work", g)
		}
	}
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = killed.Wait() // it was killed
	left, err := l.Leftovers(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	dead := ""
	for _, u := range left {
		if u.Busy {
			want = append(want, fmt.Sprintf(" %s stays=true: an export is writing it", u.Name))
			continue
		}
		dead = u.Name
		want = append(want, fmt.Sprintf(" %s stays=false: never published, and nobody is writing it", u.Name))
		if u.Bytes == 0 || u.Modified.IsZero() {
			t.Errorf("Got %+v of a killed export that had written", u)
		}
	}
	if dead == "" || len(left) != 2 {
		t.Fatalf("Got %+v, want one abandoned", left)
	}
	for _, dry := range []bool{true, false} {
		if d := jobstest.Diff(want, collectLocal(t, out, CollectOptions{DryRun: dry})); d != "" {
			t.Errorf("dry run %t (-want +got):\n%s", dry, d)
		}
		_, err := os.Stat(filepath.Join(out, "_tmp", dead))
		if gone := errors.Is(err, os.ErrNotExist); gone == dry {
			t.Errorf("after dry run %t: %v", dry, err)
		}
	}
	if left, err = l.Leftovers(t.Context()); err != nil || len(left) != 1 || !left[0].Busy {
		t.Errorf("Got %+v, %v, want the export at work", left, err)
	}
	if err := alive.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = alive.Wait() // it was killed
	if got := collectLocal(t, out, CollectOptions{}); len(got) != 1 {
		t.Errorf("Got %q, want the second one", got)
	}
	if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Got %v for _tmp, want it gone", err)
	}
	r, err := Verify(t.Context(), filepath.Join(out, "access_log"))
	if err != nil || !r.OK() {
		t.Errorf("Verify: %v, %v", err, r.Err())
	}
}

// TestCollectRuns publishes seven runs a day apart, the last before now, and has
// others beside them that nobody may remove.
func TestCollectRuns(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 5, 8, 12, 0, 0, 0, time.UTC)
	src := accessLogSource(5)
	publish := func(t *testing.T, out, job string, at time.Time) {
		t.Helper()
		publishAt(t, job, at, RunOptions{Source: src, Out: out})
	}
	day := 24 * time.Hour
	for name, tt := range map[string]struct {
		keep Keep
		want []int // days of May that stay
	}{
		"everything":         {Keep{}, []int{1, 2, 3, 4, 5, 6, 7}},
		"runs":               {Keep{Runs: 3}, []int{5, 6, 7}},
		"age":                {Keep{Age: 36 * time.Hour}, []int{7}},
		"age, exactly":       {Keep{Age: 36*time.Hour + day}, []int{6, 7}},
		"both, runs longer":  {Keep{Runs: 4, Age: 36 * time.Hour}, []int{4, 5, 6, 7}},
		"both, age longer":   {Keep{Runs: 1, Age: 60 * time.Hour}, []int{6, 7}},
		"never the latest":   {Keep{Age: time.Second}, []int{7}},
		"more than there is": {Keep{Runs: 100}, []int{1, 2, 3, 4, 5, 6, 7}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			for d := 1; d <= 7; d++ {
				publish(t, out, "daily", time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC))
			}
			publish(t, out, "other", time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC))
			publish(t, out, "other", time.Date(2020, 1, 2, 0, 0, 0, 0, time.UTC))
			o := CollectOptions{Keep: map[string]Keep{"daily": tt.keep}, Now: func() time.Time { return now }}
			o.DryRun = true
			dry := collectLocal(t, out, o)
			if runs, err := List(t.Context(), out); err != nil || len(runs) != 9 {
				t.Fatalf("Got %d runs after a dry run, %v", len(runs), err)
			}
			o.DryRun = false
			if d := jobstest.Diff(dry, collectLocal(t, out, o)); d != "" {
				t.Errorf("The dry run said otherwise (-dry +got):\n%s", d)
			}
			runs, err := List(t.Context(), out)
			if err != nil {
				t.Fatal(err)
			}
			stay := map[string][]int{}
			for i := len(runs) - 1; i >= 0; i-- {
				stay[runs[i].Job] = append(stay[runs[i].Job], runs[i].LogicalTime.Day())
			}
			if d := jobstest.Diff(map[string][]int{"daily": tt.want, "other": {1, 2}}, stay); d != "" {
				t.Errorf("days that stay (-want +got):\n%s", d)
			}
			r, err := Verify(t.Context(), filepath.Join(out, "daily"))
			if err != nil || !r.OK() {
				t.Errorf("Verify: %v, %v", err, r.Err())
			}
			if _, err := os.Stat(filepath.Join(out, "_tmp")); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("Got %v for _tmp, want it gone", err)
			}
		})
	}
}

// TestCollectWithoutLatest: where nothing tells which run is the latest, none goes, and those
// that keep would let go say why they are there.
func TestCollectWithoutLatest(t *testing.T) {
	t.Parallel()
	src := accessLogSource(5)
	at := func(day int) time.Time { return time.Date(2026, 5, day, 0, 0, 0, 0, time.UTC) }
	for name, tt := range map[string]struct {
		spoil func(dir string) error
		runs  int // that are there
		want  string
	}{
		"none":         {func(dir string) error { return os.Remove(filepath.Join(dir, LatestName)) }, 4, "daily/_latest.json is not there"},
		"damaged":      {func(dir string) error { return os.Truncate(filepath.Join(dir, LatestName), 0) }, 4, "daily/_latest.json: jobs: invalid manifest"},
		"names no run": {func(dir string) error { return os.RemoveAll(filepath.Join(filepath.Dir(dir), runDir("daily", at(4)))) }, 3, "daily/_latest.json names run=20260504T000000Z-"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := t.TempDir()
			for d := 1; d <= 4; d++ {
				publishAt(t, "daily", at(d), RunOptions{Source: src, Out: out})
			}
			if err := tt.spoil(filepath.Join(out, "daily")); err != nil {
				t.Fatal(err)
			}
			o := CollectOptions{Keep: map[string]Keep{"daily": {Runs: 2}}}
			got := collectLocal(t, out, o)
			if len(got) != tt.runs-2 {
				t.Errorf("Got %q", got)
			}
			for _, line := range got {
				if want := "stays=true: beyond the newest 2 runs, but which run is the latest is not known: " + tt.want; !strings.Contains(line, want) {
					t.Errorf("Got %q, want %q", line, want)
				}
			}
			if runs, err := List(t.Context(), out); err != nil || len(runs) != tt.runs {
				t.Errorf("Got %d runs, %v", len(runs), err)
			}
		})
	}
}

// TestCollectOneJob: where one job is named, what others and killed exports have left stays.
func TestCollectOneJob(t *testing.T) {
	t.Parallel()
	src, out := accessLogSource(5), t.TempDir()
	for _, name := range []string{"daily", "other"} {
		for d := 1; d <= 3; d++ {
			at := time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC)
			publishAt(t, name, at, RunOptions{Source: src, Out: out})
		}
	}
	if err := os.MkdirAll(filepath.Join(out, "_tmp", "left"), 0o777); err != nil {
		t.Fatal(err)
	}
	keep := map[string]Keep{"daily": {Runs: 1}, "other": {Runs: 2}}
	for i, want := range [][2]int{{2, 0}, {0, 0}, {0, 2}} { // of daily, and of others and nobody
		o := CollectOptions{Keep: keep, Job: "daily"}
		if i == 2 {
			o.Job = ""
		}
		var got [2]int
		for _, g := range collectLocal(t, out, o) {
			if strings.HasPrefix(g, "daily ") {
				got[0]++
			} else {
				got[1]++
			}
		}
		if got != want {
			t.Errorf("Got %v removed at %d. Want %v", got, i, want)
		}
	}
}

// TestCollectAsksAfterListing: which runs schedules go on with is asked when what was left is
// known, so that one which has begun and ended meanwhile is among them; where that cannot be
// had, nothing is removed. It is not asked where nothing was left.
func TestCollectAsksAfterListing(t *testing.T) {
	t.Parallel()
	out, at := t.TempDir(), time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)
	publishAt(t, "daily", at, RunOptions{Source: accessLogSource(5), Out: out})
	l := mustLocal(t, out)
	asked := 0
	failed := errors.New("the store is gone")
	o := CollectOptions{Target: l, Awaited: func(context.Context) (map[string][]time.Time, error) { asked++; return nil, failed }}
	if _, err := Collect(t.Context(), &o); err != nil || asked > 0 {
		t.Errorf("Got %v, asked %d times of nothing", err, asked)
	}
	left := filepath.Join(out, "_tmp", "daily-"+runID("daily", at))
	if err := os.MkdirAll(left, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := Collect(t.Context(), &o); !errors.Is(err, failed) || asked != 1 {
		t.Errorf("Got %v, asked %d times", err, asked)
	}
	there := &listing{Local: l}
	o.Target, o.Awaited = there, func(context.Context) (map[string][]time.Time, error) {
		if !there.was {
			return nil, nil // it has not begun yet
		}
		return map[string][]time.Time{"daily": {at}}, nil
	}
	if found, err := Collect(t.Context(), &o); err != nil || len(found) != 1 || !found[0].Stays {
		t.Errorf("Got %+v, %v", found, err)
	}
	if _, err := os.Stat(left); err != nil {
		t.Error(err)
	}
}

// listing is a target that knows whether what was left in it has been listed.
type listing struct {
	*target.Local
	was bool
}

func (l *listing) Leftovers(ctx context.Context) ([]target.Leftover, error) {
	l.was = true
	return l.Local.Leftovers(ctx)
}

// unreadable is a target of which the files with a name cannot be read.
type unreadable struct {
	*target.Local
	name string
}

func (u *unreadable) Open(ctx context.Context, name string) (target.File, error) {
	if strings.Contains(name, u.name) {
		return nil, errors.New("too many open files")
	}
	return u.Local.Open(ctx, name)
}

// TestCollectUnreadableIncrement: what an increment may go on from stays while that cannot be
// read, be it for a moment.
func TestCollectUnreadableIncrement(t *testing.T) {
	t.Parallel()
	db := jobstest.OpenPebble(t, t.TempDir())
	jobstest.CreateTable(t, db, "t")
	job := mustCompile(t, "j", &Spec{
		Table: "t", Formats: []string{Parquet}, Families: []string{"f"}, Incremental: Incremental{FullEvery: 5},
		Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "op", From: "$op", Type: "string"}},
	}, nil)
	out, at := t.TempDir(), time.Date(2026, 11, 25, 0, 0, 0, 0, time.UTC)
	for range 3 {
		at = at.Add(time.Hour)
		jobstest.Mutate(t, db, "t", at.String(), jobstest.PutOp("f", "a", cell.Latest, "v"))
		if err := HoldChanges(t.Context(), job, db, at); err != nil {
			t.Fatal(err)
		}
		if _, err := Run(t.Context(), &RunOptions{
			Job: job, Source: jobstest.SnapshotOf(t, db), Out: out, Holder: db, StoreID: "s", LogicalTime: at, Now: func() time.Time { return at },
		}); err != nil {
			t.Fatal(err)
		}
	}
	local := mustLocal(t, out)
	runs, err := ListTarget(t.Context(), local)
	if err != nil || len(runs) != 3 || runs[0].Base != runs[1].Dir || runs[1].Base != runs[2].Dir {
		t.Fatalf("Got %+v, %v", runs, err)
	}
	found, err := Collect(t.Context(), &CollectOptions{
		Target: &unreadable{local, runs[1].Dir + "/" + ManifestName}, Job: "j", Keep: map[string]Keep{"j": {Runs: 1}},
	})
	if err != nil || len(found) != 2 || !found[0].Stays || !found[1].Stays {
		t.Errorf("Got %+v, %v", found, err)
	}
	if r, err := Verify(t.Context(), filepath.Join(out, "j")); err != nil || !r.OK() {
		t.Errorf("Verify: %v, %v", err, r.Err())
	}
}

// TestCollectGoesOn: a removal that has failed half-way is finished by the next one, which is
// of this job alone.
func TestCollectGoesOn(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	b := openBucket(t, f)
	for _, name := range []string{"daily", "daily-other"} {
		for d := 1; d <= 2; d++ {
			at := time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC)
			publishAt(t, name, at, RunOptions{Source: accessLogSource(5), Target: b})
		}
	}
	left := func(dir string) (n int) {
		for key := range f.Objects() {
			if strings.HasPrefix(key, "p/"+dir+"/run=20260501") {
				n++
			}
		}
		return n
	}
	f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
		if r.Method == http.MethodDelete {
			return targettest.Denied
		}
		return targettest.Fine
	})
	for _, name := range []string{"daily", "daily-other"} {
		if _, err := Collect(t.Context(), &CollectOptions{Target: b, Job: name, Keep: map[string]Keep{name: {Runs: 1}}}); err == nil {
			t.Error("Got no error of a removal that is denied")
		}
	}
	f.SetFaulty(nil)
	f.Advance(2 * time.Hour)
	before := left("daily-other")
	found, err := Collect(t.Context(), &CollectOptions{Target: b, Job: "daily", Keep: map[string]Keep{"daily": {Runs: 1}}})
	if err != nil || len(found) != 1 || found[0].Reason != "a run whose removal was cut off" || left("daily") != 0 || before == 0 || left("daily-other") != before {
		t.Errorf("Got %+v, %v, and %d objects, and of the other job %d, before %d", found, err, left("daily"), left("daily-other"), before)
	}
}

// TestCollectEnds: what a bucket remembers of runs that were removed is removed after a week,
// also where nothing but one job is looked at.
func TestCollectEnds(t *testing.T) {
	t.Parallel()
	f := targettest.NewFakeS3(t)
	b := openBucket(t, f)
	records := func() (n int) {
		for key := range f.Objects() {
			if strings.HasPrefix(key, "p/_runs/daily/") {
				n++
			}
		}
		return n
	}
	for d := 1; d <= 4; d++ {
		publishAt(t, "daily", time.Date(2026, 5, d, 0, 0, 0, 0, time.UTC), RunOptions{Source: accessLogSource(5), Target: b})
		if _, err := Collect(t.Context(), &CollectOptions{Target: b, Job: "daily", Keep: map[string]Keep{"daily": {Runs: 1}}}); err != nil {
			t.Fatal(err)
		}
		if d == 3 {
			if n := records(); n != 3 {
				t.Errorf("Got %d records of three runs, of which two were just removed", n)
			}
			f.Advance(8 * 24 * time.Hour)
		}
	}
	if n := records(); n != 2 { // the latest run's, and that of the one that was removed last
		t.Errorf("Got %d records", n)
	}
}

// TestCollectKeeps has runs that retention would let go and that stay all the
// same: those after the latest, all without a latest one, and those whose manifest
// cannot be read.
func TestCollectKeeps(t *testing.T) {
	t.Parallel()
	src := accessLogSource(5)
	out := t.TempDir()
	var dirs []string
	for d := 1; d <= 4; d++ {
		at := time.Date(2020, 5, d, 0, 0, 0, 0, time.UTC)
		m := publishAt(t, "j", at, RunOptions{Source: src, Out: out})
		dirs = append(dirs, "run="+at.Format("20060102T150405Z")+"-"+m.RunID)
		if d == 3 { // what a crash between the fourth run and its _latest.json leaves
			if err := os.Rename(filepath.Join(out, "j", LatestName), filepath.Join(out, "j", "saved")); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := os.Rename(filepath.Join(out, "j", "saved"), filepath.Join(out, "j", LatestName)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "j", dirs[0], ManifestName), []byte("{"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := collectLocal(t, out, CollectOptions{Keep: map[string]Keep{"j": {Age: time.Hour}}})
	if len(got) != 2 || got[0] != "j j/"+dirs[1]+" stays=false: older than 1h0m0s" || !strings.Contains(got[1], dirs[0]+" stays=true: its manifest cannot be read") {
		t.Errorf("Got %q, want the second run removed and the first kept", got)
	}
	if err := os.Remove(filepath.Join(out, "j", LatestName)); err != nil {
		t.Fatal(err)
	}
	if got := collectLocal(t, out, CollectOptions{Keep: map[string]Keep{"j": {Runs: 1}}}); len(got) != 2 || !strings.Contains(got[0], "stays=true") || !strings.Contains(got[1], "stays=true") {
		t.Errorf("Got %q without a latest run, want nothing removed", got)
	}
}

// plainTarget hides that a target is a Collector.
type plainTarget struct{ target.Target }

func TestCollectUnsupported(t *testing.T) {
	t.Parallel()
	l, err := target.OpenLocal(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if _, err := Collect(t.Context(), &CollectOptions{Target: plainTarget{l}}); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("Got %v, want ErrUnsupported", err)
	}
}

func TestKeepCompile(t *testing.T) {
	t.Parallel()
	s := accessLog()
	s.Keep = Keep{Runs: -1, Age: -time.Hour}
	_, err := Compile("j", s, nil)
	if err == nil || !strings.Contains(err.Error(), "keep.runs: -1 is negative") || !strings.Contains(err.Error(), "keep.age: -1h0m0s is negative") {
		t.Errorf("Got %v", err)
	}
}
