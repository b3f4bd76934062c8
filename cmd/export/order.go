package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/jobs/history"
	"sluice/jobs/schedule"
	"sluice/serve/api"
	"sluice/serve/client"
	"sluice/store"
)

type cancelCommand struct {
	cli.ConfigFlag
	Job   string `arg:"" help:"Name of the job, join or backup in the configuration file, or gc."`
	Order string `arg:"" help:"Id of the order, as export list --json and the command that gave it show it."`
}

// Run ends an order of a job: what is at work of it is cancelled, the rest left out.
func (c *cancelCommand) Run(ctx context.Context, p *cli.Program) (err error) {
	cfg, err := c.Load(p)
	if err != nil {
		return err
	}
	if _, err := scheduled(cfg, c.Job); err != nil {
		return err
	}
	if cfg.Store.Engine == "hbase" {
		_, err := leaveWord(ctx, p, cfg, c.Job, schedule.Wish{For: schedule.WishCancel, ID: c.Order})
		return err
	}
	d, err := dialDaemon(ctx, cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	return d.CancelOrder(ctx, c.Job, c.Order)
}

// orderFlags are the flags of commands that order runs in the daemon.
type orderFlags struct {
	Daemon bool `help:"Order the work in the daemon, which does it as that of the job's schedule, also after a restart, and return. Needs a schedule."`
	Wait   bool `help:"With --daemon: wait until what is ordered has ended, and end with status 1 unless all of it is published."`
}

// check returns an error, which wraps cli.ErrUsage, for --wait without --daemon.
func (f *orderFlags) check() error {
	if f.Wait && !f.Daemon {
		return fmt.Errorf("%w: --wait is of --daemon: without it the command runs the job itself, and ends with it", cli.ErrUsage)
	}
	return nil
}

// order has the daemon run a job, says what it has accepted, and with --wait waits for
// its end.
func (f *orderFlags) order(ctx context.Context, p *cli.Program, cfg *config.Config, job string, q schedule.OrderRequest, asJSON, quiet bool) (err error) {
	s, err := scheduled(cfg, job)
	if err != nil {
		return err
	}
	if q.From.IsZero() && q.Time.IsZero() {
		q.Time = time.Now().Truncate(time.Millisecond) // an answer that is lost is no reason for two runs
	}
	o, err := s.Order(q, time.Now())
	if err != nil {
		return fmt.Errorf("%w: job %s: %w", cli.ErrUsage, job, err)
	}
	var wait *orderWait
	if f.Wait {
		if wait, err = newOrderWait(ctx, p, cfg, job, &o); err != nil {
			return err
		}
		wait.json, wait.quiet = asJSON, quiet
		defer func() { err = errors.Join(err, wait.close()) }()
	}
	var accepted api.Order
	if cfg.Store.Engine == "hbase" {
		if o, err = leaveWord(ctx, p, cfg, job, schedule.Wish{For: schedule.WishOrder, Order: &o}); err != nil {
			return err
		}
		accepted = api.Order(o)
	} else {
		d, err := dialDaemon(ctx, cfg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, d.Close()) }()
		if accepted, err = d.OrderExport(ctx, job, api.OrderRequest(q)); err != nil {
			return err
		}
	}
	if err := sayAccepted(p, job, &accepted, asJSON); err != nil || wait == nil {
		return err
	}
	wait.order = schedule.Order(accepted)
	return wait.run(ctx)
}

// sayAccepted says what the daemon has accepted.
func sayAccepted(p *cli.Program, job string, accepted *api.Order, asJSON bool) error {
	if asJSON {
		return writeJSON(p.Stdout, []*api.Order{accepted})
	}
	what := "for " + accepted.From.Format(time.RFC3339)
	if accepted.Cause == schedule.Backfill {
		what = fmt.Sprintf("for %s times of its schedule, the first %s", cli.Count(accepted.Times), accepted.Next.Format(time.RFC3339))
	}
	_, err := fmt.Fprintf(p.Stdout, "order %s is accepted: the daemon runs %s %s\n", accepted.ID, job, what)
	return err
}

// scheduled returns the schedule of what is declared with a name; its error wraps cli.ErrUsage
// where it has none.
func scheduled(cfg *config.Config, name string) (*schedule.Schedule, error) {
	if err := isDeclared(cfg, name); err != nil {
		return nil, err
	}
	all, err := cfg.Schedules()
	if err != nil {
		return nil, err
	}
	if all[name] == nil {
		d, _ := cfg.Declared(name)
		return nil, fmt.Errorf("%w: %s %s has no schedule, and the daemon runs those that have", cli.ErrUsage, d.Kind, name)
	}
	return all[name], nil
}

// dialDaemon returns the daemon that runs the schedules of a data directory.
func dialDaemon(ctx context.Context, cfg *config.Config) (*client.Client, error) {
	d, err := client.DialDir(ctx, cfg.Store.Dir)
	if errors.Is(err, client.ErrNoDaemon) {
		err = fmt.Errorf("%w: schedules and orders are the daemon's, and none has %s open: %w", store.ErrUnsupported, cfg.Store.Dir, err)
	}
	return d, err
}

// leaveWord leaves a wish in HBase for whichever daemon runs the schedule, or will.
func leaveWord(ctx context.Context, p *cli.Program, cfg *config.Config, job string, w schedule.Wish) (o schedule.Order, err error) {
	e, _, err := config.OpenStore(ctx, cfg, p.Warnings())
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	return history.NewShared(e, nil).Ask(ctx, job, w)
}

// scheduleStates returns the states of the jobs that have a schedule, of a daemon that
// runs now or of those on an HBase; none where there is none.
func scheduleStates(ctx context.Context, p *cli.Program, cfg *config.Config) (map[string]schedule.State, error) {
	scheduled, err := cfg.Schedules()
	if err != nil || len(scheduled) == 0 {
		return nil, err
	}
	return readSchedules(ctx, p, cfg, slices.Sorted(maps.Keys(scheduled)))
}

// openSchedules opens the store that the states of schedules are in: that of the daemon
// that runs now, or the HBase. Its error wraps client.ErrNoDaemon where none runs.
func openSchedules(ctx context.Context, p *cli.Program, cfg *config.Config) (config.Engine, error) {
	if cfg.Store.Engine == "hbase" {
		e, _, err := config.OpenStore(ctx, cfg, p.Warnings())
		return e, err
	}
	d, err := dialDaemon(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return d, nil
}

func readSchedules(ctx context.Context, p *cli.Program, cfg *config.Config, names []string) (all map[string]schedule.State, err error) {
	e, err := openSchedules(ctx, p, cfg)
	if errors.Is(err, client.ErrNoDaemon) {
		return nil, nil // whose orders go on when it is there again
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	all = map[string]schedule.State{}
	for _, name := range names {
		if all[name], err = history.State(ctx, e, name); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// ordered returns the lines of a job's open orders.
func ordered(orders []schedule.Order, job, table, directory string) (lines []listed) {
	for _, o := range orders {
		lines = append(lines, listed{Job: job, Table: table, State: "ordered", Time: &o.Next, Directory: directory, Order: (*api.Order)(&o)})
	}
	return lines
}
