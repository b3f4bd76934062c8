package buffer_test

import (
	"context"
	"fmt"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/store"
)

// Two records become one row each and count one page twice; the batch stores how
// far the partition is.
func Example() {
	ctx := context.Background()
	b, err := buffer.New(nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	b.Start(100, buffer.Mark{Offset: 99})
	for offset := int64(100); offset < 102; offset++ {
		view := cell.Mutation{Table: "events", Row: fmt.Appendf(nil, "user/%d", offset)}
		view.Put("e", []byte("page"), 1_700_000_000_000, []byte("/home"))
		count := cell.Mutation{Table: "counts", Row: []byte("/home")}
		count.Increment("day", []byte("20231114"), 1)
		if err := b.Add(ctx, offset, []cell.Mutation{view, count}); err != nil {
			fmt.Println(err)
			return
		}
	}
	b.Mark(buffer.Mark{Offset: 101})

	prev := store.Progress{First: 0, Next: 100, Applied: 100}
	batch := b.Take(store.Source{Pipeline: "pageviews", Topic: "views"}, 0, prev.Next, &prev, "v1")
	defer batch.Release() // after Engine.Apply(ctx, &batch.Store)
	fmt.Println(len(batch.Store.Mutations), "rows")
	for _, c := range batch.Store.Counters {
		fmt.Printf("%s %s:%s += %d\n", c.Row, c.Family, c.Qualifier, c.Delta)
	}
	fmt.Println("next", batch.Progress.Next, "applied", batch.Progress.Applied, "balanced", batch.Progress.Balanced())
	// Output:
	// 2 rows
	// /home day:20231114 += 2
	// next 102 applied 102 balanced true
}
