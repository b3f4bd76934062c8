package client_test

import (
	"errors"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
)

// TestCheckpointOutlivesTheDaemon: the daemon that has the directory now, with another address
// and token, renews and removes what the one before it has made; where none has it,
// nothing is wrong with what was read.
func TestCheckpointOutlivesTheDaemon(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	run := func() *httptest.Server {
		s, err := serve.New(&serve.Options{Engine: checkpointing{newStore(t)}, Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		ts := httptest.NewServer(s.Handler())
		t.Cleanup(ts.Close)
		if _, err := serve.WriteEndpoint(dir, s.Endpoint(strings.TrimPrefix(ts.URL, "http://"))); err != nil {
			t.Fatal(err)
		}
		return ts
	}
	first := run()
	c, err := client.DialDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	released, err := c.Checkpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	left, err := c.LastingCheckpoint(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first.Close()
	second := run()
	if err := released.Renew(t.Context()); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := released.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
	if _, err := os.Stat(released.Path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the checkpoint is still there (%v)", err)
	}
	if err := released.Renew(t.Context()); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("renew what is gone: Got %v", err)
	}
	second.Close()
	if err := left.Renew(t.Context()); !errors.Is(err, client.ErrNoDaemon) {
		t.Errorf("renew, without a daemon: Got %v", err)
	}
	if err := os.Remove(filepath.Join(dir, api.EndpointFile)); err != nil { // as a daemon does that ends
		t.Fatal(err)
	}
	if err := left.Release(t.Context()); err != nil {
		t.Errorf("release, without a daemon: %v", err)
	}
}
