package main

import (
	"context"
	"maps"
	"sync"
	"time"

	"sluice/jobs"
	"sluice/serve"
	"sluice/serve/api"
)

// lag is how far the daemon's pipelines are behind, for runs that yield to them.
func (d *daemon) lag(context.Context) ([]jobs.PipelineLag, error) {
	return lagOf(d.pipelineStatus(), time.Now()), nil
}

func lagOf(all []serve.PipelineStatus, now time.Time) (out []jobs.PipelineLag) {
	for i := range all {
		p := api.PipelineLag{Name: all[i].Name}
		for k := range all[i].Partitions {
			t := &all[i].Partitions[k]
			p.Partitions = append(p.Partitions, api.PartitionLag{State: t.State, Begun: t.Begun, Since: t.Since, Floor: t.Floor, End: t.End})
		}
		l := jobs.PipelineLag{Pipeline: p.Name}
		l.Age, l.Records = p.Behind(now)
		out = append(out, l)
	}
	return out
}

// yields is for how long runs of this process have paused for ingest, by job. The zero
// value is ready.
type yields struct {
	mu   sync.Mutex
	jobs map[string]yielded
}

type yielded struct {
	why     string        // the run at work pauses; empty = it does not
	before  time.Duration // that runs before it have paused
	current time.Duration // that it has
}

// begin returns what an attempt of a run tells of its pauses, and what ends it and returns for
// how long it has paused.
func (y *yields) begin(job string) (tell func(jobs.Yielding), end func() time.Duration) {
	change := func(change func(*yielded)) {
		y.mu.Lock()
		defer y.mu.Unlock()
		if y.jobs == nil {
			y.jobs = map[string]yielded{}
		}
		j := y.jobs[job]
		change(&j)
		y.jobs[job] = j
	}
	tell = func(now jobs.Yielding) { change(func(j *yielded) { j.why, j.current = now.Why, now.Paused }) }
	return tell, func() (paused time.Duration) {
		change(func(j *yielded) {
			paused = j.current
			*j = yielded{before: j.before + j.current}
		})
		return paused
	}
}

// all returns what there is, by job.
func (y *yields) all() map[string]yielded {
	y.mu.Lock()
	defer y.mu.Unlock()
	return maps.Clone(y.jobs)
}
