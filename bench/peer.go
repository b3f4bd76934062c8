package main

import (
	"context"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
)

// runPeerFetch is the fetch stage by franz-go, the fastest client in Go that we
// know of: the same partitions of the same broker, the same bounds, read_committed,
// and nothing done with the records, which go back to pools, as ours do.
func runPeerFetch(ctx context.Context, s *spec) (sample, error) {
	e := generate(s)
	o, err := pipelineOptions(s)
	if err != nil {
		return sample{}, err
	}
	f := o.Fetch
	fetch := func(ends map[int32]int64) (int, error) {
		from := make(map[int32]kgo.Offset, len(ends))
		for p := range ends {
			from[p] = kgo.NewOffset().At(0)
		}
		c, err := kgo.NewClient(
			kgo.SeedBrokers(s.Broker),
			kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}),
			kgo.FetchIsolationLevel(kgo.ReadCommitted()),
			kgo.FetchMaxWait(f.MaxWait), kgo.FetchMinBytes(int32(f.MinBytes)),
			kgo.WithPools(new(peerPool)),
			kgo.FetchMaxBytes(int32(f.MaxBytes)), kgo.FetchMaxPartitionBytes(int32(f.MaxPartitionBytes)),
		)
		if err != nil {
			return 0, err
		}
		defer c.Close()
		return pollAll(ctx, c, ends)
	}
	if _, err := fetch(e.logEnds(e.warm())); err != nil {
		return sample{}, err
	}
	var records int
	_, got, err := measured(s, func() (err error) {
		records, err = fetch(e.logEnds(e.len()))
		return err
	})
	if err == nil && records != e.len() {
		err = fmt.Errorf("fetched %d records, the topic has %d", records, e.len())
	}
	return got, err
}

// pollAll polls every partition up to ends and returns how many records came.
func pollAll(ctx context.Context, c *kgo.Client, ends map[int32]int64) (n int, err error) {
	open := len(ends)
	next := make(map[int32]int64, len(ends))
	for open > 0 {
		fetches := c.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return n, err
		}
		fetches.EachPartition(func(p kgo.FetchTopicPartition) {
			if len(p.Records) == 0 {
				return
			}
			n += len(p.Records)
			was, end := next[p.Partition], ends[p.Partition]
			next[p.Partition] = p.Records[len(p.Records)-1].Offset + 1
			if was < end && next[p.Partition] >= end {
				open--
			}
			for _, r := range p.Records {
				r.Recycle()
			}
		})
	}
	return n, nil
}

// peerPool lends franz-go what it decompresses and decodes into.
type peerPool struct{ bytes, records sync.Pool }

var (
	_ kgo.PoolDecompressBytes = (*peerPool)(nil)
	_ kgo.PoolRecords         = (*peerPool)(nil)
)

// GetDecompressBytes lends room for four times the compressed size, as ours does.
func (p *peerPool) GetDecompressBytes(compressed []byte, _ kgo.CompressionCodecType) []byte {
	if b, ok := p.bytes.Get().(*[]byte); ok && cap(*b) >= 4*len(compressed) {
		return *b
	}
	return make([]byte, 0, 4*len(compressed))
}

// PutDecompressBytes takes b back.
func (p *peerPool) PutDecompressBytes(b []byte) { p.bytes.Put(&b) }

// GetRecords lends room for n records.
func (p *peerPool) GetRecords(n int) []kgo.Record {
	if r, ok := p.records.Get().(*[]kgo.Record); ok && cap(*r) >= n {
		return (*r)[:0]
	}
	return make([]kgo.Record, 0, n)
}

// PutRecords takes r back.
func (p *peerPool) PutRecords(r []kgo.Record) { p.records.Put(&r) }
