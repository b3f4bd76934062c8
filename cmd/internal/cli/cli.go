// Package cli is what the commands share: exit statuses, the words of an error,
// and the version. It is for package main of cmd/* only.
package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
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

// Version returns what this binary was built from. Where that is not known in full, as of an
// image that was built without its repository or of changes that are in no commit, the version
// ends in what tells this program from others: runs that one program has begun are gone on with
// by programs of its version alone.
func Version() api.Version {
	v := api.Version{Version: unreleased, Go: runtime.Version()}
	if b, ok := debug.ReadBuildInfo(); ok {
		if b.Main.Version != "" && b.Main.Version != "(devel)" {
			v.Version = b.Main.Version
		}
		for _, s := range b.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	v.Version = distinct(v.Version, ownSum)
	return v
}

// unreleased is the version of a program that does not know what it was built from.
const unreleased = "unreleased"

// distinct returns a version that programs have in common, with the sum of this one.
func distinct(version string, sum func() string) string {
	switch {
	case version == unreleased:
		return version + "-" + sum()
	case strings.HasSuffix(version, "+dirty"):
		return version + "." + sum()
	}
	return version
}

// ownSum returns 12 hex digits of the SHA-256 of this program, or "unknown" where it cannot be
// read.
var ownSum = sync.OnceValue(func() string {
	sum, err := sumOfFile(os.Executable())
	if err != nil {
		return "unknown"
	}
	return sum[:12]
})

func sumOfFile(name string, err error) (string, error) {
	if err != nil {
		return "", err
	}
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
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
