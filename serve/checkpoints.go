package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/serve/api"
	"sluice/store"
)

// checkpointsDir is the directory of checkpoints inside a data directory: on the
// same file system, as a checkpoint is hard links.
const checkpointsDir = "checkpoints"

// Bounds of a lease. An owner renews it; one that has died costs disk space for
// the rest of its lease only.
const (
	defaultLease = 2 * time.Minute
	maxLease     = time.Hour
	collectEvery = 10 * time.Second
)

// leaseSuffix is the extension of the file beside a checkpoint that says who has
// it and how long. It is written before the checkpoint and removed after it, so
// that a checkpoint without one is a crash's.
const leaseSuffix = ".json"

// checkpoints owns the directory of checkpoints and their leases.
type checkpoints struct {
	engine store.Checkpointer
	dir    string // absolute
	now    func() time.Time
	log    *slog.Logger

	mu     sync.Mutex
	leases map[string]api.Checkpoint // by id
}

// openCheckpoints takes over the checkpoints in dir: those with a lease stay, as
// an export that outlives a restart of the daemon still reads them.
func openCheckpoints(e store.Checkpointer, dir string, now func() time.Time, log *slog.Logger) (*checkpoints, error) {
	c := &checkpoints{engine: e, dir: dir, now: now, log: log, leases: map[string]api.Checkpoint{}}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return c, nil
	} else if err != nil {
		return nil, fmt.Errorf("serve: checkpoints: %w", err)
	}
	for _, e := range entries {
		id, isLease := strings.CutSuffix(e.Name(), leaseSuffix)
		if !isLease {
			continue
		}
		lease, err := readLease(filepath.Join(dir, e.Name()))
		if err != nil || lease.ID != id || lease.Path != filepath.Join(dir, id) {
			log.Warn("removing a checkpoint whose lease cannot be read", "path", e.Name(), "err", err)
			continue
		}
		// A clock that was set back must not make a lease last longer.
		if latest := now().Add(maxLease); lease.Expires.After(latest) {
			lease.Expires = latest
		}
		c.leases[id] = lease
	}
	for _, e := range entries {
		if id := strings.TrimSuffix(e.Name(), leaseSuffix); c.leases[id].ID == "" {
			if err := os.RemoveAll(filepath.Join(dir, e.Name())); err != nil {
				return nil, fmt.Errorf("serve: remove an orphaned checkpoint: %w", err)
			}
			log.Info("removed an orphaned checkpoint", "path", e.Name())
		}
	}
	return c, c.collect()
}

func readLease(path string) (lease api.Checkpoint, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return lease, err
	}
	return lease, json.Unmarshal(b, &lease)
}

// run removes checkpoints whose lease is over, until ctx ends.
func (c *checkpoints) run(ctx context.Context) {
	t := time.NewTicker(collectEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			if err := c.collect(); err != nil {
				c.log.Warn("checkpoint cannot be removed", "err", err)
			}
		}
	}
}

func (c *checkpoints) collect() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for id, lease := range c.leases {
		if c.now().Before(lease.Expires) {
			continue
		}
		c.log.Warn("removing a checkpoint whose lease was not renewed", "path", lease.Path, "owner", lease.Owner)
		errs = append(errs, c.remove(id))
	}
	return errors.Join(errs...)
}

// remove needs mu.
func (c *checkpoints) remove(id string) error {
	path := filepath.Join(c.dir, id)
	if err := os.RemoveAll(path); err != nil {
		return fmt.Errorf("remove checkpoint: %w", err)
	}
	if err := os.Remove(path + leaseSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the lease of a checkpoint: %w", err)
	}
	delete(c.leases, id)
	return nil
}

