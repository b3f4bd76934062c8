package decode

import (
	"bytes"
	"compress/bzip2"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"sluice/pipeline/memory"
)

// unpacker appends what the compressed blocks of a container unfold to, which is
// bounded, whatever their header claims.
type unpacker struct {
	limit int // of out
	open  func(*bytes.Reader) (io.Reader, error)
	in    bytes.Reader
	out   bytes.Buffer
}

// maxKeptBuffer bounds what an unpacker holds between two payloads.
const maxKeptBuffer = 4 << 20

// newUnpacker returns one of zstd, deflate or bzip2.
func newUnpacker(compression string, limit int) (*unpacker, error) {
	u := &unpacker{limit: limit}
	if u.limit == 0 {
		u.limit = DefaultMaxBytes
	}
	switch compression {
	case compressionZstd:
		// The window is what a frame may demand before its first byte.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(window(u.limit))))
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		u.open = func(r *bytes.Reader) (io.Reader, error) { return z, z.Reset(r) }
	case codecDeflate:
		z := flate.NewReader(nil)
		u.open = func(r *bytes.Reader) (io.Reader, error) { return z, z.(flate.Resetter).Reset(r, nil) }
	case codecBzip2:
		u.open = func(r *bytes.Reader) (io.Reader, error) { return bzip2.NewReader(r), nil }
	default:
		return nil, fmt.Errorf("decode: no compression %q", compression)
	}
	return u, nil
}

// minWindow is the largest window of zstd that every decoder should support (RFC
// 8878, 3.1.1.1.2). Encoders that do not know a payload's size demand that of their
// level, 2 to 8 MiB, however small the payload is.
const minWindow = 8 << 20

// window returns the largest window of zstd that is accepted, in bytes, where a payload
// may unfold to limit.
func window(limit int) int { return max(min(limit, zstd.MaxWindowSize), minWindow) }

// reset forgets what was unpacked.
func (u *unpacker) reset() {
	if u.out.Cap() > maxKeptBuffer {
		u.out = bytes.Buffer{}
	}
	u.out.Reset()
}

// unpack returns what packed unfolds to, valid until the next reset, or the reason
// why it does not and how far it came.
func (u *unpacker) unpack(packed []byte) (b []byte, at int, reason string) {
	mark := u.out.Len()
	u.in.Reset(packed)
	r, err := u.open(&u.in)
	if err == nil {
		_, err = u.out.ReadFrom(io.LimitReader(r, int64(u.limit-mark)+1))
	}
	switch {
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return nil, 0, fmt.Sprintf("the payload cannot be decompressed: its zstd window has more than %d bytes", window(u.limit))
	case u.out.Len() > u.limit || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, u.limit, fmt.Sprintf("the payload unfolds to more than %d bytes", u.limit)
	case err != nil:
		return nil, u.out.Len() - mark, "the payload cannot be decompressed: " + err.Error()
	}
	return u.out.Bytes()[mark:], 0, ""
}

// freeUnpacked is how much a payload may unfold to without memory of Options.Memory, and
// what a decompressor of that holds between two payloads. Smaller, and a topic of pages
// waits for memory at every record; larger, and what a hundred partitions hold counts.
const freeUnpacked = 256 << 10

// unpackSlack is the room beside what is to be unpacked: to see the end, or that there is
// none, and for zstd's copies in whole words.
const unpackSlack = 16

// maxBelieved is what a head may claim of a payload's size before it is seen, where that
// is much more than its packed bytes.
const maxBelieved = 1 << 20

// decompressor unpacks payloads before another decoder reads them. All that a payload
// takes is one slice, of a size that is known, and granted, before.
type decompressor struct {
	next   Decoder
	format string
	limit  int
	memory *memory.Share // nil = not counted
	grant  memory.Grant
	out    []byte

	zstd *zstd.Decoder // nil = gzip
	gzip gzip.Reader
	in   bytes.Reader
}

func newDecompressor(o *Options, next Decoder) (*decompressor, error) {
	d := &decompressor{next: next, format: o.Format, limit: o.maxBytes(), memory: o.Memory}
	if o.Compression != compressionZstd {
		return d, nil
	}
	var err error
	// It decodes into the room that it is given, which is its window, too.
	d.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(uint64(window(d.limit))))
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return d, nil
}

