package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/counters/query"
	"sluice/pipeline/kafka"
)

const dlqConfig = `
store: {dir: %q, min_free: 0B}
kafka: {brokers: [%q]}
serve: {listen: "127.0.0.1:0"}
log: {level: error}
tables:
  visits: {families: {n: {COUNTER: true}}}
pipelines:
  visits:
    topics: [visits]
    group: visits
    decode: {format: json}
    dead_letters: {topic: visits.dead}
    map:
      - {table: visits, when: "!(page == '/health')", row: %s, increment: [{family: n, qualifier: page}]}
`

// command runs a command of the program in this process.
func command(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p := &cli.Program{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &out, LookupEnv: os.LookupEnv}
	ctx := t.Context()
	parser, err := kong.New(new(commands), kong.BindTo(ctx, (*context.Context)(nil)), kong.Bind(p))
	if err != nil {
		t.Fatal(err)
	}
	k, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	err = k.Run()
	return out.String(), err
}

// Dead letters are listed, shown and redriven by a corrected mapping, through a
// running daemon that has the old one and without it, each once; the audit holds
// all the while.
func TestDlqWithAndWithoutDaemon(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 2, "visits.dead": 1})
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	file := func(name, row string) string {
		name = filepath.Join(dir, name)
		if err := os.WriteFile(name, fmt.Appendf(nil, dlqConfig, data, broker.Addr(), row), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	wrong, mended := file("wrong.yaml", "user"), file("mended.yaml", "name")
	if _, err := command(t, "lint", "-c", mended); err != nil {
		t.Fatal(err)
	}

	d, end := runDaemon(t, wrong)
	producer := d.client.NewProducer(nil)
	send := func(partition int32, values ...string) {
		t.Helper()
		for _, v := range values {
			m := kafka.Message{Key: []byte("k"), Value: []byte(v), Partition: partition, Headers: []kafka.Header{{Key: []byte("h"), Value: []byte("\x1b[31m")}}}
			if err := producer.Produce(t.Context(), "visits", m); err != nil {
				t.Fatal(err)
			}
		}
	}
	send(0, `{"user":"u","page":"/"}`, `{"name":"ann","page":"/"}`, `{"name":"ann","page":"/a"}`, "{\x1b]0;")
	send(1, `{"name":"bob","page":"/"}`, `{"name":"bob","page":"/"}`)
	await := func(stored map[int32]int64) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": stored}); err != nil {
			t.Fatal(err)
		}
	}
	await(map[int32]int64{0: 4, 1: 2})

	out, err := command(t, "dlq", "ls", "-c", wrong)
	for _, want := range []string{"visits/0/1", "visits/1/1", "missing_field", "4        visits    visits  dead   map", "1        visits    visits  dead   decode  json"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("ls: %v, without %q:\n%s", err, want, out)
		}
	}
	out, err = command(t, "dlq", "ls", "-c", wrong, "--class", "json", "-o", "json")
	var listed struct {
		Letters []letterLine
		Counts  []letterCount
	}
	if err := errors.Join(err, json.Unmarshal([]byte(out), &listed)); err != nil || len(listed.Letters) != 1 || len(listed.Counts) != 1 || listed.Letters[0].Offset != 3 {
		t.Errorf("ls as JSON: %v\n%s", err, out)
	}
	for _, of := range []string{"ls", "redrive"} {
		out, err = command(t, "dlq", of, "-c", wrong, "--pipeline", "visit")
		if err == nil || !strings.Contains(err.Error(), `has no pipeline "visit"`) || !strings.Contains(err.Error(), "it has visits") {
			t.Errorf("%s of a pipeline that is not: %v\n%s", of, err, out)
		}
	}
	out, err = command(t, "dlq", "show", "-c", wrong, "visits/0/3")
	for _, want := range []string{"class      json", "state      dead", `header     h: \x1b[31m`, "key        k", `{\x1b]0;`} {
		if err != nil || !strings.Contains(out, want) || strings.Contains(out, "\x1b") {
			t.Errorf("show: %v, without %q:\n%s", err, want, out)
		}
	}
	if out, err = command(t, "dlq", "show", "-c", wrong, "--raw", "visits/0/3"); err != nil || out != "{\x1b]0;" {
		t.Errorf("show --raw: %v, %q", err, out)
	}
	var whole wholeLetter
	out, err = command(t, "dlq", "show", "-c", wrong, "-o", "json", "visits/0/3")
	if err := errors.Join(err, json.Unmarshal([]byte(out), &whole)); err != nil || string(whole.Value) != "{\x1b]0;" || whole.Class != "json" || len(whole.Headers) != 1 {
		t.Errorf("show as JSON: %v\n%s", err, out)
	}
	if out, err = command(t, "dlq", "show", "-c", wrong, "visits/0/0"); err == nil || !strings.Contains(err.Error(), "not in the outbox: it was applied or purged, or is yet to come") {
		t.Errorf("show of a record that was applied: %v\n%s", err, out)
	}

	// counts are what the table must have.
	counts := func(state string, e config.Engine, want map[string]int64) {
		t.Helper()
		for row, n := range want {
			all, err := query.Range(t.Context(), e, "visits", []byte(row), "n", query.Buckets{})
			got := int64(0)
			for _, c := range all {
				got += c.Count
			}
			if err != nil || got != n {
				t.Errorf("%s: %s has %d visits (%v), want %d", state, row, got, err, n)
			}
		}
	}
	verify := func(state string) {
		t.Helper()
		if out, err := command(t, "offsets", "verify", "-c", wrong, "--deep"); err != nil || strings.Contains(out, "BROKEN") || strings.Count(out, " ok\n") != 2 {
			t.Errorf("%s: verify: %v\n%s", state, err, out)
		}
	}
	verify("before")
	if out, err = command(t, "dlq", "redrive", "-c", mended, "--dry-run"); err != nil || !strings.Contains(out, "4 would be applied, 0 would be left out by the rules, 1 would be refused again") {
		t.Errorf("dry run: %v\n%s", err, out)
	}
	counts("dry run", d.engine, map[string]int64{"u": 1, "ann": 0, "bob": 0})
	if out, err = command(t, "dlq", "redrive", "-c", mended, "visits/1/0", "visits/0/1"); err != nil || !strings.Contains(out, "2 applied") {
		t.Errorf("redrive of two: %v\n%s", err, out)
	}
	if out, err = command(t, "dlq", "redrive", "-c", mended, "visits/1/0", "visits/0/0", "nosuch/0/1"); err == nil || !strings.Contains(err.Error(), "not in the outbox: [visits/0/0 nosuch/0/1]") || !strings.Contains(out, "0 applied") {
		t.Errorf("redrive of letters that there are not: %v\n%s", err, out)
	}
	counts("two", d.engine, map[string]int64{"u": 1, "ann": 1, "bob": 1})
	verify("two")
	if out, err = command(t, "dlq", "redrive", "-c", mended); !errors.Is(err, errStillDead) || !strings.Contains(out, "2 applied, 0 left out by the rules, 1 refused again") {
		t.Errorf("redrive of all: %v\n%s", err, out)
	}
	counts("all", d.engine, map[string]int64{"u": 1, "ann": 2, "bob": 2})

	// The daemon goes on with the old mapping; then it ends, and the rest is done
	// without it.
	send(0, `{"name":"ann","page":"/"}`, `{"user":"u","page":"/"}`, `{"name":"x","page":"/health"}`, `{`)
	await(map[int32]int64{0: 8, 1: 2})
	if out, err = command(t, "dlq", "purge", "-c", wrong, "--unrelayed", "visits/0/7"); !errors.Is(err, cli.ErrUsage) || !strings.Contains(out, "1        visits    visits  dead   decode  json") {
		t.Errorf("purge without --yes: %v\n%s", err, out)
	}
	if out, err = command(t, "dlq", "purge", "-c", wrong, "--unrelayed", "--yes", "visits/0/7"); err != nil || out != "1 purged\n" {
		t.Errorf("purge through the daemon: %v\n%s", err, out)
	}
	for _, yes := range [][]string{{"--yes"}, nil} {
		out, err = command(t, append([]string{"dlq", "purge", "-c", wrong, "visits/0/7"}, yes...)...)
		if err == nil || !strings.Contains(err.Error(), "not in the outbox: [visits/0/7]") || errors.Is(err, cli.ErrUsage) == (yes != nil) {
			t.Errorf("purge %v of a letter that is not there: %v\n%s", yes, err, out)
		}
	}
	verify("purged")
	if err := end(); err != nil {
		t.Fatal(err)
	}
	verify("without a daemon")
	if out, err = command(t, "dlq", "redrive", "-c", mended, "--class", "missing_field"); err != nil || !strings.Contains(out, "1 applied, 0 left out by the rules, 0 refused again") {
		t.Errorf("redrive without a daemon: %v\n%s", err, out)
	}
	verify("after")
	out, err = command(t, "dlq", "ls", "-c", wrong, "--all")
	for _, want := range []string{"5        visits    visits  applied", "1        visits    visits  dead"} {
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("ls --all: %v, without %q:\n%s", err, want, out)
		}
	}
	out, err = command(t, "offsets", "-c", wrong, "--json")
	var lines []offsetLine
	if err := errors.Join(err, json.Unmarshal([]byte(out), &lines)); err != nil || len(lines) != 2 || lines[0].Redriven != 3 || lines[0].Dead != 5 || lines[0].Purged != 1 || lines[1].Redriven != 2 {
		t.Errorf("offsets: %v\n%s", err, out)
	}
	e, err := config.OpenEngine(t.Context(), d.cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	counts("after", e, map[string]int64{"u": 2, "ann": 3, "bob": 2})
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}

	for _, c := range []struct {
		want string
		args []string
	}{
		{"0 purged\n", []string{"--before", "1h"}},
		{"0 purged\n", []string{"--pipeline", "gone"}},
		{"2 purged\n", []string{"--partition", "1", "--offsets", "0-1", "--all"}},
		{"4 purged\n", []string{"--all"}},
	} {
		if out, err = command(t, append([]string{"dlq", "purge", "-c", wrong, "--yes", "--unrelayed"}, c.args...)...); err != nil || out != c.want {
			t.Errorf("purge %v: %v, %q, want %q", c.args, err, out, c.want)
		}
	}
	if out, err = command(t, "dlq", "ls", "-c", wrong, "--all"); err != nil || out != "no dead letters\n" {
		t.Errorf("ls after the purge: %v\n%s", err, out)
	}
	verify("purged all")
}

