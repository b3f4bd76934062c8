package tables

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/history"
	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// Store is an engine whose tables can be listed and made.
type Store interface {
	store.Engine
	store.Admin
	store.Namespacer
}

// CopyStoreOptions configures CopyStore and CompareStores. Source, From and To must be
// set.
type CopyStoreOptions struct {
	// Source is the instant that is copied, of From.
	Source instant.Source
	From   Store
	// To gets everything. Where it is a store.Snapshotter it is compared at an
	// instant.
	To Store
	// Tables are copied, without offsets and dead letters. Default: all tables, and
	// what pipelines need to go on from there.
	Tables []string
	// Checkpoint names the instant of Source for ever, as CopyOptions.Checkpoint
	// does. Default: none; a copy that is cut off cannot go on then.
	Checkpoint string
	// Resume goes on with a copy of this Checkpoint that was cut off.
	Resume bool
	// Parallelism is how many regions are worked at a time. Default: GOMAXPROCS.
	Parallelism int
	// Step is called with what is copied, and then compared, next; Progress is that
	// of the step. Neither is called by two goroutines at a time.
	Step     func(CopyStep, bool)
	Progress func(work.Progress)
	// Compared gets each comparison that was made before the offsets are written.
	Compared func(*Comparison)
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	chunkBytes int // of CopyOptions
}

// CopiedStore is what CopyStore has done.
type CopiedStore struct {
	Sequence   uint64 // of the last commit that was copied; 0 = the source is Unfrozen
	Tables     int
	Letters    int64 // in the outbox, as they were compared: with those of a call before
	Rows       int64 // of tables, likewise
	Cells      int64 // of these, all versions
	Partitions int   // whose offsets To has now
	Schedules  int   // whose state and history To has now
}

// settler is an engine whose batches are not atomic, so that its tables may hold more
// than its offsets say.
type settler interface {
	// Settled returns a mark that changes with every batch of a pipeline, and an
	// error where one has begun and not ended.
	Settled(ctx context.Context) (mark string, err error)
}

// schemaChecker is an engine that cannot hold every table.
type schemaChecker interface {
	// CheckSchema returns why CreateTable would refuse t.
	CheckSchema(t *store.TableDescriptor) error
}

// CopyStore copies a whole store, as it is at one instant, into another, of the same
// engine or not, so that its pipelines go on there from the same offsets and every
// count stays exact: all tables with their schemas and regions, all versions, delete
// markers and counters; the dead letters with what has become of them; and last, once
// all that was compared with the source, the offsets with everything that belongs to
// them. Before that, no pipeline can go on in To, and ReadStoreCopy tells that it must
// not begin there. It goes on where it was cut off, as Copy does.
//
// A Source that is Unfrozen (HBase) must stand still: its offsets must be the same, and
// no batch begun, from the first look to the last. A frozen one may go on; what comes
// after its instant To reads again from Kafka.
//
// The state of schedules and their history are copied before the offsets: what was decided
// about at the instant is not decided about again, and what comes after it is. A run that
// the source has made since is found to be published.
//
// Not copied are event ids, and what a store keeps for increments of exports. Delete markers of NEW_VERSION_BEHAVIOR families stay, as what they mask is
// not copied either.
//
// The error wraps store.ErrRefused where To has offsets of one of the pipelines, or rows
// where the copy goes, where a copy into it has not ended, where From is one that is not
// whole or has moved, and, as ErrStoresDiffer, where a comparison fails; store.ErrUnsupported
// for what cannot be copied exactly; store.ErrInvalidSchema for tables that To cannot hold; target.ErrNotFound where there is nothing to Resume,
// and target.ErrBusy where another call has taken over.
func CopyStore(ctx context.Context, o *CopyStoreOptions) (*CopiedStore, error) {
	c, err := newStoreCopy(o)
	if err != nil {
		return nil, err
	}
	done, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("copy the store: %w", err)
	}
	return done, nil
}

