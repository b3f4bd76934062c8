//go:build integration

package integration

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// say waits until every daemon has said something in its log.
func (in *hbaseIngest) say(text string) {
	in.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(2 * time.Minute)
	for i := 0; i < len(in.daemons); {
		if strings.Contains(in.daemons[i].Log(), text) {
			i++
			continue
		}
		in.run()
		select {
		case <-tick.C:
		case <-deadline:
			in.t.Fatalf("daemon %d has not said %q within two minutes", i, text)
		}
	}
}

// TestHBaseTwoGateways (I2): of two gateways of one HBase one is killed, made anew,
// frozen and thawed. Daemons and exports go on through the other: after call_timeout at
// most, with what it takes to find out about the connections that are under way then.
// Every counter is what an independent count of Kafka's log gives.
func TestHBaseTwoGateways(t *testing.T) {
	const (
		callTimeout = 3 * time.Second
		// A call that hangs, one that began just before that was known, and a new
		// connection, whose greeting may take 5 s.
		limit = 2*callTimeout + 5*time.Second + 2*time.Second
	)
	in := newHBaseIngestOn(t, startHBase(t), embeddedKafka(t), 2)
	second := in.hbase.gateway(t, nil)
	// The first is dialled first: whoever needs one connection only has it to that.
	settings := fmt.Sprintf("gateways: [%q, %q], call_timeout: %v, retry_timeout: 1m", second.address, in.hbase.address, callTimeout)
	in.through(settings)
	s := openHBase(t, in.hbase.address, nil) // what looks on is not concerned
	defer s.Close()

	// One region after the other, all but the first of them after the fault.
	file, exports := loadHBaseExports(t, "{engine: hbase, hbase: {connections: 1, "+settings+"}}")
	fillVisits(t, exports, 2000)
	if out, err := exec.Command(filepath.Join(Binaries(t), "export"), "run", "-c", file, "-q", "rows").CombinedOutput(); err != nil {
		t.Fatalf("export: %v\n%s", err, out)
	}
	want := exportRows(t, exports, "rows")

	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	var perr error
	producing.Go(func() { perr = in.produce(ctx, SharedLog(t).Lines) })
	stopped := func() {
		t.Helper()
		for i, d := range in.daemons {
			if err := d.Stop(time.Minute); err != nil {
				t.Errorf("SIGTERM: %v", err)
			}
			in.daemons[i] = nil
		}
	}
	fails := "HBase gateway fails\" address=" + second.address
	for _, fault := range []struct {
		name       string
		begin, end func()
	}{
		{"killed", second.kill, func() { second.start(t) }},
		{"frozen", func() { second.signal(t, syscall.SIGSTOP) }, func() { second.signal(t, syscall.SIGCONT) }},
	} {
		in.run() // with connections to both
		in.progressAll(s, 3)
		in.joined()
		slow := startSlowExport(t, file, exports)
		begun := time.Now()
		fault.begin()
		in.progressAll(s, 3)
		took := time.Since(begun)
		t.Logf("with a gateway %s every partition has gone on after %v", fault.name, took.Round(time.Millisecond))
		if took > limit {
			t.Errorf("with a gateway %s every partition has gone on after %v, want %v at most", fault.name, took, limit)
		}
		in.say(fails)
		if d := cmp.Diff(want, slow.wait()); d != "" {
			t.Errorf("exported while a gateway was %s (-before +then):\n%.2000s", fault.name, d)
		}
		if !strings.Contains(slow.said.String(), fails) {
			t.Errorf("the export has not noticed that a gateway was %s:\n%s", fault.name, &slow.said)
		}
		fault.end()
		in.progressAll(s, 3) // with what the gateway had in its hands
		stopped()
	}
	stop()
	producing.Wait()
	if perr != nil {
		t.Fatal(perr)
	}
	log := in.log(3)
	t.Logf("%d records", len(log.Lines))
	in.run()
	WaitCaughtUp(t, in.daemons[0], in.config, in.env, int64(len(log.Lines)), 5*time.Minute)
	stopped()
	if err := errors.Join(log.Check(t.Context(), s), log.CheckVisitors(t.Context(), s)); err != nil {
		t.Error(err)
	}
}
