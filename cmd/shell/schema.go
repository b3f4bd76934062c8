package main

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"sluice/internal/spelling"
	"sluice/pipeline"
	"sluice/region"
	"sluice/store"
)

func schemaCommands() []*commandInfo {
	families := append([]string{"NAME"}, store.FamilyAttributeNames()...)
	attributes := append(store.TableAttributeNames(), "METADATA", "CONFIGURATION")
	return []*commandInfo{
		{
			name: "create", min: 1, max: -1, first: noArgument, families: true, reference: true, run: create,
			options: slices.Concat(families, createOptions, attributes),
			summary: "Make a table of families, cut into regions or not.",
			examples: `create 't3', 'f1', {NAME => 'f2', VERSIONS => 5, TTL => '30 DAYS'}
create 't4', 'f1', SPLITS => ['10', '20']
create 't5', 'f1', {NUMREGIONS => 4, SPLITALGO => 'HexStringSplit'}
create 't6', {NAME => 'c', COUNTER => true}     # a family of counters
create 'ns1:t7', 'f1', MAX_FILESIZE => 1073741824, METADATA => {'owner' => 'me'}
create 't8', {NAME => 'f1', CONFIGURATION => {'hbase.hstore.time.to.purge.deletes' => 60000}}
create 't9', 'f1', CONFIGURATION => {'hbase.regionserver.region.split_restriction.type' => 'KeyPrefix', 'hbase.regionserver.region.split_restriction.prefix_length' => 2}`,
		},
		{
			name: "alter", min: 2, max: -1, first: tableArgument, families: true, run: alter,
			options: slices.Concat(families, []string{"METHOD"}, attributes),
			summary: "Add, change or delete families, set or unset table attributes; readers and writers go on.",
			examples: `alter 't1', NAME => 'f1', VERSIONS => 5
alter 't1', 'f3', {NAME => 'f2', TTL => '1 DAY'}
alter 't1', NAME => 'f2', METHOD => 'delete'
alter 't1', 'delete' => 'f3'
alter 't1', MAX_FILESIZE => 1073741824
alter 't1', METADATA => {'owner' => 'me'}
alter 't1', METHOD => 'table_att_unset', NAME => 'MAX_FILESIZE'`,
		},
		{
			name: "alter_async", min: 2, max: -1, first: tableArgument, families: true, run: alterAsync,
			options:  slices.Concat(families, []string{"METHOD"}, attributes),
			summary:  "Alter, without a word: in Sluice an alter is one commit and never waits for regions.",
			examples: "alter_async 't1', NAME => 'f1', VERSIONS => 5",
		},
		{
			name: "alter_status", min: 1, max: 1, first: tableArgument, run: alterStatus,
			summary: "Say how many regions have the newest schema: always all.", examples: "alter_status 't1'",
		},
		{
			name: "clone_table_schema", min: 2, max: 3, first: tableArgument, run: cloneTableSchema,
			summary:  "Make an empty table with another's schema and, unless false is given, its regions.",
			examples: "clone_table_schema 't1', 't9'\nclone_table_schema 't1', 't10', false",
		},
	}
}

// createOptions say how create cuts a table into regions.
var createOptions = []string{"SPLITS", "SPLITS_FILE", "NUMREGIONS", "SPLITALGO"}

