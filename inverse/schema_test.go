package inverse_test

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/jobs/jobstest"
	"sluice/pipeline/mapping"
	"sluice/rowkey"
)

const viewSchema = `{"type": "record", "name": "View", "fields": [
	{"name": "bot", "type": "boolean"},
	{"name": "n", "type": "int"},
	{"name": "id", "type": ["null", "long"]},
	{"name": "share", "type": "double"},
	{"name": "user", "type": "string"},
	{"name": "raw", "type": "bytes"},
	{"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
	{"name": "long_price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 39, "scale": 0}},
	{"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
	{"name": "exact", "type": {"type": "long", "logicalType": "timestamp-micros"}},
	{"name": "of_day", "type": {"type": "int", "logicalType": "time-millis"}},
	{"name": "level", "type": {"type": "enum", "name": "Level", "symbols": ["low", "high"]}},
	{"name": "either", "type": ["int", "string"]},
	{"name": "items", "type": {"type": "array", "items": {"type": "record", "name": "Item", "fields": [{"name": "sku", "type": "bytes"}, {"name": "count", "type": "int"}]}}}
]}`

// avro appends values in Avro's binary form: numbers, texts, bytes, doubles and booleans.
func avro(dst []byte, values ...any) []byte {
	for _, v := range values {
		switch v := v.(type) {
		case bool:
			b := byte(0)
			if v {
				b = 1
			}
			dst = append(dst, b)
		case int64:
			dst = binary.AppendVarint(dst, v)
		case float64:
			dst = binary.LittleEndian.AppendUint64(dst, math.Float64bits(v))
		case string:
			dst = append(binary.AppendVarint(dst, int64(len(v))), v...)
		case []byte:
			dst = append(binary.AppendVarint(dst, int64(len(v))), v...)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return dst
}

// TestSchemasComeBack: of fields whose type the schema of the records tells, the derived job
// has it.
func TestSchemasComeBack(t *testing.T) {
	t.Parallel()
	spec := &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "avro", Schema: []byte(viewSchema)},
		Rules: []mapping.RuleSpec{{Table: "t", Row: `"r" + u64(offset)`, Put: map[string]map[string]string{"f": {
			"bot": "bot", "n": "n", "id": "id", "share": "share", "user": "user", "raw": "raw", "price": "price", "long_price": "long_price",
			"at": "at", "back": "reverse_ts(at)", "exact": "exact", "of_day": "of_day", "level": "level", "either": "either", "items": "items", "count": "items[0].count",
			"or": `user ?? "none"`, "sum": "n + id", "product": "n * n", "more": `id ?? n`,
		}}}},
	}
	types := map[string]string{
		"bot": "bool", "n": "int64", "id": "int64", "share": "float64", "user": "string", "raw": "bytes", "price": "decimal(9,2)", "long_price": "string",
		"at": "timestamp", "back": "timestamp", "exact": "decimal(19,3)", "of_day": "int64", "level": "string", "either": "string", "items": "json", "count": "int64",
		"or": "string", "sum": "int64", "product": "int64", "more": "int64",
	}
	jobstest.Check(t, func(t *rapid.T) {
		bot, n, id := rapid.Bool().Draw(t, "bot"), int64(rapid.Int32().Draw(t, "n")), rapid.Int64().Draw(t, "id")
		share := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1), math.NaN()})).Draw(t, "share")
		user, raw := rapid.String().Draw(t, "user"), rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "raw")
		cents := int64(rapid.IntRange(-999_999_999, 999_999_999).Draw(t, "cents"))
		at, exact := rapid.Int64Range(0, 253402300799999).Draw(t, "at"), rapid.Int64().Draw(t, "exact")
		price := binary.BigEndian.AppendUint64(nil, uint64(cents))
		value := avro(nil, bot, n, int64(1), id, share, user, raw, price, price, at, exact, int64(7), int64(1), int64(1), "x",
			int64(1), []byte("s\xff"), int64(3), int64(0))
		_, rows := roundTrip(t, spec, eventTable(), []mapping.Record{{Topic: "v", Timestamp: 1, Value: value}})
		if len(rows[0]) != 1 {
			t.Fatalf("Got %v", rows)
		}
		row := rows[0][0]
		for name, want := range map[string]string{
			"bot": fmt.Sprint(bot), "n": fmt.Sprint(n), "id": fmt.Sprint(id), "user": quoted(strings.ToValidUTF8(user, "\uFFFD")), "raw": quoted(raw),
			"price": decimalText(price, 2), "long_price": quoted(fmt.Sprint(cents)), "at": micros(at), "back": micros(at), "exact": thousandths(exact),
			"of_day": "7", "level": quoted("high"), "either": quoted("x"), "items": quoted(`[{"sku":"c/8=","count":3}]`), "count": "3",
			"or": quoted(user), "sum": fmt.Sprint(n + id), "product": fmt.Sprint(n * n), "more": fmt.Sprint(id),
		} {
			if row[name] != want {
				t.Errorf("%s: got %s, want %s", name, row[name], want)
			}
		}
		if got := row["share"]; got != float(share) && !math.IsNaN(share) {
			t.Errorf("share: got %s, want %s", got, float(share))
		}
	})
	derived, _ := roundTrip(t, spec, eventTable(), nil)
	for _, c := range derived[0].Spec.Columns {
		if want, ok := types[c.Name]; ok && c.Type != want {
			t.Errorf("%s: got %s, want %s", c.Name, c.Type, want)
		}
		delete(types, c.Name)
	}
	if len(types) > 0 {
		t.Errorf("No columns %v", types)
	}
}

