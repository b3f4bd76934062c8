package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/cell"
	"sluice/pipeline/kafka"
	"sluice/store"
)

func audit(t *testing.T, e store.Engine, b *fakeBroker, compacted bool) []Audit {
	t.Helper()
	a := &auditor{AuditOptions: &AuditOptions{Store: e, Deep: true}, broker: b, compacted: func(context.Context, string) (bool, error) { return compacted, nil }}
	all, err := a.run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestAuditHolds(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(2)
			values := []string{"a", "bad:a", "skip", "-", "bad:skip", "huge", "-", "-", "panic", "bad:bad"}
			for i := range 500 {
				b.produce(int32(i%2), values[i*i%len(values)])
			}
			ingest(t, e, b, withPoison(Poison{Policies: map[string]Policy{"panic": DropRecords}}))
			if _, err := redriveWith(t.Context(), e, &RedriveOptions{}); err != nil {
				t.Fatal(err)
			}
			for _, a := range audit(t, e, b, false) {
				if len(a.Problems)+len(a.Notes) > 0 || a.From != 0 || a.Records != a.records() || a.Redriven == 0 || a.Letters != a.Progress.Dead {
					t.Errorf("Got %+v, want no problem and all records counted again", a)
				}
			}
			// Retention takes records, their letters stay; what is left is counted.
			b.trim(0, 101)
			for i, a := range audit(t, e, b, false) {
				if len(a.Problems) > 0 || (len(a.Notes) > 0) != (i == 0) || a.From != int64([]int{101, 0}[i]) {
					t.Errorf("Got %+v after retention", a)
				}
			}
			b.trim(0, 1000)
			if a := audit(t, e, b, false)[0]; len(a.Problems) > 0 || a.Records != 0 {
				t.Errorf("Got %+v after retention of all", a)
			}
		})
	}
}

// What rebuilds of counters have read is no part of the audit, unless it is named: it ends
// with the rebuild, and each of the topic is another reading of it.
func TestAuditLeavesRebuilds(t *testing.T) {
	t.Parallel()
	for name, open := range bothEngines() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := open(t), newFakeBroker(1)
			for range 20 {
				b.produce(0, "a")
			}
			ingest(t, e, b)
			all, err := store.AllProgress(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			for _, generation := range []string{"~1", "~2"} {
				src := all[0].Source
				src.Pipeline += generation
				var batch store.Batch
				batch.Advance(src, 0, store.Absent, store.Progress{Next: 10, Applied: 10, LeaderEpoch: -1, LastOffset: -1})
				if err := e.Apply(t.Context(), &batch); err != nil {
					t.Fatal(err)
				}
			}
			b.trim(0, 15)
			for _, c := range []struct{ names, want []string }{
				{nil, []string{"p"}}, {[]string{"p", "p~2"}, []string{"p", "p~2"}},
			} {
				a := &auditor{AuditOptions: &AuditOptions{Store: e, Deep: true, Pipelines: c.names}, broker: b, compacted: func(context.Context, string) (bool, error) { return false, nil }}
				found, err := a.run(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				var names []string
				for i := range found {
					names = append(names, found[i].Source.Pipeline)
				}
				if !slices.Equal(names, c.want) {
					t.Errorf("Got audits of %s, want %s", names, c.want)
				}
			}
		})
	}
}

