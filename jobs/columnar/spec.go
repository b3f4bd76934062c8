package columnar

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sluice/internal/spelling"
	"sluice/store"
)

// ColumnSpec is one column as a job file declares it.
type ColumnSpec struct {
	// Name of the output column; unique in the job.
	Name string `yaml:"name"`
	// From is what fills it: "family:qualifier" ("family:" for the empty
	// qualifier), $row, $row.NAME (a field of row_key), $timestamp, or with rows:
	// cell $family, $qualifier and $value; with incremental and with mode: history
	// also $op; with rows: row also $unmatched.FAMILY, the columns of a family
	// that no other column names, as a map or as a JSON object.
	From string `yaml:"from"`
	// Type is string, int64, float64, bool, timestamp, bytes, json or
	// decimal(PRECISION,SCALE) with at most 38 digits; of $unmatched.FAMILY it is
	// map, map(string), map(int64), map(float64), json or string.
	Type string `yaml:"type"`
	// Coding says how the cell's bytes hold the value. Default: text, and
	// int64be for int64 columns of COUNTER families, distinct for those of
	// DISTINCT families.
	Coding string `yaml:"coding,omitempty"`
	// Nullable false makes an absent cell an error. Default: true for columns
	// filled from cells, and for $value where there is $op.
	Nullable *bool `yaml:"nullable,omitempty"`
	// OnError is what becomes of a value that the coding cannot read: fail
	// (default) ends the job, null exports null.
	OnError string `yaml:"on_error,omitempty" null:"text"`
}

// The values of ColumnSpec.OnError.
const (
	OnErrorFail = "fail"
	OnErrorNull = "null"
)

// SpecError is one mistake in a job's declaration. Several are joined by
// errors.Join.
type SpecError struct {
	Path    string // where: "columns[3].coding"
	Problem string // what is wrong, and what would be right
}

// Error returns "path: problem".
func (e *SpecError) Error() string { return e.Path + ": " + e.Problem }

// source is where a compiled column's values come from.
type source uint8

const (
	sourceCell source = iota + 1 // family and qualifier
	sourceRow
	sourceTimestamp
	sourceFamily
	sourceQualifier
	sourceValue
	sourceOp
	sourceField     // of the row key
	sourceUnmatched // what no column names of a family
)

// ofFamily reports whether the values are those of a family's cells.
func (s source) ofFamily() bool { return s == sourceCell || s == sourceUnmatched }

// column is a compiled ColumnSpec.
type column struct {
	Column
	from       string
	source     source
	family     string
	qualifier  string
	coding     Coding
	nullOnFail bool
	field      int      // of the schema's key, with sourceField
	named      []string // sorted qualifiers that are other columns', with sourceUnmatched
	again      bool     // the next column in Schema.cells has the same cell
}

// Schema is the compiled columns of a job.
type Schema struct {
	table   string
	mode    RowsMode
	key     *keyLayout // nil = no column comes from a field of it
	columns []column
	cells   []int // PerRow: indexes of the sourceCell columns by family and qualifier
	others  []int // the rest
	packs   bool  // rows that are packed need not become cells
	where   []predicate
}

// Table returns the name of the table, empty where none was given.
func (s *Schema) Table() string { return s.table }

// Mode returns what becomes an output row.
func (s *Schema) Mode() RowsMode { return s.mode }

// Columns returns the output columns in order, in a new slice.
func (s *Schema) Columns() []Column {
	cs := make([]Column, len(s.columns))
	for i := range s.columns {
		cs[i] = s.columns[i].Column
	}
	return cs
}

// Specs returns the columns as they were declared, with every default filled in.
func (s *Schema) Specs() []ColumnSpec {
	specs := make([]ColumnSpec, len(s.columns))
	for i := range s.columns {
		c := &s.columns[i]
		nullable := c.Nullable
		specs[i] = ColumnSpec{Name: c.Name, From: c.from, Type: c.Type.String(), Coding: c.coding.String(), Nullable: &nullable, OnError: OnErrorFail}
		if c.nullOnFail {
			specs[i].OnError = OnErrorNull
		}
	}
	return specs
}

