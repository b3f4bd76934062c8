package main

import (
	"encoding/binary"
	"math"
	"slices"
	"strings"
)

// converters print a value otherwise than as escaped bytes: 'f:n:toLong'. They are
// the methods of HBase's Bytes. A value of another width comes back as it is.
var converters = map[string]func([]byte) any{
	"toLong": wide(8, func(b []byte) any { return int64(binary.BigEndian.Uint64(b)) }),
	"toInt":  wide(4, func(b []byte) any { return int64(int32(binary.BigEndian.Uint32(b))) }),
	"toShort": wide(2, func(b []byte) any {
		return int64(int16(binary.BigEndian.Uint16(b)))
	}),
	"toDouble":       wide(8, func(b []byte) any { return finite(b, math.Float64frombits(binary.BigEndian.Uint64(b))) }),
	"toFloat":        wide(4, func(b []byte) any { return finite(b, float64(math.Float32frombits(binary.BigEndian.Uint32(b)))) }),
	"toBoolean":      wide(1, func(b []byte) any { return b[0] != 0 }),
	"toString":       func(b []byte) any { return string(b) },
	"toStringBinary": func(b []byte) any { return escape(b) },
}

func wide(n int, f func([]byte) any) func([]byte) any {
	return func(b []byte) any {
		if len(b) != n {
			return b
		}
		return f(b)
	}
}

// finite returns f, or b where f is a number that JSON has not.
func finite(b []byte, f float64) any {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return b
	}
	return f
}

func converterNames() string {
	var names []string
	for n := range converters {
		names = append(names, n)
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
