package pipeline

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"sluice/store"
)

// ErrRebuilding: the counters of the pipeline are being counted again, and a letter
// that was redriven meanwhile would miss in them.
var ErrRebuilding = errors.New("pipeline: a rebuild is unfinished")

// GenerationMark separates the name of a pipeline from the generation of its
// counters that a rebuild has made: package rebuild's sources are NAME~N, and the
// families of an unfinished one FAMILY~NAME~N, NAME being store.FamilyPart of the pipeline's.
const GenerationMark = store.SourceMark

// Rebuilding returns an ErrRebuilding that says what to do where a table's family is one
// that an unfinished rebuild counts in, nil otherwise.
func Rebuilding(table, family string) error {
	_, name, _, ok := store.RebuildOf(family)
	if !ok {
		return nil
	}
	return fmt.Errorf("%w: table %s has family %s: finish it with --switch or --discard of \"ingest replay rebuild %s\"", ErrRebuilding, table, family, store.OfFamilyPart(name))
}

// MayEmpty returns an ErrRebuilding where an unfinished rebuild counts in a table, nil where
// the table may be dropped or truncated: the rebuild's offsets stay, so that it would go on as
// if it had counted what is gone.
func MayEmpty(ctx context.Context, e store.Engine, table string) error {
	d, err := e.Table(ctx, table)
	if err != nil {
		return err
	}
	for i := range d.Families {
		if err := Rebuilding(d.Name, d.Families[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// MayAlter returns an ErrRebuilding where an unfinished rebuild counts in a table and d, which
// is to be the table's schema, lacks a family that it counts in, or one that it counts again,
// nil where the table may be altered so: what is gone would not be counted again, and the
// others would be served with less than all of it.
func MayAlter(ctx context.Context, e store.Engine, d *store.TableDescriptor) error {
	have, err := e.Table(ctx, d.Name)
	if err != nil {
		return err
	}
	for i := range have.Families {
		name := have.Families[i].Name
		served, _, _, ok := store.RebuildOf(name)
		if ok && (d.Family(name) == nil || have.Family(served) != nil && d.Family(served) == nil) {
			return Rebuilding(have.Name, name)
		}
	}
	return nil
}

// CheckNoRebuild returns an ErrRebuilding where the pipeline has an unfinished
// rebuild.
func CheckNoRebuild(ctx context.Context, e store.Engine, pipeline string) error {
	admin, ok := e.(store.Admin)
	if !ok {
		return nil
	}
	tables, err := admin.Tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		d, err := e.Table(ctx, table)
		if errors.Is(err, store.ErrTableNotFound) { // dropped meanwhile
			continue
		}
		if err != nil {
			return err
		}
		for i := range d.Families {
			if !strings.Contains(d.Families[i].Name, GenerationMark+store.FamilyPart(pipeline)+GenerationMark) {
				continue
			}
			if err := Rebuilding(table, d.Families[i].Name); err != nil {
				return err
			}
		}
	}
	return nil
}
