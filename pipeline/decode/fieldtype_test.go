package decode_test

import (
	"testing"

	"sluice/pipeline/decode"
)

const typedSchema = `{"type": "record", "name": "R", "fields": [
	{"name": "b", "type": "boolean"},
	{"name": "n", "type": ["null", "int", "long"]},
	{"name": "f", "type": "float"},
	{"name": "s", "type": ["null", "string"]},
	{"name": "y", "type": {"type": "fixed", "name": "F", "size": 4}},
	{"name": "id", "type": {"type": "fixed", "name": "U", "size": 16, "logicalType": "uuid"}},
	{"name": "d", "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3}},
	{"name": "ms", "type": {"type": "long", "logicalType": "local-timestamp-millis"}},
	{"name": "day", "type": {"type": "int", "logicalType": "date"}},
	{"name": "us", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "ns", "type": {"type": "long", "logicalType": "timestamp-nanos"}},
	{"name": "of_day", "type": {"type": "int", "logicalType": "time-millis"}},
	{"name": "mixed", "type": ["int", "string"]},
	{"name": "times", "type": ["int", {"type": "long", "logicalType": "timestamp-millis"}]},
	{"name": "none", "type": "null"},
	{"name": "m", "type": {"type": "map", "values": "bytes"}},
	{"name": "a", "type": ["null", {"type": "array", "items": {"type": "record", "name": "I", "fields": [{"name": "y", "type": "bytes"}, {"name": "next", "type": ["null", "I"]}]}}]}
]}`

// TestShapeType: what a schema tells of each field, through unions, maps and arrays.
func TestShapeType(t *testing.T) {
	t.Parallel()
	kind := func(k decode.FieldKind) decode.FieldType { return decode.FieldType{Kind: k} }
	decimal := func(precision, scale int) decode.FieldType {
		return decode.FieldType{Kind: decode.FieldDecimal, Precision: precision, Scale: scale}
	}
	avro := (&decode.Options{Format: "avro", Schema: []byte(typedSchema)}).Shape()
	message := protobufOptions(t, "shop.v1.Event").Shape()
	if avro == nil || message == nil {
		t.Fatal("no shape")
	}
	for _, tt := range []struct {
		shape *decode.Shape
		want  map[string]decode.FieldType
	}{
		{avro, map[string]decode.FieldType{
			"b": kind(decode.FieldBool), "n": kind(decode.FieldInteger), "f": kind(decode.FieldFloat), "s": kind(decode.FieldText), "y": kind(decode.FieldBytes),
			"id": kind(decode.FieldText), "d": decimal(12, 3), "ms": kind(decode.FieldMillis), "day": kind(decode.FieldMillis), "us": decimal(19, 3), "ns": decimal(19, 6),
			"of_day": kind(decode.FieldInteger), "mixed": {}, "times": {}, "none": {}, "m": kind(decode.FieldJSON), "m.x": kind(decode.FieldBytes),
			"a": kind(decode.FieldJSON), "a[0]": kind(decode.FieldJSON), "a[0].y": kind(decode.FieldBytes), "a[1].next.next.y": kind(decode.FieldBytes),
		}},
		{message, map[string]decode.FieldType{
			"id": kind(decode.FieldInteger), "user_name": kind(decode.FieldText), "nick": kind(decode.FieldText), "raw": kind(decode.FieldBytes), "colour": kind(decode.FieldText),
			"ok": kind(decode.FieldBool), "price": kind(decode.FieldFloat), "ratio": kind(decode.FieldFloat), "tags": kind(decode.FieldJSON), "tags[0]": kind(decode.FieldText),
			"loose[1]": kind(decode.FieldInteger), "labels": kind(decode.FieldJSON), "labels.x": kind(decode.FieldInteger), "places.x": kind(decode.FieldJSON),
			"places.x.country": kind(decode.FieldText), "geo": kind(decode.FieldJSON), "geo.outer.at[0]": kind(decode.FieldFloat), "number": kind(decode.FieldInteger),
			"at": decimal(24, 6), "took": decimal(24, 6), "times[0]": decimal(24, 6), "maybe": kind(decode.FieldText), "count": kind(decode.FieldInteger), "blob": kind(decode.FieldBytes),
			"meta": kind(decode.FieldJSON), "meta.x.y": {}, "tree.value": {}, "tree.named.x.more[0].v": kind(decode.FieldInteger),
			"u32": kind(decode.FieldInteger), "u64": decimal(20, 0), "f64": decimal(20, 0), "sf64": kind(decode.FieldInteger), "any": kind(decode.FieldJSON),
		}},
	} {
		for path, want := range tt.want {
			steps, err := decode.ParsePath(path)
			if err != nil {
				t.Fatal(err)
			}
			if got := tt.shape.Type(steps, false); got != want {
				t.Errorf("%s: got %+v, want %+v", path, got, want)
			}
			if want.Kind == decode.FieldBytes { // base64
				want.Kind = decode.FieldText
			}
			if got := tt.shape.Type(steps, true); got != want {
				t.Errorf("%s in JSON: got %+v, want %+v", path, got, want)
			}
		}
	}
}
