package tables

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// CopyOptions configures Copy. Source, Table, To and Into must be set.
type CopyOptions struct {
	Source instant.Source
	// Table is copied.
	Table string
	// To has the table Into, which gets the cells. Where its batches are not atomic
	// it takes counters if it has a method SetCounters, as hbasestore.Store.
	To   store.Engine
	Into string
	// Rows are the rows to copy. Default: all.
	Rows cell.Range
	// Families are what is copied. Default: all.
	Families []string
	// Visible copies what a read can see, all versions. Default: delete markers,
	// what they mask and what has expired, too, as long as the store has it.
	Visible bool
	// Checkpoint names the instant of Source for ever, as RunOptions.Checkpoint
	// does. Default: none; a copy that is cut off cannot go on then.
	Checkpoint string
	// Resume goes on with a copy of this Checkpoint that was cut off.
	Resume bool
	// Parallelism is how many regions are copied at a time, each by one
	// goroutine. Default: GOMAXPROCS.
	Parallelism int
	// Progress is called now and then, by one goroutine at a time; it must return
	// soon. Done counts regions.
	Progress func(work.Progress)
	// Now is the clock of Progress. Default: time.Now.
	Now func() time.Time

	chunkBytes int // of a commit, where tests want little; 0 = chunkBytes
}

// Copied is what Copy has done.
type Copied struct {
	Sequence uint64 // of the last commit that was copied; 0 = the source is Unfrozen
	Rows     int64  // that this call has copied, those of a call before it left out
	Cells    int64
}

// ErrCopyLost is wrapped by the error of a Copy that cannot go on: what it has copied is not
// there any more, or the table that it is of is another one. Into must be truncated, and the
// copy given up (ForgetCopy) and begun anew.
var ErrCopyLost = errors.New("the copy cannot go on")

// chunkBytes is about how much one commit of a copy holds: enough for fsync to cost
// little, and a few times less than a request takes.
const chunkBytes = 4 << 20

// Copy copies a table, as it is at one instant, into an empty one (HBase's CopyTable
// with --all.cells): every version with its time and time to live, delete markers,
// and counters, which are set and not added, so that what is copied twice counts
// once. What it writes and how far it is share their commits: a Copy that was cut
// off, however, goes on where it was, and one that another has taken over from
// writes nothing any more. Rows of the table that are wider than memory come in
// several commits.
//
// The error wraps store.ErrRefused where Into has rows, a copy into it has not
// ended (see ReadCopy and ForgetCopy), or Into is READONLY, and ErrCopyLost where what the
// one to Resume has copied is not in Into any more, or, of a source that is Unfrozen, Table was
// altered in what is copied, truncated, disabled, or dropped and made anew since the copy began:
// it would be of two tables. It wraps target.ErrNotFound where there is none to Resume, target.ErrBusy where another call has taken over, store.ErrFamilyNotFound,
// and store.ErrUnsupported for what cannot be copied exactly: delete markers of
// NEW_VERSION_BEHAVIOR, which depend on the order of writes. A distinct count is the
// same sketch afterwards. A *store.BatchError names the row that the
// table does not take. After an error the copy can be resumed.
func Copy(ctx context.Context, o *CopyOptions) (*Copied, error) {
	c := &tableCopy{CopyOptions: *o}
	if c.Source == nil || c.To == nil || c.Table == "" || c.Into == "" {
		return nil, errors.New("tables: CopyOptions need Source, Table, To and Into")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Source = instant.Whole(c.Source)
	c.chunkBytes = cmp.Or(c.chunkBytes, chunkBytes)
	done, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("copy %s into %s: %w", c.Table, c.Into, err)
	}
	return done, nil
}

// tableCopy is one execution of Copy.
type tableCopy struct {
	CopyOptions
	schema *store.TableDescriptor // of Table
	setter counterSetter          // nil = batches are atomic
	state  *CopyState
	begun  *CopyState // the one to Resume
	read   []string   // the families that are copied
	owner  string
	// incarnation is, of an Unfrozen source, what Table was when it was first looked at.
	incarnation string
	report      work.Reporter
	cells       atomic.Int64
	rows        atomic.Int64
}

