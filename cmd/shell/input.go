package main

import (
	"bufio"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/peterh/liner"
)

// scriptInput reads lines of a file or pipe.
type scriptInput struct{ r *bufio.Reader }

func (s *scriptInput) line(bool) (string, error) {
	line, err := s.r.ReadString('\n')
	if line != "" && err == io.EOF {
		return strings.TrimRight(line, "\r\n"), io.EOF
	}
	return strings.TrimRight(line, "\r\n"), err
}

// terminalInput reads lines from a terminal, with editing, history and the
// completion of commands and tables.
type terminalInput struct {
	state   *liner.State
	history string // file; "" = none
}

func newTerminalInput(s *session) *terminalInput {
	t := &terminalInput{state: liner.NewLiner()}
	t.state.SetCtrlCAborts(true)
	t.state.SetWordCompleter(func(line string, pos int) (string, []string, string) {
		return complete(s, line, pos)
	})
	if dir, err := os.UserCacheDir(); err == nil {
		t.history = filepath.Join(dir, "sluice", "shell_history")
		if f, err := os.Open(t.history); err == nil {
			_, _ = t.state.ReadHistory(f) // a broken history is no reason not to start
			f.Close()
		}
	}
	return t
}

func (t *terminalInput) line(more bool) (string, error) {
	prompt := "sluice> "
	if more {
		prompt = "   ...> "
	}
	line, err := t.state.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", nil
	}
	if err == nil && strings.TrimSpace(line) != "" {
		t.state.AppendHistory(line)
	}
	return line, err
}

// close gives the terminal back and keeps the history.
func (t *terminalInput) close() error {
	err := t.state.Close()
	if t.history == "" {
		return err
	}
	if os.MkdirAll(filepath.Dir(t.history), 0o700) != nil {
		return err
	}
	f, openErr := os.OpenFile(t.history, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if openErr != nil {
		return err
	}
	_, _ = t.state.WriteHistory(f) // the session's work does not depend on it
	return errors.Join(err, f.Close())
}

// complete offers commands at the head of a line and tables inside quotes.
func complete(s *session, line string, pos int) (head string, offers []string, tail string) {
	before := line[:pos]
	if !strings.ContainsAny(before, " \t") {
		for c := range s.commands {
			if strings.HasPrefix(c, before) {
				offers = append(offers, c)
			}
		}
		sort.Strings(offers)
		return "", offers, line[pos:]
	}
	i := strings.LastIndexByte(before, '\'')
	if i < 0 || strings.Count(before, "'")%2 == 0 {
		return before, nil, line[pos:]
	}
	names, err := s.store.Tables(context.WithoutCancel(s.ctx))
	if err != nil {
		return before, nil, line[pos:]
	}
	for _, n := range names {
		if strings.HasPrefix(n, before[i+1:]) {
			offers = append(offers, n+"'")
		}
	}
	return before[:i+1], offers, line[pos:]
}
