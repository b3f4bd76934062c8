package rebuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// maxDifferences is how many of a family's differences a comparison lists.
const maxDifferences = 10

// Comparison is how the new generation of one family compares with the one that
// is served.
type Comparison struct {
	Table, Family string
	// Distinct says that the family counts different values: two of its counters are
	// equal where all registers of their sketches are, so that a Difference may be of
	// two that count as many.
	Distinct bool
	// Unused says that the rebuild has counted nothing in the family: all of its
	// counters are Missing. Counts of a rule that is no more are such, and those of
	// days whose records the log has not.
	Unused      bool
	Equal       int64 // counters with the same count
	Different   int64 // with another
	Missing     int64 // served, and not in the new generation
	Extra       int64 // in the new generation only
	Differences []Difference
}

// Same reports that nothing differs.
func (c *Comparison) Same() bool { return c.Different+c.Missing+c.Extra == 0 }

// Difference is one counter that the generations do not agree on. Served or
// Rebuilt is nil where the counter is not there; of a distinct count it is the estimate.
type Difference struct {
	Row, Qualifier  []byte
	Served, Rebuilt *int64
}

// Compare compares the generations, family by family, and then lists the unused
// families that hold counters: COUNTER and DISTINCT families of the tables that the rules
// name, and those that the rules, or those of Options.Previous, count in of tables that
// they name by an expression, unless a rule of Options.Others counts there.
func (r *Rebuild) Compare(ctx context.Context) ([]Comparison, error) {
	var all []Comparison
	for _, f := range r.families.replacements() {
		c, err := compare(ctx, r.o.Engine, &f)
		if err != nil {
			return nil, fmt.Errorf("compare the rebuild of pipeline %s: %w", r.o.Pipeline, err)
		}
		all = append(all, *c)
	}
	unused, err := r.unused(ctx)
	if err != nil {
		return nil, fmt.Errorf("compare the rebuild of pipeline %s: %w", r.o.Pipeline, err)
	}
	return append(all, unused...), nil
}

// unused compares the families in which nothing was counted, and which are not empty,
// with nothing.
func (r *Rebuild) unused(ctx context.Context) ([]Comparison, error) {
	counted := map[familyKey]bool{}
	for _, f := range r.families.replacements() {
		counted[familyKey{store.CanonicalName(f.Table), f.Family}] = true
	}
	tables, err := r.o.Engine.Tables(ctx)
	if err != nil {
		return nil, err
	}
	var all []Comparison
	for _, table := range tables {
		d, err := r.o.Engine.Table(ctx, table)
		if err != nil {
			return nil, err
		}
		for i := range d.Families {
			f := &d.Families[i]
			if !f.InPlace() || pipeline.Rebuilding(table, f.Name) != nil || counted[familyKey{store.CanonicalName(table), f.Name}] || !r.mayHaveCounted(table, f.Name) {
				continue
			}
			c, err := compare(ctx, r.o.Engine, &store.FamilyReplacement{Table: table, Family: f.Name})
			if errors.Is(err, store.ErrTableNotEnabled) {
				r.log.Warn("what a disabled table holds is not compared", "table", table)
				break
			}
			if err != nil {
				return nil, err
			}
			if c.Unused = true; c.Missing > 0 {
				all = append(all, *c)
			}
		}
	}
	return all, nil
}

// mayHaveCounted reports whether what a family holds can only be this pipeline's.
func (r *Rebuild) mayHaveCounted(table, family string) bool {
	counts := func(p *mapping.Plan) bool { return p.MayCount(table, family) }
	if slices.ContainsFunc(r.o.Others, counts) {
		return false
	}
	return slices.ContainsFunc(r.o.Previous, counts) || counts(r.o.Plan) ||
		slices.ContainsFunc(r.o.Plan.Tables(), func(name string) bool { return store.CanonicalName(name) == store.CanonicalName(table) })
}

// compare reads both families in one scan: a row's cells of one and of the other
// come by qualifier. Without f.By there is nothing to compare with.
func compare(ctx context.Context, r store.Engine, f *store.FamilyReplacement) (c *Comparison, err error) {
	d, err := r.Table(ctx, f.Table)
	if err != nil {
		return nil, err
	}
	family := d.Family(f.Family)
	if family == nil {
		return nil, fmt.Errorf("%w: %s of table %s", store.ErrFamilyNotFound, f.Family, f.Table)
	}
	c = &Comparison{Table: f.Table, Family: f.Family, Distinct: family.Distinct}
	columns := []store.Column{{Family: f.Family, All: true}}
	if f.By != "" {
		columns = append(columns, store.Column{Family: f.By, All: true})
	}
	sc := r.Scan(ctx, &store.Scan{Table: f.Table, Columns: columns})
	defer func() { err = errors.Join(err, sc.Close()) }()
	for sc.Next() {
		row := sc.Row()
		var served, rebuilt []cell.Cell
		for i := range row.Cells {
			if row.Cells[i].Family == f.Family {
				served = append(served, row.Cells[i])
			} else {
				rebuilt = append(rebuilt, row.Cells[i])
			}
		}
		if err := c.row(row.Key, served, rebuilt); err != nil {
			return nil, err
		}
	}
	return c, sc.Err()
}

func (c *Comparison) row(key []byte, served, rebuilt []cell.Cell) error {
	for len(served) > 0 || len(rebuilt) > 0 {
		order := 0
		switch {
		case len(rebuilt) == 0:
			order = -1
		case len(served) == 0:
			order = 1
		default:
			order = bytes.Compare(served[0].Qualifier, rebuilt[0].Qualifier)
		}
		if order == 0 && c.Distinct && bytes.Equal(served[0].Value, rebuilt[0].Value) { // as equal registers have equal bytes
			c.Equal++
			served, rebuilt = served[1:], rebuilt[1:]
			continue
		}
		d := Difference{Row: key}
		if order <= 0 {
			n, err := count(c, key, &served[0])
			if err != nil {
				return err
			}
			d.Served, d.Qualifier, served = &n, served[0].Qualifier, served[1:]
		}
		if order >= 0 {
			n, err := count(c, key, &rebuilt[0])
			if err != nil {
				return err
			}
			d.Rebuilt, d.Qualifier, rebuilt = &n, rebuilt[0].Qualifier, rebuilt[1:]
		}
		switch {
		case d.Rebuilt == nil:
			c.Missing++
		case d.Served == nil:
			c.Extra++
		case !c.Distinct && *d.Served == *d.Rebuilt:
			c.Equal++
			continue
		default:
			c.Different++
		}
		if len(c.Differences) < maxDifferences {
			d.Row, d.Qualifier = bytes.Clone(d.Row), bytes.Clone(d.Qualifier)
			c.Differences = append(c.Differences, d)
		}
	}
	return nil
}

// count returns what a counter says.
func count(c *Comparison, row []byte, v *cell.Cell) (int64, error) {
	if c.Distinct {
		sketch, err := counters.DecodeSketch(v.Value)
		if err != nil {
			return 0, fmt.Errorf("%w: table %s, row %q, %s:%q: %w", store.ErrCorrupt, c.Table, row, v.Family, v.Qualifier, err)
		}
		return sketch.Count(), nil
	}
	if len(v.Value) != 8 {
		return 0, fmt.Errorf("%w: table %s, row %q, %s:%q: a counter of %d bytes", store.ErrCorrupt, c.Table, row, v.Family, v.Qualifier, len(v.Value))
	}
	return int64(binary.BigEndian.Uint64(v.Value)), nil
}
