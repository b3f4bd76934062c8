package checkpoint

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice/serve/api"
	"sluice/store"
)

// fakeEngine makes checkpoints of one file.
type fakeEngine struct{ err error }

func (f *fakeEngine) Checkpoint(_ context.Context, dir string) (uint64, error) {
	if f.err != nil {
		return 0, f.err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return 0, err
	}
	return 42, os.WriteFile(filepath.Join(dir, "data"), nil, 0o600)
}

// A lease is renewed where its file cannot be written: a full disk must not take the checkpoint
// from an export that reads it.
func TestRenewOnFullDisk(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{time.UnixMilli(1e12)}
	c := openTest(t, t.TempDir(), &fakeEngine{}, clock)
	lease, err := c.Create(t.Context(), &api.CheckpointRequest{Owner: "me", LeaseSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	file := lease.Path + leaseSuffix
	if err := errors.Join(os.Remove(file), os.MkdirAll(filepath.Join(file, "in the way"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		clock.t = clock.t.Add(50 * time.Second)
		if _, err := c.Renew(lease.ID, 60); err != nil {
			t.Fatal(err)
		}
		if err := c.collect(); err != nil || !exists(filepath.Join(lease.Path, "data")) {
			t.Fatalf("the checkpoint is gone (%v)", err)
		}
	}
}

// What a full disk has for leases and their directory is the error of a full disk, as what the
// engine has is: HTTP has a status for it.
func TestDiskFull(t *testing.T) {
	t.Parallel()
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		err := diskFull(&os.PathError{Op: "mkdir", Path: "checkpoints", Err: errno})
		if !errors.Is(err, store.ErrDiskFull) || !errors.Is(err, errno) || !strings.Contains(err.Error(), "mkdir checkpoints") {
			t.Errorf("Got %v", err)
		}
	}
	if err := diskFull(os.ErrPermission); err != os.ErrPermission {
		t.Errorf("Got %v", err)
	}
}

type fakeClock struct{ t time.Time }

func (c *fakeClock) now() time.Time { return c.t }

func openTest(t *testing.T, dir string, e store.Checkpointer, c *fakeClock) *Directory {
	t.Helper()
	return adoptTest(t, dir, e, c, "")
}

func adoptTest(t *testing.T, dir string, e store.Checkpointer, c *fakeClock, id string) *Directory {
	t.Helper()
	o := &Options{Engine: e, Dir: dir, Adopt: id}
	if c != nil {
		o.Now = c.now
	}
	cp, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return cp
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func TestCheckpointLives(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{time.UnixMilli(1e12)}
	dir := t.TempDir()
	c := openTest(t, dir, &fakeEngine{}, clock)
	lease, err := c.Create(t.Context(), &api.CheckpointRequest{Owner: "me", LeaseSeconds: 60})
	if err != nil {
		t.Fatal(err)
	}
	if lease.Sequence != 42 || lease.Path != filepath.Join(dir, subdirectory, lease.ID) || !exists(filepath.Join(lease.Path, "data")) {
		t.Errorf("Got %+v", lease)
	}
	clock.t = clock.t.Add(59 * time.Second)
	if _, err := c.Renew(lease.ID, 60); err != nil {
		t.Fatal(err)
	}
	clock.t = clock.t.Add(59 * time.Second)
	if err := c.collect(); err != nil || !exists(lease.Path) {
		t.Errorf("a renewed checkpoint was collected (%v)", err)
	}
	clock.t = clock.t.Add(time.Second)
	if err := c.collect(); err != nil || exists(lease.Path) || exists(lease.Path+leaseSuffix) {
		t.Errorf("a checkpoint outlives its lease (%v)", err)
	}
	if _, err := c.Renew(lease.ID, 60); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("renew after the end: Got %v", err)
	}
	if err := c.Release(lease.ID); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("release after the end: Got %v", err)
	}
}

func TestCheckpointIsReleased(t *testing.T) {
	t.Parallel()
	c := openTest(t, filepath.Join(t.TempDir(), "c"), &fakeEngine{}, &fakeClock{time.UnixMilli(1e12)})
	lease, err := c.Create(t.Context(), &api.CheckpointRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if got := c.List(); len(got) != 1 || got[0].ID != lease.ID {
		t.Errorf("list: Got %+v", got)
	}
	if err := c.Release(lease.ID); err != nil || exists(lease.Path) || len(c.List()) != 0 {
		t.Errorf("release: Got %v, directory there: %t", err, exists(lease.Path))
	}
}

// TestCheckpointsAfterACrash: what has a lease stays, what has none goes.
func TestCheckpointsAfterACrash(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{time.UnixMilli(1e12)}
	dir := t.TempDir()
	c := openTest(t, dir, &fakeEngine{}, clock)
	var leases []api.Checkpoint
	for _, seconds := range []float64{10, 100, 100, 100} {
		lease, err := c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: seconds})
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	over, kept, torn, orphan := leases[0], leases[1], leases[2], leases[3]
	if err := os.WriteFile(torn.Path+leaseSuffix, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(orphan.Path + leaseSuffix); err != nil {
		t.Fatal(err)
	}
	clock.t = clock.t.Add(20 * time.Second)
	c = openTest(t, dir, &fakeEngine{}, clock)
	for _, gone := range []api.Checkpoint{over, torn, orphan} {
		if exists(gone.Path) || exists(gone.Path+leaseSuffix) {
			t.Errorf("checkpoint %s is still there", gone.ID)
		}
	}
	if got := c.List(); len(got) != 1 || got[0].ID != kept.ID || !exists(kept.Path) {
		t.Errorf("Got %+v, want only %s", got, kept.ID)
	}
	// The clock is set back: the lease does not last longer than any may.
	clock.t = clock.t.Add(-100 * 24 * time.Hour)
	c = openTest(t, dir, &fakeEngine{}, clock)
	clock.t = clock.t.Add(api.MaxLease)
	if err := c.collect(); err != nil || exists(kept.Path) {
		t.Errorf("a clock that was set back keeps a checkpoint (%v)", err)
	}
}

func TestCheckpointFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openTest(t, dir, &fakeEngine{err: store.ErrDiskFull}, &fakeClock{time.UnixMilli(1e12)})
	if _, err := c.Create(t.Context(), &api.CheckpointRequest{}); !errors.Is(err, store.ErrDiskFull) {
		t.Errorf("Got %v, want ErrDiskFull", err)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, subdirectory)); err != nil || len(entries) != 0 {
		t.Errorf("left behind: %v", entries)
	}
	for _, seconds := range []float64{-1, 0.5, 3601} {
		if _, err := c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: seconds}); !errors.Is(err, store.ErrInvalidArgument) {
			t.Errorf("lease of %v s: Got %v, want ErrInvalidArgument", seconds, err)
		}
	}
}

