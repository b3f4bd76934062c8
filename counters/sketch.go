package counters

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"slices"

	"sluice/cell"
	"sluice/rowkey"
)

// SketchPrecision is the number of bits of an element's hash that choose its
// register: a sketch has 2^14 = 16384 of them.
const SketchPrecision = 14

// SketchError is the standard error of Sketch.Count relative to the true number:
// 1.04/√16384. Two of three estimates lie within it, 19 of 20 within twice as much.
const SketchError = 1.04 / 128

const (
	registers = 1 << SketchPrecision
	maxRank   = 64 - SketchPrecision + 1 // 51: of a hash whose other bits are all 0

	sketchFormat = 0xD1 // first byte: distinct count, format 1
	sketchSparse = 1
	sketchDense  = 2
	headerBytes  = 3 // format, precision, form
	sparseBytes  = 3 // of a register: index and rank as index<<6 | rank
	denseBytes   = registers * 6 / 8

	// maxSparse is the most registers of the sparse form: with one more it would
	// not be shorter than the dense one.
	maxSparse = denseBytes/sparseBytes - 1

	// MaxSketchLength is the length of the longest sketch, the dense one.
	MaxSketchLength = headerBytes + denseBytes
)

// Sketch estimates how many different elements were added to it: HyperLogLog
// (Flajolet and others, 2007) over 64-bit hashes, with the estimator of Ertl ("New
// cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6),
// which needs no tables and no corrections at either end. Adding an element twice
// is adding it once, and sketches merge into that of the union, in any order.
//
// A register holds the largest rank among its elements, 1..51, and 0 without any. A
// Sketch keeps those that are not 0, in order, until that takes more memory than
// all of them. The zero Sketch is empty and ready. It belongs to one goroutine.
type Sketch struct {
	sparse []uint32 // index<<6 | rank, ascending; unused once dense is there
	dense  []uint8  // rank by index; nil = sparse
}

// Rank returns the register of an element and its rank: the upper 14 bits of XXH64
// (seed 0) of its bytes, and one more than the number of zeros that the other 50
// begin with.
func Rank(element []byte) (register int, rank uint8) {
	h := rowkey.Hash64(element)
	rest := h<<SketchPrecision | 1<<(SketchPrecision-1) // ends the zeros at 50
	return int(h >> (64 - SketchPrecision)), uint8(bits.LeadingZeros64(rest) + 1)
}

// Add adds an element and reports whether that changed the sketch.
func (s *Sketch) Add(element []byte) bool {
	i, rank := Rank(element)
	if s.Register(i) >= rank {
		return false
	}
	s.SetRegister(i, rank)
	return true
}

// Register returns the rank of register i, 0..16383.
func (s *Sketch) Register(i int) uint8 {
	if s.dense != nil {
		return s.dense[i]
	}
	if at, ok := s.find(i); ok {
		return uint8(s.sparse[at] & 63)
	}
	return 0
}

// find returns where register i is in sparse, or would be.
func (s *Sketch) find(i int) (at int, ok bool) {
	return slices.BinarySearchFunc(s.sparse, uint32(i), func(e, i uint32) int { return int(e>>6) - int(i) })
}

// SetRegister sets the rank of register i, 0..16383, to 0..51, and so also takes
// back what Add did. Another rank panics.
func (s *Sketch) SetRegister(i int, rank uint8) {
	if rank > maxRank {
		panic(fmt.Sprintf("counters: no rank %d", rank))
	}
	if s.dense != nil {
		s.dense[i] = rank
		return
	}
	at, ok := s.find(i)
	e := uint32(i)<<6 | uint32(rank)
	switch {
	case ok && rank == 0:
		s.sparse = slices.Delete(s.sparse, at, at+1)
	case ok:
		s.sparse[at] = e
	case rank == 0:
	case len(s.sparse) < maxSparse:
		s.sparse = slices.Insert(s.sparse, at, e)
	default:
		s.spread()
		s.dense[i] = rank
	}
}

