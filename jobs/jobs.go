// Package jobs runs the export flow: from a snapshot of the store, a scan of each
// region in parallel, typed columns, Parquet and Arrow files, and a manifest that
// makes them visible.
//
// A Spec is a job as the configuration file declares it; Compile checks it
// against the table's schema and makes a Job. Run exports the table at the one
// instant of its Source (invariant I5) and publishes a run: a directory of files
// and a Manifest that names each with its rows, bytes, checksum and key range,
// and says up to which Kafka offsets the data is complete. A run is visible whole
// or not at all (invariant I6). List shows the runs of a directory; Verify reads
// them back and checks everything that the manifest says, from the files alone.
// DESIGN.md in this directory has the reasons, docs/export.md is the user's
// guide, docs/format/manifest.md the file's format.
//
// Jobs are immutable and safe for concurrent use, and several runs of one job may
// run at once: each has its own directory. Run starts goroutines and returns when
// all of them have ended.
//
// Tables are read through store.Reader only: the package opens no engine and takes
// no snapshot. What schedules remember is in package history.
package jobs

import (
	"errors"
	"fmt"
	"regexp"
	"slices"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/schedule"
	"sluice/region"
	"sluice/store"
)

// Defaults of a Spec.
const (
	DefaultTargetFileBytes = 256 << 20
	DefaultRowGroupBytes   = 64 << 20
)

