package region

import (
	"math"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func BenchmarkLoadWrote(b *testing.B) {
	points, err := SplitPoints(HexStringSplit, 16)
	if err != nil {
		b.Fatal(err)
	}
	m, err := Create("t", points, 1)
	if err != nil {
		b.Fatal(err)
	}
	l := NewLoad(m)
	row := []byte("7f00aa00/page")
	for now := int64(0); b.Loop(); now++ {
		l.Wrote(row, now>>10)
	}
}
