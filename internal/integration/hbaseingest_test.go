//go:build integration

package integration

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
)

// realKafka is a broker of the shared tool, of one test, that may be killed.
type realKafka struct {
	tool, dir, brokers string
	flags              []string // of the tool's start
}

// startKafka starts one, with more flags of the tool; it ends with the test.
func startKafka(t *testing.T, flags ...string) *realKafka {
	t.Helper()
	k := &realKafka{tool: realTool(t, "kafka"), flags: append([]string{"--conf", "group.min.session.timeout.ms=500"}, flags...)}
	var err error
	if k.dir, err = os.MkdirTemp(os.Getenv(serversDir), "kafka-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if out, err := exec.Command(k.tool, "stop", k.dir).CombinedOutput(); err != nil {
			t.Errorf("stop Kafka: %v\n%s", err, out)
		}
		if err := os.RemoveAll(k.dir); err != nil {
			t.Error(err)
		}
	})
	k.run(t, append([]string{"start", k.dir}, k.flags...)...)
	brokers, err := os.ReadFile(filepath.Join(k.dir, "bootstrap"))
	if err != nil {
		t.Fatal(err)
	}
	k.brokers = strings.TrimSpace(string(brokers))
	return k
}

// again starts the broker after it was killed, at its address. The port may be taken for a
// moment, by the process that is being killed; then the tool would take another, were it not
// told which, and nobody would find the broker.
func (k *realKafka) again(t *testing.T) {
	t.Helper()
	_, port, err := net.SplitHostPort(k.brokers)
	if err != nil {
		t.Fatal(err)
	}
	k.run(t, slices.Concat([]string{"start", k.dir, "--port", port}, k.flags)...)
}

