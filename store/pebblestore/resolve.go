package pebblestore

import (
	"bytes"
	"math"
	"slices"

	"sluice/cell"
	"sluice/store"
)

// entry is one stored cell on its way to a reader.
type entry struct {
	qualifier []byte
	time      cell.Timestamp
	kind      cell.Kind
	sequence  uint64
	ttl       int64
	value     []byte
	stable    bool // qualifier and value live as long as the row does
	origin    int  // rewrites: index of the key-value it was stored in
}

// compare orders e and o as their keys sort: qualifier ascending, then time, kind
// and sequence descending (cell.AppendKey's order).
func (e *entry) compare(o *entry) int {
	if c := bytes.Compare(e.qualifier, o.qualifier); c != 0 {
		return c
	}
	switch {
	case e.time != o.time:
		return sign(e.time > o.time)
	case e.kind != o.kind:
		return sign(e.kind > o.kind)
	case e.sequence != o.sequence:
		return sign(e.sequence > o.sequence)
	}
	return 0
}

func sign(first bool) int {
	if first {
		return -1
	}
	return 1
}

// noTime is before every timestamp.
const noTime cell.Timestamp = math.MinInt64

// resolver turns the stored cells of one row and family, in key order, into the
// cells that a reader sees, by the rules of HBase's query matchers (raw: its
// RawScanQueryMatcher; with NEW_VERSION_BEHAVIOR: its tracker of that name).
// docs/data-model.md tells them to users.
type resolver struct {
	sel          *store.SelectedFamily
	raw          bool
	nvb          bool
	keep         bool // KEEP_DELETED_CELLS is not FALSE
	selective    bool // not all columns are wanted
	whole        bool // all columns are, at any time
	low, high    cell.Timestamp
	oldest       cell.Timestamp // nothing before it can pass: low, or later
	now          cell.Timestamp
	expiredUntil cell.Timestamp // cells before it are older than the family's TTL

	out   *[]cell.Cell
	arena *arena

	// Family markers of the row.
	deleteFamily   cell.Timestamp
	familyVersions []cell.Timestamp
	familyMarkers  []entry // NEW_VERSION_BEHAVIOR only

	// The current column.
	inColumn      bool
	column        []byte // in columnBytes, or what was emitted
	columnBytes   []byte
	done          bool // nothing more of the column can be seen
	count         int
	deleteColumn  cell.Timestamp
	deleteVersion cell.Timestamp
	lastTime      cell.Timestamp
	lastKind      cell.Kind
	emitted       []byte // the column's qualifier in the arena; nil = not yet
	at            int    // first selected qualifier or range that does not end before column
	versions      []entry
	versionBytes  arena // of versions
	live          []entry
}

func newResolver(sel *store.SelectedFamily, raw bool, now cell.Timestamp, out *[]cell.Cell, a *arena) resolver {
	r := resolver{
		sel: sel, raw: raw, now: now, out: out, arena: a,
		nvb:  sel.Family.NewVersionBehavior && !raw,
		keep: sel.Family.KeepDeleted != store.KeepDeletedFalse, selective: sel.Qualifiers != nil || sel.Ranges != nil,
		low: 0, high: math.MaxInt64, expiredUntil: expiredUntil(sel.Family, now),
	}
	if sel.Time != nil {
		r.low, r.high = sel.Time.Min, sel.Time.Max
	}
	r.oldest = max(r.low, sel.Oldest)
	r.whole = !r.raw && !r.nvb && !r.selective && r.oldest == 0 && r.high == math.MaxInt64 && sel.Versions > 0
	r.reset()
	return r
}

// oldestSeen returns the time before which no cell is seen, and no marker counts.
func (r *resolver) oldestSeen() cell.Timestamp {
	if r.raw || r.sel.Family.MinVersions > 0 {
		return r.oldest
	}
	return max(r.oldest, r.expiredUntil)
}

