package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"sluice/cell"
	"sluice/store"
)

// frozen returns the address of a process that its system opens connections to, and
// that never reads from them, as after SIGSTOP.
func frozen(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l.Addr().String()
}

// A gateway that takes connections and answers nothing is left for another one before
// a call is made on it.
func TestHalfDead(t *testing.T) {
	t.Parallel()
	dead := frozen(t)
	g := newGateway(t, newMem(t), false)
	// A call that reached the dead one would take an hour.
	s := dial(t, func(o *Options) {
		o.Addresses = []string{dead, g.address()}
		o.DialTimeout = time.Second
		o.CallTimeout = time.Hour
	}, g)
	for range 20 {
		if err := mutate(t, s, increment("r")); err != nil {
			t.Fatal(err)
		}
	}
	if n := counted(t, g.mem, "r"); n != 20 {
		t.Errorf("Got a count of %d, want 20", n)
	}
	if _, err := Open(t.Context(), &Options{Addresses: []string{dead}, DialTimeout: time.Millisecond}); !errors.Is(err, store.ErrTransient) {
		t.Errorf("only a dead one: Got %v, want ErrTransient", err)
	}
}

// everyCall are all kinds of calls that a Store makes.
var everyCall = map[string]func(context.Context, *Store) error{
	"schema":  func(ctx context.Context, s *Store) error { _, err := s.Table(ctx, "other"); return err },
	"regions": func(ctx context.Context, s *Store) error { _, err := s.Regions(ctx, "t"); return err },
	"tables":  func(ctx context.Context, s *Store) error { _, err := s.Tables(ctx); return err },
	"scan": func(ctx context.Context, s *Store) error {
		_, err := collect(s.Scan(ctx, &store.Scan{Table: "t"}))
		return err
	},
	"get": func(ctx context.Context, s *Store) error {
		_, err := collect(s.Scan(ctx, &store.Scan{Table: "t", Start: []byte("r"), Stop: []byte("r"), StopInclusive: true}))
		return err
	},
	"put":       func(ctx context.Context, s *Store) error { _, err := s.MutateRow(ctx, nil, put("r", "v")); return err },
	"increment": func(ctx context.Context, s *Store) error { _, err := s.MutateRow(ctx, nil, increment("r")); return err },
	"condition": func(ctx context.Context, s *Store) error {
		_, err := s.MutateRow(ctx, &store.Cond{Family: "f", Qualifier: []byte("q"), Op: store.Equal}, put("r", "v"))
		return err
	},
	"rows": func(ctx context.Context, s *Store) error {
		_, errs := s.MutateRows(ctx, []*cell.Mutation{put("r", "v"), put("s", "v")})
		return errors.Join(errs...)
	},
	"batch": func(ctx context.Context, s *Store) error {
		b := &store.Batch{}
		b.Add(1, *put("r", "v"))
		b.Add(2, *put("s", "v"))
		return s.Apply(ctx, b)
	},
	"create": func(ctx context.Context, s *Store) error {
		d := newMemSchema()
		d.Name = "n"
		return s.CreateTable(ctx, d, nil)
	},
	"alter":      func(ctx context.Context, s *Store) error { return s.AlterTable(ctx, newMemSchema()) },
	"drop":       func(ctx context.Context, s *Store) error { return s.DropTable(ctx, "t") },
	"disable":    func(ctx context.Context, s *Store) error { return s.DisableTable(ctx, "t") },
	"enable":     func(ctx context.Context, s *Store) error { return s.EnableTable(ctx, "t") },
	"enabled":    func(ctx context.Context, s *Store) error { _, err := s.TableEnabled(ctx, "t"); return err },
	"truncate":   func(ctx context.Context, s *Store) error { return s.TruncateTable(ctx, "t", true) },
	"namespace":  func(ctx context.Context, s *Store) error { return s.CreateNamespace(ctx, &store.Namespace{Name: "n"}) },
	"namespaces": func(ctx context.Context, s *Store) error { _, err := s.Namespaces(ctx); return err },
}

