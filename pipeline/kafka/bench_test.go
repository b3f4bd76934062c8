package kafka

import (
	"bytes"
	"context"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"
)

// startLoopback starts a cluster of one node on loopback.
func startLoopback(b *testing.B, opts ...kfake.Opt) *Client {
	cluster, err := kfake.NewCluster(append(opts, kfake.NumBrokers(1))...)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(cluster.Close)
	return newTestClient(b, &Options{Brokers: cluster.ListenAddrs()})
}

// BenchmarkProduce writes chunks of 20,000 records of 200 bytes to four
// partitions; the broker, in the same process, takes its share of the CPU.
func BenchmarkProduce(b *testing.B) {
	for _, codec := range []Compression{None, LZ4, Zstd} {
		b.Run(string(codec), func(b *testing.B) {
			c := startLoopback(b, kfake.SeedTopics(4, "t"), kfake.BlackholeProduce())
			p := c.NewProducer(&ProducerOptions{Compression: codec})
			msgs := make([]Message, 20_000)
			for i := range msgs {
				msgs[i] = Message{Value: bytes.Repeat([]byte{byte(i)}, 200), Partition: AnyPartition}
			}
			n := 0
			for b.Loop() {
				if err := p.Produce(context.Background(), "t", msgs...); err != nil {
					b.Fatal(err)
				}
				n += len(msgs)
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}

// BenchmarkFetch reads a synthetic partition of 200-byte records: fetch, decode
// and release, the broker's share included.
func BenchmarkFetch(b *testing.B) {
	c := startLoopback(b, kfake.SeedTopics(1, "t"), kfake.SyntheticFetch(kfake.SyntheticBatch{RecordBytes: 200}))
	f := startFetcher(b, c, nil)
	r := f.Add("t", 0, 0)
	b.ReportAllocs()
	n, size := 0, int64(0)
	for b.Loop() {
		batch, err := r.Next(context.Background())
		if err != nil {
			b.Fatal(err)
		}
		n += len(batch.Records)
		for i := range batch.Records {
			size += int64(len(batch.Records[i].Value))
		}
		batch.Release()
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
	b.SetBytes(size / int64(b.N))
}