// spread makes s dense.
func (s *Sketch) spread() {
	s.dense = make([]uint8, registers)
	for _, e := range s.sparse {
		s.dense[e>>6] = uint8(e & 63)
	}
	s.sparse = nil
}

// Merge adds all elements of o, which stays as it is.
func (s *Sketch) Merge(o *Sketch) {
	if o.dense == nil {
		for _, e := range o.sparse {
			if i, rank := int(e>>6), uint8(e&63); s.Register(i) < rank {
				s.SetRegister(i, rank)
			}
		}
		return
	}
	if s.dense == nil {
		s.spread()
	}
	for i, rank := range o.dense {
		s.dense[i] = max(s.dense[i], rank)
	}
}

// Count returns the estimate of how many different elements were added. It is 0 for
// none, exact to a few in a thousand below some thousand, and has the relative
// standard error SketchError from there on.
func (s *Sketch) Count() int64 {
	// How many registers have each rank: ranks from 0 to q+1, q = 50.
	const q = 64 - SketchPrecision
	var of [q + 2]int
	if s.dense == nil {
		of[0] = registers - len(s.sparse)
		for _, e := range s.sparse {
			of[e&63]++
		}
	} else {
		for _, rank := range s.dense {
			of[rank]++
		}
	}
	if of[0] == registers {
		return 0
	}
	const m = float64(registers)
	z := m * tau(1-float64(of[q+1])/m)
	for k := q; k >= 1; k-- {
		z = 0.5 * (z + float64(of[k]))
	}
	z += m * sigma(float64(of[0])/m)
	n := math.Round(m * m / (2 * math.Ln2 * z))
	if n >= math.MaxInt64 { // all registers at or near their limit, as no hashes make them
		return math.MaxInt64
	}
	return int64(n)
}

// sigma is Ertl's σ(x) = x + Σ x^(2^k)·2^(k-1), for x in [0, 1).
func sigma(x float64) float64 {
	y, z := 1.0, x
	for {
		x *= x
		before := z
		z += x * y
		y += y
		if z == before {
			return z
		}
	}
}

// tau is Ertl's τ(x) = (1 - x - Σ (1 - x^(2^-k))²·2^-k) / 3, for x in [0, 1].
func tau(x float64) float64 {
	if x == 0 || x == 1 {
		return 0
	}
	y, z := 1.0, 1-x
	for {
		x = math.Sqrt(x)
		before := z
		y *= 0.5
		z -= (1 - x) * (1 - x) * y
		if z == before {
			return z / 3
		}
	}
}

// Append appends the sketch as docs/format/distinct.md has it: at most
// MaxSketchLength bytes, never 8, which is the length of a count. Sketches of the
// same registers have the same bytes, whatever made them.
func (s *Sketch) Append(dst []byte) []byte {
	if s.dense == nil {
		dst = append(dst, sketchFormat, SketchPrecision, sketchSparse)
		for _, e := range s.sparse {
			dst = append(dst, byte(e>>16), byte(e>>8), byte(e))
		}
		return dst
	}
	used := registers
	for _, rank := range s.dense {
		if rank == 0 {
			used--
		}
	}
	if used <= maxSparse { // SetRegister took some back
		dst = append(dst, sketchFormat, SketchPrecision, sketchSparse)
		for i, rank := range s.dense {
			if rank != 0 {
				e := uint32(i)<<6 | uint32(rank)
				dst = append(dst, byte(e>>16), byte(e>>8), byte(e))
			}
		}
		return dst
	}
	dst = append(dst, sketchFormat, SketchPrecision, sketchDense)
	for i := 0; i < registers; i += 4 {
		r := s.dense[i : i+4 : i+4]
		e := uint32(r[0])<<18 | uint32(r[1])<<12 | uint32(r[2])<<6 | uint32(r[3])
		dst = append(dst, byte(e>>16), byte(e>>8), byte(e))
	}
	return dst
}

