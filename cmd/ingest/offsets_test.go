package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sluice/cmd/internal/cli"
	"sluice/config"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// visitsConfig is dlqConfig with the rows that it is for, where old is replaced by new, and
// the file that has it.
func visitsConfig(t *testing.T, broker, old, new string) (file string, cfg *config.Config) {
	t.Helper()
	dir := t.TempDir()
	file = filepath.Join(dir, "sluice.yaml")
	text := strings.Replace(fmt.Sprintf(dlqConfig, filepath.Join(dir, "data"), broker, "user"), old, new, 1)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	cfg, err := config.Load(file, os.LookupEnv)
	if err != nil {
		t.Fatal(err)
	}
	return file, cfg
}

// The offsets are those of the partitions that a pipeline reads. Where nothing is stored of
// a topic, but of another one of its name, that is said: the topic was created anew.
func TestOffsetsOfFormerTopic(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 3, "visits.dead": 1})
	file, cfg := visitsConfig(t, broker.Addr(), "group: visits", "group: visits\n    assign: static\n    partitions: [0, 2]")
	e, err := config.OpenEngine(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Advance(store.Source{Pipeline: "visits", Topic: "visits", TopicID: [16]byte{0xab}}, 2, store.Absent, store.Progress{Next: 7, Applied: 7})
	if err := errors.Join(e.Apply(t.Context(), &b), e.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "offsets", "-c", file)
	if err != nil || !strings.Contains(out, "visits visits/2: offset 7 is stored of a topic of this name with id ab000000000000000000000000000000; the one that is there has id ") || strings.Count(out, "offset 7") != 1 {
		t.Errorf("%v\n%s", err, out)
	}
	out, err = command(t, "offsets", "-c", file, "--json")
	var lines []offsetLine
	if err := errors.Join(err, json.Unmarshal([]byte(out), &lines)); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(lines) != 2 || lines[0].Partition != 0 || lines[1].Partition != 2 || len(lines[0].Former) != 0 || len(lines[1].Former) != 1 || lines[1].Stored != -1 || len(lines[1].TopicID) != 32 {
		t.Errorf("%+v", lines)
	}
	// A pipeline that the file has may have stored nothing yet; a name with a mistake in it
	// is not audited as nothing.
	out, err = command(t, "offsets", "verify", "-c", file, "--offline", "--pipeline", "visits", "--pipeline", "visit")
	if !errors.Is(err, cli.ErrUsage) || !strings.Contains(err.Error(), `"visit"`) || strings.Contains(out, "ok") {
		t.Errorf("verify of a pipeline that there is not: %v\n%s", err, out)
	}
	for _, args := range [][]string{{"test"}, {"explain"}, {"replay", "rebuild"}} {
		if out, err := command(t, append(args, "-c", file, "visit")...); cli.Status(err) != cli.StatusUsage || !strings.Contains(err.Error(), `"visit"`) {
			t.Errorf("%v of a pipeline that there is not: %v\n%s", args, err, out)
		}
	}
	for _, args := range [][]string{{"offsets", "verify", "-c", file, "--offline", "--json"}, {"dlq", "ls", "-c", file, "--json"}} {
		if out, err := command(t, args...); err != nil || !json.Valid([]byte(out)) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// Where Kafka does not tell which of two topics has the name, each partition is listed once.
func TestOffsetsWithoutTheTopic(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"other": 1})
	file, cfg := visitsConfig(t, broker.Addr(), "", "")
	e, err := config.OpenEngine(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	for _, id := range []byte{1, 2, 3} {
		for n := range int32(2) {
			next := int64(id)*10 + int64(n)
			last := map[byte]int64{1: 5, 2: 9, 3: 7}[id] - int64(n)
			b.Advance(store.Source{Pipeline: "visits", Topic: "visits", TopicID: [16]byte{id}}, n, store.Absent, store.Progress{Next: next, Applied: next, LastTime: last})
		}
	}
	if err := errors.Join(e.Apply(t.Context(), &b), e.Close()); err != nil {
		t.Fatal(err)
	}
	out, err := command(t, "offsets", "-c", file, "--json")
	var lines []offsetLine
	if jerr := json.Unmarshal([]byte(out), &lines); jerr != nil || !errors.Is(err, kafka.ErrTopicNotFound) {
		t.Fatalf("%v, %v\n%s", err, jerr, out)
	}
	if len(lines) != 2 || lines[0].Stored != 20 || lines[1].Stored != 21 {
		t.Errorf("Got %+v, want the two partitions of the topic that was applied last", lines)
	}
}

// Records that retention took before they were applied are said: they are no lag any more.
// Where nothing is known, the error stands alone.
func TestOffsetsGoneBeforeTheyWereApplied(t *testing.T) {
	t.Parallel()
	broker := startBroker(t, map[string]int{"visits": 1})
	file, cfg := visitsConfig(t, broker.Addr(), "", "")
	client, err := openKafka(cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	messages := make([]kafka.Message, 9)
	for i := range messages {
		messages[i].Value = []byte("{}")
	}
	if err := client.NewProducer(&kafka.ProducerOptions{BatchBytes: 1}).Produce(t.Context(), "visits", messages...); err != nil {
		t.Fatal(err)
	}
	topic, err := client.Topic(t.Context(), "visits")
	if err != nil {
		t.Fatal(err)
	}
	e, err := config.OpenEngine(t.Context(), cfg, nil)
	if err != nil {
		t.Fatal(err)
	}
	var b store.Batch
	b.Advance(store.Source{Pipeline: "visits", Topic: "visits", TopicID: topic.ID, ClusterID: topic.ClusterID}, 0, store.Absent, store.Progress{Next: 3, Filtered: 3})
	if err := errors.Join(e.Apply(t.Context(), &b), e.Close()); err != nil {
		t.Fatal(err)
	}
	const gone = "visits visits/0: offsets 3 to 4 (2 records or fewer) are gone from Kafka before they were applied\n"
	if out, err := command(t, "offsets", "-c", file); err != nil || strings.Contains(out, "gone") {
		t.Errorf("while all are there: %v\n%s", err, out)
	}
	if err := broker.Cluster().DeleteRecords("visits", 0, 5); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "offsets", "-c", file); err != nil || !strings.HasSuffix(out, gone) {
		t.Errorf("%v\n%s", err, out)
	}
	out, err := command(t, "offsets", "-c", file, "--json")
	var lines []offsetLine
	if err := errors.Join(err, json.Unmarshal([]byte(out), &lines)); err != nil || len(lines) != 1 || lines[0].Gone != 2 || lines[0].Lag != 4 {
		t.Errorf("%v\n%s", err, out)
	}
	if out, err := command(t, "offsets", "verify", "-c", file); err != nil || !strings.Contains(out, "note: visits visits/0: offsets 3 to 4 (2 records or fewer) are gone from Kafka before they were applied\n") {
		t.Errorf("%v\n%s", err, out)
	}
	other := filepath.Join(filepath.Dir(file), "other.yaml")
	if err := os.WriteFile(other, fmt.Appendf(nil, strings.ReplaceAll(dlqConfig, "topics: [visits]", "topics: [visitors]"), filepath.Join(filepath.Dir(file), "data"), broker.Addr(), "user"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := command(t, "offsets", "-c", other); !errors.Is(err, kafka.ErrTopicNotFound) || out != "" {
		t.Errorf("of a topic that there is not: %v\n%s", err, out)
	}
}
