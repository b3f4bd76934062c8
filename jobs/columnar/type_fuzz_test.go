package columnar

import (
	"testing"

	"github.com/apache/arrow/go/v15/arrow"
)

// FuzzParseType: a type is spelled in one way by String, which is read as that type, and has
// an Arrow type and a storage.
func FuzzParseType(f *testing.F) {
	for _, s := range []string{"string", "json", "timestamp", "map", "map(string)", "map(int64)", "map(float64)", "decimal(38,2)", "decimal(18, 18)", "decimal(0,0)", "decimal(1,2)", "map(map)", "", "Type(0)"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := ParseType(s)
		if !ok {
			return
		}
		if again, ok := ParseType(got.String()); !ok || again != got {
			t.Errorf("%q is %v, which is read as %v, %v", s, got, again, ok)
		}
		if got.Arrow() == arrow.Null {
			t.Errorf("%q has no Arrow type", s)
		}
		if p, scale, ok := got.Decimal(); ok && (p < 1 || p > 38 || scale < 0 || scale > p) {
			t.Errorf("%q: Got precision %d, scale %d", s, p, scale)
		}
		_ = got.Storage()
	})
}