func TestAuditNamesWhatDoesNotHold(t *testing.T) {
	t.Parallel()
	// progress stores another progress in place of the partition's.
	progress := func(change func(p *store.Progress)) func(*testing.T, store.Engine, *fakeBroker) {
		return func(t *testing.T, e store.Engine, _ *fakeBroker) {
			all, err := store.AllProgress(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			var b store.Batch
			p := all[0].Progress
			change(&p)
			b.Advance(all[0].Source, 0, all[0].Progress.Next, p)
			if err := e.Apply(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
		}
	}
	letter := func(t *testing.T, e store.Engine) []byte {
		for d, err := range ScanLetters(t.Context(), e, &LetterFilter{}) {
			if err != nil {
				t.Fatal(err)
			}
			return d.AppendRow(nil)
		}
		return nil
	}
	for _, c := range []struct {
		name      string
		spoil     func(*testing.T, store.Engine, *fakeBroker)
		compacted bool
		want      string // a part of the one problem; empty = none
		note      string
	}{
		{"one counted twice", progress(func(p *store.Progress) { p.Applied++ }), false, "offsets 0 to 6 are 7, the counts add up to 8", ""},
		{"one not counted", progress(func(p *store.Progress) { p.Filtered-- }), false, "add up to 6", ""},
		{"negative", progress(func(p *store.Progress) { p.Applied, p.Control = p.Applied+2, -1 }), false, "control is -1", ""},
		{"record counted as a gap", progress(func(p *store.Progress) { p.Applied, p.Control = p.Applied-1, p.Control+1 }), false, "1 are missing in the counts", ""},
		{"gap counted as a record", progress(func(p *store.Progress) { p.Applied, p.Control = p.Applied+1, p.Control-1 }), false, "1 records are counted too many", ""},
		{"dead counted as applied", progress(func(p *store.Progress) { p.Applied, p.Dead = p.Applied+1, p.Dead-1 }), false, "1 records are counted as dead letters, the outbox has 2", ""},
		{"log truncated", func(_ *testing.T, _ store.Engine, b *fakeBroker) { b.change(func() { b.logs[0].end = 5 }) }, false, "the log ends at 5", ""},
		{"log written again", func(_ *testing.T, _ store.Engine, b *fakeBroker) {
			b.change(func() {
				l := b.logs[0]
				l.records, l.end = l.records[:len(l.records)-1], l.end-1
			})
			b.produce(0, "c", "d")
		}, false, "the log is not the one that was applied: found a record with fingerprint", ""},
		{"log written again in another epoch", func(_ *testing.T, _ store.Engine, b *fakeBroker) {
			b.change(func() { b.epochs = map[int32]int64{0: 6} })
		}, false, "found leader epoch 0 ending at offset 6", ""},
		{"retention was faster", func(_ *testing.T, _ store.Engine, b *fakeBroker) {
			b.produce(0, "c", "d", "e")
			b.trim(0, 9)
		}, false, "", "offsets 7 to 8 (2 records or fewer) are gone from Kafka before they were applied"},
		{"topic made anew", func(_ *testing.T, _ store.Engine, b *fakeBroker) { b.recreate() }, false, "", "another topic of this name"},
		{"letter deleted", func(t *testing.T, e store.Engine, _ *fakeBroker) {
			m := cell.Mutation{Table: store.OutboxTable, Row: letter(t, e), Ops: []cell.Op{{Type: cell.OpDeleteRow, Time: cell.Latest}}}
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}, false, "2 records are counted as dead letters, the outbox has 1", ""},
		{"letter redriven and not counted", func(t *testing.T, e store.Engine, _ *fakeBroker) {
			m := cell.Mutation{Table: store.OutboxTable, Row: letter(t, e)}
			m.Put(store.OutboxFamily, []byte("redriven"), 1, []byte("5"))
			m.Put(store.OutboxFamily, []byte("redriven_as"), 1, []byte("applied"))
			if _, err := e.MutateRow(t.Context(), nil, &m); err != nil {
				t.Fatal(err)
			}
		}, false, "0 dead letters are counted as redriven and not purged (0 applied, 0 filtered), the outbox has 1 (1, 0)", ""},
		{"records are gone", compact, false, "2 records are counted too many", ""},
		{"records are compacted", compact, true, "", "the topic is compacted"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			b.produce(0, "a", "bad", "skip", "-", "a", "bad", "b")
			ingest(t, e, b)
			c.spoil(t, e, b)
			a := audit(t, e, b, c.compacted)[0]
			if c.want == "" && len(a.Problems) > 0 || c.want != "" && !slices.ContainsFunc(a.Problems, func(s string) bool { return strings.Contains(s, c.want) }) {
				t.Errorf("Got problems %q, want %q", a.Problems, c.want)
			}
			if !strings.Contains(strings.Join(a.Notes, "\n"), c.note) {
				t.Errorf("Got notes %q, want %q", a.Notes, c.note)
			}
		})
	}
}

// A user that may read a topic need not be let see its settings: what it reads is compared.
func TestAuditWithoutTopicSettings(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a", "bad", "skip", "-", "a", "bad", "b")
	ingest(t, e, b)
	a := &auditor{AuditOptions: &AuditOptions{Store: e, Deep: true}, broker: b, compacted: func(context.Context, string) (bool, error) {
		return false, fmt.Errorf("read cleanup.policy: %w", kafka.ErrAuth)
	}}
	if all, err := a.run(t.Context()); err != nil || len(all) != 1 || len(all[0].Problems)+len(all[0].Notes) > 0 || all[0].Records != 6 {
		t.Fatalf("Got %+v, %v, want all records counted again", all, err)
	}
	compact(t, e, b)
	all, err := a.run(t.Context())
	if err != nil || len(all[0].Problems) != 1 || len(all[0].Notes) != 1 || !strings.Contains(all[0].Notes[0], "DESCRIBE_CONFIGS") {
		t.Errorf("Got %+v, %v, want the gap, and that it may be compaction's", all, err)
	}
}

// compact takes the records at 0 and 4 from the log.
func compact(_ *testing.T, _ store.Engine, b *fakeBroker) {
	b.change(func() {
		b.logs[0].records = slices.DeleteFunc(b.logs[0].records, func(r kafka.Record) bool { return r.Offset == 0 || r.Offset == 4 })
	})
}

// Partitions without a leader are waited for together, and the others are audited.
func TestAuditWithoutLeaders(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, client := virtualCluster(t, 6)
		c.produce("pages", 600)
		e := newEngine(t)
		p, err := New(&Options{Name: "p", Topics: []string{"pages"}, Client: client(), Plan: testPlan(t, e), Engine: e, Static: true, Logger: testLogger(t)})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		c.kfake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Partitions: []int32{1, 2, 4, 5}, Err: kerr.LeaderNotAvailable, Count: -1})
		begun := time.Now()
		all, err := RunAudit(t.Context(), &AuditOptions{Store: e, Client: client(), Deep: true})
		if !kafka.Temporary(err) || len(all) != 2 || len(all[0].Problems)+len(all[1].Problems) != 0 {
			t.Errorf("Got %+v, %v", all, err)
		}
		if took := time.Since(begun); took > 15*time.Second {
			t.Errorf("Got the audit after %v, want one wait of 10s", took)
		}
	})
}

