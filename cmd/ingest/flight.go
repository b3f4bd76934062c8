package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"sluice/config"
	"sluice/internal/openfiles"
	"sluice/jobs"
	"sluice/serve"
	"sluice/serve/api"
	"sluice/serve/flight"
	"sluice/store"
)

// flights is the daemon's Flight server and where it listens.
type flights struct {
	server   *flight.Server
	listener net.Listener
}

// mostFlightConnections bounds the connections to the Flight server, each of which is an open
// file; one client has one or a few.
const mostFlightConnections = 1024

// openFlights listens for Flight's calls, where the configuration says where; nil where it
// does not.
func (d *daemon) openFlights() (*flights, error) {
	f := &d.cfg.Flight
	if f.Listen == "" {
		return nil, nil
	}
	tls, err := d.cfg.FlightTLS()
	if err != nil {
		return nil, fmt.Errorf("flight.tls: %w", err)
	}
	server, err := flight.New(&flight.Options{
		Jobs: d.cfg.JobNames(), Compile: d.compileFlight, Table: d.engine.Table,
		Open: func(ctx context.Context) (flight.Source, error) {
			return config.OpenHeldInstant(ctx, d.cfg, d.engine, d.server.Checkpoints(), d.log)
		},
		Token: d.server.Token(), TLS: tls, Hold: f.Hold, MaxHold: f.MaxHold, MaxFlights: f.MaxFlights, MaxStreams: f.MaxStreams,
		Engine: d.engine.Traits().Name, Logger: d.log,
	})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", f.Listen)
	if err != nil {
		return nil, listenError("flight.listen", err)
	}
	most := mostFlightConnections
	if files, ok := openfiles.Limit(); ok {
		most = int(min(max(files/8, 1), mostFlightConnections))
	}
	d.log.Info("flights are served", "address", l.Addr().String(), "tls", tls != nil)
	return &flights{server, serve.BoundedListener(l, most, "Flight", d.log)}, nil
}

// compileFlight compiles a job against its table, which may not be there yet. Its error
// wraps api.ErrNotFound where there is no such job.
func (d *daemon) compileFlight(ctx context.Context, name string, table flight.TableReader) (*jobs.Job, error) {
	spec, ok := d.cfg.Jobs[name]
	if !ok {
		why := config.DidYouMean(name, d.cfg.JobNames())
		if declared, ok := d.cfg.Declared(name); ok {
			why = fmt.Sprintf("it is a %s, and jobs alone are flights", declared.Kind)
		}
		if why != "" {
			why = " (" + why + ")"
		}
		return nil, fmt.Errorf("%w: job %q%s", api.ErrNotFound, name, why)
	}
	schema, err := table(ctx, spec.Table)
	if err != nil && !errors.Is(err, store.ErrTableNotFound) {
		return nil, err
	}
	job, err := jobs.Compile(name, &spec, schema)
	if err != nil {
		return nil, fmt.Errorf("job %s: %w", name, err)
	}
	return job, nil
}

// flightStatus returns what serve asks for the state of the Flight server, or nil where
// there is none.
func (d *daemon) flightStatus() func() serve.FlightStatus {
	if d.cfg.Flight.Listen == "" {
		return nil
	}
	return func() serve.FlightStatus {
		if d.flights == nil {
			return serve.FlightStatus{} // it is being opened
		}
		m := d.flights.server.Metrics()
		return serve.FlightStatus{
			Held: m.Held, Opened: m.Opened, Sending: m.Streams, Streams: map[string]int64{"ok": m.Finished, "cancelled": m.Cancelled, "failed": m.Failed},
			Rows: m.Rows, Bytes: m.Bytes, Refused: m.Refused,
		}
	}
}
