// Package checkpoint keeps the checkpoints of a data directory: directories that
// each hold the store at one commit, with a lease that says who reads them and how
// long. A lease is a file beside its checkpoint, so that it outlives the process
// that made it: a daemon that starts takes over what was leased before, and a tool
// finds the checkpoint of one that was killed.
//
// A Directory belongs to the process that has the data directory open, and is safe
// for concurrent use. It borrows the engine.
package checkpoint

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice/internal/overdue"
	"sluice/serve/api"
	"sluice/store"
)

// subdirectory is where the checkpoints of a data directory are.
const subdirectory = "checkpoints"

// collectEvery is how often Run looks for leases that are over.
const collectEvery = 10 * time.Second

// leaseSuffix is the extension of the file beside a checkpoint that says who has
// it and how long. It is written before the checkpoint and removed after it, so
// that a checkpoint without one is a crash's.
const leaseSuffix = ".json"

// Options configures Open. Engine and Dir must be set.
type Options struct {
	// Engine makes the checkpoints; it has Dir open.
	Engine store.Checkpointer
	// Dir is the data directory. Checkpoints are in its "checkpoints"
	// directory: on the same file system, as a checkpoint is hard links.
	Dir string
	// Adopt is the id of a checkpoint that gets a new lease of api.MaxLease, even if
	// its own is over, where it is still there. Empty = none.
	Adopt string
	// Now is the clock. Default: time.Now.
	Now func() time.Time
	// Logger tells of what is removed. nil discards.
	Logger *slog.Logger
}

// Directory is the checkpoints of a data directory and their leases.
type Directory struct {
	engine store.Checkpointer
	dir    string // absolute
	now    func() time.Time
	log    *slog.Logger

	writeFile func(path string, content []byte) error   // WriteFile, but in tests
	removeAll func(path string) error                   // os.RemoveAll, but in tests
	mkdirAll  func(path string, perm os.FileMode) error // os.MkdirAll, but in tests

	mu     sync.Mutex        // never held while the disk works, which may not answer
	leases map[string]*lease // by id
}

// lease is a checkpoint that somebody has. Directory.mu guards what changes.
type lease struct {
	api.Checkpoint      // its Expires changes
	renewals       int  // that wait for the disk: the lease is not over meanwhile
	removed        bool // or about to be

	files chan struct{} // holds one token while its files are written or removed
}

func newLease(of *api.Checkpoint) *lease {
	return &lease{Checkpoint: *of, files: make(chan struct{}, 1)}
}

// Open takes over the checkpoints that are there: those with a lease stay, as an
// export that outlives a restart of the daemon still reads them; others go, and so
// do those whose lease is over, or is damaged, as it is where the machine has died.
func Open(o *Options) (*Directory, error) {
	dir, err := filepath.Abs(filepath.Join(o.Dir, subdirectory))
	if err != nil {
		return nil, fmt.Errorf("checkpoint directory: %w", err)
	}
	c := &Directory{engine: o.Engine, dir: dir, now: o.Now, log: o.Logger, writeFile: WriteFile, removeAll: os.RemoveAll, mkdirAll: os.MkdirAll, leases: map[string]*lease{}}
	if c.now == nil {
		c.now = time.Now
	}
	if c.log == nil {
		c.log = slog.New(slog.DiscardHandler)
	}
	done := overdue.Tell(c.log, "read the leases of checkpoints", "path", c.dir)
	defer done()
	if err := c.takeOver(o.Adopt); err != nil {
		return nil, err
	}
	return c, c.collect()
}

// errOtherLease: a lease can be read, and is of another checkpoint.
var errOtherLease = errors.New("it names another checkpoint, or one in another directory")

// errUnread: nobody knows what is in the file of a lease, as the disk does not tell now.
var errUnread = errors.New("read a lease")

