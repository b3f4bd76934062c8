package main

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// symbol is a bare word that is not true, false or nil.
type symbol string

// hash is a Ruby hash in the order it was written.
type hash []pair

type pair struct {
	key   any
	value any
}

// name is the key as an option's name.
func (p pair) name() string { return strings.ToUpper(text(p.key)) }

// get returns the value of a constant or string key, in any case.
func (h hash) get(name string) (any, bool) {
	for _, p := range h {
		if p.name() == name {
			return p.value, true
		}
	}
	return nil, false
}

// number returns the option's value as a number.
func (p pair) number() (int64, error) {
	n, ok := p.value.(int64)
	if !ok {
		return 0, badArgument("%s => takes a number, not %s", p.name(), inspect(p.value))
	}
	return n, nil
}

// boolean returns the option's value as true or false.
func (p pair) boolean() (bool, error) {
	b, ok := p.value.(bool)
	if !ok {
		return false, badArgument("%s => takes true or false, not %s", p.name(), inspect(p.value))
	}
	return b, nil
}

// oneOf checks that the option's value is, in capitals, one of words.
func (p pair) oneOf(words ...string) error {
	if slices.Contains(words, strings.ToUpper(text(p.value))) {
		return nil
	}
	return badArgument("%s => takes %s, not %s", p.name(), strings.Join(words, " or "), inspect(p.value))
}

// list returns the option's value as an array; one value is an array of one.
func (p pair) list() []any {
	if l, ok := p.value.([]any); ok {
		return l
	}
	return []any{p.value}
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
		return floatText(v)
	case []any, hash:
		return inspect(v)
	}
	return fmt.Sprint(v)
}

// floatText is a finite number as Ruby's Float#to_s gives it.
func floatText(f float64) string {
	if size := math.Abs(f); size != 0 && (size < 1e-4 || size >= 1e16) {
		digits, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'e', -1, 64), "e")
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		return digits + "e" + exponent
	}
	text := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(text, ".") {
		text += ".0"
	}
	return text
}

// inspect is a value as Ruby's inspect gives it, for messages.
func inspect(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case string:
		return strconv.Quote(v)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = inspect(e)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case hash:
		parts := make([]string, len(v))
		for i, p := range v {
			key := p.key
			if s, ok := key.(symbol); ok {
				key = string(s) // HBase's constants are strings
			}
			parts[i] = inspect(key) + "=>" + inspect(p.value)
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return text(v)
}

// argumentError is a call that cannot be understood.
type argumentError struct{ msg string }

func (e *argumentError) Error() string { return e.msg }

func badArgument(format string, a ...any) error { return &argumentError{fmt.Sprintf(format, a...)} }
