package hbasestore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
	"sluice/store/memstore"
)

// newMem returns a memstore with table t of family f.
func newMem(t *testing.T, splits ...string) *memstore.Store {
	t.Helper()
	m, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	var keys [][]byte
	for _, s := range splits {
		keys = append(keys, []byte(s))
	}
	if err := m.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, keys); err != nil {
		t.Fatal(err)
	}
	return m
}

// put returns an idempotent put of f:q.
func put(row, value string) *cell.Mutation {
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	m.Put("f", []byte("q"), 1, []byte(value))
	return m
}

func increment(row string) *cell.Mutation {
	m := &cell.Mutation{Table: "t", Row: []byte(row)}
	m.Increment("f", []byte("n"), 1)
	return m
}

// counted returns what increment has made of row, read past the gateway.
func counted(t *testing.T, m *memstore.Store, row string) (n uint64) {
	t.Helper()
	sc := m.Scan(t.Context(), &store.Scan{Table: "t", Prefix: []byte(row)})
	defer sc.Close()
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			if string(c.Qualifier) == "n" {
				n = binary.BigEndian.Uint64(c.Value)
			}
		}
	}
	if sc.Err() != nil {
		t.Fatal(sc.Err())
	}
	return n
}

func mutate(t *testing.T, s *Store, m *cell.Mutation) error {
	_, err := s.MutateRow(t.Context(), nil, m)
	return err
}

// A gateway that ends, or that answers no more, is left for another.
func TestFailover(t *testing.T) {
	t.Parallel()
	for _, dead := range []bool{true, false} {
		mem := newMem(t)
		a, b := newGateway(t, mem, false), newGateway(t, mem, false)
		s := dial(t, func(o *Options) { o.CallTimeout = 300 * time.Millisecond }, a, b)
		if dead {
			a.stop()
		} else {
			a.inject(func(string) fault { return fault{hang: true} })
		}
		for _, row := range []string{"a", "b", "c", "d"} {
			if err := mutate(t, s, put(row, "v")); err != nil {
				t.Fatalf("dead %t: %v", dead, err)
			}
		}
	}
}

// A gateway that answers, but cannot reach HBase, is left for another one.
func TestFailingGatewayIsLeft(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	a, b := newGateway(t, mem, false), newGateway(t, mem, false)
	s := dial(t, nil, a, b)
	a.inject(func(method string) fault {
		if method == "getThriftServerType" {
			return fault{}
		}
		return fault{text: "org.apache.hadoop.hbase.ipc.CallTimeoutException: no region server", canRetry: true}
	})
	before := a.count("put")
	for i := range 50 {
		if err := mutate(t, s, put(fmt.Sprintf("row%d", i), "v")); err != nil {
			t.Fatal(err)
		}
	}
	if n := a.count("put") - before; n > maxStrikes {
		t.Errorf("Got %d of 50 puts to a gateway that fails, want %d at most", n, maxStrikes)
	}
	// Where none works, they are all tried.
	b.inject(func(string) fault { return fault{hang: true} })
	a.inject(nil)
	s.o.CallTimeout = 300 * time.Millisecond
	if err := mutate(t, s, put("row", "v")); err != nil {
		t.Error(err)
	}
}

// What a pool makes ahead ends with it, also where the gateway does not answer.
func TestCloseEndsDialAhead(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := newPool((&Options{Addresses: []string{"127.0.0.1:1", l.Addr().String()}, DialTimeout: time.Hour}).withDefaults())
	p.mu.Lock()
	p.gateways[0].open = 2
	p.spread(p.gateways[0], func(*gateway) bool { return true })
	p.mu.Unlock()
	if c, err := l.Accept(); err != nil {
		t.Fatal(err)
	} else {
		defer c.Close()
	}
	p.close()
	if n := len(p.slots); n != 0 {
		t.Errorf("Got %d connections that are still being made", n)
	}
}

// A gateway that fails is left alone twice as long each time, until it works.
func TestFailedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := newPool(&Options{Addresses: []string{"a", "b"}, Connections: 1, Logger: slog.New(slog.DiscardHandler)})
		g := p.gateways[0]
		left := func() time.Duration { return time.Until(g.until) }
		for n, want := range []time.Duration{10, 20, 40, 80, 160, 300, 300} {
			p.failed(g, io.EOF)
			p.failed(g, io.EOF) // of another connection
			if got := left(); got != want*time.Second {
				t.Fatalf("failure %d: Got %v, want %v s", n, got, want)
			}
			time.Sleep(left()) // on the bubble's clock
		}
		works := &conn{gateway: g}
		p.slots <- struct{}{}
		p.put(works, nil, nil)
		if g.idle = nil; !g.until.IsZero() {
			t.Errorf("Got %v after a call has succeeded", left())
		}
		p.failed(g, io.EOF)
		if got := left(); got != failedFor {
			t.Errorf("Got %v after it had worked, want %v", got, failedFor)
		}
	})
}

