package jobs

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/store"
)

// DefaultHold is how long after a run the store is asked to know what has changed
// since.
const DefaultHold = 7 * 24 * time.Hour

// Incremental makes a job export, after a full run, the rows that were changed since
// the run before, with rows: cell all cells of each. The zero value makes every run full.
type Incremental struct {
	// FullEvery is how many runs from one full run to the next, which bounds
	// the chain that a reader needs: 2 or more. Default: every run is full.
	FullEvery int `yaml:"full_every,omitempty"`
	// Hold is how long after a run the store keeps known what has changed
	// since; a run that comes later is full. Default: 168h.
	Hold time.Duration `yaml:"hold,omitempty"`
	// Expired says what becomes of rows that nobody has changed, and of which
	// cells have expired by a TTL: ignore (default) leaves them as they were
	// exported until they are changed or the next full run; report has
	// increments hold them, too, for which each reads all cells of the job's
	// families.
	Expired string `yaml:"expired,omitempty"`
}

// The values of Incremental.Expired; the empty one is IgnoreExpired.
const (
	IgnoreExpired = "ignore"
	ReportExpired = "report"
)

// compileIncremental checks the job's incremental, after its columns.
func (j *Job) compileIncremental(bad func(path, format string, args ...any)) {
	s := &j.spec.Incremental
	op := j.schema != nil && j.schema.Op()
	switch s.Expired {
	case "", ReportExpired:
	case IgnoreExpired:
		s.Expired = ""
	default:
		bad("incremental.expired", "%q is not %s or %s", s.Expired, IgnoreExpired, ReportExpired)
	}
	if s.Expired != "" && s.FullEvery == 0 && s.Hold == 0 {
		bad("incremental.full_every", "it is missing: expired is of increments")
		return
	}
	switch {
	case s.FullEvery == 0 && s.Hold == 0 && op && j.spec.Mode != ModeHistory:
		bad("columns", "a column comes from %s, which jobs with incremental and with mode: history have", columnar.FromOp)
		return
	case s.FullEvery == 0 && s.Hold == 0:
		return
	case s.FullEvery < 2:
		bad("incremental.full_every", "it is %d: each so many runs one is full, 2 or more", s.FullEvery)
	case s.Hold < 0:
		bad("incremental.hold", "%v is negative", s.Hold)
	}
	if s.Hold == 0 {
		s.Hold = DefaultHold
	}
	if j.schema == nil {
		return
	}
	if j.spec.Mode == ModeHistory {
		bad("incremental", "a history's delete markers say what they delete of what is in the same file; increments are of the modes %s and %s", ModeLatest, ModeVersions)
		return
	}
	if !op {
		bad("columns", "an increment says of each row whether it is there: add {name: op, from: %s, type: string}", columnar.FromOp)
	}
	if !j.schema.TellsRows() {
		bad("columns", "increments are put together by the row key: add a column from %s of type string or bytes, in no coding that gives two keys one value", columnar.FromRow)
	}
	for i, c := range j.schema.Specs() {
		if c.From != columnar.FromRow && !columnar.IsRowField(c.From) && c.From != columnar.FromOp && !*c.Nullable {
			bad(fmt.Sprintf("columns[%d].nullable", i), "a row that is gone has nothing of the column: with incremental say nullable: true")
		}
	}
}

// IncrementInfo says of a run of an incremental job what it is. The other fields than
// Store and Definition are zero in a full run.
type IncrementInfo struct {
	Store      string `json:"store"`           // the store's id: sequences are of one store
	Definition string `json:"definition"`      // hash of the job, without where and when it runs
	Number     int    `json:"number"`          // of increments since the full run; 0 = this is one
	Since      uint64 `json:"since,omitempty"` // the rows were changed by commits after this one
	BaseRunID  string `json:"base_run_id,omitempty"`
	Base       string `json:"base,omitempty"` // the directory of that run, beside this one's
	// Incarnation is, of a table of an engine that tells no changes (HBase), what it was: an
	// increment goes on from a run of the same one.
	Incarnation string `json:"incarnation,omitempty"`
	// Expired is report where increments have rows of which cells have expired.
	Expired string `json:"expired,omitempty"`
}

// increment reports whether the run holds changed rows only.
func (m *Manifest) increment() bool { return m.Incremental != nil && m.Incremental.Number > 0 }

