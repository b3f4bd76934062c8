package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/config"
	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/store"
)

func TestHelpOfCommand(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"": "", "run help": "run help", "help": "--help", "help run": "run --help", "help replay rebuild": "replay rebuild --help", "help --json": "--json --help",
	} {
		if got := strings.Join(asFlag(strings.Fields(args)), " "); got != want {
			t.Errorf("%q: Got %q, want %q", args, got, want)
		}
	}
}

// A configuration that cannot be read is a mistake of the configuration, for all
// commands: their statuses are those of an init system, which does not start again what
// ends with 78.
func TestUnreadableConfiguration(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	tests := []struct {
		name, file string
		want       string // "" = none
	}{
		{"missing", filepath.Join(dir, "none.yaml"), "no such file or directory"},
		{"in a missing directory", filepath.Join(dir, "none", "a.yaml"), "no such file or directory"},
		{"below a file", filepath.Join(write("file", "", 0o600), "a.yaml"), "not a directory"},
		{"directory", dir, "is a directory"},
		{"unreadable", write("unreadable.yaml", "", 0), "permission denied"},
		{"no text", write("binary.yaml", "\xff\xfe\x00", 0o600), "is in UTF-16 (save it as UTF-8)"},
		{"empty", write("empty.yaml", "", 0o600), ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if tt.name == "unreadable" && os.Geteuid() == 0 {
				t.Skip("root reads everything")
			}
			cfg, err := (&ConfigFlag{Config: tt.file}).Load(&Program{})
			if tt.want == "" {
				if err != nil || cfg == nil {
					t.Errorf("Got %v, want the defaults", err)
				}
				return
			}
			if got := Status(err); got != StatusConfig {
				t.Errorf("Got status %d, want %d: %v", got, StatusConfig, err)
			}
			if got := Explain("x", err); !strings.HasPrefix(got, tt.file+":") || !strings.Contains(got, tt.want) || strings.Count(got, tt.file) != 1 {
				t.Errorf("Got %q, want the file, and %q", got, tt.want)
			}
		})
	}
}

// What is not to be had just now has a status of its own, whichever it is.
func TestStatusUnavailable(t *testing.T) {
	t.Parallel()
	for _, err := range []error{kafka.ErrUnreachable, kafka.ErrTopicNotFound, decode.ErrUnavailable, store.ErrLocked, config.ErrNoStore} {
		if got := Status(fmt.Errorf("explain: %w", err)); got != StatusUnavailable {
			t.Errorf("Got status %d of %v, want %d", got, err, StatusUnavailable)
		}
	}
}

// A command line that is wrong is answered with the help of the command that it names,
// which may be below another one.
func TestUsageNamesTheCommand(t *testing.T) {
	t.Parallel()
	type commands struct {
		Top struct {
			File string `required:""`
		} `cmd:""`
		Group struct {
			Show struct {
				File string `required:""`
			} `cmd:""`
		} `cmd:""`
	}
	for line, want := range map[string]string{
		"--what":       "x --help",
		"top":          "x top --help",
		"top --what":   "x top --help",
		"group":        "x group --help",
		"group show":   "x group show --help",
		"group show y": "x group show --help",
	} {
		var out strings.Builder
		p := &Program{Stdout: &out, Stderr: &out}
		if status := Run(t.Context(), p, "x", "", &commands{}, strings.Fields(line)); status != StatusUsage {
			t.Errorf("%s: got status %d, want %d", line, status, StatusUsage)
		}
		if got := out.String(); !strings.HasSuffix(got, "; see "+want+"\n") {
			t.Errorf("%s: got %q, want %s named", line, got, want)
		}
	}
}

// A program that reads standard error (--json) reads there, too, that its command line is
// wrong, wherever the mistake is.
func TestUsageIsAnEvent(t *testing.T) {
	t.Parallel()
	type commands struct {
		Run struct {
			Job  string    `arg:""`
			Time time.Time `name:"time"`
			JSON bool
		} `cmd:""`
		Plain struct{} `cmd:""`
	}
	for _, line := range []string{"run --json", "run a --time yesterday --json", "run --json a --what", "run a b --json"} {
		var out strings.Builder
		p := &Program{Stdout: &out, Stderr: &out}
		if status := Run(t.Context(), p, "x", "", &commands{}, strings.Fields(line)); status != StatusUsage {
			t.Errorf("%s: got status %d, want %d", line, status, StatusUsage)
		}
		var e struct {
			Event, Text string
			Status      int
		}
		if err := json.Unmarshal([]byte(out.String()), &e); err != nil || e.Event != "error" || e.Status != StatusUsage ||
			!strings.HasSuffix(e.Text, "; see x run --help") || strings.HasPrefix(e.Text, "x: ") {
			t.Errorf("%s: got %q (%v), want an event of the error", line, out.String(), err)
		}
	}
	for _, line := range []string{"plain --json", "run a b"} {
		var out strings.Builder
		p := &Program{Stdout: &out, Stderr: &out}
		Run(t.Context(), p, "x", "", &commands{}, strings.Fields(line))
		if !strings.HasPrefix(out.String(), "x: ") {
			t.Errorf("%s: got %q, want text: the command has no --json, or was not asked for it", line, out.String())
		}
	}
}

// A command that cron or a service manager runs has /dev/null for its files: a device,
// and nobody at it.
func TestNullIsNoTerminal(t *testing.T) {
	t.Parallel()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if IsTerminal(null) {
		t.Errorf("Got %s taken for a terminal", os.DevNull)
	}
}

// What was interrupted is not said to be undone where nobody knows.
func TestInterruptedUnknown(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("daemon: %w: %w", store.ErrUnknownOutcome, context.Canceled)
	if got, want := Explain("export", err), "export: interrupted: it is not known whether it was applied"; got != want {
		t.Errorf("Got %q, want %q", got, want)
	}
}

// The time of a flag that is not given can not be typed: it would be taken for none.
func TestTimes(t *testing.T) {
	t.Parallel()
	type commands struct {
		At time.Time
	}
	for text, want := range map[string]string{
		"2026-01-31T00:00:00+01:00": "",
		"0001-01-01T00:00:00Z":      "means that there is no time",
		"0001-01-01T01:00:00+01:00": "means that there is no time",
		"0001-01-01T00:00:00.001Z":  "",
		"yesterday":                 `"yesterday" is no time such as 2026-01-31T00:00:00Z`,
		"2026-01-31":                "is no time such as",
	} {
		var stderr strings.Builder
		var c commands
		_, status := parse(&Program{Stderr: &stderr}, "x", "", &c, []string{"--at", text})
		if want == "" {
			if at, err := time.Parse(time.RFC3339, text); status != 0 || err != nil || !c.At.Equal(at) {
				t.Errorf("%s: got %v, status %d: %s", text, c.At, status, &stderr)
			}
			continue
		}
		if status != StatusUsage || !strings.Contains(stderr.String(), want) || !strings.Contains(stderr.String(), "--at") {
			t.Errorf("%s: got status %d and %q, want %q", text, status, &stderr, want)
		}
	}
}
