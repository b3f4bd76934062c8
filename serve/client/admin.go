package client

import (
	"context"
	"fmt"
	"net/http"
	"unicode/utf8"

	"sluice/serve/api"
	"sluice/store"
)

// Tables implements store.Admin.
func (c *Client) Tables(ctx context.Context) ([]string, error) {
	var a api.TablesResponse
	if err := c.read(ctx, "/tables", &a); err != nil {
		return nil, err
	}
	return a.Tables, nil
}

// change is call for administration: repeating a lost one is answered by what is
// there by then, so it is left to the caller.
func (c *Client) change(ctx context.Context, method, path string, body any) error {
	return outcome(ctx, c.call(ctx, method, path, body, nil), false)
}

// checkTexts refuses texts that JSON cannot hold: the daemon would be asked for others.
func checkTexts(class error, of string, texts ...map[string]string) error {
	for _, m := range texts {
		for name, value := range m {
			if !utf8.ValidString(name) || !utf8.ValidString(value) {
				return fmt.Errorf("%w: %s: %q => %q is not UTF-8", class, of, name, value)
			}
		}
	}
	return nil
}

// checkTable is checkTexts of a schema, and of the names in it.
func checkTable(t *store.TableDescriptor) error {
	if !utf8.ValidString(t.Name) {
		return store.CheckTableName(t.Name)
	}
	if err := checkTexts(store.ErrInvalidSchema, "table "+t.Name, t.Attributes, t.Metadata); err != nil {
		return err
	}
	for i := range t.Families {
		f := &t.Families[i]
		if !utf8.ValidString(f.Name) {
			return fmt.Errorf("table %s: %w", t.Name, store.CheckFamilyName(f.Name))
		}
		if err := checkTexts(store.ErrInvalidSchema, "table "+t.Name+", family "+f.Name, f.Attributes, f.Metadata, f.Configuration); err != nil {
			return err
		}
	}
	return nil
}

// CreateTable implements store.Admin.
func (c *Client) CreateTable(ctx context.Context, t *store.TableDescriptor, splits [][]byte) error {
	if err := checkTable(t); err != nil {
		return fmt.Errorf("create table: %w", err)
	}
	return c.change(ctx, http.MethodPost, "/tables", api.CreateRequest{Table: api.FromTable(t), Splits: splits})
}

// AlterTable implements store.Admin.
func (c *Client) AlterTable(ctx context.Context, t *store.TableDescriptor) error {
	if err := checkTable(t); err != nil {
		return fmt.Errorf("alter table: %w", err)
	}
	return c.change(ctx, http.MethodPut, tablePath(t.Name), api.FromTable(t))
}

// DropTable implements store.Admin.
func (c *Client) DropTable(ctx context.Context, name string) error {
	if name == "" {
		return fmt.Errorf("%w: the name of the table is empty", store.ErrTableNotFound)
	}
	return c.change(ctx, http.MethodDelete, tablePath(name), nil)
}

// SplitRegion implements store.Admin.
func (c *Client) SplitRegion(ctx context.Context, table string, at []byte) error {
	return c.change(ctx, http.MethodPost, tablePath(table, "split"), api.SplitRequest{At: at})
}

// MergeRegions implements store.Admin.
func (c *Client) MergeRegions(ctx context.Context, table string, rows ...[]byte) error {
	return c.change(ctx, http.MethodPost, tablePath(table, "merge"), api.MergeRequest{Rows: rows})
}

// nameless refuses an empty name, which would make another path.
func nameless(name string, missing error) error {
	if name == "" {
		return fmt.Errorf("%w: the name is empty", missing)
	}
	return nil
}

func (c *Client) setState(ctx context.Context, name string, enabled bool) error {
	if err := nameless(name, store.ErrTableNotFound); err != nil {
		return err
	}
	return c.change(ctx, http.MethodPut, tablePath(name, "state"), api.StateRequest{Enabled: &enabled})
}

