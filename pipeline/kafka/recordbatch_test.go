package kafka

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// testRecord is a record of a testBatch.
type testRecord struct {
	delta      int32 // of its offset
	timeDelta  int64
	key, value []byte
	headers    []Header
}

// testBatch is a record batch as a test wants it, coded by kmsg: an encoder
// that is not the one under test.
type testBatch struct {
	base      int64
	lastDelta int32 // -1 = of the last record
	epoch     int32
	attrs     int16
	producer  int64
	firstTS   int64
	maxTS     int64
	records   []testRecord
}

// encode returns the batch with records compressed as its attributes say.
func (b *testBatch) encode(t interface{ Fatal(...any) }) []byte {
	var recs []byte
	for _, r := range b.records {
		kr := kmsg.NewRecord()
		kr.OffsetDelta, kr.TimestampDelta64, kr.Key, kr.Value = r.delta, r.timeDelta, r.key, r.value
		for _, h := range r.headers {
			kr.Headers = append(kr.Headers, kmsg.Header{Key: string(h.Key), Value: h.Value})
		}
		body := kr.AppendTo(nil) // begins with the varint of Length 0, one byte
		recs = binary.AppendVarint(recs, int64(len(body)-1))
		recs = append(recs, body[1:]...)
	}
	last := b.lastDelta
	if last < 0 {
		last = b.records[len(b.records)-1].delta
	}
	return b.frame(t, recs, last, int32(len(b.records)))
}

var testEncoders [5]sync.Pool // of *encoder, by codec: zstd's is expensive to make

// frame puts records, coded but not compressed, into a batch.
func (b *testBatch) frame(t interface{ Fatal(...any) }, recs []byte, lastDelta, count int32) []byte {
	pool := &testEncoders[b.attrs&attrCodec]
	e, ok := pool.Get().(*encoder)
	if !ok {
		var err error
		if e, err = newEncoder([]Compression{None, Gzip, Snappy, LZ4, Zstd}[b.attrs&attrCodec]); err != nil {
			t.Fatal(err)
		}
	}
	defer pool.Put(e)
	e.records = recs
	body, _, err := e.compress()
	if err != nil {
		t.Fatal(err)
	}
	rb := kmsg.NewRecordBatch()
	rb.FirstOffset, rb.PartitionLeaderEpoch, rb.Magic, rb.Attributes = b.base, b.epoch, 2, b.attrs
	rb.LastOffsetDelta, rb.FirstTimestamp, rb.MaxTimestamp = lastDelta, b.firstTS, b.maxTS
	rb.ProducerID, rb.ProducerEpoch, rb.FirstSequence = b.producer, 0, 0
	rb.NumRecords, rb.Records = count, body
	rb.Length = int32(batchHeaderLen - batchPrefix + len(body))
	raw := rb.AppendTo(nil)
	return seal(raw)
}

