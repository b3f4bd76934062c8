package config

import (
	"fmt"
	"maps"
	"slices"

	"sluice/jobs"
	"sluice/jobs/schedule"
)

// Declared is what a job, a join, a backup and GC have in common.
type Declared struct {
	// Kind is one of those below.
	Kind string
	// Table is that of a job, and empty for what has none of its own.
	Table string
	// Out is where it publishes: a directory, or s3://BUCKET/PREFIX; empty for GC.
	Out string
	// Schedule is when the daemon runs it; the zero value = never.
	Schedule schedule.Spec
	// Keep is how long what it publishes is kept.
	Keep jobs.Keep
	// Iceberg says that what a job or join publishes is an Iceberg table, too.
	Iceberg bool
}

// Kinds of Declared.
const (
	KindJob    = "job"
	KindJoin   = "join"
	KindBackup = "backup"
	KindGC     = "garbage collection" // of GCName alone
)

// Declared returns the job, join or backup of this name, or GC where that is its name and
// it has a schedule: no two of them share one.
func (c *Config) Declared(name string) (Declared, bool) {
	if s, ok := c.Jobs[name]; ok {
		return Declared{KindJob, s.Table, s.Out, s.Schedule, s.Keep, s.Iceberg}, true
	}
	if s, ok := c.Joins[name]; ok {
		return Declared{KindJoin, "", s.Out, s.Schedule, s.Keep, s.Iceberg}, true
	}
	if s, ok := c.Backups[name]; ok {
		return Declared{KindBackup, "", s.Out, s.Schedule, s.Keep, false}, true
	}
	if name == GCName && c.GC.Schedule != (schedule.Spec{}) {
		return Declared{KindGC, "", "", c.GC.Schedule, jobs.Keep{}, false}, true
	}
	return Declared{}, false
}

// BackupNames returns the names of the backups, sorted.
func (c *Config) BackupNames() []string { return slices.Sorted(maps.Keys(c.Backups)) }

// DeclaredNames returns the names of the jobs, then the joins, then the backups, each
// sorted, and then that of GC, where it has a schedule.
func (c *Config) DeclaredNames() []string {
	names := slices.Concat(c.JobNames(), c.JoinNames(), c.BackupNames())
	if c.GC.Schedule != (schedule.Spec{}) {
		names = append(names, GCName)
	}
	return names
}

// Schedules compiles the schedules of what the file declares, by name; what has none is
// not in it.
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
