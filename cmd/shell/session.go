package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/region"
	"sluice/store"
)

// Store is what the shell needs of a store: the embedded engine, or the client of
// a daemon that has the directory.
type Store interface {
	store.Engine
	store.Admin
}

// session runs commands against one store and prints what HBase's shell prints.
// It belongs to one goroutine.
type session struct {
	ctx      context.Context
	store    Store
	commands commandTable
	print    printer
	now      func() time.Time // for the Took line
	echo     bool             // print "=> value" after commands that return one
	quiet    bool             // leave errors to the caller
	server   string           // host:port that answers for every region; of a real HBase the gateways
	version  string
	tables   map[string]string // variables: name → table
	input    lineReader        // where an answer to a question is read from
	// interruptible makes a context that Ctrl-C ends; nil = Ctrl-C ends the
	// process.
	interruptible func(context.Context) (context.Context, context.CancelFunc)
}

// newSession returns a session on st that prints to out.
func newSession(ctx context.Context, st Store, p printer) *session {
	return &session{
		ctx: ctx, store: st, commands: newCommandTable(), print: p,
		now: time.Now, echo: true, server: "localhost:0", tables: map[string]string{},
	}
}

// errExit ends the session.
var errExit = errors.New("exit")

// run runs one call. Its failure is printed, as HBase prints it, and returned, as is
// that of printing.
func (s *session) run(c command) (err error) {
	defer func() {
		if flushErr := s.print.flush(); err == nil {
			err = flushErr
		}
	}()
	if table, ok := s.tables[c.name]; ok && len(c.args) == 0 {
		if c.assign != "" {
			s.tables[c.assign] = table
		}
		s.returned("Hbase::Table - " + table)
		return nil
	}
	cmd, err := s.resolve(&c)
	if err != nil {
		s.fail("", err)
		return err
	}
	start := s.now()
	value, err := s.call(cmd, c)
	if errors.Is(err, errExit) {
		return err
	}
	if err != nil {
		usage := c.name
		if cmd.run == nil {
			usage = "" // its usage says no more than the error
		}
		s.fail(usage, err)
	}
	s.print.linef("Took %.4f seconds", s.now().Sub(start).Seconds())
	if err == nil && value != "" {
		s.returned(value)
	}
	return err
}

func (s *session) returned(value string) {
	if s.echo {
		s.print.linef("=> %s", value)
	}
}

// resolve finds the command of c. For "t.scan", where t names a table, it makes c
// the call of scan on that table.
func (s *session) resolve(c *command) (*commandInfo, error) {
	if cmd := s.commands.find(c.name); cmd != nil {
		return cmd, nil
	}
	variable, method, ok := strings.Cut(c.name, ".")
	table, known := s.tables[variable]
	if !ok || !known {
		return nil, fmt.Errorf("unknown command %q%s; 'help' lists the commands", c.name, s.commands.didYouMean(c.name))
	}
	cmd := s.commands.find(method)
	if cmd != nil && cmd.first != tableArgument {
		return nil, fmt.Errorf("%s does not begin with a table: call it without %s", method, variable)
	}
	if cmd == nil {
		return nil, fmt.Errorf("unknown command %q of a table%s; 'table_help' says what %s can do", method, s.commands.didYouMean(method), variable)
	}
	c.name, c.args = method, append([]any{table}, c.args...)
	return cmd, nil
}

func (s *session) call(cmd *commandInfo, c command) (string, error) {
	if cmd.run == nil {
		if s.realHBase() {
			return "", hbaseShell(&c)
		}
		return "", fmt.Errorf("%w: %s: %s", store.ErrUnsupported, cmd.name, cmd.summary)
	}
	if len(c.args) < cmd.min || cmd.max >= 0 && len(c.args) > cmd.max {
		return "", badArgument("wrong number of arguments (given %d, expected %s)", len(c.args), cmd.arity())
	}
	if c.assign != "" && !cmd.reference {
		return "", badArgument("only create and get_table return a table for %s", c.assign)
	}
	if cmd.onlyHBase && s.realHBase() {
		return "", hbaseShell(&c)
	}
	outer := s.ctx
	if s.interruptible != nil {
		var stop context.CancelFunc
		s.ctx, stop = s.interruptible(outer)
		defer stop()
	}
	value, err := cmd.run(s, c.args)
	s.ctx = outer
	if cmd.servers && errors.Is(err, store.ErrUnsupported) && s.realHBase() {
		err = hbaseShell(&c)
	}
	if err == nil && c.assign != "" {
		s.tables[c.assign] = text(c.args[0])
	}
	return value, err
}

// realHBase reports whether the store is a real HBase.
func (s *session) realHBase() bool { return s.store.Traits().Name == "hbase" }

// hbaseShell is the error of a command that the store cannot do and the shell of its HBase
// does, with the command as that takes it.
func hbaseShell(c *command) error {
	var line strings.Builder
	line.WriteString(c.name)
	for i, a := range c.args {
		sep := ", "
		if i == 0 {
			sep = " "
		}
		line.WriteString(sep + inspect(a))
	}
	return fmt.Errorf("%s: %w through HBase's Thrift2 gateway; in HBase's shell: %s", c.name, store.ErrUnsupported, line.String())
}

// fail prints an error as HBase's shell does.
func (s *session) fail(name string, err error) {
	if s.quiet {
		return
	}
	s.print.linef("\nERROR: %s\n", message(err))
	if name != "" {
		s.print.linef("For usage try 'help \"%s\"'\n", name)
	}
}

// message is an error's text for the user, without the name of the package that its
// sentinel comes from.
func message(err error) string {
	if errors.Is(err, context.Canceled) {
		if errors.Is(err, store.ErrUnknownOutcome) {
			return "interrupted: it is not known whether it was applied"
		}
		return "interrupted"
	}
	text := strings.ReplaceAll(err.Error(), ": "+region.ErrMerge.Error(), "") // store.ErrMergeRegion says so
	return strings.ReplaceAll(strings.TrimPrefix(text, "store: "), ": store: ", ": ")
}

// ask prints a question and reads the answer from the session's input. Only an
// answer that begins with y is yes.
func (s *session) ask(question string) (bool, error) {
	s.print.line(question)
	if err := s.print.flush(); err != nil {
		return false, err
	}
	if s.input == nil {
		return false, nil
	}
	answer, err := s.input.line("")
	if err != nil && err != io.EOF && !errors.Is(err, errAborted) {
		return false, err
	}
	return strings.HasPrefix(strings.ToLower(strings.TrimSpace(answer)), "y"), nil
}