// seal sets the CRC of a batch.
func seal(raw []byte) []byte {
	binary.BigEndian.PutUint32(raw[batchCRCAt:], crc32.Checksum(raw[batchAttrsAt:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

func controlBatch(t testing.TB, offset, producer int64, kind byte) []byte {
	b := testBatch{
		base: offset, lastDelta: -1, attrs: attrControl | attrTransactional, producer: producer,
		records: []testRecord{{key: []byte{0, 0, 0, kind}, value: []byte{0, 0, 0, 0, 0, 0}}},
	}
	return b.encode(t)
}

func testCodecs(t interface{ Fatal(...any) }, limit int) *codecs {
	cs, err := newCodecs(limit)
	if err != nil {
		t.Fatal(err)
	}
	return cs
}

// testChunk is a copy of buf as it was fetched, in memory of m.
func testChunk(m *fetchMemory, buf []byte, from int64, aborted ...abortedTxn) *chunk {
	c := &chunk{from: from, aborted: aborted, mem: m, held: new(atomic.Int64)}
	var ok bool
	if c.grant, ok = m.budget.Fetched().Try(m.raw.Bytes(len(buf))); !ok {
		panic("no memory for a chunk")
	}
	c.buf = append(m.raw.Get(len(buf)), buf...)
	c.refs.Store(1)
	return c
}

// testMemoryBatch is an empty batch that may take all decoded memory of m.
func testMemoryBatch(m *fetchMemory) *Batch {
	share := m.budget.Decoded()
	return &Batch{Topic: "t", Partition: 3, mem: m, grant: share.Empty(), target: share.Limit()}
}

// decodeAll runs a chunk over buf as a reader does. The batches are not
// released.
func decodeAll(cs *codecs, buf []byte, from int64, aborted ...abortedTxn) (out []*Batch, d decoded, need int, err error) {
	m := fetchMemoryOf(nil)
	c := testChunk(m, buf, from, aborted...)
	need, _, err = c.scan()
	for c.at < len(c.buf) {
		b := testMemoryBatch(m)
		n, derr := c.decode(b, cs)
		d.control += n.control
		d.aborted += n.aborted
		if short, ok := errors.AsType[*noRoom](derr); ok { // never: what a codec guesses is bounded, too
			panic(short)
		}
		if derr != nil {
			return out, d, need, derr
		}
		out = append(out, b)
	}
	return out, d, need, err
}

func offsets(bs []*Batch) []int64 {
	var out []int64
	for _, b := range bs {
		for _, r := range b.Records {
			out = append(out, r.Offset)
		}
	}
	return out
}

func simple(base int64, n int) testBatch {
	b := testBatch{base: base, lastDelta: -1, producer: -1}
	for i := range n {
		b.records = append(b.records, testRecord{delta: int32(i), value: []byte("v")})
	}
	return b
}

// transactional is simple of a producer's transaction, encoded.
func transactional(t testing.TB, base, producer int64, n int) []byte {
	b := simple(base, n)
	b.attrs, b.producer = attrTransactional, producer
	return b.encode(t)
}

func TestDecode(t *testing.T) {
	t.Parallel()
	plain := func(base int64, n int) []byte { b := simple(base, n); return b.encode(t) }
	txn := func(base, producer int64, n int) []byte { return transactional(t, base, producer, n) }
	idempotent := func(base, producer int64, n int) []byte {
		b := simple(base, n)
		b.producer = producer
		return b.encode(t)
	}
	empty := func(base int64, lastDelta int32) []byte {
		b := testBatch{base: base, lastDelta: lastDelta, producer: -1}
		return b.encode(t)
	}
	holes := testBatch{base: 10, lastDelta: 9, producer: -1, records: []testRecord{{delta: 2}, {delta: 5}}}
	join := func(bs ...[]byte) []byte { return bytes.Join(bs, nil) }
	const commit, abort = 1, 0

	for _, tc := range []struct {
		name    string
		buf     []byte
		from    int64
		aborted []abortedTxn
		want    []int64
		next    int64
		d       decoded
	}{
		{name: "one batch", buf: plain(5, 3), from: 5, want: []int64{5, 6, 7}, next: 8},
		{name: "records before the asked offset", buf: plain(5, 4), from: 7, want: []int64{7, 8}, next: 9},
		{name: "batch before the asked offset", buf: join(plain(0, 5), plain(5, 2)), from: 5, want: []int64{5, 6}, next: 7},
		{name: "partial batch at the end", buf: join(plain(0, 2), plain(2, 2)[:40]), want: []int64{0, 1}, next: 2},
		{name: "less than a length at the end", buf: join(plain(0, 2), plain(2, 2)[:3]), want: []int64{0, 1}, next: 2},
		{name: "compaction took the tail and the middle", buf: holes.encode(t), from: 10, want: []int64{12, 15}, next: 20},
		{name: "gap before the first batch", buf: plain(50, 1), from: 7, want: []int64{50}, next: 51},
		{name: "empty batch alone", buf: empty(0, 4), want: nil, next: 5},
		{name: "empty batches in a row", buf: join(empty(0, 4), empty(5, 0), empty(6, 3), plain(10, 1)), want: []int64{10}, next: 11},
		{
			name: "control batches", buf: join(txn(0, 7, 2), controlBatch(t, 2, 7, commit), plain(3, 1)),
			want: []int64{0, 1, 3}, next: 4, d: decoded{control: 1},
		},
		{name: "control batch alone", buf: controlBatch(t, 2, 7, commit), from: 2, want: nil, next: 3, d: decoded{control: 1}},
		{
			name: "aborted transaction", buf: join(txn(0, 7, 2), controlBatch(t, 2, 7, abort), txn(3, 7, 1), controlBatch(t, 4, 7, commit)),
			aborted: []abortedTxn{{7, 0}}, want: []int64{3}, next: 5, d: decoded{control: 2, aborted: 2},
		},
		{
			name: "aborted with its marker in the next answer", buf: join(txn(0, 7, 2), txn(2, 7, 2)),
			aborted: []abortedTxn{{7, 0}}, want: nil, next: 4, d: decoded{aborted: 4},
		},
		{
			name: "interleaved producers", buf: join(txn(0, 7, 1), txn(1, 8, 1), controlBatch(t, 2, 7, abort), txn(3, 8, 1), controlBatch(t, 4, 8, commit)),
			aborted: []abortedTxn{{7, 0}}, want: []int64{1, 3}, next: 5, d: decoded{control: 2, aborted: 1},
		},
		{
			name: "two aborted, listed out of order", buf: join(txn(0, 7, 1), txn(1, 8, 1), controlBatch(t, 2, 8, abort), controlBatch(t, 3, 7, abort), txn(4, 7, 1)),
			aborted: []abortedTxn{{8, 1}, {7, 0}}, want: []int64{4}, next: 5, d: decoded{control: 2, aborted: 2},
		},
		{
			name: "same producer aborts twice", buf: join(txn(0, 7, 1), controlBatch(t, 1, 7, abort), txn(2, 7, 1), controlBatch(t, 3, 7, abort), txn(4, 7, 1), controlBatch(t, 5, 7, commit)),
			aborted: []abortedTxn{{7, 0}, {7, 2}}, want: []int64{4}, next: 6, d: decoded{control: 3, aborted: 2},
		},
		{
			name: "aborted producer writes without a transaction", buf: join(idempotent(0, 7, 1), txn(1, 7, 1), controlBatch(t, 2, 7, abort)),
			aborted: []abortedTxn{{7, 0}}, want: []int64{0}, next: 3, d: decoded{control: 1, aborted: 1},
		},
		{
			name: "aborted transaction that begins later", buf: join(txn(0, 7, 1), controlBatch(t, 1, 7, commit), txn(2, 7, 1), controlBatch(t, 3, 7, abort)),
			aborted: []abortedTxn{{7, 2}}, want: []int64{0}, next: 4, d: decoded{control: 2, aborted: 1},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cs := testCodecs(t, 1<<20)
			got, d, _, err := decodeAll(cs, tc.buf, tc.from, tc.aborted...)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, offsets(got)); diff != "" {
				t.Errorf("offsets (-want +got):\n%s", diff)
			}
			if d != tc.d {
				t.Errorf("Got %+v left out, want %+v", d, tc.d)
			}
			at := tc.from
			for _, b := range got {
				if b.From != at {
					t.Errorf("Got a batch from %d, want %d", b.From, at)
				}
				at = b.Next
			}
			if at != tc.next {
				t.Errorf("Got next %d, want %d", at, tc.next)
			}
		})
	}
}

func TestDecodeTimestamps(t *testing.T) {
	t.Parallel()
	cs := testCodecs(t, 1<<20)
	b := testBatch{
		lastDelta: -1, producer: -1, epoch: 9, firstTS: 1000, maxTS: 5000,
		records: []testRecord{{delta: 0, timeDelta: 7}, {delta: 1, timeDelta: -3}},
	}
	for attrs, want := range map[int16][]int64{0: {1007, 997}, attrLogAppendTime: {5000, 5000}} {
		b.attrs = attrs
		got, _, _, err := decodeAll(cs, b.encode(t), 0)
		if err != nil {
			t.Fatal(err)
		}
		if ts := []int64{got[0].Records[0].Timestamp, got[0].Records[1].Timestamp}; !slices.Equal(ts, want) {
			t.Errorf("attributes %x: Got times %v, want %v", attrs, ts, want)
		}
		if got[0].LeaderEpoch != 9 {
			t.Errorf("Got leader epoch %d, want 9", got[0].LeaderEpoch)
		}
	}
}

func TestDecodeErrors(t *testing.T) {
	t.Parallel()
	good := simple(100, 3)
	raw := good.encode(t)
	change := func(f func(b []byte)) []byte {
		b := slices.Clone(raw)
		f(b)
		return b
	}
	resealed := func(f func(b []byte)) []byte { return seal(change(f)) }
	bomb := func(codec int16) []byte {
		b := testBatch{base: 100, attrs: codec, producer: -1}
		return b.frame(t, make([]byte, 2<<20), 0, 1)
	}
	// A few bytes each, in less than the bound.
	many := func(records, headers int) []byte {
		b := testBatch{base: 100, lastDelta: -1, producer: -1}
		for i := range records {
			b.records = append(b.records, testRecord{delta: int32(i), headers: make([]Header, headers)})
		}
		return b.encode(t)
	}
	// Records at these offsets after 100, in a batch of the offsets 100 to 102.
	at := func(deltas ...int32) []byte {
		b := testBatch{base: 100, lastDelta: 2, producer: -1}
		for _, d := range deltas {
			b.records = append(b.records, testRecord{delta: d})
		}
		return b.encode(t)
	}
	for _, tc := range []struct {
		name   string
		buf    []byte
		text   string
		offset int64
	}{
		{"offsets that go back", at(0, 2, 1), "offset 101 after 102, in a batch of [100, 102]", 100},
		{"an offset twice", at(0, 1, 1), "offset 101 after 101, in a batch of [100, 102]", 100},
		{"an offset before the batch", at(-1, 0, 1), "offset 99 after 99, in a batch of [100, 102]", 100},
		{"an offset behind the batch", at(0, 1, 3), "offset 103 after 101, in a batch of [100, 102]", 100},
		{"flipped bit", change(func(b []byte) { b[len(b)-2] ^= 1 }), "CRC-32C", 100},
		{"flipped bit in the header", change(func(b []byte) { b[30] ^= 1 }), "CRC-32C", 100},
		{"message format 3", change(func(b []byte) { b[batchMagicAt] = 3 }), "message format 3", 0},
		{"short length", change(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 20) }), "length 20", 0},
		{"negative length", change(func(b []byte) { binary.BigEndian.PutUint32(b[8:], 1<<31) }), "length -", 0},
		{"too many records", resealed(func(b []byte) { binary.BigEndian.PutUint32(b[57:], 4) }), "4 records for 3 offsets", 0},
		{"too few records", resealed(func(b []byte) { binary.BigEndian.PutUint32(b[57:], 2) }), "after the last record", 100},
		{"more records than bytes", resealed(func(b []byte) {
			binary.BigEndian.PutUint32(b[23:], 1<<30)
			binary.BigEndian.PutUint32(b[57:], 1<<30)
		}), "1073741824 records in", 100},
		{"negative offset", resealed(func(b []byte) { binary.BigEndian.PutUint64(b, 1<<63) }), "offsets", 0},
		{"codec 5", resealed(func(b []byte) { b[batchAttrsAt+1] = 5 }), "unknown compression codec 5", 100},
		{"not gzip", resealed(func(b []byte) { b[batchAttrsAt+1] = byte(codecGzip) }), "gzip", 100},
		{"not snappy", resealed(func(b []byte) { b[batchAttrsAt+1] = byte(codecSnappy) }), "snappy", 100},
		{"not lz4", resealed(func(b []byte) { b[batchAttrsAt+1] = byte(codecLZ4) }), "lz4", 100},
		{"not zstd", resealed(func(b []byte) { b[batchAttrsAt+1] = byte(codecZstd) }), "zstd", 100},
		{"gzip bomb", bomb(codecGzip), "more than the bound", 100},
		{"snappy bomb", bomb(codecSnappy), "more than the bound", 100},
		{"lz4 bomb", bomb(codecLZ4), "more than the bound", 100},
		{"zstd bomb", bomb(codecZstd), "more than the bound", 100},
		{"many records", many(20_000, 0), "batch of 20000 records in", 100},
		{"many headers", many(1, 30_000), "30000 headers: the batch takes more memory", 100},
		{"headers of many records", many(100, 300), "300 headers: the batch takes more memory", 100},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cs := testCodecs(t, 1<<20)
			got, _, _, err := decodeAll(cs, tc.buf, tc.offset)
			if err == nil || !strings.Contains(err.Error(), tc.text) {
				t.Fatalf("Got %v, want an error with %q", err, tc.text)
			}
			if len(got) != 0 {
				t.Errorf("Got %d batches with the error", len(got))
			}
			// What is before the bad batch comes first.
			before := simple(0, 2)
			buf := append(before.encode(t), tc.buf...)
			got, _, _, err = decodeAll(cs, buf, 0)
			if err == nil || !slices.Equal(offsets(got), []int64{0, 1}) {
				t.Errorf("Got offsets %v and error %v, want [0 1] and the error", offsets(got), err)
			}
			var corrupt *UnreadableError
			if errors.As(err, &corrupt) && errors.Is(err, ErrCorruptBatch) == errors.Is(err, ErrBatchTooLarge) {
				t.Errorf("Got %v, want it corrupt or too large", err)
			}
		})
	}
}

