package pipeline

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/cell"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// heldEngine applies nothing while it is held: it refuses, or does not answer.
type heldEngine struct {
	store.Engine
	refuse error // nil = it does not answer

	mu   sync.Mutex
	held chan struct{} // closed when it is let go
}

func (e *heldEngine) Apply(ctx context.Context, b *store.Batch) error {
	e.mu.Lock()
	held := e.held
	e.mu.Unlock()
	select {
	case <-held:
		return e.Engine.Apply(ctx, b)
	default:
	}
	if e.refuse != nil {
		return e.refuse
	}
	select {
	case <-held:
		return e.Engine.Apply(ctx, b)
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A disk that is full, or a store that does not answer, for a hundred times the
// session timeout: the member stays in its group, in the same generation, and goes on
// by itself.
func TestHeartbeatsWhilePaused(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]error{"full disk": store.ErrDiskFull, "busy store": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testHeartbeatsWhilePaused(t, refuse) })
		})
	}
}

// virtualCluster returns a broker of the bubble, whose topic pages has so many
// partitions, and what makes clients of it. All end with the test.
func virtualCluster(t *testing.T, partitions int32) (c *cluster, client func(opts ...func(*kafka.Options)) *kafka.Client) {
	t.Helper()
	net := new(kfake.VirtualNetwork)
	broker, err := kfake.NewCluster(kfake.Ports(1), kfake.ListenFn(net.Listen), kfake.SeedTopics(partitions, "pages"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(broker.Close)
	client = func(opts ...func(*kafka.Options)) *kafka.Client {
		o := &kafka.Options{Brokers: []string{"127.0.0.1:1"}, Dial: net.DialContext, Logger: testLogger(t)}
		for _, set := range opts {
			set(o)
		}
		c, err := kafka.NewClient(o)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	c = &cluster{t: t, kfake: broker, client: client(), pages: map[string]int64{}}
	c.out = c.client.NewProducer(nil)
	t.Cleanup(func() { c.out.Close() })
	return c, client
}

// unreadEngine answers no scan of the outbox.
type unreadEngine struct{ store.Engine }

func (e unreadEngine) Scan(ctx context.Context, s *store.Scan) store.Scanner {
	if s.Table == store.OutboxTable {
		return &silentScanner{ctx: ctx}
	}
	return e.Engine.Scan(ctx, s)
}

type silentScanner struct{ ctx context.Context }

func (s *silentScanner) Next() bool     { <-s.ctx.Done(); return false }
func (s *silentScanner) Row() *cell.Row { return nil }
func (s *silentScanner) Err() error     { return s.ctx.Err() }
func (s *silentScanner) Close() error   { return nil }

// How many dead letters were redriven is for people: while the store does not tell, records
// are applied, and a pipeline that is to stop does.
func TestNobodyWaitsForTheOutbox(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, client := virtualCluster(t, 2)
		e := newEngine(t)
		p, err := New(&Options{Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e), Engine: unreadEngine{e}, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		c.produce("pages", 100)
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
		cancel()
		begun := time.Now()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if took := time.Since(begun); took > DefaultDrainTimeout {
			t.Errorf("Got the end after %v", took)
		}
	})
}

func testHeartbeatsWhilePaused(t *testing.T, refuse error) {
	const timeout = 6 * time.Second
	c, client := virtualCluster(t, 3)
	held := make(chan struct{})
	close(held)
	e := &heldEngine{Engine: newEngine(t), refuse: refuse, held: held}
	p, err := New(&Options{
		Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e.Engine), Engine: e,
		StoreID: "s1", SessionTimeout: timeout, Heartbeat: time.Second, Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	stored := func() bool { return readProgress(t, e.Engine) == c.total }
	c.produce("pages", 100)
	waitFor(t, stored)
	before := p.Status()

	held = make(chan struct{})
	e.mu.Lock()
	e.held = held
	e.mu.Unlock()
	for range 10 {
		c.produce("pages", 50)
		<-time.After(10 * timeout)
	}
	during := p.Status()
	if during.Generation != before.Generation || during.MemberID != before.MemberID || p.Metrics().Rebalances != 1 {
		t.Errorf("Got generation %d of member %s, %d rebalances; want %d of %s and 1",
			during.Generation, during.MemberID, p.Metrics().Rebalances, before.Generation, before.MemberID)
	}
	if n := readProgress(t, e.Engine); n != 100 {
		t.Errorf("Got %d offsets stored by a store that is held, want 100", n)
	}
	for _, s := range during.Partitions {
		if s.Paused == "" || refuse == nil && !strings.HasPrefix(s.Paused, "the store has not answered for ") {
			t.Errorf("Got pause %q, want why", s.Paused)
		}
	}
	close(held)
	waitFor(t, stored)
	after := p.Status()
	if after.Generation != before.Generation || after.MemberID != before.MemberID {
		t.Errorf("Got generation %d after the pause, want %d", after.Generation, before.Generation)
	}
	for _, s := range after.Partitions {
		if s.Paused != "" || !s.Owned {
			t.Errorf("Got %+v, want it to go on", s)
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(fmt.Errorf("run: %w", err))
	}
	c.check(e.Engine)
}
