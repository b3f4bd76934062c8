package decode

import (
	"bytes"
	"compress/bzip2"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// unpacker appends what compressed bytes unfold to, which is bounded, whatever
// their header claims.
type unpacker struct {
	limit int // of out
	open  func(*bytes.Reader) (io.Reader, error)
	in    bytes.Reader
	out   bytes.Buffer
}

// maxKeptBuffer bounds what an unpacker holds between two payloads.
const maxKeptBuffer = 4 << 20

// newUnpacker returns one of a compression, or of deflate or bzip2.
func newUnpacker(compression string, limit int) (*unpacker, error) {
	u := &unpacker{limit: limit}
	if u.limit == 0 {
		u.limit = DefaultMaxBytes
	}
	switch compression {
	case compressionGzip:
		var z gzip.Reader
		u.open = func(r *bytes.Reader) (io.Reader, error) { return &z, z.Reset(r) }
	case compressionZstd:
		// The window is what a frame may demand before its first byte.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(u.window())))
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

// window returns the largest window of zstd that is accepted, in bytes.
func (u *unpacker) window() int { return max(min(u.limit, zstd.MaxWindowSize), minWindow) }

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
		return nil, 0, fmt.Sprintf("the payload cannot be decompressed: its zstd window has more than %d bytes", u.window())
	case u.out.Len() > u.limit || errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, u.limit, fmt.Sprintf("the payload unfolds to more than %d bytes", u.limit)
	case err != nil:
		return nil, u.out.Len() - mark, "the payload cannot be decompressed: " + err.Error()
	}
	return u.out.Bytes()[mark:], 0, ""
}

// decompressor unpacks payloads before another decoder reads them.
type decompressor struct {
	*unpacker
	next   Decoder
	format string
}

func newDecompressor(o *Options, next Decoder) (*decompressor, error) {
	u, err := newUnpacker(o.Compression, o.MaxBytes)
	return &decompressor{unpacker: u, next: next, format: o.Format}, err
}

// Decode implements Decoder.
func (d *decompressor) Decode(payload []byte, emit func(*Document) error) error {
	switch {
	case payload == nil: // a Kafka record without a value: a tombstone
		return d.next.Decode(nil, emit)
	case len(payload) == 0:
		return &Error{Format: d.format, Reason: "the payload cannot be decompressed: it is empty"}
	}
	d.reset()
	b, at, reason := d.unpack(payload)
	if reason != "" {
		return &Error{Format: d.format, Position: at, Reason: reason}
	}
	return d.next.Decode(b, emit)
}
