package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/jobs/instant"
	"sluice/jobs/tables"
	"sluice/jobs/target"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/memstore"
	"sluice/store/pebblestore"
)

// TestSetCounters: what is set is what counting goes on from, however often it is set.
func TestSetCounters(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	count := func(family string, value []byte, at cell.Timestamp) []cell.Mutation {
		m := cell.Mutation{Table: "default:c", Row: []byte("a")}
		m.Put(family, []byte("x"), at, value)
		return []cell.Mutation{m}
	}
	set := func(n int64) {
		t.Helper()
		if err := s.SetCounters(t.Context(), count("n", binary.BigEndian.AppendUint64(nil, uint64(n)), 70)); err != nil {
			t.Fatal(err)
		}
	}
	set(7)
	set(-5)
	if err := s.Apply(t.Context(), increments(0, store.Absent, "v1", [2]string{"a", "x"}, [2]string{"a", "x"})); err != nil {
		t.Fatal(err)
	}
	m := cell.Mutation{Table: "c", Row: []byte("a")}
	m.Increment("n", []byte("x"), 100)
	res, err := s.MutateRow(t.Context(), nil, &m)
	if err != nil || len(res.Cells) != 1 || binary.BigEndian.Uint64(res.Cells[0].Value) != 97 {
		t.Fatalf("Got %+v, %v of an increment, want 97", res.Cells, err)
	}
	set(40)
	sc := s.Scan(t.Context(), &store.Scan{Table: "c", Columns: []store.Column{{Family: "n", All: true}}})
	defer sc.Close()
	if !sc.Next() || len(sc.Row().Cells) != 1 || binary.BigEndian.Uint64(sc.Row().Cells[0].Value) != 142 {
		t.Errorf("Got %+v, %v, want a count of 142", sc.Row(), sc.Err())
	}
	for _, test := range []struct {
		ms   []cell.Mutation
		want error
	}{
		{count("n", []byte("short"), 1), store.ErrInvalidArgument},
		{count("n", new(counters.Sketch).Append(nil), 1), store.ErrRefused},
		{count("n", make([]byte, 8), cell.Latest), store.ErrInvalidArgument},
		{count("f", make([]byte, 8), 1), store.ErrRefused},
		{count("none", make([]byte, 8), 1), store.ErrFamilyNotFound},
		{[]cell.Mutation{{Table: "c", Row: []byte("a")}}, store.ErrInvalidArgument},
	} {
		if err := s.SetCounters(t.Context(), test.ms); !errors.Is(err, test.want) {
			t.Errorf("%+v: Got %v, want %v", test.ms, err, test.want)
		}
	}
}

