package kafka

import (
	"sort"

	"sluice/pipeline/memory"
)

// LargestBatch returns the largest record batch that a budget has memory for, in bytes:
// as it is stored, and as it unfolds, with its record. A limit of a FetchOptions.MaxBatchBytes, or an
// Options.MaxDecompressed, that is larger is never reached: the memory refuses such a
// batch before.
func LargestBatch(budget *memory.Budget) (stored, unfolded int64) {
	m := fetchMemoryOf(budget)
	records := m.records.Bytes(1)
	return largest(budget.Fetched().Most(0), func(n int) int64 { return m.raw.Bytes(n) }),
		largest(budget.Decoded().Most(0), func(n int) int64 { return m.arenas.Bytes(n+zstdSlack) + records })
}

// largest returns the largest n of which bytes, which ascends with n, is most at most.
func largest(most int64, bytes func(n int) int64) int64 {
	return int64(max(sort.Search(int(most)+1, func(n int) bool { return bytes(n) > most })-1, 0))
}
