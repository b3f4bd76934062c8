package memstore

import (
	"context"
	"fmt"
	"maps"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// snapshot is every table between two commits. Rows are immutable, so it copies
// the maps alone. TTLs are judged at the instant of each scan, as in the store.
type snapshot struct {
	now      func() cell.Timestamp
	tables   map[string]*table
	holds    map[string]store.ChangeHold
	sequence uint64
	closed   *closed
}

// Snapshot returns the store as it is now.
func (s *Store) Snapshot(ctx context.Context) (store.Snapshot, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := s.closed.err(); err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	n := &snapshot{now: s.now, tables: make(map[string]*table, len(s.tables)), holds: maps.Clone(s.holds), sequence: s.sequence, closed: new(closed)}
	for name, t := range s.tables {
		n.tables[name] = &table{desc: t.desc, regions: t.regions, load: t.load, rows: maps.Clone(t.rows), changed: maps.Clone(t.changed), altered: t.altered}
	}
	return n, nil
}

func (n *snapshot) Regions(_ context.Context, table string) (*region.Map, error) {
	return regions(n.tables, n.closed, table)
}

func (n *snapshot) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	return scan(ctx, n.tables, n.now(), n.closed, s)
}

func (n *snapshot) Table(_ context.Context, name string) (*store.TableDescriptor, error) {
	return descriptor(n.tables, n.closed, name)
}

func (n *snapshot) Sequence() uint64 { return n.sequence }

func (n *snapshot) Close() error {
	n.closed.close()
	return nil
}
