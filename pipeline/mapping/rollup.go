package mapping

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/internal/spelling"
	"sluice/store"
)

// RollupSpec counts events by time and dimensions: one declaration makes an
// increment for every set of dimensions and every bucket. The layout of what it
// writes is counters.Rollup's.
type RollupSpec struct {
	Name       string            `yaml:"name"`       // what is counted; row keys begin with it
	Table      string            `yaml:"table"`      // the table to write, with a family for each bucket
	When       string            `yaml:"when"`       // empty = always
	By         string            `yaml:"by"`         // what to add; empty = 1
	Distinct   string            `yaml:"distinct"`   // count the different values of this instead
	Dimensions map[string]string `yaml:"dimensions"` // name → expression
	Sets       [][]string        `yaml:"sets"`       // the dimensions to count by, in the order of the row key; empty = one set of the one dimension, or of none
	Buckets    []string          `yaml:"buckets"`    // minute, hour, day, week, month, total
	Zone       string            `yaml:"zone"`       // IANA name of the zone in which days, weeks and months begin; empty = UTC
}

// maxRollupSets bounds what one event may become: sets times buckets.
const maxRollupSets = 64

// rollup is a compiled RollupSpec.
type rollup struct {
	path       string
	table      string
	when       boolFunc // nil = always
	by         intFunc  // nil = 1
	distinct   *text    // nil = count events
	dimensions []text
	sets       []rollupSet
	buckets    []rollupBucket
}

// rollupSet is one row of an event.
type rollupSet struct {
	head       string
	dimensions []int // indexes in rollup.dimensions
}

type rollupBucket struct {
	bucket counters.Bucket
	family string
	zone   *time.Location
	cache  int // index in Mapper.buckets
}

// bucketCache is the last name of a rollupBucket and the times [from, to) that it is
// the name of.
type bucketCache struct {
	from, to int64
	name     []byte
}

// rollups compiles the rollups of a Spec.
func (c *compilation) rollups(specs []RollupSpec, tables func(string) *store.TableDescriptor) []rollup {
	var all []rollup
	seen := map[string]string{}
	caches := 0
	for i := range specs {
		path := fmt.Sprintf("rollups[%d]", i)
		r := c.rollup(path, &specs[i], tables, &caches)
		for _, set := range r.sets {
			key := fmt.Sprintf("%s %t %s", store.CanonicalName(r.table), r.distinct != nil, set.head)
			if before, ok := seen[key]; ok && before != path {
				c.report(path+".name", 0, fmt.Errorf("table %s has the rows %s of %s already", r.table, set.head, before), "give it another name")
			}
			seen[key] = path
		}
		all = append(all, r)
	}
	return all
}

