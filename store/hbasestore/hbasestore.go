// Package hbasestore is a store.Engine over a real HBase, through HBase's own
// Thrift2 gateway.
//
// HBase applies rows atomically, and nothing larger (store.AtomicRow): a batch may
// be half there for a reader, and where one of its rows is refused the others are
// not. A batch that advances the offset of a source is exact all the same, as type
// exact says. What the gateway cannot do is refused with an error that wraps
// store.ErrUnsupported and, where there is one, names the command of HBase's shell
// that does it.
//
// Calls go over a bounded pool of connections to one or several gateways. Each has
// a deadline; one that changes nothing, or changes the same when made again
// (cell.Mutation.Idempotent), is tried again with pauses while HBase recovers. Of
// any other whose reply was lost nobody knows whether it was applied: its error
// wraps store.ErrUnknownOutcome. The gateway's errors are classed by the Java class
// in their text.
//
// Filters are evaluated here, with Sluice's semantics, and those that HBase
// evaluates alike are sent to it as well, so that it does not send what they drop.
//
// A Store is safe for concurrent use. It keeps nothing of what it is given after a
// call returns.
package hbasestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// MinCellBytes is the least that Options.MaxCellBytes and MaxFrameBytes may be: a redrive's
// journal writes what it decides with 4 KiB more, and dead letters carry their record.
const MinCellBytes = 16 << 10

// Options says how to reach the gateways. The zero values of all but Addresses are
// defaults.
type Options struct {
	// Addresses are host:port of Thrift2 gateways of one HBase, at least one.
	// Connections are spread over those that answer.
	Addresses []string
	// Framed says that the gateway runs with framed transport (hbase thrift2
	// start -f). Such a gateway garbles split keys and attributes of tables, and
	// the families that it is to delete: CreateTable finds that out, AlterTable
	// sends none of it.
	Framed bool
	// TLS encrypts the connections; nil = plain. An empty ServerName is that of
	// the address.
	TLS *tls.Config
	// RootCAs are asked at each connection for what replaces those of TLS, which must be
	// set; nil = nothing does.
	RootCAs func() *x509.CertPool
	// Connections bounds how many are open; 0 = 16. The gateway has a thread
	// for each.
	Connections int
	// IdleTimeout is when an idle connection is dropped; 0 = 50 s. The gateway
	// drops it after 60 s.
	IdleTimeout time.Duration
	// DialTimeout bounds the making of a connection, with the first answer of the
	// gateway; 0 = 5 s.
	DialTimeout time.Duration
	// CallTimeout bounds one call and its answer; 0 = 1 min. HBase answers late
	// while regions move. A scanner that finds no row within it is waited for again,
	// twice as long each time, up to 16 min or CallTimeout, whichever is longer.
	CallTimeout time.Duration
	// AdminTimeout bounds a change of schema; 0 = 5 min.
	AdminTimeout time.Duration
	// RetryTimeout bounds how long what may be repeated is tried; 0 = 2 min.
	RetryTimeout time.Duration
	// CloseTimeout is how long Close waits for running calls before it breaks
	// them off; 0 = 5 s.
	CloseTimeout time.Duration
	// MaxAge is how old schemas and region maps may be; 0 = 30 s. The store's
	// own changes are seen at once.
	MaxAge time.Duration
	// MaxCellBytes is the largest cell, key included, that the gateway sends
	// (its hbase.client.keyvalue.maxsize); 0 = 10 MiB, HBase's default. A table
	// may take less.
	MaxCellBytes int
	// CounterCache is of how many counters the newest cells are kept between
	// batches, so that they need not be read; 0 = 200,000, about 40 MB. One with more than
	// 200 bytes of row and column, or of a sketch, weighs as many as it has 200 bytes: a
	// distinct count up to 82.
	CounterCache int
	// MaxFrameBytes is the largest request that a gateway with framed transport
	// takes (its hbase.regionserver.thrift.framed.max_frame_size_in_mb): it breaks
	// the connection at a larger one. 0 = 2 MiB, HBase's default.
	MaxFrameBytes int
	// PageBytes is about how much a scan fetches at once, and up to three times
	// that is in memory; 0 = 1 MiB. It begins with one row where no scan of these columns
	// has been before. Rows that are larger than those before can make more of a page:
	// 1,000 of them at most, and four times as much once there was one.
	PageBytes int
	// Now is the clock that mutations are checked by, in ms since the Unix
	// epoch; nil = the system's. HBase uses its servers'.
	Now func() cell.Timestamp
	// Logger gets gateways that fail and come back; nil discards.
	Logger *slog.Logger

	pause    func(attempt int) time.Duration // before a call is made again; nil = retryPause
	silence  time.Duration                   // of a call, before its table is asked about; 0 = 5 s
	patience time.Duration                   // with an answer of a scanner; 0 = maxPatience, or CallTimeout where that is longer

	dial func(ctx context.Context, network, address string) (net.Conn, error) // without TLS; nil = net.Dialer
}

