package hbasestore

import (
	"errors"
	"slices"
	"testing"

	"sluice/store"
)

// TestAlterBesideAnother: of two processes that alter a table, none undoes what the other
// has changed: not from what it has read before, and not in the moment in between.
func TestAlterBesideAnother(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	a, b := dial(t, nil, g), dial(t, nil, g)
	createCounted(t, a)
	ctx := t.Context()
	with := func(s *Store, family string) *store.TableDescriptor {
		t.Helper()
		d, err := s.Table(ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		d.Families = append(d.Families, store.NewFamily(family))
		return d
	}
	names := func() (all []string) {
		t.Helper()
		d, err := dial(t, nil, g).Table(ctx, "c")
		if err != nil {
			t.Fatal(err)
		}
		for i := range d.Families {
			all = append(all, d.Families[i].Name)
		}
		return all
	}
	before := names()
	stale := with(a, "a1")
	if err := b.AlterTable(ctx, with(b, "b1")); err != nil {
		t.Fatal(err)
	}
	if err := a.AlterTable(ctx, stale); !errors.Is(err, store.ErrTransient) {
		t.Errorf("Got %v of what was read before another has altered it, want ErrTransient", err)
	}
	if err := a.AlterTable(ctx, with(a, "a1")); err != nil {
		t.Fatal(err)
	}
	// After the table was read for the change, and before it.
	alterBeside(t, g, a, b, "addColumnFamily", func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("a2")) })
	alterBeside(t, g, a, b, "modifyColumnFamily", func(d *store.TableDescriptor) { d.Family("a1").Versions = 7 })
	alterBeside(t, g, a, b, "deleteColumnFamily", func(d *store.TableDescriptor) {
		d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == "a2" })
	})
	got := names()
	for _, name := range append(before, "a1", "b1", "addColumnFamily", "modifyColumnFamily", "deleteColumnFamily") {
		if !slices.Contains(got, name) {
			t.Errorf("Got families %q, without %s", got, name)
		}
	}
	if slices.Contains(got, "a2") {
		t.Errorf("Got families %q, with one that was dropped", got)
	}
}

// alterBeside changes table c by a, while b adds a family of that name just before a's
// call of method.
func alterBeside(t *testing.T, g *fakeGateway, a, b *Store, method string, change func(*store.TableDescriptor)) {
	t.Helper()
	d, err := a.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	change(d)
	var other error
	g.inject(func(m string) fault {
		if m != method {
			return fault{}
		}
		g.fault = nil // for b, while it is waited for
		f := fault{until: make(chan struct{})}
		go func() {
			defer close(f.until)
			var has *store.TableDescriptor
			b.forget("c")
			if has, other = b.Table(t.Context(), "c"); other == nil {
				has = has.Clone()
				has.Families = append(has.Families, store.NewFamily(method))
				other = b.AlterTable(t.Context(), has)
			}
		}()
		return f
	})
	err = a.AlterTable(t.Context(), d)
	g.inject(nil)
	if other != nil {
		t.Fatal(other)
	}
	if err != nil {
		t.Errorf("%s: Got %v", method, err)
	}
}

// TestAlteredAtTheSameMoment: the change of a family that HBase has not made, as the table
// was altered by another between its two looks at it, is made again; that of a whole schema
// is not, which would undo what the other one has altered.
func TestAlteredAtTheSameMoment(t *testing.T) {
	t.Parallel()
	altered := fault{text: "org.apache.hadoop.hbase.ConcurrentTableModificationException: Skipping modify table operation on table 'c' as it has already been modified by some other concurrent operation, Please retry."}
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	alter := func(change func(*store.TableDescriptor)) error {
		t.Helper()
		d, err := s.Table(t.Context(), "c")
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		change(d)
		return s.AlterTable(t.Context(), d)
	}
	for _, test := range []struct {
		method string
		change func(*store.TableDescriptor)
	}{
		{"addColumnFamily", func(d *store.TableDescriptor) { d.Families = append(d.Families, store.NewFamily("new")) }},
		{"modifyColumnFamily", func(d *store.TableDescriptor) { d.Family("new").Versions = 7 }},
		{"deleteColumnFamily", func(d *store.TableDescriptor) {
			d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return f.Name == "new" })
		}},
	} {
		before := g.count(test.method)
		g.first(2, test.method, altered)
		if err := alter(test.change); err != nil || g.count(test.method) != before+3 {
			t.Errorf("%s: Got %v after %d calls, want none after 3", test.method, err, g.count(test.method)-before)
		}
	}
	d, err := s.Table(t.Context(), "c")
	if err != nil || d.Family("new") != nil {
		t.Errorf("Got %v, %v, want the family gone", d, err)
	}
	g.first(1, "modifyTable", altered)
	if err := alter(func(d *store.TableDescriptor) {
		d.Families = append(d.Families, store.NewFamily("one"), store.NewFamily("two"))
	}); !errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrUnknownOutcome) || g.count("modifyTable") != 1 {
		t.Errorf("a whole schema: Got %v after %d calls, want ErrTransient after one", err, g.count("modifyTable"))
	}
	// As long as the deadline lasts, and not longer.
	late := dial(t, func(o *Options) { o.RetryTimeout = 1 }, g)
	g.inject(func(method string) fault {
		if method == "addColumnFamily" {
			return altered
		}
		return fault{}
	})
	d, err = late.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	d.Families = append(d.Families, store.NewFamily("late"))
	if err := late.AlterTable(t.Context(), d); !errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrUnknownOutcome) {
		t.Errorf("Got %v behind the deadline, want ErrTransient", err)
	}
}
