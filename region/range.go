package region

import (
	"bytes"
	"math/big"

	"sluice/cell"
)

// Overlap is the part of a range of rows that lies in one region.
type Overlap struct {
	Index int // of the region in its Map
	Info  Info
	Range cell.Range // the rows that are in both; never empty
}

// Overlapping returns the regions that hold rows of r, in key order, each with
// its intersection with r. Their ranges tile r. It is empty where r is, that is,
// where r's Stop is not empty and not above its Start.
func (m *Map) Overlapping(r cell.Range) []Overlap {
	if emptyRange(r) {
		return nil
	}
	var parts []Overlap
	for i := m.Locate(r.Start); i < len(m.regions); i++ {
		info := m.regions[i]
		if len(r.Stop) != 0 && string(info.Start) >= string(r.Stop) {
			break
		}
		part := info.Range()
		if string(r.Start) > string(part.Start) {
			part.Start = r.Start
		}
		if len(r.Stop) != 0 && (len(part.Stop) == 0 || string(r.Stop) < string(part.Stop)) {
			part.Stop = r.Stop
		}
		parts = append(parts, Overlap{Index: i, Info: info, Range: part})
	}
	return parts
}

func emptyRange(r cell.Range) bool {
	return len(r.Stop) != 0 && string(r.Stop) <= string(r.Start)
}

// splitWidth is how many bytes after the common prefix of a range's bounds decide
// where SplitRange cuts it. Eight tell 2⁶⁴ places apart; more would only make the
// cuts longer.
const splitWidth = 8

// SplitRange cuts r into at most n ranges that tile it, evenly by the bytes that
// follow the common prefix of its bounds, for scans in parallel. It knows no
// sizes: where keys share a longer prefix than the bounds do, parts may be empty.
// Fewer than n come back where r is too narrow, none where it is empty.
func SplitRange(r cell.Range, n int) []cell.Range {
	if emptyRange(r) {
		return nil
	}
	prefix := 0
	for prefix < len(r.Start) && prefix < len(r.Stop) && r.Start[prefix] == r.Stop[prefix] {
		prefix++
	}
	low := padded(r.Start[prefix:])
	high := new(big.Int).Lsh(big.NewInt(1), 8*splitWidth) // beyond every key
	if len(r.Stop) != 0 {
		high = padded(r.Stop[prefix:])
	}
	width := new(big.Int).Sub(high, low)
	var parts []cell.Range
	start := r.Start
	for i := 1; i < n; i++ {
		at := new(big.Int).Mul(width, big.NewInt(int64(i)))
		at.Div(at, big.NewInt(int64(n))).Add(at, low)
		cut := append(bytes.Clone(r.Start[:prefix]), at.FillBytes(make([]byte, splitWidth))...)
		cut = bytes.TrimRight(cut, "\x00") // the shortest key at this place
		if string(cut) <= string(start) || len(r.Stop) != 0 && string(cut) >= string(r.Stop) {
			continue
		}
		parts = append(parts, cell.Range{Start: start, Stop: cut})
		start = cut
	}
	return append(parts, cell.Range{Start: start, Stop: r.Stop})
}

// padded reads the first splitWidth bytes of b, filled up with zeros, as a number.
func padded(b []byte) *big.Int {
	var buf [splitWidth]byte
	copy(buf[:], b)
	return new(big.Int).SetBytes(buf[:])
}