// Families returns the families that columns are filled from, sorted; none in
// mode PerCell.
func (s *Schema) Families() []string {
	var fs []string
	for i := range s.columns {
		if f := s.columns[i].family; s.columns[i].source.ofFamily() && !slices.Contains(fs, f) {
			fs = append(fs, f)
		}
	}
	slices.Sort(fs)
	return fs
}

// Op reports whether a column comes from FromOp.
func (s *Schema) Op() bool {
	return slices.ContainsFunc(s.columns, func(c column) bool { return c.source == sourceOp })
}

// Order returns the columns by which the output is sorted ascending, bytewise,
// when rows are appended in the order of a scan: the longest prefix of row key,
// family, qualifier that is exported as it is.
func (s *Schema) Order() []string {
	keys := []source{sourceRow}
	if s.mode == PerCell {
		keys = append(keys, sourceFamily, sourceQualifier)
	}
	var order []string
	for _, k := range keys {
		i := slices.IndexFunc(s.columns, func(c column) bool { return c.source == k && !c.nullOnFail && c.coding.Verbatim(c.Type) })
		if i < 0 {
			break
		}
		order = append(order, s.columns[i].Name)
	}
	return order
}

// TellsRows reports whether a column has the row keys, so that no two rows have one value:
// as they are, or backwards.
func (s *Schema) TellsRows() bool {
	return slices.ContainsFunc(s.columns, func(c column) bool {
		return c.source == sourceRow && !c.nullOnFail && (c.Type == String || c.Type == Bytes) && c.coding.Exact(c.Type)
	})
}

// compiler collects the mistakes of a declaration.
type compiler struct {
	table   *store.TableDescriptor
	mode    RowsMode
	layout  *keyLayout // of row keys; nil = not declared
	markers bool       // cells may be delete markers: PerCell with a column from FromOp
	errs    []error
}

