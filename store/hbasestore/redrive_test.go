package hbasestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// lettersOf puts n dead letters of a partition of views into the outbox, as a batch of
// ingest does that passes the stored offset over the first settled ones.
func lettersOf(t *testing.T, s *Store, partition int32, n, settled int64, value string) {
	t.Helper()
	var b store.Batch
	for o := range n {
		d := buffer.DeadLetter{Pipeline: views.Pipeline, Topic: views.Topic, TopicID: views.TopicID, Partition: partition, Offset: o, Time: 1000 + o, Value: []byte(value), Stage: "map", Class: "bad"}
		m, err := d.Mutation()
		if err != nil {
			t.Fatal(err)
		}
		b.Add(o, m)
	}
	b.Advance(views, partition, store.Absent, store.Progress{Next: settled, Dead: settled, LastOffset: settled - 1, LeaderEpoch: -1, MappingVersion: "m1"})
	if err := s.Apply(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// pagePlan puts and counts {"page": …}.
func pagePlan(t *testing.T, s *Store) *mapping.Plan {
	t.Helper()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json"},
		Rules: []mapping.RuleSpec{{
			Table: "c", Row: "page",
			Put:       map[string]map[string]string{"f": {"last": "page"}},
			Increment: []mapping.IncrementSpec{{Family: "n", Qualifier: `"views"`}},
		}},
	}, func(name string) *store.TableDescriptor {
		d, err := s.Table(t.Context(), name)
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

// letterStates counts the letters of views in the outbox by what became of them, and
// returns what is counted of them beside them.
func letterStates(t *testing.T, s *Store) (states map[string]int, counted buffer.Redriven) {
	t.Helper()
	states = map[string]int{}
	for d, err := range pipeline.ScanLetters(t.Context(), s, &pipeline.LetterFilter{Pipeline: views.Pipeline}) {
		if err != nil {
			t.Fatal(err)
		}
		states["dead"+d.RedrivenAs]++
	}
	all, err := pipeline.AllRedriven(t.Context(), s, views.Pipeline)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range all {
		counted.Applied += n.Applied
		counted.PurgedDead += n.PurgedDead
		counted.PurgedApplied += n.PurgedApplied
	}
	return states, counted
}

// TestRedriveOnHBase (I2): letters are redriven and purged, each once, whatever call
// loses its connection before or after it was done.
func TestRedriveOnHBase(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"no fault": {}, "lost": {dropBefore: true}, "reply lost": {dropAfter: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil, false)
			s := dial(t, nil, g)
			createCounted(t, s)
			ctx := t.Context()
			lettersOf(t, s, 0, 30, 25, `{"page": "a"}`)
			lettersOf(t, s, 1, 10, 10, `{"page": "b"}`)
			lettersOf(t, s, 2, 5, 5, `{`)
			copied := (&buffer.DeadLetter{Pipeline: views.Pipeline, Topic: views.Topic, TopicID: views.TopicID, RedrivenAs: buffer.Applied}).CountMutation()
			copied.Ops[0] = cell.Op{Type: cell.OpPut, Family: store.OutboxFamily, Qualifier: []byte("applied"), Time: 1e12, Value: binary.BigEndian.AppendUint64(nil, 100)}
			if _, err := s.MutateRow(ctx, nil, &copied); err != nil { // from a store that was moved here
				t.Fatal(err)
			}
			n := 0
			g.inject(func(method string) fault {
				switch method {
				case "getMultiple", "checkAndMutate", "put", "putMultiple", "mutateRow", "deleteSingle":
					if n++; n%7 == 0 {
						return f
					}
				}
				return fault{}
			})
			got, err := pipeline.Redrive(ctx, &pipeline.RedriveOptions{Engine: s, Plan: pagePlan(t, s), Filter: pipeline.LetterFilter{Pipeline: views.Pipeline}})
			if want := (pipeline.RedriveCounts{Applied: 35, Refused: 5}); err != nil || got != want {
				t.Errorf("Got %+v, %v, want %+v", got, err, want)
			}
			states, counted := letterStates(t, s)
			if d := cmp.Diff(map[string]int{"dead": 10, "deadapplied": 35}, states); d != "" || counted.Applied != 135 {
				t.Errorf("Got %+v and other letters (-want +got):\n%s", counted, d)
			}
			if d := cmp.Diff([]string{"a f:last", "a views = 25 @ 1024", "b f:last", "b views = 10 @ 1009"}, sums(t, s, &store.Scan{})); d != "" {
				t.Errorf("counters (-want +got):\n%s", d)
			}
			purged, err := pipeline.Purge(ctx, &pipeline.PurgeOptions{Engine: s, Filter: pipeline.LetterFilter{Pipeline: views.Pipeline, FromOffset: 4}})
			if want := (pipeline.PurgeCounts{Purged: 28}); err != nil || purged != want {
				t.Errorf("Got %+v, %v, want %+v", purged, err, want)
			}
			// 5 of partition 0 are not settled.
			states, counted = letterStates(t, s)
			if d := cmp.Diff(map[string]int{"dead": 9, "deadapplied": 8}, states); d != "" || counted.PurgedApplied != 27 || counted.PurgedDead != 1 {
				t.Errorf("Got %+v and other letters (-want +got):\n%s", counted, d)
			}
		})
	}
}

