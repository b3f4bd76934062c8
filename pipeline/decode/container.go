package decode

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/klauspost/compress/snappy"
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
	fields *Fields
	limit  int
	text   []byte // schema of the last payload, and its plan
	plan   *avroPlan
	codecs map[string]*unpacker
	// What snappy has unpacked: the memory used last, and how much in all.
	unpacked []byte
	total    int
}

func newContainer(o *Options, f *Fields) *containerDecoder {
	d := &containerDecoder{avroReader: newAvroReader(f), fields: f, limit: o.MaxBytes, codecs: map[string]*unpacker{}}
	if d.limit == 0 {
		d.limit = DefaultMaxBytes
	}
	return d
}

// Decode implements Decoder.
func (d *containerDecoder) Decode(payload []byte, emit func(*Document) error) error {
	for _, u := range d.codecs {
		u.reset()
	}
	d.unpacked, d.total = kept(d.unpacked), 0
	d.start(payload)
	codec, i := d.head()
	if i < 0 {
		return d.err
	}
	sync := payload[i-16 : i]
	documents := int64(0)
	for i < len(payload) {
		d.window(payload, 0)
		count, start := d.long(i)
		if start < 0 {
			return d.err
		}
		from, end := d.length(start)
		if end < 0 {
			return d.err
		}
		next := d.fixed(end, len(sync))
		if next >= 0 && !bytes.Equal(payload[end:next], sync) {
			next = d.fail(end, "the block does not end with the head's sync marker")
		}
		if next < 0 {
			return d.err
		}
		b := d.open(codec, payload[from:end], from)
		// A document of no bytes has no values.
		if d.err == nil && (count < 0 || count > int64(len(b))) {
			d.fail(0, fmt.Sprintf("a block of %d documents in %d bytes", count, len(b)))
		}
		if d.err != nil {
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

// open unpacks the block at i of the payload and makes it what is read.
func (d *containerDecoder) open(codec string, b []byte, i int) []byte {
	switch codec {
	case codecNull:
	case codecSnappy:
		if b = d.snappy(b, i); b == nil {
			return nil
		}
	case codecZstd, codecDeflate, codecBzip2:
		u := d.codecs[codec]
		if u == nil {
			name := codec
			if codec == codecZstd {
				name = compressionZstd
			}
			var err error
			if u, err = newUnpacker(name, d.limit); err != nil {
				d.fail(i, err.Error())
				return nil
			}
			d.codecs[codec] = u
		}
		unpacked, at, reason := u.unpack(b)
		if reason != "" {
			d.fail(i+at, reason)
			return nil
		}
		b = unpacked
	default:
		d.fail(0, fmt.Sprintf("the container's codec %.20q; there are %s, %s, %s, %s, %s", codec, codecNull, codecDeflate, codecSnappy, codecZstd, codecBzip2))
		return nil
	}
	d.window(b, i)
	d.left += maxPathSteps * len(b)
	return b
}

// snappy unpacks a block that ends with the CRC-32 of what it unfolds to.
func (d *containerDecoder) snappy(b []byte, i int) []byte {
	if len(b) < 4 {
		d.fail(i, "a block of snappy without its checksum")
		return nil
	}
	packed, sum := b[:len(b)-4], binary.BigEndian.Uint32(b[len(b)-4:])
	n, err := snappy.DecodedLen(packed)
	switch {
	case err != nil:
		d.fail(i, "the payload cannot be decompressed: "+err.Error())
		return nil
	case n > d.limit-d.total:
		d.fail(i, fmt.Sprintf("the payload unfolds to more than %d bytes", d.limit))
		return nil
	case n > 64*len(packed): // the shortest copy of snappy is 2 bytes for 64 at most
		d.fail(i, fmt.Sprintf("%d bytes of snappy cannot unfold to %d", len(packed), n))
		return nil
	}
	mark := len(d.unpacked)
	if cap(d.unpacked)-mark < n {
		// What earlier blocks unfolded to stays where it is.
		d.unpacked, mark = make([]byte, 0, max(n, 2*cap(d.unpacked))), 0
	}
	out, err := snappy.Decode(d.unpacked[mark:mark+n:mark+n], packed)
	if err != nil {
		d.fail(i, "the payload cannot be decompressed: "+err.Error())
		return nil
	}
	if crc32.ChecksumIEEE(out) != sum {
		d.fail(i, "the block's checksum is wrong")
		return nil
	}
	d.unpacked = d.unpacked[:mark+n]
	d.total += n
	return out
}