// TestSettled: a mark stands still as long as pipelines do, and there is none where a
// batch was begun, or a partition decided on, and not more.
func TestSettled(t *testing.T) {
	t.Parallel()
	mem := mustMem(t)
	g := newGateway(t, mem, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	mark := func() string {
		t.Helper()
		m, err := s.Settled(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	none := mark()
	if err := s.Apply(t.Context(), increments(0, store.Absent, "v1", [2]string{"a", "x"})); err != nil {
		t.Fatal(err)
	}
	one := mark()
	if again := mark(); one == none || again != one {
		t.Errorf("Got marks %q, %q, %q", none, one, again)
	}
	// Killed between its claim and its end.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	g.inject(func(method string) fault {
		if method == "putMultiple" || method == "put" {
			cancel()
			return fault{dropBefore: true}
		}
		return fault{}
	})
	if err := s.Apply(ctx, increments(0, 1, "v1", [2]string{"a", "x"}, [2]string{"b", "x"})); err == nil {
		t.Fatal("Got no error of a process that was killed")
	}
	g.inject(nil)
	var unfinished *UnfinishedError
	if _, err := s.Settled(t.Context()); !errors.As(err, &unfinished) || unfinished.Next != 1 || unfinished.Until != 3 || unfinished.Source != views {
		t.Errorf("Got %v, want an UnfinishedError from 1 to 3", err)
	}
	if err := s.Apply(t.Context(), increments(0, 1, "v1", [2]string{"a", "x"}, [2]string{"b", "x"})); err != nil {
		t.Fatal(err)
	}
	if two := mark(); two == one {
		t.Error("Got the mark of before a batch")
	}
	// Decided where two begin, and killed before the second was.
	begins := []store.Advance{{Source: views, Partition: 0, From: store.Absent}, {Source: views, Partition: 8, From: store.Absent, Progress: store.Progress{First: 5, Next: 5, MappingVersion: "v1"}}}
	other := views
	other.Pipeline = "other"
	begins[0].Source, begins[1].Source = other, other
	if _, err := s.exact.register(t.Context(), &other, begins); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settled(t.Context()); !errors.As(err, &unfinished) || unfinished.Source != other {
		t.Errorf("Got %v, want an UnfinishedError of %v", err, other)
	}
}

func mustMem(t *testing.T) *memstore.Store {
	t.Helper()
	m, err := memstore.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// house is a topic whose records are counted by page, kept as rows, or dead, by a
// pipeline that moves from store to store.
type house struct {
	t      *testing.T
	rng    *rand.Rand
	broker *embedded.Broker
	client *kafka.Client
	plan   *mapping.Plan
	ends   map[int32]int64
	counts map[string]int64 // by page, of an independent count
	users  map[string]*counters.Sketch
	rows   map[string]string
	dead   int64
}

const housePartitions = 3

var houseTables = []string{"counts", "people", "raw"}

func newHouse(t *testing.T) *house {
	t.Helper()
	h := &house{t: t, rng: rand.New(rand.NewPCG(1, 7)), ends: map[int32]int64{}, counts: map[string]int64{}, rows: map[string]string{}, users: map[string]*counters.Sketch{}}
	var err error
	if h.broker, err = embedded.Start(&embedded.Options{Topics: map[string]int{"views": housePartitions}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.broker.Close() })
	if h.client, err = kafka.NewClient(&kafka.Options{Brokers: h.broker.Addrs()}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.client.Close() })
	h.plan, err = mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{
			{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"views"`}}},
			{Table: "people", Row: "page", Append: map[string]map[string]string{"u": {"users": "user"}}},
			{Table: "raw", Row: "id", Put: map[string]map[string]string{"e": {"page": "page"}}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// produce appends n records, every seventh or so of which is poison.
func (h *house) produce(n int) {
	h.t.Helper()
	p := h.client.NewProducer(nil)
	defer p.Close()
	for range n {
		partition := h.rng.Int32N(housePartitions)
		id, page := fmt.Sprintf("r%d-%d", partition, h.ends[partition]), fmt.Sprintf("/%d", h.rng.IntN(9))
		user := fmt.Sprintf("user-%d", h.rng.IntN(25))
		value := fmt.Sprintf(`{"id":%q,"page":%q,"user":%q}`, id, page, user)
		if h.rng.IntN(7) == 0 {
			value = "{poison"
			h.dead++
		} else {
			h.counts[page]++
			if h.users[page] == nil {
				h.users[page] = new(counters.Sketch)
			}
			h.users[page].Add([]byte(user))
			h.rows[id] = page
		}
		if err := p.Produce(h.t.Context(), "views", kafka.Message{Value: []byte(value), Partition: partition}); err != nil {
			h.t.Fatal(err)
		}
		h.ends[partition]++
	}
}

// tables makes the pipeline's tables.
func (h *house) tables(e tables.Store) {
	h.t.Helper()
	c, u := store.NewFamily("c"), store.NewFamily("u")
	c.Counter, u.Distinct = true, true
	for _, d := range []*store.TableDescriptor{
		{Name: "counts", Families: []store.FamilyDescriptor{c}},
		{Name: "people", Families: []store.FamilyDescriptor{u}},
		{Name: "raw", Families: []store.FamilyDescriptor{store.NewFamily("e")}},
	} {
		if err := e.CreateTable(h.t.Context(), d, [][]byte{[]byte("/4"), []byte("r1-3")}); err != nil {
			h.t.Fatal(err)
		}
	}
}

// cutOff is an engine of a process that is killed after some batches: nothing of the
// last is acknowledged, though the store has it, or a part.
type cutOff struct {
	store.Engine
	left atomic.Int64 // partitions apply beside each other
	kill context.CancelFunc
}

func (e *cutOff) Apply(ctx context.Context, b *store.Batch) error {
	if e.left.Add(-1) == 0 {
		e.kill()
		return errors.Join(e.Engine.Apply(context.WithoutCancel(ctx), b), context.Canceled)
	}
	return e.Engine.Apply(ctx, b)
}

// ingest runs the pipeline until all that was produced is stored, after kills.
func (h *house) ingest(e store.Engine, kills int) {
	h.t.Helper()
	for i := range kills + 1 {
		ctx, stop := context.WithCancel(h.t.Context())
		engine := e
		if i < kills {
			c := &cutOff{Engine: e, kill: stop}
			c.left.Store(1 + h.rng.Int64N(4))
			engine = c
		}
		p, err := pipeline.New(&pipeline.Options{
			Name: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: engine, Static: true,
			Flush: pipeline.Flush{MaxRecords: 5}, DrainTimeout: -1, InFlight: 1,
		})
		if err != nil {
			h.t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- p.Run(ctx) }()
		err = p.WaitStored(ctx, map[string]map[int32]int64{"views": h.ends})
		stop()
		if runErr := <-done; i == kills && errors.Join(err, runErr) != nil {
			h.t.Fatal(err, runErr)
		}
	}
}

// check compares what a store holds with the independent count, and audits it.
func (h *house) check(name string, e store.Engine) {
	h.t.Helper()
	counts, rows, users := map[string]int64{}, map[string]string{}, map[string]string{}
	for _, table := range houseTables {
		sc := e.Scan(h.t.Context(), &store.Scan{Table: table, Versions: store.AllVersions})
		for sc.Next() {
			row := sc.Row()
			if len(row.Cells) != 1 {
				h.t.Errorf("%s: row %s of %s has %d cells", name, row.Key, table, len(row.Cells))
			}
			switch key, value := string(row.Key), row.Cells[0].Value; table {
			case "counts":
				counts[key] = int64(binary.BigEndian.Uint64(value))
			case "people":
				users[key] = string(value)
			default:
				rows[key] = string(value)
			}
		}
		if err := errors.Join(sc.Err(), sc.Close()); err != nil {
			h.t.Fatal(err)
		}
	}
	if d := cmp.Diff(h.counts, counts); d != "" {
		h.t.Errorf("%s: counts (-log +store):\n%s", name, d)
	}
	want := map[string]string{}
	for page, s := range h.users {
		want[page] = string(s.Append(nil))
	}
	if d := cmp.Diff(want, users); d != "" {
		h.t.Errorf("%s: distinct counts (-log +store):\n%s", name, d)
	}
	if d := cmp.Diff(h.rows, rows); d != "" {
		h.t.Errorf("%s: rows (-log +store):\n%s", name, d)
	}
	all, err := pipeline.RunAudit(h.t.Context(), &pipeline.AuditOptions{Store: e, Client: h.client, Deep: true})
	if err != nil {
		h.t.Fatal(err)
	}
	var dead int64
	all = slices.DeleteFunc(all, func(a pipeline.Audit) bool { return strings.Contains(a.Source.Pipeline, "~") })
	for i := range all {
		if len(all[i].Problems) > 0 {
			h.t.Errorf("%s: Got problems %q", name, all[i].Problems)
		}
		dead += all[i].Letters
	}
	if dead != h.dead || len(all) != housePartitions {
		h.t.Errorf("%s: Got %d letters of %d partitions, want %d", name, dead, len(all), h.dead)
	}
}

// move copies a store, killed on the way, and goes on.
func (h *house) move(name string, from, to tables.Store, interrupt func(n int) (cut context.Context)) {
	h.t.Helper()
	var source instant.Source
	checkpoint := "instant"
	if s, ok := from.(store.Snapshotter); ok {
		snapshot, err := s.Snapshot(h.t.Context())
		if err != nil {
			h.t.Fatal(err)
		}
		defer snapshot.Close()
		source = snapshot
	} else {
		u, err := instant.OpenUnfrozen(h.t.Context(), from, nil)
		if err != nil {
			h.t.Fatal(err)
		}
		source, checkpoint = u, u.Name()
	}
	moved, err := store.AllProgress(h.t.Context(), from) // of rebuilds, too
	if err != nil {
		h.t.Fatal(err)
	}
	o := &tables.CopyStoreOptions{Source: source, From: from, To: to, Checkpoint: checkpoint, Parallelism: 1}
	var done *tables.CopiedStore
	for n := 1; ; n++ {
		ctx := interrupt(n)
		if done, err = tables.CopyStore(ctx, o); err == nil {
			break
		}
		if ctx.Err() == nil || n > 200 {
			h.t.Fatalf("%s: %v", name, err)
		}
		_, err = tables.ReadStoreCopy(h.t.Context(), to)
		o.Resume = err == nil
		stored, storedErr := store.AllProgress(h.t.Context(), to)
		if storedErr != nil {
			h.t.Fatal(storedErr)
		}
		if len(stored) > 0 { // all was compared before
			named := *o
			named.Tables = houseTables
			if err := tables.CompareStores(h.t.Context(), &named); err != nil {
				h.t.Errorf("%s: offsets of a copy that is not whole: %v", name, err)
			}
		}
		if errors.Is(err, target.ErrNotFound) && len(stored) == len(moved) { // it died when it was whole
			done = &tables.CopiedStore{Tables: len(houseTables), Partitions: len(moved)}
			o.Resume = true
			break
		}
	}
	if done.Tables != len(houseTables) || done.Partitions != len(moved) {
		h.t.Errorf("%s: Got %+v", name, done)
	}
	if err := tables.CompareStores(h.t.Context(), o); err != nil {
		h.t.Errorf("%s: %v", name, err)
	}
	again := *o
	again.Resume = false
	if _, err := tables.CopyStore(h.t.Context(), &again); !errors.Is(err, store.ErrRefused) {
		h.t.Errorf("%s, once more: Got %v, want ErrRefused", name, err)
	}
}

func openPebble(t *testing.T) *pebblestore.DB {
	t.Helper()
	db, err := pebblestore.Open(t.TempDir(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// TestMovingHouse (I2): a pipeline moves from the embedded engine to HBase and back in
// the middle of a stream, killed now and then and with every copy cut off on the way:
// every count is that of the log, every record one row, no dead letter is lost, and the
// audit holds, all the time.
func TestMovingHouse(t *testing.T) {
	t.Parallel()
	h := newHouse(t)
	first, g, last := openPebble(t), newGateway(t, nil, false), openPebble(t)
	hbase := dial(t, nil, g)
	h.tables(first)
	h.produce(60)
	h.ingest(first, 2)
	h.check("embedded", first)

	// Cut off at writes into HBase, each time further.
	h.move("to HBase", first, hbase, func(n int) context.Context {
		return g.cutOff(t, 6*n, fault{dropAfter: true}, "put", "putMultiple", "mutateRow", "checkAndMutate", "createTable")
	})
	g.inject(nil)
	h.check("moved to HBase", hbase)
	h.produce(60)
	h.ingest(hbase, 3)
	h.check("HBase", hbase)

	// Cut off at reads of HBase.
	h.move("back", hbase, last, func(n int) context.Context {
		return g.cutOff(t, 9*n, fault{})
	})
	g.inject(nil)
	h.check("moved back", last)
	h.produce(60)
	h.ingest(last, 2)
	h.check("embedded again", last)
}
