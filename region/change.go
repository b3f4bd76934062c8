package region

import (
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
)

// Errors of changes that a map does not allow.
var (
	// ErrSplit: the key cannot be a split point (HBase DoNotRetryIOException).
	ErrSplit = errors.New("region: not a split point")
	// ErrMerge: the regions cannot become one (HBase MergeRegionException).
	ErrMerge = errors.New("region: regions cannot be merged")
)

// Create returns the map of a new table that is cut at splits into len(splits)+1
// regions, all with this id (ms since the Unix epoch). splits must be as
// SplitKeys returns them; the error wraps ErrSplit where they are not.
func Create(table string, splits [][]byte, id int64) (*Map, error) {
	regions := make([]Info, len(splits)+1)
	for i := range regions {
		regions[i] = Info{Table: table, ID: id}
		if i > 0 {
			regions[i].Start = splits[i-1]
		}
		if i < len(splits) {
			regions[i].Stop = splits[i]
		}
	}
	for i, s := range splits {
		if err := cell.CheckRow(s); err != nil {
			return nil, fmt.Errorf("%w: split point %d of table %s: %w", ErrSplit, i, table, err)
		}
		if i > 0 && string(s) <= string(splits[i-1]) {
			return nil, fmt.Errorf("%w: split points of table %s: %q follows %q", ErrSplit, table, s, splits[i-1])
		}
	}
	return NewMap(table, regions)
}

// Split returns a map in which the region that holds at is cut in two; at is the
// first row of the right daughter and must differ from its region's start. now is
// the time in ms since the Unix epoch; both daughters get the id max(now, parent's
// id + 1), as HBase gives them. at is kept. The error wraps ErrSplit.
func (m *Map) Split(at []byte, now int64) (*Map, error) {
	if err := cell.CheckRow(at); err != nil {
		return nil, fmt.Errorf("%w: table %s: %w", ErrSplit, m.table, err)
	}
	i := m.Locate(at)
	parent := m.regions[i]
	if string(at) == string(parent.Start) {
		return nil, fmt.Errorf("%w: table %s: %q is the start of its region already", ErrSplit, m.table, at)
	}
	left, right := parent, parent
	left.Stop, right.Start = at, at
	left.ID = max(now, parent.ID+1)
	right.ID = left.ID
	return m.replace(i, i, left, right)
}

// Merge returns a map in which the regions first to last, both included, are one,
// whose id is the largest of theirs + 1, as in HBase. It takes two regions or
// more; the error wraps ErrMerge.
func (m *Map) Merge(first, last int) (*Map, error) {
	if first < 0 || last >= len(m.regions) || first >= last {
		return nil, fmt.Errorf("%w: table %s: regions %d to %d of %d", ErrMerge, m.table, first, last, len(m.regions))
	}
	merged := m.regions[first]
	merged.Stop = m.regions[last].Stop
	for _, r := range m.regions[first : last+1] {
		merged.ID = max(merged.ID, r.ID)
	}
	merged.ID++
	return m.replace(first, last, merged)
}

// Adjacent returns the indexes of the first and the last of the regions that hold
// rows, which may come in any order. Its error wraps ErrMerge where they are fewer
// than two, one of them is named twice, or another lies between them.
func (m *Map) Adjacent(rows [][]byte) (first, last int, err error) {
	at := make([]int, len(rows))
	for i, row := range rows {
		at[i] = m.Locate(row)
	}
	slices.Sort(at)
	for i := 1; i < len(at); i++ {
		switch at[i] - at[i-1] {
		case 0:
			return 0, 0, fmt.Errorf("%w: table %s: the region that starts at %q is given twice", ErrMerge, m.table, m.regions[at[i]].Start)
		case 1:
		default:
			return 0, 0, fmt.Errorf("%w: table %s: the regions that start at %q and %q are not adjacent", ErrMerge, m.table, m.regions[at[i-1]].Start, m.regions[at[i]].Start)
		}
	}
	if len(at) < 2 {
		return 0, 0, fmt.Errorf("%w: table %s: %d regions, want two or more", ErrMerge, m.table, len(at))
	}
	return at[0], at[len(at)-1], nil
}

// NextID returns an id for regions that replace m's at now (ms since the Unix
// epoch): the time, or the number after the largest id that m has.
func (m *Map) NextID(now int64) int64 {
	for i := range m.regions {
		now = max(now, m.regions[i].ID+1)
	}
	return now
}

// replace returns a map in which regions first to last, both included, are those
// given instead.
func (m *Map) replace(first, last int, with ...Info) (*Map, error) {
	regions := make([]Info, 0, len(m.regions)+len(with))
	regions = append(regions, m.regions[:first]...)
	regions = append(regions, with...)
	regions = append(regions, m.regions[last+1:]...)
	return NewMap(m.table, regions)
}
