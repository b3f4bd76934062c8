package main

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A line of the HBase shell is a Ruby method call without parentheses: a name,
// then values separated by commas. The values that occur are strings, numbers,
// true, false, nil, constants (LIMIT, FOREVER), arrays and hashes. Several calls
// are separated by semicolons; t = get_table 't1' names a table, and t.scan then
// calls scan on it.

// command is one parsed call.
type command struct {
	name   string // as written: "scan", or "t.scan" where t is a variable
	args   []any
	assign string // variable that receives the table; "" = none
	pos    int    // of the name, in bytes
}

// syntaxError says where a line cannot be read.
type syntaxError struct {
	pos  int // in bytes
	msg  string
	more bool // the next line may complete it
}

func (e *syntaxError) Error() string { return "syntax error: " + e.msg }

// incomplete reports that a line goes on on the next one: it ends inside a string
// or a bracket, or after a comma.
func incomplete(err error) bool {
	e, ok := err.(*syntaxError)
	return ok && e.more
}

// maxDepth bounds brackets within brackets, which the parser follows by calling
// itself. No command nests deeper than three.
const maxDepth = 64

type parser struct {
	in   string
	pos  int
	open []int // positions of the brackets that are open
}

// parse reads the calls of a line, which may hold line ends. Blanks and comments
// give none.
func parse(line string) (calls []command, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*syntaxError)
			if !ok {
				panic(r)
			}
			calls, err = nil, e
		}
	}()
	p := &parser{in: line}
	for {
		p.space()
		for p.accept(';') {
			p.space()
		}
		if p.end() {
			return calls, nil
		}
		calls = append(calls, p.call())
		p.blanks()
		if !p.end() && p.in[p.pos] != ';' && p.in[p.pos] != '\n' {
			p.fail(fmt.Sprintf("unexpected %q", firstLine(p.in[p.pos:])))
		}
	}
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

// call reads one call. Outside brackets a line end ends it, unless a comma came
// before.
func (p *parser) call() command {
	c := command{pos: p.pos}
	c.name = p.word()
	p.blanks()
	if p.pos < len(p.in) && p.in[p.pos] == '=' && !strings.HasPrefix(p.in[p.pos:], "=>") {
		p.pos++
		p.space()
		c.assign = c.name
		if p.end() {
			p.unfinished("the line ends too early")
		}
		c.pos = p.pos
		c.name = p.word()
		p.blanks()
	}
	paren := p.accept('(')
	if paren {
		p.enter(p.pos - 1)
		p.space()
	}
	for !p.end() && !(paren && p.in[p.pos] == ')') && p.in[p.pos] != ';' && p.in[p.pos] != '\n' {
		c.args = append(c.args, p.argument())
		p.gap(paren)
		if !p.accept(',') {
			break
		}
		p.space()
		if p.end() {
			p.unfinished("the line ends too early")
		}
	}
	if paren {
		p.space()
		if p.end() {
			p.unclosed()
		}
		if !p.accept(')') {
			p.fail("expected , or )")
		}
		p.leave()
	}
	return c
}

func (p *parser) fail(msg string) { panic(&syntaxError{pos: p.pos, msg: msg}) }

func (p *parser) unfinished(msg string) { panic(&syntaxError{pos: p.pos, msg: msg, more: true}) }

// unclosed fails at the innermost bracket that is open.
func (p *parser) unclosed() {
	if n := len(p.open); n > 0 {
		p.pos = p.open[n-1]
		p.unfinished(fmt.Sprintf("the %c here is not closed", p.in[p.pos]))
	}
	p.unfinished("the line ends too early")
}

func (p *parser) enter(at int) {
	if len(p.open) == maxDepth {
		p.fail("too many brackets within brackets")
	}
	p.open = append(p.open, at)
}

func (p *parser) leave() { p.open = p.open[:len(p.open)-1] }

// end reports that nothing but blanks, line ends and comments follows.
func (p *parser) end() bool { return p.pos >= len(p.in) }

// peek returns the next byte, which must be there.
func (p *parser) peek() byte {
	if p.end() {
		p.unclosed()
	}
	return p.in[p.pos]
}

// blanks skips blanks, and a comment up to its line end.
func (p *parser) blanks() {
	for !p.end() && strings.IndexByte(" \t\r", p.in[p.pos]) >= 0 {
		p.pos++
	}
	if !p.end() && p.in[p.pos] == '#' {
		for !p.end() && p.in[p.pos] != '\n' {
			p.pos++
		}
	}
}

// space skips blanks, comments and line ends.
func (p *parser) space() {
	for p.blanks(); !p.end() && p.in[p.pos] == '\n'; p.blanks() {
		p.pos++
	}
}

// gap skips what may stand between an argument and a comma.
func (p *parser) gap(inside bool) {
	if inside {
		p.space()
	} else {
		p.blanks()
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
		p.fail(fmt.Sprintf("unexpected %q", firstLine(p.in[p.pos:])))
	}
	return p.in[start:p.pos]
}

// argument reads a value, or a hash without braces: scan 't', LIMIT => 3.
func (p *parser) argument() any {
	v := p.value()
	inside := len(p.open) > 0
	p.gap(inside)
	if !p.arrow() {
		return v
	}
	p.space()
	h := hash{{v, p.value()}}
	for {
		p.gap(inside)
		mark := p.pos
		if !p.accept(',') {
			return h
		}
		p.space()
		if p.end() {
			p.unfinished("the line ends too early")
		}
		k := p.value()
		p.gap(inside)
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
		return p.array()
	case c == '{':
		return p.hash()
	case c == '-' || c == '+' || c >= '0' && c <= '9':
		return p.number()
	case c == ':':
		p.pos++
		return symbol(p.word())
	default:
		switch w := p.word(); w {
		case "true":
			return true
		case "false":
			return false
		case "nil":
			return nil
		// HBase's shell has other names for these two.
		case "ENDROW", "ENDKEY":
			return symbol("STOPROW")
		case "STARTKEY":
			return symbol("STARTROW")
		default:
			return symbol(w)
		}
	}
}

func (p *parser) array() []any {
	p.enter(p.pos)
	defer p.leave()
	p.pos++
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
		if c := p.peek(); c != ',' {
			p.fail("expected , or ]")
		}
		p.pos++
	}
}

func (p *parser) hash() hash {
	p.enter(p.pos)
	defer p.leave()
	p.pos++
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
		if c := p.peek(); c != ',' {
			p.fail("expected , or }")
		}
		p.pos++
	}
}
