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
// language and, where the reader would expand patterns in them, for that.
//
// Of an increment it reads the table as of then: before is what ReadChain returns, the
// runs that it goes on from, whose directories are beside dir. Then rows come in no order.
//
// Its error wraps store.ErrInvalidArgument for another reader, for a directory that
// it cannot be told of (not UTF-8, for one), and for other runs before than these;
// store.ErrUnsupported where the reader reads none of the run's formats, or it has no files.
func Snippet(reader string, m *Manifest, dir string, before ...*Manifest) (string, error) {
	absolute := filepath.Abs
	if len(before) > 0 {
		absolute = ownPath // beside which the others are
	}
	dir, err := absolute(dir)
	if err != nil {
		return "", fmt.Errorf("snippet: %w", err)
	}
	if !utf8.ValidString(dir) {
		return "", fmt.Errorf("%w: directory %q is not UTF-8, which no reader could be told", store.ErrInvalidArgument, dir)
	}
	return snippet(reader, m, &place{dir: filepath.ToSlash(dir)}, before)
}

// snippet is Snippet of a run at any place.
func snippet(reader string, m *Manifest, at *place, before []*Manifest) (string, error) {
	if !slices.Contains(Readers(), reader) {
		return "", fmt.Errorf("%w: reader %q; it is %s", store.ErrInvalidArgument, reader, strings.Join(Readers(), ", "))
	}
	format := Parquet
	if !slices.ContainsFunc(m.Totals, func(t Total) bool { return t.Format == Parquet }) {
		format = Arrow
	}
	if format == Arrow && (reader == DuckDB || reader == Spark) {
		return "", fmt.Errorf("%w: %s reads Parquet, and run %s has only Arrow files; add parquet to the job's formats", store.ErrUnsupported, reader, m.RunID)
	}
	if m.increment() || len(before) > 0 {
		return chainSnippet(reader, format, m, at, before)
	}
	r, err := relationOf(reader, format, m, at, "files")
	if err != nil {
		return "", err
	}
	if r.empty {
		return "", m.noFiles(format)
	}
	return prologue(reader, m, at) + r.files + show(reader, m, r.expression), nil
}

// noFiles is the error of a snippet of a run without files, which no reader reads.
func (m *Manifest) noFiles(format string) error {
	return fmt.Errorf("%w: run %s has no %s files, as it has no rows", store.ErrUnsupported, m.RunID, format)
}

// relation is how a reader reads the rows of a run.
type relation struct {
	files      string // lines that name the files; empty where expression does
	expression string // of all rows
	empty      bool   // there are no files
}

// relationOf returns how reader reads the files of a format of a run, whose list it calls
// files.
func relationOf(reader, format string, m *Manifest, at *place, files string) (relation, error) {
	var paths []string
	for i := range m.Files {
		if m.Files[i].Format == format {
			paths = append(paths, at.file(m.Files[i].Path))
		}
	}
	list := func(path func(string) string) string {
		return files + " = [\n" + listed(paths, path) + ",\n]\n"
	}
	r := relation{empty: len(paths) == 0}
	var above []string
	if len(m.PartitionBy) > 0 {
		var err error
		if above, err = m.above(at.dir); err != nil {
			return relation{}, err
		}
	}
	var err error
	switch reader {
	case DuckDB:
		r.expression, err = duckDBRead(m, at, paths)
	case Polars:
		r.files, r.expression = list(pythonText), polarsRead(format, m, at, files, above)
	case Pandas:
		r.files, r.expression = list(func(f string) string { return pythonText(at.key(f)) }), pandasRead(format, m, at, files)
	case Spark:
		r.expression = sparkRead(m, at)
	}
	return r, err
}

// prologue is what a reader is told first, of runs at a place.
func prologue(reader string, m *Manifest, at *place) string {
	parts := len(m.PartitionBy) > 0
	switch reader {
	case DuckDB:
		return at.duckDB()
	case Polars:
		return "import polars as pl\n\n"
	case Pandas:
		if parts {
			return "import pandas as pd\nimport pyarrow as pa\nimport pyarrow.dataset as ds\n" + at.arrow() + "\n" + pandasPartitions(m)
		}
		return "import pandas as pd\n" + at.arrow() + "\n"
	}
	options, _ := at.spark()
	code := "from pyspark.sql import SparkSession\nfrom pyspark.sql import functions as F\n\n"
	if !parts && !m.increment() {
		code = "from pyspark.sql import SparkSession\n\n"
	}
	code += "spark = SparkSession.builder" + options + ".getOrCreate()\n"
	if parts {
		code += "spark.conf.set(\"spark.sql.sources.partitionColumnTypeInference.enabled\", \"false\")\n"
	}
	return code
}

