// Package inverse reads a mapping backwards: of the rules that write a table it makes the
// export jobs that read it, with the columns, types and codings of what the rules put
// there, and the parts of the row key.
//
// What the rules do not tell is said, in notes beside the columns, and never guessed: a
// column whose values can be anything is a string, or bytes, which take all of them. The
// package compares rules of all pipelines that write the table, and takes what reads what
// each of them writes. What others write into it, the shell or another configuration, it
// does not know.
//
// It reads no store and no file. What it returns is the caller's; nothing is kept.
package inverse

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/counters"
	"sluice/jobs"
	"sluice/jobs/columnar"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// ErrNotWritten is wrapped by the errors of tables that no rule writes.
var ErrNotWritten = errors.New("inverse: no rule writes the table")

// Rules are those of one pipeline.
type Rules struct {
	Pipeline string
	Spec     *mapping.Spec // with its schema, if it has one; it has no mistakes
}

// Job is an export job that reads what rules write.
type Job struct {
	// Name is made of the table's, and is no other's of the same table.
	Name string
	// Spec has no Out.
	Spec jobs.Spec
	// Notes are what is to be said of the job, a line each.
	Notes []string
	// Fields and Columns are what is to be said of each field of the row key and of each
	// column of Spec; may be empty.
	Fields, Columns []string
}

// written is what a rule or rollup of a pipeline writes.
type written struct {
	mapping.Written
	at string // its place in the file
}

// Jobs returns the jobs that read a table, at least one: it has several where no columns
// could hold all that is in it, as counts of different sets of dimensions. Its error wraps
// ErrNotWritten, or is that of a rule.
func Jobs(table *store.TableDescriptor, all []Rules) ([]Job, error) {
	var rules, rollups []written
	for _, r := range all {
		ws, err := r.Spec.Written()
		if err != nil {
			return nil, fmt.Errorf("pipeline %s: %w", r.Pipeline, err)
		}
		for i := range ws {
			w := written{ws[i], "pipelines." + r.Pipeline + "." + ws[i].Path}
			switch {
			case !w.MayWrite(table.Name):
			case w.Rollup != nil:
				rollups = append(rollups, w)
			default:
				rules = append(rules, w)
			}
		}
	}
	switch {
	case len(rules)+len(rollups) == 0:
		return nil, fmt.Errorf("%w: %s", ErrNotWritten, table.Name)
	case len(rules) == 0:
		return rollupJobs(table, rollups), nil
	}
	return ruleJobs(table, rules, rollups), nil
}

// jobName returns a name that a job can have, of a table's and what is added to it.
func jobName(table string, more ...string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_.-", r) {
			return r
		}
		return '_'
	}, strings.Join(append([]string{table}, more...), "_"))
	name = strings.TrimLeft(name, "_.-")
	if name == "" {
		name = "job"
	}
	return name[:min(len(name), 80)] // with room for what tells it from another
}

// apart makes the names of jobs of which two are the same those of different ones.
func apart(all []Job) []Job {
	seen := map[string]bool{}
	for i := range all {
		name := all[i].Name
		for n := 2; seen[name]; n++ {
			name = fmt.Sprintf("%s_%d", all[i].Name, n)
		}
		all[i].Name = name
		seen[name] = true
	}
	return all
}

// typed returns the type and the coding of columns of values, and what is to be said of
// them; the coding is empty where it is the type's first.
func typed(v *mapping.Value) (typ, coding, note string) {
	if v.Kind == mapping.KindDecimal {
		if v.Precision > columnar.MaxPrecision {
			return "string", "", fmt.Sprintf("a decimal of up to %d digits, more than a decimal column has", v.Precision)
		}
		return fmt.Sprintf("decimal(%d,%d)", v.Precision, v.Scale), "", v.Note
	}
	if v.Time {
		return "timestamp", codings[v.Kind], v.Note
	}
	return types[v.Kind], codings[v.Kind], v.Note
}

// types and codings are those of each kind of value, but for decimals.
var (
	types = map[mapping.Kind]string{
		mapping.KindBytes: "bytes", mapping.KindText: "string", mapping.KindInt: "int64", mapping.KindMillis: "timestamp",
		mapping.KindFloat: "float64", mapping.KindBool: "bool", mapping.KindJSON: "json",
		mapping.KindU16: "int64", mapping.KindU32: "int64", mapping.KindU64: "int64", mapping.KindI64: "int64", mapping.KindInt64: "int64",
		mapping.KindReverseTime: "timestamp", mapping.KindReverseInt: "int64", mapping.KindFixed: "string", mapping.KindReversed: "string",
	}
	codings = map[mapping.Kind]string{
		mapping.KindU16: "u16", mapping.KindU32: "u32", mapping.KindU64: "u64", mapping.KindI64: "i64", mapping.KindInt64: "int64be",
		mapping.KindReverseTime: "reverse_ts", mapping.KindReverseInt: "reverse_ts", mapping.KindFixed: "fixed", mapping.KindReversed: "reverse",
	}
)

// builder makes a job.
type builder struct {
	job   Job
	names map[string]bool // of columns, in lower case
}

