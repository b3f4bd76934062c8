package pipeline

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/pebblestore"
)

// cluster is a broker in the process with a client of it.
type cluster struct {
	t      testing.TB
	broker *embedded.Broker
	kfake  *kfake.Cluster // of virtualCluster
	client *kafka.Client
	out    *kafka.Producer
	pages  map[string]int64 // produced, by page
	total  int64            // records produced, all
	bad    int64
	// control are offsets without a record that is read: of markers and of aborted
	// transactions.
	control int64
}

func newCluster(t testing.TB, topics map[string]int) *cluster {
	t.Helper()
	b, err := embedded.Start(&embedded.Options{Topics: topics})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &cluster{t: t, broker: b, client: newClient(t, b.Addr()), pages: map[string]int64{}}
	c.out = c.client.NewProducer(nil)
	t.Cleanup(func() { c.out.Close() })
	return c
}

func newClient(t testing.TB, addr string) *kafka.Client {
	t.Helper()
	c, err := kafka.NewClient(&kafka.Options{Brokers: []string{addr}, Logger: testLogger(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// produce writes n events, every tenth of them not JSON.
func (c *cluster) produce(topic string, n int) {
	c.t.Helper()
	messages := make([]kafka.Message, n)
	for i := range messages {
		page := fmt.Sprintf("/p%d", (c.total*c.total+int64(i))%13)
		value := fmt.Sprintf(`{"page": %q, "user": "u%d"}`, page, i%5)
		if (c.total+int64(i))%10 == 3 {
			value = "not json"
			c.bad++
		} else {
			c.pages[page]++
		}
		messages[i] = kafka.Message{Key: fmt.Append(nil, i), Value: []byte(value), Partition: kafka.AnyPartition}
	}
	c.total += int64(n)
	if err := c.out.Produce(c.t.Context(), topic, messages...); err != nil {
		c.t.Fatal(err)
	}
}

// ends returns the log ends of a topic.
func (c *cluster) ends(topic string) map[int32]int64 {
	c.t.Helper()
	info, err := c.client.Topic(c.t.Context(), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	offsets, err := c.client.ListOffsets(c.t.Context(), topic, info.Partitions)
	if err != nil {
		c.t.Fatal(err)
	}
	ends := map[int32]int64{}
	for n, o := range offsets {
		ends[n] = o.End
	}
	return ends
}

// read returns all records of a topic.
func (c *cluster) read(topic string) []kafka.Record {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	f := c.client.NewFetcher(nil)
	done := make(chan error, 1)
	go func() { done <- f.Run(ctx) }()
	var all []kafka.Record
	for n, end := range c.ends(topic) {
		r := f.Add(topic, n, 0)
		for next := int64(0); next < end; {
			b, err := r.Next(ctx)
			if err != nil {
				c.t.Fatal(err)
			}
			for _, rec := range b.Records {
				rec.Key, rec.Value = slices.Clone(rec.Key), slices.Clone(rec.Value)
				var hs []kafka.Header
				for _, h := range rec.Headers {
					hs = append(hs, kafka.Header{Key: slices.Clone(h.Key), Value: slices.Clone(h.Value)})
				}
				rec.Headers = hs
				all = append(all, rec)
			}
			next = b.Next
			b.Release()
		}
		r.Close()
	}
	cancel()
	<-done
	return all
}

func testPlan(t testing.TB, e store.Engine) *mapping.Plan {
	t.Helper()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: `user + "/" + u16(partition) + u64(offset)`, Put: map[string]map[string]string{"e": {"page": "page"}}},
			{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
		},
	}, func(name string) *store.TableDescriptor {
		d, err := e.Table(t.Context(), name)
		if err != nil {
			return nil
		}
		return d
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

func newPebble(t testing.TB) store.Engine {
	t.Helper()
	s, err := pebblestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	createTables(t, s)
	t.Cleanup(func() { s.Close() })
	return s
}

// member is a pipeline under Run.
type member struct {
	*Pipeline
	t    testing.TB
	stop context.CancelFunc
	done chan error
}

func (c *cluster) run(e store.Engine, opts ...testOption) *member {
	c.t.Helper()
	o := &Options{
		Name: "p", Topics: []string{"pages"}, Client: newClient(c.t, c.broker.Addr()), Plan: testPlan(c.t, e), Engine: e,
		StoreID: "s1", SessionTimeout: 6 * time.Second, Heartbeat: 100 * time.Millisecond,
		Fetch: &kafka.FetchOptions{MaxWait: 20 * time.Millisecond}, Logger: testLogger(c.t),
	}
	for _, f := range opts {
		f(o)
	}
	return runMember(c.t, o)
}

// runMember is a pipeline of o under Run until it is closed, or the test ends.
func runMember(t testing.TB, o *Options) *member {
	t.Helper()
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m := &member{Pipeline: p, t: t, stop: cancel, done: make(chan error, 1)}
	go func() { m.done <- p.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-m.done })
	return m
}

func (m *member) close() {
	m.t.Helper()
	m.stop()
	err := <-m.done
	m.done <- nil
	if err != nil {
		m.t.Fatal(err)
	}
}

func (m *member) wait(ends map[int32]int64) {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := m.WaitStored(ctx, map[string]map[int32]int64{"pages": ends}); err != nil {
		m.t.Fatal(err)
	}
}

// audit wants no problem in any partition, all of whose records are read again.
func (c *cluster) audit(e store.Reader) {
	c.t.Helper()
	audits, err := RunAudit(c.t.Context(), &AuditOptions{Store: e, Client: c.client, Deep: true})
	if err != nil {
		c.t.Error(err)
	}
	for _, a := range audits {
		if len(a.Problems) > 0 || a.Records < 0 {
			c.t.Errorf("Got %d records, problems %q in the audit of %+v", a.Records, a.Problems, a.Progress)
		}
	}
}

// check compares what e holds with what was produced.
func (c *cluster) check(e store.Engine) {
	c.t.Helper()
	c.audit(e)
	got := readContents(c.t, e)
	if d := cmp.Diff(c.pages, got.Counts); d != "" {
		c.t.Errorf("Got other counts (-want +got):\n%s", d)
	}
	if got.Progress.Next != c.total+c.control || got.Progress.Control != c.control || got.Progress.Dead != c.bad || got.Progress.Applied != c.total-c.bad {
		c.t.Errorf("Got progress %+v, want %d records, %d offsets without one, %d dead", got.Progress, c.total, c.control, c.bad)
	}
	if int64(len(got.Letters)) != c.bad || int64(len(got.Events)) != c.total-c.bad {
		c.t.Errorf("Got %d letters and %d rows, want %d and %d", len(got.Letters), len(got.Events), c.bad, c.total-c.bad)
	}
}

func TestRunFromKafka(t *testing.T) {
	t.Parallel()
	for name, engine := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 3, "pages.dead": 1}), engine(t)
			c.produce("pages", 5000)
			letters := func(o *Options) { o.DeadLetterTopic = "pages.dead" }
			m := c.run(e, letters)
			m.wait(c.ends("pages"))
			c.check(e)
			c.produce("pages", 100)
			m.wait(c.ends("pages"))
			m.close()
			if s := m.Status(); s.Running || s.Err != nil || s.Partitions[0].Lag != 0 || s.Partitions[0].Owned {
				t.Errorf("Got status %+v after the end", s)
			}

			c.produce("pages", 1000) // while nobody looks
			m = c.run(e, letters)
			m.wait(c.ends("pages"))
			waitFor(t, func() bool { // of both runs, at least once each
				keys := map[string]bool{}
				for _, r := range c.read("pages.dead") {
					keys[string(r.Key)] = true
				}
				return int64(len(keys)) >= c.bad
			})
			m.close()
			c.check(e)
			for _, r := range c.read("pages.dead") {
				headers := map[string]string{}
				for _, h := range r.Headers {
					headers[string(h.Key)] = string(h.Value)
				}
				key := strings.Join([]string{headers["x-orig-topic"], headers["x-orig-partition"], headers["x-orig-offset"]}, "/")
				if string(r.Key) != key || string(r.Value) != "not json" || headers["x-stage"] != "decode" ||
					headers["x-error-class"] == "" || headers["x-error-message"] == "" || headers["x-pipeline"] != "p" ||
					headers["x-mapping-version"] == "" || headers["x-orig-timestamp"] == "" || headers["x-orig-key"] == "" {
					t.Fatalf("Got letter %s = %s with headers %v", r.Key, r.Value, headers)
				}
			}
		})
	}
}

