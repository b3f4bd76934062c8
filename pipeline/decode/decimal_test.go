package decode_test

import (
	"testing"

	"sluice/pipeline/decode"
)

// TestSmallDecimals reads decimals of few bytes: of a fixed that has too few for its precision,
// which other readers take for bytes, the number that is there.
func TestSmallDecimals(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ typ, payload, want string }{
		{`{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":9,"scale":1}`, "\x7f", "12.7"},
		{`{"type":"fixed","name":"F","size":1,"logicalType":"decimal","precision":9,"scale":9}`, "\x80", "-0.000000128"},
		{`{"type":"fixed","name":"F","size":2,"logicalType":"decimal","precision":4}`, "\xff\xff", "-1"},
		{`{"type":"fixed","name":"F","size":8,"logicalType":"decimal","precision":18}`, "\x80\x00\x00\x00\x00\x00\x00\x00", "-9223372036854775808"},
		{`{"type":"fixed","name":"F","size":9,"logicalType":"decimal","precision":20,"scale":2}`, "\xff\x7f\xff\xff\xff\xff\xff\xff\xff", "-92233720368547758.09"},
		{`{"type":"bytes","logicalType":"decimal","precision":4,"scale":2}`, "\x00", "0.00"},
		{`{"type":"bytes","logicalType":"decimal","precision":4}`, "\x00", "0"},
	} {
		d := decoder(t, &decode.Options{Format: "avro", Schema: []byte(`{"type":"record","name":"R","fields":[{"name":"a","type":` + tt.typ + `}]}`)}, "a")
		got := ""
		err := d.Decode([]byte(tt.payload), func(doc *decode.Document) error {
			if v := doc.Value(0); v.Kind == decode.Number {
				got = string(v.Bytes)
			}
			return nil
		})
		if err != nil || got != tt.want {
			t.Errorf("%s: got the number %q, %v, want %s", tt.typ, got, err, tt.want)
		}
	}
}
