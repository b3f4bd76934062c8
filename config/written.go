package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/internal/spelling"
)

// leastNamed is how long a qualifier is at least that is like another: n and p, one letter
// apart, are not.
const leastNamed = 4

// warnOfColumns warns of columns of jobs that no rule of the file writes, where one writes a
// column that is named almost so: qualifiers are free, and one that is misspelled would be
// exported as nothing but nulls.
func (c *Config) warnOfColumns(d *decoder) {
	written := map[string][]string{} // qualifiers by table and family, "t f"
	for _, name := range c.PipelineNames() {
		rules := c.Pipelines[name].Rules
		for i := range rules {
			for _, columns := range []map[string]map[string]string{rules[i].Put, rules[i].Append} {
				for family, qualifiers := range columns {
					at := rules[i].Table + " " + family
					written[at] = slices.AppendSeq(written[at], maps.Keys(qualifiers))
				}
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Jobs)) {
		spec := c.Jobs[name]
		for i := range spec.Columns {
			family, qualifier, ok := strings.Cut(spec.Columns[i].From, ":")
			there := written[spec.Table+" "+family]
			if !ok || len(qualifier) < leastNamed || slices.Contains(there, qualifier) {
				continue
			}
			slices.Sort(there)
			if hint := spelling.Hint(qualifier, there); hint != "" {
				path := fmt.Sprintf("%s.columns[%d].from", join("jobs", name), i)
				d.warn(path, hint, "no rule of this file writes column %s:%s of table %s", family, qualifier, spec.Table)
			}
		}
	}
}

// hiddenHint says how the field is had that a name of the record hides.
func hiddenHint(name string) string {
	hint := "write doc." + name + " for the field"
	if name == "time" {
		hint += ", or name it as event_time.field"
	}
	return hint
}