// show is what makes the rows of an expression those of the job, and shows some of them.
func show(reader string, m *Manifest, expression string) string {
	switch reader {
	case DuckDB:
		name := sqlName(m.Job)
		return "CREATE OR REPLACE VIEW " + name + " AS " + expression + ";\n\nSELECT count(*) FROM " + name + ";\n"
	case Polars:
		return "lf = " + expression + "\nprint(lf.collect())\n"
	case Pandas:
		return "df = " + expression + "\nprint(df)\n"
	}
	name := viewName(m.Job)
	return "df = " + expression + "\ndf.createOrReplaceTempView(" + pythonText(name) + ")\nspark.sql(" + pythonText("SELECT count(*) FROM "+name) + ").show()\n"
}

func duckDBRead(m *Manifest, at *place, files []string) (string, error) {
	if dir := at.dir; strings.ContainsAny(dir, "*?[") && strings.Contains(dir, `\`) {
		return "", fmt.Errorf("%w: DuckDB takes %s for a pattern, in which no backslash can be told; give the directory another name", store.ErrInvalidArgument, dir)
	}
	options := "hive_partitioning = false"
	if len(m.PartitionBy) > 0 {
		options = "hive_partitioning = true, hive_types = {" + m.partitionTypes(func(name, typ string) string { return sqlText(name) + ": " + duckDBTypes[typ] }) + "}"
	}
	columns := make([]string, len(m.Columns))
	for i := range m.Columns {
		columns[i] = "  " + sqlName(m.Columns[i].Name)
	}
	return fmt.Sprintf("SELECT\n%s\nFROM read_parquet([\n%s\n], %s)",
		strings.Join(columns, ",\n"), listed(files, func(f string) string { return sqlText(bracketGlob(f)) }), options), nil
}

// polarsRead is told of names above the partitions, of which Polars wants to know.
func polarsRead(format string, m *Manifest, at *place, files string, above []string) string {
	scan := "scan_parquet"
	if format == Arrow {
		scan = "scan_ipc"
	}
	if len(m.PartitionBy) == 0 {
		return fmt.Sprintf("pl.%s(%s, glob=False, hive_partitioning=False%s)%s", scan, files, at.polars(), m.polarsTexts(format))
	}
	hive := m.partitionTypes(func(name, typ string) string { return pythonText(name) + ": " + polarsTypes[typ] })
	for _, name := range above {
		hive += ", " + pythonText(name) + ": pl.String"
	}
	return fmt.Sprintf("pl.%s(%s, glob=False, hive_partitioning=True, hive_schema={%s}%s).select([%s])%s",
		scan, files, hive, at.polars(), m.columnTexts(), m.polarsTexts(format))
}

// pandasRead asks for Arrow's types: with its own, pandas makes whole numbers of a
// column that has nulls inexact from 2^53 on, and null and NaN the same.
func pandasRead(format string, m *Manifest, at *place, files string) string {
	if len(m.PartitionBy) > 0 {
		file, system := "parquet", ""
		if at.bucket != nil {
			system = ", filesystem=s3"
		}
		if format == Arrow {
			file = "ipc"
		}
		return fmt.Sprintf("ds.dataset(%s, format=%q, partitioning=hive, partition_base_dir=%s%s).to_table(columns=[%s]).to_pandas(types_mapper=pd.ArrowDtype)%s",
			files, file, pythonText(at.key(at.dir)), system, m.columnTexts(), m.pandasTexts())
	}
	read := "pd.read_parquet(f, engine=\"pyarrow\", partitioning=None, dtype_backend=\"pyarrow\")"
	if format == Arrow {
		read = "pd.read_feather(f, dtype_backend=\"pyarrow\")"
	}
	if at.bucket != nil {
		read = strings.NewReplacer("feather(f,", "feather(s3.open_input_file(f),", "=None,", "=None, filesystem=s3,").Replace(read)
	}
	return fmt.Sprintf("pd.concat([%s for f in %s], ignore_index=True)%s", read, files, m.pandasTexts())
}

// sparkRead names the run's directory: it holds the files of the manifest and
// none else, Spark skips names that begin with _, and the directory that is read is
// the base of partitions, so that its own name is none.
func sparkRead(m *Manifest, at *place) string {
	_, path := at.spark()
	read := fmt.Sprintf("spark.read.option(\"pathGlobFilter\", \"*.parquet\").parquet(%s)", pythonText(escapeGlob(path)))
	if len(m.PartitionBy) == 0 {
		return read
	}
	var selected []string
	for i := range m.Columns {
		c := sparkColumn(m.Columns[i].Name)
		if slices.Contains(m.PartitionBy, m.Columns[i].Name) {
			c += ".cast(" + pythonText(sparkTypes[m.Columns[i].Type]) + ")"
		}
		selected = append(selected, c)
	}
	return read + ".select(" + strings.Join(selected, ", ") + ")"
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

// columnTexts lists the columns' names for Python.
func (m *Manifest) columnTexts() string {
	names := make([]string, len(m.Columns))
	for i := range m.Columns {
		names[i] = pythonText(m.Columns[i].Name)
	}
	return strings.Join(names, ", ")
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

// sparkColumn is a column of Spark, whose names are in backticks.
func sparkColumn(name string) string {
	return "F.col(" + pythonText("`"+strings.ReplaceAll(name, "`", "``")+"`") + ")"
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