// askedBroker counts what is asked of a fakeBroker, by question.
type askedBroker struct {
	*fakeBroker
	asked map[string]int
}

func (b *askedBroker) topic(ctx context.Context, name string) (topicInfo, error) {
	b.asked["topic"]++
	return b.fakeBroker.topic(ctx, name)
}

func (b *askedBroker) offsets(ctx context.Context, topic string, partitions []int32) (map[int32]span, error) {
	b.asked["offsets"]++
	return b.fakeBroker.offsets(ctx, topic, partitions)
}

func (b *askedBroker) logEnds(ctx context.Context, topic string, partitions []int32) (map[int32]int64, error) {
	b.asked["ends"]++
	return b.fakeBroker.logEnds(ctx, topic, partitions)
}

// A topic is asked about once in a run, however many partitions it has, and anew in the next.
func TestAuditAsksOnce(t *testing.T) {
	t.Parallel()
	e, b := newEngine(t), newFakeBroker(5)
	for n := range int32(5) {
		b.produce(n, "a", "-", "bad")
	}
	ingest(t, e, b)
	a := &auditor{AuditOptions: &AuditOptions{Store: e, Deep: true}}
	for end := int64(3); end < 5; end++ {
		asked := &askedBroker{b, map[string]int{}}
		a.broker = asked
		all, err := a.run(t.Context())
		if err != nil || len(all) != 5 {
			t.Fatalf("Got %d audits and %v", len(all), err)
		}
		for i := range all {
			if one := &all[i]; len(one.Problems) > 0 || one.LogEnd != end || one.Records != 2 {
				t.Errorf("Got %+v, want no problem and an end at %d", one, end)
			}
		}
		if d := cmp.Diff(map[string]int{"topic": 1, "offsets": 1, "ends": 1}, asked.asked); d != "" {
			t.Errorf("Got other questions (-want +got):\n%s", d)
		}
		for n := range int32(5) {
			b.produce(n, "c")
		}
	}
}