// ErrStoresDiffer says that a copy is not what it was made of.
var ErrStoresDiffer = errors.New("tables: the stores differ")

// CompareStores compares all that CopyStore copies: what a read can see of the tables,
// all versions, the dead letters, and the offsets. Its error wraps ErrStoresDiffer where
// something differs; Compared has had what was compared by then.
func CompareStores(ctx context.Context, o *CopyStoreOptions) error {
	c, err := newStoreCopy(o)
	if err == nil {
		err = c.plan(ctx)
	}
	if err == nil {
		err = c.compare(ctx)
	}
	if err == nil && c.state.Whole {
		err = errors.Join(c.sameProgress(ctx), c.sameSchedules(ctx))
	}
	if err != nil {
		return fmt.Errorf("compare the stores: %w", err)
	}
	return nil
}

// storeCopy is one execution of CopyStore.
type storeCopy struct {
	CopyStoreOptions
	state    *StoreCopyState
	progress []store.PartitionProgress // of Source

	schedules map[string]*history.Kept // of Source, by job
	done      CopiedStore
}

func newStoreCopy(o *CopyStoreOptions) (*storeCopy, error) {
	c := &storeCopy{CopyStoreOptions: *o}
	if c.Source == nil || c.From == nil || c.To == nil {
		return nil, errors.New("tables: CopyStoreOptions need Source, From and To")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Step == nil {
		c.Step = func(CopyStep, bool) {}
	}
	if c.Compared == nil {
		c.Compared = func(*Comparison) {}
	}
	return c, nil
}

func (c *storeCopy) run(ctx context.Context) (*CopiedStore, error) {
	if err := c.plan(ctx); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	for _, name := range c.state.Tables {
		if err := c.create(ctx, name); err != nil {
			return nil, err
		}
	}
	for c.state.Done < len(c.state.Steps) {
		if err := c.step(ctx, c.state.Steps[c.state.Done]); err != nil {
			return nil, err
		}
		c.state.Done++
		if err := c.note(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.settled(ctx); err != nil { // before all is read for nothing
		return nil, err
	}
	err := c.compare(ctx)
	if err != nil && !errors.Is(err, ErrStoresDiffer) {
		return nil, err
	}
	if err := c.settled(ctx); err != nil { // which is why they differ, if they do
		return nil, err
	}
	if err := errors.Join(err, instant.Check(ctx, c.Source)); err != nil {
		return nil, err
	}
	if c.state.Whole {
		if err := c.copySchedules(ctx); err != nil {
			return nil, err
		}
		if err := c.advance(ctx); err != nil {
			return nil, err
		}
	}
	if err := c.seal(ctx); err != nil {
		return nil, err
	}
	c.done.Sequence, c.done.Tables = instant.Whole(c.Source).Sequence(), len(c.state.Tables)
	return &c.done, c.end(ctx)
}

// plan looks what there is to copy, and refuses what cannot be.
func (c *storeCopy) plan(ctx context.Context) (err error) {
	if _, err := ReadStoreCopy(ctx, c.Source); !errors.Is(err, target.ErrNotFound) {
		return cmp.Or(err, fmt.Errorf("%w: what is to be copied is a copy itself that has not ended", store.ErrRefused))
	}
	c.state = &StoreCopyState{
		Version: storeCopyVersion, ID: rand.Text(), Checkpoint: c.Checkpoint, Sequence: c.Source.Sequence(),
		Whole: len(c.Tables) == 0, Tables: slices.Clone(c.Tables), Steps: []CopyStep{},
	}
	if c.state.Whole {
		if s, ok := c.From.(settler); ok && instant.UnfrozenOf(c.Source) != nil {
			if c.state.Mark, err = s.Settled(ctx); err != nil {
				return fmt.Errorf("%w: %w", store.ErrRefused, err)
			}
		}
		if c.progress, err = store.AllProgress(ctx, c.Source); err != nil {
			return err
		}
		if err := c.planSchedules(ctx); err != nil {
			return err
		}
		if c.state.Tables, err = c.From.Tables(ctx); err != nil {
			return err
		}
	}
	slices.Sort(c.state.Tables)
	if c.state.Tables, err = c.existing(ctx, slices.Compact(c.state.Tables)); err != nil {
		return err
	}
	if !c.state.Whole {
		return nil
	}
	letters, err := outboxRanges(ctx, c.Source)
	for _, r := range letters {
		c.state.Steps = append(c.state.Steps, CopyStep{Table: store.OutboxTable, Families: []string{store.OutboxFamily}, StartRow: columnar.EscapeKey(r.Start), StopRow: columnar.EscapeKey(r.Stop)})
	}
	return err
}

// existing returns the tables that the instant has, and adds the steps that copy them:
// all but counters with what is masked, and counters as they are seen.
//
// Tables that To cannot hold are refused here, all at once: later, some would be there, and
// the copy's instant has the schema for good.
func (c *storeCopy) existing(ctx context.Context, names []string) (tables []string, err error) {
	checker, _ := c.To.(schemaChecker)
	var refused []error
	for _, name := range names {
		t, err := c.Source.Table(ctx, name)
		if errors.Is(err, store.ErrTableNotFound) && c.state.Whole {
			continue // it was made since
		}
		if err != nil {
			return nil, err
		}
		if checker != nil {
			refused = append(refused, checker.CheckSchema(t))
		}
		raw, visible := CopyStep{Table: name}, CopyStep{Table: name, Visible: true}
		for i := range t.Families {
			switch f := &t.Families[i]; {
			case f.InPlace() || f.NewVersionBehavior:
				visible.Families = append(visible.Families, f.Name)
			default:
				raw.Families = append(raw.Families, f.Name)
			}
		}
		tables = append(tables, name)
		for _, s := range []CopyStep{raw, visible} {
			if len(s.Families) > 0 {
				c.state.Steps = append(c.state.Steps, s)
			}
		}
	}
	return tables, errors.Join(refused...)
}

// outboxRanges returns the rows of the outbox, a range for each pipeline's letters and
// one for its counts of them.
func outboxRanges(ctx context.Context, r store.Reader) (ranges []cell.Range, err error) {
	var start []byte
	for {
		row, err := store.FirstRow(ctx, r, &store.Scan{Table: store.OutboxTable, Start: start, Limit: 1})
		if row == nil {
			return ranges, err
		}
		key, n := row.Key, 0
		if len(key) > len(store.OutboxCounts) && string(key[:len(store.OutboxCounts)]) == store.OutboxCounts {
			n = len(store.OutboxCounts)
		}
		_, rest, _, err := cell.DecodePart(key[n:], nil)
		if err != nil {
			return nil, fmt.Errorf("%w: row %s of %s: %w", store.ErrCorrupt, columnar.EscapeKey(key), store.OutboxTable, err)
		}
		prefix := key[:len(key)-len(rest)]
		start = cell.PrefixEnd(prefix)
		ranges = append(ranges, cell.Range{Start: prefix, Stop: start})
	}
}

// vacant refuses a To that knows one of the pipelines, or has begun to.
func (c *storeCopy) vacant(ctx context.Context) error {
	if s, ok := c.To.(settler); ok && c.state.Whole {
		if _, err := s.Settled(ctx); err != nil {
			return fmt.Errorf("%w: the store that is copied into is in use: %w", store.ErrRefused, err)
		}
	}
	stored, err := store.AllProgress(ctx, c.To)
	if err != nil || !c.state.Whole {
		return err
	}
	if err := c.vacantSchedules(ctx); err != nil {
		return err
	}
	ours := map[string]bool{}
	for i := range c.progress {
		ours[c.progress[i].Source.Pipeline] = true
	}
	for i := range stored {
		if p := &stored[i]; ours[p.Source.Pipeline] {
			return fmt.Errorf("%w: the store that is copied into holds offsets of pipeline %s (topic %s, partition %d, next %d): its counts would be of two histories; copy into an empty store",
				store.ErrRefused, p.Source.Pipeline, p.Source.Topic, p.Partition, p.Progress.Next)
		}
	}
	return nil
}

// create makes a table, with its namespace, where it is missing.
func (c *storeCopy) create(ctx context.Context, name string) error {
	if _, err := c.To.Table(ctx, name); !errors.Is(err, store.ErrTableNotFound) {
		return err
	}
	if ns := store.NamespaceOf(name); !store.Predefined(ns) {
		if _, err := store.FindNamespace(ctx, c.To, ns); errors.Is(err, store.ErrNamespaceNotFound) {
			from, err := store.FindNamespace(ctx, c.From, ns)
			if err != nil {
				return err
			}
			if err := c.To.CreateNamespace(ctx, from); err != nil && !errors.Is(err, store.ErrNamespaceExists) {
				return err
			}
		} else if err != nil {
			return err
		}
	}
	from, err := c.Source.Table(ctx, name)
	if err != nil {
		return err
	}
	regions, err := c.Source.Regions(ctx, name)
	if err != nil {
		return err
	}
	d := from.Clone()
	d.ReadOnly = false // until all is there, see seal
	return c.To.CreateTable(ctx, d, regions.Splits())
}

// seal makes those tables read-only that were.
func (c *storeCopy) seal(ctx context.Context) error {
	for _, name := range c.state.Tables {
		from, err := c.Source.Table(ctx, name)
		if err != nil {
			return err
		}
		to, err := c.To.Table(ctx, name)
		if err != nil {
			return err
		}
		if from.ReadOnly && !to.ReadOnly {
			d := to.Clone()
			d.ReadOnly = true
			if err := c.To.AlterTable(ctx, d); err != nil {
				return err
			}
		}
	}
	return nil
}

// step copies one step, or goes on with it.
func (c *storeCopy) step(ctx context.Context, s CopyStep) error {
	rows, err := s.rows()
	if err != nil {
		return err
	}
	c.Step(s, false)
	o := &CopyOptions{
		Source: c.Source, Table: s.Table, To: c.To, Into: s.Table, Rows: rows, Families: s.Families, Visible: s.Visible,
		Checkpoint: c.Checkpoint, Resume: c.Resume, Parallelism: c.Parallelism, Progress: c.Progress, Now: c.Now, chunkBytes: c.chunkBytes,
	}
	_, err = Copy(ctx, o)
	if c.Resume && errors.Is(err, target.ErrNotFound) {
		// It had not begun, or has ended without a note here.
		last, readErr := ReadCopied(ctx, c.To, s.Table)
		if readErr == nil && s.is(last) && last.Checkpoint == c.Checkpoint {
			return nil
		}
		if readErr != nil && !errors.Is(readErr, target.ErrNotFound) {
			return readErr
		}
		o.Resume = false
		_, err = Copy(ctx, o)
	}
	return err
}

// compare compares what was copied: what a read can see, as what is masked goes when
// a store tidies itself.
func (c *storeCopy) compare(ctx context.Context) (err error) {
	var to store.Snapshot
	if s, ok := c.To.(store.Snapshotter); ok {
		to, err = s.Snapshot(ctx)
	} else {
		to, err = instant.OpenUnfrozen(ctx, c.To, c.Now)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	var differ []string
	one := func(s CopyStep) error {
		rows, err := s.rows()
		if err != nil {
			return err
		}
		c.Step(s, true)
		r, err := Compare(ctx, &CompareOptions{Left: c.Source, Right: to, LeftTable: s.Table, Rows: rows, Parallelism: c.Parallelism, Progress: c.Progress, Now: c.Now})
		if err != nil {
			return err
		}
		c.Compared(r)
		switch {
		case s.Table != store.OutboxTable:
			c.done.Rows += r.Same
			c.done.Cells += r.LeftCells
		case !bytes.HasPrefix(rows.Start, []byte(store.OutboxCounts)):
			c.done.Letters += r.Same
		}
		if !r.Equal() {
			differ = append(differ, s.Table)
		}
		return nil
	}
	for _, name := range c.state.Tables {
		if err := one(CopyStep{Table: name}); err != nil {
			return err
		}
	}
	for _, s := range c.state.Steps {
		if s.Table == store.OutboxTable {
			if err := one(s); err != nil {
				return err
			}
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("%w: %w in %v: has something written to either meanwhile?", store.ErrRefused, ErrStoresDiffer, slices.Compact(differ))
	}
	return nil
}

// settled refuses a source that pipelines have written to since the copy was begun.
func (c *storeCopy) settled(ctx context.Context) error {
	s, ok := c.From.(settler)
	if !ok || c.state.Mark == "" {
		return nil
	}
	mark, err := s.Settled(ctx)
	if err == nil && mark != c.state.Mark {
		err = errors.New("pipelines have written to the store while it was copied")
	}
	if err != nil {
		return fmt.Errorf("%w: %w; stop them, drop the tables of the copy, and begin anew", store.ErrRefused, err)
	}
	return nil
}

// advance writes the offsets, where this call still owns the copy.
func (c *storeCopy) advance(ctx context.Context) error {
	if err := c.note(ctx); err != nil {
		return err
	}
	for i := range c.progress {
		p := &c.progress[i]
		var b store.Batch
		b.Advance(p.Source, p.Partition, store.Absent, p.Progress)
		if err := c.To.Apply(ctx, &b); err != nil && !errors.Is(err, store.ErrStale) { // it may be there
			return err
		}
	}
	c.done.Partitions = len(c.progress)
	return c.sameProgress(ctx)
}

// sameProgress compares the offsets.
func (c *storeCopy) sameProgress(ctx context.Context) error {
	stored, err := store.AllProgress(ctx, c.To)
	if err != nil {
		return err
	}
	type key struct {
		source    store.Source
		partition int32
	}
	have := map[key]store.Progress{}
	for i := range stored {
		have[key{stored[i].Source, stored[i].Partition}] = stored[i].Progress
	}
	for i := range c.progress {
		p := &c.progress[i]
		if got, ok := have[key{p.Source, p.Partition}]; !ok || got != p.Progress {
			return fmt.Errorf("%w: %w in the offsets of pipeline %s, topic %s, partition %d: next %d here, %d there",
				store.ErrRefused, ErrStoresDiffer, p.Source.Pipeline, p.Source.Topic, p.Partition, p.Progress.Next, got.Next)
		}
	}
	return nil
}

// note writes how far the copy is, where this call still owns it.
func (c *storeCopy) note(ctx context.Context) error {
	text, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	m := cell.Mutation{Table: store.JobsTable, Row: storeCopyRow()}
	m.Put(store.JobsFamily, []byte(copyColumn), cell.Latest, text)
	return c.owned(ctx, &m)
}

// end notes that the copy is whole.
func (c *storeCopy) end(ctx context.Context) error {
	text, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	m := cell.Mutation{Table: store.JobsTable, Row: storeCopyRow()}
	m.Put(store.JobsFamily, []byte(copyColumn), cell.Latest, []byte(noCopy))
	m.Put(store.JobsFamily, []byte(doneColumn), cell.Latest, text)
	return c.owned(ctx, &m)
}

// owned makes a change where this call still owns the copy.
func (c *storeCopy) owned(ctx context.Context, m *cell.Mutation) error {
	r, err := c.To.MutateRow(ctx, ownedBy(c.state.owner), m)
	if err != nil {
		return err
	}
	if !r.Applied {
		return fmt.Errorf("%w: another process has taken the copy over, or given it up", target.ErrBusy)
	}
	return nil
}
