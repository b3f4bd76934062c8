package config

import (
	"fmt"
	"slices"

	"sluice/inverse"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// DerivedJobs returns jobs that read tables by the rules of the file that write them
// (package inverse), which publish below out. Their names are of no job, join or backup of
// the file, and no two have one. Its error wraps store.ErrTableNotFound where the file does
// not declare a table, and inverse.ErrNotWritten where no rule writes it.
func (c *Config) DerivedJobs(tables []string, out string) (all []inverse.Job, err error) {
	taken := c.DeclaredNames()
	for _, table := range tables {
		found, err := c.derived(table)
		if err != nil {
			return nil, err
		}
		for _, j := range found {
			name := j.Name
			for n := 2; slices.Contains(taken, name); n++ {
				name = fmt.Sprintf("%s_%d", j.Name, n)
			}
			taken = append(taken, name)
			j.Name, j.Spec.Out = name, out
			all = append(all, j)
		}
	}
	return all, nil
}

// derived returns the jobs that read a table, by names of their own.
func (c *Config) derived(table string) ([]inverse.Job, error) {
	if isTemplate(table) {
		return nil, fmt.Errorf("%w: %s stands for all tables whose names begin so: name one", store.ErrInvalidArgument, table)
	}
	descriptor := c.tableFinder()(table)
	if descriptor == nil {
		return nil, fmt.Errorf("%w: %s is not in %s", store.ErrTableNotFound, table, c.file)
	}
	var rules []inverse.Rules
	for _, name := range c.PipelineNames() {
		p := c.Pipelines[name]
		rules = append(rules, inverse.Rules{Pipeline: name, Spec: c.rules(&p)})
	}
	return inverse.Jobs(descriptor, rules)
}

// WrittenTables returns the names of the tables that rules of the file write, sorted; not of
// those whose names an expression makes.
func (c *Config) WrittenTables() []string {
	var all []string
	for _, spec := range c.TableSpecs() {
		for _, name := range c.PipelineNames() {
			p := c.Pipelines[name]
			ws, err := p.Written()
			if err == nil && slices.ContainsFunc(ws, func(w mapping.Written) bool { return w.MayWrite(spec.Descriptor.Name) }) {
				all = append(all, spec.Descriptor.Name)
				break
			}
		}
	}
	return all
}
