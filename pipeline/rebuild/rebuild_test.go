package rebuild_test

import (
	gocmp "cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/cell"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/mapping"
	"sluice/pipeline/rebuild"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

const patience = 2 * time.Minute

// world is a broker, a store, and what the counts must be.
type world struct {
	t       testing.TB
	cluster *kfake.Cluster
	client  *kafka.Client
	out     *kafka.Producer
	engine  rebuild.Engine
	want    map[string]int64
	sent    int
	name    string              // of the pipeline; "" = views
	twice   bool                // the rules count in table more, too
	rules   func(*mapping.Spec) // changes the rules; nil = does not
}

func newWorld(t testing.TB, engine rebuild.Engine) *world {
	t.Helper()
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"pages": 2}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	w := &world{t: t, engine: engine, cluster: broker.Cluster(), want: map[string]int64{}}
	if w.client, err = kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.client.Close() })
	w.out = w.client.NewProducer(nil)
	t.Cleanup(func() { w.out.Close() })
	counts := &store.TableDescriptor{Name: "counts", Families: []store.FamilyDescriptor{store.NewFamily("c"), store.NewFamily("d")}}
	counts.Families[0].Counter = true
	events := &store.TableDescriptor{Name: "events", Families: []store.FamilyDescriptor{store.NewFamily("e")}, MaxCellBytes: 150}
	for _, d := range []*store.TableDescriptor{counts, events} {
		if err := engine.CreateTable(t.Context(), d, nil); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// produce writes n events: some are no JSON, some are filtered, and some have a
// cell that the store does not take.
func (w *world) produce(n int) {
	w.t.Helper()
	messages := make([]kafka.Message, n)
	for i := range messages {
		at := w.sent + i
		page := fmt.Sprintf("/p%d", at*at%11)
		value := fmt.Sprintf(`{"page": %q, "bot": %t, "agent": %q}`, page, at%7 == 3, strings.Repeat("x", 5))
		switch {
		case at%10 == 4:
			value = "not json"
		case at%13 == 5:
			value = fmt.Sprintf(`{"page": %q, "bot": false, "agent": %q}`, page, strings.Repeat("x", 200))
		case at%7 != 3:
			w.want[page]++
		}
		messages[i] = kafka.Message{Value: []byte(value), Partition: int32(at % 2)}
	}
	w.sent += n
	if err := w.out.Produce(w.t.Context(), "pages", messages...); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) plan(views string) *mapping.Plan {
	w.t.Helper()
	spec := &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{
			{When: "!bot", Table: "events", Row: `"p" + u16(partition) + u64(offset)`, Put: map[string]map[string]string{"e": {"agent": "agent"}}},
			{When: "!bot", Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: views}}},
		},
	}
	if w.twice {
		more := spec.Rules[1]
		more.Table = "more"
		spec.Rules = append(spec.Rules, more)
	}
	if w.rules != nil {
		w.rules(spec)
	}
	p, err := mapping.Compile(spec, func(name string) *store.TableDescriptor {
		d, err := w.engine.Table(w.t.Context(), name)
		if err != nil {
			return nil
		}
		return d
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

// ingest runs the pipeline until it has applied everything.
func (w *world) ingest() {
	w.t.Helper()
	p, err := pipeline.New(&pipeline.Options{
		Name: gocmp.Or(w.name, "views"), Topics: []string{"pages"}, Client: w.client, Plan: w.plan(`"n"`), Engine: w.engine, StoreID: "s",
		SessionTimeout: 6 * time.Second, Heartbeat: 100 * time.Millisecond, Fetch: &kafka.FetchOptions{MaxWait: 20 * time.Millisecond},
	})
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(w.t.Context(), patience)
	defer stop()
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- p.Run(running) }()
	ends := map[int32]int64{0: int64(w.sent+1) / 2, 1: int64(w.sent) / 2}
	if err := p.WaitStored(ctx, map[string]map[int32]int64{"pages": ends}); err != nil {
		w.t.Fatal(err)
	}
	cancel()
	if err := <-done; err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) open(change ...func(*rebuild.Options)) *rebuild.Rebuild {
	w.t.Helper()
	r, err := w.tryOpen(change...)
	if err != nil {
		w.t.Fatal(err)
	}
	return r
}

func (w *world) tryOpen(change ...func(*rebuild.Options)) (*rebuild.Rebuild, error) {
	o := &rebuild.Options{Pipeline: "views", Topics: []string{"pages"}, Client: w.client, Plan: w.plan(`"n"`), Engine: w.engine}
	for _, f := range change {
		f(o)
	}
	return rebuild.Open(w.t.Context(), o)
}

func (w *world) ok(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// check compares what is served with want, and that no other family is left.
func (w *world) check() {
	w.t.Helper()
	got := map[string]int64{}
	sc := w.engine.Scan(w.t.Context(), &store.Scan{Table: "counts"})
	defer sc.Close()
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			n := int64(0)
			for _, b := range c.Value {
				n = n<<8 | int64(b)
			}
			got[string(sc.Row().Key)] += n
		}
	}
	w.ok(sc.Err())
	if d := cmp.Diff(w.want, got); d != "" {
		w.t.Errorf("served counts (-want +got):\n%s", d)
	}
	d, err := w.engine.Table(w.t.Context(), "counts")
	w.ok(err)
	if len(d.Families) != 2 {
		w.t.Errorf("table counts has families %v", d.Families)
	}
}

