package iceberg

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"

	"sluice/jobs/columnar"
)

// schema is a table's schema as its metadata has it.
type schema struct {
	Type   string  `json:"type"` // struct
	ID     int     `json:"schema-id"`
	Fields []field `json:"fields"`
}

type field struct {
	ID       int32  `json:"id"`
	Name     string `json:"name"`
	Required bool   `json:"required"`
	Type     any    `json:"type"` // a name, or a mapType; read as a map
}

type mapType struct {
	Type          string `json:"type"` // map
	KeyID         int32  `json:"key-id"`
	Key           string `json:"key"`
	ValueID       int32  `json:"value-id"`
	Value         string `json:"value"`
	ValueRequired bool   `json:"value-required"`
}

// fieldIDs are the ids that a column takes.
func fieldIDs(c *columnar.Column) []int32 {
	ids := []int32{columnar.FieldID(c.Name, c.Type)}
	if _, ok := c.Type.Map(); ok {
		key, value := columnar.EntryIDs(c.Name, c.Type)
		ids = append(ids, key, value)
	}
	return ids
}

// typeName returns Iceberg's name of a type that is no map.
func typeName(t columnar.Type) string {
	switch t {
	case columnar.String, columnar.JSON:
		return "string"
	case columnar.Int64:
		return "long"
	case columnar.Float64:
		return "double"
	case columnar.Bool:
		return "boolean"
	case columnar.Timestamp:
		return "timestamptz"
	case columnar.Bytes:
		return "binary"
	}
	precision, scale, _ := t.Decimal()
	return fmt.Sprintf("decimal(%d, %d)", precision, scale)
}

// newSchema returns the schema of columns, without an id.
func newSchema(columns []columnar.Column) schema {
	s := schema{Type: "struct", Fields: []field{}}
	for i := range columns {
		c := &columns[i]
		ids := fieldIDs(c)
		f := field{ID: ids[0], Name: c.Name, Required: !c.Nullable}
		if value, ok := c.Type.Map(); ok {
			f.Type = mapType{Type: "map", KeyID: ids[1], Key: typeName(columnar.String), ValueID: ids[2], Value: typeName(value), ValueRequired: true}
		} else {
			f.Type = typeName(c.Type)
		}
		s.Fields = append(s.Fields, f)
	}
	return s
}

// lastID returns the largest id of columns, which all have some.
func lastID(columns []columnar.Column) (last int32) {
	for i := range columns {
		last = max(last, slices.Max(fieldIDs(&columns[i])))
	}
	return last
}

// partitionSpec is how files are divided.
type partitionSpec struct {
	ID     int              `json:"spec-id"`
	Fields []partitionField `json:"fields"`
}

type partitionField struct {
	Source    int32  `json:"source-id"`
	ID        int    `json:"field-id"`
	Name      string `json:"name"`
	Transform string `json:"transform"` // identity
}

// sortOrder is how rows follow each other in a file.
type sortOrder struct {
	ID     int         `json:"order-id"` // 0 = not at all
	Fields []sortField `json:"fields"`
}

type sortField struct {
	Transform string `json:"transform"` // identity
	Source    int32  `json:"source-id"`
	Direction string `json:"direction"`
	Nulls     string `json:"null-order"`
}

// column returns the column of a name.
func column(columns []columnar.Column, name string) (*columnar.Column, error) {
	for i := range columns {
		if columns[i].Name == name {
			return &columns[i], nil
		}
	}
	return nil, fmt.Errorf("%w: there is no %q", ErrColumns, name)
}

// fieldOf returns the id of the column of a name.
func fieldOf(columns []columnar.Column, name string) (int32, error) {
	c, err := column(columns, name)
	if err != nil {
		return 0, err
	}
	return columnar.FieldID(c.Name, c.Type), nil
}

