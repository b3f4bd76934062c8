package mapping

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/internal/spelling"
	"sluice/store"
)

// maxID bounds an event id in bytes: ids are kept for as long as the ttl says.
const maxID = 1024

// dedup is a compiled DedupSpec.
type dedup struct {
	id  text
	ttl int64 // ms; 0 = nothing is dropped
}

func (c *compilation) dedup(s *DedupSpec) (d dedup) {
	switch {
	case *s == DedupSpec{}:
		return d
	case s.ID == "":
		c.report("dedup.id", 0, errors.New("the id is not given"), "an expression that makes the event's id")
		return d
	case s.TTL < time.Second:
		hint := ""
		if s.TTL == 0 {
			hint = "for how long an id is remembered, such as 24h"
		}
		c.report("dedup.ttl", 0, fmt.Errorf("ttl is %v, must be 1s or more", s.TTL), hint)
	}
	c.note("dedup %d", s.TTL.Milliseconds())
	id, always := c.bytesOf("dedup.id", s.ID)
	if always != nil && (*always == "" || len(*always) > maxID) {
		c.report("dedup.id", 0, fmt.Errorf("the id is always of %d bytes, must be 1..%d", len(*always), maxID), "")
	}
	return dedup{id: id, ttl: s.TTL.Milliseconds()}
}

// check is a compiled CheckSpec.
type check struct {
	family    string
	qualifier text
	op        store.CompareOp
	value     *text // nil = absent or present
}

// checkOps are the comparisons of a check. A store.Cond has the stored value on
// the right.
var checkOps = []struct {
	name  string
	op    store.CompareOp
	value bool
}{
	{"absent", store.Equal, false},
	{"present", store.NotEqual, false},
	{"==", store.Equal, true},
	{"!=", store.NotEqual, true},
	{"<", store.Greater, true},
	{"<=", store.GreaterOrEqual, true},
	{">", store.Less, true},
	{">=", store.LessOrEqual, true},
}

func (c *compilation) check(path string, s *CheckSpec, schema *store.TableDescriptor) *check {
	k := &check{family: s.Family}
	c.note("check %q %q", s.Family, s.Op)
	c.anyFamily(path+".family", s.Family, schema)
	if s.Qualifier == "" {
		c.report(path+".qualifier", 0, errors.New("the qualifier is not given"), `an expression; "state" in quotes is a constant`)
	} else {
		k.qualifier = c.bytes(path+".qualifier", s.Qualifier)
	}
	at := -1
	var names []string
	for i := range checkOps {
		names = append(names, checkOps[i].name)
		if checkOps[i].name == s.Op {
			at = i
		}
	}
	switch {
	case at < 0:
		hint := spelling.Hint(s.Op, names[:2])
		if hint == "" {
			hint = "there are absent, present, ==, !=, <, <=, > and >="
		}
		c.report(path+".op", 0, fmt.Errorf("no comparison %q", s.Op), hint)
		return k
	case checkOps[at].value && s.Value == "":
		c.report(path+".value", 0, errors.New("the value is not given"), "an expression; absent and present need none")
	case !checkOps[at].value && s.Value != "":
		c.report(path+".value", 0, fmt.Errorf("%s compares with no value", s.Op), "remove it")
	case checkOps[at].value:
		x := c.expression(path+".value", s.Value, 0, typText)
		k.value = &text{source: x.source, make: x.text}
		switch f := familyOf(schema, s.Family); {
		case x.always != nil && *x.always == "":
			c.report(path+".value", 0, errors.New("the value is always empty, which is not told apart from none"), "use absent or present")
		case f != nil && f.Counter && (x.typ.numeric() || x.typ == typBool || x.always != nil && len(*x.always) != 8):
			c.report(path+".value", 0, fmt.Errorf("family %s of table %s has COUNTER, whose values are numbers of 8 bytes, and this is a text", s.Family, schema.Name), "compare with int64(…)")
		}
	}
	k.op = checkOps[at].op
	return k
}

// anyFamily checks that a table, where its schema is known, has a family.
func (c *compilation) anyFamily(path, name string, schema *store.TableDescriptor) {
	if name == "" {
		c.report(path, 0, errors.New("the family is not given"), "")
		return
	}
	f := familyOf(schema, name)
	c.family(path, name, schema, f != nil && f.Counter)
}

// familyOf returns the family of a table, nil where the schema is not known or has none.
func familyOf(schema *store.TableDescriptor, name string) *store.FamilyDescriptor {
	if schema == nil {
		return nil
	}
	return schema.Family(name)
}

// del is a compiled DeleteSpec.
type del struct {
	op        cell.OpType
	newest    bool // of whatever time
	family    string
	qualifier *text
}

// deleteKinds are what a rule can delete.
var deleteKinds = []struct {
	what              string
	op                cell.OpType
	family, qualifier bool // what it needs
	counter           bool // can be done to a COUNTER family
}{
	{"row", cell.OpDeleteRow, false, false, true},
	{"family", cell.OpDeleteFamily, true, false, true},
	{"column", cell.OpDeleteColumn, true, true, true},
	{"version", cell.OpDelete, true, true, false},
	{"newest", cell.OpDelete, true, true, false},
}

