// Package serve is Sluice's HTTP server: health, Prometheus metrics, and under
// /api/v1 everything that another process may ask of the daemon which has the
// data directory open — schemas, rows, scans, mutations, batches, counters,
// offsets, dead letters and checkpoints; and under /iceberg the catalog of the Iceberg tables
// that exports are.
//
// A Server owns its routes and its checkpoints, and borrows the engine: whoever
// made the engine closes it after Run has returned. A Server is safe for
// concurrent use; Run is called once.
//
// It listens where it is told, loopback by default, and trusts nobody: /api asks
// for a bearer token, a Host header that is neither an address nor a known name
// is refused (DNS rebinding), bodies and times are bounded. It knows pipelines
// and jobs only as the status values that its Options' functions return, so that
// it imports neither flow.
package serve

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"golang.org/x/sync/errgroup"

	"sluice/internal/lastknown"
	"sluice/internal/openfiles"
	"sluice/serve/api"
	"sluice/serve/checkpoint"
	"sluice/store"
)

// Defaults of Options.
const (
	// DefaultMaxBodyBytes holds the largest batch of a mapping (32 MiB) in
	// base64 with room to spare.
	DefaultMaxBodyBytes = 64 << 20
	// DefaultRequestTimeout bounds a request without a stream.
	DefaultRequestTimeout = time.Minute
	// DefaultShutdownTimeout bounds the wait for running requests at the end.
	DefaultShutdownTimeout = 5 * time.Second
)

// Options configures New. Engine is required.
type Options struct {
	// Engine is what is served. Where it is a store.Admin, store.TableSwitcher,
	// store.Namespacer, store.RegionMeter, store.RowMutator, store.Compactor,
	// store.Checkpointer or store.ChangeHolder, too, so is the API; other
	// requests fail with store.ErrUnsupported.
	Engine store.Engine
	// Dir is the data directory, in whose "checkpoints" directory checkpoints
	// are made. Empty = no checkpoints.
	Dir string
	// Token is the bearer token of /api. Empty = a random one; see Endpoint.
	Token string
	// AllowedHosts are names, beside localhost and addresses, that a Host
	// header may carry.
	AllowedHosts []string
	// Pipelines returns what the pipelines do now; nil = there are none.
	Pipelines func() []PipelineStatus
	// Exports returns what is known of the export jobs; nil = nothing.
	Exports func() []ExportStatus
	// PauseExport pauses or resumes the schedule of an export job; its error
	// wraps api.ErrNotFound where the job has none. nil = no job has one.
	PauseExport func(ctx context.Context, job string, paused bool) error
	// OrderExport stores that a job is to run, by hand or for a range of its
	// schedule's times; its error wraps api.ErrNotFound where the job has none,
	// store.ErrInvalidArgument or store.ErrRefused. nil = no job has one.
	OrderExport func(ctx context.Context, job string, q api.OrderRequest) (api.Order, error)
	// CancelOrder ends an order; its error wraps api.ErrNotFound where it is not
	// open. nil = no job has a schedule.
	CancelOrder func(ctx context.Context, job, order string) error
	// RecordExport adds a run that somebody has made by hand to the history of an
	// export job, unless that has it; its error wraps store.ErrInvalidArgument.
	// nil = there is no history.
	RecordExport func(ctx context.Context, job string, run api.ExportRun) error
	// CloseBreakers closes the open circuit breakers of a pipeline and returns of
	// how many partitions; its error wraps api.ErrNotFound where there is no such
	// pipeline. nil = there are none.
	CloseBreakers func(ctx context.Context, pipeline string) (int, error)
	// MayEmpty returns why a table is not to be dropped or truncated, an error that wraps
	// store.ErrRefused, or nil. nil = every table may.
	MayEmpty func(ctx context.Context, table string) error
	// MayAlter returns why a table is not to get this schema, as MayEmpty does; nil = it may
	// always.
	MayAlter func(ctx context.Context, d *store.TableDescriptor) error
	// StoreStatus returns what the engine does now; nil = nothing.
	StoreStatus func() StoreStatus
	// Unreadable returns how many certificates that have been replaced cannot be read; nil =
	// it is not known.
	Unreadable func() int
	// Iceberg serves the Iceberg tables of exports; nil = none is.
	Iceberg IcebergCatalog
	// Flight returns what the Arrow Flight server does; nil = there is none.
	Flight func() FlightStatus
	// Memory returns what the pipelines hold together; nil = nothing.
	Memory func() MemoryStatus
	// Version is shown by /version and as sluice_build_info.
	Version api.Version
	// MaxBodyBytes bounds a request's body. Default: DefaultMaxBodyBytes.
	MaxBodyBytes int64
	// RequestTimeout bounds a request; a scan, a row, the outbox and a compaction may take
	// longer, as long as the client keeps reading. Default:
	// DefaultRequestTimeout.
	RequestTimeout time.Duration
	// ShutdownTimeout bounds the wait for running requests when Run's context
	// ends. Default: DefaultShutdownTimeout.
	ShutdownTimeout time.Duration
	// MaxConnections bounds how many connections Run has open; others wait until one is
	// closed. Default: half of the files that the process may have open, 65,536 at most: the
	// other half is the store's.
	MaxConnections int
	// Logger receives what an operator should know. Default: discarded.
	Logger *slog.Logger
	// Now is the clock of leases. Default: time.Now.
	Now func() time.Time
}

