package columnar

import (
	"strconv"
	"testing"
)

// TestFieldID: published files have these numbers, so that they are the same for ever.
func TestFieldID(t *testing.T) {
	counts, _ := Map(Int64)
	price, _ := ParseType("decimal(10,2)")
	for _, c := range []struct {
		name string
		t    Type
		want int32
	}{{"page", String, 1067563868}, {"page", JSON, 920196506}, {"", Bytes, 557768461}, {"price", price, 1024968357}, {"rest", counts, 88172742}} {
		if got := FieldID(c.name, c.t); got != c.want {
			t.Errorf("FieldID(%q, %v) = %d, want %d", c.name, c.t, got, c.want)
		}
	}
	key, value := EntryIDs("rest", counts)
	if key != 943184108 || value != 234318874 {
		t.Errorf("EntryIDs = %d, %d, want 943184108, 234318874", key, value)
	}
}

// TestFieldIDBounds: numbers are from 1 to 2³⁰-1, and 1,000 columns have 1,000 of them.
func TestFieldIDBounds(t *testing.T) {
	seen := map[int32]string{}
	for i := range 1_000 {
		name := "column" + strconv.Itoa(i)
		id := FieldID(name, Int64)
		if id < 1 || id > maxFieldID {
			t.Fatalf("FieldID(%q) = %d", name, id)
		}
		if other, ok := seen[id]; ok {
			t.Errorf("%s and %s have the number %d", name, other, id)
		}
		seen[id] = name
	}
}