// takeOver reads the leases and removes what has none.
func (c *Directory) takeOver(adopt string) error {
	entries, err := os.ReadDir(c.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return fmt.Errorf("checkpoints: %w", err)
	}
	for _, e := range entries {
		id, isLease := strings.CutSuffix(e.Name(), leaseSuffix)
		if !isLease {
			continue
		}
		was, err := readLease(filepath.Join(c.dir, e.Name()))
		if errors.Is(err, errUnread) || err != nil && id == adopt {
			// Somebody may read the checkpoint, and renews the lease then.
			was = api.Checkpoint{ID: id, Path: filepath.Join(c.dir, id), Owner: "unknown", Created: c.now(), Expires: c.now().Add(api.DefaultLease)}
			c.log.Warn("a checkpoint whose lease cannot be read is kept for as long as a new lease", "path", was.Path, "err", err)
			err = nil
		}
		if err != nil || was.ID != id || was.Path != filepath.Join(c.dir, id) {
			c.log.Warn("removing a checkpoint whose lease cannot be read", "path", e.Name(), "err", cmp.Or(err, errOtherLease))
			continue
		}
		// A clock that was set back must not make a lease last longer.
		if latest := c.now().Add(api.MaxLease); was.Expires.After(latest) || id == adopt {
			was.Expires = latest
		}
		if _, err := os.Stat(was.Path); errors.Is(err, fs.ErrNotExist) {
			continue // a crash came between the two
		}
		c.leases[id] = newLease(&was)
	}
	for _, e := range entries {
		if id := strings.TrimSuffix(e.Name(), leaseSuffix); c.leases[id] == nil {
			if err := os.RemoveAll(filepath.Join(c.dir, e.Name())); err != nil {
				return fmt.Errorf("remove an orphaned checkpoint: %w", err)
			}
			c.log.Info("removed an orphaned checkpoint", "path", e.Name())
		}
	}
	return nil
}

func readLease(path string) (lease api.Checkpoint, err error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return lease, fmt.Errorf("%w: %w", errUnread, err)
	}
	if err := json.Unmarshal(b, &lease); err != nil {
		return lease, fmt.Errorf("%s: %w", path, err)
	}
	return lease, nil
}

// Run removes checkpoints whose lease is over, until ctx ends.
func (c *Directory) Run(ctx context.Context) {
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

func (c *Directory) collect() error {
	var errs []error
	for _, l := range c.over() {
		c.log.Warn("removing a checkpoint whose lease was not renewed", "path", l.Path, "owner", l.Owner)
		errs = append(errs, c.remove(l))
	}
	return errors.Join(errs...)
}

// over takes the checkpoints whose lease is over from who had them.
func (c *Directory) over() (over []*lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.leases {
		if !l.removed && l.renewals == 0 && !c.now().Before(l.Expires) {
			l.removed = true
			over = append(over, l)
		}
	}
	return over
}

// remove removes a checkpoint that nobody has any more; where it cannot, the lease stays.
func (c *Directory) remove(l *lease) error {
	l.files <- struct{}{}
	err := c.removeFiles(l.ID)
	<-l.files
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		l.removed = false
		return err
	}
	delete(c.leases, l.ID)
	return nil
}

func (c *Directory) removeFiles(id string) error {
	path := filepath.Join(c.dir, id)
	done := overdue.Tell(c.log, "remove a checkpoint", "path", path)
	defer done()
	if err := c.removeAll(path); err != nil {
		return fmt.Errorf("remove checkpoint: %w", err)
	}
	if err := os.Remove(path + leaseSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the lease of a checkpoint: %w", err)
	}
	return nil
}

// leaseTime bounds what a client asks for.
func leaseTime(seconds float64) (time.Duration, error) {
	switch {
	case seconds == 0:
		return api.DefaultLease, nil
	case seconds < 1 || seconds > api.MaxLease.Seconds():
		return 0, fmt.Errorf("%w: a lease of %g s, want 1..%g", store.ErrInvalidArgument, seconds, api.MaxLease.Seconds())
	}
	return time.Duration(seconds * float64(time.Second)), nil
}