func TestAuditReportsWhatCannotBeRead(t *testing.T) {
	t.Parallel()
	if _, err := RunAudit(t.Context(), nil); !errors.Is(err, store.ErrInvalidArgument) {
		t.Errorf("Got %v, want ErrInvalidArgument", err)
	}
	e, b := newEngine(t), newFakeBroker(1)
	b.produce(0, "a")
	ingest(t, e, b)
	b.change(func() { b.broken = kafka.ErrAuth })
	a := &auditor{AuditOptions: &AuditOptions{Store: e}, broker: b}
	if _, err := a.run(t.Context()); !errors.Is(err, kafka.ErrAuth) || !strings.Contains(err.Error(), "t/0") {
		t.Errorf("Got %v, want ErrAuth with the partition", err)
	}
	bad := &erring{fakeBroker: b, err: &kafka.PartitionError{Topic: "t", Partition: 0, Err: kafka.ErrAuth}}
	b.change(func() { b.broken = nil })
	if _, err := (&auditor{AuditOptions: a.AuditOptions, broker: bad}).run(t.Context()); !errors.Is(err, kafka.ErrAuth) || strings.Count(err.Error(), "t/0") != 1 {
		t.Errorf("Got %v of a partition that cannot be read, want it named once", err)
	}
	b.change(func() { b.broken = kafka.ErrTopicNotFound })
	if all, err := a.run(t.Context()); err != nil || len(all[0].Notes) != 1 || len(all[0].Problems) != 0 {
		t.Errorf("Got %+v, %v of a topic that is gone, want a note", all, err)
	}
	b.change(func() { b.broken, b.info.id = nil, [16]byte{} })
	if _, err := a.run(t.Context()); err == nil || !strings.Contains(err.Error(), "no topic id") {
		t.Errorf("Got %v of a topic whose id is not told, want that", err)
	}
	a.Pipelines = []string{"q"}
	if all, err := a.run(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("Got %+v, %v of another pipeline", all, err)
	}
}

// erring is a fakeBroker whose partitions cannot be read.
type erring struct {
	*fakeBroker
	err error
}

func (b *erring) fetcher(map[string][16]byte) fetcher { return b }

func (b *erring) reader(topic string, partition int32, offset int64) reader {
	return &erringReader{b.fakeBroker.reader(topic, partition, offset), b.err}
}

type erringReader struct {
	reader
	err error
}

func (r *erringReader) Next(context.Context) (*kafka.Batch, error) { return nil, r.err }

// trimming is a fakeBroker whose retention removes records below an offset while they are read.
type trimming struct {
	*fakeBroker
	below []int64 // of partition 0, each once a batch of it was read
}

type trimmingReader struct {
	reader
	b *trimming
}

func (b *trimming) fetcher(map[string][16]byte) fetcher { return b }

func (b *trimming) reader(topic string, partition int32, offset int64) reader {
	return &trimmingReader{b.fakeBroker.reader(topic, partition, offset), b}
}

func (r *trimmingReader) Next(ctx context.Context) (*kafka.Batch, error) {
	batch, err := r.reader.Next(ctx)
	if err == nil && len(r.b.below) > 0 {
		r.b.trim(0, r.b.below[0])
		r.b.below = r.b.below[1:]
	}
	return batch, err
}

