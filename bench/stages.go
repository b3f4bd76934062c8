package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"

	"golang.org/x/sync/errgroup"

	"sluice/pipeline/buffer"
	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
)

// stage is one thing that is measured.
type stage struct {
	name string
	what string // for the report
	run  func(context.Context, *spec) (sample, error)
}

// The stages' names.
const (
	fetchStage    = "fetch"
	peerStage     = "franz-go"
	decodeStage   = "decode"
	mapStage      = "map"
	bufferStage   = "buffer"
	captureStage  = "capture"
	storeStage    = "store"
	rawStage      = "raw"
	pipelineStage = "pipeline"
	dedupStage    = "dedup"
	backfillStage = "backfill"
	exportStage   = "export"
	countersStage = "counters"

	operationsStage = "operations"
)

// stages are in the order in which a round runs them: pipeline, store and raw next
// to each other, as their ratio is what counts most. Capture runs once, before
// the rounds: it makes the batches of raw.
var stages = []stage{
	{captureStage, "store, its commits kept for raw", runCapture},
	{fetchStage, "fetch: all partitions, batches released at once", runFetch},
	{peerStage, "fetch by franz-go: the same, records recycled at once", runPeerFetch},
	{decodeStage, "decode: the fields that the rules name, one core", runDecode},
	{standardStage, "the same fields by encoding/json, one core", runStandard},
	{mapStage, "decode and map, one core", runMap},
	{bufferStage, "decode, map and buffer, one core", runBuffer},
	{storeStage, "store: prebuilt batches, fsynced commits", runStore},
	{rawStage, "raw Pebble: the same commits, prebuilt, fsynced", runRaw},
	{pipelineStage, "pipeline: broker to fsynced commit", runPipeline},
	{dedupStage, "pipeline that remembers an id of every event (dedup)", runDedup},
	{backfillStage, "backfill: the same in bulk", runBackfill},
	{countersStage, "counters: increments summed a batch, exactly once, fsynced", runCounters},
	{exportStage, "export: scan, encode and write the rows as Parquet", runExport},
	{operationsStage, "operations: scans, gets and single writes", runOperations},
	{besideStage, "beside: commits with and without exports", runBeside},
	{incrementStage, "increment: exports of what was changed", runIncrement},
}

// measured runs f under a meter, and under the profiler where s asks for it.
func measured(s *spec, f func() error) (*meter, sample, error) {
	runtime.GC() // what setting up has left is not the stage's
	var profile *os.File
	if s.Profile != "" {
		var err error
		if profile, err = os.Create(s.Profile); err != nil {
			return nil, sample{}, err
		}
		defer profile.Close()
		if err := pprof.StartCPUProfile(profile); err != nil {
			return nil, sample{}, err
		}
		defer pprof.StopCPUProfile()
	}
	m, err := startMeter(s.BrokerPID)
	if err != nil {
		return nil, sample{}, err
	}
	if err := f(); err != nil {
		return nil, sample{}, err
	}
	got, err := m.stop()
	return m, got, err
}

func runFetch(ctx context.Context, s *spec) (sample, error) {
	e := generate(s)
	c, err := openClient(s)
	if err != nil {
		return sample{}, err
	}
	defer c.Close()
	o, err := pipelineOptions(s)
	if err != nil {
		return sample{}, err
	}
	if _, err := fetchAll(ctx, c, o.Fetch, e.logEnds(e.warm())); err != nil {
		return sample{}, err
	}
	var records int
	_, got, err := measured(s, func() (err error) {
		records, err = fetchAll(ctx, c, o.Fetch, e.logEnds(e.len()))
		return err
	})
	if err == nil && records != e.len() {
		err = fmt.Errorf("fetched %d records, the topic has %d", records, e.len())
	}
	return got, err
}

