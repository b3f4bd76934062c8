package storetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"sluice/region"
	"sluice/store"
)

// adminOps are the operations that change or show tables, namespaces and regions.
var adminOps = []string{
	"splitPoints", "regionName", "listRegions", "split", "merge", "truncate", "createTable", "dropTable", "disableTable",
	"enableTable", "tableExists", "addFamily", "deleteFamily", "createNamespace", "dropNamespace",
}

func (o *op) administers() bool { return slices.Contains(adminOps, o.Op) }

// administer runs one of adminOps and returns what it gives as JSON has it.
func (r *caseRun) administer(ctx context.Context, o *op) (any, error) {
	name := o.Table
	if name == "" {
		name = caseTable
	}
	switch o.Op {
	case "splitPoints":
		var n int
		if err := json.Unmarshal(o.Regions, &n); err != nil {
			return nil, err
		}
		points, err := region.SplitPoints(o.Algo, n)
		return quoted(points), err
	case "regionName":
		i := region.Info{Table: name, ID: o.ID, Start: r.bytes(o.Start)}
		return map[string]string{"name": i.Name(), "encoded": i.EncodedName()}, nil
	case "listRegions":
		m, err := r.e.Regions(ctx, name)
		if err != nil {
			return nil, err
		}
		var bounds [][]string
		for _, i := range m.All() {
			bounds = append(bounds, quoted([][]byte{i.Start, i.Stop}))
		}
		return bounds, nil
	case "tableExists":
		_, err := r.e.Table(ctx, name)
		if errors.Is(err, store.ErrTableNotFound) {
			return false, nil
		}
		return err == nil, err
	case "createTable":
		err := r.e.admin().CreateTable(ctx, r.unchecked(name, o.Families), nil)
		if errors.Is(err, store.ErrInvalidSchema) {
			err = fmt.Errorf("%w: %w", store.ErrRefused, err) // HBase names no class of its own
		}
		return nil, err
	case "split", "merge":
		return nil, r.reshape(ctx, o)
	case "addFamily", "deleteFamily":
		return nil, r.alterFamily(ctx, o)
	case "createNamespace":
		return nil, r.e.namespacer().CreateNamespace(ctx, &store.Namespace{Name: o.Name})
	case "dropNamespace":
		return nil, r.e.namespacer().DropNamespace(ctx, o.Name)
	case "dropTable":
		return nil, r.e.admin().DropTable(ctx, name)
	case "disableTable":
		return nil, r.e.switcher().DisableTable(ctx, name)
	case "enableTable":
		return nil, r.e.switcher().EnableTable(ctx, name)
	case "truncate": // the shell's, which disables the table where it is enabled
		if err := r.e.switcher().DisableTable(ctx, name); err != nil && !errors.Is(err, store.ErrTableNotEnabled) {
			return nil, err
		}
		return nil, r.e.switcher().TruncateTable(ctx, name, o.PreserveSplits)
	}
	return nil, fmt.Errorf("storetest: unknown operation %q", o.Op)
}

func quoted(keys [][]byte) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = fmt.Sprintf("%q", k)
	}
	return out
}

// unchecked returns a schema without the checks of the client side, so that the
// engine's own are tested. Without families it is that of the case's table.
func (r *caseRun) unchecked(name string, families map[string]map[string]any) *store.TableDescriptor {
	if families == nil {
		families = r.c.Table.Families
	}
	d := &store.TableDescriptor{Name: name}
	for family, attrs := range families {
		f := store.NewFamily(family)
		for k, v := range attrs {
			n, _ := v.(float64)
			switch k {
			case "TTL":
				f.TTL = int(n)
			case "BLOCKSIZE":
				f.BlockSize = int(n)
			default:
				if err := f.SetAttribute(k, fmt.Sprint(v)); err != nil {
					r.t.Fatal(err)
				}
			}
		}
		d.Families = append(d.Families, f)
	}
	return d
}

func (r *caseRun) reshape(ctx context.Context, o *op) error {
	if o.Op == "merge" {
		var starts []string
		if err := json.Unmarshal(o.Regions, &starts); err != nil || len(starts) != 2 {
			return fmt.Errorf("storetest: merge of %s: %w", o.Regions, errors.Join(err))
		}
		return r.e.admin().MergeRegions(ctx, caseTable, r.bytes(starts[0]), r.bytes(starts[1]))
	}
	var at []byte
	splitter, ok := r.e.Engine.(Splitter)
	switch {
	case o.At != nil:
		at = r.bytes(*o.At)
	case ok:
		return splitter.SplitTable(ctx, caseTable)
	default:
		var err error
		if at, err = r.e.meter().SplitPoint(ctx, caseTable, nil); err != nil {
			return err
		}
	}
	return r.e.admin().SplitRegion(ctx, caseTable, at)
}

func (r *caseRun) alterFamily(ctx context.Context, o *op) error {
	now, err := r.e.Table(ctx, caseTable)
	if err != nil {
		return err
	}
	d := now.Clone()
	d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == o.Family })
	if o.Op == "addFamily" {
		added, err := r.descriptor(map[string]map[string]any{o.Family: o.Attrs})
		if err != nil {
			return err
		}
		d.Families = append(d.Families, added.Families...)
	}
	return r.e.admin().AlterTable(ctx, d)
}

// administered returns what one of adminOps must give, in the form that administer
// returns.
func (r *caseRun) administered(o *op) (any, error) {
	switch o.Op {
	case "splitPoints":
		var all []string
		err := json.Unmarshal(o.Expect, &all)
		return r.quoted(all), err
	case "listRegions":
		var lists [][]string
		err := json.Unmarshal(o.Expect, &lists)
		for i := range lists {
			lists[i] = r.quoted(lists[i])
		}
		return lists, err
	case "regionName":
		var names map[string]string
		err := json.Unmarshal(o.Expect, &names)
		return names, err
	}
	return nil, fmt.Errorf("storetest: operation %q expects %s", o.Op, o.Expect)
}

func (r *caseRun) quoted(texts []string) []string {
	keys := make([][]byte, len(texts))
	for i, s := range texts {
		keys[i] = r.bytes(s)
	}
	return quoted(keys)
}
