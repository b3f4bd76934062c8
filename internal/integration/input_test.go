package integration

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"

	"sluice/config"
	"sluice/examples"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/memory"
	"sluice/store"
	"sluice/store/pebblestore"
)

// Real input, as one partition and as eight, by each codec, as it comes and as a
// backlog: the counts are those of an independent reader, and the audit equation
// holds.
func TestRealInput(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]*input{"access log": accessLogInput(t), "github events": githubInput(t)} {
		if in == nil {
			continue
		}
		for codec, compression := range map[string]kafka.Compression{
			"none": kafka.None, "gzip": kafka.Gzip, "snappy": kafka.Snappy, "lz4": kafka.LZ4, "zstd": kafka.Zstd,
		} {
			for _, partitions := range []int{1, 8} {
				if testing.Short() && (codec != "zstd" || partitions != 8) {
					continue // pipeline/kafka decodes the others in short runs
				}
				t.Run(fmt.Sprintf("%s/%s/%d", name, codec, partitions), func(t *testing.T) {
					t.Parallel()
					in.run(t, compression, partitions)
				})
			}
		}
	}
}

// input is a log of records, rules for it, and a check of what they must make.
type input struct {
	topic, pipeline string
	config          []byte
	lines           [][]byte
	check           func(*testing.T, store.Reader)
}

func (in *input) run(t *testing.T, codec kafka.Compression, partitions int) {
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{in.topic: partitions}})
	if err != nil {
		t.Fatal(err)
	}
	defer broker.Close()
	c, err := config.Parse(in.topic+".yaml", in.config, func(name string) (string, bool) { return broker.Addr(), name == "SLUICE_BROKERS" })
	if err != nil {
		t.Fatal(err)
	}
	ko, err := c.KafkaOptions()
	if err != nil {
		t.Fatal(err)
	}
	client, err := kafka.NewClient(ko)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	ends := map[int32]int64{}
	var messages []kafka.Message
	for i, line := range in.lines {
		p := int32(i % partitions)
		messages = append(messages, kafka.Message{Partition: p, Value: line})
		ends[p]++
	}
	out := client.NewProducer(&kafka.ProducerOptions{Compression: codec})
	if err := errors.Join(out.Produce(t.Context(), in.topic, messages...), out.Close()); err != nil {
		t.Fatal(err)
	}

	so := c.PebbleOptions(nil)
	so.FS, so.CacheBytes, so.MinBulkKeys = vfs.NewMem(), 1<<20, 20
	db, err := pebblestore.Open("db", so)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := c.EnsureTables(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	o, err := c.PipelineOptions(in.pipeline)
	if err != nil {
		t.Fatal(err)
	}
	bound, err := memory.New(32 << 20)
	if err != nil {
		t.Fatal(err)
	}
	o.Client, o.Engine, o.StoreID, o.Memory, o.DeadLetterTopic = client, db, db.ID(), bound, ""
	o.Flush.MaxRecords = 40
	o.Backfill = pipeline.Backfill{Lag: 50, MaxRecords: 400} // and from there on as it comes
	p, err := pipeline.New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- p.Run(running) }()
	err = p.WaitStored(ctx, map[string]map[int32]int64{in.topic: ends})
	end()
	if err := errors.Join(err, <-ended); err != nil {
		t.Fatal(err)
	}
	all, err := store.AllProgress(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != partitions {
		t.Errorf("Got the progress of %d partitions, want %d", len(all), partitions)
	}
	for i := range all {
		if g := &all[i].Progress; !g.Balanced() || g.First != 0 || g.Next != ends[all[i].Partition] {
			t.Errorf("Got progress %+v of partition %d, want %d records in balance", *g, all[i].Partition, ends[all[i].Partition])
		}
	}
	if m := db.Metrics(); m.BulkCommits == 0 {
		t.Errorf("Got no bulk commit among %d", m.Commits)
	}
	in.check(t, db)
}

func accessLogInput(t *testing.T) *input {
	log := SharedLog(t)
	return &input{topic: "access-log", pipeline: "access-log", config: examples.AccessLog, lines: log.Lines, check: func(t *testing.T, r store.Reader) {
		if err := log.Check(t.Context(), r); err != nil {
			t.Error(err)
		}
	}}
}

const githubConfig = `
kafka: {brokers: ["${SLUICE_BROKERS}"]}
tables:
  github_events: {families: {e: {VERSIONS: 1}}}
  repositories: {families: {type: {COUNTER: true}}}
pipelines:
  github:
    topics: [github]
    group: sluice-github
    decode: {format: json}
    event_time: {field: created_at, format: rfc3339}
    map:
      - table: github_events
        row: id
        put: {e: {type: type, actor: actor.login, repository: repo.name}}
      - table: repositories
        row: repo.name
        increment: [{family: type, qualifier: type}]
`

// githubInput returns nil where the shared file is absent.
func githubInput(t *testing.T) *input {
	name := filepath.Join(ModuleRoot(t), "..", "shared", "data", "github_events_2021-07-21.ndjson")
	data, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		t.Logf("%s is absent: GitHub's events are left out", name)
		return nil
	} else if err != nil {
		t.Fatal(err)
	}
	in := &input{topic: "github", pipeline: "github", config: []byte(githubConfig), lines: bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n"))}
	type event struct {
		ID, Type string
		Actor    struct{ Login string }
		Repo     struct{ Name string }
	}
	rows, counts := map[string]string{}, map[string]int64{}
	for i, line := range in.lines {
		var e event
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatalf("%s:%d: %v", name, i+1, err)
		}
		rows[e.ID] = e.Actor.Login + " " + e.Repo.Name + " " + e.Type
		counts[e.Repo.Name+" "+e.Type]++
	}
	in.check = func(t *testing.T, r store.Reader) {
		got, sums := map[string]string{}, map[string]int64{}
		sc := r.Scan(t.Context(), &store.Scan{Table: "github_events"})
		for sc.Next() {
			var values [][]byte // by qualifier
			for _, c := range sc.Row().Cells {
				values = append(values, c.Value)
			}
			got[string(sc.Row().Key)] = string(bytes.Join(values, []byte(" ")))
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			t.Fatal(err)
		}
		sc = r.Scan(t.Context(), &store.Scan{Table: "repositories"})
		for sc.Next() {
			for _, c := range sc.Row().Cells {
				sums[string(sc.Row().Key)+" "+string(c.Qualifier)] = int64(binary.BigEndian.Uint64(c.Value))
			}
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(rows, got); d != "" {
			t.Errorf("rows (-want +got):\n%s", d)
		}
		if d := cmp.Diff(counts, sums); d != "" {
			t.Errorf("counters (-want +got):\n%s", d)
		}
	}
	return in
}
