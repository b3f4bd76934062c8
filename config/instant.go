package config

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"sluice/cell"
	"sluice/jobs"
	"sluice/jobs/instant"
	"sluice/serve/api"
	"sluice/serve/checkpoint"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/pebblestore"
)

var (
	_ instant.Source = (*Instant)(nil)
	_ instant.Sizer  = (*Instant)(nil)
	_ instant.Cutter = (*Instant)(nil)

	_ store.ChangeReader = (*Instant)(nil)
	_ instant.Sizer      = (*pebblestore.Snapshot)(nil)
	_ instant.Cutter     = (*pebblestore.Snapshot)(nil)
)

// Instant is every table of a store at one commit, for an export, or, where the
// engine cannot freeze an instant, an instant.Unfrozen. It is an instant.Source.
type Instant struct {
	store.Snapshot
	// Engine is the store itself, as it goes on, for who writes into it as well.
	// It is closed with the Instant.
	Engine Engine
	// Remote says that a daemon has the directory open and has the checkpoint.
	Remote bool
	// Checkpoint is the id of the checkpoint that is read, by which
	// ReopenInstant finds it; empty where none would be found.
	Checkpoint string
	files      *pebblestore.DB       // the checkpoint; nil = a snapshot of the open store
	made       uint64                // the last commit in the checkpoint when it was made; 0 = unknown
	remote     *client.Checkpoint    // nil = not Remote
	lost       atomic.Pointer[error] // why the lease of this process's checkpoint was not renewed
	kept       bool
	closers    []func() error
	log        *slog.Logger // nil = none
}

// OpenInstant freezes the configured store at one commit. Where a daemon has the
// directory open, the daemon makes a checkpoint, which is read here, so that the
// work of an export stays out of the ingest process; otherwise the directory is
// opened and a snapshot taken. log may be nil. Close the Instant.
func OpenInstant(ctx context.Context, c *Config, log *slog.Logger) (*Instant, error) {
	return openInstant(ctx, c, log, func(e Engine, in *Instant) (string, error) {
		d, ok := e.(*client.Client)
		if !ok {
			return "", nil
		}
		p, err := d.Checkpoint(ctx)
		if err != nil {
			return "", fmt.Errorf("ask the daemon for a checkpoint: %w", err)
		}
		in.lease(ctx, p)
		in.Checkpoint = ""
		return p.Path, nil
	})
}

// OpenLastingInstant is OpenInstant of an instant that outlives this process: it
// reads a checkpoint in any case, if the engine has them. When this process is
// killed, or calls Keep, ReopenInstant finds the checkpoint for an hour, and longer
// until a daemon or another such Instant looks for old ones.
func OpenLastingInstant(ctx context.Context, c *Config, log *slog.Logger) (*Instant, error) {
	return openInstant(ctx, c, log, leased(ctx, c, api.MaxLease, log))
}

// OpenJobInstant is OpenLastingInstant for a run of an export job. Where the job is
// incremental, the store is told before to know what changes from then on, so that
// the next run can be an increment.
func OpenJobInstant(ctx context.Context, c *Config, name string, log *slog.Logger) (*Instant, error) {
	spec := c.Jobs[name]
	job, err := jobs.Compile(name, &spec, nil)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", name, err)
	}
	choose := leased(ctx, c, api.MaxLease, log)
	return openInstant(ctx, c, log, func(e Engine, in *Instant) (string, error) {
		holder, _, err := jobs.HolderOf(ctx, job, e)
		if err != nil {
			return "", err
		}
		if err := jobs.HoldChanges(ctx, job, holder, time.Now()); err != nil {
			return "", err
		}
		return choose(e, in)
	})
}

