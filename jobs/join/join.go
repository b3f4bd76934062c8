// Package join joins two streams of column batches by equal keys, as SQL does:
// inner, left, right, full, semi and anti joins.
//
// A Spec says what is joined; Compile checks it against the columns of both sides
// and makes a Join, whose Run reads both sides and hands out batches of the
// result. There are three methods. Merge needs both sides sorted by the key, which
// exports are by row key; it holds one batch a side and the right side's rows of
// one key, and its result is sorted by the key. Hash takes any order; it holds the
// whole right side, and its result has the order of the left; where the right side
// does not fit, both are written to Spec.SpillDir and joined part by part, and the
// result has no order. Lookup, by RunLookup, does not read the right side but asks
// for the rows that it needs; it holds those of a batch of the left side, or of a
// part of one, and its result has the order of the left. All stop with ErrMemory
// rather than exceed Spec.MemoryBytes.
//
// A null key equals nothing, a null neither: such a row has no partner, and comes
// out of an outer or anti join alone. Rows with equal keys are all paired with each
// other. Keys compare by their bytes; floats are no keys.
//
// A Join is immutable and safe for concurrent use; each Run belongs to one
// goroutine. Files in Spec.SpillDir are all the I/O of the package.
package join

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"sluice/jobs/columnar"
	"sluice/jobs/spill"
)

// Errors of Run.
var (
	// ErrNotSorted: a side of a merge is not sorted by the key.
	ErrNotSorted = errors.New("join: not sorted by the key")
	// ErrMemory: the rows that must be held do not fit Spec.MemoryBytes.
	ErrMemory = errors.New("join: out of memory")
	// ErrDisk: what does not fit memory does not fit Spec.SpillBytes.
	ErrDisk = spill.ErrFull
	// ErrSpill: what was written to Spec.SpillDir was read otherwise.
	ErrSpill = spill.ErrDamaged
)

// The kinds of joins.
const (
	Inner = "inner" // pairs
	Left  = "left"  // pairs, and rows of the left side without a partner
	Right = "right" // pairs, and rows of the right side without a partner
	Full  = "full"  // pairs, and rows of both sides without a partner
	Semi  = "semi"  // rows of the left side with a partner, each once
	Anti  = "anti"  // rows of the left side without one
)

// Kinds returns the kinds of joins.
func Kinds() []string { return []string{Inner, Left, Right, Full, Semi, Anti} }

// The methods.
const (
	Merge  = "merge"
	Hash   = "hash"
	Lookup = "lookup"
)

// Methods returns the methods.
func Methods() []string { return []string{Merge, Hash, Lookup} }

// Defaults of a Spec.
const (
	DefaultMemoryBytes = 256 << 20
	DefaultSpillBytes  = 64 << 30
)

// Spec is a join as it is declared.
type Spec struct {
	// Kind is inner (default), left, right, full, semi or anti.
	Kind string `yaml:"kind,omitempty"`
	// Method is merge (default), for sides that are sorted by the key; hash,
	// which holds the right side, in memory as far as it fits; or lookup, which reads those rows of
	// the right side's table that the left one asks for by their row key.
	Method string `yaml:"method,omitempty"`
	// On are the columns that must be equal; at least one.
	On []On `yaml:"on"`
	// Columns of the output, in order. Default: the key, then the other columns
	// of the left side, then, but for semi and anti, those of the right.
	Columns []Column `yaml:"columns,omitempty"`
	// MemoryBytes bounds the rows that are held: with merge those of the right
	// side with one key, with hash the whole right side, or what is in memory of
	// it, with lookup the row that one of the left side asks for. As much again
	// bounds what is read of published runs in partitions. Default 256 MiB.
	MemoryBytes int64 `yaml:"memory_bytes,omitempty"`
	// SpillDir is the directory to which a hash join writes both sides where the
	// right one does not fit MemoryBytes, and any join the partitions of a run
	// that do not. Default: out, where that is a
	// directory; without one, such a join stops.
	SpillDir string `yaml:"spill_dir,omitempty"`
	// SpillBytes bounds what is there at a time, as much again for partitions.
	// Default 64 GiB.
	SpillBytes int64 `yaml:"spill_bytes,omitempty"`
}

