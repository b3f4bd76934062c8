package jobs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/join"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// JoinOptions is one run of a join. Join must be set, and Source where it is Live.
type JoinOptions struct {
	Join   *Join
	Source instant.Source
	// Checkpoint names the instant of Source, where another process can read the
	// same one by that name: then the run can be resumed, as one of published
	// runs always can. Default: empty.
	Checkpoint string
	// Out is the directory below which the join has its own. Default: the
	// join's.
	Out string
	// Target replaces the local directory Out. It is not closed.
	Target target.Target
	// OpenBucket opens the directory of a published run, or of a job, that a side
	// of the join names by a URL, such as s3://BUCKET/PREFIX; the join closes it.
	// Default: there are no such runs.
	OpenBucket func(at string) (target.Target, error)
	// LogicalTime is what the run is for, as of a job's. Default: Now.
	LogicalTime time.Time
	// SchemaChanges is that of RunOptions. Default: the join's.
	SchemaChanges string
	// Engine and Version are stored in the manifest. Default: empty.
	Engine, Version string
	// Logger tells of the run's start and end. nil discards.
	Logger *slog.Logger
	// Progress is called after every batch that is read or written; Regions stays 0.
	Progress func(work.Progress)
	// Lag and Yielding are those of RunOptions, for joins of jobs that yield to ingest.
	Lag      func(ctx context.Context) ([]PipelineLag, error)
	Yielding func(Yielding)
	// Now is the clock, which several goroutines ask. Default: time.Now.
	Now func() time.Time
	// Confirm is called right before the run is published, as that of RunOptions.
	Confirm func(ctx context.Context) error
	// Published is called when the run is visible, as that of RunOptions.
	Published func(ctx context.Context, m *Manifest) error
}

// JoinInfo is how the rows of a run were joined.
type JoinInfo struct {
	Kind   string     `json:"kind"`
	Method string     `json:"method"`
	On     []JoinOn   `json:"on"`
	Left   JoinedSide `json:"left"`
	Right  JoinedSide `json:"right"`
}

// JoinOn is one column of the key and the parts of it that count: 0 and empty = all.
type JoinOn struct {
	Left       string `json:"left"`
	Right      string `json:"right"`
	LeftBytes  int    `json:"left_bytes"`
	LeftUntil  string `json:"left_until"`
	RightBytes int    `json:"right_bytes"`
	RightUntil string `json:"right_until"`
}

// JoinedSide is what a side was read from.
type JoinedSide struct {
	Job            string `json:"job"`
	Table          string `json:"table"` // empty for a join
	Sequence       uint64 `json:"sequence"`
	RunID          string `json:"run_id"`          // of a published run; empty = the store
	ManifestSHA256 string `json:"manifest_sha256"` // 64 hex digits, where there is a run
	SideRows
}

// SideRows is which rows and cells of its table a side had, as the manifest of a run of its
// job says it; the zero value is all.
type SideRows struct {
	StartRow  string               `json:"start_row,omitempty"`
	StopRow   string               `json:"stop_row,omitempty"`
	Families  []string             `json:"families,omitempty"`
	TimeRange *ReadTimes           `json:"time_range,omitempty"`
	Filter    string               `json:"filter,omitempty"`
	Where     []columnar.Predicate `json:"where,omitempty"`
}

// sideRows is what a side has whose job is j.
func (j *Job) sideRows() SideRows {
	return SideRows{columnar.EscapeKey(j.rows.Start), columnar.EscapeKey(j.rows.Stop), j.families, j.times, j.spec.Filter, j.spec.Where}
}

// sideRows is what a side has that is the run of m.
func (m *Manifest) sideRows() SideRows {
	r := SideRows{m.StartRow, m.StopRow, m.Families, m.TimeRange, m.Filter, m.Where}
	if len(r.Families) == 0 {
		r.Families = nil
	}
	return r
}

