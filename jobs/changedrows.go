package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/instant"
	"sluice/store"
)

// Bounds of the changed rows that are read by one scan.
const (
	changedRows     = 1024
	changedRowBytes = 1 << 20
	keyRoom         = 64 << 10 // is allocated for keys at once
)

// changedGroup is changed rows that are read by one scan.
type changedGroup struct {
	keys [][]byte       // ascending
	news int            // how many of them were put with as many columns as the job has
	time cell.Timestamp // the earliest of these puts
}

// anew adds that the next row was put with as many columns as the job has.
func (g *changedGroup) anew(t cell.Timestamp) {
	if g.news == 0 || t < g.time {
		g.time = t
	}
	g.news++
}

// Rows that were put with all columns are read without what was there before, so that an
// increment of them costs what they do, however many others lie between them.
const (
	// aloneShare of a group may be other rows, one in so many: these are read again, each
	// at the cost of a dozen others that lie together.
	aloneShare = 64
	// lackingShare of a group's rows, one in so many, that had to be read again although
	// they seemed to be all new, end it for the split.
	lackingShare = 8
)

// aheadGroups is how many groups of changed rows wait for the one that is being exported,
// while goroutines of theirs read them: a split is often all that has changed.
const aheadGroups = 2

// scanChanges exports the split's rows that were changed, and where the job asks for
// them those of which cells have expired. Another goroutine looks for them, and where the
// run may have more than one core others read them.
func (e *splitExport) scanChanges(ctx context.Context, s *store.Scan) error {
	if _, newest := e.run.Job.newestColumns(); newest && !e.run.Job.reportsExpired() && instant.UnfrozenOf(e.run.Source) != nil {
		return e.scanLater(ctx, s)
	}
	walking, stop := context.WithCancelCause(ctx) // what is written goes on after it
	defer stop(nil)
	groups, walked := make(chan *changedScan, aheadGroups-1), make(chan error, 1)
	spare := make(chan *cell.PackedRows, (aheadGroups+1)*aheadParts)
	go func() {
		err := e.run.Job.atPriority()
		if err == nil {
			err = e.walkChanges(walking, s, func(g changedGroup) error {
				c := e.scanRows(walking, s, &g, spare)
				select {
				case groups <- c:
					return nil
				case <-walking.Done():
					return errors.Join(context.Cause(walking), c.sc.Close())
				}
			})
		}
		close(groups)
		walked <- err
	}()
	var failed error
	for c := range groups {
		err := failed
		if failed == nil {
			err = c.export(ctx)
		}
		if err = errors.Join(err, c.sc.Close()); failed == nil && err != nil {
			failed = err
			stop(failed)
		}
	}
	if err := <-walked; failed == nil {
		failed = err
	}
	if failed != nil {
		return failed
	}
	return e.flush(ctx)
}

// walkChanges calls found with the rows that scanChanges exports, ascending, some at a
// time.
func (e *splitExport) walkChanges(ctx context.Context, s *store.Scan, found func(g changedGroup) error) (err error) {
	var (
		g    changedGroup
		room []byte // of keys
		size int
	)
	give := func() error {
		if len(g.keys) == 0 {
			return nil
		}
		err := found(g)
		g, size = changedGroup{keys: make([][]byte, 0, len(g.keys))}, 0
		return err
	}
	columns, newest := e.run.Job.newestColumns()
	take := func(key []byte) error {
		if cap(room)-len(room) < len(key) {
			room = make([]byte, 0, max(keyRoom, len(key)))
		}
		start := len(room)
		room = append(room, key...)
		g.keys = append(g.keys, room[start:len(room):len(room)])
		if size += len(key); len(g.keys) >= changedRows || size >= changedRowBytes {
			return give()
		}
		return nil
	}
	expired := &expiredRows{}
	if e.run.Job.reportsExpired() {
		if expired, err = e.run.expiredRows(ctx, s); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, expired.close()) }()
	}
	rows := cell.Range{Start: s.Start, Stop: s.Stop}
	for row, err := range e.run.changes.ChangedRows(ctx, s.Table, e.run.Job.families, rows, e.run.since) {
		if err == nil {
			err = expired.before(row.Key, take)
		}
		if err == nil {
			if newest && row.Columns > 0 && row.Columns >= columns {
				g.anew(row.Time)
			}
			err = take(row.Key)
		}
		if err != nil {
			return err
		}
	}
	if err := expired.before(nil, take); err != nil {
		return err
	}
	return give()
}