// On is one column of the key.
type On struct {
	// Left is the left side's column.
	Left string `yaml:"left"`
	// Right is the right side's column. Default: the same name.
	Right string `yaml:"right,omitempty"`
	// LeftPart is the part of the left side's value that counts.
	LeftPart Part `yaml:"left_part,omitempty"`
	// RightPart is the part of the right side's value that counts.
	RightPart Part `yaml:"right_part,omitempty"`
}

// Part is the beginning of a string or of bytes. The zero value is all of it.
type Part struct {
	// Bytes is how many bytes from the start count; of a shorter value, all.
	Bytes int `yaml:"bytes,omitempty"`
	// Until is the separator before whose first occurrence the part ends; of a
	// value without it, all counts.
	Until string `yaml:"until,omitempty"`
}

// Column is one column of the output.
type Column struct {
	// Name of the output column; unique in the join.
	Name string `yaml:"name"`
	// From is left.COLUMN, right.COLUMN, or key.COLUMN for what the sides have in
	// common, by the left side's name: it is there in rows of either side.
	From string `yaml:"from"`
}

// sides are the prefixes of Column.From.
const (
	fromKey   = "key"
	fromLeft  = "left"
	fromRight = "right"
)

// output is a compiled Column.
type output struct {
	columnar.Column
	from   string // fromKey, fromLeft or fromRight
	column int    // of that side; for fromKey the index in Join.keys
}

// key is a compiled On.
type key struct {
	name        string
	typ         columnar.Type // of the parts: String where both sides are
	left, right column
}

// column is one side's part of a key.
type column struct {
	index int
	part  Part
}

// Join is a compiled Spec.
type Join struct {
	spec    Spec
	keys    []key
	outputs []output
	left    []columnar.Column
	right   []columnar.Column
}

// Input is rows in batches.
type Input interface {
	// Columns returns the columns in order.
	Columns() []columnar.Column
	// Next returns the next rows, valid until the Next after it, or io.EOF.
	Next() (*columnar.Batch, error)
}

// Kind returns the kind of the join.
func (j *Join) Kind() string { return j.spec.Kind }

// Method returns the method of the join.
func (j *Join) Method() string { return j.spec.Method }

// On returns the columns of the key, with every default filled in.
func (j *Join) On() []On { return slices.Clone(j.spec.On) }

// Columns returns the output columns.
func (j *Join) Columns() []columnar.Column {
	cs := make([]columnar.Column, len(j.outputs))
	for i := range j.outputs {
		cs[i] = j.outputs[i].Column
	}
	return cs
}

// Sources returns what each output column is filled from, as in Column.From.
func (j *Join) Sources() []string {
	from := make([]string, len(j.outputs))
	for i := range j.outputs {
		o := &j.outputs[i]
		switch o.from {
		case fromKey:
			from[i] = fromKey + "." + j.keys[o.column].name
		case fromLeft:
			from[i] = fromLeft + "." + j.left[o.column].Name
		default:
			from[i] = fromRight + "." + j.right[o.column].Name
		}
	}
	return from
}

// Order returns the columns by which the output of a merge is sorted, ascending,
// bytewise: those of the key that come as text or bytes, as far as the first that
// does not. Where rows with a null in the key come out, there are none: such a row is
// compared with no other, and comes when its side has it.
func (j *Join) Order() []string {
	if j.spec.Method != Merge || slices.ContainsFunc(j.keys, func(k key) bool { return j.nullable(&k) }) {
		return nil
	}
	var order []string
	for i := range j.keys {
		k := &j.keys[i]
		o := slices.IndexFunc(j.outputs, func(o output) bool { return o.from == fromKey && o.column == i })
		if o < 0 || (k.typ != columnar.String && k.typ != columnar.Bytes) {
			break
		}
		order = append(order, j.outputs[o].Name)
	}
	return order
}

// compiler collects the mistakes of a declaration.
type compiler struct {
	j    *Join
	errs []error
}

