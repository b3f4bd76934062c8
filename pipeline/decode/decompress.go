package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// decompressor unpacks payloads before another decoder reads them. What a payload
// unfolds to is bounded, whatever its header claims.
type decompressor struct {
	next   Decoder
	format string
	limit  int
	open   func(*bytes.Reader) (io.Reader, error)
	in     bytes.Reader
	out    bytes.Buffer
}

// maxKeptBuffer bounds what a decompressor holds between two payloads.
const maxKeptBuffer = 4 << 20

func newDecompressor(o *Options, next Decoder) (*decompressor, error) {
	d := &decompressor{next: next, format: o.Format, limit: o.MaxBytes}
	if d.limit == 0 {
		d.limit = DefaultMaxBytes
	}
	switch o.Compression {
	case compressionGzip:
		var z gzip.Reader
		d.open = func(r *bytes.Reader) (io.Reader, error) { return &z, z.Reset(r) }
	case compressionZstd:
		// The window is what a frame may demand before its first byte.
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(uint64(max(min(d.limit, zstd.MaxWindowSize), zstd.MinWindowSize))))
		if err != nil {
			return nil, fmt.Errorf("decode: %w", err)
		}
		d.open = func(r *bytes.Reader) (io.Reader, error) { return z, z.Reset(r) }
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
	if d.out.Cap() > maxKeptBuffer {
		d.out = bytes.Buffer{}
	}
	d.out.Reset()
	d.in.Reset(payload)
	r, err := d.open(&d.in)
	if err == nil {
		_, err = d.out.ReadFrom(io.LimitReader(r, int64(d.limit)+1))
	}
	switch {
	case d.out.Len() > d.limit || errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded):
		return &Error{Format: d.format, Position: d.limit, Reason: fmt.Sprintf("the payload unfolds to more than %d bytes", d.limit)}
	case err != nil:
		return &Error{Format: d.format, Position: d.out.Len(), Reason: "the payload cannot be decompressed: " + err.Error()}
	}
	return d.next.Decode(d.out.Bytes(), emit)
}
