package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/schedule"
	"sluice/jobs/tables"
	"sluice/jobs/target"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/serve"
	"sluice/store"
)

// daemon is everything that `ingest run` runs: a store, the pipelines that fill
// it, and the server that shows it. demo runs the same.
type daemon struct {
	cfg       *config.Config
	log       *slog.Logger
	engine    config.Engine
	client    *kafka.Client        // for what no pipeline does
	memory    *memory.Budget       // of all pipelines
	clients   []*kafka.Client      // one a pipeline, so that each has metrics of its own
	pipelines []*pipeline.Pipeline // by name
	start     *kafkaStart          // what the pipelines wait for before they run
	schedules *schedule.Runner     // of exports; nil = no job has a schedule
	exports   *published
	records   sync.Mutex // held while a run that was made by hand is recorded
	server    *serve.Server
	listener  net.Listener
	flights   *flights     // nil = there is no Flight server
	forget    func() error // removes the endpoint file
}

// openDaemon opens the store, creates missing tables and listens; run waits for the
// brokers. What it opened is closed again where it fails.
func openDaemon(ctx context.Context, cfg *config.Config, log *slog.Logger) (_ *daemon, err error) {
	d := &daemon{cfg: cfg, log: log, exports: newPublished(cfg, log)}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.close())
		}
	}()
	if cfg.Store.Engine == "mem" && len(cfg.Pipelines) > 0 {
		return nil, fmt.Errorf("%w: store.engine is mem, whose tables and offsets end with the process: set pebble or hbase to run pipelines", store.ErrUnsupported)
	}
	if d.engine, err = config.OpenEngine(ctx, cfg, log); err != nil {
		return nil, err
	}
	if err := refuseHalf(ctx, d.engine); err != nil {
		return nil, err
	}
	created, err := cfg.EnsureTables(ctx, d.engine)
	if err != nil {
		return nil, err
	}
	for _, t := range created {
		log.Info("created table", "table", t)
	}
	if err := d.openSchedules(ctx); err != nil {
		return nil, err
	}
	d.exports.schedules = d.schedules
	if d.client, err = openKafka(cfg, log); err != nil {
		return nil, err
	}
	d.start = newKafkaStart(d.client, cfg, log)
	if d.memory, err = cfg.NewMemory(); err != nil {
		return nil, err
	}
	for _, name := range cfg.PipelineNames() {
		o, err := cfg.PipelineOptions(name)
		if err != nil {
			return nil, err
		}
		c, err := d.client.Clone()
		if err != nil {
			return nil, err
		}
		d.clients = append(d.clients, c)
		o.Client, o.Engine, o.Memory, o.Logger = c, d.engine, d.memory, log
		o.CreateTable = cfg.TableCreator(d.engine, log)
		if o.StoreID, err = storeID(ctx, d.engine); err != nil {
			return nil, err
		}
		p, err := pipeline.New(o)
		if err != nil {
			return nil, err
		}
		if err := refuseInexact(ctx, d.engine, name, o.Plan); err != nil {
			return nil, err
		}
		d.pipelines = append(d.pipelines, p)
	}
	if err := d.listen(); err != nil {
		return nil, err
	}
	d.flights, err = d.openFlights()
	return d, err
}

