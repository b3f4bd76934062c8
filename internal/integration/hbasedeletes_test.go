//go:build integration

package integration

import (
	"fmt"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestHBaseBatchOfDeletes: deletes of many rows in one batch, of every kind that may be
// repeated, are HBase's to the cell, and those that come late delete nothing newer.
func TestHBaseBatchOfDeletes(t *testing.T) {
	s := openHBase(t, hbaseAddress(t), nil)
	emptyHBase(t, s)
	f := store.NewFamily("f")
	f.Versions = 3
	d := &store.TableDescriptor{Name: "deletes", Families: []store.FamilyDescriptor{f, store.NewFamily("g")}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("r300"), []byte("r600")}); err != nil {
		t.Fatal(err)
	}
	const rows = 1000
	var fill, deletes store.Batch
	want := map[string]bool{}
	for i := range rows {
		row := fmt.Sprintf("r%03d", i)
		m := cell.Mutation{Table: "deletes", Row: []byte(row)}
		m.Put("f", []byte("q"), 10, []byte("old"))
		m.Put("f", []byte("q"), 30, []byte("new"))
		m.Put("g", []byte("q"), 10, []byte("other"))
		fill.Add(-1, m)
		del := cell.Mutation{Table: "deletes", Row: []byte(row)}
		left := []string{"f@30=new", "f@10=old", "g@10=other"}
		switch i % 5 {
		case 0:
			del.DeleteRow(20)
			left = left[:1]
		case 1:
			del.DeleteFamily("g", 20)
			left = left[:2]
		case 2:
			del.DeleteColumn("f", []byte("q"), 20)
			left = []string{left[0], left[2]}
		case 3:
			del.Delete("f", []byte("q"), 30)
			left = left[1:]
		case 4:
			del.DeleteFamilyVersion("f", 10)
			left = []string{left[0], left[2]}
		}
		deletes.Add(-1, del)
		for _, c := range left {
			want[row+" "+c] = true
		}
	}
	for _, b := range []*store.Batch{&fill, &deletes, &deletes} { // twice, as after a lost reply
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	sc := s.Scan(t.Context(), &store.Scan{Table: "deletes", Versions: 3})
	defer sc.Close()
	for sc.Next() {
		r := sc.Row()
		for i := range r.Cells {
			c := &r.Cells[i]
			at := fmt.Sprintf("%s %s@%d=%s", r.Key, c.Family, c.Time, c.Value)
			if !want[at] {
				t.Errorf("Got %s, or got it twice", at)
			}
			delete(want, at)
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	for at := range want {
		t.Errorf("Got no %s", at)
	}
}
