//go:build integration

package integration

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"net"
	"sync"
	"testing"
)

// loss is what a thriftProxy does with a call.
type loss string

const (
	nothingLost loss = ""
	callLost    loss = "call lost"  // the gateway never sees it
	replyLost   loss = "reply lost" // it is carried out, and its caller is not told
)

// thriftProxy stands before an unframed Thrift2 gateway, counts the calls by their names
// and loses some: the connection breaks at such a call.
type thriftProxy struct {
	address string // of the proxy

	mu    sync.Mutex // guards what follows
	calls map[string]int
	lose  func(method string) loss // nil = nothing
}

// newThriftProxy starts one, with TLS where config is not nil. It ends with the test.
func newThriftProxy(t *testing.T, gateway string, config *tls.Config) *thriftProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &thriftProxy{address: l.Addr().String(), calls: map[string]int{}}
	if config != nil {
		l = tls.NewListener(l, config)
	}
	var mu sync.Mutex // guards open, nil = the test is over
	open := map[net.Conn]bool{}
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if open == nil {
				mu.Unlock()
				c.Close()
				return
			}
			open[c] = true
			serving.Go(func() {
				p.serve(c, gateway)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
			mu.Unlock()
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		open = nil
		mu.Unlock()
		serving.Wait()
	})
	return p
}

// serve passes on what comes over a connection, until either side ends it.
func (p *thriftProxy) serve(caller net.Conn, gateway string) {
	defer caller.Close()
	g, err := net.Dial("tcp", gateway)
	if err != nil {
		return
	}
	defer g.Close()
	var mu sync.Mutex // guards what follows
	begins := true    // what the caller sends next is a call
	lost := nothingLost
	var answers sync.WaitGroup
	answers.Go(func() {
		defer caller.Close()
		for b := make([]byte, 1<<16); ; {
			n, err := g.Read(b)
			mu.Lock()
			silent := lost == replyLost
			begins = true // a call follows a whole reply only
			mu.Unlock()
			if n > 0 && !silent {
				_, werr := caller.Write(b[:n])
				silent = werr != nil
			}
			if err != nil || silent {
				return
			}
		}
	})
	defer answers.Wait()
	defer g.Close()
	for b := make([]byte, 1<<16); ; {
		n, err := caller.Read(b)
		mu.Lock()
		if name, ok := calls(b[:n]); begins && ok {
			begins, lost = false, p.called(name)
		}
		gone := lost == callLost
		mu.Unlock()
		if n > 0 && !gone {
			_, werr := g.Write(b[:n])
			gone = werr != nil
		}
		if err != nil || gone {
			return
		}
	}
}

// calls returns the name of the call that b begins, in Thrift's binary protocol.
func calls(b []byte) (method string, ok bool) {
	if len(b) < 8 || !bytes.Equal(b[:4], []byte{0x80, 1, 0, 1}) {
		return "", false
	}
	n := binary.BigEndian.Uint32(b[4:])
	if uint64(len(b)-8) < uint64(n) {
		return "", false
	}
	return string(b[8 : 8+n]), true
}

func (p *thriftProxy) called(method string) loss {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls[method]++
	if p.lose == nil {
		return nothingLost
	}
	return p.lose(method)
}

// count returns how many calls of a method have come.
func (p *thriftProxy) count(method string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.calls[method]
}

// losing has what becomes of calls decided by lose, nil = all are passed on. One call at
// a time asks it.
func (p *thriftProxy) losing(lose func(method string) loss) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = lose
}
