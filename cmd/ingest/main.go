// Command ingest takes records from Kafka into tables: run is the daemon, demo
// shows the whole system at work, and the rest are the daemon's tools. It wires
// the packages together and gives their errors an exit status; docs/operations.md
// lists the statuses.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"sluice/cmd/internal/cli"
	"sluice/config"
)

type commands struct {
	Run      runCommand         `cmd:"" help:"Run the daemon: consume the topics until SIGTERM."`
	Demo     demoCommand        `cmd:"" help:"Show the whole system at work, with a broker of its own."`
	Produce  produceCommand     `cmd:"" help:"Send a file's lines to a topic."`
	Lint     lintCommand        `cmd:"" help:"Name every mistake of a configuration file."`
	Test     testCommand        `cmd:"" help:"Run the tests of the mappings in a configuration file."`
	Explain  explainCommand     `cmd:"" help:"Show what the newest records would do, without doing it."`
	Offsets  offsetsCommand     `cmd:"" help:"Show stored offsets, lag and the audit counts."`
	Dlq      dlqCommand         `cmd:"" help:"Look at dead letters, and apply their records after all."`
	Breaker  breakerCommands    `cmd:"" help:"Close circuit breakers by hand."`
	Counters countersCommand    `cmd:"" help:"Remove counters of old buckets on HBase."`
	Replay   replayCommands     `cmd:"" help:"Apply records again without moving the stored offsets back."`
	Version  cli.VersionCommand `cmd:"" help:"Show the version."`

	ShowVersion cli.VersionFlag `name:"version" help:"Show the version and end."`
}

func main() {
	ctx, stop := signals(context.Background())
	defer stop()
	cli.Main(ctx, "ingest", "Kafka to wide-column tables with exact counts.", new(commands))
}

// signals returns a context that the first SIGINT or SIGTERM ends; the second one
// ends the process.
func signals(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	c := make(chan os.Signal, 2)
	signal.Notify(c, os.Interrupt, syscall.SIGTERM)
	go func() {
		s := secondSignal(c, func() { cancel(errSignal) })
		fmt.Fprintf(os.Stderr, "ingest: second signal (%s): ending at once\n", s)
		code := 1
		if n, ok := s.(syscall.Signal); ok {
			code = 128 + int(n) // as shells report it
		}
		os.Exit(code)
	}()
	return ctx, func() { cancel(nil) }
}

// togetherSignals is within what signals are one: timeout(1) sends each to the process and
// to its group, and a terminal's Ctrl-C may come from the shell and its wrapper both.
const togetherSignals = 250 * time.Millisecond

// secondSignal calls first at the first signal of c, and returns the next one that is not
// together with it.
func secondSignal(c <-chan os.Signal, first func()) os.Signal {
	<-c
	at := time.Now()
	first()
	for {
		if s := <-c; time.Since(at) >= togetherSignals {
			return s
		}
	}
}

var errSignal = errors.New("stopped by a signal")

// newLogger returns the logger that the configuration asks for.
func newLogger(w io.Writer, l *config.Log) *slog.Logger {
	var level slog.Level
	if err := level.UnmarshalText([]byte(l.Level)); err != nil {
		level = slog.LevelInfo // config has checked it
	}
	o := &slog.HandlerOptions{Level: level}
	if l.Format == "json" {
		return slog.New(slog.NewJSONHandler(w, o))
	}
	return slog.New(slog.NewTextHandler(w, o))
}
