package kafka

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"slices"
	"sync/atomic"
	"unsafe"

	"sluice/pipeline/memory"
)

// The layout of a record batch of magic 2
// (https://kafka.apache.org/documentation/#recordbatch).
const (
	batchLengthAt  = 8  // batchLength counts what follows it
	batchPrefix    = 12 // baseOffset, batchLength
	batchMagicAt   = 16
	batchCRCAt     = 17
	batchAttrsAt   = 21 // the CRC-32C covers from here to the end
	batchHeaderLen = 61

	// minRecordLen is what the smallest record takes: length, attributes, two
	// deltas, two lengths of -1 and the header count, a byte each. A batch
	// that claims more records than fit is corrupt, and nothing is allocated
	// for it.
	minRecordLen = 7

	attrCodec         = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20

	controlAbort = 0 // type of the control record that ends an aborted transaction

	// decodeTarget is when a Batch is full, in bytes of keys, values and
	// headers: a fetch of small compressed batches would otherwise unfold into
	// many times the buffer bound at once. The caches of a core hold about as
	// much.
	decodeTarget = 4 << 20
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errPartial: the bytes end inside the batch. A broker cuts an answer where the
// limit falls.
var errPartial = errors.New("record batch is cut off")

// batchHeader is the fixed part of a record batch.
type batchHeader struct {
	base     int64
	magic    int8
	size     int // of the whole batch, in bytes
	epoch    int32
	attrs    int16
	last     int64 // last offset that the batch covers, compacted away or not
	firstTS  int64
	maxTS    int64
	producer int64
	count    int  // of records, checked against size where not compressed
	whole    bool // all of the above is known: the header was not cut off
}

// parseBatchHeader reads the header at the start of b. Its error is errPartial
// where b ends before the batch does.
func parseBatchHeader(b []byte) (batchHeader, error) {
	var h batchHeader
	if len(b) < batchMagicAt+1 {
		return h, errPartial
	}
	h.base = int64(binary.BigEndian.Uint64(b))
	length := int(int32(binary.BigEndian.Uint32(b[batchLengthAt:])))
	switch h.magic = int8(b[batchMagicAt]); h.magic {
	case 0, 1:
		return parseMessageHeader(b, h)
	case 2:
	default:
		return h, fmt.Errorf("message format %d: only formats 0 to 2 are known", h.magic)
	}
	if length < batchHeaderLen-batchPrefix {
		return h, fmt.Errorf("length %d is shorter than a header", length)
	}
	h.size = batchPrefix + length
	if len(b) < batchHeaderLen {
		return h, errPartial
	}
	h.epoch = int32(binary.BigEndian.Uint32(b[12:]))
	h.attrs = int16(binary.BigEndian.Uint16(b[batchAttrsAt:]))
	lastDelta := int32(binary.BigEndian.Uint32(b[23:]))
	h.firstTS = int64(binary.BigEndian.Uint64(b[27:]))
	h.maxTS = int64(binary.BigEndian.Uint64(b[35:]))
	h.producer = int64(binary.BigEndian.Uint64(b[43:]))
	h.count = int(int32(binary.BigEndian.Uint32(b[57:])))
	if h.base < 0 || lastDelta < 0 || h.base > math.MaxInt64-int64(lastDelta)-1 {
		return h, fmt.Errorf("offsets %d + %d", h.base, lastDelta)
	}
	if h.count < 0 || h.count > int(lastDelta)+1 {
		return h, fmt.Errorf("%d records for %d offsets", h.count, int64(lastDelta)+1)
	}
	h.last, h.whole = h.base+int64(lastDelta), true
	if len(b) < h.size {
		return h, errPartial
	}
	return h, nil
}

// beyond returns the offset after the batch, -1 where its header was cut off.
func (h *batchHeader) beyond() int64 {
	if !h.whole {
		return -1
	}
	return h.last + 1
}

// abortedTxn is an aborted transaction in a fetch response: its producer, and
// its first offset.
type abortedTxn struct{ producer, first int64 }

// chunk is the record batches of one partition out of one fetch response, in
// the buffer that they were read into. The reader that decodes it holds a
// reference, and so does every Batch whose records lie in it.
type chunk struct {
	buf        []byte
	from, next int64 // the offsets that it covers: [from, next)
	epoch      int32 // of the last batch
	lastStable int64
	logStart   int64
	aborted    []abortedTxn // by first offset

	// How far it is decoded. Owned by the reader.
	at          int     // in buf
	pos         int64   // next offset
	active      []int64 // producers inside an aborted transaction
	abortedDone int     // of aborted

	refs  atomic.Int32
	mem   *fetchMemory
	grant memory.Grant
	held  *atomic.Int64 // PartitionReader.held
}

// release ends a reference and reports whether it was the last one.
func (c *chunk) release() bool {
	if c.refs.Add(-1) > 0 {
		return false
	}
	c.mem.raw.Put(c.buf)
	c.buf = nil
	c.held.Add(-c.grant.Bytes())
	c.grant.Release()
	return true
}

// scan looks over the batches of c.buf from c.from on, cuts a partial one off
// the end, and sets c.next and c.epoch. need is the size of the batch that did
// not fit, where not even one was whole, and beyond the offset after it, or -1. Its error names the first batch whose
// frame is broken; what is before it stays.
func (c *chunk) scan() (need int, beyond int64, err error) {
	c.next, c.epoch, c.pos, c.at, beyond = c.from, -1, c.from, 0, -1
	at := 0
	for at < len(c.buf) {
		h, perr := parseBatchHeader(c.buf[at:])
		if errors.Is(perr, errPartial) {
			if at == 0 {
				need, beyond = max(h.size, batchHeaderLen), h.beyond()
			}
			break
		}
		if perr != nil {
			err = fmt.Errorf("batch at %d: %w", h.base, perr)
			break
		}
		c.next = max(c.next, h.last+1)
		c.epoch = h.epoch
		at += h.size
	}
	c.buf = c.buf[:at]
	slices.SortStableFunc(c.aborted, func(a, b abortedTxn) int { return cmp.Compare(a.first, b.first) })
	return need, beyond, err
}

// decoded counts what a decoding left out.
type decoded struct{ control, aborted int64 }

// decode fills b, which is empty, with the records of c from where the last
// call stopped, until c ends or b is full. When a batch is corrupt, or there is no
// memory for it, it returns what is before it, and the error the next time: a *noRoom
// where memory is wanted.
func (c *chunk) decode(b *Batch, cs *codecs) (decoded, error) {
	var d decoded
	b.From, b.Next, b.LeaderEpoch = c.pos, c.pos, -1
	b.LastStable, b.LogStart = c.lastStable, c.logStart
	bytes := 0
	for c.at < len(c.buf) && bytes < decodeTarget && (b.taken < b.target || b.Next == b.From) {
		h, err := parseBatchHeader(c.buf[c.at:])
		if err != nil {
			return d, c.unreadable(b, c.pos, -1, err)
		}
		if h.last < c.pos {
			// Nothing in it is asked for, if it is what it says.
			if err := c.checksum(h); err != nil {
				next := c.after(h)
				if next <= c.pos {
					next = -1
				}
				return d, c.unreadable(b, c.pos, next, err)
			}
			// But it may end an aborted transaction.
			if h.attrs&attrControl != 0 {
				if _, err := c.decodeBatch(b, cs, h, new(decoded)); err != nil {
					return d, c.unreadable(b, h.base, h.last+1, err)
				}
			}
		} else {
			n, err := c.decodeBatch(b, cs, h, &d)
			if err != nil {
				return d, c.unreadable(b, h.begins(c.pos), c.after(h), err)
			}
			bytes += n
			c.pos = h.last + 1
			b.Next, b.LeaderEpoch = c.pos, h.epoch
		}
		c.at += h.size
	}
	b.Bytes += int(b.taken)
	return d, nil
}

// after returns the first offset behind the batch at c.at: where the next one begins, if
// it has come, as nothing vouches for what a batch with a wrong checksum says of itself.
func (c *chunk) after(h batchHeader) int64 {
	if next, err := parseBatchHeader(c.buf[c.at+h.size:]); err == nil && next.magic == 2 && next.base > h.base {
		return next.base
	}
	return h.last + 1
}

// unreadable returns nil where b has something to hand out first.
func (c *chunk) unreadable(b *Batch, offset, next int64, err error) error {
	if b.Next > b.From {
		return nil
	}
	if short, ok := errors.AsType[*noRoom](err); ok {
		return short
	}
	return &UnreadableError{Offset: offset, Next: next, Err: err}
}

// decodeBatch appends the records of the batch at c.at to b and returns their
// size in bytes.
func (c *chunk) decodeBatch(b *Batch, cs *codecs, h batchHeader, d *decoded) (int, error) {
	if h.magic < 2 {
		return c.decodeMessage(b, cs, h)
	}
	raw := c.buf[c.at : c.at+h.size : c.at+h.size]
	if err := c.checksum(h); err != nil {
		return 0, err
	}
	// As the Java client's CompletedFetch: a transaction counts as aborted
	// from its first offset on, until its producer's abort marker.
	if h.producer >= 0 {
		for c.abortedDone < len(c.aborted) && c.aborted[c.abortedDone].first <= h.last {
			if p := c.aborted[c.abortedDone].producer; !slices.Contains(c.active, p) {
				c.active = append(c.active, p)
			}
			c.abortedDone++
		}
	}
	body := raw[batchHeaderLen:]
	if h.attrs&attrControl != 0 {
		d.control++
		return 0, c.control(h, body, cs.limit)
	}
	if h.producer >= 0 && h.attrs&attrTransactional != 0 && slices.Contains(c.active, h.producer) {
		n := min(int64(h.count), h.last+1-max(h.base, c.pos)) // the fetch may begin inside
		d.aborted += n
		b.Aborted = append(b.Aborted, Aborted{Last: h.last, Records: n})
		return 0, nil
	}
	if h.count == 0 {
		return 0, nil // compaction left the frame alone
	}
	if codec := h.attrs & attrCodec; codec != codecNone {
		out, err := cs.decompress(b, codec, body, h.count)
		if err != nil {
			return 0, err
		}
		if err := appendRecords(b, h, out, c.pos, cs.limit); err != nil {
			b.putArena(out)
			return 0, err
		}
		b.arenas = append(b.arenas, out)
		return len(out), nil
	}
	if err := appendRecords(b, h, body, c.pos, cs.limit); err != nil {
		return 0, err
	}
	if b.raw == nil {
		c.refs.Add(1)
		b.raw = c
	}
	b.Bytes += h.size
	return len(body), nil
}

// checksum compares the batch at c.at with its checksum.
func (c *chunk) checksum(h batchHeader) error {
	raw := c.buf[c.at : c.at+h.size]
	if h.magic < 2 {
		if want, got := binary.BigEndian.Uint32(raw[messageCRCAt:]), crc32.ChecksumIEEE(raw[batchMagicAt:]); want != got {
			return fmt.Errorf("CRC-32 is %08x, want %08x", got, want)
		}
		return nil
	}
	if want, got := binary.BigEndian.Uint32(raw[batchCRCAt:]), crc32.Checksum(raw[batchAttrsAt:], castagnoli); want != got {
		return fmt.Errorf("CRC-32C is %08x, want %08x", got, want)
	}
	return nil
}

// control reads the type of a control batch's record: an abort marker ends its
// producer's aborted transaction.
func (c *chunk) control(h batchHeader, body []byte, limit int) error {
	if h.count == 0 {
		return nil
	}
	var one Batch
	if h.attrs&attrCodec != codecNone {
		return errors.New("compressed control batch")
	}
	if err := appendRecords(&one, h, body, 0, limit); err != nil {
		return fmt.Errorf("control record: %w", err)
	}
	key := one.Records[0].Key // version int16, type int16
	if len(key) < 4 {
		return fmt.Errorf("control record with a key of %d bytes", len(key))
	}
	if binary.BigEndian.Uint16(key[2:]) == controlAbort {
		if i := slices.Index(c.active, h.producer); i >= 0 {
			c.active = slices.Delete(c.active, i, i+1)
		}
	}
	return nil
}

// What a record and a header take here beside their bytes: up to 14 and 24 times
// what they take on the wire.
const (
	recordSize = int(unsafe.Sizeof(Record{}))
	headerSize = int(unsafe.Sizeof(Header{}))
)

// errBound: the batch is no bomb by its bytes, and too many records or headers.
var errBound = errors.New("takes more memory than the bound")

// appendRecords appends the records of a batch at or after offset from to b.
// Their slices lie in body, and together with it they take up to limit bytes. When
// it fails, b is as it was.
func appendRecords(b *Batch, h batchHeader, body []byte, from int64, limit int) error {
	if h.count > len(body)/minRecordLen {
		return fmt.Errorf("%d records in %d bytes", h.count, len(body))
	}
	room := limit - len(body) - h.count*recordSize
	if room < 0 {
		return fmt.Errorf("batch of %d records in %d bytes %w of %d bytes", h.count, len(body), errBound, limit)
	}
	b.maxHeaders = room / headerSize
	if err := b.growRecords(h.count); err != nil {
		return err
	}
	filled, headers := len(b.filled), len(b.headers)
	if err := parseRecords(b, h, body, from); err != nil {
		b.cutHeaders(filled, headers)
		clear(b.Records[len(b.Records):min(len(b.Records)+h.count, cap(b.Records))])
		return err
	}
	return nil
}

var errRecord = errors.New("record is cut off")

func parseRecords(b *Batch, h batchHeader, body []byte, from int64) error {
	records := b.Records
	at := 0
	prev := h.base - 1
	for i := range h.count {
		length, n := varint(body[at:])
		if n <= 0 || length < 0 || length > int64(len(body)-at-n) {
			return fmt.Errorf("record %d of %d: %w", i, h.count, errRecord)
		}
		at += n
		rec := body[at : at+int(length) : at+int(length)]
		at += int(length)

		if len(rec) < minRecordLen-1 {
			return fmt.Errorf("record %d of %d: %w", i, h.count, errRecord)
		}
		p := 1 // attributes: none are defined
		timeDelta, n := varint(rec[p:])
		if n <= 0 {
			return fmt.Errorf("record %d of %d: %w", i, h.count, errRecord)
		}
		p += n
		offsetDelta, n := varint(rec[p:])
		if n <= 0 {
			return fmt.Errorf("record %d of %d: %w", i, h.count, errRecord)
		}
		p += n
		offset := h.base + offsetDelta
		if offset <= prev || offset > h.last || offsetDelta < 0 {
			return fmt.Errorf("record %d of %d: offset %d after %d, in a batch of [%d, %d]", i, h.count, offset, prev, h.base, h.last)
		}
		prev = offset
		if offset < from {
			continue
		}
		key, p, ok := field(rec, p)
		if !ok {
			return fmt.Errorf("key of record %d: %w", offset, errRecord)
		}
		value, p, ok := field(rec, p)
		if !ok {
			return fmt.Errorf("value of record %d: %w", offset, errRecord)
		}
		timestamp := h.maxTS
		if h.attrs&attrLogAppendTime == 0 {
			timestamp = h.firstTS + timeDelta
		}
		var headers []Header
		if p < len(rec) && rec[p] == 0 {
			p++ // the usual case: none
		} else {
			var err error
			if headers, p, err = b.parseHeaders(rec, p); err != nil {
				return fmt.Errorf("headers of record %d: %w", offset, err)
			}
		}
		if p != len(rec) {
			return fmt.Errorf("record %d has %d bytes too many", offset, len(rec)-p)
		}
		records = append(records, Record{Offset: offset, Timestamp: timestamp, Key: key, Value: value, Headers: headers})
	}
	if at != len(body) {
		return fmt.Errorf("%d bytes after the last record", len(body)-at)
	}
	b.Records = records
	return nil
}

// parseHeaders appends the headers at rec[p:] to b's and returns them and where
// they end.
func (b *Batch) parseHeaders(rec []byte, p int) ([]Header, int, error) {
	count, n := varint(rec[p:])
	p += n
	// A header takes two lengths at least.
	if n <= 0 || count < 0 || count > int64(len(rec)-p)/2 {
		return nil, p, errRecord
	}
	if count > int64(b.maxHeaders) {
		return nil, p, fmt.Errorf("%d headers: the batch %w", count, errBound)
	}
	b.maxHeaders -= int(count)
	if err := b.growHeaders(int(count)); err != nil {
		return nil, p, err
	}
	first := len(b.headers)
	for range count {
		var h Header
		var ok bool
		if h.Key, p, ok = field(rec, p); !ok || h.Key == nil {
			return nil, p, errRecord
		}
		if h.Value, p, ok = field(rec, p); !ok {
			return nil, p, errRecord
		}
		b.headers = append(b.headers, h)
	}
	return b.headers[first:len(b.headers):len(b.headers)], p, nil
}

// field reads a length and as many bytes: nil for the length -1.
func field(b []byte, p int) ([]byte, int, bool) {
	length, n := varint(b[p:])
	if n <= 0 {
		return nil, p, false
	}
	p += n
	if length < 0 {
		return nil, p, length == -1
	}
	if length > int64(len(b)-p) {
		return nil, p, false
	}
	end := p + int(length)
	return b[p:end:end], end, true
}

// varint decodes a zigzag varint and its length in bytes, 0 or less where there
// is none. Most in a record take one byte or two.
func varint(b []byte) (int64, int) {
	if len(b) >= 2 {
		if u := uint64(b[0]); u < 0x80 {
			return int64(u>>1) ^ -int64(u&1), 1
		} else if b[1] < 0x80 {
			u = u&0x7f | uint64(b[1])<<7
			return int64(u>>1) ^ -int64(u&1), 2
		}
	}
	return binary.Varint(b)
}
