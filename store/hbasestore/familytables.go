package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// familyTables is what switchers and removers ask of tables.
type familyTables interface {
	// descriptor returns a table's schema as it is now.
	descriptor(ctx context.Context, table string) (*store.TableDescriptor, error)
	// dropFamily drops a family, if it is there.
	dropFamily(ctx context.Context, table, family string) error
}

var _ familyTables = (*Store)(nil)

// settleFamilies waits until regions have the families with names that end so: a process
// that was killed may have asked for them, and HBase names them before all regions have
// them. It changes tables one change after the other, so that one more comes behind.
func (s *Store) settleFamilies(ctx context.Context, suffix string) error {
	tables, err := s.Tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		d, err := s.descriptor(ctx, table)
		if errors.Is(err, store.ErrTableNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		i := slices.IndexFunc(d.Families, func(f store.FamilyDescriptor) bool { return strings.HasSuffix(f.Name, suffix) })
		if i < 0 {
			continue
		}
		if err := s.change(ctx, "alter table", table, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
			return c.ModifyColumnFamily(ctx, tableName(table), familyToHBase(&d.Families[i]))
		}); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) descriptor(ctx context.Context, table string) (*store.TableDescriptor, error) {
	table = store.CanonicalName(table)
	if system(table) {
		return nil, fmt.Errorf("table %s: %w: it is the store's own", table, store.ErrRefused)
	}
	s.schemas.forget(table)
	d, _, err := s.schemas.get(ctx, table)
	return d, err
}

func (s *Store) dropFamily(ctx context.Context, table, family string) error {
	d, err := s.descriptor(ctx, table)
	if errors.Is(err, store.ErrTableNotFound) || err == nil && d.Family(family) == nil {
		return nil
	}
	if err != nil {
		return err
	}
	d = d.Clone()
	d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == family })
	return s.AlterTable(ctx, d)
}
