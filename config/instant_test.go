package config_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/jobs/instant"
	"sluice/serve/api"
	"sluice/store"
)

func countRows(t *testing.T, in *config.Instant) int {
	t.Helper()
	n := 0
	sc := in.Scan(t.Context(), &store.Scan{Table: "events"})
	for sc.Next() {
		n++
	}
	if err := errors.Join(sc.Err(), sc.Close(), in.Err()); err != nil {
		t.Error(err)
	}
	return n
}

// TestLastingInstant: what one process kept, another finds, with or without a
// daemon on either side, and as it was.
func TestLastingInstant(t *testing.T) {
	t.Parallel()
	for _, before := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
			useStore(t, c, "a")
			stop := func() {}
			if before {
				stop = daemon(t, c)
			}
			in, err := config.OpenLastingInstant(t.Context(), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			id, sequence := in.Checkpoint, in.Sequence()
			if id == "" || in.Remote != before {
				t.Errorf("daemon %t: Got checkpoint %q, remote %t", before, id, in.Remote)
			}
			in.Keep()
			if err := in.Close(); err != nil {
				t.Error(err)
			}
			if before && !after {
				stop()
			}
			useStore(t, c, "b")
			if after && !before {
				daemon(t, c)
			}
			again, err := config.ReopenInstant(t.Context(), c, id, nil)
			if err != nil {
				t.Fatalf("daemon %t, then %t: %v", before, after, err)
			}
			if n := countRows(t, again); n != 1 || again.Checkpoint != id || again.Sequence() != sequence {
				t.Errorf("Got %d rows of checkpoint %s at %d, want 1 of %s at %d", n, again.Checkpoint, again.Sequence(), id, sequence)
			}
			if err := again.Close(); err != nil {
				t.Error(err)
			}
			for _, gone := range []string{id, "never", "../events", ""} {
				if in, err := config.ReopenInstant(t.Context(), c, gone, nil); !errors.Is(err, api.ErrNotFound) {
					t.Errorf("checkpoint %q: Got %v, %v, want ErrNotFound", gone, in, err)
				}
			}
		}
	}
}

// TestInstantOfDamagedCheckpoint: a checkpoint whose last commit cannot be read any more is
// not taken for one that was made before it.
func TestInstantOfDamagedCheckpoint(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	c.Store.Sync = "never" // nothing in the log says of this commit that it was on disk
	daemon(t, c)
	useStore(t, c, "a row")
	in, err := config.OpenLastingInstant(t.Context(), c, nil)
	if err != nil {
		t.Fatal(err)
	}
	in.Keep()
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	logs, err := filepath.Glob(filepath.Join(c.Store.Dir, "checkpoints", in.Checkpoint, "*.log"))
	if err != nil || len(logs) != 1 {
		t.Fatalf("Got the logs %v, %v, want one", logs, err)
	}
	data, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(data, []byte("a row"))
	if at < 0 {
		t.Fatal("the row is not in the log")
	}
	data[at] ^= 1
	if err := os.WriteFile(logs[0], data, 0o600); err != nil {
		t.Fatal(err)
	}
	if again, err := config.ReopenInstant(t.Context(), c, in.Checkpoint, nil); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Got %v, want ErrCorrupt", err)
		if err == nil {
			t.Errorf("it was of commit %d, and is of %d now", in.Sequence(), again.Sequence())
			again.Close()
		}
	}
}

// TestInstantOutlivesDaemon: what was read of an instant is whole where its daemon ends
// meanwhile. That it does not take the checkpoint back is no error of who has read it.
func TestInstantOutlivesDaemon(t *testing.T) {
	t.Parallel()
	for name, open := range map[string]func(ctx context.Context, c *config.Config, log *slog.Logger) (*config.Instant, error){
		"short":   config.OpenInstant,
		"lasting": config.OpenLastingInstant,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
			useStore(t, c, "a")
			stop := daemon(t, c)
			in, err := open(t.Context(), c, nil)
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if n := countRows(t, in); n != 1 {
				t.Errorf("Got %d rows, want 1", n)
			}
			if err := in.Close(); err != nil {
				t.Errorf("Got %v, want the checkpoint left to its lease", err)
			}
		})
	}
}

// TestInstantCuts: the instants of the embedded store, snapshot or checkpoint, are cut by
// size; those of one that cannot freeze an instant are not.
func TestInstantCuts(t *testing.T) {
	t.Parallel()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	for i := range 40 {
		useStore(t, c, fmt.Sprintf("a%02d", i)) // closing the store writes it to files
	}
	for name, open := range map[string]func() (*config.Instant, error){
		"snapshot":   func() (*config.Instant, error) { return config.OpenInstant(t.Context(), c, nil) },
		"checkpoint": func() (*config.Instant, error) { return config.OpenLastingInstant(t.Context(), c, nil) },
	} {
		in, err := open()
		if err != nil {
			t.Fatal(err)
		}
		cuts, err := in.Cuts(t.Context(), "events", nil, cell.Range{Stop: []byte("m")}, 1)
		if err != nil || len(cuts) == 0 || string(cuts[0]) <= "a00" || string(cuts[0]) > "a39" {
			t.Errorf("%s: Got %q, %v", name, cuts, err)
		}
		in.Snapshot = &instant.Unfrozen{}
		if cuts, err := in.Cuts(t.Context(), "events", nil, cell.Range{}, 1); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: Got %q, %v of one that is not frozen", name, cuts, err)
		}
		if err := in.Close(); err != nil {
			t.Error(err)
		}
	}
}

// storeOfOne has a store with row "a", which a daemon has open where beside says so.
func storeOfOne(t *testing.T, beside bool) *config.Config {
	t.Helper()
	c := parse(t, filepath.Join(t.TempDir(), "data"), eventTable)
	useStore(t, c, "a")
	if beside {
		daemon(t, c)
	}
	return c
}

// TestBackupLease: what a backup reads is kept for minutes where its process is killed, as
// the next one reads another checkpoint.
func TestBackupLease(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		c := storeOfOne(t, beside)
		b, err := config.OpenBackup(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(b.Dir() + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var lease api.Checkpoint
		if err := json.Unmarshal(data, &lease); err != nil {
			t.Fatal(err)
		}
		if left := time.Until(lease.Expires); left <= 0 || left > api.DefaultLease {
			t.Errorf("beside a daemon: %t: the lease is over in %s", beside, left)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(b.Dir()); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("beside a daemon: %t: the checkpoint is still there: %v", beside, err)
		}
	}
}

// TestGoneCheckpoint: a source whose checkpoint was removed says so at once.
func TestGoneCheckpoint(t *testing.T) {
	t.Parallel()
	for _, beside := range []bool{false, true} {
		c := storeOfOne(t, beside)
		in, err := config.OpenLastingInstant(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.Err(); err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(filepath.Join(c.Store.Dir, "checkpoints", in.Checkpoint)); err != nil {
			t.Fatal(err)
		}
		if err := instant.Lost(in); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("beside a daemon: %t: got %v, want that the checkpoint is gone", beside, err)
		}
		_ = in.Close() // which may tell of it, too
	}
}
