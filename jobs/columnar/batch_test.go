package columnar_test

import (
	"crypto/sha256"
	"testing"

	"sluice/jobs/columnar"
)

// TestHashTo: equal batches have equal hashes, whatever was in their memory before,
// and what differs in a value, a null or where one value ends has another.
func TestHashTo(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{
		{Name: "s", Type: columnar.String, Nullable: true},
		{Name: "t", Type: columnar.Bytes, Nullable: true},
		{Name: "n", Type: columnar.Int64, Nullable: true},
		{Name: "f", Type: columnar.Float64, Nullable: true},
		{Name: "b", Type: columnar.Bool, Nullable: true},
	}
	type row struct {
		s, t string
		n    int64
		f    float64
		b    bool
		null int // the column that is null; -1 = none
	}
	fill := func(b *columnar.Batch, rows ...row) *columnar.Batch {
		b.Reset()
		for _, r := range rows {
			for i := range columns {
				v := b.Vector(i)
				var err error
				switch {
				case i == r.null:
					v.AppendNull()
				case i == 0:
					err = v.AppendBytes([]byte(r.s))
				case i == 1:
					err = v.AppendBytes([]byte(r.t))
				case i == 2:
					v.AppendInt64(r.n)
				case i == 3:
					v.AppendFloat64(r.f)
				default:
					v.AppendBool(r.b)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		return b
	}
	sum := func(b *columnar.Batch) string {
		h := sha256.New()
		b.HashTo(h)
		return string(h.Sum(nil))
	}
	one := row{"ab", "c", 1, 2, true, -1}
	want := sum(fill(columnar.NewBatch(columns), one, one))
	used := fill(columnar.NewBatch(columns), row{"x", "yz", 9, 9, true, 2}, row{"", "", 9, 9, true, 4}, one)
	if sum(fill(used, one, one)) != want {
		t.Error("Got another hash in memory that was used before")
	}
	for name, other := range map[string]row{
		"text": {"ac", "c", 1, 2, true, -1}, "where a text ends": {"a", "bc", 1, 2, true, -1}, "number": {"ab", "c", 2, 2, true, -1},
		"float": {"ab", "c", 1, 3, true, -1}, "bool": {"ab", "c", 1, 2, false, -1},
	} {
		if sum(fill(used, one, other)) == want {
			t.Errorf("%s: Got the same hash", name)
		}
	}
	if sum(fill(used, one)) == want || sum(fill(used, one, row{"ab", "c", 0, 2, true, 2})) == sum(fill(used, one, row{"ab", "c", 0, 2, true, -1})) {
		t.Error("Got the same hash for fewer rows, or a null in place of 0")
	}
}
