package region

import (
	"sync/atomic"
)

// A Meter counts over MeterWindow in slots of meterSlot, of which one more than
// the window has is kept: the one that is being filled.
const (
	// MeterWindow is the time, in ms, over which Meter.Rate averages.
	MeterWindow = 60_000
	meterSlot   = 5_000
	meterSlots  = MeterWindow/meterSlot + 1
)

// Meter counts requests of one region: in all, and a second over the last minute.
// The zero value has counted nothing. It is safe for concurrent use; a count at
// the moment when a slot changes hands may be lost to the rate, never to the
// total.
type Meter struct {
	total atomic.Int64
	first atomic.Int64 // the slot of the first count, + 1
	slots [meterSlots]meterCount
}

type meterCount struct{ slot, n atomic.Int64 } // slot + 1, so that 0 is none

// Add counts n requests at now, in ms since the Unix epoch.
func (m *Meter) Add(n, now int64) {
	m.total.Add(n)
	slot := now/meterSlot + 1
	if m.first.Load() == 0 {
		m.first.CompareAndSwap(0, slot)
	}
	c := &m.slots[slot%meterSlots]
	if old := c.slot.Load(); old != slot && c.slot.CompareAndSwap(old, slot) {
		c.n.Store(0)
	}
	c.n.Add(n)
}

// Total returns all that was counted.
func (m *Meter) Total() int64 { return m.total.Load() }

// Rate returns the requests a second over the last minute before now, or since
// the first where that is less long ago.
func (m *Meter) Rate(now int64) float64 {
	first := m.first.Load()
	if first == 0 {
		return 0
	}
	slot := now/meterSlot + 1
	oldest := slot - (meterSlots - 1)
	var n int64
	for i := range m.slots {
		if s := m.slots[i].slot.Load(); s > oldest && s <= slot {
			n += m.slots[i].n.Load()
		}
	}
	// Whole slots, and what has gone by of the one that is being filled; a
	// second at least, as a count of one ms says nothing about the next.
	begin := (max(first, oldest+1) - 1) * meterSlot
	return float64(n) / (float64(max(now-begin, 1000)) / 1000)
}

// hotRate is the rate, in requests a second, below which no region is hot: no
// store has trouble with fewer.
const hotRate = 100

// hotFactor is how many times the mean of the others a hot region takes.
const hotFactor = 4

// HotSpots reports for each of a table's regions whether it takes far more
// requests than the others: at least 100 a second and four times their mean. A
// table of one region has none.
func HotSpots(rates []float64) []bool {
	hot := make([]bool, len(rates))
	var sum float64
	for _, r := range rates {
		sum += r
	}
	for i, r := range rates {
		if others := float64(len(rates) - 1); others > 0 {
			hot[i] = r >= hotRate && r >= hotFactor*(sum-r)/others
		}
	}
	return hot
}
