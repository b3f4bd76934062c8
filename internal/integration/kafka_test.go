//go:build integration

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/pebblestore"
)

// kafkaPatience bounds every wait for something that a real Kafka does.
const kafkaPatience = 3 * time.Minute

// kafkaIngest is a real Kafka of one test and a pipeline of its topic events into the
// embedded engine. A record is {"seq":1,"outcome":"commit"}, as the Java producer of the
// shared tool writes it: it puts a row by its seq, and counts its outcome.
type kafkaIngest struct {
	*realKafka
	t      *testing.T
	client *kafka.Client
	db     *pebblestore.DB
	plan   *mapping.Plan
	parts  []int32
	next   int // seq of the next record of produce
}

func newKafkaIngest(t *testing.T, partitions int, flags ...string) *kafkaIngest {
	t.Helper()
	in := &kafkaIngest{t: t, realKafka: startKafka(t, flags...)}
	in.parts = slices.Collect(func(yield func(int32) bool) {
		for p := range int32(partitions) {
			if !yield(p) {
				return
			}
		}
	})
	var err error
	in.client, err = kafka.NewClient(&kafka.Options{Brokers: strings.Split(in.brokers, ","), RequestTimeout: time.Minute})
	in.ok(err)
	t.Cleanup(func() { in.client.Close() })
	in.ok(in.client.CreateTopic(t.Context(), "events", partitions))
	in.db, err = pebblestore.Open("db", &pebblestore.Options{FS: vfs.NewMem(), CacheBytes: 1 << 20})
	in.ok(err)
	t.Cleanup(func() { in.db.Close() })
	counts, events := store.NewFamily("c"), store.NewFamily("e")
	counts.Counter = true
	for name, f := range map[string]store.FamilyDescriptor{"counts": counts, "events": events} {
		in.ok(in.db.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{f}}, nil))
	}
	in.plan, err = mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: "u64(seq)", Put: map[string]map[string]string{"e": {"outcome": "outcome"}}},
			{Table: "counts", Row: "outcome", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
		},
	}, nil)
	in.ok(err)
	return in
}

func (in *kafkaIngest) ok(err error) {
	in.t.Helper()
	if err != nil {
		in.t.Fatal(err)
	}
}

// start runs a pipeline. ended gives the error that it stops with by itself; stop ends it
// and returns its error.
func (in *kafkaIngest) start(change ...func(*pipeline.Options)) (ended <-chan error, stop func() error) {
	in.t.Helper()
	_, ended, stop = in.startPipeline(change...)
	return ended, stop
}

// startPipeline is start, with the pipeline.
func (in *kafkaIngest) startPipeline(change ...func(*pipeline.Options)) (p *pipeline.Pipeline, ended <-chan error, stop func() error) {
	in.t.Helper()
	o := &pipeline.Options{
		Name: "events", Topics: []string{"events"}, Client: in.client, Plan: in.plan, Engine: in.db, StoreID: in.db.ID(),
		SessionTimeout: 6 * time.Second, Heartbeat: 500 * time.Millisecond, Fetch: &kafka.FetchOptions{MaxWait: 100 * time.Millisecond},
		Flush: pipeline.Flush{MaxRecords: 50},
	}
	for _, f := range change {
		f(o)
	}
	p, err := pipeline.New(o)
	in.ok(err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 2) // for failed, and for stop
	go func() {
		err := p.Run(ctx)
		done <- err
		done <- err
	}()
	stop = sync.OnceValue(func() error {
		cancel()
		select {
		case err := <-done:
			return err
		case <-time.After(kafkaPatience):
			return errors.New("the pipeline does not end")
		}
	})
	in.t.Cleanup(func() { _ = stop() }) // an error of a test that has failed anyway
	return p, done, stop
}

// produce writes n records by our own producer, to partition 0.
func (in *kafkaIngest) produce(n int) {
	in.t.Helper()
	messages := make([]kafka.Message, n)
	for i := range messages {
		messages[i].Value = fmt.Appendf(nil, `{"seq":%d,"outcome":"commit"}`, in.next+i)
	}
	in.next += n
	p := in.client.NewProducer(&kafka.ProducerOptions{DeliveryTimeout: kafkaPatience})
	in.ok(errors.Join(p.Produce(in.t.Context(), "events", messages...), p.Close()))
}