// elementBytes is about what an element of a distinct count takes in a chunk, and
// distinctGrowth how much more a sketch does as elements than as it is stored: 6 bits a
// register at the least.
const (
	elementBytes   = 200
	distinctGrowth = elementBytes * 8 / 6
)

// counterSetter is an engine that adds counters up of several cells, so that setting
// one is no deletion and increment.
type counterSetter interface {
	// SetCounters sets counters and distinct counts: ms are puts of 8 bytes
	// big-endian, or of a sketch, each with the counter's time. It may be repeated.
	SetCounters(ctx context.Context, ms []cell.Mutation) error
}

func (c *tableCopy) run(ctx context.Context) (*Copied, error) {
	if err := c.check(ctx); err != nil {
		return nil, err
	}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	parts, err := c.parts()
	if err != nil {
		return nil, err
	}
	c.report.Start(c.Progress, c.Now, len(parts))
	c.report.Regions()
	err = work.Parallel(ctx, c.Parallelism, len(parts), func(ctx context.Context, i int) error {
		return c.part(ctx, i, parts[i])
	})
	err = wasRead(ctx, err, c.Source)
	if errors.Is(err, instant.ErrAnother) {
		err = lost(err)
	}
	if err != nil {
		return nil, err
	}
	return &Copied{Sequence: c.Source.Sequence(), Rows: c.rows.Load(), Cells: c.cells.Load()}, c.end(ctx)
}

// lost says of a copy that it cannot go on, and why.
func lost(err error) error {
	return fmt.Errorf("%w: %w: %w", store.ErrRefused, ErrCopyLost, err)
}

// check refuses what cannot be copied exactly.
func (c *tableCopy) check(ctx context.Context) (err error) {
	if c.schema, err = c.Source.Table(ctx, c.Table); err != nil {
		return err
	}
	into, err := c.To.Table(ctx, c.Into)
	if err != nil {
		return err
	}
	if c.To.Traits().Atomic != store.AtomicBatch {
		c.setter, _ = c.To.(counterSetter)
	}
	if into.ReadOnly {
		return fmt.Errorf("%w: table %s is READONLY: alter it to READONLY => false first", store.ErrRefused, c.Into)
	}
	families := readFamilies(c.Families, c.schema)
	if c.Resume {
		if c.Checkpoint == "" {
			return fmt.Errorf("resume: %w: the instant has no name", store.ErrUnsupported)
		}
		if c.begun, err = ReadCopy(ctx, c.To, c.Into); err != nil {
			return fmt.Errorf("resume: %w", err)
		}
		if len(c.begun.Read) > 0 {
			families = c.begun.Read // others may have been added since
		}
	}
	c.read = families
	if u := instant.UnfrozenOf(c.Source); u != nil {
		if c.incarnation, err = u.Incarnation(ctx, c.Table, families); err != nil {
			return err
		}
		if c.Resume && c.begun.Table == c.Table {
			if err := instant.SameTable(c.Table, c.begun.Incarnation, c.incarnation); err != nil {
				return fmt.Errorf("resume: %w", lost(err))
			}
		}
	}
	if err := errors.Join(instant.CheckFamilies(c.schema, families), instant.CheckFamilies(into, families)); err != nil {
		return err
	}
	for _, name := range families {
		from, to := c.schema.Family(name), into.Family(name)
		kind := "COUNTER"
		if from.Distinct {
			kind = "DISTINCT"
		}
		switch {
		case from.Distinct != to.Distinct:
			return fmt.Errorf("%w: family %s has DISTINCT => %t in %s and %t in %s", store.ErrUnsupported, name, from.Distinct, c.Table, to.Distinct, c.Into)
		case from.Counter != to.Counter:
			return fmt.Errorf("%w: family %s has COUNTER => %t in %s and %t in %s", store.ErrUnsupported, name, from.Counter, c.Table, to.Counter, c.Into)
		case from.InPlace() && c.To.Traits().Atomic != store.AtomicBatch && c.setter == nil:
			return fmt.Errorf("%w: family %s is %s, and engine %s cannot set counters; leave it out, or count again from Kafka", store.ErrUnsupported, name, kind, c.To.Traits().Name)
		case from.InPlace() && !c.Visible && instant.UnfrozenOf(c.Source) != nil:
			return fmt.Errorf("%w: family %s is %s, whose cells are read together here; copy what is visible", store.ErrUnsupported, name, kind)
		case !c.Visible && (from.NewVersionBehavior || to.NewVersionBehavior):
			return fmt.Errorf("%w: family %s has NEW_VERSION_BEHAVIOR: its delete markers depend on the order of writes, which a copy does not know; copy what is visible", store.ErrUnsupported, name)
		}
	}
	return nil
}

