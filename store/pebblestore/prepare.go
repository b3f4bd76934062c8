package pebblestore

import (
	"math"

	"sluice/cell"
	"sluice/store"
)

const (
	// minPrepared is how many members a batch has at least that is prepared, unless
	// fewer become tables.
	minPrepared = 200
	// maxPrepared bounds the live batches that are prepared at a time, which hold
	// their cells twice. Those of a backfill are bounded together.
	maxPrepared = 4
)

// prepared is a batch as the commit loop is to stage it, with sequences that are still
// to be allotted. It is made beside the loop, by the goroutine that calls Apply: what
// the loop does alone is what all wait for where there are several cores.
type prepared struct {
	staging
	deltaList
	records  preparedUnits
	elements preparedElements
	sync     bool // a member wants to be on disk before its call returns
}

// newPreparing returns the free list of those that prepare takes.
func newPreparing(p *packing) chan *prepared {
	free := make(chan *prepared, maxPrepared)
	for range maxPrepared {
		free <- newPrepared(p)
	}
	return free
}

func newPrepared(p *packing) *prepared { return &prepared{staging: staging{packing: p}} }

// prepare returns what can be known of b before the loop has it; nil where b is small,
// where enough others are prepared, where something of b depends on what is stored or
// on the time of its commit, and where something is wrong with it, which the loop
// finds out again, and says. The loop, or who withdraws the request, gives it back.
func (db *DB) prepare(b *store.Batch) *prepared {
	if !db.preparable(b) {
		return nil
	}
	var p *prepared
	select {
	case p = <-db.preparing:
	default:
		if !b.Bulk {
			return nil
		}
		p = newPrepared(&db.packing)
	}
	if !p.of(b, db.catalog.Load(), db.opts.Now(), db) {
		db.spare(p)
		return nil
	}
	return p
}

// prepare returns p, which is of b, where it is still what is to be staged. A batch that was
// not prepared, as enough others were, or is by now another one's, the loop prepares itself:
// that costs less than to stage its members one by one. It is valid until the next call.
func (c *commit) prepare(b *store.Batch, p *prepared) (*prepared, bool) {
	if p != nil && c.adopts(p) {
		return p, true
	}
	if !c.db.preparable(b) {
		return nil, false
	}
	if c.prepared == nil {
		c.prepared = newPrepared(&c.db.packing)
	}
	return c.prepared, c.prepared.of(b, c.cat, c.now, c.db) && c.adopts(c.prepared)
}

// preparable reports that b is worth it, and what prepared takes, as far as that can be told
// without the catalog.
func (db *DB) preparable(b *store.Batch) bool {
	least := minPrepared
	if tables := db.opts.MinBulkKeys; b.Bulk && tables >= 0 {
		least = min(least, tables)
	}
	return len(b.Puts)+len(b.Mutations)+len(b.Counters)+len(b.Records) >= least && timed(b.Mutations) &&
		(len(b.Records) == 0 || len(b.Counters) == 0 && plainUnits(b.Records))
}

// of makes p what is known of b. It reports false where the loop is to stage b member by
// member.
func (p *prepared) of(b *store.Batch, cat *catalog, now cell.Timestamp, db *DB) bool {
	p.begin(cat, now, 0)
	p.records.begin()
	p.elements.begin()
	p.sync = false
	return p.fill(b, db.loop.counters, db.loop.onces.hash)
}

// spare gives p back; one more than the list takes was made for a backfill.
func (db *DB) spare(p *prepared) {
	select {
	case db.preparing <- p:
	default:
	}
}

// recycle gives what was prepared of r back.
func (db *DB) recycle(r *request) {
	if r.prepared != nil {
		db.spare(r.prepared)
		r.prepared = nil
	}
}

// fill takes b down, with the hash of event ids; cache is read for its hash alone, which is
// safe beside the loop. It reports false where the loop is to do it all.
func (p *prepared) fill(b *store.Batch, cache *counterCache, hash func(id []byte) uint64) bool {
	defer p.tally.Discard() // of what is staged otherwise, the loop counts the requests
	taken, beside := true, int64(-1)
	b.InOrder(func(put *store.PackedPut) {
		taken, beside = taken && p.put(put), put.Offset
	}, func(m *store.Mutation) {
		taken, beside = taken && p.member(&m.Mutation, nil, cache), m.Offset
	}, func(r *store.Record) {
		taken = taken && p.unit(r, beside, cache, hash)
	})
	if !taken {
		return false
	}
	p.records.sum()
	if p.take(&p.staging, p.increased(b), func(_ *store.CounterDelta, err error) error { return err }) != nil {
		return false
	}
	p.order(cache)
	p.sortRun()
	p.tally.Flush(int64(p.now))
	return true
}

