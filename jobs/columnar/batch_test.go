package columnar_test

import (
	"crypto/sha256"
	"errors"
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

// TestMoveFrom: rows that are moved are those behind the others of both batches, with
// their nulls, and what is appended afterwards is what it is.
func TestMoveFrom(t *testing.T) {
	t.Parallel()
	m, _ := columnar.Map(columnar.Int64)
	wide, _ := columnar.Decimal(30, 2)
	var columns []columnar.Column
	for i, typ := range []columnar.Type{columnar.String, columnar.Int64, columnar.Float64, columnar.Bool, wide, m} {
		columns = append(columns, columnar.Column{Name: string(rune('a' + i)), Type: typ, Nullable: true})
	}
	add := func(b *columnar.Batch, column, n int) {
		v := b.Vector(column)
		var err error
		switch {
		case n%3 == column%3:
			v.AppendNull()
		case v.Type() == columnar.String:
			err = v.AppendBytes(make([]byte, n%7))
		case v.Type() == columnar.Int64:
			v.AppendInt64(int64(n))
		case v.Type() == columnar.Float64:
			v.AppendFloat64(float64(n))
		case v.Type() == columnar.Bool:
			v.AppendBool(n%2 == 0)
		case v.Type() == wide:
			v.AppendDecimal(columnar.NewInt128(int64(n), 1))
		default:
			for e := range n % 4 {
				err = errors.Join(err, v.Keys().AppendBytes([]byte{byte(e)}))
				if e == 1 {
					v.Values().AppendNull()
				} else {
					v.Values().AppendInt64(int64(n))
				}
			}
			err = errors.Join(err, v.AppendEntries())
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	sum := func(b *columnar.Batch) string {
		h := sha256.New()
		b.HashTo(h)
		return string(h.Sum(nil))
	}
	for rows := range 20 {
		for n := range rows + 1 {
			from, to := columnar.NewBatch(columns), columnar.NewBatch(columns)
			wantFrom, wantTo := columnar.NewBatch(columns), columnar.NewBatch(columns)
			for column := range columns {
				for i := range 5 {
					add(to, column, i)
					add(wantTo, column, i)
				}
				for i := range rows + column { // some are further ahead
					add(from, column, i)
					if i < n {
						add(wantFrom, column, i)
					} else {
						add(wantTo, column, i)
					}
				}
			}
			if err := from.MoveFrom(n, to); err != nil {
				t.Fatal(err)
			}
			for column := range columns {
				for i := range 9 {
					add(from, column, i)
					add(wantFrom, column, i)
					add(to, column, i)
					add(wantTo, column, i)
				}
			}
			if sum(from) != sum(wantFrom) {
				t.Errorf("%d of %d rows: what stays is not what was there", n, rows)
			}
			if sum(to) != sum(wantTo) {
				t.Errorf("%d of %d rows: what is moved is not what was there", n, rows)
			}
			for column := range columns {
				if got, want := from.Vector(column).Nulls(), wantFrom.Vector(column).Nulls(); got != want {
					t.Errorf("%d of %d rows, column %d: Got %d nulls, want %d", n, rows, column, got, want)
				}
			}
		}
	}
}
