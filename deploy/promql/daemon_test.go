package promql

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// daemon is `ingest demo`, with the broker that it has.
type daemon struct {
	program, broker, url string
	config, data         string
}

// startDaemon builds and starts it, and returns when the demo's records are in.
func startDaemon(t *testing.T) *daemon {
	t.Helper()
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	d := &daemon{program: filepath.Join(dir, "ingest"), config: filepath.Join(root, "examples", "pageviews.yaml"), data: filepath.Join(dir, "data")}
	build := exec.CommandContext(t.Context(), "go", "build", "-o", d.program, "./cmd/ingest")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, d.program, "demo", "--keep", "--events", "2000", "--data", d.data, "--out", filepath.Join(dir, "out"))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	lines := bufio.NewScanner(stdout)
	for d.broker == "" || d.url == "" {
		if !lines.Scan() {
			t.Fatalf("the demo ended before it told its addresses: %v", lines.Err())
		}
		switch f := strings.Fields(lines.Text()); {
		case len(f) == 2 && f[0] == "Kafka":
			d.broker = f[1]
		case len(f) > 1 && f[0] == "HTTP":
			d.url = f[1]
		}
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // until it is killed
	return d
}

func (d *daemon) scrape(t *testing.T) []series {
	t.Helper()
	r, err := http.Get(d.url + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	page, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("Got %s, %v", r.Status, err)
	}
	return scrape(t, page)
}

// produce sends records to the pipeline's topic.
func (d *daemon) produce(t *testing.T, records ...string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "records")
	if err := os.WriteFile(file, []byte(strings.Join(records, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d.run(t, "produce", "-c", d.config, "--topic", "pageviews", file)
}

// run runs a command of the program beside the daemon.
func (d *daemon) run(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), d.program, args...)
	cmd.Env = append(os.Environ(), "SLUICE_BROKERS="+d.broker, "SLUICE_DATA="+d.data)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s", args, err, &out)
	}
}

// await scrapes until the records of an outcome are n.
func (d *daemon) await(t *testing.T, outcome string, n float64) []series {
	t.Helper()
	return d.awaitSum(t, n, "sluice_kafka_records_total", labels.MustNewMatcher(labels.MatchEqual, "outcome", outcome))
}

// awaitSum scrapes until the sum of a metric is n.
func (d *daemon) awaitSum(t *testing.T, n float64, name string, m *labels.Matcher) []series {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		all := d.scrape(t)
		got := sum(all, name, m)
		if got == n {
			return all
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Got %v of %s, %v, want %v", got, name, m, n)
		}
	}
}

func sum(all []series, name string, m *labels.Matcher) (total float64) {
	for _, s := range all {
		if s.labels.Get("__name__") == name && m.Matches(s.labels.Get(m.Name)) {
			total += s.value
		}
	}
	return total
}

// view is a record that the example's mapping takes, of now.
func view(i int) string {
	return fmt.Sprintf(`{"ts": %d, "user": "u%d", "page": "/p", "country": "DE", "referrer": "", "agent": "a", "duration_ms": 5}`, time.Now().UnixMilli(), i)
}
