package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/peterh/liner"
)

// terminalInput reads lines from a terminal, with editing, history and completion.
type terminalInput struct {
	state   *liner.State
	history string // file; "" = none
}

// historyFile is where the lines of earlier sessions are kept; "" = nowhere.
func historyFile() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	return filepath.Join(dir, "sluice", "shell_history")
}

func newTerminalInput(s *session, history string) *terminalInput {
	t := &terminalInput{state: liner.NewLiner(), history: history}
	t.state.SetCtrlCAborts(true)
	t.state.SetTabCompletionStyle(liner.TabPrints)
	t.state.SetWordCompleter(func(line string, pos int) (string, []string, string) {
		runes := []rune(line)
		head, offers := s.complete(string(runes[:pos]))
		return head, offers, string(runes[pos:])
	})
	if f, err := os.Open(t.history); err == nil {
		_, _ = t.state.ReadHistory(f) // a broken history is no reason not to start
		f.Close()
	}
	return t
}

func (t *terminalInput) line(prompt string) (string, error) {
	line, err := t.state.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", errAborted
	}
	if err == nil && strings.TrimSpace(line) != "" {
		t.state.AppendHistory(line)
	}
	return line, err
}

// close gives the terminal back and keeps the history.
func (t *terminalInput) close() error {
	err := t.state.Close()
	if t.history == "" || os.MkdirAll(filepath.Dir(t.history), 0o700) != nil {
		return err
	}
	f, openErr := os.OpenFile(t.history, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if openErr != nil {
		return err
	}
	_, _ = t.state.WriteHistory(f) // the session's work does not depend on it
	return errors.Join(err, f.Close())
}
