package decode_test

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/snappy"

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
	contained := func(codec string) func(testing.TB, []byte) []byte {
		return func(t testing.TB, b []byte) []byte { return container(t, codec, 4, b) }
	}
	for name, tt := range map[string]struct {
		o    decode.Options
		pack func(testing.TB, []byte) []byte
	}{
		"gzip":      {decode.Options{Format: "raw", Compression: "gzip"}, gzipped},
		"zstd":      {decode.Options{Format: "raw", Compression: "zstd"}, zstandard},
		"deflate":   {decode.Options{Format: "avro", Framing: "container"}, contained("deflate")},
		"snappy":    {decode.Options{Format: "avro", Framing: "container"}, contained("snappy")},
		"zstandard": {decode.Options{Format: "avro", Framing: "container"}, contained("zstandard")},
		"both": {decode.Options{Format: "avro", Framing: "container", Compression: "gzip"}, func(t testing.TB, b []byte) []byte {
			return gzipped(t, container(t, "deflate", 4, b))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testUnpackedMemory(t, tt.o, tt.pack) })
		})
	}
}

// container returns a container of documents {payload: a part of b} in so many blocks.
func container(t testing.TB, codec string, blocks int, b []byte) []byte {
	t.Helper()
	text := func(out []byte, s string) []byte { return append(binary.AppendVarint(out, int64(len(s))), s...) }
	sync := strings.Repeat("s", 16)
	out := binary.AppendVarint([]byte("Obj\x01"), 2)
	out = text(text(out, "avro.schema"), `{"type":"record","name":"r","fields":[{"name":"payload","type":"bytes"}]}`)
	out = append(append(text(text(out, "avro.codec"), codec), 0), sync...)
	for k := range blocks {
		block := text(nil, string(b[k*len(b)/blocks:(k+1)*len(b)/blocks]))
		switch codec {
		case "deflate":
			var packed bytes.Buffer
			w, err := flate.NewWriter(&packed, flate.DefaultCompression)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.Write(block); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			block = packed.Bytes()
		case "snappy":
			block = binary.BigEndian.AppendUint32(snappy.Encode(nil, block), crc32.ChecksumIEEE(block))
		case "zstandard":
			block = zstandard(t, block)
		}
		out = append(text(binary.AppendVarint(out, 1), string(block)), sync...)
	}
	return out
}

func testUnpackedMemory(t *testing.T, o decode.Options, pack func(testing.TB, []byte) []byte) {
	const partitions, largest, together, fixed = 8, 2 << 20, 3, 256 << 10
	share, err := memory.NewShare("unpacked", together*(largest+1024))
	if err != nil {
		t.Fatal(err)
	}
	good := pack(t, []byte(strings.Repeat("x", largest-100)))
	bomb := pack(t, make([]byte, 2*largest))
	o.MaxBytes, o.Memory = largest, share
	fresh := func() decode.Decoder { return decoder(t, &o, "payload") }
	before := heap()
	decoders := make([]decode.Decoder, partitions)
	step, done := make(chan struct{}), make(chan struct{}, partitions)
	for p := range decoders {
		decoders[p] = fresh()
		go func() {
			defer func() { done <- struct{}{} }()
			for _, payload := range [][]byte{good, bomb, good} {
				first := len(payload) == len(good) // of a bomb there may be documents, too
				err := decodeFetching(t, decoders[p], payload, func(*decode.Document) error {
					if first {
						<-step
					}
					first = false
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
	if limit := share.Limit() + partitions*fixed; most > limit || most < (together-1)*largest {
		t.Errorf("Got %d bytes of heap at most, want %d to %d", most, (together-1)*largest, limit)
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
	for _, o := range []*decode.Options{
		{Format: "raw", Compression: "gzip"}, {Format: "avro", Framing: "container"}, {Format: "avro", Framing: "container", Compression: "gzip"},
	} {
		o.Memory = share
		testTooSmall(t, o, fields)
	}
}

func testTooSmall(t *testing.T, o *decode.Options, fields *decode.Fields) {
	most := int(o.LargestPayload(o.Memory))
	for n, ok := range map[int]bool{most: true, most + 1: false, 0: false} {
		o.MaxBytes = n
		if _, err := decode.New(o, fields); ok != (err == nil) || err != nil && !strings.Contains(err.Error(), "max_bytes: ") {
			t.Errorf("Got %v for a payload of %d bytes", err, n)
		}
	}
}

// Containers inside of a compression take memory for both, at once: nobody waits for the
// second with the first, as all others would, too.
func TestUnpackedTwice(t *testing.T) {
	t.Parallel()
	const partitions, largest = 6, 1 << 20
	share, err := memory.NewShare("unpacked", 2*(largest+64))
	if err != nil {
		t.Fatal(err)
	}
	noise := make([]byte, largest*9/10)
	rand.NewChaCha8([32]byte{1}).Read(noise)
	for _, codec := range []string{"deflate", "snappy", "zstandard"} {
		payload := gzipped(t, container(t, codec, 3, noise))
		done := make(chan error, partitions)
		for range partitions {
			go func() {
				d := decoder(t, &decode.Options{Format: "avro", Framing: "container", Compression: "gzip", MaxBytes: largest, Memory: share}, "payload")
				n := 0
				err := decodeFetching(t, d, payload, func(doc *decode.Document) error {
					for _, c := range doc.Value(0).Bytes {
						if n == len(noise) || c != noise[n] {
							return errors.New("the values are wrong")
						}
						n++
					}
					return nil
				})
				if err == nil && n != len(noise) {
					err = errors.New("values are missing")
				}
				held := d.(decode.Unpacker).Yield()
				if err == nil && held.Bytes() < 2*int64(len(noise)) {
					err = errors.New("not both are granted")
				}
				held.Release()
				done <- err
			}()
		}
		for range partitions {
			if err := <-done; err != nil {
				t.Errorf("%s: %v", codec, err)
			}
		}
	}
	if share.Used() != 0 {
		t.Errorf("Got %d bytes granted in the end", share.Used())
	}
}
