package kafka

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compression is the codec of the record batches that a Producer writes.
type Compression string

// The codecs of Kafka.
const (
	None   Compression = "none"
	Gzip   Compression = "gzip"
	Snappy Compression = "snappy"
	LZ4    Compression = "lz4"
	Zstd   Compression = "zstd"
)

// encoder writes record batches of magic 2. One goroutine uses it at a time.
type encoder struct {
	codec   Compression
	zstd    *zstd.Encoder
	lz4     *lz4.Writer
	gzip    *gzip.Writer
	records []byte // before compression
	packed  bytes.Buffer
}

func newEncoder(codec Compression) (*encoder, error) {
	e := &encoder{codec: codec}
	switch codec {
	case None, Snappy:
	case Gzip:
		e.gzip = gzip.NewWriter(io.Discard)
	case LZ4:
		e.lz4 = lz4.NewWriter(io.Discard)
		if err := e.lz4.Apply(lz4.BlockSizeOption(lz4.Block64Kb)); err != nil {
			return nil, err
		}
	case Zstd:
		var err error
		if e.zstd, err = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest)); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("unknown compression %q: want none, gzip, snappy, lz4 or zstd", codec)
	}
	return e, nil
}

// timestamp is the message's time in ms, or now's.
func (m *Message) timestamp(now int64) int64 {
	if m.Time.IsZero() {
		return now
	}
	return m.Time.UnixMilli()
}

// size is an upper bound of the message's record, in bytes: its fields and the
// longest lengths and deltas.
func (m *Message) size() int {
	n := len(m.Key) + len(m.Value) + 30
	for _, h := range m.Headers {
		n += len(h.Key) + len(h.Value) + 10
	}
	return n
}

// encode appends a record batch of msgs, numbered by seq, to dst. Offsets count
// from 0: the broker sets the base.
func (e *encoder) encode(dst []byte, msgs []*Message, now time.Time, seq *sequence) ([]byte, error) {
	ms := now.UnixMilli()
	first := msgs[0].timestamp(ms)
	latest := first
	size := 0
	for _, m := range msgs {
		size += m.size()
	}
	e.records = slices.Grow(e.records[:0], size) // at once: what a batch takes is known
	for i, m := range msgs {
		t := m.timestamp(ms)
		latest = max(latest, t)
		e.records = appendRecord(e.records, int64(i), t-first, m)
	}
	body, codec, err := e.compress()
	if err != nil {
		return dst, fmt.Errorf("compress with %s: %w", e.codec, err)
	}
	start := len(dst)
	dst = slices.Grow(dst, batchHeaderLen+len(body))
	dst = binary.BigEndian.AppendUint64(dst, 0) // base offset
	dst = binary.BigEndian.AppendUint32(dst, uint32(batchHeaderLen-batchPrefix+len(body)))
	dst = binary.BigEndian.AppendUint32(dst, 0xffffffff) // leader epoch: the broker's
	dst = append(dst, 2)                                 // magic
	dst = binary.BigEndian.AppendUint32(dst, 0)          // CRC, below
	dst = binary.BigEndian.AppendUint16(dst, uint16(codec))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(msgs)-1))
	dst = binary.BigEndian.AppendUint64(dst, uint64(first))
	dst = binary.BigEndian.AppendUint64(dst, uint64(latest))
	dst = binary.BigEndian.AppendUint64(dst, uint64(seq.id))
	dst = binary.BigEndian.AppendUint16(dst, uint16(seq.epoch))
	dst = binary.BigEndian.AppendUint32(dst, uint32(seq.first()))
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(msgs)))
	dst = append(dst, body...)
	crc := crc32.Checksum(dst[start+batchAttrsAt:], castagnoli)
	binary.BigEndian.PutUint32(dst[start+batchCRCAt:], crc)
	return dst, nil
}

// compress returns e.records as the codec has them, valid until the next call.
func (e *encoder) compress() (body []byte, codec int16, err error) {
	e.packed.Reset()
	switch e.codec {
	case Gzip:
		e.gzip.Reset(&e.packed)
		if _, err = e.gzip.Write(e.records); err == nil {
			err = e.gzip.Close()
		}
		return e.packed.Bytes(), codecGzip, err
	case Snappy:
		return s2.EncodeSnappy(e.packed.AvailableBuffer(), e.records), codecSnappy, nil
	case LZ4:
		e.lz4.Reset(&e.packed)
		if _, err = e.lz4.Write(e.records); err == nil {
			err = e.lz4.Close()
		}
		return e.packed.Bytes(), codecLZ4, err
	case Zstd:
		return e.zstd.EncodeAll(e.records, e.packed.AvailableBuffer()), codecZstd, nil
	}
	return e.records, codecNone, nil
}

// appendRecord appends one record after its length.
func appendRecord(dst []byte, offsetDelta, timeDelta int64, m *Message) []byte {
	length := 1 + varintLen(timeDelta) + varintLen(offsetDelta) + fieldLen(m.Key) + fieldLen(m.Value) +
		varintLen(int64(len(m.Headers)))
	for _, h := range m.Headers {
		length += varintLen(int64(len(h.Key))) + len(h.Key) + fieldLen(h.Value)
	}
	dst = binary.AppendVarint(dst, int64(length))
	dst = append(dst, 0) // attributes
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendField(dst, m.Key)
	dst = appendField(dst, m.Value)
	dst = binary.AppendVarint(dst, int64(len(m.Headers)))
	for _, h := range m.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key))) // never null
		dst = append(dst, h.Key...)
		dst = appendField(dst, h.Value)
	}
	return dst
}

func appendField(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func fieldLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}

// varintLen is the length of the zigzag varint of v, in bytes.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for ; u >= 0x80; u >>= 7 {
		n++
	}
	return n
}