// Validate says what is wrong with o. Its error wraps store.ErrInvalidArgument.
func (o *Options) Validate() error {
	if len(o.Addresses) == 0 {
		return fmt.Errorf("%w: no address of a Thrift2 gateway", store.ErrInvalidArgument)
	}
	for _, a := range o.Addresses {
		if strings.Contains(a, "@") { // not quoted: it may be a password
			return fmt.Errorf("%w: the address of a gateway has no user and password in it: want host:port", store.ErrInvalidArgument)
		}
		if _, _, err := net.SplitHostPort(a); err != nil {
			return fmt.Errorf("%w: gateway %q: want host:port", store.ErrInvalidArgument, a)
		}
	}
	for _, v := range [...]struct {
		name string
		n    int64
	}{
		{"Connections", int64(o.Connections)},
		{"IdleTimeout", int64(o.IdleTimeout)},
		{"DialTimeout", int64(o.DialTimeout)},
		{"CallTimeout", int64(o.CallTimeout)},
		{"AdminTimeout", int64(o.AdminTimeout)},
		{"RetryTimeout", int64(o.RetryTimeout)},
		{"CloseTimeout", int64(o.CloseTimeout)},
		{"MaxAge", int64(o.MaxAge)},
		{"PageBytes", int64(o.PageBytes)},
		{"MaxFrameBytes", int64(o.MaxFrameBytes)},
		{"MaxCellBytes", int64(o.MaxCellBytes)},
		{"CounterCache", int64(o.CounterCache)},
	} {
		if v.n < 0 {
			return fmt.Errorf("%w: %s is negative", store.ErrInvalidArgument, v.name)
		}
	}
	for name, n := range map[string]int{"MaxFrameBytes": o.MaxFrameBytes, "MaxCellBytes": o.MaxCellBytes} {
		if n > 0 && n < MinCellBytes {
			return fmt.Errorf("%w: %s is %d, below %d, which rows of the store's own need", store.ErrInvalidArgument, name, n, MinCellBytes)
		}
	}
	return nil
}