func TestScanNeed(t *testing.T) {
	t.Parallel()
	b := simple(0, 100)
	raw := b.encode(t)
	for _, n := range []int{20, batchHeaderLen, len(raw) - 1} {
		c := &chunk{buf: raw[:n:n]}
		need, beyond, err := c.scan()
		if err != nil || need < batchHeaderLen || (n >= batchMagicAt+1 && need != max(len(raw), batchHeaderLen)) {
			t.Errorf("%d of %d bytes: Got need %d and %v", n, len(raw), need, err)
		}
		if want := int64(100); beyond != want && (n >= batchHeaderLen || beyond != -1) {
			t.Errorf("%d of %d bytes: Got an end before %d, want %d", n, len(raw), beyond, want)
		}
		if c.next != 0 || len(c.buf) != 0 {
			t.Errorf("%d of %d bytes: Got next %d, %d bytes", n, len(raw), c.next, len(c.buf))
		}
	}
}

func TestXerialSnappy(t *testing.T) {
	t.Parallel()
	// Two blocks as snappy-java writes them: "hello ", "world".
	raw, err := hex.DecodeString("82534e41505059000000000100000001" +
		"00000008" + "0614" + "68656c6c6f20" + "00000007" + "0510" + "776f726c64")
	if err != nil {
		t.Fatal(err)
	}
	cs := testCodecs(t, 1<<20)
	got, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecSnappy, raw, 1)
	if err != nil || string(got) != "hello world" {
		t.Errorf("Got %q and %v", got, err)
	}
	for n := range len(raw) {
		if got, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecSnappy, raw[:n], 1); err == nil && n != xerialHeaderLen && n != 28 {
			t.Errorf("%d bytes: Got %q and no error", n, got)
		}
	}
}