// run runs the tool and returns what it says. A start that is given up on a busy machine
// is tried again.
func (k *realKafka) run(t *testing.T, args ...string) string {
	t.Helper()
	for left := 5; ; left-- {
		out, err := exec.Command(k.tool, args...).CombinedOutput()
		if err == nil {
			return string(out)
		}
		if args[0] != "start" || left == 0 {
			t.Fatalf("kafka %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		<-time.After(time.Second)
	}
}

// hbaseIngest is a stream of the access log's lines through Kafka, some daemons in one
// group and a real HBase.
type hbaseIngest struct {
	t        *testing.T
	hbase    *hbaseServer
	kafka    *realKafka
	topic    string
	config   string // the name of the configuration
	embedded string // the same for the embedded engine
	env      []string
	rng      *rand.Rand
	daemons  []*Daemon
}

// shutdownTimeout is that of the daemons.
const shutdownTimeout = 8 * time.Second

// newHBaseIngest makes topics, the configuration, and an HBase that has nothing, for
// three daemons beside a real Kafka.
func newHBaseIngest(t *testing.T) *hbaseIngest {
	t.Helper()
	return newHBaseIngestOn(t, startHBase(t), startKafka(t), 3)
}

// embeddedKafka starts a broker in the process, for tests that are about HBase. It ends
// with the test.
func embeddedKafka(t *testing.T) *realKafka {
	t.Helper()
	b, err := embedded.Start(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return &realKafka{brokers: b.Addr()}
}

// newHBaseIngestOn is newHBaseIngest on servers that run, for so many daemons.
func newHBaseIngestOn(t *testing.T, h *hbaseServer, k *realKafka, daemons int) *hbaseIngest {
	t.Helper()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	in := &hbaseIngest{t: t, hbase: h, kafka: k, topic: "access-log", rng: rand.New(rand.NewPCG(seed, 3)), daemons: make([]*Daemon, daemons)}
	if !h.fresh {
		in.hbase.dropSystemTables(t)
	}
	s := openHBase(t, in.hbase.address, nil)
	emptyHBase(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	client := in.client()
	defer client.Close()
	for topic, partitions := range map[string]int{in.topic: 3, in.topic + ".dead": 1} {
		if err := client.CreateTopic(t.Context(), topic, partitions); err != nil {
			t.Fatal(err)
		}
	}
	in.config = filepath.Join(t.TempDir(), "access-log.yaml")
	in.configure(500 * time.Millisecond)
	in.env = Environment(in.kafka.brokers, filepath.Join(t.TempDir(), "data"))
	return in
}

// configure makes the configurations, of daemons with a drain timeout.
func (in *hbaseIngest) configure(drain time.Duration) {
	in.t.Helper()
	text, err := os.ReadFile(FastConfig(in.t, drain.String()))
	if err != nil {
		in.t.Fatal(err)
	}
	config, _, found := strings.Cut(string(text), "\njobs:\n")
	const engine = "  engine: pebble\n"
	if !found || !strings.Contains(config, engine) {
		in.t.Fatalf("the example has no jobs, or no %q any more", engine)
	}
	config, tests, _ := strings.Cut(config, "    tests:")
	if tests == "" || !strings.Contains(config, "\ntables:\n") {
		in.t.Fatal("the example has no tests, or no tables any more")
	}
	config = strings.Replace(config, "\ntables:\n", "\ntables:\n"+visitorTables, 1) + visitorRollups
	in.embedded = fmt.Sprintf("shutdown_timeout: %v\n", shutdownTimeout) + config
	in.through(fmt.Sprintf("gateways: [%q], retry_timeout: 20s", in.hbase.address))
}

// through writes the configuration with settings of store.hbase.
func (in *hbaseIngest) through(settings string) {
	in.t.Helper()
	text := strings.Replace(in.embedded, "  engine: pebble\n", fmt.Sprintf("  engine: hbase\n  hbase: {%s}\n", settings), 1)
	if err := os.WriteFile(in.config, []byte(text), 0o644); err != nil {
		in.t.Fatal(err)
	}
}

func (in *hbaseIngest) client() *kafka.Client {
	in.t.Helper()
	c, err := kafka.NewClient(&kafka.Options{Brokers: []string{in.kafka.brokers}})
	if err != nil {
		in.t.Fatal(err)
	}
	return c
}

// other returns a client that shares no code with ours.
func (in *hbaseIngest) other(opts ...kgo.Opt) (*kgo.Client, error) {
	return kgo.NewClient(append(opts, kgo.SeedBrokers(in.kafka.brokers), kgo.MetadataMinAge(100*time.Millisecond), kgo.MetadataMaxAge(time.Second))...)
}

// produce sends lines of the log, again and again, until ctx is done. What the broker
// has of them is read from there: a record whose acknowledgement was lost counts as
// well.
func (in *hbaseIngest) produce(ctx context.Context, lines [][]byte) error {
	client, err := in.other(kgo.RecordPartitioner(kgo.RoundRobinPartitioner()), kgo.DefaultProduceTopic(in.topic))
	if err != nil {
		return err
	}
	defer client.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for at := 0; ; at += 10 {
		records := make([]*kgo.Record, 10)
		for i := range records {
			records[i] = &kgo.Record{Value: lines[(at+i)%len(lines)]}
		}
		if err := client.ProduceSync(context.WithoutCancel(ctx), records...).FirstErr(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// log reads what the broker has, of n partitions.
func (in *hbaseIngest) log(n int) *Log {
	in.t.Helper()
	client := in.client()
	defer client.Close()
	var partitions []int32
	for p := range n {
		partitions = append(partitions, int32(p))
	}
	ends, err := client.LogEnds(in.t.Context(), in.topic, partitions)
	if err != nil {
		in.t.Fatal(err)
	}
	left := int64(0)
	for _, end := range ends {
		left += end
	}
	reader, err := in.other(kgo.ConsumeTopics(in.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		in.t.Fatal(err)
	}
	defer reader.Close()
	l := &Log{}
	for left > 0 {
		fetches := reader.PollFetches(in.t.Context())
		if err := fetches.Err(); err != nil {
			in.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			l.Lines = append(l.Lines, bytes.Clone(r.Value))
			left--
		})
	}
	l.count()
	return l
}

// run starts the daemons that do not run.
func (in *hbaseIngest) run() {
	in.t.Helper()
	for i, d := range in.daemons {
		if d != nil {
			if ended, err := d.Exited(); ended {
				in.t.Fatalf("daemon %d ended by itself: %v\n%s", i, err, d.Log())
			}
			continue
		}
		in.daemons[i] = StartDaemon(in.t, in.config, in.env)
	}
}

// joined waits until every daemon has been in the group: one that starts while there is
// no broker, or no HBase, may say so and end.
func (in *hbaseIngest) joined() {
	in.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Minute)
	for i, d := range in.daemons {
		for !strings.Contains(d.Log(), "consumer group generation begins") {
			if ended, err := d.Exited(); ended {
				in.t.Fatalf("daemon %d ended by itself: %v\n%s", i, err, d.Log())
			}
			select {
			case <-tick.C:
			case <-deadline:
				in.t.Fatalf("daemon %d has not joined the group within 10 minutes\n%s", i, d.Log())
			}
		}
	}
}

// applied returns how many records HBase has the effects of.
func (in *hbaseIngest) applied(r store.Reader) int64 {
	in.t.Helper()
	all, err := store.AllProgress(in.t.Context(), r)
	if err != nil {
		in.t.Fatal(err)
	}
	n := int64(0)
	for i := range all {
		n += max(all[i].Progress.Next, 0)
	}
	return n
}

// progress waits until HBase has the effects of records more than it had.
func (in *hbaseIngest) progress(r store.Reader, records int64) {
	in.t.Helper()
	before := in.applied(r)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(10 * time.Minute)
	for in.applied(r) < before+records {
		in.run()
		select {
		case <-tick.C:
		case <-deadline:
			in.t.Fatal("nothing was applied for 10 minutes")
		}
	}
}

// progressAll waits until HBase has the effects of further records of each of n
// partitions.
func (in *hbaseIngest) progressAll(r store.Reader, n int) {
	in.t.Helper()
	before := map[int32]int64{}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.After(10 * time.Minute); ; {
		all, err := store.AllProgress(in.t.Context(), r)
		if err != nil {
			in.t.Fatal(err)
		}
		further := 0
		for i := range all {
			p := all[i].Partition
			if _, ok := before[p]; !ok {
				before[p] = all[i].Progress.Next
			}
			if all[i].Progress.Next > before[p] {
				further++
			}
		}
		if further >= n {
			return
		}
		in.run()
		select {
		case <-tick.C:
		case <-deadline:
			in.t.Fatalf("%d of %d partitions went on within 10 minutes", further, n)
		}
	}
}

// within waits for a random part of d: the moment of a fault is what is random.
func (in *hbaseIngest) within(d time.Duration) {
	<-time.After(time.Duration(in.rng.Int64N(int64(d))))
}

// TestHBaseIngestFaults (I2): a stream goes on while at random moments the daemons, the
// gateway, the HBase server and the broker are killed, a daemon is frozen for longer
// than its session lasts, and partitions are added. In the end every counter is what an
// independent count of Kafka's log gives, and each record is in the table of events
// once.
func TestHBaseIngestFaults(t *testing.T) {
	in := newHBaseIngest(t)
	s := openHBase(t, in.hbase.address, nil)
	defer s.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var producing sync.WaitGroup
	var perr error
	producing.Go(func() { perr = in.produce(ctx, SharedLog(t).Lines) })
	in.run()
	in.progress(s, 1)

	kill := func(name string) func() {
		return func() {
			in.hbase.kill(t, name)
			in.within(2 * time.Second)
			in.hbase.start(t)
		}
	}
	partitions := 3
	faults := map[string]func(){
		"daemon killed": func() {
			i := in.rng.IntN(len(in.daemons))
			in.daemons[i].Kill()
			in.daemons[i] = nil
			in.within(2 * time.Second)
		},
		"daemon frozen": func() {
			d := in.daemons[in.rng.IntN(len(in.daemons))]
			if err := d.Signal(syscall.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			<-time.After(1500 * time.Millisecond) // its session lasts 1 s
			in.within(2 * time.Second)
			if err := d.Signal(syscall.SIGCONT); err != nil {
				t.Fatal(err)
			}
		},
		"gateway killed": kill("thrift"),
		"HBase killed":   kill("server"),
		"broker killed": func() {
			in.kafka.run(t, "kill", in.kafka.dir)
			in.within(2 * time.Second)
			in.kafka.again(t)
		},
		"partition added": func() {
			partitions++
			in.kafka.run(t, "topics", in.kafka.dir, "--alter", "--topic", in.topic, "--partitions", fmt.Sprint(partitions))
		},
	}
	var turns []string
	for name := range faults {
		turns = append(turns, name, name)
		if soaking {
			turns = append(turns, name)
		}
	}
	in.rng.Shuffle(len(turns), func(i, j int) { turns[i], turns[j] = turns[j], turns[i] })
	for _, name := range turns {
		in.run()
		in.progress(s, 50)
		in.joined()
		in.within(time.Second)
		begin := time.Now()
		faults[name]()
		t.Logf("%s for %v", name, time.Since(begin).Round(time.Millisecond))
	}
	in.run()
	in.progress(s, 50)
	stop()
	producing.Wait()
	if perr != nil {
		t.Fatal(perr)
	}
	log := in.log(partitions)
	t.Logf("%d records in %d partitions", len(log.Lines), partitions)
	WaitCaughtUp(t, in.daemons[0], in.config, in.env, int64(len(log.Lines)), 10*time.Minute)
	for _, d := range in.daemons {
		if err := d.Stop(time.Minute); err != nil {
			t.Errorf("SIGTERM: %v", err)
		}
	}
	if err := errors.Join(log.Check(t.Context(), s), log.CheckVisitors(t.Context(), s)); err != nil {
		t.Error(err)
	}
}
