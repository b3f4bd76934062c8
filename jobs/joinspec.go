package jobs

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/iceberg"
	"sluice/jobs/join"
	"sluice/jobs/schedule"
)

// JoinSpec is a join as it is declared: two sides, and what becomes of them.
type JoinSpec struct {
	// Left is the left side.
	Left JoinSide `yaml:"left"`
	// Right is the right side; of a hash join, the smaller one; of a lookup, a
	// job, whose table is asked for rows by their keys.
	Right JoinSide `yaml:"right"`

	join.Spec `yaml:",inline"`

	// Formats are the files to write: parquet, arrow. Default: parquet.
	Formats []string `yaml:"formats,omitempty"`
	// Out is the directory below which the join has its own.
	Out string `yaml:"out"`
	// TargetFileBytes is about how large a file becomes before the next one is
	// begun. Default 256 MiB.
	TargetFileBytes int64 `yaml:"target_file_bytes,omitempty"`
	// RowGroupBytes is how many bytes of values, before encoding, make a
	// Parquet row group. Default 64 MiB.
	RowGroupBytes int64 `yaml:"row_group_bytes,omitempty"`
	// Compression is as in a job.
	Compression string `yaml:"compression,omitempty"`
	// Iceberg is as in a job.
	Iceberg bool `yaml:"iceberg,omitempty"`
	// SchemaChanges is as in a job.
	SchemaChanges string `yaml:"schema_changes,omitempty"`
	// Schedule is when the daemon joins. Default: only when somebody does.
	Schedule schedule.Spec `yaml:"schedule,omitempty"`
	// Keep is how long published runs are kept. The daemon removes those beyond it after
	// each run that it makes; export gc does, too.
	Keep Keep `yaml:"keep,omitempty"`
}

// JoinSide is one side of a join: one of its keys is set, the same on both sides.
type JoinSide struct {
	// Job is a job of this file: the side is the rows that it would export,
	// read from the store, both sides at one instant.
	Job string `yaml:"job,omitempty"`
	// Run is a published export: the directory of a run, or of a job or join,
	// of which it is the latest run; or s3://BUCKET/PREFIX of one.
	Run string `yaml:"run,omitempty"`
}

// Join is a compiled JoinSpec.
type Join struct {
	name   string
	spec   JoinSpec
	sides  [2]*Job // nil = published runs
	layout layout
	format []format
	joined *join.Join // nil until the columns of published runs are known

	schedule *schedule.Schedule // nil = none
}

// Name returns the join's name.
func (j *Join) Name() string { return j.name }

// Out returns the directory that the join was declared with.
func (j *Join) Out() string { return j.spec.Out }

// Schedule returns the join's schedule, nil = it has none.
func (j *Join) Schedule() *schedule.Schedule { return j.schedule }

// Live reports whether the sides are read from the store: RunJoin needs a Source.
func (j *Join) Live() bool { return j.sides[0] != nil }

func (s *JoinSpec) sides() [2]*JoinSide { return [2]*JoinSide{&s.Left, &s.Right} }

// inBucket reports whether a place is not a directory.
func inBucket(at string) bool { return strings.HasPrefix(at, "s3://") }

// sideNames are the sides as declarations and messages name them.
var sideNames = [2]string{"left", "right"}

// CompileJoin checks s. find returns a compiled job by its name, or nil where there
// is none. The columns of published runs are not known before RunJoin; what is said
// of them is checked there. Its error joins a *columnar.SpecError for every mistake,
// whose path is relative to the join. s is not kept.
func CompileJoin(name string, s *JoinSpec, find func(job string) *Job) (*Join, error) {
	var errs []error
	bad := func(path, format string, args ...any) {
		errs = append(errs, &columnar.SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
	}
	j := &Join{name: name, spec: *s}
	j.spec.Formats = slices.Clone(s.Formats)
	if !jobName.MatchString(name) {
		bad("name", "%q is not a name of a join: letters, digits, _, - and ., starting with a letter or digit, at most 100", name)
	}
	runs := 0
	for i, side := range j.spec.sides() {
		switch {
		case side.Job != "" && side.Run != "":
			bad(sideNames[i], "it is either a job or a run")
		case side.Run != "":
			runs++
		case side.Job == "":
			bad(sideNames[i], "it is missing: a job of this file, or a published run")
		default:
			if j.sides[i] = find(side.Job); j.sides[i] == nil {
				bad(sideNames[i]+".job", "there is no job %q", side.Job)
			}
		}
	}
	if runs == 1 {
		bad("right", "one side is a job and one a published run, which are not of one instant; export the job first")
	}
	if j.spec.Method == join.Lookup && runs > 0 {
		bad("method", "a lookup asks a table for rows; published runs are joined by merge or hash")
	}
	j.format = compileFormats(&j.spec.Formats, j.spec.Compression, bad)
	if s.Iceberg {
		checkIceberg(j.format, nil, bad)
	}
	j.spec.Keep.check(bad)
	checkSchemaChanges(s.SchemaChanges, bad)
	j.schedule = compileSchedule(name, s.Out, &j.spec.Schedule, bad)
	j.layout = layout{compression: j.spec.Compression, rowGroupBytes: j.spec.RowGroupBytes, targetFileBytes: j.spec.TargetFileBytes}
	j.layout.compile(bad)
	if len(errs) == 0 && j.Live() {
		errs = append(errs, j.compile(j.sides[0].Columns(), j.sides[1].Columns()))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return j, nil
}

// compile fills in what depends on the columns of the sides.
func (j *Join) compile(left, right []columnar.Column) (err error) {
	if j.joined, err = join.Compile(&j.spec.Spec, left, right); err != nil {
		return err
	}
	j.layout.columns, j.layout.order = j.joined.Columns(), columnar.Ascending(j.joined.Order()...)
	if j.spec.Iceberg {
		if err := iceberg.Check(j.layout.columns); err != nil {
			return &columnar.SpecError{Path: "iceberg", Problem: err.Error()}
		}
	}
	if j.spec.Method == join.Lookup {
		return j.checkLookup()
	}
	return nil
}

// checkLookup checks that the right side is joined by its row key.
func (j *Join) checkLookup() error {
	name := j.joined.On()[0].Right
	specs := j.sides[1].schema.Specs()
	i := slices.IndexFunc(specs, func(s columnar.ColumnSpec) bool { return s.Name == name })
	if s := &specs[i]; s.From != columnar.FromRow || s.OnError == columnar.OnErrorNull || !verbatim(s.Type, s.Coding) {
		return &columnar.SpecError{Path: "on[0].right", Problem: fmt.Sprintf(
			"a lookup is by the row key, and %s is not it as it is stored: name a column from %s without on_error: null and without a coding, or join by hash", name, columnar.FromRow)}
	}
	return nil
}
