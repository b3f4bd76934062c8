package mapping

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/expr-lang/expr/checker"

	"sluice/cell"
	"sluice/internal/spelling"
	"sluice/pipeline/decode"
	"sluice/store"
)

// checkTree is expr's type check.
var checkTree = checker.Check

// languageVersion is part of every Plan's version: it changes when the same
// rules come to mean something else.
const languageVersion = "sluice mapping 2\n"

// programVersion is the same of what only expr's machine runs. 2: numbers in arrays and
// objects, those of fromJSON too, keep all digits. 3: a number of theirs may be beyond all
// floats, and what let names keeps the payload's spelling. 4: what reads a missing field is
// missing, and not the whole expression; what fails where that is not the reason is refused.
const programVersion = 4

// Plan is compiled rules. It is immutable and may be shared.
type Plan struct {
	decode     *decode.Options
	limits     limits
	tombstones tombstones
	fields     *decode.Fields
	sources    []*source
	dates      []dateFormat
	event      eventTime
	dedup      dedup
	loops      []*loop
	rules      []rule
	rollups    []rollup
	hidden     []Hidden
	unlike     []Unlike
	units      bool // what becomes of a record is the store's to decide
	tables     []string
	version    string

	maxMade, maxCrossed int // for one record; tests lower them
	maxSpent, maxBuilt  int64
}

// rule is a compiled RuleSpec.
type rule struct {
	table     string // "" where tableName makes it
	tableName textFunc
	tableEnds [2]string // what the name that tableName makes begins and ends with
	loops     []int     // what the rule goes through, the outermost first: indexes in Plan.loops
	when      boolFunc  // nil = always
	row       text
	timestamp intFunc // nil = the event time
	check     *check  // nil = always
	deletes   []del
	puts      []put
	appends   []put
	adds      []add
}

// text is an expression whose value is bytes. Where it is nothing but a source,
// its bytes are taken where they are.
type text struct {
	source *source // nil = made by make
	make   textFunc
}

type put struct {
	family    string
	qualifier []byte
	value     text
}

type add struct {
	family    string
	qualifier text
	by        intFunc  // nil = 1
	when      boolFunc // nil = always
}

// compilation is the state of one Compile.
type compilation struct {
	format  string
	known   []string // the fields of a format that has a fixed set
	flat    bool     // the format has no arrays
	shape   *decode.Shape
	paths   []string
	sources []*source
	dates   []dateFormat
	loops   []*loop
	inside  []*loop // the loops that names may mean, the outermost first
	errs    []error
	hidden  []Hidden
	unlike  []Unlike
	canon   bytes.Buffer // the normalised rules
	machine bool         // tests: everything runs in expr's machine
}

// Compile checks the names and types of s and compiles it. tables returns the
// schema of a table of the configuration, or nil where there is none; a nil
// tables skips the checks against schemas. It is asked for a name with
// expressions as the rule spells it, which may be nil. The error joins one
// *SpecError for each mistake.
func Compile(s *Spec, tables func(name string) *store.TableDescriptor) (*Plan, error) {
	return (&compilation{}).compile(s, tables)
}

func (c *compilation) compile(s *Spec, tables func(name string) *store.TableDescriptor) (*Plan, error) {
	c.canon.WriteString(languageVersion)
	c.decode(&s.Decode)
	p := &Plan{decode: s.Decode.options(), limits: c.limits(&s.Decode), tombstones: c.tombstones(&s.Decode), event: c.eventTime(&s.EventTime), dedup: c.dedup(&s.Dedup), maxMade: maxMade, maxCrossed: maxCrossed, maxSpent: maxSpent, maxBuilt: maxBuilt}
	if len(s.Rules)+len(s.Rollups) == 0 {
		c.report("map", 0, errors.New("there are no rules"), "a rule has a table, a row, and put, append, increment or delete")
	}
	for i := range s.Rules {
		p.rules = append(p.rules, c.rule(fmt.Sprintf("map[%d]", i), &s.Rules[i], tables))
	}
	p.rollups = c.rollups(s.Rollups, tables)
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	var err error
	if p.fields, err = decode.NewFields(c.paths); err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	if err = p.decode.Check(p.fields); err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	for _, l := range c.loops {
		if l.fields, err = decode.NewFields(l.paths); err != nil {
			return nil, fmt.Errorf("mapping: %w", err)
		}
		if c.format == "protobuf" && c.shape == nil {
			if err = l.fields.AddJSONNames(); err != nil {
				return nil, &SpecError{Path: l.path, Err: err}
			}
		}
	}
	p.sources, p.dates, p.loops, p.hidden, p.unlike = c.sources, c.dates, c.loops, c.hidden, c.unlike
	p.units = p.dedup.ttl > 0 || needsOrder(p.rules, p.rollups)
	for i := range p.rules {
		if t := p.rules[i].table; t != "" && !slices.Contains(p.tables, t) {
			p.tables = append(p.tables, t)
		}
	}
	for i := range p.rollups {
		if t := p.rollups[i].table; !slices.Contains(p.tables, t) {
			p.tables = append(p.tables, t)
		}
	}
	slices.Sort(p.tables)
	sum := sha256.Sum256(c.canon.Bytes())
	p.version = hex.EncodeToString(sum[:8])
	return p, nil
}

