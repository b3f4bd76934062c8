package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve"
	"sluice/serve/api"
)

// TestOrder: what is ordered arrives at the daemon, and what is open is listed.
func TestOrder(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	calls := make(chan string, 10)
	daemon(t, file, func(o *serve.Options) {
		history, err := history.New(o.Engine)
		if err != nil {
			t.Fatal(err)
		}
		o.OrderExport = func(ctx context.Context, job string, q api.OrderRequest) (api.Order, error) {
			calls <- fmt.Sprint(job, " ", q.Time.IsZero(), " ", q.From.Unix(), " ", q.To.Unix())
			order := schedule.Order{ID: "abc", Cause: schedule.Backfill, From: q.From, To: q.To, Next: q.From, Times: 1234, Ended: 7}
			if q.From.IsZero() {
				order = schedule.Order{ID: "def", Cause: schedule.Manual, From: q.Time, Next: q.Time, Times: 1}
			}
			return api.Order(order), history.Save(ctx, job, schedule.State{Orders: []schedule.Order{order}}, nil)
		}
		o.CancelOrder = func(_ context.Context, job, order string) error {
			if order != "abc" {
				return fmt.Errorf("%w: order %s", api.ErrNotFound, order)
			}
			calls <- job + " " + order
			return nil
		}
	})
	at := "2026-01-02T02:30:00Z"
	for _, tt := range []struct {
		args          string
		status        int
		call, printed string
	}{
		{"list", 0, "", "never"},
		{"run --daemon --time " + at + " views", 0, "views false -62135596800 -62135596800", "order def is accepted: the daemon runs views for " + at},
		{"list", 0, "", "order def (manual, 0 of 1 ended)  " + at},
		{"run --daemon views", 0, "views false -62135596800 -62135596800", "order def is accepted"},
		{"backfill --daemon --from " + at + " --to 2026-02-01T00:00:00Z views", 0, "views true 1767321000 1769904000", "runs views for 1,234 times of its schedule, the first " + at},
		{"list", 0, "", "order abc (backfill, 7 of 1234 ended)  " + at},
		{"cancel views abc", 0, "views abc", ""},
		{"cancel views xyz", cli.StatusFailed, "", ""},
		{"cancel idle abc", cli.StatusUsage, "", ""},
	} {
		args := strings.Fields(tt.args)
		stdout, stderr, status := export(t, append([]string{args[0], "-c", file}, args[1:]...)...)
		call := ""
		if tt.call != "" && status == 0 {
			call = <-calls
		}
		if status != tt.status || call != tt.call || !strings.Contains(stdout, tt.printed) {
			t.Errorf("%s: Got status %d, call %q, %s%s", tt.args, status, call, stdout, stderr)
		}
	}
	stdout, _, _ := export(t, "list", "-c", file, "--json")
	var l listed
	for d := json.NewDecoder(strings.NewReader(stdout)); d.More() && l.State != "ordered"; {
		l = listed{}
		if err := d.Decode(&l); err != nil {
			t.Fatal(err)
		}
	}
	if l.Order == nil || l.Order.ID != "abc" || l.Time == nil || l.Time.Format(time.RFC3339) != at || l.Job != "views" || l.Next == "" {
		t.Errorf("Got %+v in %s", l, stdout)
	}
	stdout, _, status := export(t, "backfill", "-c", file, "--daemon", "--json", "--from", at, "--to", "2026-02-01T00:00:00Z", "views")
	if err := json.Unmarshal([]byte(stdout), new(api.Order)); status != 0 || err != nil || !strings.Contains(stdout, `"id":"abc"`) {
		t.Errorf("Got status %d, %v, %s", status, err, stdout)
	}
}

