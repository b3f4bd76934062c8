//go:build integration

package integration

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
	"sluice/store/hbasestore"
)

// startViews starts a broker in the process, which has the topic views, and a client of it; both
// end with the test.
func startViews(t *testing.T, partitions int) (*embedded.Broker, *kafka.Client) {
	t.Helper()
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"views": partitions}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = broker.Close() })
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	return broker, client
}

// TestHBaseRemoveCounters (I2): buckets on a real HBase are removed by the binary while a
// daemon counts, in these and in others, killed once: what is counted afterwards is there
// once, what was counted before is not, and other buckets are what the log says.
func TestHBaseRemoveCounters(t *testing.T) {
	address := hbaseAddress(t)
	s := openHBase(t, address, nil)
	defer s.Close()
	ctx := t.Context()
	name := fmt.Sprintf("removed-%d", time.Now().UnixNano()) // of the pipeline, and of its table
	const partitions = 2
	broker, client := startViews(t, partitions)
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, `
serve: {listen: "127.0.0.1:0"}
store: {engine: hbase, hbase: {gateways: [%[1]q], retry_timeout: 20s}}
kafka: {brokers: [%[2]q]}
tables:
  %[3]s: {families: {n: {COUNTER: true}, u: {DISTINCT: true}}}
pipelines:
  %[3]s:
    topics: [views]
    group: removed
    decode: {format: json}
    flush: {records: 50}
    map:
      - table: %[3]s
        row: page
        increment: [{family: n, qualifier: day}]
        append: {u: {users: user}}
`, address, broker.Addrs()[0], name), 0o644); err != nil {
		t.Fatal(err)
	}
	env := os.Environ()
	producer := client.NewProducer(nil)
	defer producer.Close()
	sent, want := int64(0), map[string]int64{}
	produce := func() {
		t.Helper()
		for p := range int32(partitions) {
			var messages []kafka.Message
			for i := range 300 {
				page, day := fmt.Sprintf("/%d", i%7), fmt.Sprintf("2026010%d", i%3+1)
				want[page+" "+day]++
				messages = append(messages, kafka.Message{Partition: p, Value: fmt.Appendf(nil, `{"page":%q,"day":%q,"user":"user-%d"}`, page, day, i%50)})
			}
			if err := producer.Produce(ctx, "views", messages...); err != nil {
				t.Fatal(err)
			}
			sent += int64(len(messages))
		}
	}
	check := func(when string) {
		t.Helper()
		got := map[string]int64{}
		sc := s.Scan(ctx, &store.Scan{Table: name, Columns: []store.Column{{Family: "n", All: true}}})
		defer sc.Close()
		for sc.Next() {
			for _, c := range sc.Row().Cells {
				got[string(sc.Row().Key)+" "+string(c.Qualifier)] = int64(binary.BigEndian.Uint64(c.Value))
			}
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s (-log +store):\n%s", when, d)
		}
	}
	arguments := func(more ...string) []string {
		return append([]string{"counters", "remove", "-c", file, name, "--family", "n", "--stop-column", "20260103"}, more...)
	}
	d := StartDaemon(t, file, env)
	produce()
	WaitCaughtUp(t, d, file, env, sent, time.Minute)
	check("counted")
	if out, err := Run(t, env, nil, "ingest", arguments()...); err == nil || !strings.Contains(out, "14 counters") {
		t.Errorf("counted only: %v\n%s", err, out)
	}
	check("counted only")
	// Killed at some call, and done again.
	cmd := exec.Command(filepath.Join(Binaries(t), "ingest"), arguments("--yes")...)
	var killed bytes.Buffer
	cmd.Env, cmd.Stderr = env, &killed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	moment := time.AfterFunc(150*time.Millisecond, func() { cmd.Process.Kill() }) // anything that is left is right
	t.Logf("the first: %v %s", cmd.Wait(), &killed)
	moment.Stop()
	if out, err := Run(t, env, nil, "ingest", arguments("--yes")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for key := range want {
		if day := key[len(key)-8:]; day < "20260103" {
			delete(want, key)
		}
	}
	check("removed")
	produce()
	WaitCaughtUp(t, d, file, env, sent, time.Minute)
	check("counted on")
	if err := d.Stop(30 * time.Second); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if out, err := Run(t, env, nil, "ingest", arguments("--yes")...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for key := range want {
		if day := key[len(key)-8:]; day < "20260103" {
			delete(want, key)
		}
	}
	check("removed while nothing counts")
	d = StartDaemon(t, file, env)
	produce()
	WaitCaughtUp(t, d, file, env, sent, time.Minute)
	check("counted by another daemon")
	if err := d.Stop(30 * time.Second); err != nil {
		t.Errorf("SIGTERM: %v", err)
	}
	if err := dropTable(t, s, name); err != nil {
		t.Error(err)
	}
}

func dropTable(t *testing.T, s *hbasestore.Store, name string) error {
	t.Helper()
	if err := s.DisableTable(t.Context(), name); err != nil {
		return err
	}
	return s.DropTable(t.Context(), name)
}