// TestRedriveIsFinished (I2): what a process has decided before it was stopped is
// carried out by the next one, even where no letter is dead any more.
func TestRedriveIsFinished(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	lettersOf(t, s, 0, 3, 3, `{"page": "a"}`)
	claims := 0
	g.inject(func(method string) fault {
		if method == "checkAndMutate" {
			claims++
		}
		if claims > 0 && (method == "put" || method == "putMultiple") {
			return fault{text: "org.apache.hadoop.hbase.DoNotRetryIOException: no"}
		}
		return fault{}
	})
	plan := pagePlan(t, s)
	if n, err := pipeline.Redrive(t.Context(), &pipeline.RedriveOptions{Engine: s, Plan: plan, Filter: pipeline.LetterFilter{Pipeline: views.Pipeline}}); err == nil {
		t.Fatalf("Got %+v and no error", n)
	}
	g.inject(nil)
	other := dial(t, nil, g)
	if _, err := other.Settled(t.Context()); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v from Settled, want ErrRefused", err)
	}
	if n, err := pipeline.Purge(t.Context(), &pipeline.PurgeOptions{Engine: other, Filter: pipeline.LetterFilter{Pipeline: "views", Class: "none"}}); err != nil || n != (pipeline.PurgeCounts{}) {
		t.Fatalf("Got %+v, %v", n, err)
	}
	if d := cmp.Diff([]string{"a f:last", "a views = 3 @ 1002"}, sums(t, other, &store.Scan{})); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	if _, err := other.Settled(t.Context()); err != nil {
		t.Error(err)
	}
	states, counted := letterStates(t, other)
	if states["deadapplied"] != 3 || counted.Applied != 3 {
		t.Errorf("Got %v, %+v", states, counted)
	}
}

// TestJournalRefuses: what no entry can do is refused before anything is written.
func TestJournalRefuses(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, func(o *Options) { o.MaxCellBytes = 64 << 10 }, g)
	createCounted(t, s)
	one := func(build func(m *cell.Mutation)) store.Record {
		m := cell.Mutation{Table: "c", Row: []byte("r")}
		build(&m)
		return store.Record{Mutations: []cell.Mutation{m}}
	}
	put := one(func(m *cell.Mutation) { m.Put("f", []byte("q"), 1, []byte("v")) })
	large := put
	large.Mutations = nil
	for i := range 3 {
		m := cell.Mutation{Table: "c", Row: fmt.Append(nil, i)}
		m.Put("f", []byte("q"), 1, make([]byte, 30<<10))
		large.Mutations = append(large.Mutations, m)
	}
	once, checks, ranged := put, put, put
	once.Once, checks.Checks, ranged.Cond = []byte("id"), []*store.Cond{{Family: "f", Op: store.Equal}}, &store.Cond{Family: "f", Op: store.Equal, Time: &cell.TimeRange{Max: 5}}
	src := views
	for name, test := range map[string]struct {
		record store.Record
		want   error
	}{
		"event id":               {once, store.ErrUnsupported},
		"checks":                 {checks, store.ErrUnsupported},
		"time range":             {ranged, store.ErrUnsupported},
		"put by the clock":       {one(func(m *cell.Mutation) { m.Put("f", []byte("q"), cell.Latest, []byte("v")) }), store.ErrUnsupported},
		"append":                 {one(func(m *cell.Mutation) { m.Append("f", []byte("q"), []byte("v")) }), store.ErrUnsupported},
		"no COUNTER family":      {one(func(m *cell.Mutation) { m.Increment("f", []byte("q"), 1); m.Ops[0].Time = 1 }), store.ErrRefused},
		"increment without time": {one(func(m *cell.Mutation) { m.Increment("n", []byte("q"), 1); m.Ops[0].Time = cell.Latest }), store.ErrInvalidArgument},
		"no such family":         {one(func(m *cell.Mutation) { m.Put("x", []byte("q"), 1, nil) }), store.ErrFamilyNotFound},
		"too large":              {large, store.ErrCellTooLarge},
		"nothing":                {store.Record{}, store.ErrInvalidArgument},
	} {
		b := &store.Batch{Records: []store.Record{put, test.record}}
		err := s.ApplyJournaled(t.Context(), &src, 0, b)
		var refused *store.BatchError
		if !errors.Is(err, test.want) || errors.As(err, &refused) == (test.want == store.ErrUnsupported) {
			t.Errorf("%s: Got %v, want %v", name, err, test.want)
		}
	}
	if d := cmp.Diff([]string(nil), sums(t, s, &store.Scan{})); d != "" {
		t.Errorf("something was written (-want +got):\n%s", d)
	}
}

// FuzzDecodeEntry: what is read back is what was written, and nothing else is read.
func FuzzDecodeEntry(f *testing.F) {
	m := cell.Mutation{Table: "t", Row: []byte("r")}
	m.Put("f", []byte("q"), 5, []byte("v"))
	m.DeleteRow(7)
	i := cell.Mutation{Table: "t", Row: []byte("r")}
	i.Increment("n", []byte("q"), -3)
	f.Add(appendEntry(nil, []cell.Mutation{m, i}), (&journalState{source: 1, revision: 3, nonce: 9}).encode())
	f.Add([]byte{}, (&journalState{source: 1, revision: 4, nonce: 9, floors: floors{{span{"t", "n", "a", "b", "c", ""}, 2}}.encode()}).encode())
	f.Add([]byte{}, (&journalState{source: 1, revision: 4, nonce: 9, switches: true, owner: "1 who"}).encode())
	f.Add([]byte{}, (&journalState{source: 1, revision: 4, nonce: 9, switches: true}).encode())
	f.Add([]byte{}, []byte{})
	f.Add(binary.BigEndian.AppendUint32(nil, 1<<31), []byte{1})
	f.Fuzz(func(t *testing.T, entry, state []byte) {
		if ms, err := decodeEntry(entry); err == nil {
			if again := appendEntry(nil, ms); string(again) != string(entry) {
				t.Errorf("Got %x of %x", again, entry)
			}
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Got %v", err)
		}
		if s, err := decodeJournalState(state); err == nil && string(s.encode()) != string(state) {
			t.Errorf("Got %x of %x", s.encode(), state)
		}
	})
}