// IsSketch reports whether a cell's value is meant as a sketch, by its first byte
// and its length: no count has either, and whether the rest is good is not looked at.
func IsSketch(b []byte) bool { return len(b) >= headerBytes && len(b) != 8 && b[0] == sketchFormat }

// DecodeSketch reads what Append wrote. Nothing of b is kept. Its error wraps
// ErrCorrupt.
func DecodeSketch(b []byte) (*Sketch, error) {
	bad := func(format string, a ...any) (*Sketch, error) {
		return nil, fmt.Errorf("%w: sketch of %d bytes: %s", ErrCorrupt, len(b), fmt.Sprintf(format, a...))
	}
	if len(b) < headerBytes || b[0] != sketchFormat {
		return bad("it does not begin as one of format 1")
	}
	if b[1] != SketchPrecision {
		return bad("precision %d, want %d", b[1], SketchPrecision)
	}
	body := b[headerBytes:]
	s := new(Sketch)
	switch b[2] {
	case sketchSparse:
		n := len(body) / sparseBytes
		if len(body)%sparseBytes != 0 || n > maxSparse {
			return bad("the sparse form has 3 bytes a register and at most %d", maxSparse)
		}
		s.sparse = make([]uint32, n)
		last := -1
		for k := range s.sparse {
			e := uint32(body[3*k])<<16 | uint32(body[3*k+1])<<8 | uint32(body[3*k+2])
			i, rank := int(e>>6), e&63
			switch {
			case i >= registers || i <= last:
				return bad("register %d after %d", i, last)
			case rank == 0 || rank > maxRank:
				return bad("register %d has rank %d", i, rank)
			}
			s.sparse[k], last = e, i
		}
	case sketchDense:
		if len(body) != denseBytes {
			return bad("the dense form has %d", MaxSketchLength)
		}
		s.dense = make([]uint8, registers)
		used := 0
		for i := 0; i < registers; i += 4 {
			group, four := body[i/4*3:][:3], s.dense[i:][:4]
			e := uint32(group[0])<<16 | uint32(group[1])<<8 | uint32(group[2])
			four[0], four[1], four[2], four[3] = uint8(e>>18), uint8(e>>12&63), uint8(e>>6&63), uint8(e&63)
			for k, rank := range four {
				if rank > maxRank {
					return bad("register %d has rank %d", i+k, rank)
				}
				if rank > 0 {
					used++
				}
			}
		}
		if used <= maxSparse {
			return bad("%d registers are in use: too few for the dense form", used)
		}
	default:
		return bad("form %d", b[2])
	}
	return s, nil
}

// Distinct is what is stored for one distinct count: a sketch, the newest event
// time among what was added, and the commit's operation that wrote it.
type Distinct struct {
	Sketch   *Sketch
	Time     cell.Timestamp // never negative
	Sequence uint64
}

// DistinctHeader is the length of what stands before the sketch in what
// AppendDistinct appends.
const DistinctHeader = 8 + 8

// AppendDistinct appends the stored form of v: time and sequence, each 8 bytes
// big-endian, and the sketch.
func AppendDistinct(dst []byte, v Distinct) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(v.Time))
	dst = binary.BigEndian.AppendUint64(dst, v.Sequence)
	return v.Sketch.Append(dst)
}

// DecodeDistinct reads what AppendDistinct wrote. Its error wraps ErrCorrupt.
func DecodeDistinct(b []byte) (Distinct, error) {
	if len(b) < DistinctHeader {
		return Distinct{}, fmt.Errorf("%w: %d bytes, want %d and a sketch", ErrCorrupt, len(b), DistinctHeader)
	}
	v := Distinct{Time: cell.Timestamp(binary.BigEndian.Uint64(b)), Sequence: binary.BigEndian.Uint64(b[8:])}
	if v.Time < 0 {
		return Distinct{}, fmt.Errorf("%w: negative time %d", ErrCorrupt, v.Time)
	}
	var err error
	if v.Sketch, err = DecodeSketch(b[DistinctHeader:]); err != nil {
		return Distinct{}, err
	}
	return v, nil
}
