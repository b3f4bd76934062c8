package pipeline

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/klauspost/compress/zstd"

	"sluice/internal/thinned"
	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

// heldMapper stops while it holds what a payload unfolds to, until the test has looked.
type heldMapper struct {
	mapper
	held, look chan struct{}
}

func (m *heldMapper) Map(r *mapping.Record) (*mapping.Output, error) {
	out, err := m.mapper.Map(r)
	if _, waits := err.(*decode.Pending); !waits && len(r.Value) > 100 {
		m.held <- struct{}{}
		<-m.look
	}
	return out, err
}

// heap returns the bytes of what is still in use.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools had
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// outsideMemory is what the pipelines of a process take besides their memory, as
// docs/operations.md has it: a partition with packed payloads, and everything else.
const (
	outsidePartition = 1 << 20
	outsideProcess   = 4 << 20
)

// Records of eight partitions that unfold a thousand times, in batches of each codec, which
// unfold, too, and bombs between them: the heap grows by memory and what the manual says,
// all that is good is applied, and bombs are dead letters. It measures the heap of the
// process, so it does not run beside others.
func TestHeapWithinMemory(t *testing.T) {
	for _, compression := range []string{"gzip", "zstd"} {
		t.Run(compression, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { testHeapWithinMemory(t, compression) })
		})
	}
}

func testHeapWithinMemory(t *testing.T, compression string) {
	const partitions, largest = 8, 4<<20 - 1024
	records := thinned.Of(30, 10) // a partition
	c, client := virtualCluster(t, partitions)
	m, err := memory.NewUnpacking(24 << 20) // 4 MiB of it is for payloads: one
	if err != nil {
		t.Fatal(err)
	}
	e := newEngine(t)
	plan, err := mapping.Compile(&mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "json", Compression: compression, MaxBytes: largest},
		Rules:  []mapping.RuleSpec{{Table: "counts", Row: "page", Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"n"`}}}},
	}, func(string) *store.TableDescriptor { d, _ := e.Table(t.Context(), "counts"); return d })
	if err != nil {
		t.Fatal(err)
	}
	pack := packer(t, compression)
	var (
		large = pack(fmt.Sprintf(`{"page":"large","pad":%q}`, strings.Repeat("x", largest-100)))
		bomb  = pack(strings.Repeat("x", 2*largest))
		small = pack(`{"page":"small"}`)
		want  = map[string]int64{}
		bombs int64
	)
	for p := range int32(partitions) {
		codec := []kafka.Compression{kafka.None, kafka.Gzip, kafka.Snappy, kafka.LZ4, kafka.Zstd}[p%5]
		out := c.client.NewProducer(&kafka.ProducerOptions{Compression: codec})
		var msgs []kafka.Message
		for i := range records {
			value := small
			switch i % 10 {
			case 3, 7:
				value = large
				want["large"]++
			case 5:
				value = bomb
				bombs++
			default:
				want["small"]++
			}
			// The headers make the batch large, however it is packed.
			msgs = append(msgs, kafka.Message{Partition: p, Value: value, Headers: []kafka.Header{{Key: []byte("h"), Value: make([]byte, 16<<10)}}})
		}
		if err := out.Produce(t.Context(), "pages", msgs...); err != nil {
			t.Fatal(err)
		}
		if err := out.Close(); err != nil {
			t.Fatal(err)
		}
		c.total += int64(len(msgs))
	}
	p, err := New(&Options{
		Name: "p", Topics: []string{"pages"}, Client: client(), Plan: plan, Engine: e, Memory: m, StoreID: "s1", Logger: testLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	held, look, unheld := make(chan struct{}, partitions), make(chan struct{}), p.newMapper
	p.newMapper = func() mapper { return &heldMapper{unheld(), held, look} }
	before, most, outside := heap(), int64(0), int64(0)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	for range want["large"] + bombs {
		<-held
		synctest.Wait() // nothing moves any more: who could has memory, and the others wait for some
		n := heap() - before
		most = max(most, n)
		for _, s := range m.Shares() {
			granted, used, idle := s.Held()
			n -= max(granted, used+idle)
		}
		outside = max(outside, n)
		look <- struct{}{}
	}
	waitFor(t, func() bool { return readProgress(t, e) == c.total })
	cancel()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes of heap at most, %d of them outside memory", most, outside)
	const limit = partitions*outsidePartition + outsideProcess
	if most > m.Limit()+limit || most < largest || outside > limit {
		t.Errorf("Got %d bytes of heap at most, %d of them outside memory, want %d to %d, and %d", most, outside, largest, m.Limit()+limit, limit)
	}
	if m.Used() != 0 {
		t.Errorf("Got %d bytes held after the end", m.Used())
	}
	got := readContents(t, e)
	for page, n := range want {
		if got.Counts[page] != n {
			t.Errorf("Got %d of %s, want %d", got.Counts[page], page, n)
		}
	}
	if int64(len(got.Letters)) != bombs {
		t.Errorf("Got %d dead letters, want %d", len(got.Letters), bombs)
	}
}

// packer returns what packs payloads.
func packer(t *testing.T, compression string) func(text string) []byte {
	return func(text string) []byte {
		if compression == "zstd" {
			w, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			return w.EncodeAll([]byte(text), nil)
		}
		var b bytes.Buffer
		w := gzip.NewWriter(&b)
		if _, err := w.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}
}
