//go:build integration

package integration

import (
	"bufio"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"

	"sluice/store"
	"sluice/store/hbasestore"
)

// serversDir is the variable that names the directory in which servers have theirs, so
// that with-servers can stop those that a test which was cut off has left; empty = the
// system's temporary one.
const serversDir = "SLUICE_SERVERS_DIR"

// hbaseServer is a real HBase with its Thrift2 gateway, of the shared tool, for all
// tests of the process. Whoever kills one of its processes starts it again.
type hbaseServer struct {
	tool, dir, address string
	own                bool // it is stopped in the end
	fresh              bool // nobody else has made a table there

	mu    sync.Mutex // guards what follows
	steps *hbaseSteps
}

var server struct {
	sync.Mutex
	running *hbaseServer
}

// startHBase returns the real HBase of the process, all of it running: the one in
// SLUICE_HBASE_DIR, a directory of the shared tool, or a new one. It skips the test
// where the tool is absent.
func startHBase(t *testing.T) *hbaseServer {
	t.Helper()
	server.Lock()
	defer server.Unlock()
	if server.running == nil {
		h := &hbaseServer{tool: realTool(t, "hbase"), dir: os.Getenv("SLUICE_HBASE_DIR")}
		if h.dir == "" {
			dir, err := os.MkdirTemp(os.Getenv(serversDir), "hbase-")
			if err != nil {
				t.Fatal(err)
			}
			h.dir, h.own = dir, true
		}
		server.running = h
	}
	server.running.start(t)
	return server.running
}

// startOwnHBase starts one for a test alone, with flags of the tool. It ends with the test.
func startOwnHBase(t *testing.T, flags ...string) *hbaseServer {
	t.Helper()
	h := &hbaseServer{tool: realTool(t, "hbase"), fresh: true}
	dir, err := os.MkdirTemp(os.Getenv(serversDir), "hbase-")
	if err != nil {
		t.Fatal(err)
	}
	h.dir = dir
	t.Cleanup(func() {
		// An orderly stop takes longer, and its data are thrown away.
		if out, err := exec.Command(h.tool, "kill", h.dir).CombinedOutput(); err != nil {
			t.Errorf("kill HBase: %v\n%s", err, out)
		}
		if err := os.RemoveAll(h.dir); err != nil {
			t.Error(err)
		}
	})
	h.start(t, flags...)
	return h
}

// realTool returns the path of a program that runs a real server: in SLUICE_REAL, or
// in the shared folder beside the module. It skips the test where there is none.
func realTool(t *testing.T, name string) string {
	t.Helper()
	folder := os.Getenv("SLUICE_REAL")
	if folder == "" {
		folder = filepath.Join(ModuleRoot(t), "..", "shared", "real")
	}
	tool := filepath.Join(folder, name)
	if _, err := os.Stat(tool); err != nil {
		t.Skipf("nothing starts a server here: %s is absent", tool)
	}
	return tool
}

// stopServers ends what startHBase has started.
func stopServers() {
	server.Lock()
	defer server.Unlock()
	h := server.running
	if h == nil {
		return
	}
	if h.steps != nil {
		h.steps.close()
	}
	if !h.own {
		return
	}
	if out, err := exec.Command(h.tool, "stop", h.dir).CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "stop HBase: %v\n%s", err, out)
		return
	}
	_ = os.RemoveAll(h.dir) // a leftover in the temporary directory
}

// start starts what does not run, however long a busy machine takes, with flags of the
// tool where it is the first time.
func (h *hbaseServer) start(t *testing.T, flags ...string) {
	t.Helper()
	cmd := exec.Command(h.tool, append([]string{"start", h.dir}, flags...)...)
	cmd.Env = append(os.Environ(), "HBASE_WAIT=900")
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		errors.As(err, &exit)
		t.Fatalf("start HBase: %v\n%s", err, exit.Stderr)
	}
	h.address = strings.TrimSpace(string(out))
}

// kill sends SIGKILL to a process, "thrift" or "server".
func (h *hbaseServer) kill(t *testing.T, name string) {
	t.Helper()
	if out, err := exec.Command(h.tool, "kill", h.dir, name).CombinedOutput(); err != nil {
		t.Fatalf("kill %s: %v\n%s", name, err, out)
	}
}

// signal sends a signal to a process.
func (h *hbaseServer) signal(t *testing.T, name string, s syscall.Signal) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(h.dir, "pid", name))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.Fields(string(data))[0])
	if err == nil {
		err = syscall.Kill(pid, s)
	}
	if err != nil {
		t.Fatalf("signal %s: %v", name, err)
	}
}