// TestCheckpointIsAdopted: a checkpoint of a killed process is found by its id, even
// when its lease is over, as long as it is there.
func TestCheckpointIsAdopted(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{time.UnixMilli(1e12)}
	dir := t.TempDir()
	c := openTest(t, dir, &fakeEngine{}, clock)
	lease, err := c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: 10})
	if err != nil {
		t.Fatal(err)
	}
	clock.t = clock.t.Add(time.Hour)
	c = adoptTest(t, dir, &fakeEngine{}, clock, lease.ID)
	got, err := c.Renew(lease.ID, 60)
	if err != nil || got.Path != lease.Path || got.Sequence != 42 || !exists(lease.Path) {
		t.Errorf("Got %+v, %v, want %+v", got, err, lease)
	}
	if err := os.RemoveAll(lease.Path); err != nil {
		t.Fatal(err)
	}
	c = adoptTest(t, dir, &fakeEngine{}, clock, lease.ID)
	if _, err := c.Renew(lease.ID, 60); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("the directory is gone: Got %v, want ErrNotFound", err)
	}
	if exists(lease.Path + leaseSuffix) {
		t.Error("the lease of no checkpoint is still there")
	}
}

// A lease that cannot be read now takes no checkpoint from who reads it: it is renewed, or
// over after a while. One that is damaged keeps none but that which is adopted.
func TestUnreadableLease(t *testing.T) {
	t.Parallel()
	clock := &fakeClock{time.UnixMilli(1e12)}
	dir := t.TempDir()
	c := openTest(t, dir, &fakeEngine{}, clock)
	var leases [3]api.Checkpoint
	for i := range leases {
		var err error
		if leases[i], err = c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: 100}); err != nil {
			t.Fatal(err)
		}
	}
	renewed, left, torn := leases[0], leases[1], leases[2]
	for _, l := range []api.Checkpoint{renewed, left} {
		if err := errors.Join(os.Remove(l.Path+leaseSuffix), os.Mkdir(l.Path+leaseSuffix, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(torn.Path+leaseSuffix, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c = adoptTest(t, dir, &fakeEngine{}, clock, torn.ID)
	for _, l := range leases {
		if !exists(filepath.Join(l.Path, "data")) {
			t.Errorf("checkpoint %s is gone", l.ID)
		}
	}
	clock.t = clock.t.Add(api.DefaultLease - time.Second)
	if _, err := c.Renew(renewed.ID, 60); err != nil {
		t.Error(err)
	}
	clock.t = clock.t.Add(time.Second)
	if err := c.collect(); err != nil {
		t.Error(err)
	}
	if !exists(renewed.Path) || exists(left.Path) || exists(left.Path+leaseSuffix) {
		t.Errorf("Got %t, %t. Want the checkpoint that was renewed alone", exists(renewed.Path), exists(left.Path))
	}
}
