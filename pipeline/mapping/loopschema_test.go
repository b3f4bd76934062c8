package mapping_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
)

// pb is a Protobuf message of the fields whose numbers and values follow each other: an int
// is a varint, a string or []byte has its length before it.
func pb(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		number := uint64(fields[i].(int)) << 3
		switch v := fields[i+1].(type) {
		case int:
			b = binary.AppendUvarint(binary.AppendUvarint(b, number), uint64(v))
		case string:
			b = append(binary.AppendUvarint(binary.AppendUvarint(b, number|2), uint64(len(v))), v...)
		case []byte:
			b = append(binary.AppendUvarint(binary.AppendUvarint(b, number|2), uint64(len(v))), v...)
		}
	}
	return b
}

// orderFile is the descriptor of:
//
//	message Order { string order_id = 1; repeated Item order_items = 2; }
//	message Item { string item_name = 1; repeated Item sub_items = 2; string sku = 3 [json_name = "code"]; }
func orderFile() []byte {
	field := func(name, json string, number, label, typ int, of string) []byte {
		f := pb(1, name, 3, number, 4, label, 5, typ, 10, json)
		if of != "" {
			f = append(f, pb(6, of)...)
		}
		return f
	}
	const one, many, text, message = 1, 3, 9, 11
	return pb(1, "order.proto",
		4, pb(1, "Order", 2, field("order_id", "orderId", 1, one, text, ""), 2, field("order_items", "orderItems", 2, many, message, ".Item")),
		4, pb(1, "Item", 2, field("item_name", "itemName", 1, one, text, ""), 2, field("sub_items", "subItems", 2, many, message, ".Item"),
			2, field("sku", "code", 3, one, text, "")),
		12, "proto3")
}

// orderSchemas is a registry whose only schema is orderFile.
type orderSchemas struct{}

func (orderSchemas) Schema(id int) (*decode.Schema, error) {
	return &decode.Schema{ID: id, Type: decode.SchemaProtobuf, Text: orderFile()}, nil
}

func (orderSchemas) Fetch(context.Context, int) error { return errors.New("it is there") }

// Fields of an array's elements have the names that those of the document have: of Protobuf
// also those of the .proto file, wherever the schema is from.
func TestForEachOfProtobuf(t *testing.T) {
	t.Parallel()
	payload := pb(1, "o1", 2, pb(1, "pen", 3, "s1", 2, pb(1, "cap")), 2, pb(1, "ink"))
	file := mapping.DecodeSpec{Format: "protobuf", Schema: pb(1, orderFile()), Message: "Order"}
	registry := mapping.DecodeSpec{Format: "protobuf", Framing: "confluent", Schemas: orderSchemas{}}
	for _, tt := range []struct {
		name    string
		decode  mapping.DecodeSpec
		payload []byte
		item    string // the name of its text
		inner   string
		code    string
	}{
		{"file", file, payload, "item_name", "sub_items[0].item_name", "sku"},
		{"file, of JSON", file, payload, "itemName", "subItems[0].itemName", "code"},
		{"registry", registry, append([]byte{0, 0, 0, 0, 1, 0}, payload...), "item_name", "sub_items[0].item_name", "code"},
		{"registry, of JSON", registry, append([]byte{0, 0, 0, 0, 1, 0}, payload...), "itemName", "subItems[0].itemName", "code"},
		{"registry, of both", registry, append([]byte{0, 0, 0, 0, 1, 0}, payload...), "item_name", "sub_items[0].itemName", "code"},
	} {
		m := compile(t, &mapping.Spec{Decode: tt.decode, Rules: []mapping.RuleSpec{
			{
				Table: "t", ForEach: []string{"item in order_items"}, Row: `order_id + "/" + item.` + tt.item, When: "item." + tt.item + ` != "none"`,
				Put: map[string]map[string]string{"e": {"code": "item." + tt.code, "first": "item." + tt.inner}},
			},
			{Table: "u", ForEach: []string{"item in orderItems", "part in item.sub_items"}, Row: "part." + tt.item, Put: map[string]map[string]string{"e": {"of": "item.itemName"}}},
		}})
		got := lines(m, string(tt.payload))
		want := "put 't', 'o1/pen', 'e:code', 's1', 1000\nput 't', 'o1/pen', 'e:first', 'cap', 1000\n" +
			"put 't', 'o1/ink', 'e:code', '', 1000\nput 'u', 'cap', 'e:of', 'pen', 1000\n"
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// Without the schema both spellings may be one field, or two.
func TestForEachSpelledTwice(t *testing.T) {
	t.Parallel()
	spec := &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "protobuf", Framing: "confluent", Schemas: orderSchemas{}},
		Rules:  []mapping.RuleSpec{{Table: "t", ForEach: []string{"item in orderItems"}, Row: "item.item_name + item.itemName", Put: map[string]map[string]string{"e": {"q": `"1"`}}}},
	}
	const want = "map[0].for_each[0]: decode: item_name and itemName may be one field: spell it in one way"
	if _, err := mapping.Compile(spec, nil); err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// What the schema says of the elements of arrays is known when the rules are compiled.
func TestForEachOfSchema(t *testing.T) {
	t.Parallel()
	avro := mapping.DecodeSpec{Format: "avro", Schema: []byte(`{"type":"record","name":"Order","fields":[
		{"name":"order_id","type":"string"},
		{"name":"order_items","type":["null",{"type":"array","items":{"type":"record","name":"Item","fields":[
			{"name":"item_name","type":"string"},{"name":"sub_items","type":{"type":"array","items":"Item"}},{"name":"sku","type":"string"}]}}]}]}`)}
	proto := mapping.DecodeSpec{Format: "protobuf", Schema: pb(1, orderFile()), Message: "Order"}
	for _, d := range []mapping.DecodeSpec{avro, proto} {
		for _, tt := range []struct {
			forEach []string
			row     string
			want    string // in the error; empty = there is none
		}{
			{[]string{"item in order_items"}, "item.item_name", ""},
			{[]string{"item in order_items"}, "item.sub_items[2].sku", ""},
			{[]string{"item in order_items", "part in item.sub_items", "more in part.sub_items"}, "more.sku", ""},
			{[]string{"item in order_items"}, "item.item_nam", "map[0].row: the schema has no field item.item_nam (did you mean \"item.item"},
			{[]string{"item in order_items"}, "item.item_name.x", "map[0].row: the schema has no field item.item_name.x"},
			{[]string{"item in order_items", "part in item.sub_items"}, "part.sub_items[0].skus", "map[0].row: the schema has no field part.sub_items[0].skus (did you mean \"part.sub"},
			{[]string{"item in order_items", "part in item.sub_item"}, "part.sku", "map[0].for_each[1]: the schema has no field item.sub_item (did you mean \"item.sub"},
			{[]string{"item in order_id"}, "item", "map[0].for_each[0]: order_id is no array"},
			{[]string{"item in order_items", "part in item.sku"}, "part", "map[0].for_each[1]: item.sku is no array"},
		} {
			_, err := mapping.Compile(&mapping.Spec{Decode: d, Rules: []mapping.RuleSpec{{
				Table: "t", ForEach: tt.forEach, Row: tt.row, Put: map[string]map[string]string{"e": {"q": `"1"`}},
			}}}, nil)
			if err == nil && tt.want != "" || err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("%s, %q of %q: got %v, want %s", d.Format, tt.row, tt.forEach, err, tt.want)
			}
		}
	}
}
