package config

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"sluice/jobs"
	"sluice/jobs/schedule"
	"sluice/store"
)

// JoinNames returns the names of the joins, sorted.
func (c *Config) JoinNames() []string { return slices.Sorted(maps.Keys(c.Joins)) }

// Schedules compiles the schedules of the jobs and joins of the file, by name; those that
// have none are not in it.
func (c *Config) Schedules() (map[string]*schedule.Schedule, error) {
	all := map[string]*schedule.Schedule{}
	for _, name := range slices.Concat(c.JobNames(), c.JoinNames()) {
		spec := c.Jobs[name].Schedule
		if j, ok := c.Joins[name]; ok {
			spec = j.Schedule
		}
		if spec == (schedule.Spec{}) {
			continue
		}
		s, err := schedule.Compile(name, &spec)
		if err != nil {
			return nil, fmt.Errorf("schedule of %s: %w", name, err)
		}
		all[name] = s
	}
	return all, nil
}

// SchemasOf returns what CompileJoin finds schemas by, where table is the method of a store
// or an instant of it: nil where that gives none, of which the scan says why.
func SchemasOf(ctx context.Context, table func(context.Context, string) (*store.TableDescriptor, error)) func(name string) *store.TableDescriptor {
	return func(name string) *store.TableDescriptor {
		d, err := table(ctx, name)
		if err != nil {
			return nil
		}
		return d
	}
}

// CompileJoin compiles a join of the file. find returns the schema of a table, nil
// where it is not known.
func (c *Config) CompileJoin(name string, find func(table string) *store.TableDescriptor) (*jobs.Join, error) {
	spec := c.Joins[name]
	var failed error
	j, err := jobs.CompileJoin(name, &spec, func(job string) *jobs.Job {
		s, ok := c.Jobs[job]
		if !ok {
			return nil
		}
		compiled, err := jobs.Compile(job, &s, find(s.Table))
		if err != nil {
			failed = err
		}
		return compiled
	})
	if failed != nil {
		return nil, failed
	}
	return j, err
}

func (c *Config) lintJoins(d *decoder, report reporter, find func(string) *store.TableDescriptor) {
	for _, name := range c.JoinNames() {
		path := join("joins", name)
		if _, ok := c.Jobs[name]; ok {
			report(path, "their runs would be in one directory", "there is a job of this name")
		}
		spec := c.Joins[name]
		broken := false // its job has mistakes, which are reported there
		_, err := jobs.CompileJoin(name, &spec, func(job string) *jobs.Job {
			s, ok := c.Jobs[job]
			if !ok {
				return nil
			}
			compiled, err := jobs.Compile(job, &s, find(s.Table))
			broken = broken || err != nil
			return compiled
		})
		if err != nil && !broken {
			d.specErrors(path, err)
		}
	}
}
