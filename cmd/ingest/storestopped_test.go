package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/config"
	"sluice/store"
)

// TestDaemonEndsWithItsStore: where the disk fails so that the store stops, a daemon that has
// nothing to write ends, too, and says why; it would be there for ever and do nothing.
func TestDaemonEndsWithItsStore(t *testing.T) {
	t.Parallel()
	data := filepath.Join(t.TempDir(), "data")
	cfg, err := config.Parse("test.yaml", fmt.Appendf(nil, `
store: {dir: %q}
serve: {listen: "127.0.0.1:0"}
tables: {t: {families: {f: {}}}}
`, data), nil)
	if err != nil {
		t.Fatal(err)
	}
	d, err := openDaemon(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- d.runAndClose(t.Context()) }()
	for n := range 1000 { // whatever the next log is called, it cannot be made
		if err := os.Mkdir(filepath.Join(data, fmt.Sprintf("%06d.log", n)), 0o700); err != nil && !errors.Is(err, os.ErrExist) {
			t.Fatal(err)
		}
	}
	if err := d.engine.Flush(t.Context()); !errors.Is(err, store.ErrClosed) {
		t.Fatalf("Got %v of a flush, want ErrClosed", err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("Got %v, want why the store has stopped", err)
		}
	case <-time.After(time.Minute):
		t.Error("the daemon goes on without its store")
	}
}
