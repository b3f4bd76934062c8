package memstore

import (
	"context"
	"fmt"
	"slices"

	"sluice/region"
	"sluice/store"
)

// rowBytes is about what cells of one row take.
func rowBytes(key string, r *row, cells func(versions) []written) (n int64) {
	for family, v := range r.families {
		for _, w := range cells(v) {
			n += int64(len(key) + len(family) + len(w.Qualifier) + len(w.Value) + 24)
		}
	}
	return n
}

// RegionStats returns what the regions of a table hold and serve.
func (s *Store) RegionStats(_ context.Context, name string) ([]store.RegionStats, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, err
	}
	t := lookup(s.tables, name)
	if t == nil {
		return nil, fmt.Errorf("region stats: %w: %s", store.ErrTableNotFound, name)
	}
	return store.NewRegionStats(t.regions, t.load, int64(s.now()), func(r *region.Info) (n int64, err error) {
		for key, row := range t.rows {
			if r.Range().Contains([]byte(key)) {
				n += rowBytes(key, row, func(v versions) []written { return v.disk })
			}
		}
		return n, nil
	})
}

// SplitPoint returns the row that cuts the region which holds row into halves.
func (s *Store) SplitPoint(_ context.Context, name string, row []byte) ([]byte, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, err
	}
	t := lookup(s.tables, name)
	if t == nil {
		return nil, fmt.Errorf("split point: %w: %s", store.ErrTableNotFound, name)
	}
	if err := t.served(); err != nil {
		return nil, fmt.Errorf("split point: %w", err)
	}
	r := t.regions.At(t.regions.Locate(row))
	var keys []string
	for key := range t.rows {
		if r.Range().Contains([]byte(key)) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	sizes := make([]int64, len(keys))
	for i, key := range keys {
		sizes[i] = rowBytes(key, t.rows[key], versions.all)
	}
	i, ok := region.Middle(sizes)
	if !ok {
		return store.SplitRow(t.desc, r, nil, nil)
	}
	return store.SplitRow(t.desc, r, []byte(keys[0]), []byte(keys[i]))
}
