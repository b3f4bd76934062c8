package config

import (
	"fmt"
	"slices"

	"sluice/inverse"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// DerivedJobs returns jobs that read a table by the rules of the file that write it
// (package inverse), which publish below out. Their names are of no job, join or backup of
// the file. Its error wraps store.ErrTableNotFound where the file does not declare the
// table, and inverse.ErrNotWritten where no rule writes it.
func (c *Config) DerivedJobs(table, out string) ([]inverse.Job, error) {
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
	jobs, err := inverse.Jobs(descriptor, rules)
	if err != nil {
		return nil, err
	}
	taken := c.DeclaredNames()
	for i := range jobs {
		j := &jobs[i]
		name := j.Name
		for n := 2; slices.Contains(taken, name); n++ {
			name = fmt.Sprintf("%s_%d", j.Name, n)
		}
		j.Name = name
		taken = append(taken, name)
		j.Spec.Out = out
	}
	return jobs, nil
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
