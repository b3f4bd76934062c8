package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/internal/integration"
	"sluice/pipeline/kafka/embedded"
	"sluice/store/pebblestore"
)

// world is a broker, a configuration and a data directory of one test.
type world struct {
	config, data, out string
	env               []string
	broker            *embedded.Broker
}

func newWorld(t *testing.T) *world {
	t.Helper()
	broker := startBroker(t, map[string]int{"access-log": 2, "access-log.dead": 1})
	w := &world{config: integration.FastConfig(t, "5s"), data: filepath.Join(t.TempDir(), "data"), out: t.TempDir(), broker: broker}
	w.env = integration.Environment(broker.Addr(), w.data)
	return w
}

// run runs a binary and fails the test where it fails.
func (w *world) run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := integration.Run(t, w.env, nil, name, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ingest produces log and has a daemon by config apply records in all, and end.
func (w *world) ingest(t *testing.T, config string, log *integration.Log, records int64) {
	t.Helper()
	if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", config, "--topic", "access-log", "-"); err != nil {
		t.Fatal(err)
	}
	d := integration.StartDaemon(t, config, w.env)
	integration.WaitCaughtUp(t, d, config, w.env, records, time.Minute)
	if err := d.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
}

// One directory, many tools: shell, offsets and export give the same answers
// through a running daemon and without one, writes included.
func TestToolsWithAndWithoutDaemon(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	log := integration.GeneratedLog(3, 500)
	if _, err := integration.Run(t, w.env, append(bytes.Join(log.Lines, []byte("\n")), '\n'), "ingest", "produce", "-c", w.config, "--topic", "access-log", "-"); err != nil {
		t.Fatal(err)
	}
	d := integration.StartDaemon(t, w.config, w.env)
	integration.WaitCaughtUp(t, d, w.config, w.env, 500, time.Minute)
	page, _ := get(t, d, "/metrics")
	fetched := regexp.MustCompile(`(?m)^sluice_kafka_fetch_bytes_total\{pipeline="access-log"\} (\S+)$`).FindStringSubmatch(page)
	if fetched == nil {
		t.Fatalf("no sluice_kafka_fetch_bytes_total in\n%s", page)
	}
	if n, err := strconv.ParseFloat(fetched[1], 64); err != nil || n <= 0 || n >= float64(len(bytes.Join(log.Lines, nil))) {
		t.Errorf("fetched %s bytes, %v, of %d before compression; want those of the compressed batches", fetched[1], err, len(bytes.Join(log.Lines, nil)))
	}

	tools := func(state string) {
		t.Helper()
		row := "by-hand-" + state
		w.run(t, "shell", "-c", w.config, "-n", "-e", "put 'access_log', '"+row+"', 'l:path', '/"+state+"'\nincr 'path_counts', '"+row+"', 'day:20260101', 7")
		got := w.run(t, "shell", "-c", w.config, "-n", "-e", "get_counter 'path_counts', '"+row+"', 'day:20260101'\nget 'access_log', '"+row+"'")
		if !strings.Contains(got, "COUNTER VALUE = 7") || !strings.Contains(got, "value=/"+state) {
			t.Errorf("%s: the shell reads back:\n%s", state, got)
		}
		w.run(t, "shell", "-c", w.config, "-n", "-e", "deleteall 'access_log', '"+row+"'\ndeleteall 'path_counts', '"+row+"'")
		out := w.run(t, "ingest", "offsets", "-c", w.config, "--json")
		var lines []offsetLine
		if err := json.Unmarshal([]byte(out), &lines); err != nil {
			t.Fatal(err)
		}
		var stored, dead int64
		for _, l := range lines {
			stored += l.Stored
			dead += l.Dead
			if l.Lag != 0 || !l.Balanced {
				t.Errorf("%s: %+v", state, l)
			}
		}
		if len(lines) != 2 || stored != 500 || dead != 1 {
			t.Errorf("%s: offsets of %d partitions, %d stored, %d dead:\n%s", state, len(lines), stored, dead, out)
		}
		got = w.run(t, "export", "run", "-c", w.config, "access_log", "--out", filepath.Join(w.out, state))
		if !strings.Contains(got, "499 rows") {
			t.Errorf("%s: export:\n%s", state, got)
		}
		got = w.run(t, "export", "verify", filepath.Join(w.out, state, "access_log"))
		if !strings.Contains(got, "complete and as the manifest says") {
			t.Errorf("%s: verify:\n%s", state, got)
		}
		got = w.run(t, "export", "list", "-c", w.config, "--out", filepath.Join(w.out, state))
		if !strings.Contains(got, "499") || !strings.Contains(got, "never") {
			t.Errorf("%s: list:\n%s", state, got)
		}
	}
	tools("daemon")

	if info, err := os.Stat(filepath.Join(w.data, "sluice.endpoint")); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("endpoint file: %v, %v; want mode 0600", info, err)
	}
	second := integration.StartDaemon(t, w.config, w.env)
	if err := second.Wait(time.Minute); err == nil || !strings.Contains(second.Log(), "in use") {
		t.Errorf("a second daemon on the directory: %v\n%s", err, second.Log())
	}
	if err := d.Stop(time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(w.data, "sluice.endpoint")); !os.IsNotExist(err) {
		t.Errorf("the endpoint file outlived its daemon: %v", err)
	}
	tools("direct")

	db, err := pebblestore.Open(w.data, &pebblestore.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := log.Check(context.Background(), db); err != nil {
		t.Error(err)
	}
}

