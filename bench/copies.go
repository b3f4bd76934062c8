package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/parquetfile"
)

// copiesArgument, as the first argument, measures the writing of Parquet files and
// nothing else: it needs no broker, but a Python with DuckDB.
const copiesArgument = "copies"

//go:embed copies.py
var copiesScript string

// copiesOptions is the command line after copiesArgument.
type copiesOptions struct {
	rows   int
	rounds int
	python string
	dir    string
	write  string
	force  bool
}

func parseCopies(args []string, stderr io.Writer) (*copiesOptions, error) {
	o := &copiesOptions{}
	f := flag.NewFlagSet("bench copies", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.IntVar(&o.rows, "rows", 1_000_000, "rows")
	f.IntVar(&o.rounds, "rounds", 5, "rounds, of which the medians are reported")
	f.StringVar(&o.python, "python", "python3", "a Python with the package duckdb (internal/integration/requirements.txt)")
	f.StringVar(&o.dir, "dir", "", "directory for the files, on the disk to be measured (default: a temporary one)")
	f.StringVar(&o.write, "write", "", "write the results, with machine and commit, to this `file`")
	f.BoolVar(&o.force, "force", false, "write also where other processes took more than 10 % of the machine")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	switch {
	case f.NArg() > 0:
		return nil, fmt.Errorf("unexpected argument %q", f.Arg(0))
	case o.rows < 1000 || o.rounds < 1:
		return nil, errors.New("at least 1,000 rows and one round are needed")
	}
	return o, nil
}

// duckDBCompressions are what DuckDB is asked for: zstd at its own level, and at the
// one that our files have.
var duckDBCompressions = map[string]string{
	"DuckDB COPY, zstd":          "COMPRESSION zstd",
	"DuckDB COPY, zstd, level 1": "COMPRESSION zstd, COMPRESSION_LEVEL 1",
}

// copyAsked is what copies.py reads, copyAnswered what it prints.
type copyAsked struct {
	Rows        string `json:"rows"` // the file that we have written
	Out         string `json:"out"`
	Compression string `json:"compression"`
}

type copyAnswered struct {
	Seconds float64 `json:"seconds"`
	CPU     float64 `json:"cpu"`
	Rows    int     `json:"rows"`
	Same    bool    `json:"same"` // rows as in our file, whatever their order
	Bytes   int64   `json:"bytes"`
	Version string  `json:"version"`
}

// duckDBCopy writes the rows by DuckDB, from a table in its memory.
func duckDBCopy(ctx context.Context, o *copiesOptions, asked *copyAsked) (*copyAnswered, error) {
	answered := new(copyAnswered)
	if err := askDuckDB(ctx, o.python, copiesScript, asked, answered); err != nil {
		return nil, err
	}
	if answered.Rows != o.rows || !answered.Same {
		return nil, fmt.Errorf("WRONG: DuckDB's file has %d rows of %d, the same: %t", answered.Rows, o.rows, answered.Same)
	}
	return answered, os.Remove(asked.Out)
}

// pageViewBatches returns the rows of the export stage as an export has them in
// memory.
func pageViewBatches(ctx context.Context, o *copiesOptions) (_ []*columnar.Batch, _ *columnar.Schema, err error) {
	s := &spec{
		Events: o.rows, Partitions: 4, Batch: 20_000, Seed: 1, Dir: filepath.Join(o.dir, "store"),
		Start: time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -1).UnixMilli(),
	}
	all, err := prebuild(ctx, s, generate(s), s.Events)
	if err != nil {
		return nil, nil, err
	}
	db, err := openStore(ctx, s, s.Dir, nil)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, db.Close(), os.RemoveAll(s.Dir)) }()
	if err := applyAll(ctx, db, all); err != nil {
		return nil, nil, err
	}
	c, err := loadConfig(s, s.Dir)
	if err != nil {
		return nil, nil, err
	}
	job := c.Jobs[rowTable]
	schema, err := columnar.Compile(job.Columns, columnar.RowsMode(job.Rows), nil)
	if err != nil {
		return nil, nil, err
	}
	batches, err := collect(ctx, db, schema)
	return batches, schema, err
}

// writeParquet writes the batches into one file as an export does, and returns its
// size.
func writeParquet(name string, batches []*columnar.Batch, schema *columnar.Schema) (size int64, err error) {
	f, err := os.Create(name)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err := parquetfile.NewWriter(f, schema.Columns(), &parquetfile.Options{Order: columnar.Ascending(schema.Order()...)})
	if err != nil {
		return 0, err
	}
	for _, b := range batches {
		if err := w.Write(b); err != nil {
			return 0, err
		}
	}
	stats, err := w.Close()
	return stats.Bytes, err
}

// runCopies measures, on one core each, how the rows of the export stage are written
// as one Parquet file with zstd by our encoder, from column batches, and by DuckDB's
// COPY, from a table in its memory. Neither syncs the file.
func runCopies(ctx context.Context, args []string, w, stderr io.Writer) (err error) {
	o, err := parseCopies(args, stderr)
	if err != nil {
		return err
	}
	if o.dir, err = os.MkdirTemp(o.dir, "sluice-copies-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(o.dir)) }()
	if o.dir, err = filepath.Abs(o.dir); err != nil {
		return err
	}
	batches, schema, err := pageViewBatches(ctx, o)
	if err != nil {
		return err
	}
	r := &peerReport{
		title: "Parquet files beside DuckDB",
		about: "Written by `make bench-copies`; [copies.go](copies.go) says what is measured: the rows of the export stage as one Parquet file with zstd, by our encoder from column batches in memory, and by DuckDB's COPY from a table in its memory, on one core each.",
		rows:  o.rows,
	}
	r.begin(ctx, w, copiesArgument, args, o.python, "python3")
	for round := range o.rounds {
		file := filepath.Join(o.dir, "ours.parquet")
		var size int64
		cores := runtime.GOMAXPROCS(1)
		_, ours, err := measured(&spec{}, func() (err error) {
			size, err = writeParquet(file, batches, schema)
			return err
		})
		runtime.GOMAXPROCS(cores)
		if err != nil {
			return err
		}
		r.add(w, round, "sluice, zstd", &ours, size)
		for _, name := range slices.Sorted(maps.Keys(duckDBCompressions)) {
			var got *copyAnswered
			foreign, err := foreignWhile(nil, func() (err error) {
				got, err = duckDBCopy(ctx, o, &copyAsked{Rows: file, Out: filepath.Join(o.dir, "duckdb.parquet"), Compression: duckDBCompressions[name]})
				return err
			})
			if err != nil {
				return err
			}
			theirs := sample{Seconds: got.Seconds, CPU: got.CPU, Foreign: foreign}
			r.add(w, round, name, &theirs, got.Bytes)
			r.ratio("CPU: "+name+" / sluice", "≥ 1.50", theirs.CPU/ours.CPU)
			r.ratio("time: "+name+" / sluice", "", theirs.Seconds/ours.Seconds)
			r.ratio("bytes: sluice / "+name, "", float64(size)/float64(got.Bytes))
			r.notes = []string{
				"DuckDB " + got.Version + ". Its level 1 is the level that our files have.",
				"Every file of DuckDB was read back, and had the rows of ours. Neither program syncs its file.",
			}
		}
	}
	return r.publish(w, o.write, o.force)
}