// totals adds up what the store says of all partitions, each of which must balance.
func (in *kafkaIngest) totals() (all store.Progress) {
	in.t.Helper()
	parts, err := store.AllProgress(in.t.Context(), in.db)
	in.ok(err)
	for i := range parts {
		p := &parts[i].Progress
		if !p.Balanced() {
			in.t.Errorf("progress %+v of partition %d is out of balance", *p, parts[i].Partition)
		}
		all.Applied, all.Lost, all.Control, all.Next = all.Applied+p.Applied, all.Lost+p.Lost, all.Control+p.Control, all.Next+p.Next
		all.Dead, all.Dropped, all.Filtered = all.Dead+p.Dead, all.Dropped+p.Dropped, all.Filtered+p.Filtered
	}
	return all
}

// await waits for a condition on the totals, unless the pipeline stops before.
func (in *kafkaIngest) await(ended <-chan error, what string, ok func(store.Progress) bool) {
	in.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(kafkaPatience)
	for !ok(in.totals()) {
		select {
		case <-tick.C:
		case err := <-ended:
			in.t.Fatalf("the pipeline stops before %s: %v", what, err)
		case <-deadline:
			in.t.Fatalf("Got %+v after %v, not %s", in.totals(), kafkaPatience, what)
		}
	}
}

// failed waits for the error that the pipeline stops with.
func (in *kafkaIngest) failed(ended <-chan error) error {
	in.t.Helper()
	select {
	case err := <-ended:
		return err
	case <-time.After(kafkaPatience):
		in.t.Fatalf("the pipeline goes on: %+v", in.totals())
		return nil
	}
}

// served returns the rows of events, by seq, and the counts, by outcome.
func (in *kafkaIngest) served() (rows []int, counts map[string]int) {
	in.t.Helper()
	counts = map[string]int{}
	number := func(b []byte) (n int) {
		for _, c := range b {
			n = n<<8 | int(c)
		}
		return n
	}
	for _, table := range []string{"events", "counts"} {
		sc := in.db.Scan(in.t.Context(), &store.Scan{Table: table})
		for sc.Next() {
			if table == "events" {
				rows = append(rows, number(sc.Row().Key))
				continue
			}
			counts[string(sc.Row().Key)] = number(sc.Row().Cells[0].Value)
		}
		in.ok(errors.Join(sc.Err(), sc.Close()))
	}
	return rows, counts
}

// check compares what is served with n records that were committed, each once, and lets
// the audit read the topic again.
func (in *kafkaIngest) check(n int) {
	in.t.Helper()
	rows, counts := in.served()
	if len(rows) != n || !maps.Equal(counts, map[string]int{"commit": n}) {
		in.t.Errorf("Got %d rows and counts %v, want %d committed", len(rows), counts, n)
	}
	audits, err := pipeline.RunAudit(in.t.Context(), &pipeline.AuditOptions{Store: in.db, Client: in.client, Deep: true})
	in.ok(err)
	for _, a := range audits {
		if len(a.Problems) > 0 {
			in.t.Errorf("audit of partition %d: %q", a.Partition, a.Problems)
		}
	}
}

