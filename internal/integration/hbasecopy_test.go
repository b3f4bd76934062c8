//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"sluice/config"
)

// stored waits until the offsets that a daemon has stored cover so many records.
func (in *hbaseIngest) stored(d *Daemon, config string, env []string, records int64) {
	in.t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(5 * time.Minute); time.Now().Before(deadline); <-tick.C {
		if ended, err := d.Exited(); ended {
			in.t.Fatalf("the daemon ended by itself: %v", err)
		}
		out, err := Run(in.t, env, nil, "ingest", "offsets", "-c", config, "--json")
		if err != nil {
			continue
		}
		var all []Offset
		if err := json.Unmarshal([]byte(out), &all); err != nil {
			in.t.Fatalf("ingest offsets --json: %v\n%s", err, out)
		}
		n := int64(0)
		for _, o := range all {
			n += max(0, o.Stored)
		}
		if n >= records {
			return
		}
	}
	in.t.Fatalf("%d records are not stored within five minutes", records)
}

// TestHBaseCopyBesideIngest (I2): a store moves to a real HBase and back while records
// come. From the embedded engine it is copied while its daemon goes on; what that counts
// behind the instant, the daemon on HBase counts again. From HBase it is refused as long as
// a daemon writes, and leaves no offset. In the end rows, counters and dead letters are
// those of Kafka's log.
func TestHBaseCopyBesideIngest(t *testing.T) {
	in := newHBaseIngestOn(t, startHBase(t), embeddedKafka(t), 1)
	gateways := "hbase://" + in.hbase.address
	embedded := filepath.Join(t.TempDir(), "embedded.yaml")
	if err := os.WriteFile(embedded, []byte(in.embedded), 0o644); err != nil {
		t.Fatal(err)
	}
	first, refused, last := filepath.Join(t.TempDir(), "first"), filepath.Join(t.TempDir(), "refused"), filepath.Join(t.TempDir(), "last")
	copied := func(from, to string) (string, error) {
		out, err := exec.Command(filepath.Join(Binaries(t), "export"), "copy", "-q", "--from", from, "--to", to).CombinedOutput()
		return string(out), err
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	var perr error
	producing.Go(func() { perr = in.produce(ctx, SharedLog(t).Lines) })

	env := Environment(in.kafka.brokers, first)
	d := StartDaemon(t, embedded, env)
	in.stored(d, embedded, env, 150)
	out, err := copied("pebble:"+first, gateways)
	if err != nil || !strings.Contains(out, "and the same:") {
		t.Fatalf("from the embedded engine, while its daemon goes on: Got %v, %s", err, out)
	}
	s := openHBase(t, in.hbase.address, nil)
	defer s.Close()
	at := in.applied(s)
	in.stored(d, embedded, env, at+150) // which are counted there for nothing
	if err := d.Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if got := in.applied(s); got != at || at < 150 {
		t.Errorf("the copy is of %d records, and then of %d: want it left alone", at, got)
	}

	in.run()
	in.progressAll(s, 3)
	out, err = copied(gateways, "pebble:"+refused)
	if err == nil || !strings.Contains(out, "pipelines have written to the store while it was copied") && !strings.Contains(out, "by a process that was killed or still runs") {
		t.Errorf("from HBase, while its daemon goes on: Got %v, %s", err, out)
	}
	t.Logf("from HBase, while its daemon goes on: %s", out)
	open := func(data string) config.Engine {
		t.Helper()
		c, err := config.ForStore("pebble:" + data)
		if err != nil {
			t.Fatal(err)
		}
		e, err := config.OpenEngine(t.Context(), c, nil)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	e := open(refused)
	if n := in.applied(e); n != 0 {
		t.Errorf("the copy that was refused has the offsets of %d records", n)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}

	for tries := 1; ; tries++ {
		in.progressAll(s, 3)
		if err := in.daemons[0].Stop(time.Minute); err != nil { // with lag: records come
			t.Errorf("SIGTERM: %v", err)
		}
		out, err := copied(gateways, "pebble:"+last)
		if err == nil {
			break
		}
		// A batch may take longer than the drain timeout of half a second. Then the copy is
		// refused, and what it says to do is done, with a timeout that is long enough.
		if tries == 3 || !strings.Contains(out, "start once with that mapping") {
			t.Fatalf("from HBase, once its daemon has stopped: Got %v, %s", err, out)
		}
		t.Logf("from HBase, once its daemon has stopped, with a batch under way: %s", out)
		in.daemons[0] = nil
		in.configure(shutdownTimeout - time.Second)
		in.run()
	}
	env = Environment(in.kafka.brokers, last)
	d = StartDaemon(t, embedded, env)
	in.stored(d, embedded, env, in.applied(s)+150)
	stop()
	producing.Wait()
	if perr != nil {
		t.Fatal(perr)
	}
	log := in.log(3)
	t.Logf("%d records, %d of them on HBase, %d at the first copy", len(log.Lines), in.applied(s), at)
	WaitCaughtUp(t, d, embedded, env, int64(len(log.Lines)), 5*time.Minute)
	if err := d.Stop(time.Minute); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	e = open(last)
	defer e.Close()
	if err := errors.Join(log.Check(t.Context(), e), log.CheckVisitors(t.Context(), e)); err != nil {
		t.Error(err)
	}
}
