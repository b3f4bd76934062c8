package decode

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// Schema is a schema as a registry keeps it.
type Schema struct {
	ID   int    // the registry's, 1 or more
	Type string // SchemaAvro, SchemaProtobuf or SchemaJSON
	Text []byte // in the language of its type
	// References are the schemas that Text and they themselves name, each behind
	// those that it names.
	References []Reference
}

// Bytes returns the length of Text, and of the references with their names.
func (s *Schema) Bytes() int {
	n := len(s.Text)
	for i := range s.References {
		n += len(s.References[i].Name) + len(s.References[i].Text)
	}
	return n
}

// Reference is a schema that another one names.
type Reference struct {
	Name string // as the other one spells it: a type, or a file to import
	Text []byte
}

// The types of schemas, as registries spell them.
const (
	SchemaAvro     = "AVRO"
	SchemaProtobuf = "PROTOBUF"
	SchemaJSON     = "JSON"
)

// MaxSchemaBytes bounds a schema of a registry with its references, and one of Avro from
// anywhere. The largest ones seen in the open, of whole industries' standards, have a few
// hundred KiB.
const MaxSchemaBytes = 4 << 20

// ErrUnavailable: a registry does not answer, or not with what was asked for. Trying
// again later may help.
var ErrUnavailable = errors.New("decode: the schema registry is unavailable")

// ErrNoSchema: a registry says that it has no schema with an id, or none that this one
// references. It may have later.
var ErrNoSchema = errors.New("the schema registry has no such schema")

// ErrNoDescriptor: a registry has the source of a Protobuf schema and not its descriptor,
// so that no record of it can be read or judged. It wraps ErrUnavailable: the registry may
// be replaced by one that has.
var ErrNoDescriptor error = noDescriptorError{}

type noDescriptorError struct{}

func (noDescriptorError) Error() string {
	return "decode: the schema registry gives the source of a Protobuf schema, not its descriptor: it does not know format=serialized, and there is no compiler here; use one that does (docs/formats.md names some)"
}

func (noDescriptorError) Unwrap() error { return ErrUnavailable }

// Schemas is a schema registry. It is safe for concurrent use.
type Schemas interface {
	// Schema returns the schema with this id from memory, or nil where it has to
	// be fetched first. An error is the registry's answer that there is none; it
	// may be another one later.
	Schema(id int) (*Schema, error)
	// Fetch asks the registry for the schema with this id, so that Schema has its
	// answer. Its error wraps ErrUnavailable, or is the context's.
	Fetch(ctx context.Context, id int) error
}

// Pending is the error of a Decode that lacks a schema which has to be fetched
// first, or memory. It says nothing of the payload: decode that again after Fetch.
type Pending struct {
	ID      int // of the schema; 0 = memory is missing
	Bytes   int // of memory that is missing; 0 = a schema is
	schemas Schemas
	memory  func(ctx context.Context) error
}

// Error names the schema.
func (p *Pending) Error() string {
	if p.memory != nil {
		return fmt.Sprintf("%d bytes of memory have to be waited for", p.Bytes)
	}
	return fmt.Sprintf("schema %d has to be fetched", p.ID)
}

// Fetch gets the schema, as Schemas.Fetch. Or it waits for the memory, which the decoder
// has then until its Yield; its error is the context's. Who waits must hold no memory
// of a share behind (pipeline/memory).
func (p *Pending) Fetch(ctx context.Context) error {
	if p.memory != nil {
		return p.memory(ctx)
	}
	return p.schemas.Fetch(ctx, p.ID)
}

// frameBytes is the length of what Confluent's serializers write before a value:
// a zero and the schema's id, 4 bytes big-endian.
const frameBytes = 5

// unframe returns the schema's id of a payload in Confluent's framing.
func unframe(payload []byte) (id int, reason string) {
	switch {
	case len(payload) == 0:
		return 0, "the payload is empty"
	case payload[0] != 0:
		return 0, fmt.Sprintf("the payload begins with %#02x, not with the 0 before a schema's id", payload[0])
	case len(payload) < frameBytes:
		return 0, "the payload ends inside the schema's id"
	}
	return int(binary.BigEndian.Uint32(payload[1:])), ""
}

// framed takes the framing off the payloads of a format that needs no schema.
type framed struct {
	format string
	next   Decoder
}

// Decode implements Decoder.
func (d *framed) Decode(payload []byte, emit func(*Document) error) error {
	if _, reason := unframe(payload); reason != "" {
		return &Error{Format: d.format, Reason: reason}
	}
	err := d.next.Decode(payload[frameBytes:], emit)
	if e, ok := err.(*Error); ok {
		e.Position += frameBytes
	}
	return err
}

// maxCompiled bounds the schemas that a decoder keeps compiled: a topic has a
// handful, and a payload can name any.
const maxCompiled = 256

// compiled is the schemas of a registry as one decoder uses them. T is what a
// schema becomes.
type compiled[T any] struct {
	format  string
	schemas Schemas
	typ     string // of the schemas that can be used
	compile func(*Schema) (T, error)
	byID    map[int]compiledSchema[T]
	last    int // the id asked for before, and what it was
	was     compiledSchema[T]
}

type compiledSchema[T any] struct {
	schema T
	reason string // why there is none
}

// of returns the schema with this id. Its error is an *Error or a *Pending.
func (c *compiled[T]) of(id int) (T, error) {
	if id > math.MaxInt32 {
		// Registries have no such path, and say so as if theirs was another address.
		var none T
		return none, &Error{Format: c.format, Position: 1, Reason: fmt.Sprintf("schema %d, and the ids of registries end at %d", id, math.MaxInt32)}
	}
	if id != c.last || len(c.byID) == 0 {
		s, ok := c.byID[id]
		if !ok {
			registered, err := c.schemas.Schema(id)
			switch {
			case err != nil:
				refused := &Error{Format: c.format, Position: 1, Reason: err.Error()}
				if errors.Is(err, ErrNoSchema) {
					refused.Cause = ErrNoSchema
				}
				return s.schema, refused
			case registered == nil:
				return s.schema, &Pending{ID: id, schemas: c.schemas}
			}
			s = c.make(registered)
			if len(c.byID) >= maxCompiled {
				clear(c.byID)
			}
			c.byID[id] = s
		}
		c.last, c.was = id, s
	}
	if c.was.reason != "" {
		return c.was.schema, &Error{Format: c.format, Position: 1, Reason: c.was.reason}
	}
	return c.was.schema, nil
}

// make compiles a schema.
func (c *compiled[T]) make(s *Schema) (out compiledSchema[T]) {
	if s.Type != c.typ {
		out.reason = fmt.Sprintf("schema %d is of type %s, not %s", s.ID, s.Type, c.typ)
		return out
	}
	if n := s.Bytes(); n > MaxSchemaBytes {
		out.reason = fmt.Sprintf("schema %d has %d bytes with what it references, of at most %d", s.ID, n, MaxSchemaBytes)
		return out
	}
	var err error
	if out.schema, err = c.compile(s); err != nil {
		out.reason = fmt.Sprintf("schema %d: %v", s.ID, err)
	}
	return out
}

// noSchemas is a registry for checks, which nothing is asked.
type noSchemas struct{}

func (noSchemas) Schema(int) (*Schema, error)      { return nil, nil }
func (noSchemas) Fetch(context.Context, int) error { return ErrUnavailable }
