package arrowfile

import (
	"errors"
	"fmt"
	"io"
	"math"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"sluice/jobs/columnar"
)

var _ columnar.FileReader = (*ForeignReader)(nil)

// ForeignReader reads some columns of an Arrow IPC file that somebody else wrote. What
// Reader says of damaged files is true of it, too.
type ForeignReader struct {
	Reader
	fields []int        // of each column, its field in the schema
	texts  []int        // columns whose values have any length
	record arrow.Record // at hand; nil = none
	row    int          // the next one of it
}

// NewForeignReader opens the file of size bytes in r for the columns with these names,
// which come in that order. It takes the types of which one of ours holds every value:
// integers but uint64 are int64, float16 and float32 are float64, large strings and bytes and those
// of a fixed size are string and bytes, decimal128 is decimal, where no digits are beyond
// its scale, and timestamps of any unit are µs, those without a zone as if in UTC; one
// between two µs is an error of Next, and so is a decimal of more digits than its type
// has. Maps from strings
// to integers, floats, strings or bytes are maps. Other columns are passed over. Its error names the column that is missing or of another type. A
// nil allocator is the Go heap.
func NewForeignReader(r io.ReaderAt, size int64, names []string, allocator memory.Allocator) (rd *ForeignReader, err error) {
	defer recovered(&err)
	f, err := open(r, size, allocator)
	if err != nil {
		return nil, fmt.Errorf("open arrow file: %w", err)
	}
	rd = &ForeignReader{Reader: Reader{file: f}}
	for _, name := range names {
		at := f.Schema().FieldIndices(name)
		switch {
		case len(at) == 0:
			var all []string
			for _, f := range f.Schema().Fields() {
				all = append(all, f.Name)
			}
			return nil, fmt.Errorf("open arrow file: it has no column %s; it has %s", name, columnar.ListNames(all))
		case len(at) > 1:
			return nil, fmt.Errorf("open arrow file: it has several columns %s", name)
		}
		field := f.Schema().Field(at[0])
		t, ok := foreignType(field.Type)
		if columnar.IsArrowJSON(field) {
			t = columnar.JSON
		}
		if !ok {
			return nil, fmt.Errorf("open arrow file: column %s has type %s, of which no cell can be made", name, field.Type)
		}
		rd.columns = append(rd.columns, columnar.Column{Name: name, Type: t, Nullable: field.Nullable})
		if s := t.Storage(); s == columnar.Bytes || s == columnar.Entries {
			rd.texts = append(rd.texts, len(rd.fields))
		}
		rd.fields = append(rd.fields, at[0])
	}
	rd.batch = columnar.NewBatch(rd.columns)
	return rd, nil
}

// foreignType returns our type for values of an Arrow type.
func foreignType(t arrow.DataType) (columnar.Type, bool) {
	switch t.ID() {
	case arrow.INT8, arrow.INT16, arrow.INT32, arrow.INT64, arrow.UINT8, arrow.UINT16, arrow.UINT32:
		return columnar.Int64, true
	case arrow.FLOAT16, arrow.FLOAT32, arrow.FLOAT64:
		return columnar.Float64, true
	case arrow.BOOL:
		return columnar.Bool, true
	case arrow.STRING, arrow.LARGE_STRING:
		return columnar.String, true
	case arrow.BINARY, arrow.LARGE_BINARY:
		return columnar.Bytes, true
	case arrow.FIXED_SIZE_BINARY: // of none, a few bytes would be any number of rows
		return columnar.Bytes, t.(*arrow.FixedSizeBinaryType).ByteWidth > 0
	case arrow.DECIMAL128:
		d := t.(*arrow.Decimal128Type)
		return columnar.Decimal(int(d.Precision), int(d.Scale))
	case arrow.TIMESTAMP:
		return columnar.Timestamp, true
	case arrow.MAP:
		m := t.(*arrow.MapType)
		key, _ := foreignType(m.KeyType())
		value, ok := foreignType(m.ItemType())
		if !ok || key != columnar.String {
			return 0, false
		}
		return columnar.Map(value)
	}
	return 0, false
}