// Retention that overtakes a deep audit leaves less to count again, and is no reason to give up.
func TestDeepAuditAmidRetention(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		below         []int64
		from, records int64
	}{
		"nothing":    {nil, 0, 450},
		"behind":     {[]int64{1}, 0, 450},
		"once":       {[]int64{200}, 200, 270},
		"twice":      {[]int64{200, 400}, 400, 90},
		"everything": {[]int64{500}, 500, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e, b := newEngine(t), newFakeBroker(1)
			for i := range 500 {
				b.produce(0, []string{"a", "bad", "skip", "b", "c", "-", "d", "e", "f", "g"}[i%10])
			}
			ingest(t, e, b)
			b.rng = rand.New(rand.NewPCG(3, 4)) // batches of 40 offsets at most
			a := &auditor{AuditOptions: &AuditOptions{Store: e, Deep: true}, broker: &trimming{b, append([]int64{0}, tc.below...)}}
			all, err := a.run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			got := all[0]
			if len(got.Problems) > 0 || got.From != tc.from || got.Records != tc.records {
				t.Errorf("Got %d records from offset %d on and problems %q, want %d from %d on", got.Records, got.From, got.Problems, tc.records, tc.from)
			}
			if noted := strings.Contains(strings.Join(got.Notes, "\n"), "are gone from Kafka and were not counted again"); noted != (tc.from > 0) {
				t.Errorf("Got notes %q", got.Notes)
			}
		})
	}
}

// A partition without a leader is named, and keeps nobody from checking the others.
func TestAuditWithoutALeader(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newEngine(t)
	m := c.run(e)
	c.produce("pages", 300)
	m.wait(c.ends("pages"))
	m.close()
	client, err := kafka.NewClient(&kafka.Options{Brokers: []string{c.broker.Addr()}, RequestTimeout: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	faults := c.broker.Cluster().Fault(kfake.Fault{
		Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "pages", Partitions: []int32{1}, Err: kerr.OffsetNotAvailable, Count: -1,
	})
	all, err := RunAudit(t.Context(), &AuditOptions{Store: e, Client: client, Deep: true})
	if err == nil || !strings.Contains(err.Error(), "pages/1") || !strings.Contains(err.Error(), "OFFSET_NOT_AVAILABLE") {
		t.Errorf("Got %v, want the partition and why", err)
	}
	var checked []int32
	for _, a := range all {
		if len(a.Problems) > 0 || a.Records != a.records() {
			t.Errorf("Got %+v", a)
		}
		checked = append(checked, a.Partition)
	}
	if !slices.Equal(checked, []int32{0, 2}) {
		t.Errorf("Got partitions %v checked, want 0 and 2", checked)
	}
	faults.Remove()
	if all, err = RunAudit(t.Context(), &AuditOptions{Store: e, Client: client, Deep: true}); err != nil || len(all) != 3 {
		t.Errorf("Got %d partitions and %v", len(all), err)
	}
}

// A topic that the ACLs refuse, and a partition that they refuse to read, are named, and keep
// nobody from checking the others.
func TestAuditOfWhatIsRefused(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"ads": 1, "pages": 2}), newEngine(t)
	m := c.run(e, func(o *Options) { o.Topics = []string{"ads", "pages"} })
	c.produce("ads", 100)
	c.produce("pages", 100)
	if err := m.WaitStored(t.Context(), map[string]map[int32]int64{"ads": c.ends("ads"), "pages": c.ends("pages")}); err != nil {
		t.Fatal(err)
	}
	m.close()
	client, err := kafka.NewClient(&kafka.Options{Brokers: []string{c.broker.Addr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for _, f := range []kfake.Fault{
		{Keys: []kmsg.Key{kmsg.Metadata}, Topic: "ads"},
		{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "pages", Partitions: []int32{0}},
	} {
		f.Err, f.Count = kerr.TopicAuthorizationFailed, -1
		faults := c.broker.Cluster().Fault(f)
		all, err := RunAudit(t.Context(), &AuditOptions{Store: e, Client: client, Deep: true})
		if !kafka.OfTopic(err) || !strings.Contains(err.Error(), f.Topic+"/0") || strings.Contains(err.Error(), "/1") || len(all) != 2 {
			t.Errorf("%s: Got %d partitions and %v, want two and the third in the error", f.Topic, len(all), err)
		}
		for _, a := range all {
			if len(a.Problems) > 0 || a.Records != a.records() {
				t.Errorf("%s: Got %+v", f.Topic, a)
			}
		}
		faults.Remove()
	}
}
