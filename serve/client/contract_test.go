package client_test

import (
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sluice/serve"
	"sluice/serve/client"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/storetest"
)

// dial serves engine and returns a client of it. Closing the client closes all.
func dial(t *testing.T, engine store.Engine, change func(*serve.Options)) *client.Client {
	t.Helper()
	o := &serve.Options{Engine: engine}
	if change != nil {
		change(o)
	}
	s, err := serve.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ts := httptest.NewServer(s.Handler())
	t.Cleanup(ts.Close)
	c, err := client.Dial(t.Context(), s.Endpoint(strings.TrimPrefix(ts.URL, "http://")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTokenIsNotPrinted(t *testing.T) {
	t.Parallel()
	c := dial(t, newStore(t), func(o *serve.Options) { o.Token = "hunter2" })
	if text := fmt.Sprintf("%v %+v %#v", c, c, c); strings.Contains(text, "hunter2") {
		t.Errorf("the token is in %s", text)
	}
}

// TestContract runs the engines' contract through HTTP. Its largest batches take the
// model engine many seconds under the race detector.
func TestContract(t *testing.T) {
	t.Parallel()
	limits := &storetest.Limits{RandomOneIn: 4} // the server's engine runs all of them
	limits.Shorten()
	storetest.RunWithin(t, func(t *testing.T, o storetest.Options) store.Engine {
		m, err := memstore.New(&memstore.Options{Now: o.Now})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { m.Close() })
		return dial(t, m, func(o *serve.Options) { o.RequestTimeout = time.Hour })
	}, limits)
}