// withDefaults returns a copy of o with its defaults filled in.
func (o *Options) withDefaults() *Options {
	c := *o
	duration := func(d *time.Duration, standard time.Duration) {
		if *d == 0 {
			*d = standard
		}
	}
	number := func(n *int, standard int) {
		if *n == 0 {
			*n = standard
		}
	}
	number(&c.Connections, 16)
	number(&c.PageBytes, 1<<20)
	number(&c.CounterCache, 200_000)
	number(&c.MaxFrameBytes, 2<<20)
	number(&c.MaxCellBytes, store.DefaultMaxCellBytes)
	duration(&c.IdleTimeout, 50*time.Second)
	duration(&c.DialTimeout, 5*time.Second)
	duration(&c.CallTimeout, time.Minute)
	duration(&c.AdminTimeout, 5*time.Minute)
	duration(&c.RetryTimeout, 2*time.Minute)
	duration(&c.CloseTimeout, 5*time.Second)
	duration(&c.MaxAge, 30*time.Second)
	duration(&c.silence, 5*time.Second)
	duration(&c.patience, max(maxPatience, c.CallTimeout))
	if c.Now == nil {
		c.Now = func() cell.Timestamp { return cell.Timestamp(time.Now().UnixMilli()) }
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.pause == nil {
		c.pause = retryPause
	}
	return &c
}

// Store is an HBase. Make one with Open.
type Store struct {
	o       *Options
	pool    *pool
	schemas *cache[*store.TableDescriptor]
	regions *cache[*region.Map]
	exact   *exact
	widths  widths
	unknown outcomes
	off     off

	mu      sync.Mutex // guards what follows
	closed  bool
	running map[*running]struct{}
	idle    chan struct{} // closed when the last call has returned after Close
}

// running is a call or a scan that has not ended.
type running struct {
	cancel context.CancelCauseFunc
	scan   bool
}

var _ store.Engine = (*Store)(nil)

// Open connects to HBase and creates the system tables where they are missing. Its
// error wraps store.ErrInvalidArgument where o is wrong, store.ErrInvalidSchema where a
// system table was altered so that it loses something, store.ErrUnsupported where
// an address is not a Thrift2 gateway's, store.ErrRefused where the certificates of all
// gateways are wrong, or those of the client to them, store.ErrTransient where none
// answers.
func Open(ctx context.Context, o *Options) (*Store, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("open HBase: %w", err)
	}
	o = o.withDefaults()
	s := &Store{o: o, pool: newPool(o), running: map[*running]struct{}{}, idle: make(chan struct{})}
	s.schemas = newCache(o.MaxAge, s.readTable)
	s.regions = newCache(o.MaxAge, s.readRegions)
	s.exact = newExact(s, o.CounterCache)
	err := s.greet(ctx)
	if err == nil {
		err = s.ensureSystemTables(ctx)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open HBase at %s: %w", strings.Join(o.Addresses, ", "), err), s.Close())
	}
	return s, nil
}

// greet reaches a gateway, once: whoever starts waits for no recovery.
func (s *Store) greet(ctx context.Context) error {
	c, err := s.pool.get(ctx, nil, nil)
	if err == nil {
		s.pool.put(c, nil, nil)
	}
	return err
}

// Traits implements store.Engine. HBase's log reaches the memory of several
// machines before a write is acknowledged, and their disks where HBase is told so
// (hbase.wal.hsync); the store cannot tell.
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "hbase", Atomic: store.AtomicRow, Durable: true}
}

// begin counts a call, so that Close waits for it and can end it.
func (s *Store) begin(ctx context.Context, scan bool) (_ context.Context, end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, nil, store.ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	r := &running{cancel: cancel, scan: scan}
	s.running[r] = struct{}{}
	return ctx, func() {
		cancel(nil)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.running, r)
		if s.closed && len(s.running) == 0 {
			close(s.idle)
		}
	}, nil
}

// closing reports whether Close was called.
func (s *Store) closing() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// Close ends running scans with store.ErrClosed, waits up to Options.CloseTimeout
// for other running calls, breaks off what is left and closes the connections.
func (s *Store) Close() error {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		<-s.idle
		return nil
	}
	s.closed = true
	for r := range s.running {
		if r.scan {
			r.cancel(ownCause{store.ErrClosed})
		}
	}
	if len(s.running) == 0 {
		close(s.idle)
	}
	s.mu.Unlock()

	patience := time.NewTimer(s.o.CloseTimeout)
	defer patience.Stop()
	select {
	case <-s.idle:
	case <-patience.C:
		s.mu.Lock()
		for r := range s.running {
			r.cancel(ownCause{store.ErrClosed})
		}
		s.mu.Unlock()
		<-s.idle // every wait of a call ends with its context
	}
	s.pool.close()
	return nil
}