// Version identifies what the rules mean: 16 hexadecimal digits of a hash of the
// normalised rules. White space and the order of keys do not change it.
func (p *Plan) Version() string { return p.version }

// Units reports that Output has Records: what becomes of a record depends on what is
// stored at its turn.
func (p *Plan) Units() bool { return p.units }

// Tables returns the names of the tables that the rules write, sorted; not those
// that a rule names by an expression.
func (p *Plan) Tables() []string { return slices.Clone(p.tables) }

// MayWrite reports whether a rule writes a table, or makes names by an expression of
// which the table's could be one.
func (p *Plan) MayWrite(table string) bool {
	table = store.CanonicalName(table)
	return slices.ContainsFunc(p.rules, func(r rule) bool { return r.mayWrite(table) }) ||
		slices.ContainsFunc(p.rollups, func(r rollup) bool { return store.CanonicalName(r.table) == table })
}

// MayCount reports whether a rule or a rollup increments counters in a family of a
// table, or appends to it, which in a DISTINCT family counts different values; or does
// so in tables by names of which the table's could be one.
func (p *Plan) MayCount(table, family string) bool {
	table = store.CanonicalName(table)
	return slices.ContainsFunc(p.rules, func(r rule) bool {
		return r.mayWrite(table) && (slices.ContainsFunc(r.adds, func(a add) bool { return a.family == family }) ||
			slices.ContainsFunc(r.appends, func(a put) bool { return a.family == family }))
	}) || slices.ContainsFunc(p.rollups, func(r rollup) bool {
		return store.CanonicalName(r.table) == table &&
			slices.ContainsFunc(r.buckets, func(b rollupBucket) bool { return b.family == family })
	})
}

// tableEnds returns what the names begin and end with that a name with expressions makes.
func tableEnds(name string) [2]string {
	return [2]string{name[:strings.IndexByte(name, '{')], name[strings.LastIndexByte(name, '}')+1:]}
}

// mayWrite is MayWrite of one rule. The table's name is canonical.
func (r *rule) mayWrite(table string) bool {
	if r.table != "" {
		return store.CanonicalName(r.table) == table
	}
	begin, end := r.tableEnds[0], r.tableEnds[1]
	return slices.ContainsFunc([]string{table, store.DefaultNamespace + ":" + table}, func(name string) bool {
		return len(name) >= len(begin)+len(end) && strings.HasPrefix(name, begin) && strings.HasSuffix(name, end)
	})
}

// Fields returns the paths of the document's fields that the rules read, in the
// order in which they name them first.
func (p *Plan) Fields() []string {
	paths := make([]string, p.fields.Len())
	for i := range paths {
		paths[i] = p.fields.Path(i)
	}
	return paths
}

func (c *compilation) report(path string, at int, err error, hint string) {
	c.errs = append(c.errs, &SpecError{Path: path, At: at, Err: err, Hint: hint})
}

// note adds a line to the normalised rules.
func (c *compilation) note(format string, a ...any) { fmt.Fprintf(&c.canon, format+"\n", a...) }

// noteLayout makes the version of rules another one whose layouts have quotes inside of
// quotes, which were none before.
func (c *compilation) noteLayout(l *layout) {
	if l.quotes {
		c.note("quotes 2")
	}
}

