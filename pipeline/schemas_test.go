package pipeline

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"sync"
	"testing"

	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
)

// fakeSchemas is a registry that can be down. Schema 7 exists.
type fakeSchemas struct {
	mu      sync.Mutex
	up      bool
	trouble error // while it is not up; nil = decode.ErrUnavailable
	asked   int
	fetched map[int]bool
}

func (s *fakeSchemas) Schema(id int) (*decode.Schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case !s.fetched[id]:
		return nil, nil
	case id != 7:
		return nil, fmt.Errorf("schema %d: %w", id, decode.ErrNoSchema)
	}
	return &decode.Schema{ID: id, Type: decode.SchemaAvro, Text: []byte(`{"type":"record","name":"View","fields":[{"name":"page","type":"string"}]}`)}, nil
}

func (s *fakeSchemas) Fetch(_ context.Context, id int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked++
	if !s.up {
		return fmt.Errorf("fetch schema %d: %w", id, cmp.Or(s.trouble, decode.ErrUnavailable))
	}
	s.fetched[id] = true
	return nil
}

func (s *fakeSchemas) set(up bool) {
	s.mu.Lock()
	s.up = up
	s.mu.Unlock()
}

// A registry that is down pauses the partition, with what came before applied, and
// makes no dead letter; what the registry does not know is one, and what no registry can
// know is one without it.
func TestRegistryIsWaitedFor(t *testing.T) {
	t.Parallel()
	for reason, trouble := range map[string]error{
		"schema registry unavailable":                   nil,
		"schema registry gives no Protobuf descriptors": decode.ErrNoDescriptor,
	} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			testRegistryIsWaitedFor(t, reason, trouble)
		})
	}
}

func testRegistryIsWaitedFor(t *testing.T, reason string, trouble error) {
	schemas := &fakeSchemas{fetched: map[int]bool{}, trouble: trouble}
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "avro", Framing: "confluent", Schemas: schemas},
		Rules: []mapping.RuleSpec{
			{Table: "events", Row: `partition + "/" + offset`, Put: map[string]map[string]string{"e": {"page": "page"}}},
			{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}},
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	framed := func(id uint32, page string) string {
		b := binary.BigEndian.AppendUint32([]byte{0}, id)
		return string(append(binary.AppendVarint(b, int64(len(page))), page...))
	}
	e, b := newEngine(t), newFakeBroker(1)
	p := newTest(t, e, b)
	p.newMapper = func() mapper { return plan.NewMapper() }
	r := start(t, p, 0)

	schemas.set(true)
	b.produce(0, framed(7, "a"), framed(7, "a"))
	r.caughtUp(b)
	schemas.set(false)
	b.produce(0, framed(7, "b"), framed(1<<31, "y"), framed(8, "x"), framed(7, "c"))
	waitFor(t, func() bool { return r.first().Paused == reason })
	waitFor(t, func() bool { return r.first().Progress.Next == 4 })
	if m := r.Metrics(); m.Applied != 3 || m.Dead != 1 {
		t.Errorf("while the registry is down: got %d applied and %d dead, want 3 and 1", m.Applied, m.Dead)
	}
	schemas.set(true)
	r.caughtUp(b)
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
	m := r.Metrics()
	if m.Applied != 4 || m.Dead != 2 {
		t.Errorf("got %d applied and %d dead, want 4 and 2", m.Applied, m.Dead)
	}
	// The id beyond a registry's is of the payload; what the registry lacks may come to it.
	if want := (map[DeadLetterKey]int64{{"decode", "avro"}: 1, {"decode", "no_schema"}: 1}); !maps.Equal(m.DeadLetters, want) {
		t.Errorf("dead letters %v, want %v", m.DeadLetters, want)
	}
	got := readContents(t, e)
	if got.Counts["a"] != 2 || got.Counts["b"] != 1 || got.Counts["c"] != 1 || len(got.Events) != 4 {
		t.Errorf("got %+v", got)
	}
}

// A partition that is taken away does not wait for its registry.
func TestRegistryDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	schemas := &hangingSchemas{asked: make(chan struct{}, 1)}
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "avro", Framing: "confluent", Schemas: schemas},
		Rules:  []mapping.RuleSpec{{Table: "events", Row: "page", Put: map[string]map[string]string{"e": {"page": "page"}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	b := newFakeBroker(1)
	p := newTest(t, newEngine(t), b)
	p.newMapper = func() mapper { return plan.NewMapper() }
	r := start(t, p, 0)
	b.produce(0, "\x00\x00\x00\x00\x01")
	<-schemas.asked
	if err := r.close(); err != nil {
		t.Fatal(err)
	}
}

// hangingSchemas is a registry that never answers.
type hangingSchemas struct{ asked chan struct{} }

func (s *hangingSchemas) Schema(int) (*decode.Schema, error) { return nil, nil }

func (s *hangingSchemas) Fetch(ctx context.Context, _ int) error {
	s.asked <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}
