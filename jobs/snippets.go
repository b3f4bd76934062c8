package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/jobs/columnar"
	"sluice/store"
)

// The readers that Snippet writes for.
const (
	DuckDB = "duckdb"
	Polars = "polars"
	Pandas = "pandas"
	Spark  = "spark"
)

// Readers returns the readers that Snippet knows.
func Readers() []string { return []string{DuckDB, Polars, Pandas, Spark} }

// Snippet returns code that reads the run of m, which lies in the directory dir,
// with one of Readers: SQL for duckdb, Python for the others. It names every file
// of one format, Parquet where the run has it, in the manifest's order, so that
// rows come sorted where the reader keeps the order of files; and it keeps readers
// from taking the directory's run=… for a column. Of a run that is divided into
// partitions it says which columns are in the directories' names, and their types. Names are quoted for the
// language and, where the reader would expand patterns in them, for that. Its
// error wraps store.ErrInvalidArgument for another reader and for a directory that
// it cannot be told of (not UTF-8, for one), store.ErrUnsupported where the reader reads none of the
// run's formats.
func Snippet(reader string, m *Manifest, dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("snippet: %w", err)
	}
	if !utf8.ValidString(dir) {
		return "", fmt.Errorf("%w: directory %q is not UTF-8, which no reader could be told", store.ErrInvalidArgument, dir)
	}
	return snippet(reader, m, &place{dir: filepath.ToSlash(dir)})
}

// snippet is Snippet of a run at any place.
func snippet(reader string, m *Manifest, at *place) (string, error) {
	if !slices.Contains(Readers(), reader) {
		return "", fmt.Errorf("%w: reader %q; it is %s", store.ErrInvalidArgument, reader, strings.Join(Readers(), ", "))
	}
	if m.increment() {
		return "", fmt.Errorf("%w: run %s is an increment, the rows that were changed since run %s: docs/export.md says how to put them together", store.ErrUnsupported, m.RunID, m.Incremental.BaseRunID)
	}
	format := Parquet
	if !slices.ContainsFunc(m.Totals, func(t Total) bool { return t.Format == Parquet }) {
		format = Arrow
	}
	if format == Arrow && (reader == DuckDB || reader == Spark) {
		return "", fmt.Errorf("%w: %s reads Parquet, and run %s has only Arrow files; add parquet to the job's formats", store.ErrUnsupported, reader, m.RunID)
	}
	var files []string
	for i := range m.Files {
		if m.Files[i].Format == format {
			files = append(files, at.file(m.Files[i].Path))
		}
	}
	if len(m.PartitionBy) > 0 {
		return partitionSnippet(reader, format, m, at, files)
	}
	switch reader {
	case DuckDB:
		return duckDBSnippet(m, at, files, "hive_partitioning = false")
	case Polars:
		return polarsSnippet(format, m, at, files), nil
	case Pandas:
		return pandasSnippet(format, m, at, files), nil
	}
	return sparkSnippet(m, at), nil
}

