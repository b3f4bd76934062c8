package decode

import (
	"encoding/base64"
	"encoding/hex"
	"math"
	"math/big"
	"strconv"
	"unicode/utf8"
)

// How the binary formats spell values, as documents have no numbers, only their
// text: as JSON does.

// maxNesting bounds how deep the values of the binary formats nest, whose readers
// recurse. It is Protobuf's usual bound ten times over, and far below what the
// readers of the JSON that is made of them take.
const maxNesting = 1000

// maxText bounds the text that is made of one payload: names of a schema that
// repeat make it larger than the payload.
const maxText = 64 << 20

// kept returns the memory of b for the next payload, or none where one large payload
// has made it large.
func kept(b []byte) []byte {
	if cap(b) > maxKeptBuffer {
		return nil
	}
	return b[:0]
}

// maxPart is how much scratch memory is made at once beyond what one text needs.
const maxPart = 256 << 10

// room returns scratch memory, which has a text or none yet, with room for n bytes more:
// dst, or a slice of its own where that has too little. A slice that grows would be copied,
// and what refers to it would hold on to each of the copies: five times as much as is made.
func room(dst []byte, n int) []byte {
	if cap(dst)-len(dst) >= n {
		return dst
	}
	return make([]byte, 0, max(n, min(2*cap(dst), maxPart)))
}

// texts is the scratch memory of a reader of a binary format: the texts that it makes of
// one payload, all of which are in use until the next one.
type texts struct {
	scratch []byte
	before  int // bytes of the slices that were scratch before
}

// The room that there is to be for a value: a scalar, as a rule, and the beginning of an
// object or array, whose length is not known.
const (
	scalarRoom = 64
	textRoom   = 16 << 10
)

// start begins with a payload.
func (x *texts) start() { x.scratch, x.before = kept(x.scratch), 0 }

// begin makes room for n bytes of the next value, which may become more. It is for where
// no text is begun: a large one is to have a slice of its own, as what grows is copied, and
// what refers to the copies holds on to all of them.
func (x *texts) begin(n int) {
	if len(x.scratch) == 0 || len(x.scratch) <= maxPart && cap(x.scratch)-len(x.scratch) >= n {
		return
	}
	x.before += len(x.scratch)
	x.scratch = make([]byte, 0, max(n, min(2*cap(x.scratch), maxPart)))
}

// full reports that more text was made than one payload may become.
func (x *texts) full() bool { return x.before+len(x.scratch) > maxText }

// appendQuoted appends s as a JSON string; what is not UTF-8 in it becomes U+FFFD.
func appendQuoted(dst, s []byte) []byte {
	const digits = "0123456789abcdef"
	dst = append(dst, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= utf8.RuneSelf {
			r, n := utf8.DecodeRune(s[i:])
			if r == utf8.RuneError && n == 1 {
				dst = append(append(dst, s[start:i]...), "\uFFFD"...)
				start = i + 1
			}
			i += n
			continue
		}
		if c >= ' ' && c != '"' && c != '\\' {
			i++
			continue
		}
		dst = append(dst, s[start:i]...)
		switch c {
		case '"', '\\':
			dst = append(dst, '\\', c)
		case '\n':
			dst = append(dst, '\\', 'n')
		case '\r':
			dst = append(dst, '\\', 'r')
		case '\t':
			dst = append(dst, '\\', 't')
		default:
			dst = append(dst, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
		i++
		start = i
	}
	return append(append(dst, s[start:]...), '"')
}

// appendBase64 appends s as a JSON string of its base64, for bytes inside of JSON.
func appendBase64(dst, s []byte) []byte {
	dst = append(dst, '"')
	dst = base64.StdEncoding.AppendEncode(dst, s)
	return append(dst, '"')
}

// appendFloat appends the shortest text that stands for f of so many bits, as
// encoding/json spells it. NaN and the infinities are no numbers in JSON: they are
// texts, as in Protobuf's JSON, and number is false.
func appendFloat(dst []byte, f float64, bits int) (_ []byte, number bool) {
	switch {
	case math.IsNaN(f):
		return append(dst, "NaN"...), false
	case math.IsInf(f, 1):
		return append(dst, "Infinity"...), false
	case math.IsInf(f, -1):
		return append(dst, "-Infinity"...), false
	}
	format := byte('f')
	if abs := math.Abs(f); abs != 0 {
		if bits == 64 && (abs < 1e-6 || abs >= 1e21) || bits == 32 && (float32(abs) < 1e-6 || float32(abs) >= 1e21) {
			format = 'e'
		}
	}
	dst = strconv.AppendFloat(dst, f, format, -1, bits)
	if n := len(dst); format == 'e' && dst[n-4] == 'e' && dst[n-3] == '-' && dst[n-2] == '0' {
		dst[n-2] = dst[n-1] // e-09 is e-9
		dst = dst[:n-1]
	}
	return dst, true
}

// appendMillis appends v/per ms in decimals; per is a power of ten.
func appendMillis(dst []byte, v, per int64) []byte {
	whole, part := v/per, v%per
	if v < 0 {
		whole, part = -whole, -part
		dst = append(dst, '-')
	}
	// MinInt64 has no positive form; as unsigned it is right.
	dst = strconv.AppendUint(dst, uint64(whole), 10)
	if part == 0 {
		return dst
	}
	return appendFraction(append(dst, '.'), part, per)
}

// appendFraction appends the digits of part/per, which is below 1.
func appendFraction(dst []byte, part, per int64) []byte {
	for part != 0 {
		per /= 10
		dst = append(dst, byte('0'+part/per))
		part %= per
	}
	return dst
}

// AppendDecimal appends the text of a decimal as Avro's logical type and Kafka Connect's
// Decimal have it: the integer that b is in two's complement, big-endian, 0 where b is empty,
// with the point before its last scale digits. It takes b of MaxDecimalBytes and a scale of
// MaxScale at most.
func AppendDecimal(dst, b []byte, scale int) []byte {
	var digits []byte
	negative := len(b) > 0 && b[0]&0x80 != 0
	if len(b) <= 8 {
		var v uint64
		if negative {
			v = math.MaxUint64
		}
		for _, c := range b {
			v = v<<8 | uint64(c)
		}
		if negative {
			v = -v
		}
		digits = strconv.AppendUint(make([]byte, 0, 20), v, 10)
	} else {
		v := new(big.Int).SetBytes(b)
		if negative {
			v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
		}
		digits = v.Abs(v).Append(nil, 10)
	}
	if negative {
		dst = append(dst, '-')
	}
	if scale == 0 {
		return append(dst, digits...)
	}
	if n := len(digits) - scale; n > 0 {
		dst = append(dst, digits[:n]...)
		digits = digits[n:]
	} else {
		dst = append(dst, '0')
	}
	dst = append(dst, '.')
	for range scale - len(digits) {
		dst = append(dst, '0')
	}
	return append(dst, digits...)
}

// appendUUID appends the usual form of 16 bytes.
func appendUUID(dst, b []byte) []byte {
	for i, end := range [...]int{4, 6, 8, 10, 16} {
		start := [...]int{0, 4, 6, 8, 10}[i]
		if i > 0 {
			dst = append(dst, '-')
		}
		dst = hex.AppendEncode(dst, b[start:end])
	}
	return dst
}

// appendValid appends s with U+FFFD for every byte that is not UTF-8.
func appendValid(dst, s []byte) []byte {
	for len(s) > 0 {
		r, n := utf8.DecodeRune(s)
		dst = utf8.AppendRune(dst, r)
		s = s[n:]
	}
	return dst
}
