package columnar

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"sluice/cell"
	"sluice/internal/spelling"
	"sluice/store"
)

// FromUnmatched begins what a column is filled from that takes all of a family, whose
// name follows, that no other column names; PerRow only. Its values are maps of
// qualifier and value, or JSON objects (RFC 8259) of them, compact, with no more escapes
// than must be; both in the order of qualifiers. A row without such columns has null,
// not the empty map.
const FromUnmatched = "$unmatched."

// fromUnmatched fills in a column of what is left of a family.
func (c *compiler) fromUnmatched(i int, family string, col *column) {
	if c.mode == PerCell {
		c.bad(i, "from", "%s needs rows: row; with rows: cell every cell is an output row", col.from)
		return
	}
	if family == "" {
		c.bad(i, "from", "%s names no family; write %sFAMILY", col.from, FromUnmatched)
		return
	}
	if family = c.family(i, family); family != "" {
		col.source, col.family = sourceUnmatched, family
	}
}

// unmatchedCoding fills in and checks how the values are read that col has, which is no
// map.
func (c *compiler) unmatchedCoding(i int, name string, col *column) {
	if col.Type != String && col.Type != JSON {
		c.bad(i, "type", "%s is a map or a JSON object; its type is %s, json or string", col.from, strings.Replace(mapNames(), " and ", ", ", 1))
	}
	counter := c.only(col, func(f *store.FamilyDescriptor) bool { return f.Counter })
	if c.only(col, func(f *store.FamilyDescriptor) bool { return f.Distinct }) {
		c.bad(i, "from", "family %s is DISTINCT, whose values are sketches; use type %s for the estimates, type %s for the sketches, or name its columns", col.family, mapName(Int64), mapName(Bytes))
	}
	switch {
	case name == "" && counter, name == Int64BE.String():
		col.coding = Int64BE
	case name != "" && name != Text.String():
		c.bad(i, "coding", "%q is no coding of %s; it is text, or int64be for numbers", name, col.from)
	case counter:
		c.bad(i, "coding", "family %s is COUNTER, whose values are 8 bytes big-endian; it is int64be", col.family)
	default:
		col.coding = Text
	}
}

// named sets which qualifiers the columns of what is left do not have.
func (s *Schema) named() {
	for _, i := range s.others {
		c := &s.columns[i]
		if c.source != sourceUnmatched {
			continue
		}
		for _, j := range s.cells {
			if n := &s.columns[j]; n.family == c.family && !slices.Contains(c.named, n.qualifier) {
				c.named = append(c.named, n.qualifier)
			}
		}
	}
}

// unmatched appends to column i what row has of its family and no column names, or
// null where that is nothing.
func (b *Builder) unmatched(i int, row *cell.Row) error {
	c := &b.schema.columns[i]
	v := &b.batch.vectors[i]
	_, isMap := c.Type.Map()
	text, named := append(b.text[:0], '{'), c.named
	found := false
	var before *cell.Cell // of the family
	for k := range row.Cells {
		cl := &row.Cells[k]
		if cl.Family != c.family || before != nil && bytes.Equal(before.Qualifier, cl.Qualifier) {
			continue // an older version
		}
		before = cl
		for len(named) > 0 && named[0] < string(cl.Qualifier) {
			named = named[1:]
		}
		if len(named) > 0 && named[0] == string(cl.Qualifier) {
			continue
		}
		var why string
		if isMap {
			if why = v.appendEntry(c.coding, cl); why != "" {
				v.dropEntries()
			}
			b.bytes += len(cl.Qualifier) + len(cl.Value)
		} else {
			if found {
				text = append(text, ',')
			}
			text, why = appendMember(text, c.coding, cl)
		}
		if why != "" {
			return b.refuse(i, row.Key, cl.Value, fmt.Sprintf("%s of %s:%q", why, cl.Family, cl.Qualifier))
		}
		found = true
	}
	b.text = text
	if !found {
		return b.null(i, row.Key)
	}
	if isMap {
		return v.AppendEntries()
	}
	b.text = append(text, '}')
	b.bytes += len(b.text)
	if why := v.appendValue(Text, b.text); why != "" {
		return b.refuse(i, row.Key, b.text, why)
	}
	return nil
}

// appendEntry appends qualifier and value of a cell to the keys and values of a map
// vector, or says why it cannot.
func (v *Vector) appendEntry(coding Coding, c *cell.Cell) (why string) {
	if !utf8.Valid(c.Qualifier) {
		return "not UTF-8, the qualifier"
	}
	if why = appendData(v.keys, c.Qualifier); why != "" {
		return why
	}
	if why = v.values.appendValue(coding, c.Value); why != "" {
		return why + ", the value"
	}
	return ""
}

// appendMember appends qualifier and value of a cell, or says why it cannot.
func appendMember(dst []byte, coding Coding, c *cell.Cell) (_ []byte, why string) {
	if !utf8.Valid(c.Qualifier) {
		return dst, "not UTF-8, the qualifier"
	}
	dst = append(appendJSONString(dst, c.Qualifier), ':')
	switch {
	case coding == Text && utf8.Valid(c.Value):
		return appendJSONString(dst, c.Value), ""
	case coding == Text:
		return dst, "not UTF-8, the value"
	case len(c.Value) != 8:
		return dst, fmt.Sprintf("%d bytes, not 8, the value", len(c.Value))
	}
	return strconv.AppendInt(dst, int64(binary.BigEndian.Uint64(c.Value)), 10), ""
}

// appendJSONString appends UTF-8 text as a JSON string: the quotation mark, the
// backslash and control characters are escaped (RFC 8259, section 7).
func appendJSONString(dst, text []byte) []byte {
	const hex = "0123456789abcdef"
	dst = append(dst, '"')
	for _, c := range text {
		switch {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c < ' ':
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// family checks that the table has a family, and returns its name as the engine's
// cells have it, or nothing.
func (c *compiler) family(i int, name string) string {
	if c.table == nil {
		return name
	}
	if f := c.table.Family(name); f != nil {
		return f.Name
	}
	names := make([]string, len(c.table.Families))
	for j := range c.table.Families {
		names[j] = c.table.Families[j].Name
	}
	c.bad(i, "from", "table %s has no family %q%s; it has %s", c.table.Name, name, spelling.Aside(name, names), strings.Join(names, ", "))
	return ""
}
