package crashfs

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Power fails beside links and logs that are used again, of which Pebble makes many, and
// nothing waits for ever.
func TestCrashBesideReuse(t *testing.T) {
	t.Parallel()
	f := New()
	const rounds = 500
	for _, name := range []string{"log", "linked"} {
		file, err := f.Create(name, vfs.WriteCategoryUnspecified)
		if err != nil {
			t.Fatal(err)
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
	}
	var workers sync.WaitGroup
	workers.Go(func() {
		for range rounds {
			file, err := f.ReuseForWrite("log", "reused", vfs.WriteCategoryUnspecified)
			if err == nil {
				err = errors.Join(file.Close(), f.Rename("reused", "log"))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	workers.Go(func() {
		for i := range rounds {
			if err := f.Link("linked", fmt.Sprint("link", i)); err != nil {
				t.Error(err)
				return
			}
		}
	})
	done := make(chan struct{})
	go func() {
		defer close(done)
		workers.Wait()
	}()
	for rng := rand.New(rand.NewPCG(1, 1)); ; {
		select {
		case <-done:
			return
		default:
			f.Crash(50, rng)
		}
	}
}

// What was synced is there afterwards, and what was not is not.
func TestCrashLeavesWhatWasSynced(t *testing.T) {
	t.Parallel()
	f := New()
	file, err := f.Create("a", vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	root, err := f.OpenDir("")
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		if _, err := file.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	write("synced")
	if err := errors.Join(file.Sync(), root.Sync()); err != nil {
		t.Fatal(err)
	}
	write(" and not")
	left := f.Crash(0, rand.New(rand.NewPCG(1, 1)))
	info, err := left.Stat("a")
	if err != nil || info.Size() != int64(len("synced")) {
		t.Errorf("Got %v, %v left, want %d bytes", info, err, len("synced"))
	}
}
