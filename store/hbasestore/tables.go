package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/region"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

var (
	_ store.Admin         = (*Store)(nil)
	_ store.TableSwitcher = (*Store)(nil)
)

// Table implements store.Engine. It may be Options.MaxAge old.
func (s *Store) Table(ctx context.Context, name string) (*store.TableDescriptor, error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("schema of %s: %w", name, err)
	}
	defer end()
	t, _, err := s.schemas.get(ctx, store.CanonicalName(name))
	return t, err
}

// readTable asks HBase for a schema.
func (s *Store) readTable(ctx context.Context, name string) (*store.TableDescriptor, error) {
	r := request{what: "schema of", table: name}
	if store.CheckTableName(name) != nil {
		return nil, r.fail(store.ErrTableNotFound) // the gateway would have an internal error
	}
	var d *hbase.TTableDescriptor
	err := s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		d, err = c.GetTableDescriptor(ctx, tableName(name))
		return err
	})
	if err != nil {
		return nil, err
	}
	return fromHBase(d), nil
}

// Regions implements store.Reader. It may be Options.MaxAge old: a scan reads what
// it is asked for, whatever has become of the regions. Their IDs are 0, as the gateway
// tells none, so that their names are not HBase's.
func (s *Store) Regions(ctx context.Context, table string) (*region.Map, error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return nil, fmt.Errorf("regions of %s: %w", table, err)
	}
	defer end()
	m, _, err := s.regions.get(ctx, store.CanonicalName(table))
	return m, err
}

// readRegions asks HBase where the regions of a table are. While one is split or
// merged they may not fit together, and while the table is made one may have no
// server, which the gateway has no better word for than an internal error: that passes.
func (s *Store) readRegions(ctx context.Context, table string) (m *region.Map, err error) {
	r := request{what: "regions of", table: table}
	if _, _, err := s.schemas.get(ctx, table); err != nil {
		return nil, r.fail(err) // the gateway would return no region
	}
	err = s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		locations, err := c.GetAllRegionLocations(ctx, []byte(table))
		if err != nil {
			return unserved(err)
		}
		var infos []region.Info
		for _, l := range locations {
			if l.RegionInfo.GetReplicaId() == 0 {
				infos = append(infos, region.Info{Table: table, ID: l.RegionInfo.RegionId, Start: l.RegionInfo.StartKey, Stop: l.RegionInfo.EndKey})
			}
		}
		slices.SortFunc(infos, func(a, b region.Info) int { return strings.Compare(string(a.Start), string(b.Start)) })
		if m, err = region.NewMap(table, infos); err != nil {
			return notServing(err)
		}
		return nil
	})
	return m, err
}

// forget drops what is known of a table.
func (s *Store) forget(table string) {
	s.schemas.forget(table)
	s.regions.forget(table)
}

// Tables implements store.Admin.
func (s *Store) Tables(ctx context.Context) ([]string, error) {
	var all []*hbase.TTableName
	err := s.call(ctx, request{what: "list tables"}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		all, err = c.GetTableNamesByPattern(ctx, ".*", false)
		return err
	})
	if err != nil {
		return nil, err
	}
	var names []string
	for _, t := range all {
		if name := nameOf(t); !system(name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names, nil
}

// system reports whether a table is the store's or HBase's own.
func system(table string) bool {
	ns := store.NamespaceOf(table)
	return ns == store.SystemNamespace || ns == store.HBaseNamespace
}

// change makes a call that changes a table, once.
func (s *Store) change(ctx context.Context, what, table string, f caller) error {
	return s.changeBy(ctx, request{what: what, table: table}, f)
}

// changeBy is change with a request of which what, table and whole are set.
func (s *Store) changeBy(ctx context.Context, r request, f caller) error {
	r.table, r.once, r.timeout = store.CanonicalName(r.table), true, s.o.AdminTimeout
	switch {
	case system(r.table):
		return r.fail(fmt.Errorf("%w: it is the store's own", store.ErrRefused))
	case store.CheckTableName(r.table) != nil:
		return r.fail(store.ErrTableNotFound)
	}
	defer s.forget(r.table)
	return s.call(ctx, r, f)
}

// CreateTable implements store.Admin. What HBase has made is read back: where it is
// not what was asked for the table is dropped again, and the error wraps
// store.ErrInvalidSchema; where it cannot be read the table stays. COUNTER and DISTINCT
// families with a TTL are refused with store.ErrInvalidSchema.
func (s *Store) CreateTable(ctx context.Context, t *store.TableDescriptor, splits [][]byte) error {
	t = t.Clone()
	if err := checkSchema(t); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	if system(t.Name) {
		return fmt.Errorf("create table: %w: namespace %s is not the user's", store.ErrInvalidSchema, store.NamespaceOf(t.Name))
	}
	return s.createTable(ctx, t, splits)
}

func (s *Store) createTable(ctx context.Context, t *store.TableDescriptor, splits [][]byte) error {
	keys, err := region.SplitKeys(slices.Clone(splits))
	if err != nil {
		return fmt.Errorf("create table %s: %w: %w", t.Name, store.ErrInvalidArgument, err)
	}
	r := request{what: "create table", table: t.Name, once: true, timeout: s.o.AdminTimeout}
	err = s.call(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.CreateTable(ctx, toHBase(t), keys)
	})
	s.forget(t.Name)
	switch {
	case s.o.Framed && len(keys) > 1 && errors.Is(err, errInternal):
		// Each key has become the same receive buffer, which HBase's client refuses.
		return r.fail(fmt.Errorf("%w: HBase has made no table: %s (%v)", store.ErrInvalidSchema, framedGarbles, err))
	case err != nil:
		return err
	}
	switch err := s.check(ctx, t, keys, ""); {
	case err == nil:
		return nil
	case !errors.Is(err, store.ErrInvalidSchema):
		// Another process may have found it and written to it since.
		return r.fail(fmt.Errorf("HBase has made it, but what it has made could not be read back: %w", err))
	default:
		drop := s.call(ctx, request{what: "drop table", table: t.Name, once: true, timeout: s.o.AdminTimeout}, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
			if err := c.DisableTable(ctx, tableName(t.Name)); err != nil {
				return err
			}
			return c.DeleteTable(ctx, tableName(t.Name))
		})
		s.forget(t.Name)
		return errors.Join(r.fail(err), drop)
	}
}