// leased has an instant read a checkpoint whose lease, which is renewed, outlives this
// process: by api.MaxLease, so that ReopenInstant finds it, or by api.DefaultLease.
func leased(ctx context.Context, c *Config, lease time.Duration, log *slog.Logger) func(e Engine, in *Instant) (string, error) {
	return func(e Engine, in *Instant) (string, error) {
		if d, ok := e.(*client.Client); ok {
			ask := d.Checkpoint
			if lease == api.MaxLease {
				ask = d.LastingCheckpoint
			}
			p, err := ask(ctx)
			if err != nil {
				return "", fmt.Errorf("ask the daemon for a checkpoint: %w", err)
			}
			in.lease(ctx, p)
			return p.Path, nil
		}
		if !freezes(e) {
			u, err := instant.OpenUnfrozen(ctx, e, nil)
			if err != nil {
				return "", err
			}
			in.Snapshot, in.Checkpoint = u, u.Name()
			return "", nil
		}
		maker, ok := e.(store.Checkpointer)
		if !ok {
			return "", nil
		}
		d, err := checkpoint.Open(&checkpoint.Options{Engine: maker, Dir: c.Store.Dir, Logger: log})
		if err != nil {
			return "", err
		}
		p, err := d.Create(ctx, &api.CheckpointRequest{Owner: fmt.Sprintf("process %d", os.Getpid()), LeaseSeconds: lease.Seconds()})
		if errors.Is(err, store.ErrDiskFull) {
			if log != nil {
				log.Warn("no checkpoint: a run that is cut off will not be found again", "err", err)
			}
			return "", nil // a snapshot takes no space
		}
		if err != nil {
			return "", err
		}
		in.own(d, &p)
		in.renew(d, lease)
		return p.Path, nil
	}
}

// ReopenInstant opens the checkpoint of an OpenLastingInstant of a process that has
// ended, by its id. Its error wraps api.ErrNotFound where it is gone.
func ReopenInstant(ctx context.Context, c *Config, id string, log *slog.Logger) (*Instant, error) {
	return openInstant(ctx, c, log, func(e Engine, in *Instant) (string, error) {
		if d, ok := e.(*client.Client); ok {
			p, err := d.FindCheckpoint(ctx, id)
			if err != nil {
				return "", fmt.Errorf("ask the daemon for checkpoint %s: %w", id, err)
			}
			in.lease(ctx, p)
			return p.Path, nil
		}
		if !freezes(e) {
			u, err := instant.ReopenUnfrozen(e, id)
			if err != nil {
				return "", fmt.Errorf("%w: %w", api.ErrNotFound, err)
			}
			in.Snapshot, in.Checkpoint = u, id
			return "", nil
		}
		maker, ok := e.(store.Checkpointer)
		if !ok {
			return "", fmt.Errorf("%w: engine %s has no checkpoints", api.ErrNotFound, e.Traits().Name)
		}
		d, err := checkpoint.Open(&checkpoint.Options{Engine: maker, Dir: c.Store.Dir, Adopt: id, Logger: log})
		if err != nil {
			return "", err
		}
		p, err := d.Renew(id, api.MaxLease.Seconds())
		if err != nil {
			return "", err
		}
		in.own(d, &p)
		in.renew(d, api.MaxLease)
		return p.Path, nil
	})
}

// OpenRunInstant opens an instant of a store that this process has open, for a run
// that may be cut off: checkpoint id of d where that is still there, a new one
// otherwise. Where d is nil, or has no room for one, it is a snapshot, without a
// Checkpoint. The lease is renewed until Close; a checkpoint that was lost says so by
// Err. e and d are borrowed. log may be nil.
func OpenRunInstant(ctx context.Context, c *Config, e Engine, d *checkpoint.Directory, id string, log *slog.Logger) (*Instant, error) {
	return openRunInstant(ctx, c, e, d, id, api.MaxLease, log)
}

// OpenHeldInstant is OpenRunInstant of a new instant for readers that end with this process:
// what a killed one leaves is removed some minutes later.
func OpenHeldInstant(ctx context.Context, c *Config, e Engine, d *checkpoint.Directory, log *slog.Logger) (*Instant, error) {
	return openRunInstant(ctx, c, e, d, "", api.DefaultLease, log)
}

func openRunInstant(ctx context.Context, c *Config, e Engine, d *checkpoint.Directory, id string, lease time.Duration, log *slog.Logger) (*Instant, error) {
	in := &Instant{Engine: e, log: log}
	if !freezes(e) {
		u, err := openOrReopen(ctx, e, id)
		if err != nil {
			return nil, err
		}
		in.Snapshot, in.Checkpoint = u, u.Name()
		return in, nil
	}
	p, err := leaseForRun(ctx, d, id, lease, log)
	if err != nil {
		return nil, err
	}
	if p.ID != "" {
		in.own(d, &p)
		in.renew(d, lease)
	}
	if err := in.freeze(ctx, p.Path, c.ForScans().PebbleOptions(log)); err != nil {
		return nil, errors.Join(err, in.close())
	}
	return in, nil
}