// What a codec says of the size is what it unfolds to, so that nothing is decoded twice.
func TestUnfolded(t *testing.T) {
	t.Parallel()
	cs := testCodecs(t, 1<<20)
	value := bytes.Repeat([]byte("0123456789abcdef"), 20_000)
	copy(value[1000:], scrambled(100_000))
	for codec, n := range map[Compression]int16{Gzip: codecGzip, Snappy: codecSnappy, Zstd: codecZstd} {
		e, err := newEncoder(codec)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := e.encode(nil, []*Message{{Value: value}}, time.Now(), &sequence{producerID: noProducer})
		if err != nil {
			t.Fatal(err)
		}
		b := testMemoryBatch(fetchMemoryOf(nil))
		body := raw[batchHeaderLen:]
		out, err := cs.decompress(b, n, body, 1)
		if err != nil {
			t.Fatal(err)
		}
		if got := cs.unfolded(&Batch{}, n, body); got < len(out) || got > len(out)+1 {
			t.Errorf("%s: Got %d bytes expected of %d", codec, got, len(out))
		}
	}
	for _, size := range []int{1, 1000, 300_000} { // with no size in the header
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out)
		if err == nil {
			_, err = w.Write(value[:size])
		}
		if err == nil {
			err = errors.Join(w.Flush(), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		if got, ok := zstdLen(out.Bytes()); !ok || got < size || got > size+2*zstdBlock {
			t.Errorf("Got %d bytes expected of %d in blocks (%t)", got, size, ok)
		}
		for n := range min(out.Len(), 100) {
			zstdLen(out.Bytes()[:n]) // never beyond the end
		}
	}
}

// Producers that compress as they go, Java's among them, do not know the size of a
// batch at its beginning: the frame demands the window of its level, whatever is in
// it. That is not what the bound is about.
func TestZstdWindow(t *testing.T) {
	t.Parallel()
	streamed := func(window, size int) []byte {
		var out bytes.Buffer
		w, err := zstd.NewWriter(&out, zstd.WithWindowSize(window))
		if err == nil {
			_, err = w.Write(make([]byte, size))
		}
		if err == nil {
			err = errors.Join(w.Flush(), w.Close())
		}
		if err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	const limit = 1 << 10
	cs := testCodecs(t, limit)
	if got, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecZstd, streamed(8<<20, limit), 1); err != nil || len(got) != limit {
		t.Errorf("Got %d bytes and %v, want %d", len(got), err, limit)
	}
	for _, size := range []int{limit + 1, 16 << 20} {
		if _, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecZstd, streamed(8<<20, size), 1); !errors.Is(err, errBomb) {
			t.Errorf("%d bytes: Got %v, want a bomb", size, err)
		}
	}
	if _, err := cs.decompress(testMemoryBatch(fetchMemoryOf(nil)), codecZstd, streamed(16<<20, limit), 1); err == nil || !strings.Contains(err.Error(), "window") {
		t.Errorf("Got %v, want the window named", err)
	}
}

