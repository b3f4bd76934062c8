package mapping_test

import (
	"strings"
	"testing"

	"sluice/pipeline/mapping"
)

// TestRFC3339 maps event times that are of RFC 3339, and some that nearly are.
func TestRFC3339(t *testing.T) {
	t.Parallel()
	plan, err := mapping.Compile(&mapping.Spec{
		Decode:    mapping.DecodeSpec{Format: "json"},
		EventTime: mapping.EventTimeSpec{Field: "ts", Format: "rfc3339"},
		Rules:     []mapping.RuleSpec{{Table: "t", Row: `"r"`, Put: put("time")}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := plan.NewMapper()
	for text, want := range map[string]string{
		"2015-05-17T10:05:03Z":                "1431857103000",
		"2015-05-17T10:05:03.1Z":              "1431857103100",
		"2015-05-17T10:05:03.123456789012Z":   "1431857103123",
		"2015-05-17T10:05:03.9999999999Z":     "1431857103999",
		"2015-05-17T10:05:03+23:59":           "1431770763000",
		"2015-05-17T10:05:03.5-23:59":         "1431943443500",
		"1970-01-01T00:00:00-00:00":           "0",
		"9999-12-31T23:59:59.999Z":            "253402300799999",
		"2016-02-29T00:00:00Z":                "1456704000000",
		"2015-05-17T10:05:03+24:00":           "",
		"2015-05-17T10:05:03-24:00":           "",
		"2015-05-17T10:05:03+24:60":           "",
		"2015-05-17T10:05:03+23:60":           "",
		"2015-05-17T1:05:03Z":                 "",
		"2015-05-17T1:05:03+01:00":            "",
		"2015-05-17T10:05:03,5Z":              "",
		"2015-05-17T10:05:03,5+24:00":         "",
		"2015-05-17T10:05:60Z":                "",
		"2015-05-17T24:00:00Z":                "",
		"2015-13-17T10:05:03Z":                "",
		"2015-02-29T10:05:03Z":                "",
		"2015-05-00T10:05:03Z":                "",
		"2015-05-17T10:05:03":                 "",
		"2015-05-17T10:05:03.Z":               "",
		"2015-05-17 10:05:03Z":                "",
		"2015-05-17T10:05:03+0100":            "",
		"10000-01-01T00:00:00Z":               "",
		"1969-12-31T23:59:59.999Z":            "",
		"0001-01-01T00:00:00Z":                "",
		"":                                    "",
		"2015-05-17T10:05:03Z" + "\u00a0":     "",
		" 2015-05-17T10:05:03Z":               "",
		strings.Repeat("2", 30):               "",
		"2015-05-17T10:05:03.123456789+01:00": "1431853503123",
	} {
		out, err := m.Map(&mapping.Record{Value: []byte(`{"ts":"` + text + `"}`)})
		switch {
		case err != nil && want != "":
			t.Errorf("%q: got %v, want %s", text, err, want)
		case err != nil && !strings.Contains(err.Error(), "bad_time"):
			t.Errorf("%q: got %v, want the class bad_time", text, err)
		case err == nil && string(out.Mutations[0].Ops[0].Value) != want:
			t.Errorf("%q: got %s, want %q", text, out.Mutations[0].Ops[0].Value, want)
		}
	}
}
