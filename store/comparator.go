package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"

	"sluice/cell"
)

// ComparatorType is how a Comparator compares (HBase's comparator classes).
type ComparatorType string

// The comparators.
const (
	CompareBinary       ComparatorType = "binary"       // unsigned bytes
	CompareBinaryPrefix ComparatorType = "binaryprefix" // the first len(Value) bytes only
	// CompareBinaryComponent compares len(Value) bytes from Offset on, or those of
	// them that are there.
	CompareBinaryComponent ComparatorType = "binarycomponent"
	// CompareRegex finds Value anywhere; "." matches a line end. The syntax is
	// RE2's: Java's look-around, back references, possessive quantifiers and
	// operators inside [] are errors, "$" is the very end, also before a last
	// line end, and \s leaves out the vertical tab. (?i) is Java's
	// CASE_INSENSITIVE.
	CompareRegex     ComparatorType = "regex"
	CompareSubstring ComparatorType = "substring" // contains, letter case apart
	CompareBit       ComparatorType = "bit"       // equal where BitOp on equal lengths leaves a bit set
	CompareLong      ComparatorType = "long"      // 8 bytes big-endian, signed; Value is a decimal number
	// CompareBigDecimal compares numbers as HBase's Bytes.toBytes(BigDecimal) has
	// them: scale, 4 bytes big-endian, then the unscaled value, two's complement
	// big-endian. Value is a decimal number such as -12.50 or 1e9.
	CompareBigDecimal ComparatorType = "bigdecimal"
	CompareNull       ComparatorType = "null" // equals no stored value, not even an empty one
)

// Comparator is what a filter compares with. Regex, substring, bit and null know
// equal and not equal only, and count as greater than what they do not equal.
type Comparator struct {
	Type   ComparatorType
	Value  []byte
	BitOp  string // of CompareBit: AND, OR, XOR
	Offset int    // of CompareBinaryComponent: bytes, not negative
}

// Binary returns the comparator of plain bytes.
func Binary(value []byte) Comparator { return Comparator{Type: CompareBinary, Value: value} }

// comparison returns how the comparator's value orders against another: < 0, 0
// or > 0 (HBase ByteArrayComparable.compareTo). The error wraps
// ErrInvalidArgument.
func (c *Comparator) comparison() (func(b []byte) int, error) {
	equalOr := func(equal func(b []byte) bool) func([]byte) int {
		return func(b []byte) int {
			if equal(b) {
				return 0
			}
			return 1
		}
	}
	switch c.Type {
	case CompareBinary:
		return func(b []byte) int { return bytes.Compare(c.Value, b) }, nil
	case CompareBinaryPrefix:
		return func(b []byte) int { return bytes.Compare(c.Value, b[:min(len(b), len(c.Value))]) }, nil
	case CompareBinaryComponent:
		if c.Offset < 0 {
			return nil, fmt.Errorf("%w: binary component comparator: offset %d", ErrInvalidArgument, c.Offset)
		}
		return func(b []byte) int {
			b = b[min(len(b), c.Offset):]
			return bytes.Compare(c.Value, b[:min(len(b), len(c.Value))])
		}, nil
	case CompareRegex:
		if err := checkClasses(c.Value); err != nil {
			return nil, err
		}
		re, err := regexp.Compile("(?s)" + string(c.Value))
		if err != nil {
			return nil, fmt.Errorf("%w: regex comparator: %w", ErrInvalidArgument, err)
		}
		return equalOr(re.Match), nil
	case CompareSubstring:
		lower := bytes.ToLower(c.Value)
		return equalOr(func(b []byte) bool { return bytes.Contains(bytes.ToLower(b), lower) }), nil
	case CompareBit:
		op, err := bitOperation(c.BitOp)
		if err != nil {
			return nil, err
		}
		return equalOr(func(b []byte) bool {
			if len(b) != len(c.Value) {
				return false
			}
			for i := range b {
				if op(b[i], c.Value[i]) != 0 {
					return true
				}
			}
			return false
		}), nil
	case CompareLong:
		n, err := strconv.ParseInt(string(c.Value), 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%w: long comparator: %q is not a number", ErrInvalidArgument, c.Value)
		}
		return func(b []byte) int {
			if len(b) != 8 {
				return 1 // not a number: equal to none
			}
			return cmp.Compare(n, int64(binary.BigEndian.Uint64(b)))
		}, nil
	case CompareBigDecimal:
		n, err := parseDecimal(c.Value)
		if err != nil {
			return nil, err
		}
		return func(b []byte) int {
			stored, ok := decodeDecimal(b)
			if !ok {
				return 1 // not a number: equal to none
			}
			return n.compare(stored)
		}, nil
	case CompareNull:
		return func([]byte) int { return 1 }, nil
	}
	return nil, fmt.Errorf("%w: comparator %q", ErrUnsupported, c.Type)
}

