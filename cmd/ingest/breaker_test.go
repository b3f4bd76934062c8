package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

const breakerConfig = `
store: {dir: %q, min_free: 0B}
kafka: {brokers: [%q]}
serve: {listen: "127.0.0.1:0"}
log: {level: error}
tables:
  visits: {families: {n: {COUNTER: true}}}
pipelines:
  visits:
    topics: [visits]
    group: visits
    decode: {format: json}
    dead_letters: {trip_at: 20, window: 10}
    map:
      - {table: visits, row: page, increment: [{family: n, qualifier: page}]}
`

// startBroker starts a broker with topics of so many partitions, until the test ends.
func startBroker(t *testing.T, topics map[string]int) *embedded.Broker {
	t.Helper()
	broker, err := embedded.Start(&embedded.Options{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := broker.Close(); err != nil {
			t.Error(err)
		}
	})
	return broker
}

// runDaemon runs the daemon of a configuration file in the test's process. end stops it,
// and returns what it ended with.
func runDaemon(t *testing.T, file string) (d *daemon, end func() error) {
	t.Helper()
	cfg, err := config.Load(file, nil)
	if err != nil {
		t.Fatal(err)
	}
	if d, err = openDaemon(t.Context(), cfg, newLogger(t.Output(), &cfg.Log)); err != nil {
		t.Fatal(err)
	}
	running, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- d.run(running) }()
	return d, func() error {
		stop()
		return errors.Join(<-ended, d.close())
	}
}

// An open breaker shows in the daemon's status, and its partition goes on when it is
// closed by command.
func TestBreakerClose(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 1})
	dir := t.TempDir()
	file := filepath.Join(dir, "sluice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, breakerConfig, filepath.Join(dir, "data"), broker.Addr()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := command(t, "breaker", "close", "-c", file); !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "none has") {
		t.Errorf("Got %v without a daemon", err)
	}
	d, end := runDaemon(t, file)
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	producer := d.client.NewProducer(nil)
	for _, v := range []string{"no", "no", "no", `{"page":"/"}`} {
		if err := producer.Produce(t.Context(), "visits", kafka.Message{Value: []byte(v)}); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": {0: 2}}); err != nil {
		t.Fatal(err)
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for d.pipelineStatus()[0].Partitions[0].Tripped == "" {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("Got %+v, want an open breaker", d.pipelineStatus())
		}
	}
	if s := d.pipelineStatus()[0]; s.State != "paused" || s.Ready || !strings.Contains(s.Reason, "ingest breaker close") {
		t.Errorf("Got %+v, want it paused, and what to do", s)
	}
	if _, err := command(t, "breaker", "close", "-c", file, "other"); !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), "[visits]") {
		t.Errorf("Got %v for a pipeline that is none", err)
	}
	out, err := command(t, "breaker", "close", "-c", file)
	if err != nil || out != "pipeline visits: 1 breakers were open and are closed\n" {
		t.Errorf("Got %v, %q", err, out)
	}
	if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": {0: 4}}); err != nil {
		t.Fatal(err)
	}
	c, err := client.DialDir(ctx, d.cfg.Store.Dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n, err := c.CloseBreakers(ctx, "visits"); n != 0 || err != nil {
		t.Errorf("Got %d, %v where none is open", n, err)
	}
	if _, err := c.CloseBreakers(ctx, "a/b"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("Got %v, want ErrNotFound", err)
	}
}

// Daemons on HBase leave no endpoint in a directory: nobody is told that none runs.
func TestBreakerCloseOnHBase(t *testing.T) {
	t.Parallel()
	p, _, config := program(t, []byte(`
store: {engine: hbase}
tables:
  users: {families: {u: {}}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: json}
    map:
      - {table: users, row: user, put: {u: {n: n}}}
`), "127.0.0.1:1")
	err := (&breakerCloseCommand{ConfigFlag: config}).Run(t.Context(), p)
	if !errors.Is(err, store.ErrUnsupported) || strings.Contains(err.Error(), "next start") || !strings.Contains(err.Error(), "POST /api/v1/pipelines/p/close_breakers") {
		t.Errorf("Got %v, want what to ask the daemons for", err)
	}
}
