package kafka

import (
	"bytes"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/pipeline/memory"
)

// A batch a little smaller than the largest passes, and one a little larger is refused
// for its memory; a bound of that size is met before the memory is.
func TestLargestBatch(t *testing.T) {
	t.Parallel()
	const little = 200 // a batch's frame, and a record's
	stored, unfolded := LargestBatch(newMemory(t, 1<<20))
	if stored != 256<<10 || unfolded != 448<<10-zstdSlack {
		t.Errorf("Got %d bytes stored and %d unfolded of a MiB", stored, unfolded)
	}
	for name, tc := range map[string]struct {
		codec Compression
		bytes int64
		limit int // Options.MaxDecompressed
		want  error
	}{
		"stored, fits":              {None, stored - little, 0, nil},
		"stored, does not fit":      {None, stored, 0, memory.ErrTooLarge},
		"unfolded, fits":            {Zstd, unfolded - little, 0, nil},
		"unfolded, does not fit":    {Zstd, unfolded + little, 0, memory.ErrTooLarge},
		"unfolded, at the bound":    {Zstd, unfolded - little, int(unfolded), nil},
		"unfolded, above the bound": {Zstd, unfolded, int(unfolded), ErrBatchTooLarge},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				_, o := startBroker(t, kfake.BrokerConfigs(map[string]string{"message.max.bytes": "4194304"}))
				o.MaxDecompressed = tc.limit
				c := newTestClient(t, o)
				p := c.NewProducer(&ProducerOptions{Compression: tc.codec, BatchBytes: 2 << 20})
				if err := p.Produce(testContext(t), "t", Message{Value: bytes.Repeat([]byte("x"), int(tc.bytes))}); err != nil {
					t.Fatal(err)
				}
				r := startFetcher(t, c, &FetchOptions{Memory: newMemory(t, 1<<20), MaxBatchBytes: 1 << 30}).Add("t", 0, 0)
				defer r.Close()
				b, err := r.Next(testContext(t))
				if err == nil {
					b.Release()
				}
				var large *UnreadableError
				if tc.want != nil && (!errors.As(err, &large) || large.Offset != 0 || large.Next != 1 || !errors.Is(err, ErrBatchTooLarge)) {
					t.Errorf("Got %#v, want the batch from 0 to 1 too large", err)
				}
				if !errors.Is(err, tc.want) {
					t.Errorf("Got %v of a batch of %d bytes, want %v", err, tc.bytes, tc.want)
				}
			})
		})
	}
}
