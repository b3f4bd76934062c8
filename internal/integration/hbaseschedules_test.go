//go:build integration

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/store"
	"sluice/store/hbasestore"
)

// sharedSchedule is the row of a job's schedule: who holds it, and what was settled.
type sharedSchedule struct {
	schedule.State
	Holder string `json:"holder"`
}

func readSharedSchedule(t *testing.T, s *hbasestore.Store, job string) (st sharedSchedule) {
	t.Helper()
	row := append(cell.AppendPart(nil, []byte(job)), 's')
	sc := s.Scan(t.Context(), &store.Scan{Table: store.JobsTable, Start: row, Stop: row, StopInclusive: true})
	defer sc.Close()
	if sc.Next() {
		if err := json.Unmarshal(sc.Row().Cells[0].Value, &st); err != nil {
			t.Fatal(err)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return st
}

// TestHBaseSchedules (I10): three daemons on one HBase have a job for every second. The
// one that runs it is stopped, the next is frozen for longer than its hold lasts and
// goes on again: another takes over each time, every logical time is settled once, and
// nothing is published twice.
func TestHBaseSchedules(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	defer s.Close()
	emptyHBase(t, s)
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	job := fmt.Sprintf("second-%d", time.Now().UnixNano()) // the table of histories outlives the test
	file := filepath.Join(dir, "sluice.yaml")
	text := fmt.Sprintf(`
store: {engine: hbase, hbase: {gateways: [%q]}}
serve: {listen: "127.0.0.1:0"}
tables: {scheduled: {families: {f: {}}}}
jobs:
  %s:
    table: scheduled
    columns: [{name: key, from: $row, type: string}]
    out: %q
    schedule: {cron: "@every 1s", catch_up: none}
`, address, job, out)
	if err := os.WriteFile(file, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	daemons := map[string]*Daemon{} // by "/pid/", as in the holder's name
	for range 3 {
		d := StartDaemon(t, file, os.Environ())
		daemons[fmt.Sprintf("/%d/", d.cmd.Process.Pid)] = d
	}
	// await waits until a daemon other than the last one has published something.
	await := func(last string) (name string) {
		t.Helper()
		deadline := time.After(10 * time.Minute)
		ok := int64(-1)
		for tick := time.NewTicker(200 * time.Millisecond); ; {
			for name, d := range daemons {
				if ended, err := d.Exited(); ended {
					t.Fatalf("daemon %s ended by itself: %v\n%s", name, err, d.Log())
				}
			}
			st := readSharedSchedule(t, s, job)
			if st.Holder != "" && (last == "" || !strings.Contains(st.Holder, last)) {
				if ok < 0 {
					ok = st.Results[schedule.OK]
				}
				if st.Results[schedule.OK] > ok {
					for name := range daemons {
						if strings.Contains(st.Holder, name) {
							return name
						}
					}
				}
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("Got %+v after 10 minutes, last held by %s", st, last)
			}
		}
	}
	first := await("")
	stopped := daemons[first]
	delete(daemons, first)
	if err := stopped.Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	second := await(first)
	if err := daemons[second].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	third := await(second)
	if err := daemons[second].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	for deadline := time.After(5 * time.Minute); !strings.Contains(daemons[second].Log(), "schedule is lost"); {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatal("the daemon that was frozen has not found out")
		}
	}
	if st := readSharedSchedule(t, s, job); !strings.Contains(st.Holder, third) {
		t.Errorf("Got holder %s, want %s", st.Holder, third)
	}
	if _, err := Run(t, os.Environ(), nil, "export", "pause", "-c", file, job); err != nil {
		t.Error(err)
	}
	for deadline := time.After(5 * time.Minute); !readSharedSchedule(t, s, job).Paused; {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-deadline:
			t.Fatal("the schedule was not paused")
		}
	}
	for _, d := range daemons {
		if err := d.Stop(time.Minute); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}

	entries, err := history.Entries(t.Context(), s, job, 100_000)
	if err != nil {
		t.Fatal(err)
	}
	runs, err := jobs.List(t.Context(), out)
	if err != nil {
		t.Fatal(err)
	}
	published, settled := map[time.Time]bool{}, map[time.Time]bool{}
	for _, r := range runs {
		if r.Err != nil || published[r.LogicalTime] {
			t.Errorf("Got run %+v", r)
		}
		published[r.LogicalTime] = true
	}
	st := readSharedSchedule(t, s, job)
	counts := map[string]int64{}
	for _, e := range entries {
		if settled[e.Logical] {
			t.Errorf("%v is settled twice", e.Logical)
		}
		settled[e.Logical] = true
		counts[e.Result] += e.Count
		if (e.Result == schedule.OK || e.Result == schedule.Published) && !published[e.Logical] || e.Result == schedule.Failed {
			t.Errorf("Got %+v; published: %t", e, published[e.Logical])
		}
	}
	for result, n := range st.Results {
		if counts[result] != n {
			t.Errorf("the history has %d %s, the state counts %d", counts[result], result, n)
		}
	}
	if st.Holder != "" {
		t.Errorf("Got holder %s after all have stopped", st.Holder)
	}
	t.Logf("%v, %d runs", counts, len(runs))
}