// damage changes what is served: one count, one counter missing, one too many.
func (w *world) damage() {
	w.t.Helper()
	add := &cell.Mutation{Table: "counts", Row: []byte("/p1")}
	add.Increment("c", []byte("n"), 5)
	extra := &cell.Mutation{Table: "counts", Row: []byte("/nobody")}
	extra.Increment("c", []byte("n"), 1)
	gone := &cell.Mutation{Table: "counts", Row: []byte("/p4")}
	gone.DeleteRow(cell.Latest)
	for _, m := range []*cell.Mutation{add, extra, gone} {
		_, err := w.engine.MutateRow(w.t.Context(), nil, m)
		w.ok(err)
	}
}

func engines(t *testing.T, test func(t *testing.T, w *world)) {
	t.Parallel()
	t.Run("mem", func(t *testing.T) {
		t.Parallel()
		e, err := memstore.New(nil)
		if err != nil {
			t.Fatal(err)
		}
		test(t, newWorld(t, e))
	})
	t.Run("pebble", func(t *testing.T) {
		t.Parallel()
		e, err := pebblestore.Open(t.TempDir(), nil)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		test(t, newWorld(t, e))
	})
}

// What was counted right is counted the same again, dead letters of every stage
// included, and is dropped without a trace.
func TestRebuildAgrees(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(2000)
		w.ingest()
		w.produce(100) // not applied yet: not counted either
		var last rebuild.Progress
		r := w.open(func(o *rebuild.Options) { o.BatchRecords = 300; o.Progress = func(p rebuild.Progress) { last = p } })
		w.ok(r.Count(t.Context()))
		if last.Done != 2000 || last.Total != 2000 {
			t.Errorf("progress %+v, want 2000 of 2000", last)
		}
		got, err := r.Compare(t.Context())
		w.ok(err)
		if len(got) != 1 || !got[0].Same() || got[0].Equal == 0 || got[0].Table != "counts" || got[0].Family != "c" {
			t.Errorf("compared: %+v", got)
		}
		live, err := store.AllProgress(t.Context(), w.engine)
		w.ok(err)
		var want rebuild.Totals
		for _, p := range live {
			if p.Source.Pipeline == "views" {
				want.Applied, want.Filtered, want.Dead = want.Applied+p.Progress.Applied, want.Filtered+p.Progress.Filtered, want.Dead+p.Progress.Dead
			}
			if !p.Progress.Balanced() {
				t.Errorf("%s/%d: %+v does not add up", p.Source.Pipeline, p.Partition, p.Progress)
			}
		}
		if d := cmp.Diff(want, r.Totals()); d != "" {
			t.Errorf("totals (-pipeline +rebuild):\n%s", d)
		}
		w.ok(r.Discard(t.Context()))
		w.ingest()
		w.check()
		// The next one begins anew.
		r = w.open()
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.check()
	})
}