// TestDecodeProperty: whatever is encoded by kmsg comes out, for all codecs and
// attributes, from any offset on, however the batches are cut.
func TestDecodeProperty(t *testing.T) {
	t.Parallel()
	cs := testCodecs(t, 8<<20)
	field := rapid.OneOf(rapid.Just([]byte(nil)), rapid.SliceOfN(rapid.Byte(), 0, 300))
	rapid.Check(t, func(t *rapid.T) {
		type want struct {
			Record
			gone bool
		}
		var buf []byte
		var records []want
		var aborted []abortedTxn
		open := map[int64]bool{} // producers inside an aborted transaction
		inTxn := map[int64]bool{}
		at := rapid.Int64Range(0, 1<<40).Draw(t, "start")
		first := at
		var ends []int64
		for range rapid.IntRange(1, 6).Draw(t, "batches") {
			at += rapid.Int64Range(0, 3).Draw(t, "gap")
			producer := rapid.SampledFrom([]int64{-1, 7, 8}).Draw(t, "producer")
			if producer >= 0 && inTxn[producer] && rapid.Bool().Draw(t, "end") {
				kind := byte(1)
				if open[producer] {
					kind = controlAbort
				}
				b := testBatch{
					base: at, lastDelta: -1, attrs: attrControl | attrTransactional, producer: producer,
					records: []testRecord{{key: []byte{0, 0, 0, kind}}},
				}
				buf = append(buf, b.encode(t)...)
				delete(open, producer)
				delete(inTxn, producer)
				at++
				ends = append(ends, at)
				continue
			}
			b := testBatch{
				base: at, producer: producer, epoch: int32(rapid.IntRange(0, 5).Draw(t, "epoch")),
				attrs:   int16(rapid.IntRange(0, 4).Draw(t, "codec")),
				firstTS: rapid.Int64Range(0, 1<<41).Draw(t, "first"), maxTS: rapid.Int64Range(0, 1<<41).Draw(t, "max"),
			}
			if rapid.Bool().Draw(t, "append time") {
				b.attrs |= attrLogAppendTime
			}
			if producer >= 0 && (inTxn[producer] || rapid.Bool().Draw(t, "txn")) {
				b.attrs |= attrTransactional
				if !inTxn[producer] && rapid.Bool().Draw(t, "abort") {
					open[producer] = true
					aborted = append(aborted, abortedTxn{producer, at})
				}
				inTxn[producer] = true
			}
			delta := int32(0)
			for range rapid.IntRange(0, 20).Draw(t, "records") {
				delta += int32(rapid.IntRange(0, 2).Draw(t, "hole"))
				r := testRecord{
					delta: delta, timeDelta: rapid.Int64Range(-1000, 1000).Draw(t, "delta"),
					key: field.Draw(t, "key"), value: field.Draw(t, "value"),
				}
				for range rapid.IntRange(0, 2).Draw(t, "headers") {
					r.headers = append(r.headers, Header{Key: []byte(rapid.String().Draw(t, "hkey")), Value: field.Draw(t, "hvalue")})
				}
				b.records = append(b.records, r)
				ts := b.firstTS + r.timeDelta
				if b.attrs&attrLogAppendTime != 0 {
					ts = b.maxTS
				}
				records = append(records, want{
					Record{at + int64(delta), ts, r.key, r.value, r.headers},
					b.attrs&attrTransactional != 0 && open[producer],
				})
				delta++
			}
			b.lastDelta = delta + int32(rapid.IntRange(0, 3).Draw(t, "tail"))
			buf = append(buf, b.encode(t)...)
			at += int64(b.lastDelta) + 1
			ends = append(ends, at)
		}
		from := rapid.Int64Range(first, at-1).Draw(t, "from")
		cut := rapid.IntRange(0, 60).Draw(t, "cut")
		tail := simple(at, 1)
		buf = append(buf, tail.encode(t)[:cut]...)

		got, _, _, err := decodeAll(cs, buf, from, aborted...)
		if err != nil {
			t.Fatal(err)
		}
		var wantRecords, gotRecords []Record
		for _, w := range records {
			if !w.gone && w.Offset >= from {
				wantRecords = append(wantRecords, w.Record)
			}
		}
		for _, b := range got {
			gotRecords = append(gotRecords, b.Records...)
		}
		if !sameRecords(wantRecords, gotRecords) {
			t.Fatalf("records from %d (-want +got):\n%s", from, cmp.Diff(wantRecords, gotRecords))
		}
		if next := got[len(got)-1].Next; next != ends[len(ends)-1] {
			t.Fatalf("Got next %d, want %d", next, ends[len(ends)-1])
		}
	})
}

// TestAbortMarkerBeforeFirstOffset: a broker may answer with batches before the
// offset that was asked for. The abort marker among them still ends its
// transaction, and the next one of the same producer is read.
func TestAbortMarkerBeforeFirstOffset(t *testing.T) {
	t.Parallel()
	txn := func(base int64) []byte { return transactional(t, base, 7, 1) }
	abort := testBatch{
		base: 1, lastDelta: -1, attrs: attrControl | attrTransactional, producer: 7,
		records: []testRecord{{key: []byte{0, 0, 0, controlAbort}}},
	}
	buf := slices.Concat(txn(0), abort.encode(t), txn(2))
	got, _, _, err := decodeAll(testCodecs(t, 1<<20), buf, 2, abortedTxn{7, 0})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || len(got[0].Records) != 1 || got[0].Records[0].Offset != 2 {
		t.Fatalf("Got %+v, want the record at 2", got)
	}
}

// TestAbortedTwice: the list may name a producer twice whose first marker compaction has
// taken. The one that is left ends both, as for Kafka's consumers.
func TestAbortedTwice(t *testing.T) {
	t.Parallel()
	txn := func(base int64) []byte { return transactional(t, base, 7, 1) }
	buf := slices.Concat(txn(5), controlBatch(t, 6, 7, controlAbort), txn(7))
	got, d, _, err := decodeAll(testCodecs(t, 1<<20), buf, 5, abortedTxn{7, 0}, abortedTxn{7, 5})
	if err != nil || !slices.Equal(offsets(got), []int64{7}) || d != (decoded{control: 1, aborted: 1}) {
		t.Errorf("Got %v, %+v and %v, want the record at 7", offsets(got), d, err)
	}
}

