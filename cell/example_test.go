package cell_test

import (
	"bytes"
	"fmt"
	"slices"

	"sluice/cell"
)

// Stored keys compare as cells do: rows and qualifiers ascending, the newest
// version first.
func Example() {
	var keys [][]byte
	for _, k := range []cell.Key{
		{Row: []byte("/cart"), Qualifier: []byte("views"), Time: 10, Sequence: 1},
		{Row: []byte("/"), Qualifier: []byte("views"), Time: 10, Sequence: 2},
		{Row: []byte("/"), Qualifier: []byte("views"), Time: 20, Sequence: 3},
		{Row: []byte("/"), Qualifier: []byte("title"), Time: 10, Sequence: 4},
	} {
		k.Tag, k.Table, k.Family, k.Kind = cell.TagData, 1, 1, cell.KindPut
		keys = append(keys, cell.AppendKey(nil, &k))
	}
	slices.SortFunc(keys, bytes.Compare)
	var k cell.Key
	var scratch []byte
	for _, key := range keys {
		var err error
		if scratch, err = cell.DecodeKey(&k, key, scratch); err != nil {
			fmt.Println(err)
			return
		}
		fmt.Printf("%s %s@%d\n", k.Row, k.Qualifier, k.Time)
	}
	// Output:
	// / title@10
	// / views@20
	// / views@10
	// /cart views@10
}

func ExamplePrefixEnd() {
	day := []byte("2026-11-29/")
	rows := cell.Range{Start: day, Stop: cell.PrefixEnd(day)}
	fmt.Printf("[%s, %s)\n", rows.Start, rows.Stop)
	// Output: [2026-11-29/, 2026-11-290)
}
