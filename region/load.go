package region

import "sluice/cell"

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

// Tally counts many mutations into a Load at the cost of few: neighbours that are of
// one region are counted together. The zero value has counted nothing; Flush ends it.
// It belongs to one goroutine at a time.
type Tally struct {
	load   *Load
	region int
	n      int64
}

// Wrote counts a mutation of row for l. What was counted for another Load or another
// region before is added to it, at now.
func (t *Tally) Wrote(l *Load, row []byte, now int64) {
	i := l.locate(row)
	if l != t.load || i != t.region {
		t.Flush(now)
		t.load, t.region = l, i
	}
	t.n++
}

// Flush adds what is not added yet, at now, in ms since the Unix epoch.
func (t *Tally) Flush(now int64) {
	if t.n > 0 {
		t.load.requests[t.region].Writes.Add(t.n, now)
	}
	*t = Tally{}
}
