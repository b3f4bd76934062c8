//go:build integration

package integration

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/config"
)

// moveHouse copies a store with the binary, which is killed at random moments, until
// the copy is whole.
func moveHouse(t *testing.T, rng *rand.Rand, from, to string, kills int) {
	t.Helper()
	program := filepath.Join(Binaries(t), "export")
	args := []string{"copy", "-q", "--from", from, "--to", to}
	for killed, failed := 0, 0; ; {
		cmd := exec.Command(program, args...)
		var out bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- cmd.Wait() }()
		var err error
		if killed < kills {
			select {
			case err = <-done:
			case <-time.NewTimer(time.Duration(rng.Int64N(int64(4 * time.Second)))).C: // the moment of a kill is what is random
				killed++
				if err := cmd.Process.Kill(); err != nil {
					t.Log(err) // it has ended
				}
				err = <-done
			}
		} else {
			err = <-done
		}
		t.Logf("export %s: %v\n%s", strings.Join(args, " "), err, &out)
		switch resuming := len(args) > 6; {
		case err == nil, resuming && strings.Contains(out.String(), "the last has ended"): // it was killed when it had
			out, err := exec.Command(program, "copy", "-q", "--from", from, "--to", to, "--verify-only").CombinedOutput()
			if err != nil || !strings.Contains(string(out), "the stores are the same") {
				t.Errorf("verify only: %v\n%s", err, out)
			}
			out, err = exec.Command(program, "copy", "-q", "--from", from, "--to", to).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "holds offsets of pipeline") {
				t.Errorf("once more: %v\n%s", err, out)
			}
			return
		case !cmd.ProcessState.Exited(): // it was killed, whatever it had said by then
			if !resuming {
				args = append(args, "--resume")
			}
		case strings.Contains(out.String(), "no copy of a store was cut off"): // it was killed before it had begun
			args = args[:6]
		case !resuming && strings.Contains(out.String(), "has not ended"):
			args = append(args, "--resume")
		case failed < 3 && strings.Contains(out.String(), "go on with export copy --resume"): // HBase is amid what a killed copy asked of it
			if failed++; !resuming {
				args = append(args, "--resume")
			}
		default:
			t.Fatalf("%v\n%s", err, &out)
		}
	}
}

// TestHBaseMovingHouse (I2): a pipeline moves from the embedded engine to a real HBase
// and back in the middle of a stream, its daemons and the copies killed at random
// moments: rows, counters, dead letters and the audit are those of the log all the time.
func TestHBaseMovingHouse(t *testing.T) {
	in := newHBaseIngest(t)
	address := in.hbase.address
	embedded := filepath.Join(t.TempDir(), "embedded.yaml")
	if err := os.WriteFile(embedded, []byte(in.embedded), 0o644); err != nil {
		t.Fatal(err)
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 5))
	log := SharedLog(t)
	first, last := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "last")
	gateways := "hbase://" + address + "?connections=8"
	const parts = 3
	for k, at := range [parts]struct{ config, data string }{{embedded, first}, {in.config, first}, {embedded, last}} {
		env := Environment(in.kafka.brokers, at.data)
		switch k {
		case 1:
			moveHouse(t, rng, "pebble:"+first, gateways, 3)
		case 2:
			moveHouse(t, rng, gateways, "pebble:"+last, 3)
		}
		n := len(log.Lines)
		lines := log.Lines[n*k/parts : n*(k+1)/parts]
		d := StartDaemon(t, at.config, env)
		if _, err := Run(t, env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", at.config, "--topic", in.topic, "-"); err != nil {
			t.Fatal(err)
		}
		<-time.NewTimer(time.Duration(rng.Int64N(int64(2 * time.Second)))).C
		d.Kill()
		d = StartDaemon(t, at.config, env)
		until := n * (k + 1) / parts
		WaitCaughtUp(t, d, at.config, env, int64(until), 3*time.Minute)
		if err := d.Stop(30 * time.Second); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
		so := &Log{Lines: log.Lines[:until]}
		so.count()
		c, err := config.ForStore([parts]string{first, gateways, last}[k])
		if err != nil {
			t.Fatal(err)
		}
		e, err := config.OpenEngine(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(so.Check(t.Context(), e), so.CheckVisitors(t.Context(), e)); err != nil {
			t.Errorf("part %d: %v", k, err)
		}
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		if out, err := Run(t, env, nil, "ingest", "offsets", "verify", "--deep", "-c", at.config); err != nil {
			t.Errorf("part %d: the audit: %v\n%s", k, err, out)
		}
	}
}
