// Package decode turns the payload of a record into documents: the values of the
// fields that a mapping names, and nothing else.
//
// A Fields is the compiled set of field paths; a Decoder scans a payload once,
// checks all of it against its format and hands out one Document per event, whose
// values are slices of the payload where they can be and of the Decoder's scratch
// memory where an escape had to be undone. In steady state decoding allocates
// nothing. Avro and Protobuf have no texts for their numbers, objects and arrays:
// those are spelled as JSON does.
//
// A decoder does no I/O. Where a payload names a schema that is not there yet,
// Decode returns a *Pending, whose Fetch asks Schemas under the caller's context. So it
// does where what a payload unfolds to takes memory that is not free.
//
// A Fields is immutable and may be shared. A Decoder belongs to one goroutine;
// what it hands out is valid until its next Decode, provided that the payload is
// not changed.
//
// The package knows no records, topics or tables, and interprets no values: a
// number stays the text that the payload has.
package decode

import (
	"fmt"

	"sluice/pipeline/memory"
)

// Kind is what a Value is.
type Kind uint8

// The kinds of a value. Object and Array values are raw JSON text.
const (
	Missing Kind = iota // the document has no such field
	Null                // the field is there without a value: JSON null, "-" in an access log
	String
	Number
	Bool
	Object
	Array
)

// String names the kind as error messages do.
func (k Kind) String() string {
	switch k {
	case Missing:
		return "missing"
	case Null:
		return "null"
	case String:
		return "string"
	case Number:
		return "number"
	case Bool:
		return "bool"
	case Object:
		return "object"
	case Array:
		return "array"
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// Value is one field of a document. The zero value is Missing.
type Value struct {
	Kind Kind
	// Bytes is the string's UTF-8 (any bytes, of raw and of binary types), the
	// number as the payload spells it, "true" or "false", or the raw text of an
	// object or array. It is nil for Missing and Null, and for nothing else.
	Bytes []byte
}

// Absent reports whether v is Missing or Null.
func (v Value) Absent() bool { return v.Kind <= Null }

// Document is the values of one event, by field index.
type Document struct {
	values []Value
}

// NoDocument returns a document that has none of f, as of a record without a payload. It
// is its caller's.
func NoDocument(f *Fields) *Document { return &Document{values: make([]Value, f.Len())} }

// Len returns the number of fields, as in the Fields of the decoder.
func (d *Document) Len() int { return len(d.values) }

// Value returns the value of the field with this index (Fields.Index).
func (d *Document) Value(i int) Value { return d.values[i] }

func (d *Document) clear() { clear(d.values) }

// Decoder decodes payloads of one format.
type Decoder interface {
	// Decode calls emit for every document of payload, in order. The Document
	// is valid until emit returns, the bytes of its values until the next
	// Decode. It stops at emit's error and returns it unchanged; its own
	// errors are *Error, and *Pending before any document. Documents before the
	// error have been emitted.
	Decode(payload []byte, emit func(*Document) error) error
}

// Unpacker is a Decoder that may hold memory of Options.Memory.
type Unpacker interface {
	// Yield hands over what it holds, which may be nothing. Otherwise the caller
	// releases it once nothing refers to the Decoder and its Document any more: they
	// know the values of the last Decode, which are in that memory.
	Yield() memory.Grant
}

// Forgetter is a Decoder that is costly to make.
type Forgetter interface {
	// Forget lets go of the payload that was decoded last. The Document is empty then.
	Forget()
}

// Error says where a payload breaks the rules of its format.
type Error struct {
	Format   string // one of Formats
	Position int    // byte of the payload, from 0; of a compressed one, as it is decompressed
	Reason   string
	// Cause is what errors.Is finds: ErrNoSchema, or nil. Reason says all that it does.
	Cause error
}

// Unwrap returns Cause.
func (e *Error) Unwrap() error { return e.Cause }

// Error names the byte position and the reason.
func (e *Error) Error() string { return fmt.Sprintf("byte %d: %s", e.Position, e.Reason) }
