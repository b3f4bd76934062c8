package hbasestore

import (
	"bytes"
	"errors"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// TestCellSize: HBase's servers count 4 bytes more of a cell than its gateways. A cell that
// they would refuse is refused before any row of its record is written.
func TestCellSize(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	ctx := t.Context()
	for _, d := range []*store.TableDescriptor{
		{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f")}},
		{Name: "small", Families: []store.FamilyDescriptor{store.NewFamily("f")}, MaxCellBytes: 100},
	} {
		if err := s.CreateTable(ctx, d, nil); err != nil {
			t.Fatal(err)
		}
	}
	for table, limit := range map[string]int{"t": store.DefaultMaxCellBytes, "small": 100} {
		key := 4 + 20 + len("row") + len("f") + len("q")
		for _, more := range []int{0, 1, 4} {
			var b store.Batch
			first := cell.Mutation{Table: "t", Row: []byte("first of " + table)}
			first.Put("f", []byte("q"), 1, []byte("v"))
			large := cell.Mutation{Table: table, Row: []byte("row")}
			large.Put("f", []byte("q"), 1, bytes.Repeat([]byte("x"), limit-key+more))
			b.Add(7, first)
			b.Add(7, large)
			puts := g.count("putMultiple") + g.count("put")
			err := s.Apply(ctx, &b)
			puts = g.count("putMultiple") + g.count("put") - puts
			var refused *store.BatchError
			switch {
			case more == 0 && err != nil:
				t.Errorf("%s: Got %v of the largest cell", table, err)
			case more > 0 && (!errors.As(err, &refused) || len(refused.Refused) != 1 || !errors.Is(refused.Refused[0].Err, store.ErrCellTooLarge) || puts != 0):
				t.Errorf("%s, %d bytes more: Got %.200v and %d calls that put, want a cell that is too large and none", table, more, err, puts)
			}
		}
	}
}
