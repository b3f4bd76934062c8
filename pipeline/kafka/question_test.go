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
