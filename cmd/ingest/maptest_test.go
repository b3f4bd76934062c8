package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/cmd/internal/cli"
	"sluice/examples"
	"sluice/pipeline/kafka"
	"sluice/store"
	"sluice/store/pebblestore"
)

// program is a cli.Program with buffers, and the example in a file of its own.
func program(t *testing.T, yaml []byte, brokers string) (p *cli.Program, out *bytes.Buffer, config cli.ConfigFlag) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(name, yaml, 0o600); err != nil {
		t.Fatal(err)
	}
	out = &bytes.Buffer{}
	p = &cli.Program{Stdin: strings.NewReader(""), Stdout: out, Stderr: out, LookupEnv: func(key string) (string, bool) {
		return brokers, key == "SLUICE_BROKERS"
	}}
	return p, out, cli.ConfigFlag{Config: name}
}

func TestMappingTestsOfTheExample(t *testing.T) {
	t.Parallel()
	p, out, config := program(t, examples.AccessLog, "")
	if err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := "ok    access-log: a request without bytes and referrer\nok    access-log: a line that is cut off\n2 passed\n"
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}
}

func TestMappingTestsThatFail(t *testing.T) {
	t.Parallel()
	yaml := bytes.ReplaceAll(examples.AccessLog, []byte("'day:20150517', 1,"), []byte("'day:20150518', 1,"))
	yaml = bytes.Replace(yaml, []byte("error: combined"), []byte("expect: \"incr 'path_counts', '/a', 'day:1', 1\""), 1)
	p, out, config := program(t, yaml, "")
	err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p)
	if !errors.Is(err, errTestsFailed) || err.Error() != "tests of the mapping failed: 2 of 2" {
		t.Errorf("got %v", err)
	}
	for _, want := range []string{
		"FAIL  access-log: a request without bytes and referrer (-want +got)\n",
		"        incr 'path_counts', '/a?b=1', 'hour:2015051710', 1, 1431857103000\n" +
			"      - incr 'path_counts', '/a?b=1', 'day:20150518', 1, 1431857103000\n" +
			"      + incr 'path_counts', '/a?b=1', 'day:20150517', 1, 1431857103000\n",
		"FAIL  access-log: a line that is cut off (-want +got)\n" +
			"      - incr 'path_counts', '/a', 'day:1', 1\n" +
			"      + error combined\n" +
			"        decode: combined: byte 37: the quote of the request is not closed\n",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want\n%sin\n%s", want, out)
		}
	}

	p, _, config = program(t, examples.Pageviews, "")
	if err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p); err == nil || !strings.Contains(err.Error(), "has no tests") {
		t.Errorf("a file without tests: got %v", err)
	}
}