// expiredUntil returns the time before which the family's cells have expired.
func expiredUntil(f *store.FamilyDescriptor, now cell.Timestamp) cell.Timestamp {
	if f.TTL == store.Forever {
		return noTime
	}
	return now - cell.Timestamp(f.TTL)*1000
}

// expired reports whether a cell's own TTL has passed.
func expired(t cell.Timestamp, ttl int64, now cell.Timestamp) bool {
	return store.CellExpired(t, ttl, now)
}

// reset begins a row.
func (r *resolver) reset() {
	r.deleteFamily, r.familyVersions, r.familyMarkers = noTime, r.familyVersions[:0], r.familyMarkers[:0]
	r.inColumn, r.at = false, 0
}

// liveMarker reports whether a marker at t counts for this read.
func (r *resolver) liveMarker(t cell.Timestamp) bool {
	if r.sel.Family.MinVersions == 0 && t < r.expiredUntil {
		return false
	}
	return t >= r.low && (!r.keep || t < r.high)
}

// familyMarker takes a DeleteFamily or DeleteFamilyVersion. All of a row's come
// before any cell that they can mask.
func (r *resolver) familyMarker(e *entry) {
	if !r.liveMarker(e.time) {
		return
	}
	switch {
	case r.nvb:
		r.familyMarkers = append(r.familyMarkers, entry{time: e.time, kind: e.kind, sequence: e.sequence})
	case e.kind == cell.KindDeleteFamily:
		r.deleteFamily = max(r.deleteFamily, e.time)
	default:
		r.familyVersions = append(r.familyVersions, e.time)
	}
}

// wanted reports whether the scan selects the column, and moves to the first
// selected one, or range of them, that does not end before it.
func (r *resolver) wanted(qualifier []byte) bool {
	if !r.selective {
		return true
	}
	for ranges := r.sel.Ranges; r.at < len(ranges); r.at++ {
		if stop := ranges[r.at].Stop; len(stop) == 0 || bytes.Compare(qualifier, stop) < 0 {
			return bytes.Compare(qualifier, ranges[r.at].Start) >= 0
		}
	}
	quals := r.sel.Qualifiers
	for r.at < len(quals) {
		switch c := bytes.Compare(quals[r.at], qualifier); {
		case c < 0:
			r.at++
		case c == 0:
			return true
		default:
			return false
		}
	}
	return false
}

// exhausted reports that no further column of the row is wanted.
func (r *resolver) exhausted() bool {
	return r.selective && r.at == len(r.sel.Qualifiers)+len(r.sel.Ranges) // one of them is empty
}

// push takes the next cell, which is no family marker unless the scan is raw.
func (r *resolver) push(e *entry) {
	if !r.inColumn || !bytes.Equal(r.column, e.qualifier) {
		if len(r.versions) > 0 {
			r.endColumn()
		}
		r.columnBytes = append(r.columnBytes[:0], e.qualifier...)
		r.inColumn, r.column = true, r.columnBytes
		r.done, r.count, r.emitted = r.selective && !r.wanted(e.qualifier), 0, nil
		r.deleteColumn, r.deleteVersion, r.lastTime, r.lastKind = noTime, noTime, noTime, 0
	}
	switch {
	case r.done:
	case r.raw:
		r.pushRaw(e)
	case r.nvb:
		r.pushNewVersion(e)
	default:
		r.pushNormal(e)
	}
}

func (r *resolver) pushNormal(e *entry) {
	if e.time < r.expiredUntil && r.sel.Family.MinVersions == 0 {
		r.done = true
		return
	}
	switch e.kind {
	case cell.KindDelete:
		if r.liveMarker(e.time) {
			r.deleteVersion = e.time
		}
		return
	case cell.KindDeleteColumn:
		if r.liveMarker(e.time) {
			r.deleteColumn = max(r.deleteColumn, e.time)
		}
		return
	}
	if expired(e.time, e.ttl, r.now) || e.time == r.lastTime {
		return // its own TTL first: an older write at the same time reappears, as in HBase
	}
	r.lastTime = e.time
	if e.time <= r.deleteFamily || e.time <= r.deleteColumn || e.time == r.deleteVersion || slices.Contains(r.familyVersions, e.time) {
		return
	}
	r.offer(e)
}

