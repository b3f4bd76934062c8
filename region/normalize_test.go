package region

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestNormalizer(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	for _, c := range []struct {
		name   string
		z      Normalizer
		sizes  []int64
		young  int // index of a region of today; -1 = none
		splits []int
		merges [][2]int
	}{
		{name: "even", sizes: []int64{10, 10, 10, 10}, young: -1},
		{name: "empty table", sizes: []int64{0, 0, 0, 0}, young: -1},
		{name: "one large", sizes: []int64{10, 10, 10, 60}, young: -1, splits: []int{3}, merges: [][2]int{{0, 1}}},
		{name: "small ones", sizes: []int64{2, 3, 4, 30, 1, 1, 40}, young: -1, splits: []int{3, 6}, merges: [][2]int{{0, 2}, {4, 5}}},
		{name: "empty ones", sizes: []int64{0, 0, 20, 0, 20}, young: -1, splits: []int{2, 4}, merges: [][2]int{{0, 1}}},
		{name: "two regions", sizes: []int64{1, 1}, young: -1},
		{name: "two regions allowed", z: Normalizer{MinRegions: 2, TargetBytes: 9}, sizes: []int64{1, 1}, young: -1, merges: [][2]int{{0, 1}}},
		{name: "young", sizes: []int64{2, 3, 4, 30}, young: 1, splits: []int{3}},
		{name: "young allowed", z: Normalizer{MinAge: -1}, sizes: []int64{2, 3, 4, 30}, young: 1, splits: []int{3}, merges: [][2]int{{0, 2}}},
		{name: "no splits", z: Normalizer{NoSplits: true}, sizes: []int64{2, 3, 4, 30}, young: -1, merges: [][2]int{{0, 2}}},
		{name: "no merges", z: Normalizer{NoMerges: true}, sizes: []int64{2, 3, 4, 30}, young: -1, splits: []int{3}},
		{name: "target size", z: Normalizer{TargetBytes: 4}, sizes: []int64{2, 2, 2, 9}, young: -1, splits: []int{3}, merges: [][2]int{{0, 1}}},
		{name: "target count", z: Normalizer{TargetRegions: 2}, sizes: []int64{10, 10, 10, 10}, young: -1, merges: [][2]int{{0, 1}, {2, 3}}},
	} {
		regions := make([]Info, len(c.sizes))
		for i := range regions {
			regions[i] = Info{Table: "t", ID: 1}
			if i > 0 {
				regions[i].Start = []byte{byte(i)}
				regions[i-1].Stop = regions[i].Start
			}
		}
		if c.young >= 0 {
			regions[c.young].ID = 9 * day
		}
		m, err := NewMap("t", regions)
		if err != nil {
			t.Fatal(err)
		}
		splits, merges := c.z.Plan(m, c.sizes, 10*day)
		if d := cmp.Diff(c.splits, splits); d != "" {
			t.Errorf("%s: splits (-want +got)\n%s", c.name, d)
		}
		if d := cmp.Diff(c.merges, merges); d != "" {
			t.Errorf("%s: merges (-want +got)\n%s", c.name, d)
		}
	}
}

// Whatever the sizes, a plan can be applied from its end, keeps the tiling and
// comes to rest.
func TestNormalizerProperties(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		m := drawMap(t)
		sizes := rapid.SliceOfN(rapid.Int64Range(0, 50), m.Len(), m.Len()).Draw(t, "sizes")
		z := Normalizer{
			TargetBytes: rapid.Int64Range(0, 60).Draw(t, "target"), TargetRegions: rapid.IntRange(0, 5).Draw(t, "count"),
			MinRegions: rapid.IntRange(0, 4).Draw(t, "min"), MinAge: -1,
		}
		splits, merges := z.Plan(m, sizes, 1000)
		used := make([]bool, m.Len())
		mark := func(i int) {
			if used[i] {
				t.Fatalf("region %d is in two plans: splits %v, merges %v", i, splits, merges)
			}
			used[i] = true
		}
		for _, i := range splits {
			mark(i)
		}
		for i := len(merges) - 1; i >= 0; i-- {
			first, last := merges[i][0], merges[i][1]
			for j := first; j <= last; j++ {
				mark(j)
			}
			var err error
			if m, err = m.Merge(first, last); err != nil {
				t.Fatal(err)
			}
		}
	})
}
