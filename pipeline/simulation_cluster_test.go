package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
)

// The random schedule of TestRandomSchedules with everything real between log and disk:
// members of a consumer group with client, fetches, decoder, rules and relay, over a network in
// memory, three brokers in the process, and the embedded engine on a disk whose power
// fails. Members come, leave, are killed, and parted from the brokers past their session; leaders and
// coordinators move, requests are cut off, partitions are added, and transactions of
// several producers commit and abort. Counts are compared with what was produced. The seed decides
// what is done, and the goroutines' turns when it meets what.
func TestRandomClusters(t *testing.T) {
	t.Parallel()
	runSeeds(t, []string{"cluster"}, func(t *testing.T, _ string, seed uint64) string {
		return simulateCluster(t, &simulation{seed: seed})
	})
}

// What makes it exact, taken away, is found here, too.
func TestRandomClustersFindMutants(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: whether schedules find what is missing does not depend on the race detector")
	}
	t.Parallel()
	for name, mutant := range map[string]func(store.Engine) store.Engine{
		"no compare-and-set":             func(e store.Engine) store.Engine { return &blind{e} },
		"offset in a second batch":       func(e store.Engine) store.Engine { return &apart{e} },
		"acknowledged before the commit": func(e store.Engine) store.Engine { return &hasty{e} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			findMutant(t, func(t *testing.T, seed uint64) string {
				return simulateCluster(t, &simulation{seed: seed, broken: true, mutant: mutant})
			})
		})
	}
}

// simCluster is a simulation of members of a group.
type simCluster struct {
	*simulation
	c       *cluster
	network kfake.VirtualNetwork
	members []*simMember
	open    []*transaction
	ended   int // producers of transactions so far
}

// simMember is a process.
type simMember struct {
	*Pipeline
	wire   *wire
	client *kafka.Client
	stop   context.CancelFunc
	done   chan error
	dead   bool // its calls of the store do nothing; guarded by the simulation's mu
	apart  bool // its network is cut
}

// transaction is one that is under way.
type transaction struct {
	producer *kgo.Client
	pages    map[string]int64
}

func simulateCluster(t *testing.T, s *simulation) string {
	s.t, s.disked = t, true
	s.rng = rand.New(rand.NewPCG(s.seed, 11))
	s.chance = rand.New(rand.NewPCG(s.rng.Uint64(), 2))
	m := &simCluster{simulation: s}
	s.killAll = m.killAll
	defer s.openNew()()
	if err := m.start(); err != nil {
		t.Fatal(err)
	}
	defer m.c.broker.Close()
	defer m.c.client.Close()
	defer m.c.out.Close()
	for range 25 {
		if d := m.step(); d != "" {
			m.abandon()
			return d
		}
	}
	return m.finish()
}

// start starts brokers, and the client that produces and looks.
func (m *simCluster) start() error {
	b, err := embedded.Start(&embedded.Options{Network: &m.network, Port: 9092, Nodes: 3, Topics: map[string]int{"pages": simPartitions - 1, "pages.dead": 1}})
	if err != nil {
		return err
	}
	m.c = &cluster{t: m.t, broker: b, pages: map[string]int64{}}
	if m.c.client, err = m.newClient(&wire{network: &m.network}); err != nil {
		return err
	}
	m.c.out = m.c.client.NewProducer(nil)
	k := b.Cluster()
	dead := k.TopicInfo("pages.dead").TopicID
	for _, key := range []kmsg.Key{kmsg.Produce, kmsg.Fetch, kmsg.OffsetCommit, kmsg.OffsetFetch, kmsg.JoinGroup, kmsg.SyncGroup, kmsg.Heartbeat, kmsg.OffsetForLeaderEpoch} {
		k.ControlKey(int16(key), func(r kmsg.Request) (kmsg.Response, error, bool) {
			k.KeepControl()
			if p, ok := r.(*kmsg.ProduceRequest); ok && slices.ContainsFunc(p.Topics, func(t kmsg.ProduceRequestTopic) bool {
				return t.Topic != "pages.dead" && t.TopicID != dead
			}) {
				return nil, nil, false
			}
			m.mu.Lock()
			defer m.mu.Unlock()
			if m.calm || m.chance.IntN(25) > 0 {
				return nil, nil, false
			}
			return nil, errors.New("cut off"), true
		})
	}
	return nil
}

func (m *simCluster) newClient(w *wire) (*kafka.Client, error) {
	return kafka.NewClient(&kafka.Options{Brokers: m.c.broker.Addrs(), Dial: w.dial, Logger: testLogger(m.t)})
}

func (m *simCluster) step() string {
	rng := m.rng
	switch rng.IntN(14) {
	case 0, 1:
		if len(m.members) < 3 {
			m.begin()
		}
	case 2:
		if len(m.members) > 0 {
			return m.leave(m.take())
		}
	case 3:
		if len(m.members) > 0 {
			return m.kill(m.take())
		}
	case 4:
		if len(m.members) > 0 {
			m.cutOff(m.members[rng.IntN(len(m.members))])
		}
	case 5:
		return m.light()
	case 6:
		if err := m.moves(); err != nil {
			return err.Error()
		}
	case 7, 8:
		if err := m.transact(); err != nil {
			return err.Error()
		}
	case 9:
		return m.snapshot()
	default:
		m.c.produce("pages", rng.IntN(200))
	}
	// Now and then long enough for a session to end.
	<-time.After(time.Duration(rng.IntN(200)) * time.Millisecond * time.Duration(1+9*(rng.IntN(4)/3)))
	return ""
}