// hbaseSteps is a running HBaseSteps.java, for what the gateway cannot do.
type hbaseSteps struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	ended chan struct{}

	mu      sync.Mutex // guards what follows, and writes to in
	id      int
	waiting map[string]chan []string // fields of the answer behind the id
}

// driver returns the steps of the HBase, which the first call starts.
func (h *hbaseServer) driver(t *testing.T) *hbaseSteps {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.steps != nil {
		return h.steps
	}
	s := &hbaseSteps{
		cmd:     exec.Command(h.tool, "java", h.dir, filepath.Join(ModuleRoot(t), "internal", "integration", "HBaseSteps.java")),
		ended:   make(chan struct{}),
		waiting: map[string]chan []string{},
	}
	s.cmd.Stderr = os.Stderr
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if s.in, err = s.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go s.read(out)
	h.steps = s
	return s
}

func (s *hbaseSteps) read(out io.Reader) {
	defer close(s.ended)
	for lines := bufio.NewScanner(out); lines.Scan(); {
		fields := strings.Split(lines.Text(), "\t")
		s.mu.Lock()
		if c := s.waiting[fields[0]]; c != nil {
			c <- fields[1:]
			delete(s.waiting, fields[0])
		}
		s.mu.Unlock()
	}
}

func (s *hbaseSteps) close() {
	_ = s.in.Close() // which ends it
	<-s.ended
	_ = s.cmd.Wait() // its answers were read
}

// do makes a step. Errors of HBase wrap those of package store.
func (s *hbaseSteps) do(ctx context.Context, command, table string, keys ...[]byte) error {
	answer := make(chan []string, 1)
	s.mu.Lock()
	s.id++
	fields := []string{strconv.Itoa(s.id), command, table}
	s.waiting[fields[0]] = answer
	for _, k := range keys {
		fields = append(fields, hex.EncodeToString(k))
	}
	_, err := io.WriteString(s.in, strings.Join(fields, "\t")+"\n")
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%s %s: %w", command, table, err)
	}
	select {
	case said := <-answer:
		if said[0] == "ok" {
			return nil
		}
		text := strings.Join(said, " ")
		for part, err := range map[string]error{
			"IllegalArgumentException":               store.ErrInvalidArgument,
			"IOException should not give a splitkey": store.ErrInvalidArgument, // of no class of its own
			"MergeRegionException":                   store.ErrMergeRegion,
			"DoNotRetryIOException":                  store.ErrRefused,
		} {
			if strings.Contains(text, part) {
				return fmt.Errorf("%s %s: %w: %s", command, table, err, text)
			}
		}
		return fmt.Errorf("%s %s: %s", command, table, text)
	case <-s.ended:
		return fmt.Errorf("%s %s: HBaseSteps.java has ended", command, table)
	case <-ctx.Done():
		return fmt.Errorf("%s %s: %w", command, table, ctx.Err())
	}
}

// hbaseAddress returns the address of a Thrift2 gateway with a real HBase behind it:
// SLUICE_HBASE, or that of startHBase. Tests that call it drop all tables there.
func hbaseAddress(t *testing.T) string {
	t.Helper()
	if a := os.Getenv("SLUICE_HBASE"); a != "" {
		if os.Getenv("SLUICE_HBASE_WIPE") != "yes" {
			t.Skip("tests drop every table and namespace of an HBase: SLUICE_HBASE_WIPE=yes says that those in SLUICE_HBASE may go")
		}
		return a
	}
	return startHBase(t).address
}

// emptyHBase drops all tables and namespaces of s, several at a time: HBase waits
// more than it works.
func emptyHBase(t *testing.T, s *hbasestore.Store) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	names, err := s.Tables(ctx)
	if err != nil {
		t.Fatal(err)
	}
	var dropping errgroup.Group
	dropping.SetLimit(8)
	for _, name := range names {
		dropping.Go(func() error {
			if err := s.DisableTable(ctx, name); err != nil && !errors.Is(err, store.ErrTableNotEnabled) {
				return err
			}
			return s.DropTable(ctx, name)
		})
	}
	err = dropping.Wait()
	all, nerr := s.Namespaces(ctx)
	err = errors.Join(err, nerr)
	for _, n := range all {
		if !store.Predefined(n.Name) {
			err = errors.Join(err, s.DropNamespace(ctx, n.Name))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
}

// dropSystemTables drops the store's own tables, of which no process may be in use:
// the next one makes them anew.
func (h *hbaseServer) dropSystemTables(t *testing.T) {
	t.Helper()
	if err := h.driver(t).do(t.Context(), "drop", store.SystemNamespace); err != nil {
		t.Fatal(err)
	}
}