// What the pipeline has given up is not counted again, though Kafka has it.
func TestRebuildLeavesSkippedOffsets(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(300)
		w.ingest()
		for range 2 { // at the end of what is counted, and within
			skipped := make([]kafka.Message, 8)
			for i := range skipped {
				skipped[i] = kafka.Message{Value: []byte(`{"page": "/p1", "bot": false, "agent": "x"}`), Partition: int32(i % 2)}
			}
			w.ok(w.out.Produce(t.Context(), "pages", skipped...))
			for n := range int32(2) {
				_, err := pipeline.SkipOffsets(t.Context(), &pipeline.SkipOptions{
					Engine: w.engine, Client: w.client, Pipeline: "views", Topic: "pages", Partition: n,
					From: int64(w.sent / 2), To: int64(w.sent/2 + 4), Reason: store.SkippedCorrupt,
				})
				w.ok(err)
			}
			w.sent += len(skipped)
			r := w.open(func(o *rebuild.Options) { o.BatchRecords = 30 })
			w.ok(r.Count(t.Context()))
			got, err := r.Compare(t.Context())
			w.ok(err)
			if len(got) != 1 || !got[0].Same() {
				t.Errorf("compared: %+v", got)
			}
			w.ok(r.Switch(t.Context()))
			w.check()
			w.produce(300)
			w.ingest()
		}
	})
}

// A dead letter that the present mapping takes is counted once: by its redrive,
// before a rebuild or after it, and never in the midst of one.
func TestRebuildLeavesDeadLettersToTheRedrive(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(40)
		late := []kafka.Message{{Value: []byte(`{"page": "/late", "agent": "x"}`)}, {Value: []byte(`{"page": "/later", "agent": "x"}`), Partition: 1}}
		w.ok(w.out.Produce(t.Context(), "pages", late...)) // no bot: the rules miss a field
		w.sent += 2
		w.ingest()
		w.check()
		mended := func(o *rebuild.Options) {
			p, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json"},
				Rules: []mapping.RuleSpec{
					{When: `!(bot ?? false)`, Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
				},
			}, func(name string) *store.TableDescriptor {
				d, err := w.engine.Table(t.Context(), name)
				w.ok(err)
				return d
			})
			w.ok(err)
			o.Plan = p
		}
		redrive := func(limit int) (pipeline.RedriveCounts, error) {
			var o rebuild.Options
			mended(&o)
			return pipeline.Redrive(t.Context(), &pipeline.RedriveOptions{
				Engine: w.engine, Plan: o.Plan, Limit: limit, Filter: pipeline.LetterFilter{Pipeline: "views", Class: "missing_field"},
			})
		}
		n, err := redrive(1)
		w.ok(err)
		if n.Applied != 1 {
			t.Errorf("redriven before: %+v, want 1 applied", n)
		}
		r := w.open(mended)
		w.ok(r.Count(t.Context()))
		if _, err := redrive(1); !errors.Is(err, pipeline.ErrRebuilding) {
			t.Errorf("redrive in the midst: %v, want ErrRebuilding", err)
		}
		w.ok(r.Switch(t.Context()))
		n, err = redrive(0)
		w.ok(err)
		if n.Applied != 1 {
			t.Errorf("redriven after: %+v, want 1 applied", n)
		}
		w.want["/late"], w.want["/later"] = 1, 1
		w.check()
		audits, err := pipeline.RunAudit(t.Context(), &pipeline.AuditOptions{Store: w.engine, Client: w.client, Deep: true})
		w.ok(err)
		for _, a := range audits {
			if len(a.Problems) > 0 {
				t.Errorf("audit of %s/%d: %q", a.Source.Pipeline, a.Partition, a.Problems)
			}
		}
	})
}

// What the store decides at each record's turn cannot be decided again.
func TestRebuildRefusesWhatDependsOnTheStore(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		_, err := w.tryOpen(func(o *rebuild.Options) {
			p, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json"},
				Dedup:  mapping.DedupSpec{ID: "id", TTL: time.Hour},
				Rules:  []mapping.RuleSpec{{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}}},
			}, func(name string) *store.TableDescriptor {
				d, err := w.engine.Table(t.Context(), name)
				w.ok(err)
				return d
			})
			w.ok(err)
			o.Plan = p
		})
		if !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("rebuild with event ids: %v, want ErrUnsupported", err)
		}
	})
}

