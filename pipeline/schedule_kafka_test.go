package pipeline

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// The fault schedules of docs/guarantees.md that need a broker.

func often(o *Options) { o.CommitInterval = 10 * time.Millisecond }

func TestSchedule05CutOffInTheGroupCommit(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	cluster := c.broker.Cluster()
	var cuts, never atomic.Int64 // never is the sum of the offsets that are cut off each time
	cluster.ControlKey(int16(kmsg.OffsetCommit), func(req kmsg.Request) (kmsg.Response, error, bool) {
		cluster.KeepControl()
		if shownBy(req) != never.Load() && cuts.Add(1)%2 == 0 {
			return nil, nil, false
		}
		return nil, errors.New("cut off"), true
	})
	m := c.run(e, often)
	for cuts.Load() < 3 {
		c.produce("pages", 300)
		waitFor(t, func() bool { return readProgress(t, e) == c.total })
	}
	waitFor(t, func() bool { return cmp.Equal(c.ends("pages"), c.shown()) }) // what was cut off is shown again
	never.Store(c.total + 300)
	c.produce("pages", 300)
	m.wait(c.ends("pages"))
	m.close()
	if shown := sum(c.shown()); shown >= c.total {
		t.Errorf("Got %d offsets shown to the group, of %d the last of which are cut off", shown, c.total)
	}
	m = c.run(e) // the group is behind the store
	c.produce("pages", 300)
	m.wait(c.ends("pages"))
	m.close()
	c.check(e)
}

func TestSchedule12BrokerRestarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	restart := func() *embedded.Broker {
		b, err := embedded.Start(&embedded.Options{Dir: dir, Topics: map[string]int{"pages": 3}})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := restart()
	c := &cluster{t: t, broker: b, client: newClient(t, b.Addr()), pages: map[string]int64{}}
	c.out = c.client.NewProducer(nil)
	e := newSplit(t)
	m := c.run(e, often, c.through(new(wire)))
	c.produce("pages", 1000)
	m.wait(c.ends("pages"))
	c.produce("pages", 1000)
	before := c.ends("pages")
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	b = restart()
	t.Cleanup(func() { b.Close() })
	c.broker = b
	if d := cmp.Diff(before, c.ends("pages")); d != "" {
		t.Fatalf("Got another log from a broker that came back (-want +got):\n%s", d)
	}
	c.produce("pages", 1000)
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	// As a member again: the new broker takes its offsets.
	waitFor(t, func() bool { return cmp.Equal(c.ends("pages"), c.shown()) })
	m.close()
	c.check(e)
}