func (c *compilation) decode(s *DecodeSpec) {
	c.format = s.Format
	c.note("decode %q", s.Format)
	if len(s.Columns) > 0 {
		c.note("columns %q %q", s.Columns, cmp.Or(s.Delimiter, ","))
	}
	if s.Framing != "" && s.Framing != "none" {
		c.note("framing %q", s.Framing)
	}
	if len(s.Schema) > 0 {
		c.note("schema %x %s", sha256.Sum256(s.Schema), s.Message)
	}
	if s.Compression != "" && s.Compression != "none" {
		c.note("compression %q", s.Compression)
	}
	if s.MaxBytes != 0 && s.MaxBytes != decode.DefaultMaxBytes {
		c.note("max_bytes %d", s.MaxBytes)
	}
	o := s.options()
	c.known, c.shape, c.flat = o.Known(), o.Shape(), o.Flat()
	err := o.Validate()
	mistake, ok := errors.AsType[*decode.OptionError](err)
	switch {
	case err == nil:
	case !ok:
		c.report("decode", 0, err, "")
	case mistake.Option == "format":
		formats := decode.Formats()
		hint := spelling.Hint(s.Format, formats)
		if hint == "" {
			hint = "there are " + strings.Join(formats, ", ")
		}
		c.report("decode.format", 0, fmt.Errorf("no format %q", s.Format), hint)
	default:
		c.report("decode."+mistake.Option, 0, errors.New(mistake.Reason), "")
	}
}

// field returns the index of the document's field with this path, new or not.
func (c *compilation) field(path string) (index int, hint string, err error) {
	if c.known != nil && !slices.Contains(c.known, path) {
		if hint = spelling.Hint(path, slices.Concat(c.known, slices.Sorted(maps.Keys(reserved)))); hint == "" {
			hint = "it has " + strings.Join(c.known, ", ")
		}
		return 0, hint, fmt.Errorf("format %s has no field %s", c.format, path)
	}
	if index = slices.Index(c.paths, path); index < 0 {
		steps, err := decode.ParsePath(path)
		if err != nil {
			return 0, "", err
		}
		if c.flat && slices.ContainsFunc(steps, func(s decode.Step) bool { return s.Index >= 0 }) {
			return 0, "", fmt.Errorf("format %s has no arrays, and no field %s", c.format, path)
		}
		if c.shape != nil {
			if n, next, lacks := c.shape.Lacks(steps); lacks {
				// The name that was meant stands where the path leaves the schema.
				return 0, spelling.Hint(decode.FormatPath(steps[:n+1]), next), fmt.Errorf("the schema has no field %s", path)
			}
		}
		index = len(c.paths)
		c.paths = append(c.paths, path)
	}
	return index, "", nil
}

// source returns the index of s, new or not.
func (c *compilation) source(s source) int {
	i := slices.IndexFunc(c.sources, func(x *source) bool {
		return x.kind == s.kind && x.field == s.field && x.loop == s.loop && bytes.Equal(x.header, s.header)
	})
	if i < 0 {
		i = len(c.sources)
		c.sources = append(c.sources, &s)
	}
	return i
}

// date returns the index of f.
func (c *compilation) date(f dateFormat) int {
	c.dates = append(c.dates, f)
	return len(c.dates) - 1
}

func (c *compilation) rule(path string, s *RuleSpec, tables func(string) *store.TableDescriptor) rule {
	var r rule
	c.note("rule")
	defer func() { c.inside = nil }()
	for i, text := range s.ForEach {
		if l := c.forEach(fmt.Sprintf("%s.for_each[%d]", path, i), text); l != nil {
			r.loops = append(r.loops, l.id)
		}
	}
	r.table, r.tableName = c.tableName(path+".table", s.Table)
	if r.tableName != nil {
		r.tableEnds = tableEnds(s.Table)
	}
	var schema *store.TableDescriptor
	if tables != nil && s.Table != "" {
		if schema = tables(s.Table); schema == nil && !strings.Contains(s.Table, "{") {
			c.report(path+".table", 0, &NoTableError{s.Table}, "declare it under tables")
		}
	}
	if s.When != "" {
		r.when = c.condition(path+".when", s.When)
	}
	if s.Row == "" {
		c.report(path+".row", 0, errors.New("the row is not given"), "an expression that makes the row key")
	} else {
		var always *string
		if r.row, always = c.bytesOf(path+".row", s.Row); always != nil && cell.CheckRow([]byte(*always)) != nil {
			c.report(path+".row", 0, fmt.Errorf("the row key is always of %d bytes, must be 1..%d", len(*always), cell.MaxRowLength), "")
		}
	}
	if s.Timestamp != "" {
		x := c.expression(path+".timestamp", s.Timestamp, 0, typInt)
		if r.timestamp = x.integer; x.always != nil && strings.HasPrefix(*x.always, "-") {
			c.report(path+".timestamp", 0, fmt.Errorf("%s ms is no time", *x.always), "")
		}
	}
	if s.Check != nil {
		r.check = c.check(path+".check", s.Check, schema)
	}
	for i := range s.Delete {
		r.deletes = append(r.deletes, c.delete(fmt.Sprintf("%s.delete[%d]", path, i), &s.Delete[i], schema))
	}
	if len(s.Delete) > 0 && len(s.Put)+len(s.Append)+len(s.Increment) > 0 {
		c.report(path+".delete", 0, errors.New("a rule that deletes does nothing else"), "a delete hides what is put at its timestamp: make it a rule of its own, with timestamp: time - 1")
	}
	r.puts = c.columns(path, "put", s.Put, schema)
	r.appends = c.columns(path, "append", s.Append, schema)
	for i := range r.appends {
		a := &r.appends[i]
		if _, ok := s.Put[a.family][string(a.qualifier)]; ok {
			c.report(fmt.Sprintf("%s.append.%s.%s", path, a.family, a.qualifier), 0, errors.New("the rule puts the column, too, of which nothing would be left"), "a column is for appends or for puts")
		}
	}
	for i := range s.Increment {
		r.adds = append(r.adds, c.increment(fmt.Sprintf("%s.increment[%d]", path, i), &s.Increment[i], schema))
	}
	if len(s.Put)+len(s.Append)+len(s.Increment)+len(s.Delete) == 0 {
		c.report(path, 0, errors.New("the rule does nothing"), "give it put, append, increment or delete")
	}
	return r
}

