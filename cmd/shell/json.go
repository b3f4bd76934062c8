package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
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

// MarshalJSON writes the fields in order. Bytes are a string where they are UTF-8;
// otherwise the field is called NAME_base64 and holds their base64.
func (o object) MarshalJSON() ([]byte, error) {
	var b bytes.Buffer
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
		if err := encode(&b, f.name); err != nil {
			return nil, err
		}
		b.WriteByte(':')
		if err := encode(&b, f.value); err != nil {
			return nil, fmt.Errorf("field %s: %w", f.name, err)
		}
	}
	b.WriteByte('}')
	return b.Bytes(), nil
}

// encode appends v without HTML's escapes and without a line end.
func encode(b *bytes.Buffer, v any) error {
	e := json.NewEncoder(b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1)
	return nil
}

// object prints one row as JSON.
func (p *printer) object(o object) error {
	if !p.json {
		return nil
	}
	line, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("print as JSON: %w", err)
	}
	_, err = p.out.Write(append(line, '\n'))
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
