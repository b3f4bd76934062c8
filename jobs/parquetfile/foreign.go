package parquetfile

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/deprecated"
	"github.com/parquet-go/parquet-go/encoding/thrift"
	"github.com/parquet-go/parquet-go/format"

	"sluice/jobs/columnar"
)

// appendForeign appends a value that is not null to a vector; nil is appendValue.
type appendForeign func(v *columnar.Vector, x parquet.Value) error

// NewForeignReader opens a Parquet file that somebody else wrote, for the columns with
// these names, which come in the file's order. It takes the types of the Parquet
// format (LogicalTypes.md) whose every value one of ours holds: INT32, narrower and
// unsigned ones up to 32 bits are int64, FLOAT and FLOAT16 are float64, UTF8, ENUM and JSON are
// string, fixed-length ones are bytes, decimals of up to 38 digits in any of the format's
// types are decimals, and timestamps of any unit are µs, those without a zone as if in
// UTC; one between two µs is an error of Next, and so is a decimal of more digits than its
// type has. A MAP from strings
// to what is int64, float64, string or bytes is a map, whose values may be null. Other
// columns of the file, nested ones too, are passed over. What the footer and the headers
// of pages say of sizes and counts is checked before memory is made for it: errors that
// wrap ErrClaim, of Next those that name row group and column. Next names these, too, where
// the rows, values or nulls that the file says it has are not those that are there: of
// nulls what statistics say, where they do, and the pages. Its error names the column that
// is missing or of another type.
func NewForeignReader(r io.ReaderAt, size int64, names []string) (rd *Reader, err error) {
	defer recovered(&err)
	f, footer, err := openFile(r, size)
	if err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	rd = &Reader{file: f, from: r, in: r, size: size, values: make([]parquet.Value, 1024)}
	if err := rd.checkRows(); err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	if rd.nulls, err = statedNulls(footer); err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	found, all := map[string]bool{}, []string(nil)
	said := leafElements(f.Metadata().Schema)
	chunk := 0
	for _, field := range f.Schema().Fields() {
		at := chunk
		chunk += leaves(field)
		all = append(all, field.Name())
		if !slices.Contains(names, field.Name()) {
			continue
		}
		if found[field.Name()] {
			return nil, fmt.Errorf("open parquet file: it has several columns %s", field.Name())
		}
		t, add, ok := columnar.Type(0), appendForeign(nil), false
		if key, value, isMap := mapOf(field); isMap {
			t, add, ok = foreignMap(key, value, said[at:chunk])
		} else if field.Leaf() && !field.Repeated() {
			t, add, ok = foreignType(field, said[at])
		}
		if !ok {
			kind := field.String()
			if field.Leaf() {
				kind = cmp.Or(annotation(field, said[at]), kind)
			}
			return nil, fmt.Errorf("open parquet file: column %s has type %s, of which no cell can be made", field.Name(), kind)
		}
		found[field.Name()] = true
		rd.columns = append(rd.columns, columnar.Column{Name: field.Name(), Type: t, Nullable: field.Optional()})
		rd.chunks, rd.appends = append(rd.chunks, at), append(rd.appends, add)
	}
	for _, name := range names {
		if !found[name] {
			return nil, fmt.Errorf("open parquet file: it has no column %s; it has %s", name, columnar.ListNames(all))
		}
	}
	if err := rd.checkCodecs(); err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	rd.begin()
	return rd, nil
}

// checkCodecs returns an error where a chunk of the reader's columns is compressed as
// parquet-go cannot undo, so that nothing is read of a file that cannot be read whole:
// LZO, and the LZ4 of Hadoop, which the format has replaced with LZ4_RAW (Compression.md).
func (r *Reader) checkCodecs() error {
	groups := r.file.Metadata().RowGroups
	for g := range groups {
		for i, c := range r.columns {
			for at := r.chunks[i]; at < min(r.chunks[i]+chunksOf(c.Type), len(groups[g].Columns)); at++ {
				codec := groups[g].Columns[at].MetaData.Codec
				if parquet.LookupCompressionCodec(codec).String() == "UNSUPPORTED" {
					return fmt.Errorf("row group %d, column %s: it is compressed with %s, which cannot be read: write it with zstd, snappy or LZ4_RAW", g, c.Name, codec)
				}
			}
		}
	}
	return nil
}

// leaves returns how many column chunks a field has.
func leaves(n parquet.Node) int {
	if n.Leaf() {
		return 1
	}
	sum := 0
	for _, f := range n.Fields() {
		sum += leaves(f)
	}
	return sum
}

// leafElements returns the elements of a schema that have column chunks, in their order.
func leafElements(schema []format.SchemaElement) (leaves []*format.SchemaElement) {
	for i := range schema {
		if schema[i].Type.Valid {
			leaves = append(leaves, &schema[i])
		}
	}
	return leaves
}

// foreignMap returns our type for maps with these leaves, of which the file says so, and
// how their values become ours; nil = they are.
func foreignMap(key, value parquet.Node, said []*format.SchemaElement) (columnar.Type, appendForeign, bool) {
	k, _, _ := foreignType(key, said[0])
	v, add, ok := foreignType(value, said[1])
	if !ok || k != columnar.String {
		return 0, nil, false
	}
	t, ok := columnar.Map(v)
	return t, add, ok
}

// annotation returns what the file says of a column and parquet-go does not, which takes it
// for what it is stored as; empty = nothing.
func annotation(n parquet.Node, said *format.SchemaElement) string {
	old := said.ConvertedType
	switch {
	case said.LogicalType.Value != nil:
		if n.Type().LogicalType() != nil {
			return ""
		}
		return said.LogicalType.String()
	case !old.Valid:
		return ""
	case old.V == deprecated.Decimal && !said.Precision.Valid:
		return "DECIMAL without a precision"
	case old.V == deprecated.Interval: // which has no logical type
		return "INTERVAL"
	case old.V > deprecated.Interval: // the last one
		return fmt.Sprintf("ConvertedType %d", old.V)
	}
	return ""
}

