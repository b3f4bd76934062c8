package config

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"

	"sluice/store"
)

// templateMark ends the key of a table that stands for all tables whose names begin
// as it does, such as tables by day.
const templateMark = "*"

func isTemplate(key string) bool { return strings.HasSuffix(key, templateMark) }

// template returns the key of the template for a table, the longest that fits. The
// name may be a rule's, with expressions in braces: what is before the first must
// fit. Tables of another namespace have none of it.
func (c *Config) template(name string) (key string, ok bool) {
	name, _, _ = strings.Cut(store.CanonicalName(name), "{")
	longest := ""
	for _, k := range slices.Sorted(maps.Keys(c.Tables)) {
		begins := store.CanonicalName(strings.TrimSuffix(k, templateMark))
		if isTemplate(k) && len(begins) > len(longest) && strings.HasPrefix(name, begins) && store.NamespaceOf(name) == store.NamespaceOf(begins) {
			key, longest = k, begins
		}
	}
	return key, key != ""
}

// tableKey returns the key of the table, or of the template, that is meant by the name that
// a rule or job has; it is empty where the file declares none.
func (c *Config) tableKey(name string) string {
	short := store.CanonicalName(name)
	for _, key := range []string{name, short, store.DefaultNamespace + ":" + short} {
		if _, ok := c.Tables[key]; ok {
			return key
		}
	}
	key, _ := c.template(name)
	return key
}

// TableTemplate returns the schema that TableCreator's function makes a table of this name
// by, nil where the file has no template for it.
func (c *Config) TableTemplate(name string) *store.TableDescriptor {
	name = store.CanonicalName(name)
	key, ok := c.template(name)
	if !ok {
		return nil
	}
	spec, err := c.tableSpecAs(key, name)
	if err != nil {
		return nil
	}
	return spec.Descriptor
}

// TableCreator returns the function that pipelines create missing tables with:
// those for which the file has a template. Its error wraps store.ErrTableNotFound
// where it has none. nil where the file has no templates at all. log may be nil.
func (c *Config) TableCreator(e interface {
	store.Engine
	store.Admin
}, log *slog.Logger,
) func(ctx context.Context, name string) error {
	if !slices.ContainsFunc(slices.Collect(maps.Keys(c.Tables)), isTemplate) {
		return nil
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return func(ctx context.Context, name string) error {
		name = store.CanonicalName(name)
		key, ok := c.template(name)
		if !ok {
			return fmt.Errorf("%w: %s, and %s has no template for it", store.ErrTableNotFound, name, c.file)
		}
		spec, err := c.tableSpecAs(key, name)
		if err != nil { // the name, as the rest was checked
			return fmt.Errorf("%w: %s: %w", store.ErrTableNotFound, name, err)
		}
		if err := ensureNamespace(ctx, e, store.NamespaceOf(name)); err != nil {
			return err
		}
		err = e.CreateTable(ctx, spec.Descriptor, spec.Splits)
		if errors.Is(err, store.ErrTableExists) { // somebody was faster
			return nil
		}
		if err == nil {
			log.Info("created table", "table", name, "template", key)
		}
		return err
	}
}
