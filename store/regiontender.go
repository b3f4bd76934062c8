package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/region"
)

// DefaultTendInterval is how often a RegionTender looks at the regions: HBase's
// normalizer runs as often.
const DefaultTendInterval = 5 * time.Minute

// RegionTenderOptions configures a RegionTender. The zero value is usable.
type RegionTenderOptions struct {
	// Interval is the time between two passes of Run. Default:
	// DefaultTendInterval.
	Interval time.Duration
	// Now is the clock by which regions are young, in ms since the Unix epoch.
	// Default: the system's.
	Now func() int64
	// Logger receives splits, merges and hot regions. Default: discarded.
	Logger *slog.Logger
}

// RegionTender keeps the regions of an engine's tables at a good size: it splits
// those that their table's split policy calls too large, or too busy (HBase's
// CompactSplitThread), and evens out those of tables with NORMALIZATION_ENABLED
// (RegionNormalizerChore). Split and merge change the map alone, so readers and
// writers do not notice. It warns of regions that become hot.
//
// It starts no goroutine: its owner calls Run, or Tend when it likes. It is not
// safe for concurrent use.
type RegionTender struct {
	e   TendedEngine
	o   RegionTenderOptions
	hot map[string]bool // by region name, at the last pass

	busy map[string]*region.BusyWatch // by table, of those with BusyRegionSplitPolicy
}

// TendedEngine is an engine whose regions a RegionTender can keep.
type TendedEngine interface {
	Engine
	Admin
	RegionMeter
}

// NewRegionTender returns a tender of e's regions. o may be nil.
func NewRegionTender(e TendedEngine, o *RegionTenderOptions) *RegionTender {
	t := &RegionTender{e: e, hot: map[string]bool{}, busy: map[string]*region.BusyWatch{}}
	if o != nil {
		t.o = *o
	}
	if t.o.Interval <= 0 {
		t.o.Interval = DefaultTendInterval
	}
	if t.o.Now == nil {
		t.o.Now = func() int64 { return time.Now().UnixMilli() }
	}
	if t.o.Logger == nil {
		t.o.Logger = slog.New(slog.DiscardHandler)
	}
	return t
}

// Run makes a pass every Interval until ctx ends, and returns nil. What a pass
// cannot do is logged and tried again by the next.
func (t *RegionTender) Run(ctx context.Context) error {
	tick := time.NewTicker(t.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if _, err := t.Tend(ctx); err != nil && ctx.Err() == nil {
			t.o.Logger.Warn("regions could not be tended", "err", err)
		}
	}
}

// Tended is what one pass did.
type Tended struct {
	Splits, Merges int
	Hot            []region.Info // regions that take far more requests than their table's others
}

// Tend makes one pass over all tables. A table that cannot be tended does not keep
// the others from it; the error joins what went wrong.
func (t *RegionTender) Tend(ctx context.Context) (Tended, error) {
	var done Tended
	tables, err := t.e.Tables(ctx)
	if err != nil {
		return done, fmt.Errorf("tend regions: %w", err)
	}
	var errs []error
	hot := map[string]bool{}
	for _, name := range tables {
		if err := t.table(ctx, name, &done, hot); err != nil && !passing(err) {
			errs = append(errs, fmt.Errorf("tend regions of %s: %w", name, err))
		}
	}
	t.hot = hot
	maps.DeleteFunc(t.busy, func(name string, _ *region.BusyWatch) bool { return !slices.Contains(tables, name) })
	return done, errors.Join(errs...)
}

// passing reports whether err only says that the table or region is not, or no
// longer, one to tend: dropped, disabled, split by somebody else, or with rows that
// cannot be parted.
func passing(err error) bool {
	return errors.Is(err, ErrTableNotFound) || errors.Is(err, ErrRefused) || errors.Is(err, ErrInvalidArgument) || errors.Is(err, ErrMergeRegion)
}

