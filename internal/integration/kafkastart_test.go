//go:build integration

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"sluice/config"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// send produces a record to a partition, with its seq, its outcome and its time, in one
// record batch with those of the same call.
func (in *kafkaIngest) send(partition int32, records ...kafka.Message) {
	in.t.Helper()
	for i := range records {
		records[i].Partition = partition
	}
	p := in.client.NewProducer(&kafka.ProducerOptions{DeliveryTimeout: kafkaPatience})
	in.ok(errors.Join(p.Produce(in.t.Context(), "events", records...), p.Close()))
}

// A start at a timestamp: of each partition the first record at or after it, which may be
// within a batch, and all that follows; of one that has none yet, what comes. A later
// start does not move what is stored.
func TestKafkaStartAtTime(t *testing.T) {
	in := newKafkaIngest(t, 4)
	const day = 24 * time.Hour
	at := time.Now().Add(-30 * day).Truncate(time.Second).Add(500 * time.Millisecond)
	seq, want := 0, 0
	event := func(when time.Time) (m kafka.Message) {
		m.Time, m.Value = when, fmt.Appendf(nil, `{"seq":%d,"outcome":"commit"}`, seq)
		seq++
		if !when.Before(at) {
			want++
		} else {
			m.Value = []byte(strings.Replace(string(m.Value), "commit", "early", 1))
		}
		return m
	}
	spread := func(from time.Time, n int) (all []kafka.Message) {
		for i := range n {
			all = append(all, event(from.Add(time.Duration(i)*time.Millisecond)))
		}
		return all
	}
	in.send(0, spread(at.Add(-50*time.Millisecond), 120)...) // it is the time of the 51st
	in.send(0, spread(at.Add(day), 30)...)
	in.send(1, spread(at.Add(-day), 40)...)             // all are older
	in.send(2, spread(at.Add(-time.Millisecond), 1)...) // a batch ends right before it
	in.send(2, spread(at.Add(time.Millisecond), 25)...) // and one begins right after
	fromTime := func(o *pipeline.Options) { o.Start = pipeline.Start{From: pipeline.StartAtTime, Time: at} }
	ended, stop := in.start(fromTime)
	in.await(ended, "what there is from the time on", func(p store.Progress) bool { return p.Applied == int64(want) })
	in.send(1, spread(at.Add(2*day), 10)...)
	in.send(3, spread(at.Add(-day), 7)...) // older, and come after the start
	late := 7
	in.await(ended, "what has come since", func(p store.Progress) bool { return p.Applied == int64(want+late) })
	in.ok(stop())
	all, err := store.AllProgress(t.Context(), in.db)
	in.ok(err)
	for _, p := range all {
		if first := []int64{50, 40, 1, 0}[p.Partition]; p.Progress.First != first {
			t.Errorf("Got partition %d begun at offset %d, want %d", p.Partition, p.Progress.First, first)
		}
	}
	in.send(1, spread(at.Add(3*day), 5)...)
	ended, stop = in.start(func(o *pipeline.Options) {
		o.Start = pipeline.Start{From: pipeline.StartAtTime, Time: at.Add(10 * day)}
	})
	in.await(ended, "what came last", func(p store.Progress) bool { return p.Applied >= int64(want+late) })
	in.ok(stop())
	rows, counts := in.served()
	if len(rows) != want+late || counts["commit"] != want || counts["early"] != late {
		t.Errorf("Got %d rows and counts %v, want %d from the time on and the %d older ones that came after the start", len(rows), counts, want, late)
	}
	audits, err := pipeline.RunAudit(t.Context(), &pipeline.AuditOptions{Store: in.db, Client: in.client, Deep: true})
	in.ok(err)
	for _, a := range audits {
		if len(a.Problems) > 0 {
			t.Errorf("audit of partition %d: %q", a.Partition, a.Problems)
		}
	}
}