func (c *compiler) bad(i int, field, format string, args ...any) {
	path := fmt.Sprintf("columns[%d]", i)
	if field != "" {
		path += "." + field
	}
	c.errs = append(c.errs, &SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

// Compile checks specs against the table's schema and returns what a Builder
// needs. A nil schema checks no families. Its error joins a *SpecError for every
// mistake, named by its path.
func Compile(specs []ColumnSpec, mode RowsMode, schema *store.TableDescriptor) (*Schema, error) {
	return CompileKeyed(specs, mode, nil, schema)
}

// CompileKeyed is Compile of columns of which some may come from fields of the row
// key, which is made as key says. A nil or zero key says nothing.
func CompileKeyed(specs []ColumnSpec, mode RowsMode, key *KeySpec, schema *store.TableDescriptor) (*Schema, error) {
	c := &compiler{table: schema, mode: mode}
	switch mode {
	case PerRow, PerCell:
	case "":
		c.mode = PerRow
	default:
		return nil, &SpecError{Path: "rows", Problem: fmt.Sprintf("%q is no mode%s; it is row or cell", mode, spelling.Aside(string(mode), []string{"row", "cell"}))}
	}
	c.markers = c.mode == PerCell && slices.ContainsFunc(specs, func(s ColumnSpec) bool { return s.From == FromOp })
	s := &Schema{mode: c.mode}
	if schema != nil {
		s.table = schema.Name
	}
	if len(specs) == 0 {
		return nil, &SpecError{Path: "columns", Problem: "columns names none; an export needs at least one column"}
	}
	c.layout = c.key(key)
	names := make(map[string]int, len(specs))
	for i := range specs {
		c.name(i, specs[i].Name, names)
		s.columns = append(s.columns, c.column(i, &specs[i]))
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	for i := range s.columns {
		if s.columns[i].source == sourceCell {
			s.cells = append(s.cells, i)
		} else {
			if s.columns[i].source == sourceField {
				s.key = c.layout
			}
			s.others = append(s.others, i)
		}
	}
	slices.SortStableFunc(s.cells, func(a, b int) int {
		x, y := &s.columns[a], &s.columns[b]
		if d := strings.Compare(x.family, y.family); d != 0 {
			return d
		}
		return strings.Compare(x.qualifier, y.qualifier)
	})
	for k := 1; k < len(s.cells); k++ {
		x, y := &s.columns[s.cells[k-1]], &s.columns[s.cells[k]]
		x.again = x.family == y.family && x.qualifier == y.qualifier
	}
	s.named()
	s.packs = s.mode == PerRow && !slices.ContainsFunc(s.columns, func(c column) bool { return c.source == sourceUnmatched })
	return s, nil
}

func (c *compiler) name(i int, name string, seen map[string]int) {
	switch {
	case name == "":
		c.bad(i, "name", "it is missing")
		return
	case !utf8.ValidString(name):
		c.bad(i, "name", "%q is not UTF-8", name)
	case strings.ContainsFunc(name, func(r rune) bool { return unicode.IsControl(r) || r == '.' }):
		// Readers take a dot for the path into a nested column.
		c.bad(i, "name", "%q has a dot or a control character", name)
	}
	// Readers that fold case (DuckDB, Spark) cannot tell such columns apart.
	fold := strings.ToLower(name)
	if j, ok := seen[fold]; ok {
		c.bad(i, "name", "%q is also the name of columns[%d] (upper and lower case count as equal)", name, j)
		return
	}
	seen[fold] = i
}

func (c *compiler) column(i int, spec *ColumnSpec) column {
	col := column{Column: Column{Name: spec.Name}, from: spec.From}
	c.from(i, spec.From, &col)
	ok := false
	if col.Type, ok = ParseType(spec.Type); !ok {
		if spec.Type == "" {
			c.bad(i, "type", "it is missing; it is one of %s and decimal(P,S), or from %sFAMILY one of %s", strings.Join(typeNames[String:], ", "), FromUnmatched, mapNames())
		} else if strings.HasPrefix(spec.Type, "decimal") {
			hint := ""
			if strings.Contains(spec.Type, "(") && !strings.Contains(spec.Type, ")") { // {type: decimal(9,2)}
				hint = ", in quotes within braces, where the comma ends a text"
			}
			c.bad(i, "type", "%q is no type; decimals are decimal(P,S) with P digits, 1 to %d, of which S, 0 to P, are behind the point%s", spec.Type, MaxPrecision, hint)
		} else if strings.HasPrefix(spec.Type, "map") {
			c.bad(i, "type", "%q is no type%s; maps of qualifier and value are %s", spec.Type, spelling.Aside(spec.Type, []string{"map", "map(string)", "map(int64)", "map(float64)"}), mapNames())
		} else {
			c.bad(i, "type", "%q is no type%s; it is one of %s and decimal(P,S)", spec.Type, spelling.Aside(spec.Type, typeNames[String:]), strings.Join(typeNames[String:], ", "))
		}
	}
	if ok && col.source != 0 {
		c.coding(i, spec.Coding, &col)
	}
	switch spec.OnError {
	case "", OnErrorFail:
	case OnErrorNull:
		col.nullOnFail = true
	default:
		c.bad(i, "on_error", "%q is no policy%s; it is fail or null", spec.OnError, spelling.Aside(spec.OnError, []string{OnErrorFail, OnErrorNull}))
	}
	col.Nullable = col.source.ofFamily() || col.nullOnFail || c.markers && col.source == sourceValue
	if spec.Nullable != nil {
		if !*spec.Nullable && col.nullOnFail {
			c.bad(i, "nullable", "it is false, but on_error: null makes nulls")
		}
		if !*spec.Nullable && c.markers && col.source == sourceValue {
			c.bad(i, "nullable", "a delete marker has no value: with %s it is true", FromOp)
		}
		col.Nullable = *spec.Nullable
	}
	return col
}

// from fills in where col comes from; its source stays 0 where that is wrong.
func (c *compiler) from(i int, from string, col *column) {
	specials := map[string]source{FromRow: sourceRow, FromTimestamp: sourceTimestamp, FromFamily: sourceFamily, FromQualifier: sourceQualifier, FromValue: sourceValue, FromOp: sourceOp}
	switch {
	case from == "":
		c.bad(i, "from", "it is missing; it is family:qualifier, $row or $timestamp, or with rows: cell also $family, $qualifier and $value")
	case strings.HasPrefix(from, fromField):
		c.fromKey(i, from[len(fromField):], col)
	case strings.HasPrefix(from, FromUnmatched):
		c.fromUnmatched(i, from[len(FromUnmatched):], col)
	case from[0] == '$':
		s, ok := specials[from]
		if !ok {
			names := []string{FromRow, FromTimestamp, FromFamily, FromQualifier, FromValue, FromOp}
			c.bad(i, "from", "%q is none of %s%s", from, strings.Join(names, ", "), spelling.Aside(from, names))
			return
		}
		if c.mode == PerRow && s != sourceRow && s != sourceTimestamp && s != sourceOp {
			c.bad(i, "from", "%s needs rows: cell; with rows: row a column is filled from family:qualifier", from)
			return
		}
		col.source = s
	default:
		family, qualifier, ok := strings.Cut(from, ":")
		if !ok {
			c.bad(i, "from", "%q has no colon; write family:qualifier, or %q for the empty qualifier", from, from+":")
			return
		}
		if c.mode == PerCell {
			c.bad(i, "from", "%q names a column; with rows: cell it is $row, $timestamp, $family, $qualifier or $value", from)
			return
		}
		if c.table != nil {
			if family = c.family(i, family); family == "" {
				return
			}
		}
		col.source, col.family, col.qualifier = sourceCell, family, qualifier
	}
}

// coding fills in and checks how col's bytes are read.
func (c *compiler) coding(i int, name string, col *column) {
	typ := col.Type // of the cells' values
	if value, ok := typ.Map(); ok {
		if col.source != sourceUnmatched {
			c.bad(i, "type", "a %s holds many columns: it is for columns from %sFAMILY, not from %s", col.Type, FromUnmatched, col.from)
			return
		}
		typ = value
	}
	switch col.source {
	case sourceTimestamp:
		switch {
		case col.Type != Timestamp && col.Type != Int64:
			c.bad(i, "type", "%s is a timestamp; its type is timestamp (µs), or int64 (ms), not %s", FromTimestamp, col.Type)
		case name != "":
			c.bad(i, "coding", "%s has none, it is a number already; leave it out", FromTimestamp)
		}
		return
	case sourceFamily, sourceOp:
		if col.Type != String || (name != "" && name != Text.String()) {
			c.bad(i, "type", "%s is a string", col.from)
		}
		col.coding = Text
		return
	}
	if col.source == sourceUnmatched && typ == col.Type {
		c.unmatchedCoding(i, name, col)
		return
	}
	counter := c.only(col, func(f *store.FamilyDescriptor) bool { return f.Counter })
	distinct := c.only(col, func(f *store.FamilyDescriptor) bool { return f.Distinct })
	allowed := col.Type.codings()
	if name == "" {
		col.coding = allowed[0]
		if counter && typ == Int64 {
			col.coding = Int64BE
		}
		if distinct && typ == Int64 {
			col.coding = Distinct
		}
	} else {
		coding, ok := ParseCoding(name)
		names := make([]string, len(allowed))
		for j := range allowed {
			names[j] = allowed[j].String()
		}
		if !ok || !slices.Contains(allowed, coding) {
			c.bad(i, "coding", "%q is no coding of type %s%s; it is one of %s", name, col.Type, spelling.Aside(name, names), strings.Join(names, ", "))
			return
		}
		col.coding = coding
	}
	numbers, whole := Int64.String(), Bytes.String()
	if typ != col.Type {
		numbers, whole = mapName(Int64), mapName(Bytes)
	}
	if counter && col.coding != Int64BE && col.coding != Raw {
		c.bad(i, "coding", "%s comes from a COUNTER family, whose values are 8 bytes big-endian; use type %s with coding int64be", col.from, numbers)
	}
	if distinct && col.coding != Distinct && col.coding != Raw {
		c.bad(i, "coding", "%s comes from a DISTINCT family, whose values are sketches; use type %s with coding distinct for the estimate, or type %s", col.from, numbers, whole)
	}
}

// only reports whether all families that col's values can come from are such.
func (c *compiler) only(col *column, such func(*store.FamilyDescriptor) bool) bool {
	if c.table == nil {
		return false
	}
	switch col.source {
	case sourceCell, sourceUnmatched:
		return such(c.table.Family(col.family))
	case sourceValue:
		return !slices.ContainsFunc(c.table.Families, func(f store.FamilyDescriptor) bool { return !such(&f) })
	}
	return false
}
