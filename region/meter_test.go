package region

import (
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestMeter(t *testing.T) {
	t.Parallel()
	const start = 1_700_000_000_000 // a slot's beginning
	var m Meter
	if m.Total() != 0 || m.Rate(start) != 0 {
		t.Errorf("a new meter says %d, %v", m.Total(), m.Rate(start))
	}
	for s := range int64(120) { // ten a second for two minutes
		m.Add(10, start+s*1000)
	}
	for _, c := range []struct {
		at   int64
		want float64
	}{
		{119_999, 10}, {124_000, 10 * 55. / 59}, {180_000, 0}, {1_000_000, 0},
	} {
		if got := m.Rate(start + c.at); math.Abs(got-c.want) > 0.5 {
			t.Errorf("rate at %d ms is %.2f, want %.2f", c.at, got, c.want)
		}
	}
	if m.Total() != 1200 {
		t.Errorf("total %d, want 1200", m.Total())
	}
	m.Add(30, start+1_000_000)
	if got := m.Rate(start + 1_000_000); math.Abs(got-30./55) > 0.1 {
		t.Errorf("rate after a pause is %.2f, want %.2f", got, 30./55)
	}
	var young Meter
	young.Add(500, start+1)
	if got := young.Rate(start + 2); got != 500 {
		t.Errorf("rate of a meter of 2 ms is %v, want 500: a second is the least", got)
	}
	young.Add(1, start-100_000) // a clock that jumps back
	if got := young.Rate(start - 100_000); got < 0 || math.IsNaN(got) || math.IsInf(got, 0) {
		t.Errorf("rate after a jump of the clock is %v", got)
	}
}

func TestMeterIsConcurrent(t *testing.T) {
	t.Parallel()
	var m Meter
	var wg sync.WaitGroup
	for w := range int64(4) {
		wg.Go(func() {
			for i := range int64(1000) {
				m.Add(1, w*1000+i*60)
				m.Rate(i * 60)
			}
		})
	}
	wg.Wait()
	if m.Total() != 4000 {
		t.Errorf("total %d, want 4000", m.Total())
	}
}

func TestHotSpots(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		rates []float64
		want  []bool
	}{
		{nil, []bool{}},
		{[]float64{5000}, []bool{false}},
		{[]float64{99, 0}, []bool{false, false}},
		{[]float64{400, 0}, []bool{true, false}},
		{[]float64{400, 101}, []bool{false, false}},
		{[]float64{400, 100, 90, 110}, []bool{true, false, false, false}},
		{[]float64{1000, 1000, 1, 1}, []bool{false, false, false, false}},
	} {
		if d := cmp.Diff(c.want, HotSpots(c.rates)); d != "" {
			t.Errorf("HotSpots(%v) (-want +got)\n%s", c.rates, d)
		}
	}
}

func TestNormalizer(t *testing.T) {
	t.Parallel()
	const day = 24 * 3600 * 1000
	for _, c := range []struct {
		name    string
		z       Normalizer
		sizes   []int64
		young   int // index of a region of today; -1 = none
		noSplit bool
		noMerge bool
		splits  []int
		merges  [][2]int
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
		{name: "no splits", sizes: []int64{2, 3, 4, 30}, young: -1, noSplit: true, merges: [][2]int{{0, 2}}},
		{name: "no merges", sizes: []int64{2, 3, 4, 30}, young: -1, noMerge: true, splits: []int{3}},
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
		splits, merges := c.z.Plan(m, c.sizes, 10*day, !c.noSplit, !c.noMerge)
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
		splits, merges := z.Plan(m, sizes, 1000, true, true)
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
