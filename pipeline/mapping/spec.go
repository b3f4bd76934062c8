package mapping

import (
	"slices"
	"strings"
	"time"

	"sluice/pipeline/decode"
	"sluice/pipeline/memory"
)

// Spec is a pipeline's rules as its file spells them: the keys decode,
// event_time, dedup, map and rollups. docs/mapping.md explains each.
type Spec struct {
	Decode    DecodeSpec    `yaml:"decode"`     // how payloads are read
	EventTime EventTimeSpec `yaml:"event_time"` // when an event happened
	Dedup     DedupSpec     `yaml:"dedup"`      // which events are the same one, sent again
	Rules     []RuleSpec    `yaml:"map"`        // what an event becomes, in order
	Rollups   []RollupSpec  `yaml:"rollups"`    // what is counted of it, after the rules
}

// DecodeSpec says how payloads are read (decode.Options).
type DecodeSpec struct {
	Format      string   `yaml:"format"`      // a name of decode.Formats
	Framing     string   `yaml:"framing"`     // what stands around a value: none; confluent: a zero byte and the schema's id in schema_registry (avro, protobuf, json); container: an object container file (avro); empty = none
	SchemaFile  string   `yaml:"schema_file"` // avro and protobuf without framing: a file with the schema (JSON; a descriptor set by protoc); a relative path starts at the configuration file
	Message     string   `yaml:"message"`     // protobuf without framing: the full name of the message in schema_file
	Columns     []string `yaml:"columns"`     // csv, tsv: what the values of a row are called, in order
	Delimiter   string   `yaml:"delimiter"`   // csv: the character between two values; empty = a comma
	Compression string   `yaml:"compression"` // of each payload inside its record: none, gzip or zstd; empty = none
	MaxBytes    int      `yaml:"max_bytes"`   // of one decompressed payload, at most; 0 = 67108864 (64 MiB), or a sixth of memory where that is less
	Tombstones  string   `yaml:"tombstones"`  // records whose payload is null: refuse (as what breaks the format, but raw, which takes them), skip (no rule sees them, and they count as filtered) or map (the rules see a document that has no field, of which value is nil); empty = refuse

	MaxRecordBytes int `yaml:"max_record_bytes"` // of a record's key, payload as it came and headers together; one beyond is refused with class record_too_large; 0 = any
	MaxHeaderBytes int `yaml:"max_header_bytes"` // of the names and values of a record's headers together; one beyond is refused with class headers_too_large; 0 = any

	// Schema is the content of SchemaFile, and Schemas the registry: whoever read
	// the file fills them in. A Plan without the registry that it needs makes no
	// Mappers.
	Schema  []byte         `yaml:"-"`
	Schemas decode.Schemas `yaml:"-"`
}

// Binary reports whether payloads are no text, and not made of lines: by their format, or
// as they are packed or framed.
func (s *DecodeSpec) Binary() bool {
	return s.Format == "avro" || s.Format == "protobuf" || s.Framing == "confluent" || s.Unpacks()
}

// Registered reports whether Schemas is needed.
func (s *DecodeSpec) Registered() bool { return s.options().Registered() }

// Unpacks reports whether payloads are decompressed, or containers of blocks that are, so
// that what they unfold to takes memory.
func (s *DecodeSpec) Unpacks() bool { return s.options().Unpacks() }

// LargestPayload returns the largest payload, unfolded, that a share has memory for.
func (s *DecodeSpec) LargestPayload(m *memory.Share) int64 { return s.options().LargestPayload(m) }

func (s *DecodeSpec) options() *decode.Options {
	return &decode.Options{
		Format: s.Format, Framing: s.Framing, Schema: s.Schema, Message: s.Message, Schemas: s.Schemas,
		Columns: slices.Clone(s.Columns), Delimiter: s.Delimiter, Compression: s.Compression, MaxBytes: s.MaxBytes,
	}
}

