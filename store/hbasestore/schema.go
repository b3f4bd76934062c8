package hbasestore

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// splitPolicies is the Java package of HBase's own split policies, which a schema
// of Sluice leaves out.
const splitPolicies = "org.apache.hadoop.hbase.regionserver."

// tableName returns HBase's form of "table" or "namespace:table".
func tableName(name string) *hbase.TTableName {
	ns, q, ok := strings.Cut(name, ":")
	if !ok {
		return &hbase.TTableName{Qualifier: []byte(name)}
	}
	return &hbase.TTableName{Ns: []byte(ns), Qualifier: []byte(q)}
}

// nameOf is the reverse of tableName.
func nameOf(t *hbase.TTableName) string {
	if ns := string(t.Ns); ns != "" && ns != store.DefaultNamespace {
		return ns + ":" + string(t.Qualifier)
	}
	return string(t.Qualifier)
}

// fromHBase returns a schema as HBase has it. Attributes that are not known here,
// or have values that are not, are among the metadata.
func fromHBase(d *hbase.TTableDescriptor) *store.TableDescriptor {
	t := &store.TableDescriptor{Name: nameOf(d.TableName)}
	for _, name := range slices.Sorted(maps.Keys(d.Attributes)) {
		value := string(d.Attributes[name])
		switch {
		case name == "IS_META", name == "hbase.store.file-tracker.impl" && value == "DEFAULT":
			// HBase's own, of every table.
		case slices.Contains(store.TableAttributeNames(), name):
			if name == store.AttrSplitPolicy {
				value = strings.TrimPrefix(value, splitPolicies)
			}
			if t.SetAttribute(name, value) != nil {
				t.Metadata = with(t.Metadata, name, value)
			}
		case t.SetMetadata(name, value) != nil:
			t.Metadata = with(t.Metadata, name, value)
		}
	}
	if d.Durability != nil && *d.Durability != hbase.TDurability_USE_DEFAULT {
		t.Attributes = with(t.Attributes, store.AttrDurability, cell.Durability(*d.Durability).String())
	}
	for _, c := range d.Columns {
		t.Families = append(t.Families, familyFromHBase(c))
	}
	slices.SortFunc(t.Families, func(a, b store.FamilyDescriptor) int { return strings.Compare(a.Name, b.Name) })
	return t
}

func with(texts map[string]string, name, value string) map[string]string {
	if texts == nil {
		texts = map[string]string{}
	}
	texts[name] = value
	return texts
}

func familyFromHBase(c *hbase.TColumnFamilyDescriptor) store.FamilyDescriptor {
	f := store.NewFamily(string(c.Name))
	for _, name := range slices.Sorted(maps.Keys(c.Attributes)) {
		value := string(c.Attributes[name])
		if !slices.Contains(store.FamilyAttributeNames(), name) || f.SetAttribute(name, value) != nil {
			f.Metadata = with(f.Metadata, name, value)
		}
	}
	for name, value := range c.Configuration {
		if f.SetConfiguration(name, value) != nil {
			f.Configuration = with(f.Configuration, name, value)
		}
	}
	withoutDefaults(&f)
	return f
}

// withoutDefaults drops the attributes that say what HBase does anyway.
func withoutDefaults(f *store.FamilyDescriptor) {
	plain := store.NewFamily(f.Name)
	for _, a := range plain.List() {
		if f.Attributes[a.Name] == a.Value {
			delete(f.Attributes, a.Name)
		}
	}
	if len(f.Attributes) == 0 {
		f.Attributes = nil
	}
}

// toHBase is the reverse of fromHBase.
func toHBase(t *store.TableDescriptor) *hbase.TTableDescriptor {
	d := &hbase.TTableDescriptor{TableName: tableName(t.Name), Attributes: map[string][]byte{}}
	for name, value := range t.Metadata {
		d.Attributes[name] = []byte(value)
	}
	for name, value := range t.Attributes {
		switch {
		case name == store.AttrDurability:
			if durability, err := cell.ParseDurability(value); err == nil { // Validate has checked it
				d.Durability = hbase.TDurabilityPtr(hbase.TDurability(durability))
			}
			continue
		case name == store.AttrSplitPolicy && !strings.Contains(value, "."):
			value = splitPolicies + value
		}
		d.Attributes[name] = []byte(value)
	}
	if t.ReadOnly {
		d.Attributes[store.AttrReadOnly] = []byte("true")
	}
	if t.MaxTimestampSlop != 0 {
		d.Attributes[store.MetaTimestampSlop] = strconv.AppendInt(nil, t.MaxTimestampSlop, 10)
	}
	if t.MaxCellBytes != 0 {
		d.Attributes[store.MetaMaxCellBytes] = strconv.AppendInt(nil, int64(t.MaxCellBytes), 10)
	}
	for i := range t.Families {
		d.Columns = append(d.Columns, familyToHBase(&t.Families[i]))
	}
	return d
}

