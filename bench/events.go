package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/config"
	"sluice/examples"
	"sluice/internal/pageviews"
	"sluice/pipeline"
	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

const (
	// topic and pipelineName are those of examples/pageviews.yaml.
	topic        = "pageviews"
	pipelineName = "pageviews"
	rowTable     = "events"
	countTable   = "pageview_counts"

	// dealt is how many neighbouring events a partition gets before the next
	// one has its turn, as producers that fill record batches deal them.
	dealt = 1000
	// warmUp is the share of the events that a stage handles before it is
	// measured: fresh pages cost microseconds each.
	warmUp = 0.1
)

// events is the generated payloads.
type events struct {
	data       []byte
	ends       []int
	partitions int
}

func generate(s *spec) *events {
	e := &events{data: make([]byte, 0, 210*s.Events), ends: make([]int, 0, s.Events), partitions: s.Partitions}
	g := pageviews.New(&pageviews.Options{Seed: s.Seed, Events: s.Events, Start: time.UnixMilli(s.Start).UTC()})
	for {
		data, ok := g.Append(e.data)
		if !ok {
			return e
		}
		e.data = data
		e.ends = append(e.ends, len(data))
	}
}

func (e *events) len() int { return len(e.ends) }

func (e *events) payload(i int) []byte {
	start := 0
	if i > 0 {
		start = e.ends[i-1]
	}
	return e.data[start:e.ends[i]:e.ends[i]]
}

func (e *events) partition(i int) int32 { return int32(i / dealt % e.partitions) }

// offset is that of event i in its partition.
func (e *events) offset(i int) int64 {
	return int64(i/(dealt*e.partitions)*dealt + i%dealt)
}

// logEnds returns the partitions' ends when the first n events are in the topic.
func (e *events) logEnds(n int) map[int32]int64 {
	ends := make(map[int32]int64, e.partitions)
	for i := range n {
		if end := e.offset(i) + 1; end > ends[e.partition(i)] {
			ends[e.partition(i)] = end
		}
	}
	return ends
}

// warm returns how many events a stage warms up with.
func (e *events) warm() int { return max(int(warmUp*float64(e.len())), 1) }

// record fills r with event i as the pipeline would see it.
func (e *events) record(r *mapping.Record, i int) {
	*r = mapping.Record{
		Topic: topic, Partition: e.partition(i), Offset: e.offset(i),
		Timestamp: 1_700_000_000_000, Value: e.payload(i), // the rules take the event's own time
	}
}

// produce writes the events to the topic and returns their average size in bytes.
func produce(ctx context.Context, s *spec) (float64, error) {
	e := generate(s)
	c, err := openClient(s)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	p := c.NewProducer(nil)
	defer p.Close()
	// A call waits for its acknowledgements: enough records for full record
	// batches in every partition.
	step := 10 * dealt * s.Partitions
	messages := make([]kafka.Message, 0, step)
	for i := 0; i < e.len(); i += step {
		messages = messages[:0]
		for j := i; j < min(i+step, e.len()); j++ {
			messages = append(messages, kafka.Message{Value: e.payload(j), Partition: e.partition(j)})
		}
		if err := p.Produce(ctx, topic, messages...); err != nil {
			return 0, err
		}
	}
	return float64(len(e.data)) / float64(e.len()), nil
}

// eventID is an id as random ones are, of 20 to 26 bytes.
const eventID = `hash16_hex(user) + hash16_hex(u16(partition) + u64(offset)) + hash16_hex(u64(offset) + u16(partition)) + "-" + partition + "-" + offset`