// From a listener that wants SCRAM in TLS to the counts, by a configuration file, while the
// sessions of its connections end and are begun again; a wrong password ends the pipeline.
func TestKafkaSCRAMInTLS(t *testing.T) {
	in := newKafkaIngest(t, 2, "--sasl", "--tls", "--conf", "connections.max.reauth.ms=2000")
	brokers, err := os.ReadFile(filepath.Join(in.dir, "bootstrap.sasltls"))
	in.ok(err)
	client := func(mechanism, password string) *kafka.Client {
		t.Helper()
		file := filepath.Join(t.TempDir(), "sluice.yaml")
		in.ok(os.WriteFile(file, fmt.Appendf(nil, `
store: {dir: data}
kafka:
  brokers: [%s]
  tls: {enable: true, ca_file: %q}
  sasl: {mechanism: %s, user: admin, password: "${KAFKA_PASSWORD}"}
`, strings.TrimSpace(string(brokers)), filepath.Join(in.dir, "tls", "ca.pem"), mechanism), 0o600))
		cfg, err := config.Load(file, func(name string) (string, bool) { return password, name == "KAFKA_PASSWORD" })
		in.ok(err)
		o, err := cfg.KafkaOptions()
		in.ok(err)
		o.DialTimeout, o.RequestTimeout = 20*time.Second, time.Minute // a busy machine is no error
		c, err := kafka.NewClient(o)
		in.ok(err)
		t.Cleanup(func() { c.Close() })
		return c
	}
	plain := in.client
	for _, mechanism := range []string{"scram-sha-256", "scram-sha-512"} {
		in.client = client(mechanism, "admin-secret")
		ended, stop := in.start()
		in.produce(200)
		in.await(ended, "the first records", func(p store.Progress) bool { return p.Applied == int64(in.next) })
		begun := time.Now()
		for time.Since(begun) < 5*time.Second { // more than two sessions
			in.produce(10)
			in.await(ended, "those of a session", func(p store.Progress) bool { return p.Applied == int64(in.next) })
		}
		in.ok(stop())
		in.check(in.next)
	}
	in.client = client("scram-sha-512", "not-the-secret")
	ended, _ := in.start()
	if err := in.failed(ended); !errors.Is(err, kafka.ErrAuth) || strings.Contains(err.Error(), "not-the-secret") {
		t.Errorf("Got %v of a wrong password, want ErrAuth without it", err)
	}
	in.client = plain
	in.check(in.next)
}

// A byte of a broker's disk is another one: the batch that has it pauses its partition, and
// the command that the message names goes on behind it. Everything else is counted once.
func TestKafkaCorruptBatch(t *testing.T) {
	in := newKafkaIngest(t, 1)
	in.produce(100)
	ended, stop := in.start()
	in.await(ended, "the first records", func(p store.Progress) bool { return p.Applied == 100 })
	in.ok(stop())
	plain := in.client.NewProducer(&kafka.ProducerOptions{Compression: kafka.None, DeliveryTimeout: kafkaPatience})
	for range 3 {
		batch := make([]kafka.Message, 10)
		for i := range batch {
			batch[i].Value = fmt.Appendf(nil, `{"seq":%d,"outcome":"commit"}`, in.next+i)
		}
		in.next += len(batch)
		in.ok(plain.Produce(t.Context(), "events", batch...))
	}
	in.ok(plain.Close())
	in.run(t, "stop", in.dir)
	file := filepath.Join(in.dir, "node-1", "data", "events-0", "00000000000000000000.log")
	log, err := os.ReadFile(file)
	in.ok(err)
	at := bytes.Index(log, []byte(`{"seq":115,`))
	if at < 0 {
		t.Fatalf("Got no record 115 in the %d bytes of %s", len(log), file)
	}
	log[at+7] ^= 1
	in.ok(os.WriteFile(file, log, 0o600))
	in.run(t, "start", in.dir)

	p, ended, stop := in.startPipeline()
	paused := ""
	in.await(ended, "a pause", func(store.Progress) bool {
		for _, s := range p.Status().Partitions {
			paused = s.Paused
		}
		return strings.Contains(paused, "ingest offsets skip")
	})
	if want := "--from 110 --to 120 --reason corrupt"; !strings.Contains(paused, want) || in.totals().Next != 110 {
		t.Fatalf("Got %+v and pause %q, want it at 110 with %q", in.totals(), paused, want)
	}
	_, err = pipeline.SkipOffsets(t.Context(), &pipeline.SkipOptions{
		Engine: in.db, Client: in.client, Pipeline: "events", Topic: "events", From: 110, To: 120, Reason: store.SkippedCorrupt,
	})
	in.ok(err)
	in.await(ended, "the rest", func(p store.Progress) bool { return p.Applied == 120 && p.Lost == 10 && p.Next == 130 })
	in.ok(stop())
	in.check(120)
}

