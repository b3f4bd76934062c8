//go:build unix

package filelock

import (
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// TestTakeBesideForks: a file that was closed can be locked at once, also while this
// process starts others, which have copies of its open files until they are what they
// are to be.
func TestTakeBesideForks(t *testing.T) {
	t.Parallel()
	name, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	stop := make(chan struct{})
	var forking sync.WaitGroup
	forking.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if out, err := exec.Command(name, "-test.run=^$").CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
				return
			}
		}
	})
	defer forking.Wait()
	defer close(stop)
	at := filepath.Join(t.TempDir(), "lock")
	for i := range 20_000 {
		f, err := os.Create(at)
		if err != nil {
			t.Fatal(err)
		}
		if err := Take(f); err != nil {
			t.Fatalf("at the %d. time: %v", i, err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