// snapshot compares the offsets with the rows and counters at one moment.
func (m *simCluster) snapshot() string {
	snap, err := m.store.(store.Snapshotter).Snapshot(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	defer snap.Close()
	got := readUnchecked(m.t, snap)
	counted := int64(0)
	for _, n := range got.Counts {
		counted += n
	}
	return cmp.Diff([]int64{got.Progress.Applied, got.Progress.Applied, got.Progress.Dead, 0},
		[]int64{counted, int64(len(got.Events)), int64(len(got.Letters)), int64(len(got.Unbalanced))})
}

// take takes a member out of those that run.
func (m *simCluster) take() *simMember {
	i := m.rng.IntN(len(m.members))
	p := m.members[i]
	m.members = slices.Delete(m.members, i, i+1)
	return p
}

// doomed is the store as a process has it that may be killed, after which nothing that it
// calls has an effect, and whose writes may take longer than its session in the group.
type doomed struct {
	store.Engine
	s *simulation
	p *simMember
}

var errKilled = errors.New("the process is dead")

func (e *doomed) Apply(ctx context.Context, b *store.Batch) error {
	e.s.mu.Lock()
	late := time.Duration(0)
	if !e.s.calm && e.s.chance.IntN(20) == 0 {
		late = time.Duration(e.s.chance.IntN(4000)) * time.Millisecond
	}
	e.s.mu.Unlock()
	<-time.After(late) // whoever waits for it may have given up
	e.s.mu.Lock()
	dead := e.p.dead
	e.s.mu.Unlock()
	if dead {
		return errKilled
	}
	return e.Engine.Apply(context.WithoutCancel(ctx), b)
}

// begin starts a member.
func (m *simCluster) begin() *simMember {
	rng := m.rng
	p := &simMember{wire: &wire{network: &m.network}, done: make(chan error, 1)}
	var err error
	if p.client, err = m.newClient(p.wire); err != nil {
		m.t.Fatal(err)
	}
	e := &doomed{m.engine(), m.simulation, p}
	o := &Options{
		Name: "p", Topics: []string{"pages"}, Client: p.client, Plan: testPlan(m.t, m.store), Engine: e, StoreID: "s1",
		SessionTimeout: time.Second, Heartbeat: 100 * time.Millisecond, CommitInterval: 200 * time.Millisecond,
		DrainTimeout:    time.Duration(rng.IntN(3)) * 200 * time.Millisecond,
		Fetch:           &kafka.FetchOptions{MaxWait: 20 * time.Millisecond},
		Flush:           Flush{MaxRecords: 1 + rng.IntN(100), MaxAge: 50 * time.Millisecond},
		InFlight:        1 + rng.IntN(3),
		Backfill:        Backfill{Lag: []int64{0, 20, 100}[rng.IntN(3)], MaxRecords: 1 + rng.IntN(400)},
		DeadLetterTopic: "pages.dead",
		Logger:          testLogger(m.t),
	}
	if p.Pipeline, err = New(o); err != nil {
		m.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go func() { p.done <- p.Run(ctx) }()
	m.members = append(m.members, p)
	return p
}

// leave ends a member as SIGTERM does.
func (m *simCluster) leave(p *simMember) string {
	if p.apart {
		p.wire.heal()
	}
	p.stop()
	err := <-p.done
	if cerr := p.client.Close(); err == nil {
		err = cerr
	}
	if err != nil && !m.broken {
		return err.Error()
	}
	return ""
}

// kill ends a member without a word to anybody.
func (m *simCluster) kill(p *simMember) string {
	m.mu.Lock()
	p.dead = true
	m.mu.Unlock()
	p.wire.kill()
	select {
	case err := <-p.done: // it had ended before
		p.done <- err
		if err != nil && !errors.Is(err, errKilled) && !m.broken {
			return err.Error()
		}
	default:
	}
	p.stop()
	<-p.done
	_ = p.client.Close() // its connections are gone
	return ""
}

// killAll ends all members, as a power failure does.
func (m *simCluster) killAll() string {
	for len(m.members) > 0 {
		if d := m.kill(m.take()); d != "" {
			return d
		}
	}
	return ""
}

// cutOff parts a member from the brokers, or joins them again. It goes on with what it
// has fetched meanwhile, also when others have its partitions. (That a member stands still
// is not drawn: what waits for a mutex of kafka-go holds up the bubble's time.)
func (m *simCluster) cutOff(p *simMember) {
	if p.apart {
		p.wire.heal()
	} else {
		p.wire.kill()
	}
	p.apart = !p.apart
}

// moves moves a leader, the coordinators, or adds a partition.
func (m *simCluster) moves() error {
	k := m.c.broker.Cluster()
	parts := len(m.c.ends("pages"))
	switch m.rng.IntN(5) {
	case 0:
		k.RehashCoordinators()
		return nil
	case 1:
		if parts == simPartitions {
			return nil
		}
		r := kmsg.NewPtrCreatePartitionsRequest()
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = "pages", simPartitions
		r.Topics, r.TimeoutMillis = append(r.Topics, topic), 10_000
		admin, err := m.newProducer("")
		if err != nil {
			return err
		}
		defer admin.Close()
		_, err = r.RequestWith(m.t.Context(), admin)
		return err
	}
	return k.MoveTopicPartition("pages", int32(m.rng.IntN(parts)), int32(m.rng.IntN(3)))
}

// newProducer returns a client of another kind, of transactions where id is not "".
func (m *simCluster) newProducer(id string) (*kgo.Client, error) {
	opts := []kgo.Opt{
		kgo.SeedBrokers(m.c.broker.Addrs()...), kgo.Dialer(m.network.DialContext),
		kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic("pages"),
	}
	if id != "" {
		opts = append(opts, kgo.TransactionalID(id))
	}
	return kgo.NewClient(opts...)
}

// transact begins a transaction, or goes on with the first, or ends it.
func (m *simCluster) transact() error {
	rng := m.rng
	if len(m.open) > 1 || len(m.open) > 0 && rng.IntN(3) == 0 {
		return m.end(rng.IntN(2) == 0)
	}
	if len(m.open) == 0 || rng.IntN(2) == 0 {
		p, err := m.newProducer(fmt.Sprint("tx", m.ended))
		if err != nil {
			return err
		}
		m.ended++
		m.open = append(m.open, &transaction{p, map[string]int64{}})
		if err := p.BeginTransaction(); err != nil {
			return err
		}
	}
	tx := m.open[rng.IntN(len(m.open))]
	for i := range rng.IntN(20) {
		page := fmt.Sprintf("/p%d", rng.IntN(13))
		r := &kgo.Record{Partition: int32(rng.IntN(simPartitions - 1)), Value: fmt.Appendf(nil, `{"page": %q, "user": "t%d"}`, page, i)}
		if err := tx.producer.ProduceSync(m.t.Context(), r).FirstErr(); err != nil {
			return err
		}
		tx.pages[page]++
	}
	return nil
}

// end ends the first transaction.
func (m *simCluster) end(commit bool) error {
	tx := m.open[0]
	m.open = m.open[1:]
	defer tx.producer.Close()
	if err := tx.producer.EndTransaction(m.t.Context(), kgo.TransactionEndTry(commit)); err != nil {
		return err
	}
	if commit {
		for page, n := range tx.pages {
			m.c.pages[page] += n
			m.c.total += n
		}
	}
	return nil
}

// abandon ends what runs where the schedule has failed.
func (m *simCluster) abandon() {
	m.killAll()
	for _, tx := range m.open {
		tx.producer.Close()
	}
}

// finish lets a last member apply the rest without faults, and compares.
func (m *simCluster) finish() string {
	for len(m.open) > 0 {
		if err := m.end(true); err != nil {
			return err.Error()
		}
	}
	for len(m.members) > 0 {
		if d := m.leave(m.take()); d != "" {
			m.abandon()
			return d
		}
	}
	if d := m.powerFails(); d != "" {
		return d
	}
	m.mu.Lock()
	m.calm = true
	m.mu.Unlock()
	last := m.begin()
	want := int64(0)
	for _, end := range m.c.ends("pages") {
		want += end
	}
	for range 3000 {
		if readProgress(m.t, m.store) >= want && m.relayed() {
			break
		}
		<-time.After(200 * time.Millisecond) // dead members hold the group up for half a minute
	}
	m.members = nil
	if d := m.leave(last); d != "" {
		return d
	}
	got := readUnchecked(m.t, m.store)
	if d := cmp.Diff(m.c.pages, got.Counts); d != "" {
		return d
	}
	m.c.control = want - m.c.total
	summary := []int64{got.Progress.Next, got.Progress.Applied, got.Progress.Dead, got.Progress.Control, int64(len(got.Events)), int64(len(got.Letters)), int64(len(got.Unbalanced))}
	applied := m.c.total - m.c.bad
	if d := cmp.Diff([]int64{want, applied, m.c.bad, m.c.control, applied, m.c.bad, 0}, summary); d != "" {
		return d
	}
	if m.broken {
		return ""
	}
	m.c.audit(m.store)
	letters, sent := map[string]bool{}, map[string]bool{} // at least once each
	for key := range got.Letters {
		letters[key] = true
	}
	for _, r := range m.c.read("pages.dead") {
		sent[string(r.Key)] = true
	}
	return cmp.Diff(letters, sent)
}

// relayed reports whether the dead-letter topic is said to have every letter.
func (m *simCluster) relayed() bool {
	for d, err := range ScanLetters(m.t.Context(), m.store, &LetterFilter{Brief: true}) {
		if err != nil {
			m.t.Fatal(err)
		}
		if !d.Relayed {
			return false
		}
	}
	return true
}
