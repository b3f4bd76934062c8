package checkpoint

import (
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/serve/api"
)

// A disk that does not answer holds up who writes a lease, and nobody else: not who looks, as
// /metrics does, and not the lease, which its owner renews in time.
func TestRenewOnDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openTest(t, t.TempDir(), &fakeEngine{}, nil)
		kept, err := c.Create(t.Context(), &api.CheckpointRequest{Owner: "who reads", LeaseSeconds: 60})
		if err != nil {
			t.Fatal(err)
		}
		over, err := c.Create(t.Context(), &api.CheckpointRequest{Owner: "who is gone", LeaseSeconds: 60})
		if err != nil {
			t.Fatal(err)
		}
		answer := hangOnWrites(c)
		time.Sleep(50 * time.Second)
		renewed := make(chan api.Checkpoint, 2)
		for range cap(renewed) { // the first was given up, and made again
			go func() {
				l, err := c.Renew(kept.ID, 60)
				if err != nil {
					t.Error(err)
				}
				renewed <- l
			}()
		}
		time.Sleep(5 * time.Minute)
		if got := c.List(); len(got) != 2 {
			t.Errorf("Got %+v, want both", got)
		}
		if err := c.collect(); err != nil || !exists(kept.Path) || exists(over.Path) {
			t.Errorf("Got %v; that which is renewed is there: %t, the other: %t", err, exists(kept.Path), exists(over.Path))
		}
		close(answer)
		for range cap(renewed) {
			if l := <-renewed; !l.Expires.Equal(time.Now().Add(time.Minute)) {
				t.Errorf("Got %s, want a minute from %s", l.Expires, time.Now())
			}
		}
		if l, err := readLease(kept.Path + leaseSuffix); err != nil || l.ID != kept.ID {
			t.Errorf("Got %+v, %v", l, err)
		}
		time.Sleep(time.Minute)
		if err := c.collect(); err != nil || exists(kept.Path) || len(c.List()) != 0 {
			t.Errorf("Got %v, it is there: %t", err, exists(kept.Path))
		}
	})
}

// The log says what waits for a disk: the directory that checkpoints are made in, too.
func TestCreateOnDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openTest(t, t.TempDir(), &fakeEngine{}, nil)
		var out strings.Builder
		c.log = slog.New(slog.NewTextHandler(&out, nil))
		c.mkdirAll = func(path string, perm os.FileMode) error {
			time.Sleep(90 * time.Second)
			return os.MkdirAll(path, perm)
		}
		if _, err := c.Create(t.Context(), &api.CheckpointRequest{Owner: "who reads"}); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), "directory of checkpoints"); n != 3 {
			t.Errorf("Got %d lines, want after 10 and 70 seconds, and at the end:\n%s", n, out.String())
		}
	})
}

// A checkpoint that is being removed is nobody's, and holds nobody up. Where the disk says that
// it cannot be removed, the lease is there as before.
func TestReleaseOnDiskThatHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openTest(t, t.TempDir(), &fakeEngine{}, nil)
		lease, err := c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: 60})
		if err != nil {
			t.Fatal(err)
		}
		answer := make(chan error)
		c.removeAll = func(path string) error {
			if err := <-answer; err != nil {
				return err
			}
			return os.RemoveAll(path)
		}
		released := make(chan error)
		for _, want := range []error{errors.New("bad spot"), nil} {
			go func() { released <- c.Release(lease.ID) }()
			synctest.Wait()
			if got := c.List(); len(got) != 0 {
				t.Errorf("Got %+v, want none", got)
			}
			if _, err := c.Renew(lease.ID, 60); !errors.Is(err, api.ErrNotFound) {
				t.Errorf("renew: Got %v, want ErrNotFound", err)
			}
			if err := c.Release(lease.ID); !errors.Is(err, api.ErrNotFound) {
				t.Errorf("release: Got %v, want ErrNotFound", err)
			}
			answer <- want
			if err := <-released; !errors.Is(err, want) || exists(lease.Path) != (want != nil) || exists(lease.Path+leaseSuffix) != (want != nil) {
				t.Errorf("Got %v, want %v; it is there: %t", err, want, exists(lease.Path))
			}
			if got := c.List(); (len(got) == 1) != (want != nil) {
				t.Errorf("Got %+v after %v", got, want)
			}
		}
	})
}

// What is released while its renewal waits for the disk leaves no file of a lease behind.
func TestReleaseDuringRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openTest(t, t.TempDir(), &fakeEngine{}, nil)
		lease, err := c.Create(t.Context(), &api.CheckpointRequest{LeaseSeconds: 60})
		if err != nil {
			t.Fatal(err)
		}
		answer := hangOnWrites(c)
		renewed, released := make(chan error, 1), make(chan error, 1)
		go func() { _, err := c.Renew(lease.ID, 60); renewed <- err }()
		synctest.Wait()
		go func() { released <- c.Release(lease.ID) }()
		synctest.Wait()
		close(answer)
		if err := <-released; err != nil {
			t.Error(err)
		}
		if err := <-renewed; !errors.Is(err, api.ErrNotFound) {
			t.Errorf("Got %v, want ErrNotFound", err)
		}
		if exists(lease.Path) || exists(lease.Path+leaseSuffix) {
			t.Error("something is left")
		}
	})
}

// hangOnWrites has the lease files of c written once the channel is closed, not before.
func hangOnWrites(c *Directory) (answer chan struct{}) {
	answer = make(chan struct{})
	c.writeFile = func(path string, content []byte) error {
		<-answer
		return WriteFile(path, content)
	}
	return answer
}
