package counters_test

import (
	"fmt"

	"sluice/counters"
)

func Example() {
	c := counters.NewCoalescer()
	for offset, page := range []string{"/", "/blog", "/", "/"} {
		c.Add("pageview_counts", "day", []byte(page), []byte("20261121"), 1, 1_700_000_000_000, int64(offset))
	}
	for d := range c.Deltas {
		fmt.Printf("%s:%s %s +%d\n", d.Table, d.Family, d.Row, d.Delta)
	}
	// Output:
	// pageview_counts:day / +3
	// pageview_counts:day /blog +1
}
