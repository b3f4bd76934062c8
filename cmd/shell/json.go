package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"sluice/cell"
)

// A JSON object of -o json keeps its fields in the order of docs/shell.md, which
// is a promise: fields may be added, none is renamed.
type (
	object []field
	field  struct {
		name  string
		value any
	}
)

// append writes the fields in order. Bytes are a string where they are UTF-8;
// otherwise the field is called NAME_base64 and holds their base64.
func (o object) append(b *bytes.Buffer) error {
	b.WriteByte('{')
	for i, f := range o {
		if i > 0 {
			b.WriteByte(',')
		}
		if raw, ok := f.value.([]byte); ok {
			f.value = string(raw)
			if !utf8.Valid(raw) {
				f.name, f.value = f.name+"_base64", base64.StdEncoding.EncodeToString(raw)
			}
		}
		if err := appendJSON(b, f.name); err != nil {
			return err
		}
		b.WriteByte(':')
		if err := appendJSON(b, f.value); err != nil {
			return fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	b.WriteByte('}')
	return nil
}

// appendJSON writes v. What a scan prints most, and json.Encoder would check again
// at every level, has its own case.
func appendJSON(b *bytes.Buffer, v any) error {
	switch v := v.(type) {
	case object:
		return v.append(b)
	case []object:
		b.WriteByte('[')
		for i, o := range v {
			if i > 0 {
				b.WriteByte(',')
			}
			if err := o.append(b); err != nil {
				return err
			}
		}
		b.WriteByte(']')
		return nil
	case int64:
		b.Write(strconv.AppendInt(b.AvailableBuffer(), v, 10))
		return nil
	case string:
		if plainJSON(v) {
			b.WriteByte('"')
			b.WriteString(v)
			b.WriteByte('"')
			return nil
		}
	}
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // its line end
	return nil
}

// plainJSON reports that a string stands for itself between quotes.
func plainJSON(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return false
		}
	}
	return true
}

// object prints one row as JSON.
func (p *printer) object(o object) error {
	if !p.json {
		return nil
	}
	p.scratch.Reset()
	if err := o.append(&p.scratch); err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	p.scratch.WriteByte('\n')
	_, err := p.out.Write(p.scratch.Bytes())
	return err
}

// cellObject is a cell of get and scan.
func cellObject(c *cell.Cell, value any) object {
	o := object{{"family", c.Family}, {"qualifier", c.Qualifier}, {"timestamp", int64(c.Time)}, {"type", c.Kind.String()}}
	if !c.Kind.IsDelete() {
		o = append(o, field{"value", value})
	}
	return o
}