// newestColumns returns how many columns of the table the job has. ok is false where it
// wants more of a row than their newest cells.
func (j *Job) newestColumns() (n int, ok bool) {
	n, ok = j.schema.CellColumns()
	return n, ok && j.filter == nil
}

// scanLater exports the split's rows that were changed in a source where timestamps alone
// tell which these are: by a scan of the times since the run before. What has all columns is
// taken from that, and other rows are read by themselves.
func (e *splitExport) scanLater(ctx context.Context, s *store.Scan) (err error) {
	sc := e.run.Source.Scan(ctx, fromTime(s, cell.Timestamp(e.run.since)))
	defer func() { err = errors.Join(err, sc.Close()) }()
	one := func(row *cell.Row) error {
		if e.run.Job.schema.HasAll(row) {
			return e.row(ctx, row)
		}
		return e.alone(ctx, s, bytes.Clone(row.Key))
	}
	if err := e.each(sc, func() error { return e.stored.each(s.Table, one) }, one); err != nil {
		return err
	}
	return e.flush(ctx)
}

// fromTime returns s of what it reads from the time t on.
func fromTime(s *store.Scan, t cell.Timestamp) *store.Scan {
	from := func(r cell.TimeRange) cell.TimeRange {
		r.Min = min(max(r.Min, t), r.Max)
		return r
	}
	later, all := *s, allTimes
	if s.Time != nil {
		all = *s.Time
	}
	all = from(all)
	later.Time, later.FamilyTime = &all, maps.Clone(s.FamilyTime)
	for family, r := range later.FamilyTime {
		later.FamilyTime[family] = from(r)
	}
	return &later
}

// alone exports the row with this key, as s selects, or as gone.
func (e *splitExport) alone(ctx context.Context, s *store.Scan, key []byte) (err error) {
	sc := scanKeys(ctx, e.run.Source, s, [][]byte{key})
	defer func() { err = errors.Join(err, sc.Close()) }()
	if sc.Next() {
		return e.row(ctx, sc.Row())
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("scan table %s: %w", s.Table, err)
	}
	return e.notFound(ctx, key)
}

// notFound exports as gone the row with this key, which was looked for as others are read.
func (e *splitExport) notFound(ctx context.Context, key []byte) error {
	if err := e.pacing.read(ctx, 1); err != nil {
		return err
	}
	return e.gone(ctx, key)
}

// scanKeys reads the rows with these keys, ascending and at least one, as s selects.
func scanKeys(ctx context.Context, from instant.Source, s *store.Scan, keys [][]byte) store.Scanner {
	if u := instant.UnfrozenOf(from); u != nil {
		return u.Gets(ctx, s, keys)
	}
	scan, ranges := *s, &store.MultiRowRangeFilter{Ranges: make([]store.RowRange, len(keys))}
	for i, key := range keys {
		ranges.Ranges[i] = store.RowRange{Start: key, Stop: key, StopInclusive: true}
	}
	scan.Start, scan.Stop, scan.StopInclusive, scan.Filter = keys[0], keys[len(keys)-1], true, ranges
	if s.Filter != nil {
		scan.Filter = &store.FilterList{Filters: []store.Filter{ranges, s.Filter}}
	}
	return from.Scan(ctx, &scan)
}