// freeze makes a gateway answer nothing but to new connections.
func freeze(g *fakeGateway, called chan<- string) {
	g.inject(func(method string) fault {
		if method == "getThriftServerType" {
			return fault{}
		}
		if called != nil {
			called <- method
		}
		return fault{hang: true}
	})
}

// Every call ends by its own deadline where nothing answers.
func TestDeadlines(t *testing.T) {
	t.Parallel()
	for name, call := range everyCall {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, newMem(t), false)
			s := dial(t, func(o *Options) { o.RetryTimeout = time.Nanosecond }, g)
			if _, err := s.Table(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			freeze(g, nil)
			s.o.CallTimeout, s.o.AdminTimeout = time.Millisecond, time.Millisecond // Open takes longer
			if err := call(t.Context(), s); !errors.Is(err, store.ErrTransient) {
				t.Errorf("Got %v, want ErrTransient", err)
			}
		})
	}
}

// Every call ends with the store, whose gateway answers no more.
func TestCloseEndsEveryCall(t *testing.T) {
	t.Parallel()
	for name, call := range everyCall {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, newMem(t), false)
			s := dial(t, func(o *Options) {
				o.CloseTimeout, o.CallTimeout, o.AdminTimeout = time.Nanosecond, time.Hour, time.Hour
			}, g)
			if _, err := s.Table(t.Context(), "t"); err != nil {
				t.Fatal(err)
			}
			called := make(chan string, 100)
			freeze(g, called)
			failed := make(chan error, 1)
			go func() { failed <- call(t.Context(), s) }()
			<-called
			if err := s.Close(); err != nil {
				t.Error(err)
			}
			if err := <-failed; !errors.Is(err, store.ErrClosed) {
				t.Errorf("Got %v, want ErrClosed", err)
			}
		})
	}
}

// A batch has several calls in flight, and no more than there may be connections.
func TestApplyInFlight(t *testing.T) {
	t.Parallel()
	var splits []string
	for i := 1; i < 16; i++ {
		splits = append(splits, fmt.Sprintf("%02d", i))
	}
	g := newGateway(t, newMem(t, splits...), false)
	s := dial(t, func(o *Options) { o.Connections = 3 }, g)
	if _, err := s.Regions(t.Context(), "t"); err != nil {
		t.Fatal(err)
	}
	called, release := make(chan string, 100), make(chan struct{})
	g.inject(func(method string) fault {
		if method != "putMultiple" {
			return fault{}
		}
		called <- method
		return fault{until: release}
	})
	b := &store.Batch{}
	for i := range 16 {
		for _, row := range []string{"a", "b"} {
			b.Add(int64(i), *put(fmt.Sprintf("%02d%s", i, row), "v"))
		}
	}
	failed := make(chan error, 1)
	go func() { failed <- s.Apply(t.Context(), b) }()
	for range 3 { // all at once, or this waits for ever
		<-called
	}
	close(release)
	if err := <-failed; err != nil {
		t.Fatal(err)
	}
	if n := g.count("putMultiple"); n != 16 {
		t.Errorf("Got %d calls, want one for each of 16 regions", n)
	}
	if n := g.count(""); n > 3 {
		t.Errorf("Got %d connections, want at most 3", n)
	}
}

// Of a batch puts are made again whose answer was lost, and increments are not: their
// error says that nobody knows, and the others are applied.
func TestApplyLostReply(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	lost := map[string]int{"putMultiple": 1, "increment": 1, "put": 0}
	g.inject(func(method string) fault {
		if lost[method]--; lost[method] >= 0 {
			return fault{dropAfter: true}
		}
		return fault{}
	})
	b := &store.Batch{}
	b.Add(1, *put("a", "v"))
	b.Add(2, *increment("b"))
	b.Add(3, *put("c", "v"))
	err := s.Apply(t.Context(), b)
	var partial *store.PartialError
	if !errors.As(err, &partial) || len(partial.Failed) != 1 || partial.Failed[0].Offset != 2 || partial.Applied != 2 || !errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("Got %v, want that of offset 2 nobody knows", err)
	}
	if n := counted(t, mem, "b"); n != 1 || g.count("increment") != 1 {
		t.Errorf("Got a count of %d after %d calls, want 1 after 1", n, g.count("increment"))
	}
	if n := g.count("putMultiple"); n != 2 {
		t.Errorf("Got %d calls, want 2", n)
	}
}

