package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// avroKind is a type of the Avro specification 1.12.
type avroKind uint8

const (
	avroNull avroKind = iota + 1
	avroBoolean
	avroInt
	avroLong
	avroFloat
	avroDouble
	avroBytes
	avroString
	avroFixed
	avroEnum
	avroArray
	avroMap
	avroUnion
	avroRecord
)

var avroPrimitives = map[string]avroKind{
	"null": avroNull, "boolean": avroBoolean, "int": avroInt, "long": avroLong,
	"float": avroFloat, "double": avroDouble, "bytes": avroBytes, "string": avroString,
}

// avroLogical is how a value is read beyond its kind.
type avroLogical uint8

const (
	avroPlain   avroLogical = iota
	avroTime                // a moment, a day or a time of day: ms and its fractions
	avroDecimal             // bytes or fixed: an unscaled integer, two's complement
	avroUUID                // fixed of 16 bytes
)

// avroType is a type of a schema. A type that refers to itself is a circle of
// pointers.
type avroType struct {
	kind    avroKind
	logical avroLogical
	name    string // full name of a record, enum or fixed
	size    int    // fixed: bytes
	scale   int    // avroDecimal: digits after the point
	// precision is how many digits an avroDecimal has; payloads may have more.
	precision int
	// moment says that an avroTime is since 1970, and not of a day.
	moment bool
	// avroTime: what a unit of the value is, in ms. Exactly one is not 1.
	times, per int64
	symbols    []string    // enum
	fields     []avroField // record
	items      *avroType   // array, map: the values
	branches   []*avroType // union
}

type avroField struct {
	name string
	typ  *avroType
}

// Bounds of a schema.
const (
	// maxSchemaValues bounds the values of a schema with its references, counted by the
	// signs before them, those in texts included: what is made of a value has some 250
	// bytes. With 8 bytes a value, as fields have with their names and types, it is 1 MiB.
	maxSchemaValues = 1 << 17
	// maxSchemaDepth bounds the nesting of a schema's text.
	maxSchemaDepth = 1000
	// MaxScale bounds the digits after the point that a decimal gets.
	MaxScale = 1024
	// maxFixed bounds a fixed: the specification names no bound.
	maxFixed = 1 << 30
)

// avroParser reads schemas, which may name the types of those before them.
type avroParser struct {
	types  map[string]*avroType // by full name
	depth  int
	values int // of the texts that were read
}

// parseAvro reads the schema text, whose references declare types that it names.
func parseAvro(text []byte, references ...[]byte) (*avroType, error) {
	p := &avroParser{types: map[string]*avroType{}}
	size := len(text)
	for i, r := range references {
		size += len(r)
		if size > MaxSchemaBytes {
			break
		}
		if _, err := p.schema(r); err != nil {
			return nil, fmt.Errorf("reference %d: %w", i, err)
		}
	}
	if size > MaxSchemaBytes {
		return nil, fmt.Errorf("the schema has more than %d bytes", MaxSchemaBytes)
	}
	return p.schema(text)
}

func (p *avroParser) schema(text []byte) (*avroType, error) {
	for _, c := range text {
		if c == ',' || c == '[' || c == '{' || c == ':' {
			p.values++
		}
	}
	if p.values > maxSchemaValues {
		return nil, fmt.Errorf("it has more than %d values", maxSchemaValues)
	}
	var v any
	if err := json.Unmarshal(text, &v); err != nil {
		// The name of a primitive is a schema, and registries return it bare.
		if k, ok := avroPrimitives[strings.TrimSpace(string(text))]; ok {
			return &avroType{kind: k}, nil
		}
		return nil, fmt.Errorf("the schema is no JSON: %w", err)
	}
	return p.parse(v, "")
}

// within names the part of a schema that err is about: outer parts come first.
func within(err error, format string, a ...any) error {
	return fmt.Errorf(format+": %w", append(a, err)...)
}

// parse reads the schema v, whose names are in namespace.
func (p *avroParser) parse(v any, namespace string) (*avroType, error) {
	if p.depth++; p.depth > maxSchemaDepth {
		return nil, fmt.Errorf("the schema nests deeper than %d levels", maxSchemaDepth)
	}
	defer func() { p.depth-- }()
	switch v := v.(type) {
	case string:
		if k, ok := avroPrimitives[v]; ok {
			return &avroType{kind: k}, nil
		}
		if t := p.types[fullName(v, namespace)]; t != nil {
			return t, nil
		}
		// Avro's Java names a type that has no namespace so inside of one that has, too,
		// and reads it back like this (Schema.Names.get).
		if t := p.types[v]; t != nil && !strings.Contains(v, ".") {
			return t, nil
		}
		return nil, fmt.Errorf("no type %q", v)
	case []any:
		return p.union(v, namespace)
	case map[string]any:
		switch inner := v["type"].(type) {
		case nil:
			return nil, errors.New("there is no type")
		case string:
			return p.object(v, inner, namespace)
		default:
			return p.parse(inner, namespace) // {"type": {"type": …}}
		}
	}
	return nil, errors.New("neither a name nor an object nor a list")
}

func (p *avroParser) union(branches []any, namespace string) (*avroType, error) {
	t := &avroType{kind: avroUnion}
	for i, b := range branches {
		branch, err := p.parse(b, namespace)
		if err == nil && branch.kind == avroUnion {
			err = errors.New("a union inside a union")
		}
		if err != nil {
			return nil, within(err, "branch %d", i)
		}
		t.branches = append(t.branches, branch)
	}
	if len(t.branches) == 0 {
		return nil, errors.New("a union of nothing")
	}
	return t, nil
}

