package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cmd/internal/cli"
)

// shell runs the program and returns what it printed and its exit status.
func shell(t *testing.T, f flags, stdin string) (stdout, stderr string, status int) {
	t.Helper()
	var out, errs strings.Builder
	if f.Output == "" {
		f.Output = "text"
	}
	p := &cli.Program{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs, LookupEnv: func(string) (string, bool) { return "", false }}
	err := run(t.Context(), p, &f)
	var shown *scriptError
	if err != nil && !errors.As(err, &shown) {
		errs.WriteString(cli.Explain("shell", err) + "\n")
	}
	return out.String(), errs.String(), cli.Status(err)
}

// TestMistypedDirectory: a path without a store makes none.
func TestMistypedDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "data")
	_, stderr, status := shell(t, flags{Data: dir, Execute: []string{"list"}}, "")
	if want := "shell: config: no store in " + dir + ": check the path and the working directory; ingest run and shell --create make one\n"; stderr != want || status != cli.StatusUnavailable {
		t.Errorf("Got status %d and %swant %s", status, stderr, want)
	}
	if entries, err := os.ReadDir(parent); err != nil || len(entries) != 0 {
		t.Errorf("it left %v, %v", entries, err)
	}
	cfg := filepath.Join(t.TempDir(), "x.yaml")
	if err := os.WriteFile(cfg, []byte("store: {dir: '"+dir+"', min_free: 0}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, stderr, status := shell(t, flags{Config: cfg, Execute: []string{"list"}}, ""); status != cli.StatusUnavailable || !strings.Contains(stderr, dir) {
		t.Errorf("by a file: Got status %d and %s", status, stderr)
	}
	if stdout, stderr, status := shell(t, flags{Config: cfg, Create: true, Execute: []string{"create 't', 'f'"}}, ""); status != 0 {
		t.Errorf("--create: Got status %d, %s%s", status, stdout, stderr)
	}
	stdout, _, status := shell(t, flags{Config: cfg, Execute: []string{"exists 't'"}}, "")
	if status != 0 || !strings.Contains(stdout, "does exist") {
		t.Errorf("the next time: Got status %d, %s", status, stdout)
	}
	if _, stderr, status := shell(t, flags{Config: parent, Execute: []string{"list"}}, ""); status != cli.StatusConfig || !strings.Contains(stderr, parent+": ") {
		t.Errorf("a directory as the file: Got status %d and %s", status, stderr)
	}
	if _, stderr, status := shell(t, flags{Execute: []string{"list"}}, ""); status != cli.StatusUsage || !strings.Contains(stderr, "-c") {
		t.Errorf("no directory: Got status %d, %s", status, stderr)
	}
}

// TestExecuteAgain: all commands of several -e are run, and none beside a script.
func TestExecuteAgain(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "data")
	var f flags
	if _, err := newParser(&f, &cli.Program{}).Parse([]string{
		"--data", dir, "--create", "-e", "create 't', 'f', 'g'", "-e", "put 't', 'r', 'f:q', 'v'; put 't', 's', 'f:q', 'v'", "-e", "nope", "-e", "count 't'",
	}); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, status := shell(t, f, "")
	if !strings.Contains(stdout, "Created table t\n") || !strings.Contains(stdout, "2 row(s)\n") || !strings.HasPrefix(stderr, "-e:3:1: ") || status != cli.StatusFailed {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
	f.Script = "more.txt"
	if stdout, stderr, status := shell(t, f, ""); status != cli.StatusUsage || !strings.Contains(stderr, "more.txt") || stdout != "" {
		t.Errorf("Got status %d, %s%s", status, stdout, stderr)
	}
}

// TestInputs: -e, a file and a pipe, with and without -n, in text and JSON.
func TestInputs(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	cfg := filepath.Join(t.TempDir(), "x.yaml")
	script := filepath.Join(t.TempDir(), "s.txt")
	const lines = "create 't', 'f'; put 't', 'r', 'f:q', 'v', 1\nscan 't'; get 'nope', 'r'\nput 't', 'r'\ncount 't'\ndisable 't'; drop 't'\n"
	for name, text := range map[string]string{cfg: "store: {dir: '" + dir + "', min_free: 0}\n", script: lines} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const (
		unknown = ":2:11: Unknown table nope!\n"
		few     = ":3:1: wrong number of arguments (given 2, expected 4..6)\n"
	)
	for _, c := range []struct {
		name           string
		flags          flags
		stdin          string
		stderr         string
		stdout, absent []string
	}{
		{"execute", flags{Execute: []string{lines}}, "", "-e" + unknown + "-e" + few, []string{"\nERROR: Unknown table nope!\n", "=> 1\n"}, nil},
		{"file", flags{Script: script}, "", script + unknown + script + few, []string{"\nERROR: wrong number"}, nil},
		{"pipe", flags{}, lines, "stdin" + unknown + "stdin" + few, []string{"1 row(s)\nTook "}, nil},
		{"json", flags{Output: "json"}, lines, "stdin" + unknown + "stdin" + few, []string{
			`{"row":"r","cells":[{"family":"f","qualifier":"q","timestamp":1,"type":"Put","value":"v"}]}` + "\n" + `{"table":"t","rows":1}` + "\n",
		}, []string{"Took", "ERROR", "=>"}},
		{"stop", flags{Script: "-", NonInteractive: true}, lines, "stdin" + unknown, []string{" r column=f:q"}, []string{"ERROR", "=>"}},
	} {
		c.flags.Config, c.flags.Create = cfg, true
		stdout, stderr, status := shell(t, c.flags, c.stdin)
		if d := cmp.Diff(c.stderr, stderr); d != "" || status != cli.StatusFailed {
			t.Errorf("%s: status %d, stderr (-want +got)\n%s", c.name, status, d)
		}
		for _, want := range c.stdout {
			if !strings.Contains(stdout, want) {
				t.Errorf("%s: no %q in\n%s", c.name, want, stdout)
			}
		}
		for _, not := range c.absent {
			if strings.Contains(stdout, not) {
				t.Errorf("%s: %q in\n%s", c.name, not, stdout)
			}
		}
	}
	if stdout, stderr, status := shell(t, flags{Config: cfg, Execute: []string{"disable 't'; drop 't'"}, NonInteractive: true}, ""); status != 0 || stderr != "" {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}