// setSchema makes the schema of columns the current one; it is a new one unless the table
// has had it.
func (m *metadata) setSchema(columns []columnar.Column) {
	s := newSchema(columns)
	m.LastColumnID = max(m.LastColumnID, lastID(columns))
	i := slices.IndexFunc(m.Schemas, func(have schema) bool { return sameFields(have.Fields, s.Fields) })
	if i < 0 {
		i = len(m.Schemas)
		for _, have := range m.Schemas {
			s.ID = max(s.ID, have.ID+1)
		}
		m.Schemas = append(m.Schemas, s)
	}
	m.CurrentSchemaID = m.Schemas[i].ID
}

// sameFields compares fields of which some were read.
func sameFields(a, b []field) bool {
	return slices.EqualFunc(a, b, func(a, b field) bool {
		return a.ID == b.ID && a.Name == b.Name && a.Required == b.Required && reflect.DeepEqual(plain(a.Type), plain(b.Type))
	})
}

// plain returns a type as encoding/json reads it.
func plain(t any) any {
	m, ok := t.(mapType)
	if !ok {
		return t
	}
	return map[string]any{
		"type": m.Type, "key-id": float64(m.KeyID), "key": m.Key,
		"value-id": float64(m.ValueID), "value": m.Value, "value-required": m.ValueRequired,
	}
}

// firstPartitionID is the first id of fields of partitions, as Iceberg's own writers
// number them.
const firstPartitionID = 1000

// spec returns the partition spec by these columns, which is a new one unless the table has
// had it.
func (m *metadata) spec(columns []columnar.Column, by []string) (partitionSpec, error) {
	s := partitionSpec{Fields: []partitionField{}}
	for _, name := range by {
		c, err := column(columns, name)
		if err != nil {
			return s, err
		}
		source := columnar.FieldID(c.Name, c.Type)
		s.Fields = append(s.Fields, partitionField{Source: source, ID: m.partitionID(source), Name: c.Name, Transform: "identity"})
	}
	for _, have := range m.Specs {
		if slices.Equal(have.Fields, s.Fields) {
			return have, nil
		}
		s.ID = max(s.ID, have.ID+1)
	}
	m.Specs = append(m.Specs, s)
	return s, nil
}

// partitionID returns the id of the field of partitions of a column, which keeps it.
func (m *metadata) partitionID(source int32) int {
	for i := range m.Specs {
		for _, f := range m.Specs[i].Fields {
			if f.Source == source {
				return f.ID
			}
		}
	}
	m.LastPartitionID++
	return m.LastPartitionID
}

// order returns the id of a sort order, which is a new one unless the table has had it.
func (m *metadata) order(columns []columnar.Column, by []columnar.Order) (id int, err error) {
	s := sortOrder{Fields: []sortField{}}
	for _, o := range by {
		c, err := column(columns, o.Column)
		if err != nil {
			return 0, err
		}
		f := sortField{Transform: "identity", Source: columnar.FieldID(c.Name, c.Type), Direction: "asc", Nulls: "nulls-last"}
		if o.Descending {
			f.Direction = "desc"
		}
		if o.NullsFirst {
			f.Nulls = "nulls-first"
		}
		s.Fields = append(s.Fields, f)
	}
	for _, have := range m.SortOrders {
		if slices.Equal(have.Fields, s.Fields) {
			return have.ID, nil
		}
		s.ID = max(s.ID, have.ID+1)
	}
	m.SortOrders = append(m.SortOrders, s)
	return s.ID, nil
}

// partitionValue is the value of a column of partitions: a string, an int64 or a bool; nil =
// null.
func partitionValue(c *columnar.Column, text *string) (any, error) {
	if text == nil {
		return nil, nil
	}
	switch c.Type {
	case columnar.String:
		return *text, nil
	case columnar.Int64:
		return strconv.ParseInt(*text, 10, 64)
	case columnar.Bool:
		return strconv.ParseBool(*text)
	}
	return nil, fmt.Errorf("%w: %s is of type %v, and partitions are of string, int64 and bool", ErrColumns, c.Name, c.Type)
}