// Next returns the next rows, at most one record batch's, and fewer where values are
// large. A record batch that says other numbers than there are is refused before a row of
// it is returned.
func (r *ForeignReader) Next() (b *columnar.Batch, err error) {
	defer recovered(&err)
	r.batch.Reset()
	for r.record == nil {
		if r.next == r.file.NumRecords() {
			return nil, io.EOF
		}
		rec, err := r.file.record(r.next)
		if err != nil {
			return nil, fmt.Errorf("read arrow record batch %d: %w", r.next, err)
		}
		r.record, r.row = rec, 0
		r.next++
		for i, field := range r.fields {
			if err := checkColumn(rec, rec.Column(field)); err != nil {
				rec.Release()
				r.record = nil
				return nil, fmt.Errorf("read arrow record batch %d, column %s: %w", r.next-1, r.columns[i].Name, err)
			}
		}
		r.release()
	}
	first, size := r.row, 0
	for end := min(first+columnar.DefaultBatchRows, int(r.record.NumRows())); r.row < end && size < columnar.ReadBatchBytes; r.row++ {
		for i, field := range r.fields {
			a, v := r.record.Column(field), r.batch.Vector(i)
			if a.IsNull(r.row) {
				v.AppendNull()
			} else if err := appendForeign(v, a, r.row); err != nil {
				return nil, fmt.Errorf("read arrow record batch %d, row %d, column %s: %w", r.next-1, r.row+1, r.columns[i].Name, err)
			}
		}
		for _, i := range r.texts {
			size += r.batch.Vector(i).Size(r.row - first)
		}
	}
	r.release()
	return r.batch, nil
}

// checkColumn compares what a column says with what is there.
func checkColumn(rec arrow.Record, a arrow.Array) error {
	if int64(a.Len()) != rec.NumRows() {
		return fmt.Errorf("damaged: it has %d values, and the batch %d rows", a.Len(), rec.NumRows())
	}
	nulls := 0
	if len(a.NullBitmapBytes()) > 0 {
		for i := range a.Len() {
			if a.IsNull(i) {
				nulls++
			}
		}
	}
	if a.NullN() != nulls {
		return fmt.Errorf("damaged: it says that it has %d nulls, and there are %d", a.NullN(), nulls)
	}
	return checkValues(a)
}

// release releases the record at hand where all of its rows were read.
func (r *ForeignReader) release() {
	if r.record != nil && r.row >= int(r.record.NumRows()) {
		r.record.Release()
		r.record = nil
	}
}

// Close releases the reader.
func (r *ForeignReader) Close() error {
	if r.record != nil {
		r.record.Release()
		r.record = nil
	}
	return r.Reader.Close()
}

// appendForeign appends value i of an array whose type foreignType knows.
func appendForeign(v *columnar.Vector, a arrow.Array, i int) error {
	switch a := a.(type) {
	case *array.Int8:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Int16:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Int32:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Int64:
		v.AppendInt64(a.Value(i))
	case *array.Uint8:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Uint16:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Uint32:
		v.AppendInt64(int64(a.Value(i)))
	case *array.Float16:
		v.AppendFloat64(columnar.Float16(a.Value(i).Uint16()))
	case *array.Float32:
		v.AppendFloat64(float64(a.Value(i)))
	case *array.Float64:
		v.AppendFloat64(a.Value(i))
	case *array.Boolean:
		v.AppendBool(a.Value(i))
	case *array.String:
		return v.AppendBytes([]byte(a.Value(i)))
	case *array.LargeString:
		return v.AppendBytes([]byte(a.Value(i)))
	case *array.Binary:
		return v.AppendBytes(a.Value(i))
	case *array.LargeBinary:
		return v.AppendBytes(a.Value(i))
	case *array.FixedSizeBinary:
		return v.AppendBytes(a.Value(i))
	case *array.Timestamp:
		return appendTime(v, int64(a.Value(i)), a.DataType().(*arrow.TimestampType).Unit)
	case *array.Decimal128:
		return v.AppendUnscaled(a.Value(i))
	case *array.Map:
		return appendMap(v, a, i)
	default:
		return fmt.Errorf("values of type %s", a.DataType())
	}
	return nil
}

// appendMap appends value i of an array of maps. Values of it may be null.
func appendMap(v *columnar.Vector, a *array.Map, i int) error {
	start, end := a.ValueOffsets(i)
	keys, items := a.Keys(), a.Items()
	for e := int(start); e < int(end); e++ {
		if keys.IsNull(e) {
			return errors.New("a map has a null for a key")
		}
		if err := appendForeign(v.Keys(), keys, e); err != nil {
			return err
		}
		if items.IsNull(e) {
			v.Values().AppendNull()
		} else if err := appendForeign(v.Values(), items, e); err != nil {
			return err
		}
	}
	return v.AppendEntries()
}

// appendTime appends a time of any unit as µs.
func appendTime(v *columnar.Vector, t int64, unit arrow.TimeUnit) error {
	factor := int64(1)
	switch unit {
	case arrow.Second:
		factor = 1_000_000
	case arrow.Millisecond:
		factor = 1000
	case arrow.Nanosecond:
		if t%1000 != 0 {
			return fmt.Errorf("the time %d ns is not in µs", t)
		}
		t /= 1000
	}
	if t > math.MaxInt64/factor || t < math.MinInt64/factor {
		return fmt.Errorf("the time %d %v is beyond what µs reach", t, unit)
	}
	v.AppendInt64(t * factor)
	return nil
}