func TestDlqUsage(t *testing.T) {
	t.Parallel()
	for _, s := range []string{"", "t", "t/1", "/1/2", "t/-1/2", "t/1/-2", "t/1/2/3", "t/99999999999/1", "t/x/1"} {
		if p, err := parsePlace(s); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("got %v, %v of %q, want ErrUsage", p, err, s)
		}
	}
	now := time.UnixMilli(1_800_000_000_000)
	for since, want := range map[string]int64{"": 0, "1h": now.UnixMilli() - 3_600_000, "2026-01-31T00:00:00Z": 1_769_817_600_000} {
		f := letterFlags{Since: since}
		if got, err := f.filter(now); err != nil || got.Since != want {
			t.Errorf("got %d, %v of --since %q, want %d", got.Since, err, since, want)
		}
	}
	for s, want := range map[string][2]int64{"": {0, 0}, "3-4": {3, 5}, "3-": {3, 0}, "-4": {0, 5}, "4-4": {4, 5}} {
		f := letterFlags{Offsets: s}
		if got, err := f.filter(now); err != nil || got.FromOffset != want[0] || got.ToOffset != want[1] {
			t.Errorf("got [%d, %d), %v of --offsets %q, want %v", got.FromOffset, got.ToOffset, err, s, want)
		}
	}
	for _, f := range []letterFlags{{Since: "yesterday"}, {Before: "-1h"}, {Offsets: "3"}, {Offsets: "-"}, {Offsets: "4-3"}, {Offsets: "a-b"}, {Offsets: "-1-2"}, {Offsets: "0-9223372036854775807"}} {
		if _, err := f.filter(now); !errors.Is(err, cli.ErrUsage) {
			t.Errorf("got %v of %+v, want ErrUsage", err, f)
		}
	}
	for _, f := range []letterFlags{{Class: "jsn"}, {Class: "map"}, {Stage: "mapp"}} { // would choose no letter
		if _, err := f.filter(now); !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), "there are ") {
			t.Errorf("got %v of %+v, want ErrUsage and what there is", err, f)
		}
	}
	for _, class := range []string{"json", "no_such_table", "panic", "several_events", "late", "refused"} {
		f := letterFlags{Class: class, Stage: "map"}
		if got, err := f.filter(now); err != nil || got.Class != class {
			t.Errorf("got %q, %v of --class %s", got.Class, err, class)
		}
	}
	for in, want := range map[string]string{"a\tb\nc": "a\tb\nc", "é\x00\x1b": `é\x00\x1b`, "\xff": `\xff`, "\u202e": `\u202e`, "�": "�"} {
		if got := printable(in); got != want {
			t.Errorf("got %q of %q, want %q", got, in, want)
		}
	}
}