// HBase gives the deletes and puts of one mutation one sequence number: where that
// matters they are not joined.
func TestApplyKeepsOrder(t *testing.T) {
	t.Parallel()
	for _, behavior := range []bool{false, true} {
		mem := newMem(t)
		g := newGateway(t, mem, false)
		s := dial(t, nil, g)
		d := newMemSchema()
		d.Families[0].NewVersionBehavior = behavior
		if err := mem.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
		b := &store.Batch{}
		b.Add(1, *put("r", "old"))
		del := cell.Mutation{Table: "t", Row: []byte("r")}
		del.DeleteColumn("f", []byte("q"), 5)
		b.Add(2, del)
		b.Add(3, *put("r", "new"))
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		got, err := collect(mem.Scan(t.Context(), &store.Scan{Table: "t"}))
		want := 0
		if behavior {
			want = 1
		}
		if err != nil || len(got) != want || g.count("put") != want {
			t.Errorf("new version behavior %t: Got %q after %d puts alone, %v", behavior, got, g.count("put"), err)
		}
	}
}

// Where HBase says that a region is not where it was, the map of regions is read anew.
func TestRegionsRefreshed(t *testing.T) {
	t.Parallel()
	for _, method := range []string{"put", "getScannerResults"} {
		mem := newMem(t)
		g := newGateway(t, mem, false)
		s := dial(t, func(o *Options) { o.MaxAge = time.Hour }, g)
		if m, err := s.Regions(t.Context(), "t"); err != nil || m.Len() != 1 {
			t.Fatal(m, err)
		}
		if err := mem.SplitRegion(t.Context(), "t", []byte("m")); err != nil {
			t.Fatal(err)
		}
		g.first(1, method, fault{text: "org.apache.hadoop.hbase.NotServingRegionException: t,,1 is not online", canRetry: true})
		var err error
		if method == "put" {
			err = mutate(t, s, put("r", "v"))
		} else {
			_, err = collect(s.Scan(t.Context(), &store.Scan{Table: "t", Limit: 1}))
		}
		if err != nil {
			t.Fatal(err)
		}
		if m, err := s.Regions(t.Context(), "t"); err != nil || m.Len() != 2 {
			t.Errorf("%s: Got %d regions, %v, want 2", method, m.Len(), err)
		}
	}
}

// A gateway with framed transport breaks the connection at a frame that is too large
// for it, and garbles attributes.
func TestFramedLimits(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	g := newGateway(t, mem, true)
	s := dial(t, nil, g)
	if err := mutate(t, s, put("r", string(make([]byte, 2<<20)))); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("a frame of more than 2 MiB: Got %v, want ErrInvalidArgument", err)
	}
	if err := mutate(t, s, put("r", string(make([]byte, 2<<20-1000)))); err != nil {
		t.Errorf("a frame of less than 2 MiB: Got %v", err)
	}
	if err := s.AlterTable(t.Context(), newMemSchema()); err != nil {
		t.Errorf("a schema without attributes: Got %v", err)
	}
	d := newMemSchema()
	if err := d.SetMetadata("owner", "me"); err != nil {
		t.Fatal(err)
	}
	if err := s.AlterTable(t.Context(), d); !errors.Is(err, store.ErrInvalidSchema) {
		t.Errorf("a schema with attributes: Got %v, want ErrInvalidSchema", err)
	}
}
