package instant

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// Unfrozen is every table of an engine that cannot freeze an instant (HBase), read
// while others write to it: each row is read whole, at one moment, and two rows are
// of two. Of user tables it shows the cells with timestamps below a bound, the time
// at which it was opened, so that what is written later with the time of its writing
// stays out. The cells of COUNTER and DISTINCT families have timestamps of the
// engine's own and no bound.
//
// Its Sequence is the bound, in ms since the Unix epoch. The offsets that it knows
// were read before the bound was chosen. It is safe for concurrent use as its engine
// is; closing it does nothing to that.
type Unfrozen struct {
	engine   store.Engine
	before   cell.Timestamp // 0 = no bound
	progress []store.PartitionProgress
	reopened bool // progress is not known
	seen     *incarnations
}

var (
	_ store.Snapshot     = (*Unfrozen)(nil)
	_ store.ChangeReader = (*Unfrozen)(nil)
	_ store.BegunReader  = (*Unfrozen)(nil)
)

// OpenUnfrozen reads the offsets of e and takes the time for the bound. now nil =
// time.Now.
func OpenUnfrozen(ctx context.Context, e store.Engine, now func() time.Time) (*Unfrozen, error) {
	if now == nil {
		now = time.Now
	}
	progress, err := Progress(ctx, e)
	if err != nil {
		return nil, err
	}
	return &Unfrozen{engine: e, before: cell.Timestamp(now().UnixMilli()), progress: progress, seen: newIncarnations()}, nil
}

// unfrozenName begins the names of Unfrozen sources; the bound follows.
const unfrozenName = "before-"

// ReopenUnfrozen returns the source with this Name, as a run that was cut off has noted it,
// for that run to go on; what it was complete to is known to that run alone.
// Its error wraps store.ErrInvalidArgument where name is of another kind.
func ReopenUnfrozen(e store.Engine, name string) (*Unfrozen, error) {
	digits, ok := strings.CutPrefix(name, unfrozenName)
	before, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || before <= 0 {
		return nil, fmt.Errorf("%w: %q is no time of engine %s", store.ErrInvalidArgument, name, e.Traits().Name)
	}
	return &Unfrozen{engine: e, before: cell.Timestamp(before), reopened: true, seen: newIncarnations()}, nil
}

// UnfrozenOf returns the Unfrozen that a source is, or has below it (a method
// Unfrozen), or nil.
func UnfrozenOf(s Source) *Unfrozen {
	switch s := s.(type) {
	case *Unfrozen:
		return s
	case interface{ Unfrozen() *Unfrozen }:
		return s.Unfrozen()
	}
	return nil
}

// Whole returns s without the bound of timestamps that it may have.
func Whole(s Source) Source {
	u := UnfrozenOf(s)
	if u == nil {
		return s
	}
	all := *u
	all.before = 0
	return &all
}

// Name finds the source again, see ReopenUnfrozen.
func (u *Unfrozen) Name() string { return unfrozenName + strconv.FormatInt(int64(u.before), 10) }

// Sequence returns the bound of timestamps, in ms since the Unix epoch; 0 = none.
func (u *Unfrozen) Sequence() uint64 { return uint64(u.before) }

// Before returns the bound of timestamps, in ms since the Unix epoch; 0 = none.
func (u *Unfrozen) Before() cell.Timestamp { return u.before }

// Progress returns how far each partition had come when u was opened: every record
// before has had its effect. It is u's, and empty where u was reopened.
func (u *Unfrozen) Progress() []store.PartitionProgress { return u.progress }

// BegunTo implements store.BegunReader, as far as the engine does.
func (u *Unfrozen) BegunTo(ctx context.Context, s *store.Source, partition int32) (until int64, version string, err error) {
	if b, ok := u.engine.(store.BegunReader); ok {
		return b.BegunTo(ctx, s, partition)
	}
	return store.Absent, "", nil
}

// Reopened reports whether ReopenUnfrozen has made u.
func (u *Unfrozen) Reopened() bool { return u.reopened }

// Close does nothing: the engine is its owner's.
func (u *Unfrozen) Close() error { return nil }

// Table returns a schema as it is now, and remembers what the table is, see Check.
func (u *Unfrozen) Table(ctx context.Context, name string) (*store.TableDescriptor, error) {
	if err := u.note(ctx, name, false, nil); err != nil {
		return nil, err
	}
	return u.engine.Table(ctx, name)
}

// Regions returns the region map as it is now.
func (u *Unfrozen) Regions(ctx context.Context, table string) (*region.Map, error) {
	return u.engine.Regions(ctx, table)
}