// TestAbortedFromInside: of an aborted batch, a fetch from inside it counts the records
// from there on.
func TestAbortedFromInside(t *testing.T) {
	t.Parallel()
	good := simple(11, 1)
	buf := slices.Concat(transactional(t, 0, 7, 10), controlBatch(t, 10, 7, controlAbort), good.encode(t))
	got, d, _, err := decodeAll(testCodecs(t, 1<<20), buf, 4, abortedTxn{7, 0})
	if err != nil || d != (decoded{control: 1, aborted: 6}) {
		t.Fatalf("Got %+v and %v", d, err)
	}
	if diff := cmp.Diff([]Aborted{{Last: 9, Records: 6}}, got[0].Aborted); diff != "" {
		t.Errorf("aborted (-want +got):\n%s", diff)
	}
}

// TestCorruptBatchBeforeGap: what cannot be read goes up to the batch that follows, as
// nothing vouches for the last offset that a corrupt one names.
func TestCorruptBatchBeforeGap(t *testing.T) {
	t.Parallel()
	bad, good := simple(0, 5), simple(9, 1)
	raw := bad.encode(t)
	raw[len(raw)-1] ^= 1
	_, _, _, err := decodeAll(testCodecs(t, 1<<20), slices.Concat(raw, good.encode(t)), 0)
	if corrupt, ok := errors.AsType[*UnreadableError](err); !ok || corrupt.Offset != 0 || corrupt.Next != 9 {
		t.Errorf("Got %v, want offsets 0 to 8 that cannot be read", err)
	}
}

// TestLengthsBelowNull: -1 is null, and less is no length.
func TestLengthsBelowNull(t *testing.T) {
	t.Parallel()
	b := testBatch{producer: -1}
	record := func(key, value int64) []byte { // attributes, two deltas, no headers
		body := append(binary.AppendVarint(binary.AppendVarint([]byte{0, 0, 0}, key), value), 0)
		return append(binary.AppendVarint(nil, int64(len(body))), body...)
	}
	for _, tc := range []struct {
		key, value int64
		text       string
	}{{-2, -1, "key of record 0"}, {-1, -2, "value of record 0"}, {-1, -1, ""}} {
		_, _, _, err := decodeAll(testCodecs(t, 1<<20), b.frame(t, record(tc.key, tc.value), 0, 1), 0)
		if (err == nil) != (tc.text == "") || err != nil && !strings.Contains(err.Error(), tc.text) {
			t.Errorf("lengths %d and %d: Got %v", tc.key, tc.value, err)
		}
	}
}

// sameRecords compares records to the byte, null and empty apart. cmp takes
// seconds for as many bytes, so it only words the difference.
func sameRecords(a, b []Record) bool {
	same := func(x, y []byte) bool { return bytes.Equal(x, y) && (x == nil) == (y == nil) }
	return slices.EqualFunc(a, b, func(x, y Record) bool {
		return x.Offset == y.Offset && x.Timestamp == y.Timestamp && same(x.Key, y.Key) && same(x.Value, y.Value) &&
			slices.EqualFunc(x.Headers, y.Headers, func(h, i Header) bool { return same(h.Key, i.Key) && same(h.Value, i.Value) })
	})
}

