package jobs

import (
	"fmt"
	"sync"
	"syscall"
	"testing"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/jobs/join"
	"sluice/store"
)

// The threads that export for a job of low priority, and no others, are nice.
func TestPriorityLow(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		priority string
		nice     int // at least; the process may have been started at any
	}{{"", -20}, {PriorityNormal, -20}, {PriorityLow, 19}} {
		t.Run(test.priority, func(t *testing.T) {
			t.Parallel()
			m := jobstest.NewMemory()
			var rows []cell.Row
			for i := range 100 {
				rows = append(rows, cell.Row{Key: fmt.Appendf(nil, "%02d", i), Cells: []cell.Cell{{Family: "f", Qualifier: []byte("q"), Time: 1, Kind: cell.KindPut, Value: []byte("v")}}})
			}
			m.Add("t", []store.FamilyDescriptor{store.NewFamily("f")}, []string{"30", "60"}, rows)
			own, err := niceness()
			if err != nil {
				t.Fatal(err)
			}
			var mu sync.Mutex
			seen := 0
			m.Scanned = func([]byte) error {
				nice, err := niceness()
				mu.Lock()
				defer mu.Unlock()
				seen++
				if want := max(test.nice, own); err == nil && nice != want {
					err = fmt.Errorf("the nice value is %d, want %d", nice, want)
				}
				return err
			}
			job, err := Compile("j", &Spec{Table: "t", Priority: test.priority, Columns: []columnar.ColumnSpec{{Name: "k", From: "$row", Type: "string"}}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := Run(t.Context(), &RunOptions{Job: job, Source: m, Out: t.TempDir(), Parallelism: 2}); err != nil {
				t.Fatal(err)
			}
			if seen != len(rows) {
				t.Errorf("Got %d rows scanned, want %d", seen, len(rows))
			}
			if nice, err := niceness(); err != nil || nice != own {
				t.Errorf("Got nice value %d (%v) afterwards, had %d", nice, err, own)
			}
		})
	}
}

// TestPriorityOfJoin: a join is as nice as the nicer of its jobs, and leaves no thread
// that is.
func TestPriorityOfJoin(t *testing.T) {
	t.Parallel()
	own, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	for _, low := range []string{"", "views", "users"} {
		all := map[string]*Job{}
		for name, job := range joinJobs(t) {
			spec := job.spec
			if name == low {
				spec.Priority = PriorityLow
			}
			all[name] = mustCompile(t, name, &spec, nil)
		}
		want := own
		if low != "" {
			want = max(19, own)
		}
		j, err := CompileJoin("j", joinSpec(join.Inner, join.Merge), func(name string) *Job { return all[name] })
		if err != nil {
			t.Fatal(err)
		}
		src := joinSource(100)
		seen := 0
		src.Scanned = func([]byte) error {
			nice, err := niceness()
			if seen++; err == nil && nice != want {
				err = fmt.Errorf("the nice value is %d, want %d", nice, want)
			}
			return err
		}
		if _, err := RunJoin(t.Context(), &JoinOptions{Join: j, Source: src, Out: t.TempDir()}); err != nil || seen == 0 {
			t.Errorf("low %q: Got %v after %d rows", low, err, seen)
		}
		if nice, err := niceness(); err != nil || nice != own {
			t.Errorf("Got nice value %d (%v) afterwards, had %d", nice, err, own)
		}
	}
}

// niceness is the nice value of the calling thread.
func niceness() (int, error) {
	n, err := syscall.Getpriority(syscall.PRIO_PROCESS, syscall.Gettid())
	return 20 - n, err // the system call's own form
}
