package parquetfile

import (
	"bytes"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding"

	"sluice/jobs/columnar"
)

// cursor is a position in one column chunk. Pages whose values lie in memory as those
// of vectors do are taken as they lie; of others there are values.
type cursor struct {
	pages  parquet.Pages
	page   parquet.Page // nil = the next one is to be read
	values parquet.ValueReader
	ahead  []parquet.Value // of values: read and not taken
	end    error           // that values returned with them: io.EOF

	// The rest of the page where values is nil.
	levels     []byte // of columns that take nulls: 0 = a null; else nil
	rows       int    // where levels is nil
	kind       encoding.Kind
	indexed    bool
	int64s     []int64
	floats     []float64
	text       []byte
	offsets    []uint32
	dictionary []byte
	starts     []uint32 // n+1 offsets into dictionary
	numbers    []int32  // of the dictionary
}

// begin begins a page. asIs says that the column's values need no conversion.
func (c *cursor) begin(p parquet.Page, asIs bool) {
	c.page = p
	if !asIs || !c.open(p) {
		c.values = p.Values()
	}
}

// open finds where the values of a page lie, and reports whether it knows such pages.
func (c *cursor) open(p parquet.Page) bool {
	data, d := p.Data(), p.Dictionary()
	c.kind, c.indexed = data.Kind(), d != nil
	switch {
	case d != nil:
		texts := d.Page().Data()
		if texts.Kind() != encoding.ByteArray || c.kind != encoding.Int32 {
			return false
		}
		c.dictionary, c.starts = texts.ByteArray()
		c.numbers = data.Int32()
	case c.kind == encoding.Int64:
		c.int64s = data.Int64()
	case c.kind == encoding.Double:
		c.floats = data.Double()
	case c.kind == encoding.ByteArray:
		c.text, c.offsets = data.ByteArray()
	default:
		return false
	}
	c.levels, c.rows = p.DefinitionLevels(), int(p.NumValues())
	return true
}

// take appends the next n values of the page, or what there is, to v, until v takes that
// much memory, at least one, and returns how many; io.EOF says that these were the last.
func (c *cursor) take(v *columnar.Vector, n, memory int) (got int, err error) {
	if len(c.levels) == 0 {
		n = min(n, c.rows)
		if n > 0 {
			n = c.fits(n, memory-v.Memory())
		}
		c.rows -= n
		if err := c.present(v, n); err != nil {
			return 0, err
		}
		if c.rows == 0 {
			return n, io.EOF
		}
		return n, nil
	}
	n = min(n, len(c.levels))
	levels := c.levels[:n]
	for len(levels) > 0 && (v.Len() == 0 || v.Memory() < memory) {
		run := bytes.IndexByte(levels, 0)
		if run < 0 {
			run = len(levels)
		}
		if run > 0 {
			run = c.fits(run, memory-v.Memory())
			if err := c.present(v, run); err != nil {
				return 0, err
			}
		}
		for levels = levels[run:]; len(levels) > 0 && levels[0] == 0; levels = levels[1:] {
			v.AppendNull()
		}
	}
	got = n - len(levels)
	c.levels = c.levels[got:]
	if len(c.levels) == 0 {
		return got, io.EOF
	}
	return got, nil
}

// fits returns how many of the next n values, which are not null, take that much memory,
// the last of them whole: at least one. What is damaged, present finds.
func (c *cursor) fits(n, memory int) int {
	size := func(i int) uint32 { return c.offsets[i+1] - c.offsets[i] } // of value i
	have := len(c.offsets) - 1
	switch {
	case c.indexed && n <= memory/max(1, len(c.dictionary)):
		return n
	case c.indexed:
		have = len(c.numbers)
		size = func(i int) uint32 {
			if k := c.numbers[i]; k >= 0 && int(k) < len(c.starts)-1 {
				return c.starts[k+1] - c.starts[k]
			}
			return 0
		}
	case c.kind != encoding.ByteArray:
		return n
	case n <= have && int(c.offsets[n]-c.offsets[0]) <= memory:
		return n
	}
	for i := range min(n, have) {
		if memory -= int(size(i)); memory <= 0 {
			return i + 1
		}
	}
	return n
}

// present appends n values that are not null.
func (c *cursor) present(v *columnar.Vector, n int) error {
	if n == 0 {
		return nil
	}
	have := 0
	switch {
	case c.indexed:
		have = len(c.numbers)
	case c.kind == encoding.Int64:
		have = len(c.int64s)
	case c.kind == encoding.Double:
		have = len(c.floats)
	default:
		have = len(c.offsets) - 1
	}
	if n > have {
		return fmt.Errorf("damaged: a page has %d values where %d are to come", have, n)
	}
	switch {
	case c.indexed:
		err := v.AppendIndexed(c.dictionary, c.starts, c.numbers[:n])
		c.numbers = c.numbers[n:]
		return err
	case c.kind == encoding.Int64:
		xs := c.int64s[:n]
		c.int64s = c.int64s[n:]
		if _, _, ok := v.Type().Decimal(); ok { // 64 bits hold more digits than most say
			return v.AppendUnscaled64s(xs)
		}
		v.AppendInt64s(xs)
	case c.kind == encoding.Double:
		v.AppendFloat64s(c.floats[:n])
		c.floats = c.floats[n:]
	default:
		err := v.AppendText(c.text, c.offsets[:n+1])
		c.offsets = c.offsets[n:]
		return err
	}
	return nil
}
