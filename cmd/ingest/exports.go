package main

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sluice/config"
	"sluice/internal/lastknown"
	"sluice/internal/overdue"
	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/serve"
	"sluice/serve/api"
)

// publishedAge is how old the answer of published may be: a directory of many
// runs must not be read at every scrape.
const publishedAge = 30 * time.Second

// lookPatience is how long directories, and the store, are waited for: less than a scrape
// may take, which tells much more than of exports.
const lookPatience = 2 * time.Second

// published knows the runs that the configured jobs, joins and backups have published, whichever
// process ran them, by looking at their directories.
type published struct {
	cfg       *config.Config
	schedules *schedule.Runner // nil = none
	log       *slog.Logger

	yields yields // of runs of this process

	mu   sync.Mutex
	runs map[string]*lastknown.Value[[]jobs.RunSummary] // by place; guarded by mu

	look func(name string, of *config.Declared) []jobs.RunSummary // list, but in tests

	histories lastknown.Value[map[string]pastRuns]
}

func newPublished(cfg *config.Config, log *slog.Logger) *published {
	p := &published{cfg: cfg, log: log, runs: map[string]*lastknown.Value[[]jobs.RunSummary]{}}
	p.look = p.list
	return p
}

// pastRuns are the newest entries of a job's history.
type pastRuns struct {
	entries []schedule.Entry
	err     error
}

// status returns a status a job, by name: what lies in its directory, and what its
// schedule does. A directory that cannot be read counts as one without runs;
// `export list` says why. One that does not answer is as it was when it last did.
func (p *published) status() []serve.ExportStatus {
	all := p.directories()
	yields := p.yields.all()
	for i := range all {
		y := yields[all[i].Name]
		all[i].Yielding, all[i].YieldSeconds = y.why, (y.before + y.current).Seconds()
	}
	if p.schedules == nil {
		return all
	}
	schedules := p.schedules.Status()
	histories := p.histories.Ask(0, lookPatience, func() map[string]pastRuns { return p.readHistories(schedules) })
	for _, st := range schedules {
		i := slices.IndexFunc(all, func(s serve.ExportStatus) bool { return s.Name == st.Job })
		if i >= 0 {
			all[i].Schedule = p.scheduleStatus(&st, histories[st.Job])
			failed := st.State.Results[schedule.Failed]
			for _, results := range st.State.Ordered {
				failed += results[schedule.Failed]
			}
			all[i].Runs["failed"] = uint64(failed)
			p.countCollections(&all[i], &st.State, histories[st.Job].entries)
		}
	}
	return all
}

// countCollections counts the runs of GC, which leaves nothing that could be looked at, by
// its state and history.
func (p *published) countCollections(s *serve.ExportStatus, st *schedule.State, newest []schedule.Entry) {
	if declared, _ := p.cfg.Declared(s.Name); declared.Kind != config.KindGC {
		return
	}
	ok := st.Results[schedule.OK]
	for _, results := range st.Ordered {
		ok += results[schedule.OK]
	}
	s.Runs["ok"] = uint64(ok)
	for i := range newest {
		if e := &newest[i]; e.Result == schedule.OK && e.Ended.After(s.LastSuccess) {
			s.LastSuccess = e.Ended
		}
	}
}

// historyEntries is how much of a job's history is shown with its status.
const historyEntries = 10

// readHistories reads the history of each schedule.
func (p *published) readHistories(of []schedule.Status) map[string]pastRuns {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	all := make(map[string]pastRuns, len(of))
	for i := range of {
		var h pastRuns
		h.entries, h.err = p.schedules.History(ctx, of[i].Job, historyEntries)
		all[of[i].Job] = h
	}
	return all
}

func (p *published) scheduleStatus(st *schedule.Status, h pastRuns) *serve.ScheduleStatus {
	declared, _ := p.cfg.Declared(st.Job)
	spec := declared.Schedule
	s := &serve.ScheduleStatus{
		Cron: spec.Cron, Zone: spec.Zone, Paused: st.State.Paused, Failures: st.State.Failures, Working: st.Working, Cause: st.Cause, Attempt: st.Attempt,
		Holder: st.Holder, Pending: len(st.State.Pending), Results: st.State.Results, Orders: []api.Order{}, Ordered: st.State.Ordered, Next: []time.Time{}, History: []api.ExportRun{},
	}
	for _, o := range st.State.Orders {
		s.Orders = append(s.Orders, api.Order(o))
	}
	if s.Zone == "" {
		s.Zone = "UTC"
	}
	if st.Err != nil {
		s.Reason = st.Err.Error()
	}
	if next, err := p.schedules.Upcoming(st.Job, historyEntries); err == nil && !s.Paused {
		s.Next = append(s.Next, next...)
	}
	if h.err != nil && s.Reason == "" {
		s.Reason = h.err.Error()
	}
	for i := range h.entries {
		s.History = append(s.History, api.ExportRun(h.entries[i]))
	}
	return s
}

// list returns the runs in the directory or bucket of name, of which a backup has one of
// its own; none where it cannot be read.
func (p *published) list(name string, of *config.Declared) []jobs.RunSummary {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	done := overdue.Tell(p.log, "look at the runs of an export", "job", name)
	defer done()
	t, err := p.cfg.OpenTarget(of.Out, false, p.log)
	if err != nil {
		return nil
	}
	defer t.Close()
	var runs []jobs.RunSummary
	if of.Kind == config.KindBackup {
		runs, _ = jobs.ListBackups(ctx, t, name)
	} else {
		runs, _ = jobs.ListTarget(ctx, t)
	}
	return runs
}

// directory returns what is known of a place, a directory or what a backup has in it.
func (p *published) directory(place string) *lastknown.Value[[]jobs.RunSummary] {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.runs[place] == nil {
		p.runs[place] = &lastknown.Value[[]jobs.RunSummary]{}
	}
	return p.runs[place]
}

// directories looks at the jobs' directories, side by side: one that does not answer keeps no
// other from it.
func (p *published) directories() []serve.ExportStatus {
	names := p.cfg.DeclaredNames()
	all := make([]serve.ExportStatus, len(names))
	var looks sync.WaitGroup
	for k, name := range names {
		looks.Go(func() { all[k] = p.job(name) })
	}
	looks.Wait()
	return all
}

// job looks at a job's directory.
func (p *published) job(name string) serve.ExportStatus {
	s := serve.ExportStatus{Name: name, Runs: map[string]uint64{"ok": 0}}
	declared, _ := p.cfg.Declared(name)
	if declared.Kind == config.KindGC {
		return s // it publishes nothing
	}
	place := declared.Out
	if declared.Kind == config.KindBackup {
		place += "\x00" + name
	}
	known := p.directory(place)
	runs := known.Ask(publishedAge, lookPatience, func() []jobs.RunSummary { return p.look(name, &declared) })
	s.DirectoryHeldSeconds = known.Held().Seconds()
	for i := range runs {
		r := &runs[i]
		if r.Job != s.Name || r.Err != nil {
			continue
		}
		s.Runs["ok"]++
		s.Rows += uint64(r.Rows)
		s.Bytes += uint64(r.Bytes)
		if r.FinishedAt.After(s.LastSuccess) {
			s.LastSuccess = r.FinishedAt
		}
	}
	return s
}