// object reads a schema with a type's name and attributes.
func (p *avroParser) object(v map[string]any, kind, namespace string) (*avroType, error) {
	switch kind {
	case "record", "error", "enum", "fixed":
		return p.declare(v, kind, namespace)
	case "array", "map":
		key, t := "items", &avroType{kind: avroArray}
		if kind == "map" {
			key, t.kind = "values", avroMap
		}
		var err error
		if t.items, err = p.parse(v[key], namespace); err != nil {
			return nil, within(err, "%s", key)
		}
		return t, nil
	}
	t, err := p.parse(kind, namespace)
	if err == nil && t.name == "" { // a name's own attributes are those of its declaration
		t.annotate(v)
	}
	return t, err
}

// declare reads a named type, which its own fields may name.
func (p *avroParser) declare(v map[string]any, kind, namespace string) (*avroType, error) {
	name, _ := v["name"].(string)
	if name == "" {
		return nil, fmt.Errorf("the %s has no name", kind)
	}
	if space, ok := v["namespace"].(string); ok {
		namespace = space
	}
	t := &avroType{name: fullName(name, namespace)}
	if _, primitive := avroPrimitives[t.name]; primitive || p.types[t.name] != nil {
		return nil, fmt.Errorf("type %q is declared twice", t.name)
	}
	p.types[t.name] = t
	namespace = ""
	if i := strings.LastIndexByte(t.name, '.'); i >= 0 {
		namespace = t.name[:i]
	}
	switch kind {
	case "fixed":
		t.kind = avroFixed
		size, ok := attribute(v, "size", maxFixed)
		if !ok {
			return nil, fmt.Errorf("fixed %s has no size of 0..%d bytes", t.name, maxFixed)
		}
		t.size = size
		t.annotate(v)
	case "enum":
		t.kind = avroEnum
		symbols, _ := v["symbols"].([]any)
		for _, s := range symbols {
			symbol, ok := s.(string)
			if !ok {
				return nil, fmt.Errorf("enum %s has a symbol that is no text", t.name)
			}
			t.symbols = append(t.symbols, symbol)
		}
		if len(t.symbols) == 0 {
			return nil, fmt.Errorf("enum %s has no symbols", t.name)
		}
	default:
		t.kind = avroRecord
		return t, p.fields(t, v, namespace)
	}
	return t, nil
}

// fields reads those of the record t.
func (p *avroParser) fields(t *avroType, v map[string]any, namespace string) error {
	fields, ok := v["fields"].([]any)
	if !ok {
		return fmt.Errorf("record %s has no fields", t.name)
	}
	seen := map[string]bool{}
	for i, f := range fields {
		f, _ := f.(map[string]any)
		name, _ := f["name"].(string)
		switch {
		case name == "":
			return fmt.Errorf("field %d of record %s has no name", i, t.name)
		case seen[name]:
			return fmt.Errorf("record %s has two fields %q", t.name, name)
		}
		seen[name] = true
		typ, err := p.parse(f["type"], namespace)
		if err != nil {
			return within(err, "field %s of record %s", name, t.name)
		}
		t.fields = append(t.fields, avroField{name, typ})
	}
	return nil
}

// annotate reads the logical type of v. One that is unknown, or breaks its rules,
// does not count, as the specification has it.
func (t *avroType) annotate(v map[string]any) {
	name, _ := v["logicalType"].(string)
	t.moment = name == "date" || strings.HasPrefix(name, "timestamp-") || strings.HasPrefix(name, "local-timestamp-")
	unit := func(kind avroKind, times, per int64) {
		if t.kind == kind {
			t.logical, t.times, t.per = avroTime, times, per
		}
	}
	switch name {
	case "date":
		unit(avroInt, 86_400_000, 1)
	case "time-millis":
		unit(avroInt, 1, 1)
	case "timestamp-millis", "local-timestamp-millis":
		unit(avroLong, 1, 1)
	case "time-micros", "timestamp-micros", "local-timestamp-micros":
		unit(avroLong, 1, 1000)
	case "timestamp-nanos", "local-timestamp-nanos":
		unit(avroLong, 1, 1_000_000)
	case "uuid":
		if t.kind == avroFixed && t.size == 16 {
			t.logical = avroUUID
		}
	case "decimal":
		scale, ok := 0, true
		if v["scale"] != nil {
			scale, ok = attribute(v, "scale", MaxScale)
		}
		precision, has := attribute(v, "precision", math.MaxInt32)
		if (t.kind == avroBytes || t.kind == avroFixed) && ok && has && precision > 0 && scale <= precision {
			t.logical, t.scale, t.precision = avroDecimal, scale, precision
		}
	}
}

// attribute returns the integer 0..limit that v has under key.
func attribute(v map[string]any, key string, limit int) (int, bool) {
	f, ok := v[key].(float64)
	if !ok || f < 0 || f > float64(limit) || f != math.Trunc(f) {
		return 0, false
	}
	return int(f), true
}

// fullName returns the name with its namespace.
func fullName(name, namespace string) string {
	if namespace == "" || strings.Contains(name, ".") {
		return strings.TrimPrefix(name, ".")
	}
	return namespace + "." + name
}