// Decode implements Decoder.
func (d *decompressor) Decode(payload []byte, emit func(*Document) error) error {
	switch {
	case payload == nil: // a Kafka record without a value: a tombstone
		return d.next.Decode(nil, emit)
	case len(payload) == 0:
		return &Error{Format: d.format, Reason: "the payload cannot be decompressed: it is empty"}
	}
	if d.memory == nil {
		d.out = kept(d.out)
	}
	// Memory that was waited for is used, so that nobody waits for the same twice.
	for room := max(d.guess(payload), int(d.grant.Bytes())); ; room = min(2*cap(d.out), d.limit+unpackSlack) {
		if err := d.reserve(room); err != nil {
			return err
		}
		err := d.unpack(payload)
		switch {
		case errors.Is(err, zstd.ErrWindowSizeExceeded):
			return &Error{Format: d.format, Reason: fmt.Sprintf("the payload cannot be decompressed: its zstd window has more than %d bytes", window(d.limit))}
		case len(d.out) > d.limit, errors.Is(err, errNoRoom) && cap(d.out) >= d.limit+unpackSlack:
			return &Error{Format: d.format, Position: d.limit, Reason: fmt.Sprintf("the payload unfolds to more than %d bytes", d.limit)}
		case errors.Is(err, errNoRoom):
			continue
		case err != nil:
			return &Error{Format: d.format, Position: len(d.out), Reason: "the payload cannot be decompressed: " + err.Error()}
		}
		return d.next.Decode(d.out, emit)
	}
}

// guess returns the room that payload seems to need.
func (d *decompressor) guess(payload []byte) int {
	n := 4 * len(payload)
	believed := uint64(max(maxBelieved, 64*len(payload)))
	if d.zstd != nil {
		var h zstd.Header
		if err := h.Decode(payload); err == nil && h.HasFCS {
			n = int(min(h.FrameContentSize, believed))
		}
	} else if len(payload) > 18 { // the length of the last member ends it: there is one, as a rule
		n = int(min(uint64(binary.LittleEndian.Uint32(payload[len(payload)-4:])), believed))
	}
	return min(n, d.limit) + unpackSlack
}

// reserve makes out an empty slice with room for n bytes. Its error is a *Pending.
func (d *decompressor) reserve(n int) error {
	d.out = d.out[:0]
	if cap(d.out) >= n {
		return nil
	}
	d.out = nil
	if d.memory != nil && n > freeUnpacked && int64(n) > d.grant.Bytes() {
		d.grant.Release()
		var ok bool
		if d.grant, ok = d.memory.Try(int64(n)); !ok {
			d.grant = memory.Grant{}
			return &Pending{Bytes: n, memory: func(ctx context.Context) (err error) {
				d.grant, err = d.memory.Acquire(ctx, int64(n), 0, nil)
				return err
			}}
		}
	}
	d.out = make([]byte, 0, n)
	return nil
}

// Yield implements Unpacker.
func (d *decompressor) Yield() memory.Grant {
	g := d.grant
	d.grant = memory.Grant{}
	return g
}

// errNoRoom: what is unpacked has more bytes than there is room for.
var errNoRoom = errors.New("decode: no room for what a payload unfolds to")

// overrun reports whether zstd's decoder, which has left out and err, may have needed more
// room than out has. It blames the block then, which may unfold to 128 KiB, where a frame
// does not tell its size and is not of the encoder of the same library.
func overrun(out []byte, err error) bool {
	return err != nil && cap(out)-len(out) < 128<<10+unpackSlack && strings.HasPrefix(err.Error(), "output bigger than max block size")
}

// unpack appends what payload unfolds to to out, which is empty. After an error it has
// what came before that, and errNoRoom is one.
func (d *decompressor) unpack(payload []byte) error {
	if d.zstd != nil {
		out, err := d.zstd.DecodeAll(payload, d.out)
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || overrun(out, err) {
			return errNoRoom
		}
		d.out = out
		return err
	}
	d.in.Reset(payload)
	if err := d.gzip.Reset(&d.in); err != nil {
		return err
	}
	for {
		if len(d.out) == cap(d.out) {
			return errNoRoom
		}
		n, err := d.gzip.Read(d.out[len(d.out):cap(d.out)])
		d.out = d.out[:len(d.out)+n]
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}