// What nobody knows the outcome of is looked at again after a pause.
func TestUnknownOutcomesPause(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	pauses := 0
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	s := dial(t, func(o *Options) {
		o.pause = func(attempt int) time.Duration {
			if attempt != pauses {
				t.Errorf("Got pause %d after %d", attempt, pauses)
			}
			if pauses++; pauses == 5 {
				stop()
			}
			return time.Millisecond
		}
	}, g)
	g.inject(func(method string) fault { return fault{internal: method == "checkAndMutate"} })
	b := &store.Batch{}
	b.Advance(store.Source{Pipeline: "p", Topic: "t", ClusterID: "c"}, 0, store.Absent, store.Progress{Next: 1, Applied: 1})
	if err := s.Apply(ctx, b); err == nil {
		t.Error("the batch was applied")
	}
	if n := g.count("checkAndMutate"); n > 6 {
		t.Errorf("Got %d calls and %d pauses", n, pauses)
	}
}

// Of a mutation that must not be made twice and whose reply is lost, nobody knows;
// any other is made again.
func TestLostReply(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		method string
		fault  fault
		m      *cell.Mutation
		want   error
		count  uint64
	}{
		{"increment applied", "increment", fault{dropAfter: true}, increment("r"), store.ErrUnknownOutcome, 1},
		{"increment not applied", "increment", fault{dropBefore: true}, increment("r"), store.ErrUnknownOutcome, 0},
		{"increment busy", "increment", fault{text: "org.apache.hadoop.hbase.RegionTooBusyException: over", canRetry: true}, increment("r"), store.ErrUnknownOutcome, 0},
		{"increment internal", "increment", fault{internal: true}, increment("r"), store.ErrUnknownOutcome, 0},
		{"increment refused", "increment", fault{text: "org.apache.hadoop.hbase.DoNotRetryIOException: no"}, increment("r"), store.ErrRefused, 0},
		{"put applied", "put", fault{dropAfter: true}, put("r", "v"), nil, 0},
		{"put not applied", "put", fault{dropBefore: true}, put("r", "v"), nil, 0},
		{"put busy", "put", fault{text: "org.apache.hadoop.hbase.RegionTooBusyException: over", canRetry: true}, put("r", "v"), nil, 0},
		{"put refused", "put", fault{text: "org.apache.hadoop.hbase.DoNotRetryIOException: no"}, put("r", "v"), store.ErrRefused, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			mem := newMem(t)
			g := newGateway(t, mem, false)
			s := dial(t, nil, g)
			g.first(1, test.method, test.fault)
			if err := mutate(t, s, test.m); !errors.Is(err, test.want) {
				t.Errorf("Got %v, want %v", err, test.want)
			}
			if n := counted(t, mem, "r"); n != test.count {
				t.Errorf("Got a count of %d, want %d", n, test.count)
			}
			if test.want == nil && g.count(test.method) != 2 {
				t.Errorf("Got %d calls, want 2", g.count(test.method))
			}
		})
	}
}

// A condition that was tested must not be tested again.
func TestLostCondition(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, nil, g)
	cond := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}
	g.first(1, "checkAndMutate", fault{dropAfter: true})
	if _, err := s.MutateRow(t.Context(), cond, put("r", "v")); !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("Got %v, want ErrUnknownOutcome", err)
	}
	if res, err := s.MutateRow(t.Context(), cond, put("r", "w")); err != nil || res.Applied {
		t.Errorf("Got applied %t, %v", res.Applied, err)
	}
}

// hung returns a gateway that answers no call of method, and a channel that gets one
// value when one is made.
func hung(t *testing.T, method string) (*fakeGateway, <-chan struct{}) {
	g := newGateway(t, newMem(t), false)
	called := make(chan struct{}, 100)
	g.inject(func(m string) fault {
		if m != method {
			return fault{}
		}
		called <- struct{}{}
		return fault{hang: true}
	})
	return g, called
}

// Close ends a call that would not end by itself.
func TestCloseNeverHangs(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"put", "openScanner"} {
		g, called := hung(t, method)
		s := dial(t, func(o *Options) { o.CloseTimeout = time.Nanosecond }, g)
		failed := make(chan error, 1)
		go func() {
			if method == "put" {
				failed <- mutate(t, s, put("r", "v"))
				return
			}
			sc := s.Scan(t.Context(), &store.Scan{Table: "t"})
			sc.Next()
			failed <- sc.Err()
			sc.Close()
		}()
		<-called
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := <-failed; !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s: Got %v, want ErrClosed", method, err)
		}
		if err := mutate(t, s, put("r", "v")); !errors.Is(err, store.ErrClosed) {
			t.Errorf("after Close: Got %v", err)
		}
	}
}

