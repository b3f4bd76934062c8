package kafka

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

// A reader that keeps all that it reads has its partition's part of the fetched memory,
// and no more; another partition reads beside it as if it were not there.
func TestPartitionKeepsToItsPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, testPartitionKeepsToItsPart)
}

func testPartitionKeepsToItsPart(t *testing.T) {
	const partitions, records = 2, 500
	_, c := startCluster(t, kfake.SeedTopics(partitions, "t"))
	var msgs []Message
	for i := range partitions * records {
		msgs = append(msgs, Message{Value: bytes.Repeat([]byte("x"), 2000), Partition: int32(i % partitions)})
	}
	// What is not compressed is not copied: a batch holds fetched memory until it is
	// released, and next to nothing of the decoded memory, whose bound is another.
	p := c.NewProducer(&ProducerOptions{Compression: None, BatchBytes: 8 << 10})
	if err := p.Produce(testContext(t), "t", msgs...); err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	m := newMemory(t, 1<<20)
	f := startFetcher(t, c, &FetchOptions{Memory: m})
	keeps, other := f.Add("t", 0, 0), f.Add("t", 1, records) // has nothing yet
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	var kept []*Batch
	reading.Go(func() {
		for {
			b, err := keeps.Next(ctx)
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
				return
			}
			kept = append(kept, b)
		}
	})
	<-time.After(time.Minute)
	if held, part := keeps.held.Load(), m.Fair(m.Fetched()); held > part || held < part/2 {
		t.Errorf("Got %d bytes fetched and kept of one of %d partitions, want about %d and no more", held, partitions, part)
	}
	other.SeekTo(0)
	if got := readTo(t, other, records); len(got) != records {
		t.Errorf("Got %d records beside a partition that keeps its own, want %d", len(got), records)
	}
	cancel()
	reading.Wait()
	if len(kept) == 0 {
		t.Error("Got no batch of the partition that keeps them")
	}
	for _, b := range kept {
		b.Release()
	}
	if got := readTo(t, keeps, records); len(got) == 0 {
		t.Error("Got nothing more once the batches were released")
	}
	keeps.Close()
	other.Close()
	checkGivenBack(t, m)
}

// A partition's part is an equal one of those that are open, closed ones not among them,
// and never less than some record batches take.
func TestPartOfPartitions(t *testing.T) {
	t.Parallel()
	_, c := startCluster(t, kfake.SeedTopics(1, "t"))
	m := newMemory(t, 6<<20) // a MiB of it is fetched
	f := c.NewFetcher(&FetchOptions{Memory: m, BufferBytes: 700 << 10})
	other := c.NewFetcher(&FetchOptions{Memory: m})
	var readers []*PartitionReader
	wants := func(open int, wantPart, wantBuffer int64, wantAnswer int) {
		t.Helper()
		for len(readers) < open {
			from := f
			if len(readers)%2 > 0 {
				from = other
			}
			readers = append(readers, from.Add("t", int32(len(readers)), 0))
		}
		for len(readers) > open {
			last := len(readers) - 1
			readers[last].Close()
			readers[last].Close() // it is closed
			readers = readers[:last]
		}
		if part, buffer, answer := f.part(); part != wantPart || buffer != wantBuffer || answer != wantAnswer {
			t.Errorf("Got a part of %d bytes, %d of them buffered, and an answer of %d with %d partitions; want %d, %d, %d",
				part, buffer, answer, open, wantPart, wantBuffer, wantAnswer)
		}
	}
	wants(1, 1<<20, 700<<10, 349525)
	wants(4, 256<<10, 256<<10, 87381)
	wants(128, 8<<10, 8<<10, 2730)
	wants(1000, 8<<10, 8<<10, 2730)
	wants(4, 256<<10, 256<<10, 87381)
	wants(1, 1<<20, 700<<10, 349525)
	wants(0, 1<<20, 700<<10, 349525)
}
