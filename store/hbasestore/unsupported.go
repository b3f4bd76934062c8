package hbasestore

import (
	"context"
	"fmt"

	"sluice/store"
)

var (
	_ store.RegionMeter = (*Store)(nil)
	_ store.Compactor   = (*Store)(nil)
)

// shellOnly is the error of what the gateway cannot do.
func shellOnly(what, command string) error {
	return fmt.Errorf("%s: %w through HBase's Thrift2 gateway; in HBase's shell: %s", what, store.ErrUnsupported, command)
}

// tableOnly is shellOnly for a table, or the error of a table that is not there.
func (s *Store) tableOnly(ctx context.Context, what, table, command string) error {
	if _, err := s.Table(ctx, table); err != nil {
		return fmt.Errorf("%s %s: %w", what, table, err)
	}
	return shellOnly(what+" "+table, command)
}

// SplitRegion returns an error that wraps store.ErrUnsupported.
func (s *Store) SplitRegion(ctx context.Context, table string, at []byte) error {
	return s.tableOnly(ctx, "split a region of", table, fmt.Sprintf("split '%s', %q", table, at))
}

// MergeRegions returns an error that wraps store.ErrUnsupported.
func (s *Store) MergeRegions(ctx context.Context, table string, _ ...[]byte) error {
	return s.tableOnly(ctx, "merge regions of", table, fmt.Sprintf("list_regions '%s', then merge_region 'ENCODED_NAME', 'ENCODED_NAME'", table))
}

// RegionStats returns an error that wraps store.ErrUnsupported.
func (s *Store) RegionStats(ctx context.Context, table string) ([]store.RegionStats, error) {
	return nil, s.tableOnly(ctx, "statistics of the regions of", table, fmt.Sprintf("list_regions '%s'", table))
}

// SplitPoint returns an error that wraps store.ErrUnsupported: HBase chooses it when
// it splits.
func (s *Store) SplitPoint(ctx context.Context, table string, _ []byte) ([]byte, error) {
	return nil, s.tableOnly(ctx, "split point of a region of", table, fmt.Sprintf("split '%s'", table))
}

// Flush returns an error that wraps store.ErrUnsupported.
func (s *Store) Flush(context.Context) error {
	return shellOnly("flush", "flush 'TABLE'")
}

// MajorCompact returns an error that wraps store.ErrUnsupported.
func (s *Store) MajorCompact(ctx context.Context, table string) error {
	return s.tableOnly(ctx, "compact", table, fmt.Sprintf("major_compact '%s'", table))
}