func (c *compiler) bad(path, format string, args ...any) {
	c.errs = append(c.errs, &columnar.SpecError{Path: path, Problem: fmt.Sprintf(format, args...)})
}

// Compile checks s against the columns of both sides. Its error joins a
// *columnar.SpecError for every mistake. s is not kept.
func Compile(s *Spec, left, right []columnar.Column) (*Join, error) {
	j := &Join{spec: *s, left: slices.Clone(left), right: slices.Clone(right)}
	j.spec.On, j.spec.Columns = slices.Clone(s.On), slices.Clone(s.Columns)
	c := &compiler{j: j}
	if j.spec.Kind == "" {
		j.spec.Kind = Inner
	}
	if !slices.Contains(Kinds(), j.spec.Kind) {
		c.bad("kind", "%q is no kind of join; it is %s", j.spec.Kind, strings.Join(Kinds(), ", "))
	}
	if j.spec.Method == "" {
		j.spec.Method = Merge
	}
	if !slices.Contains(Methods(), j.spec.Method) {
		c.bad("method", "%q is no method; it is %s", j.spec.Method, strings.Join(Methods(), ", "))
	}
	switch {
	case j.spec.MemoryBytes < 0:
		c.bad("memory_bytes", "%d is negative", j.spec.MemoryBytes)
	case j.spec.MemoryBytes == 0:
		j.spec.MemoryBytes = DefaultMemoryBytes
	}
	switch {
	case j.spec.SpillBytes < 0:
		c.bad("spill_bytes", "%d is negative", j.spec.SpillBytes)
	case j.spec.SpillBytes == 0:
		j.spec.SpillBytes = DefaultSpillBytes
	}
	if len(j.spec.On) == 0 {
		c.bad("on", "there is no column to join by")
	}
	for i := range j.spec.On {
		c.on(i, &j.spec.On[i])
	}
	if j.spec.Method == Lookup {
		c.lookup()
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	if len(j.spec.Columns) == 0 {
		j.spec.Columns = j.allColumns()
	}
	for i := range j.spec.Columns {
		c.column(i, &j.spec.Columns[i])
	}
	if len(c.errs) > 0 {
		return nil, errors.Join(c.errs...)
	}
	return j, nil
}

// find returns the index of a column, and reports it missing.
func (c *compiler) find(path, side, name string, columns []columnar.Column) int {
	i := slices.IndexFunc(columns, func(c columnar.Column) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(columns))
		for n := range columns {
			names[n] = columns[n].Name
		}
		c.bad(path, "the %s side has no column %q; it has %s", side, name, strings.Join(names, ", "))
	}
	return i
}

func text(t columnar.Type) bool { return t == columnar.String || t == columnar.Bytes }

func (c *compiler) on(i int, on *On) {
	at := fmt.Sprintf("on[%d]", i)
	if on.Left == "" {
		c.bad(at+".left", "it is missing")
		return
	}
	if on.Right == "" {
		on.Right = on.Left
	}
	l := c.find(at+".left", fromLeft, on.Left, c.j.left)
	r := c.find(at+".right", fromRight, on.Right, c.j.right)
	if l < 0 || r < 0 {
		return
	}
	lt, rt := c.j.left[l].Type, c.j.right[r].Type
	k := key{name: on.Left, typ: lt, left: column{l, on.LeftPart}, right: column{r, on.RightPart}}
	switch {
	case lt == columnar.Float64 || rt == columnar.Float64:
		c.bad(at, "a float64 is no key: what is equal is a matter of rounding")
	case lt == columnar.JSON || rt == columnar.JSON:
		c.bad(at, "json is no key: what is equal has many texts")
	case lt.Storage() == columnar.Entries || rt.Storage() == columnar.Entries:
		c.bad(at, "a map is no key: join by one of its values as a column of its own")
	case text(lt) && text(rt):
		if lt != rt {
			k.typ = columnar.Bytes
		}
	case lt != rt:
		c.bad(at, "%s is %s, %s is %s: they are never equal", on.Left, lt, on.Right, rt)
	}
	if k.typ == columnar.String && (on.LeftPart.Bytes > 0 || on.RightPart.Bytes > 0) {
		k.typ = columnar.Bytes // a cut may be inside of a character
	}
	c.part(at+".left_part", on.LeftPart, lt)
	c.part(at+".right_part", on.RightPart, rt)
	if slices.ContainsFunc(c.j.keys, func(have key) bool { return have.name == k.name }) {
		c.bad(at+".left", "%s is named twice", k.name)
	}
	c.j.keys = append(c.j.keys, k)
}

