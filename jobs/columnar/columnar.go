// Package columnar turns rows of cells into typed columns: the middle of the
// export flow, between a scan and a Parquet or Arrow file.
//
// A job names its columns (ColumnSpec); Compile checks them against a table's
// schema and gives a Schema. A Builder appends rows to a Batch, a set of column
// vectors whose memory has Arrow's layout (values, offsets, a validity bitmap)
// and is used again for the next batch: appending a cell allocates nothing, and
// Batch.Record shows the same memory as an Arrow record without a copy. A
// FileWriter takes batches and makes a file of one format.
//
// Rows that are appended may be reused at once: their bytes are copied. A Batch,
// and everything read from it, is valid until its Builder's next Reset. A Schema
// is immutable and safe for concurrent use; Builders, Batches and writers belong
// to one goroutine at a time.
//
// The package does no I/O, and it does not choose which rows to read: that is
// package jobs.
package columnar

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v15/arrow"
)

// Type is the type of a column: one of the constants, a Decimal or a Map.
type Type uint32

// The column types.
const (
	String    Type = iota + 1 // UTF-8 text
	Int64                     // 64-bit signed
	Float64                   // IEEE 754 double
	Bool                      // true or false
	Timestamp                 // µs since the Unix epoch, UTC
	Bytes                     // any bytes
	JSON                      // a JSON text (RFC 8259), as it is
)

// typeNames are the types as job files spell them, in the order of the constants.
var typeNames = [...]string{String: "string", Int64: "int64", Float64: "float64", Bool: "bool", Timestamp: "timestamp", Bytes: "bytes", JSON: "json"}

// String returns the type as job files spell it.
func (t Type) String() string {
	if p, s, ok := t.Decimal(); ok {
		return fmt.Sprintf("decimal(%d,%d)", p, s)
	}
	if value, ok := t.Map(); ok {
		return mapName(value)
	}
	if t == 0 || int(t) >= len(typeNames) {
		return fmt.Sprintf("Type(%d)", uint32(t))
	}
	return typeNames[t]
}

// ParseType returns the type that is spelled s; ok is false where there is none.
func ParseType(s string) (t Type, ok bool) {
	for i := String; i <= JSON; i++ {
		if typeNames[i] == s {
			return i, true
		}
	}
	if t, ok := parseMapType(s); ok {
		return t, true
	}
	return parseDecimalType(s)
}

// Arrow returns the Arrow type of the columns of type t.
func (t Type) Arrow() arrow.DataType {
	switch t {
	case String:
		return arrow.BinaryTypes.String
	case Int64:
		return arrow.PrimitiveTypes.Int64
	case Float64:
		return arrow.PrimitiveTypes.Float64
	case Bool:
		return arrow.FixedWidthTypes.Boolean
	case Timestamp:
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case Bytes:
		return arrow.BinaryTypes.Binary
	case JSON:
		return arrow.BinaryTypes.String // of a field that says so: ArrowField
	}
	if p, s, ok := t.Decimal(); ok {
		return &arrow.Decimal128Type{Precision: int32(p), Scale: int32(s)}
	}
	if value, ok := t.Map(); ok {
		m := arrow.MapOf(String.Arrow(), value.Arrow())
		m.SetItemNullable(false)
		return m
	}
	return arrow.Null
}

// Storage returns the type as which a Vector holds the values of columns of type t:
// Int64 (which timestamps and decimals of up to 18 digits are, too), Decimal128, Float64,
// Bool, Entries, or Bytes, which is any text.
func (t Type) Storage() Type {
	switch t {
	case Int64, Timestamp:
		return Int64
	case Float64, Bool:
		return t
	}
	if precision, _, ok := t.Decimal(); ok {
		if precision > maxPrecision64 {
			return Decimal128
		}
		return Int64
	}
	if _, ok := t.Map(); ok {
		return Entries
	}
	return Bytes
}

// Arrow's canonical extension type of JSON, and how fields say that they have one
// (Arrow's Columnar.rst, Extension types).
const (
	arrowExtension     = "ARROW:extension:name"
	arrowExtensionMore = "ARROW:extension:metadata"
	arrowJSON          = "arrow.json"
)