// owned is how many partitions m applies.
func (m *member) owned() (n int) {
	for _, p := range m.Status().Partitions {
		if p.Owned {
			n++
		}
	}
	return n
}

// Members of one store come and go: each rebalance takes all partitions away and
// gives them out anew, each to one member.
func TestSchedule11RebalanceStorm(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 4}), newSplit(t)
	stay := c.run(e)
	waitFor(t, func() bool { return stay.Status().Generation >= 0 })
	for i := range 4 {
		before := stay.Status().Generation
		c.produce("pages", 700)
		m := c.run(e)
		waitFor(t, func() bool { return m.Status().Generation > before && stay.Status().Generation > before })
		c.produce("pages", 700)
		if i%2 == 1 { // the others end amid what there is to apply
			waitFor(t, func() bool { return stay.owned() == 2 && m.owned() == 2 })
			waitFor(t, func() bool { return readProgress(t, e) == c.total })
		}
		if i == 1 {
			stay.close()
			stay = m
		} else {
			m.close()
		}
	}
	ends := map[int32]int64{}
	maps.Copy(ends, c.ends("pages"))
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	stay.close()
	c.check(e)
}

// A member that gets no partition takes over when the owner leaves.
func TestSpareMemberStandsBy(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newEngine(t)
	c.produce("pages", 100)
	members := []*member{c.run(e), c.run(e)}
	for _, m := range members {
		waitFor(t, func() bool { return m.Status().Generation >= 0 })
	}
	for range 5 {
		c.produce("pages", 100)
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
	}
	owner := 0
	if s := members[1].Status(); len(s.Partitions) > 0 && s.Partitions[0].Owned {
		owner = 1
	}
	spare := members[1-owner]
	members[owner].close()
	c.produce("pages", 100)
	spare.wait(c.ends("pages"))
	spare.close()
	c.check(e)
}

