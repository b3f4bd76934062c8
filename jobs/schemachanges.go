package jobs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/target"
)

// The values of a Spec's SchemaChanges: what may become of the columns from one run to the
// next. The empty one is ChangesAny.
const (
	ChangesAny        = "any"
	ChangesCompatible = "compatible"
	ChangesNone       = "none"
)

// checkSchemaChanges checks a value of SchemaChanges.
func checkSchemaChanges(rule string, bad func(path, format string, args ...any)) {
	if !slices.Contains([]string{"", ChangesAny, ChangesCompatible, ChangesNone}, rule) {
		bad("schema_changes", "%q is not %s, %s or %s", rule, ChangesAny, ChangesCompatible, ChangesNone)
	}
}

// SchemaChangeError is the error of a run whose columns are not those of the run before, as
// its job's schema_changes asks for. Another attempt ends no better.
type SchemaChangeError struct {
	Rule    string // ChangesCompatible or ChangesNone
	Command string // that makes a run by hand, such as "export run"
	// RunID and LogicalTime are of the run before.
	RunID       string
	LogicalTime time.Time
	Iceberg     bool // it is what the Iceberg table is, and not the latest one
	// Changes are those that the rule refuses, at least one.
	Changes []ColumnChange
}

func (e *SchemaChangeError) Error() string {
	var all []string
	for i := range e.Changes {
		all = append(all, e.Changes[i].String())
	}
	of := "the latest"
	if e.Iceberg {
		of = "which the Iceberg table is"
	}
	return fmt.Sprintf("its columns are not those of run %s for %s, %s (schema_changes: %s): %s. Change the columns back, or publish them once with %s --schema-changes %s: the runs after that one are compared with it",
		e.RunID, e.LogicalTime.UTC().Format(time.RFC3339Nano), of, e.Rule, strings.Join(all, "; "), e.Command, ChangesAny)
}

// ColumnChange is a difference between the columns of two runs.
type ColumnChange struct {
	Column string // empty = their order
	Was    string // such as "int64, nullable"; empty = the column is new
	Is     string // empty = the column is gone
	// Why says why readers of both runs may fail by it; empty = they do not (compatible).
	Why string
}

func (c *ColumnChange) String() string {
	var text string
	switch {
	case c.Column == "":
		return fmt.Sprintf("their order was %s, and is %s", c.Was, c.Is)
	case c.Was == "":
		text = fmt.Sprintf("column %s is new, %s", c.Column, c.Is)
	case c.Is == "":
		text = fmt.Sprintf("column %s, which was %s, is gone", c.Column, c.Was)
	default:
		text = fmt.Sprintf("column %s was %s, and is %s", c.Column, c.Was, c.Is)
	}
	if c.Why != "" {
		text += " (" + c.Why + ")"
	}
	return text
}

// publishedColumn is a column as a run publishes it.
type publishedColumn struct {
	columnar.Column
	partition bool // directories say it, and files have it not
}

func (c *publishedColumn) String() string {
	text := c.Type.String()
	if c.Nullable {
		text += ", nullable"
	} else {
		text += ", not nullable"
	}
	if c.partition {
		text += ", in the names of directories"
	}
	return text
}

// dividedBy returns the columns of files that are divided by some of them.
func dividedBy(columns []columnar.Column, partitionBy []string) []publishedColumn {
	all := make([]publishedColumn, len(columns))
	for i, c := range columns {
		all[i] = publishedColumn{c, slices.Contains(partitionBy, c.Name)}
	}
	return all
}

// publishedColumns returns the columns of the run.
func (m *Manifest) publishedColumns() []publishedColumn {
	return dividedBy(m.columns(), m.PartitionBy)
}

// columnChanges returns how the columns of a run differ from those of one before, in the
// order of these, and then of those. Where they are an Iceberg table, a column of another
// type is another one there.
func columnChanges(was, is []publishedColumn, iceberg bool) []ColumnChange {
	find := func(in []publishedColumn, name string) *publishedColumn {
		i := slices.IndexFunc(in, func(c publishedColumn) bool { return c.Name == name })
		if i < 0 {
			return nil
		}
		return &in[i]
	}
	var all []ColumnChange
	var before, after []string // the order of those that both have
	for i := range was {
		a := &was[i]
		b := find(is, a.Name)
		if b == nil {
			all = append(all, ColumnChange{Column: a.Name, Was: a.String(), Why: "who reads it finds it no more; one of another name is another one"})
			continue
		}
		before = append(before, a.Name)
		if *a != *b {
			all = append(all, ColumnChange{a.Name, a.String(), b.String(), whyNot(a, b, iceberg)})
		}
	}
	for i := range is {
		b := &is[i]
		if find(was, b.Name) != nil {
			after = append(after, b.Name)
			continue
		}
		c := ColumnChange{Column: b.Name, Is: b.String()}
		switch {
		case b.partition:
			c.Why = "it divides the files otherwise"
		case !b.Nullable:
			c.Why = "runs before have no values of it, so it must be nullable"
		}
		all = append(all, c)
	}
	if !slices.Equal(before, after) {
		all = append(all, ColumnChange{Was: strings.Join(before, ", "), Is: strings.Join(after, ", ")})
	}
	return all
}