// String leaves the token out.
func (o Options) String() string { return fmt.Sprintf("server of %q", o.Dir) }

// GoString keeps %#v from printing the token.
func (o Options) GoString() string { return "serve.Options{" + o.String() + "}" }

// LogValue keeps slog from printing it.
func (o Options) LogValue() slog.Value { return slog.StringValue(o.String()) }

// Server answers requests. Make one with New.
type Server struct {
	o           Options       // without the token
	token       func() string // a function so that fmt, which looks into every field, finds none
	instance    string
	checkpoints *checkpoint.Directory // nil = unsupported
	handler     http.Handler
	started     time.Time
	draining    atomic.Bool
	address     atomic.Pointer[string]
	requests    requestCounts
	free        lastknown.Value[int64]
	diskFree    func(dir string) int64 // diskFree, but in tests
}

// New returns a server for o. It collects the checkpoints that a crash left
// behind and whose lease is over.
func New(o *Options) (*Server, error) {
	if o == nil || o.Engine == nil {
		return nil, fmt.Errorf("serve: %w: an engine is required", store.ErrInvalidArgument)
	}
	s := &Server{o: *o, instance: rand.Text(), diskFree: diskFree}
	token := o.Token
	if token == "" {
		token = rand.Text()
	}
	s.token, s.o.Token = func() string { return token }, ""
	if s.o.MaxBodyBytes <= 0 {
		s.o.MaxBodyBytes = DefaultMaxBodyBytes
	}
	if s.o.RequestTimeout <= 0 {
		s.o.RequestTimeout = DefaultRequestTimeout
	}
	if s.o.ShutdownTimeout <= 0 {
		s.o.ShutdownTimeout = DefaultShutdownTimeout
	}
	if s.o.MaxConnections <= 0 {
		s.o.MaxConnections = maxConnections
		if files, ok := openfiles.Limit(); ok {
			s.o.MaxConnections = int(min(max(files/2, 1), maxConnections))
		}
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	if s.o.Now == nil {
		s.o.Now = time.Now
	}
	s.started = s.o.Now()
	if c, ok := s.o.Engine.(store.Checkpointer); ok && s.o.Dir != "" {
		var err error
		s.checkpoints, err = checkpoint.Open(&checkpoint.Options{Engine: c, Dir: s.o.Dir, Now: s.o.Now, Logger: s.o.Logger})
		if err != nil {
			return nil, fmt.Errorf("serve: %w", err)
		}
	}
	metrics, err := s.metricsHandler()
	if err != nil {
		return nil, err
	}
	s.handler = s.routes(metrics)
	return s, nil
}

// Handler returns the server's routes, for tests and for embedding. It runs
// without Run, except that leases do not end by themselves.
func (s *Server) Handler() http.Handler { return s.handler }

// Checkpoints returns the checkpoints of Options.Dir, nil where there are none. They
// are the server's; others may make and release their own.
func (s *Server) Checkpoints() *checkpoint.Directory { return s.checkpoints }

// Token returns the bearer token.
func (s *Server) Token() string { return s.token() }

// Endpoint describes the server for WriteEndpoint, as reached at address.
func (s *Server) Endpoint(address string) api.Endpoint {
	return api.Endpoint{Address: reachable(address), Token: s.token(), PID: os.Getpid(), Started: s.started, Instance: s.instance}
}

// reachable replaces the unspecified address, on which one listens but to which
// one cannot connect everywhere, by loopback.
func reachable(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "" || ip != nil && ip.IsUnspecified() {
		host = "127.0.0.1"
		if ip != nil && ip.To4() == nil {
			host = "::1"
		}
	}
	return net.JoinHostPort(host, port)
}

// Run serves on l until ctx ends, then waits for running requests, at most
// ShutdownTimeout, and returns nil. It closes l.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	address := l.Addr().String()
	s.address.Store(&address)
	if host, _, err := net.SplitHostPort(address); err == nil {
		if ip := net.ParseIP(host); ip != nil && !ip.IsLoopback() {
			s.o.Logger.Warn("serving beyond loopback without encryption; put a proxy with TLS in front", "address", address)
		}
	}
	h := &http.Server{
		Handler:           s.handler,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       s.o.RequestTimeout,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    1 << 20, // a row key of 32 KiB is 96 KiB in a path
		ErrorLog:          slog.NewLogLogger(s.o.Logger.Handler(), slog.LevelWarn),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		if err := h.Serve(newBoundedListener(l, s.o.MaxConnections, s.o.Logger)); !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", address, err)
		}
		return nil
	})
	g.Go(func() error {
		<-gctx.Done()
		s.draining.Store(true)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.o.ShutdownTimeout)
		defer cancel()
		if err := h.Shutdown(stop); err != nil {
			return h.Close() // streams that their readers do not end
		}
		return nil
	})
	if s.checkpoints != nil {
		g.Go(func() error { s.checkpoints.Run(gctx); return nil })
	}
	return g.Wait()
}

