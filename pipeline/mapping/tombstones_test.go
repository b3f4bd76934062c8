package mapping_test

import (
	"errors"
	"strings"
	"testing"

	"sluice/pipeline/mapping"
)

// tombstoneSpec are rules that put a row of each record, and delete it where there is no
// payload.
func tombstoneSpec(d mapping.DecodeSpec) *mapping.Spec {
	return &mapping.Spec{
		Decode:    d,
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "unix_ms"},
		Rules: []mapping.RuleSpec{
			{Table: "t", Row: "key", When: "value != nil", Put: put("name")},
			{Table: "t", Row: "key", When: "value == nil", Delete: []mapping.DeleteSpec{{What: "row"}}},
			{Table: "log", Row: `coalesce(name, "gone")`, Put: put(`value == nil ? "tombstone" : "document"`)},
		},
	}
}

func TestTombstones(t *testing.T) {
	t.Parallel()
	const (
		row     = "t \"k\"\n  put e:q @5 \"n\"\nlog \"n\"\n  put e:q @5 \"document\"\n"
		deleted = "t \"k\"\n  DeleteRow\nlog \"gone\"\n  put e:q @1000 \"tombstone\"\n"
		empty   = "decode: json: byte 0: the payload is empty"
	)
	for _, tt := range []struct {
		tombstones, tombstone, empty string
	}{
		{"", empty, empty},
		{"refuse", empty, empty},
		{"skip", "", empty},
		{"map", deleted, empty},
	} {
		m := compile(t, tombstoneSpec(mapping.DecodeSpec{Format: "json", Tombstones: tt.tombstones}))
		// In turn, as nothing of one record is seen in the next.
		for range 2 {
			for _, r := range []struct {
				value []byte
				want  string
			}{{[]byte(`{"name":"n","ts":5}`), row}, {nil, tt.tombstone}, {[]byte{}, tt.empty}} {
				got := ""
				out, err := m.Map(&mapping.Record{Topic: "t", Timestamp: 1000, Key: []byte("k"), Value: r.value})
				switch {
				case err != nil:
					got = err.Error()
				case out.Filtered() != (r.want == ""):
					t.Errorf("%q, payload %q: filtered %t", tt.tombstones, r.value, out.Filtered())
				default:
					got = dump(out)
				}
				if got != r.want {
					t.Errorf("%q, payload %q:\n%s\nwant:\n%s", tt.tombstones, r.value, got, r.want)
				}
				m.Release()
			}
		}
	}
}

// A tombstone is none of a schema, is not compressed, and raw takes it where nothing else
// is said.
func TestTombstonesOfFormats(t *testing.T) {
	t.Parallel()
	schema := []byte(`{"type":"record","name":"R","fields":[{"name":"name","type":"string"},{"name":"ts","type":"long"}]}`)
	for _, d := range []mapping.DecodeSpec{
		{Format: "avro", Schema: schema},
		{Format: "avro", Framing: "container"},
		{Format: "json", Compression: "zstd"},
		{Format: "json", Compression: "gzip"},
		{Format: "csv", Columns: []string{"name", "ts"}},
		{Format: "ndjson"},
	} {
		d.Tombstones = "map"
		out, err := compile(t, tombstoneSpec(d)).Map(&mapping.Record{Topic: "t", Timestamp: 1000, Key: []byte("k")})
		if err != nil {
			t.Errorf("%+v: %v", d, err)
			continue
		}
		if got := dump(out); !strings.Contains(got, "DeleteRow") || !strings.Contains(got, `"tombstone"`) {
			t.Errorf("%+v:\n%s", d, got)
		}
	}
	for tombstones, want := range map[string]string{"": "t \"r\"\n  put e:q @1000 \"none\"\n", "map": "t \"r\"\n  put e:q @1000 \"none\"\n", "skip": ""} {
		m := compile(t, &mapping.Spec{
			Decode: mapping.DecodeSpec{Format: "raw", Tombstones: tombstones},
			Rules:  []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put(`coalesce(payload, "none")`)}},
		})
		out, err := m.Map(&mapping.Record{Topic: "t", Timestamp: 1000})
		if err != nil {
			t.Errorf("raw, %q: %v", tombstones, err)
		} else if got := dump(out); got != want {
			t.Errorf("raw, %q: got %q, want %q", tombstones, got, want)
		}
	}
}

func TestTombstonesAreOfTheVersion(t *testing.T) {
	t.Parallel()
	versions := map[string][]string{}
	for _, tombstones := range []string{"", "refuse", "skip", "map"} {
		p, err := mapping.Compile(tombstoneSpec(mapping.DecodeSpec{Format: "json", Tombstones: tombstones}), nil)
		if err != nil {
			t.Fatal(err)
		}
		versions[p.Version()] = append(versions[p.Version()], tombstones)
	}
	if len(versions) != 3 {
		t.Errorf("Got %v: only the first two are the same", versions)
	}
	_, err := mapping.Compile(tombstoneSpec(mapping.DecodeSpec{Format: "json", Tombstones: "mapp"}), nil)
	var e *mapping.SpecError
	if !errors.As(err, &e) || e.Path != "decode.tombstones" || !strings.Contains(e.Hint, "map") {
		t.Errorf("Got %v, which says %+v", err, e)
	}
}
