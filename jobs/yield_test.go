package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/jobs/work"
	"sluice/store"
)

// lagging is what tells lag that is of these times from a time on, in seconds since it
// began.
func lagging(ages map[int]time.Duration) func(context.Context) ([]PipelineLag, error) {
	begun := time.Now()
	return func(context.Context) ([]PipelineLag, error) {
		age, since := time.Duration(0), -1
		for from, a := range ages {
			if time.Since(begun) >= time.Duration(from)*time.Second && from > since {
				age, since = a, from
			}
		}
		return []PipelineLag{{Pipeline: "idle"}, {Pipeline: "p", Age: age, Records: int64(age / time.Second * 100)}}, nil
	}
}

func yieldSource() *jobstest.Memory {
	src := jobstest.NewMemory()
	var rows []cell.Row
	for i := range 500 {
		rows = append(rows, jobstest.Row(fmt.Sprintf("r%03d", i), jobstest.Put("f", "n", 1, "1")))
	}
	src.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"r1", "r3"}, rows)
	return src
}

// yieldSpec is of a job of yieldSource that takes 5 s beside its pauses.
func yieldSpec(y YieldToLag) *Spec {
	return &Spec{
		Table: "t", YieldToLag: y, RowsPerSecond: 100, Formats: []string{Arrow}, // zstd's encoders are shared between bubbles
		Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}, {Name: "n", From: "f:n", Type: "int64"}},
	}
}

// TestYieldToLag: a run pauses while a pipeline is behind by more than the job allows, goes
// on when that is half, and says so: to whoever asks for progress, in the log, the manifest
// and the history. Its files are those of a run that has not paused.
func TestYieldToLag(t *testing.T) {
	t.Parallel()
	const s = time.Second
	for _, c := range []struct {
		name   string
		yield  YieldToLag
		change func(*Spec)
		ages   map[int]time.Duration
		want   time.Duration
		says   []string
	}{
		{"never behind", YieldToLag{Time: 30 * s}, nil, map[int]time.Duration{0: 30 * s}, 0, nil},
		{"from the beginning", YieldToLag{Time: 30 * s}, nil, map[int]time.Duration{0: 31 * s, 40: 16 * s, 50: 15 * s}, 50 * s, []string{"export pauses", "export goes on: ingest has caught up"}},
		{"later, twice", YieldToLag{Time: 30 * s}, nil, map[int]time.Duration{2: 31 * s, 10: 0, 11: 90 * s, 21: 0}, 18 * s, nil},
		{"records", YieldToLag{Records: 3000}, nil, map[int]time.Duration{0: 30 * s, 2: 31 * s, 12: 16 * s, 22: 15 * s}, 20 * s, []string{"3100 records of pipeline p wait"}},
		{"either", YieldToLag{Time: time.Minute, Records: 3000}, nil, map[int]time.Duration{0: 31 * s, 10: 16 * s, 12: 0}, 12 * s, nil},
		{"too long", YieldToLag{Time: 30 * s, MaxPause: 90*s + s/2}, nil, map[int]time.Duration{0: 31 * s, 60: 0, 62: time.Hour}, 90*s + s/2, []string{"as long as max_pause allows"}},
		{"sorted", YieldToLag{Time: 30 * s}, func(s *Spec) { s.Sort = []SortColumn{{Column: "n"}} }, map[int]time.Duration{2: 31 * s, 12: 0}, 10 * s, nil},
		{"left out", YieldToLag{Time: 30 * s}, func(s *Spec) { s.Where = []columnar.Predicate{{Column: "n", Op: ">", Value: "1"}} }, map[int]time.Duration{0: 31 * s}, 0, nil}, // by fewer rows than are read between two looks
	} {
		synctest.Test(t, func(t *testing.T) {
			spec := yieldSpec(c.yield)
			if c.change != nil {
				c.change(spec)
			}
			job := mustCompile(t, "j", spec, nil)
			var told []Yielding
			var log bytes.Buffer
			var last work.Progress
			o := &RunOptions{
				Job: job, Source: yieldSource(), Out: t.TempDir(), Parallelism: 2, batchRows: 10, Lag: lagging(c.ages), Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Yielding: func(y Yielding) { told = append(told, y) }, Progress: func(p work.Progress) { last = p },
			}
			if c.name == "left out" {
				o.batchRows = 0
			}
			begun := time.Now()
			m, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			took := time.Since(begun)
			if m.PausedSeconds != c.want.Seconds() || last.Paused != c.want || last.PausedFor != "" || RunEntry(m, "manual", false).PausedSeconds != m.PausedSeconds {
				t.Errorf("%s: the manifest says %v s, the progress %v (%q), want %v", c.name, m.PausedSeconds, last.Paused, last.PausedFor, c.want)
			}
			if most := c.want + 8*s; took < c.want+3*s || took > most { // while one waits the time of another's rows may pass
				t.Errorf("%s: Got %v, want about %v", c.name, took, c.want+5*s)
			}
			if n := len(told); (n == 0) != (c.want == 0) || n > 0 && (told[n-1] != Yielding{Paused: c.want} || told[0].Why == "") {
				t.Errorf("%s: Got %v", c.name, told)
			}
			for _, want := range c.says {
				if strings.Count(log.String(), want) != 1 {
					t.Errorf("%s: Got %s, want %s", c.name, log.String(), want)
				}
			}
			r, err := Verify(t.Context(), filepath.Join(o.Out, "j"))
			if err != nil || !r.OK() {
				t.Fatal(err, r.Err())
			}
			o.Lag, o.Yielding, o.Out, o.Now = nil, nil, t.TempDir(), nil
			same, err := Run(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			again, err := Verify(t.Context(), filepath.Join(o.Out, "j"))
			if err != nil {
				t.Fatal(err)
			}
			if d := gocmp.Diff(r.Checksums, again.Checksums); d != "" || same.PausedSeconds != 0 {
				t.Errorf("%s (-paused +not):\n%s", c.name, d)
			}
			if !strings.Contains(log.String(), "export does not yield to ingest: nothing here tells") {
				t.Errorf("%s: Got %s of a run that nobody tells the lag", c.name, log.String())
			}
		})
	}
}

// TestYieldOfLagUnknown: a run that cannot learn the lag does not pause, and says so once;
// one that pauses already waits half a minute for an answer.
func TestYieldOfLagUnknown(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		known  time.Duration // from when on it is not
		want   time.Duration
		logged string
	}{
		"from the beginning": {0, 0, "export does not yield to ingest as long as its lag is not known"},
		"in a pause":         {10 * time.Second, 39 * time.Second, "export goes on: how far ingest is behind is not known any more"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			begun := time.Now()
			m, err := Run(t.Context(), &RunOptions{
				Job: mustCompile(t, "j", yieldSpec(YieldToLag{Time: time.Second}), nil), Source: yieldSource(), Out: t.TempDir(), batchRows: 10, Parallelism: 1,
				Logger: slog.New(slog.NewTextHandler(&log, nil)),
				Lag: func(context.Context) ([]PipelineLag, error) {
					if time.Since(begun) >= c.known {
						return nil, errors.New("no daemon")
					}
					return []PipelineLag{{Pipeline: "p", Age: time.Minute}}, nil
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			if got := m.PausedSeconds; got != c.want.Seconds() || strings.Count(log.String(), c.logged) != 1 {
				t.Errorf("%s: Got %v s, want %v; %s", name, got, c.want, log.String())
			}
		})
	}
}

// TestYieldIsCancelled: a run that pauses ends as soon as it is to, and can be gone on with.
func TestYieldIsCancelled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		begun := time.Now()
		time.AfterFunc(time.Minute, func() { cancel(ErrResumable) })
		_, err := Run(ctx, &RunOptions{
			Job: mustCompile(t, "j", yieldSpec(YieldToLag{Time: time.Second}), nil), Source: yieldSource(), Out: t.TempDir(), batchRows: 10, Parallelism: 2, Checkpoint: "c",
			Lag: lagging(map[int]time.Duration{0: time.Hour}),
		})
		if !errors.Is(err, ErrResumable) || time.Since(begun) != time.Minute {
			t.Errorf("Got %v after %v", err, time.Since(begun))
		}
	})
}

