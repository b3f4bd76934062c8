package region

import (
	"cmp"
	"slices"
)

// Normalizer evens out the sizes of a table's regions as HBase's
// SimpleRegionNormalizer does: regions above twice the average are split,
// neighbours that together stay within it are merged.
type Normalizer struct {
	// TargetBytes is the size to strive for (NORMALIZER_TARGET_REGION_SIZE_MB);
	// 0 = the average.
	TargetBytes int64
	// TargetRegions is the number of regions to strive for
	// (NORMALIZER_TARGET_REGION_COUNT); 0 = as many as there are. TargetBytes
	// comes first.
	TargetRegions int
	// MinRegions is the number of regions below which none are merged
	// (hbase.normalizer.merge.min.region.count). Default: 3.
	MinRegions int
	// MinAge is the age in ms below which a region is not merged, so that a
	// pre-split table has the time to fill
	// (hbase.normalizer.merge.min_region_age.days). Default: 3 days; negative
	// = any.
	MinAge int64
	// NoSplits and NoMerges say that the table allows none.
	NoSplits, NoMerges bool
}

// maxMerge is the most regions that one merge takes
// (hbase.normalizer.merge.merge_request_max_number_of_regions).
const maxMerge = 100

// Plan returns what to do for the regions of m, whose sizes are sizes[i] bytes, at
// now (ms since the Unix epoch): the indexes of regions to split, and runs
// [first, last] of regions to merge, ascending and disjoint. A split of one region
// moves the indexes of those after it, so apply plans from the end.
func (z *Normalizer) Plan(m *Map, sizes []int64, now int64) (splits []int, merges [][2]int) {
	var total int64
	for _, s := range sizes {
		total += s
	}
	average := float64(total) / float64(len(sizes))
	switch {
	case z.TargetBytes > 0:
		average = float64(z.TargetBytes)
	case z.TargetRegions > 0:
		average = float64(total) / float64(z.TargetRegions)
	}
	if average <= 0 {
		return nil, nil // an empty table: nothing says how its regions will fill
	}
	if !z.NoSplits {
		for i, s := range sizes {
			if float64(s) > 2*average {
				splits = append(splits, i)
			}
		}
	}
	if z.NoMerges || m.Len() < cmp.Or(z.MinRegions, 3) {
		return splits, nil
	}
	young := cmp.Or(z.MinAge, 3*24*3600*1000)
	first, sum := -1, int64(0)
	end := func(i int) {
		if first >= 0 && i-first > 1 {
			merges = append(merges, [2]int{first, i - 1})
		}
		first, sum = -1, 0
	}
	for i := range m.Len() {
		if now-m.At(i).ID < young || slices.Contains(splits, i) {
			end(i)
			continue
		}
		// A run of one empty region takes whatever follows.
		if n := i - first; first >= 0 && (n >= maxMerge || float64(sum+sizes[i]) > average && sizes[i] > 0 && (n > 1 || sum > 0)) {
			end(i)
		}
		if first < 0 {
			first = i
		}
		sum += sizes[i]
	}
	end(m.Len())
	return splits, merges
}