// columns compiles the columns of a put or an append.
func (c *compilation) columns(path, key string, families map[string]map[string]string, schema *store.TableDescriptor) (puts []put) {
	for _, family := range slices.Sorted(maps.Keys(families)) {
		at := path + "." + key + "." + family
		c.family(at, family, schema, false)
		if schema != nil && key != "append" && schema.Family(family) != nil && schema.Family(family).Distinct {
			c.report(at, 0, fmt.Errorf("family %s of table %s has DISTINCT and takes appends only", family, schema.Name), "use append, distinct of a rollup, or a family without DISTINCT")
		}
		columns := families[family]
		if len(columns) == 0 {
			c.report(at, 0, errors.New("there are no columns"), "qualifier: expression")
		}
		for _, qualifier := range slices.Sorted(maps.Keys(columns)) {
			c.note("%s %q %q", key, family, qualifier)
			value := c.bytes(at+"."+qualifier, columns[qualifier])
			puts = append(puts, put{family: family, qualifier: []byte(qualifier), value: value})
		}
	}
	return puts
}

func (c *compilation) increment(path string, s *IncrementSpec, schema *store.TableDescriptor) add {
	a := add{family: s.Family}
	c.note("increment %q", s.Family)
	if s.Family == "" {
		c.report(path+".family", 0, errors.New("the family is not given"), "a COUNTER family of the table")
	} else {
		c.family(path+".family", s.Family, schema, true)
	}
	if s.Qualifier == "" {
		c.report(path+".qualifier", 0, errors.New("the qualifier is not given"), `an expression; "total" in quotes is a constant`)
	} else {
		a.qualifier = c.bytes(path+".qualifier", s.Qualifier)
	}
	if s.By != "" {
		a.by = c.integer(path+".by", s.By)
	}
	if s.When != "" {
		a.when = c.condition(path+".when", s.When)
	}
	return a
}

// family checks a family against the table's schema, where it is known.
func (c *compilation) family(path, name string, schema *store.TableDescriptor, counter bool) {
	if schema == nil || len(schema.Families) == 0 { // a table without families is a mistake of its own
		if err := store.CheckFamilyName(name); err != nil {
			c.report(path, 0, err, "")
		}
		return
	}
	f := schema.Family(name)
	if f == nil {
		var names []string
		for i := range schema.Families {
			names = append(names, schema.Families[i].Name)
		}
		hint := spelling.Hint(name, names)
		if hint == "" {
			hint = "it has " + strings.Join(names, ", ")
		}
		c.report(path, 0, fmt.Errorf("table %s has no family %s", schema.Name, name), hint)
		return
	}
	switch {
	case counter && !f.Counter:
		c.report(path, 0, fmt.Errorf("family %s of table %s takes no increments", name, schema.Name), "declare it with COUNTER: true")
	case !counter && f.Counter:
		c.report(path, 0, fmt.Errorf("family %s of table %s has COUNTER and takes increments only", name, schema.Name), "use increment, or a family without COUNTER")
	}
}