// TestYieldOfJoin: a join pauses as that of its jobs does which allows less.
func TestYieldOfJoin(t *testing.T) {
	t.Parallel()
	for _, method := range []string{join.Merge, join.Hash, join.Lookup} {
		synctest.Test(t, func(t *testing.T) {
			all := map[string]*Job{}
			for name, job := range joinJobs(t) {
				spec := job.spec
				spec.YieldToLag = map[string]YieldToLag{"views": {Time: time.Hour, MaxPause: time.Minute}, "users": {Time: 30 * time.Second}}[name]
				all[name] = mustCompile(t, name, &spec, nil)
			}
			spec := joinSpec(join.Inner, method)
			spec.TargetFileBytes, spec.Formats = 0, []string{Arrow}
			j, err := CompileJoin("j", spec, func(name string) *Job { return all[name] })
			if err != nil {
				t.Fatal(err)
			}
			if want := (YieldToLag{Time: 30 * time.Second, MaxPause: time.Minute}); !j.Yields() || j.yieldToLag() != want {
				t.Errorf("Got %v", j.yieldToLag())
			}
			m, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: joinSource(3000), Out: t.TempDir(), Lag: lagging(map[int]time.Duration{0: time.Minute, 20: 0})})
			if err != nil {
				t.Fatal(err)
			}
			if m.PausedSeconds != 20 {
				t.Errorf("%s: Got %v s", method, m.PausedSeconds)
			}
		})
	}
}

func TestCompileYieldToLag(t *testing.T) {
	t.Parallel()
	for want, y := range map[string]YieldToLag{
		"":                                       {Time: time.Second},
		"yield_to_lag: it says":                  {MaxPause: time.Second},
		"yield_to_lag.time: 999ms":               {Time: 999 * time.Millisecond},
		"yield_to_lag.records: it is negative":   {Records: -1},
		"yield_to_lag.max_pause: it is negative": {Records: 1, MaxPause: -1},
	} {
		j, err := Compile("j", yieldSpec(y), nil)
		if want == "" && (err != nil || j.spec.YieldToLag.MaxPause != DefaultMaxPause) || want != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
			t.Errorf("Got %v, want %s", err, want)
		}
	}
	// What a run does not pause for does not make it another one.
	with, err := mustCompile(t, "j", yieldSpec(YieldToLag{Time: time.Minute}), nil).definition("")
	if err != nil {
		t.Fatal(err)
	}
	if without, err := mustCompile(t, "j", yieldSpec(YieldToLag{}), nil).definition(""); err != nil || with != without {
		t.Errorf("Got %s and %s, %v", with, without, err)
	}
}
