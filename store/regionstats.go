package store

import (
	"bytes"
	"fmt"

	"sluice/region"
)

// NewRegionStats returns the stats of m's regions, for engines: size returns the
// bytes of one, now is in ms since the Unix epoch.
func NewRegionStats(m *region.Map, load *region.Load, now int64, size func(r *region.Info) (int64, error)) ([]RegionStats, error) {
	stats := make([]RegionStats, m.Len())
	rates := make([]float64, m.Len())
	for i := range stats {
		r, q := m.At(i), load.Region(i)
		n, err := size(r)
		if err != nil {
			return nil, err
		}
		stats[i] = RegionStats{
			Region: *r, Bytes: n, Reads: q.Reads.Total(), Writes: q.Writes.Total(),
			ReadRate: q.Reads.Rate(now), WriteRate: q.Writes.Rate(now),
		}
		rates[i] = stats[i].ReadRate + stats[i].WriteRate
	}
	for i, hot := range region.HotSpots(rates) {
		stats[i].Hot = hot
	}
	return stats, nil
}

// SplitRow returns the row at which a region is to be cut, for engines: middle,
// cut back to the prefix that t's split policy keeps together. first is the
// region's first row; nil = it has no rows. The error wraps ErrRefused where no
// row is left that has some of the region's rows on either side.
func SplitRow(t *TableDescriptor, r *region.Info, first, middle []byte) ([]byte, error) {
	if first == nil || bytes.Compare(middle, first) <= 0 {
		return nil, fmt.Errorf("%w: the region of table %s that starts at %q has fewer than two rows", ErrRefused, t.Name, r.Start)
	}
	p := t.SplitPolicy()
	at := bytes.Clone(p.Restrict(middle))
	if bytes.Compare(at, first) <= 0 {
		return nil, fmt.Errorf("%w: %s of table %s keeps the rows around %q together", ErrRefused, p.Name, t.Name, middle)
	}
	return at, nil
}

// CheckSplit reports, for engines, why regions of t are not split at all. Its
// error wraps ErrRefused.
func (t *TableDescriptor) CheckSplit() error {
	if !t.Enabled(AttrSplit) {
		return fmt.Errorf("%w: table %s has %s => false", ErrRefused, t.Name, AttrSplit)
	}
	return nil
}

// CheckCompact reports, for engines, why t is not compacted at all, not by hand
// either: HBase's CompactSplit drops such requests without a word. Its error wraps
// ErrRefused.
func (t *TableDescriptor) CheckCompact() error {
	if !t.Enabled(AttrCompaction) {
		return fmt.Errorf("%w: table %s has %s => false", ErrRefused, t.Name, AttrCompaction)
	}
	return nil
}

// CheckMerge reports, for engines, why regions of t are not merged at all. Its
// error wraps ErrMergeRegion.
func (t *TableDescriptor) CheckMerge() error {
	if !t.Enabled(AttrMerge) {
		return fmt.Errorf("%w: table %s has %s => false", ErrMergeRegion, t.Name, AttrMerge)
	}
	return nil
}