// duckDBSnippet reads files with these options of read_parquet.
func duckDBSnippet(m *Manifest, at *place, files []string, options string) (string, error) {
	if dir := at.dir; strings.ContainsAny(dir, "*?[") && strings.Contains(dir, `\`) {
		return "", fmt.Errorf("%w: DuckDB takes %s for a pattern, in which no backslash can be told; give the directory another name", store.ErrInvalidArgument, dir)
	}
	columns := make([]string, len(m.Columns))
	for i := range m.Columns {
		columns[i] = "  " + sqlName(m.Columns[i].Name)
	}
	return at.duckDB() + fmt.Sprintf("CREATE OR REPLACE VIEW %s AS SELECT\n%s\nFROM read_parquet([\n%s\n], %s);\n\nSELECT count(*) FROM %s;\n",
		sqlName(m.Job), strings.Join(columns, ",\n"), listed(files, func(f string) string { return sqlText(bracketGlob(f)) }), options, sqlName(m.Job)), nil
}

func polarsSnippet(format string, m *Manifest, at *place, files []string) string {
	scan := "scan_parquet"
	if format == Arrow {
		scan = "scan_ipc"
	}
	return fmt.Sprintf("import polars as pl\n\nfiles = [\n%s,\n]\nlf = pl.%s(files, glob=False, hive_partitioning=False%s)%s\nprint(lf.collect())\n",
		listed(files, pythonText), scan, at.polars(), m.polarsTexts(format))
}

// polarsTexts is the call that makes text of columns of JSON, which Polars takes for bytes
// in Parquet; nothing where there is none. In Arrow they are an extension of text, whose
// values are text, and which Polars does not cast.
func (m *Manifest) polarsTexts(format string) string {
	if format == Arrow {
		return ""
	}
	if casts := m.jsonAs("pl.String"); casts != "" {
		return ".cast({" + casts + "})"
	}
	return ""
}

// pandasSnippet asks for Arrow's types: with its own, pandas makes whole numbers of a
// column that has nulls inexact from 2^53 on, and null and NaN the same.
func pandasSnippet(format string, m *Manifest, at *place, files []string) string {
	read := "pd.read_parquet(f, engine=\"pyarrow\", partitioning=None, dtype_backend=\"pyarrow\")"
	if format == Arrow {
		read = "pd.read_feather(f, dtype_backend=\"pyarrow\")"
	}
	if at.bucket != nil {
		read = strings.NewReplacer("feather(f,", "feather(s3.open_input_file(f),", "=None,", "=None, filesystem=s3,").Replace(read)
	}
	return fmt.Sprintf("import pandas as pd\n%s\nfiles = [\n%s,\n]\ndf = pd.concat([%s for f in files], ignore_index=True)%s\nprint(df)\n",
		at.arrow(), listed(files, func(f string) string { return pythonText(at.key(f)) }), read, m.pandasTexts())
}

// pandasTexts is the call that makes text of columns of JSON, which are an extension of
// text to pyarrow, of which pandas finds no values; nothing where there is none.
func (m *Manifest) pandasTexts() string {
	if casts := m.jsonAs(pythonText("string[pyarrow]")); casts != "" {
		return ".astype({" + casts + "})"
	}
	return ""
}

// jsonAs lists the columns of JSON, each with a type, as the items of a dictionary.
func (m *Manifest) jsonAs(typ string) string {
	var casts []string
	for i := range m.Columns {
		if m.Columns[i].Type == columnar.JSON.String() {
			casts = append(casts, pythonText(m.Columns[i].Name)+": "+typ)
		}
	}
	return strings.Join(casts, ", ")
}

// sparkSnippet names the run's directory: it holds the files of the manifest and
// none else, Spark skips names that begin with _, and the directory that is read is
// the base of partitions, so that its own name is none.
func sparkSnippet(m *Manifest, at *place) string {
	options, path := at.spark()
	return fmt.Sprintf("from pyspark.sql import SparkSession\n\nspark = SparkSession.builder%s.getOrCreate()\ndf = spark.read.option(\"pathGlobFilter\", \"*.parquet\").parquet(%s)\ndf.createOrReplaceTempView(%s)\nspark.sql(%s).show()\n",
		options, pythonText(escapeGlob(path)), pythonText(viewName(m.Job)), pythonText("SELECT count(*) FROM "+viewName(m.Job)))
}

// listed writes one quoted file a line.
func listed(files []string, quote func(string) string) string {
	lines := make([]string, len(files))
	for i, f := range files {
		lines[i] = "  " + quote(f)
	}
	return strings.Join(lines, ",\n")
}

// sqlText quotes s as a text of SQL.
func sqlText(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// sqlName quotes s as a name of SQL.
func sqlName(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// pythonText quotes s, which is UTF-8, as a text of Python: all that
// strconv.Quote writes for UTF-8 means the same there.
func pythonText(s string) string { return strconv.Quote(s) }

// bracketGlob makes a pattern that matches s alone, where [x] stands for x and
// nothing else escapes (DuckDB).
func bracketGlob(s string) string {
	return strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]").Replace(s)
}

// escapeGlob makes a pattern that matches s alone, where a backslash escapes
// (Hadoop's GlobPattern, of Spark).
func escapeGlob(s string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, "{", `\{`, "}", `\}`).Replace(s)
}

// viewName makes a job's name one that Spark SQL takes without quotes.
func viewName(job string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, job)
	return "t_" + name
}
