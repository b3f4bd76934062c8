package columnar

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// TestAppendValueIsInverse: what AppendValue writes is read as the same value, in
// every coding of every type that can be written.
func TestAppendValueIsInverse(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		typ := Type(rapid.IntRange(int(String), int(JSON)).Draw(rt, "type"))
		coding := rapid.SampledFrom(codings[typ]).Draw(rt, "coding")
		v := newVector(typ)
		switch typ {
		case String:
			if err := v.AppendBytes([]byte(rapid.String().Draw(rt, "text"))); err != nil {
				rt.Fatal(err)
			}
		case JSON:
			if err := v.AppendBytes([]byte(rapid.SampledFrom([]string{"1.0", `{"a": []}`}).Draw(rt, "json"))); err != nil {
				rt.Fatal(err)
			}
		case Bytes:
			if err := v.AppendBytes(rapid.SliceOf(rapid.Byte()).Draw(rt, "bytes")); err != nil {
				rt.Fatal(err)
			}
		case Int64:
			v.AppendInt64(rapid.OneOf(rapid.Int64(), rapid.Int64Range(0, 300)).Draw(rt, "int"))
		case Float64:
			v.AppendFloat64(rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{math.Inf(1), math.Inf(-1), math.NaN(), math.Copysign(0, -1)})).Draw(rt, "float"))
		case Bool:
			v.AppendBool(rapid.Bool().Draw(rt, "bool"))
		case Timestamp:
			x := rapid.Int64Range(-62_135_596_800_000_000/1000, 253_402_300_799_999).Draw(rt, "ms") * 1000
			if coding == RFC3339 {
				x += rapid.Int64Range(0, 999).Draw(rt, "micros")
			}
			v.AppendInt64(x)
		}
		b, err := v.AppendValue([]byte("before"), coding, 0)
		if coding == Distinct {
			if err == nil {
				rt.Fatal("a sketch was made of an estimate")
			}
			return
		}
		if err != nil && !fits(&v, coding) {
			return
		}
		if err != nil {
			rt.Fatal(err)
		}
		back := newVector(typ)
		if why := back.appendValue(coding, b[len("before"):]); why != "" {
			rt.Fatalf("%q is not read in coding %v: %s", b, coding, why)
		}
		if d := cmp.Diff(v, back, cmp.AllowUnexported(Vector{}), cmpopts.EquateNaNs(), cmpopts.EquateEmpty()); d != "" {
			rt.Fatalf("coding %v (-want +got)\n%s", coding, d)
		}
	})
}

// fits reports whether the only value of v has bytes in a coding, where not all have.
func fits(v *Vector, c Coding) bool {
	switch c {
	case U8, U16, U32:
		return v.int64s[0] >= 0 && v.int64s[0] < 1<<(8*c.width())
	case U64, Hex:
		return v.typ == Bytes || v.int64s[0] >= 0
	case Fixed:
		return len(v.data) == 0 || v.data[len(v.data)-1] != 0
	}
	return true
}

// TestAppendValueBelowMilliseconds: what a coding has no room for is refused.
func TestAppendValueBelowMilliseconds(t *testing.T) {
	t.Parallel()
	v := newVector(Timestamp)
	for _, x := range []int64{1999, -1, -1000, math.MaxInt64} {
		v.AppendInt64(x)
	}
	for i, x := range v.Int64s() {
		for _, c := range []Coding{Text, Int64BE, I64, ReverseTS} {
			if got, err := v.AppendValue(nil, c, i); (err == nil) != (x == -1000) {
				t.Errorf("%d µs in coding %v: Got %q, %v", x, c, got, err)
			}
		}
	}
	if got, err := v.AppendValue(nil, RFC3339, 3); err == nil {
		t.Errorf("the year 294247: Got %s", got)
	}
}

// TestAppendValueOfOtherText: text and bytes, as files of others have one for the other, are
// written in the coding of the column that they are for.
func TestAppendValueOfOtherText(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		typ   Type
		c     Coding
		value string
		want  string // "" = an error
	}{
		{String, Hex, "a\xff", "61ff"},
		{String, Raw, "a\xff", "a\xff"},
		{Bytes, Reverse, "abü", "üba"},
		{Bytes, Reverse, "a\xff", ""},
		{Bytes, Fixed, "ab", "ab"},
		{Bytes, Fixed, "ab\x00", ""},
		{Bytes, Text, "ab", "ab"},
		{Bytes, Text, "a\xff", ""},
		{String, Text, "a\xff", ""},
		{JSON, Hex, "{}", "7b7d"},
		{JSON, Raw, "{}", "{}"},
		{JSON, Text, "{", ""},
		{JSON, Text, `"\udead"`, ""},
	} {
		v := newVector(tt.typ)
		if err := v.AppendBytes([]byte(tt.value)); err != nil {
			t.Fatal(err)
		}
		if got, err := v.AppendValue(nil, tt.c, 0); (err != nil) != (tt.want == "") || string(got) != tt.want {
			t.Errorf("%v %q in coding %v: Got %q, %v", tt.typ, tt.value, tt.c, got, err)
		}
	}
}