// fetchAll fetches every partition up to ends and returns how many records came.
func fetchAll(ctx context.Context, c *kafka.Client, o *kafka.FetchOptions, ends map[int32]int64) (int, error) {
	f := c.NewFetcher(o)
	fetching, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.Run(fetching) }()
	g, reading := errgroup.WithContext(ctx)
	counts := make([]int, len(ends))
	for p, end := range ends {
		g.Go(func() error {
			r := f.Add(topic, p, 0)
			defer r.Close()
			for next := int64(0); next < end; {
				b, err := r.Next(reading)
				if err != nil {
					return err
				}
				counts[p] += len(b.Records)
				next = b.Next
				b.Release()
			}
			return nil
		})
	}
	err := g.Wait()
	stop()
	if ferr := <-done; ferr != nil && !errors.Is(ferr, context.Canceled) {
		err = errors.Join(err, ferr)
	}
	n := 0
	for _, c := range counts {
		n += c
	}
	return n, err
}

func runDecode(_ context.Context, s *spec) (sample, error) {
	runtime.GOMAXPROCS(1)
	e := generate(s)
	// What examples/pageviews.yaml reads.
	fields, err := decode.NewFields([]string{"ts", "user", "page", "country", "referrer", "agent", "duration_ms"})
	if err != nil {
		return sample{}, err
	}
	d, err := decode.New(&decode.Options{Format: "json"}, fields)
	if err != nil {
		return sample{}, err
	}
	documents, size := 0, 0
	count := func(doc *decode.Document) error {
		documents++
		size += len(doc.Value(0).Bytes) + len(doc.Value(lastField).Bytes)
		return nil
	}
	decodeAll := func(n int) error {
		for i := range n {
			if err := d.Decode(e.payload(i), count); err != nil {
				return err
			}
		}
		return nil
	}
	if err := decodeAll(e.warm()); err != nil {
		return sample{}, err
	}
	documents = 0
	_, got, err := measured(s, func() error { return decodeAll(e.len()) })
	if err == nil && (documents != e.len() || size == 0) {
		err = fmt.Errorf("%d documents of %d events", documents, e.len())
	}
	return got, err
}

// lastField is the index of the field at the payload's end: its value being there
// means that the payload was read.
const lastField = 6

func runMap(_ context.Context, s *spec) (sample, error) {
	runtime.GOMAXPROCS(1)
	e := generate(s)
	o, err := pipelineOptions(s)
	if err != nil {
		return sample{}, err
	}
	m := o.Plan.NewMapper()
	var r mapping.Record
	made := 0
	mapAll := func(n int) error {
		for i := range n {
			e.record(&r, i)
			out, err := m.Map(&r)
			if err != nil {
				return err
			}
			made += ops(out.Mutations)
		}
		return nil
	}
	if err := mapAll(e.warm()); err != nil {
		return sample{}, err
	}
	made = 0
	_, got, err := measured(s, func() error { return mapAll(e.len()) })
	if want := opsAnEvent * e.len(); err == nil && made != want {
		err = fmt.Errorf("%d operations of %d events, want %d", made, e.len(), want)
	}
	return got, err
}

// opsAnEvent is six columns and three counters.
const opsAnEvent = 9

func runBuffer(ctx context.Context, s *spec) (sample, error) {
	runtime.GOMAXPROCS(1)
	e := generate(s)
	f, err := newFiller(e, s)
	if err != nil {
		return sample{}, err
	}
	records, counters := 0, 0
	release := func(_ int32, b *buffer.Batch) {
		records += b.Records
		counters += len(b.Store.Counters)
		b.Release()
	}
	if err := f.fill(ctx, 0, e.warm(), true, release); err != nil {
		return sample{}, err
	}
	warmed := records
	counters = 0
	_, got, err := measured(s, func() error { return f.fill(ctx, e.warm(), e.len(), true, release) })
	if err != nil {
		return sample{}, err
	}
	if records != e.len() {
		return sample{}, fmt.Errorf("buffered %d of %d events", records, e.len())
	}
	// The rest of the offsets was measured; what is reported is of all events.
	share := float64(e.len()) / float64(e.len()-warmed)
	got.Seconds *= share
	got.CPU *= share
	got.Extra["counters an event"] = float64(counters) / float64(e.len()-warmed)
	return got, nil
}
