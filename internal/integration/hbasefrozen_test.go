//go:build integration

package integration

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"time"
)

// TestHBaseFrozenDaemon (I2): each of three daemons on one HBase is frozen until another
// has its partitions and has gone on with them, and goes on itself then, with what it
// had in its hands; and daemons are stopped while HBase is frozen. Every counter is what an independent count of Kafka's log gives.
func TestHBaseFrozenDaemon(t *testing.T) {
	in := newHBaseIngest(t)
	s := openHBase(t, in.hbase.address, nil)
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	var perr error
	producing.Go(func() { perr = in.produce(ctx, SharedLog(t).Lines) })
	in.run()
	in.progress(s, 1)
	in.joined()
	for i, d := range in.daemons {
		if err := d.Signal(syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
		// Its partitions have other owners: all go on, from where it had come to or
		// further.
		in.progressAll(s, 3)
		if err := d.Signal(syscall.SIGCONT); err != nil {
			t.Fatal(err)
		}
		in.progress(s, 50)
		t.Logf("daemon %d was frozen", i)
	}
	// Daemons end in time while HBase is frozen, the gateway or what is behind it, with
	// records in their hands.
	for i, name := range []string{"thrift", "server"} {
		in.hbase.signal(t, name, syscall.SIGSTOP)
		begun := time.Now()
		err := in.daemons[1+i].Stop(time.Minute)
		took := time.Since(begun)
		in.hbase.signal(t, name, syscall.SIGCONT)
		if took > shutdownTimeout+time.Second {
			t.Errorf("beside a frozen %s a daemon has ended %v after SIGTERM (%v), want %v at most", name, took, err, shutdownTimeout)
		}
		t.Logf("beside a frozen %s a daemon ended %v after SIGTERM: %v", name, took, err)
		in.daemons[1+i] = StartDaemon(t, in.config, in.env)
		in.progress(s, 50)
	}
	stop()
	producing.Wait()
	if perr != nil {
		t.Fatal(perr)
	}
	log := in.log(3)
	t.Logf("%d records", len(log.Lines))
	WaitCaughtUp(t, in.daemons[0], in.config, in.env, int64(len(log.Lines)), 10*time.Minute)
	for _, d := range in.daemons {
		if err := d.Stop(time.Minute); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}
	if err := errors.Join(log.Check(t.Context(), s), log.CheckVisitors(t.Context(), s)); err != nil {
		t.Error(err)
	}
}
