package memstore

import (
	"cmp"
	"maps"
	"slices"
	"sync/atomic"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// closed is shared by a store or snapshot and its scans.
type closed struct{ flag atomic.Bool }

func (c *closed) close() { c.flag.Store(true) }

func (c *closed) err() error {
	if c.flag.Load() {
		return store.ErrClosed
	}
	return nil
}

// table is one table. Its descriptor, its region map and its rows are replaced,
// never changed.
type table struct {
	desc     *store.TableDescriptor
	regions  *region.Map
	load     *region.Load // of regions
	rows     map[string]*row
	changed  map[string]uint64 // by row, gone ones too: the sequence of its last change
	altered  uint64            // the sequence at which it came to be or got its schema
	disabled bool
}

func newTable(d *store.TableDescriptor, splits [][]byte, now cell.Timestamp) (*table, error) {
	regions, err := region.Create(d.Name, splits, int64(now))
	if err != nil {
		return nil, err
	}
	return &table{desc: d, regions: regions, load: region.NewLoad(regions), rows: make(map[string]*row), changed: make(map[string]uint64)}, nil
}

// served reports with store.ErrTableNotEnabled that the table is disabled.
func (t *table) served() error {
	if t.disabled {
		return &store.DisabledError{Table: t.desc.Name}
	}
	return nil
}

// reshape replaces the region map.
func (t *table) reshape(m *region.Map) { t.regions, t.load = m, t.load.Follow(m) }

// lookup returns a table by its name, or nil.
func lookup(tables map[string]*table, name string) *table { return tables[store.CanonicalName(name)] }

// row is one row: its families by name. It is immutable.
type row struct {
	families map[string]versions
}

// versions is what one row has in one family, apart as HBase keeps it: what was
// flushed, and what was written since.
type versions struct {
	disk, mem []written
}

func (v versions) all() []written { return slices.Concat(v.disk, v.mem) }

// written is one cell as it was written. Sequences ascend with the order of
// application; no two cells share one.
type written struct {
	cell.Cell
	sequence uint64
}

// compareWritten is the storage order: qualifier, newest time first, markers
// before puts, the later write first.
func compareWritten(a, b written) int {
	return cmp.Or(
		cmp.Compare(string(a.Qualifier), string(b.Qualifier)),
		cmp.Compare(b.Time, a.Time),
		cmp.Compare(b.Kind, a.Kind),
		cmp.Compare(b.sequence, a.sequence),
	)
}

// with returns a copy of r, which may be nil, with a family replaced; nil where
// no family holds anything.
func (r *row) with(family string, v versions) *row {
	n := &row{families: make(map[string]versions)}
	if r != nil {
		maps.Copy(n.families, r.families)
	}
	if len(v.disk)+len(v.mem) > 0 {
		n.families[family] = v
	} else {
		delete(n.families, family)
	}
	if len(n.families) == 0 {
		return nil
	}
	return n
}

// family returns what the row, which may be nil, has in a family.
func (r *row) family(name string) versions {
	if r == nil {
		return versions{}
	}
	return r.families[name]
}