// check compares a table with what was asked for; keys nil = any regions; family "" = all
// of it, else that one: others may have altered the rest.
func (s *Store) check(ctx context.Context, t *store.TableDescriptor, keys [][]byte, family string) error {
	why := ""
	has, err := s.Table(ctx, t.Name)
	if err != nil {
		return err
	}
	if family != "" {
		t, has = only(t, family), only(has, family)
	}
	if why = difference(t, has); why == "" && keys != nil {
		m, err := s.Regions(ctx, t.Name)
		if err != nil {
			return err
		}
		if got := m.Splits(); !slices.EqualFunc(got, keys, slices.Equal[[]byte]) {
			why = fmt.Sprintf("it is split at %q, not at %q", got, keys)
		}
	}
	if len(why) > maxAnswer { // of a framed gateway it has the whole call
		why = strings.ToValidUTF8(why[:maxAnswer], "") + "…"
	}
	switch {
	case why == "":
		return nil
	case s.o.Framed:
		return fmt.Errorf("%w: HBase has made another table than was asked for: %s; %s", store.ErrInvalidSchema, why, framedGarbles)
	}
	return fmt.Errorf("%w: HBase has made another table than was asked for: %s", store.ErrInvalidSchema, why)
}

// only returns what a table has of a family.
func only(d *store.TableDescriptor, family string) *store.TableDescriptor {
	o := &store.TableDescriptor{Name: d.Name}
	if f := d.Family(family); f != nil {
		o.Families = []store.FamilyDescriptor{*f}
	}
	return o
}

// AlterTable implements store.Admin. What HBase has made is read back; the error
// says in what it is not what was asked for. It wraps store.ErrInvalidSchema where
// COUNTER or DISTINCT of a family would change: what HBase has of it by now reads as
// neither; and store.ErrTransient where another process has altered the table since this
// one has read it: what that has changed would be undone, with all that a family has.
//
// A change of one family is asked for as such, which HBase makes of what the table is
// then. Of other changes the last of two at once stays.
//
// With Options.Framed nothing is sent that such a gateway garbles: attributes, and the
// deletion of families. The error wraps store.ErrInvalidSchema and has the command of
// HBase's shell.
func (s *Store) AlterTable(ctx context.Context, t *store.TableDescriptor) error {
	t = t.Clone()
	if err := checkSchema(t); err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	read, known := s.schemas.known(t.Name)
	s.schemas.forget(t.Name) // another process may have altered it
	has, err := s.Table(ctx, t.Name)
	if err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	for i := range t.Families {
		f := &t.Families[i]
		if old := has.Family(f.Name); old != nil && (old.Counter != f.Counter || old.Distinct != f.Distinct) {
			return fmt.Errorf("alter table %s: %w: family %s: COUNTER and DISTINCT cannot change, as the cells that it has would be read as what they are not: add a family of another name",
				t.Name, store.ErrInvalidSchema, f.Name)
		}
	}
	if known && !(same(read, has) && same(has, read)) {
		return fmt.Errorf("alter table %s: %w: another process has altered it meanwhile: try again, from what it is now", t.Name, store.ErrTransient)
	}
	call, family := alteration(has, t)
	if s.o.Framed {
		if same(has, t) && same(t, has) {
			return nil // a gateway that was asked for it would garble what stays as it is
		}
		if err := garbled(has, t, family); err != nil {
			return err
		}
	}
	err = s.changeBy(ctx, request{what: "alter table", table: t.Name, whole: family == ""}, call)
	if err == nil {
		if err = s.check(ctx, t, nil, family); err != nil {
			err = fmt.Errorf("alter table %s: %w", t.Name, err)
		}
	}
	return err
}