// Tests and explanations show what the store will decide.
func TestMappingTestsOfUnits(t *testing.T) {
	t.Parallel()
	const yaml = `tables:
  users: {families: {u: {VERSIONS: 1}}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: json}
    dedup: {id: id, ttl: 1h}
    map:
      - table: users
        for_each: ["name, i in names"]
        row: name
        check: {family: u, qualifier: '"first"', op: absent}
        put: {u: {first: i}}
      - {table: users, row: id, timestamp: 5, delete: [{what: column, family: u, qualifier: '"x"'}]}
      - {table: users, row: id, append: {u: {log: id}}}
    tests:
      - name: good
        record: '{"id":"e1","names":["a","b"]}'
        expect: |
          once 'e1', TTL => 3600000
          put 'users', 'a', 'u:first', '0', 0, IF => 'u:first' absent
          put 'users', 'b', 'u:first', '1', 0, IF => 'u:first' absent
          DeleteColumn 'users', 'e1', 'u:x', 5
          append 'users', 'e1', 'u:log', 'e1', 0
      - name: bad
        record: '{"id":"e2","names":["a"]}'
        expect: |
          once 'e2', TTL => 3600000
          put 'users', 'a', 'u:first', '0', 0
          DeleteColumn 'users', 'e2', 'u:x', 5
          append 'users', 'e2', 'u:log', 'e2', 0
`
	p, out, config := program(t, []byte(yaml), "")
	if err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p); !errors.Is(err, errTestsFailed) {
		t.Errorf("got %v", err)
	}
	want := `ok    p: good
FAIL  p: bad (-want +got)
        once 'e2', TTL => 3600000
      - put 'users', 'a', 'u:first', '0', 0
      + put 'users', 'a', 'u:first', '0', 0, IF => 'u:first' absent
        DeleteColumn 'users', 'e2', 'u:x', 5
        append 'users', 'e2', 'u:log', 'e2', 0
`
	if out.String() != want {
		t.Errorf("got\n%swant\n%s", out, want)
	}

	p, out, config = program(t, []byte(yaml), "")
	p.Stdin = strings.NewReader(`{"id":"e1","names":[]}` + "\n{}\n")
	if err := (&explainCommand{ConfigFlag: config, Sample: 5, File: "-"}).Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"t/0@0: the store decides\n  once 'e1', TTL => 3600000\n", "t/0@1: dead letter: map: missing_field: map[1].row: field id is missing or null\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("want\n%sin\n%s", want, out)
		}
	}
}

