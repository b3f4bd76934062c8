package hbasestore

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// framedAdvice says what to do where a gateway with framed transport cannot do it.
const framedAdvice = "use an unframed gateway for this change, or HBase's shell"

// framedGarbles is why it has not made the table that was asked for.
const framedGarbles = "a gateway with framed transport garbles split keys and attributes: use an unframed one, or HBase's shell"

// garbled says why a gateway with framed transport must not make t of has, nil where it
// can; family is that of alteration. Such a gateway takes its whole receive buffer for
// each name and value of an attribute (ThriftUtilities of HBase 2.6.1, ByteBuffer.array)
// and for the family of deleteColumnFamily. DURABILITY of a table is sent as a number,
// and a configuration as texts, which arrive as they are. Its error wraps
// store.ErrInvalidSchema.
func garbled(has, t *store.TableDescriptor, family string) error {
	var what, change []string
	for i := range has.Families {
		if name := has.Families[i].Name; t.Family(name) == nil {
			what = append(what, "the name of family "+name+", which is to be deleted")
			change = append(change, fmt.Sprintf("{NAME => %s, METHOD => 'delete'}", quoted(name)))
		}
	}
	sent := func(of string, attributes map[string][]byte) {
		if len(attributes) > 0 {
			what = append(what, "attributes of "+of+" ("+strings.Join(slices.Sorted(maps.Keys(attributes)), ", ")+")")
		}
	}
	for i := range t.Families {
		f := &t.Families[i]
		if family == "" || family == f.Name {
			sent("family "+f.Name, familyToHBase(f).Attributes)
		}
		old := has.Family(f.Name)
		if old == nil {
			plain := store.NewFamily(f.Name)
			change = append(change, familyChange(&plain, f, true))
		} else if c := familyChange(old, f, false); c != "" {
			change = append(change, c)
		}
	}
	gd, hd := toHBase(t), toHBase(has)
	if family == "" {
		sent("table "+t.Name, gd.Attributes)
	}
	if len(what) == 0 {
		return nil
	}
	parts := attributeChanges(hd.Attributes, gd.Attributes, store.TableAttributeNames())
	if given := t.Durability(); given != has.Durability() {
		parts = append(parts, fmt.Sprintf("DURABILITY => '%s'", given))
	}
	change = append(change, parts...)
	return fmt.Errorf("alter table %s: %w: a gateway with framed transport garbles %s, and nothing was changed: %s: alter %s, %s",
		t.Name, store.ErrInvalidSchema, strings.Join(what, " and "), framedAdvice,
		quoted(t.Name), strings.Join(change, ", "))
}

// familyChange is what the alter of HBase's shell takes to make f of old; "" = nothing
// differs, and always is false.
func familyChange(old, f *store.FamilyDescriptor, always bool) string {
	var parts []string
	number := func(name string, old, n int) {
		if n != old {
			parts = append(parts, fmt.Sprintf("%s => %d", name, n))
		}
	}
	number("VERSIONS", old.Versions, f.Versions)
	number("MIN_VERSIONS", old.MinVersions, f.MinVersions)
	number("BLOCKSIZE", old.BlockSize, f.BlockSize)
	if f.TTL == store.Forever && old.TTL != f.TTL {
		parts = append(parts, "TTL => 'FOREVER'")
	} else {
		number("TTL", old.TTL, f.TTL)
	}
	if f.KeepDeleted != old.KeepDeleted {
		parts = append(parts, fmt.Sprintf("KEEP_DELETED_CELLS => '%s'", f.KeepDeleted))
	}
	was, is := familyToHBase(old), familyToHBase(f)
	known := slices.DeleteFunc(store.FamilyAttributeNames(), func(name string) bool { return name == counterAttribute || name == distinctAttribute })
	parts = append(parts, attributeChanges(was.Attributes, is.Attributes, known)...)
	if c := textChanges(configurationOf(was), configurationOf(is)); c != "" {
		parts = append(parts, "CONFIGURATION => {"+c+"}")
	}
	if len(parts) == 0 && !always {
		return ""
	}
	return "{" + strings.Join(append([]string{"NAME => " + quoted(f.Name)}, parts...), ", ") + "}"
}

// HBase knows neither of them, so that its shell takes them as METADATA.
const (
	counterAttribute  = "COUNTER"
	distinctAttribute = "DISTINCT"
)

func configurationOf(f *hbase.TColumnFamilyDescriptor) map[string][]byte {
	texts := map[string][]byte{}
	for name, value := range f.Configuration {
		texts[name] = []byte(value)
	}
	return texts
}

// attributeChanges are the settings of HBase's shell that make is of was: those that
// are known to it by their names, the others as METADATA.
func attributeChanges(was, is map[string][]byte, known []string) (parts []string) {
	was, is = maps.Clone(was), maps.Clone(is)
	for _, name := range known {
		value, ok := is[name]
		if ok && string(was[name]) != string(value) {
			parts = append(parts, name+" => "+quoted(string(value)))
		}
		if ok {
			delete(was, name)
			delete(is, name)
		}
	}
	if c := textChanges(was, is); c != "" {
		parts = append(parts, "METADATA => {"+c+"}")
	}
	return parts
}

// textChanges are the pairs that make is of was; nil removes one.
func textChanges(was, is map[string][]byte) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(is)) {
		if value, ok := was[name]; !ok || string(value) != string(is[name]) {
			parts = append(parts, quoted(name)+" => "+quoted(string(is[name])))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(was)) {
		if _, ok := is[name]; !ok {
			parts = append(parts, quoted(name)+" => nil")
		}
	}
	return strings.Join(parts, ", ")
}

// quoted is a text as Ruby writes it.
func quoted(text string) string {
	if strings.ContainsAny(text, "'\\") || strconv.Quote(text) != `"`+text+`"` {
		return strings.ReplaceAll(strconv.Quote(text), "#", `\#`) // "#{" is Ruby's
	}
	return "'" + text + "'"
}
