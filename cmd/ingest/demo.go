package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/examples"
	"sluice/internal/pageviews"
	"sluice/jobs"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/serve/client"
	"sluice/store"
)

type demoCommand struct {
	Events int    `default:"200000" help:"Page views to make."`
	Seed   uint64 `default:"1" help:"Seed of the page views."`
	Input  string `placeholder:"FILE" type:"existingfile" help:"Use this file's lines instead."`
	Format string `enum:"combined,json" default:"json" help:"Format of --input: combined (an access log) or json (fields as in examples/pageviews.yaml)."`
	Data   string `default:"./sluice-demo/data" help:"Data directory; it is emptied."`
	Out    string `default:"./sluice-demo/export" help:"Where the exports go."`
	Keep   bool   `help:"Leave the broker and the daemon running until Ctrl-C."`
}

const (
	// demoPartitions is enough to see several partitions at work on two cores.
	demoPartitions = 4
	// demoMarker makes a directory known as one that demo may empty.
	demoMarker = "sluice.demo"
)

// Run starts a broker, fills a topic, ingests it, shows what came of it and
// exports it.
func (c *demoCommand) Run(ctx context.Context, p *cli.Program) error {
	start := time.Now()
	if c.Events < 1 {
		return fmt.Errorf("%w: --events must be at least 1", cli.ErrUsage)
	}
	if err := c.prepare(ctx); err != nil {
		return err
	}
	name, example, pages := "pageviews.yaml", examples.Pageviews, "pageview_counts"
	if c.Input != "" && c.Format == "combined" {
		name, example, pages = "access-log.yaml", examples.AccessLog, "path_counts"
	}
	topic, err := topicOf(name, example)
	if err != nil {
		return err
	}
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{topic: demoPartitions, topic + ".dead": 1}})
	if err != nil {
		return err
	}
	defer broker.Close()
	cfg, err := config.Parse("examples/"+name, example, func(key string) (string, bool) {
		switch key {
		case "SLUICE_BROKERS":
			return broker.Addr(), true
		case "SLUICE_DATA":
			return c.Data, true
		case "SLUICE_LISTEN":
			return "127.0.0.1:0", true
		}
		return "", false
	})
	if err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	d, err := openDaemon(ctx, cfg, log)
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Stdout, "Kafka %s (in this process) → %s → %s\n", broker.Addr(), name, c.Data)

	daemonCtx, stopDaemon := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- d.run(daemonCtx) }()
	err = c.show(ctx, p, cfg, d, topic, pages, start)
	if err == nil && c.Keep {
		c.keep(ctx, p, d, broker)
	}
	stopDaemon()
	err = errors.Join(err, <-done, d.close())
	if err == nil && !c.Keep {
		c.next(p, pages)
	}
	return err
}

// prepare empties the data directory where an earlier demo has left it, and runs no more.
func (c *demoCommand) prepare(ctx context.Context) error {
	entries, err := os.ReadDir(c.Data)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	marker := filepath.Join(c.Data, demoMarker)
	if len(entries) > 0 {
		if _, err := os.Stat(marker); err != nil {
			return fmt.Errorf("--data %s holds something that is no demo's; choose an empty directory", c.Data)
		}
		if other, err := client.DialDir(ctx, c.Data); err == nil {
			return errors.Join(fmt.Errorf("%w: --data %s is that of a demo which runs, at %s: end it, or choose another directory", store.ErrLocked, c.Data, other.Address()), other.Close())
		}
		if err := os.RemoveAll(c.Data); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Data, 0o755); err != nil {
		return err
	}
	return os.WriteFile(marker, []byte("Made by ingest demo, which empties this directory at its next start.\n"), 0o644)
}

func topicOf(name string, example []byte) (string, error) {
	cfg, err := config.Parse(name, example, func(string) (string, bool) { return "", false })
	if err != nil {
		return "", err
	}
	return cfg.Pipelines[cfg.PipelineNames()[0]].Topics[0], nil
}

