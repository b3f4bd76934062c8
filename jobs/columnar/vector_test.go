package columnar_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs/columnar"
	"sluice/jobs/columnar/columnartest"
)

// TestAppendMany: many values appended at once are those appended one by one, nulls
// before, between and after them.
func TestAppendMany(t *testing.T) {
	t.Parallel()
	columns := []columnar.Column{
		{Name: "n", Type: columnar.Int64, Nullable: true},
		{Name: "f", Type: columnar.Float64, Nullable: true},
		{Name: "s", Type: columnar.String, Nullable: true},
		{Name: "d", Type: columnar.Bytes, Nullable: true},
	}
	text, starts := "redgreen", []uint32{0, 3, 3, 8}
	for nulls := range 4 {
		many, single := columnar.NewBatch(columns), columnar.NewBatch(columns)
		for round := range 9 {
			for i := range columns {
				for range nulls * (round % 3) {
					many.Vector(i).AppendNull()
					single.Vector(i).AppendNull()
				}
			}
			ints, floats := []int64{1, math.MinInt64, int64(round)}, []float64{0, -1, math.Inf(1)}
			many.Vector(0).AppendInt64s(ints)
			many.Vector(1).AppendFloat64s(floats)
			if err := many.Vector(2).AppendText([]byte("x"+text), []uint32{1, 4, 4, 9}); err != nil {
				t.Fatal(err)
			}
			if err := many.Vector(3).AppendIndexed([]byte(text), starts, []int32{2, 0, 1}); err != nil {
				t.Fatal(err)
			}
			for i := range 3 {
				single.Vector(0).AppendInt64(ints[i])
				single.Vector(1).AppendFloat64(floats[i])
				_ = single.Vector(2).AppendBytes([]byte([]string{"red", "", "green"}[i]))
				_ = single.Vector(3).AppendBytes([]byte([]string{"green", "red", ""}[i]))
			}
		}
		if d := cmp.Diff(columnartest.Texts(single), columnartest.Texts(many)); d != "" {
			t.Errorf("%d nulls: (-one by one +many):\n%s", nulls, d)
		}
	}
}

// TestAppendDamaged: text at offsets that make no sense is refused, and none of it is
// appended.
func TestAppendDamaged(t *testing.T) {
	t.Parallel()
	for i, offsets := range [][]uint32{{0, 4}, {2, 1}, {0, 2, 1, 3}, {math.MaxUint32, 1}, {0, math.MaxUint32}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			b := columnar.NewBatch([]columnar.Column{{Name: "s", Type: columnar.String}})
			if err := b.Vector(0).AppendText(append(make([]byte, 0, 9), "abc"...), offsets); err == nil {
				t.Error("AppendText took it")
			}
			numbers := []int32{-1, int32(len(offsets) - 1), 0}[min(i, 2):]
			if err := b.Vector(0).AppendIndexed([]byte("a"), append(offsets, 0), numbers); err == nil {
				t.Error("AppendIndexed took it")
			}
			if n := b.Vector(0).Len(); n != 0 || b.Rows() != 0 {
				t.Errorf("%d values were appended", n)
			}
			if err := b.Vector(0).AppendText([]byte("abc"), []uint32{0, 3}); err != nil || string(b.Vector(0).Bytes(0)) != "abc" {
				t.Errorf("Got %v after a refusal", err)
			}
		})
	}
}
