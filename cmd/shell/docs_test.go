package main

import (
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cmd/internal/cli"
)

const (
	docsFile  = "../../docs/shell.md"
	docsBegin = "<!-- go test ./cmd/shell -rewrite writes from here -->\n"
	docsEnd   = "<!-- to here -->\n"
)

// commandDocs is the part of docs/shell.md that the command table writes.
func commandDocs() string {
	var b strings.Builder
	table := newCommandTable()
	for _, g := range groups() {
		fmt.Fprintf(&b, "\n### %s: %s\n", g.name, g.purpose)
		for _, c := range table {
			if c.group != g.name {
				continue
			}
			name := "`" + c.name + "`"
			if c.alias != "" {
				name += ", `" + c.alias + "`"
			}
			fmt.Fprintf(&b, "\n%s: %s\n\n```ruby\n%s\n```\n", name, c.summary, c.examples)
			if len(c.options) > 0 {
				fmt.Fprintf(&b, "\nOptions: %s\n", strings.Join(c.options, ", "))
			}
		}
	}
	b.WriteString("\n### Not in Sluice\n\n| HBase's commands | why, or what instead |\n|---|---|\n")
	for _, a := range absentCommands {
		fmt.Fprintf(&b, "| %s | %s |\n", strings.Join(strings.Fields(a.names), ", "), a.instead)
	}
	return b.String() + "\n"
}

// TestDocs: docs/shell.md shows every command as the table has it.
func TestDocs(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile(docsFile)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(b), docsBegin)
	have, after, ok2 := strings.Cut(rest, docsEnd)
	if !ok1 || !ok2 {
		t.Fatalf("%s has lost its marks", docsFile)
	}
	want := commandDocs()
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(docsFile, []byte(before+docsBegin+want+docsEnd+after), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if d := cmp.Diff(have, want); d != "" {
		t.Errorf("docs/shell.md is old: go test ./cmd/shell -rewrite (-file +commands)\n%s", d)
	}
}

// fixture is what the examples of every command find.
const fixture = `
create 't1', {NAME => 'f1', VERSIONS => 5}, 'f2', SPLITS => ['m']
put 't1', 'a1', 'f1:c1', 'v1'
put 't1', 'r1', 'f1:c1', 'v1'
put 't1', 'r2', 'f2:c1', 'v2'
put 't1', 'r3', 'f2:c1', 'v2'
put 't1', 'r4', 'f2:c1', 'v2'
create 'stats', {NAME => 'hour', COUNTER => true}, {NAME => 'day', COUNTER => true}, {NAME => 'distinct_total', DISTINCT => true}
incr 'stats', "views/country\x00de", 'day:20261121', 5
create_namespace 'ns1'
create_namespace 'ns2'
create 'ns1:t2', 'f1'
`

// TestExamples: what help shows works, every line of it.
func TestExamples(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, c := range newCommandTable() {
		if seen[c.name] {
			t.Errorf("%s is there twice", c.name)
		}
		seen[c.name] = true
		if c.run == nil {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var out strings.Builder
			s := newTestSession(t, "pebble", &out)
			if c.summary == "" || c.examples == "" || !strings.Contains(c.examples, c.name) {
				t.Fatalf("%s has no summary or example", c.name)
			}
			if failed, err := runScript(s, fixture, true); err != nil {
				t.Fatal(failed)
			}
			out.Reset()
			if failed, err := runScript(s, c.examples, false); err != nil {
				t.Errorf("%q\n%s", failed, out.String())
			}
			if strings.Contains(out.String(), "gnored") {
				t.Errorf("an option is not known:\n%s", out.String())
			}
		})
	}
}

// What --help shows is a command line.
func TestHelpExamples(t *testing.T) {
	t.Parallel()
	found := 0
	for line := range strings.Lines(examples) {
		words := regexp.MustCompile(`"[^"]*"|\S+`).FindAllString(line, -1)
		if len(words) == 0 || words[0] != "shell" {
			continue
		}
		found++
		if _, err := newParser(new(flags), &cli.Program{}).Parse(words[1:]); err != nil {
			t.Errorf("%s: %v", line, err)
		}
	}
	if found < 4 {
		t.Errorf("Got %d examples", found)
	}
}

// TestAbsent: what Sluice has not says so in one line.
func TestAbsent(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s := newTestSession(t, "mem", &out)
	for _, c := range s.commands {
		if c.run != nil {
			continue
		}
		out.Reset()
		calls, err := parse(c.name + " 'x', {A => 1}")
		if err != nil {
			t.Fatal(err)
		}
		err = s.run(calls[0])
		want := "\nERROR: not supported: " + c.name + ": " + c.summary + "\n\nTook 0.0000 seconds\n"
		if d := cmp.Diff(want, out.String()); d != "" || err == nil || strings.Contains(c.summary, "\n") {
			t.Errorf("%s: %v (-want +got)\n%s", c.name, err, d)
		}
	}
}