// Payloads that are no text: base64 in a test, a whole file for explain.
func TestBinaryRecords(t *testing.T) {
	t.Parallel()
	schema := filepath.Join(t.TempDir(), "view.avsc")
	if err := os.WriteFile(schema, []byte(`{"type":"record","name":"View","fields":[{"name":"user","type":"string"},{"name":"n","type":"long"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	yaml := `
tables:
  users: {families: {u: {}}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: avro, schema_file: ` + schema + `}
    map:
      - {table: users, row: user, put: {u: {n: n}}}
    tests:
      - {name: good, record_base64: BGFiVA==, expect: "put 'users', 'ab', 'u:n', '42', 0"}
      - {name: short, record_base64: BGFi, error: avro}
      - {name: empty, record: '', error: avro}
`
	p, out, config := program(t, []byte(yaml), "")
	if err := (&testCommand{ConfigFlag: config}).Run(t.Context(), p); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	p, out, config = program(t, []byte(yaml), "")
	p.Stdin = strings.NewReader("\x04a\n\x54") // a line end is a byte like others
	if err := (&explainCommand{ConfigFlag: config, Sample: 5, File: "-"}).Run(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if want := "t/0@0: 1 operation\n  put 'users', \"a\\x0a\", 'u:n', '42', "; !strings.Contains(out.String(), want) {
		t.Errorf("want\n%sin\n%s", want, out)
	}
}

// So it is where the format is text and its payloads are packed or framed.
func TestExplainFileOfPackedRecords(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	z.ModTime = time.Unix(10, 0) // a byte of the head is a line end
	if _, err := z.Write([]byte(`{"user": "a", "n": 42}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for decode, payload := range map[string]string{
		"{format: json, compression: gzip}":  packed.String(),
		"{format: json, framing: confluent}": "\x00\x00\x00\x00\n" + `{"user": "a", "n": 42}`, // schema 10
	} {
		p, out, config := program(t, []byte(`
tables:
  users: {families: {u: {}}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: `+decode+`
    map:
      - {table: users, row: user, put: {u: {n: n}}}
`), "")
		p.Stdin = strings.NewReader(payload)
		if err := (&explainCommand{ConfigFlag: config, Sample: 5, File: "-"}).Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if want := "t/0@0: 1 operation\n  put 'users', 'a', 'u:n', '42', "; !strings.HasPrefix(out.String(), want) || strings.Contains(out.String(), "t/0@1") {
			t.Errorf("%s: want\n%sin\n%s", decode, want, out)
		}
	}
}

func TestLineDiff(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ want, got, diff string }{
		{"", "", ""},
		{"a b", "a b", "=a =b"},
		{"a b c", "a c", "=a -b =c"},
		{"a c", "a b c", "=a +b =c"},
		{"a", "b", "-a +b"},
		{"", "a", "+a"},
		{"a b c d", "b x d e", "-a =b -c +x =d +e"},
	} {
		var got []string
		for line := range strings.Lines(lineDiff(strings.Fields(tt.want), strings.Fields(tt.got))) {
			mark := strings.TrimSpace(line[:8])
			if mark == "" {
				mark = "="
			}
			got = append(got, mark+strings.TrimSpace(line[8:]))
		}
		if text := strings.Join(got, " "); text != tt.diff {
			t.Errorf("%q against %q: got %q, want %q", tt.want, tt.got, text, tt.diff)
		}
	}
}

// Explaining live records leaves no trace: no request of a group's member, no offset
// committed, no record produced, and of the store not a byte, beside a daemon that has
// it open, too.
func TestExplainLeavesNoTrace(t *testing.T) {
	t.Parallel()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(2, "pageviews"))
	if err != nil {
		t.Fatal(err)
	}
	defer cluster.Close()
	addr := cluster.ListenAddrs()[0]
	client, err := kafka.NewClient(&kafka.Options{Brokers: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer := client.NewProducer(nil)
	defer producer.Close()
	for i := range 6 {
		m := kafka.Message{Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"ts": %d, "user": "u%d", "page": "/a"}`, 1_700_000_000_000+i, i)}
		if err := producer.Produce(t.Context(), "pageviews", m); err != nil {
			t.Fatal(err)
		}
	}
	dir := filepath.Join(t.TempDir(), "data")
	p, out, flag := program(t, examples.Pageviews, addr)
	lookup := p.LookupEnv
	p.LookupEnv = func(key string) (string, bool) {
		if key == "SLUICE_DATA" {
			return dir, true
		}
		return lookup(key)
	}
	cfg, err := flag.Load(p)
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Store.Dir != dir {
		t.Fatalf("Got the store in %s, want %s", cfg.Store.Dir, dir)
	}
	engine, err := pebblestore.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}}, nil); err != nil {
		t.Fatal(err)
	}
	explain := func() {
		t.Helper()
		out.Reset()
		if err := (&explainCommand{ConfigFlag: flag, Sample: 4}).Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), ": 5 operations\n"); n != 4 {
			t.Fatalf("Got %d records, want the sample of 4:\n%s", n, out)
		}
	}
	var mu sync.Mutex
	asked := map[kmsg.Key]int{}
	cluster.Control(func(r kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		mu.Lock()
		asked[kmsg.Key(r.Key())]++
		mu.Unlock()
		return nil, nil, false
	})
	explain() // beside the owner of the directory
	if err := engine.Close(); err != nil {
		t.Fatal(err)
	}
	before := files(t, dir)
	explain()
	if d := cmp.Diff(before, files(t, dir)); d != "" {
		t.Errorf("Got another store (-before +after):\n%s", d)
	}
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	explain()
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Got %v, want no store made", err)
	}
	mu.Lock()
	defer mu.Unlock()
	allowed := []kmsg.Key{kmsg.ApiVersions, kmsg.Metadata, kmsg.ListOffsets, kmsg.OffsetForLeaderEpoch, kmsg.Fetch}
	for key, n := range asked {
		if !slices.Contains(allowed, key) {
			t.Errorf("Got %d requests %s, want none", n, key.Name())
		}
	}
	if asked[kmsg.Fetch] == 0 {
		t.Errorf("Got the requests %v, want fetches: the test sees nothing", asked)
	}
}

// files returns the files below dir with what is in them.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		all[path] = fmt.Sprintf("%d bytes, %x", len(b), sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestExplain(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"pageviews": 2})
	p, out, config := program(t, examples.Pageviews, broker.Addr())
	explain := func(c *explainCommand) string {
		t.Helper()
		out.Reset()
		c.ConfigFlag = config
		if err := c.Run(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	if got := explain(&explainCommand{Sample: 3}); got != "the topics hold no records\n" {
		t.Errorf("an empty topic: got %q", got)
	}
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	producer := client.NewProducer(nil)
	for i := range 6 {
		m := kafka.Message{Partition: int32(i % 2), Value: fmt.Appendf(nil, `{"ts": %d, "user": "u%d", "page": "/a"}`, 1_700_000_000_000+i, i)}
		if i == 5 {
			m.Value = []byte("nonsense")
		}
		if err := producer.Produce(context.WithoutCancel(t.Context()), "pageviews", m); err != nil {
			t.Fatal(err)
		}
	}
	got := explain(&explainCommand{Sample: 4})
	for _, want := range []string{
		"pageviews/0@1: 5 operations\n", "pageviews/0@2: 5 operations\n", "pageviews/1@1: 5 operations\n",
		"pageviews/1@2: dead letter: decode: json: byte 0: unexpected 'n', expected an object\n",
		"  incr 'pageview_counts', '/a', 'hour:2023111422', 1, 1700000000002\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want\n%sin\n%s", want, got)
		}
	}
	if n := strings.Count(got, "pageviews/"); n != 4 {
		t.Errorf("%d records, want the sample of 4:\n%s", n, got)
	}
	p.Stdin = strings.NewReader("{}\n{}\n{}\n")
	if got := explain(&explainCommand{Sample: 2, File: "-"}); strings.Count(got, "dead letter: map: missing_field") != 2 {
		t.Errorf("from a file: got\n%s", got)
	}
	p.Stdin = strings.NewReader("")
	if got := explain(&explainCommand{Sample: 2, File: "-"}); got != "- holds no records\n" {
		t.Errorf("from an empty file: got %q", got)
	}
	p.Stdin = strings.NewReader("{}\n" + strings.Repeat(" ", maxExplained+1))
	c := &explainCommand{ConfigFlag: config, Sample: 2, File: "-"}
	if err := c.Run(t.Context(), p); err == nil || err.Error() != "-:2: a record of more than 67108864 bytes" {
		t.Errorf("from a file with a long line: got %v", err)
	}
	c = &explainCommand{ConfigFlag: config, Sample: 0}
	if err := c.Run(t.Context(), p); !errors.Is(err, cli.ErrUsage) {
		t.Errorf("a sample of 0: got %v", err)
	}
}

// explain says what the policy of a record's error makes of it.
func TestExplainSaysThePolicy(t *testing.T) {
	t.Parallel()
	for policy, want := range map[string]string{
		"":                           "t/0@0: dead letter: ",
		"{decode: dlq}":              "t/0@0: dead letter: ",
		"{json: drop}":               "t/0@0: dropped, and not kept: ",
		"{decode: fail}":             "t/0@0: stops the pipeline: ",
		"{decode: retry}":            "t/0@0: pauses the partition, is tried 10 times more, and then is a dead letter: ",
		"{decode: fail, json: drop}": "t/0@0: dropped, and not kept: ",
		"{map: drop}":                "t/0@0: dead letter: ",
	} {
		yaml := `
tables:
  users: {families: {u: {}}}
pipelines:
  p:
    topics: [t]
    group: g
    decode: {format: json}
    map:
      - {table: users, row: id, put: {u: {n: n}}}
`
		if policy != "" {
			yaml += "    dead_letters: {policies: " + policy + "}\n"
		}
		p, out, config := program(t, []byte(yaml), "")
		p.Stdin = strings.NewReader("nonsense\n")
		if err := (&explainCommand{ConfigFlag: config, Sample: 5, File: "-"}).Run(t.Context(), p); err != nil {
			t.Fatalf("%s: %v", policy, err)
		}
		if want += "decode: json: byte 0: "; !strings.HasPrefix(out.String(), want) {
			t.Errorf("%s: Got %q, want %q", policy, out, want)
		}
	}
}
