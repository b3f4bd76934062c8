package serve_test

import (
	"bufio"
	"errors"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"sluice/serve"
	"sluice/store/memstore"
)

// TestConnectionsAreBounded: beyond MaxConnections a connection waits until another is
// closed, and is served then.
func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	engine, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer engine.Close()
	s, err := serve.New(&serve.Options{Engine: engine, MaxConnections: 2})
	if err != nil {
		t.Fatal(err)
	}
	address, stop := running(t, s)
	ask := func() net.Conn {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if _, err := c.Write([]byte("GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		return c
	}
	answer := func(c net.Conn, within time.Duration) error {
		if err := c.SetReadDeadline(time.Now().Add(within)); err != nil {
			t.Fatal(err)
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		return res.Body.Close()
	}
	first, second := ask(), ask()
	for _, c := range []net.Conn{first, second} {
		if err := answer(c, time.Minute); err != nil {
			t.Fatal(err)
		}
	}
	third := ask()
	if err := answer(third, 50*time.Millisecond); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the third connection of two: got %v, want no answer", err)
	}
	first.Close()
	if err := answer(third, time.Minute); err != nil {
		t.Errorf("the third connection after the first was closed: %v", err)
	}
	ask() // waits
	stop()
}
