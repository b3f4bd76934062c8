package jobs

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path"
	"slices"
	"strings"
	"time"

	"sluice/jobs/target"
	"sluice/store"
)

// backupPrefix begins the names of the directories of backups.
const backupPrefix = "backup="

// backupDirs returns the directories of backups in a place of them, the oldest first: by
// their names, which begin with their times.
func backupDirs(ctx context.Context, t target.Target) (dirs []string, err error) {
	entries, err := t.List(ctx, ".")
	for _, e := range entries {
		if e.Dir && strings.HasPrefix(e.Name, backupPrefix) {
			dirs = append(dirs, e.Name)
		}
	}
	return dirs, err
}

// CollectBackupsOptions configures CollectBackups. Target must be set.
type CollectBackupsOptions struct {
	// Target is a place of backups.
	Target target.Target
	// Keep says which of the backups of a store stay, of each store by itself.
	// The zero value keeps all.
	Keep Keep
	// Logger tells of each removal. nil discards.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// CollectBackups removes what killed backups have left, and the backups beyond
// retention, each whole: never the one that _latest.json names nor a later one, nor
// what cannot be read, nor what may still be written. It may run at any time. It
// returns what it found; its error joins those of what could not be removed, and wraps
// store.ErrUnsupported where the target is no target.Collector.
func CollectBackups(ctx context.Context, o *CollectBackupsOptions) ([]Garbage, error) {
	t, ok := o.Target.(target.Collector)
	if !ok {
		return nil, fmt.Errorf("collect backups: %w: a target of type %T", store.ErrUnsupported, o.Target)
	}
	c := &collection{CollectOptions: CollectOptions{Target: t, Logger: o.Logger, Now: o.Now}, target: t}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	err := c.leftovers(ctx)
	if err == nil {
		err = c.backups(ctx, &o.Keep)
	}
	errs := []error{err}
	for i := range c.found {
		errs = append(errs, c.found[i].Err)
	}
	if err := errors.Join(errs...); err != nil {
		return c.found, fmt.Errorf("collect backups: %w", err)
	}
	return c.found, nil
}

// backups removes the backups that keep lets go.
func (c *collection) backups(ctx context.Context, keep *Keep) error {
	dirs, err := backupDirs(ctx, c.target)
	if err != nil {
		return err
	}
	latest, err := readLatest(ctx, c.target, ".")
	if errors.Is(err, target.ErrNotFound) {
		return nil // none is known to be the latest, so all stay
	}
	if err != nil {
		return err
	}
	var all []*BackupManifest
	for _, dir := range dirs {
		f, err := findBackup(ctx, c.target, path.Join(dir, BackupManifestName))
		if err == nil && f.manifest.Dir() != dir {
			err = fmt.Errorf("it is of %s", f.manifest.Dir())
		}
		if err != nil {
			c.found = append(c.found, Garbage{Name: dir, Reason: fmt.Sprintf("its manifest cannot be read: %v", err), Stays: true})
			continue
		}
		all = append(all, f.manifest)
	}
	slices.SortFunc(all, func(a, b *BackupManifest) int { return b.StartedAt.Compare(a.StartedAt) })
	rank := map[string]int{} // by store
	for _, m := range all {
		reason, goes := keep.lets(rank[m.StoreID], c.Now().Sub(m.FinishedAt))
		rank[m.StoreID]++
		if goes && m.StartedAt.Before(latest.LogicalTime) && m.BackupID != latest.RunID {
			c.take(ctx, Garbage{Name: m.Dir(), Bytes: m.Bytes, Reason: reason}, func() error { return c.target.Remove(ctx, m.Dir()) })
		}
	}
	return ctx.Err()
}
