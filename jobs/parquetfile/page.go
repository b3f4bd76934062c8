package parquetfile

import (
	"bytes"
	"errors"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

// errNullEntry: batches of exports have no such maps, and the schema says so.
var errNullEntry = errors.New("a map has a null for a key or a value")

// page is the values of a leaf since the last page that was written. Nulls have a
// level and no value, and so have empty maps, which count as nulls. Text has either
// offsets into data or numbers of a dictionary, and decimals are fixed or have such numbers.
type page struct {
	rows    int
	nulls   int
	values  int    // that are not null
	levels  []byte // of definition, where some values may be absent: the greatest = a value
	repeats []byte // of repetition, of maps: 0 = the row's first
	int64s  []int64
	floats  []float64
	bits    []byte // as many as values
	fixed   []byte // decimals of width bytes each
	width   int
	data    []byte
	offsets []uint32 // n+1 into data
	indexes []int32
}

// reset empties p and keeps its memory.
func (p *page) reset() {
	p.rows, p.nulls, p.values = 0, 0, 0
	p.levels, p.repeats, p.int64s, p.floats, p.bits = p.levels[:0], p.repeats[:0], p.int64s[:0], p.floats[:0], p.bits[:0]
	p.fixed, p.data, p.offsets, p.indexes = p.fixed[:0], p.data[:0], append(p.offsets[:0], 0), p.indexes[:0]
}

// size returns what the values take in memory, by which pages are cut.
func (p *page) size() int {
	levels := 5 * len(p.levels)
	if len(p.repeats) > 0 {
		levels = 8*p.rows + 2*len(p.levels)
	}
	return levels + 8*(len(p.int64s)+len(p.floats)) + len(p.bits) + len(p.fixed) + len(p.data) + 4*(len(p.offsets)-1) + 4*len(p.indexes)
}

// append appends values [start, end) of v, whose text goes into d, if there is one.
// levels says that the column takes nulls.
func (p *page) append(v *columnar.Vector, start, end int, levels bool, d *dictionary) error {
	nulls := 0
	if levels {
		nulls = p.appendLevels(v, start, end)
	}
	p.rows += end - start
	p.nulls += nulls
	return p.appendValues(v, start, end, nulls, d)
}

// appendValues appends those of values [start, end) that are not null, of which there
// are as many fewer as nulls says.
func (p *page) appendValues(v *columnar.Vector, start, end, nulls int, d *dictionary) error {
	values := p.values
	p.values += end - start - nulls
	switch v.Type().Storage() {
	case columnar.Int64:
		p.int64s = appendPresent(p.int64s, v.Int64s(), v, start, end, nulls)
	case columnar.Decimal128:
		return p.appendDecimals(v, start, end, nulls, d)
	case columnar.Float64:
		p.floats = appendPresent(p.floats, v.Float64s(), v, start, end, nulls)
	case columnar.Bool:
		for i := start; i < end; i++ {
			if nulls > 0 && v.IsNull(i) {
				continue
			}
			if values&7 == 0 {
				p.bits = append(p.bits, 0)
			}
			if v.Bool(i) {
				p.bits[values>>3] |= 1 << (values & 7)
			}
			values++
		}
	default:
		if d != nil {
			return p.appendIndexes(v, start, end, nulls, d)
		}
		return p.appendText(v, start, end, nulls)
	}
	return nil
}

// appendRepeated appends the entries of rows [start, end) of v, which has maps: those of
// one of its two leaves.
func (p *page) appendRepeated(v *columnar.Vector, l *leaf, start, end int, d *dictionary) error {
	from := l.part.of(v)
	if from.Nulls() > 0 {
		return errNullEntry
	}
	for i := start; i < end; i++ {
		first, last := v.EntriesOf(i)
		if first == last {
			level := l.maxDefinition - 1 // empty
			if v.IsNull(i) {
				level--
			}
			p.levels, p.repeats = append(p.levels, level), append(p.repeats, 0)
			p.nulls++
			continue
		}
		for e := first; e < last; e++ {
			repeat := byte(1)
			if e == first {
				repeat = 0
			}
			p.levels, p.repeats = append(p.levels, l.maxDefinition), append(p.repeats, repeat)
		}
	}
	p.rows += end - start
	first, _ := v.EntriesOf(start)
	_, last := v.EntriesOf(end - 1)
	return p.appendValues(from, first, last, 0, d)
}

// allPresent are the levels of definition of values that are all there.
var allPresent = bytes.Repeat([]byte{1}, valuesPerAppend)

// appendLevels appends the levels of values [start, end) and returns how many are null.
func (p *page) appendLevels(v *columnar.Vector, start, end int) (nulls int) {
	n := len(p.levels)
	for left := end - start; left > 0; left -= len(allPresent) {
		p.levels = append(p.levels, allPresent[:min(left, len(allPresent))]...)
	}
	if v.Nulls() == 0 {
		return 0
	}
	for i := start; i < end; i++ {
		if v.IsNull(i) {
			p.levels[n+i-start] = 0
			nulls++
		}
	}
	return nulls
}

// appendPresent appends those of values [start, end) that are not null.
func appendPresent[T any](dst, from []T, v *columnar.Vector, start, end, nulls int) []T {
	if nulls == 0 {
		return append(dst, from[start:end]...)
	}
	for i := start; i < end; i++ {
		if !v.IsNull(i) {
			dst = append(dst, from[i])
		}
	}
	return dst
}

func (p *page) appendIndexes(v *columnar.Vector, start, end, nulls int, d *dictionary) error {
	data, offsets := v.Text()
	indexes := slices.Grow(p.indexes, end-start-nulls)
	for start < end {
		some := end // that are not null
		if nulls > 0 {
			some = start
			for some < end && !v.IsNull(some) {
				some++
			}
		}
		var err error
		if indexes, err = d.appendIndexes(indexes, data, offsets[start:some+1]); err != nil {
			return err
		}
		start = some + 1
	}
	p.indexes = indexes
	return nil
}

func (p *page) appendText(v *columnar.Vector, start, end, nulls int) error {
	data, offsets := v.Text()
	text := data[offsets[start]:offsets[end]] // nulls have none
	if len(text) > math.MaxInt32-len(p.data) {
		return errPageTooLarge
	}
	move := uint32(len(p.data)) - uint32(offsets[start])
	p.data = append(p.data, text...)
	for i := start; i < end; i++ {
		if nulls == 0 || !v.IsNull(i) {
			p.offsets = append(p.offsets, uint32(offsets[i+1])+move)
		}
	}
	return nil
}

// bounds returns the least and the greatest value, which share the page's memory;
// ok says that there is one, and that none is NaN, which is beyond all bounds to some
// readers and within none to others.
func (p *page) bounds(d *dictionary) (least, greatest parquet.Value, ok bool) {
	switch {
	case len(p.int64s) > 0:
		lo, hi := p.int64s[0], p.int64s[0]
		for _, x := range p.int64s {
			lo, hi = min(lo, x), max(hi, x)
		}
		return parquet.Int64Value(lo), parquet.Int64Value(hi), true
	case len(p.floats) > 0:
		lo, hi, ok := floatBounds(p.floats)
		return parquet.DoubleValue(lo), parquet.DoubleValue(hi), ok
	case len(p.bits) > 0:
		lo, hi := bitBounds(p.bits, p.values)
		return parquet.BooleanValue(lo), parquet.BooleanValue(hi), true
	case len(p.indexes) > 0:
		return parquet.ByteArrayValue(d.text(d.min)), parquet.ByteArrayValue(d.text(d.max)), true
	case len(p.fixed) > 0:
		lo, hi := decimalBounds(p.fixed, p.width)
		return parquet.FixedLenByteArrayValue(lo), parquet.FixedLenByteArrayValue(hi), true
	case len(p.offsets) > 1:
		lo, hi := textBounds(p.data, p.offsets)
		return parquet.ByteArrayValue(lo), parquet.ByteArrayValue(hi), true
	}
	return parquet.Value{}, parquet.Value{}, false
}

// floatBounds returns the bounds of floats; ok is false where one is NaN. A zero is -0 as
// the lower one and +0 as the upper one, as parquet.thrift asks for: which of them are
// there, and to some readers -0 is less, no comparison tells.
func floatBounds(floats []float64) (lo, hi float64, ok bool) {
	lo, hi, ok = floats[0], floats[0], true
	for _, x := range floats { // a NaN is neither less nor greater
		if x < lo {
			lo = x
		}
		if x > hi {
			hi = x
		}
		ok = ok && x == x
	}
	if lo == 0 {
		lo = math.Copysign(0, -1)
	}
	return lo, hi + 0, ok // -0 + 0 is +0
}

// bitBounds returns the bounds of the first n bits.
func bitBounds(bits []byte, n int) (lo, hi bool) {
	whole, rest := n>>3, byte(1)<<(n&7)-1
	every, some := byte(0xFF), byte(0)
	for _, b := range bits[:whole] {
		every, some = every&b, some|b
	}
	if rest != 0 {
		every, some = every&(bits[whole]|^rest), some|bits[whole]&rest
	}
	return every == 0xFF, some != 0
}

func textBounds(data []byte, offsets []uint32) (lo, hi []byte) {
	lo = data[offsets[0]:offsets[1]:offsets[1]]
	hi = lo
	for i, end := range offsets[2:] {
		b := data[offsets[i+1]:end:end]
		switch { // of rows that are sorted, the greater one comes first
		case bytes.Compare(b, hi) > 0:
			hi = b
		case bytes.Compare(b, lo) < 0:
			lo = b
		}
	}
	return lo, hi
}