// tableName compiles a table's name, which may hold {expressions}.
func (c *compilation) tableName(path, name string) (string, textFunc) {
	c.note("table %q", name)
	if name == "" {
		c.report(path, 0, errors.New("the table is not given"), "")
		return "", nil
	}
	if !strings.Contains(name, "{") {
		if err := store.CheckTableName(name); err != nil {
			c.report(path, 0, err, "")
		}
		return name, nil
	}
	var parts []textFunc
	for at := 0; at < len(name); {
		open := strings.IndexByte(name[at:], '{')
		if open != 0 {
			literal := name[at:]
			if open > 0 {
				literal = literal[:open]
			}
			parts = append(parts, func(_ *Mapper, dst []byte) ([]byte, error) { return append(dst, literal...), nil })
			at += len(literal)
			continue
		}
		end := closingBrace(name[at:])
		if end < 0 {
			c.report(path, at, errors.New("the brace is not closed"), "")
			return "", nil
		}
		x := c.expression(path, name[at+1:at+end], at+1, typText)
		parts = append(parts, x.text)
		at += end + 1
	}
	return "", func(m *Mapper, dst []byte) (_ []byte, err error) {
		for _, p := range parts {
			if dst, err = p(m, dst); err != nil {
				return dst, err
			}
		}
		return dst, nil
	}
}

// closingBrace returns the index of the brace that closes the one at s[0], or
// -1. Braces in texts do not count.
func closingBrace(s string) int {
	depth, quote := 0, byte(0)
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quote != 0:
			if c == '\\' && quote != '`' {
				i++
			} else if c == quote {
				quote = 0
			}
		case c == '"' || c == '\'' || c == '`':
			quote = c
		case c == '{':
			depth++
		case c == '}':
			if depth--; depth == 0 {
				return i
			}
		}
	}
	return -1
}

// compiled is an expression in the form that was asked for; the other fields are
// nil.
type compiled struct {
	typ     typ // of the expression
	text    textFunc
	integer intFunc
	cond    boolFunc
	source  *source // the expression is nothing but this
	direct  bool    // no machine
	always  *string // the text that it is of every record, where that is known
}

// expression compiles text as typText, typInt or typBool. base is where text
// begins in what the user wrote at path.
func (c *compilation) expression(path, text string, base int, want typ) compiled {
	before := len(c.errs)
	defer func() {
		for _, err := range c.errs[before:] {
			err.(*SpecError).At += base
		}
	}()
	tree, terms, ok := c.parseExpression(path, text)
	if !ok {
		return compiled{}
	}
	c.note("%q %s", path, tree.Node.String())
	if exact := treeText(tree); exact != "" {
		c.note("tree %s", exact)
	}
	t := terms[tree.Node]
	switch {
	case t.typ == typNil:
		c.report(path, 0, errors.New("the value is always nil"), "")
		return compiled{}
	case want == typBool && t.typ != typBool && t.typ != typAny:
		c.report(path, 0, fmt.Errorf("the condition is %s, not true or false", t.typ), "")
		return compiled{}
	case want == typInt && (t.typ == typBool || t.typ == typText && t.op == opLiteral):
		c.report(path, 0, fmt.Errorf("the value is %s, not an integer", t.typ), "")
		return compiled{}
	}
	x := compiled{typ: t.typ}
	if always, ok := t.always(); ok {
		x.always = &always
	}
	if !c.machine {
		switch want {
		case typText:
			x.text = c.directText(t)
		case typInt:
			x.integer = c.directInt(t)
		case typBool:
			x.cond = c.directBool(t)
		}
		if t.op == opSource && t.typ != typInt {
			x.source = c.sources[t.source]
		}
		x.direct = x.text != nil || x.integer != nil || x.cond != nil
		if x.direct && want != typBool {
			return x
		}
	}
	mode := wantValue
	if want == typText {
		mode = wantText
	}
	if !x.direct {
		c.note("program %d", programVersion)
	}
	p, err := compileProgram(tree, terms, mode)
	if err != nil {
		at, message := fileError(text, err)
		c.report(path, at, errors.New(message), "")
		return compiled{}
	}
	switch {
	case want == typText:
		x.text = programText(p)
	case want == typInt:
		x.integer = programInt(p)
	case x.cond == nil:
		x.cond = programBool(p)
	default:
		direct, exact := x.cond, programBool(p)
		x.cond = func(m *Mapper) (bool, error) {
			v, err := direct(m)
			if err == errFallback {
				return exact(m)
			}
			return v, err
		}
	}
	return x
}

func (c *compilation) bytes(path, s string) text {
	t, _ := c.bytesOf(path, s)
	return t
}