// leaseTime bounds what a client asks for.
func leaseTime(seconds float64) (time.Duration, error) {
	switch {
	case seconds == 0:
		return defaultLease, nil
	case seconds < 1 || seconds > maxLease.Seconds():
		return 0, fmt.Errorf("%w: a lease of %g s, want 1..%g", store.ErrInvalidArgument, seconds, maxLease.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// create makes a checkpoint. mu is not held while the engine works.
func (c *checkpoints) create(ctx context.Context, q *api.CheckpointRequest) (api.Checkpoint, error) {
	d, err := leaseTime(q.LeaseSeconds)
	if err != nil {
		return api.Checkpoint{}, err
	}
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return api.Checkpoint{}, fmt.Errorf("make a checkpoint: %w", err)
	}
	id := strings.ToLower(rand.Text())
	lease := api.Checkpoint{ID: id, Path: filepath.Join(c.dir, id), Owner: q.Owner, Created: c.now(), Expires: c.now().Add(d)}
	if err := c.write(&lease); err != nil {
		return api.Checkpoint{}, err
	}
	lease.Sequence, err = c.engine.Checkpoint(ctx, lease.Path)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		return api.Checkpoint{}, errors.Join(fmt.Errorf("make a checkpoint: %w", err), c.remove(id))
	}
	lease.Expires = c.now().Add(d) // it begins when there is something to lease
	if err := c.write(&lease); err != nil {
		return api.Checkpoint{}, errors.Join(err, c.remove(id))
	}
	c.leases[id] = lease
	return lease, nil
}

// write replaces the lease file whole, so that a crash leaves the old or the new.
func (c *checkpoints) write(lease *api.Checkpoint) error {
	b, err := json.Marshal(lease)
	if err == nil {
		err = writeFileAtomic(filepath.Join(c.dir, lease.ID+leaseSuffix), b)
	}
	if err != nil {
		return fmt.Errorf("write the lease of a checkpoint: %w", err)
	}
	return nil
}

func (c *checkpoints) find(id string) (api.Checkpoint, error) {
	lease, ok := c.leases[id]
	if !ok {
		return lease, fmt.Errorf("%w: checkpoint %q; its lease may be over", api.ErrNotFound, id)
	}
	return lease, nil
}

func (c *checkpoints) renew(id string, seconds float64) (api.Checkpoint, error) {
	d, err := leaseTime(seconds)
	if err != nil {
		return api.Checkpoint{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	lease, err := c.find(id)
	if err != nil {
		return lease, err
	}
	lease.Expires = c.now().Add(d)
	if err := c.write(&lease); err != nil {
		return lease, err
	}
	c.leases[id] = lease
	return lease, nil
}

func (c *checkpoints) release(id string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := c.find(id); err != nil {
		return err
	}
	return c.remove(id)
}

func (c *checkpoints) list() []api.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]api.Checkpoint, 0, len(c.leases))
	for _, lease := range c.leases {
		all = append(all, lease)
	}
	slices.SortFunc(all, func(a, b api.Checkpoint) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}

func (s *Server) withCheckpoints(do func(c *checkpoints) error) error {
	if s.checkpoints == nil {
		return s.unsupported("checkpoints")
	}
	return do(s.checkpoints)
}

func (s *Server) listCheckpoints(w http.ResponseWriter, _ *http.Request) error {
	return s.withCheckpoints(func(c *checkpoints) error {
		return writeJSON(w, http.StatusOK, map[string]any{"checkpoints": c.list()})
	})
}

func (s *Server) createCheckpoint(w http.ResponseWriter, r *http.Request) error {
	var q api.CheckpointRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.withCheckpoints(func(c *checkpoints) error {
		ctx, cancel := s.bounded(r)
		defer cancel()
		lease, err := c.create(ctx, &q)
		if err != nil {
			return err
		}
		s.o.Logger.Info("made a checkpoint", "path", lease.Path, "owner", lease.Owner, "sequence", lease.Sequence)
		return writeJSON(w, http.StatusCreated, lease)
	})
}

func (s *Server) renewCheckpoint(w http.ResponseWriter, r *http.Request) error {
	var q api.CheckpointRequest
	if err := decodeBody(r, &q); err != nil {
		return err
	}
	return s.withCheckpoints(func(c *checkpoints) error {
		lease, err := c.renew(r.PathValue("id"), q.LeaseSeconds)
		if err != nil {
			return err
		}
		return writeJSON(w, http.StatusOK, lease)
	})
}

func (s *Server) releaseCheckpoint(w http.ResponseWriter, r *http.Request) error {
	return s.withCheckpoints(func(c *checkpoints) error {
		if err := c.release(r.PathValue("id")); err != nil {
			return err
		}
		w.WriteHeader(http.StatusNoContent)
		return nil
	})
}
