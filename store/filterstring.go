package store

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// ParseFilterString reads a filter in the language of HBase's shell and of its
// Thrift and REST gateways (ParseFilter):
//
//	expression  = conjunction { "OR" conjunction }
//	conjunction = unit { "AND" unit }
//	unit        = "SKIP" unit | "WHILE" unit | "(" expression ")" | filter
//	filter      = name "(" [ argument { "," argument } ] ")"
//	argument    = "'" text "'" | number | "true" | "false" | operator
//	operator    = "<" | "<=" | "=" | "!=" | ">=" | ">"
//
// A quote in text is written twice; any other byte stands for itself. Keywords
// are upper case, booleans are of any case. A comparator is the text 'type:value',
// its type binary, binaryprefix, regexstring, regexstringnocase or substring.
// docs/filters.md has the names and arguments of the filters.
//
// The error wraps ErrInvalidArgument and names the column, in characters from 1,
// and what was expected there. What HBase's parser takes by accident is refused:
// arguments without commas, a parenthesis that is left open, operators behind
// their operands. What it refuses by accident is read: groups that end with two
// operators of different strength, such as (a OR b AND c).
func ParseFilterString(s string) (Filter, error) {
	p := &filterParser{in: s}
	p.advance()
	f, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.tok.kind != tokenEnd {
		return nil, p.expected("AND, OR or the end")
	}
	return f, nil
}

type filterTokenKind uint8

const (
	tokenEnd      filterTokenKind = iota
	tokenWord                     // a name, keyword, number, boolean or operator
	tokenText                     // a quoted argument
	tokenUnclosed                 // a quote that is not closed
	tokenOpen
	tokenClose
	tokenComma
)

// filterToken is a token and where it stands in the string.
type filterToken struct {
	kind       filterTokenKind
	text       string // of a tokenText without its quotes, of others as written
	start, end int
}

// filterParser is a recursive descent with one token of lookahead.
type filterParser struct {
	in    string
	tok   filterToken
	depth int
}

func filterSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

func filterPunctuation(c byte) (kind filterTokenKind, ok bool) {
	switch c {
	case '(':
		return tokenOpen, true
	case ')':
		return tokenClose, true
	case ',':
		return tokenComma, true
	}
	return 0, false
}

// advance moves to the next token.
func (p *filterParser) advance() {
	i := p.tok.end
	for i < len(p.in) && filterSpace(p.in[i]) {
		i++
	}
	p.tok = filterToken{start: i, end: i}
	if i == len(p.in) {
		return
	}
	if p.in[i] == '\'' {
		p.quoted()
		return
	}
	if kind, ok := filterPunctuation(p.in[i]); ok {
		p.tok.kind, p.tok.end = kind, i+1
	} else {
		for i < len(p.in) && p.in[i] != '\'' && !filterSpace(p.in[i]) {
			if _, ok := filterPunctuation(p.in[i]); ok {
				break
			}
			i++
		}
		p.tok.kind, p.tok.end = tokenWord, i
	}
	p.tok.text = p.in[p.tok.start:p.tok.end]
}

// quoted reads a quoted argument, of which p.tok.start is the opening quote.
func (p *filterParser) quoted() {
	text := make([]byte, 0, 32)
	for i := p.tok.start + 1; i < len(p.in); i++ {
		if p.in[i] == '\'' {
			if i+1 == len(p.in) || p.in[i+1] != '\'' {
				p.tok.kind, p.tok.text, p.tok.end = tokenText, string(text), i+1
				return
			}
			i++
		}
		text = append(text, p.in[i])
	}
	p.tok.kind, p.tok.end = tokenUnclosed, len(p.in)
}

// column returns where byte i stands, in characters from 1.
func (p *filterParser) column(i int) int { return utf8.RuneCountInString(p.in[:i]) + 1 }

// errorAt returns an error about what begins at byte i.
func (p *filterParser) errorAt(i int, format string, args ...any) error {
	return fmt.Errorf("%w: filter string, column %d: %s", ErrInvalidArgument, p.column(i), fmt.Sprintf(format, args...))
}

