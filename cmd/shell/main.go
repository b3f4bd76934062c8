// Command shell is a shell in HBase's language and with HBase's output: create,
// put, get, scan, count, incr, alter, split and the rest. It opens a data directory
// itself, or works through the daemon that has it open, writes included. It reads a
// terminal, a script, a pipe or its command line.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/serve/client"
)

type flags struct {
	Config         string          `short:"c" placeholder:"FILE" xor:"where" help:"Configuration file that names the data directory."`
	Data           string          `placeholder:"DIR" xor:"where" help:"Data directory, without a configuration file."`
	Create         bool            `help:"Make the data directory where it holds no store yet."`
	Execute        []string        `short:"e" sep:"none" placeholder:"COMMANDS" help:"Run these commands and end; a line or a semicolon between two; may be given again."`
	NonInteractive bool            `short:"n" help:"Stop at the first error with status 1; print errors to stderr only, and no => lines."`
	Output         string          `short:"o" enum:"text,json" default:"text" help:"How results are printed: text, as HBase's shell does, or json, an object a row."`
	Version        cli.VersionFlag `help:"Show the version and end."`
	Script         string          `arg:"" optional:"" help:"File of commands; - or a pipe is standard input."`
}

func main() {
	var f flags
	p := &cli.Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
	_, err := newParser(&f, p).Parse(os.Args[1:])
	if errors.Is(err, cli.ErrVersion) {
		return
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "shell: %v; see shell --help\n", err)
		os.Exit(cli.StatusUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, p, &f); err != nil {
		var shown *scriptError
		if !errors.As(err, &shown) {
			fmt.Fprintln(os.Stderr, cli.Explain("shell", err))
		}
		os.Exit(cli.Status(err))
	}
}

// examples are what --help shows.
const examples = `Examples:

    shell --data ./sluice-data
    shell -c sluice.yaml -e "count 'events'"
    shell -c sluice.yaml -n nightly.txt
    shell -c sluice.yaml -o json -e "scan 'events', {LIMIT => 3}"
    shell --data ./new-data --create -e "create 't', 'f'"
`

func newParser(f *flags, p *cli.Program) *kong.Kong {
	k := kong.Must(f, kong.Name("shell"), kong.Description("HBase-style shell on a Sluice store."), kong.UsageOnError(), kong.Bind(p))
	k.Model.Detail = examples
	return k
}

// run opens the store, runs the session's input and closes. What it returns as a
// *scriptError it has printed to stderr.
func run(ctx context.Context, p *cli.Program, f *flags) (err error) {
	if len(f.Execute) > 0 && f.Script != "" {
		return fmt.Errorf("%w: commands are given by -e and by %s: leave one of them out", cli.ErrUsage, f.Script)
	}
	var cfg *config.Config
	switch {
	case f.Config != "":
		if cfg, err = config.Load(f.Config, p.LookupEnv); err != nil {
			return err
		}
	case f.Data != "":
		cfg = config.ForDirectory(f.Data)
	default:
		return fmt.Errorf("%w: name a configuration file with -c, or a data directory with --data", cli.ErrUsage)
	}
	if !f.Create {
		if err := cfg.CheckStore(); err != nil {
			return err
		}
	}
	e, _, err := config.MakeStore(ctx, cfg, slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := newSession(ctx, e, newPrinter(p.Stdout, time.Local))
	s.print.json = f.Output == "json"
	s.version, s.echo, s.quiet = cli.Version().Version, !f.NonInteractive, f.NonInteractive
	if d, ok := e.(*client.Client); ok {
		s.server = d.Address()
	}
	if s.realHBase() {
		s.server = strings.Join(cfg.Store.HBase.Addresses(), ", ")
	}
	if cli.IsTerminal(p.Stdout) {
		s.print.width = columns(p.LookupEnv)
	}
	return s.read(p, f)
}

// columns is the width of the terminal: COLUMNS where the user says so, else 100,
// as HBase's shell assumes.
func columns(lookupEnv func(string) (string, bool)) int {
	v, _ := lookupEnv("COLUMNS")
	if n, err := strconv.Atoi(v); err == nil && n >= 40 {
		return n
	}
	return 100
}

// isTerminal reports whether somebody types r.
func isTerminal(r io.Reader) bool {
	f, ok := r.(*os.File)
	return ok && cli.IsTerminal(f)
}

// read runs the session's input: -e, a script, a pipe or a terminal. A failure of a
// script is a *scriptError, which it has printed to stderr with its place.
func (s *session) read(p *cli.Program, f *flags) error {
	report := func(e *scriptError) { fmt.Fprintln(p.Stderr, e) }
	switch {
	case len(f.Execute) > 0:
		return s.script(newScriptInput(strings.NewReader(strings.Join(f.Execute, "\n"))), "-e", f.NonInteractive, report)
	case f.Script != "" && f.Script != "-":
		file, err := os.Open(f.Script)
		if err != nil {
			return err
		}
		defer file.Close()
		return s.script(newScriptInput(file), f.Script, f.NonInteractive, report)
	case f.Script == "-" || !isTerminal(p.Stdin):
		return s.script(newScriptInput(p.Stdin), "stdin", f.NonInteractive, report)
	}
	s.print.linef("Sluice shell %s (%s store at %s). 'help' lists the commands, 'exit' ends.", s.version, s.store.Traits().Name, s.server)
	if err := s.print.flush(); err != nil {
		return err
	}
	s.interruptible = func(ctx context.Context) (context.Context, context.CancelFunc) {
		return signal.NotifyContext(ctx, os.Interrupt)
	}
	if s.print.json {
		report = func(e *scriptError) { fmt.Fprintln(p.Stderr, "ERROR:", message(e.err)) }
	} else {
		report = nil // the session has shown it
	}
	t := newTerminalInput(s, historyFile())
	err := s.script(t, "terminal", f.NonInteractive, report)
	if s.ctx.Err() == nil {
		err = nil // what failed was shown, and is no failure of the session
	}
	return errors.Join(err, t.close())
}