// Spec is a job as it is declared.
type Spec struct {
	// Table to export.
	Table string `yaml:"table"`
	// Rows is what becomes an output row: row (default), one a table row, or
	// cell, one a cell.
	Rows string `yaml:"rows,omitempty"`
	// RowKey says how the table's row keys are made, for columns from $row.NAME.
	// Default: nothing is known of them.
	RowKey columnar.KeySpec `yaml:"row_key,omitempty" json:",omitzero"`
	// Mode is which versions are exported: latest (default), the newest of each
	// column; versions, the newest Versions of each; history, every version
	// that is stored and the delete markers, told apart by a column from $op.
	// The last two need rows: cell.
	Mode string `yaml:"mode,omitempty" json:",omitempty"`
	// Versions is how many versions of a column mode: versions exports at most;
	// a family's VERSIONS bound it, too.
	Versions int `yaml:"versions,omitempty" json:",omitempty"`
	// Columns of the output, in order.
	Columns []columnar.ColumnSpec `yaml:"columns"`
	// Formats are the files to write: parquet, arrow. Default: parquet.
	Formats []string `yaml:"formats,omitempty"`
	// Out is the directory below which the job has its own.
	Out string `yaml:"out"`
	// StartRow is the first row key, with HBase's \xNN escapes; empty = the
	// table's first.
	StartRow string `yaml:"start_row,omitempty"`
	// StopRow is the row key before which to stop; empty = the table's end.
	StopRow string `yaml:"stop_row,omitempty"`
	// Families are what is read, and which rows come out: those with a cell in
	// one of them. Default: all of the table.
	Families []string `yaml:"families,omitempty"`
	// TimeRange is which cells are read, by their timestamps: all others are as if they
	// were not there. Default: all.
	TimeRange TimeRange `yaml:"time_range,omitempty" json:",omitzero"`
	// Filter is a filter string or a filter as JSON, which can compare numbers of 8
	// bytes (docs/filters.md); what it drops is not exported. Default: none.
	Filter string `yaml:"filter,omitempty"`
	// Where are conditions on the output columns, all of which hold for the rows that
	// are exported. Default: none.
	Where []columnar.Predicate `yaml:"where,omitempty" json:",omitempty"`
	// TargetFileBytes is about how large a file becomes before the next one of
	// its region is begun. Default 256 MiB.
	TargetFileBytes int64 `yaml:"target_file_bytes,omitempty"`
	// RowGroupBytes is how many bytes of values, before encoding, make a
	// Parquet row group. Default 64 MiB; one per core is held in memory.
	RowGroupBytes int64 `yaml:"row_group_bytes,omitempty"`
	// PartitionBy are columns, of type string, int64 or bool, by whose values the
	// files are divided into directories as Hive names them: COLUMN=VALUE, one
	// in the other, null being __HIVE_DEFAULT_PARTITION__. They are not in the
	// files. Default: none.
	PartitionBy []string `yaml:"partition_by,omitempty" json:",omitempty"`
	// MaxPartitions is how many partitions a region may have, each of which has
	// a file open for each format; more are an error. They share the memory of
	// four row groups, so row_group_bytes is at most four times that divided by
	// them. At most 1024. Default: 64.
	MaxPartitions int `yaml:"max_partitions,omitempty" json:",omitempty"`
	// Sort are the columns by which the rows are sorted over all files, or over
	// those of each partition; rows that are equal in them are in the order of
	// their keys. Default: the row key.
	Sort []SortColumn `yaml:"sort,omitempty" json:",omitempty"`
	// MemoryBytes bounds what a Sort holds of rows; what does not fit is written
	// to SpillDir. Default 256 MiB.
	MemoryBytes int64 `yaml:"memory_bytes,omitempty" json:",omitempty"`
	// SpillDir is the directory to which a Sort writes what does not fit
	// MemoryBytes. Default: out, where that is a directory; without one, such a
	// run stops.
	SpillDir string `yaml:"spill_dir,omitempty" json:",omitempty"`
	// SpillBytes bounds what is there at a time. Default 64 GiB.
	SpillBytes int64 `yaml:"spill_bytes,omitempty" json:",omitempty"`
	// Compression is zstd, snappy, lz4 or none for Parquet; zstd, lz4 or none
	// for Arrow. Default: zstd for Parquet, none for Arrow.
	Compression string `yaml:"compression,omitempty"`
	// RowsPerSecond bounds how many rows a second a run reads, of all its regions
	// together, or a join of this side: with rows: cell, cells. Those that filter
	// drops the store reads without a bound. Default: 0, no bound.
	RowsPerSecond int `yaml:"rows_per_second,omitempty"`
	// Priority is normal (default) or low, with which a run, or a join that has
	// the job as a side, takes only what others leave of the processors. low
	// needs Linux.
	Priority string `yaml:"priority,omitempty"`
	// YieldToLag has a run pause while ingest is behind. Default: it never does.
	YieldToLag YieldToLag `yaml:"yield_to_lag,omitempty" json:",omitzero"`
	// Keep is how long published runs are kept. The daemon removes those beyond it after
	// each run that it makes; export gc does, too.
	Keep Keep `yaml:"keep,omitempty"`
	// Iceberg makes the Parquet files of the job's runs an Apache Iceberg table, too, in the
	// job's directory below out, of which each run is a snapshot that replaces the one before,
	// or, of an increment, changes it (docs/iceberg.md). Default: false.
	Iceberg bool `yaml:"iceberg,omitempty" json:",omitempty"`
	// SchemaChanges is what may become of the columns from one run to the next: any
	// (default), all; compatible, what readers of both get along with: new nullable columns,
	// another order, nulls where there were none, and a decimal of more digits; none,
	// nothing. A run that would break it is refused before anything is read.
	SchemaChanges string `yaml:"schema_changes,omitempty" json:",omitempty"`
	// Incremental makes runs between two full ones hold the changed rows only.
	Incremental Incremental `yaml:"incremental,omitempty"`
	// Schedule is when the daemon runs the job by itself.
	Schedule schedule.Spec `yaml:"schedule,omitempty"`
}

// Job is a compiled Spec.
type Job struct {
	name     string
	spec     Spec
	schema   *columnar.Schema
	rows     cell.Range
	families []string     // nil = all
	times    *ReadTimes   // nil = all, or not known before there is a run
	filter   store.Filter // nil = none
	formats  []format
	layout   layout
	// partition is how the files are divided; nil = not.
	partition *partitioning
	sort      []int              // columns of spec.Sort; nil = by row key
	schedule  *schedule.Schedule // nil = none
}