// joinRun is one execution of RunJoin.
type joinRun struct {
	execution
	Join       *Join
	OpenBucket func(at string) (target.Target, error)
	inputs     [2]sideInput
	rows       *replay
	disk       *onDisk // nil = the join has written none of its sides to disk
}

// onDisk is how far a join is that writes its sides to disk, and reads them again.
type onDisk struct {
	read   float64 // what part of the sides was read when it began
	joined float64 // what part of what was written is joined
}

// RunJoin joins the sides and publishes the result as a run, with a manifest of its
// own: what Run does with a table. One goroutine joins and one
// writes, at the lower of the priorities of its jobs, each of whose tables is read at its
// own rows_per_second. A run that is resumed joins
// everything again, and writes the files that were not finished. Its error wraps
// ErrResumable as Run's does; it wraps join.ErrMemory,
// join.ErrNotSorted and join.ErrDisk as join.Join.Run's does, store.ErrCorrupt where a file of a published run is not what its manifest
// says, and target.ErrExists.
func RunJoin(ctx context.Context, o *JoinOptions) (*Manifest, error) {
	r, err := newJoinRun(o)
	if err != nil {
		return nil, err
	}
	var m *Manifest
	err = asPriority(func() (err error) {
		m, err = r.run(ctx)
		return err
	}, r.Join.sides[0], r.Join.sides[1])
	if err != nil {
		return m, fmt.Errorf("join %s: %w", r.Join.name, err)
	}
	r.Logger.Info("join published", "job", r.Join.name, "run", r.id, "rows", r.progress.Rows, "bytes", r.progress.Bytes, "took", r.Now().Sub(r.started))
	return m, nil
}

func newJoinRun(o *JoinOptions) (*joinRun, error) {
	switch {
	case o.Join == nil:
		return nil, errors.New("jobs: JoinOptions.Join is not set")
	case o.Source == nil && o.Join.Live():
		return nil, errors.New("jobs: JoinOptions.Source is not set")
	}
	r := &joinRun{Join: o.Join, OpenBucket: o.OpenBucket}
	r.RunOptions = RunOptions{
		Source: o.Source, Checkpoint: o.Checkpoint, Out: o.Out, Target: o.Target, LogicalTime: o.LogicalTime, SchemaChanges: o.SchemaChanges, Engine: o.Engine, Version: o.Version,
		Logger: o.Logger, Progress: o.Progress, Lag: o.Lag, Yielding: o.Yielding, Now: o.Now, Confirm: o.Confirm, Published: o.Published,
	}
	r.kind, r.name = "join", r.Join.name
	if err := r.start(r.Join.spec.Out); err != nil {
		return r, err
	}
	j := *r.Join
	for i, side := range j.sides {
		if side == nil {
			continue
		}
		var err error
		if j.sides[i], err = side.at(r.LogicalTime); err != nil {
			return r, fmt.Errorf("join %s: %s side: %w", r.name, sideNames[i], err)
		}
	}
	r.Join = &j
	return r, nil
}

func (r *joinRun) run(ctx context.Context) (_ *Manifest, err error) {
	r.yielder = r.newYielder(r.Join.yieldToLag())
	for i := range r.inputs {
		if r.inputs[i], err = r.open(ctx, i); err != nil {
			return nil, fmt.Errorf("%s side: %w", sideNames[i], err)
		}
		defer func() { err = errors.Join(err, r.inputs[i].Close()) }()
	}
	j := *r.Join // its columns may be those of these runs alone
	r.Join = &j
	disk, err := spillDisk(j.spec.SpillDir, r.Out, cmp.Or(j.spec.SpillBytes, join.DefaultSpillBytes))
	if err != nil {
		return nil, err
	}
	j.spec.SpillDir = disk.Dir
	if err := j.compile(r.inputs[0].Columns(), r.inputs[1].Columns()); err != nil {
		return nil, err
	}
	for _, in := range r.inputs {
		if in, ok := in.(*runInput); ok { // half for each side
			in.spillTo(max(1, cmp.Or(j.spec.MemoryBytes, join.DefaultMemoryBytes)/2), disk)
		}
	}
	closeTarget, err := r.openTarget()
	if err != nil {
		return nil, err
	}
	defer closeTarget()
	if err := r.Join.checkColumns(ctx, r.Target, cmp.Or(r.SchemaChanges, r.Join.spec.SchemaChanges)); err != nil {
		return nil, err
	}
	m, err := r.manifest(ctx)
	if err != nil {
		return nil, err
	}
	want, err := r.state(m)
	if err != nil {
		return nil, err
	}
	return r.publish(ctx, m, want, true, r)
}

