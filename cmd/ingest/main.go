// Command ingest takes records from Kafka into tables: run is the daemon, demo
// shows the whole system at work, and the rest are the daemon's tools. It wires
// the packages together and gives their errors an exit status; docs/operations.md
// lists the statuses.
package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"

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
	cli.Main("ingest", "Kafka to wide-column tables with exact counts.", new(commands), errSignal, func(p *cli.Program, s os.Signal, _ int) {
		fmt.Fprintf(p.Stderr, "ingest: second signal (%s): ending at once\n", s)
	})
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