// TestOrderWait: with --wait the command tells of the runs of the order it has given,
// not of earlier ones, and ends as they did.
func TestOrderWait(t *testing.T) {
	t.Parallel()
	file, _ := setup(t, "a")
	at := time.Date(2026, 1, 2, 2, 30, 0, 0, time.UTC)
	ends := make(chan []schedule.Entry, 1)
	var without atomic.Bool // the schedule, as a daemon that was started again with another file
	daemon(t, file, func(o *serve.Options) {
		o.Exports = func() []serve.ExportStatus {
			views := serve.ExportStatus{Name: "views", Schedule: &serve.ScheduleStatus{}}
			if without.Load() {
				views.Schedule = nil
			}
			return []serve.ExportStatus{views}
		}
		history, err := history.New(o.Engine)
		if err != nil {
			t.Fatal(err)
		}
		s, err := jobSchedule(file)
		if err != nil {
			t.Fatal(err)
		}
		o.OrderExport = func(ctx context.Context, job string, q api.OrderRequest) (api.Order, error) {
			order, err := s.Order(schedule.OrderRequest(q), at.Add(40*24*time.Hour))
			if err != nil {
				return api.Order{}, err
			}
			entries := <-ends
			st := schedule.State{}
			if len(entries) == 0 {
				st.Orders = []schedule.Order{order}
			}
			for i := range entries {
				entries[i].Order, entries[i].Logical, entries[i].Count = order.ID, at, max(entries[i].Count, 1)
			}
			return api.Order(order), history.Save(ctx, job, st, entries)
		}
	})
	hour := at.Add(time.Hour)
	later := hour.Add(time.Minute)
	manual := "run --daemon --wait -q --time 2026-01-02T02:30:00Z views"
	for _, tt := range []struct {
		args    string
		entries []schedule.Entry
		status  int
		want    string
		not     string
	}{
		{manual, []schedule.Entry{{Result: schedule.Failed, Error: "no space", Ended: hour}}, cli.StatusFailed, "1 of 1 runs were not published: the one for 2026-01-02T02:30:00Z: failed: no space", ""},
		{manual, []schedule.Entry{{Result: schedule.OK, RunID: "r1", Rows: 1234, Started: hour, Ended: later}}, 0, "views for 2026-01-02T02:30:00Z: ok, run r1, 1,234 rows, 0 B, 60.00 s", "no space"},
		{manual + " --json", []schedule.Entry{{Result: schedule.Published, RunID: "r1", Ended: later.Add(1)}}, 0, `"result":"published"`, `"result":"ok"`},
		{
			"backfill --daemon --wait --from 2026-01-01T00:00:00Z --to 2026-01-04T00:00:00Z views",
			[]schedule.Entry{{Result: schedule.OK, Ended: hour}, {Result: schedule.Cancelled, Count: 2, Ended: later}},
			cli.StatusFailed,
			"2 of 3 runs were not published: the one for 2026-01-02T02:30:00Z: cancelled", "",
		},
		{
			"backfill --daemon --wait --from 2026-01-01T00:00:00Z --to 2026-01-05T00:00:00Z views",
			[]schedule.Entry{{Result: schedule.OK, Ended: hour}},
			cli.StatusFailed, "of 4 runs the history names only 1", "",
		},
		{"run --wait views", nil, cli.StatusUsage, "--wait is of --daemon", ""},
	} {
		if len(tt.entries) > 0 {
			ends <- tt.entries
		}
		args := strings.Fields(tt.args)
		stdout, stderr, status := export(t, append([]string{args[0], "-c", file}, args[1:]...)...)
		if all := stdout + stderr; status != tt.status || !strings.Contains(all, tt.want) || (tt.not != "" && strings.Contains(all, tt.not)) {
			t.Errorf("%s: Got status %d, %s", tt.args, status, all)
		}
	}

	without.Store(true)
	ends <- nil
	_, stderr, status := export(t, "run", "-c", file, "--daemon", "--wait", "--time", "2026-01-02T02:30:00Z", "views")
	if want := "is open, and the daemon that runs now has no schedule of views"; status != cli.StatusFailed || !strings.Contains(stderr, want) {
		t.Errorf("without a schedule: Got status %d, %s, want %q", status, stderr, want)
	}
	without.Store(false)

	// Who ends the wait does not end the order.
	ends <- nil
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var out, errs strings.Builder
	p := &cli.Program{Stdin: strings.NewReader(""), Stdout: io.MultiWriter(&out, cancels(cancel)), Stderr: &errs, LookupEnv: func(string) (string, bool) { return "", false }}
	status = cli.Run(ctx, p, "export", "", new(commands), []string{"run", "-c", file, "--daemon", "--wait", "--time", "2026-01-03T00:00:00Z", "views"})
	if status != cli.StatusInterrupted || !strings.Contains(out.String(), "is accepted") || !strings.Contains(errs.String(), "goes on in the daemon: export cancel views ") {
		t.Errorf("Got status %d, %s%s", status, out.String(), errs.String())
	}
}

// cancels calls itself where something is written.
type cancels context.CancelFunc

func (c cancels) Write(b []byte) (int, error) { c(); return len(b), nil }

// jobSchedule returns the schedule of the job views of a file.
func jobSchedule(file string) (*schedule.Schedule, error) {
	cfg, err := config.Load(file, nil)
	if err != nil {
		return nil, err
	}
	return scheduled(cfg, "views")
}