func (c *compilation) delete(path string, s *DeleteSpec, schema *store.TableDescriptor) (d del) {
	c.note("delete %q %q", s.What, s.Family)
	var names []string
	at := -1
	for i := range deleteKinds {
		names = append(names, deleteKinds[i].what)
		if deleteKinds[i].what == s.What {
			at = i
		}
	}
	if at < 0 {
		hint := spelling.Hint(s.What, names)
		if hint == "" {
			hint = "there are row, family, column, version and newest"
		}
		c.report(path+".what", 0, fmt.Errorf("cannot delete a %q", s.What), hint)
		return d
	}
	k := &deleteKinds[at]
	d.op, d.newest, d.family = k.op, k.what == "newest", s.Family
	switch {
	case k.family:
		c.anyFamily(path+".family", s.Family, schema)
		if f := schema; f != nil && !k.counter && f.Family(s.Family) != nil && f.Family(s.Family).Counter {
			c.report(path+".what", 0, fmt.Errorf("family %s of table %s has COUNTER, and so no versions", s.Family, schema.Name), "delete the column")
		}
	case s.Family != "":
		c.report(path+".family", 0, fmt.Errorf("%s needs no family", k.what), "remove it, or delete a family")
	}
	switch {
	case k.qualifier && s.Qualifier == "":
		c.report(path+".qualifier", 0, errors.New("the qualifier is not given"), `an expression; "page" in quotes is a constant`)
	case k.qualifier:
		q := c.bytes(path+".qualifier", s.Qualifier)
		d.qualifier = &q
	case s.Qualifier != "":
		c.report(path+".qualifier", 0, fmt.Errorf("%s needs no qualifier", k.what), "remove it, or delete a column")
	}
	return d
}

// needsOrder reports whether the store must take the mutations of rules one by one
// in the order of records: checks see what the records before have done, increments
// included, and an increment must not move past a delete of its counter.
func needsOrder(rules []rule, rollups []rollup) bool {
	checks, deletes, adds := false, false, len(rollups) > 0
	for i := range rules {
		checks = checks || rules[i].check != nil
		deletes = deletes || len(rules[i].deletes) > 0
		adds = adds || len(rules[i].adds) > 0
	}
	return checks || deletes && adds
}

// delete adds the deletes of r to mut.
func (m *Mapper) deletes(mut *cell.Mutation, i int, t cell.Timestamp) error {
	r := &m.plan.rules[i]
	for k := range r.deletes {
		d := &r.deletes[k]
		op := cell.Op{Type: d.op, Family: d.family, Time: t}
		if d.newest {
			op.Time = cell.Latest
		}
		if d.qualifier != nil {
			q, err := m.bytes(d.qualifier)
			if err != nil {
				return m.fail(i, fmt.Sprintf("delete[%d].qualifier", k), err)
			}
			op.Qualifier = q
		}
		mut.Ops = append(mut.Ops, op)
	}
	return nil
}

// cond returns the condition that rule i has on its row, or nil.
func (m *Mapper) cond(i int) (*store.Cond, error) {
	k := m.plan.rules[i].check
	if k == nil {
		return nil, nil
	}
	qualifier, err := m.bytes(&k.qualifier)
	if err != nil {
		return nil, m.fail(i, "check.qualifier", err)
	}
	cond := store.Cond{Family: k.family, Qualifier: qualifier, Op: k.op}
	if k.value != nil {
		if cond.Value, err = m.bytes(k.value); err != nil {
			return nil, m.fail(i, "check.value", err)
		}
		if len(cond.Value) == 0 {
			return nil, m.fail(i, "check.value", valueErrorf("an empty value is not told apart from none: use absent or present"))
		}
	}
	m.conds = append(m.conds, cond)
	return &m.conds[len(m.conds)-1], nil
}

// unit is the mutations of one document, in Output.Mutations.
type unit struct {
	id       []byte
	from, to int
}

// endUnit notes what the current document has become, from mutation from on.
func (m *Mapper) endUnit(from int) error {
	to := len(m.out.Mutations)
	if !m.plan.units || from == to {
		return nil
	}
	for len(m.checks) < to {
		m.checks = append(m.checks, nil) // rollups have none
	}
	u := unit{from: from, to: to}
	if m.plan.dedup.ttl > 0 {
		id, err := m.bytes(&m.plan.dedup.id)
		if err == nil && (len(id) == 0 || len(id) > maxID) {
			err = valueErrorf("an id of %d bytes, must be 1..%d", len(id), maxID)
		}
		if err != nil {
			return failed("dedup.id", err)
		}
		u.id = id
	}
	m.ends = append(m.ends, u)
	return nil
}

// records makes Output.Records of the units.
func (m *Mapper) records() {
	for _, u := range m.ends {
		r := store.Record{Once: u.id, Mutations: m.out.Mutations[u.from:u.to:u.to]}
		if u.id != nil {
			r.OnceTTL = m.plan.dedup.ttl
		}
		if checks := m.checks[u.from:u.to]; slices.ContainsFunc(checks, func(c *store.Cond) bool { return c != nil }) {
			r.Checks = checks[:len(checks):len(checks)]
		}
		m.out.Records = append(m.out.Records, r)
	}
}
