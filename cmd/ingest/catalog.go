package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"

	"sluice/config"
	"sluice/jobs"
	"sluice/jobs/target"
	"sluice/serve"
	"sluice/serve/api"
)

// icebergCatalog finds the Iceberg tables of the jobs and joins that have one.
type icebergCatalog struct {
	cfg *config.Config
	log *slog.Logger
	out map[string]string // where each publishes
}

// icebergCatalog returns the daemon's catalog, nil where no job or join has a table.
func (d *daemon) icebergCatalog() serve.IcebergCatalog {
	c := &icebergCatalog{cfg: d.cfg, log: d.log, out: map[string]string{}}
	for _, name := range d.cfg.DeclaredNames() {
		if of, _ := d.cfg.Declared(name); of.Iceberg {
			c.out[name] = of.Out
		}
	}
	if len(c.out) == 0 {
		return nil
	}
	return c
}

// Tables implements serve.IcebergCatalog.
func (c *icebergCatalog) Tables(ctx context.Context) (names []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(c.out)) {
		_, _, err := c.Load(ctx, name)
		if errors.Is(err, api.ErrNotFound) {
			continue // it has no run yet
		}
		names = append(names, name) // where it cannot be read, who loads it gets to know why
	}
	return names, ctx.Err()
}

// Load implements serve.IcebergCatalog.
func (c *icebergCatalog) Load(ctx context.Context, table string) (location string, metadata []byte, err error) {
	out, ok := c.out[table]
	if !ok {
		return "", nil, fmt.Errorf("%w: table %s: no job or join of this name has iceberg", api.ErrNotFound, table)
	}
	t, err := c.cfg.OpenTarget(out, false, c.log)
	if err == nil {
		location, metadata, err = jobs.IcebergMetadata(ctx, t, table)
		err = errors.Join(err, t.Close())
	}
	if errors.Is(err, target.ErrNotFound) {
		return "", nil, fmt.Errorf("%w: table %s: it has no snapshot yet: %w", api.ErrNotFound, table, err)
	}
	return location, metadata, err
}
