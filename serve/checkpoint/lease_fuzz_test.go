package checkpoint

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/serve/api"
)

// FuzzLease has the file of a lease say anything: the directory opens, keeps its checkpoint
// exactly where the lease is of it and not over, and touches nothing else.
func FuzzLease(f *testing.F) {
	clock := &fakeClock{time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC)}
	for _, lease := range []api.Checkpoint{
		{ID: "id", Path: "/id", Owner: "o", Created: clock.t, Expires: clock.t.Add(time.Minute)},
		{ID: "id", Path: "/id", Expires: clock.t},
		{ID: "id", Path: "/id", Expires: time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)},
		{ID: "other", Path: "/other", Expires: clock.t.Add(time.Hour)},
	} {
		b, err := json.Marshal(&lease)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b, true)
	}
	f.Add([]byte(`null`), true)
	f.Add([]byte(`{"path":"/"}`), false)
	f.Fuzz(func(t *testing.T, b []byte, own bool) {
		dir := t.TempDir()
		path := filepath.Join(dir, subdirectory, "id")
		other := filepath.Join(dir, "table")
		for _, d := range []string{path, other} {
			if err := os.MkdirAll(d, 0o700); err != nil {
				t.Fatal(err)
			}
		}
		var lease api.Checkpoint
		readable := json.Unmarshal(b, &lease) == nil
		if own && readable { // the path is another one in each run
			lease.Path = path
			var err error
			if b, err = json.Marshal(&lease); err != nil {
				return
			}
		}
		if err := os.WriteFile(path+leaseSuffix, b, 0o600); err != nil {
			t.Fatal(err)
		}
		c := openTest(t, dir, &fakeEngine{}, clock)
		kept := readable && lease.ID == "id" && lease.Path == path && clock.t.Before(lease.Expires)
		if got := len(c.List()); got != 0 != kept || exists(path) != kept || exists(path+leaseSuffix) != kept {
			t.Errorf("%s: Got %d checkpoints, there %v, want %v", b, got, exists(path), kept)
		}
		if !exists(other) {
			t.Errorf("%s: what is no checkpoint is gone", b)
		}
	})
}
