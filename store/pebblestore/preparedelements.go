package pebblestore

import (
	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

// preparedElements is the elements that a prepared batch adds to distinct counts. What they
// make of these depends neither on their order nor on the puts and increments beside them.
type preparedElements struct {
	list []preparedElement
	keys []byte
}

// preparedElement is one element.
type preparedElement struct {
	table      *table
	family     *family
	start, end int // of the distinct count's key in preparedElements.keys
	hash       uint64
	register   int
	time       cell.Timestamp
	unit       int // index in preparedUnits.units, or noUnit
	rank       uint8
}

// noUnit is the unit of what every batch adds.
const noUnit = -1

// begin empties e.
func (e *preparedElements) begin() {
	if cap(e.keys) > maxRetainedBytes/8 {
		*e = preparedElements{}
	}
	clear(e.list) // they point at the catalog
	e.list, e.keys = e.list[:0], e.keys[:0]
}

// addElements takes the appends of m down, which belong to a unit or to none, or reports
// false.
func (p *prepared) addElements(m *cell.Mutation, unit int, cache *counterCache) bool {
	t, err := p.table(m.Table)
	if err != nil || store.ValidateMutation(t.desc, m, p.now) != nil {
		return false
	}
	to := &p.elements
	for i := range m.Ops {
		o := &m.Ops[i]
		if o.Type != cell.OpAppend {
			continue
		}
		f, at := t.family(o.Family)
		if at < 0 || !f.desc.Distinct {
			return false
		}
		el := preparedElement{table: t, family: f, start: len(to.keys), time: o.Time, unit: unit}
		to.keys = cell.AppendPart(cell.AppendRowPrefix(to.keys, f.tag, t.id, f.id, m.Row), o.Qualifier)
		el.end = len(to.keys)
		el.hash = cache.hash(to.keys[el.start:el.end])
		el.register, el.rank = counters.Rank(o.Value)
		to.list = append(to.list, el)
	}
	p.tally.Wrote(t.load, m.Row)
	p.sync = p.sync || synced(t, m.Durability)
	return true
}

// addElements stages the elements of p but those of units whose event ids were used before.
func (c *commit) addElements(p *prepared) error {
	for i := range p.elements.list {
		el := &p.elements.list[i]
		if el.unit != noUnit && p.records.units[el.unit].seen {
			continue
		}
		if err := c.raise(el.table, el.family, p.elements.keys[el.start:el.end], el.hash, el.register, el.rank, el.time); err != nil {
			return err
		}
	}
	return nil
}