// distinct reports whether distinct counts are copied.
func (c *tableCopy) distinct() bool {
	return slices.ContainsFunc(c.schema.Families, func(f store.FamilyDescriptor) bool {
		return f.Distinct && (len(c.Families) == 0 || slices.Contains(c.Families, f.Name))
	})
}

// begin writes that the copy has begun, or takes it over.
func (c *tableCopy) begin(ctx context.Context) error {
	c.owner = rand.Text()
	m, err := c.Source.Regions(ctx, c.Table)
	if err != nil {
		return err
	}
	c.state = &CopyState{
		Version: copyStateVersion, ID: c.owner, Table: c.Table, Checkpoint: c.Checkpoint, Sequence: c.Source.Sequence(),
		StartRow: columnar.EscapeKey(c.Rows.Start), StopRow: columnar.EscapeKey(c.Rows.Stop), Families: append([]string{}, c.Families...), Visible: c.Visible, Parts: []string{},
	}
	slices.Sort(c.state.Families)
	if c.incarnation != "" {
		c.state.Incarnation, c.state.Read = c.incarnation, c.read
	}
	for i, s := range instant.Splits(m, c.Rows) {
		if i > 0 {
			c.state.Parts = append(c.state.Parts, columnar.EscapeKey(s.Rows.Start))
		}
	}
	if c.Resume {
		return c.takeOver(ctx)
	}
	unfinished := fmt.Errorf("%w: a copy into it was begun and has not ended: go on with it (--resume), or give it up and begin anew (--restart), for which the table must be empty again", store.ErrRefused)
	if err := c.checkEmpty(ctx); err != nil {
		if _, none := ReadCopy(ctx, c.To, c.Into); none == nil && errors.Is(err, store.ErrRefused) {
			return unfinished // whose rows these are
		}
		return err
	}
	state, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	first := cell.Mutation{Table: store.JobsTable, Row: copyRow(c.Into)}
	first.Put(store.JobsFamily, []byte(copyColumn), cell.Latest, state)
	first.Put(store.JobsFamily, []byte(ownerColumn), cell.Latest, []byte(c.owner))
	first.Put(store.JobsFamily, []byte(doneColumn), cell.Latest, []byte(noCopy))
	// There never was one, or the last has ended.
	for _, before := range [][]byte{nil, []byte(noCopy)} {
		r, err := c.To.MutateRow(ctx, &store.Cond{Family: store.JobsFamily, Qualifier: []byte(copyColumn), Op: store.Equal, Value: before}, &first)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		if r.Applied {
			return nil
		}
	}
	return unfinished
}

// takeOver makes this the only call that goes on with the copy.
func (c *tableCopy) takeOver(ctx context.Context) error {
	begun := c.begun
	if err := begun.same(c.state); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	c.state = begun
	if err := c.checkThere(ctx); err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	m := cell.Mutation{Table: store.JobsTable, Row: copyRow(c.Into)}
	m.Put(store.JobsFamily, []byte(ownerColumn), cell.Latest, []byte(c.owner))
	r, err := c.To.MutateRow(ctx, ownedBy(begun.owner), &m)
	if err != nil {
		return fmt.Errorf("resume: %w", err)
	}
	if !r.Applied {
		return fmt.Errorf("resume: %w: another process goes on with it", target.ErrBusy)
	}
	return nil
}

func ownedBy(owner string) *store.Cond {
	return &store.Cond{Family: store.JobsFamily, Qualifier: []byte(ownerColumn), Op: store.Equal, Value: []byte(owner)}
}