// ArrowField returns the Arrow field of a column.
func ArrowField(c Column) arrow.Field {
	f := arrow.Field{Name: c.Name, Type: c.Type.Arrow(), Nullable: c.Nullable}
	if c.Type == JSON {
		f.Metadata = arrow.NewMetadata([]string{arrowExtension, arrowExtensionMore}, []string{arrowJSON, ""})
	}
	return f
}

// IsArrowJSON reports whether a field of texts says that these are JSON.
func IsArrowJSON(f arrow.Field) bool {
	name, ok := f.Metadata.GetValue(arrowExtension)
	return ok && name == arrowJSON && f.Type.ID() == arrow.STRING
}

// Coding says how the bytes of a cell hold a value.
type Coding uint8

// The codings.
const (
	Text      Coding = iota + 1 // decimal, true/false, or the text itself; ms since the epoch for timestamps
	Int64BE                     // 8 bytes big-endian, two's complement; ms since the epoch for timestamps
	Float64BE                   // 8 bytes big-endian, IEEE 754 (HBase Bytes.toBytes(double))
	Raw                         // the bytes themselves; for bool one byte, 0 = false (HBase Bytes.toBoolean)
	RFC3339                     // text such as 2006-01-02T15:04:05.999Z
	Distinct                    // a sketch (docs/format/distinct.md), read as its estimate

	// Those of package rowkey, with the names of the mapping's functions. An
	// Int64 takes what it can hold.
	U8        // 1 byte, unsigned (rowkey.Encoder.Uint8)
	U16       // 2 bytes big-endian, unsigned
	U32       // 4 bytes big-endian, unsigned
	U64       // 8 bytes big-endian, unsigned
	I64       // 8 bytes big-endian with the sign bit inverted (rowkey.AppendInt64); ms for timestamps
	ReverseTS // 2⁶³-1 − t in 8 bytes big-endian (rowkey.AppendReverseTime), t in ms
	Fixed     // text filled up with zero bytes (rowkey.AppendText)
	Reverse   // text with its characters backwards (rowkey.AppendReversed)
	Hex       // hex digits: of an unsigned number, or two of each byte

	// Those of Protocol Buffers: base 128, the lowest 7 bits first.
	Varint // of int64: two's complement, negative numbers in 10 bytes
	ZigZag // of sint64: 0, -1, 1, -2, … as 0, 1, 2, 3, …
)

// fromField is what From begins with of a column from a field of the row key.
const fromField = FromRow + "."

// IsRowField reports whether a column that is filled from this comes from a field of
// the row key.
func IsRowField(from string) bool { return strings.HasPrefix(from, fromField) }

var codingNames = [...]string{
	Text: "text", Int64BE: "int64be", Float64BE: "float64be", Raw: "raw", RFC3339: "rfc3339", Distinct: "distinct",
	U8: "u8", U16: "u16", U32: "u32", U64: "u64", I64: "i64", ReverseTS: "reverse_ts", Fixed: "fixed", Reverse: "reverse", Hex: "hex",
	Varint: "varint", ZigZag: "zigzag",
}

// String returns the coding as job files spell it, and "" for the zero value: the
// column needs none.
func (c Coding) String() string {
	if int(c) >= len(codingNames) {
		return fmt.Sprintf("Coding(%d)", uint8(c))
	}
	return codingNames[c]
}

// ParseCoding returns the coding that is spelled s; ok is false where there is
// none.
func ParseCoding(s string) (c Coding, ok bool) {
	for i := Text; int(i) < len(codingNames); i++ {
		if codingNames[i] == s {
			return i, true
		}
	}
	return 0, false
}

// listedNames is how many names a message has room for.
const listedNames = 20

// ListNames returns names as a message lists them: quoted, the first twenty, and how many
// more there are.
func ListNames(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	var b strings.Builder
	for i, name := range names[:min(len(names), listedNames)] {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.Quote(name))
	}
	if more := len(names) - listedNames; more > 0 {
		fmt.Fprintf(&b, " and %d more", more)
	}
	return b.String()
}

