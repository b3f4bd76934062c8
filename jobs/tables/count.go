package tables

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/jobs/instant"
	"sluice/jobs/work"
	"sluice/region"
	"sluice/store"
)

// CountOptions configures Count. Source and Table must be set.
type CountOptions struct {
	Source instant.Source
	Table  string
	// Rows are the rows to count. Default: all.
	Rows cell.Range
	// Families are whose cells are counted; a row without any of them counts for
	// nothing. Default: all.
	Families []string
	// Versions is how many versions of a column count. Default: all that a read
	// can see.
	Versions int
	// Parallelism is how many regions are read at a time, each by one goroutine.
	// Default: GOMAXPROCS.
	Parallelism int
	// Progress is called now and then, by one goroutine at a time; it must return
	// soon. Done counts regions.
	Progress func(work.Progress)
	// Now is the clock. Default: time.Now.
	Now func() time.Time

	partBytes int // of a row in memory, where tests want little; 0 = partBytes
}

// Counts is how much of something there is.
type Counts struct {
	Rows  int64 // with a cell at least
	Cells int64
	Bytes int64 // of the cells as HBase's KeyValue lays them out: keys, values and 20 more each
}

func (c *Counts) add(o *Counts) {
	c.Rows += o.Rows
	c.Cells += o.Cells
	c.Bytes += o.Bytes
}

// FamilyCounts is what one family of a table holds.
type FamilyCounts struct {
	Family string
	Counts
}

// RegionCounts is what one region holds.
type RegionCounts struct {
	Region region.Info
	Rows   cell.Range // those of the region that were counted
	Counts
	Families []FamilyCounts // by name
	// Stored is about how many bytes of the store's files the rows take, with
	// what a read does not see any more; -1 where the Source is no Sizer. What
	// is in memory only may be missing.
	Stored int64
}

// TableCounts is what a table holds at one instant.
type TableCounts struct {
	Table    string
	Sequence uint64 // of the last commit that was counted; 0 = the source is Unfrozen
	Counts
	Families []FamilyCounts // by name
	Regions  []RegionCounts // in key order; those that overlap the rows asked for
}

// Count counts the rows and cells of a table that a read can see at the instant of
// its Source, by region and by family, all regions in parallel (HBase's RowCounter
// and CellCounter). A row that is wider than memory is counted like any other.
// The error wraps store.ErrTableNotFound or store.ErrFamilyNotFound.
func Count(ctx context.Context, o *CountOptions) (*TableCounts, error) {
	c := &count{CountOptions: *o}
	if c.Source == nil || c.Table == "" {
		return nil, errors.New("tables: CountOptions need a Source and a Table")
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Source = instant.Whole(c.Source)
	c.Versions = cmp.Or(c.Versions, store.AllVersions)
	t, err := c.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("count %s: %w", c.Table, err)
	}
	return t, nil
}

// count is one execution of Count.
type count struct {
	CountOptions
	schema *store.TableDescriptor
	report work.Reporter
}

func (c *count) run(ctx context.Context) (_ *TableCounts, err error) {
	if c.schema, err = c.Source.Table(ctx, c.Table); err != nil {
		return nil, err
	}
	if err := instant.CheckFamilies(c.schema, c.Families); err != nil {
		return nil, err
	}
	m, err := c.Source.Regions(ctx, c.Table)
	if err != nil {
		return nil, err
	}
	splits := instant.Splits(m, c.Rows)
	t := &TableCounts{Table: c.Table, Sequence: c.Source.Sequence(), Families: c.families(), Regions: make([]RegionCounts, len(splits))}
	c.report.Start(c.Progress, c.Now, len(splits))
	c.report.Regions()
	err = work.Parallel(ctx, c.Parallelism, len(splits), func(ctx context.Context, i int) error {
		return c.region(ctx, &splits[i], &t.Regions[i])
	})
	if err == nil {
		err = instant.Check(ctx, c.Source)
	}
	if err != nil {
		return nil, err
	}
	for i := range t.Regions {
		r := &t.Regions[i]
		t.add(&r.Counts)
		for f := range r.Families {
			t.Families[f].add(&r.Families[f].Counts)
		}
	}
	return t, nil
}

// families returns a count of nothing for each family that is read.
func (c *count) families() []FamilyCounts {
	var all []FamilyCounts
	for _, name := range familyNames(c.schema) {
		if len(c.Families) == 0 || slices.Contains(c.Families, name) {
			all = append(all, FamilyCounts{Family: name})
		}
	}
	return all
}

// region counts one split.
func (c *count) region(ctx context.Context, s *instant.Split, r *RegionCounts) error {
	*r = RegionCounts{Region: s.Region, Rows: s.Rows, Families: c.families(), Stored: -1}
	if z, ok := c.Source.(instant.Sizer); ok {
		n, err := z.RangeBytes(ctx, c.Table, c.Families, s.Rows)
		switch {
		case err == nil:
			r.Stored = n
		case !errors.Is(err, store.ErrUnsupported):
			return err
		}
	}
	sc := c.Source.Scan(ctx, &store.Scan{
		Table: c.Table, Start: s.Rows.Start, Stop: s.Rows.Stop, Columns: instant.Families(readFamilies(c.Families, c.schema)),
		Versions: c.Versions, MaxResultBytes: cmp.Or(c.partBytes, partBytes),
	})
	defer sc.Close()
	var key []byte // of the row before, where more of it may follow
	more := false
	at := -1 // the family of the cell before, in r.Families
	var told int64
	for sc.Next() {
		row := sc.Row()
		if !more || !bytes.Equal(key, row.Key) {
			if r.Counts.Rows-told >= reportRows {
				c.report.Rows(r.Counts.Rows - told)
				told = r.Counts.Rows
			}
			r.Counts.Rows++
			at = -1
		}
		if more = row.More; more {
			key = append(key[:0], row.Key...)
		}
		for i := range row.Cells {
			cl := &row.Cells[i]
			if at < 0 || r.Families[at].Family != cl.Family {
				at = slices.IndexFunc(r.Families, func(f FamilyCounts) bool { return f.Family == cl.Family })
				r.Families[at].Rows++
			}
			n := Counts{Cells: 1, Bytes: int64(len(row.Key)+len(cl.Family)+len(cl.Qualifier)+len(cl.Value)) + cell.KeyValueBytes}
			r.Families[at].add(&n)
			r.add(&n)
		}
	}
	if err := sc.Err(); err != nil {
		return err
	}
	c.report.RegionDone(r.Counts.Rows - told)
	return nil
}