// refuseHalf refuses a store that export copy has not copied whole: its pipelines would
// begin anew, and count what the copy counts, too.
func refuseHalf(ctx context.Context, e store.Engine) error {
	_, err := tables.ReadStoreCopy(ctx, e)
	switch {
	case errors.Is(err, target.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return fmt.Errorf("%w: a store is being copied into this one: end the copy with export copy --resume, or give it up with --restart", store.ErrRefused)
}

// refuseInexact refuses tables of a pipeline that the engine does not keep exactly, as
// they are now: those of an HBase can be altered by others.
func refuseInexact(ctx context.Context, e config.Engine, pipeline string, plan *mapping.Plan) error {
	c, ok := e.(interface {
		CheckExact(ctx context.Context, table string) error
	})
	if !ok {
		return nil
	}
	tables, err := e.Tables(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tables {
		if !plan.MayWrite(t) {
			continue
		}
		if err := c.CheckExact(ctx, t); err != nil && !errors.Is(err, store.ErrTableNotFound) { // dropped since
			errs = append(errs, fmt.Errorf("pipeline %s: %w", pipeline, err))
		}
	}
	return errors.Join(errs...)
}

// storeID names the data directory, or the HBase, to the other members of a consumer
// group. Several processes may share a group on one HBase.
func storeID(ctx context.Context, e store.Engine) (string, error) {
	switch e := e.(type) {
	case interface{ ID() string }:
		return e.ID(), nil
	case interface {
		ClusterID(ctx context.Context) (string, error)
	}:
		return e.ClusterID(ctx)
	}
	return "", fmt.Errorf("%w: engine %s has no identity, so that two stores could share a consumer group", store.ErrUnsupported, e.Traits().Name)
}

func openKafka(cfg *config.Config, log *slog.Logger) (*kafka.Client, error) {
	o, err := cfg.KafkaOptions()
	if err != nil {
		return nil, err
	}
	o.Logger = log
	return kafka.NewClient(o)
}

func (d *daemon) listen() (err error) {
	dir := d.cfg.Store.Dir
	if d.cfg.Store.Engine != "pebble" {
		dir = ""
	}
	d.server, err = serve.New(&serve.Options{
		Engine: d.engine, Dir: dir, Token: string(d.cfg.Serve.Token), AllowedHosts: d.cfg.Serve.AllowedHosts,
		Pipelines: d.pipelineStatus, CloseBreakers: d.closeBreakers, StoreStatus: d.storeStatus(), Flight: d.flightStatus(), Iceberg: d.icebergCatalog(), Memory: d.memoryStatus,
		Exports: d.exports.status, PauseExport: d.pauseExport(), OrderExport: d.orderExport(), CancelOrder: d.cancelOrder(), RecordExport: d.recordExport,
		MayEmpty: d.mayEmpty, MayAlter: d.mayAlter, Unreadable: d.cfg.Renewed().Unreadable, Version: cli.Version(), Logger: d.log,
	})
	if err != nil {
		return err
	}
	if d.listener, err = net.Listen("tcp", d.cfg.Serve.Listen); err != nil {
		return listenError("serve.listen", err)
	}
	if dir != "" {
		if d.forget, err = serve.WriteEndpoint(dir, d.server.Endpoint(d.listener.Addr().String())); err != nil {
			return err
		}
	}
	return nil
}

// mayEmpty refuses to drop or truncate a table that an unfinished rebuild counts in.
func (d *daemon) mayEmpty(ctx context.Context, table string) error {
	return refusedAmidRebuild(pipeline.MayEmpty(ctx, d.engine, table))
}

// mayAlter refuses to take families away that an unfinished rebuild counts in, or again.
func (d *daemon) mayAlter(ctx context.Context, to *store.TableDescriptor) error {
	return refusedAmidRebuild(pipeline.MayAlter(ctx, d.engine, to))
}

func refusedAmidRebuild(err error) error {
	if errors.Is(err, pipeline.ErrRebuilding) {
		return fmt.Errorf("%w: %w", store.ErrRefused, err)
	}
	return err
}

// listenError names the setting, and says what to look at where the port is taken.
func listenError(setting string, err error) error {
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%s: %w; is another daemon using the port?", setting, err)
	}
	return fmt.Errorf("%s: %w", setting, err)
}

// untilStopped returns a context that ends with ctx, or where the embedded store has stopped
// as its disk failed: whether there is anything to write or not, nothing works until the
// process is started again.
func (d *daemon) untilStopped(ctx context.Context) (_ context.Context, end context.CancelFunc) {
	ctx, end = context.WithCancel(ctx)
	if e, ok := d.engine.(interface{ Stopped() <-chan struct{} }); ok {
		go func() {
			select {
			case <-e.Stopped():
				end()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, end
}

// run waits for the brokers, and for each pipeline's topics, serving meanwhile, and
// consumes and serves until ctx ends or no pipeline is left, then drains. A pipeline that
// waits for its topics, or stopped for good, while others go on is logged and shown by
// /readyz. The error is that of the brokers where they refuse this client, of the server, or
// of the pipelines that have stopped by themselves.
func (d *daemon) run(ctx context.Context) error {
	serving, stopServing := context.WithCancel(context.WithoutCancel(ctx))
	defer stopServing()
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := d.server.Run(serving, d.listener); err != nil && serving.Err() == nil {
			return fmt.Errorf("serve: %w", err)
		}
		return nil
	})
	flying, stopFlights := context.WithCancel(ctx) // streams end at once, and are asked for anew
	defer stopFlights()
	if d.flights != nil {
		group.Go(func() error { return d.flights.server.Run(flying, d.flights.listener) })
	}
	scheduled := make(chan struct{})
	go func() { // ends soon after ctx; awaited below
		defer close(scheduled)
		if d.schedules != nil {
			d.schedules.Run(ctx)
		}
	}()
	group.Go(func() error { d.cfg.Renewed().Run(serving, d.log); return nil })
	if every := d.cfg.Store.RegionInterval; every > 0 && d.cfg.Store.Engine != "hbase" { // HBase splits its regions itself
		tender := store.NewRegionTender(d.engine, &store.RegionTenderOptions{Interval: every, Logger: d.log})
		group.Go(func() error { return tender.Run(serving) })
	}
	group.Go(func() error {
		defer stopServing()
		defer stopFlights()
		err := d.runPipelines(ctx)
		if err == nil {
			<-scheduled // the server shows how the exports end
		}
		return err
	})
	defer func() { <-scheduled }()
	return group.Wait()
}

func (d *daemon) runPipelines(ctx context.Context) error {
	if len(d.pipelines) == 0 {
		d.log.Info("no pipelines: serving only")
		<-ctx.Done()
		return nil
	}
	if err := d.start.awaitBroker(ctx); err != nil {
		if ctx.Err() != nil {
			return nil // told to stop while it waited
		}
		return err
	}
	var (
		wg     sync.WaitGroup
		mu     sync.Mutex
		failed []error
	)
	for _, p := range d.pipelines {
		wg.Go(func() {
			err := d.runPipeline(ctx, p)
			if err == nil {
				return
			}
			place := append([]any{"pipeline", p.Status().Name}, pipeline.LogPlace(err)...)
			d.log.Error("pipeline has stopped", append(place, "err", err)...)
			mu.Lock()
			defer mu.Unlock()
			failed = append(failed, err)
		})
	}
	wg.Wait()
	return errors.Join(failed...)
}

// runPipeline runs a pipeline once it has its topics. Those of others are not waited for.
func (d *daemon) runPipeline(ctx context.Context, p *pipeline.Pipeline) error {
	name := p.Status().Name
	if err := d.start.awaitTopics(ctx, name); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return fmt.Errorf("pipeline %s: %w", name, err)
	}
	defer d.start.note(name, ended, nil)
	return p.Run(ctx)
}

// close closes what openDaemon opened.
func (d *daemon) close() error {
	var errs []error
	if d.forget != nil {
		errs = append(errs, d.forget())
	}
	if d.listener != nil {
		if err := d.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	if d.flights != nil {
		if err := d.flights.listener.Close(); !errors.Is(err, net.ErrClosed) {
			errs = append(errs, err)
		}
	}
	for _, c := range d.clients {
		errs = append(errs, c.Close())
	}
	if d.client != nil {
		errs = append(errs, d.client.Close())
	}
	if d.engine != nil {
		errs = append(errs, d.engine.Close())
	}
	return errors.Join(errs...)
}

// stopped bounds a shutdown: it runs fn and returns its error, or one that says
// so where fn has not ended within the timeout after ctx.
func stopped(ctx context.Context, timeout time.Duration, fn func() error) error {
	done := make(chan error, 1)
	go func() { done <- fn() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	limit := time.NewTimer(timeout)
	defer limit.Stop()
	select {
	case err := <-done:
		return err
	case <-limit.C:
		return fmt.Errorf("not drained within shutdown_timeout (%s); nothing is lost: what was not committed is read again at the next start", timeout)
	}
}
