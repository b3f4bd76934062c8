// Package region is the bookkeeping over a table's row ranges: which region
// holds a row, how a region splits, which merge, where a new table is cut.
//
// A region is a half-open range of row keys of one table inside one key space;
// it owns no file and no server. The regions of a table tile all row keys: the
// first starts at the empty key, each next one where the one before it stops,
// the last is open (invariant I4). A Map is immutable, so it can be shared by
// any number of goroutines; a change makes a new one.
//
// The package is pure: it does no I/O and keeps no clock. Who stores a Map, and
// makes its change atomic with anything else, is a storage engine's business.
package region

import (
	"fmt"
	"slices"
	"sort"

	"sluice/cell"
)

// Info is one region.
type Info struct {
	Table string
	ID    int64 // creation time in ms since the Unix epoch; greater than its parents' (HBase regionId)
	Start []byte
	Stop  []byte // exclusive; empty = unbounded
}

// Range returns the rows of the region.
func (i *Info) Range() cell.Range { return cell.Range{Start: i.Start, Stop: i.Stop} }

// Map is the regions of one table in key order.
type Map struct {
	table   string
	regions []Info
}

// NewMap returns the map of regions, which must tile the row keys of table in
// order. The slice is kept.
func NewMap(table string, regions []Info) (*Map, error) {
	if len(regions) == 0 {
		return nil, fmt.Errorf("region: table %s has no regions", table)
	}
	for i := range regions {
		r := &regions[i]
		switch {
		case r.Table != table:
			return nil, fmt.Errorf("region: region %d of table %s belongs to %s", i, table, r.Table)
		case i == 0 && len(r.Start) != 0:
			return nil, fmt.Errorf("region: first region of table %s starts at %q", table, r.Start)
		case i > 0 && (len(r.Start) == 0 || string(r.Start) != string(regions[i-1].Stop)):
			return nil, fmt.Errorf("region: region %d of table %s starts at %q, the one before it stops at %q", i, table, r.Start, regions[i-1].Stop)
		case len(r.Stop) != 0 && string(r.Stop) <= string(r.Start):
			return nil, fmt.Errorf("region: region %d of table %s stops at %q, before its start %q", i, table, r.Stop, r.Start)
		case i == len(regions)-1 && len(r.Stop) != 0:
			return nil, fmt.Errorf("region: last region of table %s stops at %q", table, r.Stop)
		}
	}
	return &Map{table: table, regions: regions}, nil
}

// Table returns the name of the table.
func (m *Map) Table() string { return m.table }

// Len returns the number of regions, at least 1.
func (m *Map) Len() int { return len(m.regions) }

// At returns region i in key order. The Info must not be changed.
func (m *Map) At(i int) *Info { return &m.regions[i] }

// All returns a copy of the regions in key order.
func (m *Map) All() []Info { return slices.Clone(m.regions) }

// Splits returns the n-1 starts of the n regions but the first, for a table that
// is to be cut as this one. The keys are the map's.
func (m *Map) Splits() [][]byte {
	keys := make([][]byte, 0, len(m.regions)-1)
	for i := range m.regions[1:] {
		keys = append(keys, m.regions[i+1].Start)
	}
	return keys
}

// Locate returns the index of the region that holds row.
func (m *Map) Locate(row []byte) int {
	return sort.Search(len(m.regions), func(i int) bool { return string(m.regions[i].Start) > string(row) }) - 1
}