// show produces, waits for the pipeline with a line of progress, and prints the
// results.
func (c *demoCommand) show(ctx context.Context, p *cli.Program, cfg *config.Config, d *daemon, topic, pages string, start time.Time) error {
	producing, cancel := context.WithCancel(ctx)
	defer cancel()
	produced := make(chan producedResult, 1)
	go func() {
		n, err := c.produce(producing, d.client, topic)
		produced <- producedResult{n, err}
	}()
	if err := c.await(ctx, p, d, topic, produced); err != nil {
		return err
	}
	if err := report(ctx, p.Stdout, d.engine, pages); err != nil {
		return err
	}
	if err := c.export(ctx, p.Stdout, cfg, d.engine); err != nil {
		return err
	}
	_, err := fmt.Fprintf(p.Stdout, "\nAll of it in %.1f s.\n", time.Since(start).Seconds())
	return err
}

type producedResult struct {
	records int64
	err     error
}

// produce fills the topic from the input file or the generator.
func (c *demoCommand) produce(ctx context.Context, client *kafka.Client, topic string) (int64, error) {
	if c.Input != "" {
		f, err := os.Open(c.Input)
		if err != nil {
			return 0, err
		}
		defer f.Close()
		return produceLines(ctx, client, topic, "", c.Input, f)
	}
	g := pageviews.New(&pageviews.Options{Seed: c.Seed, Events: c.Events})
	return produceLines(ctx, client, topic, "", "generator", &eventReader{g: g})
}

// eventReader is a generator's events as lines.
type eventReader struct {
	g    *pageviews.Generator
	line []byte // what of the last event was not read yet
	buf  []byte
}

func (r *eventReader) Read(p []byte) (int, error) {
	if len(r.line) == 0 {
		b, ok := r.g.Append(r.buf[:0])
		if !ok {
			return 0, io.EOF
		}
		r.buf = append(b, '\n')
		r.line = r.buf
	}
	n := copy(p, r.line)
	r.line = r.line[n:]
	return n, nil
}

