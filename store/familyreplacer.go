package store

import (
	"context"
	"fmt"
)

// FamilyReplacement puts the cells of one family of a table into another's place.
type FamilyReplacement struct {
	Table  string
	Family string // keeps its name and attributes and loses its cells
	// By is another family of the table, which is gone afterwards: its cells are
	// Family's. "" puts nothing into its place: Family is empty then.
	By string
}

// FamilyReplacer is an Admin that can replace what families hold without a moment
// in between: counters that were counted anew, say.
type FamilyReplacer interface {
	// ReplaceFamilies makes all of the replacements in one commit, or none.
	// Reads that run go on with what they have begun on. Its error wraps
	// ErrTableNotFound, ErrFamilyNotFound, ErrInvalidSchema where one family is
	// a COUNTER family and the other is not, or ErrInvalidArgument where a
	// family is named twice.
	ReplaceFamilies(ctx context.Context, replacements []FamilyReplacement) error
}

// CheckReplacements returns what is wrong with replacements by themselves. It is
// for engines.
func CheckReplacements(replacements []FamilyReplacement) error {
	seen := map[[2]string]bool{}
	for _, r := range replacements {
		for _, name := range [...]string{r.Family, r.By} {
			key := [2]string{CanonicalName(r.Table), name}
			if name != "" && seen[key] {
				return fmt.Errorf("%w: family %s of table %s is named twice", ErrInvalidArgument, name, r.Table)
			}
			seen[key] = true
		}
	}
	return nil
}

// Replaced returns a copy of d without family r.By. It is for engines; its errors
// are those of ReplaceFamilies.
func (r *FamilyReplacement) Replaced(d *TableDescriptor) (*TableDescriptor, error) {
	if r.By == "" {
		if d.Family(r.Family) == nil {
			return nil, fmt.Errorf("%w: %s of table %s", ErrFamilyNotFound, r.Family, d.Name)
		}
		return d.Clone(), nil
	}
	family, by := d.Family(r.Family), d.Family(r.By)
	for i, f := range [...]*FamilyDescriptor{family, by} {
		if f == nil {
			return nil, fmt.Errorf("%w: %s of table %s", ErrFamilyNotFound, [...]string{r.Family, r.By}[i], d.Name)
		}
	}
	if family.Counter != by.Counter {
		return nil, fmt.Errorf("%w: table %s: one of the families %s and %s is a COUNTER family", ErrInvalidSchema, d.Name, r.Family, r.By)
	}
	if family.Distinct != by.Distinct {
		return nil, fmt.Errorf("%w: table %s: one of the families %s and %s is a DISTINCT family", ErrInvalidSchema, d.Name, r.Family, r.By)
	}
	n := d.Clone()
	families := n.Families[:0]
	for _, f := range n.Families {
		if f.Name != r.By {
			families = append(families, f)
		}
	}
	n.Families = families
	return n, nil
}