func (i *IncrementInfo) validate() error {
	switch {
	case i.Expired != "" && i.Expired != ReportExpired:
		return fmt.Errorf("incremental: expired %q", i.Expired)
	case i.Store == "" || !isHex(i.Definition, 64) || i.Number < 0:
		return fmt.Errorf("incremental: store %q, definition %q, number %d", i.Store, i.Definition, i.Number)
	case (i.Number == 0) != (i.BaseRunID == "" && i.Base == "" && i.Since == 0):
		return fmt.Errorf("incremental: number %d, base %q (%q), since %d", i.Number, i.BaseRunID, i.Base, i.Since)
	case i.Number > 0 && (i.Base == "" || path.Base(i.Base) != i.Base || i.BaseRunID == ""):
		return fmt.Errorf("incremental: base %q (%q)", i.BaseRunID, i.Base)
	}
	return nil
}

// noBaseError is why a run of an incremental job is full.
type noBaseError struct{ why string }

func (e *noBaseError) Error() string { return "jobs: no increment: " + e.why }

// HoldChanges has the store keep known what changes from now on, for the next run of
// j. Before its first run's instant is taken, it saves a second full run; Run does
// the rest. It does nothing where j is not incremental.
func HoldChanges(ctx context.Context, j *Job, holder store.ChangeHolder, now time.Time) error {
	if j.spec.Incremental.FullEvery == 0 || holder == nil {
		return nil
	}
	return j.hold(ctx, holder, now, 0)
}

// HolderOf returns what RunOptions ask of an engine for a run of j: nothing where j is
// not incremental, or the engine does not know its changes, or has no id.
func HolderOf(ctx context.Context, j *Job, engine any) (holder store.ChangeHolder, id string, err error) {
	if j.spec.Incremental.FullEvery == 0 {
		return nil, "", nil
	}
	switch e := engine.(type) {
	case interface{ ID() string }:
		holder, _ = engine.(store.ChangeHolder)
		return holder, e.ID(), nil
	case interface {
		ClusterID(ctx context.Context) (string, error)
	}:
		id, err = e.ClusterID(ctx)
		return nil, id, err
	}
	return nil, "", nil
}

// holdName is the name of the job's hold.
func (j *Job) holdName() string { return "export:" + j.name }

func (j *Job) hold(ctx context.Context, holder store.ChangeHolder, now time.Time, since uint64) error {
	_, err := holder.HoldChanges(ctx, store.ChangeHold{
		Name: j.holdName(), Table: j.spec.Table, Since: since, Until: cell.Timestamp(now.Add(j.spec.Incremental.Hold).UnixMilli()),
		Expired: j.reportsExpired(),
	})
	return err
}

// reportsExpired reports whether the job's increments have rows of which cells have
// expired.
func (j *Job) reportsExpired() bool { return j.spec.Incremental.Expired == ReportExpired }

// planIncrement decides whether the run is an increment, and says so in m.
func (r *run) planIncrement(ctx context.Context, m *Manifest) error {
	if r.Job.spec.Incremental.FullEvery == 0 {
		return nil
	}
	u := instant.UnfrozenOf(r.Source)
	if u == nil && r.Holder == nil || r.StoreID == "" {
		return fmt.Errorf("%w: incremental exports here: the engine does not know what changes", store.ErrUnsupported)
	}
	if u != nil && r.Job.reportsExpired() {
		return fmt.Errorf("%w: incremental.expired: %s here: the engine does not tell what has expired", store.ErrUnsupported, ReportExpired)
	}
	definition, err := r.Job.definition("")
	if err != nil {
		return err
	}
	m.Incremental = &IncrementInfo{Store: r.StoreID, Definition: definition, Incarnation: r.incarnation, Expired: r.Job.spec.Incremental.Expired}
	if u != nil {
		if err := instant.TimesTell(r.table, r.Job.families); err != nil {
			return err
		}
	} else {
		// Also what makes durable all that the snapshot shows, before it is
		// published: a crash must not take back commits that an export has seen.
		r.hold = func(ctx context.Context) error { return r.Job.hold(ctx, r.Holder, r.Now(), 0) }
	}
	err = r.findBase(ctx, m)
	if full := (*noBaseError)(nil); errors.As(err, &full) {
		r.Logger.Info("export is full", "job", r.Job.name, "run", r.id, "reason", full.why)
		return nil
	}
	if err == nil {
		r.Checkpoint = "" // small, and begun anew where it is cut off
	}
	return err
}