// offer counts a visible put and emits it where the scan wants it.
func (r *resolver) offer(e *entry) {
	if e.time >= r.high {
		return
	}
	if e.time < r.oldest {
		r.done = true
		return
	}
	if r.count++; r.count > r.sel.Versions {
		r.done = true
		return
	}
	if m := r.sel.Family.MinVersions; m > 0 && e.time < r.expiredUntil {
		// HBase's explicit column tracker returns one more than the
		// wildcard tracker before it notices.
		if explicit := r.sel.Qualifiers != nil && !r.nvb; explicit {
			r.done = r.count >= m
		} else if r.count > m {
			r.done = true
			return
		}
	}
	r.emit(e)
}

func (r *resolver) pushRaw(e *entry) {
	if e.time == r.lastTime && e.kind == r.lastKind {
		return
	}
	r.lastTime, r.lastKind = e.time, e.kind
	switch {
	case e.time >= r.high:
		return
	case e.time < r.low:
		r.done = true
		return
	case e.kind == cell.KindPut:
		if r.count++; r.count > r.sel.Versions {
			r.done = true
			return
		}
	}
	r.emit(e)
}

// pushNewVersion keeps the column's cells until it ends: who masks whom depends
// on the order of writing.
func (r *resolver) pushNewVersion(e *entry) {
	switch {
	case e.time < r.expiredUntil && r.sel.Family.MinVersions == 0,
		e.kind == cell.KindPut && expired(e.time, e.ttl, r.now),
		e.kind != cell.KindPut && !r.liveMarker(e.time):
		return
	}
	c := *e
	if !e.stable {
		c.value, c.stable = r.versionBytes.copy(e.value), true
	}
	r.versions = append(r.versions, c)
}

// endColumn finishes the current column.
func (r *resolver) endColumn() {
	if len(r.versions) == 0 {
		return
	}
	live := survivors(r.versions, r.familyMarkers, r.sel.Family.Versions, &r.live)
	for i := range live {
		if r.done {
			break
		}
		live[i].qualifier = r.column
		live[i].stable = false // the qualifier is not
		r.offer(&live[i])
	}
	r.versions = r.versions[:0]
	r.versionBytes.reset()
}

// survivors plays a column's writes in the order in which they were made: a put
// replaces the version of its time and pushes out the oldest beyond keep, a
// marker removes what it covers of what is there. That is what
// NEW_VERSION_BEHAVIOR promises: a deleted version has counted, and nothing that
// was pushed out comes back. It sorts column, and returns the puts that are left,
// newest first, in *scratch.
func survivors(column, familyMarkers []entry, keep int, scratch *[]entry) []entry {
	slices.SortFunc(column, bySequence)
	slices.SortFunc(familyMarkers, bySequence)
	live := (*scratch)[:0]
	f := 0
	for i := range column {
		e := &column[i]
		for ; f < len(familyMarkers) && familyMarkers[f].sequence < e.sequence; f++ {
			live = remove(live, &familyMarkers[f])
		}
		if e.kind != cell.KindPut {
			live = remove(live, e)
			continue
		}
		at, found := slices.BinarySearchFunc(live, e, func(a entry, b *entry) int { return sign0(a.time, b.time) })
		if found {
			live[at] = *e
			continue
		}
		live = slices.Insert(live, at, *e)
		if len(live) > keep {
			live = live[:keep]
		}
	}
	for ; f < len(familyMarkers); f++ {
		live = remove(live, &familyMarkers[f])
	}
	*scratch = live
	return live
}

func bySequence(a, b entry) int {
	if a.sequence != b.sequence {
		return sign(a.sequence < b.sequence)
	}
	return 0
}

// sign0 orders times descending.
func sign0(a, b cell.Timestamp) int {
	if a == b {
		return 0
	}
	return sign(a > b)
}