// Transactions of several producers, one after the other in each partition and
// open beside each other, committed and aborted; one partition has aborted ones
// only. What is behind one that stays open waits for its end.
func TestSchedule25Transactions(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var producers []*kgo.Client
	for i := range 3 {
		p, err := kgo.NewClient(kgo.SeedBrokers(c.broker.Addr()), kgo.TransactionalID(fmt.Sprint("tx", i)),
			kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("pages"))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		producers = append(producers, p)
	}
	var fetched func() kafka.Histogram
	m := c.run(e, func(o *Options) { fetched = func() kafka.Histogram { return o.Client.Metrics().FetchSeconds } })
	var aborted int64
	for round := range 12 {
		for _, p := range producers {
			if err := p.BeginTransaction(); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 60 {
			who := i % 3
			abort := (round+who)%2 == 0
			page := fmt.Sprintf("/p%d", i%7)
			r := &kgo.Record{Partition: int32(i / 3 % 2), Value: fmt.Appendf(nil, `{"page": %q, "user": "u"}`, page)}
			if abort && i%4 == 0 {
				r.Partition = 2
			}
			if err := producers[who].ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
			if abort {
				aborted++
			} else {
				c.pages[page]++
				c.total++
			}
		}
		for who, p := range producers {
			end := kgo.TransactionEndTry((round+who)%2 != 0)
			if err := p.EndTransaction(ctx, end); err != nil {
				t.Fatal(err)
			}
		}
	}
	m.wait(c.ends("pages"))
	c.control = sum(c.ends("pages")) - c.total
	if c.control < 360+36 { // records that were aborted, and a marker of each transaction at least
		t.Errorf("Got a log with %d offsets of markers and aborted records: the schedule shows little", c.control)
	}
	c.check(e)

	// The first stays open while the second is through.
	for i, p := range producers[:2] {
		if err := p.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		for k := range 20 {
			r := &kgo.Record{Partition: 0, Value: fmt.Appendf(nil, `{"page": "/open%d", "user": "u%d"}`, i, k)}
			if err := p.ProduceSync(ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := producers[1].EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	before := c.ends("pages")
	all, err := c.client.LogEnds(ctx, "pages", []int32{0})
	if err != nil || all[0] < before[0]+41 {
		t.Fatalf("Got a log up to %d (%v), readable up to %d: no transaction is open", all[0], err, before[0])
	}
	m.wait(before)
	c.check(e) // of neither anything
	if err := producers[0].EndTransaction(ctx, kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		c.pages[fmt.Sprint("/open", i)] += 20
		c.total += 20
	}
	c.control += 2
	m.wait(c.ends("pages"))
	m.close()
	c.check(e)
	var counted int64
	for _, p := range allProgress(t, e) {
		counted += p.Progress.Aborted
	}
	if counted != aborted || m.Metrics().Aborted != aborted {
		t.Errorf("Got %d aborted records stored, %d counted, want %d", counted, m.Metrics().Aborted, aborted)
	}
	if s := fetched(); s.Count == 0 || s.Sum <= 0 {
		t.Errorf("Got times of fetches %+v", s)
	}
}

func sum(offsets map[int32]int64) (n int64) {
	for _, o := range offsets {
		n += o
	}
	return n
}

func TestSchedule26LeadersMove(t *testing.T) {
	t.Parallel()
	b, err := embedded.Start(&embedded.Options{Topics: map[string]int{"pages": 3}, Nodes: 3})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	c := &cluster{t: t, broker: b, client: newClient(t, b.Addr()), pages: map[string]int64{}}
	c.out = c.client.NewProducer(nil)
	e := newSplit(t)
	var moved func() int64
	m := c.run(e, func(o *Options) { moved = func() int64 { return o.Client.Metrics().LeaderMoves } })
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for i := 0; i < 20 || moved() == 0; i++ { // until it has seen a move
		c.produce("pages", 200)
		<-tick.C
		b.Cluster().ShufflePartitionLeaders()
	}
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	m.close()
	c.check(e)
}

func TestSchedule27PartitionsAdded(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newSplit(t)
	m := c.run(e, fromLatest)
	waitFor(t, func() bool { return m.Status().Generation >= 0 && len(allProgress(t, e)) == 1 })
	c.produce("pages", 100)
	admin, err := kgo.NewClient(kgo.SeedBrokers(c.broker.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = 1000
	rt := kmsg.NewCreatePartitionsRequestTopic()
	rt.Topic, rt.Count = "pages", 3
	req.Topics = append(req.Topics, rt)
	if _, err := req.RequestWith(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	c.out = newClient(t, c.broker.Addr()).NewProducer(nil)
	c.produce("pages", 300) // before anybody has looked
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	m.close()
	if n := len(c.ends("pages")); n != 3 {
		t.Fatalf("Got %d partitions", n)
	}
	c.check(e)
}

// The group's offsets are lost, or set by hand to either end of the log.
func TestSchedule33GroupOffsetsAreReset(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	for _, group := range []string{"g", "another"} {
		for _, to := range []string{"start", "end"} {
			c.produce("pages", 300)
			m := c.run(e, func(o *Options) { o.Group = group })
			m.wait(c.ends("pages"))
			m.close()
			c.produce("pages", 300)
			offsets := c.ends("pages")
			for n := range offsets {
				if to == "start" {
					offsets[n] = 0
				}
			}
			c.commit(group, offsets)
			found, err := c.client.CommittedOffsets(t.Context(), group, "pages", []int32{0, 1, 2})
			if d := cmp.Diff(offsets, found); err != nil || d != "" {
				t.Fatalf("Got other offsets of group %s (%v) than those set by hand (-want +got):\n%s", group, err, d)
			}
		}
	}
	for _, group := range []string{"g", "of no offset"} {
		m := c.run(e, func(o *Options) { o.Group = group })
		m.wait(c.ends("pages"))
		c.produce("pages", 300)
		m.wait(c.ends("pages"))
		m.close()
		c.check(e)
	}
}

// commit sets the offsets of a group by hand.
func (c *cluster) commit(group string, offsets map[int32]int64) {
	c.t.Helper()
	g, err := c.client.JoinGroup(c.t.Context(), &kafka.GroupOptions{ID: group, Topics: []string{"pages"}, StoreID: "s1", SessionTimeout: 6 * time.Second})
	if err != nil {
		c.t.Fatal(err)
	}
	gen, err := g.Next(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	if err := errors.Join(gen.Commit(c.t.Context(), map[string]map[int32]int64{"pages": offsets}), g.Close()); err != nil {
		c.t.Fatal(err)
	}
}

// Records far larger than a fetch, and one with headers of almost a megabyte that
// becomes a dead letter.
func TestSchedule35LargeRecords(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1, "pages.dead": 1}), newSplit(t)
	header := bytes.Repeat([]byte{0xff, 0, 'h'}, 300<<10)
	large := fmt.Appendf(nil, `{"page": "/large", "user": "u", "more": %q}`, bytes.Repeat([]byte("x"), 900<<10))
	for range 3 {
		c.produce("pages", 10)
		if err := c.out.Produce(t.Context(), "pages",
			kafka.Message{Value: large, Partition: 0},
			kafka.Message{Value: []byte("not json"), Partition: 0, Headers: []kafka.Header{{Key: []byte("h"), Value: header}}},
		); err != nil {
			t.Fatal(err)
		}
		c.pages["/large"]++
		c.bad++
		c.total += 2
	}
	m := c.run(e, func(o *Options) { o.Fetch.MaxPartitionBytes = 1 << 10 })
	m.wait(c.ends("pages"))
	m.close()
	c.check(e)
	sc := e.Scan(t.Context(), &store.Scan{Table: store.OutboxTable})
	defer sc.Close()
	found := 0
	for sc.Next() {
		for _, l := range sc.Row().Cells {
			if string(l.Qualifier) == "headers" && len(l.Value) > len(header) {
				found++
			}
		}
	}
	if err := sc.Err(); err != nil || found != 3 {
		t.Errorf("Got %d letters with their headers (%v), want 3", found, err)
	}
}

// A broker that takes less than a letter (message.max.bytes) gets what fits, once;
// the outbox has the whole.
func TestLettersLargerThanTheirTopicTakes(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newPebble(t)
	if err := c.broker.Cluster().CreateTopic("pages.dead", 1, map[string]string{"max.message.bytes": "20000"}); err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, 200<<10) // not to be compressed
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	if err := c.out.Produce(t.Context(), "pages",
		kafka.Message{Value: []byte("small")},
		kafka.Message{Value: noise, Key: []byte("k"), Headers: []kafka.Header{{Key: []byte("h"), Value: []byte("own")}}},
		kafka.Message{Value: []byte("small"), Headers: []kafka.Header{{Key: []byte("h"), Value: noise}}},
	); err != nil {
		t.Fatal(err)
	}
	c.total, c.bad = 3, 3
	for round := range 2 { // the second finds nothing to do
		m := c.run(e, func(o *Options) { o.DeadLetterTopic = "pages.dead" })
		m.wait(c.ends("pages"))
		if round == 0 {
			waitFor(t, func() bool { return m.Metrics().Relayed == 3 })
		} else {
			c.produce("pages", 4) // one of them bad, and after it nothing is on its way
			m.wait(c.ends("pages"))
			waitFor(t, func() bool { return m.Metrics().Relayed == 1 })
		}
		m.close()
	}
	c.check(e)
	got := map[string]int{}
	for _, l := range c.read("pages.dead") {
		m := kafka.Message{Headers: l.Headers}
		got[fmt.Sprintf("%s %s own=%q", l.Key, header(&m, "x-truncated"), header(&m, "h"))]++
		if header(&m, "x-truncated") == "value" && (!bytes.HasPrefix(noise, l.Value) || len(l.Value) < 9000 || header(&m, "x-orig-value-bytes") != fmt.Sprint(len(noise))) {
			t.Errorf("Got %d bytes of the value, headers %q", len(l.Value), l.Headers)
		}
	}
	want := map[string]int{
		`pages/0/0  own=""`: 1, `pages/0/1 value own="own"`: 1, `pages/0/2 value, headers and key own=""`: 1, `pages/0/3  own=""`: 1,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("Got other letters (-want +got):\n%s", d)
	}
}

// A batch that arrives spoiled stops its partition alone, which says where, and skips
// nothing; once it arrives as it was written, the partition goes on by itself.
func TestSchedule36SpoiledOnTheWay(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	plain := c.client.NewProducer(&kafka.ProducerOptions{Compression: kafka.None})
	t.Cleanup(func() { plain.Close() })
	w := new(wire)
	m := c.run(e, c.through(w), func(o *Options) { o.SessionTimeout = 30 * time.Second })
	c.produce("pages", 300)
	m.wait(c.ends("pages"))
	for i := range 3 {
		text := fmt.Sprintf("/spoiled%d", i)
		w.setSpoil(text)
		before := c.ends("pages")
		for n := range int32(3) {
			page := []string{text, "/good", "/good"}[n]
			value := fmt.Appendf(nil, `{"page": %q, "user": "u"}`, page)
			if err := plain.Produce(t.Context(), "pages", kafka.Message{Value: value, Partition: n}); err != nil {
				t.Fatal(err)
			}
			c.pages[page]++
			c.total++
		}
		where := fmt.Sprintf("corrupt record batch: offset %d: ", before[0])
		waitFor(t, func() bool { return strings.Contains(m.Status().Partitions[0].Paused, where) })
		m.wait(map[int32]int64{1: before[1] + 1, 2: before[2] + 1})
		if p := m.Status().Partitions[0]; p.Progress.Next != before[0] {
			t.Errorf("Got %+v, want partition 0 at offset %d, while the others go on", p, before[0])
		}
		if n := w.setSpoil(""); n <= i {
			t.Errorf("Got %d answers spoiled", n)
		}
		m.wait(c.ends("pages"))
	}
	m.close()
	c.check(e)
}

func TestSchedule37MixedCodecs(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 1}), newSplit(t)
	m := c.run(e)
	for range 3 {
		for _, codec := range []kafka.Compression{kafka.None, kafka.Gzip, kafka.Snappy, kafka.LZ4, kafka.Zstd} {
			c.out = c.client.NewProducer(&kafka.ProducerOptions{Compression: codec})
			c.produce("pages", 200)
		}
	}
	m.wait(c.ends("pages"))
	m.close()
	c.check(e)
}

// Pipelines with other rules and groups: each has its own progress, dead letters and
// event ids.
func TestSchedule38TwoPipelinesOnOneTopic(t *testing.T) {
	t.Parallel()
	c, e := newCluster(t, map[string]int{"pages": 3}), newSplit(t)
	all := &store.TableDescriptor{Name: "all", Families: []store.FamilyDescriptor{store.NewFamily("c")}}
	all.Families[0].Counter = true
	if err := e.(store.Admin).CreateTable(t.Context(), all, nil); err != nil {
		t.Fatal(err)
	}
	counting := func(row string) testOption {
		plan, err := mapping.Compile(&mapping.Spec{
			Decode: mapping.DecodeSpec{Format: "json"},
			Dedup:  mapping.DedupSpec{ID: `u16(partition) + u64(offset)`, TTL: time.Hour},
			Rules: []mapping.RuleSpec{
				{Table: "all", Row: row, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
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
		return func(o *Options) { o.Plan = plan }
	}
	one := c.run(e)
	c.produce("pages", 700)
	two := c.run(e, counting(`"q"`), func(o *Options) { o.Name = "q" })
	three := c.run(e, counting(`"r"`), func(o *Options) { o.Name = "r" })
	c.produce("pages", 700)
	one.wait(c.ends("pages"))
	one.close()
	c.produce("pages", 700) // which the second has first
	two.wait(c.ends("pages"))
	two.close()
	three.wait(c.ends("pages"))
	three.close()
	one = c.run(e)
	one.wait(c.ends("pages"))
	one.close()
	c.audit(e)
	got := readContents(t, e)
	if d := cmp.Diff(c.pages, got.Counts); d != "" {
		t.Errorf("Got other counts (-want +got):\n%s", d)
	}
	if int64(len(got.Events)) != c.total-c.bad || int64(len(got.Letters)) != c.bad || got.Progress.Next != 3*c.total || got.Progress.Dead != 3*c.bad {
		t.Errorf("Got %d rows, letters of %d records, progress %+v; want %d, %d and of each pipeline the same", len(got.Events), len(got.Letters), got.Progress, c.total-c.bad, c.bad)
	}
	counted := map[string]int64{}
	sc := e.Scan(t.Context(), &store.Scan{Table: "all"})
	defer sc.Close()
	for sc.Next() {
		counted[string(sc.Row().Key)] = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
	}
	if d := cmp.Diff(map[string]int64{"q": c.total - c.bad, "r": c.total - c.bad}, counted); d != "" || sc.Err() != nil {
		t.Errorf("Got other counts of the pipelines with event ids (%v) (-want +got):\n%s", sc.Err(), d)
	}
	applied, letters := map[string]int64{}, map[string]int64{}
	for _, p := range allProgress(t, e) {
		applied[p.Source.Pipeline] += p.Progress.Applied
	}
	if d := cmp.Diff(map[string]int64{"p": c.total - c.bad, "q": c.total - c.bad, "r": c.total - c.bad}, applied); d != "" {
		t.Errorf("Got other progress (-want +got):\n%s", d)
	}
	for l, err := range ScanLetters(t.Context(), e, &LetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		letters[l.Pipeline]++
	}
	if d := cmp.Diff(map[string]int64{"p": c.bad, "q": c.bad, "r": c.bad}, letters); d != "" {
		t.Errorf("Got other dead letters (-want +got):\n%s", d)
	}
}
