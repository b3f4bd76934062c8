package hbasestore

import (
	"errors"
	"strings"
	"testing"

	"sluice/store"
)

// TestCheckExact: what somebody has altered behind the store is found as it is now,
// each thing with the command that puts it right.
func TestCheckExact(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	if err := s.CheckExact(ctx, "c"); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckExact(ctx, "none"); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
	good, err := g.mem.Table(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		family string // "" = the table
		alter  func(d *store.TableDescriptor, f *store.FamilyDescriptor)
		want   string
	}{
		{"", func(d *store.TableDescriptor, _ *store.FamilyDescriptor) {
			d.Attributes = map[string]string{store.AttrDurability: "SKIP_WAL"}
		}, "alter 'c', DURABILITY => 'USE_DEFAULT'"},
		{"", func(d *store.TableDescriptor, _ *store.FamilyDescriptor) {
			d.Attributes = map[string]string{store.AttrDurability: "ASYNC_WAL"}
		}, "alter 'c', DURABILITY => 'USE_DEFAULT'"},
		{"n", func(_ *store.TableDescriptor, f *store.FamilyDescriptor) { f.Versions = 3 }, "alter 'c', {NAME => 'n', VERSIONS => 1}"},
		{"n", func(_ *store.TableDescriptor, f *store.FamilyDescriptor) { f.TTL = 60 }, "alter 'c', {NAME => 'n', TTL => 'FOREVER'}"},
		{"n", func(_ *store.TableDescriptor, f *store.FamilyDescriptor) { f.KeepDeleted = store.KeepDeletedTrue }, "alter 'c', {NAME => 'n', KEEP_DELETED_CELLS => 'FALSE'}"},
		{"n", func(_ *store.TableDescriptor, f *store.FamilyDescriptor) { f.NewVersionBehavior = true }, "alter 'c', {NAME => 'n', NEW_VERSION_BEHAVIOR => 'false'}"},
		{"f", func(_ *store.TableDescriptor, f *store.FamilyDescriptor) { f.Versions, f.TTL = 3, 60 }, ""}, // no counters
	} {
		d := good.Clone()
		var f *store.FamilyDescriptor
		if tt.family != "" {
			f = d.Family(tt.family)
		}
		tt.alter(d, f)
		if err := g.mem.AlterTable(ctx, d); err != nil {
			t.Fatal(err)
		}
		err := s.CheckExact(ctx, "default:c")
		if (tt.want == "") != (err == nil) || err != nil && (!errors.Is(err, store.ErrInvalidSchema) || !strings.HasSuffix(err.Error(), "in HBase's shell: "+tt.want)) {
			t.Errorf("Got %v, want %q", err, tt.want)
		}
	}
	// The store's own tables are looked at when it is opened.
	own, err := g.mem.Table(ctx, store.JobsTable)
	if err != nil {
		t.Fatal(err)
	}
	own = own.Clone()
	own.Families[0].TTL = 60
	if err := g.mem.AlterTable(ctx, own); err != nil {
		t.Skipf("the memory does not alter system tables: %v", err)
	}
	if _, err := Open(ctx, &Options{Addresses: []string{g.address()}}); !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "alter 'sluice:jobs', {NAME => 'j', TTL => 'FOREVER'}") {
		t.Errorf("Got %v, want it refused", err)
	}
}

// TestCounterToZero: what the refusal of a counter's delete says to do is exact, with a
// pipeline that goes on from the counts that it knows.
func TestCounterToZero(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	table, err := store.OpenTable(ctx, s, "c")
	if err != nil {
		t.Fatal(err)
	}
	count := func(from int64, keys ...[2]string) {
		t.Helper()
		if err := s.Apply(ctx, increments(0, from, "v1", keys...)); err != nil {
			t.Fatal(err)
		}
	}
	x := [2]string{"a", "x"}
	count(store.Absent, x, x, x)
	err = table.Delete(ctx, []byte("a"), store.Column{Family: "n", Qualifier: []byte("x")})
	if !errors.Is(err, store.ErrUnsupported) || !strings.Contains(err.Error(), "an increment by minus its value sets one to zero") {
		t.Errorf("delete: Got %v, want ErrUnsupported with what to do", err)
	}
	if n, err := table.Increment(ctx, []byte("a"), "n", []byte("x"), -3); err != nil || n != 0 {
		t.Errorf("Got %d, %v, want 0", n, err)
	}
	count(3, x, x)
	if n, err := table.Increment(ctx, []byte("a"), "n", []byte("x"), 0); err != nil || n != 2 {
		t.Errorf("Got %d, %v, want the 2 that came after", n, err)
	}
}

// TestFamilyKinds: an ordinary family, one of counters and one of distinct counts stay
// what they are, also where another process has made them a moment ago.
func TestFamilyKinds(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	g := newGateway(t, nil, false)
	s, other := dial(t, nil, g), dial(t, nil, g)
	createDistinct(t, s)
	d, err := s.Table(ctx, "c")
	if err != nil {
		t.Fatal(err)
	}
	refused := func(name string, counter, distinct bool) {
		t.Helper()
		changed := d.Clone()
		f := changed.Family(name)
		f.Counter, f.Distinct = counter, distinct
		if err := s.AlterTable(ctx, changed); !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "family "+name+": COUNTER and DISTINCT cannot change") {
			t.Errorf("family %s, COUNTER %t, DISTINCT %t: Got %v, want ErrInvalidSchema", name, counter, distinct, err)
		}
	}
	before := g.count("modifyTable")
	refused("f", true, false)
	refused("f", false, true)
	refused("n", false, false)
	refused("n", false, true)
	refused("u", false, false)
	refused("u", true, false)
	if n := g.count("modifyTable") - before; n != 0 {
		t.Errorf("HBase was asked %d times", n)
	}
	more := d.Clone()
	late := store.NewFamily("late")
	late.Counter = true
	more.Families = append(more.Families, late)
	if err := other.AlterTable(ctx, more); err != nil {
		t.Fatal(err)
	}
	d = more
	refused("late", false, false)
	if err := s.AlterTable(ctx, &store.TableDescriptor{Name: "none", Families: d.Families}); !errors.Is(err, store.ErrTableNotFound) {
		t.Errorf("Got %v, want ErrTableNotFound", err)
	}
}