// EnableTable implements store.TableSwitcher.
func (c *Client) EnableTable(ctx context.Context, name string) error {
	return c.setState(ctx, name, true)
}

// DisableTable implements store.TableSwitcher.
func (c *Client) DisableTable(ctx context.Context, name string) error {
	return c.setState(ctx, name, false)
}

// TableEnabled implements store.TableSwitcher.
func (c *Client) TableEnabled(ctx context.Context, name string) (bool, error) {
	var a api.StateResponse
	err := nameless(name, store.ErrTableNotFound)
	if err == nil {
		err = c.read(ctx, tablePath(name, "state"), &a)
	}
	return a.Enabled, err
}

// TruncateTable implements store.TableSwitcher.
func (c *Client) TruncateTable(ctx context.Context, name string, preserveSplits bool) error {
	if err := nameless(name, store.ErrTableNotFound); err != nil {
		return err
	}
	return c.change(ctx, http.MethodPost, tablePath(name, "truncate"), api.TruncateRequest{PreserveSplits: preserveSplits})
}

func namespacePath(name string) string { return "/namespaces/" + segment(name) }

// checkNamespace is checkTexts of a namespace.
func checkNamespace(n *store.Namespace) error {
	if !utf8.ValidString(n.Name) {
		return store.CheckNamespace(n.Name)
	}
	return checkTexts(store.ErrInvalidArgument, "namespace "+n.Name, n.Properties)
}

// CreateNamespace implements store.Namespacer.
func (c *Client) CreateNamespace(ctx context.Context, n *store.Namespace) error {
	if err := checkNamespace(n); err != nil {
		return fmt.Errorf("create namespace: %w", err)
	}
	return c.change(ctx, http.MethodPost, "/namespaces", api.Namespace(*n))
}

// AlterNamespace implements store.Namespacer.
func (c *Client) AlterNamespace(ctx context.Context, n *store.Namespace) error {
	if err := nameless(n.Name, store.ErrNamespaceNotFound); err != nil {
		return err
	}
	if err := checkNamespace(n); err != nil {
		return fmt.Errorf("alter namespace: %w", err)
	}
	return c.change(ctx, http.MethodPut, namespacePath(n.Name), api.Namespace(*n))
}

// DropNamespace implements store.Namespacer.
func (c *Client) DropNamespace(ctx context.Context, name string) error {
	if err := nameless(name, store.ErrNamespaceNotFound); err != nil {
		return err
	}
	return c.change(ctx, http.MethodDelete, namespacePath(name), nil)
}

// Namespaces implements store.Namespacer.
func (c *Client) Namespaces(ctx context.Context) ([]store.Namespace, error) {
	var a api.NamespacesResponse
	if err := c.read(ctx, "/namespaces", &a); err != nil {
		return nil, err
	}
	all := make([]store.Namespace, len(a.Namespaces))
	for i := range all {
		all[i] = store.Namespace(a.Namespaces[i])
	}
	return all, nil
}

// RegionStats implements store.RegionMeter.
func (c *Client) RegionStats(ctx context.Context, table string) ([]store.RegionStats, error) {
	var a api.RegionsResponse
	err := nameless(table, store.ErrTableNotFound)
	if err == nil {
		err = c.read(ctx, tablePath(table, "regions"), &a)
	}
	if err != nil {
		return nil, err
	}
	stats := make([]store.RegionStats, len(a.Regions))
	for i := range stats {
		stats[i] = a.Regions[i].Store(table)
	}
	return stats, nil
}

// SplitPoint implements store.RegionMeter.
func (c *Client) SplitPoint(ctx context.Context, table string, row []byte) ([]byte, error) {
	var a api.PointResponse
	err := nameless(table, store.ErrTableNotFound)
	if err == nil {
		err = outcome(ctx, c.call(ctx, http.MethodPost, tablePath(table, "split_point"), api.PointRequest{Row: row}, &a), true)
	}
	return a.At, err
}