func readProgress(t testing.TB, e store.Engine) int64 {
	all, err := store.AllProgress(context.Background(), e)
	if err != nil {
		t.Fatal(err)
	}
	var n int64
	for _, p := range all {
		n += p.Progress.Next
	}
	return n
}

func TestRunReportsWhatIsWrong(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newEngine(t)
	m := c.run(e, func(o *Options) { o.Topics = []string{"pagse"} })
	err := <-m.done
	m.done <- nil
	if !errors.Is(err, kafka.ErrTopicNotFound) {
		t.Errorf("Got %v for a topic that is not there, want kafka.ErrTopicNotFound", err)
	}
	if err := m.WaitStored(t.Context(), map[string]map[int32]int64{"pagse": {0: 1}}); !errors.Is(err, ErrStopped) || !errors.Is(err, kafka.ErrTopicNotFound) {
		t.Errorf("Got %v from a wait for a pipeline that stopped", err)
	}

	first := c.run(e)
	waitFor(t, func() bool { return first.Status().Generation >= 0 })
	other := c.run(newEngine(t), func(o *Options) { o.StoreID = "s2" })
	err = <-other.done
	other.done <- nil
	if !errors.Is(err, kafka.ErrOtherStore) {
		t.Errorf("Got %v for another store in the group, want kafka.ErrOtherStore", err)
	}
}

// A group that another tool has used hands over to Sluice where it stands.
func TestStartAtCommittedOffsets(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 2}), newEngine(t)
	committed := func(o *Options) { o.Start = Start{From: StartCommitted}; o.Group = "g" }
	m := c.run(e, committed)
	err := <-m.done
	m.done <- nil
	if !errors.Is(err, ErrNotCommitted) {
		t.Fatalf("Got %v for a group without offsets, want ErrNotCommitted", err)
	}
	c.produce("pages", 500)
	first := c.run(newEngine(t), func(o *Options) { o.Group = "g" })
	first.wait(c.ends("pages"))
	first.close() // shows its offsets to kafka
	c.pages, c.bad = map[string]int64{}, 0
	c.produce("pages", 300)
	m = c.run(e, committed)
	m.wait(c.ends("pages"))
	m.close()
	got := readContents(t, e)
	if d := cmp.Diff(c.pages, got.Counts); d != "" {
		t.Errorf("Got other counts than those after the committed offsets (-want +got):\n%s", d)
	}
}

