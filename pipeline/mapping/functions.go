package mapping

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"unicode"
	"unicode/utf8"

	"sluice/cell"
	"sluice/pipeline/decode"
	"sluice/rowkey"
)

// valueError is a value that a function or a rule cannot take.
type valueError struct{ text string }

func (e *valueError) Error() string { return e.text }

func valueErrorf(format string, a ...any) error { return &valueError{fmt.Sprintf(format, a...)} }

// param is what a function expects at one place.
type param uint8

const (
	paramText   param = iota + 1 // bytes: strings, numbers and bools as text
	paramInt                     // an integer, or text of one
	paramAny                     // anything
	paramSmall                   // an integer literal, bounded by the function
	paramLayout                  // a string literal: a date layout
	paramZone                    // a string literal: an IANA zone; may be left out
)

// function is one name that rules can call. Exactly one of the bodies is set,
// but for date and coalesce, which their callers know.
type function struct {
	name    string
	params  []param
	result  typ
	fewest  int                                                  // of arguments, where fewer than len(params) will do
	least   int                                                  // smallest literal of paramSmall
	most    int                                                  // and the largest
	text    func(dst, x []byte, small int) ([]byte, error)       // appends the result for the text x
	number  func(dst []byte, v int64) ([]byte, error)            // appends the result for the integer v
	integer func(v int64) int64                                  // integer to integer
	length  func(k decode.Kind, x []byte) (n int64, known error) // any value to integer
}

// functions is every function of the rules, by name.
var functions = func() map[string]*function {
	byName := map[string]*function{}
	for _, f := range []*function{
		{name: "salt", params: []param{paramSmall, paramText}, least: 1, most: 256, text: func(dst, x []byte, n int) ([]byte, error) {
			salt, err := rowkey.NewSalt(n)
			return append(dst, salt.Of(x)), err
		}},
		{name: "hash16", params: []param{paramText}, text: func(dst, x []byte, _ int) ([]byte, error) {
			return rowkey.AppendHash16(dst, x), nil
		}},
		{name: "hash32", params: []param{paramText}, text: func(dst, x []byte, _ int) ([]byte, error) {
			return binary.BigEndian.AppendUint32(dst, rowkey.Hash32(x)), nil
		}},
		{name: "hash64", params: []param{paramText}, text: func(dst, x []byte, _ int) ([]byte, error) {
			return binary.BigEndian.AppendUint64(dst, rowkey.Hash64(x)), nil
		}},
		{name: "hash16_hex", params: []param{paramText}, text: hashHex(4)},
		{name: "hash32_hex", params: []param{paramText}, text: hashHex(8)},
		{name: "hash64_hex", params: []param{paramText}, text: hashHex(16)},
		{name: "reverse", params: []param{paramText}, text: func(dst, x []byte, _ int) ([]byte, error) {
			return rowkey.AppendReversed(dst, x), nil
		}},
		{name: "pad", params: []param{paramText, paramSmall}, least: 1, most: 1024, text: appendPadded},
		{name: "fixed", params: []param{paramText, paramSmall}, least: 1, most: 1024, text: appendFixed},
		{name: "decimal", params: []param{paramText, paramSmall}, most: decode.MaxScale, text: appendDecimal},
		{name: "lower", params: []param{paramText}, text: appendCase(unicode.ToLower, 'A', 'Z')},
		{name: "upper", params: []param{paramText}, text: appendCase(unicode.ToUpper, 'a', 'z')},
		{name: "reverse_ts", params: []param{paramInt}, number: func(dst []byte, t int64) ([]byte, error) {
			if t < 0 {
				return dst, valueErrorf("reverse_ts of the negative time %d", t)
			}
			return rowkey.AppendReverseTime(dst, cell.Timestamp(t)), nil
		}},
		{name: "u16", params: []param{paramInt}, number: unsigned("u16", 2)},
		{name: "u32", params: []param{paramInt}, number: unsigned("u32", 4)},
		{name: "u64", params: []param{paramInt}, number: unsigned("u64", 8)},
		{name: "i64", params: []param{paramInt}, number: func(dst []byte, v int64) ([]byte, error) {
			return rowkey.AppendInt64(dst, v), nil
		}},
		{name: "int64", params: []param{paramInt}, number: func(dst []byte, v int64) ([]byte, error) {
			return binary.BigEndian.AppendUint64(dst, uint64(v)), nil
		}},
		{name: "ms_of_day", params: []param{paramInt}, result: typInt, integer: func(t int64) int64 { return int64(rowkey.MsOfDay(cell.Timestamp(t))) }},
		{name: "minute_of_day", params: []param{paramInt}, result: typInt, integer: func(t int64) int64 { return int64(rowkey.MinuteOfDay(cell.Timestamp(t))) }},
		{name: "date", params: []param{paramInt, paramLayout, paramZone}, fewest: 2},
		{name: "coalesce", params: []param{paramAny}, result: typAny, fewest: 2},
		{name: "len", params: []param{paramAny}, result: typInt, length: lengthOf},
	} {
		if f.result == 0 {
			f.result = typText
		}
		if f.fewest == 0 {
			f.fewest = len(f.params)
		}
		byName[f.name] = f
	}
	return byName
}()

