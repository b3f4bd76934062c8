package hbasestore

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"sluice/store"
)

// TestFramedAlters: what a gateway with framed transport garbles is not sent, and the
// error has the command of HBase's shell; what it does not garble is done.
func TestFramedAlters(t *testing.T) {
	t.Parallel()
	mem := mustMem(t)
	plain, g := dial(t, nil, newGateway(t, mem, false)), newGateway(t, mem, true)
	framed := dial(t, nil, g)
	n := store.NewFamily("n")
	n.Counter = true
	if err := plain.CreateTable(t.Context(), &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{store.NewFamily("f"), store.NewFamily("g"), n}}, nil); err != nil {
		t.Fatal(err)
	}
	family := func(name string, change func(*store.FamilyDescriptor)) func(*store.TableDescriptor) {
		return func(d *store.TableDescriptor) {
			f := d.Family(name)
			if f == nil {
				d.Families = append(d.Families, store.NewFamily(name))
				f = &d.Families[len(d.Families)-1]
			}
			change(f)
		}
	}
	drop := func(names ...string) func(*store.TableDescriptor) {
		return func(d *store.TableDescriptor) {
			d.Families = slices.DeleteFunc(d.Families, func(f store.FamilyDescriptor) bool { return slices.Contains(names, f.Name) })
		}
	}
	const advice = ", and nothing was changed: use an unframed gateway for this change, or HBase's shell: alter 't', "
	changes := []string{"modifyTable", "addColumnFamily", "modifyColumnFamily", "deleteColumnFamily"}
	for _, test := range []struct {
		name   string
		change func(*store.TableDescriptor)
		sent   string // the call; "" = none
		why    string // "" = it is done
	}{
		{"versions", family("f", func(f *store.FamilyDescriptor) { f.Versions = 3 }), "modifyColumnFamily", ""},
		{"a configuration", family("f", func(f *store.FamilyDescriptor) { f.TimeToPurgeDeletes = 60_000 }), "modifyColumnFamily", ""},
		{"a plain family", family("h", func(*store.FamilyDescriptor) {}), "addColumnFamily", ""},
		{"nothing", func(*store.TableDescriptor) {}, "", ""},
		{
			"NEW_VERSION_BEHAVIOR", family("f", func(f *store.FamilyDescriptor) { f.NewVersionBehavior, f.TTL = true, 60 }), "",
			"attributes of family f (NEW_VERSION_BEHAVIOR)" + advice + "{NAME => 'f', TTL => 60, NEW_VERSION_BEHAVIOR => 'true'}",
		},
		{
			"a family that has attributes", family("n", func(f *store.FamilyDescriptor) { f.TimeToPurgeDeletes = 60_000 }), "",
			"attributes of family n (COUNTER)" + advice + "{NAME => 'n', CONFIGURATION => {'hbase.hstore.time.to.purge.deletes' => '60000'}}",
		},
		{
			"COUNTER", family("c", func(f *store.FamilyDescriptor) { f.Counter = true }), "",
			"attributes of family c (COUNTER)" + advice + "{NAME => 'c', METADATA => {'COUNTER' => 'true'}}",
		},
		{
			"DISTINCT", family("u", func(f *store.FamilyDescriptor) { f.Distinct = true }), "",
			"attributes of family u (DISTINCT)" + advice + "{NAME => 'u', METADATA => {'DISTINCT' => 'true'}}",
		},
		{
			"a passive attribute", family("f", func(f *store.FamilyDescriptor) { f.Attributes = map[string]string{"COMPRESSION": "SNAPPY"} }), "",
			"attributes of family f (COMPRESSION)" + advice + "{NAME => 'f', COMPRESSION => 'SNAPPY'}",
		},
		{
			"DURABILITY of a table with attributes", func(d *store.TableDescriptor) { d.Attributes = map[string]string{store.AttrDurability: "FSYNC_WAL"} }, "",
			"attributes of family n (COUNTER)" + advice + "DURABILITY => 'FSYNC_WAL'",
		},
		{
			"metadata", func(d *store.TableDescriptor) { d.Metadata = map[string]string{"owner's": "me"} }, "",
			"attributes of family n (COUNTER) and attributes of table t (owner's)" + advice + `METADATA => {"owner's" => 'me'}`,
		},
		{
			"a family", drop("g"), "",
			"the name of family g, which is to be deleted" + advice + "{NAME => 'g', METHOD => 'delete'}",
		},
		{
			"two families", drop("f", "g"), "",
			"the name of family f, which is to be deleted and the name of family g, which is to be deleted and attributes of family n (COUNTER)" + advice + "{NAME => 'f', METHOD => 'delete'}, {NAME => 'g', METHOD => 'delete'}",
		},
	} {
		before := map[string]int{}
		for _, c := range changes {
			before[c] = g.count(c)
		}
		has, err := framed.Table(t.Context(), "t")
		if err != nil {
			t.Fatal(err)
		}
		d := has.Clone()
		test.change(d)
		err = framed.AlterTable(t.Context(), d)
		want := "alter table t: store: invalid schema: a gateway with framed transport garbles " + test.why
		switch {
		case test.why == "" && err != nil:
			t.Errorf("%s: Got %v", test.name, err)
		case test.why != "" && (!errors.Is(err, store.ErrInvalidSchema) || err.Error() != want):
			t.Errorf("%s:\n Got %v\nwant %s", test.name, err, want)
		}
		for _, c := range changes {
			if n := g.count(c) - before[c]; n > 0 != (c == test.sent) {
				t.Errorf("%s: Got %d calls of %s", test.name, n, c)
			}
		}
		if now, err := dial(t, nil, newGateway(t, mem, false)).Table(t.Context(), "t"); err != nil || test.why != "" && !same(has, now) {
			t.Errorf("%s: Got %+v, %v, want it as it was", test.name, now, err)
		}
	}
}

// A rebuild would have a framed gateway make families with attributes.
func TestFramedRebuild(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, newMem(t), true))
	_, err := s.HoldRebuilds(t.Context(), "p", &store.RebuildHolder{Name: "me"})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), framedAdvice) {
		t.Errorf("Got %v, want ErrUnsupported and what to do", err)
	}
}

// The first connection may be framed: no system table that it makes has an attribute.
func TestFramedFirst(t *testing.T) {
	t.Parallel()
	sent := func(framed bool) (names []string) {
		for _, table := range systemTables(framed) {
			d := toHBase(table)
			for name := range d.Attributes {
				names = append(names, table.Name+" "+name)
			}
			for _, f := range d.Columns {
				for name := range f.Attributes {
					names = append(names, table.Name+":"+string(f.Name)+" "+name)
				}
			}
		}
		return names
	}
	if names := sent(true); len(names) > 0 {
		t.Errorf("Got %q, which would be garbled", names)
	}
	if names := sent(false); len(names) != 1 {
		t.Errorf("Got %q, want what letters need", names)
	}
}
