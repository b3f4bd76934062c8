package decode

import (
	"encoding/binary"
	"math/bits"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Eight bytes at a time: ones has the lowest bit of every byte, highs the
// highest.
const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
)

// str scans the string whose first byte is b[i] and returns the index of its
// closing quote, or -1. odd says that the text is not the string's value: it has
// escapes, or bytes that are not UTF-8.
func (d *jsonDecoder) str(i int) (end int, odd bool) {
	b := d.b
	start := i
	var high uint64 // of all bytes: is there any beyond ASCII?
	for {
		var c byte
		for {
			if i+8 > len(b) {
				if i >= len(b) {
					return d.fail(i, "the text ends inside a string"), false
				}
				c = b[i]
				if c == '"' || c == '\\' || c < ' ' {
					break
				}
				high |= uint64(c)
				i++
				continue
			}
			// A byte is zero where (x-1)&^x has its highest bit; a borrow can
			// only disturb bytes above the lowest hit, which is all we use.
			w := binary.LittleEndian.Uint64(b[i:])
			quote, back := w^(ones*'"'), w^(ones*'\\')
			hit := ((quote-ones)&^quote | (back-ones)&^back | (w-ones*' ')&^w) & highs
			if hit == 0 {
				high |= w
				i += 8
				continue
			}
			n := bits.TrailingZeros64(hit) &^ 7
			high |= w & (1<<n - 1)
			i += n / 8
			c = b[i]
			break
		}
		switch {
		case c == '"':
			if high&highs != 0 && !odd {
				odd = !utf8.Valid(b[start:i])
			}
			return i, odd
		case c == '\\':
			odd = true
			n := d.escape(i)
			if n < 0 {
				return -1, false
			}
			i += n
		default:
			return d.fail(i, "control character in a string"), false
		}
	}
}

// escape checks the escape at b[i] and returns its length, or -1.
func (d *jsonDecoder) escape(i int) int {
	b := d.b
	if i+1 >= len(b) {
		return d.fail(len(b), "the text ends inside a string")
	}
	switch b[i+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return 2
	case 'u':
		return d.hex(i, 6)
	}
	if d.goEscapes {
		switch b[i+1] {
		case 'a', 'v', '\'':
			return 2
		case 'x':
			return d.hex(i, 4)
		case 'U':
			return d.hex(i, 10)
		}
	}
	return d.unexpected(i+1, "an escape")
}

// hex checks the hexadecimal digits of the escape at b[i], which has n bytes, and returns n,
// or -1.
func (d *jsonDecoder) hex(i, n int) int {
	for k := i + 2; k < i+n; k++ {
		if k >= len(d.b) {
			return d.fail(k, "the text ends inside a string")
		}
		if unhex(d.b[k]) < 0 {
			return d.unexpected(k, "a hexadecimal digit")
		}
	}
	return n
}

// unescape appends the value of the checked string text s to the scratch memory
// and returns it. What is no UTF-8 alone makes it longer than s.
func (d *jsonDecoder) unescape(s []byte) []byte {
	d.scratch = room(d.scratch, len(s))
	start := len(d.scratch)
	out := d.scratch
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '\\' && s[i+1] == 'u':
			r := hex4(s[i+2:])
			i += 6
			if utf16.IsSurrogate(r) {
				pair := rune(unicode.ReplacementChar)
				if i+6 <= len(s) && s[i] == '\\' && s[i+1] == 'u' {
					pair = utf16.DecodeRune(r, hex4(s[i+2:]))
				}
				if pair != unicode.ReplacementChar {
					i += 6
				}
				r = pair
			}
			out = utf8.AppendRune(out, r)
		case c == '\\' && s[i+1] == 'x':
			out = append(out, byte(unhex(s[i+2])<<4|unhex(s[i+3])))
			i += 4
		case c == '\\' && s[i+1] == 'U':
			out = utf8.AppendRune(out, hex4(s[i+2:])<<16|hex4(s[i+6:]))
			i += 10
		case c == '\\':
			out = append(out, unescapeByte(s[i+1]))
			i += 2
		case c < utf8.RuneSelf:
			out = append(out, c)
			i++
		default:
			r, n := utf8.DecodeRune(s[i:])
			out = utf8.AppendRune(out, r)
			i += n
		}
	}
	d.scratch = out
	d.made += len(out) - start
	return out[start:len(out):len(out)]
}

func unescapeByte(c byte) byte {
	switch c {
	case 'a':
		return '\a'
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	case 'v':
		return '\v'
	}
	return c
}

// hex4 returns the number of four checked hexadecimal digits.
func hex4(s []byte) rune {
	return rune(unhex(s[0])<<12 | unhex(s[1])<<8 | unhex(s[2])<<4 | unhex(s[3]))
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return int(c - 'A' + 10)
	}
	return -1
}

// scalar checks the number, true, false or null at i and returns the index after
// it.
func (d *jsonDecoder) scalar(i int) int {
	b := d.b
	if i >= len(b) {
		return d.unexpected(i, "a value")
	}
	switch b[i] {
	case 't':
		return d.word(i, "true")
	case 'f':
		return d.word(i, "false")
	case 'n':
		return d.word(i, "null")
	case '-':
		i++
	}
	// RFC 8259 section 6: int [ frac ] [ exp ], without leading zeros.
	switch {
	case i < len(b) && b[i] == '0':
		i++
	case i < len(b) && '1' <= b[i] && b[i] <= '9':
		for i++; i < len(b) && '0' <= b[i] && b[i] <= '9'; i++ {
		}
	case i > 0 && i <= len(b) && b[i-1] == '-':
		return d.unexpected(i, "a digit")
	default:
		return d.unexpected(i, "a value")
	}
	if i < len(b) && b[i] == '.' {
		if i = d.digits(i + 1); i < 0 {
			return -1
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		i++
		if i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return d.digits(i)
	}
	return i
}

// digits checks one or more digits at i and returns the index after them.
func (d *jsonDecoder) digits(i int) int {
	start := i
	for i < len(d.b) && '0' <= d.b[i] && d.b[i] <= '9' {
		i++
	}
	if i == start {
		return d.unexpected(i, "a digit")
	}
	return i
}

// word checks that w is at i and returns the index after it.
func (d *jsonDecoder) word(i int, w string) int {
	for k := range len(w) {
		if i+k >= len(d.b) || d.b[i+k] != w[k] {
			return d.unexpected(i+k, w)
		}
	}
	return i + len(w)
}
