package columnar

import (
	"bytes"
	"encoding/binary"
	"math"
	"strconv"

	"sluice/cell"
)

// Bounds of a batch. 8,192 rows amortise the calls per batch and, at 10 columns
// of 16 bytes, stay near the size of a core's cache; 4 MiB bounds the batches of
// wide rows.
const (
	DefaultBatchRows  = 8192
	DefaultBatchBytes = 4 << 20
)

// ReadBatchBytes is what the values of a batch that is read from a file of others take at
// most, besides its last row, or the last value of each column: a value that a page has
// once, in its dictionary, may be that of every row. A batch that was written is smaller.
const ReadBatchBytes = 64 << 20

// Builder appends rows of cells to a Batch.
type Builder struct {
	schema *Schema
	batch  *Batch
	fields [][]byte // of the row key, where columns come from them
	unlike string   // why the row key has no such fields; "" = it has
	text   []byte   // of a JSON object
	packed packedColumns
	kept   []bool // see Kept
	keeps  []bool // what sift returns
	// compared is the value that a condition is about, as it is compared.
	compared []byte
	// voids says which values conditions take for null besides; nil = none.
	voids func(column int, v *Vector, i int) bool
	bytes int // of variable-length values since the last Reset: cheap to keep, unlike Batch.Bytes
}

// NewBuilder returns an empty builder.
func NewBuilder(s *Schema) *Builder {
	b := &Builder{schema: s, batch: NewBatch(s.Columns())}
	if s.key != nil {
		b.fields = make([][]byte, len(s.key.fields))
	}
	return b
}

// TakeForNull has the conditions of Schema.Where take value i of v, column's, for null
// where null reports true, which is not asked about nulls. The batch has the value all the
// same.
func (b *Builder) TakeForNull(null func(column int, v *Vector, i int) bool) { b.voids = null }

// Append appends row: one output row, or with PerCell one a cell. In mode PerRow
// the cells must be in key order; of several versions the newest, which comes
// first, is taken. A row without cells appends nothing, nor does one for which a condition
// of Schema.Where does not hold. On an error, a
// *ConvertError, the batch must be Reset.
func (b *Builder) Append(row *cell.Row) error {
	if len(row.Cells) == 0 {
		return nil
	}
	b.split(row.Key)
	if b.schema.mode == PerCell {
		for i := range row.Cells {
			size := b.bytes
			if err := b.appendCell(row.Key, &row.Cells[i]); err != nil {
				return err
			}
			if b.schema.where != nil && b.sift(b.batch.Rows()-1) != nil {
				b.bytes = size
			}
		}
		return nil
	}
	size := b.bytes
	err := b.appendRow(row)
	if err == nil && b.schema.where != nil && b.sift(b.batch.Rows()-1) != nil {
		b.bytes = size
	}
	return err
}

// Full reports that the batch should be taken before the next Append.
func (b *Builder) Full() bool {
	return b.batch.Rows() >= DefaultBatchRows || b.bytes >= DefaultBatchBytes
}

// Batch returns the rows appended since the last Reset, valid until the next
// Append or Reset.
func (b *Builder) Batch() *Batch { return b.batch }

// Reset empties the batch and keeps its memory.
func (b *Builder) Reset() {
	b.batch.Reset()
	b.bytes = 0
}