// Scan implements store.Reader, within the bound.
func (u *Unfrozen) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if err := u.note(ctx, s.Table, true, s.Columns); err != nil {
		return store.FailedScanner(fmt.Errorf("scan: %w", err))
	}
	if u.before == 0 || store.NamespaceOf(s.Table) == store.SystemNamespace {
		return u.engine.Scan(ctx, s)
	}
	t, err := u.engine.Table(ctx, s.Table)
	if err != nil {
		return store.FailedScanner(fmt.Errorf("scan: %w", err))
	}
	bounded := *s
	bounded.Time = u.bound(s.Time)
	bounded.FamilyTime = map[string]cell.TimeRange{}
	for family, r := range s.FamilyTime {
		bounded.FamilyTime[family] = *u.bound(&r)
	}
	for i := range t.Families {
		f := &t.Families[i]
		if !f.InPlace() || len(s.Columns) > 0 && !slices.ContainsFunc(s.Columns, func(c store.Column) bool { return c.Family == f.Name }) {
			continue // it may be deleted by those who do not read it
		}
		r, own := s.FamilyTime[f.Name]
		switch {
		case own:
		case s.Time != nil:
			r = *s.Time
		default:
			r = cell.TimeRange{Max: math.MaxInt64}
		}
		bounded.FamilyTime[f.Name] = r
	}
	return u.engine.Scan(ctx, &bounded)
}

// bound returns the part of a time range, nil = all, that is below the bound.
func (u *Unfrozen) bound(r *cell.TimeRange) *cell.TimeRange {
	if r == nil {
		return &cell.TimeRange{Max: u.before}
	}
	return &cell.TimeRange{Min: min(r.Min, u.before), Max: min(r.Max, u.before)}
}

// ChangedRows implements store.ChangeReader as far as timestamps tell: it yields the
// rows with a cell, in one of the families, of the time since (ms since the Unix
// epoch) or later. Rows that were deleted, and cells written since with earlier
// timestamps, are not among them. Its error wraps store.ErrUnsupported where one of
// the families is COUNTER or DISTINCT, of which timestamps tell nothing.
func (u *Unfrozen) ChangedRows(ctx context.Context, table string, families []string, rows cell.Range, since uint64) iter.Seq2[store.ChangedRow, error] {
	return func(yield func(store.ChangedRow, error) bool) {
		t, err := u.engine.Table(ctx, table)
		if err == nil {
			err = u.note(ctx, table, true, Families(families))
		}
		if err == nil {
			err = TimesTell(t, families)
		}
		if err == nil && cell.Timestamp(since) > u.before {
			err = fmt.Errorf("%w: changes since %d, which is after %d", store.ErrInvalidArgument, since, u.before)
		}
		if err != nil {
			yield(store.ChangedRow{}, err)
			return
		}
		sc := u.engine.Scan(ctx, &store.Scan{
			Table: table, Start: rows.Start, Stop: rows.Stop, Columns: Families(families),
			Time: &cell.TimeRange{Min: cell.Timestamp(since), Max: u.before}, Filter: &store.FirstKeyOnlyFilter{},
		})
		defer sc.Close()
		for sc.Next() {
			if !yield(store.ChangedRow{Key: sc.Row().Key}, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(store.ChangedRow{}, fmt.Errorf("scan table %s: %w", table, err))
		}
	}
}

// TimesTell refuses families of t, none = all, whose timestamps say nothing of when they
// were written. Its error wraps store.ErrUnsupported.
func TimesTell(t *store.TableDescriptor, families []string) error {
	for i := range t.Families {
		f := &t.Families[i]
		if f.InPlace() && (len(families) == 0 || slices.Contains(families, f.Name)) {
			return fmt.Errorf("%w: increments of table %s, family %s: what was changed is told by timestamps here, and a COUNTER or DISTINCT family has none; "+
				"name the job's other families, or make every run full", store.ErrUnsupported, t.Name, f.Name)
		}
	}
	return nil
}

// Gets is the rows with these keys, ascending, that s selects, as one scan after the
// other: an engine far away does not seek in a scan.
func (u *Unfrozen) Gets(ctx context.Context, s *store.Scan, keys [][]byte) store.Scanner {
	return &getScanner{get: func(key []byte) store.Scanner {
		one := *s
		one.Start, one.Stop, one.StopInclusive = key, append(bytes.Clone(key), 0), false
		return u.Scan(ctx, &one)
	}, keys: keys}
}

// getScanner is the rows of several scanners, which are opened one by one.
type getScanner struct {
	get  func(key []byte) store.Scanner
	keys [][]byte      // to do
	sc   store.Scanner // nil = none is open
	err  error
}

// Next implements store.Scanner.
func (g *getScanner) Next() bool {
	for g.err == nil {
		if g.sc == nil {
			if len(g.keys) == 0 {
				return false
			}
			g.sc, g.keys = g.get(g.keys[0]), g.keys[1:]
		}
		if g.sc.Next() {
			return true
		}
		g.err = cmp.Or(g.sc.Err(), g.end())
	}
	return false
}

// Row implements store.Scanner.
func (g *getScanner) Row() *cell.Row {
	if g.sc == nil {
		return nil
	}
	return g.sc.Row()
}

// Err implements store.Scanner.
func (g *getScanner) Err() error { return g.err }

// Close implements store.Scanner.
func (g *getScanner) Close() error {
	g.keys = nil
	return g.end()
}

// end ends the scanner that is open.
func (g *getScanner) end() error {
	if g.sc == nil {
		return nil
	}
	err := g.sc.Close()
	g.sc = nil
	return err
}