// TestNullAndEmpty: Kafka tells null from empty, and so do we.
func TestNullAndEmpty(t *testing.T) {
	t.Parallel()
	b := testBatch{lastDelta: -1, producer: -1, records: []testRecord{
		{delta: 0, key: nil, value: []byte{}, headers: []Header{{Key: []byte{}, Value: nil}, {Key: []byte("k"), Value: []byte{}}}},
		{delta: 1, key: []byte{}, value: nil},
	}}
	got, _, _, err := decodeAll(testCodecs(t, 1<<20), b.encode(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	r := got[0].Records
	if r[0].Key != nil || r[0].Value == nil || r[1].Key == nil || r[1].Value != nil ||
		r[0].Headers[0].Key == nil || r[0].Headers[0].Value != nil || r[0].Headers[1].Value == nil || r[1].Headers != nil {
		t.Errorf("Got %#v", r)
	}
}

// TestEncodeDecode: the producer's own encoder against the decoder and kmsg.
func TestEncodeDecode(t *testing.T) {
	t.Parallel()
	cs := testCodecs(t, 8<<20)
	now := time.UnixMilli(1_700_000_000_000)
	for _, codec := range []Compression{None, Gzip, Snappy, LZ4, Zstd} {
		e, err := newEncoder(codec)
		if err != nil {
			t.Fatal(err)
		}
		var msgs []*Message
		var want []Record
		for i := range 500 {
			m := &Message{Key: fmt.Append(nil, i), Value: bytes.Repeat([]byte{byte(i)}, i), Time: now.Add(time.Duration(250-i) * time.Second)}
			if i%3 == 0 {
				m.Headers = []Header{{Key: []byte("h"), Value: []byte("x")}, {Key: []byte("n")}}
			}
			if i%7 == 0 {
				m.Key, m.Time = nil, time.Time{}
			}
			ts := now.UnixMilli()
			if !m.Time.IsZero() {
				ts = m.Time.UnixMilli()
			}
			msgs = append(msgs, m)
			want = append(want, Record{int64(i), ts, m.Key, m.Value, m.Headers})
			if got := len(appendRecord(nil, int64(i), 1<<40, m)); got > m.size() {
				t.Errorf("Got a record of %d bytes, more than its bound %d", got, m.size())
			}
		}
		raw, err := e.encode(nil, msgs, now, &sequence{producerID: noProducer})
		if err != nil {
			t.Fatal(err)
		}
		got, _, _, err := decodeAll(cs, raw, 0)
		if err != nil {
			t.Fatalf("%s: %v", codec, err)
		}
		if !sameRecords(want, got[0].Records) {
			t.Errorf("%s (-want +got):\n%s", codec, cmp.Diff(want, got[0].Records))
		}
		var rb kmsg.RecordBatch
		if err := rb.ReadFrom(raw); err != nil || rb.NumRecords != 500 || rb.ProducerID != -1 || rb.LastOffsetDelta != 499 {
			t.Errorf("%s: kmsg reads %+v, %v", codec, rb, err)
		}
	}
}

// FuzzDecode: garbage never panics and never takes more memory than the bound
// and a multiple of the input.
func FuzzDecode(f *testing.F) {
	for codec := range int16(5) {
		b := simple(10, 20)
		b.attrs = codec
		f.Add(b.encode(f), int64(12), int64(-1), int64(0))
		b.attrs |= attrTransactional
		b.producer = 7
		f.Add(append(b.encode(f), controlBatch(f, 30, 7, 0)...), int64(0), int64(7), int64(10))
	}
	for magic := range int8(2) {
		f.Add(brokersLog(f, magic), int64(25), int64(-1), int64(0))
	}
	const limit = 1 << 20
	cs := testCodecs(f, limit)
	f.Fuzz(func(t *testing.T, buf []byte, from, producer, first int64) {
		for _, resealed := range []bool{false, true} {
			raw := slices.Clone(buf)
			if resealed { // past the CRC
				for at := 0; at < len(raw); {
					h, err := parseBatchHeader(raw[at:])
					if err != nil {
						break
					}
					if h.magic < 2 {
						sealMessage(raw[at : at+h.size])
					} else {
						seal(raw[at : at+h.size])
					}
					at += h.size
				}
			}
			got, _, _, _ := decodeAll(cs, raw, max(from, 0), abortedTxn{producer, first})
			at := max(from, 0)
			for _, b := range got {
				if b.Next < b.From || b.From != at {
					t.Fatalf("batch of [%d, %d) after %d", b.From, b.Next, at)
				}
				at = b.Next
				bound := len(raw) + len(b.arenas)*4*limit
				for _, a := range b.arenas {
					bound += len(a) / minRecordLen * 100 * 2
				}
				if bound += len(raw) / minRecordLen * 100 * 4; b.Bytes > bound+4096 {
					t.Fatalf("batch holds %d bytes out of %d, bound %d", b.Bytes, len(raw), bound)
				}
				prev := int64(-1)
				for _, r := range b.Records {
					if r.Offset < b.From || r.Offset >= b.Next || r.Offset <= prev {
						t.Fatalf("offset %d in [%d, %d) after %d", r.Offset, b.From, b.Next, prev)
					}
					prev = r.Offset
				}
			}
		}
	})
}

// FuzzFetchResponse: garbage never panics, and what a length claims is not
// allocated.
func FuzzFetchResponse(f *testing.F) {
	for _, version := range []int16{12, 13} {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic = "t"
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.RecordBatches = []byte("records")
		rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 3, 4
		rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 9}}
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		f.Add(append([]byte{0}, resp.AppendTo(nil)...), version)
		f.Add(lyingFetch(version, 2, 21), version)
		f.Add(lyingFetch(version, 11, 1), version)
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		const lent = 1 << 12 // at once: what was granted to a partition
		got, _ := readFetchResponse(bytes.NewReader(body), len(body), 12+version&1, testLender(func(n int) []byte {
			if n > lent {
				return nil
			}
			return make([]byte, 0, n)
		}), wireLimits{bytes: 1 << 16, partitions: 10, aborted: 20})
		aborted := 0
		for i := range got.partitions {
			aborted += len(got.partitions[i].aborted)
		}
		if len(got.partitions) > 10 || aborted > 20 {
			t.Errorf("Got %d partitions and %d aborted transactions, of 10 and 20 that there can be", len(got.partitions), aborted)
		}
	})
}

