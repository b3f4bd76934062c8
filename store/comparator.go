package store

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"strconv"
)

// ComparatorType is how a Comparator compares (HBase's comparator classes).
type ComparatorType string

// The comparators.
const (
	CompareBinary       ComparatorType = "binary"       // unsigned bytes
	CompareBinaryPrefix ComparatorType = "binaryprefix" // the first len(Value) bytes only
	CompareRegex        ComparatorType = "regex"        // found anywhere; RE2 syntax, "." matches a line end
	CompareSubstring    ComparatorType = "substring"    // contains, letter case apart
	CompareBit          ComparatorType = "bit"          // equal where BitOp on equal lengths leaves a bit set
	CompareLong         ComparatorType = "long"         // 8 bytes big-endian, signed; Value is a decimal number
	CompareNull         ComparatorType = "null"         // equals no stored value, not even an empty one
)

// Comparator is what a filter compares with. Regex, substring, bit and null know
// equal and not equal only, and count as greater than what they do not equal.
type Comparator struct {
	Type  ComparatorType
	Value []byte
	BitOp string // of CompareBit: AND, OR, XOR
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
	case CompareRegex:
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
