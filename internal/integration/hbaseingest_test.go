//go:build integration

package integration

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
	"sluice/store/hbasestore"
)

// hbaseIngest is a broker with empty topics for the access log, a real HBase and a
// configuration for both.
type hbaseIngest struct {
	brokers, topic, config string
	store                  *hbasestore.Store
}

// openHBaseIngest uses the broker of SLUICE_REAL_KAFKA, or one in the process.
func openHBaseIngest(t *testing.T, gateway string) *hbaseIngest {
	t.Helper()
	in := &hbaseIngest{brokers: os.Getenv("SLUICE_REAL_KAFKA"), topic: fmt.Sprintf("access-log-%d", time.Now().UnixNano()), store: openHBase(t, gateway, nil)}
	t.Cleanup(func() { in.store.Close() })
	emptyHBase(t, in.store)
	if all, err := store.AllProgress(t.Context(), in.store); err != nil || len(all) > 0 {
		t.Skipf("the HBase holds the offsets of %d partitions of an earlier run (%v): drop the tables of namespace sluice", len(all), err)
	}
	topics := map[string]int{in.topic: 3, in.topic + ".dead": 1}
	if in.brokers == "" {
		b, err := embedded.Start(&embedded.Options{Topics: topics})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { b.Close() })
		in.brokers = b.Addr()
	} else {
		c, err := kafka.NewClient(&kafka.Options{Brokers: []string{in.brokers}})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for topic, partitions := range topics {
			if err := c.CreateTopic(t.Context(), topic, partitions); err != nil {
				t.Fatal(err)
			}
		}
	}
	text, err := os.ReadFile(FastConfig(t, "500ms"))
	if err != nil {
		t.Fatal(err)
	}
	s, jobs, _ := strings.Cut(string(text), "\njobs:\n")
	if jobs == "" {
		t.Fatal("the example has no jobs any more")
	}
	for _, change := range [][2]string{
		{"  engine: pebble\n", fmt.Sprintf("  engine: hbase\n  hbase: {gateways: [%q], retry_timeout: 20s}\n", gateway)},
		{"topics: [access-log]", "topics: [" + in.topic + "]"},
		{"access-log.dead", in.topic + ".dead"},
		{"group: sluice-access-log", "group: " + in.topic},
	} {
		if !strings.Contains(s, change[0]) {
			t.Fatalf("the example has no %q any more", change[0])
		}
		s = strings.Replace(s, change[0], change[1], 1)
	}
	in.config = filepath.Join(t.TempDir(), "access-log.yaml")
	if err := os.WriteFile(in.config, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
	return in
}

// TestHBaseIngestKilled (I2): SIGKILLs of the daemon at random moments change no count
// and make no row twice.
func TestHBaseIngestKilled(t *testing.T) {
	in := openHBaseIngest(t, hbaseAddress(t))
	log := SharedLog(t)
	KillRun(t, &KillOptions{
		Config: in.config, Brokers: in.brokers, Data: filepath.Join(t.TempDir(), "data"), Topic: in.topic, Log: log,
		Kills: 4, Seed: uint64(time.Now().UnixNano()), MaxDelay: 8 * time.Second,
	})
	if err := log.Check(t.Context(), in.store); err != nil {
		t.Error(err)
	}
}

// TestHBaseIngestThree (I2): three daemons in one group on one HBase, each killed and
// started again at random moments while the others go on.
func TestHBaseIngestThree(t *testing.T) {
	in := openHBaseIngest(t, hbaseAddress(t))
	log := SharedLog(t)
	env := Environment(in.brokers, filepath.Join(t.TempDir(), "data"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	daemons := make([]*Daemon, 3)
	daemons[0] = StartDaemon(t, in.config, env)
	const parts = 7
	for k := range parts {
		for i := range daemons {
			if daemons[i] == nil {
				daemons[i] = StartDaemon(t, in.config, env)
			}
		}
		n := len(log.Lines)
		lines := log.Lines[n*k/parts : n*(k+1)/parts]
		if _, err := Run(t, env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", in.config, "--topic", in.topic, "-"); err != nil {
			t.Fatal(err)
		}
		if k < parts-1 {
			<-time.NewTimer(time.Duration(rng.Int64N(int64(6 * time.Second)))).C // the moment of a kill is what is random
			i := rng.IntN(len(daemons))
			daemons[i].Kill()
			daemons[i] = nil
		}
	}
	WaitCaughtUp(t, daemons[0], in.config, env, int64(len(log.Lines)), 3*time.Minute)
	for _, d := range daemons {
		if err := d.Stop(30 * time.Second); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}
	if err := log.Check(t.Context(), in.store); err != nil {
		t.Error(err)
	}
}

// TestHBaseIngestServersKilled (I2): SIGKILLs of the gateway and of the HBase server at
// random moments, while a daemon goes on, change no count.
func TestHBaseIngestServersKilled(t *testing.T) {
	folder := os.Getenv("SLUICE_REAL") // where the programs of real servers are
	if folder == "" {
		folder = filepath.Join(ModuleRoot(t), "..", "shared", "real")
	}
	program := filepath.Join(folder, "hbase")
	if _, err := os.Stat(program); err != nil {
		t.Skipf("%s is absent, and killing needs an HBase of its own", program)
	}
	dir := t.TempDir()
	hbase := func(args ...string) string {
		t.Helper()
		out, err := exec.Command(program, args...).Output()
		if err != nil {
			t.Fatalf("hbase %s: %v", strings.Join(args, " "), err)
		}
		return strings.TrimSpace(string(out))
	}
	t.Cleanup(func() {
		if out, err := exec.Command(program, "stop", dir).CombinedOutput(); err != nil {
			t.Errorf("stop HBase: %v\n%s", err, out)
		}
	})
	in := openHBaseIngest(t, hbase("start", dir))
	log := SharedLog(t)
	env := Environment(in.brokers, filepath.Join(t.TempDir(), "data"))
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	d := StartDaemon(t, in.config, env)
	victims := []string{"thrift", "server", "thrift", "server"}
	for k := range len(victims) + 1 {
		n, parts := len(log.Lines), len(victims)+1
		lines := log.Lines[n*k/parts : n*(k+1)/parts]
		if _, err := Run(t, env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", in.config, "--topic", in.topic, "-"); err != nil {
			t.Fatal(err)
		}
		if k == 0 { // it needs HBase to begin
			WaitCaughtUp(t, d, in.config, env, int64(len(lines)), 2*time.Minute)
			continue
		}
		<-time.NewTimer(time.Duration(rng.Int64N(int64(3 * time.Second)))).C
		hbase("kill", dir, victims[k-1])
		hbase("start", dir)
	}
	WaitCaughtUp(t, d, in.config, env, int64(len(log.Lines)), 5*time.Minute)
	if err := d.Stop(30 * time.Second); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if err := log.Check(t.Context(), in.store); err != nil {
		t.Error(err)
	}
}