// findBase finds the run to go on from. Its error wraps noBaseError where the run must
// be full.
func (r *run) findBase(ctx context.Context, m *Manifest) error {
	if r.Full {
		return &noBaseError{"it was asked for"}
	}
	latest, err := readLatest(ctx, r.Target, m.Job)
	if errors.Is(err, target.ErrNotFound) {
		return &noBaseError{"it is the first"}
	}
	if err != nil {
		return err
	}
	base, _, err := readManifest(ctx, r.Target, path.Join(m.Job, latest.Manifest))
	if errors.Is(err, target.ErrNotFound) {
		return &noBaseError{"the run before is gone"}
	}
	if err != nil {
		return noneGoesOn(err)
	}
	was, now := base.Incremental, m.Incremental
	switch {
	case was == nil || was.Definition != now.Definition || was.Expired != now.Expired:
		return &noBaseError{"the job was changed"}
	case was.Store != now.Store || base.Sequence > m.Sequence:
		return &noBaseError{"the run before is of another store"}
	case was.Incarnation == "" && now.Incarnation != "":
		return &noBaseError{"the run before does not say whether the table is the same"}
	case was.Incarnation != now.Incarnation:
		return &noBaseError{instant.SameTable(m.Table, was.Incarnation, now.Incarnation).Error()}
	case was.Number+1 >= r.Job.spec.Incremental.FullEvery:
		return &noBaseError{"it is due"}
	case !m.LogicalTime.After(base.LogicalTime):
		return &noBaseError{"it is for a time before the run before"}
	}
	if r.Job.spec.Iceberg {
		is, err := isTable(ctx, r.Target, base)
		if err != nil {
			return err
		}
		if !is {
			return &noBaseError{"the Iceberg table is not the run before"}
		}
	}
	// Nobody could read what goes on from it otherwise.
	err = walkChain(ctx, r.Target, m.Job, base, func(*Manifest) {})
	if broken := (*brokenChainError)(nil); errors.As(err, &broken) {
		return &noBaseError{broken.why}
	}
	if err != nil {
		return noneGoesOn(err)
	}
	if r.Checkpoint != "" { // or nothing can be gone on with
		left, err := ListUnfinishedTarget(ctx, r.Target)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(left, func(u Unfinished) bool { return u.RunID == r.id }) { // an increment leaves nothing
			return &noBaseError{"it was full when it was cut off"}
		}
	}
	changes, ok := r.Source.(store.ChangeReader)
	if !ok {
		return &noBaseError{"what was changed is not known here"}
	}
	if instant.UnfrozenOf(r.Source) == nil { // which knows as much at any time
		for _, err := range changes.ChangedRows(ctx, r.Job.Table(), r.Job.families, r.Job.rows, base.Sequence) {
			if errors.Is(err, store.ErrChangesUnknown) {
				return &noBaseError{err.Error()}
			}
			if err != nil {
				return err
			}
			break
		}
	}
	if err := r.knowsBase(ctx, base); err != nil {
		return err
	}
	r.changes = changes
	now.Number, now.Since, now.BaseRunID, now.Base = was.Number+1, base.Sequence, base.RunID, path.Dir(latest.Manifest)
	r.since, r.baseTime = now.Since, base.StartedAt
	return nil
}

// noneGoesOn adds to the error of a manifest that cannot be read what to do.
func noneGoesOn(err error) error {
	if errors.Is(err, ErrManifest) {
		return fmt.Errorf("the run to go on from: %w; a full run (run --full) goes on from none", err)
	}
	return err
}

// knowsBase returns a noBaseError unless the store remembers base, as letGo has told it. The
// data directory of before that run, which somebody has put back, has the same id and makes
// other commits of the same sequences. A hold that was over is made anew with a later sequence,
// and tells nothing of base, whatever other jobs' holds keep known.
func (r *run) knowsBase(ctx context.Context, base *Manifest) error {
	if r.Holder == nil {
		return nil // sequences are times
	}
	holds, err := r.Holder.ChangeHolds(ctx)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(holds, func(h store.ChangeHold) bool {
		return h.Name == r.Job.holdName() && h.Since == base.Sequence
	}) {
		return &noBaseError{"the store does not remember the run before: that is longer ago than hold, its process was killed as it ended, or the store is as it was before it"}
	}
	return nil
}

