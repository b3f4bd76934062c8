package client_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/memstore"
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

// TestDaemonIsStartedAgain: a client of a directory, such as a shell that is left open, goes
// on with the daemon that has it now, which has another address and another token, and does
// not take the store of another for it.
func TestDaemonIsStartedAgain(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	engine := newStore(t)
	run := func(id string) *httptest.Server {
		s, err := serve.New(&serve.Options{Engine: ofID{engine, id}, Dir: dir})
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
	first := run("one")
	c, err := client.DialDir(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.MutateRow(t.Context(), nil, put("a")); err != nil {
		t.Fatal(err)
	}
	first.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { // who has its port now
		w.WriteHeader(http.StatusUnauthorized)
		_, _ = w.Write([]byte(`{"code": "unauthorized", "message": "not you"}`))
	})
	second := run("one")
	if _, err := c.MutateRow(t.Context(), nil, put("b")); err != nil {
		t.Errorf("where another has its port: %v", err)
	}
	if c.Address() != strings.TrimPrefix(second.URL, "http://") {
		t.Errorf("Got address %s, want that of %s", c.Address(), second.URL)
	}
	second.Close()
	third := run("one")
	c.CloseIdle() // else a connection breaks first, and nobody knows of the mutation
	if _, err := c.MutateRow(t.Context(), nil, put("c")); err != nil {
		t.Errorf("where nobody listens: %v", err)
	}
	rows := 0
	sc := c.Scan(t.Context(), &store.Scan{Table: "t"})
	for sc.Next() {
		rows++
	}
	if err := errors.Join(sc.Err(), sc.Close()); err != nil || rows != 3 {
		t.Errorf("Got %d rows and %v, want 3", rows, err)
	}
	third.Close()
	run("two")
	c.CloseIdle()
	if _, err := c.MutateRow(t.Context(), nil, put("d")); !errors.Is(err, client.ErrNoDaemon) || !strings.Contains(err.Error(), `"two"`) {
		t.Errorf("Got %v, want another store refused", err)
	}
}

// ofID is an engine with this id.
type ofID struct {
	*memstore.Store
	id string
}

func (n ofID) ID() string { return n.id }
