package pageviews

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"
)

type event struct {
	TS       int64  `json:"ts"`
	User     string `json:"user"`
	Page     string `json:"page"`
	Country  string `json:"country"`
	Agent    string `json:"agent"`
	Duration int64  `json:"duration_ms"`
}

func TestGenerator(t *testing.T) {
	t.Parallel()
	const n = 20_000
	g := New(&Options{Seed: 7, Events: n})
	start := time.Date(2026, 1, 5, 0, 0, 0, 0, time.UTC).UnixMilli()
	pages := map[string]int{}
	hours := map[int64]int{}
	var last int64
	size := 0
	for range n {
		b, ok := g.Append(nil)
		if !ok {
			t.Fatal("the generator ended early")
		}
		size += len(b)
		var e event
		if err := json.Unmarshal(b, &e); err != nil {
			t.Fatalf("%s: %v", b, err)
		}
		if e.TS < last || e.TS < start || e.TS >= start+86_400_000 {
			t.Fatalf("ts %d after %d", e.TS, last)
		}
		last = e.TS
		pages[e.Page]++
		hours[(e.TS-start)/3_600_000]++
	}
	if b, ok := g.Append([]byte("x")); ok || string(b) != "x" {
		t.Errorf("after the last event: %q, %v", b, ok)
	}
	if avg := size / n; avg < 180 || avg > 240 {
		t.Errorf("events of %d bytes on average; want about 200", avg)
	}
	most := 0
	for _, c := range pages {
		most = max(most, c)
	}
	if most < n/20 || len(pages) < 500 {
		t.Errorf("%d pages, the first with %d of %d views: not a Zipf distribution", len(pages), most, n)
	}
	if hours[16] < 3*hours[4] || hours[4] == 0 {
		t.Errorf("views at 4: %d, at 16: %d; want a daily rhythm", hours[4], hours[16])
	}
}

func TestSameSeedSameEvents(t *testing.T) {
	t.Parallel()
	a, b, c := New(&Options{Seed: 1, Events: 100}), New(&Options{Seed: 1, Events: 100}), New(&Options{Seed: 2, Events: 100})
	same := true
	for range 100 {
		x, _ := a.Append(nil)
		y, _ := b.Append(nil)
		z, _ := c.Append(nil)
		if !bytes.Equal(x, y) {
			t.Fatalf("same seed, %s and %s", x, y)
		}
		same = same && bytes.Equal(x, z)
	}
	if same {
		t.Error("another seed made the same events")
	}
}