// wrapAt returns err, about what begins at byte i.
func (p *filterParser) wrapAt(i int, err error) error {
	return fmt.Errorf("filter string, column %d: %w", p.column(i), err)
}

// expected returns the error that the current token is not what it must be.
func (p *filterParser) expected(what string) error { return p.expectedAt(p.tok, what) }

func (p *filterParser) expectedAt(t filterToken, what string) error {
	switch t.kind {
	case tokenEnd:
		return p.errorAt(t.start, "expected %s, found the end", what)
	case tokenUnclosed:
		return p.errorAt(t.start, "expected a closing quote for this one, found the end")
	}
	return p.errorAt(t.start, "expected %s, found %.60q", what, p.in[t.start:t.end])
}

// accept moves on where the current token is of this kind.
func (p *filterParser) accept(kind filterTokenKind) bool {
	if p.tok.kind != kind {
		return false
	}
	p.advance()
	return true
}

// keyword moves on where the current token is this word.
func (p *filterParser) keyword(word string) bool {
	return p.tok.text == word && p.accept(tokenWord)
}

func (p *filterParser) expression() (Filter, error) { return p.list("OR", true, p.conjunction) }

func (p *filterParser) conjunction() (Filter, error) { return p.list("AND", false, p.unit) }

// list reads members with the keyword between them; one alone is itself.
func (p *filterParser) list(keyword string, one bool, member func() (Filter, error)) (Filter, error) {
	f, err := member()
	if err != nil {
		return nil, err
	}
	var l *FilterList
	for p.keyword(keyword) {
		next, err := member()
		if err != nil {
			return nil, err
		}
		if l == nil {
			l = &FilterList{MustPassOne: one, Filters: []Filter{f}}
			f = l
		}
		l.Filters = append(l.Filters, next)
	}
	return f, nil
}

func (p *filterParser) unit() (Filter, error) {
	if p.depth == maxFilterNesting {
		return nil, p.errorAt(p.tok.start, "expected at most %d levels of SKIP, WHILE and parentheses", maxFilterNesting)
	}
	p.depth++
	defer func() { p.depth-- }()
	switch {
	case p.keyword("SKIP"):
		f, err := p.unit()
		return &SkipFilter{Filter: f}, err
	case p.keyword("WHILE"):
		f, err := p.unit()
		return &WhileMatchFilter{Filter: f}, err
	case p.accept(tokenOpen):
		f, err := p.expression()
		if err == nil && !p.accept(tokenClose) {
			err = p.expected("AND, OR or )")
		}
		return f, err
	case p.tok.kind == tokenWord && p.tok.text != "AND" && p.tok.text != "OR":
		return p.filter()
	}
	return nil, p.expected("a filter, SKIP, WHILE or (")
}

// filter reads one filter, of which the current token is the name.
func (p *filterParser) filter() (Filter, error) {
	a := filterArgs{p: p, name: p.tok}
	at := slices.IndexFunc(filterForms, func(f filterForm) bool { return f.name == a.name.text })
	if at < 0 {
		return nil, p.expected("one of " + strings.Join(FilterStringNames(), ", "))
	}
	p.advance()
	if !p.accept(tokenOpen) {
		return nil, p.expected("( after " + a.name.text)
	}
	for !p.accept(tokenClose) {
		if len(a.list) > 0 && !p.accept(tokenComma) {
			return nil, p.expected(", or )")
		}
		if p.tok.kind != tokenText && p.tok.kind != tokenWord {
			return nil, p.expected("an argument of " + filterForms[at].usage())
		}
		a.list = append(a.list, p.tok)
		p.advance()
	}
	form := &filterForms[at]
	if form.counts != nil && !slices.Contains(form.counts, len(a.list)) {
		return nil, p.errorAt(a.name.start, "expected %s, found %d arguments", form.usage(), len(a.list))
	}
	f := form.parse(&a)
	if a.err != nil {
		return nil, a.err
	}
	if _, err := f.Start(&Scan{}); err != nil {
		return nil, p.wrapAt(a.name.start, err)
	}
	return f, nil
}