// Letters of a pipeline that was renamed, or is in the file no more, are no letters that the
// outbox does not have: a redrive and a purge say whose they are, and how to go on.
func TestDlqOfFormerPipeline(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 1, "visits.dead": 1})
	dir := t.TempDir()
	file := func(name, pipeline string) string {
		name = filepath.Join(dir, name)
		text := fmt.Sprintf(dlqConfig, filepath.Join(dir, "data"), broker.Addr(), "user")
		text = strings.Replace(text, "pipelines:\n  visits:", "pipelines:\n  "+pipeline+":", 1)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	d, end := runDaemon(t, file("former.yaml", "visits"))
	renamed := file("renamed.yaml", "calls")
	messages := []kafka.Message{{Value: []byte(`{"name":"ann"}`)}, {Value: []byte(`{"name":"bob"}`)}}
	if err := d.client.NewProducer(nil).Produce(t.Context(), "visits", messages...); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": {0: 2}}); err != nil {
		t.Fatal(err)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
	const redrive, purge = "more of pipeline visits, which the file does not have: put its rules back, or give them up by dlq purge --pipeline visits", "more of pipeline visits, which the file does not have: choose them by --pipeline visits"
	for _, c := range []struct {
		args    []string
		out     string // part of
		err     string // part of, "" = none
		without string
	}{
		{[]string{"redrive"}, "0 refused again\n2 " + redrive + "\n", "", ""},
		{[]string{"redrive", "--class", "json"}, "0 refused again\n", "", ""},
		{[]string{"redrive", "visits/0/1"}, "0 refused again\n", "1 " + redrive, "not in the outbox"},
		{[]string{"redrive", "visits/0/7"}, "0 refused again\n", "not in the outbox: [visits/0/7]", "more of"},
		{[]string{"purge", "--all"}, "2 " + purge + "\n", "nothing was removed", ""},
		{[]string{"purge", "--yes"}, "0 purged\n2 " + purge + "\n", "", ""},
		{[]string{"purge", "--yes", "visits/0/1"}, "0 purged\n", "1 " + purge, "not in the outbox"},
		{[]string{"purge", "--yes", "--pipeline", "visits", "visits/0/1"}, "1 purged\n", "", ""},
		{[]string{"purge", "--yes", "--pipeline", "visits"}, "1 purged\n", "", ""},
		{[]string{"redrive"}, "0 refused again\n", "", ""},
	} {
		out, err := command(t, append([]string{"dlq", c.args[0], "-c", renamed}, c.args[1:]...)...)
		switch {
		case !strings.Contains(out, c.out), (err != nil) != (c.err != ""), err != nil && !strings.Contains(err.Error(), c.err),
			err != nil && c.without != "" && strings.Contains(err.Error(), c.without):
			t.Errorf("%v: got %v and\n%s\nwant %q and %q", c.args, err, out, c.err, c.out)
		}
	}
}

// A redrive makes the table of a letter's day, as the daemon does: it may be the first
// record of it.
func TestRedriveCreatesTables(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 1, "visits.dead": 1})
	dir := t.TempDir()
	file := func(name, row string) string {
		name = filepath.Join(dir, name)
		text := fmt.Sprintf(dlqConfig, filepath.Join(dir, "data"), broker.Addr(), row)
		text = strings.NewReplacer("  visits: {families", "  visits_*: {families", "{table: visits,", "{table: 'visits_{day}',").Replace(text)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return name
	}
	wrong, mended := file("wrong.yaml", "user"), file("mended.yaml", "name")
	d, end := runDaemon(t, wrong)
	m := kafka.Message{Value: []byte(`{"name":"ann","page":"/","day":"20150517"}`)}
	if err := d.client.NewProducer(nil).Produce(t.Context(), "visits", m); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := d.pipelines[0].WaitStored(ctx, map[string]map[int32]int64{"visits": {0: 1}}); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "dlq", "redrive", "-c", mended); err != nil || !strings.Contains(out, "1 applied") {
		t.Errorf("redrive: %v\n%s", err, out)
	}
	if err := end(); err != nil {
		t.Fatal(err)
	}
}