// openOrReopen returns the source with this name, or, where that is empty, a new one.
func openOrReopen(ctx context.Context, e Engine, name string) (*instant.Unfrozen, error) {
	if name == "" {
		return instant.OpenUnfrozen(ctx, e, nil)
	}
	return instant.ReopenUnfrozen(e, name)
}

// leaseForRun leases checkpoint id, or a new one; the zero value where there is none to
// be had.
func leaseForRun(ctx context.Context, d *checkpoint.Directory, id string, lease time.Duration, log *slog.Logger) (p api.Checkpoint, err error) {
	if d == nil {
		return p, nil
	}
	if id != "" {
		if p, err = d.Renew(id, lease.Seconds()); !errors.Is(err, api.ErrNotFound) {
			return p, err
		}
	}
	p, err = d.Create(ctx, &api.CheckpointRequest{Owner: fmt.Sprintf("process %d", os.Getpid()), LeaseSeconds: lease.Seconds()})
	if errors.Is(err, store.ErrDiskFull) {
		if log != nil {
			log.Warn("no checkpoint: a run that is cut off will begin anew", "err", err)
		}
		return api.Checkpoint{}, nil // a snapshot takes no space
	}
	return p, err
}

// renew keeps the lease of this process's checkpoint until Close.
func (i *Instant) renew(d *checkpoint.Directory, lease time.Duration) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	i.closers = append(i.closers, func() error { stop(); <-done; return nil })
	go func() { // ends with Close
		defer close(done)
		t := time.NewTicker(lease / 4)
		defer t.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-t.C:
			}
			if _, err := d.Renew(i.Checkpoint, lease.Seconds()); err != nil {
				i.lost.Store(&err)
			} else {
				i.lost.Store(nil)
			}
		}
	}()
}

// openInstant opens the store, and the checkpoint that choose returns the path of,
// or a snapshot of the store itself where that is empty and choose has set none.
func openInstant(ctx context.Context, c *Config, log *slog.Logger, choose func(e Engine, in *Instant) (path string, err error)) (*Instant, error) {
	e, remote, err := OpenStore(ctx, c, log)
	if err != nil {
		return nil, err
	}
	in := &Instant{Engine: e, Remote: remote, closers: []func() error{e.Close}, log: log}
	fail := func(err error) (*Instant, error) { return nil, errors.Join(err, in.close()) }
	path, err := choose(e, in)
	if err != nil {
		return fail(err)
	}
	if err := in.freeze(ctx, path, c.PebbleOptions(log)); err != nil {
		return fail(err)
	}
	return in, nil
}

// freeze opens the checkpoint at path, and of it, or of the engine where path is
// empty, a snapshot, unless there is a Snapshot already.
func (i *Instant) freeze(ctx context.Context, path string, o *pebblestore.Options) (err error) {
	if i.Snapshot != nil {
		return nil
	}
	if !freezes(i.Engine) {
		u, err := instant.OpenUnfrozen(ctx, i.Engine, nil)
		if err != nil {
			return err
		}
		i.Snapshot = u
		return nil
	}
	var snapshotter any = i.Engine
	if path != "" {
		o.ReadOnly = true
		db, err := pebblestore.Open(path, o)
		if err != nil {
			return fmt.Errorf("open a checkpoint: %w", err)
		}
		i.closers = append(i.closers, db.Close)
		i.files, snapshotter = db, db
	}
	s, ok := snapshotter.(store.Snapshotter)
	if !ok {
		return fmt.Errorf("%w: engine %s has no snapshots", store.ErrUnsupported, i.Engine.Traits().Name)
	}
	if i.Snapshot, err = s.Snapshot(ctx); err != nil {
		return fmt.Errorf("take a snapshot: %w", err)
	}
	i.closers = append(i.closers, i.Snapshot.Close)
	// The end of a log that is damaged looks like what a crash has cut.
	if at := i.Snapshot.Sequence(); i.files != nil && i.made != 0 && at != i.made {
		return fmt.Errorf("%w: the checkpoint %s was made of commit %d, and its files end with %d: its log is damaged; make another one", store.ErrCorrupt, path, i.made, at)
	}
	return nil
}

