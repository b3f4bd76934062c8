package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// The codecs of record batches, as in their attributes.
const (
	codecNone   int16 = 0
	codecGzip   int16 = 1
	codecSnappy int16 = 2
	codecLZ4    int16 = 3
	codecZstd   int16 = 4
)

// xerialMagic begins the framing of snappy-java, which Kafka's clients write:
// then two versions of 4 bytes, then blocks, each after its length (4 bytes,
// big-endian).
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderLen = 16

// maxSnappyRatio bounds what a snappy block may claim to unfold to: a copy of
// three bytes makes 64.
const maxSnappyRatio = 64

var errBomb = errors.New("decompresses to more than the bound")

// codecs compress and decompress record batches, and lend the memory for it.
// Safe for concurrent use.
type codecs struct {
	limit int // decompressed bytes of one record batch
	pool  *bufferPool
	zstd  *zstd.Decoder
	gzips sync.Pool // of *gzip.Reader
	lz4s  sync.Pool // of *lz4.Reader
}

// minWindow is the largest window of zstd that every decoder should support (RFC
// 8878, 3.1.1.1.2). Encoders that do not know a batch's size demand that of their
// level, 2 to 8 MiB, however small the batch is.
const minWindow = 8 << 20

func newCodecs(limit int) (*codecs, error) {
	d, err := zstd.NewReader(nil,
		// It bounds the window, too. What is beyond limit is refused below.
		zstd.WithDecoderMaxMemory(uint64(max(limit, minWindow))),
		zstd.WithDecoderConcurrency(0)) // as many batches at once as cores
	if err != nil {
		return nil, err
	}
	return &codecs{limit: limit, pool: new(bufferPool), zstd: d}, nil
}

func (cs *codecs) close() { cs.zstd.Close() }

// decompress unfolds src into a slice of the pool, which the caller gives back.
func (cs *codecs) decompress(codec int16, src []byte) ([]byte, error) {
	dst := cs.pool.get(min(cs.limit, 4*len(src)))
	out, err := cs.decompressInto(dst, codec, src)
	if err != nil {
		cs.pool.put(dst)
		return nil, err
	}
	if cap(out) != cap(dst) {
		cs.pool.put(dst) // it grew out of it
	}
	return out, nil
}

func (cs *codecs) decompressInto(dst []byte, codec int16, src []byte) ([]byte, error) {
	switch codec {
	case codecGzip:
		return cs.gunzip(dst, src)
	case codecSnappy:
		return cs.unsnappy(dst, src)
	case codecLZ4:
		r, ok := cs.lz4s.Get().(*lz4.Reader)
		if !ok {
			r = lz4.NewReader(nil)
		}
		r.Reset(bytes.NewReader(src))
		out, err := cs.readAll(dst, r)
		r.Reset(nil)
		cs.lz4s.Put(r)
		if err != nil {
			return nil, fmt.Errorf("lz4: %w", err)
		}
		return out, nil
	case codecZstd:
		out, err := cs.zstd.DecodeAll(src, dst)
		if errors.Is(err, zstd.ErrWindowSizeExceeded) {
			return nil, fmt.Errorf("zstd: its window is larger than %d bytes", max(cs.limit, minWindow))
		}
		if errors.Is(err, zstd.ErrDecoderSizeExceeded) || len(out) > cs.limit {
			return nil, fmt.Errorf("zstd: %w of %d bytes", errBomb, cs.limit)
		}
		if err != nil {
			return nil, fmt.Errorf("zstd: %w", err)
		}
		return out, nil
	}
	return nil, fmt.Errorf("unknown compression codec %d", codec)
}

func (cs *codecs) gunzip(dst, src []byte) ([]byte, error) {
	r, ok := cs.gzips.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer cs.gzips.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	out, err := cs.readAll(dst, r)
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	return out, nil
}

// unsnappy reads one block, or snappy-java's blocks.
func (cs *codecs) unsnappy(dst, src []byte) ([]byte, error) {
	if !bytes.HasPrefix(src, xerialMagic) {
		return cs.snappyBlock(dst, src)
	}
	if len(src) < xerialHeaderLen {
		return nil, errors.New("snappy: header is cut off")
	}
	src = src[xerialHeaderLen:]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, errors.New("snappy: block length is cut off")
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		if n < 0 || n > len(src)-4 {
			return nil, fmt.Errorf("snappy: block of %d bytes in %d", n, len(src)-4)
		}
		var err error
		if dst, err = cs.snappyBlock(dst, src[4:4+n]); err != nil {
			return nil, err
		}
		src = src[4+n:]
	}
	return dst, nil
}

// snappyBlock appends one block to dst.
func (cs *codecs) snappyBlock(dst, src []byte) ([]byte, error) {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	if n > maxSnappyRatio*len(src) {
		return nil, fmt.Errorf("snappy: block of %d bytes claims %d", len(src), n)
	}
	if len(dst)+n > cs.limit {
		return nil, fmt.Errorf("snappy: %w of %d bytes", errBomb, cs.limit)
	}
	have := len(dst)
	dst = grow(dst, n)
	out, err := s2.Decode(dst[have:have+n], src)
	if err != nil {
		return nil, fmt.Errorf("snappy: %w", err)
	}
	return dst[:have+len(out)], nil
}

// readAll appends what r has to dst, up to the limit.
func (cs *codecs) readAll(dst []byte, r io.Reader) ([]byte, error) {
	for {
		if len(dst) == cap(dst) {
			dst = grow(dst, max(512, len(dst)))
		}
		n, err := r.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		if len(dst) > cs.limit {
			return nil, fmt.Errorf("%w of %d bytes", errBomb, cs.limit)
		}
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// grow returns dst with room for n more bytes.
func grow(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	grown := make([]byte, len(dst), max(2*cap(dst), len(dst)+n))
	copy(grown, dst)
	return grown
}