func TestTopicDeletedAndCreatedWhileRunning(t *testing.T) {
	t.Parallel()
	for _, policy := range []TopicChangePolicy{FailOnTopicChange, NewIncarnation} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 1}), newEngine(t)
			c.produce("pages", 50)
			m := c.run(e, func(o *Options) { o.OnTopicChange = policy })
			m.wait(c.ends("pages"))
			if err := c.broker.Cluster().DeleteTopic("pages"); err != nil {
				t.Fatal(err)
			}
			if err := c.client.CreateTopic(t.Context(), "pages", 1); err != nil {
				t.Fatal(err)
			}
			c.out = newClient(t, c.broker.Addr()).NewProducer(nil)
			before := c.total
			c.produce("pages", 200) // larger than the old one was
			if policy == FailOnTopicChange {
				err := <-m.done
				m.done <- nil
				if !errors.Is(err, ErrTopicChanged) {
					t.Fatalf("Got %v, want ErrTopicChanged", err)
				}
				if n := strings.Count(err.Error(), "pipeline p: "); n != 1 {
					t.Errorf("Got the pipeline's name %d times, want it once: %v", n, err)
				}
				if n := readProgress(t, e); n != before {
					t.Errorf("Got %d offsets applied, want the %d of the old topic", n, before)
				}
				return
			}
			waitFor(t, func() bool { return readProgress(t, e) == c.total })
			m.close()
			got := readContents(t, e) // rows have the offset in their keys: some of both topics' are the same
			if d := cmp.Diff(c.pages, got.Counts); d != "" {
				t.Errorf("Got other counts (-want +got):\n%s", d)
			}
			if got.Progress.Applied != c.total-c.bad || got.Progress.Dead != c.bad {
				t.Errorf("Got %+v, want %d applied and %d dead", got.Progress, c.total-c.bad, c.bad)
			}
		})
	}
}

func TestRecordsDeletedWhileDown(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newEngine(t)
	c.produce("pages", 50)
	m := c.run(e)
	m.wait(c.ends("pages"))
	m.close()
	c.produce("pages", 50)
	if err := c.broker.Cluster().DeleteRecords("pages", 0, 80); err != nil {
		t.Fatal(err)
	}
	m = c.run(e)
	err := <-m.done
	m.done <- nil
	var lost *DataLossError
	if !errors.As(err, &lost) || lost.From != 50 || lost.To != 80 {
		t.Fatalf("Got %v, want offsets 50 to 80 lost", err)
	}
	m = c.run(e, func(o *Options) { o.OnDataLoss = SkipLostData })
	m.wait(c.ends("pages"))
	m.close()
	if got := readContents(t, e).Progress; got.Lost != 30 || got.Next != 100 {
		t.Errorf("Got %+v, want 30 lost of 100", got)
	}
}

// What is before a record that cannot be applied is stored with the right mark of
// the log, whatever the record does to its partition.
func TestGoesOnAfterAPoisonRecord(t *testing.T) {
	t.Parallel()
	json := func(p Policy, retries int) testOption {
		return withPoison(Poison{Policies: map[string]Policy{"json": p}, Retries: retries})
	}
	for name, run := range map[string]func(c *cluster, e store.Engine){
		"fail, and a new start": func(c *cluster, e store.Engine) {
			m := c.run(e, json(StopPipeline, 0))
			err := <-m.done
			m.done <- nil
			if !errors.Is(err, ErrPoison) || readProgress(c.t, e) != 3 {
				c.t.Errorf("Got %v at offset %d, want ErrPoison at 3", err, readProgress(c.t, e))
			}
		},
		"retry": func(c *cluster, e store.Engine) {
			m := c.run(e, json(RetryRecords, 1))
			m.wait(c.ends("pages"))
			m.close()
		},
		"breaker": func(c *cluster, e store.Engine) {
			m := c.run(e, withPoison(Poison{TripAt: 2, Window: 100}))
			waitFor(c.t, func() bool { m.CloseBreakers(); return readProgress(c.t, e) == c.total })
			if n := m.Metrics().Trips; n != 2 { // at 23 and, with that, 33 and 43
				c.t.Errorf("Got %d trips, want 2", n)
			}
			m.close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, e := newCluster(t, map[string]int{"pages": 1}), newPebble(t)
			c.produce("pages", 44)
			run(c, e)
			m := c.run(e)
			m.wait(c.ends("pages"))
			m.close()
			c.check(e)
		})
	}
}
