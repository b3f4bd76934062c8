package cell

import "fmt"

// PackedRows are rows of one family as they are stored: of each one put and nothing else
// (but see Fold), so that its columns have one version each, and nothing hides them. Who
// puts them elsewhere is spared the cells, which are a third of a scan. The zero value has
// no rows; one that is filled again uses its memory again.
type PackedRows struct {
	Family string
	Times  []Timestamp // of the rows, in the scan's order; folded, of the newest put of each

	// Fold has rows of several puts told as one, of the newest version of each column, at
	// the newest time: that of the other columns is lost. It is the caller's.
	Fold bool

	keys, values       []byte // of the rows, one after the other
	keyEnds, valueEnds []int
}

// Reset removes the rows and keeps the memory.
func (p *PackedRows) Reset(family string) {
	p.Family = family
	p.Times, p.keys, p.values, p.keyEnds, p.valueEnds = p.Times[:0], p.keys[:0], p.values[:0], p.keyEnds[:0], p.valueEnds[:0]
}

// Len returns the number of rows.
func (p *PackedRows) Len() int { return len(p.Times) }

// Bytes returns how many bytes the keys and the packed values have.
func (p *PackedRows) Bytes() int { return len(p.keys) + len(p.values) }

// Key returns the key of row i, valid until the next Append or Reset.
func (p *PackedRows) Key(i int) []byte {
	start := 0
	if i > 0 {
		start = p.keyEnds[i-1]
	}
	return p.keys[start:p.keyEnds[i]:p.keyEnds[i]]
}

// Value returns the packed value of row i (Packed), valid until the next Append or Reset.
func (p *PackedRows) Value(i int) []byte {
	start, end := p.At(i)
	return p.values[start:end:end]
}

// At returns where in Values the packed value of row i begins and ends.
func (p *PackedRows) At(i int) (start, end int) {
	if i > 0 {
		start = p.valueEnds[i-1]
	}
	return start, p.valueEnds[i]
}

// Values returns the packed values of all rows, one after the other, valid until the next
// Append or Reset.
func (p *PackedRows) Values() []byte { return p.values }

// Append adds a row, whose key escaped is as AppendEscaped made it, and must be well
// formed. value is its packed value, without TTL and without sequences of its columns
// (AppendPackedHeader). Both are copied.
func (p *PackedRows) Append(escaped, value []byte, t Timestamp) {
	p.keys = AppendUnescaped(p.keys, escaped)
	p.keyEnds = append(p.keyEnds, len(p.keys))
	p.values = append(p.values, value...)
	p.valueEnds = append(p.valueEnds, len(p.values))
	p.Times = append(p.Times, t)
}

// DropLast removes the last row. Its bytes stay as they are until the next Append.
func (p *PackedRows) DropLast() {
	n := len(p.Times) - 1
	p.Times, p.keyEnds, p.valueEnds = p.Times[:n], p.keyEnds[:n], p.valueEnds[:n]
	p.keys, p.values = p.keys[:0], p.values[:0]
	if n > 0 {
		p.keys, p.values = p.keys[:p.keyEnds[n-1]], p.values[:p.valueEnds[n-1]]
	}
}

// Row returns row i with its cells, in the memory of scratch as far as that is enough,
// valid until the next Append or Reset. Its error wraps ErrCorruptValue.
func (p *PackedRows) Row(i int, scratch []Cell) (Row, error) {
	var columns Packed
	if err := columns.Reset(p.Value(i), 0); err != nil {
		return Row{}, fmt.Errorf("row %q: %w", p.Key(i), err)
	}
	cells := columns.AppendCells(scratch[:0], p.Family, p.Times[i])
	if err := columns.Err(); err != nil {
		return Row{}, fmt.Errorf("row %q: %w", p.Key(i), err)
	}
	return Row{Key: p.Key(i), Cells: cells}, nil
}
