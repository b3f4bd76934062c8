package decode

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"sluice/pipeline/memory"
)

// minWindow is the largest window of zstd that every decoder should support (RFC
// 8878, 3.1.1.1.2). Encoders that do not know a payload's size demand that of their
// level, 2 to 8 MiB, however small the payload is.
const minWindow = 8 << 20

// window returns the largest window of zstd that is accepted, in bytes, where a payload
// may unfold to limit.
func window(limit int) int { return max(min(limit, zstd.MaxWindowSize), minWindow) }

// maxKeptBuffer bounds what a decoder holds between two payloads.
const maxKeptBuffer = 4 << 20

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

// unpackMemory is what one payload unfolds to: its compression, and the blocks of the
// container in that. Each is one slice, of a size that is known, and granted, before; all
// are of one grant, as who waits for memory must hold none.
type unpackMemory struct {
	share *memory.Share // nil = not counted
	grant memory.Grant
	parts [2]unpackPart
}

// The parts of an unpackMemory.
const (
	partPayload = iota
	partBlocks
)

type unpackPart struct {
	out []byte
	// asked is the room that out was to have when there was no memory: who has waited for
	// that asks for no less, so that nobody waits for the same twice.
	asked int
}

// start begins with a payload.
func (m *unpackMemory) start() {
	if m.share == nil {
		for k := range m.parts {
			m.parts[k].out = kept(m.parts[k].out)
		}
	}
}

// reserve makes the slice of part k an empty one with room for n bytes. Its error is a
// *Pending: then no part has memory.
func (m *unpackMemory) reserve(k, n int) error {
	p := &m.parts[k]
	p.out = p.out[:0]
	if cap(p.out) >= n {
		return nil
	}
	p.out = nil
	all := n
	for i := range m.parts {
		all += cap(m.parts[i].out)
	}
	if m.share != nil && all > freeUnpacked && int64(all) > m.grant.Bytes() {
		if m.grant.Bytes() == 0 {
			m.grant = m.share.Empty()
		}
		if !m.grant.Grow(int64(all) - m.grant.Bytes()) {
			for i := range m.parts {
				m.parts[i].asked = max(m.parts[i].asked, cap(m.parts[i].out))
				m.parts[i].out = nil
			}
			p.asked = max(p.asked, n)
			all = m.parts[partPayload].asked + m.parts[partBlocks].asked
			m.grant.Release()
			return &Pending{Bytes: all, memory: func(ctx context.Context) (err error) {
				m.grant, err = m.share.Acquire(ctx, int64(all), 0, nil)
				return err
			}}
		}
	}
	p.out = make([]byte, 0, n)
	return nil
}

// Yield implements Unpacker.
func (m *unpackMemory) Yield() memory.Grant {
	g := m.grant
	m.grant = memory.Grant{}
	for k := range m.parts {
		m.parts[k].asked = 0
	}
	return g
}

// newUnpackingZstd returns a decoder into the room that it is given, which is its window, too.
func newUnpackingZstd(limit int) (*zstd.Decoder, error) {
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecodeAllCapLimit(true), zstd.WithDecoderMaxWindow(uint64(window(limit))))
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	return z, nil
}

// tooLargeWindow is the reason of zstd.ErrWindowSizeExceeded.
func tooLargeWindow(limit int) string {
	return fmt.Sprintf("the payload cannot be decompressed: its zstd window has more than %d bytes", window(limit))
}

// tooLarge is the reason of what unfolds to more than limit.
func tooLarge(limit int) string {
	return fmt.Sprintf("the payload unfolds to more than %d bytes", limit)
}

// decompressor unpacks payloads before another decoder reads them.
type decompressor struct {
	*unpackMemory
	next   Decoder
	format string
	limit  int

	zstd *zstd.Decoder // nil = gzip
	gzip gzip.Reader
	in   bytes.Reader
}

func newDecompressor(o *Options, m *unpackMemory, next Decoder) (*decompressor, error) {
	d := &decompressor{unpackMemory: m, next: next, format: o.Format, limit: o.maxBytes()}
	if o.Compression != compressionZstd {
		return d, nil
	}
	var err error
	d.zstd, err = newUnpackingZstd(d.limit)
	return d, err
}

// Decode implements Decoder.
func (d *decompressor) Decode(payload []byte, emit func(*Document) error) error {
	switch {
	case payload == nil: // a Kafka record without a value: a tombstone
		return d.next.Decode(nil, emit)
	case len(payload) == 0:
		return &Error{Format: d.format, Reason: "the payload cannot be decompressed: it is empty"}
	}
	d.start()
	out := &d.parts[partPayload].out
	for room := max(d.guess(payload), d.parts[partPayload].asked); ; room = min(2*cap(*out), d.limit+unpackSlack) {
		if err := d.reserve(partPayload, room); err != nil {
			return err
		}
		b, err := d.unpack(payload, *out)
		switch {
		case errors.Is(err, zstd.ErrWindowSizeExceeded):
			return &Error{Format: d.format, Reason: tooLargeWindow(d.limit)}
		case len(b) > d.limit, errors.Is(err, errNoRoom) && cap(*out) >= d.limit+unpackSlack:
			return &Error{Format: d.format, Position: d.limit, Reason: tooLarge(d.limit)}
		case errors.Is(err, errNoRoom):
			continue
		case err != nil:
			return &Error{Format: d.format, Position: len(b), Reason: "the payload cannot be decompressed: " + err.Error()}
		}
		return d.next.Decode(b, emit)
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

// errNoRoom: what is unpacked has more bytes than there is room for.
var errNoRoom = errors.New("decode: no room for what a payload unfolds to")

// overrun reports whether zstd's decoder, which has left out and err, may have needed more
// room than out has. It blames the block then, which may unfold to 128 KiB, where a frame
// does not tell its size and is not of the encoder of the same library.
func overrun(out []byte, err error) bool {
	return err != nil && cap(out)-len(out) < 128<<10+unpackSlack && strings.HasPrefix(err.Error(), "output bigger than max block size")
}

// unpackZstd appends what packed unfolds to to out, within its room. After an error it
// returns what came before that, and errNoRoom is one.
func unpackZstd(z *zstd.Decoder, packed, out []byte) ([]byte, error) {
	b, err := z.DecodeAll(packed, out)
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || overrun(b, err) {
		return out, errNoRoom
	}
	return b, err
}

// readAll appends what r has to out, as unpackZstd does.
func readAll(r io.Reader, out []byte) ([]byte, error) {
	for {
		if len(out) == cap(out) {
			return out, errNoRoom
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return out, err
		}
	}
}

// unpack appends what payload unfolds to to out, as unpackZstd does.
func (d *decompressor) unpack(payload, out []byte) ([]byte, error) {
	if d.zstd != nil {
		return unpackZstd(d.zstd, payload, out)
	}
	d.in.Reset(payload)
	if err := d.gzip.Reset(&d.in); err != nil {
		return out, err
	}
	return readAll(&d.gzip, out)
}