// EventTimeSpec says when an event happened. The zero value takes the record's
// timestamp.
type EventTimeSpec struct {
	Field    string `yaml:"field"`    // path of the document's field; empty = the record's timestamp
	Format   string `yaml:"format"`   // unix_ms, unix_s, rfc3339 or a layout such as yyyy-MM-dd HH:mm:ss
	Zone     string `yaml:"zone"`     // IANA name of the zone that a layout without one is in; empty = UTC
	Required bool   `yaml:"required"` // a document without the field is an error; otherwise the record's timestamp is taken
	// AllowedLateness is how long before its record's timestamp an event may
	// have happened. One that is older is late: it is added to the bucket of its
	// time all the same, and counted (late_records_total). Where the dead letters'
	// policies name the class late, it is refused for that instead. 0 = any.
	AllowedLateness time.Duration `yaml:"allowed_lateness"`
	// RefuseLate refuses late events with class late. The configuration sets it
	// where a policy is for them.
	RefuseLate bool `yaml:"-"`
	// MaxFuture is how long after its record's timestamp an event may have
	// happened; one beyond is refused with class future. 0 = any. It bounds no
	// record's timestamp: that is the topic's to do.
	MaxFuture time.Duration `yaml:"max_future"`
}

// DedupSpec says which events are the same one, sent again: the first is applied,
// the others are dropped. The zero value drops none.
type DedupSpec struct {
	ID  string        `yaml:"id"`  // expression: the event's id, 1..1024 bytes
	TTL time.Duration `yaml:"ttl"` // for how long an id is remembered, 1s or more
}

// RuleSpec makes one row mutation of an event, or of each element of an array in
// it. Texts are expressions but for Table, which is a name that may hold
// expressions in braces, and ForEach.
type RuleSpec struct {
	Table     string                       `yaml:"table"`              // the table to write
	ForEach   []string                     `yaml:"for_each,omitempty"` // arrays to go through, each inside the one before: NAME in PATH, or NAME, INDEX in PATH
	When      string                       `yaml:"when"`               // empty = always
	Row       string                       `yaml:"row"`                // the row key
	Timestamp string                       `yaml:"timestamp"`          // ms since the epoch; empty = the event time
	Check     *CheckSpec                   `yaml:"check,omitempty"`    // what must be stored for the rule to be applied
	Delete    []DeleteSpec                 `yaml:"delete,omitempty"`   // what to delete; alone in its rule
	Put       map[string]map[string]string `yaml:"put"`                // family → qualifier → expression
	Append    map[string]map[string]string `yaml:"append,omitempty"`   // the same, added to the end of what is stored
	Increment []IncrementSpec              `yaml:"increment"`          // counters to add to
}

// CheckSpec is a condition on a column of the rule's row as it is stored when the
// rule is applied. Where it does not hold, the rule does nothing.
type CheckSpec struct {
	Family    string `yaml:"family"`    // of the rule's table
	Qualifier string `yaml:"qualifier"` // expression
	Op        string `yaml:"op"`        // absent, present, or how the stored value compares: ==, !=, <, <=, >, >=
	Value     string `yaml:"value"`     // expression: what it is compared with, byte by byte; none for absent and present
}

// DeleteSpec is one delete of a rule.
type DeleteSpec struct {
	What      string `yaml:"what"`      // row, family, column: all up to the rule's timestamp; version: the one at it; newest: the newest version
	Family    string `yaml:"family"`    // but for row
	Qualifier string `yaml:"qualifier"` // expression; for column, version and newest
}

// IncrementSpec is one counter that a rule adds to.
type IncrementSpec struct {
	Family    string `yaml:"family"`    // a COUNTER family of the table
	Qualifier string `yaml:"qualifier"` // the counter, such as a time bucket
	By        string `yaml:"by"`        // empty = 1
	When      string `yaml:"when"`      // empty = always
}

// SpecError is one mistake in a Spec. Compile returns all of them, joined.
type SpecError struct {
	Path string // where in the pipeline's keys: map[1].put.e.user
	At   int    // byte of the text at Path where the mistake is; 0 = all of it
	Err  error
	Hint string // what to do; may be empty
}

// Error names the place, the mistake and what to do.
func (e *SpecError) Error() string {
	var b strings.Builder
	b.WriteString(e.Path)
	b.WriteString(": ")
	b.WriteString(e.Err.Error())
	if e.Hint != "" {
		b.WriteString(" (")
		b.WriteString(e.Hint)
		b.WriteString(")")
	}
	return b.String()
}

// Unwrap returns the mistake.
func (e *SpecError) Unwrap() error { return e.Err }

// NoTableError is that a rule or a rollup names a table that is not declared.
type NoTableError struct{ Table string }

// Error names the table.
func (e *NoTableError) Error() string { return "no table " + e.Table }
