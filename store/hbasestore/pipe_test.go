package hbasestore

import (
	"context"
	"net"
	"sync"
	"syscall"
	"testing"

	"sluice/store/memstore"
)

// pipeListener accepts connections that are net.Pipe's: in a bubble of testing/synctest
// their deadlines are of its clock, which a busy machine does not move.
type pipeListener struct {
	name   string
	made   chan net.Conn
	closed chan struct{}
	end    sync.Once
}

// newPipeGateway is newGateway, of a bubble, at a name that no other gateway of the test has.
func newPipeGateway(t *testing.T, name string, mem *memstore.Store) *fakeGateway {
	t.Helper()
	return newGatewayAt(t, &pipeListener{name: name, made: make(chan net.Conn), closed: make(chan struct{})}, mem, false)
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.made:
		return c, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error {
	l.end.Do(func() { close(l.closed) })
	return nil
}

func (l *pipeListener) Addr() net.Addr { return l }

func (l *pipeListener) Network() string { return "pipe" }

func (l *pipeListener) String() string { return l.name + ":9090" }

func (l *pipeListener) dial(ctx context.Context) (net.Conn, error) {
	ours, theirs := net.Pipe()
	select {
	case l.made <- theirs:
		return ours, nil
	case <-l.closed:
		return nil, syscall.ECONNREFUSED
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// dialPipes returns what dials the gateways of newPipeGateway among some, nil where there
// is none.
func dialPipes(gateways []*fakeGateway) func(ctx context.Context, network, address string) (net.Conn, error) {
	pipes := map[string]*pipeListener{}
	for _, g := range gateways {
		if l, ok := g.listener.(*pipeListener); ok {
			pipes[l.String()] = l
		}
	}
	if len(pipes) == 0 {
		return nil
	}
	return func(ctx context.Context, _, address string) (net.Conn, error) { return pipes[address].dial(ctx) }
}