// scanRows begins to read a group's rows.
func (e *splitExport) scanRows(ctx context.Context, s *store.Scan, g *changedGroup, spare chan *cell.PackedRows) *changedScan {
	c := &changedScan{splitExport: e, s: s, keys: g.keys, cells: e.run.Job.schema.Mode() == columnar.PerCell}
	if !e.lacking.Load() && g.news > 0 && (len(g.keys)-g.news)*aloneShare <= len(g.keys) {
		c.newer = true
		s = fromTime(s, g.time)
	}
	c.sc = scanKeys(ctx, e.run.Source, s, g.keys)
	if packed, ok := c.sc.(store.PackedScanner); ok && e.run.Parallelism > 1 {
		c.sc = newReadAhead(ctx, e.run.Job, packed, spare)
	}
	return c
}

// changedScan is a scan of a group's rows, which it exports: as they are, or as gone.
type changedScan struct {
	*splitExport
	sc    store.Scanner // of the group
	cells bool          // with rows: cell: a row comes in parts, and is not over before another one comes
	open  []byte        // the row that is not over; nil = none
	s     *store.Scan   // as the group's rows are read one by one
	keys  [][]byte      // of the rows that are not exported yet
	newer bool          // what is read is only what was put since: not all of a row may be there
	again int           // how many rows were read again for that
}

// export exports the group's rows.
func (c *changedScan) export(ctx context.Context) error {
	if c.newer && c.lacking.Load() { // it was begun before that was known
		if err := c.sc.Close(); err != nil {
			return err
		}
		c.newer, c.sc = false, scanKeys(ctx, c.run.Source, c.s, c.keys)
	}
	asked := len(c.keys)
	packed := func() error {
		rows := &c.stored.rows
		n := rows.Len()
		next := !c.cells && n <= len(c.keys) && areRows(rows, c.keys[:n])
		if next && c.newer {
			all, err := c.builder.HasAll(rows)
			if err != nil {
				return refused(c.run.Job.Table(), err)
			}
			next = all
		}
		if !next {
			return c.stored.each(c.run.Job.Table(), func(row *cell.Row) error { return c.there(ctx, row) })
		}
		c.keys = c.keys[n:]
		return c.packedRows(ctx)
	}
	if err := c.each(c.sc, packed, func(row *cell.Row) error { return c.there(ctx, row) }); err != nil {
		return err
	}
	if err := c.over(ctx); err != nil {
		return err
	}
	for len(c.keys) > 0 {
		if err := c.missing(ctx); err != nil {
			return err
		}
	}
	if c.again*lackingShare > asked {
		c.lacking.Store(true)
	}
	return nil
}

// there exports a row that was read, after those before it, which were not.
func (c *changedScan) there(ctx context.Context, row *cell.Row) error {
	if c.open != nil && bytes.Equal(c.open, row.Key) {
		return c.row(ctx, row)
	}
	if err := c.over(ctx); err != nil {
		return err
	}
	for len(c.keys) > 0 && bytes.Compare(c.keys[0], row.Key) < 0 {
		if err := c.missing(ctx); err != nil {
			return err
		}
	}
	if len(c.keys) == 0 || !bytes.Equal(c.keys[0], row.Key) {
		return fmt.Errorf("%w: scan of table %s returned row %q, which was not asked for", store.ErrCorrupt, c.s.Table, row.Key)
	}
	if c.newer && !c.run.Job.schema.HasAll(row) {
		return c.missing(ctx)
	}
	if c.cells {
		c.open = c.keys[0]
	}
	c.keys = c.keys[1:]
	return c.row(ctx, row)
}

// over exports the row that came in parts as gone, where the job's conditions have left out
// all of its cells.
func (c *changedScan) over(ctx context.Context) error {
	key := c.open
	c.open = nil
	if key == nil || bytes.Equal(c.max, key) {
		return nil
	}
	return c.gone(ctx, key)
}

// missing exports the next row, which was not read, or not all of it.
func (c *changedScan) missing(ctx context.Context) error {
	key := c.keys[0]
	c.keys = c.keys[1:]
	if c.newer {
		c.again++
		return c.alone(ctx, c.s, key)
	}
	return c.notFound(ctx, key)
}

// areRows reports whether rows, as many as there are keys, have these.
func areRows(rows *cell.PackedRows, keys [][]byte) bool {
	for i, key := range keys {
		if !bytes.Equal(key, rows.Key(i)) {
			return false
		}
	}
	return true
}
