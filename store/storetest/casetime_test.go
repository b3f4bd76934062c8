package storetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/cell"
)

// What a case compares compares the same where its times are mapped, at every moment
// of its now.
func TestCaseTimes(t *testing.T) {
	t.Parallel()
	begin := time.UnixMilli(1_700_000_000_000)
	rapid.Check(t, func(t *rapid.T) {
		now := rapid.SampledFrom([]int64{10, 5000, 100_000, 10_000_000}).Draw(t, "now")
		c := &testCase{Ops: []op{{Op: "clock", Now: &now}, {Op: "put"}}}
		times := c.timesOf(begin)
		if times == nil {
			t.Fatal("a case whose clock stands still is not mapped")
		}
		clock := cell.Timestamp(begin.UnixMilli() + rapid.Int64Range(0, times.scale*9/10).Draw(t, "late"))
		if got := times.of(clock); got != cell.Timestamp(now) {
			t.Fatalf("%d ms after the beginning: Got %d, want %d", int64(clock)-begin.UnixMilli(), got, now)
		}
		a := rapid.Int64Range(0, min(2*now, largestCaseTime)).Draw(t, "a")
		b := rapid.Int64Range(0, min(2*now, largestCaseTime)).Draw(t, "b")
		at := times.at(a)
		if at < 0 || times.of(at) != cell.Timestamp(a) {
			t.Fatalf("%d is %d and that is %d", a, at, times.of(at))
		}
		life := rapid.Int64Range(0, 100_000).Draw(t, "life")
		if want, got := a+life < now, int64(at)+times.life(life) < int64(clock); got != want {
			t.Errorf("%d with a life of %d is over at %d: Got %t, want %t", a, life, now, got, want)
		}
		span := times.span(a, max(a, b))
		for _, n := range []int64{a, b, now} {
			ts := times.at(n)
			if n == now {
				ts = clock // that the store has filled in
			}
			if want, got := n >= a && n < max(a, b), span.Contains(ts); got != want {
				t.Errorf("%d in [%d, %d): Got %t, want %t", n, a, max(a, b), got, want)
			}
		}
	})
	for name, c := range map[string]testCase{
		"no clock": {Ops: []op{{Op: "put"}}},
		"moves":    {Ops: []op{{Op: "put"}, {Op: "clock", Advance: 1}}},
	} {
		if c.timesOf(begin) != nil {
			t.Errorf("%s: it is mapped", name)
		}
	}
	var none *caseTimes
	if none.at(5) != 5 || none.of(5) != 5 || none.life(5) != 5 || none.span(5, 6) != (cell.TimeRange{Min: 5, Max: 6}) {
		t.Error("without a mapping times change")
	}
}
