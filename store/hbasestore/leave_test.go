package hbasestore

import (
	"log/slog"
	"net"
	"runtime"
	"testing"
	"time"

	"sluice/store"
)

// A gateway whose every answer is an internal error is left.
func TestInternalErrorsLeave(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	a, b := newGateway(t, mem, false), newGateway(t, mem, false)
	s := dial(t, nil, a, b)
	a.inject(func(method string) fault { return fault{internal: method != "getThriftServerType"} })
	failed := 0
	for range 30 {
		if err := mutate(t, s, put("row", "v")); err != nil {
			failed++
		}
	}
	if failed > maxStrikes {
		t.Errorf("Got %d failures of 30 puts beside a gateway that works", failed)
	}
}

// Connections that are in use when their gateway is left do not bring it back.
func TestLeftAmidCalls(t *testing.T) {
	t.Parallel()
	p := newPool(&Options{Addresses: []string{"a", "b"}, Connections: 16, IdleTimeout: time.Hour, Logger: slog.New(slog.DiscardHandler)})
	g := p.gateways[0]
	for range 6 {
		p.slots <- struct{}{}
	}
	for range 6 {
		x, y := net.Pipe()
		defer y.Close()
		p.put(newConn(g, x, false), nil, store.ErrTransient)
	}
	if !g.until.After(time.Now()) {
		t.Fatal("not left")
	}
	c, to, err := p.choose(nil, nil)
	if err != nil || c != nil && c.gateway == g || to == g {
		t.Errorf("Got a connection to the gateway that was left: conn %v, dial %v, err %v", c != nil, to, err)
	}
}

// The try behind a transient answer goes to the other gateway.
func TestRetryPrefersAnother(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	a, b := newGateway(t, mem, false), newGateway(t, mem, false)
	s := dial(t, nil, a, b)
	if err := mutate(t, s, put("row", "v")); err != nil {
		t.Fatal(err)
	}
	if a.count("put") == 0 {
		a, b = b, a
	}
	base := a.count("put")
	a.inject(func(method string) fault {
		if method == "getThriftServerType" {
			return fault{}
		}
		return fault{text: "org.apache.hadoop.hbase.ipc.CallTimeoutException: no", canRetry: true}
	})
	if err := mutate(t, s, put("row", "v")); err != nil {
		t.Fatal(err)
	}
	if n := a.count("put") - base; n != 1 {
		t.Errorf("Got %d tries at the failing gateway by one put, want 1", n)
	}
}

// A gateway that was left and works again gets its part of the connections, though none is
// missing; nobody waits for one that does not.
func TestGatewayComesBack(t *testing.T) {
	t.Parallel()
	mem := newMem(t)
	a, b := newGateway(t, mem, false), newGateway(t, mem, false)
	s := dial(t, func(o *Options) { o.Connections = 6 }, a, b)
	p := s.pool
	hold := func(n int) {
		t.Helper()
		var all []*conn
		for range n {
			c, err := p.get(t.Context(), nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, c)
		}
		for _, c := range all {
			p.put(c, nil, nil)
		}
	}
	open := func() (n [2]int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for i, g := range p.gateways {
			n[i] = g.open
		}
		return n
	}
	left := p.gateways[1]
	p.failed(left, store.ErrTransient)
	hold(6)
	if n := open(); n != [2]int{6, 0} {
		t.Fatalf("Got %v connections beside a gateway that is left", n)
	}
	p.mu.Lock()
	left.until = time.Now() // its time is over
	p.mu.Unlock()
	for deadline := time.Now().Add(time.Minute); open()[1] < 3; {
		if time.Now().After(deadline) {
			t.Fatalf("Got %v connections", open())
		}
		hold(2)
	}
	for range 100 {
		hold(4)
	}
	if n := open(); n != [2]int{3, 3} || !left.until.IsZero() {
		t.Errorf("Got %v connections, want three each", n)
	}
	b.stop() // both of the others' connections to it, too
	a.stop()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	// One that is being made ahead is counted until that has failed.
	for deadline := time.Now().Add(time.Minute); open() != [2]int{}; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("Got %v connections of a store that is closed", open())
		}
	}
}
