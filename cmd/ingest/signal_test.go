//go:build unix

package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/cmd/internal/cli"
	"sluice/internal/integration"
	"sluice/store/pebblestore"
)

// I2: a process stands still past its session timeout, is given up by its group,
// and goes on with the batches that it has in hand.
func TestSchedule10StoppedProcess(t *testing.T) {
	integration.Binaries(t) // or skip, before anything is started
	t.Parallel()
	log := integration.SharedLog(t)
	broker := startBroker(t, map[string]int{"access-log": 3, "access-log.dead": 1})
	data := filepath.Join(t.TempDir(), "data")
	const drain = 500 * time.Millisecond // and a session timeout of a second
	config, env := integration.FastConfig(t, drain.String()), integration.Environment(broker.Addr(), data)
	d := integration.StartDaemon(t, config, env)
	const parts = 6
	for i := range parts {
		n := len(log.Lines)
		lines := log.Lines[n*i/parts : n*(i+1)/parts]
		if _, err := integration.Run(t, env, append(bytes.Join(lines, []byte("\n")), '\n'), "ingest", "produce", "-c", config, "--topic", "access-log", "-"); err != nil {
			t.Fatal(err)
		}
		if i%2 == 0 {
			continue
		}
		members := func(n int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := broker.Cluster().WaitGroupInfo(ctx, "sluice-access-log", func(g *kfake.GroupInfo) bool { return g != nil && len(g.Members) == n }); err != nil {
				t.Fatalf("the group has not come to have %d members: %v", n, err)
			}
		}
		members(1)
		if err := d.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		members(0) // it is given up
		if err := d.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
	}
	integration.WaitCaughtUp(t, d, config, env, int64(len(log.Lines)), time.Minute)
	if err := d.Stop(30 * time.Second); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	db, err := pebblestore.Open(data, &pebblestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := log.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
}

// I2: the first SIGTERM leaves the group, which takes three seconds where the broker does
// not answer; the second does not wait. The next process goes on, and every count is the
// log's.
func TestSchedule40SecondSignal(t *testing.T) {
	t.Parallel()
	log := integration.GeneratedLog(40, 3000)
	broker := startBroker(t, map[string]int{"access-log": 3, "access-log.dead": 1})
	data := filepath.Join(t.TempDir(), "data")
	env := integration.Environment(broker.Addr(), data)
	config := integration.FastConfig(t, "20s")
	rest := log.Lines
	produce := func(n int) {
		t.Helper()
		lines := append(bytes.Join(rest[:n], []byte("\n")), '\n')
		rest = rest[n:]
		if _, err := integration.Run(t, env, lines, "ingest", "produce", "-c", config, "--topic", "access-log", "-"); err != nil {
			t.Fatal(err)
		}
	}
	d := integration.StartDaemon(t, config, env)
	produce(1000)
	integration.WaitCaughtUp(t, d, config, env, 1000, time.Minute) // so that it is a member
	leaving, release := make(chan struct{}), make(chan struct{})
	letGo := sync.OnceFunc(func() { close(release) })
	defer letGo()
	var once sync.Once
	broker.Cluster().ControlKey(int16(kmsg.LeaveGroup), func(kmsg.Request) (kmsg.Response, error, bool) {
		once.Do(func() { close(leaving) })
		<-release
		return nil, nil, false
	})
	produce(1000) // some of which it has, and some of that is stored
	if err := d.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-leaving:
	case <-time.After(time.Minute):
		t.Fatal("Got no LeaveGroup")
	}
	<-time.After(cli.TogetherSignals) // what comes within that is the same signal
	if err := d.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := d.Wait(time.Minute); err == nil || err.Error() != "exit status 143" || !strings.Contains(d.Log(), "second signal") {
		t.Errorf("Got %v after a second SIGTERM, want the status of a process that it ended", err)
	}
	letGo()
	produce(1000)
	d = integration.StartDaemon(t, config, env)
	integration.WaitCaughtUp(t, d, config, env, int64(len(log.Lines)), time.Minute)
	if err := d.Stop(30 * time.Second); err != nil {
		t.Fatalf("SIGTERM: %v", err)
	}
	db, err := pebblestore.Open(data, &pebblestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := log.Check(t.Context(), db); err != nil {
		t.Error(err)
	}
}