// Topics that were begun before Kafka 0.11 have messages of formats 0 and 1, which brokers
// keep as they are: the logs of an old broker are put in the place of empty ones.
func TestKafkaOldMessageFormats(t *testing.T) {
	in := newKafkaIngest(t, 2)
	var err error
	in.plan, err = mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "json"},
		EventTime: mapping.EventTimeSpec{Field: "seq", Format: "unix_ms"}, // format 0 has no timestamps
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: "u64(seq)", Put: map[string]map[string]string{"e": {"outcome": "outcome"}}},
			{Table: "counts", Row: "outcome", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
		},
	}, nil)
	in.ok(err)
	in.run(t, "stop", in.dir)
	for p := range in.parts {
		log, err := os.ReadFile(filepath.Join("..", "..", "pipeline", "kafka", "testdata", fmt.Sprintf("messages.v%d.log", p)))
		in.ok(err)
		in.ok(os.WriteFile(filepath.Join(in.dir, "node-1", "data", fmt.Sprintf("events-%d", p), "00000000000000000000.log"), log, 0o600))
	}
	in.run(t, "start", in.dir)
	const each = 100 // records in a log, with the same seqs in both
	next := func(n int64) func(store.Progress) bool {
		return func(p store.Progress) bool { return p.Applied == n }
	}
	ended, stop := in.start()
	in.await(ended, "the old records", next(2*each))
	in.ok(stop())
	in.next = each
	in.produce(20)
	ended, stop = in.start() // compares the last record with the log
	in.await(ended, "a record batch behind them", next(2*each+20))
	in.ok(stop())
	rows, counts := in.served()
	if len(rows) != each+20 || counts["commit"] != 2*each+20 {
		t.Errorf("Got %d rows and counts %v, want %d and %d", len(rows), counts, each+20, 2*each+20)
	}
	audits, err := pipeline.RunAudit(t.Context(), &pipeline.AuditOptions{Store: in.db, Client: in.client, Deep: true})
	in.ok(err)
	for _, a := range audits {
		if len(a.Problems) > 0 {
			t.Errorf("audit of partition %d: %q", a.Partition, a.Problems)
		}
	}
}

// oldestKafka is the oldest version that the tool starts. Older ones were run by hand: see
// docs/operations.md, Kafka versions.
const oldestKafka = "3.5.2"

// An old Kafka: compressed transactions, a restart, and a topic that is made anew.
func TestKafkaOldestVersion(t *testing.T) {
	t.Setenv("KAFKA_VERSION", oldestKafka)
	if out, err := exec.Command(realTool(t, "kafka"), "install").CombinedOutput(); err != nil {
		t.Skipf("Kafka %s cannot be installed: %v\n%s", oldestKafka, err, out)
	}
	in := newKafkaIngest(t, 2)
	out := in.run(t, "txn-producer", in.dir, "--topic", "events", "--records", "800", "--txn-size", "50", "--abort-ratio", "0.4", "--codec", "zstd")
	_, lines, _ := strings.Cut(out, "partition\tcommitted\taborted\topen\tlast\n")
	want := 0
	for line := range strings.Lines(lines) {
		n, err := strconv.Atoi(strings.Fields(line)[1])
		in.ok(err)
		want += n
	}
	if want == 0 || want == 800 {
		t.Fatalf("Got %d of 800 records committed, want some aborted", want)
	}
	ended, stop := in.start()
	in.await(ended, "what was committed", func(p store.Progress) bool { return p.Applied == int64(want) })
	in.run(t, "kill", in.dir)
	in.again(t)
	in.next = 2000
	in.produce(30)
	in.await(ended, "what came after a restart", func(p store.Progress) bool { return p.Applied == int64(want+30) })
	in.ok(stop())
	in.check(want + 30)

	in.run(t, "kafka.admin.TopicCommand", in.dir, "--delete", "--topic", "events") // where it was before 3.6
	in.ok(in.client.CreateTopic(t.Context(), "events", 2))
	in.produce(2000)
	ended, _ = in.start()
	if err := in.failed(ended); !errors.Is(err, pipeline.ErrTopicChanged) {
		t.Errorf("Got %v of a topic that was made anew, want ErrTopicChanged", err)
	}
	if p := in.totals(); p.Applied != int64(want+30) {
		t.Errorf("Got %+v after a topic was made anew, want %d applied", p, want+30)
	}
}