// Name returns the job's name.
func (j *Job) Name() string { return j.name }

// Table returns the name of the table.
func (j *Job) Table() string { return j.spec.Table }

// Out returns the directory that the job was declared with.
func (j *Job) Out() string { return j.spec.Out }

// Formats returns the formats that the job writes.
func (j *Job) Formats() []string {
	names := make([]string, len(j.formats))
	for i := range j.formats {
		names[i] = j.formats[i].name
	}
	return names
}

// Columns returns the output columns.
func (j *Job) Columns() []columnar.Column { return j.schema.Columns() }

// ComparesColumns reports whether the job's schema_changes refuses anything.
func (j *Job) ComparesColumns() bool {
	return j.spec.SchemaChanges == ChangesCompatible || j.spec.SchemaChanges == ChangesNone
}

// Schedule returns when the daemon runs the job, or nil where it does not.
func (j *Job) Schedule() *schedule.Schedule { return j.schedule }

// jobName is a name that is a directory on every system, and hidden on none.
var jobName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,99}$`)

// Compile checks s against the schema of its table, which may be nil where it is
// not known yet: then families are not checked. Its error joins a
// *columnar.SpecError for every mistake, whose path is relative to the job
// ("columns[3].coding"). s is not kept.
func Compile(name string, s *Spec, schema *store.TableDescriptor) (*Job, error) {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &columnar.SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	j := &Job{name: name, spec: *s}
	j.spec.Table = store.CanonicalName(s.Table)
	j.spec.Columns, j.spec.Formats, j.spec.Families = slices.Clone(s.Columns), slices.Clone(s.Formats), slices.Clone(s.Families)
	j.spec.PartitionBy, j.spec.RowKey.Fields = slices.Clone(s.PartitionBy), slices.Clone(s.RowKey.Fields)
	j.spec.Sort, j.spec.Where = slices.Clone(s.Sort), slices.Clone(s.Where)
	if !jobName.MatchString(name) {
		bad("name", "%q is not a job name: letters, digits, _, - and ., starting with a letter or digit, at most 100", name)
	}
	if s.Table == "" {
		bad("table", "it is missing")
	} else if err := store.CheckTableName(s.Table); err != nil {
		bad("table", "%v", err)
	} else if schema != nil && store.CanonicalName(schema.Name) != j.spec.Table {
		bad("table", "it is %s, but the schema is of %s", s.Table, schema.Name)
	}
	var err error
	if j.schema, err = columnar.CompileKeyed(s.Columns, columnar.RowsMode(s.Rows), &s.RowKey, schema); err != nil {
		errs = append(errs, err)
	} else if len(s.Where) > 0 {
		if j.schema, err = j.schema.Where(s.Where); err != nil {
			errs = append(errs, err)
		}
	}
	j.compileIncremental(bad)
	j.compileFamilies(schema, bad)
	j.compileMode(schema, bad)
	j.compileFilter(schema, bad)
	j.formats = compileFormats(&j.spec.Formats, j.spec.Compression, bad)
	s.Keep.check(bad)
	checkSchemaChanges(s.SchemaChanges, bad)
	checkPriority(s.Priority, bad)
	j.compileYield(bad)
	if s.RowsPerSecond < 0 || s.RowsPerSecond > 1e9 {
		bad("rows_per_second", "%d is not from 0 to 1,000,000,000", s.RowsPerSecond)
	}
	j.schedule = compileSchedule(name, s.Out, &s.Schedule, bad)
	j.compileTimes(schema, bad)
	var start, stop []byte
	if start, err = columnar.UnescapeKey(s.StartRow); err != nil {
		bad("start_row", "%v", err)
	}
	if stop, err = columnar.UnescapeKey(s.StopRow); err != nil {
		bad("stop_row", "%v", err)
	}
	if len(stop) > 0 && string(stop) <= string(start) {
		bad("stop_row", "%q is not after start_row %q", s.StopRow, s.StartRow)
	}
	j.rows = cell.Range{Start: start, Stop: stop}
	j.layout = layout{compression: j.spec.Compression, rowGroupBytes: j.spec.RowGroupBytes, targetFileBytes: j.spec.TargetFileBytes}
	j.layout.compile(bad)
	if j.schema != nil {
		j.layout.columns, j.layout.order = j.schema.Columns(), columnar.Ascending(j.schema.Order()...)
	}
	if s.Iceberg && j.schema != nil {
		checkIceberg(j.formats, j.schema.Columns(), bad)
	}
	j.compilePartitions(bad)
	j.compileSort(bad)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return j, nil
}

func (j *Job) compileFamilies(schema *store.TableDescriptor, bad func(path, format string, args ...any)) {
	slices.Sort(j.spec.Families)
	j.families = slices.Compact(j.spec.Families)
	if len(j.families) == 0 {
		j.families = nil
		return
	}
	for i, f := range j.families {
		if schema != nil && schema.Family(f) == nil {
			bad(fmt.Sprintf("families[%d]", i), "table %s has no family %q", schema.Name, f)
		}
	}
	if j.schema == nil {
		return
	}
	for _, f := range j.schema.Families() {
		if !slices.Contains(j.families, f) {
			bad("families", "a column comes from family %q, which is not among them", f)
		}
	}
}

// compileSchedule compiles the schedule of a job or join that writes to out; nil = it has
// none.
func compileSchedule(name, out string, s *schedule.Spec, bad func(path, format string, args ...any)) *schedule.Schedule {
	if *s == (schedule.Spec{}) {
		return nil
	}
	if out == "" {
		bad("out", "a schedule needs a directory to write to")
	}
	compiled, err := schedule.Compile(name, s)
	var all interface{ Unwrap() []error }
	if !errors.As(err, &all) {
		return compiled
	}
	for _, e := range all.Unwrap() {
		var at *schedule.SpecError
		if errors.As(e, &at) {
			bad("schedule."+at.Path, "%s", at.Problem)
		}
	}
	return nil
}

// served returns j, or, where it reads all families of t, a copy that reads those that are
// served: what an unfinished rebuild has counted so far nobody is. Where a table may change
// while it is read the copy names all others, too, as a rebuild may begin.
func (j *Job) served(t *store.TableDescriptor, changes bool) *Job {
	if j.families != nil {
		return j
	}
	names := store.ServedFamilies(t, j.schema.Families())
	if !changes && len(names) == len(t.Families) {
		return j
	}
	c := *j
	c.families = names
	return &c
}

// splits returns the parts of m that overlap the job's rows, in key order.
func (j *Job) splits(m *region.Map) []instant.Split { return instant.Splits(m, j.rows) }

// scan returns the scan of one split.
func (j *Job) scan(s *instant.Split) *store.Scan {
	sc := &store.Scan{Table: j.spec.Table, Start: s.Rows.Start, Stop: s.Rows.Stop, Filter: j.filter}
	for _, f := range j.families {
		sc.Columns = append(sc.Columns, store.Column{Family: f, All: true})
	}
	if j.times != nil {
		j.times.restrict(sc)
	}
	if j.schema.Mode() == columnar.PerCell {
		// A wide row need not be in memory whole, nor many large cells of it.
		sc.Batch, sc.MaxResultBytes = cellsPerRow, columnar.DefaultBatchBytes
	}
	switch j.spec.Mode {
	case ModeVersions:
		sc.Versions = j.spec.Versions
	case ModeHistory:
		sc.Raw, sc.Versions = true, store.AllVersions
	}
	return sc
}

// cellsPerRow bounds the cells of one scanned Row in mode cell: enough to
// amortise a step of the scan, few enough that cells of the largest size stay
// within memory.
const cellsPerRow = 64