// bytesOf is bytes that also returns the value where it is the same of every record, else nil.
func (c *compilation) bytesOf(path, s string) (t text, always *string) {
	x := c.expression(path, s, 0, typText)
	return text{source: x.source, make: x.text}, x.always
}

func (c *compilation) integer(path, s string) intFunc {
	return c.expression(path, s, 0, typInt).integer
}

func (c *compilation) condition(path, s string) boolFunc {
	return c.expression(path, s, 0, typBool).cond
}

// eventTime says how a document's time is read.
type eventTime struct {
	field    int // index in the document; -1 = the record's timestamp
	parse    func(k decode.Kind, b []byte) (int64, error)
	required *missingError // nil = the record's timestamp stands in

	lateness, future int64 // ms; 0 = unbounded
	refuseLate       bool
}

func (c *compilation) eventTime(s *EventTimeSpec) eventTime {
	e := eventTime{field: -1}
	c.note("event_time %q %q %q %v", s.Field, s.Format, s.Zone, s.Required)
	if s.AllowedLateness != 0 || s.MaxFuture != 0 {
		c.note("bounds %d %d %v", s.AllowedLateness.Milliseconds(), s.MaxFuture.Milliseconds(), s.RefuseLate)
	}
	if s.Field == "" {
		if *s != (EventTimeSpec{RefuseLate: s.RefuseLate}) {
			c.report("event_time.field", 0, errors.New("the field is not given"), "without event_time, the record's timestamp is taken")
		}
		return e
	}
	if !isPath(s.Field) {
		c.report("event_time.field", 0, fmt.Errorf("%s is not the path of a field", s.Field), pathHint)
		return e
	}
	field, _ := c.inDocument(s.Field)
	steps, err := decode.ParsePath(field)
	if err != nil {
		c.report("event_time.field", 0, err, "")
		return e
	}
	path := decode.FormatPath(steps)
	var hint string
	if e.field, hint, err = c.field(path); err != nil {
		c.report("event_time.field", 0, err, hint)
	}
	for key, bound := range map[string]time.Duration{"allowed_lateness": s.AllowedLateness, "max_future": s.MaxFuture} {
		if bound < 0 || bound > 0 && bound < time.Millisecond {
			c.report("event_time."+key, 0, fmt.Errorf("%s is %v, must be 1ms or more", key, bound), "")
		}
	}
	e.lateness, e.future, e.refuseLate = s.AllowedLateness.Milliseconds(), s.MaxFuture.Milliseconds(), s.RefuseLate
	if s.Required {
		e.required = &missingError{"field " + path}
	}
	zone, err := loadZone(s.Zone)
	if err != nil {
		c.report("event_time.zone", 0, err, "")
		zone = time.UTC
	}
	const formats = "unix_ms, unix_s, rfc3339, or a layout such as yyyy-MM-dd HH:mm:ss"
	switch s.Format {
	case "unix_ms":
		e.parse = parseUnix(1)
	case "unix_s":
		e.parse = parseUnix(1000)
	case "rfc3339":
		e.parse = parseRFC3339
		c.note("rfc3339 2") // it took more before
	case "":
		c.report("event_time.format", 0, errors.New("the format is not given"), formats)
		return e
	default:
		l, err := parseLayout(s.Format)
		if err != nil {
			hint := spelling.Hint(s.Format, []string{"unix_ms", "unix_s", "rfc3339"})
			if hint == "" {
				hint = formats
			}
			c.report("event_time.format", 0, err, hint)
			return e
		}
		c.noteLayout(l)
		for letter, what := range map[byte]string{'y': "year yyyy", 'M': "month MM", 'd': "day dd"} {
			if !l.has[letter] {
				c.report("event_time.format", 0, fmt.Errorf("layout %q has no %s", s.Format, what), formats)
			}
		}
		e.parse = func(k decode.Kind, b []byte) (int64, error) {
			if k != decode.String && k != decode.Number {
				return 0, valueErrorf("%s, where a time of layout %s is needed", named(k), s.Format)
			}
			t, err := l.parse(b, zone)
			if err != nil {
				return 0, valueErrorf("%q is no time of layout %s", clip(b), s.Format)
			}
			return t, nil
		}
	}
	if s.Zone != "" && (s.Format == "unix_ms" || s.Format == "unix_s" || s.Format == "rfc3339") {
		c.report("event_time.zone", 0, fmt.Errorf("format %s needs no zone", s.Format), "remove it")
	}
	return e
}