// checkBase returns an error where the run that m goes on from is not there any more: when m
// began it was the latest one, and a full run that was published since lets it go. In its
// place there may be another one for the same time; and the Iceberg table, which was that run,
// may have become another one.
func (m *Manifest) checkBase(ctx context.Context, t target.Target) error {
	if !m.increment() {
		return nil
	}
	base, _, err := readManifest(ctx, t, path.Join(m.Job, m.Incremental.Base, ManifestName))
	if errors.Is(err, target.ErrNotFound) || err == nil && base.Sequence != m.Incremental.Since {
		return fmt.Errorf("run %s, which it goes on from, was removed meanwhile; run it again", m.Incremental.BaseRunID)
	}
	if err != nil || !m.Iceberg {
		return err
	}
	is, err := isTable(ctx, t, base)
	if err == nil && !is {
		err = fmt.Errorf("the Iceberg table was run %s, which it goes on from, and became another one meanwhile; run it again", m.Incremental.BaseRunID)
	}
	return err
}

// letGo tells the store that what was changed up to the run is exported, which the next
// increment asks for (knowsBase). What it keeps too long costs some space.
func (r *run) letGo(ctx context.Context, m *Manifest) {
	if m.Incremental == nil || r.Holder == nil {
		return
	}
	latest, err := readLatest(ctx, r.Target, m.Job)
	if err == nil && latest.RunID != m.RunID {
		return // the next increment is not this run's
	}
	if err == nil {
		err = r.Job.hold(ctx, r.Holder, r.Now(), m.Sequence)
	}
	if err != nil {
		r.Logger.Warn("the store keeps changes that were exported", "job", r.Job.name, "err", err)
	}
}

// verifyChain returns what is wrong with the runs that m goes on from, which lie
// beside it.
func verifyChain(ctx context.Context, t target.Target, m *Manifest) (problems []string, err error) {
	err = walkChain(ctx, t, ".", m, func(*Manifest) {})
	if broken := (*brokenChainError)(nil); errors.As(err, &broken) {
		return []string{broken.why}, nil
	}
	return nil, err
}

// brokenChainError is why what an increment goes on from is not there.
type brokenChainError struct{ why string }

func (e *brokenChainError) Error() string { return "jobs: " + e.why }

// ReadChain returns the manifests of the runs that m goes on from, the full one first and
// without m; none where m is no increment. t is the job's directory. Its error says which
// run is missing or another one than it was.
func ReadChain(ctx context.Context, t target.Target, m *Manifest) (before []*Manifest, err error) {
	if err := walkChain(ctx, t, ".", m, func(base *Manifest) { before = append(before, base) }); err != nil {
		return nil, err
	}
	slices.Reverse(before)
	return before, nil
}

// walkChain calls found with the manifests of the runs that m goes on from, the full one last.
// dir, below t, is the job's directory.
func walkChain(ctx context.Context, t target.Target, dir string, m *Manifest, found func(base *Manifest)) error {
	for at := m; at.increment(); {
		i := at.Incremental
		base, _, err := readManifest(ctx, t, path.Join(dir, i.Base, ManifestName))
		switch {
		case errors.Is(err, target.ErrNotFound):
			return &brokenChainError{fmt.Sprintf("run %s goes on from run %s in %s, which is missing", at.RunID, i.BaseRunID, i.Base)}
		case err != nil:
			return err
		case !at.goesOnFrom(base):
			return &brokenChainError{fmt.Sprintf("run %s does not go on from what is in %s, run %s at commit %d", at.RunID, i.Base, base.RunID, base.Sequence)}
		}
		found(base)
		at = base
	}
	return nil
}

// goesOnFrom reports whether m, an increment, holds what was changed since base.
func (m *Manifest) goesOnFrom(base *Manifest) bool {
	i, b := m.Incremental, base.Incremental
	return b != nil && base.RunID == i.BaseRunID && base.Sequence == i.Since && b.Number+1 == i.Number && b.Store == i.Store && b.Definition == i.Definition
}
