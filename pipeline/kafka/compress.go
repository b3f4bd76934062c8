package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"runtime"
	"strings"
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
	// slots bounds the decompressors at work, whose scratch is not counted, to one a
	// core: more are no faster. Who has one waits for nothing.
	slots chan struct{}
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
		zstd.WithDecodeAllCapLimit(true),
		zstd.WithDecoderConcurrency(0)) // as many batches at once as cores
	if err != nil {
		return nil, err
	}
	return &codecs{limit: limit, slots: make(chan struct{}, runtime.GOMAXPROCS(0)), zstd: d}, nil
}

func (cs *codecs) close() { cs.zstd.Close() }

// decompress unfolds src, which claims to be of count records, into an arena of b. Its
// error is a *noRoom where there is no memory for it.
func (cs *codecs) decompress(b *Batch, codec int16, src []byte, count int) ([]byte, error) {
	size := min(cs.unfolded(b, codec, src), cs.limit)
	if count <= size/minRecordLen {
		// Before the work, which would be for nothing.
		if err := b.growRecords(count); err != nil {
			return nil, err
		}
	}
	a := &arena{b: b}
	if err := a.grow(size + zstdSlack); err != nil {
		return nil, err
	}
	cs.slots <- struct{}{}
	err := cs.decompressInto(a, codec, src)
	<-cs.slots
	if err != nil {
		b.putArena(a.buf)
		return nil, err
	}
	b.ratio = float64(len(a.buf)) / float64(max(len(src), 1))
	return a.buf, nil
}

// arena is memory of a batch that grows.
type arena struct {
	b   *Batch
	buf []byte
}

// grow makes room for n bytes more.
func (a *arena) grow(n int) (err error) {
	a.buf, err = a.b.growArena(a.buf, n)
	return err
}

const (
	// defaultRatio is guessed until a partition's first compressed batch.
	defaultRatio = 4
	// maxDeflateRatio is what gzip can unfold to.
	maxDeflateRatio = 1032
	// zstdSlack is what the decoder wants behind a block to copy in whole words; without
	// it the last block of a frame is decoded with care, and slowly.
	zstdSlack = 16
)

// unfolded guesses the decompressed size of src: exactly where the codec tells it, else
// by what the batch before had, and a bit.
func (cs *codecs) unfolded(b *Batch, codec int16, src []byte) int {
	ratio := b.ratio
	if ratio == 0 {
		ratio = defaultRatio
	}
	guess := int(min(float64(len(src))*ratio*1.125, float64(cs.limit))) + 64
	switch codec {
	case codecGzip:
		// The length of the last member ends it: there is one, as a rule.
		if len(src) > 18 {
			if n := int64(binary.LittleEndian.Uint32(src[len(src)-4:])); n <= int64(len(src))*maxDeflateRatio {
				return int(n) + 1 // to find the end
			}
		}
	case codecSnappy:
		if n, ok := snappyLen(src); ok {
			return n
		}
	case codecZstd:
		if n, ok := zstdLen(src); ok && n <= max(2*guess, 1<<20) {
			return n
		}
	}
	return guess
}

// snappyLen returns what src says that it unfolds to.
func snappyLen(src []byte) (size int, ok bool) {
	if !bytes.HasPrefix(src, xerialMagic) {
		n, err := s2.DecodedLen(src)
		return n, err == nil && n <= maxSnappyRatio*len(src)
	}
	for src = src[min(xerialHeaderLen, len(src)):]; len(src) >= 4; {
		n := int(int32(binary.BigEndian.Uint32(src)))
		if n < 0 || n > len(src)-4 {
			return 0, false
		}
		block, err := s2.DecodedLen(src[4 : 4+n])
		if err != nil || block > maxSnappyRatio*n {
			return 0, false
		}
		size += block
		src = src[4+n:]
	}
	return size, true
}

// zstdBlock is the most that a block of zstd unfolds to (RFC 8878, 3.1.1.2.4).
const zstdBlock = 128 << 10

// zstdLen returns a bound of what the frame in src unfolds to: what its header says, or
// else the sum of what its blocks may at most. All but the last are full, as a rule.
func zstdLen(src []byte) (size int, ok bool) {
	var h zstd.Header
	if err := h.Decode(src); err != nil || h.Skippable {
		return 0, false
	}
	if h.HasFCS {
		return int(min(h.FrameContentSize, math.MaxInt32)), true
	}
	for at := h.HeaderSize; at+3 <= len(src); {
		block := int(src[at]) | int(src[at+1])<<8 | int(src[at+2])<<16
		last, kind, n := block&1, block>>1&3, block>>3
		at += 3
		switch kind {
		case 0: // raw
			size += n
			at += n
		case 1: // one byte, n times
			size += n
			at++
		default:
			size += zstdBlock
			at += n
		}
		if last == 1 {
			return size, true
		}
	}
	return 0, false
}

