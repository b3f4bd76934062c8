package integration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"sluice/examples"
)

var build struct {
	once sync.Once
	dir  string
	err  error
}

// Binaries builds ingest, export and shell once a test process and returns their
// directory. Call RemoveBinaries from TestMain when the tests are over. Short runs skip
// the test: they look for races, and the binaries are built without the detector.
func Binaries(t testing.TB) string {
	t.Helper()
	if testing.Short() {
		t.Skip("-short: the processes are built without the race detector")
	}
	build.once.Do(func() {
		if build.dir, build.err = os.MkdirTemp("", "sluice-bin-"); build.err != nil {
			return
		}
		cmd := exec.Command("go", "build", "-o", build.dir+string(filepath.Separator), "./cmd/...")
		cmd.Dir = ModuleRoot(t)
		if out, err := cmd.CombinedOutput(); err != nil {
			build.err = fmt.Errorf("go build ./cmd/...: %w\n%s", err, out)
		}
	})
	if build.err != nil {
		t.Fatal(build.err)
	}
	return build.dir
}

// RemoveBinaries removes what Binaries built.
func RemoveBinaries() {
	if build.dir != "" {
		_ = os.RemoveAll(build.dir) // a leftover in the temporary directory
	}
}

// Environment is the variables of a process under test: this process's own, and
// those that examples/*.yaml read.
func Environment(brokers, data string) []string {
	return append(os.Environ(), "SLUICE_BROKERS="+brokers, "SLUICE_DATA="+data, "SLUICE_LISTEN=127.0.0.1:0")
}

// FastConfig writes examples/access-log.yaml with batches of a few records, so
// that kills fall between commits, and a group that notices a dead member within
// twice drain, into a temporary directory, and returns its name.
func FastConfig(t testing.TB, drain string) string {
	t.Helper()
	d, err := time.ParseDuration(drain)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(examples.AccessLog), "kafka:\n", fmt.Sprintf(`drain_timeout: %s
kafka:
  session_timeout: %s
  heartbeat_interval: %s
  rebalance_timeout: %s
`, d, 2*d, d/2, 4*d), 1)
	text = strings.Replace(text, "    decode: {format: combined}\n", "    decode: {format: combined}\n    flush: {records: 100}\n", 1)
	name := filepath.Join(t.TempDir(), "access-log.yaml")
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

// Daemon is a running `ingest run`.
type Daemon struct {
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan error
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// StartDaemon starts `ingest run -c config`. It is killed when the test ends, and
// its log shown where the test failed.
func StartDaemon(t testing.TB, config string, env []string) *Daemon {
	t.Helper()
	d := &Daemon{cmd: exec.Command(filepath.Join(Binaries(t), "ingest"), "run", "-c", config), log: &lockedBuffer{}, done: make(chan error, 1)}
	d.cmd.Env, d.cmd.Stdout, d.cmd.Stderr = env, d.log, d.log
	if err := d.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	t.Cleanup(func() {
		d.Kill()
		if t.Failed() {
			t.Logf("log of the daemon:\n%s", d.log)
		}
	})
	return d
}

// Log returns what the daemon has printed.
func (d *Daemon) Log() string { return d.log.String() }

// Kill sends SIGKILL and waits for the process to be gone.
func (d *Daemon) Kill() {
	_ = d.cmd.Process.Kill() // gone already is as good
	err := <-d.done
	d.done <- err
}

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(s os.Signal) error { return d.cmd.Process.Signal(s) }

// Stop sends SIGTERM and returns how the process ended, or an error where it did
// not within the timeout.
func (d *Daemon) Stop(timeout time.Duration) error {
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	return d.Wait(timeout)
}

// Wait waits for the process to end by itself and returns how it did, or an error
// where it is still there after the timeout.
func (d *Daemon) Wait(timeout time.Duration) error {
	select {
	case err := <-d.done:
		d.done <- err
		return err
	case <-time.After(timeout):
		return fmt.Errorf("still running after %s", timeout)
	}
}

// Exited reports whether the process has ended by itself, and how.
func (d *Daemon) Exited() (bool, error) {
	select {
	case err := <-d.done:
		d.done <- err
		return true, err
	default:
		return false, nil
	}
}

// Run runs one of the binaries to its end and returns its standard output.
func Run(t testing.TB, env []string, stdin []byte, name string, args ...string) (string, error) {
	t.Helper()
	binary := filepath.Join(Binaries(t), name) // before the clock runs: the first call builds it
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, args...)
	var stdout, stderr bytes.Buffer
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, bytes.NewReader(stdin), &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s %s: %w\n%s%s", name, strings.Join(args, " "), err, stdout.Bytes(), stderr.Bytes())
	}
	return stdout.String(), nil
}

