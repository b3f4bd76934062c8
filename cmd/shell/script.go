package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// lineReader gives the shell its input, a line without its end, after showing
// prompt where somebody reads it. At the end it returns io.EOF, with or without a
// last line.
type lineReader interface {
	line(prompt string) (string, error)
}

// errAborted is what a lineReader returns where Ctrl-C gave up the line.
var errAborted = errors.New("aborted")

// Prompts of a terminal.
const (
	prompt     = "sluice> "
	promptMore = "   ...> "
)

// scriptInput reads lines of a file or pipe.
type scriptInput struct{ r *bufio.Reader }

func newScriptInput(r io.Reader) *scriptInput { return &scriptInput{bufio.NewReader(r)} }

func (s *scriptInput) line(string) (string, error) {
	line, err := s.r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
}

// scriptError is a failure with its place in a script.
type scriptError struct {
	source       string // file, "-e" or "stdin"
	line, column int    // 1-based; the column in characters
	err          error
}

func (e *scriptError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.source, e.line, e.column, message(e.err))
}

func (e *scriptError) Unwrap() error { return e.err }

// place returns err of source with the place of byte pos of code, whose first line
// is the given one.
func place(source string, line int, code string, pos int, err error) *scriptError {
	before := code[:min(pos, len(code))]
	begin := strings.LastIndexByte(before, '\n') + 1
	return &scriptError{source, line + strings.Count(before, "\n"), utf8.RuneCountInString(before[begin:]) + 1, err}
}

// script runs the calls of r until its end or exit, and returns the first failure
// as a *scriptError. It stops there where stopAtError is set; otherwise it passes
// every failure to failed, which may be nil, and goes on.
func (s *session) script(r lineReader, source string, stopAtError bool, failed func(*scriptError)) error {
	var first error
	note := func(e *scriptError) (stop bool) {
		if first == nil {
			first = e
		}
		if failed != nil {
			failed(e)
		}
		return stopAtError
	}
	counted := &countingInput{lineReader: r}
	s.input = counted
	for atEnd := false; !atEnd; {
		code, begin := "", counted.lines+1
		var calls []command
		var err error
		for {
			show := prompt
			if code != "" {
				show = promptMore
			}
			if err := s.ctx.Err(); err != nil {
				return err
			}
			line, readErr := counted.line(show)
			if errors.Is(readErr, errAborted) {
				code, begin = "", counted.lines+1
				continue
			}
			if readErr != nil && readErr != io.EOF {
				return readErr
			}
			atEnd = readErr == io.EOF
			code += line
			if calls, err = parse(code); !incomplete(err) || atEnd {
				break
			}
			code += "\n"
		}
		if err != nil {
			e := place(source, begin, code, err.(*syntaxError).pos, err)
			s.fail("", fmt.Errorf("%w at line %d, column %d", err, e.line, e.column))
			_ = s.print.flush() // the next command returns its error, too
			if note(e) {
				return first
			}
			continue
		}
		for _, c := range calls {
			err := s.run(c)
			if errors.Is(err, errExit) {
				return first
			}
			if s.ctx.Err() != nil {
				return s.ctx.Err()
			}
			if err != nil && note(place(source, begin, code, c.pos, err)) {
				return first
			}
		}
	}
	return first
}

// countingInput counts the lines that were read.
type countingInput struct {
	lineReader
	lines int
}

func (c *countingInput) line(prompt string) (string, error) {
	line, err := c.lineReader.line(prompt)
	if err == nil || line != "" {
		c.lines++
	}
	return line, err
}
