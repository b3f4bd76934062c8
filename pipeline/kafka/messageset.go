package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
)

// The layout of a message of formats 0 and 1, which brokers before Kafka 0.11 have written,
// and later ones until 4.0 where message.format.version said so. Brokers keep it as it is
// and serve it to this day (KIP-724)
// (https://kafka.apache.org/documentation/#messageset).
//
// A message is handled as a record batch of one record. One with a codec holds a message
// set in its value, and its own offset is that of the last message there.
const (
	messageCRCAt   = 12 // the CRC-32 covers what follows it
	messageAttrsAt = 17
	messageTimeAt  = 18 // of format 1, ms since the epoch

	attrMessage = attrCodec | attrLogAppendTime // others are not defined
)

// noTimestamp is the time of a record of format 0.
const noTimestamp = -1

// messageFields returns where key and value begin in a message of a format.
func messageFields(magic int8) int {
	if magic == 0 {
		return messageTimeAt
	}
	return messageTimeAt + 8
}

// parseMessageHeader is parseBatchHeader for formats 0 and 1. h has base and magic. The
// first offset of a message with a codec is in what is compressed: base is its last one.
func parseMessageHeader(b []byte, h batchHeader) (batchHeader, error) {
	length := int(int32(binary.BigEndian.Uint32(b[batchLengthAt:])))
	if least := messageFields(h.magic) + 8 - batchPrefix; length < least {
		return h, fmt.Errorf("message of length %d, less than %d", length, least)
	}
	if h.base < 0 || h.base == math.MaxInt64 {
		return h, fmt.Errorf("message at offset %d", h.base)
	}
	h.size, h.epoch, h.producer, h.count = batchPrefix+length, -1, -1, 1
	h.last, h.whole = h.base, true
	h.firstTS, h.maxTS = noTimestamp, noTimestamp
	if len(b) < h.size {
		return h, errPartial
	}
	h.attrs = int16(b[messageAttrsAt]) & attrMessage
	if h.magic > 0 {
		h.firstTS = int64(binary.BigEndian.Uint64(b[messageTimeAt:]))
		h.maxTS = h.firstTS
	}
	return h, nil
}

// begins returns the first offset of a batch that is read from pos on, as far as is known.
func (h *batchHeader) begins(pos int64) int64 {
	if h.magic < 2 {
		return min(pos, h.base)
	}
	return h.base
}

// messagePair returns the key and the value of a whole message.
func messagePair(raw []byte, magic int8) (key, value []byte, err error) {
	at := messageFields(magic)
	for _, f := range []*[]byte{&key, &value} {
		if len(raw)-at < 4 {
			return nil, nil, errRecord
		}
		n := int(int32(binary.BigEndian.Uint32(raw[at:])))
		at += 4
		if n < -1 || n > len(raw)-at {
			return nil, nil, errRecord
		}
		if n >= 0 {
			*f = raw[at : at+n : at+n]
			at += n
		}
	}
	if at != len(raw) {
		return nil, nil, fmt.Errorf("%d bytes after the value", len(raw)-at)
	}
	return key, value, nil
}

// decodeMessage is decodeBatch for formats 0 and 1.
func (c *chunk) decodeMessage(b *Batch, cs *codecs, h batchHeader) (int, error) {
	raw := c.buf[c.at : c.at+h.size : c.at+h.size]
	if err := c.checksum(h); err != nil {
		return 0, err
	}
	key, value, err := messagePair(raw, h.magic)
	if err != nil {
		return 0, fmt.Errorf("message %d: %w", h.base, err)
	}
	if codec := h.attrs & attrCodec; codec != codecNone {
		if codec > codecLZ4 {
			return 0, fmt.Errorf("compression codec %d in message format %d", codec, h.magic)
		}
		out, err := cs.decompressMessages(b, codec, value, h.magic)
		if err != nil {
			return 0, err
		}
		if err := appendMessages(b, h, out, c.pos, cs.limit); err != nil {
			b.putArena(out)
			return 0, err
		}
		b.arenas = append(b.arenas, out)
		return len(out), nil
	}
	if room := cs.limit - len(raw) - recordSize; room < 0 {
		return 0, fmt.Errorf("message of %d bytes %w of %d bytes", len(raw), errBound, cs.limit)
	}
	if err := b.growRecords(1); err != nil {
		return 0, err
	}
	b.Records = append(b.Records, Record{Offset: h.base, Timestamp: h.firstTS, Key: key, Value: value})
	if b.raw == nil {
		c.refs.Add(1)
		b.raw = c
	}
	b.Bytes += h.size
	return h.size, nil
}

