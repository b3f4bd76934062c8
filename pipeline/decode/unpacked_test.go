package decode_test

import (
	"errors"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"sluice/pipeline/decode"
	"sluice/pipeline/memory"
)

// heap returns the bytes of what is still in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools had
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Partitions that unpack payloads of the largest size, all at once, hold what their share
// has and a quarter of a MiB each, the decompressor; payloads that would unfold to more take no
// more; and nothing is held afterwards. It measures the heap of the process, so it does
// not run beside others.
func TestUnpackedMemory(t *testing.T) {
	for name, pack := range map[string]func(testing.TB, []byte) []byte{"gzip": gzipped, "zstd": zstandard} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testUnpackedMemory(t, name, pack) })
		})
	}
}

func testUnpackedMemory(t *testing.T, compression string, pack func(testing.TB, []byte) []byte) {
	const partitions, largest, together, fixed = 8, 2 << 20, 3, 256 << 10
	share, err := memory.NewShare("unpacked", together*(largest+1024))
	if err != nil {
		t.Fatal(err)
	}
	good := pack(t, []byte(strings.Repeat("x", largest)))
	bomb := pack(t, make([]byte, 2*largest))
	fresh := func() decode.Decoder {
		return decoder(t, &decode.Options{Format: "raw", Compression: compression, MaxBytes: largest, Memory: share}, "payload")
	}
	before := heap()
	decoders := make([]decode.Decoder, partitions)
	step, done := make(chan struct{}), make(chan struct{}, partitions)
	for p := range decoders {
		decoders[p] = fresh()
		go func() {
			defer func() { done <- struct{}{} }()
			for _, payload := range [][]byte{good, bomb, good} {
				err := decodeFetching(t, decoders[p], payload, func(*decode.Document) error {
					<-step
					return nil
				})
				if bad := len(payload) == len(bomb); bad != (err != nil) {
					t.Errorf("Got %v for %d bytes", err, len(payload))
				}
				held := decoders[p].(decode.Unpacker).Yield()
				decoders[p] = fresh()
				held.Release()
			}
		}()
	}
	var most int64
	for range 2 * partitions {
		synctest.Wait() // whoever has no memory waits for it, and whoever has waits for a step
		most = max(most, heap()-before)
		step <- struct{}{}
	}
	for range partitions {
		<-done
	}
	if limit := share.Limit() + partitions*fixed; most > limit || most < together*largest {
		t.Errorf("Got %d bytes of heap at most, want %d to %d", most, together*largest, limit)
	}
	if left := heap() - before; share.Used() != 0 || left > partitions*fixed {
		t.Errorf("Got %d bytes granted and %d of heap afterwards, want none and %d", share.Used(), left, partitions*fixed)
	}
	runtime.KeepAlive(decoders)
	t.Logf("%d bytes of heap at most, of a share of %d", most, share.Limit())
}

// decodeFetching is Decode that waits for what is pending.
func decodeFetching(t *testing.T, d decode.Decoder, payload []byte, emit func(*decode.Document) error) error {
	for {
		err := d.Decode(payload, emit)
		var pending *decode.Pending
		if !errors.As(err, &pending) {
			return err
		}
		if err := pending.Fetch(t.Context()); err != nil {
			return err
		}
	}
}

// A share that has no memory for the largest payload makes no decoder.
func TestUnpackedMemoryTooSmall(t *testing.T) {
	t.Parallel()
	share, err := memory.NewShare("unpacked", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	fields, err := decode.NewFields([]string{"payload"})
	if err != nil {
		t.Fatal(err)
	}
	for n, ok := range map[int]bool{int(decode.LargestPayload(share)): true, int(decode.LargestPayload(share)) + 1: false, 0: false} {
		o := &decode.Options{Format: "raw", Compression: "gzip", MaxBytes: n, Memory: share}
		if _, err := decode.New(o, fields); ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "max_bytes: ") {
			t.Errorf("Got %v for a payload of %d bytes", err, n)
		}
	}
}
