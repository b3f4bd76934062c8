package columnar

import (
	"encoding/binary"
	"fmt"
	"hash"
	"math"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/decimal128"
	"github.com/apache/arrow/go/v15/arrow/memory"
)

// Batch is some rows as one Vector a column.
type Batch struct {
	columns []Column
	vectors []Vector
}

// NewBatch returns an empty batch, for readers of files: its vectors must be
// filled to equal lengths.
func NewBatch(columns []Column) *Batch {
	b := &Batch{columns: columns, vectors: make([]Vector, len(columns))}
	for i := range columns {
		b.vectors[i] = newVector(columns[i].Type)
	}
	return b
}

// Rows returns the number of rows.
func (b *Batch) Rows() int {
	if len(b.vectors) == 0 {
		return 0
	}
	return b.vectors[0].n
}

// Bytes returns the memory that the values take.
func (b *Batch) Bytes() int {
	n := 0
	for i := range b.vectors {
		n += b.vectors[i].Memory()
	}
	return n
}

// AppendRow appends a row of from, a batch of the same columns, and returns how many bytes
// its values are (Vector.Size). Its error is that of Vector.AppendFrom; after it b is good
// for Reset alone.
func (b *Batch) AppendRow(from *Batch, row int) (bytes int, err error) {
	for i := range b.vectors {
		v := &from.vectors[i]
		if err := b.vectors[i].AppendFrom(v, row); err != nil {
			return bytes, err
		}
		bytes += v.Size(row)
	}
	return bytes, nil
}

// MoveFrom moves the values from row n on of each column to the end of to, a batch of the
// same columns. The columns may have different numbers of values, of n at least. Its error
// is that of Vector.AppendFrom; after it both batches are good for Reset alone.
func (b *Batch) MoveFrom(n int, to *Batch) error {
	for i := range b.vectors {
		v := &b.vectors[i]
		if v.n == n {
			continue
		}
		for row := n; row < v.n; row++ {
			if err := to.vectors[i].AppendFrom(v, row); err != nil {
				return err
			}
		}
		v.truncate(n)
	}
	return nil
}

// Columns returns the columns; the slice must not be changed.
func (b *Batch) Columns() []Column { return b.columns }

// Vector returns the values of column i.
func (b *Batch) Vector(i int) *Vector { return &b.vectors[i] }

// Share makes column i the values of v, which has its type, without a copy: they are
// valid as long as v's batch, and must not be appended to.
func (b *Batch) Share(i int, v *Vector) { b.vectors[i] = *v }

// HashTo writes what the values are to h, the same bytes for equal batches on
// machines of one byte order, and others for others.
func (b *Batch) HashTo(h hash.Hash) {
	for i := range b.vectors {
		b.vectors[i].hashTo(h)
	}
}

func (v *Vector) hashTo(h hash.Hash) {
	valid := v.valid
	if v.nulls == 0 {
		valid = nil
	}
	parts := [...][]byte{
		valid, arrow.Int64Traits.CastToBytes(v.int64s), arrow.Float64Traits.CastToBytes(v.floats), v.bits,
		arrow.Int32Traits.CastToBytes(v.offsets), v.data,
	}
	var n [8]byte
	for _, part := range parts {
		binary.LittleEndian.PutUint64(n[:], uint64(len(part)))
		_, _ = h.Write(n[:]) // never an error
		_, _ = h.Write(part)
	}
	if v.typ.Storage() == Decimal128 {
		binary.LittleEndian.PutUint64(n[:], uint64(len(v.decimals)))
		_, _ = h.Write(n[:])
		_, _ = h.Write(arrow.Decimal128Traits.CastToBytes(v.decimals))
	}
	if v.keys != nil {
		v.keys.hashTo(h)
		v.values.hashTo(h)
	}
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	for i := range b.vectors {
		b.vectors[i].reset()
	}
}

// ArrowSchema returns the Arrow schema of columns with metadata, which may be nil.
func ArrowSchema(columns []Column, metadata map[string]string) *arrow.Schema {
	fields := make([]arrow.Field, len(columns))
	for i, c := range columns {
		fields[i] = ArrowField(c)
	}
	if metadata == nil {
		return arrow.NewSchema(fields, nil)
	}
	md := arrow.MetadataFrom(metadata)
	return arrow.NewSchema(fields, &md)
}

// Record returns the batch as an Arrow record of schema, which ArrowSchema made
// of the same columns. It shares the batch's memory, but of decimals of up to 18 digits,
// which are copied: release it before the batch is reset.
func (b *Batch) Record(schema *arrow.Schema) arrow.Record {
	arrays := make([]arrow.Array, len(b.vectors))
	for i := range b.vectors {
		data := b.vectors[i].arrayData(schema.Field(i).Type)
		arrays[i] = array.MakeFromData(data)
		data.Release()
	}
	r := array.NewRecord(schema, arrays, int64(b.Rows()))
	for _, a := range arrays {
		a.Release()
	}
	return r
}

