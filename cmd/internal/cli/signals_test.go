package cli

import (
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// What timeout(1) sends is one signal, though it comes twice.
func TestSignalsTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := make(chan os.Signal)
		begun := time.Now()
		first := 0
		go func() {
			for _, pause := range []time.Duration{time.Second, 0, TogetherSignals / 2, time.Second} {
				time.Sleep(pause)
				c <- syscall.SIGTERM
			}
		}()
		s := secondSignal(c, func() { first++ })
		if took := time.Since(begun); s != syscall.SIGTERM || first != 1 || took != 2*time.Second+TogetherSignals/2 {
			t.Errorf("Got %v after %v, %d times the first", s, took, first)
		}
	})
}
