package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// number reads a Ruby number: 1_000, 0x1F, 017, -1.5e3.
func (p *parser) number() any {
	start := p.pos
	p.pos++
	for p.pos < len(p.in) {
		c := p.in[p.pos]
		exponentSign := (c == '-' || c == '+') && strings.IndexByte("eE", p.in[p.pos-1]) >= 0 && !strings.ContainsAny(p.in[start:p.pos], "xX")
		if strings.IndexByte("0123456789abcdefABCDEFxXo_.", c) < 0 && !exponentSign {
			break
		}
		p.pos++
	}
	s := strings.ReplaceAll(p.in[start:p.pos], "_", "")
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) || !strings.ContainsAny(s, ".eE") {
		p.pos = start
		p.fail(fmt.Sprintf("%q is not a number of 64 bits", s))
	}
	return f
}

// single reads a single-quoted string: only \' and \\ are escapes.
func (p *parser) single() string {
	start := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.in); p.pos++ {
		switch c := p.in[p.pos]; {
		case c == '\'':
			p.pos++
			return b.String()
		case c == '\\' && p.pos+1 < len(p.in) && (p.in[p.pos+1] == '\'' || p.in[p.pos+1] == '\\'):
			p.pos++
			b.WriteByte(p.in[p.pos])
		default:
			b.WriteByte(c)
		}
	}
	p.pos = start
	p.unfinished("the string that begins here has no end")
	return ""
}

// double reads a double-quoted string with Ruby's escapes. What Ruby would compute in it
// is refused: a loop that was pasted would write rows of that name.
func (p *parser) double() string {
	start := p.pos
	var b strings.Builder
	for p.pos++; p.pos < len(p.in); p.pos++ {
		c := p.in[p.pos]
		if c == '"' {
			p.pos++
			return b.String()
		}
		if c == '#' && strings.HasPrefix(p.in[p.pos:], "#{") {
			p.fail(`"#{…}" is for Ruby to compute, and this is no Ruby; write "\#{", or single quotes, for the text`)
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if p.pos++; p.pos >= len(p.in) {
			break
		}
		switch c := p.in[p.pos]; c {
		case 'x':
			b.WriteByte(byte(p.digits(2, 16)))
		case 'u':
			b.WriteRune(p.codePoint())
		case '0', '1', '2', '3', '4', '5', '6', '7':
			p.pos--
			b.WriteByte(byte(p.digits(3, 8)))
		case '\n': // a line that goes on
		default:
			if i := strings.IndexByte(escapeNames, c); i >= 0 {
				c = escapeBytes[i]
			}
			b.WriteByte(c)
		}
	}
	p.pos = start
	p.unfinished("the string that begins here has no end")
	return ""
}

// Ruby's one-letter escapes and what they stand for.
const (
	escapeNames = "ntrabefvs"
	escapeBytes = "\n\t\r\a\b\x1b\f\v "
)

// codePoint reads the digits of \u00e9 or \u{1F600}.
func (p *parser) codePoint() rune {
	if p.pos+1 >= len(p.in) || p.in[p.pos+1] != '{' {
		start := p.pos
		r := p.digits(4, 16)
		if p.pos != start+4 {
			p.fail("\\u takes four digits, or \\u{…}")
		}
		return rune(r)
	}
	p.pos++
	r := p.digits(6, 16)
	if p.pos++; p.pos >= len(p.in) || p.in[p.pos] != '}' || r > 0x10FFFF {
		p.fail("\\u{…} takes up to six digits, at most 10FFFF")
	}
	return rune(r)
}

// digits reads up to n digits that follow p.pos and leaves p.pos on the last.
func (p *parser) digits(n, base int) uint64 {
	start := p.pos + 1
	end := start
	for end < len(p.in) && end-start < n {
		if _, err := strconv.ParseUint(p.in[end:end+1], base, 8); err != nil {
			break
		}
		end++
	}
	v, err := strconv.ParseUint(p.in[start:end], base, 32)
	if err != nil {
		p.fail("escape without digits")
	}
	p.pos = end - 1
	return v
}