// What was damaged is found, named, and put right in one step; the pipeline goes
// on counting on top of it.
func TestRebuildRepairs(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(1500)
		w.ingest()
		w.damage()
		r := w.open()
		w.ok(r.Count(t.Context()))
		got, err := r.Compare(t.Context())
		w.ok(err)
		number := func(n int64) *int64 { return &n }
		p1, p4 := w.want["/p1"], w.want["/p4"]
		want := []rebuild.Comparison{{
			Table: "counts", Family: "c", Equal: int64(len(w.want)) - 2, Different: 1, Missing: 1, Extra: 1,
			Differences: []rebuild.Difference{
				{Row: []byte("/nobody"), Qualifier: []byte("n"), Served: number(1)},
				{Row: []byte("/p1"), Qualifier: []byte("n"), Served: number(p1 + 5), Rebuilt: number(p1)},
				{Row: []byte("/p4"), Qualifier: []byte("n"), Rebuilt: number(p4)},
			},
		}}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("compared (-want +got):\n%s", d)
		}
		w.ok(r.Switch(t.Context()))
		w.check()
		w.produce(300)
		w.ingest()
		w.check()
	})
}

// A rebuild that is killed again and again, at random commits, goes on where it
// stopped, and the pipeline may run in between.
func TestRebuildResumes(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 1))
		w.produce(1000)
		w.ingest()
		w.damage()
		killed := 0
		for {
			ctx, cancel := context.WithCancel(t.Context())
			left := 1 + rng.IntN(4)
			r := w.open(func(o *rebuild.Options) {
				o.BatchRecords = 50
				o.Progress = func(rebuild.Progress) {
					if left--; left == 0 && killed < 20 {
						cancel()
					}
				}
			})
			err := r.Count(ctx)
			cancel()
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				if killed++; killed%5 == 0 {
					w.produce(100)
					w.ingest()
					if err := r.Switch(t.Context()); !errors.Is(err, rebuild.ErrBehind) {
						t.Fatalf("switched to an unfinished rebuild: %v", err)
					}
				}
				continue
			}
			w.produce(10)
			w.ingest()
			if err := r.Switch(t.Context()); !errors.Is(err, rebuild.ErrBehind) {
				t.Fatalf("switched to a rebuild that is behind: %v", err)
			}
			break
		}
		r := w.open()
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.check()
		if killed < 3 {
			t.Errorf("killed only %d times", killed)
		}
	})
}

func TestRebuildRefuses(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(200)
		w.ingest()
		ctx, cancel := context.WithCancel(t.Context())
		r := w.open(func(o *rebuild.Options) { o.BatchRecords = 10; o.Progress = func(rebuild.Progress) { cancel() } })
		if err := r.Count(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		other := w.plan(`"m"`)
		if _, err := w.tryOpen(func(o *rebuild.Options) { o.Plan = other }); !errors.Is(err, rebuild.ErrOtherMapping) {
			t.Errorf("with another mapping: %v", err)
		}
		w.ok(rebuild.Discard(t.Context(), w.engine, "views", &store.RebuildHolder{})) // whatever the mapping is
		w.ok(rebuild.Discard(t.Context(), w.engine, "views", &store.RebuildHolder{}))
		r = w.open(func(o *rebuild.Options) { o.Plan = other })
		w.ok(r.Count(t.Context()))
		got, err := r.Compare(t.Context())
		w.ok(err)
		if len(got) != 1 || got[0].Equal != 0 || got[0].Missing != int64(len(w.want)) || got[0].Extra != int64(len(w.want)) {
			t.Errorf("compared: %+v", got)
		}
		w.ok(r.Discard(t.Context()))

		// A topic that is not read any more.
		if _, err := w.tryOpen(func(o *rebuild.Options) { o.Topics = nil }); !errors.Is(err, rebuild.ErrLogIncomplete) || !strings.Contains(err.Error(), "--accept-loss") {
			t.Errorf("without the topic: %v", err)
		}

		// A life of the topic that is over.
		var b store.Batch
		b.Advance(store.Source{Pipeline: "views", Topic: "pages", ClusterID: "another"}, 0, store.Absent, store.Progress{Next: 5, Applied: 5})
		w.ok(w.engine.Apply(t.Context(), &b))
		if _, err := w.tryOpen(); !errors.Is(err, rebuild.ErrLogIncomplete) {
			t.Errorf("a topic made anew: %v", err)
		}
		r = w.open(func(o *rebuild.Options) { o.AcceptLoss = true })
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.check()
	})
}

