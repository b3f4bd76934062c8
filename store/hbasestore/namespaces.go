package hbasestore

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

var _ store.Namespacer = (*Store)(nil)

func namespace(n *store.Namespace) *hbase.TNamespaceDescriptor {
	return &hbase.TNamespaceDescriptor{Name: n.Name, Configuration: maps.Clone(n.Properties)}
}

// changeNamespace makes a call that changes a namespace, once.
func (s *Store) changeNamespace(ctx context.Context, what, name string, f caller) error {
	r := request{what: what + " namespace", table: name, once: true, timeout: s.o.AdminTimeout}
	if err := store.CheckNamespace(name); err != nil {
		return r.fail(err)
	}
	return s.call(ctx, r, f)
}

// CreateNamespace implements store.Namespacer.
func (s *Store) CreateNamespace(ctx context.Context, n *store.Namespace) error {
	if n.Name == store.SystemNamespace {
		return fmt.Errorf("create namespace: %w: %s is the store's own", store.ErrConstraint, n.Name)
	}
	return s.createNamespace(ctx, n)
}

func (s *Store) createNamespace(ctx context.Context, n *store.Namespace) error {
	return s.changeNamespace(ctx, "create", n.Name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.CreateNamespace(ctx, namespace(n))
	})
}

// AlterNamespace implements store.Namespacer.
func (s *Store) AlterNamespace(ctx context.Context, n *store.Namespace) error {
	if store.Predefined(n.Name) { // HBase would change its own
		return fmt.Errorf("alter namespace: %w: reserved namespace %s cannot be changed", store.ErrConstraint, n.Name)
	}
	return s.changeNamespace(ctx, "alter", n.Name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.ModifyNamespace(ctx, namespace(n))
	})
}

// DropNamespace implements store.Namespacer.
func (s *Store) DropNamespace(ctx context.Context, name string) error {
	if store.Predefined(name) {
		return fmt.Errorf("drop namespace: %w: reserved namespace %s cannot be removed", store.ErrConstraint, name)
	}
	return s.changeNamespace(ctx, "drop", name, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
		return c.DeleteNamespace(ctx, name)
	})
}

// Namespaces implements store.Namespacer.
func (s *Store) Namespaces(ctx context.Context) ([]store.Namespace, error) {
	var all []*hbase.TNamespaceDescriptor
	err := s.call(ctx, request{what: "list namespaces"}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		all, err = c.ListNamespaceDescriptors(ctx)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []store.Namespace
	for _, n := range all {
		if n.Name == store.SystemNamespace {
			continue
		}
		own := store.Namespace{Name: n.Name}
		if len(n.Configuration) > 0 {
			own.Properties = n.Configuration
		}
		out = append(out, own)
	}
	slices.SortFunc(out, func(a, b store.Namespace) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}
