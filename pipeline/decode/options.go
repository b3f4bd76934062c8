package decode

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/pipeline/memory"
)

// The formats.
const (
	formatAvro     = "avro"
	formatCombined = "combined"
	formatCommon   = "common"
	formatCSV      = "csv"
	formatJSON     = "json"
	formatLogfmt   = "logfmt"
	formatNDJSON   = "ndjson"
	formatProtobuf = "protobuf"
	formatRaw      = "raw"
	formatTSV      = "tsv"
)

// Formats returns the names that New knows, sorted.
func Formats() []string {
	return []string{formatAvro, formatCombined, formatCommon, formatCSV, formatJSON, formatLogfmt, formatNDJSON, formatProtobuf, formatRaw, formatTSV}
}

// The compressions.
const (
	compressionNone = "none"
	compressionGzip = "gzip"
	compressionZstd = "zstd"
)

// compressions are the names that Options.Compression may have besides "".
var compressions = []string{compressionNone, compressionGzip, compressionZstd}

// The framings.
const (
	framingNone      = "none"
	framingConfluent = "confluent"
	framingContainer = "container"
)

// framings are the names that Options.Framing may have besides "".
var framings = []string{framingNone, framingConfluent, framingContainer}

// Bounds of Options.
const (
	// DefaultMaxBytes bounds a decompressed payload where nothing else is said.
	DefaultMaxBytes = 64 << 20
	// MaxColumns is the largest number of columns of csv and tsv.
	MaxColumns = 4096
)

// Options says how payloads are read.
type Options struct {
	// Format is one of Formats.
	Format string
	// Columns names the values of a row of csv or tsv, in order: 1 to
	// MaxColumns names of ASCII letters, digits and _, each once. Other
	// formats have none.
	Columns []string
	// Delimiter of csv, one ASCII character that is no quote and no line end.
	// "" = a comma.
	Delimiter string
	// Framing is what stands around a value of avro, protobuf and json: none;
	// confluent, a zero byte and the schema's id in a registry, 4 bytes
	// big-endian, and for protobuf the message's place in it; container, an Avro
	// object container file. "" = none.
	Framing string
	// Schema is that of every payload of avro and protobuf without framing: JSON,
	// and a FileDescriptorSet with all that it imports.
	Schema []byte
	// Message is the full name of the message in Schema that payloads of protobuf
	// are.
	Message string
	// Schemas is the registry that avro and protobuf with Confluent's framing ask.
	Schemas Schemas
	// Compression of each payload inside its record, apart from what Kafka
	// does to a batch: none, gzip or zstd. "" = none.
	Compression string
	// MaxBytes bounds a decompressed payload, and what the blocks of a container
	// unfold to. 0 = DefaultMaxBytes.
	MaxBytes int
	// Memory is what payloads with a Compression, and the blocks of a container, unfold to,
	// where that is more than 256 KiB; its LargestPayload is MaxBytes at least. The decoder
	// is an Unpacker. nil = it is not counted.
	Memory *memory.Share
}

// OptionError is a mistake in Options.
type OptionError struct {
	Option string // format, framing, schema_file, message, columns, delimiter, compression or max_bytes
	Reason string
}

// Error names the option and the mistake.
func (e *OptionError) Error() string { return "decode: " + e.Option + ": " + e.Reason }