// A call ends with its context, and so does a scan that is closed in the midst of one.
func TestContextEndsCalls(t *testing.T) {
	t.Parallel()
	g, called := hung(t, "increment")
	s := dial(t, nil, g)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-called
		cancel()
	}()
	_, err := s.MutateRow(ctx, nil, increment("r"))
	if !errors.Is(err, context.Canceled) || !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("Got %v, want context.Canceled and ErrUnknownOutcome", err)
	}

	g, called = hung(t, "openScanner")
	s = dial(t, nil, g)
	sc := s.Scan(t.Context(), &store.Scan{Table: "t"})
	done := make(chan bool)
	go func() { done <- sc.Next() }()
	<-called
	s.Close() // Scanner itself belongs to one goroutine
	if <-done {
		t.Error("a scan of a gateway that hangs has a row")
	}
	sc.Close()
}

// The pool opens no more connections than it may, and uses them again.
func TestPool(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, func(o *Options) { o.Connections = 2 }, g)
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for range 20 {
				if err := mutate(t, s, put(string(rune('a'+i)), "v")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if n := g.count(""); n > 2 {
		t.Errorf("Got %d connections, want at most 2", n)
	}
}

// A connection that was idle for too long is not used.
func TestIdleConnections(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, func(o *Options) { o.IdleTimeout = time.Nanosecond }, g)
	before := g.count("")
	for range 3 {
		if err := mutate(t, s, put("r", "v")); err != nil {
			t.Fatal(err)
		}
	}
	if n := g.count("") - before; n < 3 {
		t.Errorf("Got %d connections for three calls or more", n)
	}
}

// What a gateway broke off is not left to the next call: neither the connection nor
// those that are as old.
func TestBrokenConnections(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := mutate(t, s, put("r", "v")); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	g.first(1, "put", fault{dropBefore: true})
	if err := mutate(t, s, put("r", "w")); err != nil {
		t.Fatal(err)
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if s.pool.idle != 1 {
		t.Errorf("Got %d idle connections after one broke, want the one that was made since", s.pool.idle)
	}
}

func TestTLS(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // it has a certificate for example.com
	defer web.Close()
	l, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: web.TLS.Certificates})
	if err != nil {
		t.Fatal(err)
	}
	g := newGatewayAt(t, l, newMem(t), false)
	roots := x509.NewCertPool()
	roots.AddCert(web.Certificate())
	s := dial(t, func(o *Options) { o.TLS = &tls.Config{RootCAs: roots, ServerName: "example.com"} }, g)
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), &Options{Addresses: []string{g.address()}, TLS: &tls.Config{RootCAs: roots, ServerName: "other"}}); err == nil {
		s.Close()
		t.Error("a certificate of another name was taken")
	}
	plain := newGateway(t, nil, false)
	if s, err := Open(t.Context(), &Options{Addresses: []string{plain.address()}, TLS: &tls.Config{RootCAs: roots}}); err == nil || !strings.Contains(err.Error(), "does the gateway speak TLS?") {
		t.Errorf("Got %v, %v of a gateway without TLS", s, err)
	}
}

func TestFramed(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, true)
	s := dial(t, nil, g)
	if err := mutate(t, s, put("r", "v")); err != nil {
		t.Fatal(err)
	}
	for _, keys := range [][][]byte{{[]byte("m")}, {[]byte("f"), []byte("m"), []byte("t")}} {
		err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "x", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, keys)
		if !errors.Is(err, store.ErrInvalidSchema) || errors.Is(err, store.ErrUnknownOutcome) || !strings.Contains(err.Error(), "framed transport garbles split keys") {
			t.Errorf("split at %q: Got %v", keys, err)
		}
		if _, err := mem.Table(t.Context(), "x"); !errors.Is(err, store.ErrTableNotFound) {
			t.Errorf("the garbled table: Got %v, want that it is gone", err)
		}
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	for _, test := range []struct {
		name string
		o    Options
		want error
	}{
		{"no address", Options{}, store.ErrInvalidArgument},
		{"no port", Options{Addresses: []string{"localhost"}}, store.ErrInvalidArgument},
		{"password", Options{Addresses: []string{"hunter2@localhost:9090"}}, store.ErrInvalidArgument},
		{"user and password", Options{Addresses: []string{"me:hunter2@localhost:9090"}}, store.ErrInvalidArgument},
		{"negative", Options{Addresses: []string{"localhost:9090"}, Connections: -1}, store.ErrInvalidArgument},
		{"negative cells", Options{Addresses: []string{"localhost:9090"}, MaxCellBytes: -1}, store.ErrInvalidArgument},
		{"small cells", Options{Addresses: []string{"localhost:9090"}, MaxCellBytes: MinCellBytes - 1}, store.ErrInvalidArgument},
		{"small frames", Options{Addresses: []string{"localhost:9090"}, MaxFrameBytes: 1}, store.ErrInvalidArgument},
		{"nobody there", Options{Addresses: []string{nobody.Addr().String()}}, store.ErrTransient},
		{"unframed to framed", Options{Addresses: []string{newGateway(t, nil, true).address()}}, store.ErrTransient},
	} {
		s, err := Open(t.Context(), &test.o)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, test.want) || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: Got %v, want %v", test.name, err, test.want)
		}
	}
}