// whyNot says why who reads a may fail with b, a column of the same name, by the rules of
// schema evolution of Iceberg, which readers of Parquet follow. Empty = nobody does. The
// only type of ours that these let become another is a decimal, of more digits.
func whyNot(a, b *publishedColumn, iceberg bool) string {
	if a.Type != b.Type {
		p, s, isDecimal := a.Type.Decimal()
		q, r, stays := b.Type.Decimal()
		switch {
		case !isDecimal || !stays:
			return "it is of another type"
		case s != r:
			return "its scale is another one"
		case q < p:
			return "it holds fewer digits"
		case iceberg:
			return "in an Iceberg table a column of another type is another column"
		}
	}
	switch {
	case a.partition != b.partition:
		return "it moves between the files and the names of their directories"
	case a.Nullable && !b.Nullable:
		return "runs before have nulls"
	}
	return ""
}

// CheckColumns compares the columns that a run of j would have with those of the runs before
// in t, by the job's schema_changes, without reading more of them than manifests. Its error
// is a *SchemaChangeError where the rule refuses the run; there is none with ChangesAny, or
// where no run was published.
func (j *Job) CheckColumns(ctx context.Context, t target.Target) error {
	return j.checkColumns(ctx, t, j.spec.SchemaChanges)
}

// checkColumns is CheckColumns by another rule.
func (j *Job) checkColumns(ctx context.Context, t target.Target, rule string) error {
	return checkColumns(ctx, t, &columnRule{rule, j.name, "export run", j.spec.Iceberg, dividedBy(j.schema.Columns(), j.spec.PartitionBy)})
}

// checkColumns is that of a job, for a join whose columns are known.
func (j *Join) checkColumns(ctx context.Context, t target.Target, rule string) error {
	return checkColumns(ctx, t, &columnRule{rule, j.name, "export join", j.spec.Iceberg, dividedBy(j.layout.columns, nil)})
}

// columnRule is what a run is compared by with those before.
type columnRule struct {
	rule, name, command string
	iceberg             bool
	columns             []publishedColumn
}

func checkColumns(ctx context.Context, t target.Target, r *columnRule) error {
	if r.rule == "" || r.rule == ChangesAny {
		return nil
	}
	latest, err := latestManifest(ctx, t, r.name)
	if err == nil && latest != nil {
		err = r.check(latest, false)
	}
	if err != nil || !r.iceberg {
		return err
	}
	// It is another run where the latest is none of its snapshots.
	current, err := icebergTable(t, r.name).Current(ctx)
	if err != nil || current == "" || latest != nil && latest.RunID == current {
		return err
	}
	m, err := manifestOf(ctx, t, r.name, current)
	if err != nil {
		return fmt.Errorf("compare its columns with those of run %s, which the Iceberg table is: %w", current, err)
	}
	return r.check(m, true)
}

// check compares the columns with those of a run.
func (r *columnRule) check(m *Manifest, iceberg bool) error {
	all := columnChanges(m.publishedColumns(), r.columns, r.iceberg)
	if r.rule == ChangesCompatible {
		all = slices.DeleteFunc(all, func(c ColumnChange) bool { return c.Why == "" })
	}
	if len(all) == 0 {
		return nil
	}
	return &SchemaChangeError{Rule: r.rule, Command: r.command, RunID: m.RunID, LogicalTime: m.LogicalTime, Iceberg: iceberg, Changes: all}
}

// latestManifest returns the manifest of a job's latest run, nil where none was published.
func latestManifest(ctx context.Context, t target.Target, job string) (*Manifest, error) {
	latest, err := readLatest(ctx, t, job)
	if errors.Is(err, target.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m, _, err := readManifest(ctx, t, path.Join(job, latest.Manifest))
	if err != nil {
		return nil, fmt.Errorf("compare its columns with those of run %s, the latest: %w; with --schema-changes %s a run by hand is compared with none", latest.RunID, err, ChangesAny)
	}
	return m, nil
}

// manifestOf returns the manifest of a run by its id. Its error wraps target.ErrNotFound.
func manifestOf(ctx context.Context, t target.Target, job, id string) (*Manifest, error) {
	entries, err := t.List(ctx, job)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if e.Dir && strings.HasPrefix(e.Name, "run=") && strings.HasSuffix(e.Name, "-"+id) {
			m, _, err := readManifest(ctx, t, path.Join(job, e.Name, ManifestName))
			return m, err
		}
	}
	return nil, fmt.Errorf("run %s of %s: %w", id, job, target.ErrNotFound)
}
