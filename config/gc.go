package config

import (
	"path/filepath"

	"sluice/jobs"
	"sluice/jobs/schedule"
)

// GCName is the name that the schedule of GC has beside those of jobs, joins and backups.
const GCName = "gc"

// GC is when the daemon tidies up.
type GC struct {
	// Schedule is when the daemon does what export gc does by hand, in the places of all
	// jobs and joins that have an out: it removes what exports have left that were never
	// published, which could be resumed by hand, and runs beyond keep. No job, join or
	// backup is named gc then.
	Schedule schedule.Spec `yaml:"schedule,omitempty"`
}

// KeepByOut returns how long runs are kept, by the place that they are published in, a
// clean path of a directory or s3://BUCKET/PREFIX, and by job or join: of those that have an
// out. Where out is not empty, it is the place of all.
func (c *Config) KeepByOut(out string) map[string]map[string]jobs.Keep {
	all := map[string]map[string]jobs.Keep{}
	add := func(name, place string, keep jobs.Keep) {
		if out != "" {
			place = out
		}
		if place == "" {
			return
		}
		if !InBucket(place) {
			place = filepath.Clean(place)
		}
		if all[place] == nil {
			all[place] = map[string]jobs.Keep{}
		}
		all[place][name] = keep
	}
	for name, spec := range c.Jobs {
		add(name, spec.Out, spec.Keep)
	}
	for name, spec := range c.Joins {
		add(name, spec.Out, spec.Keep)
	}
	return all
}

func (c *Config) lintGC(d *decoder, report reporter) {
	if !d.has("gc") {
		return
	}
	if c.GC.Schedule == (schedule.Spec{}) {
		if !d.unread["gc.schedule"] {
			report("gc", `write gc: {schedule: {cron: "30 4 * * *"}}; export gc tidies up by hand`, "it has no schedule, and so does nothing")
		}
		return
	}
	if _, err := schedule.Compile(GCName, &c.GC.Schedule); err != nil {
		d.specErrors("gc.schedule", err)
	}
	if other, _ := c.Declared(GCName); other.Kind != KindGC {
		report("gc", "one history would have the runs of both", "there is a %s of this name", other.Kind)
	}
	if len(c.KeepByOut("")) == 0 {
		report("gc", "", "no job or join has an out: there is no place to tidy up")
	}
}