func TestClassify(t *testing.T) {
	t.Parallel()
	const trace = "\n\tat org.apache.hadoop.hbase.regionserver.HRegion.TableNotFoundException(HRegion.java:1)\nCaused by: java.io.IOException: x"
	for _, test := range []struct {
		text     string
		canRetry bool
		want     error
	}{
		{"org.apache.hadoop.hbase.TableExistsException: t" + trace, false, store.ErrTableExists},
		{"org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family zz", false, store.ErrFamilyNotFound},
		{"Failed 1 action: org.apache.hadoop.hbase.regionserver.NoSuchColumnFamilyException: Column family zz", true, store.ErrFamilyNotFound},
		{"org.apache.hadoop.hbase.ConcurrentTableModificationException: Skipping modify table operation on table 't' as it has already been modified by some other concurrent operation, Please retry." + trace, false, errAltered},
		{"t", false, store.ErrTableNotFound},
		{"Failed 1 action: t: 1 time, servers with issues: null", true, store.ErrTableNotFound},
		{"t is disabled.", false, store.ErrTableNotEnabled},
		{"tableName=t, state=ENABLED", false, store.ErrTableNotDisabled},
		{"org.apache.hadoop.hbase.TableNotDisabledException: Not DISABLED; tableName=t, state=ENABLED", false, store.ErrTableNotDisabled},
		{"Failed 1 action: NotServingRegionException: 1 time, servers with issues: h,1,2", true, errNotServing},
		{"org.apache.hadoop.hbase.DoNotRetryIOException: Field is not a long, it's 1 bytes wide", false, store.ErrNotANumber},
		{"org.apache.hadoop.hbase.DoNotRetryIOException: Cell with size 11 exceeds limit of 10 bytes", false, store.ErrCellTooLarge},
		{"org.apache.hadoop.hbase.DoNotRetryIOException: Cell[r/f:q/1700000001001/Put/vlen=3/seqid=0] with size 11 exceeds limit of 10 bytes" + trace, false, store.ErrCellTooLarge},
		{"org.apache.hadoop.hbase.DoNotRetryIOException: region is read only" + trace, false, store.ErrTableReadOnly},
		{"Failed 2 actions: org.apache.hadoop.hbase.DoNotRetryIOException: region is read only" + trace, true, store.ErrTableReadOnly},
		{"org.apache.hadoop.hbase.constraint.ConstraintException: Only empty namespaces", false, store.ErrConstraint},
		{"org.apache.hadoop.hbase.client.RetriesExhaustedException: Failed after attempts=16", true, store.ErrTransient},
		{"Zookeeper GET could not be completed in 10000 ms", false, store.ErrTransient},
		{"what nobody has seen", true, store.ErrTransient},
		{"what nobody has seen", false, store.ErrRefused},
	} {
		err := classify("t", &hbase.TIOError{Message: &test.text, CanRetry: &test.canRetry})
		if !errors.Is(err, test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%.80q: Got %v, want %v", test.text, err, test.want)
		}
	}
}

// lateContext is one whose timer fires behind its deadline.
type lateContext struct{ context.Context }

func (lateContext) Deadline() (time.Time, bool) { return time.Now().Add(-time.Millisecond), true }

// A connection that the caller's deadline ends is no fault of the gateway, though the
// network sees the deadline before the context ends.
func TestDeadlineInDial(t *testing.T) {
	t.Parallel()
	g := newGateway(t, newMem(t), false)
	s := dial(t, nil, g)
	s.pool.mu.Lock()
	s.pool.forget(s.pool.gateways[0])
	s.pool.mu.Unlock()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := s.Tables(lateContext{ctx}); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, store.ErrTransient) {
		t.Errorf("Got %v, want context.DeadlineExceeded", err)
	}
	s.pool.mu.Lock()
	defer s.pool.mu.Unlock()
	if until := s.pool.gateways[0].until; !until.IsZero() {
		t.Errorf("the gateway is left alone until %v", until)
	}
}