// Validate returns the first mistake, an *OptionError, or nil.
func (o *Options) Validate() error {
	bad := func(option, reason string, a ...any) error {
		return &OptionError{Option: option, Reason: fmt.Sprintf(reason, a...)}
	}
	if !slices.Contains(Formats(), o.Format) {
		return bad("format", "no format %q; there are %s", o.Format, strings.Join(Formats(), ", "))
	}
	rows := o.Format == formatCSV || o.Format == formatTSV
	switch {
	case rows && len(o.Columns) == 0:
		return bad("columns", "format %s needs the names of its columns", o.Format)
	case !rows && len(o.Columns) > 0:
		return bad("columns", "format %s has no columns", o.Format)
	case len(o.Columns) > MaxColumns:
		return bad("columns", "%d columns, at most %d", len(o.Columns), MaxColumns)
	}
	for i, name := range o.Columns {
		if !columnName(name) {
			return bad("columns", "column %d: %q is no name of letters, digits and _ (the names are yours to choose)", i+1, name)
		}
		if first := slices.Index(o.Columns, name); first < i {
			return bad("columns", "columns %d and %d are both named %q", first+1, i+1, name)
		}
	}
	if err := o.validateFraming(bad); err != nil {
		return err
	}
	if o.Delimiter != "" {
		if o.Format != formatCSV {
			return bad("delimiter", "format %s has none to choose", o.Format)
		}
		if c := o.Delimiter[0]; len(o.Delimiter) != 1 || c == '"' || c == '\n' || c == '\r' || c >= 0x80 || c == 0 {
			return bad("delimiter", "%q is not one ASCII character other than a quote or a line end", o.Delimiter)
		}
	}
	if o.Compression != "" && !slices.Contains(compressions, o.Compression) {
		return bad("compression", "no compression %q; there are %s", o.Compression, strings.Join(compressions, ", "))
	}
	switch {
	case o.MaxBytes < 0:
		return bad("max_bytes", "%d is negative", o.MaxBytes)
	case o.Memory != nil && int64(o.maxBytes()) > o.LargestPayload(o.Memory):
		return bad("max_bytes", "%d, and memory has %d for one payload", o.maxBytes(), o.LargestPayload(o.Memory))
	case o.MaxBytes > 0 && !o.compressed() && o.Framing != framingContainer:
		return bad("max_bytes", "bounds what is decompressed, and there is no compression")
	}
	return nil
}

// validateFraming checks what says how values are framed and of which schema they
// are.
func (o *Options) validateFraming(bad func(option, reason string, a ...any) error) error {
	if o.Framing != "" && !slices.Contains(framings, o.Framing) {
		return bad("framing", "no framing %q; there are %s", o.Framing, strings.Join(framings, ", "))
	}
	framed := o.Framing != "" && o.Framing != framingNone
	if o.Message != "" && (o.Format != formatProtobuf || framed) {
		return bad("message", "only protobuf without framing has one")
	}
	switch o.Format {
	case formatAvro:
		switch {
		case framed && o.Schema != nil && o.Framing == framingContainer:
			return bad("schema_file", "an object container file has its own schema")
		case framed && o.Schema != nil:
			return bad("schema_file", "the schema is the registry's where payloads name it by its id")
		case framed:
			return nil
		case o.Schema == nil:
			return bad("framing", "format avro needs a schema_file, or the framing %s or %s", framingConfluent, framingContainer)
		}
		t, err := parseAvro(o.Schema)
		if err == nil {
			err = t.checkDocument()
		}
		if err != nil {
			return bad("schema_file", "%v", err)
		}
		return nil
	case formatProtobuf:
		return o.validateProtobuf(bad, framed)
	case formatJSON:
		if o.Framing == framingContainer {
			return bad("framing", "format json has no framing %s", o.Framing)
		}
	default:
		if framed {
			return bad("framing", "format %s has no framing", o.Format)
		}
	}
	if o.Schema != nil {
		return bad("schema_file", "format %s has no schema", o.Format)
	}
	return nil
}

func (o *Options) validateProtobuf(bad func(option, reason string, a ...any) error, framed bool) error {
	switch {
	case o.Framing == framingContainer:
		return bad("framing", "format %s has no framing %s", o.Format, o.Framing)
	case framed && o.Schema != nil:
		return bad("schema_file", "the schema is the registry's where payloads name it by its id")
	case framed:
		return nil
	case o.Schema == nil:
		return bad("framing", "format %s needs a schema_file and a message, or the framing %s", o.Format, framingConfluent)
	case o.Message == "":
		return bad("message", "format %s needs the full name of the message in schema_file", o.Format)
	}
	_, err := protoFromSet(o.Schema, o.Message)
	if _, ok := errors.AsType[*noMessageError](err); ok {
		return bad("message", "%v", err)
	}
	if err != nil {
		return bad("schema_file", "%v", err)
	}
	return nil
}

// Registered reports whether payloads name their schemas by ids of a registry, so
// that Schemas is needed.
func (o *Options) Registered() bool {
	return o.Framing == framingConfluent && (o.Format == formatAvro || o.Format == formatProtobuf)
}