// remove drops the puts that marker covers.
func remove(live []entry, marker *entry) []entry {
	return slices.DeleteFunc(live, func(e entry) bool {
		switch marker.kind {
		case cell.KindDelete, cell.KindDeleteFamilyVersion:
			return e.time == marker.time
		}
		return e.time <= marker.time
	})
}

// cut lets go of what was emitted: the arena is used again.
func (r *resolver) cut() {
	r.emitted = nil
	r.columnBytes = append(r.columnBytes[:0], r.column...)
	r.column = r.columnBytes
}

// plain reports whether, of the row that is read, the newest put of each column is
// seen and nothing else, unless the column has a marker or a TTL hides it.
func (r *resolver) plain() bool {
	return r.whole && r.deleteFamily == noTime && len(r.familyVersions) == 0
}

// pushPlain takes the newest put of a column that plain holds for, which must not
// be the current one, and is neither expired nor has a TTL.
func (r *resolver) pushPlain(qualifier []byte, t cell.Timestamp, value []byte) {
	c := nextCell(r.out)
	c.Family, c.Time, c.Kind, c.TTL = r.sel.Family.Name, t, cell.KindPut, 0
	c.Qualifier, c.Value = r.arena.copyTwo(qualifier, value)
	r.inColumn, r.column, r.emitted = true, c.Qualifier, c.Qualifier
	r.done, r.count = false, 1
	r.deleteColumn, r.deleteVersion, r.lastTime, r.lastKind = noTime, noTime, t, cell.KindPut
}

// emit hands a cell to the reader.
func (r *resolver) emit(e *entry) {
	c := nextCell(r.out)
	c.Family, c.Time, c.Kind, c.TTL = r.sel.Family.Name, e.time, e.kind, e.ttl
	switch {
	case e.stable:
		c.Qualifier, c.Value = e.qualifier, e.value
	default:
		if r.emitted == nil {
			r.emitted = r.arena.copy(e.qualifier)
		}
		c.Qualifier, c.Value = r.emitted, r.arena.copy(e.value)
	}
	if e.kind != cell.KindPut {
		c.Value = nil
	}
}

// nextCell makes room for one more cell, whose fields the caller sets, all of them.
func nextCell(cells *[]cell.Cell) *cell.Cell {
	n := len(*cells)
	if n < cap(*cells) {
		*cells = (*cells)[:n+1]
	} else {
		*cells = append(*cells, cell.Cell{})
	}
	return &(*cells)[n]
}

// arena holds the bytes of one row. Slices of it stay valid until reset, also
// where it grew in between.
type arena struct{ buf []byte }

func (a *arena) reset() { a.buf = a.buf[:0] }

// copyTwo copies both.
func (a *arena) copyTwo(b, c []byte) (_, _ []byte) {
	if cap(a.buf)-len(a.buf) < len(b)+len(c) {
		return a.copy(b), a.copy(c)
	}
	n := len(a.buf)
	m := n + len(b)
	buf := a.buf[:m+len(c)]
	copy(buf[n:], b)
	copy(buf[m:], c)
	a.buf = buf
	return buf[n:m:m], buf[m:len(buf):len(buf)]
}

func (a *arena) copy(b []byte) []byte {
	if cap(a.buf)-len(a.buf) < len(b) {
		// What was handed out keeps the old buffer alive.
		a.buf = make([]byte, 0, max(256, 2*cap(a.buf), 2*len(b)))
	}
	n := len(a.buf)
	a.buf = append(a.buf, b...)
	return a.buf[n:len(a.buf):len(a.buf)]
}

// room returns an empty slice that n bytes can be appended to; take keeps what
// was.
func (a *arena) room(n int) []byte {
	if cap(a.buf)-len(a.buf) < n {
		a.buf = make([]byte, 0, max(4<<10, 2*cap(a.buf), n))
	}
	return a.buf[len(a.buf) : len(a.buf) : len(a.buf)+n]
}

func (a *arena) take(n int) { a.buf = a.buf[:len(a.buf)+n] }
