package pipeline

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/pipeline/kafka"
	"sluice/store"
)

// A pipeline that starts while no broker answers says so and waits; it applies
// everything once one does, as a member of a group and without one.
func TestWaitsForBrokers(t *testing.T) {
	t.Parallel()
	for name, static := range map[string]bool{"group": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testWaitsForBrokers(t, static) })
		})
	}
}

func testWaitsForBrokers(t *testing.T, static bool) {
	c, client := virtualCluster(t, 3)
	c.produce("pages", 100)
	var up atomic.Bool
	absent := client(func(o *kafka.Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			if up.Load() {
				return dial(ctx, network, addr)
			}
			return nil, &net.OpError{Op: "dial", Net: network, Err: net.UnknownNetworkError("nobody listens")}
		}
	})
	e := newEngine(t)
	p := runPages(t, e, absent, static)
	<-time.After(time.Hour)
	if s := p.Status(); !s.Running || s.Waiting == "" || s.Generation >= 0 {
		t.Errorf("Got status %+v while no broker answers", s)
	}
	up.Store(true)
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	if s := p.Status(); s.Waiting != "" {
		t.Errorf("Got status %+v while a broker answers", s)
	}
	p.close()
	c.check(e)
}

// A pipeline whose brokers go away while it runs says so and waits; it goes on when they are
// back.
func TestSaysThatBrokersAreAway(t *testing.T) {
	t.Parallel()
	for name, static := range map[string]bool{"group": false, "static": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testSaysThatBrokersAreAway(t, static) })
		})
	}
}

func testSaysThatBrokersAreAway(t *testing.T, static bool) {
	c, client := virtualCluster(t, 3)
	c.produce("pages", 100)
	var (
		mu    sync.Mutex // guards below
		away  bool
		conns []net.Conn
	)
	leaving := client(func(o *kafka.Options) {
		dial := o.Dial
		o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			defer mu.Unlock()
			if away {
				return nil, &net.OpError{Op: "dial", Net: network, Err: net.UnknownNetworkError("nobody listens")}
			}
			conn, err := dial(ctx, network, addr)
			if err == nil {
				conns = append(conns, conn)
			}
			return conn, err
		}
	})
	e := newEngine(t)
	p := runPages(t, e, leaving, static)
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	if s := p.Status(); s.Waiting != "" || s.Unreachable {
		t.Errorf("Got status %+v while brokers answer", s)
	}
	mu.Lock()
	away = true
	for _, conn := range conns {
		_ = conn.Close() // what was in flight fails
	}
	mu.Unlock()
	<-time.After(time.Minute)
	if s := p.Status(); !s.Running || s.Waiting == "" || !s.Unreachable {
		t.Errorf("Got status %+v while no broker answers", s)
	}
	mu.Lock()
	away = false
	mu.Unlock()
	c.produce("pages", 100)
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	<-time.After(time.Minute)
	if s := p.Status(); s.Waiting != "" || s.Unreachable {
		t.Errorf("Got status %+v while brokers answer again", s)
	}
	p.close()
	c.check(e)
}

// runPages is a pipeline of the topic pages by a client.
func runPages(t testing.TB, e store.Engine, client *kafka.Client, static bool) *member {
	t.Helper()
	return runMember(t, &Options{
		Name: "p", Topics: []string{"pages"}, Client: client, Plan: testPlan(t, e), Engine: e, StoreID: "s1", Static: static,
		SessionTimeout: 6 * time.Second, Heartbeat: time.Second, Logger: testLogger(t),
	})
}

// A stop does not wait for brokers.
func TestStopsWhileItWaitsForBrokers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		_, client := virtualCluster(t, 1)
		silent := client(func(o *kafka.Options) {
			o.Dial = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
		})
		e := newEngine(t)
		p, err := New(&Options{Name: "p", Topics: []string{"pages"}, Client: silent, Plan: testPlan(t, e), Engine: e, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		const after = 10*time.Minute + time.Second
		time.AfterFunc(after, cancel)
		begun := time.Now()
		if err := p.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took != after {
			t.Errorf("Got the end after %v, want %v", took, after)
		}
	})
}
