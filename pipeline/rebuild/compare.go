package rebuild

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// maxDifferences is how many of a family's differences a comparison lists.
const maxDifferences = 10

// Comparison is how the new generation of one family compares with the one that
// is served.
type Comparison struct {
	Table, Family string
	Equal         int64 // counters with the same count
	Different     int64 // with another
	Missing       int64 // served, and not in the new generation
	Extra         int64 // in the new generation only
	Differences   []Difference
}

// Same reports that nothing differs.
func (c *Comparison) Same() bool { return c.Different+c.Missing+c.Extra == 0 }

// Difference is one counter that the generations do not agree on. Served or
// Rebuilt is nil where the counter is not there.
type Difference struct {
	Row, Qualifier  []byte
	Served, Rebuilt *int64
}

// Compare compares the generations, family by family.
func (r *Rebuild) Compare(ctx context.Context) ([]Comparison, error) {
	var all []Comparison
	for _, f := range r.families.replacements() {
		c, err := compare(ctx, r.o.Engine, &f)
		if err != nil {
			return nil, fmt.Errorf("compare the rebuild of pipeline %s: %w", r.o.Pipeline, err)
		}
		all = append(all, *c)
	}
	return all, nil
}

// compare reads both families in one scan: a row's cells of one and of the other
// come by qualifier.
func compare(ctx context.Context, r store.Reader, f *store.FamilyReplacement) (c *Comparison, err error) {
	c = &Comparison{Table: f.Table, Family: f.Family}
	sc := r.Scan(ctx, &store.Scan{Table: f.Table, Columns: []store.Column{{Family: f.Family, All: true}, {Family: f.By, All: true}}})
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
		case *d.Served == *d.Rebuilt:
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

func count(c *Comparison, row []byte, v *cell.Cell) (int64, error) {
	if len(v.Value) != 8 {
		return 0, fmt.Errorf("%w: table %s, row %q, %s:%q: a counter of %d bytes", store.ErrCorrupt, c.Table, row, v.Family, v.Qualifier, len(v.Value))
	}
	return int64(binary.BigEndian.Uint64(v.Value)), nil
}
