package parquetfile

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"sluice/internal/turns"
	"sluice/jobs/columnar"
)

var _ columnar.FileWriter = (*Writer)(nil)

const (
	defaultRowGroupBytes = 64 << 20
	defaultRowGroupRows  = 1 << 20
)

// A row group has its number in the file in 16 bits with a sign, and readers, ours too,
// refuse a file with more. One with half as many should end.
const maxRowGroups = math.MaxInt16 + 1

var (
	errClosed        = errors.New("parquet: the writer is closed")
	errManyRowGroups = fmt.Errorf("a file of more than %d row groups: make them larger (row_group_bytes)", maxRowGroups)
)

// Writer writes one Parquet file.
type Writer struct {
	out     *countingWriter
	options Options
	codec   compress.Codec
	columns []columnar.Column

	chunks []*chunk // of each leaf; of the current row group; made at the first batch, whose values choose the encodings
	footer *footer

	rows       int64
	groupRows  int64
	groupBytes int64
	closed     bool
	turn       turns.Turn
}

// countingWriter counts what reaches the file.
type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(b []byte) (int, error) {
	n, err := c.w.Write(b)
	c.n += int64(n)
	return n, err
}

// NewWriter returns a writer of a file with these columns. o may be nil.
func NewWriter(w io.Writer, columns []columnar.Column, o *Options) (*Writer, error) {
	if o == nil {
		o = &Options{}
	}
	wr := &Writer{out: &countingWriter{w: w}, options: *o, columns: columns}
	if wr.options.RowGroupBytes == 0 {
		wr.options.RowGroupBytes = defaultRowGroupBytes
	}
	if wr.options.RowGroupRows == 0 {
		wr.options.RowGroupRows = defaultRowGroupRows
	}
	if wr.options.RowGroupBytes < 0 || wr.options.RowGroupRows < 0 {
		return nil, fmt.Errorf("parquet: row groups of %d bytes and %d rows", wr.options.RowGroupBytes, wr.options.RowGroupRows)
	}
	for _, by := range o.Order {
		if !slices.ContainsFunc(columns, func(c columnar.Column) bool { return c.Name == by.Column && c.Type.Storage() != columnar.Entries }) {
			return nil, fmt.Errorf("parquet: sorted by %q, which is no column, or one of maps", by.Column)
		}
	}
	var err error
	if wr.codec, err = codec(o.Codec); err != nil {
		return nil, err
	}
	return wr, nil
}

// open begins the file, with encodings chosen by sample, which may be empty.
func (w *Writer) open(sample *columnar.Batch) error {
	schema := newSchema(w.columns, func(l *leaf, n parquet.Node) parquet.Node {
		sorted := len(w.options.Order) > 0 && w.options.Order[0].Column == l.name
		return encoded(n, l.part.of(sample.Vector(l.column)), sorted)
	})
	leaves := leavesOf(w.columns)
	for i, n := range leafNodes(schema) {
		w.chunks = append(w.chunks, newChunk(&leaves[i], n, w.codec))
	}
	w.footer = newFooter(schema, leaves, &w.options)
	_, err := io.WriteString(w.out, magic)
	return err
}

// encoded chooses the encoding of one leaf.
func encoded(n parquet.Node, v *columnar.Vector, sorted bool) parquet.Node {
	switch v.Type().Storage() {
	case columnar.Int64:
		return parquet.Encoded(n, &parquet.DeltaBinaryPacked)
	case columnar.Decimal128:
		if repeats(v) {
			return parquet.Encoded(n, &parquet.RLEDictionary)
		}
	case columnar.Bytes:
		switch {
		case repeats(v):
			return parquet.Encoded(n, &parquet.RLEDictionary)
		case sorted:
			return parquet.Encoded(n, &parquet.DeltaByteArray)
		}
		return parquet.Encoded(n, &parquet.DeltaLengthByteArray)
	}
	return n
}

// repeats reports whether at least half of the values are repetitions, so that a
// dictionary makes the column smaller. Without values it is assumed.
func repeats(v *columnar.Vector) bool {
	const widest = 16 // bytes of a decimal
	width := 0
	if v.Type().Storage() == columnar.Decimal128 {
		width = widest
	}
	distinct := newDictionary(width)
	var room [widest]byte
	most := (v.Len()-v.Nulls())/2 + 1
	for i := range v.Len() {
		if v.IsNull(i) {
			continue
		}
		value := room[:0]
		if width > 0 {
			value = appendFixed(value, v.Decimals()[i], width)
		} else {
			value = v.Bytes(i)
		}
		if _, err := distinct.index(value); err != nil || distinct.len() > most {
			return false
		}
	}
	return true
}

// Write appends the rows of b.
func (w *Writer) Write(b *columnar.Batch) error {
	if w.closed {
		return errClosed
	}
	if b.Rows() == 0 {
		return nil
	}
	if w.chunks == nil {
		if err := w.open(b); err != nil {
			return fmt.Errorf("begin parquet file: %w", err)
		}
	}
	for _, k := range w.chunks {
		w.turn.Give()
		if err := k.write(b.Vector(k.leaf.column)); err != nil {
			return fmt.Errorf("write parquet column %s: %w", k.leaf.name, err)
		}
	}
	w.rows += int64(b.Rows())
	w.groupRows += int64(b.Rows())
	w.groupBytes += int64(b.Bytes())
	if w.groupRows >= w.options.RowGroupRows || w.groupBytes >= w.options.RowGroupBytes {
		return w.endGroup()
	}
	return nil
}

// endGroup writes the row group, if it has rows, and begins the next one.
func (w *Writer) endGroup() error {
	if w.groupRows == 0 {
		return nil
	}
	if len(w.footer.file.RowGroups) == maxRowGroups {
		return fmt.Errorf("write parquet row group: %w", errManyRowGroups)
	}
	if err := w.footer.writeGroup(w.out, w.chunks, w.groupRows); err != nil {
		return fmt.Errorf("write parquet row group: %w", err)
	}
	for _, k := range w.chunks {
		k.reset()
	}
	w.groupRows, w.groupBytes = 0, 0
	return nil
}

// Size estimates the bytes of the file if it were closed now: what was written,
// and what is buffered as it is.
func (w *Writer) Size() int64 {
	n := w.out.n
	if !w.closed {
		for _, k := range w.chunks {
			n += k.size()
		}
	}
	return n
}

// Full reports that the file has so many row groups that it should end, whatever its size.
func (w *Writer) Full() bool {
	return w.footer != nil && len(w.footer.file.RowGroups) >= maxRowGroups/2
}

// Close writes the last row group and the footer.
func (w *Writer) Close() (columnar.FileStats, error) {
	if w.closed {
		return columnar.FileStats{}, errClosed
	}
	w.closed = true
	if err := w.close(); err != nil {
		return columnar.FileStats{}, fmt.Errorf("close parquet file: %w", err)
	}
	return columnar.FileStats{Rows: w.rows, Bytes: w.out.n}, nil
}

func (w *Writer) close() error {
	if w.chunks == nil {
		if err := w.open(columnar.NewBatch(w.columns)); err != nil {
			return err
		}
	}
	if err := w.endGroup(); err != nil {
		return err
	}
	return w.footer.write(w.out)
}
