package cli

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// Signals returns a context that the first SIGINT or SIGTERM ends, with cause, where there is
// one. The second one ends the process, with the status by which shells tell of it, after
// second was called with both.
func Signals(parent context.Context, cause error, second func(s os.Signal, status int)) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
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
