// Package cli is what the commands share: exit statuses, the words of an error,
// and the version. It is for package main of cmd/* only.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	_ "time/tzdata" // mappings name time zones, and an image may have none

	"sluice/config"
	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/serve/api"
	"sluice/store"
)

// Exit statuses, as sysexits.h numbers them.
const (
	StatusFailed      = 1  // failed while running
	StatusUsage       = 64 // wrong command line
	StatusUnavailable = 69 // brokers, a topic, the schema registry or the data directory are not to be had
	StatusConfig      = 78 // mistakes in the configuration file, or none that can be read
	// StatusInterrupted is that of a shell for a process that SIGINT ends: somebody
	// has cancelled what it did.
	StatusInterrupted = 130
)

// ErrUsage marks a command line that parses and makes no sense.
var ErrUsage = errors.New("usage")

// Status returns the exit status for err; 0 for nil.
func Status(err error) int {
	var problems config.Problems
	switch {
	case err == nil:
		return 0
	case errors.As(err, &problems):
		return StatusConfig
	case errors.Is(err, ErrUsage), errors.Is(err, config.ErrNoPipeline):
		return StatusUsage
	case errors.Is(err, kafka.ErrUnreachable), errors.Is(err, kafka.ErrTopicNotFound), errors.Is(err, decode.ErrUnavailable), errors.Is(err, store.ErrLocked), errors.Is(err, config.ErrNoStore):
		return StatusUnavailable
	case errors.Is(err, context.Canceled):
		return StatusInterrupted
	}
	return StatusFailed
}

// Interrupted is that somebody has cancelled a command that says how far it came. It
// wraps context.Canceled.
type Interrupted struct {
	Done string // what is done, and what is perhaps
}

func (e *Interrupted) Error() string { return "interrupted: " + e.Done }

// Unwrap makes it one of the errors of a context that was cancelled.
func (e *Interrupted) Unwrap() error { return context.Canceled }

// Explain is the message for an operator: one problem a line for a configuration
// file, otherwise the program's name and the error.
func Explain(program string, err error) string {
	var problems config.Problems
	var interrupted *Interrupted
	switch {
	case errors.As(err, &problems):
		return strings.TrimRight(problems.Error(), "\n")
	case errors.As(err, &interrupted):
		return program + ": " + interrupted.Error()
	case errors.Is(err, context.Canceled) && errors.Is(err, store.ErrUnknownOutcome):
		return program + ": interrupted: it is not known whether it was applied"
	case errors.Is(err, context.Canceled):
		return program + ": interrupted"
	}
	return program + ": " + err.Error()
}

// Version returns what this binary was built from.
func Version() api.Version {
	v := api.Version{Version: "unreleased", Go: runtime.Version()}
	b, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if b.Main.Version != "" && b.Main.Version != "(devel)" {
		v.Version = b.Main.Version
	}
	for _, s := range b.Settings {
		if s.Key == "vcs.revision" {
			v.Commit = s.Value
		}
	}
	return v
}

// IsTerminal reports whether w is a terminal.
func IsTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull) // a character device, too
	return err != nil || !os.SameFile(info, null)
}

// Count prints n with commas between its thousands.
func Count(n int64) string {
	if n < 0 {
		return "-" + Count(-n)
	}
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Bytes prints a size with a binary unit.
func Bytes(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