// increased is the summed increments of b, of which p was made: a batch has them, or
// records.
func (p *prepared) increased(b *store.Batch) []store.CounterDelta {
	if len(b.Records) > 0 {
		return p.records.sums
	}
	return b.Counters
}

// put takes a packed put down, or reports false.
func (p *prepared) put(put *store.PackedPut) bool {
	t, err := p.table(put.Table)
	if err != nil {
		return false
	}
	if family, plain := store.PlainPackedPut(t.desc, put, p.now); !plain || !p.stagePut(t, &t.fams[family], put) {
		p.ops = put.AppendOps(p.ops[:0])
		if !p.resolve(t, &cell.Mutation{Table: put.Table, Row: put.Row, Ops: p.ops}) {
			return false
		}
	}
	p.tally.Wrote(t.load, put.Row)
	p.sync = p.sync || synced(t, cell.UseDefault)
	return true
}

// mutation takes a mutation of timed puts down, or reports false.
func (p *prepared) mutation(m *cell.Mutation) bool {
	t, err := p.table(m.Table)
	if err != nil {
		return false
	}
	if family, size, plain := store.PlainPut(t.desc, m, p.now); !plain || !p.pack(t, &t.fams[family], m, size) {
		if !p.resolve(t, m) {
			return false
		}
	}
	p.tally.Wrote(t.load, m.Row)
	p.sync = p.sync || synced(t, m.Durability)
	return true
}

// resolve takes a mutation of timed puts down step by step, or reports false.
func (p *prepared) resolve(t *table, m *cell.Mutation) bool {
	if store.ValidateMutation(t.desc, m, p.now) != nil {
		return false
	}
	cells, _, err := store.AppendResolved(p.cells[:0], t.desc, m, p.now, p.now, nil)
	p.cells = cells
	return err == nil && p.stage(t, m.Row, cells) == nil
}

// timed reports that ms are nothing but puts, and appends as distinct counts take, that
// have their time.
func timed(ms []store.Mutation) bool {
	for i := range ms {
		if !timedOps(&ms[i].Mutation, false) {
			return false
		}
	}
	return true
}

// timedOps reports that m is such as timed says, or increments besides.
func timedOps(m *cell.Mutation, increments bool) bool {
	for i := range m.Ops {
		switch o := &m.Ops[i]; {
		case o.Time == cell.Latest:
			return false
		case o.Type == cell.OpPut:
		case o.TTL != 0, m.Read != nil, o.Type != cell.OpAppend && (o.Type != cell.OpIncrement || !increments):
			return false
		}
	}
	return true
}

// adopts reports that p is still what is to be staged: of another catalog it is not, nor at
// a time when other increments are late.
func (c *commit) adopts(p *prepared) bool {
	if p.cat != c.cat || len(c.buf)+len(p.buf) > math.MaxInt32 {
		return false
	}
	return len(p.records.units) == 0 || c.now >= p.now && !p.records.expired(c.now)
}

// adopt stages p, which was made of b and which adopts has passed.
func (c *commit) adopt(p *prepared, b *store.Batch, refuse func(int64, string, []byte, error) error) (store.Unapplied, error) {
	var dropped store.Unapplied
	if len(p.records.units) > 0 {
		var err error
		if dropped, err = c.use(p); err != nil {
			return dropped, err
		}
	}
	c.adoptCells(p)
	if err := c.addElements(p); err != nil {
		return dropped, err
	}
	return dropped, c.addDeltas(&p.deltaList, p.increased(b), refuse)
}

// adoptCells stages the cells of p.
func (c *commit) adoptCells(p *prepared) {
	base := len(c.buf)
	c.buf = append(c.buf, p.buf...)
	c.sync = c.sync || p.sync
	for _, s := range p.staging.sorted { // as they lie in buf: in the order of their keys each would be a cache miss
		start := base + s.start
		cell.AddSequence(c.buf[start:start+s.key], c.seq)
	}
	c.seq += p.seq
	c.appendStaged(&p.staging, base)
}
