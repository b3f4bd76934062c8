package storetest

import (
	"sluice/cell"
	"sluice/store"
)

// HBaseLimits is what HBase's Thrift2 gateway cannot do of what Run tests, or what is
// not built on it: for the tests of store/hbasestore, over a real HBase or not.
func HBaseLimits() *Limits {
	l := &Limits{
		Without: map[string]string{},
		Cases:   map[string]string{"errors-004": "HBase does not find the region of so long a row"},
		// A region is looked for by table, row and a number, which together are
		// no longer than a row.
		MaxRowLength: cell.MaxRowLength - len("t") - 16,
		MaxCellBytes: store.DefaultMaxCellBytes, // as HBase's clients are configured
	}
	for why, names := range map[string][]string{
		"the gateway cannot split and merge regions, flush and compact": {
			"regions", "region stats", "split point", "table attributes", "atomic rows", "filter hints", "flushed", "compacted", "tidied", "reshaped",
		},
		"they change what is behind the gateway": {"unpacked", "reopened"},
		"COUNTER and DISTINCT families are not built on HBase yet": {
			"alter", "table state", "truncate", "cursors", "cursors last", "cursor errors", "gets of many rows", "batch", "counters", "counter limits", "counter expiry",
			"distinct", "distinct refused", "distinct expiry", "distinct replay", "concurrent increments", "durability",
		},
		"batches with progress and conditional records are not built on HBase yet": {
			"batch advance", "batch records", "batch order", "batch checks", "batch ids for a while", "batch refused unseen",
		},
	} {
		for _, name := range names {
			l.Without[name] = why
		}
	}
	return l
}
