package main

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/jobs/target/targettest"
)

// TestSecondSignal: what an export that is cancelled has left in a bucket is removed, for which a
// service that does not answer is asked for half a minute and more. A second Ctrl-C does not wait.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	for _, flags := range [][]string{nil, {"--json"}} {
		f := targettest.NewFakeS3(t)
		var gone atomic.Bool
		begun, asked := make(chan struct{}), make(chan struct{})
		begin, ask := sync.OnceFunc(func() { close(begun) }), sync.OnceFunc(func() { close(asked) })
		f.SetFaulty(func(_ int, r *http.Request) targettest.Fault {
			switch {
			case gone.Load():
				ask()
				return targettest.SlowDown
			case r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/_runs/slow/"):
				gone.Store(true) // from the next request on
				begin()
			}
			return targettest.Fine
		})
		dir := t.TempDir()
		file := filepath.Join(dir, "sluice.yaml")
		content := "store: {dir: '" + filepath.Join(dir, "data") + "', cache: 1MiB, mem_table: 8MiB, min_free: 0}\n" +
			"s3: {endpoint: '" + f.URL() + "', access_key: access, secret_key: secret}\n" + strings.ReplaceAll(slowJobs, "OUT", "s3://bucket/exports")
		withTables(t, file, content, nil)
		child := exec.CommandContext(t.Context(), os.Args[0], append([]string{"run", "-c", file, "slow"}, flags...)...)
		child.Env = append(os.Environ(), childMain+"=1")
		var stderr strings.Builder
		child.Stderr = &stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			_ = child.Wait()
			close(ended)
		}()
		for _, wait := range []<-chan struct{}{begun, asked} {
			select {
			case <-wait:
			case <-ended:
				t.Fatalf("it ended by itself: %s", &stderr)
			}
		}
		for range 2 {
			if err := child.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			select {
			case <-time.After(2 * cli.TogetherSignals): // what comes within that is the same signal
			case <-ended:
			}
		}
		<-ended
		said := strings.TrimSpace(stderr.String())
		last := said[strings.LastIndexByte(said, '\n')+1:]
		if code := child.ProcessState.ExitCode(); code != cli.StatusInterrupted || !strings.Contains(last, "second signal (interrupt): ending at once; export gc removes what an export has left") {
			t.Errorf("Got status %d, and in the end %s", code, last)
		}
		if json := strings.HasPrefix(last, `{"time":`) && strings.Contains(last, `"event":"error"`) && strings.Contains(last, `"status":130`); json != (flags != nil) {
			t.Errorf("%q: Got %s", flags, last)
		}
	}
}