// What goes wrong at the start ends with a status and a message that says what to
// do, in bounded time.
func TestStartErrors(t *testing.T) {
	t.Parallel()
	silent, closed := wrongAddresses(t)
	broker := startBroker(t, map[string]int{"access-logs": 1})
	text, err := os.ReadFile(integration.FastConfig(t, "500ms"))
	if err != nil {
		t.Fatal(err)
	}
	// What never answers is given up after some tries; what does answer has time.
	write := func(name, kafka string) string {
		name = filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(name, []byte(strings.Replace(string(text), "kafka:\n", "kafka:\n  start_timeout: 5s\n"+kafka, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
		return name
	}
	quick, config := write("quick.yaml", "  exit_if_unreachable: true\n  request_timeout: 500ms\n  dial_timeout: 300ms\n"), write("config.yaml", "")
	wrong := filepath.Join(t.TempDir(), "wrong.yaml")
	if err := os.WriteFile(wrong, []byte(strings.Replace(string(text), "    group:", "    gruop:", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	memory := filepath.Join(t.TempDir(), "memory.yaml")
	if err := os.WriteFile(memory, []byte(strings.Replace(string(text), "engine: pebble", "engine: mem", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, config, brokers, data, want string
	}{
		{"wrong address", quick, closed, filepath.Join(t.TempDir(), "d"), "exit status 69"},
		{"silent broker", quick, silent, filepath.Join(t.TempDir(), "d"), "exit status 69"},
		{"missing topic", config, broker.Addr(), filepath.Join(t.TempDir(), "d"), "exit status 69"},
		{"data directory is a file", config, broker.Addr(), file, "exit status 1"},
		{"tables in memory", memory, broker.Addr(), filepath.Join(t.TempDir(), "d"), "exit status 1"},
		{"mistyped key", wrong, broker.Addr(), filepath.Join(t.TempDir(), "d"), "exit status 78"},
		{"no such file", config + ".nope", broker.Addr(), filepath.Join(t.TempDir(), "d"), "exit status 78"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := integration.StartDaemon(t, c.config, integration.Environment(c.brokers, c.data))
			err := d.Wait(time.Minute)
			log := d.Log()
			if err == nil || err.Error() != c.want {
				t.Errorf("ended with %v, want %s\n%s", err, c.want, log)
			}
			if log == "" || strings.Contains(log, "goroutine ") || strings.Contains(log, "panic") {
				t.Errorf("no message, or a stack trace:\n%s", log)
			}
			want := map[string]string{
				"wrong address": closed, "silent broker": silent, "missing topic": "no such topic: access-log",
				"mistyped key": "gruop", "no such file": ".nope", "tables in memory": "set pebble or hbase", "data directory is a file": file,
			}[c.name]
			if !strings.Contains(log, want) {
				t.Errorf("the message does not name %s:\n%s", want, log)
			}
		})
	}
}

func TestLint(t *testing.T) {
	t.Parallel()
	root := integration.ModuleRoot(t)
	for _, name := range []string{"pageviews.yaml", "access-log.yaml"} {
		out, err := integration.Run(t, os.Environ(), nil, "ingest", "lint", "-c", filepath.Join(root, "examples", name))
		if err != nil || !strings.Contains(out, "ok") {
			t.Errorf("lint %s: %v\n%s", name, err, out)
		}
	}
	idle := filepath.Join(t.TempDir(), "idle.yaml")
	if err := os.WriteFile(idle, []byte("tables: {t: {families: {f: {}}}}\npipelines:\n  p:\n    topics: [t]\n    group: g\n    decode: {format: ndjson}\n    dead_letters: {policies: {json: drop}}\n    map:\n      - {table: t, row: usr, put: {f: {a: b}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "lint", "-c", idle); err != nil || !strings.HasPrefix(out, "warning: "+idle+":7:37: this pipeline refuses no record with the class json") || !strings.HasSuffix(out, "\n"+idle+": ok\n") {
		t.Errorf("Got %q, %v of a policy that never applies", out, err)
	}
	bad := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(bad, []byte("store:\n  dirr: x\npipelines:\n  p:\n    topics: [t]\n    group: g\n    decode: {format: jsn}\n    map:\n      - {table: t, row: usr, put: {f: {a: upperr(a)}}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	_, err := integration.Run(t, os.Environ(), nil, "ingest", "lint", "-c", bad)
	if err == nil {
		t.Fatal("a bad file passed")
	}
	for _, want := range []string{"exit status 78", bad + ":2:3:", "did you mean", `"dir"`, "jsn", "upperr"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the report lacks %q:\n%v", want, err)
		}
	}
}