// arrayData returns the values as Arrow holds those of type t, in v's memory.
func (v *Vector) arrayData(t arrow.DataType) *array.Data {
	buffers := make([]*memory.Buffer, 2, 3)
	if v.nulls > 0 {
		buffers[0] = memory.NewBufferBytes(v.valid)
	}
	switch v.typ.Storage() {
	case Int64:
		if _, _, ok := v.typ.Decimal(); ok {
			buffers[1] = memory.NewBufferBytes(wide(v.int64s))
			break
		}
		buffers[1] = memory.NewBufferBytes(arrow.Int64Traits.CastToBytes(v.int64s))
	case Decimal128:
		buffers[1] = memory.NewBufferBytes(arrow.Decimal128Traits.CastToBytes(v.decimals))
	case Float64:
		buffers[1] = memory.NewBufferBytes(arrow.Float64Traits.CastToBytes(v.floats))
	case Bool:
		buffers[1] = memory.NewBufferBytes(v.bits)
	case Entries:
		buffers[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.offsets))
		entries := t.(*arrow.MapType).Elem().(*arrow.StructType)
		keys, values := v.keys.arrayData(entries.Field(0).Type), v.values.arrayData(entries.Field(1).Type)
		pairs := array.NewData(entries, v.keys.n, []*memory.Buffer{nil}, []arrow.ArrayData{keys, values}, 0, 0)
		data := array.NewData(t, v.n, buffers, []arrow.ArrayData{pairs}, v.nulls, 0)
		keys.Release()
		values.Release()
		pairs.Release()
		return data
	default:
		buffers[1] = memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(v.offsets))
		buffers = append(buffers, memory.NewBufferBytes(v.data))
	}
	return array.NewData(t, v.n, buffers, nil, v.nulls, 0)
}

// wide returns numbers as Arrow's 128 bits, in this machine's byte order.
func wide(xs []int64) []byte {
	all := make([]decimal128.Num, len(xs))
	for i, x := range xs {
		all[i] = decimal128.FromI64(x)
	}
	return arrow.Decimal128Traits.CastToBytes(all)
}

// SetRecord makes the batch hold a copy of the columns of r, which must have the
// types of the batch's columns. Its error names the row, from 1, and the column of what
// they do not take, such as a decimal of more digits than its type.
func (b *Batch) SetRecord(r arrow.Record) error {
	b.Reset()
	for i := range b.vectors {
		if err := b.vectors[i].setArray(r.Column(i)); err != nil {
			return fmt.Errorf("row %d, column %s: %w", b.vectors[i].Len()+1, r.ColumnName(i), err)
		}
	}
	return nil
}

func (v *Vector) setArray(a arrow.Array) error {
	if maps, ok := a.(*array.Map); ok {
		return v.setMaps(maps)
	}
	for i := range a.Len() {
		if a.IsNull(i) {
			v.AppendNull()
			continue
		}
		switch a := a.(type) {
		case *array.Int64:
			v.AppendInt64(a.Value(i))
		case *array.Timestamp:
			v.AppendInt64(int64(a.Value(i)))
		case *array.Decimal128:
			if err := v.AppendUnscaled(a.Value(i)); err != nil {
				return err
			}
		case *array.Float64:
			v.AppendFloat64(a.Value(i))
		case *array.Boolean:
			v.AppendBool(a.Value(i))
		case *array.String:
			if err := v.AppendBytes([]byte(a.Value(i))); err != nil {
				return err
			}
		case *array.Binary:
			if err := v.AppendBytes(a.Value(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// setMaps is setArray of maps whose entries lie one after the other, those of nulls
// nowhere, as arrayData makes them.
func (v *Vector) setMaps(a *array.Map) error {
	if a.Len() == 0 {
		return nil
	}
	first, _ := a.ValueOffsets(0)
	_, last := a.ValueOffsets(a.Len() - 1)
	if first < 0 || last < first || last > int64(a.Keys().Len()) || last-first > int64(math.MaxInt32-v.keys.n) {
		return errOffsets
	}
	before, at := v.keys.n, first
	for i := range a.Len() {
		start, end := a.ValueOffsets(i)
		if start != at || end < start || end > last || end > start && a.IsNull(i) {
			return errOffsets
		}
		at = end
		if a.IsNull(i) {
			v.AppendNull()
		} else {
			v.offsets = append(v.offsets, 0)
			v.appended()
		}
		v.offsets[v.n] = int32(before + int(end-first))
	}
	keys, values := array.NewSlice(a.Keys(), first, last), array.NewSlice(a.Items(), first, last)
	defer keys.Release()
	defer values.Release()
	if err := v.keys.setArray(keys); err != nil {
		return err
	}
	return v.values.setArray(values)
}
