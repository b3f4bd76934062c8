package region

import (
	"slices"

	"sluice/cell"
)

// Load counts the requests of a map's regions. It is safe for concurrent use; a
// change of the map makes a new one (Follow).
type Load struct {
	regions  *Map
	requests []*Requests
}

// Requests is what one region was asked for.
type Requests struct{ Reads, Writes Meter }

// NewLoad returns the counts of m, which are 0.
func NewLoad(m *Map) *Load {
	l := &Load{regions: m, requests: make([]*Requests, m.Len())}
	for i := range l.requests {
		l.requests[i] = new(Requests)
	}
	return l
}

// Follow returns the counts for m, which a change has made of l's map: regions
// that are in both go on counting, new ones begin at 0. l may be nil.
func (l *Load) Follow(m *Map) *Load {
	n := NewLoad(m)
	if l == nil {
		return n
	}
	for i := range n.requests {
		r := m.At(i)
		j := l.regions.Locate(r.Start)
		if o := l.regions.At(j); o.ID == r.ID && string(o.Start) == string(r.Start) && string(o.Stop) == string(r.Stop) {
			n.requests[i] = l.requests[j]
		}
	}
	return n
}

// Region returns the counts of region i.
func (l *Load) Region(i int) *Requests { return l.requests[i] }

// Wrote counts a mutation of row at now, in ms since the Unix epoch.
func (l *Load) Wrote(row []byte, now int64) {
	l.requests[l.locate(row)].Writes.Add(1, now)
}

func (l *Load) locate(row []byte) int {
	if len(l.requests) == 1 {
		return 0
	}
	return l.regions.Locate(row)
}

// Read counts a scan of rows at now: one request for each region that it is to
// read.
func (l *Load) Read(rows cell.Range, now int64) {
	if emptyRange(rows) {
		return
	}
	for i := l.regions.Locate(rows.Start); i < len(l.requests); i++ {
		if len(rows.Stop) != 0 && string(l.regions.At(i).Start) >= string(rows.Stop) {
			return
		}
		l.requests[i].Reads.Add(1, now)
	}
}

// Tally counts many mutations for Loads at the cost of few: those of one region are
// added at once. The zero value has counted nothing; Flush or Discard end it. It is kept
// for its memory, and belongs to one goroutine at a time.
type Tally struct {
	loads []loadTally
	last  int // of loads: the next mutation is mostly of the same table
}

type loadTally struct {
	load    *Load
	counts  []int64 // by region
	counted []int   // the regions whose counts are not 0
}

// Wrote counts a mutation of row for l.
func (t *Tally) Wrote(l *Load, row []byte) {
	if t.last >= len(t.loads) || t.loads[t.last].load != l {
		t.last = t.of(l)
	}
	n, i := &t.loads[t.last], l.locate(row)
	if n.counts[i]++; n.counts[i] == 1 {
		n.counted = append(n.counted, i)
	}
}

// of returns where the counts of l are.
func (t *Tally) of(l *Load) int {
	at := slices.IndexFunc(t.loads, func(n loadTally) bool { return n.load == l })
	if at < 0 {
		at = len(t.loads)
		t.loads = slices.Grow(t.loads, 1)[:at+1] // with the memory of the one before, all 0
		n := &t.loads[at]
		n.load, n.counts = l, slices.Grow(n.counts[:0], len(l.requests))[:len(l.requests)]
	}
	return at
}

// Flush adds what was counted at now, in ms since the Unix epoch.
func (t *Tally) Flush(now int64) {
	t.end(func(n *loadTally, i int) { n.load.requests[i].Writes.Add(n.counts[i], now) })
}

// Discard forgets what was counted.
func (t *Tally) Discard() { t.end(func(*loadTally, int) {}) }

func (t *Tally) end(f func(n *loadTally, i int)) {
	for j := range t.loads {
		n := &t.loads[j]
		for _, i := range n.counted {
			f(n, i)
			n.counts[i] = 0
		}
		n.load, n.counted = nil, n.counted[:0]
	}
	t.loads, t.last = t.loads[:0], 0
}
