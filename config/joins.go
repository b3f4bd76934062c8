package config

import (
	"context"
	"maps"
	"slices"

	"sluice/jobs"
	"sluice/store"
)

// JoinNames returns the names of the joins, sorted.
func (c *Config) JoinNames() []string { return slices.Sorted(maps.Keys(c.Joins)) }

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
		_, err := jobs.CompileJoin(name, &spec, func(job string) *jobs.Job {
			s, ok := c.Jobs[job]
			if !ok {
				return nil
			}
			compiled, _ := jobs.Compile(job, &s, find(s.Table))
			return compiled
		})
		if err == nil {
			continue
		}
		// A job with mistakes, which are reported there, was none for the join.
		_, left := c.Jobs[spec.Left.Job]
		_, right := c.Jobs[spec.Right.Job]
		d.specErrorsBut(path, err, func(at string) bool { return at == "left.job" && left || at == "right.job" && right })
	}
}
