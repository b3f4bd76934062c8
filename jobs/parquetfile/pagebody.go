package parquetfile

import (
	"encoding/binary"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// pageBody is what is known of the bytes of a page of a file of others before they are
// decoded, where a few of them may say that there are values without end: runs of one
// value, and lengths. parquet-go makes memory for what they say.
type pageBody struct {
	kind     format.Type
	encoding format.Encoding // of the values
	values   int             // nulls included
	most     int             // bytes that the values may take
	// The greatest levels of the column; of dictionaries 0, which have none.
	repetition, definition int
	// Where the levels end; of pages of version 1 they have their length in front.
	version2      bool
	repeated, all int
}

// plainDictionary is what older writers call PLAIN in a dictionary's page, and
// RLE_DICTIONARY in others (parquet-format, Encodings.md, Dictionary Encoding).
const plainDictionary format.Encoding = 2

// newPageBody returns what the header says of a page of a column with these levels.
func newPageBody(h *format.PageHeader, kind format.Type, repetition, definition int) *pageBody {
	p := &pageBody{kind: kind, most: anyPageBytes + maxShrink*int(h.CompressedPageSize)}
	switch {
	case h.Type == format.DictionaryPage && h.DictionaryPageHeader.Valid:
		d := &h.DictionaryPageHeader.V
		p.encoding, p.values = d.Encoding, int(d.NumValues)
		if p.encoding == plainDictionary {
			p.encoding = format.Plain
		}
	case h.Type == format.DataPage && h.DataPageHeader.Valid:
		d := &h.DataPageHeader.V
		p.encoding, p.values, p.repetition, p.definition = d.Encoding, int(d.NumValues), repetition, definition
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid:
		d := &h.DataPageHeaderV2.V
		p.encoding, p.values, p.repetition, p.definition = d.Encoding, int(d.NumValues), repetition, definition
		p.version2, p.repeated = true, int(d.RepetitionLevelsByteLength)
		p.all = p.repeated + int(d.DefinitionLevelsByteLength)
	}
	return p
}

// check checks the bytes of the page. What is damaged in other ways, parquet-go finds.
func (p *pageBody) check(b []byte) error {
	if p.version2 {
		if p.all > len(b) {
			return claim("levels of %d bytes in a page of %d", p.all, len(b))
		}
		if err := checkRuns(b[:p.repeated], bits.Len(uint(p.repetition)), p.values); err != nil {
			return err
		}
		if err := checkRuns(b[p.repeated:p.all], bits.Len(uint(p.definition)), p.values); err != nil {
			return err
		}
		return p.checkValues(b[p.all:])
	}
	for _, greatest := range []int{p.repetition, p.definition} {
		if greatest == 0 {
			continue
		}
		if len(b) < 4 || int64(binary.LittleEndian.Uint32(b)) > int64(len(b)-4) {
			return claim("levels that go on behind a page of %d bytes", len(b))
		}
		n := 4 + int(binary.LittleEndian.Uint32(b))
		if err := checkRuns(b[4:n], bits.Len(uint(greatest)), p.values); err != nil {
			return err
		}
		b = b[n:]
	}
	return p.checkValues(b)
}

func (p *pageBody) checkValues(b []byte) error {
	if len(b) == 0 {
		return nil
	}
	sum := int64(0)
	add := func(n int32) error {
		if sum += int64(n); n < 0 || sum > int64(p.most) {
			return claim("texts of %d bytes and more in a page of %d", sum, len(b))
		}
		return nil
	}
	switch p.encoding {
	case plainDictionary, format.RLEDictionary:
		return checkRuns(b[1:], int(b[0]), p.values)
	case format.RLE:
		if p.kind != format.Boolean { // which are decoded here (boolPage)
			return damaged("its values are in RLE, and are no bools")
		}
	case format.DeltaBinaryPacked:
		_, err := walkDelta(b, p.values, nil)
		return err
	case format.DeltaLengthByteArray:
		_, err := walkDelta(b, p.values, add)
		return err
	case format.DeltaByteArray: // of each value, how much of the one before it begins with
		b, err := walkDelta(b, p.values, add)
		if err == nil {
			_, err = walkDelta(b, p.values, add)
		}
		return err
	}
	return nil
}

// morePageValues is how many values the runs of a page may have besides those of the page:
// the last run may be filled up, to 504 by some writers.
const morePageValues = 1 << 16

// checkRuns passes over values of a width in bits in RLE and bit-packed (parquet-format,
// Encodings.md, Run Length Encoding / Bit-Packing Hybrid), which are to be this many.
func checkRuns(b []byte, width, values int) error {
	sum := uint64(0)
	for at := 0; at < len(b); {
		head, n := binary.Uvarint(b[at:])
		if n <= 0 {
			return nil
		}
		count, size := head>>1, uint64(width+7)/8
		if head&1 != 0 {
			count, size = count*8, count*uint64(width)
		}
		if sum += count; head>>1 > uint64(values)+morePageValues || sum > uint64(values)+morePageValues {
			return claim("runs of %d values and more in a page of %d", head>>1, values)
		}
		if at += n; count > 0 { // parquet-go has no value behind a run of none
			at += int(min(size, uint64(len(b))))
		}
	}
	return nil
}

// walkDelta passes over numbers in DELTA_BINARY_PACKED (Encodings.md, Delta Encoding),
// which are to be values at most, and returns what comes behind them. each gets them, as
// of 32 bits; nil = what they are does not matter, nor what comes behind them.
func walkDelta(b []byte, values int, each func(int32) error) (rest []byte, err error) {
	var head [4]uint64 // numbers of a block, its parts, numbers in all, the first of them
	for i := range head {
		x, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, damaged("numbers without a beginning")
		}
		head[i], b = x, b[n:]
	}
	if head[2] > uint64(values) {
		return nil, claim("%d numbers in a page of %d values", head[2], values)
	}
	if each == nil || head[2] == 0 {
		return b, nil
	}
	const largestBlock = 1 << 16 // parquet-go takes no larger one; writers have 128
	if head[0] == 0 || head[0] > largestBlock || head[1] == 0 || head[0]%head[1] != 0 || head[0]/head[1]%32 != 0 {
		return nil, damaged("blocks of %d numbers in %d parts", head[0], head[1])
	}
	parts, part, left := int(head[1]), int(head[0]/head[1]), int(head[2])-1
	last := int32(unzigzag(head[3]))
	if err := each(last); err != nil {
		return nil, err
	}
	padded := make([]byte, part*8+8) // of the widest numbers, and what is read behind the last
	for left > 0 {
		x, n := binary.Uvarint(b)
		if n <= 0 || len(b)-n < parts {
			return nil, damaged("a block of numbers without a beginning")
		}
		least := unzigzag(x)
		widths := b[n : n+parts]
		b = b[n+parts:]
		for _, width := range widths {
			if left == 0 {
				break
			}
			if width > 32 {
				return nil, damaged("lengths of %d bits", width)
			}
			packed := b[:min(part*int(width)/8, len(b))] // the last may be cut off
			b = b[len(packed):]
			clear(padded[copy(padded, packed):])
			for i := range min(part, left) {
				at := i * int(width)
				delta := binary.LittleEndian.Uint64(padded[at>>3:]) >> (at & 7) & (1<<width - 1)
				last += int32(least) + int32(delta)
				if err := each(last); err != nil {
					return nil, err
				}
				left--
			}
		}
	}
	return b, nil
}

func unzigzag(x uint64) int64 { return int64(x>>1) ^ -int64(x&1) }
