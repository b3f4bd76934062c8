package parquetfile

import (
	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

// The names of a map's groups and leaves (parquet-format, LogicalTypes.md, Maps):
//
//	optional group NAME (MAP) {
//	  repeated group key_value {
//	    required binary key (STRING);
//	    required VALUE value;
//	  }
//	}
const (
	mapEntries = "key_value"
	mapKey     = "key"
	mapValue   = "value"
)

// leaf is a column of a file's row groups: a column of the batches, or the keys or the
// values of one with maps.
type leaf struct {
	column int // of the batches
	part   part
	name   string
	path   []string
	typ    columnar.Type
	// The levels of a value (Dremel's; parquet-format, README.md, Nested Encoding):
	// lower ones of definition say that there is none, and why; one of repetition
	// above 0, that it is the same row's as the value before.
	maxDefinition byte
	repeated      bool
}

// part says what of a column a leaf has.
type part uint8

const (
	whole part = iota
	keys
	values
)

// of returns the values of a column that a leaf has: of maps, those of all rows.
func (p part) of(v *columnar.Vector) *columnar.Vector {
	switch p {
	case keys:
		return v.Keys()
	case values:
		return v.Values()
	}
	return v
}

// leavesOf returns the leaves of columns, in a file's order.
func leavesOf(columns []columnar.Column) []leaf {
	var all []leaf
	for i, c := range columns {
		l := leaf{column: i, name: c.Name, path: []string{c.Name}, typ: c.Type}
		if c.Nullable {
			l.maxDefinition = 1
		}
		value, ok := c.Type.Map()
		if !ok {
			all = append(all, l)
			continue
		}
		l.repeated = true
		l.maxDefinition++
		k, v := l, l
		k.part, k.typ, k.path = keys, columnar.String, []string{c.Name, mapEntries, mapKey}
		v.part, v.typ, v.path = values, value, []string{c.Name, mapEntries, mapValue}
		all = append(all, k, v)
	}
	return all
}

// group is a parquet.Group that keeps the order of its columns.
type group struct {
	parquet.Group
	order []string
}

// Fields returns the columns in the order of the job.
func (g group) Fields() []parquet.Field {
	fields := g.Group.Fields()
	byName := make(map[string]parquet.Field, len(fields))
	for _, f := range fields {
		byName[f.Name()] = f
	}
	for i, name := range g.order {
		fields[i] = byName[name]
	}
	return fields
}

// newSchema returns the Parquet schema of columns, with their numbers, each leaf encoded as
// by encode.
func newSchema(columns []columnar.Column, encode func(l *leaf, n parquet.Node) parquet.Node) *parquet.Schema {
	g := group{Group: parquet.Group{}}
	leaves := leavesOf(columns)
	next := func() parquet.Node {
		l := &leaves[0]
		leaves = leaves[1:]
		return encode(l, node(l.typ))
	}
	for _, c := range columns {
		var n parquet.Node
		if _, ok := c.Type.Map(); ok {
			keyID, valueID := columnar.EntryIDs(c.Name, c.Type)
			key := parquet.FieldID(next(), int(keyID))
			n = parquet.Map(key, parquet.FieldID(parquet.Required(next()), int(valueID)))
		} else {
			n = next()
		}
		if c.Nullable {
			n = parquet.Optional(n)
		} else {
			n = parquet.Required(n)
		}
		g.Group[c.Name] = parquet.FieldID(n, int(columnar.FieldID(c.Name, c.Type)))
		g.order = append(g.order, c.Name)
	}
	return parquet.NewSchema("sluice", g)
}

// leafNodes returns the nodes of the leaves of a schema, in their order.
func leafNodes(n parquet.Node) []parquet.Node {
	if n.Leaf() {
		return []parquet.Node{n}
	}
	var all []parquet.Node
	for _, f := range n.Fields() {
		all = append(all, leafNodes(f)...)
	}
	return all
}

// mapOf returns the leaves of a column of maps; ok is false where it is none, or one
// that has other groups than the format asks for.
func mapOf(n parquet.Node) (key, value parquet.Node, ok bool) {
	if n.Leaf() || n.Repeated() || n.Type().LogicalType() == nil || n.Type().LogicalType().String() != "MAP" || len(n.Fields()) != 1 {
		return nil, nil, false
	}
	entries := n.Fields()[0]
	// Its name and those of its fields may be others (Backward-compatibility rules).
	if entries.Leaf() || !entries.Repeated() || len(entries.Fields()) != 2 {
		return nil, nil, false
	}
	key, value = entries.Fields()[0], entries.Fields()[1]
	if !key.Leaf() || !key.Required() || !value.Leaf() || value.Repeated() {
		return nil, nil, false
	}
	return key, value, true
}
