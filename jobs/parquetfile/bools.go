package parquetfile

import (
	"encoding/binary"
	"fmt"
	"math/bits"

	"github.com/parquet-go/parquet-go/format"
)

// boolPage is a data page with bools in RLE, and what becomes of it: the same page in PLAIN,
// with bytes behind it that nobody reads, as how many values there are shows only in what is
// compressed.
type boolPage struct {
	was, size int // bytes behind the header, before and after
	values    int // with nulls
	nulls     int // -1 = the page's levels tell
	nullable  bool
	levels    int // bytes of them; of version 1 they say it themselves
}

// newBoolPage returns the page that h is the header of, and makes h that of the new one; nil
// = it is in another encoding.
func newBoolPage(h *format.PageHeader, nullable bool) *boolPage {
	p := &boolPage{was: int(h.UncompressedPageSize), nulls: -1, nullable: nullable}
	switch {
	case h.Type == format.DataPage && h.DataPageHeader.Valid && h.DataPageHeader.V.Encoding == format.RLE:
		h.DataPageHeader.V.Encoding = format.Plain
		p.values = int(h.DataPageHeader.V.NumValues)
	case h.Type == format.DataPageV2 && h.DataPageHeaderV2.Valid && h.DataPageHeaderV2.V.Encoding == format.RLE:
		v := &h.DataPageHeaderV2.V
		v.Encoding = format.Plain
		p.values, p.nulls, p.levels = int(v.NumValues), int(v.NumNulls), int(v.RepetitionLevelsByteLength)+int(v.DefinitionLevelsByteLength)
	default:
		return nil
	}
	p.size = p.was + (p.values+7)/8
	h.UncompressedPageSize = int32(p.size)
	return p
}

// plain returns the new page.
func (p *boolPage) plain(page []byte) ([]byte, error) {
	levels, nulls := p.levels, p.nulls
	if nulls < 0 {
		nulls = 0
		if p.nullable {
			n, err := prefixed(page)
			if err != nil {
				return nil, err
			}
			defined := make([]byte, (p.values+7)/8)
			if err := unpackBits(defined, page[4:4+n], p.values); err != nil {
				return nil, fmt.Errorf("its levels: %w", err)
			}
			nulls = p.values
			for _, b := range defined {
				nulls -= bits.OnesCount8(b)
			}
			levels = 4 + n
		}
	}
	n := p.values - nulls
	b := make([]byte, p.size)
	copy(b, page[:levels])
	if n == 0 {
		return b, nil // some write no length then
	}
	size, err := prefixed(page[levels:])
	if err != nil {
		return nil, err
	}
	return b, unpackBits(b[levels:], page[levels+4:levels+4+size], n)
}

// prefixed returns how many bytes there are behind their length, which b begins with.
func prefixed(b []byte) (int, error) {
	if len(b) < 4 {
		return 0, damaged("%d bytes where a length is to come", len(b))
	}
	n := binary.LittleEndian.Uint32(b)
	if int64(n) > int64(len(b)-4) {
		return 0, damaged("%d bytes where %d are to come", len(b)-4, n)
	}
	return int(n), nil
}

// unpackBits sets the first n bits of dst, which are 0, to what src says in runs of one bit
// and packed bits (parquet-format, Encodings.md, Run Length Encoding / Bit-Packing Hybrid).
func unpackBits(dst, src []byte, n int) error {
	for at := 0; at < n; {
		head, size := binary.Uvarint(src)
		if size <= 0 {
			return damaged("%d bits where %d are to come", at, n)
		}
		src = src[size:]
		count := head >> 1
		if head&1 == 0 {
			if len(src) == 0 {
				return damaged("a run without its bit")
			}
			bit := src[0] & 1
			src = src[1:]
			for end := at + int(min(count, uint64(n-at))); at < end; at++ {
				dst[at/8] |= bit << (at % 8)
			}
			continue
		}
		for range min(count, uint64(len(src))) {
			for i := 0; i < 8 && at < n; i++ {
				dst[at/8] |= src[0] >> i & 1 << (at % 8)
				at++
			}
			src = src[1:]
			if at == n {
				return nil
			}
		}
	}
	return nil
}
