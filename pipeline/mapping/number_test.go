package mapping_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline/mapping"
)

// TestWholeNumbers maps whole numbers of more digits than a double has, spelled with a point or
// an exponent: decimals of databases come so, with all of their scale.
func TestWholeNumbers(t *testing.T) {
	t.Parallel()
	tests := []struct{ number, want string }{
		{"9007199254740993", "9007199254740993"},
		{"9007199254740993.00", "9007199254740993"},
		{"-9007199254740993.00", "-9007199254740993"},
		{"9007199254740993e0", "9007199254740993"},
		{"900719925474099300E-2", "9007199254740993"},
		{"9007199254740.993e+3", "9007199254740993"},
		{"0.0001234567890123456789e22", "1234567890123456789"},
		{"1234567890123456789.0000000000", "1234567890123456789"},
		{"9223372036854775807.0", "9223372036854775807"},
		{"-9223372036854775808.0", "-9223372036854775808"},
		{"1e18", "1000000000000000000"},
		{"3.0", "3"},
		{"9223372036854775808.0", "map: bad_value: map[0].increment[0]: 9.223372036854776e+18 is no integer of 8 bytes"},
		{"-9223372036854775809.0", "map: bad_value: map[0].increment[0]: -9.223372036854776e+18 is no integer of 8 bytes"},
		{"9007199254740993.5e-1", "map: bad_value: map[0].increment[0]: 9.007199254740994e+14 is no integer of 8 bytes"},
	}
	for _, by := range []string{"a", "true ? a : 1", "[a][0]"} { // as direct code and by the machine
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, Increment: []mapping.IncrementSpec{{Family: "c", Qualifier: `"x"`, By: by}}}))
		for _, tt := range tests {
			want := tt.want
			if want[0] != 'm' {
				want = "t \"r\"\n  increment c:x @1000 by " + want + "\n"
			}
			if diff := cmp.Diff(want, show(t, m, `{"a":`+tt.number+`}`)); diff != "" {
				t.Errorf("by %s of %s (-want +got):\n%s", by, tt.number, diff)
			}
		}
	}
	for _, when := range []string{"a == 9007199254740993", "true ? a == 9007199254740993 : false", "any(b, # == 9007199254740993)"} {
		m := compile(t, jsonSpec(mapping.RuleSpec{Table: "t", Row: `"r"`, When: when, Put: put("a")}))
		for payload, want := range map[string]bool{
			`{"a":9007199254740993.0,"b":[9007199254740993.0]}`: true,
			`{"a":9007199254740994.0,"b":[9007199254740994.0]}`: false,
		} {
			out, err := m.Map(&mapping.Record{Value: []byte(payload)})
			if err != nil || out.Filtered() == want {
				t.Errorf("%s of %s: got filtered=%v, %v", when, payload, out.Filtered(), err)
			}
		}
	}
}