// checkEmpty refuses a table that has rows, visible or not, where the copy goes.
func (c *tableCopy) checkEmpty(ctx context.Context) error {
	row, err := c.firstRow(ctx, store.Scan{Start: c.Rows.Start, Stop: c.Rows.Stop})
	if row == nil {
		return err
	}
	return fmt.Errorf("%w: it has rows, such as %s: truncate it, or name an empty table", store.ErrRefused, columnar.EscapeKey(row.Key))
}

// checkThere refuses a table that has no rows where the copy has written some: it was
// truncated, or dropped and made anew, and what is left to copy is not all of it.
func (c *tableCopy) checkThere(ctx context.Context) error {
	parts, err := c.parts()
	if err != nil {
		return err
	}
	for i, part := range parts {
		at := c.state.cursors[i]
		if at == "" {
			continue
		}
		written := store.Scan{Start: part.Start, Stop: part.Stop}
		if at[0] == cursorRow {
			written.Stop, written.StopInclusive = []byte(at[1:]), true
		}
		row, err := c.firstRow(ctx, written)
		if err != nil {
			return err
		}
		if row != nil {
			continue
		}
		// What is not visible may be in neither: it has expired, or is no cell of a copy.
		written.Table, written.Columns, written.Limit, written.MaxResultBytes = c.Table, instant.Families(c.read), 1, 1
		if row, err = store.FirstRow(ctx, c.Source, &written); err != nil {
			return err
		}
		if row != nil {
			return lost(fmt.Errorf("rows that were copied, such as %s, are not in it any more: it was truncated, or made anew", columnar.EscapeKey(row.Key)))
		}
	}
	return nil
}

// firstRow returns the first row of Into, or a part of it, visible or not, in the range of a
// scan of the families of the copy; nil = there is none.
func (c *tableCopy) firstRow(ctx context.Context, rows store.Scan) (*cell.Row, error) {
	var raw, counters []string
	for _, name := range c.read {
		if c.setter != nil && c.schema.Family(name).InPlace() {
			counters = append(counters, name) // several cells each, which nothing masks
		} else {
			raw = append(raw, name)
		}
	}
	for i, families := range [][]string{raw, counters} {
		if len(families) == 0 {
			continue
		}
		rows.Table, rows.Columns, rows.Raw, rows.Limit, rows.MaxResultBytes = c.Into, instant.Families(families), i == 0, 1, 1
		if row, err := store.FirstRow(ctx, c.To, &rows); row != nil || err != nil {
			return row, err
		}
	}
	return nil, nil
}

// parts returns the ranges of rows that the copy was divided into when it began.
func (c *tableCopy) parts() ([]cell.Range, error) {
	parts := []cell.Range{{Start: c.Rows.Start, Stop: c.Rows.Stop}}
	for _, s := range c.state.Parts {
		key, err := columnar.UnescapeKey(s)
		if err != nil {
			return nil, fmt.Errorf("%w: the copy into %s: %w", store.ErrCorrupt, c.Into, err)
		}
		parts[len(parts)-1].Stop = key
		parts = append(parts, cell.Range{Start: key, Stop: c.Rows.Stop})
	}
	return parts, nil
}

// The values of a cursor.
const (
	cursorRow  = 'r' // and a row: it is whole, as are those before it
	cursorDone = 'd' // the part is
)

// chunk is what one commit writes of a part.
type chunk struct {
	mutations []cell.Mutation
	counters  []cell.Mutation // for a counterSetter
	bytes     int
	rows      int64
	cells     int64
}