// eachMessage calls f with the messages of a decompressed set, which are of one format.
func eachMessage(set []byte, magic int8, f func(h batchHeader, raw []byte) error) error {
	for at, n := 0, 0; at < len(set); n++ {
		if len(set)-at <= batchMagicAt {
			return fmt.Errorf("message %d of the set: %w", n, errRecord)
		}
		h, err := parseBatchHeader(set[at:])
		switch {
		case errors.Is(err, errPartial):
			return fmt.Errorf("message %d of the set: %w", n, errRecord)
		case err != nil:
			return fmt.Errorf("message %d of the set: %w", n, err)
		case h.magic != magic:
			return fmt.Errorf("message %d of the set is of format %d, in one of format %d", n, h.magic, magic)
		case h.attrs&attrCodec != codecNone:
			return fmt.Errorf("message %d of the set is a compressed set itself", n)
		}
		if err := f(h, set[at:at+h.size:at+h.size]); err != nil {
			return err
		}
		at += h.size
	}
	return nil
}

// appendMessages is appendRecords for the set in the message of h. Its offsets are absolute
// in format 0; in format 1 they count from the set's first, and the message of h has the
// last one's.
func appendMessages(b *Batch, h batchHeader, set []byte, from int64, limit int) error {
	count, last := 0, int64(-1)
	err := eachMessage(set, h.magic, func(in batchHeader, _ []byte) error {
		if in.base <= last {
			return fmt.Errorf("offset %d of a set after %d", in.base, last)
		}
		count, last = count+1, in.base
		return nil
	})
	if err != nil {
		return err
	}
	first := int64(0)
	if h.magic > 0 {
		first = h.base - last
	}
	if count == 0 || first < 0 || first+last > h.base {
		return fmt.Errorf("%d messages up to offset %d in the message %d", count, last, h.base)
	}
	if len(set)+count*recordSize > limit {
		return fmt.Errorf("%d messages in %d bytes %w of %d bytes", count, len(set), errBound, limit)
	}
	if err := b.growRecords(count); err != nil {
		return err
	}
	records := b.Records
	err = eachMessage(set, h.magic, func(in batchHeader, raw []byte) error {
		r := Record{Offset: first + in.base, Timestamp: in.firstTS}
		if r.Offset < from {
			return nil
		}
		if h.attrs&attrLogAppendTime != 0 && h.magic > 0 {
			r.Timestamp = h.maxTS
		}
		var err error
		if r.Key, r.Value, err = messagePair(raw, h.magic); err != nil {
			return fmt.Errorf("message %d: %w", r.Offset, err)
		}
		records = append(records, r)
		return nil
	})
	if err != nil {
		clear(records[len(b.Records):])
		return err
	}
	b.Records = records
	return nil
}

// decompressMessages is decompress for the value of a message. The checksum in the header
// of an lz4 frame is another one in format 0, where it covers the frame's magic number, too
// (KAFKA-3160).
func (cs *codecs) decompressMessages(b *Batch, codec int16, src []byte, magic int8) ([]byte, error) {
	if codec == codecLZ4 && magic == 0 {
		if at := lz4ChecksumAt(src); at > 0 {
			was := src[at] // it comes again where there is no memory now, and with its CRC
			src[at] = byte(xxh32(src[4:at]) >> 8)
			defer func() { src[at] = was }()
		}
	}
	return cs.decompress(b, codec, src, 1)
}

// lz4ChecksumAt returns where the checksum of the header of an lz4 frame stands, 0 where
// there is no such header.
func lz4ChecksumAt(src []byte) int {
	const contentSize, dictionary = 0x08, 0x01 // flags of fields that stand before it
	at := 4 + 2
	if len(src) > 4 && src[4]&contentSize != 0 {
		at += 8
	}
	if len(src) > 4 && src[4]&dictionary != 0 {
		at += 4
	}
	if at >= len(src) {
		return 0
	}
	return at
}

// xxh32 is xxHash's sum of less than 16 bytes with seed 0, which lz4 frames use.
func xxh32(b []byte) uint32 {
	const p1, p2, p3, p4, p5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
	h := uint32(p5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h = bits.RotateLeft32(h+binary.LittleEndian.Uint32(b)*p3, 17) * p4
	}
	for _, c := range b {
		h = bits.RotateLeft32(h+uint32(c)*p5, 11) * p1
	}
	h = (h ^ h>>15) * p2
	h = (h ^ h>>13) * p3
	return h ^ h>>16
}