// What is told of a topic without its id says nothing of whether it was made anew: a rebuild
// that may lack records does not leave out all of them.
func TestRebuildWaitsForTopicIDs(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(20)
		w.ingest()
		stored, err := store.AllProgress(t.Context(), w.engine)
		w.ok(err)
		var without atomic.Bool
		without.Store(true)
		w.cluster.ControlKey(int16(kmsg.Metadata), func(kreq kmsg.Request) (kmsg.Response, error, bool) {
			w.cluster.KeepControl()
			if !without.Load() || kreq.GetVersion() < 10 { // kafka-go's own are not looked at
				return nil, nil, false
			}
			resp := kreq.ResponseKind().(*kmsg.MetadataResponse)
			resp.ClusterID = &stored[0].Source.ClusterID
			topic := kmsg.NewMetadataResponseTopic()
			topic.Topic = kmsg.StringPtr("pages")
			for n := range int32(2) {
				p := kmsg.NewMetadataResponseTopicPartition()
				p.Partition, p.Leader = n, w.cluster.LeaderFor("pages", n)
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
			return resp, nil, true
		})
		_, err = w.tryOpen(func(o *rebuild.Options) { o.AcceptLoss = true })
		if err == nil || !strings.Contains(err.Error(), "no topic id") {
			t.Errorf("Got %v, want that no topic id is told", err)
		}
		without.Store(false)
		r := w.open(func(o *rebuild.Options) { o.AcceptLoss = true })
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.check()
	})
}

// dying is the engine of a process that is killed after so many changes of tables.
type dying struct {
	rebuild.Engine
	left int
}

var errKilled = errors.New("killed")

func (e *dying) AlterTable(ctx context.Context, d *store.TableDescriptor) error {
	if e.left--; e.left < 0 {
		return errKilled
	}
	return e.Engine.AlterTable(ctx, d)
}

// What is left of a rebuild whose discard was cut off between two tables is not
// counted on: the next one counts all of both.
func TestDiscardIsFinished(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		more := &store.TableDescriptor{Name: "more", Families: []store.FamilyDescriptor{store.NewFamily("c")}}
		more.Families[0].Counter = true
		w.ok(w.engine.CreateTable(t.Context(), more, nil))
		w.twice = true
		w.produce(500)
		w.ingest()
		r := w.open()
		w.ok(r.Count(t.Context()))
		for left := range 2 {
			if err := rebuild.Discard(t.Context(), &dying{w.engine, left}, "views", &store.RebuildHolder{}); !errors.Is(err, errKilled) {
				t.Fatalf("discard: %v", err)
			}
		}
		w.produce(100)
		w.ingest()
		r = w.open()
		w.ok(r.Count(t.Context()))
		got, err := r.Compare(t.Context())
		w.ok(err)
		if len(got) != 2 || !got[0].Same() || !got[1].Same() || got[0].Equal == 0 || got[1].Equal == 0 {
			t.Errorf("compared: %+v", got)
		}
		w.ok(r.Switch(t.Context()))
		w.check()
	})
}

// The last record that was applied is compared: a log that was written again under the
// same ids is not counted as if it were the old one.
func TestRebuildKnowsItsLog(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(100)
		w.ingest()
		all, err := store.AllProgress(t.Context(), w.engine)
		w.ok(err)
		other := all[0].Progress
		other.Fingerprint++
		var b store.Batch
		b.Advance(all[0].Source, all[0].Partition, other.Next, other)
		w.ok(w.engine.Apply(t.Context(), &b))
		if err := w.open().Count(t.Context()); !errors.Is(err, pipeline.ErrTopicChanged) {
			t.Errorf("another log: %v", err)
		}
	})
}

