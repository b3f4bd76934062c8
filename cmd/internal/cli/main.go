package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"sluice/config"
	"sluice/internal/cmemory"
)

// Program is what a command gets from its process, so that tests give it
// something else.
type Program struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	// JSON says that a program reads standard error (flag --json): every line there
	// is a JSON object with the key "event".
	JSON bool
}

// Event writes an event to standard error: name, and keys and values in turn, as slog
// takes them.
func (p *Program) Event(name string, attrs ...any) { EventLog(p.Stderr).Info(name, attrs...) }

// EventLog returns a log each of whose lines is an event, named as what is said.
func EventLog(w io.Writer) *slog.Logger { return jsonLog(w, "event", slog.LevelInfo) }

// jsonLog returns a log of JSON lines without a level, with what is said under a key.
func jsonLog(w io.Writer, key string, from slog.Level) *slog.Logger {
	return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: from, ReplaceAttr: func(groups []string, a slog.Attr) slog.Attr {
		switch {
		case len(groups) > 0:
		case a.Key == slog.MessageKey:
			a.Key = key
		case a.Key == slog.LevelKey:
			return slog.Attr{}
		}
		return a
	}}))
}

// Note tells what a command does otherwise than asked for, as program, or as the event
// "note".
func (p *Program) Note(program, format string, args ...any) {
	if p.JSON {
		p.Event("note", "text", fmt.Sprintf(format, args...))
		return
	}
	fmt.Fprintf(p.Stderr, program+": "+format+"\n", args...)
}

// Warnings returns the log of a command: what an operator should know, on standard
// error, or as the event "warning".
func (p *Program) Warnings() *slog.Logger {
	if p.JSON {
		return jsonLog(p.Stderr, "text", slog.LevelWarn).With("event", "warning")
	}
	return slog.New(slog.NewTextHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// ConfigFlag is the flag of the commands that read a configuration file.
type ConfigFlag struct {
	Config string `short:"c" required:"" placeholder:"FILE" help:"Configuration file."`
}

// Load reads the file.
func (f *ConfigFlag) Load(p *Program) (*config.Config, error) {
	return config.Load(f.Config, p.LookupEnv)
}

// VersionCommand is the command version.
type VersionCommand struct{}

// Run prints the version.
func (c *VersionCommand) Run(p *Program) error { return printVersion(p) }

// VersionFlag is the flag --version: it prints what the command version prints, whatever
// else is on the command line, and parsing ends with ErrVersion.
type VersionFlag bool

// ErrVersion says that the version was asked for, and printed.
var ErrVersion = errors.New("the version is printed")

// BeforeReset is kong's hook for a flag that is set.
func (f VersionFlag) BeforeReset(p *Program) error {
	if err := printVersion(p); err != nil {
		return err
	}
	return ErrVersion
}

// printVersion prints the module's version, Go's, and the revision, where the binary
// knows it.
func printVersion(p *Program) error {
	v := Version()
	_, err := fmt.Fprintln(p.Stdout, strings.TrimSpace(fmt.Sprintf("sluice %s %s %s", v.Version, v.Go, v.Commit)))
	return err
}

// Main runs the command that the arguments of the process name, as Run does, and ends
// the process where it fails. The first SIGINT or SIGTERM ends its context, with cause,
// where there is one; the second one ends the process, after second was called with the
// status by which shells tell of it.
func Main(name, description string, commands any, cause error, second func(p *Program, s os.Signal, status int)) {
	c := signals() // from here on; what comes before the command runs waits
	p := &Program{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, LookupEnv: os.LookupEnv}
	if err := cmemory.Bound(); err != nil {
		p.Warnings().Warn("memory that was freed may stay with the process", "err", err)
	}
	command, status := parse(p, name, description, commands, os.Args[1:])
	if command != nil {
		ctx, stop := untilSignal(context.Background(), c, cause, func(s os.Signal, status int) { second(p, s, status) })
		status = execute(ctx, p, name, command)
		stop()
	}
	if status != 0 {
		os.Exit(status)
	}
}

// Run runs the command of a kong command set that args name, with ctx and p bound, and
// returns the exit status. Where it fails, it says why on standard error, as Fail does.
func Run(ctx context.Context, p *Program, name, description string, commands any, args []string) int {
	command, status := parse(p, name, description, commands, args)
	if command == nil {
		return status
	}
	return execute(ctx, p, name, command)
}

// Parser returns the parser of a command set. Where that has a method Examples, whose lines
// are command lines, the --help of each command shows those that are its own.
func Parser(p *Program, name, description string, commands any) *kong.Kong {
	parser := kong.Must(commands, kong.Name(name), kong.Description(description), kong.UsageOnError(), kong.Bind(p),
		kong.TypeMapper(reflect.TypeFor[time.Time](), kong.MapperFunc(mapTime)))
	if e, ok := commands.(interface{ Examples() string }); ok {
		for line := range strings.Lines(e.Examples()) {
			addExample(parser.Model.Node, strings.TrimSpace(line))
		}
	}
	return parser
}

// addExample has the help of the command below root that a line names show the line.
func addExample(root *kong.Node, line string) {
	node := root
	for _, word := range strings.Fields(line) {
		if i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word }); i >= 0 {
			node = node.Children[i]
		}
	}
	for _, n := range []*kong.Node{node, node.DefaultCmd} {
		if n == nil || n == root {
			continue
		}
		if n.Detail == "" {
			n.Detail = "Examples:\n\n"
		}
		n.Detail += "    " + line + "\n"
	}
}