func (c *compilation) rollup(path string, s *RollupSpec, tables func(string) *store.TableDescriptor, caches *int) rollup {
	r := rollup{path: path, table: s.Table}
	c.note("rollup %q %q %q %q %q", s.Name, s.Table, s.Sets, s.Buckets, s.Zone)
	if err := counters.CheckRollupName(s.Name); err != nil {
		c.report(path+".name", 0, rollupMistake(err), "")
	}
	schema := c.rollupTable(path+".table", s.Table, tables)
	if s.When != "" {
		r.when = c.condition(path+".when", s.When)
	}
	switch {
	case s.By != "" && s.Distinct != "":
		c.report(path+".distinct", 0, errors.New("by and distinct exclude each other"), "declare two rollups")
	case s.By != "":
		r.by = c.integer(path+".by", s.By)
	case s.Distinct != "":
		element := c.bytes(path+".distinct", s.Distinct)
		r.distinct = &element
	}
	names := slices.Sorted(maps.Keys(s.Dimensions))
	for _, name := range names {
		at := path + ".dimensions." + name
		if err := counters.CheckRollupName(name); err != nil {
			c.report(at, 0, rollupMistake(err), "")
		}
		r.dimensions = append(r.dimensions, c.bytes(at, s.Dimensions[name]))
	}
	r.sets = c.rollupSets(path+".sets", s, names)
	zone, err := loadZone(s.Zone)
	if err != nil {
		c.report(path+".zone", 0, err, "")
		zone = time.UTC
	}
	if len(s.Buckets) == 0 {
		c.report(path+".buckets", 0, errors.New("there are no buckets"), "there are "+strings.Join(counters.BucketNames(), ", "))
	}
	zoned := false
	for k, name := range s.Buckets {
		at := fmt.Sprintf("%s.buckets[%d]", path, k)
		b, ok := counters.ParseBucket(name)
		switch {
		case !ok:
			hint := spelling.Hint(name, counters.BucketNames())
			if hint == "" {
				hint = "there are " + strings.Join(counters.BucketNames(), ", ")
			}
			c.report(at, 0, fmt.Errorf("no bucket %q", name), hint)
			continue
		case slices.Contains(s.Buckets[:k], name):
			c.report(at, 0, fmt.Errorf("bucket %s is there twice", name), "")
		}
		family := b.Family(r.distinct != nil)
		c.rollupFamily(at, family, schema, r.distinct != nil)
		r.buckets = append(r.buckets, rollupBucket{bucket: b, family: family, zone: b.Zone(zone), cache: *caches})
		*caches++
		zoned = zoned || b == counters.Day || b == counters.Week || b == counters.Month
	}
	if s.Zone != "" && err == nil && !zoned && len(s.Buckets) > 0 {
		c.report(path+".zone", 0, errors.New("minutes and hours are UTC's: no bucket begins by a zone"), "remove it")
	}
	if n := len(r.sets) * len(r.buckets); n > maxRollupSets {
		c.report(path+".sets", 0, fmt.Errorf("%d sets in %d buckets are %d counters an event, at most %d", len(r.sets), len(r.buckets), n, maxRollupSets), "")
	}
	return r
}

// rollupMistake is err without what it wraps: its place says that it is a rollup's.
func rollupMistake(err error) error {
	return errors.New(strings.TrimPrefix(err.Error(), counters.ErrNotRollup.Error()+": "))
}

func (c *compilation) rollupTable(path, name string, tables func(string) *store.TableDescriptor) *store.TableDescriptor {
	switch {
	case name == "":
		c.report(path, 0, errors.New("the table is not given"), "")
		return nil
	case strings.Contains(name, "{"):
		c.report(path, 0, errors.New("the table of a rollup is one name without expressions"), "the time is in its buckets")
		return nil
	}
	if err := store.CheckTableName(name); err != nil {
		c.report(path, 0, err, "")
		return nil
	}
	if tables == nil {
		return nil
	}
	schema := tables(name)
	if schema == nil {
		c.report(path, 0, &NoTableError{name}, "declare it under tables")
	}
	return schema
}

// rollupFamily checks the family of a bucket.
func (c *compilation) rollupFamily(path, name string, schema *store.TableDescriptor, distinct bool) {
	if schema == nil || len(schema.Families) == 0 {
		return
	}
	attribute := "COUNTER"
	if distinct {
		attribute = "DISTINCT"
	}
	declare := fmt.Sprintf("declare %s: {%s: true}", name, attribute)
	f := schema.Family(name)
	switch {
	case f == nil:
		c.report(path, 0, fmt.Errorf("table %s has no family %s", schema.Name, name), declare)
	case f.Counter == distinct || f.Distinct != distinct:
		c.report(path, 0, fmt.Errorf("family %s of table %s has not %s", name, schema.Name, attribute), declare)
	}
}

// rollupSets returns the sets of s, whose dimensions are names in their order.
func (c *compilation) rollupSets(path string, s *RollupSpec, names []string) []rollupSet {
	specs := s.Sets
	if len(specs) == 0 {
		if len(names) > 1 {
			c.report(path, 0, errors.New("sets does not say by which of the dimensions to count, and in which order"), "sets: [["+strings.Join(names, ", ")+"]]")
			return nil
		}
		specs = [][]string{names}
	}
	var sets []rollupSet
	used := map[string]bool{}
	for k, spec := range specs {
		at := fmt.Sprintf("%s[%d]", path, k)
		set := rollupSet{head: (&counters.Rollup{Name: s.Name, Dimensions: spec}).Head()}
		for i, name := range spec {
			d := slices.Index(names, name)
			switch {
			case d < 0:
				c.report(fmt.Sprintf("%s[%d]", at, i), 0, fmt.Errorf("no dimension %q", name), spelling.Hint(name, names))
			case slices.Contains(spec[:i], name):
				c.report(fmt.Sprintf("%s[%d]", at, i), 0, fmt.Errorf("dimension %s is there twice", name), "")
			}
			set.dimensions = append(set.dimensions, d)
			used[name] = true
		}
		if slices.ContainsFunc(sets, func(other rollupSet) bool { return other.head == set.head }) {
			c.report(at, 0, errors.New("the set is there twice"), "")
		}
		sets = append(sets, set)
	}
	for _, name := range names {
		if !used[name] {
			c.report(strings.TrimSuffix(path, ".sets")+".dimensions."+name, 0, fmt.Errorf("no set has the dimension %s", name), "remove it, or add it to a set")
		}
	}
	return sets
}

