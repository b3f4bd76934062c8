package columnar

import (
	"bytes"
	"cmp"
	"math"
	"testing"

	"pgregory.net/rapid"
)

// TestOrder: values compare as the order says, whatever is appended behind them.
func TestOrder(t *testing.T) {
	t.Parallel()
	nan2 := math.Float64frombits(math.Float64bits(math.NaN()) | 1<<63 | 7)
	for _, c := range []struct {
		name string
		typ  Type
		add  []func(*Vector) // ascending, one of each group
	}{
		{"int64", Int64, []func(*Vector){
			func(v *Vector) { v.AppendInt64(math.MinInt64) }, func(v *Vector) { v.AppendInt64(-1) }, func(v *Vector) { v.AppendInt64(0) },
			func(v *Vector) { v.AppendInt64(1) }, func(v *Vector) { v.AppendInt64(math.MaxInt64) },
		}},
		{"float64", Float64, []func(*Vector){
			func(v *Vector) { v.AppendFloat64(math.Inf(-1)) }, func(v *Vector) { v.AppendFloat64(-1.5) }, func(v *Vector) { v.AppendFloat64(-5e-324) },
			func(v *Vector) { v.AppendFloat64(0) }, func(v *Vector) { v.AppendFloat64(5e-324) }, func(v *Vector) { v.AppendFloat64(2) },
			func(v *Vector) { v.AppendFloat64(math.Inf(1)) }, func(v *Vector) { v.AppendFloat64(math.NaN()) },
		}},
		{"bool", Bool, []func(*Vector){func(v *Vector) { v.AppendBool(false) }, func(v *Vector) { v.AppendBool(true) }}},
		{"bytes", Bytes, []func(*Vector){
			text(""), text("\x00"), text("\x00\x00"), text("\x00\x01"), text("\x00\xff"), text("\x01"), text("a"), text("a\x00"), text("a\x00b"), text("ab"), text("\xff"), text("\xff\xff"),
		}},
	} {
		v := newVector(c.typ)
		for _, add := range c.add {
			add(&v)
		}
		v.AppendNull()
		null := v.n - 1
		for i := range v.n {
			for j := range v.n {
				for _, o := range []Order{{}, {Descending: true}, {NullsFirst: true}, {Descending: true, NullsFirst: true}} {
					want := cmp.Compare(i, j)
					switch {
					case i != null && j != null && o.Descending, i != j && (i == null || j == null) && o.NullsFirst:
						want = -want
					}
					a, b := append(o.AppendTo(nil, &v, i), 0xff), append(o.AppendTo(nil, &v, j), 0)
					if i == j {
						b[len(b)-1] = 0xff
					}
					if got := bytes.Compare(a, b); got != want {
						t.Errorf("%s %s: values %d and %d: Got %d, want %d", c.name, o, i, j, got, want)
					}
				}
			}
		}
	}
	v := newVector(Float64)
	for _, x := range []float64{0, math.Copysign(0, -1), math.NaN(), nan2} {
		v.AppendFloat64(x)
	}
	for _, pair := range [][2]int{{0, 1}, {2, 3}} {
		if a, b := (Order{}).AppendTo(nil, &v, pair[0]), (Order{}).AppendTo(nil, &v, pair[1]); !bytes.Equal(a, b) {
			t.Errorf("Got %x and %x for what is equal", a, b)
		}
	}
}

func text(s string) func(*Vector) {
	return func(v *Vector) { _ = v.AppendBytes([]byte(s)) }
}

// TestTextKey: a text is found again in front of whatever follows.
func TestTextKey(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		bytesOf := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 1, 2, 'a', 0xff}), 0, 8)
		a, b, behind := bytesOf.Draw(t, "a"), bytesOf.Draw(t, "b"), bytesOf.Draw(t, "behind")
		keyA, keyB := AppendTextKey(nil, a), AppendTextKey(nil, b)
		text, rest, ok := CutTextKey(append(bytes.Clone(keyA), behind...))
		if !ok || !bytes.Equal(text, keyA) || !bytes.Equal(rest, behind) {
			t.Errorf("Got %x, %x, %t", text, rest, ok)
		}
		if got, want := bytes.Compare(append(keyA, behind...), append(keyB, 0xff)), bytes.Compare(a, b); want != 0 && got != want {
			t.Errorf("%x and %x: Got %d, want %d", a, b, got, want)
		}
	})
	for _, bad := range []string{"", "a", "a\x00", "a\x00\xff"} {
		if _, _, ok := CutTextKey([]byte(bad)); ok {
			t.Errorf("%q: Got a text", bad)
		}
	}
}

// TestSortable: of the types, JSON and maps have no order.
func TestSortable(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{"string": true, "bytes": true, "bool": true, "timestamp": true, "decimal(9,2)": true, "decimal(38,2)": true, "json": false, "map": false, "map(int64)": false} {
		typ, ok := ParseType(name)
		if !ok || typ.Sortable() != want {
			t.Errorf("%s: Got %t, %t", name, typ.Sortable(), ok)
		}
	}
}
