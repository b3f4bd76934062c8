//go:build integration

package integration

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sluice/store/hbasestore"
)

// gateway is a Thrift2 gateway of one test, beside that of its HBase.
type gateway struct {
	h       *hbaseServer
	address string
	framed  bool
	args    []string // settings, and flags behind "start"

	cmd   *exec.Cmd
	log   *lockedBuffer
	ended chan struct{}
}

// gateway starts one, with settings of its own ("NAME=VALUE") and flags of "hbase
// thrift2". It is killed when the test ends.
func (h *hbaseServer) gateway(t *testing.T, settings []string, flags ...string) *gateway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &gateway{h: h, address: l.Addr().String(), framed: slices.Contains(flags, "-f"), log: &lockedBuffer{}}
	_, port, err := net.SplitHostPort(g.address)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	g.args = append(append(settings, "start", "-b", "127.0.0.1", "-p", port), flags...)
	t.Cleanup(func() {
		g.kill()
		if t.Failed() {
			t.Logf("log of the gateway %s:\n%s", g.address, g.log)
		}
	})
	g.start(t)
	return g
}

// start starts the gateway and waits until it answers, however long a busy machine takes.
func (g *gateway) start(t *testing.T) {
	t.Helper()
	program := filepath.Join(ModuleRoot(t), "internal", "integration", "HBaseGateway.java")
	g.cmd = exec.Command(g.h.tool, append([]string{"java", g.h.dir, program}, g.args...)...) // the tool becomes it
	g.cmd.Env = append(os.Environ(), "JAVA_TOOL_OPTIONS=-Xmx512m")
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	if _, err := g.cmd.StdinPipe(); err != nil { // it ends with that, and so with the test's process
		t.Fatal(err)
	}
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	g.ended = make(chan struct{})
	go func(cmd *exec.Cmd, ended chan<- struct{}) {
		_ = cmd.Wait() // tests kill it
		close(ended)
	}(g.cmd, g.ended)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for tick := time.NewTicker(100 * time.Millisecond); ; {
		s, err := hbasestore.Open(ctx, &hbasestore.Options{Addresses: []string{g.address}, Framed: g.framed})
		if err == nil {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return
		}
		select {
		case <-tick.C:
		case <-g.ended:
			t.Fatalf("the gateway has ended\n%s", g.log)
		case <-ctx.Done():
			t.Fatalf("the gateway does not answer: %v\n%s", err, g.log)
		}
	}
}

// kill sends SIGKILL and waits for the process to be gone.
func (g *gateway) kill() {
	if g.cmd == nil || g.cmd.Process == nil {
		return
	}
	_ = g.cmd.Process.Kill() // gone already is as good
	<-g.ended
}

// signal sends a signal to the gateway.
func (g *gateway) signal(t *testing.T, s os.Signal) {
	t.Helper()
	if err := g.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}