func newBuilder(table *store.TableDescriptor, name string) *builder {
	return &builder{job: Job{Name: name, Spec: jobs.Spec{Table: table.Name}}, names: map[string]bool{}}
}

// name returns a name that no column has, the first of wanted if it is free.
func (b *builder) name(wanted ...string) string {
	for i := range wanted {
		wanted[i] = columnName(wanted[i])
	}
	last := wanted[len(wanted)-1]
	for n := 2; ; n++ {
		for _, w := range wanted {
			if w != "" && !b.names[strings.ToLower(w)] {
				b.names[strings.ToLower(w)] = true
				return w
			}
		}
		wanted = []string{fmt.Sprintf("%s_%d", last, n)}
	}
}

// columnName returns a qualifier, or another name, as a column can have it.
func columnName(name string) string {
	return strings.ToValidUTF8(strings.Map(func(r rune) rune {
		if r == '.' || r < ' ' || r >= 0x7f && r < 0xa0 {
			return '_'
		}
		return r
	}, name), "_")
}

func (b *builder) column(c columnar.ColumnSpec, note string) {
	b.job.Spec.Columns = append(b.job.Spec.Columns, c)
	b.job.Columns = append(b.job.Columns, note)
}

// value adds a column of values.
func (b *builder) value(name, from string, v *mapping.Value) {
	typ, coding, note := typed(v)
	b.column(columnar.ColumnSpec{Name: name, From: from, Type: typ, Coding: coding}, note)
}

func (b *builder) note(format string, args ...any) {
	b.job.Notes = append(b.job.Notes, fmt.Sprintf(format, args...))
}

// places lists where rules are.
func places(ws []written) string {
	var at []string
	for i := range ws {
		at = append(at, ws[i].at)
	}
	return strings.Join(at, ", ")
}

// cellColumn is one that rules write by name.
type cellColumn struct {
	family, qualifier string
	value             mapping.Value
	texts             []string // the values' expressions
	at                []string
	appended, counted bool
}

// dynamic is a family with columns that an expression names.
type dynamic struct {
	family string
	name   mapping.Value // of the qualifiers
}

// ruleJobs returns the jobs of a table that rules write, and rollups perhaps besides.
func ruleJobs(table *store.TableDescriptor, rules, rollups []written) []Job {
	columns, dynamics := collect(rules)
	for i := range rollups {
		for _, bucket := range rollups[i].Rollup.Buckets {
			if k, ok := counters.ParseBucket(bucket); ok {
				dynamics = addDynamic(dynamics, k.Family(rollups[i].Rollup.Distinct != ""), mapping.Value{Kind: mapping.KindText})
			}
		}
	}
	key := unify(rules, rollups)
	var all []Job
	var apartFrom []dynamic // those that the job of rows does not have
	if len(columns) > 0 {
		b := newBuilder(table, jobName(table.Name))
		b.note("%s is written by %s", table.Name, places(slices.Concat(rules, rollups)))
		for i := range columns {
			c := &columns[i]
			c.name(b, columns)
		}
		b.key(key, columns)
		for i := range columns {
			columns[i].add(b, table)
		}
		for _, d := range dynamics {
			if !d.name.IsText() {
				if slices.ContainsFunc(columns, func(c cellColumn) bool { return c.family == d.family }) {
					d.name = mapping.Either(d.name, mapping.Value{Kind: mapping.KindText}) // the job has these, too
				}
				apartFrom = append(apartFrom, d)
				continue
			}
			b.column(columnar.ColumnSpec{
				Name: b.name(d.family, d.family+"_columns"), From: columnar.FromUnmatched + d.family, Type: "map(int64)", Coding: countCoding(table, d.family),
			}, "its columns are named by the record")
		}
		b.column(columnar.ColumnSpec{Name: b.name("timestamp", "cell_timestamp"), From: columnar.FromTimestamp, Type: "timestamp"}, "of the row's newest cell")
		unwritten(b, table, columns, dynamics)
		all = append(all, b.done())
		dynamics = apartFrom
	}
	return apart(append(all, cellJobs(table, key, dynamics, slices.Concat(rules, rollups), len(columns) > 0)...))
}

// cellJobs returns jobs of a row a cell, of families whose columns the record names: one of
// those that count, and one of those that count different values.
func cellJobs(table *store.TableDescriptor, key *keyParts, dynamics []dynamic, all []written, more bool) (out []Job) {
	for _, coding := range []string{"int64be", "distinct"} {
		var families []string
		var qualifier mapping.Value
		for _, d := range dynamics {
			if countCoding(table, d.family) == coding {
				families = append(families, d.family)
				qualifier = mapping.Either(qualifier, d.name)
			}
		}
		if len(families) == 0 {
			continue
		}
		name := jobName(table.Name)
		switch {
		case more:
			name = jobName(table.Name, families...)
		case len(out) > 0:
			name = jobName(table.Name, "distinct")
		}
		b := newBuilder(table, name)
		b.note("%s is written by %s", table.Name, places(all))
		b.job.Spec.Rows = string(columnar.PerCell)
		if len(families) < len(table.Families) {
			slices.Sort(families)
			b.job.Spec.Families = families
		}
		b.key(key, nil)
		b.counts(qualifier, coding)
		out = append(out, b.done())
	}
	return out
}

