package parquetfile

import (
	"bytes"
	"cmp"
	"encoding/binary"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

// decimalNode returns the leaf of decimals of type t: of up to 18 digits in 64 bits, of
// more in as few bytes as hold them all, big-endian (parquet-format, LogicalTypes.md,
// DECIMAL).
func decimalNode(t columnar.Type) parquet.Node {
	p, s, _ := t.Decimal()
	d := decimalType{Type: parquet.Int64Type, logical: &format.DecimalType{Precision: int32(p), Scale: int32(s)}}
	if t.Storage() != columnar.Decimal128 {
		return parquet.Leaf(d)
	}
	d.Type = parquet.FixedLenByteArrayType(decimalBytes(p))
	return parquet.Leaf(fixedDecimalType{d})
}

// decimalBytes returns how many bytes the numbers of so many digits take, with a sign.
func decimalBytes(precision int) int {
	const bitsPerDigit = 3.321928094887362 // log2(10)
	return int(float64(precision)*bitsPerDigit+1)/8 + 1
}

// decimalType is the type of decimals in 64 bits. parquet.Decimal is the same, but logs
// that those of less than 10 digits would fit 32.
type decimalType struct {
	parquet.Type
	logical *format.DecimalType
}

// LogicalType returns DECIMAL.
func (t decimalType) LogicalType() *format.LogicalType { return &format.LogicalType{Value: t.logical} }

// ConvertedType returns DECIMAL for readers of before logical types.
func (t decimalType) ConvertedType() *deprecated.ConvertedType {
	c := deprecated.Decimal
	return &c
}

// decimalOf returns what a type says of decimals; nil = it is none.
func decimalOf(t parquet.Type) *format.DecimalType {
	l := t.LogicalType()
	if l == nil {
		return nil
	}
	d, _ := l.Value.(*format.DecimalType)
	return d
}

// fixedDecimalType is the type of decimals in fixed-length bytes. They compare as signed
// numbers (parquet-format, parquet.thrift, ColumnOrder), which parquet-go takes for
// unsigned.
type fixedDecimalType struct{ decimalType }

// Compare compares two values.
func (t fixedDecimalType) Compare(a, b parquet.Value) int {
	return compareDecimals(a.ByteArray(), b.ByteArray())
}

// NewColumnIndexer returns an indexer of pages, whose bounds are not cut.
func (t fixedDecimalType) NewColumnIndexer(int) parquet.ColumnIndexer {
	// That of fixed-length bytes has none for pages of nulls.
	return &decimalIndexer{parquet.ByteArrayType.NewColumnIndexer(0)}
}

// compareDecimals compares two numbers of equal length in two's complement, big-endian.
func compareDecimals(a, b []byte) int {
	if d := cmp.Compare(int8(a[0]), int8(b[0])); d != 0 {
		return d
	}
	return bytes.Compare(a[1:], b[1:])
}

// decimalIndexer shows an indexer of unsigned bytes the numbers with the sign bit
// inverted, so that their order is the right one.
type decimalIndexer struct{ parquet.ColumnIndexer }

// IndexPage adds a page.
func (i *decimalIndexer) IndexPage(values, nulls int64, least, greatest parquet.Value) {
	i.ColumnIndexer.IndexPage(values, nulls, signInverted(least), signInverted(greatest))
}

// ColumnIndex returns the index, once.
func (i *decimalIndexer) ColumnIndex() format.ColumnIndex {
	index := i.ColumnIndexer.ColumnIndex()
	for _, bounds := range [][][]byte{index.MinValues, index.MaxValues} {
		for _, b := range bounds {
			if len(b) > 0 {
				b[0] ^= 0x80
			}
		}
	}
	return index
}

// signInverted returns a copy of a number with the other sign bit; a null stays one.
func signInverted(x parquet.Value) parquet.Value {
	if x.IsNull() {
		return x
	}
	b := bytes.Clone(x.ByteArray())
	b[0] ^= 0x80
	return parquet.ByteArrayValue(b)
}

// appendFixed appends x in the last of its bytes, as many as width says.
func appendFixed(dst []byte, x columnar.Int128, width int) []byte {
	var b [16]byte
	binary.BigEndian.PutUint64(b[:8], uint64(x.HighBits()))
	binary.BigEndian.PutUint64(b[8:], x.LowBits())
	return append(dst, b[16-width:]...)
}

// appendDecimals appends those of values [start, end) that are not null.
func (p *page) appendDecimals(v *columnar.Vector, start, end, nulls int, d *dictionary) error {
	for i := start; i < end; i++ {
		if nulls > 0 && v.IsNull(i) {
			continue
		}
		if d == nil {
			p.fixed = appendFixed(p.fixed, v.Decimals()[i], p.width)
			continue
		}
		var room [16]byte
		n, err := d.index(appendFixed(room[:0], v.Decimals()[i], p.width))
		if err != nil {
			return err
		}
		p.indexes = append(p.indexes, n)
	}
	return nil
}

// decimalBounds returns the least and the greatest number of so many bytes each.
func decimalBounds(fixed []byte, width int) (lo, hi []byte) {
	lo = fixed[:width:width]
	hi = lo
	for at := width; at < len(fixed); at += width {
		b := fixed[at : at+width : at+width]
		switch {
		case compareDecimals(b, hi) > 0:
			hi = b
		case compareDecimals(b, lo) < 0:
			lo = b
		}
	}
	return lo, hi
}

// appendDecimal appends a decimal in two's complement, big-endian, to a vector of
// decimals.
func appendDecimal(v *columnar.Vector, b []byte) error {
	x, err := columnar.ParseInt128(b)
	if err != nil {
		return err
	}
	return v.AppendUnscaled(x)
}