func (b *Builder) appendRow(row *cell.Row) error {
	s := b.schema
	// Cells and columns are both in key order: one merge fills every column
	// once, with a null where its cell is missing.
	next := 0
	for i := range row.Cells {
		c := &row.Cells[i]
		for next < len(s.cells) {
			col := &s.columns[s.cells[next]]
			// Rows are much alike, so the next cell is nearly always the next
			// column: equality, the cheaper comparison, comes first.
			if string(c.Qualifier) == col.qualifier && c.Family == col.family {
				if err := b.value(s.cells[next], row.Key, c.Value); err != nil {
					return err
				}
				next++
				if !col.again {
					break
				}
				continue
			}
			if before(c, col) {
				break
			}
			if err := b.null(s.cells[next], row.Key); err != nil {
				return err
			}
			next++
		}
		if next == len(s.cells) {
			break
		}
	}
	for ; next < len(s.cells); next++ {
		if err := b.null(s.cells[next], row.Key); err != nil {
			return err
		}
	}
	for _, i := range s.others {
		var err error
		switch s.columns[i].source {
		case sourceRow:
			err = b.value(i, row.Key, row.Key)
		case sourceField:
			err = b.keyField(i, row.Key)
		case sourceUnmatched:
			err = b.unmatched(i, row)
		case sourceOp:
			b.op(i, OpUpsert)
		default:
			err = b.time(i, row.Key, newest(row.Cells))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// AppendGone appends that there is no row with this key: OpDelete, and nulls but for
// the key. On an error, a *ConvertError, the batch must be Reset.
func (b *Builder) AppendGone(key []byte) error {
	b.split(key)
	for i := range b.schema.columns {
		var err error
		switch b.schema.columns[i].source {
		case sourceRow:
			err = b.value(i, key, key)
		case sourceField:
			err = b.keyField(i, key)
		case sourceOp:
			b.op(i, OpDelete)
		default:
			err = b.null(i, key)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) op(i int, op string) {
	v := &b.batch.vectors[i]
	v.data = append(v.data, op...)
	v.offsets = append(v.offsets, int32(len(v.data)))
	v.appended()
}

// opOf returns what a cell of this kind does.
func opOf(k cell.Kind) string {
	switch k {
	case cell.KindDelete:
		return OpDelete
	case cell.KindDeleteColumn:
		return OpDeleteColumn
	case cell.KindDeleteFamily:
		return OpDeleteFamily
	case cell.KindDeleteFamilyVersion:
		return OpDeleteFamilyVersion
	}
	return OpPut
}

// before reports whether c sorts before the cells of col; it is not one of them.
func before(c *cell.Cell, col *column) bool {
	if c.Family != col.family {
		return c.Family < col.family
	}
	return string(c.Qualifier) < col.qualifier
}

func newest(cells []cell.Cell) cell.Timestamp {
	t := cells[0].Time
	for i := 1; i < len(cells); i++ {
		t = max(t, cells[i].Time)
	}
	return t
}

func (b *Builder) appendCell(key []byte, c *cell.Cell) error {
	for _, i := range b.schema.others {
		var err error
		switch b.schema.columns[i].source {
		case sourceRow:
			err = b.value(i, key, key)
		case sourceField:
			err = b.keyField(i, key)
		case sourceTimestamp:
			err = b.time(i, key, c.Time)
		case sourceFamily:
			v := &b.batch.vectors[i]
			v.data = append(v.data, c.Family...)
			v.offsets = append(v.offsets, int32(len(v.data)))
			v.appended()
		case sourceQualifier:
			err = b.value(i, key, c.Qualifier)
		case sourceValue:
			if c.Kind.IsDelete() {
				err = b.null(i, key)
			} else {
				err = b.value(i, key, c.Value)
			}
		case sourceOp:
			b.op(i, opOf(c.Kind))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// split cuts the row key into its fields, where a column comes from them.
func (b *Builder) split(key []byte) {
	if b.schema.key != nil {
		b.unlike = b.schema.key.split(key, b.fields)
	}
}

// keyField appends a field of the row key, which was split, to column i.
func (b *Builder) keyField(i int, row []byte) error {
	if b.unlike != "" {
		return b.refuse(i, row, row, b.unlike)
	}
	return b.value(i, row, b.fields[b.schema.columns[i].field])
}

// value appends what v holds to column i.
func (b *Builder) value(i int, row, v []byte) error {
	c := &b.schema.columns[i]
	b.bytes += len(v)
	to := &b.batch.vectors[i]
	if c.coding == Text && to.typ == String && len(v) <= math.MaxInt32-len(to.data) && isASCII(v) {
		// Most columns of most jobs.
		to.data = append(to.data, v...)
		to.offsets = append(to.offsets, int32(len(to.data)))
		to.appended()
		return nil
	}
	if why := to.appendValue(c.coding, v); why != "" {
		return b.refuse(i, row, v, why)
	}
	return nil
}

// isASCII reports whether b is ASCII, and so UTF-8. Values are short: the last of
// them that make no word are looked at together with those before, where
// utf8.Valid takes them one by one.
func isASCII(b []byte) bool {
	const high = 0x8080808080808080
	switch n := len(b); {
	case n >= 8:
		seen := binary.LittleEndian.Uint64(b[n-8:])
		for ; len(b) > 8; b = b[8:] {
			seen |= binary.LittleEndian.Uint64(b)
		}
		return seen&high == 0
	case n >= 4:
		return (binary.LittleEndian.Uint32(b)|binary.LittleEndian.Uint32(b[n-4:]))&(high>>32) == 0
	}
	seen := byte(0)
	for _, c := range b {
		seen |= c
	}
	return seen < 0x80
}

// time appends a cell's timestamp to column i.
func (b *Builder) time(i int, row []byte, t cell.Timestamp) error {
	v := &b.batch.vectors[i]
	if v.typ == Int64 {
		v.AppendInt64(int64(t))
		return nil
	}
	if why := v.appendMillis(int64(t)); why != "" {
		return b.refuse(i, row, strconv.AppendInt(nil, int64(t), 10), why)
	}
	return nil
}

// null appends a null to column i, whose cell is absent.
func (b *Builder) null(i int, row []byte) error {
	c := &b.schema.columns[i]
	if !c.Nullable {
		return &ConvertError{Table: b.schema.table, Row: bytes.Clone(row), Column: c.Name, From: c.from, Type: c.Type, Absent: true}
	}
	b.batch.vectors[i].AppendNull()
	return nil
}

// refuse applies the column's policy to a value that it cannot take.
func (b *Builder) refuse(i int, row, v []byte, why string) error {
	c := &b.schema.columns[i]
	if c.nullOnFail {
		b.batch.vectors[i].AppendNull()
		return nil
	}
	return &ConvertError{
		Table: b.schema.table, Row: bytes.Clone(row), Column: c.Name, From: c.from, Type: c.Type, Coding: c.coding,
		Value: bytes.Clone(v[:min(len(v), 64)]), Reason: why,
	}
}