func familyToHBase(f *store.FamilyDescriptor) *hbase.TColumnFamilyDescriptor {
	number := func(n int) *int32 { v := int32(n); return &v }
	keep := hbase.TKeepDeletedCells(f.KeepDeleted)
	c := &hbase.TColumnFamilyDescriptor{
		Name:        []byte(f.Name),
		MaxVersions: number(f.Versions), MinVersions: number(f.MinVersions), TimeToLive: number(f.TTL), BlockSize: number(f.BlockSize),
		KeepDeletedCells: &keep,
		Attributes:       map[string][]byte{}, Configuration: maps.Clone(f.Configuration),
	}
	for _, texts := range []map[string]string{f.Metadata, f.Attributes} {
		for name, value := range texts {
			c.Attributes[name] = []byte(value)
		}
	}
	if f.NewVersionBehavior {
		c.Attributes["NEW_VERSION_BEHAVIOR"] = []byte("true")
	}
	if f.Counter {
		c.Attributes["COUNTER"] = []byte("true") // HBase keeps what it does not know
	}
	if f.Distinct {
		c.Attributes["DISTINCT"] = []byte("true")
	}
	if f.TimeToPurgeDeletes != 0 {
		c.Configuration = with(c.Configuration, store.ConfPurgeDeletes, strconv.FormatInt(f.TimeToPurgeDeletes, 10))
	}
	return c
}

// CheckSchema returns why CreateTable would refuse t, without asking HBase: its error wraps
// store.ErrInvalidSchema.
func (s *Store) CheckSchema(t *store.TableDescriptor) error { return checkSchema(t) }

// checkSchema refuses what HBase cannot hold as Sluice means it.
func checkSchema(t *store.TableDescriptor) error {
	if err := t.Validate(); err != nil {
		return err
	}
	for i := range t.Families {
		f := &t.Families[i]
		fail := func(err error, why string) error {
			return fmt.Errorf("%w: table %s, family %s: %s", err, t.Name, f.Name, why)
		}
		what := inPlace(f)
		switch {
		case what == "":
		case f.TTL != store.Forever:
			return fail(store.ErrInvalidSchema, what+" has no TTL on HBase, where the timestamps of its cells are offsets, not dates: remove old rows instead")
		case f.NewVersionBehavior:
			return fail(store.ErrInvalidSchema, what+" has no NEW_VERSION_BEHAVIOR on HBase: the cell with the newest timestamp must win, whenever it was written")
		case f.KeepDeleted != store.KeepDeletedFalse:
			return fail(store.ErrInvalidSchema, what+" has no KEEP_DELETED_CELLS")
		}
	}
	return nil
}

// inPlace says of which kind a family is whose columns are cells of their sources; "" =
// of none.
func inPlace(f *store.FamilyDescriptor) string {
	switch {
	case f.Counter:
		return "a COUNTER family"
	case f.Distinct:
		return "a DISTINCT family"
	}
	return ""
}

// difference says in what a schema that HBase has differs from the one that it was
// given; "" = in nothing. HBase may add metadata of its own to tables.
func difference(given, has *store.TableDescriptor) string {
	if len(given.Families) != len(has.Families) {
		return fmt.Sprintf("it has %d families, not %d", len(has.Families), len(given.Families))
	}
	for i := range given.Families {
		g, h := given.Clone().Families[i], has.Families[i]
		withoutDefaults(&g)
		if g.Name != h.Name {
			return fmt.Sprintf("it has family %q, not %q", h.Name, g.Name)
		}
		for _, texts := range []struct {
			what      string
			given, is map[string]string
		}{
			{"attributes", g.Attributes, h.Attributes},
			{"metadata", g.Metadata, h.Metadata},
			{"configuration", g.Configuration, h.Configuration},
		} {
			if !maps.Equal(texts.given, texts.is) {
				return fmt.Sprintf("family %s has %s %q, not %q", g.Name, texts.what, texts.is, texts.given)
			}
		}
		type numbers struct {
			Versions, MinVersions, TTL, BlockSize int
			KeepDeleted                           store.KeepDeleted
			NewVersionBehavior, Counter, Distinct bool
			TimeToPurgeDeletes                    int64
		}
		of := func(f *store.FamilyDescriptor) numbers {
			return numbers{f.Versions, f.MinVersions, f.TTL, f.BlockSize, f.KeepDeleted, f.NewVersionBehavior, f.Counter, f.Distinct, f.TimeToPurgeDeletes}
		}
		if of(&g) != of(&h) {
			return fmt.Sprintf("family %s has %+v, not %+v", g.Name, of(&h), of(&g))
		}
	}
	gd, hd := toHBase(given), toHBase(has)
	for name, value := range gd.Attributes {
		if string(hd.Attributes[name]) != string(value) {
			return fmt.Sprintf("%s is %q, not %q", name, hd.Attributes[name], value)
		}
	}
	if given.Durability() != has.Durability() {
		return fmt.Sprintf("%s is %s, not %s", store.AttrDurability, has.Durability(), given.Durability())
	}
	return ""
}
