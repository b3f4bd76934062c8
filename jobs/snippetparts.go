package jobs

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/store"
)

// The types of partitions as readers call them, by ours.
var (
	duckDBTypes = map[string]string{columnar.String.String(): "VARCHAR", columnar.Int64.String(): "BIGINT", columnar.Bool.String(): "BOOLEAN"}
	polarsTypes = map[string]string{columnar.String.String(): "pl.String", columnar.Int64.String(): "pl.Int64", columnar.Bool.String(): "pl.Boolean"}
	arrowTypes  = map[string]string{columnar.String.String(): "pa.string()", columnar.Int64.String(): "pa.int64()", columnar.Bool.String(): "pa.bool_()"}
	sparkTypes  = map[string]string{columnar.String.String(): "string", columnar.Int64.String(): "bigint", columnar.Bool.String(): "boolean"}
)

// partitionSnippet is Snippet of a run that is divided into partitions: it tells the
// types of those, which readers would guess otherwise, 007 being a number to them.
func partitionSnippet(reader, format string, m *Manifest, at *place, files []string) (string, error) {
	above, err := m.above(at.dir)
	if err != nil {
		return "", err
	}
	var names, types []string
	for i := range m.Columns {
		names = append(names, pythonText(m.Columns[i].Name))
	}
	each := func(write func(name, typ string) string) string {
		types = types[:0]
		for _, name := range m.PartitionBy {
			c := slices.IndexFunc(m.Columns, func(c Column) bool { return c.Name == name })
			types = append(types, write(name, m.Columns[c].Type))
		}
		return strings.Join(types, ", ")
	}
	columns := strings.Join(names, ", ")
	switch reader {
	case DuckDB:
		hive := each(func(name, typ string) string { return sqlText(name) + ": " + duckDBTypes[typ] })
		return duckDBSnippet(m, at, files, "hive_partitioning = true, hive_types = {"+hive+"}")
	case Polars:
		scan := "scan_parquet"
		if format == Arrow {
			scan = "scan_ipc"
		}
		hive := each(func(name, typ string) string { return pythonText(name) + ": " + polarsTypes[typ] })
		for _, name := range above { // Polars wants to know of them
			hive += ", " + pythonText(name) + ": pl.String"
		}
		return fmt.Sprintf("import polars as pl\n\nfiles = [\n%s,\n]\nlf = pl.%s(files, glob=False, hive_partitioning=True, hive_schema={%s}%s).select([%s])%s\nprint(lf.collect())\n",
			listed(files, pythonText), scan, hive, at.polars(), columns, m.polarsTexts(format)), nil
	case Pandas:
		file, system := "parquet", ""
		if at.bucket != nil {
			system = ", filesystem=s3"
		}
		if format == Arrow {
			file = "ipc"
		}
		hive := each(func(name, typ string) string { return "(" + pythonText(name) + ", " + arrowTypes[typ] + ")" })
		return fmt.Sprintf("import pandas as pd\nimport pyarrow as pa\nimport pyarrow.dataset as ds\n%s\nfiles = [\n%s,\n]\nhive = ds.partitioning(pa.schema([%s]), flavor=\"hive\")\ndf = ds.dataset(files, format=%q, partitioning=hive, partition_base_dir=%s%s).to_table(columns=[%s]).to_pandas(types_mapper=pd.ArrowDtype)%s\nprint(df)\n",
			at.arrow(), listed(files, func(f string) string { return pythonText(at.key(f)) }), hive, file, pythonText(at.key(at.dir)), system, columns, m.pandasTexts()), nil
	}
	options, path := at.spark()
	var selected []string
	for i := range m.Columns {
		c := "F.col(" + pythonText("`"+strings.ReplaceAll(m.Columns[i].Name, "`", "``")+"`") + ")"
		if slices.Contains(m.PartitionBy, m.Columns[i].Name) {
			c += ".cast(" + pythonText(sparkTypes[m.Columns[i].Type]) + ")"
		}
		selected = append(selected, c)
	}
	return fmt.Sprintf("from pyspark.sql import SparkSession, functions as F\n\nspark = SparkSession.builder%s.getOrCreate()\nspark.conf.set(\"spark.sql.sources.partitionColumnTypeInference.enabled\", \"false\")\ndf = spark.read.option(\"pathGlobFilter\", \"*.parquet\").parquet(%s).select(%s)\ndf.createOrReplaceTempView(%s)\nspark.sql(%s).show()\n",
		options, pythonText(escapeGlob(path)), strings.Join(selected, ", "), pythonText(viewName(m.Job)), pythonText("SELECT count(*) FROM "+viewName(m.Job))), nil
}

// above returns the names that readers take for partitions in dir itself, run=… being
// one. Its error wraps store.ErrInvalidArgument where one of them is a column.
func (m *Manifest) above(dir string) ([]string, error) {
	var names []string
	for _, element := range strings.Split(filepath.ToSlash(dir), "/") {
		name, _, ok := strings.Cut(element, "=")
		if !ok || slices.Contains(names, name) {
			continue
		}
		if slices.ContainsFunc(m.Columns, func(c Column) bool { return strings.EqualFold(c.Name, name) }) {
			return nil, fmt.Errorf("%w: readers take %s in %s for column %s; give the directory another name", store.ErrInvalidArgument, element, dir, name)
		}
		names = append(names, name)
	}
	return names, nil
}
