package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// signals returns what SIGINT and SIGTERM are sent to from now on.
func signals() <-chan os.Signal {
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	return c
}

// untilSignal returns a context that the first signal of c ends. The second one ends the
// process: see Main.
func untilSignal(parent context.Context, c <-chan os.Signal, cause error, second func(s os.Signal, status int)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	go func() { // until the process ends
		s := secondSignal(c, func() { cancel(cause) })
		status := 1
		if n, ok := s.(syscall.Signal); ok {
			status = 128 + int(n)
		}
		second(s, status)
		os.Exit(status)
	}()
	return ctx, func() { cancel(nil) }
}

// TogetherSignals is within what signals are one: timeout(1) sends each to the process and
// to its group, and a terminal's Ctrl-C may come from the shell and its wrapper both.
const TogetherSignals = 250 * time.Millisecond

// secondSignal calls first at the first signal of c, and returns the next one that is not
// together with it.
func secondSignal(c <-chan os.Signal, first func()) os.Signal {
	<-c
	at := time.Now()
	first()
	for {
		if s := <-c; time.Since(at) >= TogetherSignals {
			return s
		}
	}
}