func (r *joinRun) open(ctx context.Context, i int) (sideInput, error) {
	if job := r.Join.sides[i]; job != nil {
		return openTable(ctx, job, r.Source, r.Progress != nil, r.Now, r.yielder)
	}
	at := r.Join.spec.sides()[i].Run
	in, err := openRunInput(ctx, at, r.OpenBucket)
	if err != nil || r.Join.spec.Method == join.Hash {
		return in, err
	}
	var on []string
	for _, o := range r.Join.spec.On {
		name := o.Left
		if i == 1 {
			name = cmp.Or(o.Right, o.Left)
		}
		on = append(on, name)
	}
	if err := in.manifest.checkMerge(on); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", at, err), in.Close())
	}
	return in, nil
}

// manifest returns the run's manifest without its files.
func (r *joinRun) manifest(ctx context.Context) (*Manifest, error) {
	info := &JoinInfo{Kind: r.Join.joined.Kind(), Method: r.Join.joined.Method(), On: []JoinOn{}}
	for _, on := range r.Join.joined.On() {
		info.On = append(info.On, JoinOn{
			Left: on.Left, Right: on.Right, LeftBytes: on.LeftPart.Bytes, LeftUntil: on.LeftPart.Until,
			RightBytes: on.RightPart.Bytes, RightUntil: on.RightPart.Until,
		})
	}
	m := &Manifest{
		FormatVersion: ManifestVersion, Job: r.Join.name, RunID: r.id, LogicalTime: r.LogicalTime, StartedAt: r.started,
		Offsets: []Offset{}, Rows: string(columnar.PerRow), SortedBy: names(r.Join.layout.order),
		Families: []string{}, Engine: r.Engine, Version: r.Version, Join: info, Iceberg: r.Join.spec.Iceberg,
	}
	from := r.Join.joined.Sources()
	for i, c := range r.Join.layout.columns {
		m.Columns = append(m.Columns, Column{Name: c.Name, From: from[i], Type: c.Type.String(), Nullable: c.Nullable, OnError: columnar.OnErrorFail})
	}
	var offsets [2][]Offset
	var tables []*store.TableDescriptor
	var runs []*Manifest
	for i, side := range []*JoinedSide{&info.Left, &info.Right} {
		switch in := r.inputs[i].(type) {
		case *tableInput:
			*side = JoinedSide{Job: in.job.name, Table: in.job.Table(), Sequence: r.Source.Sequence(), SideRows: in.job.sideRows()}
			var err error
			if offsets[i], err = completeTo(ctx, r.Source); err != nil {
				return nil, err
			}
			tables = append(tables, in.table)
		case *runInput:
			*side = JoinedSide{Job: in.manifest.Job, Table: in.manifest.Table, Sequence: in.manifest.Sequence, RunID: in.manifest.RunID, ManifestSHA256: in.sum, SideRows: in.manifest.sideRows()}
			offsets[i] = in.manifest.Offsets
			runs = append(runs, in.manifests()...)
		}
	}
	m.Sequence = min(info.Left.Sequence, info.Right.Sequence)
	m.Offsets = append(m.Offsets, commonOffsets(offsets[0], offsets[1])...)
	if u := instant.UnfrozenOf(r.Source); u != nil && len(tables) > 0 {
		describeUnfrozen(m, u, tables...)
	}
	for _, side := range runs {
		m.inherit(side)
	}
	if info.Left.Sequence != info.Right.Sequence {
		r.Logger.Warn("the sides of the join are of two instants", "job", r.Join.name, "left", info.Left.Sequence, "right", info.Right.Sequence)
	}
	r.metadata = m.metadata()
	return m, m.follow(ctx, r.Target)
}