// functionNames is every name that can be called, sorted.
var functionNames = func() []string {
	names := []string{"header"}
	for name := range functions {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}()

// FunctionNames returns every name that rules can call and that is not expr's
// own, sorted.
func FunctionNames() []string { return slices.Clone(functionNames) }

func hashHex(digits int) func(dst, x []byte, _ int) ([]byte, error) {
	return func(dst, x []byte, _ int) ([]byte, error) {
		h := rowkey.Hash64(x)
		for i := range digits {
			dst = append(dst, "0123456789abcdef"[h>>(60-4*i)&15])
		}
		return dst, nil
	}
}

// appendPadded appends x with zeros before it up to width bytes.
func appendPadded(dst, x []byte, width int) ([]byte, error) {
	switch {
	case len(x) > width:
		return dst, valueErrorf("pad to %d bytes of %q, which has %d", width, clip(x), len(x))
	case len(x) > 0 && x[0] == '-':
		return dst, valueErrorf("pad of %q: negative numbers do not sort by their text", clip(x))
	}
	for range width - len(x) {
		dst = append(dst, '0')
	}
	return append(dst, x...), nil
}

// appendFixed appends x with zero bytes behind it up to width bytes.
func appendFixed(dst, x []byte, width int) ([]byte, error) {
	dst, err := rowkey.AppendText(dst, x, width)
	switch {
	case err == nil:
		return dst, nil
	case len(x) > width:
		return dst, valueErrorf("fixed to %d bytes of %q, which has %d", width, clip(x), len(x))
	}
	return dst, valueErrorf("fixed of %q, which ends in a zero byte as its filling does", clip(x))
}

// appendDecimal appends the number that x is, in two's complement, big-endian, with the
// point before its last scale digits.
func appendDecimal(dst, x []byte, scale int) ([]byte, error) {
	if len(x) == 0 || len(x) > decode.MaxDecimalBytes {
		return dst, valueErrorf("decimal of %d bytes, it takes 1 to %d", len(x), decode.MaxDecimalBytes)
	}
	return decode.AppendDecimal(dst, x, scale), nil
}

// clip shortens a value for an error text.
func clip(x []byte) []byte {
	if len(x) > 64 {
		return append(x[:64:64], "…"...)
	}
	return x
}

// appendCase appends x with every character changed by to; from..till are the
// ASCII letters that it changes.
func appendCase(to func(rune) rune, from, till byte) func(dst, x []byte, _ int) ([]byte, error) {
	return func(dst, x []byte, _ int) ([]byte, error) {
		for i := 0; i < len(x); {
			c := x[i]
			if c < utf8.RuneSelf {
				if from <= c && c <= till {
					c ^= 0x20
				}
				dst = append(dst, c)
				i++
				continue
			}
			r, n := utf8.DecodeRune(x[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(dst, c) // bytes that are no text stay
			} else {
				dst = utf8.AppendRune(dst, to(r))
			}
			i += n
		}
		return dst, nil
	}
}

// unsigned appends v as size bytes, big-endian.
func unsigned(name string, size int) func(dst []byte, v int64) ([]byte, error) {
	return func(dst []byte, v int64) ([]byte, error) {
		if v < 0 || size < 8 && v>>(8*size) != 0 {
			return dst, valueErrorf("%s of %d, which does not fit %d bytes without a sign", name, v, size)
		}
		for i := size - 1; i >= 0; i-- {
			dst = append(dst, byte(v>>(8*i)))
		}
		return dst, nil
	}
}

// lengthOf returns the number of bytes of a text, or of elements of an array or
// members of an object.
func lengthOf(k decode.Kind, x []byte) (int64, error) {
	switch k {
	case decode.Array:
		var list []json.RawMessage
		err := json.Unmarshal(x, &list)
		return int64(len(list)), err
	case decode.Object:
		var members map[string]json.RawMessage
		err := json.Unmarshal(x, &members)
		return int64(len(members)), err
	}
	return int64(len(x)), nil
}

// integerOf returns the integer that a document's value spells.
func integerOf(k decode.Kind, x []byte) (int64, error) {
	switch k {
	case decode.Number:
		i, f, ok := parseNumber(x)
		if ok {
			return i, nil
		}
		return integerOfFloat(f)
	case decode.String:
		return integerOfText(x)
	}
	return 0, valueErrorf("%s, where an integer is needed", named(k))
}

// named is a kind of value with its article.
func named(k decode.Kind) string {
	if k == decode.Object || k == decode.Array {
		return "an " + k.String()
	}
	return "a " + k.String()
}

func integerOfText(x []byte) (int64, error) {
	if len(x) > 0 && (x[0] == '-' || '0' <= x[0] && x[0] <= '9') {
		if i, ok := parseInteger(x); ok {
			return i, nil
		}
	}
	return 0, valueErrorf("%q is no integer", clip(x))
}

// integerOfFloat returns the integer that f is. -2⁶³ is refused: a text of that is an
// integer already, so that f is of one below it.
func integerOfFloat(f float64) (int64, error) {
	if f != math.Trunc(f) || f <= -(1<<63) || f >= 1<<63 {
		return 0, valueErrorf("%v is no integer of 8 bytes", f)
	}
	return int64(f), nil
}

// appendFloat appends f as encoding/json spells it.
func appendFloat(dst []byte, f float64) ([]byte, error) {
	b, err := json.Marshal(f)
	if err != nil {
		return dst, valueErrorf("%v is no number that can be stored", f)
	}
	return append(dst, b...), nil
}
