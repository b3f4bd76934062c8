// Command shell is an interactive shell in HBase's language and with HBase's
// output: create, put, get, scan, count, incr and the rest. It opens a data
// directory itself, or works through the daemon that has it open, writes
// included.
package main

import (
	"bufio"
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
)

type flags struct {
	Config         string `short:"c" placeholder:"FILE" xor:"where" help:"Configuration file that names the data directory."`
	Data           string `placeholder:"DIR" xor:"where" help:"Data directory, without a configuration file."`
	Execute        string `short:"e" placeholder:"COMMANDS" help:"Run these commands and end; a line each."`
	NonInteractive bool   `short:"n" help:"Stop at the first error with status 1, and print no => lines."`
	Script         string `arg:"" optional:"" help:"File of commands; - or a pipe is standard input."`
}

func main() {
	var f flags
	parser := kong.Must(&f, kong.Name("shell"), kong.Description("HBase-style shell on a Sluice store."), kong.UsageOnError())
	if _, err := parser.Parse(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "shell:", err)
		os.Exit(cli.StatusUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, &f); err != nil {
		var printed *printedError
		if !errors.As(err, &printed) {
			fmt.Fprintln(os.Stderr, cli.Explain("shell", err))
		}
		os.Exit(cli.Status(err))
	}
}

// printedError is a command's failure that the session has shown already.
type printedError struct{ err error }

func (e *printedError) Error() string { return e.err.Error() }

func run(ctx context.Context, f *flags) (err error) {
	var cfg *config.Config
	switch {
	case f.Config != "":
		if cfg, err = config.Load(f.Config, os.LookupEnv); err != nil {
			return err
		}
	case f.Data != "":
		cfg = config.ForDirectory(f.Data)
	default:
		return fmt.Errorf("%w: name a configuration file with -c, or a data directory with --data", cli.ErrUsage)
	}
	e, _, err := config.OpenStore(ctx, cfg, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close()) }()
	s := &session{
		ctx: ctx, store: e, commands: commandTable(), now: time.Now, echo: !f.NonInteractive,
		print: printer{out: os.Stdout, loc: time.Local},
	}
	if cli.IsTerminal(os.Stdout) {
		s.print.width = columns()
	}
	return s.read(f)
}

// columns is the width of the terminal: COLUMNS where the user says so, else 100,
// as HBase's shell assumes.
func columns() int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n >= 40 {
		return n
	}
	return 100
}

// read runs the session's input: -e, a script, a pipe or a terminal.
func (s *session) read(f *flags) error {
	var in io.Reader
	switch {
	case f.Execute != "":
		in = strings.NewReader(f.Execute)
	case f.Script != "" && f.Script != "-":
		file, err := os.Open(f.Script)
		if err != nil {
			return err
		}
		defer file.Close()
		in = file
	case f.Script == "-" || !cli.IsTerminal(os.Stdin):
		in = os.Stdin
	default:
		fmt.Fprintf(s.print.out, "Sluice shell (%s store). 'help' lists the commands, 'exit' ends.\n", s.store.Traits().Name)
		t := newTerminalInput(s)
		err := s.script(t, f.NonInteractive)
		if s.ctx.Err() == nil {
			err = nil // what failed was shown, and is no failure of the session
		}
		return errors.Join(err, t.close())
	}
	if err := s.script(&scriptInput{r: bufio.NewReader(in)}, f.NonInteractive); err != nil {
		return &printedError{err}
	}
	return nil
}
