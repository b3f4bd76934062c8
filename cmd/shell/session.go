package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"sluice/store"
)

// Store is what the shell needs of a store: the embedded engine, or the client of
// a daemon that has the directory.
type Store interface {
	store.Engine
	store.Admin
}

// session runs commands against one store and prints what HBase's shell prints.
type session struct {
	ctx      context.Context
	store    Store
	commands map[string]*commandInfo
	print    printer
	now      func() time.Time // for the Took line
	echo     bool             // print "=> value" after commands that return one
}

// errExit ends the session.
var errExit = errors.New("exit")

// run runs one line. A command's own failure is printed, as HBase prints it, and
// returned.
func (s *session) run(line string) error {
	c, err := parse(line)
	if err != nil {
		if !incomplete(err) {
			s.fail("", err)
		}
		return err
	}
	if c.name == "" {
		return nil
	}
	cmd, ok := s.commands[c.name]
	if !ok {
		err := fmt.Errorf("unknown command %q%s; 'help' lists the commands", c.name, didYouMean(c.name))
		s.fail("", err)
		return err
	}
	start := s.now()
	value, err := s.call(cmd, c.args)
	if errors.Is(err, errExit) {
		return err
	}
	if err != nil {
		s.fail(c.name, err)
	}
	fmt.Fprintf(s.print.out, "Took %.4f seconds\n", s.now().Sub(start).Seconds())
	if err == nil && value != "" && s.echo {
		fmt.Fprintf(s.print.out, "=> %s\n", value)
	}
	return err
}

func (s *session) call(cmd *commandInfo, args []any) (string, error) {
	if len(args) < cmd.min || cmd.max >= 0 && len(args) > cmd.max {
		return "", &argumentError{fmt.Sprintf("wrong number of arguments (given %d, expected %s)", len(args), cmd.arity())}
	}
	return cmd.run(s, args)
}

// fail prints an error as HBase's shell does.
func (s *session) fail(name string, err error) {
	fmt.Fprintf(s.print.out, "\nERROR: %s\n\n", message(err))
	if name != "" {
		fmt.Fprintf(s.print.out, "For usage try 'help \"%s\"'\n\n", name)
	}
}

// argumentError is a call that cannot be understood.
type argumentError struct{ msg string }

func (e *argumentError) Error() string { return e.msg }

func badArgument(format string, a ...any) error { return &argumentError{fmt.Sprintf(format, a...)} }

// tableError gives a store error the words of HBase's shell.
type tableError struct {
	msg string
	err error
}

func (e *tableError) Error() string { return e.msg }
func (e *tableError) Unwrap() error { return e.err }

// message is the text after "ERROR: ".
func message(err error) string {
	return strings.TrimPrefix(err.Error(), "store: ")
}

// table returns a table's schema, with HBase's words where there is none.
func (s *session) table(name string) (*store.TableDescriptor, error) {
	t, err := s.store.Table(s.ctx, name)
	if errors.Is(err, store.ErrTableNotFound) {
		return nil, &tableError{"Unknown table " + name + "!", err}
	}
	return t, err
}

// explain gives the words of HBase's shell to errors of a call on table t.
func (s *session) explain(t *store.TableDescriptor, err error) error {
	switch {
	case errors.Is(err, store.ErrFamilyNotFound):
		var valid []string
		for i := range t.Families {
			valid = append(valid, t.Families[i].Name+":*")
		}
		return &tableError{"Unknown column family! Valid column names: " + strings.Join(valid, ", "), err}
	case errors.Is(err, store.ErrTableNotFound):
		return &tableError{"Unknown table " + t.Name + "!", err}
	}
	return err
}

// column splits "family:qualifier[:converter]". A bare "family" has all set.
func column(v any) (store.Column, string, error) {
	spec := text(v)
	family, qualifier, found := strings.Cut(spec, ":")
	if family == "" {
		return store.Column{}, "", badArgument("a column is 'family:qualifier', not %q", spec)
	}
	if !found {
		return store.Column{Family: family, All: true}, "", nil
	}
	convert := ""
	if i := strings.LastIndexByte(qualifier, ':'); i >= 0 {
		if _, ok := converters[qualifier[i+1:]]; ok {
			qualifier, convert = qualifier[:i], qualifier[i+1:]
		}
	}
	return store.Column{Family: family, Qualifier: []byte(qualifier)}, convert, nil
}

// converters print a value otherwise than as a binary string: 'f:n:toLong'.
var converters = map[string]func([]byte) string{
	"toLong": func(b []byte) string {
		if len(b) != 8 {
			return escape(b)
		}
		return fmt.Sprint(int64(binary.BigEndian.Uint64(b)))
	},
	"toInt": func(b []byte) string {
		if len(b) != 4 {
			return escape(b)
		}
		return fmt.Sprint(int32(binary.BigEndian.Uint32(b)))
	},
	"toString":       func(b []byte) string { return string(b) },
	"toStringBinary": escape,
}

// script runs the lines of r until its end or exit. It stops at the first error
// where stopOnError is set; otherwise it goes on and returns the first one.
func (s *session) script(r lineReader, stopOnError bool) error {
	var first error
	pending := ""
	for {
		if err := s.ctx.Err(); err != nil {
			return err
		}
		line, err := r.line(pending != "")
		if err != nil && err != io.EOF {
			return err
		}
		pending += line
		if err == io.EOF && pending == "" {
			return first
		}
		atEnd := err == io.EOF
		if err := s.run(pending); err != nil {
			if errors.Is(err, errExit) {
				return first
			}
			if incomplete(err) && !atEnd {
				pending += "\n"
				continue
			}
			if incomplete(err) {
				s.fail("", err)
			}
			if first == nil {
				first = err
			}
			if stopOnError {
				return first
			}
		}
		pending = ""
		if atEnd {
			return first
		}
	}
}

// lineReader gives the shell its input, a line without its end; more asks for
// the continuation of the last one. At the end it returns io.EOF.
type lineReader interface {
	line(more bool) (string, error)
}