func (c *compiler) part(at string, p Part, t columnar.Type) {
	switch {
	case p == (Part{}):
	case !text(t):
		c.bad(at, "%s has no parts, only string and bytes have", t)
	case p.Bytes < 0:
		c.bad(at+".bytes", "%d is negative", p.Bytes)
	case p.Bytes > 0 && p.Until != "":
		c.bad(at, "it is either bytes or until")
	}
}

// lookup checks what a lookup needs besides.
func (c *compiler) lookup() {
	if _, keepRight := c.j.keeps(); keepRight {
		c.bad("kind", "a lookup does not read the whole right side, so it cannot tell which rows of it have no partner; a %s join is done by merge or hash", c.j.spec.Kind)
	}
	if len(c.j.spec.On) > 1 {
		c.bad("on[1]", "a lookup is by one column, the right side's row key")
	}
	for i := range c.j.keys {
		k := &c.j.keys[i]
		if k.right.part != (Part{}) {
			c.bad(fmt.Sprintf("on[%d].right_part", i), "a lookup is by the whole row key of the right side; a beginning of it is joined by merge or hash")
		}
		if !text(c.j.right[k.right.index].Type) {
			c.bad(fmt.Sprintf("on[%d].right", i), "a lookup is by a string or bytes, not by %s", k.typ)
		}
	}
}

// allColumns is the default of Spec.Columns.
func (j *Join) allColumns() []Column {
	var all []Column
	for i := range j.keys {
		all = append(all, Column{Name: j.keys[i].name, From: fromKey + "." + j.keys[i].name})
	}
	whole := func(c column) bool { return c.part == (Part{}) }
	for i := range j.left {
		if !slices.ContainsFunc(j.keys, func(k key) bool { return k.left.index == i && whole(k.left) }) {
			all = append(all, Column{Name: j.left[i].Name, From: fromLeft + "." + j.left[i].Name})
		}
	}
	if j.leftOnly() {
		return all
	}
	for i := range j.right {
		if !slices.ContainsFunc(j.keys, func(k key) bool { return k.right.index == i && whole(k.right) }) {
			all = append(all, Column{Name: j.right[i].Name, From: fromRight + "." + j.right[i].Name})
		}
	}
	return all
}

// leftOnly reports whether the output has rows of the left side alone.
func (j *Join) leftOnly() bool { return j.spec.Kind == Semi || j.spec.Kind == Anti }

// keeps reports whether rows without a partner come out, of the left and of the
// right side.
func (j *Join) keeps() (left, right bool) {
	return j.spec.Kind == Left || j.spec.Kind == Full, j.spec.Kind == Right || j.spec.Kind == Full
}

// nullable reports whether a column of the key may be null in the output: nulls are in rows
// without a partner only.
func (j *Join) nullable(k *key) bool {
	keepLeft, keepRight := j.keeps()
	return j.left[k.left.index].Nullable && (keepLeft || j.spec.Kind == Anti) || j.right[k.right.index].Nullable && keepRight
}

