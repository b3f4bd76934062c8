package config

import (
	"fmt"
	"maps"
	"slices"

	"sluice/jobs"
	"sluice/jobs/schedule"
)

// Declared is what a job, a join and a backup have in common.
type Declared struct {
	// Kind is job, join or backup.
	Kind string
	// Table is that of a job, and empty for what has none of its own.
	Table string
	// Out is where it publishes: a directory, or s3://BUCKET/PREFIX.
	Out string
	// Schedule is when the daemon runs it; the zero value = never.
	Schedule schedule.Spec
	// Keep is how long what it publishes is kept.
	Keep jobs.Keep
}

// Kinds of Declared.
const (
	KindJob    = "job"
	KindJoin   = "join"
	KindBackup = "backup"
)

// Declared returns the job, join or backup of this name: no two of them share one.
func (c *Config) Declared(name string) (Declared, bool) {
	if s, ok := c.Jobs[name]; ok {
		return Declared{KindJob, s.Table, s.Out, s.Schedule, s.Keep}, true
	}
	if s, ok := c.Joins[name]; ok {
		return Declared{KindJoin, "", s.Out, s.Schedule, s.Keep}, true
	}
	s, ok := c.Backups[name]
	return Declared{KindBackup, "", s.Out, s.Schedule, s.Keep}, ok
}

// BackupNames returns the names of the backups, sorted.
func (c *Config) BackupNames() []string { return slices.Sorted(maps.Keys(c.Backups)) }

// DeclaredNames returns the names of the jobs, then the joins, then the backups, each
// sorted.
func (c *Config) DeclaredNames() []string {
	return slices.Concat(c.JobNames(), c.JoinNames(), c.BackupNames())
}

// Schedules compiles the schedules of the jobs, joins and backups of the file, by name;
// those that have none are not in it.
func (c *Config) Schedules() (map[string]*schedule.Schedule, error) {
	all := map[string]*schedule.Schedule{}
	for _, name := range c.DeclaredNames() {
		d, _ := c.Declared(name)
		if d.Schedule == (schedule.Spec{}) {
			continue
		}
		s, err := schedule.Compile(name, &d.Schedule)
		if err != nil {
			return nil, fmt.Errorf("schedule of %s: %w", name, err)
		}
		all[name] = s
	}
	return all, nil
}
