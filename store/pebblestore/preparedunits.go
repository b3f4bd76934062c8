package pebblestore

import (
	"slices"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// preparedUnits is the records of a prepared batch. They are such of which the store
// decides nothing but whether their event ids were used before: nearly always none was,
// and then all of them have the effect of one batch of puts and summed counters. What
// those add whose ids were used is taken off again.
type preparedUnits struct {
	units []preparedUnit
	ids   []byte // appendOnceID of them

	coalescer *counters.Coalescer
	sums      []store.CounterDelta // of the coalescer, in its order
	parts     []preparedPart       // what the units add to sums
	indexes   []uint32             // of the mutation that is being added
	ops       []cell.Op            // of it
	added     cell.Mutation        // it: one for each would be garbage
	live      []int32              // how many parts each of sums has
	expiring  []preparedExpiry
}

// preparedUnit is one store.Record. Its id and its increments begin where those of the unit
// before end.
type preparedUnit struct {
	offset int64
	ttl    int64
	hash   uint64 // of its event id
	id     int    // where its id ends in preparedUnits.ids; none = where it begins
	from   int    // where what it stages begins in staging.buf
	buf    int    // where that ends
	parts  int    // where its increments end
	late   int32  // increments beyond their family's TTL
	beside bool   // a put or mutation of no unit has its offset
	seen   bool   // its event id was used before
}

// preparedPart is one increment.
type preparedPart struct {
	sum   uint32 // index in preparedUnits.sums
	delta int64
	time  cell.Timestamp
}

// preparedExpiry is the oldest increment of a family with a TTL.
type preparedExpiry struct {
	family *family
	oldest cell.Timestamp
}

// begin empties u.
func (u *preparedUnits) begin() {
	if cap(u.ids)+cap(u.units) > maxRetainedBytes/8 || u.coalescer != nil && u.coalescer.Held() > maxRetainedBytes {
		*u = preparedUnits{}
	}
	u.units, u.ids, u.parts, u.expiring = u.units[:0], u.ids[:0], u.parts[:0], u.expiring[:0]
	u.sums = u.sums[:0]
	if u.coalescer != nil {
		u.coalescer.Reset()
	}
}

// plainUnits reports that records are such as preparedUnits takes, as far as that can be
// told without the catalog.
func plainUnits(records []store.Record) bool {
	for i := range records {
		r := &records[i]
		if r.Cond != nil || r.Checks != nil || r.Check() != nil {
			return false
		}
		for j := range r.Mutations {
			if m := &r.Mutations[j]; len(m.Ops) == 0 || !timedOps(m, true) {
				return false
			}
		}
	}
	return true
}

// unit takes a record of plainUnits down, or reports false. beside is the offset of the
// last put or mutation of no unit.
func (p *prepared) unit(r *store.Record, beside int64, cache *counterCache, hash func(id []byte) uint64) bool {
	of := &p.records
	u := preparedUnit{offset: r.Offset, ttl: r.OnceTTL, from: len(p.buf), beside: r.Offset >= 0 && r.Offset == beside}
	if len(r.Once) > 0 {
		u.hash = hash(r.Once)
		of.ids = appendOnceID(of.ids, r.Once)
	}
	for i := range r.Puts {
		if !p.put(&r.Puts[i]) {
			return false
		}
	}
	for i := range r.Mutations {
		if !p.member(&r.Mutations[i], &u, cache) {
			return false
		}
	}
	u.id, u.buf, u.parts = len(of.ids), len(p.buf), len(of.parts)
	of.units = append(of.units, u)
	return true
}

// member takes m down, of timedOps, or reports false: for u, or for no unit.
func (p *prepared) member(m *cell.Mutation, u *preparedUnit, cache *counterCache) bool {
	var n [cell.OpAppend + 1]int
	for i := range m.Ops {
		n[m.Ops[i].Type]++
	}
	puts := n[cell.OpPut]
	if puts == len(m.Ops) {
		return p.mutation(m)
	}
	if puts > 0 {
		part := *m
		part.Ops = p.records.ops[:0]
		for i := range m.Ops {
			if m.Ops[i].Type == cell.OpPut {
				part.Ops = append(part.Ops, m.Ops[i])
			}
		}
		p.records.ops = part.Ops
		if !p.mutation(&part) {
			return false
		}
	}
	unit := noUnit
	if u != nil {
		unit = len(p.records.units)
	}
	return (n[cell.OpIncrement] == 0 || p.increments(u, m)) && (n[cell.OpAppend] == 0 || p.addElements(m, unit, cache))
}

// increments takes the increments of m down, which belong to u, or reports false. Those
// that are late already are counted as such; the others may get late.
func (p *prepared) increments(u *preparedUnit, m *cell.Mutation) bool {
	t, err := p.table(m.Table)
	if err != nil || m.Durability > cell.FsyncWAL {
		return false
	}
	of := &p.records
	of.ops = of.ops[:0]
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type != cell.OpIncrement {
			continue
		}
		f, at := t.family(o.Family)
		if at < 0 || !store.PlainIncrement(t.desc, at, m.Row, o.Qualifier, o.Time) {
			return false
		}
		if f.desc.TTL != store.Forever {
			if o.Time < expiredUntil(f.desc, p.now) {
				u.late++
				continue
			}
			of.expires(f, o.Time)
		}
		of.ops = append(of.ops, *o)
	}
	if of.coalescer == nil {
		of.coalescer = counters.NewCoalescer()
	}
	of.added = cell.Mutation{Table: m.Table, Row: m.Row, Ops: of.ops}
	of.indexes = of.coalescer.AppendIndexes(of.indexes[:0], &of.added, u.offset)
	for i := range of.ops {
		of.parts = append(of.parts, preparedPart{sum: of.indexes[i], delta: of.ops[i].Delta, time: of.ops[i].Time})
	}
	p.sync = p.sync || synced(t, m.Durability)
	return true
}