// thousandths is µs as ms with three digits behind the point.
func thousandths(us int64) string {
	whole, part, sign := us/1000, us%1000, ""
	if us < 0 {
		whole, part, sign = -whole, -part, "-"
	}
	return fmt.Sprintf("%s%d.%03d", sign, uint64(whole), part)
}

// TestElementsComeBack: of the elements of an array, in which bytes are base64, as of fields.
func TestElementsComeBack(t *testing.T) {
	t.Parallel()
	spec := &mapping.Spec{
		Decode: mapping.DecodeSpec{Format: "avro", Schema: []byte(viewSchema)},
		Rules: []mapping.RuleSpec{{Table: "t", ForEach: []string{"item, i in items"}, Row: "u64(offset) + u16(i)", Put: map[string]map[string]string{"f": {
			"sku": "item.sku", "count": "item.count", "place": "i + 1", "item": "item",
		}}}},
	}
	value := avro(nil, false, int64(0), int64(0), 0.5, "u", "", "\x01", "\x01", int64(0), int64(0), int64(0), int64(0), int64(0), int64(0),
		int64(2), []byte("s\xff"), int64(3), []byte("t"), int64(-4), int64(0))
	derived, rows := roundTrip(t, spec, eventTable(), []mapping.Record{{Topic: "v", Offset: 9, Timestamp: 1, Value: value}})
	types := map[string]string{}
	for _, c := range derived[0].Spec.Columns {
		types[c.Name] = c.Type
	}
	want := []map[string]string{
		{"row": quoted("\x00\x00\x00\x00\x00\x00\x00\x09\x00\x00"), "offset": "9", "i": "0", "sku": `"c/8="`, "count": "3", "place": "1", "item": quoted(`{"sku":"c/8=","count":3}`), "timestamp": "1000"},
		{"row": quoted("\x00\x00\x00\x00\x00\x00\x00\x09\x00\x01"), "offset": "9", "i": "1", "sku": `"dA=="`, "count": "-4", "place": "2", "item": quoted(`{"sku":"dA==","count":-4}`), "timestamp": "1000"},
	}
	if d := cmp.Diff(want, rows[0]); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	if d := cmp.Diff(map[string]string{"row": "bytes", "offset": "int64", "i": "int64", "sku": "string", "count": "int64", "place": "int64", "item": "json", "timestamp": "timestamp"}, types); d != "" {
		t.Errorf("types (-want +got):\n%s", d)
	}
}

// TestFormatsComeBack: what the formats that have no schema tell of their fields.
func TestFormatsComeBack(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		decode  mapping.DecodeSpec
		payload string
		columns string   // name: expression
		want    []string // type and value
	}{
		{mapping.DecodeSpec{Format: "csv", Columns: []string{"user", "n"}}, `"ann",7`, "a user, b n, c int(n)", []string{"string " + quoted("ann"), `string "7"`, "int64 7"}},
		{mapping.DecodeSpec{Format: "tsv", Columns: []string{"user", "n"}}, "\\N\t7", "a user, b n, c n+n", []string{"string null", `string "7"`, `string "77"`}},
		{mapping.DecodeSpec{Format: "logfmt"}, `level=info took="1 s"`, "a level, b took, c missing", []string{`string "info"`, `string "1 s"`, "string null"}},
		{mapping.DecodeSpec{Format: "raw"}, "\x00\xff", "a payload, b value, c hash32_hex(payload)", []string{"bytes " + quoted("\x00\xff"), "bytes " + quoted("\x00\xff"), "string " + quoted(fmt.Sprintf("%08x", rowkey.Hash32([]byte("\x00\xff"))))}},
		{
			mapping.DecodeSpec{Format: "combined"},
			`::1 - - [17/May/2015:10:05:03 +0000] "GET /a?b=1 HTTP/1.1" 304 - "-" "curl/8"`,
			"a client, b status, c bytes, d doc.time, e agent, f user",
			[]string{`string "::1"`, "int64 304", "int64 null", "timestamp 1431857103000000", `string "curl/8"`, "string null"},
		},
		{mapping.DecodeSpec{Format: "ndjson"}, `{"a":{"b":[1.50,true]}}`, "a doc.a.b[0], b doc.a.b[1], c doc.a", []string{`string "1.50"`, `string "true"`, "string " + quoted(`{"b":[1.50,true]}`)}},
	} {
		put := map[string]string{}
		for column := range strings.SplitSeq(tt.columns, ", ") {
			name, expression, _ := strings.Cut(column, " ")
			put[name] = expression
		}
		spec := &mapping.Spec{Decode: tt.decode, Rules: []mapping.RuleSpec{{Table: "t", Row: "topic", Put: map[string]map[string]string{"f": put}}}}
		derived, rows := roundTrip(t, spec, eventTable(), []mapping.Record{{Topic: "v", Timestamp: 1, Value: []byte(tt.payload)}})
		var got []string
		for _, c := range derived[0].Spec.Columns {
			if strings.HasPrefix(c.From, "f:") && len(rows[0]) == 1 {
				got = append(got, c.Type+" "+rows[0][0][c.Name])
			}
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%s (-want +got):\n%s", tt.decode.Format, d)
		}
	}
}