// rollup appends what rollup i makes of the current document: a mutation for each
// set.
func (m *Mapper) rollup(i int) error {
	r := &m.plan.rollups[i]
	if r.when != nil {
		if ok, err := r.when(m); err != nil {
			return failed(r.path+".when", err)
		} else if !ok {
			return nil
		}
	}
	op := cell.Op{Type: cell.OpIncrement, Time: cell.Timestamp(m.time), Delta: 1}
	if r.by != nil {
		by, err := r.by(m)
		if err != nil {
			return failed(r.path+".by", err)
		}
		op.Delta = by
	}
	if r.distinct != nil {
		element, err := m.bytes(r.distinct)
		if _, missing := err.(*missingError); missing {
			return nil // an event without the field adds nobody
		} else if err != nil {
			return failed(r.path+".distinct", err)
		}
		op = cell.Op{Type: cell.OpAppend, Time: op.Time, Value: element}
	}
	values := m.values[:0]
	for k := range r.dimensions {
		v, err := m.bytes(&r.dimensions[k])
		if err != nil {
			return failed(r.path+".dimensions", err)
		}
		values = append(values, v)
	}
	m.values = values
	names := m.names[:0]
	for k := range r.buckets {
		name, err := m.bucket(&r.buckets[k])
		if err != nil {
			return failed(r.path+".buckets", err)
		}
		names = append(names, name)
	}
	m.names = names
	for k := range r.sets {
		set := &r.sets[k]
		if err := m.room(); err != nil {
			return failed(fmt.Sprintf("%s.sets[%d]", r.path, k), err)
		}
		start := len(m.buf)
		m.buf = append(m.buf, set.head...)
		for _, d := range set.dimensions {
			m.buf = counters.AppendDimension(m.buf, values[d])
		}
		row := m.buf[start:len(m.buf):len(m.buf)]
		if err := cell.CheckRow(row); err != nil {
			return &Error{Stage: StageMap, Class: classRow, Err: fmt.Errorf("%s.sets[%d]: %d bytes: %w", r.path, k, len(row), err)}
		}
		if len(m.out.Mutations) == maxMutations {
			return tooMany(fmt.Sprintf("%s.sets[%d]", r.path, k))
		}
		mut := m.next()
		mut.Table, mut.Row = r.table, row
		for b := range r.buckets {
			op.Family, op.Qualifier = r.buckets[b].family, names[b]
			mut.Ops = append(mut.Ops, op)
		}
	}
	return nil
}

// bucket returns the name of the bucket that the current document falls into.
func (m *Mapper) bucket(b *rollupBucket) ([]byte, error) {
	c := &m.buckets[b.cache]
	if m.time < c.from || m.time >= c.to {
		t := cell.Timestamp(m.time)
		name, err := b.bucket.AppendName(c.name[:0], t, b.zone)
		if c.name = name; err != nil {
			c.from, c.to = 0, 0
			return nil, &valueError{rollupMistake(err).Error()}
		}
		from := b.bucket.Truncate(t, b.zone)
		c.from, c.to = int64(from), int64(b.bucket.Next(from, b.zone))
		if b.bucket != counters.Total {
			c.to = min(c.to, int64(counters.MaxNamed)) // a name does not depend on what was named before
		}
	}
	if err := m.room(); err != nil {
		return nil, err
	}
	start := len(m.buf)
	m.buf = append(m.buf, c.name...)
	return m.buf[start:len(m.buf):len(m.buf)], nil
}
