package decode

import (
	"bytes"
	"compress/bzip2"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
)

// The codecs of a container's blocks, besides null and the compressions. xz has no
// decoder here.
const (
	codecNull    = "null"
	codecDeflate = "deflate"
	codecSnappy  = "snappy"
	codecZstd    = "zstandard"
	codecBzip2   = "bzip2"
)

// containerMagic begins an Avro object container file.
const containerMagic = "Obj\x01"

// containerDecoder reads payloads that are Avro object container files: a head with
// the schema, then blocks of documents, packed by one of the codecs. In positions
// of a packed block its bytes count as unpacked.
type containerDecoder struct {
	avroReader
	*unpackMemory
	fields *Fields
	limit  int
	text   []byte // schema of the last payload, and its plan
	plan   *avroPlan

	lengths []int // of the blocks that are unpacked
	broken  *Error
	in      bytes.Reader
	deflate io.Reader     // a flate.Resetter; nil = none yet
	zstd    *zstd.Decoder // nil = none yet
}

func newContainer(o *Options, m *unpackMemory, f *Fields) *containerDecoder {
	return &containerDecoder{avroReader: newAvroReader(f), unpackMemory: m, fields: f, limit: o.maxBytes()}
}

// Decode implements Decoder.
func (d *containerDecoder) Decode(payload []byte, emit func(*Document) error) error {
	d.avroReader.start(payload)
	if !d.inside() {
		d.unpackMemory.start()
	}
	codec, i := d.head()
	if i < 0 {
		return d.err
	}
	if err := d.unpack(codec, payload, i); err != nil {
		d.window(nil, 0)
		return err
	}
	sync := payload[i-16 : i]
	documents := int64(0)
	unpacked := d.parts[partBlocks].out
	for n := 0; i < len(payload); n++ {
		d.window(payload, 0)
		count, from, end, next := d.packed(i, sync)
		if next < 0 {
			return d.err
		}
		b := payload[from:end]
		switch {
		case codec == codecNull:
		case n == len(d.lengths):
			return d.broken
		default:
			b = unpacked[:d.lengths[n]:d.lengths[n]]
			unpacked = unpacked[d.lengths[n]:]
		}
		d.window(b, from)
		d.left += maxPathSteps * len(b)
		// A document of no bytes has no values.
		if count < 0 || count > int64(len(b)) {
			d.fail(0, fmt.Sprintf("a block of %d documents in %d bytes", count, len(b)))
			return d.err
		}
		at := 0
		for range count {
			if at = d.document(at, d.plan); at < 0 {
				return d.err
			}
			if err := emit(&d.doc); err != nil {
				return err
			}
		}
		if at < len(b) {
			d.fail(at, "the block goes on after its last document")
			return d.err
		}
		documents += count
		i = next
	}
	if documents == 0 {
		return &Error{Format: formatAvro, Position: len(payload), Reason: "the container holds no document"}
	}
	return nil
}

// inside reports whether the payload is of a decompressor, which has begun with it.
func (d *containerDecoder) inside() bool { return cap(d.parts[partPayload].out) > 0 }

// packed reads what is around the block at i: how many documents it has, where its bytes
// begin and end, and where the next one begins.
func (d *containerDecoder) packed(i int, sync []byte) (count int64, from, end, next int) {
	count, start := d.long(i)
	if start < 0 {
		return 0, 0, 0, -1
	}
	if from, end = d.length(start); end < 0 {
		return 0, 0, 0, -1
	}
	next = d.fixed(end, len(sync))
	if next >= 0 && !bytes.Equal(d.b[end:next], sync) {
		next = d.fail(end, "the block does not end with the head's sync marker")
	}
	return count, from, end, next
}

// head reads what comes before the blocks and returns the codec and where they
// begin.
func (d *containerDecoder) head() (codec string, i int) {
	switch {
	case len(d.b) == 0:
		return "", d.fail(0, "the payload is empty")
	case !bytes.HasPrefix(d.b, []byte(containerMagic)):
		return "", d.fail(0, "the payload is no object container file")
	}
	codec = codecNull
	var schema []byte
	i = len(containerMagic)
	for {
		count, _, next := d.block(i)
		if i = next; i < 0 {
			return "", -1
		}
		if count == 0 {
			break
		}
		for ; count > 0; count-- {
			start, end := d.length(i)
			if end < 0 {
				return "", -1
			}
			from, to := d.length(end)
			if to < 0 {
				return "", -1
			}
			switch string(d.b[start:end]) {
			case "avro.schema":
				schema = d.b[from:to]
			case "avro.codec":
				codec = string(d.b[from:to])
			}
			i = to
		}
	}
	if i = d.fixed(i, 16); i < 0 {
		return "", -1
	}
	if d.plan == nil || !bytes.Equal(schema, d.text) {
		d.plan = nil
		t, err := parseAvro(schema)
		if err == nil {
			d.plan, err = d.avroReader.plan(t, d.fields)
		}
		if err != nil {
			return "", d.fail(len(containerMagic), "the container's schema: "+err.Error())
		}
		d.text = append(d.text[:0], schema...)
	}
	return codec, i
}