// A topic that is made anew amid a rebuild leaves what was counted of it, which is by the
// mapping that it was begun with.
func TestRebuildOfATopicMadeAnew(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(200)
		w.ingest()
		ctx, cancel := context.WithCancel(t.Context())
		r := w.open(func(o *rebuild.Options) { o.BatchRecords = 10; o.Progress = func(rebuild.Progress) { cancel() } })
		if err := r.Count(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.ok(r.Close(t.Context()))
		w.ok(w.cluster.DeleteTopic("pages"))
		w.ok(w.cluster.CreateTopic("pages", 2, nil))
		accept := func(o *rebuild.Options) { o.AcceptLoss = true }
		other := w.plan(`"m"`)
		if _, err := w.tryOpen(accept, func(o *rebuild.Options) { o.Plan = other }); !errors.Is(err, rebuild.ErrOtherMapping) {
			t.Errorf("Got %v, want ErrOtherMapping", err)
		}
		if _, err := w.tryOpen(); !errors.Is(err, rebuild.ErrLogIncomplete) || !strings.Contains(err.Error(), "of 100 offsets of partition 0 that were applied, ") {
			t.Errorf("Got %v, want what is missing", err)
		}
		r = w.open(accept)
		w.ok(r.Count(t.Context()))
		got, err := r.Compare(t.Context())
		w.ok(err)
		if len(got) != 1 || got[0].Extra != 0 || got[0].Different == 0 {
			t.Errorf("compared: %+v, want what was counted before", got)
		}
		w.ok(r.Close(t.Context()))
		if _, err := w.tryOpen(); !errors.Is(err, rebuild.ErrLogIncomplete) {
			t.Errorf("Got %v of a loss that was accepted once, want ErrLogIncomplete", err)
		}
		r = w.open(accept)
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.ok(r.Close(t.Context()))
	})
}

// What was counted of a topic before it was made anew lacks nothing, where that is all.
func TestRebuildOfACountedTopicMadeAnew(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(200)
		w.ingest()
		w.damage()
		r := w.open()
		w.ok(r.Count(t.Context()))
		w.ok(r.Close(t.Context()))
		w.ok(w.cluster.DeleteTopic("pages"))
		w.ok(w.cluster.CreateTopic("pages", 2, nil))
		r = w.open()
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.check()
		w.ok(r.Close(t.Context()))
	})
}

// That records are missing was accepted for what one command counts. Another one that goes on
// with its count, or serves it, says so again.
func TestRebuildLossIsAcceptedEachTime(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(200)
		w.ingest()
		w.ok(w.cluster.DeleteRecords("pages", 0, 40))
		refused := func() {
			t.Helper()
			if _, err := w.tryOpen(); !errors.Is(err, rebuild.ErrLogIncomplete) || !strings.Contains(err.Error(), "pages/0") || !strings.Contains(err.Error(), "--accept-loss") {
				t.Errorf("Got %v, want that records are missing", err)
			}
		}
		refused()
		accept := func(o *rebuild.Options) { o.AcceptLoss = true; o.BatchRecords = 10 }
		ctx, cancel := context.WithCancel(t.Context())
		r := w.open(accept, func(o *rebuild.Options) { o.Progress = func(rebuild.Progress) { cancel() } })
		if err := r.Count(ctx); !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		w.ok(r.Close(t.Context()))
		refused()
		w.ok(w.cluster.DeleteRecords("pages", 1, 99)) // amid the count
		r = w.open(accept)
		w.ok(r.Count(t.Context()))
		w.ok(r.Close(t.Context()))
		refused()
		r = w.open(accept)
		w.ok(r.Count(t.Context()))
		w.ok(r.Discard(t.Context()))
		w.ok(r.Close(t.Context()))
	})
}

// Offsets that the pipeline has given up, too, are no loss of the count.
func TestRebuildOfSkippedOffsetsGoesOn(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(100)
		w.ingest()
		all, err := store.AllProgress(t.Context(), w.engine)
		w.ok(err)
		for i := range all {
			next := all[i].Progress
			next.Skip(next.Next+5, store.SkippedCorrupt)
			var b store.Batch
			b.Advance(all[i].Source, all[i].Partition, all[i].Progress.Next, next)
			w.ok(w.engine.Apply(t.Context(), &b))
		}
		w.produce(10)
		for range 2 {
			r := w.open()
			w.ok(r.Count(t.Context()))
			w.ok(r.Close(t.Context()))
		}
		r := w.open()
		w.ok(r.Switch(t.Context()))
		w.ok(r.Close(t.Context()))
	})
}

