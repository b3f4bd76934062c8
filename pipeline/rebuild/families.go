package rebuild

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"sluice/cell"
	"sluice/store"
)

// familyKey names a COUNTER or DISTINCT family that is served.
type familyKey struct{ table, family string }

// table is a table that records write to.
type table struct {
	desc    *store.TableDescriptor // as it was when it was first met
	missing error
}

// families are the families of the new generation. They are made when the first
// increment of theirs comes, as tables may be named by day.
type families struct {
	engine Engine
	held   store.RebuildHold // nil: the engine has none
	suffix string
	// create and template are Options.CreateTable and Options.Template.
	create   func(ctx context.Context, name string) error
	template func(name string) *store.TableDescriptor

	mu     sync.Mutex
	tables map[string]*table
	names  map[familyKey]string // of the new generation
}

// find takes the families that a rebuild before has made, and reports whether
// there are any.
func (f *families) find(ctx context.Context) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	tables, err := f.engine.Tables(ctx)
	if err != nil {
		return false, err
	}
	for _, table := range tables {
		d, err := f.engine.Table(ctx, table)
		if err != nil {
			return false, err
		}
		for i := range d.Families {
			if family, ok := strings.CutSuffix(d.Families[i].Name, f.suffix); ok && d.Family(family) != nil {
				f.names[familyKey{table, family}] = d.Families[i].Name
			}
		}
	}
	return len(f.names) > 0, nil
}

// check returns why the store would refuse m, which makes its record a dead
// letter of the pipeline. That its table is READONLY by now does not: such a record waits,
// and what a rebuild writes of it the store refuses by itself.
func (f *families) check(ctx context.Context, m *cell.Mutation, now cell.Timestamp) (refused, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t, ok := f.tables[m.Table]
	if !ok {
		t = &table{}
		switch t.desc, err = f.engine.Table(ctx, m.Table); {
		case errors.Is(err, store.ErrTableNotFound):
			if t.desc = f.made(m.Table); t.desc == nil {
				t.missing = err
			}
		case err != nil:
			return nil, err
		}
		if t.desc != nil && t.desc.ReadOnly {
			t.desc = t.desc.Clone()
			t.desc.ReadOnly = false
		}
		f.tables[m.Table] = t
	}
	if t.missing != nil {
		return t.missing, nil
	}
	if refused = store.ValidateMutation(t.desc, m, now); refused != nil {
		return refused, nil
	}
	for i := range m.Ops {
		if deletesCounters(t.desc, &m.Ops[i]) {
			return nil, fmt.Errorf("%w: the mapping deletes counters of table %s: in which order it does is not counted again", store.ErrUnsupported, m.Table)
		}
	}
	return nil, nil
}

// made returns the schema by which a table that is missing is made, or nil.
func (f *families) made(table string) *store.TableDescriptor {
	if f.create == nil || f.template == nil {
		return nil
	}
	return f.template(table)
}

func deletesCounters(t *store.TableDescriptor, op *cell.Op) bool {
	switch op.Type {
	case cell.OpDeleteRow:
		return slices.ContainsFunc(t.Families, func(f store.FamilyDescriptor) bool { return f.InPlace() })
	case cell.OpDelete, cell.OpDeleteColumn, cell.OpDeleteFamily, cell.OpDeleteFamilyVersion:
		f := t.Family(op.Family)
		return f != nil && f.InPlace()
	}
	return false
}

// distinct reports whether a family, of a table that check has looked at, counts
// different values.
func (f *families) distinct(table, family string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.tables[table]
	if t == nil || t.desc == nil {
		return false
	}
	d := t.desc.Family(family)
	return d != nil && d.Distinct
}

// of returns the family of the new generation for a COUNTER or DISTINCT family that is
// served, made if need be.
func (f *families) of(ctx context.Context, table, family string) (string, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	key := familyKey{store.CanonicalName(table), family}
	if name, ok := f.names[key]; ok {
		return name, nil
	}
	d, err := f.engine.Table(ctx, table)
	if errors.Is(err, store.ErrTableNotFound) && f.made(table) != nil {
		if err := f.create(ctx, table); err != nil {
			return "", fmt.Errorf("create table %s: %w", table, err)
		}
		d, err = f.engine.Table(ctx, table)
	}
	if err != nil {
		return "", err
	}
	served := d.Family(family)
	if served == nil || !served.InPlace() {
		return "", fmt.Errorf("%w: %s of table %s is no COUNTER or DISTINCT family", store.ErrUnsupported, family, table)
	}
	n := *served
	n.Name = family + f.suffix
	if err := alter(ctx, f.engine, f.held, table, func(d *store.TableDescriptor) bool {
		if d.Family(n.Name) != nil {
			return false // by a try before, whose answer was lost
		}
		d.Families = append(d.Families, n)
		return true
	}); err != nil {
		return "", err
	}
	f.names[key] = n.Name
	return n.Name, nil
}

// alterTries is how often a table is altered from what it is then: more than one or two
// others do not alter it at the same moment.
const alterTries = 5

// alter changes a table, again where another process, such as a rebuild of another
// pipeline, has altered it since it was read. change returns false where there is nothing
// to change. hold, where it is not nil, must be held still when the table was read.
func alter(ctx context.Context, engine Engine, hold store.RebuildHold, name string, change func(*store.TableDescriptor) bool) error {
	for try := 1; ; try++ {
		d, err := engine.Table(ctx, name)
		if err != nil {
			return err
		}
		if d = d.Clone(); !change(d) {
			return nil
		}
		if err := held(ctx, hold); err != nil {
			return err
		}
		if err = engine.AlterTable(ctx, d); try == alterTries || !errors.Is(err, store.ErrTransient) {
			return err
		}
	}
}

// held returns an error that wraps store.ErrHeld where another process has taken a rebuild
// over.
func held(ctx context.Context, hold store.RebuildHold) error {
	if hold == nil {
		return nil
	}
	_, _, err := hold.Rebuilds(ctx)
	return err
}

// replacements returns the families of the new generation, by table and name.
func (f *families) replacements() []store.FamilyReplacement {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []store.FamilyReplacement
	for key, name := range f.names {
		all = append(all, store.FamilyReplacement{Table: key.table, Family: key.family, By: name})
	}
	slices.SortFunc(all, func(a, b store.FamilyReplacement) int {
		return cmp.Or(cmp.Compare(a.Table, b.Table), cmp.Compare(a.Family, b.Family))
	})
	return all
}

func (f *families) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	clear(f.names)
}