// Verbatim reports whether texts or bytes of type t, in coding c, are the bytes that they
// were read from.
func (c Coding) Verbatim(t Type) bool { return t == String && c == Text || t == Bytes && c == Raw }

// Exact reports whether a value of type t, in coding c, tells the bytes that it was read
// from, so that no two of these have one value: a number in text does not, as 007 and 7 are
// one.
func (c Coding) Exact(t Type) bool {
	switch t {
	case String, Bytes:
		return c.Verbatim(t) || c == Reverse
	case JSON:
		return c == Text
	}
	return c.FixedWidth()
}

// codings are the codings of each type, its default first.
var codings = [...][]Coding{
	String:    {Text, Fixed, Reverse},
	Int64:     {Text, Int64BE, Distinct, U8, U16, U32, U64, I64, ReverseTS, Hex, Varint, ZigZag},
	Float64:   {Text, Float64BE},
	Bool:      {Text, Raw},
	Timestamp: {Text, Int64BE, RFC3339, I64, ReverseTS},
	Bytes:     {Raw, Hex},
	JSON:      {Text},
	decimal:   {Text},
}

// Codings returns the codings that cells of a type may have, its default first; of
// maps, the cells of their values.
func (t Type) Codings() []Coding {
	return slices.Clone(t.codings())
}

// codings is Codings, which must not be changed.
func (t Type) codings() []Coding {
	if value, ok := t.Map(); ok {
		return value.codings()
	}
	if kind := t & 0xff; int(kind) < len(codings) {
		return codings[kind]
	}
	return nil
}

// RowsMode says what becomes an output row.
type RowsMode string

// The modes. The empty mode is PerRow.
const (
	PerRow  RowsMode = "row"  // one output row a table row
	PerCell RowsMode = "cell" // one output row a cell
)

// What a column can be filled from besides "family:qualifier".
const (
	FromRow       = "$row"       // the row key; FromRow + ".NAME": a field of it (KeySpec)
	FromTimestamp = "$timestamp" // the cell's time; PerRow: the newest of the row's cells
	FromOp        = "$op"        // PerRow: OpUpsert, or OpDelete of a row that is gone; PerCell: OpPut, which marker the cell is, or in an increment OpDelete of a row that is gone
	FromFamily    = "$family"    // the cell's family; PerCell only
	FromQualifier = "$qualifier" // the cell's qualifier; PerCell only
	FromValue     = "$value"     // the cell's value; PerCell only
)

// The values of columns from FromOp.
const (
	OpUpsert = "upsert" // the row is as the other columns say
	OpDelete = "delete" // there is no such row; the other columns are null. PerCell, of a history: the put of exactly the cell's time is deleted
)

// The other values of columns from FromOp with PerCell; all but OpPut are delete
// markers, whose values are null.
const (
	OpPut                 = "put"                   // a value
	OpDeleteColumn        = "delete_column"         // the column's puts up to the cell's time are deleted
	OpDeleteFamily        = "delete_family"         // the family's puts up to the cell's time are deleted; the qualifier is empty
	OpDeleteFamilyVersion = "delete_family_version" // the family's puts of exactly the cell's time are deleted; the qualifier is empty
)

// Column is one column of a Schema or of a file.
type Column struct {
	Name     string
	Type     Type
	Nullable bool
}

// FileStats is what a finished file holds.
type FileStats struct {
	Rows  int64
	Bytes int64
}

// FileWriter makes one file of batches. It does not close what it writes to.
type FileWriter interface {
	// Write appends the rows of b, which it does not keep.
	Write(b *Batch) error
	// Size estimates the bytes of the file if it were closed now.
	Size() int64
	// Close writes what is buffered and the footer. A file whose Close did
	// not return is not readable.
	Close() (FileStats, error)
}

// FileReader reads one file back.
type FileReader interface {
	// Columns returns the file's columns in order.
	Columns() []Column
	// Metadata returns the file's key-value metadata.
	Metadata() map[string]string
	// Next returns the next rows, valid until the Next after it, or io.EOF.
	Next() (*Batch, error)
	// Close releases the reader. It does not close what it reads from.
	Close() error
}