func create(s *session, args []any) (string, error) {
	t := &store.TableDescriptor{Name: text(args[0])}
	var splits [][]byte
	var regions int64
	algorithm := ""
	for _, a := range args[1:] {
		h, ok := a.(hash)
		if !ok {
			if _, ok := a.(string); !ok {
				return "", badArgument("%s cannot describe a column family", inspect(a))
			}
			h = hash{{symbol("NAME"), a}}
		}
		if name, ok := h.get("NAME"); ok {
			f := store.NewFamily(text(name))
			if err := setFamily(&f, h); err != nil {
				return "", err
			}
			if old := t.Family(f.Name); old != nil {
				s.print.linef("Family '%s' already exists, the old one will be replaced", f.Name)
				*old = f
			} else {
				t.Families = append(t.Families, f)
			}
			continue
		}
		for _, p := range h {
			var err error
			switch p.name() {
			case "SPLITS":
				for _, k := range p.list() {
					splits = append(splits, []byte(text(k)))
				}
			case "SPLITS_FILE":
				splits, err = readSplits(text(p.value))
			case "NUMREGIONS":
				if regions, err = p.number(); err == nil && (regions < 2 || regions > region.MaxRegions) {
					err = badArgument("NUMREGIONS => takes 2..%d", region.MaxRegions)
				}
			case "SPLITALGO":
				algorithm = text(p.value)
			default:
				err = setTable(t, p, append([]string{"NAME"}, createOptions...)...)
			}
			if err != nil {
				return "", err
			}
		}
	}
	if (regions != 0) != (algorithm != "") {
		return "", badArgument("NUMREGIONS and SPLITALGO go together")
	}
	if regions != 0 {
		if splits != nil {
			return "", badArgument("NUMREGIONS and SPLITS exclude each other")
		}
		var err error
		if splits, err = region.SplitPoints(algorithm, int(regions)); err != nil {
			return "", err
		}
	}
	if len(t.Families) == 0 {
		return "", badArgument("Table must have at least one column family")
	}
	if err := s.createTable(t, splits); err != nil {
		return "", err
	}
	s.print.linef("Created table %s", t.Name)
	return "Hbase::Table - " + t.Name, nil
}

func (s *session) createTable(t *store.TableDescriptor, splits [][]byte) error {
	err := s.store.CreateTable(s.ctx, t, splits)
	switch {
	case errors.Is(err, store.ErrTableExists):
		return &tableError{"Table already exists: " + t.Name + "!", err}
	case errors.Is(err, store.ErrNamespaceNotFound):
		return namespaceError(store.NamespaceOf(t.Name), err)
	}
	return err
}

// readSplits reads split keys from a file, one a line.
func readSplits(name string) ([][]byte, error) {
	b, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("SPLITS_FILE: %w", err)
	}
	var keys [][]byte
	for line := range strings.Lines(string(b)) {
		if line = strings.TrimRight(line, "\r\n"); line != "" {
			keys = append(keys, []byte(line))
		}
	}
	return keys, nil
}

