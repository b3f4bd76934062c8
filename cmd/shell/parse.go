package main

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A command line of the HBase shell is a Ruby method call without parentheses:
// a name, then values separated by commas. The values that occur are strings,
// numbers, true, false, nil, constants (LIMIT, FOREVER), arrays and hashes.

// symbol is a bare word that is not true, false or nil.
type symbol string

// hash is a Ruby hash in the order it was written.
type hash []pair

type pair struct {
	key   any
	value any
}

// get returns the value of a constant or string key, in any case.
func (h hash) get(name string) (any, bool) {
	for _, p := range h {
		if strings.EqualFold(text(p.key), name) {
			return p.value, true
		}
	}
	return nil, false
}

// command is one parsed line.
type command struct {
	name string
	args []any
}

// syntaxError says where a line cannot be read.
type syntaxError struct {
	col int // 1-based, in bytes
	msg string
}

func (e *syntaxError) Error() string {
	return fmt.Sprintf("syntax error at column %d: %s", e.col, e.msg)
}

// incomplete reports that a line goes on on the next one: it ends inside a
// bracket or after a comma.
func incomplete(err error) bool {
	e, ok := err.(*syntaxError)
	return ok && e.msg == unfinished
}

const unfinished = "the line ends too early"

type parser struct {
	in  string
	pos int
}

// parse reads one line. A line of blanks and comments gives a command without a
// name.
func parse(line string) (c command, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*syntaxError)
			if !ok {
				panic(r)
			}
			err = e
		}
	}()
	p := &parser{in: line}
	p.space()
	if p.end() {
		return c, nil
	}
	c.name = p.word()
	p.space()
	paren := p.accept('(')
	p.space()
	for !p.end() && !(paren && p.peek() == ')') {
		c.args = append(c.args, p.argument())
		p.space()
		if !p.accept(',') {
			break
		}
		p.space()
		if p.end() {
			p.fail(unfinished)
		}
	}
	if paren && !p.accept(')') {
		p.fail(unfinished)
	}
	p.space()
	p.accept(';')
	p.space()
	if !p.end() {
		p.fail(fmt.Sprintf("unexpected %q", p.in[p.pos:]))
	}
	return c, nil
}

func (p *parser) fail(msg string) { panic(&syntaxError{p.pos + 1, msg}) }

func (p *parser) end() bool { return p.pos >= len(p.in) || p.in[p.pos] == '#' }

func (p *parser) peek() byte {
	if p.end() {
		p.fail(unfinished)
	}
	return p.in[p.pos]
}

func (p *parser) space() {
	for p.pos < len(p.in) && strings.IndexByte(" \t\r\n", p.in[p.pos]) >= 0 {
		p.pos++
	}
}

func (p *parser) accept(c byte) bool {
	if !p.end() && p.in[p.pos] == c {
		p.pos++
		return true
	}
	return false
}

func (p *parser) word() string {
	start := p.pos
	for p.pos < len(p.in) {
		r, n := utf8.DecodeRuneInString(p.in[p.pos:])
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '_' && r != '?' && r != '.' {
			break
		}
		p.pos += n
	}
	if p.pos == start {
		p.fail(fmt.Sprintf("unexpected %q", p.in[p.pos:]))
	}
	return p.in[start:p.pos]
}

// argument reads a value, or a hash without braces: scan 't', LIMIT => 3.
func (p *parser) argument() any {
	v := p.value()
	p.space()
	if !p.arrow() {
		return v
	}
	p.space()
	h := hash{{v, p.value()}}
	for {
		p.space()
		mark := p.pos
		if !p.accept(',') {
			return h
		}
		p.space()
		k := p.value()
		p.space()
		if !p.arrow() {
			p.pos = mark
			return h
		}
		p.space()
		h = append(h, pair{k, p.value()})
	}
}

func (p *parser) arrow() bool {
	if strings.HasPrefix(p.in[p.pos:], "=>") {
		p.pos += 2
		return true
	}
	return false
}

func (p *parser) value() any {
	switch c := p.peek(); {
	case c == '\'':
		return p.single()
	case c == '"':
		return p.double()
	case c == '[':
		p.pos++
		return p.array()
	case c == '{':
		p.pos++
		return p.hash()
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		return p.number()
	case c == ':':
		p.pos++
		return symbol(p.word())
	default:
		w := p.word()
		switch w {
		case "true":
			return true
		case "false":
			return false
		case "nil":
			return nil
		}
		return symbol(w)
	}
}

func (p *parser) array() []any {
	list := []any{}
	for {
		p.space()
		if p.accept(']') {
			return list
		}
		list = append(list, p.argument())
		p.space()
		if p.accept(']') {
			return list
		}
		if !p.accept(',') {
			p.peek()
			p.fail("expected , or ]")
		}
	}
}

func (p *parser) hash() hash {
	h := hash{}
	for {
		p.space()
		if p.accept('}') {
			return h
		}
		k := p.value()
		p.space()
		if !p.arrow() {
			p.peek()
			p.fail("expected =>")
		}
		p.space()
		h = append(h, pair{k, p.value()})
		p.space()
		if p.accept('}') {
			return h
		}
		if !p.accept(',') {
			p.peek()
			p.fail("expected , or }")
		}
	}
}

func (p *parser) number() any {
	start := p.pos
	p.pos++
	for p.pos < len(p.in) && strings.IndexByte("0123456789abcdefABCDEFxX_.", p.in[p.pos]) >= 0 {
		p.pos++
	}
	s := strings.ReplaceAll(p.in[start:p.pos], "_", "")
	if n, err := strconv.ParseInt(s, 0, 64); err == nil {
		return n
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.IsInf(f, 0) {
		p.pos = start
		p.fail(fmt.Sprintf("%q is not a number", s))
	}
	return f
}

// single reads a single-quoted string: only \' and \\ are escapes.
func (p *parser) single() string {
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
	p.fail(unfinished)
	return ""
}

// double reads a double-quoted string with Ruby's escapes.
func (p *parser) double() string {
	var b strings.Builder
	for p.pos++; p.pos < len(p.in); p.pos++ {
		c := p.in[p.pos]
		if c == '"' {
			p.pos++
			return b.String()
		}
		if c != '\\' {
			b.WriteByte(c)
			continue
		}
		if p.pos++; p.pos >= len(p.in) {
			break
		}
		switch c := p.in[p.pos]; c {
		case 'n', 't', 'r', 'a', 'b', 'e', 'f', 'v', 's':
			b.WriteByte(map[byte]byte{'n': '\n', 't': '\t', 'r': '\r', 'a': 7, 'b': 8, 'e': 27, 'f': '\f', 'v': '\v', 's': ' '}[c])
		case 'x':
			b.WriteByte(byte(p.digits(2, 16)))
		case 'u':
			b.WriteRune(rune(p.digits(4, 16)))
		case '0', '1', '2', '3', '4', '5', '6', '7':
			p.pos--
			b.WriteByte(byte(p.digits(3, 8)))
		default:
			b.WriteByte(c)
		}
	}
	p.fail(unfinished)
	return ""
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

// text is a value as Ruby's to_s gives it: what the shell stores for it.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case symbol:
		return string(v)
	case bool:
		return strconv.FormatBool(v)
	case int64:
		return strconv.FormatInt(v, 10)
	case float64:
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	return fmt.Sprint(v)
}
