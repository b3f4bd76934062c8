package client_test

import (
	"errors"
	"strings"
	"testing"

	"sluice/store"
)

// TestTextsThatAreNotUTF8: what JSON cannot hold is refused, as the embedded engine does, and
// does not become another text on its way.
func TestTextsThatAreNotUTF8(t *testing.T) {
	t.Parallel()
	m := newStore(t)
	c := dial(t, m, nil)
	const bad = "a\xff"
	notUTF8 := func(err error) bool {
		return (errors.Is(err, store.ErrInvalidSchema) || errors.Is(err, store.ErrInvalidArgument)) && strings.Contains(err.Error(), "not UTF-8")
	}
	texts := map[string]string{"k": bad}
	family := func(change func(*store.FamilyDescriptor)) *store.TableDescriptor {
		f := store.NewFamily("f")
		change(&f)
		return &store.TableDescriptor{Name: "t", Families: []store.FamilyDescriptor{f}}
	}
	plain := family(func(*store.FamilyDescriptor) {}).Families
	for name, d := range map[string]*store.TableDescriptor{
		"attribute":     {Name: "t", Families: plain, Attributes: map[string]string{"OWNER": bad}},
		"metadata":      {Name: "t", Families: plain, Metadata: texts},
		"its name":      {Name: "t", Families: plain, Metadata: map[string]string{bad: "v"}},
		"family":        family(func(f *store.FamilyDescriptor) { f.Name = bad }),
		"of a family":   family(func(f *store.FamilyDescriptor) { f.Metadata = texts }),
		"configuration": family(func(f *store.FamilyDescriptor) { f.Configuration = texts }),
	} {
		if err := c.AlterTable(t.Context(), d); !notUTF8(err) {
			t.Errorf("alter, %s: Got %v, want it refused", name, err)
		}
		d.Name = "new"
		if err := c.CreateTable(t.Context(), d, nil); !notUTF8(err) {
			t.Errorf("create, %s: Got %v, want it refused", name, err)
		}
	}
	ns := &store.Namespace{Name: "n", Properties: texts}
	if err := c.CreateNamespace(t.Context(), ns); !notUTF8(err) {
		t.Errorf("create namespace: Got %v", err)
	}
	ns.Name = store.DefaultNamespace
	if err := c.AlterNamespace(t.Context(), ns); !notUTF8(err) {
		t.Errorf("alter namespace: Got %v", err)
	}
	if names, err := m.Tables(t.Context()); err != nil || len(names) != 1 {
		t.Errorf("there are %v, %v, want t alone", names, err)
	}
}