// The families of a rebuild are dropped whatever the names of those are that they stand
// beside: a table may have one with the mark in its name.
func TestDiscardOfMarkedNames(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		marked := &store.TableDescriptor{Name: "marked", Families: []store.FamilyDescriptor{store.NewFamily("by~day"), store.NewFamily("by~views~x"), store.NewFamily("other~views2~1")}}
		marked.Families[0].Counter = true
		w.ok(w.engine.CreateTable(t.Context(), marked, nil))
		w.rules = func(s *mapping.Spec) {
			more := s.Rules[1]
			more.Table, more.Increment = "marked", []mapping.IncrementSpec{{Family: "by~day", Qualifier: `"n"`}}
			s.Rules = append(s.Rules, more)
		}
		w.produce(20)
		w.ingest()
		r := w.open()
		w.ok(r.Count(t.Context()))
		w.ok(r.Discard(t.Context()))
		w.ok(r.Close(t.Context()))
		d, err := w.engine.Table(t.Context(), "marked")
		w.ok(err)
		var names []string
		for i := range d.Families {
			names = append(names, d.Families[i].Name)
		}
		if diff := cmp.Diff([]string{"by~day", "by~views~x", "other~views2~1"}, names); diff != "" {
			t.Errorf("families after the discard (-want +got):\n%s", diff)
		}
	})
}

// A pipeline's name may have what the name of a family may not.
func TestRebuildOfAnyName(t *testing.T) {
	const name = `a:b/c\d=3A` + "é "
	engines(t, func(t *testing.T, w *world) {
		w.name = name + "e"
		named := func(o *rebuild.Options) { o.Pipeline = w.name }
		w.produce(100)
		w.ingest()
		w.damage()
		r := w.open(named)
		w.ok(r.Count(t.Context()))
		w.ok(r.Close(t.Context()))
		want := fmt.Sprintf("ingest replay rebuild %s\"", w.name)
		if err := pipeline.CheckNoRebuild(t.Context(), w.engine, w.name); !errors.Is(err, pipeline.ErrRebuilding) || !strings.Contains(err.Error(), want) {
			t.Errorf("Got %v, want %s", err, want)
		}
		w.ok(pipeline.CheckNoRebuild(t.Context(), w.engine, "a"))
		w.ok(rebuild.Discard(t.Context(), w.engine, w.name, &store.RebuildHolder{}))
		w.ok(pipeline.CheckNoRebuild(t.Context(), w.engine, w.name))
		r = w.open(named)
		w.ok(r.Count(t.Context()))
		w.ok(r.Switch(t.Context()))
		w.ok(r.Close(t.Context()))
		w.check()
	})
}

// TestRebuildOfReadOnlyTable: a table that is READONLY while its counters are counted anew ends
// the count with what to do, which goes on afterwards; no record counts as a dead letter for it.
// One into which the records only put does not matter: nothing of that is written.
func TestRebuildOfReadOnlyTable(t *testing.T) {
	engines(t, func(t *testing.T, w *world) {
		w.produce(300)
		w.ingest()
		readOnly := func(table string, yes bool) {
			t.Helper()
			d, err := w.engine.Table(t.Context(), table)
			w.ok(err)
			d = d.Clone()
			d.ReadOnly = yes
			w.ok(w.engine.AlterTable(t.Context(), d))
		}
		w.damage()
		readOnly("events", true)
		readOnly("counts", true)
		r := w.open()
		for range 2 {
			err := r.Count(t.Context())
			if !errors.Is(err, store.ErrTableReadOnly) || !strings.Contains(err.Error(), "alter 'counts', READONLY => false in the shell") {
				t.Errorf("Got %v, want that counts is read-only", err)
			}
		}
		readOnly("counts", false)
		w.ok(r.Count(t.Context()))
		live, err := store.AllProgress(t.Context(), w.engine)
		w.ok(err)
		var want rebuild.Totals
		for _, p := range live {
			if p.Source.Pipeline == "views" {
				want.Applied, want.Filtered, want.Dead = want.Applied+p.Progress.Applied, want.Filtered+p.Progress.Filtered, want.Dead+p.Progress.Dead
			}
		}
		if d := cmp.Diff(want, r.Totals()); d != "" {
			t.Errorf("totals (-pipeline +rebuild):\n%s", d)
		}
		w.ok(r.Switch(t.Context()))
		w.check()
	})
}