// maxBytes is the bound in force.
func (o *Options) maxBytes() int { return cmp.Or(o.MaxBytes, DefaultMaxBytes) }

// LargestPayload returns the largest payload, unfolded, that a share has memory for. A
// container inside of a compression is unfolded twice, to as much each time.
func (o *Options) LargestPayload(s *memory.Share) int64 {
	n := s.Limit()
	if o.compressed() && o.Framing == framingContainer {
		n /= 2
	}
	return n - unpackSlack
}

// Unpacks reports whether what payloads unfold to is of Memory.
func (o *Options) Unpacks() bool { return o.compressed() || o.Framing == framingContainer }

func (o *Options) compressed() bool {
	return o.Compression != "" && o.Compression != compressionNone
}

func (o *Options) delimiter() byte {
	if o.Delimiter == "" {
		return ','
	}
	return o.Delimiter[0]
}

// Known returns the paths of the fields of a format whose documents all have the
// same ones, in no order that means anything, or nil where the document decides.
func (o *Options) Known() []string {
	switch o.Format {
	case formatCombined:
		return slices.Sorted(slices.Values(combinedNames[:]))
	case formatCommon:
		return slices.Sorted(slices.Values(combinedNames[:logReferrer]))
	case formatCSV, formatTSV:
		return slices.Clone(o.Columns)
	case formatRaw:
		return []string{rawField}
	}
	return nil
}

// Flat reports whether documents have no arrays, so that no path leads to an element.
func (o *Options) Flat() bool { return o.Format == formatLogfmt }

// columnName reports whether name can be named in a rule: an ASCII letter or _,
// then letters, digits and _.
func columnName(name string) bool {
	for i, c := range []byte(name) {
		if !(c|0x20 >= 'a' && c|0x20 <= 'z' || c == '_' || i > 0 && c >= '0' && c <= '9') {
			return false
		}
	}
	return name != ""
}

// Check returns what New would say of o and fields but for a lack of Schemas.
func (o *Options) Check(fields *Fields) error {
	c := *o
	if c.Registered() && c.Schemas == nil {
		c.Schemas = noSchemas{}
	}
	_, err := New(&c, fields)
	return err
}

// New returns a decoder that picks out fields. Its error wraps what Validate
// says, or names the fields of a format that has a fixed set.
func New(o *Options, fields *Fields) (Decoder, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	if o.Registered() && o.Schemas == nil {
		return nil, fmt.Errorf("decode: format %s with framing %s needs a schema registry", o.Format, o.Framing)
	}
	if known := o.Known(); known != nil {
		for _, path := range fields.paths {
			if !slices.Contains(known, path) {
				return nil, fmt.Errorf("decode: format %s has no field %q; it has %s", o.Format, path, strings.Join(known, ", "))
			}
		}
	}
	var d Decoder
	var err error
	unpacked := &unpackMemory{share: o.Memory}
	switch o.Format {
	case formatAvro:
		if o.Framing == framingContainer {
			d = newContainer(o, unpacked, fields)
		} else if d, err = newAvro(o, fields); err != nil {
			return nil, &OptionError{Option: "schema_file", Reason: err.Error()}
		}
	case formatJSON:
		d = newJSON(fields, false)
		if o.Framing == framingConfluent {
			d = &framed{format: formatJSON, next: d}
		}
	case formatNDJSON:
		d = newJSON(fields, true)
	case formatCombined:
		d = newCombined(fields, false)
	case formatCommon:
		d = newCombined(fields, true)
	case formatCSV:
		d = newCSV(o, fields)
	case formatTSV:
		d = newTSV(o, fields)
	case formatProtobuf:
		if d, err = newProtobuf(o, fields); err != nil {
			return nil, &OptionError{Option: "schema_file", Reason: err.Error()}
		}
	case formatRaw:
		d = newRaw(fields)
	case formatLogfmt:
		if d, err = newLogfmt(fields); err != nil {
			return nil, err
		}
	}
	if o.compressed() {
		return newDecompressor(o, unpacked, d)
	}
	return d, nil
}