func (cs *codecs) decompressInto(a *arena, codec int16, src []byte) error {
	switch codec {
	case codecGzip:
		return cs.gunzip(a, src)
	case codecSnappy:
		return cs.unsnappy(a, src)
	case codecLZ4:
		r, ok := cs.lz4s.Get().(*lz4.Reader)
		if !ok {
			r = lz4.NewReader(nil)
		}
		r.Reset(bytes.NewReader(src))
		err := cs.readAll(a, r)
		r.Reset(nil)
		cs.lz4s.Put(r)
		if err != nil {
			return fmt.Errorf("lz4: %w", err)
		}
		return nil
	case codecZstd:
		return cs.unzstd(a, src)
	}
	return fmt.Errorf("unknown compression codec %d", codec)
}

// unzstd decodes into what a has room for, and again into twice as much where that is
// too small: the decoder is told not to allocate.
func (cs *codecs) unzstd(a *arena, src []byte) error {
	for {
		room := cap(a.buf)
		out, err := cs.zstd.DecodeAll(src, a.buf[:0])
		// Where a frame does not tell its size and is not of the encoder of the same
		// library, the decoder blames the block that it has no room for.
		if err != nil && cap(out)-len(out) < zstdBlock+zstdSlack && strings.HasPrefix(err.Error(), "output bigger than max block size") {
			err = zstd.ErrDecoderSizeExceeded
		}
		switch {
		case errors.Is(err, zstd.ErrWindowSizeExceeded):
			return fmt.Errorf("zstd: its window is larger than %d bytes", max(cs.limit, minWindow))
		case err == nil && len(out) <= cs.limit:
			a.buf = out
			return nil
		case err == nil, errors.Is(err, zstd.ErrDecoderSizeExceeded) && room >= cs.limit+zstdSlack:
			return fmt.Errorf("zstd: %w of %d bytes", errBomb, cs.limit)
		case !errors.Is(err, zstd.ErrDecoderSizeExceeded):
			return fmt.Errorf("zstd: %w", err)
		}
		if err := a.replace(min(2*room, cs.limit+zstdSlack)); err != nil {
			return fmt.Errorf("zstd: %w", err)
		}
	}
}

// replace makes the room n bytes, without what is in it.
func (a *arena) replace(n int) (err error) {
	a.b.putArena(a.buf)
	a.buf, err = a.b.arena(n)
	return err
}

func (cs *codecs) gunzip(a *arena, src []byte) error {
	r, ok := cs.gzips.Get().(*gzip.Reader)
	if !ok {
		r = new(gzip.Reader)
	}
	defer cs.gzips.Put(r)
	if err := r.Reset(bytes.NewReader(src)); err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	if err := cs.readAll(a, r); err != nil {
		return fmt.Errorf("gzip: %w", err)
	}
	return nil
}

// unsnappy reads one block, or snappy-java's blocks.
func (cs *codecs) unsnappy(a *arena, src []byte) error {
	if !bytes.HasPrefix(src, xerialMagic) {
		return cs.snappyBlock(a, src)
	}
	if len(src) < xerialHeaderLen {
		return errors.New("snappy: header is cut off")
	}
	src = src[xerialHeaderLen:]
	for len(src) > 0 {
		if len(src) < 4 {
			return errors.New("snappy: block length is cut off")
		}
		n := int(int32(binary.BigEndian.Uint32(src)))
		if n < 0 || n > len(src)-4 {
			return fmt.Errorf("snappy: block of %d bytes in %d", n, len(src)-4)
		}
		if err := cs.snappyBlock(a, src[4:4+n]); err != nil {
			return err
		}
		src = src[4+n:]
	}
	return nil
}

// snappyBlock appends one block to a.
func (cs *codecs) snappyBlock(a *arena, src []byte) error {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	if n > maxSnappyRatio*len(src) {
		return fmt.Errorf("snappy: block of %d bytes claims %d", len(src), n)
	}
	have := len(a.buf)
	if have+n > cs.limit {
		return fmt.Errorf("snappy: %w of %d bytes", errBomb, cs.limit)
	}
	if err := a.grow(n); err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	out, err := s2.Decode(a.buf[have:have+n], src)
	if err != nil {
		return fmt.Errorf("snappy: %w", err)
	}
	a.buf = a.buf[:have+len(out)]
	return nil
}

// readAll appends what r has to a, up to the limit.
func (cs *codecs) readAll(a *arena, r io.Reader) error {
	for {
		if len(a.buf) == cap(a.buf) {
			if err := a.grow(max(512, min(len(a.buf), cs.limit+1-len(a.buf)))); err != nil {
				return err
			}
		}
		have := len(a.buf)
		n, err := r.Read(a.buf[have:cap(a.buf)])
		a.buf = a.buf[:have+n]
		if len(a.buf) > cs.limit {
			return fmt.Errorf("%w of %d bytes", errBomb, cs.limit)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
