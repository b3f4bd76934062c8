package mapping

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"sluice/cell"
	"sluice/pipeline/decode"
)

// Kind is how the bytes that an expression makes hold their value: what a reader of them
// has to know.
type Kind uint8

// The kinds of values.
const (
	KindBytes       Kind = iota + 1 // any bytes
	KindText                        // text in UTF-8
	KindInt                         // a whole number of 64 bits, in decimal
	KindMillis                      // the same, ms since 1970
	KindFloat                       // a number in decimal, a double
	KindDecimal                     // a number in decimal of Value.Precision digits, Scale of them behind the point
	KindBool                        // true or false, spelled so
	KindJSON                        // a JSON document in UTF-8
	KindU16                         // 2 bytes big-endian, unsigned
	KindU32                         // 4
	KindU64                         // 8, below 2⁶³
	KindI64                         // 8 bytes big-endian with the sign bit inverted
	KindInt64                       // 8 bytes big-endian, two's complement
	KindReverseTime                 // 2⁶³-1 − t in 8 bytes, t ms since 1970
	KindReverseInt                  // the same of another number
	KindFixed                       // text in UTF-8, filled up with zero bytes
	KindReversed                    // text in UTF-8, its characters backwards
)

// isText reports whether values of kind k are UTF-8.
func (k Kind) isText() bool {
	return k >= KindText && k <= KindJSON || k == KindFixed || k == KindReversed
}

// isWhole reports whether values of kind k are whole numbers in decimal.
func (k Kind) isWhole() bool { return k == KindInt || k == KindMillis }

// Value is what is known of the bytes that an expression makes before there is a record.
type Value struct {
	Kind      Kind
	Width     int    // how many bytes there are of every record; 0 = they differ
	Precision int    // of KindDecimal
	Scale     int    // of KindDecimal
	Time      bool   // of KindI64 and KindInt64: it is ms since 1970
	Name      string // what the value is called: that of the one field that it is made of; may be empty
	Note      string // why no more is known of it, or what Kind leaves out; may be empty

	alphabet byteSet // the bytes that there can be; the zero set = any
}

// byteSet is some of the 256 bytes.
type byteSet [4]uint64

// setOf returns the bytes of a text.
func setOf(text string) (s byteSet) {
	for i := range len(text) {
		s[text[i]>>6] |= 1 << (text[i] & 63)
	}
	return s
}

// with returns the bytes of both, any if one is any.
func (s byteSet) with(o byteSet) byteSet {
	if s == (byteSet{}) || o == (byteSet{}) {
		return byteSet{}
	}
	for i := range s {
		s[i] |= o[i]
	}
	return s
}

// isASCII reports whether all bytes are; any are not.
func (s byteSet) isASCII() bool { return s != (byteSet{}) && s[2]|s[3] == 0 }

// IsText reports whether values are UTF-8.
func (v *Value) IsText() bool { return v.Kind.isText() }

// MayHold reports whether sep can begin within a value, so that what follows the value
// cannot be found by it.
func (v *Value) MayHold(sep string) bool {
	return sep == "" || v.alphabet == (byteSet{}) || v.alphabet[sep[0]>>6]>>(sep[0]&63)&1 != 0
}

// What numbers are spelled with, and other bytes of which values are.
var (
	digits       = setOf("0123456789")
	wholeSigns   = digits.with(setOf("-"))
	decimalSigns = wholeSigns.with(setOf("."))
	floatSigns   = decimalSigns.with(setOf("+eEInfityNa")) // avro and protobuf have NaN and Infinity
	hexDigits    = digits.with(setOf("abcdef"))
	boolLetters  = setOf("truefals")
	topicSigns   = decimalSigns.with(setOf("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_")) // kafka.CheckTopicName
)

// NoteAny is what notes begin with of values that can be anything: a text, the text of a
// number, true, false, or JSON.
const NoteAny = "any value"