// counts adds the columns of counts of a row a cell.
func (b *builder) counts(qualifier mapping.Value, coding string) {
	b.column(columnar.ColumnSpec{Name: b.name("family", "cell_family"), From: columnar.FromFamily, Type: "string"}, "")
	qualifier.Name = ""
	b.value(b.name("qualifier", "cell_qualifier"), columnar.FromQualifier, &qualifier)
	note := ""
	if coding == "distinct" {
		note = "an estimate of how many different values there were"
	}
	b.column(columnar.ColumnSpec{Name: b.name("count", "cell_count"), From: columnar.FromValue, Type: "int64", Coding: coding}, note)
	b.column(columnar.ColumnSpec{Name: b.name("timestamp", "cell_timestamp"), From: columnar.FromTimestamp, Type: "timestamp"}, "of the newest event that was counted")
}

// countCoding is the coding of a family's counts.
func countCoding(table *store.TableDescriptor, family string) string {
	if f := table.Family(family); f != nil && f.Distinct {
		return "distinct"
	}
	return "int64be"
}

// collect returns the columns that rules write by name, by family and qualifier, and the
// families with columns that the record names.
func collect(rules []written) (columns []cellColumn, dynamics []dynamic) {
	for i := range rules {
		for _, w := range rules[i].Columns {
			at := strings.TrimSuffix(rules[i].at, rules[i].Path) + w.Path
			if !w.Named {
				dynamics = addDynamic(dynamics, w.Family, w.Name)
				continue
			}
			k := slices.IndexFunc(columns, func(c cellColumn) bool { return c.family == w.Family && c.qualifier == w.Qualifier })
			if k < 0 {
				k = len(columns)
				columns = append(columns, cellColumn{family: w.Family, qualifier: w.Qualifier})
			}
			c := &columns[k]
			c.counted = c.counted || w.Increment
			c.appended = c.appended || w.Append
			c.at = append(c.at, at)
			if !w.Increment {
				c.value = mapping.Either(c.value, w.Value)
				if !slices.Contains(c.texts, w.Text) {
					c.texts = append(c.texts, w.Text)
				}
			}
		}
	}
	return columns, dynamics
}

func addDynamic(all []dynamic, family string, name mapping.Value) []dynamic {
	if i := slices.IndexFunc(all, func(d dynamic) bool { return d.family == family }); i >= 0 {
		all[i].name = mapping.Either(all[i].name, name)
		return all
	}
	return append(all, dynamic{family, name})
}

// name keeps the name of c's column.
func (c *cellColumn) name(b *builder, all []cellColumn) {
	wanted := []string{c.qualifier, c.family + "_" + c.qualifier}
	if c.qualifier == "" {
		wanted = []string{c.family}
	} else if slices.ContainsFunc(all, func(o cellColumn) bool { return o.family != c.family && strings.EqualFold(o.qualifier, c.qualifier) }) {
		wanted = wanted[1:]
	}
	c.value.Name = b.name(wanted...)
}

// add adds c to a job.
func (c *cellColumn) add(b *builder, table *store.TableDescriptor) {
	from, name := c.family+":"+c.qualifier, c.value.Name
	family := table.Family(c.family)
	switch {
	case c.counted:
		b.column(columnar.ColumnSpec{Name: name, From: from, Type: "int64", Coding: "int64be"}, "")
	case family != nil && family.Distinct:
		b.column(columnar.ColumnSpec{Name: name, From: from, Type: "int64", Coding: "distinct"}, "an estimate of the different values of "+strings.Join(c.texts, ", "))
	default:
		v := c.value
		if c.appended {
			if v.Kind = mapping.KindBytes; c.value.IsText() {
				v.Kind = mapping.KindText
			}
			v.Note, v.Time = "what was appended, one after the other", false
		} else if len(c.texts) > 1 {
			v.Note = strings.TrimSuffix(strings.Join(c.at, " and ")+" make it of different expressions; "+v.Note, "; ")
		}
		b.value(name, from, &v)
	}
}

// unwritten notes the families of which nothing of the file writes.
func unwritten(b *builder, table *store.TableDescriptor, columns []cellColumn, dynamics []dynamic) {
	for i := range table.Families {
		name := table.Families[i].Name
		if !slices.ContainsFunc(columns, func(c cellColumn) bool { return c.family == name }) &&
			!slices.ContainsFunc(dynamics, func(d dynamic) bool { return d.family == name }) {
			b.note("family %s: no rule of the file writes it", name)
		}
	}
}

// done returns the job, with what its notes mean.
func (b *builder) done() Job {
	if slices.ContainsFunc(b.job.Columns, func(n string) bool { return strings.HasPrefix(n, mapping.NoteAny) }) {
		b.note("any value: the format does not tell what a field is before it is read, and string takes all of them. Where it is always of one type, say so here, or in the rule: int(clicks)")
	}
	return b.job
}