func (c *compiler) column(i int, col *Column) {
	at := fmt.Sprintf("columns[%d]", i)
	if col.Name == "" {
		c.bad(at+".name", "it is missing")
	}
	for _, have := range c.j.outputs {
		if strings.EqualFold(have.Name, col.Name) {
			c.bad(at+".name", "%q is given twice (upper and lower case count as equal); name the columns", col.Name)
			return
		}
	}
	keepLeft, keepRight := c.j.keeps()
	from, name, _ := strings.Cut(col.From, ".")
	o := output{Column: columnar.Column{Name: col.Name}, from: from, column: -1}
	switch {
	case from == fromKey:
		o.column = slices.IndexFunc(c.j.keys, func(k key) bool { return k.name == name })
		if o.column < 0 {
			c.bad(at+".from", "%q is no column of the key", name)
			return
		}
		k := &c.j.keys[o.column]
		o.Type = k.typ
		o.Nullable = c.j.nullable(k)
	case from == fromLeft:
		if o.column = c.find(at+".from", from, name, c.j.left); o.column < 0 {
			return
		}
		o.Type = c.j.left[o.column].Type
		o.Nullable = c.j.left[o.column].Nullable || keepRight
	case from == fromRight && c.j.leftOnly():
		c.bad(at+".from", "a %s join has no columns of the right side", c.j.spec.Kind)
		return
	case from == fromRight:
		if o.column = c.find(at+".from", from, name, c.j.right); o.column < 0 {
			return
		}
		o.Type = c.j.right[o.column].Type
		o.Nullable = c.j.right[o.column].Nullable || keepLeft
	default:
		c.bad(at+".from", "%q is not left.COLUMN, right.COLUMN or key.COLUMN", col.From)
		return
	}
	c.j.outputs = append(c.j.outputs, o)
}

// Run joins left and right, which must have the columns that j was compiled for,
// and calls write with batches of the output, each valid during the call. It stops
// at the first error, of an input, of write, or of ctx. Its error wraps ErrMemory;
// with method merge ErrNotSorted, with method hash ErrDisk and ErrSpill. What it has
// written to Spec.SpillDir is gone when it returns.
func (j *Join) Run(ctx context.Context, left, right Input, write func(*columnar.Batch) error) error {
	return j.RunTold(ctx, left, right, write, nil)
}

// RunTold is Run that tells how far it is when the sides are read: where a hash join
// writes them to disk, it calls told with 0 when it begins to, and then, after each part
// of what was written, with how much is joined, which rises to 1. told may be nil.
func (j *Join) RunTold(ctx context.Context, left, right Input, write func(*columnar.Batch) error, told func(joined float64)) error {
	if j.spec.Method == Lookup {
		return errors.New("join: the method is lookup, which RunLookup does")
	}
	e, l, err := j.begin(ctx, left, right.Columns(), write)
	if err != nil {
		return err
	}
	r := &side{ctx: ctx, name: fromRight, in: right, keys: j.keys, right: true, sorted: l.sorted}
	if j.spec.Method == Merge {
		err = (&merge{j: j, left: l, right: r, out: e}).run()
	} else {
		h := &hash{j: j, left: l, right: r, out: e, disk: &spill.Disk{Dir: j.spec.SpillDir, Limit: j.spec.SpillBytes}, told: told}
		err = h.run()
	}
	if err != nil {
		return err
	}
	return e.flush()
}

// RunLookup is Run for the method lookup.
func (j *Join) RunLookup(ctx context.Context, left Input, right Finder, write func(*columnar.Batch) error) error {
	if j.spec.Method != Lookup {
		return fmt.Errorf("join: the method is %s, which Run does", j.spec.Method)
	}
	e, l, err := j.begin(ctx, left, right.Columns(), write)
	if err != nil {
		return err
	}
	if err := (&lookup{left: l, right: right, out: e, table: newTable(j)}).run(); err != nil {
		return err
	}
	return e.flush()
}

// begin checks the columns of both sides and makes what every method needs.
func (j *Join) begin(ctx context.Context, left Input, right []columnar.Column, write func(*columnar.Batch) error) (*emitter, *side, error) {
	if !slices.Equal(left.Columns(), j.left) || !slices.Equal(right, j.right) {
		return nil, nil, errors.New("join: the inputs have other columns than the join was compiled for")
	}
	e := &emitter{ctx: ctx, j: j, out: columnar.NewBatch(j.Columns()), write: write}
	return e, &side{ctx: ctx, name: fromLeft, in: left, keys: j.keys, sorted: j.spec.Method == Merge}, nil
}