// part copies one part from behind its cursor.
func (c *tableCopy) part(ctx context.Context, i int, rows cell.Range) error {
	sc := &store.Scan{
		Table: c.Table, Start: rows.Start, Stop: rows.Stop, Columns: instant.Families(c.read), Raw: !c.Visible,
		Versions: store.AllVersions, MaxResultBytes: c.chunkBytes,
	}
	if c.setter == nil && c.distinct() {
		sc.MaxResultBytes = max(c.chunkBytes/distinctGrowth, 1)
	}
	if at := c.state.cursors[i]; at != "" {
		if at[0] == cursorDone {
			c.report.RegionDone(0)
			return nil
		}
		sc.Start, sc.StartExclusive = []byte(at[1:]), true
	}
	from := c.Source.Scan(ctx, sc)
	defer from.Close()
	var k chunk
	var key, whole []byte // of the row before; the last that nothing of is missing
	for from.Next() {
		row := from.Row()
		if !bytes.Equal(key, row.Key) {
			// The row before has ended, even where more was announced.
			whole = append(whole[:0], key...)
			key = append(key[:0], row.Key...)
			k.rows++
		}
		if err := c.add(&k, row); err != nil {
			return err
		}
		if !row.More {
			whole = append(whole[:0], key...)
		}
		if k.bytes >= c.chunkBytes {
			if err := c.commit(ctx, i, &k, append([]byte{cursorRow}, whole...), len(whole) > 0); err != nil {
				return err
			}
		}
	}
	if err := from.Err(); err != nil {
		return err
	}
	rest := k.rows
	if err := c.commit(ctx, i, &k, []byte{cursorDone}, true); err != nil {
		return err
	}
	c.report.RegionDone(rest)
	return nil
}

// add adds a row, or a part of one, to a chunk: copies of its cells.
func (c *tableCopy) add(k *chunk, row *cell.Row) error {
	m := cell.Mutation{Table: c.Into, Row: bytes.Clone(row.Key), Ops: make([]cell.Op, 0, len(row.Cells))}
	counts := cell.Mutation{Table: c.Into, Row: m.Row}
	k.bytes += len(row.Key)
	for i := range row.Cells {
		cl := &row.Cells[i]
		k.bytes += len(cl.Qualifier) + len(cl.Value) + cell.KeyValueBytes
		if f := c.schema.Family(cl.Family); f.InPlace() {
			if err := c.addCounter(k, &m, &counts, cl, f.Distinct); err != nil {
				return fmt.Errorf("%w: table %s, row %s: the %w", store.ErrCorrupt, c.Table, columnar.EscapeKey(row.Key), err)
			}
			continue
		}
		op := cell.Op{Family: cl.Family, Qualifier: bytes.Clone(cl.Qualifier), Time: cl.Time, Value: bytes.Clone(cl.Value), TTL: cl.TTL}
		switch cl.Kind {
		case cell.KindPut:
			op.Type = cell.OpPut
		case cell.KindDelete:
			op.Type = cell.OpDelete
		case cell.KindDeleteColumn:
			op.Type = cell.OpDeleteColumn
		case cell.KindDeleteFamily:
			op.Type = cell.OpDeleteFamily
		case cell.KindDeleteFamilyVersion:
			op.Type = cell.OpDeleteFamilyVersion
		default:
			return fmt.Errorf("%w: table %s, row %s: a cell of kind %v", store.ErrUnsupported, c.Table, columnar.EscapeKey(row.Key), cl.Kind)
		}
		m.Ops = append(m.Ops, op)
		k.cells++
	}
	if len(m.Ops) > 0 {
		k.mutations = append(k.mutations, m)
	}
	if len(counts.Ops) > 0 {
		k.counters = append(k.counters, counts)
	}
	return nil
}