func same(a, b *store.TableDescriptor) bool { return difference(a, b) == "" }

// alteration returns the call that makes t of has: that of a family, where nothing else
// differs; family is "" else.
func alteration(has, t *store.TableDescriptor) (call caller, family string) {
	whole := func(ctx context.Context, c *hbase.THBaseServiceClient) error { return c.ModifyTable(ctx, toHBase(t)) }
	without := func(d *store.TableDescriptor, families ...store.FamilyDescriptor) *store.TableDescriptor {
		d = d.Clone()
		d.Families = families
		return d
	}
	if a, b := without(has), without(t); !same(a, b) || !same(b, a) {
		return whole, ""
	}
	changes := 0
	for i := range t.Families {
		f := familyToHBase(&t.Families[i])
		old := has.Family(t.Families[i].Name)
		switch {
		case old == nil:
			call = func(ctx context.Context, c *hbase.THBaseServiceClient) error {
				return c.AddColumnFamily(ctx, tableName(t.Name), f)
			}
		case same(without(t, t.Families[i]), without(t, *old)):
			continue
		default:
			call = func(ctx context.Context, c *hbase.THBaseServiceClient) error {
				return c.ModifyColumnFamily(ctx, tableName(t.Name), f)
			}
		}
		family = t.Families[i].Name
		changes++
	}
	for i := range has.Families {
		if name := has.Families[i].Name; t.Family(name) == nil {
			family = name
			changes++
			call = func(ctx context.Context, c *hbase.THBaseServiceClient) error {
				return c.DeleteColumnFamily(ctx, tableName(t.Name), []byte(name))
			}
		}
	}
	if changes != 1 {
		return whole, ""
	}
	return call, family
}

// DropTable implements store.Admin.
func (s *Store) DropTable(ctx context.Context, name string) error {
	return s.change(ctx, "drop table", name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.DeleteTable(ctx, tableName(name))
	})
}

// EnableTable implements store.TableSwitcher.
func (s *Store) EnableTable(ctx context.Context, name string) error {
	return s.change(ctx, "enable table", name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.EnableTable(ctx, tableName(name))
	})
}

// DisableTable implements store.TableSwitcher. HBase ends running scans.
func (s *Store) DisableTable(ctx context.Context, name string) error {
	return s.change(ctx, "disable table", name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.DisableTable(ctx, tableName(name))
	})
}

// TableEnabled implements store.TableSwitcher.
func (s *Store) TableEnabled(ctx context.Context, name string) (enabled bool, err error) {
	r := request{what: "state of", table: store.CanonicalName(name)}
	if store.CheckTableName(r.table) != nil {
		return false, r.fail(store.ErrTableNotFound)
	}
	err = s.call(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		enabled, err = c.IsTableEnabled(ctx, tableName(r.table))
		return err
	})
	return enabled, err
}

// TruncateTable implements store.TableSwitcher.
func (s *Store) TruncateTable(ctx context.Context, name string, preserveSplits bool) error {
	return s.change(ctx, "truncate table", name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.TruncateTable(ctx, tableName(name), preserveSplits)
	})
}

// ensureSystemTables makes the system tables that are missing, with their
// namespace.
func (s *Store) ensureSystemTables(ctx context.Context) error {
	for _, t := range systemTables(s.o.Framed) {
		has, err := s.Table(ctx, t.Name)
		if !errors.Is(err, store.ErrTableNotFound) {
			if err == nil {
				err = inexact(has)
			}
			if err != nil {
				return err
			}
			continue
		}
		err = s.createNamespace(ctx, &store.Namespace{Name: store.SystemNamespace})
		if err == nil || errors.Is(err, store.ErrNamespaceExists) {
			err = s.createTable(ctx, t, nil)
		}
		if err != nil && !errors.Is(err, store.ErrTableExists) { // another process was faster
			return err
		}
	}
	return nil
}
