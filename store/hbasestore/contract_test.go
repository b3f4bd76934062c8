package hbasestore

import (
	"testing"
	"time"

	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/storetest"
)

// dial opens a store over gateways with short pauses. It is closed with the test.
func dial(t *testing.T, change func(*Options), gateways ...*fakeGateway) *Store {
	t.Helper()
	o := &Options{pause: func(int) time.Duration { return time.Millisecond }}
	for _, g := range gateways {
		o.Addresses = append(o.Addresses, g.address())
		o.Framed = g.framed
	}
	o.dial = dialPipes(gateways)
	if change != nil {
		change(o)
	}
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// TestContract runs what the engines' contract and the cases ask of a Thrift2
// gateway, over one that has memstore behind it.
func TestContract(t *testing.T) {
	t.Parallel()
	gateways := map[string]*fakeGateway{} // by directory: what was written there outlives an engine
	unsupported := map[string]bool{}
	limits := storetest.HBaseLimits()
	limits.Unsupported = func(id, _ string) { unsupported[id] = true }
	limits.Shorten()
	storetest.RunWithin(t, func(t *testing.T, o storetest.Options) store.Engine {
		g := gateways[o.Dir]
		if g == nil {
			m, err := memstore.New(&memstore.Options{Now: o.Now})
			if err != nil {
				t.Fatal(err)
			}
			g = newGateway(t, m, false)
			gateways[o.Dir] = g
		}
		return dial(t, func(h *Options) { h.Now = o.Now }, g)
	}, limits)
	// Of more than 600 cases. Each that is not run is something that HBase does and
	// a user of this engine has to do without.
	if n := len(unsupported); n > 80 {
		t.Errorf("%d cases are not supported", n)
	}
}