// Java's producer, idempotent and in transactions, with every codec, while the pipeline
// runs: what was committed is applied once, what was aborted is not, and a transaction
// that its producer left open holds the partition only until Kafka aborts it.
func TestKafkaJavaProducer(t *testing.T) {
	in := newKafkaIngest(t, 3, "--conf", "transaction.abort.timed.out.transaction.cleanup.interval.ms=500")
	config := filepath.Join(t.TempDir(), "producer.properties")
	in.ok(os.WriteFile(config, []byte("transaction.timeout.ms=10000\n"), 0o600))
	ended, stop := in.start()
	want := map[string]int{}
	produce := func(start int, args ...string) {
		t.Helper()
		out := in.run(t, append([]string{"txn-producer", in.dir, "--topic", "events", "--start", strconv.Itoa(start), "--seed", strconv.Itoa(start)}, args...)...)
		_, lines, ok := strings.Cut(out, "partition\tcommitted\taborted\topen\tlast\n")
		if !ok {
			t.Fatalf("txn-producer says\n%s", out)
		}
		for line := range strings.Lines(lines) {
			f := strings.Fields(line)
			for i, outcome := range []string{"commit", "abort", "open"} {
				n, err := strconv.Atoi(f[i+1])
				in.ok(err)
				want[outcome] += n
			}
		}
	}
	// Each is a Java of its own: transactions are idempotent, too.
	for i, codec := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		produce(i*10_000, "--records", "600", "--txn-size", "50", "--abort-ratio", "0.4", "--codec", codec, "--txn-id", "txn-"+codec)
	}
	produce(50_000, "--records", "500", "--codec", "gzip", "--txn-id", "")
	// It must send its few records within the timeout.
	produce(90_000, "--records", "20", "--txn-size", "20", "--codec", "zstd", "--txn-id", "txn-open", "--config", config, "--open", "true")
	if want["abort"] == 0 || want["open"] == 0 {
		t.Fatalf("Got outcomes %v, want some of each", want)
	}
	in.await(ended, "all that was committed", func(p store.Progress) bool { return p.Applied >= int64(want["commit"]) })
	// The markers of the aborted transaction come after the last of its records.
	in.await(ended, "the end of the log", func(p store.Progress) bool {
		ends, err := in.client.LogEnds(t.Context(), "events", in.parts)
		in.ok(err)
		all := int64(0)
		for _, end := range ends {
			all += end
		}
		return p.Next == all
	})
	in.ok(stop())
	in.check(want["commit"])
	if p := in.totals(); p.Control <= int64(want["abort"]+want["open"]) {
		t.Errorf("Got %d offsets without a record, want the %d aborted records and the markers", p.Control, want["abort"]+want["open"])
	}
}

// I2: a topic that is deleted and created again under its name is another one. The
// pipeline that runs stops, one that is started says what it has found and what can be
// done, and with new_incarnation what the new topic has comes on top of the old one's.
func TestKafkaTopicMadeAnew(t *testing.T) {
	in := newKafkaIngest(t, 1)
	in.produce(200)
	ended, _ := in.start()
	in.await(ended, "the old topic's records", func(p store.Progress) bool { return p.Applied == 200 })
	in.run(t, "topics", in.dir, "--delete", "--topic", "events")
	in.ok(in.client.CreateTopic(t.Context(), "events", 1))
	if err := in.failed(ended); !errors.Is(err, pipeline.ErrTopicChanged) && !errors.Is(err, kafka.ErrTopicChanged) && !errors.Is(err, kafka.ErrTopicNotFound) {
		t.Errorf("Got %v from the pipeline that ran, want ErrTopicChanged or ErrTopicNotFound", err)
	}
	in.produce(300) // more than there was, so that the stored offset is within the new log
	ended, _ = in.start()
	err := in.failed(ended)
	if !errors.Is(err, pipeline.ErrTopicChanged) || !strings.Contains(err.Error(), "events") || !strings.Contains(err.Error(), "new_incarnation") {
		t.Errorf("Got %v, want ErrTopicChanged, the topic, and what can be done", err)
	}
	in.check(200)
	ended, stop := in.start(func(o *pipeline.Options) { o.OnTopicChange = pipeline.NewIncarnation })
	in.await(ended, "the new topic's records", func(p store.Progress) bool { return p.Applied == 500 })
	in.ok(stop())
	// The same once more: it is the one that is stored now.
	in.produce(10)
	ended, stop = in.start()
	in.await(ended, "what came last", func(p store.Progress) bool { return p.Applied == 510 })
	in.ok(stop())
	if rows, counts := in.served(); len(rows) != 510 || counts["commit"] != 510 {
		t.Errorf("Got %d rows and counts %v, want 510", len(rows), counts)
	}
	all, err := store.AllProgress(t.Context(), in.db)
	in.ok(err)
	var applied []int64
	for i := range all {
		applied = append(applied, all[i].Progress.Applied)
	}
	slices.Sort(applied)
	if d := cmp.Diff([]int64{200, 310}, applied); d != "" {
		t.Errorf("applied by topic (-want +got):\n%s", d)
	}
}