// Notes of values of which not all is known.
const (
	noteAny    = NoteAny
	noteDouble = "a double: whole numbers beyond 2^53 are rounded"
	noteSlice  = "a slice counts bytes, and may cut a character"
)

func wholeValue() Value { return Value{Kind: KindInt, alphabet: wholeSigns} }

func floatValue(note string) Value {
	return Value{Kind: KindFloat, Note: note, alphabet: floatSigns}
}

// literal returns the value of a text that is in the rules.
func literal(text string) Value {
	v := Value{Kind: KindText, Width: len(text), alphabet: setOf(text)}
	if !utf8.ValidString(text) {
		v.Kind = KindBytes
	}
	return v
}

// Either returns what is known of a value that is a or b, as where two rules make it.
func Either(a, b Value) Value {
	switch {
	case a.Kind == 0:
		return b
	case b.Kind == 0:
		return a
	}
	v := Value{Kind: a.Kind, Time: a.Time && b.Time, Name: a.Name, Note: a.Note}
	if v.Name == "" {
		v.Name = b.Name
	}
	if v.Note == "" {
		v.Note = b.Note
	}
	if a.Width == b.Width {
		v.Width = a.Width
	}
	v.alphabet = a.alphabet.with(b.alphabet)
	switch {
	case a.Kind == b.Kind && a.Kind == KindDecimal:
		v.Scale = max(a.Scale, b.Scale)
		v.Precision = max(a.Precision-a.Scale, b.Precision-b.Scale) + v.Scale
	case a.Kind == b.Kind:
	case a.Kind.isWhole() && b.Kind.isWhole():
		v.Kind = KindInt
	case (a.Kind.isWhole() || a.Kind == KindFloat) && (b.Kind.isWhole() || b.Kind == KindFloat):
		v.Kind, v.Note = KindFloat, noteDouble
	case a.Kind.isText() && b.Kind.isText():
		v.Kind = KindText
		if v.Note == "" && a.Kind != KindText && b.Kind != KindText {
			v.Note = fmt.Sprintf("%s or %s", a.Kind, b.Kind)
		}
	default:
		v.Kind = KindBytes
		v.Note = fmt.Sprintf("%s or %s", a.Kind, b.Kind)
	}
	return v
}

// String says what values of kind k are.
func (k Kind) String() string {
	if int(k) >= len(kindNames) {
		return fmt.Sprintf("Kind(%d)", uint8(k))
	}
	return kindNames[k]
}

var kindNames = [...]string{
	KindBytes: "bytes", KindText: "text", KindInt: "a whole number", KindMillis: "a time in ms", KindFloat: "a number", KindDecimal: "a decimal",
	KindBool: "true or false", KindJSON: "JSON", KindU16: "2 bytes of u16", KindU32: "4 bytes of u32", KindU64: "8 bytes of u64", KindI64: "8 bytes of i64",
	KindInt64: "8 bytes of int64", KindReverseTime: "8 bytes of reverse_ts", KindReverseInt: "8 bytes of reverse_ts", KindFixed: "text of fixed", KindReversed: "text of reverse",
}

// Joined returns what is known of a followed by b.
func Joined(a, b Value) Value {
	v := Value{Kind: KindText}
	if !a.Kind.isText() || !b.Kind.isText() {
		v.Kind = KindBytes
	}
	if a.Width > 0 && b.Width > 0 && a.Width+b.Width <= cell.MaxRowLength {
		v.Width = a.Width + b.Width
	}
	v.alphabet = a.alphabet.with(b.alphabet)
	switch {
	case a.Name == "" || b.Name == "":
		v.Name = a.Name + b.Name
	case len(a.Name)+len(b.Name) < maxValueName:
		v.Name = a.Name + "_" + b.Name
	}
	return v
}

// maxValueName bounds the names of values that are made of many: who needs one, numbers it.
const maxValueName = 60