// addCounter adds a counter, or a distinct count, to m, or to counts where the engine sets
// it. Its error says what is wrong with it.
func (c *tableCopy) addCounter(k *chunk, m, counts *cell.Mutation, cl *cell.Cell, distinct bool) error {
	if cl.Kind != cell.KindPut {
		return nil // what a deleted counter leaves for incremental exports
	}
	qualifier := bytes.Clone(cl.Qualifier)
	if !distinct && len(cl.Value) != 8 {
		return fmt.Errorf("counter %s:%s has %d bytes", cl.Family, columnar.EscapeKey(qualifier), len(cl.Value))
	}
	k.cells++
	if c.setter != nil {
		counts.Ops = append(counts.Ops, cell.Op{Type: cell.OpPut, Family: cl.Family, Qualifier: qualifier, Time: cl.Time, Value: bytes.Clone(cl.Value)})
		return nil
	}
	// Set, by operations that no other comes between.
	m.Ops = append(m.Ops, cell.Op{Type: cell.OpDeleteColumn, Family: cl.Family, Qualifier: qualifier, Time: cell.Latest})
	if !distinct {
		m.Ops = append(m.Ops, cell.Op{Type: cell.OpIncrement, Family: cl.Family, Qualifier: qualifier, Time: cl.Time, Delta: int64(binary.BigEndian.Uint64(cl.Value))})
		return nil
	}
	sketch, err := counters.DecodeSketch(cl.Value)
	if err != nil {
		return fmt.Errorf("distinct count %s:%s: %w", cl.Family, columnar.EscapeKey(qualifier), err)
	}
	n := sketch.Registers()
	texts := make([]byte, 0, 8*n)
	m.Ops = slices.Grow(m.Ops, n)
	for text := range sketch.Elements() {
		texts = append(texts, text...)
		m.Ops = append(m.Ops, cell.Op{Type: cell.OpAppend, Family: cl.Family, Qualifier: qualifier, Time: cl.Time, Value: texts[len(texts)-len(text):]})
	}
	k.bytes += n * elementBytes
	return nil
}

// commit applies a chunk and, with it, how far the part is, if this call still owns
// the copy, and empties it.
func (c *tableCopy) commit(ctx context.Context, part int, k *chunk, cursor []byte, moved bool) error {
	state := cell.Mutation{Table: store.JobsTable, Row: copyRow(c.Into)}
	if moved {
		state.Put(store.JobsFamily, c.state.cursor(part), cell.Latest, cursor)
	} else {
		// In the midst of its first row: there is nowhere yet to go on from.
		state.Put(store.JobsFamily, []byte(ownerColumn), cell.Latest, []byte(c.owner))
	}
	owned, err := c.apply(ctx, &state, k)
	if err != nil {
		return err
	}
	if !owned {
		return fmt.Errorf("%w: another process has taken it over, or given it up", target.ErrBusy)
	}
	c.rows.Add(k.rows)
	c.cells.Add(k.cells)
	if cursor[0] != cursorDone {
		c.report.Rows(k.rows)
	}
	*k = chunk{mutations: k.mutations[:0], counters: k.counters[:0]}
	return nil
}

// apply applies a chunk and state, where this call still owns the copy, which it
// reports. Where batches are not atomic the state follows what it speaks of: cells
// with times of their own may be written again, and by another call, too.
func (c *tableCopy) apply(ctx context.Context, state *cell.Mutation, k *chunk) (owned bool, err error) {
	var b store.Batch
	if c.To.Traits().Atomic == store.AtomicBatch {
		b.Record(-1, nil, ownedBy(c.owner), append([]cell.Mutation{*state}, k.mutations...)...)
		err = c.To.Apply(ctx, &b)
		return b.Unapplied.Unmet == 0, err
	}
	for i := range k.mutations {
		b.Add(-1, k.mutations[i])
	}
	if len(b.Mutations) > 0 {
		if err := c.To.Apply(ctx, &b); err != nil {
			return false, err
		}
	}
	if len(k.counters) > 0 {
		if err := c.setter.SetCounters(ctx, k.counters); err != nil {
			return false, err
		}
	}
	r, err := c.To.MutateRow(ctx, ownedBy(c.owner), state)
	return r.Applied, err
}

// end notes that the copy is whole, and forgets how far it was.
func (c *tableCopy) end(ctx context.Context) error {
	state, err := json.Marshal(c.state)
	if err != nil {
		return err
	}
	m := cell.Mutation{Table: store.JobsTable, Row: copyRow(c.Into)}
	c.state.over(&m)
	m.Put(store.JobsFamily, []byte(doneColumn), cell.Latest, state)
	r, err := c.To.MutateRow(ctx, ownedBy(c.owner), &m)
	if err != nil {
		return fmt.Errorf("all is copied, but not noted: %w", err)
	}
	if !r.Applied {
		return fmt.Errorf("%w: another process has taken it over, or given it up", target.ErrBusy)
	}
	return nil
}
