// Package flight is the daemon's Arrow Flight endpoint: clients of Arrow (pyarrow, Polars,
// Spark, DuckDB) read what an export job would write, at one instant, without files.
//
// Each job of the configuration is a flight of its name. GetFlightInfo takes one instant
// and answers with an endpoint for each part that a run of the job would have; DoGet
// streams the record batches of one part. The instant is held for as long as its tickets
// are of use, bounded in number and in time, and then given back. Nothing can be written.
//
// A Server owns the instants that it holds, and borrows what its Options' functions read
// from: whoever made that closes it after Run has returned. A Server is safe for concurrent
// use; Run is called once. Clients carry the same bearer token as those of the HTTP API
// (package serve). It turns no rows into batches itself: that is package jobs.
package flight

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/apache/arrow/go/v15/arrow/flight"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"sluice/jobs"
	"sluice/jobs/instant"
	"sluice/store"
)

// Defaults of Options.
const (
	DefaultHold       = 5 * time.Minute
	DefaultMaxHold    = time.Hour
	DefaultMaxFlights = 8
	DefaultMaxStreams = 8
)

const (
	// batchBytes is how many bytes of values a record batch has, besides its last rows:
	// half of what gRPC's clients take in a message unless they are told otherwise (4 MiB).
	batchBytes = 2 << 20
	// streamWait is how long a DoGet waits for one of those to end that are as many as may
	// be: clients that open all endpoints at once get them one after the other, and one that
	// waits for itself, as it reads some only when all are open, hears why.
	streamWait = 30 * time.Second
	// patience is how long a stream whose time is over may take to end by itself. One whose
	// client reads nothing does not.
	patience = time.Second
	// collectEvery is how often Run looks for flights that are over.
	collectEvery = time.Second
	// callsPerConnection bounds the calls that one connection makes at once.
	callsPerConnection = 128
)

// Source is the instant of a flight, which is closed when nobody can read it any more.
type Source interface {
	instant.Source
	Close() error
}

// Options configures New. Compile, Open and Token are required.
type Options struct {
	// Jobs are the names of the export jobs, in the order in which they are listed.
	Jobs []string
	// Compile returns a job, checked against the schema of its table as table returns it;
	// its error wraps api.ErrNotFound where there is none of this name.
	Compile func(ctx context.Context, job string, table TableReader) (*jobs.Job, error)
	// Table returns the schema of a table as it is now.
	Table TableReader
	// Open takes an instant of the store.
	Open func(ctx context.Context) (Source, error)
	// Token is the bearer token that all calls carry.
	Token string
	// TLS encrypts the connections. nil = they are not.
	TLS *tls.Config
	// Hold is how long a flight can be read after GetFlightInfo, and after each use.
	// Default: DefaultHold.
	Hold time.Duration
	// MaxHold is when a flight ends, counted from GetFlightInfo, whoever reads it then.
	// Default: DefaultMaxHold.
	MaxHold time.Duration
	// MaxFlights bounds the flights that are held at once. Default: DefaultMaxFlights.
	MaxFlights int
	// MaxStreams bounds the DoGets that send at once; others wait a while. Default:
	// DefaultMaxStreams.
	MaxStreams int
	// ShutdownTimeout bounds the wait for calls to end when Run's context has. Default: 5s.
	ShutdownTimeout time.Duration
	// Engine is the storage engine, for the metadata of flights.
	Engine string
	// Logger receives what an operator should know. Default: discarded.
	Logger *slog.Logger
	// Now is the clock. Default: time.Now.
	Now func() time.Time
}

// TableReader returns the schema of a table.
type TableReader func(ctx context.Context, name string) (*store.TableDescriptor, error)

// String leaves the token out.
func (o Options) String() string { return fmt.Sprintf("flights of %q", o.Jobs) }

// GoString keeps %#v from printing the token.
func (o Options) GoString() string { return "flight.Options{" + o.String() + "}" }

// LogValue keeps slog from printing it.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Server answers Flight's calls. Make one with New.
type Server struct {
	flight.BaseFlightServer // what is not overridden is unimplemented

	o       Options       // without the token
	token   func() string // a function so that fmt, which looks into every field, finds none
	held    shelf
	places  chan struct{} // a token for each stream that sends
	reading sync.WaitGroup
	counts  counts

	wait, patience time.Duration // streamWait and patience, but in tests
}