func bitOperation(name string) (func(a, b byte) byte, error) {
	switch name {
	case "AND":
		return func(a, b byte) byte { return a & b }, nil
	case "OR":
		return func(a, b byte) byte { return a | b }, nil
	case "XOR":
		return func(a, b byte) byte { return a ^ b }, nil
	}
	return nil, fmt.Errorf("%w: bit comparator: operator %q, want AND, OR or XOR", ErrInvalidArgument, name)
}

// test returns the predicate "item op comparator".
func (c *Comparator) test(op CompareOp) (func(item []byte) bool, error) {
	if op < Less || op > NoOp {
		return nil, fmt.Errorf("%w: comparison %d", ErrInvalidArgument, op)
	}
	compare, err := c.comparison()
	if err != nil {
		return nil, err
	}
	return func(item []byte) bool { return op.Holds(-compare(item)) }, nil
}

// ranges returns which keys "key op comparator" holds for, sorted and disjoint; nil
// where they are no ranges.
func (c *Comparator) ranges(op CompareOp) []cell.Range {
	same := cell.Range{Start: c.Value}
	switch c.Type {
	case CompareBinary:
		same.Stop = after(c.Value)
	case CompareBinaryPrefix:
		same = prefixRange(c.Value)
	default:
		return nil
	}
	before := appendRange(noCell, nil, same.Start, false)
	behind := noCell
	if len(same.Stop) > 0 {
		behind = appendRange(behind, same.Stop, nil, true)
	}
	switch op {
	case Less:
		return before
	case LessOrEqual:
		return mergeRanges(append(before, same))
	case Equal:
		return []cell.Range{same}
	case NotEqual:
		return append(before, behind...)
	case GreaterOrEqual:
		return []cell.Range{{Start: c.Value}}
	case Greater:
		return behind
	}
	return noCell
}

// checkClasses refuses what means one thing inside Java's [] and another inside
// RE2's: && and a class in a class.
func checkClasses(re []byte) error {
	in := false
	for i := 0; i < len(re); i++ {
		rest := re[i:]
		switch {
		case bytes.HasPrefix(rest, []byte(`\Q`)):
			end := bytes.Index(rest, []byte(`\E`))
			if end < 0 {
				return nil
			}
			i += end + 1
		case re[i] == '\\':
			i++
		case !in && re[i] == '[':
			in = true
			if i++; i < len(re) && re[i] == '^' {
				i++
			}
			if i < len(re) && re[i] != ']' {
				i-- // a first ] is a member
			}
		case in && re[i] == ']':
			in = false
		case in && re[i] == '[' && !bytes.HasPrefix(rest, []byte("[:")), in && bytes.HasPrefix(rest, []byte("&&")):
			return fmt.Errorf("%w: regex comparator: %q in [] is Java's syntax, and RE2 has it not", ErrInvalidArgument, re[i:min(i+2, len(re))])
		case in && re[i] == '[':
			if end := bytes.Index(rest, []byte(":]")); end > 0 {
				i += end + 1
			}
		}
	}
	return nil
}