// await shows progress until all that was produced is stored.
func (c *demoCommand) await(ctx context.Context, p *cli.Program, d *daemon, topic string, produced <-chan producedResult) error {
	pipe := d.pipelines[0]
	line := &progressLine{w: p.Stdout, terminal: cli.IsTerminal(p.Stdout), start: time.Now()}
	defer line.end()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	var stored chan error
	for {
		select {
		case r := <-produced:
			if r.err != nil {
				return fmt.Errorf("produce: %w", r.err)
			}
			ends, err := logEnds(ctx, d.client, topic)
			if err != nil {
				return err
			}
			produced, stored = nil, make(chan error, 1)
			go func() { stored <- pipe.WaitStored(ctx, map[string]map[int32]int64{topic: ends}) }()
		case err := <-stored:
			line.show(d)
			return err
		case <-tick.C:
			line.show(d)
			s := pipe.Status()
			if s.Err != nil {
				return s.Err
			}
			// Nobody is there to close a breaker: the log has said why it is open.
			if slices.ContainsFunc(s.Partitions, func(p pipeline.PartitionStatus) bool { return p.Tripped != "" }) {
				return fmt.Errorf("most records of %s are refused: is it of --format %s?", cmp.Or(c.Input, "the demo"), c.otherFormat())
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// otherFormat is that which --input was not said to have.
func (c *demoCommand) otherFormat() string {
	if c.Format == "json" {
		return "combined"
	}
	return "json"
}

func logEnds(ctx context.Context, client *kafka.Client, topic string) (map[int32]int64, error) {
	info, err := client.Topic(ctx, topic)
	if err != nil {
		return nil, err
	}
	offsets, err := client.ListOffsets(ctx, topic, info.Partitions)
	if err != nil {
		return nil, err
	}
	ends := map[int32]int64{}
	for n, o := range offsets {
		ends[n] = o.End
	}
	return ends, nil
}

// progressLine is one line that is written over on a terminal, and one line every
// few seconds elsewhere.
type progressLine struct {
	w        io.Writer
	terminal bool
	start    time.Time
	last     time.Time
	width    int
}

func (l *progressLine) show(d *daemon) {
	if now := time.Now(); !l.terminal {
		if now.Sub(l.last) < 2*time.Second {
			return
		}
		l.last = now
	}
	s, m := d.pipelines[0].Status(), d.pipelines[0].Metrics()
	var lag int64
	for _, p := range s.Partitions {
		lag += p.Lag
	}
	records := m.Applied + m.Filtered + m.Dead
	text := fmt.Sprintf("%s records/s   lag %s   %s rows   %s commits", cli.Count(int64(float64(records)/max(time.Since(l.start).Seconds(), 0.001))),
		cli.Count(lag), cli.Count(m.Applied), cli.Count(m.Batches))
	if !l.terminal {
		fmt.Fprintln(l.w, text)
		return
	}
	fmt.Fprintf(l.w, "\r%-*s", l.width, text)
	l.width = len(text)
}

func (l *progressLine) end() {
	if l.terminal {
		fmt.Fprintln(l.w)
	}
}

// export runs every job of the configuration on one snapshot.
func (c *demoCommand) export(ctx context.Context, w io.Writer, cfg *config.Config, e store.Engine) (err error) {
	s, ok := e.(store.Snapshotter)
	if !ok {
		return fmt.Errorf("%w: engine %s has no snapshots", store.ErrUnsupported, e.Traits().Name)
	}
	snapshot, err := s.Snapshot(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, snapshot.Close()) }()
	fmt.Fprintf(w, "\nExport of one snapshot (commit %d) to %s\n", snapshot.Sequence(), c.Out)
	for _, name := range cfg.JobNames() {
		spec := cfg.Jobs[name]
		schema, err := snapshot.Table(ctx, spec.Table)
		if err != nil {
			return err
		}
		job, err := jobs.Compile(name, &spec, schema)
		if err != nil {
			return err
		}
		start := time.Now()
		m, err := jobs.Run(ctx, &jobs.RunOptions{Job: job, Source: snapshot, Out: c.Out, Engine: e.Traits().Name, Version: cli.Version().Version})
		if err != nil {
			return err
		}
		for _, t := range m.Totals {
			fmt.Fprintf(w, "  %-16s %-8s %12s rows  %2d files  %10s  %6.2f s\n", name, t.Format, cli.Count(t.Rows), t.Files, cli.Bytes(t.Bytes), time.Since(start).Seconds())
		}
	}
	return nil
}

func (c *demoCommand) keep(ctx context.Context, p *cli.Program, d *daemon, b *embedded.Broker) {
	fmt.Fprintf(p.Stdout, `
Running until Ctrl-C:
  Kafka    %s
  HTTP     http://%s   (/metrics, /readyz; the token of /api is in %s)
`, b.Addr(), d.listener.Addr(), filepath.Join(c.Data, "sluice.endpoint"))
	<-ctx.Done()
}

// sibling returns how to call another program of ours: it is beside this one, or is made
// as this one was.
func sibling(name string) string {
	if self, err := os.Executable(); err == nil {
		path := filepath.Join(filepath.Dir(self), name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return "go run ./cmd/" + name
}

// next says what to try on what the demo has left.
func (c *demoCommand) next(p *cli.Program, pages string) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "\nTry next:\n")
	fmt.Fprintf(&b, "  %s --data %s -e \"scan '%s', {LIMIT => 3}\"\n", sibling("shell"), c.Data, pages)
	fmt.Fprintf(&b, "  %s verify %s\n", sibling("export"), filepath.Join(c.Out, pages))
	glob := filepath.Join(c.Out, pages, "run=*", "*.parquet")
	fmt.Fprintf(&b, "  duckdb -c \"SELECT * FROM read_parquet('%s', hive_partitioning = false) LIMIT 5\"\n", glob)
	fmt.Fprintf(&b, "  python3 -c \"import pandas, glob; print(pandas.concat(map(pandas.read_parquet, glob.glob('%s'))))\"\n", glob)
	_, _ = p.Stdout.Write(b.Bytes()) // the work is done; a closed pipe is no failure
}
