package pipeline

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
	"sluice/store"
)

// ledgerPlan has everything that the store decides in the order of records: puts
// and deletes under a check, appends, deletes of counters that are added to, and
// event ids that are kept for ttl. Rows and ids are of one partition, so that the order of its records
// alone decides.
func ledgerPlan(t testing.TB, ttl time.Duration) *mapping.Plan {
	t.Helper()
	row := `partition + "/" + user`
	first := func(op, value string) *mapping.CheckSpec {
		return &mapping.CheckSpec{Family: "e", Qualifier: `"first"`, Op: op, Value: value}
	}
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Dedup:  mapping.DedupSpec{ID: `partition + "/" + id`, TTL: ttl},
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: row, When: `kind == "set"`, Check: first("absent", ""), Put: map[string]map[string]string{"e": {"first": "v"}}},
			{Table: "events", Row: row, When: `kind == "log"`, Append: map[string]map[string]string{"e": {"log": `v + ","`}}},
			{Table: "events", Row: row, When: `kind == "reset"`, Check: first("==", "v"), Delete: []mapping.DeleteSpec{{What: "column", Family: "e", Qualifier: `"first"`}}},
			{Table: "counts", Row: row, When: `kind == "count" or kind == "set"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
			{Table: "counts", Row: row, When: `kind == "zero"`, Check: &mapping.CheckSpec{Family: "c", Qualifier: `"n"`, Op: ">=", Value: "int64(3)"}, Delete: []mapping.DeleteSpec{{What: "row"}}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return plan
}

// ledgerEvent is one record for ledgerPlan.
type ledgerEvent struct{ id, user, kind, v string }

func (e *ledgerEvent) String() string {
	return fmt.Sprintf(`{"id":%q,"user":%q,"kind":%q,"v":%q}`, e.id, e.user, e.kind, e.v)
}

// ledger is what a log becomes.
type ledger struct {
	First, Log                          map[string]string
	Counts                              map[string]int64
	Applied, Filtered, Duplicate, Unmet int64
}

func newLedger() *ledger {
	return &ledger{First: map[string]string{}, Log: map[string]string{}, Counts: map[string]int64{}}
}

// apply is what ledgerPlan says, in as many words.
func (l *ledger) apply(partition int32, seen map[string]bool, e *ledgerEvent) {
	row := fmt.Sprintf("%d/%s", partition, e.user)
	if e.kind == "skip" {
		l.Filtered++
		return
	}
	if seen[e.id] {
		l.Duplicate++
		return
	}
	had, has := l.First[row]
	switch {
	case e.kind == "set":
		if !has {
			l.First[row] = e.v
		}
		l.Counts[row]++ // whether the check holds or not
	case e.kind == "log":
		l.Log[row] += e.v + ","
	case e.kind == "count":
		l.Counts[row]++
	case e.kind == "reset" && has && had == e.v:
		delete(l.First, row)
	case e.kind == "zero" && l.Counts[row] >= 3:
		delete(l.Counts, row)
	default:
		l.Unmet++
		return
	}
	l.Applied++
	seen[e.id] = true
}

// readLedger returns what the store holds, and whether the audit equation does.
func readLedger(t testing.TB, e store.Engine) *ledger {
	t.Helper()
	l := newLedger()
	for _, table := range []string{"events", "counts"} {
		sc := e.Scan(t.Context(), &store.Scan{Table: table})
		defer sc.Close()
		for sc.Next() {
			r := sc.Row()
			for i := range r.Cells {
				switch c := &r.Cells[i]; string(c.Qualifier) {
				case "first":
					l.First[string(r.Key)] = string(c.Value)
				case "log":
					l.Log[string(r.Key)] = string(c.Value)
				case "n":
					l.Counts[string(r.Key)] = int64(binary.BigEndian.Uint64(c.Value))
				}
			}
		}
		if err := sc.Err(); err != nil {
			t.Fatal(err)
		}
	}
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	for i := range all {
		p := &all[i].Progress
		if !p.Balanced() {
			t.Errorf("Got progress of partition %d out of balance: %+v", all[i].Partition, p)
		}
		l.Applied += p.Applied
		l.Filtered += p.Filtered
		l.Duplicate += p.Duplicate
		l.Unmet += p.Unmet
	}
	return l
}

// What the store decides is decided once and in the order of records, whatever
// fails, dies or is there twice; what was dropped is counted as often.
func TestUnitsAreExact(t *testing.T) {
	t.Parallel()
	n := *seeds
	if testing.Short() {
		n /= 5
	}
	for seed := range n {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { simulateLedger(t, newEngine(t), uint64(seed), 1000*time.Hour) })
		})
	}
	for seed := range uint64(5) {
		t.Run(fmt.Sprint("pebble", seed), func(t *testing.T) {
			t.Parallel()
			simulateLedger(t, newPebble(t), seed, 1000*time.Hour)
		})
	}
}

func simulateLedger(t *testing.T, e store.Engine, seed uint64, ttl time.Duration) {
	const partitions = 3
	rng := rand.New(rand.NewPCG(seed, 11))
	b := newFakeBroker(partitions)
	b.rng = rand.New(rand.NewPCG(rng.Uint64(), 1))
	want := newLedger()
	seen := [partitions]map[string]bool{{}, {}, {}}
	produce := func() {
		n := int32(rng.IntN(partitions))
		ev := &ledgerEvent{
			id: fmt.Sprint(rng.IntN(150)), user: string(rune('a' + rng.IntN(4))), v: fmt.Sprint(rng.IntN(3)),
			kind: []string{"set", "set", "log", "count", "count", "reset", "zero", "skip"}[rng.IntN(8)],
		}
		b.produce(n, ev.String())
		want.apply(n, seen[n], ev)
	}
	var mu sync.Mutex
	faults := rand.New(rand.NewPCG(rng.Uint64(), 2))
	calm := false
	faulty := &faultyEngine{Engine: e, fault: func(*store.Batch) (bool, error) {
		mu.Lock()
		defer mu.Unlock()
		if calm {
			return true, nil
		}
		switch faults.IntN(8) {
		case 0: // lost before
			return false, store.ErrTransient
		case 1: // lost reply
			return true, store.ErrTransient
		case 2:
			return true, errors.New("connection reset")
		}
		return true, nil
	}}
	plan := ledgerPlan(t, ttl)
	begin := func(e store.Engine, of ...int32) *running {
		p := newTest(t, e, b, killed, func(o *Options) {
			o.InFlight = 1 + rng.IntN(3)
			o.Flush.MaxRecords = 1 + rng.IntN(20)
		})
		p.newMapper = func() mapper { return plan.NewMapper() }
		return start(t, p, of...)
	}
	var owners []*running
	for range 20 {
		if rng.IntN(3) == 0 {
			owners = append(owners, begin(faulty, []int32{0, 1, 2}[:1+rng.IntN(partitions)]...))
		}
		if len(owners) > 0 && rng.IntN(4) == 0 {
			if err := owners[0].close(); err != nil {
				t.Fatal(err)
			}
			owners = owners[1:]
		}
		for range rng.IntN(40) {
			produce()
		}
		<-time.After(time.Duration(rng.IntN(3)) * time.Millisecond)
	}
	for _, o := range owners {
		if err := o.close(); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	calm = true
	mu.Unlock()
	last := begin(faulty, 0, 1, 2)
	for range 50 {
		produce()
	}
	last.caughtUp(b)
	for _, p := range last.Status().Partitions {
		stored, _, err := store.ReadProgress(t.Context(), e, &store.Source{Pipeline: "p", Topic: "t", ClusterID: "c", TopicID: [16]byte{1}}, p.Partition)
		if err != nil || p.Progress != stored {
			t.Errorf("Got %+v in the status, %+v stored, %v", p.Progress, stored, err)
		}
	}
	if err := last.close(); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, readLedger(t, e)); d != "" {
		t.Errorf("Got other contents than the log has (-want +got):\n%s", d)
	}
	if want.Unmet == 0 || want.Duplicate == 0 {
		t.Errorf("Got a log that shows nothing: %+v", want)
	}
}

// pickyMapper refuses events with the value "bad".
type pickyMapper struct{ mapper }

func (m *pickyMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	if strings.Contains(string(r.Value), `"v":"bad"`) {
		return nil, &mapping.Error{Stage: mapping.StageMap, Class: "bad_value", Err: errors.New("bad")}
	}
	return m.mapper.Map(r)
}

// A letter that is redriven has its checks tested and its event id looked up as
// any record; where its event was applied meanwhile, it is left out.
func TestRedriveOfUnits(t *testing.T) {
	t.Parallel()
	for name, e := range map[string]store.Engine{"mem": newEngine(t), "pebble": newPebble(t)} {
		b := newFakeBroker(1)
		for _, ev := range []ledgerEvent{
			{"1", "a", "set", "bad"},
			{"1", "a", "set", "x"}, // the same event, sent again and better
			{"2", "b", "set", "bad"},
			{"3", "b", "log", "bad"},
			{"2", "b", "log", "bad"},
			{"4", "c", "set", "y"},
			{"5", "c", "set", "bad"}, // the check does not hold any more
		} {
			b.produce(0, ev.String())
		}
		plan := ledgerPlan(t, 1000*time.Hour)
		p := newTest(t, e, b)
		p.newMapper = func() mapper { return &pickyMapper{plan.NewMapper()} }
		r := start(t, p, 0)
		r.caughtUp(b)
		if err := r.close(); err != nil {
			t.Fatal(err)
		}
		redrive := func() RedriveCounts {
			o := &RedriveOptions{Engine: e}
			o.Filter.Pipeline = "p"
			counts, err := newRedrive(o, func() mapper { return plan.NewMapper() }, "v2").run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return counts
		}
		if got := redrive(); got.Applied != 3 || got.Filtered != 2 || got.Refused+got.Overtaken != 0 {
			t.Errorf("%s: Got %+v, want 3 applied and 2 filtered", name, got)
		}
		if got := redrive(); got != (RedriveCounts{}) {
			t.Errorf("%s: Got %+v the second time, want nothing", name, got)
		}
		want := newLedger()
		want.First = map[string]string{"0/a": "x", "0/b": "bad", "0/c": "y"}
		want.Log = map[string]string{"0/b": "bad,"}
		want.Counts = map[string]int64{"0/a": 1, "0/b": 1, "0/c": 2}
		want.Applied = 2 // as the letters' own counts say what became of them
		if d := cmp.Diff(want, readLedger(t, e)); d != "" {
			t.Errorf("%s: contents (-want +got):\n%s", name, d)
		}
	}
}