// loadConfig returns examples/pageviews.yaml for the broker of s and a data
// directory, and without the rule that makes rows where s wants none.
func loadConfig(s *spec, dir string) (*config.Config, error) {
	text := examples.Pageviews
	if s.Counts {
		before, _, ok := bytes.Cut(text, []byte("      - table: "+rowTable+"\n"))
		_, after, counts := bytes.Cut(text, []byte("      - table: "+countTable+"\n"))
		if !ok || !counts {
			return nil, errors.New("examples/pageviews.yaml has no rule for " + rowTable + " before that for " + countTable)
		}
		text = slices.Concat(before, []byte("      - table: "+countTable+"\n"), after)
	}
	if s.IDs {
		before, after, ok := bytes.Cut(text, []byte("    map:\n"))
		if !ok {
			return nil, errors.New("examples/pageviews.yaml has no map")
		}
		text = slices.Concat(before, []byte("    dedup: {id: '"+eventID+"', ttl: 24h}\n    map:\n"), after)
	}
	return config.Parse("examples/pageviews.yaml", text, func(key string) (string, bool) {
		switch key {
		case "SLUICE_BROKERS":
			return s.Broker, true
		case "SLUICE_DATA":
			return dir, true
		}
		return "", false
	})
}

func openClient(s *spec) (*kafka.Client, error) {
	c, err := loadConfig(s, s.Dir)
	if err != nil {
		return nil, err
	}
	o, err := c.KafkaOptions()
	if err != nil {
		return nil, err
	}
	return kafka.NewClient(o)
}

func pipelineOptions(s *spec) (*pipeline.Options, error) {
	c, err := loadConfig(s, s.Dir)
	if err != nil {
		return nil, err
	}
	return c.PipelineOptions(pipelineName)
}

// filler maps events and fills the buffers of all partitions with them.
type filler struct {
	events  *events
	mapper  *mapping.Mapper
	version string
	source  store.Source
	buffers []*buffer.Buffer
	prev    []store.Progress
	from    []int64
}

func newFiller(e *events, s *spec) (*filler, error) {
	o, err := pipelineOptions(s)
	if err != nil {
		return nil, err
	}
	// One buffer fills while the engine has the others: never a limit here.
	budget, err := buffer.NewBudget(1 << 40)
	if err != nil {
		return nil, err
	}
	f := &filler{
		events: e, mapper: o.Plan.NewMapper(), version: o.Plan.Version(),
		source: store.Source{Pipeline: pipelineName, Topic: topic, ClusterID: "bench"},
	}
	for range e.partitions {
		b, err := buffer.New(&buffer.Options{MaxRecords: s.Batch, Budget: budget})
		if err != nil {
			return nil, err
		}
		f.buffers = append(f.buffers, b)
		f.prev = append(f.prev, store.Progress{LastOffset: -1, LeaderEpoch: -1})
		f.from = append(f.from, store.Absent)
	}
	return f, nil
}

// fill maps and buffers events lo to hi, exclusive, and gives every full batch to
// take; the last, not full ones as well where rest is set.
func (f *filler) fill(ctx context.Context, lo, hi int, rest bool, take func(partition int32, b *buffer.Batch)) error {
	var r mapping.Record
	for i := lo; i < hi; i++ {
		f.events.record(&r, i)
		out, err := f.mapper.Map(&r)
		if err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		b := f.buffers[r.Partition]
		if err := b.Add(ctx, r.Offset, out.Mutations); err != nil {
			return fmt.Errorf("event %d: %w", i, err)
		}
		if b.Full() {
			take(r.Partition, f.take(r.Partition))
		}
	}
	if !rest {
		return nil
	}
	for p := range f.buffers {
		if !f.buffers[p].Empty() {
			take(int32(p), f.take(int32(p)))
		}
	}
	return nil
}

func (f *filler) take(p int32) *buffer.Batch {
	b := f.buffers[p].Take(f.source, p, f.from[p], &f.prev[p], f.version)
	f.prev[p], f.from[p] = b.Progress, b.Progress.Next
	return b
}

// ops counts what m holds, so that no compiler can leave the mapping out.
func ops(ms []cell.Mutation) (n int) {
	for i := range ms {
		n += len(ms[i].Ops)
	}
	return n
}