// expires notes that an increment of f at this time is to be added.
func (u *preparedUnits) expires(f *family, at cell.Timestamp) {
	for i := range u.expiring {
		if e := &u.expiring[i]; e.family == f {
			e.oldest = min(e.oldest, at)
			return
		}
	}
	u.expiring = append(u.expiring, preparedExpiry{f, at})
}

// expired reports whether one of the increments is beyond its family's TTL by now.
func (u *preparedUnits) expired(now cell.Timestamp) bool {
	return slices.ContainsFunc(u.expiring, func(e preparedExpiry) bool { return e.oldest < expiredUntil(e.family.desc, now) })
}

// sum makes sums of what the coalescer has.
func (u *preparedUnits) sum() {
	if u.coalescer == nil {
		return
	}
	for d := range u.coalescer.Deltas {
		u.sums = append(u.sums, store.CounterDelta(d))
	}
}

// aheadUnits is how many units before it is looked up an event id is asked for.
const aheadUnits = 8

// use stages that the event ids of p are used, takes the units off p whose ids were used
// before, and says what became of the records.
func (c *commit) use(p *prepared) (store.Unapplied, error) {
	run := recordRun{c: c}
	units := p.records.units
	seen, id := 0, 0
	for i := range units {
		u := &units[i]
		if j := i + aheadUnits; j < len(units) {
			c.onces.prefetch(units[j].hash)
			c.window(units[j].ttl).prefetch(units[j].hash)
		}
		run.enter(u.offset)
		if id < u.id {
			var err error
			if u.seen, err = c.onceKey(p.records.ids[id:u.id], u.hash, u.ttl); err != nil {
				return store.Unapplied{}, err
			}
			id = u.id
		}
		if u.seen {
			seen++
			c.conflicts++
		} else {
			c.late += int64(u.late)
		}
		run.applied = run.applied || !u.seen || u.beside
		run.duplicate = run.duplicate || u.seen
	}
	run.end()
	if seen > 0 {
		p.dropSeen()
	}
	return run.dropped, nil
}

// dropSeen takes off p what the units add whose event ids were used before.
func (p *prepared) dropSeen() {
	kept, heads := p.kvs[:0], p.heads[:0]
	for i, kv := range p.kvs {
		if p.records.seen(kv.start) {
			continue
		}
		kept = append(kept, kv)
		if !p.mixed {
			heads = append(heads, p.heads[i])
		}
	}
	p.kvs, p.heads = kept, heads
	switch {
	case len(kept) == 0:
		p.runs = p.runs[:0]
	case len(p.runs) > 0:
		p.runs[0] = len(kept)
	}
	live := p.records.sumUnseen()
	p.deltaList.sorted = slices.DeleteFunc(p.deltaList.sorted, func(o ordered) bool { return live[p.deltas[o.at].i] == 0 })
}

// seen reports whether what is staged at start is of a unit whose event id was used before.
func (u *preparedUnits) seen(start int) bool {
	at, _ := slices.BinarySearchFunc(u.units, start, func(u preparedUnit, start int) int {
		if u.buf <= start {
			return -1
		}
		return 1
	})
	return at < len(u.units) && u.units[at].seen && start >= u.units[at].from
}

// sumUnseen sums anew, of the units whose event ids are new, and returns for each of sums
// how many increments it is of.
func (u *preparedUnits) sumUnseen() (live []int32) {
	u.live = append(u.live[:0], make([]int32, len(u.sums))...)
	for i := range u.sums {
		u.sums[i].Delta, u.sums[i].Time = 0, 0
	}
	from := 0
	for i := range u.units {
		parts := u.parts[from:u.units[i].parts]
		from = u.units[i].parts
		if u.units[i].seen {
			continue
		}
		for j := range parts {
			s := &u.sums[parts[j].sum]
			s.Delta += parts[j].delta
			s.Time = max(s.Time, parts[j].time)
			u.live[parts[j].sum]++
		}
	}
	return u.live
}
