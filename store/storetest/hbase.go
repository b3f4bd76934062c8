package storetest

import (
	"sluice/cell"
	"sluice/store"
)

// HBaseLimits is what HBase's Thrift2 gateway cannot do of what Run tests, or what is
// not built on it: for the tests of store/hbasestore, over a real HBase or not.
// docs/operations.md has the table for users.
func HBaseLimits() *Limits {
	l := &Limits{
		Without:   map[string]string{},
		Cases:     map[string]string{"errors-004": "HBase does not find the region of so long a row"},
		ShellOnly: true, CountsByOffset: true, NoNullDeletes: true,
		// A region is looked for by table, row and a number, which together are
		// no longer than a row.
		MaxRowLength: cell.MaxRowLength - len("t") - 16,
		MaxCellBytes: store.DefaultMaxCellBytes, // as HBase's clients are configured
	}
	for why, names := range map[string][]string{
		"the gateway cannot split and merge regions, flush and compact": {
			"regions", "region stats", "split point", "table attributes", "flushed", "compacted", "tidied", "reshaped",
		},
		"they change what is behind the gateway":                        {"unpacked", "reopened"},
		"a mutation there is puts and deletes, or increments: not both": {"durability"},
		"counters are cells of their sources, with the offsets that they come from": {
			"alter", "table state", "counters", "counter limits", "counter expiry", "distinct deletes", "distinct refused", "distinct expiry",
		},
		"conditional records are not built on HBase, whose batches are not atomic": {
			"batch", "batch records", "batch order", "batch checks", "batch ids for a while",
		},
	} {
		for _, name := range names {
			l.Without[name] = why
		}
	}
	return l
}