// Records that are deleted from the head before they were applied: the pipeline stops and
// names them, or goes on behind them and counts them as lost, once.
func TestKafkaHeadDeleted(t *testing.T) {
	in := newKafkaIngest(t, 1)
	in.produce(100)
	ended, stop := in.start()
	in.await(ended, "the first records", func(p store.Progress) bool { return p.Applied == 100 })
	in.ok(stop())
	in.produce(200)
	file := filepath.Join(t.TempDir(), "delete.json")
	offsets, err := json.Marshal(map[string]any{"version": 1, "partitions": []any{map[string]any{"topic": "events", "partition": 0, "offset": 220}}})
	in.ok(err)
	in.ok(os.WriteFile(file, offsets, 0o600))
	in.run(t, "delete-records", in.dir, "--offset-json-file", file)

	ended, _ = in.start()
	var loss *pipeline.DataLossError
	if err := in.failed(ended); !errors.As(err, &loss) || !strings.Contains(err.Error(), "100") || !strings.Contains(err.Error(), "220") || !strings.Contains(err.Error(), "skip") {
		t.Errorf("Got %v, want a DataLossError of [100, 220) that says what can be done", err)
	}
	if p := in.totals(); p.Applied != 100 || p.Next != 100 || p.Lost != 0 {
		t.Errorf("Got %+v, want what there was before", p)
	}
	for range 2 { // the second time there is nothing that is lost
		ended, stop = in.start(func(o *pipeline.Options) { o.OnDataLoss = pipeline.SkipLostData })
		in.await(ended, "the rest", func(p store.Progress) bool { return p.Applied == int64(in.next)-120 })
		in.ok(stop())
		if p := in.totals(); p.Lost != 120 || p.Next != int64(in.next) {
			t.Errorf("Got %+v, want 120 lost and %d next", p, in.next)
		}
		in.check(in.next - 120)
		in.produce(30)
	}
	if rows, _ := in.served(); rows[99] != 99 || rows[100] != 220 {
		t.Errorf("Got the rows %d and %d around the lost ones, want 99 and 220", rows[99], rows[100])
	}
}

// Three brokers, of which one is killed while records come and go: the partitions that
// it led, and the group if it coordinated that, move; each record that is in the log is
// counted once.
func TestKafkaBrokersKilled(t *testing.T) {
	in := newKafkaIngest(t, 6, "--nodes", "3")
	out, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(in.brokers, ",")...), kgo.DefaultProduceTopic("events"),
		kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))
	in.ok(err)
	defer out.Close()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sent := make(chan int, 1)
	failed := make(chan error, 1)
	go func() {
		n := 0
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			var records []*kgo.Record
			for range 12 {
				records = append(records, &kgo.Record{Value: fmt.Appendf(nil, `{"seq":%d,"outcome":"commit"}`, n)})
				n++
			}
			bounded, end := context.WithTimeout(context.WithoutCancel(ctx), kafkaPatience)
			err := out.ProduceSync(bounded, records...).FirstErr()
			end()
			if err != nil {
				failed <- err
				return
			}
			select {
			case <-ctx.Done():
				sent <- n
				return
			case <-tick.C:
			}
		}
	}()
	ended, stop := in.start()
	more := func() {
		t.Helper()
		before := in.totals().Applied
		in.await(ended, "some hundred records", func(p store.Progress) bool { return p.Applied >= before+300 })
	}
	more()
	in.run(t, "kill", in.dir, strconv.Itoa(1+time.Now().Nanosecond()%3))
	more()
	in.run(t, "start", in.dir)
	more()
	cancel()
	select {
	case n := <-sent:
		in.await(ended, "all records", func(p store.Progress) bool { return p.Applied >= int64(n) })
		in.ok(stop())
		in.check(n)
	case err := <-failed:
		t.Fatal(err)
	case <-time.After(kafkaPatience):
		t.Fatal("the producer does not end")
	}
}