func (t *RegionTender) table(ctx context.Context, name string, done *Tended, hot map[string]bool) error {
	d, err := t.e.Table(ctx, name)
	if err != nil {
		return err
	}
	stats, err := t.e.RegionStats(ctx, name)
	if err != nil {
		return err
	}
	for i := range stats {
		s := &stats[i]
		if !s.Hot {
			continue
		}
		done.Hot = append(done.Hot, s.Region)
		id := s.Region.Name()
		if hot[id] = true; !t.hot[id] {
			t.o.Logger.Warn("region takes far more requests than the table's others: split it, or salt its row keys",
				"table", name, "region", s.Region.EncodedName(), "reads_per_second", s.ReadRate, "writes_per_second", s.WriteRate)
		}
	}
	split := d.Enabled(AttrSplit)
	policy := d.SplitPolicy()
	limit, splits := policy.Limit(len(stats))
	var failed error
	cut := false
	busy := t.busyRegions(name, &policy, stats)
	for i := range stats {
		why := "larger than"
		switch {
		case !split || !splits:
			continue
		case stats[i].Bytes > limit:
		case slices.Contains(busy, i):
			why = "busier than"
		default:
			continue
		}
		cut = true
		failed = cmp.Or(failed, t.split(ctx, &stats[i], done, why+" "+cmp.Or(policy.Name, region.SteppingSplitPolicy)+" allows"))
	}
	if cut || !d.Enabled(AttrNormalization) {
		return failed
	}
	return t.normalize(ctx, d, stats, done)
}

// busyRegions returns the indexes of the regions that BusyRegionSplitPolicy splits
// for what is written to them.
func (t *RegionTender) busyRegions(table string, p *region.SplitPolicy, stats []RegionStats) []int {
	if p.Name != region.BusyRegionSplitPolicy {
		delete(t.busy, table)
		return nil
	}
	w := t.busy[table]
	if w == nil {
		w = new(region.BusyWatch)
		t.busy[table] = w
	}
	infos, writes := make([]region.Info, len(stats)), make([]int64, len(stats))
	for i := range stats {
		infos[i], writes[i] = stats[i].Region, stats[i].Writes
	}
	return w.Look(&p.Busy, infos, writes, t.o.Now())
}

func (t *RegionTender) normalize(ctx context.Context, d *TableDescriptor, stats []RegionStats, done *Tended) error {
	infos, sizes := make([]region.Info, len(stats)), make([]int64, len(stats))
	for i := range stats {
		infos[i], sizes[i] = stats[i].Region, stats[i].Bytes
	}
	m, err := region.NewMap(d.Name, infos)
	if err != nil {
		return err
	}
	z := d.Normalizer()
	splits, merges := z.Plan(m, sizes, t.o.Now())
	var failed error
	for _, i := range splits {
		failed = cmp.Or(failed, t.split(ctx, &stats[i], done, "more than twice the average"))
	}
	for _, run := range merges {
		from := m.At(run[0])
		// Rows name regions: where one was split since, they are not adjacent
		// and stay as they are.
		var rows [][]byte
		for i := run[0]; i <= run[1]; i++ {
			rows = append(rows, m.At(i).Start)
		}
		if err := t.e.MergeRegions(ctx, d.Name, rows...); err != nil {
			failed = cmp.Or(failed, ignore(err))
			continue
		}
		done.Merges++
		t.o.Logger.Info("merged regions", "table", d.Name, "region", from.EncodedName(), "regions", run[1]-run[0]+1)
	}
	return failed
}

// split cuts one region in the middle.
func (t *RegionTender) split(ctx context.Context, s *RegionStats, done *Tended, why string) error {
	at, err := t.e.SplitPoint(ctx, s.Region.Table, s.Region.Start)
	if err == nil {
		err = t.e.SplitRegion(ctx, s.Region.Table, at)
	}
	if err != nil {
		return ignore(err)
	}
	done.Splits++
	t.o.Logger.Info("split region", "table", s.Region.Table, "region", s.Region.EncodedName(), "bytes", s.Bytes, "reason", why)
	return nil
}

// ignore returns nil for what is passing.
func ignore(err error) error {
	if passing(err) {
		return nil
	}
	return err
}