// Create makes a checkpoint for the owner that q names.
func (c *Directory) Create(ctx context.Context, q *api.CheckpointRequest) (api.Checkpoint, error) {
	d, err := leaseTime(q.LeaseSeconds)
	if err != nil {
		return api.Checkpoint{}, err
	}
	done := overdue.Tell(c.log, "make the directory of checkpoints", "path", c.dir)
	err = c.mkdirAll(c.dir, 0o700)
	done()
	if err != nil {
		return api.Checkpoint{}, fmt.Errorf("make a checkpoint: %w", diskFull(err))
	}
	id := strings.ToLower(rand.Text())
	l := newLease(&api.Checkpoint{ID: id, Path: filepath.Join(c.dir, id), Owner: q.Owner, Created: c.now(), Expires: c.now().Add(d)})
	if err := c.write(&l.Checkpoint); err != nil {
		return api.Checkpoint{}, err
	}
	if l.Sequence, err = c.engine.Checkpoint(ctx, l.Path); err != nil {
		err = fmt.Errorf("make a checkpoint: %w", err)
	} else {
		l.Expires = c.now().Add(d) // it begins when there is something to lease
		err = c.write(&l.Checkpoint)
	}
	if err != nil {
		return api.Checkpoint{}, errors.Join(err, c.removeFiles(id))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.Expires = c.now().Add(d)
	c.leases[id] = l
	return l.Checkpoint, nil
}

// write replaces the lease file whole, so that a crash leaves the old or the new.
func (c *Directory) write(lease *api.Checkpoint) error {
	done := overdue.Tell(c.log, "write the lease of a checkpoint", "path", c.dir)
	defer done()
	b, err := json.Marshal(lease)
	if err == nil {
		err = c.writeFile(filepath.Join(c.dir, lease.ID+leaseSuffix), b)
	}
	if err != nil {
		return fmt.Errorf("write the lease of a checkpoint: %w", diskFull(err))
	}
	return nil
}

// diskFull says of an error of a full disk, or a full quota, that it is one, and what to do.
func diskFull(err error) error {
	if store.NoSpace(err) {
		return fmt.Errorf("%w: free some space, or remove files where there is some: %w", store.ErrDiskFull, err)
	}
	return err
}

// find needs mu.
func (c *Directory) find(id string) (*lease, error) {
	l := c.leases[id]
	if l == nil || l.removed {
		return nil, fmt.Errorf("%w: checkpoint %q; its lease may be over", api.ErrNotFound, id)
	}
	return l, nil
}

// Renew gives a checkpoint a new lease from now; 0 seconds is the default of two
// minutes. Its error wraps api.ErrNotFound. Where the lease's file cannot be written, as on a
// full disk, this process keeps the checkpoint all the same: who reads it needs no space. So it
// does while the disk does not answer, which Renew waits for: the lease is not over before.
func (c *Directory) Renew(id string, seconds float64) (api.Checkpoint, error) {
	d, err := leaseTime(seconds)
	if err != nil {
		return api.Checkpoint{}, err
	}
	c.mu.Lock()
	l, err := c.find(id)
	if err != nil {
		c.mu.Unlock()
		return api.Checkpoint{}, err
	}
	l.Expires = c.now().Add(d)
	l.renewals++
	c.mu.Unlock()
	if err := c.rewrite(l); err != nil {
		c.log.Warn("a checkpoint is kept until this process ends, not beyond", "path", l.Path, "err", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	l.renewals--
	l.Expires = c.now().Add(d) // from the answer on
	if _, err := c.find(id); err != nil {
		return api.Checkpoint{}, err // it was released meanwhile
	}
	return l.Checkpoint, nil
}

// rewrite writes a lease as it is now.
func (c *Directory) rewrite(l *lease) error {
	l.files <- struct{}{}
	defer func() { <-l.files }()
	c.mu.Lock()
	now, removed := l.Checkpoint, l.removed
	c.mu.Unlock()
	if removed {
		return nil
	}
	return c.write(&now)
}

// Release removes a checkpoint. Its error wraps api.ErrNotFound.
func (c *Directory) Release(id string) error {
	c.mu.Lock()
	l, err := c.find(id)
	if err == nil {
		l.removed = true
	}
	c.mu.Unlock()
	if err != nil {
		return err
	}
	return c.remove(l)
}

// List returns the checkpoints with a lease, the oldest first.
func (c *Directory) List() []api.Checkpoint {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]api.Checkpoint, 0, len(c.leases))
	for _, l := range c.leases {
		if !l.removed {
			all = append(all, l.Checkpoint)
		}
	}
	slices.SortFunc(all, func(a, b api.Checkpoint) int {
		return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
	})
	return all
}

// WriteFile replaces the file at path whole, readable by its owner only. It is not
// synced: after a power loss the process that the file speaks of is gone, too.
func WriteFile(path string, content []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.tmp") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}