// inherit makes m as little consistent as the run of a side.
func (m *Manifest) inherit(side *Manifest) {
	if side.Consistency == "" {
		return
	}
	if m.Consistency == "" || side.TimeBound < m.TimeBound {
		m.Consistency, m.TimeBound = side.Consistency, side.TimeBound
	}
	for _, limit := range side.Limits {
		if !slices.Contains(m.Limits, limit) {
			m.Limits = append(m.Limits, limit)
		}
	}
}

// commonOffsets returns up to where both of a and b are complete: of the partitions
// that both have, the lesser offset.
func commonOffsets(a, b []Offset) []Offset {
	var common []Offset
	for _, o := range a {
		i := slices.IndexFunc(b, func(p Offset) bool {
			p.Next = o.Next
			return p == o
		})
		if i >= 0 {
			o.Next = min(o.Next, b[i].Next)
			common = append(common, o)
		}
	}
	return common
}

// write writes the files.
func (r *joinRun) write(ctx context.Context) error {
	// To encode and to write is about half of the work.
	batches := writeBeside(columnar.NewBatch(r.Join.joined.Columns()), func(b *columnar.Batch) error {
		if err := r.rows.write(ctx, b, &filePartition{}); err != nil {
			return err
		}
		r.report(func(p *work.Progress) { p.Rows += int64(b.Rows()) })
		return nil
	}, r.Join.sides[:]...)
	err := r.join(ctx, func(b *columnar.Batch) error {
		rows := *b
		next, err := batches.take(&rows)
		if err == nil {
			*b = *next // of the rows before; who joins empties it
		}
		return err
	})
	if failed := batches.end(); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	return r.rows.leave(ctx, &filePartition{})
}

// atFault implements steps. A file of a run that is read and not there does not come.
func (r *joinRun) atFault(err error) bool {
	return isHopeless(err) || errors.Is(err, target.ErrNotFound)
}

// join hands the joined rows to write.
func (r *joinRun) join(ctx context.Context, write func(*columnar.Batch) error) error {
	told := func() { // by this goroutine alone: only it knows how far the sides are
		done := r.part()
		r.report(func(p *work.Progress) { p.Done = done })
	}
	left, right := &watchedInput{r.inputs[0], told}, &watchedInput{r.inputs[1], told}
	if r.Join.joined.Method() == join.Lookup {
		return r.Join.joined.RunLookup(ctx, left, r.inputs[1].(*tableInput), write) // CompileJoin has seen to it
	}
	return r.Join.joined.RunTold(ctx, left, right, write, func(joined float64) {
		if r.disk == nil {
			r.disk = &onDisk{read: r.read()}
		}
		r.disk.joined = joined
		told()
	})
}

// part is about what part is done: what part of the sides was read. Where they are
// written to disk, half of what was left then is their reading, and half the joining of
// what was written.
func (r *joinRun) part() float64 {
	read := r.read()
	if r.disk == nil {
		return read
	}
	left := (1 - r.disk.read) / 2
	return min(r.disk.read+(read-r.disk.read)/2+left*r.disk.joined, 1)
}

// read is about what part of the sides was read; of a lookup, of the left one.
func (r *joinRun) read() float64 {
	done, all := 0.0, 0.0
	for i, in := range r.inputs {
		if i == 1 && r.Join.joined.Method() == join.Lookup {
			break
		}
		part, weight := in.part()
		done, all = done+part*weight, all+weight
	}
	if all == 0 {
		return 0
	}
	return min(done/all, 1)
}