// setFamily sets the attributes of h in f.
func setFamily(f *store.FamilyDescriptor, h hash) error {
	known := store.FamilyAttributeNames()
	for _, p := range h {
		var err error
		switch name := p.name(); name {
		case "NAME":
		case "METADATA":
			err = p.each(func(name, value string) error {
				if slices.Contains(known, strings.ToUpper(name)) {
					return f.SetAttribute(name, value)
				}
				return f.SetMetadata(name, value)
			})
		case "CONFIGURATION":
			err = p.each(f.SetConfiguration)
		case "ENCRYPTION", "ENCRYPTION_KEY":
			err = fmt.Errorf("%w: %s of family %s: encrypt the file system of the data directory", store.ErrUnsupported, name, f.Name)
		default:
			if !slices.Contains(known, name) {
				return unknownAttribute(p, "column family "+f.Name, append(known, "METADATA", "CONFIGURATION"),
					slices.Contains(append(store.TableAttributeNames(), createOptions...), name), "the table's: give it outside of the family's braces")
			}
			err = f.SetAttribute(name, text(p.value))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// setTable sets an attribute of a table. others are the names that the command
// takes beside them.
func setTable(t *store.TableDescriptor, p pair, others ...string) error {
	known := store.TableAttributeNames()
	switch name := p.name(); {
	case name == "METADATA":
		return p.each(func(name, value string) error {
			if slices.Contains(known, strings.ToUpper(name)) {
				return t.SetAttribute(name, value)
			}
			return t.SetMetadata(name, value)
		})
	case name == "CONFIGURATION": // HBase keeps it among the metadata, too
		return p.each(t.SetMetadata)
	case strings.HasPrefix(name, "COPROCESSOR"):
		return fmt.Errorf("%w: coprocessors", store.ErrUnsupported)
	case !slices.Contains(known, name):
		return unknownAttribute(p, "table "+t.Name, slices.Concat(known, others, []string{"METADATA", "CONFIGURATION"}),
			slices.Contains(store.FamilyAttributeNames(), name), "a family's: {NAME => 'f', "+name+" => …}")
	default:
		return t.SetAttribute(name, text(p.value))
	}
}

// each calls set for every pair of a hash; nil stands for the empty text, which
// unsets.
func (p pair) each(set func(name, value string) error) error {
	h, ok := p.value.(hash)
	if !ok {
		return badArgument("%s => takes {'name' => 'value'}", p.name())
	}
	for _, p := range h {
		if err := set(text(p.key), text(p.value)); err != nil {
			return err
		}
	}
	return nil
}

// unknownAttribute says which attribute is not known, and what may have been meant:
// HBase ignores it with a line that is easily overlooked. misplaced says that it is
// whose.
func unknownAttribute(p pair, of string, known []string, misplaced bool, whose string) error {
	name := text(p.key)
	if misplaced {
		return badArgument("Unknown attribute %s of %s; it is %s", name, of, whose)
	}
	if hint := spelling.Aside(p.name(), known); hint != "" {
		return badArgument("Unknown attribute %s of %s%s", name, of, hint)
	}
	return badArgument("Unknown attribute %s of %s; texts of your own go into METADATA => {'%s' => 'value'}", name, of, name)
}

func alter(s *session, args []any) (string, error) {
	if err := s.alter(args); err != nil {
		return "", err
	}
	s.print.linef("Updating all regions with the new schema...")
	return alterStatus(s, args[:1])
}

func alterAsync(s *session, args []any) (string, error) { return "", s.alter(args) }

func alterStatus(s *session, args []any) (string, error) {
	name := text(args[0])
	m, err := s.store.Regions(s.ctx, store.CanonicalName(name))
	if err != nil {
		return "", tableErrorOf(name, err)
	}
	s.print.linef("%d/%d regions updated.\nDone.", m.Len(), m.Len())
	return "", s.print.object(object{{"table", name}, {"regions", m.Len()}, {"updated", m.Len()}})
}

// alter makes every change that args name, in one commit.
func (s *session) alter(args []any) error {
	name := text(args[0])
	have, err := s.store.Table(s.ctx, store.CanonicalName(name))
	if errors.Is(err, store.ErrTableNotFound) {
		return &tableError{"Can't find a table: " + name, err}
	}
	if err != nil {
		return err
	}
	t := have.Clone()
	for _, a := range args[1:] {
		h, ok := a.(hash)
		if !ok {
			h = hash{{symbol("NAME"), a}}
		}
		if err := s.alterBy(t, h); err != nil {
			return err
		}
	}
	if err := pipeline.MayAlter(s.ctx, s.store, t); err != nil {
		return err
	}
	return s.explain(t, s.store.AlterTable(s.ctx, t))
}

// alterBy makes one change in t: of a family, of attributes, or by METHOD.
func (s *session) alterBy(t *store.TableDescriptor, h hash) error {
	name, named := h.get("NAME")
	if method, ok := h.get("METHOD"); ok && text(method) != "table_att" {
		if !named {
			return badArgument("NAME parameter missing for %s method", text(method))
		}
		return s.alterMethod(t, text(method), (pair{value: name}).list())
	}
	if named {
		f := t.Family(text(name))
		if f == nil {
			t.Families = append(t.Families, store.NewFamily(text(name)))
			f = &t.Families[len(t.Families)-1]
		}
		return setFamily(f, h)
	}
	for _, p := range h {
		switch p.name() {
		case "METHOD": // table_att
			continue
		case "DELETE":
			if err := s.alterMethod(t, "delete", p.list()); err != nil {
				return err
			}
			continue
		}
		if err := setTable(t, p, "NAME", "METHOD", "DELETE"); err != nil {
			return err
		}
	}
	return nil
}

func (s *session) alterMethod(t *store.TableDescriptor, method string, names []any) error {
	for _, n := range names {
		name := text(n)
		switch method {
		case "delete":
			if t.Family(name) == nil {
				return s.explain(t, fmt.Errorf("%w: %s", store.ErrFamilyNotFound, name))
			}
			t.Families = slices.DeleteFunc(t.Families, func(f store.FamilyDescriptor) bool { return f.Name == name })
		case "table_att_unset":
			if !t.UnsetAttribute(name) {
				return badArgument("Could not find attribute: %s", name)
			}
		case "table_conf_unset":
			if !t.UnsetMetadata(name) {
				return badArgument("Could not find configuration: %s", name)
			}
		default:
			return badArgument("Unknown method: %s; known are delete, table_att, table_att_unset, table_conf_unset", method)
		}
	}
	return nil
}

func cloneTableSchema(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	keep := true
	if len(args) == 3 {
		if keep, err = (pair{symbol("PRESERVE_SPLITS"), args[2]}).boolean(); err != nil {
			return "", err
		}
	}
	var splits [][]byte
	if keep {
		m, err := s.store.Regions(s.ctx, t.Name)
		if err != nil {
			return "", err
		}
		splits = m.Splits()
	}
	clone := t.Clone()
	clone.Name = text(args[1])
	// Nothing of an unfinished rebuild was counted for the new table.
	clone.Families = slices.DeleteFunc(clone.Families, func(f store.FamilyDescriptor) bool { return pipeline.Rebuilding(t.Name, f.Name) != nil })
	return "", s.createTable(clone, splits)
}

func describe(s *session, args []any) (string, error) {
	t, err := s.table(text(args[0]))
	if err != nil {
		return "", err
	}
	state := "ENABLED"
	if w, ok := s.store.(store.TableSwitcher); ok {
		enabled, err := w.TableEnabled(s.ctx, t.Name)
		if err != nil {
			return "", tableErrorOf(t.Name, err)
		}
		if !enabled {
			state = "DISABLED"
		}
	}
	attributes, metadata := t.List(), t.ListMetadata()
	title := t.Name
	if text := attributeText(attributes, metadata, nil); text != "" {
		title += ", {TABLE_ATTRIBUTES => {" + text + "}}"
	}
	s.print.linef("Table %s is %s\n%s\nCOLUMN FAMILIES DESCRIPTION", t.Name, state, title)
	families := []object{}
	for i := range t.Families {
		f := &t.Families[i]
		metadata, configuration := f.ListMetadata(), f.ListConfiguration()
		s.print.linef("{%s}\n", attributeText(f.List(), metadata, configuration))
		families = append(families, attributeObject(slices.Concat(f.List(), metadata, configuration)))
	}
	s.print.count(len(t.Families))
	s.print.linef("Quota is disabled")
	return "", s.print.object(object{
		{"table", t.Name},
		{"enabled", state == "ENABLED"},
		{"attributes", attributeObject(slices.Concat(attributes, metadata))},
		{"families", families},
	})
}

// attributeText prints attributes as HBase's describe does.
func attributeText(attributes, metadata, configuration []store.Attribute) string {
	var parts []string
	for _, a := range attributes {
		parts = append(parts, fmt.Sprintf("%s => '%s'", a.Name, a.Value))
	}
	for _, group := range []struct {
		name string
		list []store.Attribute
	}{{"METADATA", metadata}, {"CONFIGURATION", configuration}} {
		var inner []string
		for _, a := range group.list {
			inner = append(inner, fmt.Sprintf("'%s' => '%s'", a.Name, a.Value))
		}
		if inner != nil {
			parts = append(parts, group.name+" => {"+strings.Join(inner, ", ")+"}")
		}
	}
	return strings.Join(parts, ", ")
}

func attributeObject(list []store.Attribute) object {
	o := object{}
	for _, a := range list {
		o = append(o, field{a.Name, a.Value})
	}
	return o
}
