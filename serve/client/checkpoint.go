package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync"
	"time"

	"sluice/serve/api"
)

// renewEvery is how often a lease is renewed: api.DefaultLease, the shortest that is asked
// for, leaves time for three failed attempts.
const renewEvery = api.DefaultLease / 4

// Checkpoint is a directory of the daemon's machine that holds its store at one
// commit, for opening read-only. It lives until Release; its lease is renewed
// meanwhile.
type Checkpoint struct {
	Path     string // absolute
	Sequence uint64 // of the last commit it contains

	c     *Client
	id    string
	lease time.Duration
	stop  context.CancelFunc
	done  chan struct{}
	once  sync.Once

	mu   sync.Mutex
	lost error
}

// Checkpoint asks the daemon for a checkpoint. ctx bounds the asking only.
func (c *Client) Checkpoint(ctx context.Context) (*Checkpoint, error) {
	return c.makeCheckpoint(ctx, api.DefaultLease)
}

// LastingCheckpoint is Checkpoint, which however, when this process is killed or
// Keeps it, stays for an hour: FindCheckpoint finds it by its ID.
func (c *Client) LastingCheckpoint(ctx context.Context) (*Checkpoint, error) {
	return c.makeCheckpoint(ctx, api.MaxLease)
}

func (c *Client) makeCheckpoint(ctx context.Context, lease time.Duration) (*Checkpoint, error) {
	owner := fmt.Sprintf("process %d", os.Getpid())
	var a api.Checkpoint
	err := c.call(ctx, http.MethodPost, "/checkpoints", api.CheckpointRequest{Owner: owner, LeaseSeconds: lease.Seconds()}, &a)
	if err != nil {
		// One that was made and not heard of ends with its lease.
		return nil, outcome(ctx, err, true)
	}
	return c.holdCheckpoint(ctx, &a, lease), nil
}

// FindCheckpoint takes over a LastingCheckpoint of a process that has ended. Its
// error wraps api.ErrNotFound where the daemon does not have it any more.
func (c *Client) FindCheckpoint(ctx context.Context, id string) (*Checkpoint, error) {
	var a api.Checkpoint
	err := c.call(ctx, http.MethodPut, "/checkpoints/"+segment(id), api.CheckpointRequest{LeaseSeconds: api.MaxLease.Seconds()}, &a)
	if err != nil {
		return nil, outcome(ctx, err, true)
	}
	return c.holdCheckpoint(ctx, &a, api.MaxLease), nil
}

func (c *Client) holdCheckpoint(ctx context.Context, a *api.Checkpoint, lease time.Duration) *Checkpoint {
	renewals, stop := context.WithCancel(context.WithoutCancel(ctx))
	p := &Checkpoint{Path: a.Path, Sequence: a.Sequence, c: c, id: a.ID, lease: lease, stop: stop, done: make(chan struct{})}
	go p.renew(renewals)
	return p
}

// ID is what FindCheckpoint finds it by.
func (p *Checkpoint) ID() string { return p.id }

func (p *Checkpoint) path() string { return "/checkpoints/" + segment(p.id) }

// call asks the daemon about the checkpoint, and once more where the connection broke: both
// times it comes to the same.
func (p *Checkpoint) call(ctx context.Context, method string, body any) error {
	err := p.c.call(ctx, method, p.path(), body, nil)
	var broken *connError
	if errors.As(err, &broken) && ctx.Err() == nil && !errors.Is(err, ErrNoDaemon) {
		err = p.c.call(ctx, method, p.path(), body, nil)
	}
	return err
}

// renew keeps the lease until Release or the client's Close.
func (p *Checkpoint) renew(ctx context.Context) {
	defer close(p.done)
	t := time.NewTicker(renewEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.c.closing:
			return
		case <-t.C:
		}
		one, cancel := context.WithTimeout(ctx, renewEvery/2)
		err := p.renewOnce(one)
		cancel()
		// A daemon that restarts keeps leases, so that a broken connection is
		// no loss yet; one that does not know the lease is.
		if errors.Is(err, api.ErrNotFound) {
			p.mu.Lock()
			p.lost = fmt.Errorf("checkpoint %s: its lease is over: %w", p.Path, err)
			p.mu.Unlock()
			return
		}
	}
}

func (p *Checkpoint) renewOnce(ctx context.Context) error {
	return p.call(ctx, http.MethodPut, api.CheckpointRequest{LeaseSeconds: p.lease.Seconds()})
}

// Err returns why the checkpoint was lost before its Release, or nil. Ask it
// before publishing what was read from the checkpoint.
func (p *Checkpoint) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Keep leaves the checkpoint to its lease: a Release after it does nothing.
func (p *Checkpoint) Keep() {
	p.once.Do(func() {
		p.stop()
		<-p.done
	})
}

// Release lets the daemon remove the checkpoint. The second call does nothing.
// Should the daemon be gone, that is no error: the next one removes it when the lease is
// over.
func (p *Checkpoint) Release(ctx context.Context) error {
	var err error
	p.once.Do(func() {
		p.stop()
		<-p.done
		err = p.call(ctx, http.MethodDelete, nil)
		if errors.Is(err, api.ErrNotFound) || errors.Is(err, ErrNoDaemon) {
			err = nil
		}
		if err != nil {
			err = fmt.Errorf("release checkpoint %s: %w", p.Path, err)
		}
	})
	return err
}