// foreignDecimalOf is decimalOf of what the file says, too: a decimal whose scale is left
// out has the scale 0 (LogicalTypes.md, DECIMAL), where parquet-go takes it for no decimal
// if no logical type says it, too.
func foreignDecimalOf(t parquet.Type, said *format.SchemaElement) *format.DecimalType {
	if said.LogicalType.Value == nil && said.ConvertedType == thrift.New(deprecated.Decimal) && said.Precision.Valid {
		return &format.DecimalType{Precision: said.Precision.V, Scale: said.Scale.V}
	}
	return decimalOf(t)
}

// foreignType returns our type for a column, of which the file says so, and how its values
// become ours; nil = they are.
func foreignType(n parquet.Node, said *format.SchemaElement) (columnar.Type, appendForeign, bool) {
	logical := annotation(n, said)
	if l := n.Type().LogicalType(); l != nil && logical == "" {
		logical = l.String()
	}
	if d := foreignDecimalOf(n.Type(), said); d != nil {
		return foreignDecimal(n.Type().Kind(), d)
	}
	switch kind := n.Type().Kind(); {
	case kind == parquet.Boolean && logical == "":
		return columnar.Bool, nil, true
	case kind == parquet.Int64 && (logical == "" || logical == "INT(64,true)"):
		return columnar.Int64, nil, true
	case kind == parquet.Int32 && logical == "INT(32,false)":
		return columnar.Int64, func(v *columnar.Vector, x parquet.Value) error { v.AppendInt64(int64(x.Uint32())); return nil }, true
	case kind == parquet.Int32 && (logical == "" || slices.Contains([]string{"INT(8,true)", "INT(16,true)", "INT(32,true)", "INT(8,false)", "INT(16,false)"}, logical)):
		return columnar.Int64, func(v *columnar.Vector, x parquet.Value) error { v.AppendInt64(int64(x.Int32())); return nil }, true
	case kind == parquet.Double && logical == "":
		return columnar.Float64, nil, true
	case kind == parquet.Float && logical == "":
		return columnar.Float64, func(v *columnar.Vector, x parquet.Value) error { v.AppendFloat64(float64(x.Float())); return nil }, true
	case kind == parquet.FixedLenByteArray && logical == float16 && n.Type().Length() == 2:
		return columnar.Float64, appendFloat16, true
	case kind == parquet.ByteArray && (logical == "STRING" || logical == "ENUM"):
		return columnar.String, nil, true
	case kind == parquet.ByteArray && logical == "JSON":
		return columnar.JSON, nil, true
	case kind == parquet.ByteArray && logical == "", kind == parquet.FixedLenByteArray && (logical == "" || logical == "UUID"):
		return columnar.Bytes, func(v *columnar.Vector, x parquet.Value) error { return v.AppendBytes(x.ByteArray()) }, true
	case kind == parquet.Int64:
		for _, utc := range []bool{true, false} {
			switch logical {
			case fmt.Sprintf("TIMESTAMP(isAdjustedToUTC=%t,unit=MILLIS)", utc):
				return columnar.Timestamp, appendMillis, true
			case fmt.Sprintf("TIMESTAMP(isAdjustedToUTC=%t,unit=MICROS)", utc):
				return columnar.Timestamp, nil, true
			case fmt.Sprintf("TIMESTAMP(isAdjustedToUTC=%t,unit=NANOS)", utc):
				return columnar.Timestamp, appendNanos, true
			}
		}
	}
	return 0, nil, false
}

// foreignDecimal is foreignType of decimals, whose numbers are checked: they may have more
// digits than the type says.
func foreignDecimal(kind parquet.Kind, d *format.DecimalType) (columnar.Type, appendForeign, bool) {
	typ, ok := columnar.Decimal(int(d.Precision), int(d.Scale))
	if !ok {
		return 0, nil, false
	}
	switch kind {
	case parquet.Int32:
		return typ, func(v *columnar.Vector, x parquet.Value) error {
			return v.AppendUnscaled(columnar.Int128FromInt64(int64(x.Int32())))
		}, true
	case parquet.Int64:
		return typ, func(v *columnar.Vector, x parquet.Value) error {
			return v.AppendUnscaled(columnar.Int128FromInt64(x.Int64()))
		}, true
	}
	return typ, func(v *columnar.Vector, x parquet.Value) error { return appendDecimal(v, x.ByteArray()) }, true
}

// float16 is IEEE 754's binary16 in two bytes, little-endian (LogicalTypes.md, FLOAT16).
const float16 = "FLOAT16"

func appendFloat16(v *columnar.Vector, x parquet.Value) error {
	v.AppendFloat64(columnar.Float16(binary.LittleEndian.Uint16(x.ByteArray())))
	return nil
}

func appendMillis(v *columnar.Vector, x parquet.Value) error {
	ms := x.Int64()
	if ms > math.MaxInt64/1000 || ms < math.MinInt64/1000 {
		return fmt.Errorf("the time %d ms is beyond what µs reach", ms)
	}
	v.AppendInt64(ms * 1000)
	return nil
}

func appendNanos(v *columnar.Vector, x parquet.Value) error {
	ns := x.Int64()
	if ns%1000 != 0 {
		return fmt.Errorf("the time %d ns is not in µs", ns)
	}
	v.AppendInt64(ns / 1000)
	return nil
}