// handlerFunc is a handler whose error becomes the answer.
type handlerFunc func(w http.ResponseWriter, r *http.Request) error

// param is a parameter that a request may have behind its path.
type param struct {
	name    string
	several bool // it may be there more than once
}

// once returns parameters that a request has once at most.
func once(names ...string) []param {
	params := make([]param, len(names))
	for i, name := range names {
		params[i].name = name
	}
	return params
}

// with returns h for requests that have no other parameters than these. A mistyped one, and
// one of two, would be an answer to another question.
func (h handlerFunc) with(params []param) handlerFunc {
	names := make([]string, len(params))
	for i := range params {
		names[i] = params[i].name
	}
	return func(w http.ResponseWriter, r *http.Request) error {
		q, err := url.ParseQuery(r.URL.RawQuery)
		if err != nil {
			return fmt.Errorf("%w: parameters: %w", store.ErrInvalidArgument, err)
		}
		for _, name := range slices.Sorted(maps.Keys(q)) {
			switch i := slices.Index(names, name); {
			case i < 0 && len(names) == 0:
				return fmt.Errorf("%w: there is no parameter %q", store.ErrInvalidArgument, name)
			case i < 0:
				return fmt.Errorf("%w: there is no parameter %q, only %s", store.ErrInvalidArgument, name, strings.Join(names, ", "))
			case len(q[name]) > 1 && !params[i].several:
				return fmt.Errorf("%w: parameter %s is there %d times: give it once", store.ErrInvalidArgument, name, len(q[name]))
			}
		}
		return h(w, r)
	}
}

