package config

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"
)

// renewedInterval is how long a file that cannot be read is not told of, at most. What
// replaces two files one after the other is done long before.
const renewedInterval = time.Minute

// Renewed are the certificates of a configuration's connections, and the passwords that it has
// from files, which something else replaces on disk while the process runs. Where what is there
// cannot be read, connections go on with what could be last, until that expires: Run tells of
// it. It is safe for concurrent use.
type Renewed struct {
	mu     sync.Mutex
	values map[string]renewable // by the settings that name their files
	failed map[string]string    // why they could not be read when Run looked last
}

type renewable interface{ Look() error }

func newRenewed() *Renewed {
	return &Renewed{values: map[string]renewable{}, failed: map[string]string{}}
}

// Renewed returns what the connections that c's methods have made read again.
func (c *Config) Renewed() *Renewed { return c.renewed }

// renewed returns the value that has this name, which is made where there is none: what
// several pipelines connect with is told of once.
func renewed[V renewable](r *Renewed, name string, read func() (V, error)) (V, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if v, ok := r.values[name].(V); ok {
		return v, nil
	}
	v, err := read()
	if err == nil {
		r.values[name] = v
	}
	return v, err
}

// secret returns what the secret at the path is now, as a function for who authenticates with
// it, or nil where it is in no file.
func (c *Config) secret(path string, first Secret) func() string {
	source, ok := c.secrets[path]
	if !ok {
		return nil
	}
	v, _ := renewed(c.renewed, path, func() (*secretFile, error) { // it was read already
		return &secretFile{last: func() string { return string(first) }, read: func() (string, error) {
			return c.interpolate(source)
		}}, nil
	})
	return v.get
}

// secretFile is a secret that is read whenever it is asked for. It prints without the secret.
type secretFile struct {
	read func() (string, error)

	mu   sync.Mutex
	last func() string // that could be read; guarded by mu
}

// Look implements renewable.
func (s *secretFile) Look() error {
	now, err := s.read()
	if err == nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.last = func() string { return now }
	}
	return err
}

func (s *secretFile) get() string {
	_ = s.Look() // Run tells of it
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last()
}

// Run looks at the files once a minute until ctx ends, and logs which cannot be read, once
// for each reason, and that they can be again.
func (r *Renewed) Run(ctx context.Context, log *slog.Logger) {
	tick := time.NewTicker(renewedInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			r.look(log)
		case <-ctx.Done():
			return
		}
	}
}

func (r *Renewed) look(log *slog.Logger) {
	r.mu.Lock()
	values := maps.Clone(r.values)
	r.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(values)) {
		reason := "" // files may hang: not under mu
		err := values[name].Look()
		if err != nil {
			reason = err.Error()
		}
		r.mu.Lock()
		before := r.failed[name]
		if delete(r.failed, name); err != nil {
			r.failed[name] = reason
		}
		r.mu.Unlock()
		switch {
		case reason == before:
		case err != nil:
			log.Warn("what has replaced a certificate or a password cannot be read: connections go on with the one before, until it expires; put the files right", "setting", name, "err", err)
		default:
			log.Info("what has replaced a certificate or a password can be read again", "setting", name)
		}
	}
}

// Unreadable returns how many of them could not be read when Run looked last.
func (r *Renewed) Unreadable() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failed)
}