// sourceValue returns what is known of source i's text.
func (c *compilation) sourceValue(i int) Value {
	s := c.sources[i]
	named := func(v Value, name string) Value {
		v.Name = name
		return v
	}
	switch s.kind {
	case sourceTime:
		return Value{Kind: KindMillis, Name: "time", alphabet: digits}
	case sourceTimestamp:
		return Value{Kind: KindMillis, Name: "timestamp", alphabet: wholeSigns}
	case sourcePartition:
		return Value{Kind: KindInt, Name: "partition", alphabet: digits}
	case sourceOffset:
		return Value{Kind: KindInt, Name: "offset", alphabet: digits}
	case sourceIndex:
		return Value{Kind: KindInt, Name: c.loops[s.loop].index, alphabet: digits}
	case sourceTopic:
		return Value{Kind: KindText, Name: "topic", alphabet: topicSigns}
	case sourceKey:
		return Value{Kind: KindBytes, Name: "key", Note: "any bytes: the record's key"}
	case sourceValue:
		return Value{Kind: KindBytes, Name: "value", Note: "any bytes: the record's payload"}
	case sourceHeader:
		return Value{Kind: KindBytes, Name: nameOf(string(s.header)), Note: "any bytes: a header"}
	case sourceElement:
		l := c.loops[s.loop]
		path, name := l.steps, l.name
		if s.field >= 0 {
			steps, err := decode.ParsePath(l.paths[s.field])
			if err != nil {
				return Value{Kind: KindText, Note: noteAny}
			}
			path, name = append(path[:len(path):len(path)], steps...), pathName(steps)
		}
		return named(c.fieldValue(path, true), name)
	}
	steps, err := decode.ParsePath(c.paths[s.field])
	if err != nil {
		return Value{Kind: KindText, Note: noteAny}
	}
	return named(c.fieldValue(steps, false), pathName(steps))
}

// fieldValue returns what is known of the text of a document's field. inJSON says that it is
// one of an array's element.
func (c *compilation) fieldValue(path []decode.Step, inJSON bool) Value {
	if allTexts(c.format) {
		return Value{Kind: KindText}
	}
	switch c.format {
	case "combined", "common":
		switch path[0].Name {
		case "time":
			return Value{Kind: KindMillis, alphabet: wholeSigns}
		case "status", "bytes":
			return Value{Kind: KindInt, alphabet: digits}
		}
		return Value{Kind: KindText}
	case "raw":
		return Value{Kind: KindBytes, Note: "any bytes: the payload"}
	case "json", "ndjson":
		return Value{Kind: KindText, Note: noteAny}
	}
	if c.shape == nil {
		return Value{Kind: KindText, Note: noteAny + ": the schema is the payload's"}
	}
	t := c.shape.Type(path, inJSON)
	switch t.Kind {
	case decode.FieldText:
		return Value{Kind: KindText}
	case decode.FieldBytes:
		return Value{Kind: KindBytes}
	case decode.FieldInteger:
		return wholeValue()
	case decode.FieldMillis:
		return Value{Kind: KindMillis, alphabet: wholeSigns}
	case decode.FieldFloat:
		return floatValue("")
	case decode.FieldBool:
		return Value{Kind: KindBool, alphabet: boolLetters}
	case decode.FieldDecimal:
		return Value{Kind: KindDecimal, Precision: t.Precision, Scale: t.Scale, alphabet: decimalSigns}
	case decode.FieldJSON:
		return Value{Kind: KindJSON}
	}
	return Value{Kind: KindText, Note: noteAny + ": the schema has several types for it"}
}

// pathName returns a name for what is at a path: its names, joined.
func pathName(path []decode.Step) string {
	var names []string
	for _, s := range path {
		if s.Index >= 0 {
			names = append(names, fmt.Sprint(s.Index))
		} else {
			names = append(names, nameOf(s.Name))
		}
	}
	return strings.Join(names, "_")
}

// nameOf returns s with everything else than letters of ASCII, digits and _ replaced by _.
func nameOf(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}