// asFlag returns what asks for help with a command, as many programs take it, as what this one
// takes: help COMMAND is COMMAND --help.
func asFlag(args []string) []string {
	if len(args) == 0 || args[0] != "help" {
		return args
	}
	return append(slices.Clone(args[1:]), "--help")
}

// parse returns the command that args name, or nil and the exit status where there is
// none to run.
func parse(p *Program, name, description string, commands any, args []string) (*kong.Context, int) {
	k, err := Parser(p, name, description, commands).Parse(asFlag(args))
	if errors.Is(err, ErrVersion) {
		return nil, 0
	}
	if err != nil {
		about := name
		var wrong *kong.ParseError
		if errors.As(err, &wrong) && wrong.Context.Selected() != nil {
			about = wrong.Context.Selected().FullPath()
			p.JSON = asksForJSON(wrong.Context.Selected(), args)
		}
		p.Fail(name, fmt.Sprintf("%s: %v; see %s --help", name, err, about), StatusUsage)
		return nil, StatusUsage
	}
	for _, f := range k.Flags() {
		if asked, isBool := k.FlagValue(f).(bool); f.Name == "json" && isBool && asked {
			p.JSON = true
		}
	}
	return k, 0
}

// mapTime reads the time of a flag. The first instant of the year 1 is that of a flag which is
// not given.
func mapTime(ctx *kong.DecodeContext, to reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("time", &text); err != nil {
		return err
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return fmt.Errorf("%q is no time such as 2026-01-31T00:00:00Z", text)
	}
	if t.IsZero() {
		return fmt.Errorf("%s means that there is no time: name a later one", text)
	}
	to.Set(reflect.ValueOf(t))
	return nil
}

// asksForJSON reports whether args, which were not understood to their end, have the flag
// --json of the command.
func asksForJSON(command *kong.Node, args []string) bool {
	return slices.Contains(args, "--json") && slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool {
		return f.Name == "json" && f.IsBool()
	})
}

// execute runs a command and returns the exit status.
func execute(ctx context.Context, p *Program, name string, command *kong.Context) int {
	command.BindTo(ctx, (*context.Context)(nil))
	err := command.Run()
	if err != nil {
		p.Fail(name, Explain(name, err), Status(err))
	}
	return Status(err)
}

// Fail says why the program ends, in a text that may begin with its name; with --json, as
// the last event: "error", with the text and the status.
func (p *Program) Fail(name, text string, status int) {
	if p.JSON {
		p.Event("error", "text", strings.TrimPrefix(text, name+": "), "status", status)
		return
	}
	fmt.Fprintln(p.Stderr, text)
}