// lyingFetch is a fetch response of so many partitions of a topic, each with so many aborted
// transactions.
func lyingFetch(version int16, partitions, aborted int) []byte {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic = "t"
	for n := range partitions {
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition = int32(n)
		rp.AbortedTransactions = make([]kmsg.FetchResponseTopicPartitionAbortedTransaction, aborted)
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	return append([]byte{0}, resp.AppendTo(nil)...)
}

// A broker that says more than it was asked for, or than there can be, is not believed: what it
// claims is neither read nor kept.
func TestFetchResponseLies(t *testing.T) {
	t.Parallel()
	most := wireLimits{bytes: 1 << 20, partitions: 10, aborted: 20}
	for _, version := range []int16{12, 13} {
		for _, tc := range []struct {
			partitions, aborted int
			want                string
		}{{10, 2, ""}, {2, 10, ""}, {11, 0, "more than the 10 partitions"}, {1, 21, "21 aborted transactions"}, {3, 8, "8 aborted transactions"}} {
			body := lyingFetch(version, tc.partitions, tc.aborted)
			_, err := readFetchResponse(bytes.NewReader(body), len(body), version, testLender(func(int) []byte { return nil }), most)
			if tc.want == "" && err != nil || tc.want != "" && (!errors.Is(err, errProtocol) || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("v%d: Got %v of %d partitions with %d aborted transactions each, want %q", version, err, tc.partitions, tc.aborted, tc.want)
			}
		}
		// A length alone, of an answer that would be as large.
		body := lyingFetch(version, 1, 0)
		at := bytes.LastIndexByte(body[:len(body)-8], 1) // of the empty array
		body = append(body[:at:at], 0x80, 0x80, 0x80, 0x80, 0x04)
		_, err := readFetchResponse(bytes.NewReader(body), math.MaxInt32, version, testLender(func(int) []byte { return nil }), most)
		if !errors.Is(err, errProtocol) || !strings.Contains(err.Error(), "aborted transactions") {
			t.Errorf("v%d: Got %v of a length of a billion", version, err)
		}
	}
}

func TestFetchResponse(t *testing.T) {
	t.Parallel()
	all := testLender(func(n int) []byte { return make([]byte, 0, n) })
	for _, version := range []int16{12, 13} {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version, resp.ThrottleMillis = version, 17
		big := bytes.Repeat([]byte("x"), 300_000)
		for i := range 2 {
			rt := kmsg.NewFetchResponseTopic()
			rt.Topic, rt.TopicID = fmt.Sprint("t", i), [16]byte{byte(i)}
			for j := range 2 {
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.Partition, rp.ErrorCode = int32(j), int16(i)
				rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = 30, 20, 10
				if j == 0 && i == 1 { // said aloud that nothing diverges: -1, -1
					rp.UnknownTags.Set(0, append(bytes.Repeat([]byte{0xff}, 12), 0))
				}
				if j == 1 {
					rp.RecordBatches = big
					rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = 3, 4
					rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = 1, 2
					rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 7, FirstOffset: 9}}
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		body := append([]byte{0}, resp.AppendTo(nil)...)
		got, err := readFetchResponse(bytes.NewReader(body), len(body), version, all, wireLimits{1 << 20, 10, 10})
		if err != nil {
			t.Fatal(err)
		}
		if len(got.partitions) != 4 || got.throttle != 17*time.Millisecond {
			t.Fatalf("v%d: Got %d partitions, throttle %d", version, len(got.partitions), got.throttle)
		}
		p := got.partitions[3]
		if p.partition != 1 || p.code != 1 || p.high != 30 || p.stable != 20 || p.logStart != 10 ||
			!p.diverges || p.divergeAt != 4 || !bytes.Equal(p.records, big) || !slices.Equal(p.aborted, []abortedTxn{{7, 9}}) {
			t.Errorf("v%d: Got %+v", version, p)
		}
		if version == 12 && p.topic != "t1" || version == 13 && p.topicID != [16]byte{1} {
			t.Errorf("v%d: Got topic %q %x", version, p.topic, p.topicID)
		}
		for _, q := range []fetchedPartition{got.partitions[0], got.partitions[2]} {
			if q.diverges || q.records != nil {
				t.Errorf("v%d: Got %+v, want nothing in it", version, q)
			}
		}
		for n := 0; n < len(body); n += 1 + n/100 {
			if _, err := readFetchResponse(bytes.NewReader(body[:n]), n, version, all, wireLimits{2000, 10, 10}); err == nil {
				t.Errorf("v%d: Got no error for %d of %d bytes", version, n, len(body))
			}
		}
		// A batch above the limit is dropped, and the rest is read.
		got, err = readFetchResponse(bytes.NewReader(body), len(body), version, all, wireLimits{2000, 10, 10})
		if err != nil || got.partitions[1].tooLarge != len(big) || got.partitions[1].records != nil || len(got.partitions) != 4 {
			t.Errorf("v%d: Got %+v and %v", version, got, err)
		}
		// So is what there is no memory for.
		got, err = readFetchResponse(bytes.NewReader(body), len(body), version, testLender(func(int) []byte { return nil }), wireLimits{1 << 20, 10, 10})
		if err != nil || got.partitions[1].tooLarge != 0 || got.partitions[1].records != nil || len(got.partitions) != 4 {
			t.Errorf("v%d: Got %+v and %v", version, got, err)
		}
	}
}

// testLender lends what a function does.
type testLender func(n int) []byte

func (l testLender) room(_ *fetchedPartition, n int) []byte { return l(n) }

func BenchmarkDecode(b *testing.B) {
	for _, codec := range []Compression{None, LZ4, Zstd, Snappy, Gzip} {
		b.Run(string(codec), func(b *testing.B) {
			e, err := newEncoder(codec)
			if err != nil {
				b.Fatal(err)
			}
			var msgs []*Message
			for i := range 4000 {
				v := fmt.Appendf(nil, `{"time":"2024-05-01T00:00:%02d","user":"u%06d","page":"/p/%05d","status":200,"ref":"`, i%60, i*7919%1000000, i*104729%100000)
				for len(v) < 200 {
					v = fmt.Appendf(v, "%08x", i*2654435761+len(v))
				}
				msgs = append(msgs, &Message{Key: fmt.Appendf(nil, "u%06d", i), Value: v[:200]})
			}
			raw, err := e.encode(nil, msgs, time.Now(), &sequence{producerID: noProducer})
			if err != nil {
				b.Fatal(err)
			}
			cs := testCodecs(b, 64<<20)
			f := &Fetcher{c: &Client{codecs: cs}, mem: fetchMemoryOf(nil)}
			r := &PartitionReader{f: f, topic: "t", node: anyNode, replica: anyNode}
			b.SetBytes(int64(len(raw)))
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				c := chunk{buf: raw}
				c.refs.Store(2) // raw is not the pool's
				if _, _, err := c.scan(); err != nil {
					b.Fatal(err)
				}
				batch, _, err := r.decode(b.Context(), &c)
				if err != nil {
					b.Fatal(err)
				}
				n += len(batch.Records)
				batch.Release()
			}
			b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "records/s")
		})
	}
}