// unpack unpacks the blocks from i on, up to one that cannot be: d.broken says why then, or
// where it has no end that reading it will. Its error is a *Pending.
func (d *containerDecoder) unpack(codec string, payload []byte, i int) error {
	d.lengths, d.broken = d.lengths[:0], nil
	switch codec {
	case codecNull:
		return nil
	case codecDeflate, codecSnappy, codecZstd, codecBzip2:
	default:
		d.refuse(0, fmt.Sprintf("the container's codec %.20q; there are %s, %s, %s, %s, %s", codec, codecNull, codecDeflate, codecSnappy, codecZstd, codecBzip2))
		return nil
	}
	p := &d.parts[partBlocks]
	for room := max(d.guess(codec, payload, i), p.asked); ; room = min(2*cap(p.out), d.limit+unpackSlack) {
		if err := d.reserve(partBlocks, room); err != nil {
			return err
		}
		d.lengths, d.broken = d.lengths[:0], nil
		err := d.blocks(payload, i, func(from int, b []byte) bool {
			mark := len(p.out)
			out, err := d.unpackBlock(codec, b, p.out)
			switch {
			case errors.Is(err, errNoRoom) && cap(p.out) < d.limit+unpackSlack:
				return false
			case errors.Is(err, zstd.ErrWindowSizeExceeded):
				d.refuse(from, tooLargeWindow(d.limit))
			case len(out) > d.limit, errors.Is(err, errNoRoom):
				d.refuse(from+d.limit, tooLarge(d.limit))
			case err != nil:
				d.refuse(from+len(out)-mark, "the payload cannot be decompressed: "+err.Error())
			default:
				p.out = out
				d.lengths = append(d.lengths, len(out)-mark)
			}
			return true
		})
		if err == nil {
			return nil
		}
	}
}

// blocks calls visit with where the packed bytes of each block begin, from i on, up to one
// that has no end, or until d.broken. Its error is errNoRoom, where visit is false.
func (d *containerDecoder) blocks(payload []byte, i int, visit func(from int, b []byte) bool) error {
	sync := payload[i-16 : i]
	for i < len(payload) && d.broken == nil {
		_, from, end, next := d.packed(i, sync)
		if next < 0 {
			d.err = nil // it is told when the blocks before it are read
			return nil
		}
		if !visit(from, payload[from:end]) {
			return errNoRoom
		}
		i = next
	}
	return nil
}

// refuse notes that the block at a position cannot be unpacked.
func (d *containerDecoder) refuse(at int, reason string) {
	d.broken = &Error{Format: formatAvro, Position: at, Reason: reason}
}

// guess returns the room that the blocks from i on seem to need.
func (d *containerDecoder) guess(codec string, payload []byte, i int) int {
	n := uint64(0)
	// An error says that more than enough was seen.
	_ = d.blocks(payload, i, func(_ int, b []byte) bool {
		size := uint64(4 * len(b))
		switch codec {
		case codecSnappy:
			if claim, err := snappy.DecodedLen(b[:max(0, len(b)-4)]); err == nil {
				size = min(uint64(claim), maxSnappy*uint64(len(b)))
			}
		case codecZstd:
			var h zstd.Header
			if err := h.Decode(b); err == nil && h.HasFCS {
				size = min(h.FrameContentSize, uint64(64*len(b)))
			}
		}
		n += size
		return n < uint64(d.limit)
	})
	return int(min(n, uint64(d.limit))) + unpackSlack
}

// unpackBlock appends what a block unfolds to to out, as unpackZstd does. The codec is known.
func (d *containerDecoder) unpackBlock(codec string, b, out []byte) ([]byte, error) {
	d.in.Reset(b)
	switch codec {
	case codecSnappy:
		return unpackSnappy(b, out)
	case codecBzip2:
		return readAll(bzip2.NewReader(&d.in), out)
	case codecDeflate:
		if d.deflate == nil {
			d.deflate = flate.NewReader(&d.in)
		}
		if err := d.deflate.(flate.Resetter).Reset(&d.in, nil); err != nil {
			return out, err
		}
		return readAll(d.deflate, out)
	}
	if d.zstd == nil {
		var err error
		if d.zstd, err = newUnpackingZstd(d.limit); err != nil {
			return out, err
		}
	}
	return unpackZstd(d.zstd, b, out)
}

// maxSnappy is how many times its size a block of snappy unfolds to at most: the shortest
// copy is 2 bytes for 64.
const maxSnappy = 64

// unpackSnappy appends what a block unfolds to to out, as unpackZstd does. It ends with the
// CRC-32 of that.
func unpackSnappy(b, out []byte) ([]byte, error) {
	if len(b) < 4 {
		return out, errors.New("a block of snappy without its checksum")
	}
	packed, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	n, err := snappy.DecodedLen(packed)
	mark := len(out)
	switch {
	case err != nil:
		return out, err
	case n > maxSnappy*len(packed):
		return out, fmt.Errorf("%d bytes of snappy cannot unfold to %d", len(packed), n)
	case n > cap(out)-mark:
		return out, errNoRoom
	}
	unpacked, err := snappy.Decode(out[mark:mark+n:mark+n], packed)
	if err != nil {
		return out, err
	}
	if crc32.ChecksumIEEE(unpacked) != sum {
		return out, errors.New("the block's checksum is wrong")
	}
	return out[:mark+n], nil
}