// Offset is a line of `ingest offsets --json`.
type Offset struct {
	Pipeline  string `json:"pipeline"`
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Stored    int64  `json:"stored"`
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
}

// WaitCaughtUp waits until the stored offsets of a running daemon cover records
// records and nothing is left, or fails the test after the timeout.
func WaitCaughtUp(t testing.TB, d *Daemon, config string, env []string, records int64, timeout time.Duration) {
	t.Helper()
	deadline := time.Now().Add(timeout)
	last := ""
	for tick := time.NewTicker(100 * time.Millisecond); time.Now().Before(deadline); <-tick.C {
		if ended, err := d.Exited(); ended {
			t.Fatalf("the daemon ended by itself: %v", err)
		}
		out, err := Run(t, env, nil, "ingest", "offsets", "-c", config, "--json")
		if err != nil {
			last = err.Error()
			continue
		}
		last = out
		var all []Offset
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			t.Fatalf("ingest offsets --json: %v\n%s", err, out)
		}
		var stored, lag int64
		for _, o := range all {
			stored += max(0, o.Stored)
			lag += o.Lag
		}
		if stored >= records && lag == 0 {
			return
		}
	}
	t.Fatalf("not caught up within %s; last answer:\n%s", timeout, last)
}

// KillOptions says how KillRun treats a daemon.
type KillOptions struct {
	Config  string // a file like examples/access-log.yaml
	Brokers string
	Data    string
	Topic   string
	Log     *Log
	Kills   int
	Seed    uint64
	// MaxDelay bounds the random time that a daemon lives before it is
	// killed, counted from its start.
	MaxDelay time.Duration
}

// KillRun produces the log in Kills+1 parts, each while a daemon runs that is
// killed by SIGKILL at a random moment; the last daemon catches up and is stopped
// by SIGTERM, which must end it with status 0.
func KillRun(t testing.TB, o *KillOptions) {
	t.Helper()
	env := Environment(o.Brokers, o.Data)
	rng := rand.New(rand.NewPCG(o.Seed, 2))
	t.Logf("kill seed %d", o.Seed)
	produce := func(part int) {
		n := len(o.Log.Lines)
		lines := o.Log.Lines[n*part/(o.Kills+1) : n*(part+1)/(o.Kills+1)]
		if _, err := Run(t, env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", o.Config, "--topic", o.Topic, "-"); err != nil {
			t.Fatal(err)
		}
	}
	for k := range o.Kills {
		d := StartDaemon(t, o.Config, env)
		delay := time.NewTimer(time.Duration(rng.Int64N(int64(o.MaxDelay))))
		produce(k)
		<-delay.C
		if ended, err := d.Exited(); ended {
			t.Fatalf("the daemon ended before kill %d: %v", k, err)
		}
		d.Kill()
	}
	produce(o.Kills)
	d := StartDaemon(t, o.Config, env)
	WaitCaughtUp(t, d, o.Config, env, int64(len(o.Log.Lines)), 2*time.Minute)
	if err := d.Stop(30 * time.Second); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
}
