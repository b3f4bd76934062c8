package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"sluice/jobs/columnar"
	"sluice/store"
)

// chainSnippet is Snippet of an increment: the rows of the full run that no increment has,
// and of each other row what the newest increment with it says. So what a reader holds in
// memory is the increments.
func chainSnippet(reader, format string, m *Manifest, at *place, before []*Manifest) (string, error) {
	runs := append(slices.Clone(before), m)
	if full := runs[0]; full.Incremental == nil || full.increment() {
		return "", fmt.Errorf("%w: run %s is an increment, the rows that were changed since run %s, and is read with all runs that it goes on from",
			store.ErrInvalidArgument, m.RunID, m.Incremental.BaseRunID)
	}
	c := chainOf{reader: reader, m: m}
	if key := m.rowColumn(); key >= 0 {
		c.key = m.Columns[key].Name
	}
	if op := m.opColumn(); op >= 0 {
		c.op = m.Columns[op].Name
	}
	if c.key == "" || c.op == "" {
		return "", fmt.Errorf("%w: no column of run %s has the row keys, or says whether a row is there", store.ErrUnsupported, m.RunID)
	}
	var lists strings.Builder
	for i, run := range runs {
		dir := at
		if i < len(before) {
			if !runs[i+1].increment() || !runs[i+1].goesOnFrom(run) {
				return "", fmt.Errorf("%w: run %s does not go on from run %s", store.ErrInvalidArgument, runs[i+1].RunID, run.RunID)
			}
			dir = at.beside(runs[i+1].Incremental.Base)
		}
		name := "full"
		if i > 0 {
			name = "increment" + strconv.Itoa(i)
		}
		r, err := relationOf(reader, format, run, dir, name)
		switch {
		case err != nil:
			return "", err
		case r.empty:
			continue
		case i == 0:
			c.full = r.expression
		default:
			c.increments = append(c.increments, r.expression)
		}
		lists.WriteString(r.files)
	}
	if c.full == "" && len(c.increments) == 0 {
		return "", m.noFiles(format)
	}
	changes, rows := c.compose()
	return prologue(reader, m, at.beside("")) + lists.String() + changes + show(reader, m, rows), nil
}

// rowColumn returns the column that tells rows apart, as columnar's TellsRows has it, or -1.
func (m *Manifest) rowColumn() int {
	return slices.IndexFunc(m.Columns, func(c Column) bool {
		t := c.column().Type
		coding, _ := columnar.ParseCoding(c.Coding)
		return c.From == columnar.FromRow && c.OnError != columnar.OnErrorNull && (t == columnar.String || t == columnar.Bytes) && coding.Exact(t)
	})
}

// chainOf is what a reader is told of a chain of runs.
type chainOf struct {
	reader     string
	m          *Manifest
	key, op    string   // columns
	full       string   // the expression of its rows; empty = it has none
	increments []string // those of increments that have rows, the oldest first
}

// compose returns what the reader is told of the increments first, and the expression of
// the table's rows.
func (c *chainOf) compose() (changes, rows string) {
	if len(c.increments) == 0 {
		return "", c.full
	}
	key, op, run, gone := pythonText(c.key), pythonText(c.op), pythonText(c.free("run")), pythonText(columnar.OpDelete)
	numbered := func(expression string) string { // with the increment's number
		all := make([]string, len(c.increments))
		for i, increment := range c.increments {
			all[i] = increment + fmt.Sprintf(expression, i+1)
		}
		return strings.Join(all, ", ")
	}
	switch c.reader {
	case DuckDB:
		return "", c.duckDB()
	case Polars:
		changes = fmt.Sprintf("changes = pl.concat([%s])\nchanges = changes.filter(pl.col(%[2]s) == pl.col(%[2]s).max().over(%[3]s)).drop(%[2]s)\n",
			numbered(".with_columns(pl.lit(%d).alias("+run+"))"), run, key)
		rows = fmt.Sprintf("changes.filter(pl.col(%s) != %s)", op, gone)
		if c.full != "" {
			rows = fmt.Sprintf("pl.concat([%s.join(changes, on=%s, how=\"anti\"), %s])", c.full, key, rows)
		}
	case Pandas:
		changes = fmt.Sprintf("changes = pd.concat([%s], ignore_index=True)\nchanges = changes[changes[%[2]s] == changes.groupby(%[3]s)[%[2]s].transform(\"max\")].drop(columns=[%[2]s])\n",
			numbered(".assign(**{"+run+": %d})"), run, key)
		rows = fmt.Sprintf("changes[changes[%s] != %s]", op, gone)
		if c.full != "" {
			changes += "whole = " + c.full + "\n"
			rows = fmt.Sprintf("pd.concat([whole[~whole[%[1]s].isin(changes[%[1]s])], %[2]s], ignore_index=True)", key, rows)
		}
	case Spark:
		return c.spark()
	}
	return changes, rows
}

func (c *chainOf) duckDB() string {
	var names []string
	for i := range c.m.Columns {
		names = append(names, sqlName(c.m.Columns[i].Name))
	}
	columns, key, run := strings.Join(names, ", "), sqlName(c.key), sqlName(c.free("run"))
	numbered := make([]string, len(c.increments))
	for i, increment := range c.increments {
		numbered[i] = fmt.Sprintf("SELECT *, %d AS %s FROM (%s)", i+1, run, increment)
	}
	with := fmt.Sprintf("changes AS (SELECT %s FROM (\n%s\n) QUALIFY %[4]s = max(%[4]s) OVER (PARTITION BY %[3]s))\n",
		columns, strings.Join(numbered, "\nUNION ALL "), key, run)
	rows := fmt.Sprintf("SELECT %s FROM changes WHERE %s <> %s", columns, sqlName(c.op), sqlText(columnar.OpDelete))
	if c.full == "" {
		return "WITH " + with + rows
	}
	return fmt.Sprintf("WITH whole AS (%s),\n%sSELECT %s FROM whole ANTI JOIN changes USING (%s)\nUNION ALL %s", c.full, with, columns, key, rows)
}

func (c *chainOf) spark() (changes, rows string) {
	var names []string
	for i := range c.m.Columns {
		names = append(names, sparkColumn(c.m.Columns[i].Name))
	}
	columns, run, newest := strings.Join(names, ", "), c.free("run"), c.free("newest")
	for i, increment := range c.increments {
		numbered := fmt.Sprintf("%s.withColumn(%s, F.lit(%d))", increment, pythonText(run), i+1)
		if i > 0 {
			numbered = ".unionByName(" + numbered + ")"
		}
		changes += numbered
	}
	changes = fmt.Sprintf("from pyspark.sql import Window\n\nchanges = %s\nchanges = changes.withColumn(%[2]s, F.max(%[3]s).over(Window.partitionBy(%[4]s))).filter(F.col(%[2]s) == F.col(%[3]s))\n",
		changes, pythonText(newest), pythonText(run), sparkColumn(c.key))
	rows = fmt.Sprintf("changes.filter(%s != %s).select(%s)", sparkColumn(c.op), pythonText(columnar.OpDelete), columns)
	if c.full != "" {
		rows = fmt.Sprintf("%s.join(changes, [%s], \"left_anti\").select(%s).unionByName(%s)", c.full, pythonText(c.key), columns, rows)
	}
	return changes, rows
}

// free returns a name like this that no column has.
func (c *chainOf) free(name string) string {
	for slices.ContainsFunc(c.m.Columns, func(column Column) bool { return strings.EqualFold(column.Name, name) }) {
		name += "_"
	}
	return name
}