// freezes reports whether an engine, or the daemon that has it, can freeze an
// instant.
func freezes(e Engine) bool {
	if _, remote := e.(*client.Client); remote {
		return true // it makes checkpoints, or says why not
	}
	_, ok := e.(store.Snapshotter)
	return ok
}

// Unfrozen returns what is read where the engine cannot freeze an instant, or nil.
func (i *Instant) Unfrozen() *instant.Unfrozen {
	u, _ := i.Snapshot.(*instant.Unfrozen)
	return u
}

// lease has the daemon's checkpoint released at the end.
func (i *Instant) lease(ctx context.Context, p *client.Checkpoint) {
	i.remote, i.Checkpoint, i.made = p, p.ID(), p.Sequence
	i.closers = append(i.closers, func() error {
		if i.kept {
			p.Keep()
			return nil
		}
		release, cancel := context.WithTimeout(context.WithoutCancel(ctx), daemonWait)
		defer cancel()
		i.released(p.ID(), p.Release(release))
		return nil
	})
}

// own has this process's checkpoint removed at the end.
func (i *Instant) own(d *checkpoint.Directory, p *api.Checkpoint) {
	id := p.ID
	i.Checkpoint, i.made = id, p.Sequence
	i.closers = append(i.closers, func() error {
		if i.kept {
			return nil
		}
		i.released(id, d.Release(id))
		return nil
	})
}

// released says that checkpoint id could not be given back, where err is not nil. What was
// read of it is whole all the same, and may be published by now: it is no error of Close.
func (i *Instant) released(id string, err error) {
	if err != nil && i.log != nil {
		i.log.Warn("a checkpoint stays until its lease is over", "checkpoint", id, "err", err)
	}
}

// Keep makes Close leave the checkpoint for ReopenInstant.
func (i *Instant) Keep() { i.kept = true }

// Err returns why what was read can no longer be trusted to be complete, or nil:
// ask it before publishing.
func (i *Instant) Err() error {
	if lost := i.lost.Load(); lost != nil {
		return fmt.Errorf("checkpoint %s was not kept: %w", i.Checkpoint, *lost)
	}
	if i.files != nil { // sooner known than by a renewal, which is due in minutes
		if _, err := os.Stat(i.files.Dir()); errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("the checkpoint is gone, as its lease was over before it was renewed; was this process stopped for long? Begin anew (%w)", err)
		}
	}
	if i.remote == nil {
		return nil
	}
	return i.remote.Err()
}

// ChangedRows implements store.ChangeReader where the engine's snapshot does;
// otherwise its error wraps store.ErrChangesUnknown.
func (i *Instant) ChangedRows(ctx context.Context, table string, families []string, rows cell.Range, since uint64) iter.Seq2[store.ChangedRow, error] {
	if r, ok := i.Snapshot.(store.ChangeReader); ok {
		return r.ChangedRows(ctx, table, families, rows, since)
	}
	return func(yield func(store.ChangedRow, error) bool) {
		yield(store.ChangedRow{}, fmt.Errorf("%w: engine %s does not know them", store.ErrChangesUnknown, i.Engine.Traits().Name))
	}
}

// RangeBytes implements instant.Sizer where the engine's snapshot does; otherwise its
// error wraps store.ErrUnsupported.
func (i *Instant) RangeBytes(ctx context.Context, table string, families []string, rows cell.Range) (int64, error) {
	if z, ok := i.Snapshot.(instant.Sizer); ok {
		return z.RangeBytes(ctx, table, families, rows)
	}
	return 0, fmt.Errorf("size of table %s: %w", table, store.ErrUnsupported)
}

// Cuts implements instant.Cutter where the engine's snapshot does; otherwise its error
// wraps store.ErrUnsupported.
func (i *Instant) Cuts(ctx context.Context, table string, families []string, rows cell.Range, bytes int64) ([][]byte, error) {
	if c, ok := i.Snapshot.(instant.Cutter); ok {
		return c.Cuts(ctx, table, families, rows, bytes)
	}
	return nil, fmt.Errorf("cut table %s: %w", table, store.ErrUnsupported)
}

// Close releases everything; the second call does nothing.
func (i *Instant) Close() error { return i.close() }

func (i *Instant) close() error {
	var errs []error
	for n := len(i.closers) - 1; n >= 0; n-- {
		errs = append(errs, i.closers[n]())
	}
	i.closers = nil
	return errors.Join(errs...)
}