func (s *Server) routes(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	open := func(pattern string, h handlerFunc) { mux.Handle(pattern, s.handle(h)) }
	open("GET /livez", s.livez)
	open("GET /readyz", s.readyz)
	open("GET /version", s.version)
	mux.Handle("GET /metrics", metrics)
	guarded := func(pattern string, h handlerFunc, params ...param) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.Handle(method+" "+api.Prefix+path, s.authorized(s.handle(h.with(params))))
	}
	guarded("GET /hello", s.hello)
	guarded("GET /tables", s.listTables)
	guarded("POST /tables", s.createTable)
	guarded("GET /tables/{table}", s.getTable)
	guarded("PUT /tables/{table}", s.alterTable)
	guarded("DELETE /tables/{table}", s.dropTable)
	guarded("GET /tables/{table}/state", s.getState)
	guarded("PUT /tables/{table}/state", s.putState)
	guarded("POST /tables/{table}/truncate", s.truncateTable)
	guarded("GET /tables/{table}/regions", s.regionStats)
	guarded("POST /tables/{table}/split_point", s.splitPoint)
	guarded("GET /namespaces", s.listNamespaces)
	guarded("POST /namespaces", s.createNamespace)
	guarded("PUT /namespaces/{namespace}", s.alterNamespace)
	guarded("DELETE /namespaces/{namespace}", s.dropNamespace)
	guarded("POST /tables/{table}/split", s.splitRegion)
	guarded("POST /tables/{table}/merge", s.mergeRegions)
	guarded("POST /tables/{table}/compact", s.compactTable)
	guarded("POST /flush", s.flush)
	guarded("GET /tables/{table}/rows", s.getRow, rowParams...)
	guarded("GET /tables/{table}/rows/{row...}", s.getRow, rowParams...) // {row} takes no "/" alone, however it is escaped
	guarded("POST /tables/{table}/scan", s.scan)
	guarded("POST /tables/{table}/mutate", s.mutateRow)
	guarded("POST /mutate", s.mutateRows)
	guarded("POST /batch", s.applyBatch)
	guarded("GET /counters/{table}/top", s.topCounters, once("encoding", "family", "qualifier", "from", "to", "n", "prefix")...)
	guarded("GET /counters/{table}/{row...}", s.getCounters, counterParams...)
	guarded("GET /counters/{table}", s.getCounters, counterParams...)
	guarded("GET /rollups/{table}/{rollup}/series", s.rollupSeries, rollupParams...)
	guarded("GET /rollups/{table}/{rollup}/top", s.rollupTop, slices.Concat(rollupParams, once("n"))...)
	guarded("GET /offsets", s.offsets)
	guarded("GET /outbox", s.outbox, once("limit", "after")...)
	guarded("GET /pipelines", s.pipelines)
	guarded("POST /pipelines/{pipeline}/close_breakers", s.closeBreakers)
	guarded("GET /exports", s.exports)
	guarded("PUT /exports/{job}/schedule", s.putSchedule)
	guarded("POST /exports/{job}/orders", s.orderExport)
	guarded("DELETE /exports/{job}/orders/{order}", s.cancelOrder)
	guarded("POST /exports/{job}/history", s.recordExport)
	guarded("GET /checkpoints", s.listCheckpoints)
	guarded("POST /checkpoints", s.createCheckpoint)
	guarded("PUT /checkpoints/{id}", s.renewCheckpoint)
	guarded("DELETE /checkpoints/{id}", s.releaseCheckpoint)
	guarded("GET /holds", s.listHolds)
	guarded("PUT /holds/{hold}", s.putHold)
	guarded("DELETE /holds/{hold}", s.deleteHold)
	const others = api.Prefix + "/"
	mux.Handle(others, s.authorized(s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if all := methods(mux, r, others); len(all) > 0 {
			w.Header().Set("Allow", strings.Join(all, ", "))
			return fmt.Errorf("%w: %s %s: it takes %s", api.ErrMethod, r.Method, r.URL.Path, strings.Join(all, ", "))
		}
		return fmt.Errorf("%w: %s %s", api.ErrNotFound, r.Method, r.URL.Path)
	})))
	if s.o.Iceberg != nil {
		s.icebergRoutes(mux)
	}
	return s.guard(mux)
}

// methods returns those that the path of r takes, but for what the pattern others has.
func methods(mux *http.ServeMux, r *http.Request, others string) (all []string) {
	other := *r
	for _, other.Method = range []string{http.MethodDelete, http.MethodGet, http.MethodPost, http.MethodPut} {
		if _, pattern := mux.Handler(&other); pattern != others {
			all = append(all, other.Method)
		}
	}
	return all
}

// maxObjects bounds the JSON objects of a body. A mutation of one operation is two, of 100
// bytes at least where it does something, so that as many as DefaultMaxBodyBytes has room for
// are below; an empty one of 3 bytes, which is refused by itself, takes 650 bytes of memory.
const maxObjects = 2_000_000

// decodeBody reads a JSON body strictly: an unknown field is an error, and so is text that
// is not UTF-8, of which the decoder would make another.
func decodeBody(r *http.Request, into any) error {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &large):
		return fmt.Errorf("%w: at most %d bytes", api.ErrTooLarge, large.Limit)
	case err != nil:
		return fmt.Errorf("%w: request body: %w", store.ErrInvalidArgument, err)
	case bytes.Count(body, []byte{'{'}) > maxObjects:
		return fmt.Errorf("%w: at most %d JSON objects: send it in parts", api.ErrTooLarge, maxObjects)
	case !utf8.Valid(body):
		return fmt.Errorf("%w: request body: it is not UTF-8", store.ErrInvalidArgument)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err == io.EOF {
		return fmt.Errorf("%w: the request has no body", store.ErrInvalidArgument)
	} else if err != nil {
		return fmt.Errorf("%w: request body: %w", store.ErrInvalidArgument, err)
	}
	if _, err := d.Token(); err != io.EOF {
		return fmt.Errorf("%w: request body: more than one JSON value", store.ErrInvalidArgument)
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, value any) error {
	body, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	// An error here means that the client has gone; there is nobody to tell.
	_, _ = w.Write(append(body, '\n'))
	return nil
}