// New returns a server for o.
func New(o *Options) (*Server, error) {
	if o == nil || o.Compile == nil || o.Table == nil || o.Open == nil || o.Token == "" {
		return nil, fmt.Errorf("flight: %w: Compile, Table, Open and Token are required", store.ErrInvalidArgument)
	}
	s := &Server{o: *o, wait: streamWait, patience: patience}
	token := o.Token
	s.token, s.o.Token = func() string { return token }, ""
	if s.o.Hold <= 0 {
		s.o.Hold = DefaultHold
	}
	if s.o.MaxHold <= 0 {
		s.o.MaxHold = DefaultMaxHold
	}
	s.o.MaxHold = max(s.o.MaxHold, s.o.Hold)
	if s.o.MaxFlights <= 0 {
		s.o.MaxFlights = DefaultMaxFlights
	}
	if s.o.MaxStreams <= 0 {
		s.o.MaxStreams = DefaultMaxStreams
	}
	if s.o.ShutdownTimeout <= 0 {
		s.o.ShutdownTimeout = 5 * time.Second
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	s.places = make(chan struct{}, s.o.MaxStreams)
	s.held = shelf{hold: s.o.Hold, maxHold: s.o.MaxHold, most: s.o.MaxFlights, now: s.o.Now, flights: map[flightID]*heldFlight{}}
	return s, nil
}

// errStopping is why streams end with the daemon.
var errStopping = errors.New("the daemon stops: connect again when it runs, and ask for the flight anew")

// Run serves on l until ctx ends, ends all streams and flights then, and returns nil. It
// closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	address := l.Addr().String()
	if host, _, err := net.SplitHostPort(address); err == nil && s.o.TLS == nil {
		if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() {
			s.o.Logger.Warn("serving flights beyond loopback without encryption; set flight.tls, or put a proxy with TLS in front", "address", address)
		}
	}
	g := s.newGRPC()
	group, gctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		if err := g.Serve(l); err != nil && gctx.Err() == nil {
			return fmt.Errorf("serve flights on %s: %w", address, err)
		}
		return nil
	})
	group.Go(func() error {
		<-gctx.Done()
		s.end(s.held.clear(errStopping))
		hard := time.AfterFunc(s.o.ShutdownTimeout, g.Stop)
		defer hard.Stop()
		g.GracefulStop()
		return nil
	})
	group.Go(func() error {
		s.collect(gctx)
		return nil
	})
	err := group.Wait()
	s.end(s.held.clear(errStopping)) // which a call has opened meanwhile
	s.reading.Wait()
	return err
}

// newGRPC returns the gRPC server of s.
func (s *Server) newGRPC() *grpc.Server {
	o := []grpc.ServerOption{
		grpc.ChainUnaryInterceptor(s.unary), grpc.ChainStreamInterceptor(s.streaming),
		grpc.MaxConcurrentStreams(callsPerConnection), grpc.ConnectionTimeout(10 * time.Second), grpc.WaitForHandlers(true),
		// A client that is gone without a word is found out; one that asks nothing is let go.
		grpc.KeepaliveParams(keepalive.ServerParameters{Time: time.Minute, Timeout: 20 * time.Second, MaxConnectionIdle: 30 * time.Minute}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
	}
	if s.o.TLS != nil {
		o = append(o, grpc.Creds(credentials.NewTLS(s.o.TLS)))
	}
	g := grpc.NewServer(o...)
	flight.RegisterFlightServiceServer(g, s)
	return g
}

// collect ends the flights whose time is over, until ctx ends.
func (s *Server) collect(ctx context.Context) {
	t := time.NewTicker(collectEvery)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
			s.end(s.held.over())
		}
	}
}

// end gives back the instants of flights that nobody reads any more.
func (s *Server) end(flights []*heldFlight) {
	for _, f := range flights {
		if err := f.source.Close(); err != nil {
			s.o.Logger.Warn("the instant of a flight cannot be given back", "job", f.job, "flight", f.id.String(), "err", err)
			continue
		}
		s.o.Logger.Info("flight ended", "job", f.job, "flight", f.id.String(), "took", s.o.Now().Sub(f.opened).Round(time.Millisecond))
	}
}
