package parquetfile

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	"sluice/jobs/columnar"
)

var _ columnar.FileWriter = (*Writer)(nil)

const (
	defaultRowGroupBytes = 64 << 20
	defaultRowGroupRows  = 1 << 20
	// A dictionary pays while it fits a core's cache; beyond it, a column chunk
	// goes on in plain.
	dictionaryBytes = 1 << 20
	// Values are handed to parquet-go in slices of this many: 24 KiB of them.
	valuesPerWrite = 1024
)

var errClosed = errors.New("parquet: the writer is closed")

// Writer writes one Parquet file.
type Writer struct {
	out     *countingWriter
	options Options
	opts    []parquet.WriterOption
	columns []columnar.Column

	file    *parquet.GenericWriter[any] // made at the first batch, whose values choose the encodings
	writers []*parquet.ColumnWriter
	values  []parquet.Value

	rows       int64
	groupRows  int64
	groupBytes int64
	closed     bool
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
	wr := &Writer{out: &countingWriter{w: w}, options: *o, columns: columns, values: make([]parquet.Value, 0, valuesPerWrite)}
	if wr.options.RowGroupBytes == 0 {
		wr.options.RowGroupBytes = defaultRowGroupBytes
	}
	if wr.options.RowGroupRows == 0 {
		wr.options.RowGroupRows = defaultRowGroupRows
	}
	if wr.options.RowGroupBytes < 0 || wr.options.RowGroupRows < 0 {
		return nil, fmt.Errorf("parquet: row groups of %d bytes and %d rows", wr.options.RowGroupBytes, wr.options.RowGroupRows)
	}
	for _, name := range o.Order {
		if !slices.ContainsFunc(columns, func(c columnar.Column) bool { return c.Name == name }) {
			return nil, fmt.Errorf("parquet: sorted by %q, which is no column", name)
		}
	}
	c, err := codec(o.Codec)
	if err != nil {
		return nil, err
	}
	opts := []parquet.WriterOption{
		parquet.Compression(c),
		parquet.DictionaryMaxBytes(dictionaryBytes),
		// The column index has the same bounds, outside of the pages.
		parquet.DataPageStatistics(false),
	}
	for k, v := range o.Metadata {
		opts = append(opts, parquet.KeyValueMetadata(k, v))
	}
	if o.Application != "" {
		opts = append(opts, parquet.CreatedBy(o.Application, o.Version, ""))
	}
	if len(o.Order) > 0 {
		sorting := make([]parquet.SortingColumn, len(o.Order))
		for i, name := range o.Order {
			sorting[i] = parquet.Ascending(name)
		}
		opts = append(opts, parquet.SortingWriterConfig(parquet.SortingColumns(sorting...)))
	}
	if _, err := parquet.NewWriterConfig(opts...); err != nil {
		return nil, fmt.Errorf("parquet: %w", err)
	}
	wr.opts = opts
	return wr, nil
}

// open makes the file's writer with encodings chosen by sample, which may be
// empty.
func (w *Writer) open(sample *columnar.Batch) {
	schema := newSchema(w.columns, func(i int, n parquet.Node) parquet.Node {
		sorted := len(w.options.Order) > 0 && w.options.Order[0] == w.columns[i].Name
		return encoded(n, sample.Vector(i), sorted)
	})
	// The options and not a WriterConfig of them: merging one into the defaults
	// brings switched-off settings back.
	w.file = parquet.NewGenericWriter[any](w.out, append(w.opts, schema)...)
	w.writers = w.file.ColumnWriters()
}

// encoded chooses the encoding of one column.
func encoded(n parquet.Node, v *columnar.Vector, sorted bool) parquet.Node {
	switch v.Type() {
	case columnar.Int64, columnar.Timestamp:
		return parquet.Encoded(n, &parquet.DeltaBinaryPacked)
	case columnar.String, columnar.Bytes:
		switch {
		case sorted && !repeats(v):
			return parquet.Encoded(n, &parquet.DeltaByteArray)
		case repeats(v):
			return parquet.Encoded(n, &parquet.RLEDictionary)
		}
		return parquet.Encoded(n, &parquet.DeltaLengthByteArray)
	}
	return n
}

// repeats reports whether at least half of the values are repetitions, so that a
// dictionary makes the column smaller. Without values it is assumed.
func repeats(v *columnar.Vector) bool {
	distinct := make(map[string]struct{})
	n := v.Len() - v.Nulls()
	for i := range v.Len() {
		if v.IsNull(i) {
			continue
		}
		distinct[string(v.Bytes(i))] = struct{}{}
		if len(distinct) > n/2+1 {
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
	if w.file == nil {
		w.open(b)
	}
	for i := range w.writers {
		if err := w.writeColumn(i, b.Vector(i)); err != nil {
			return fmt.Errorf("write parquet column %s: %w", w.columns[i].Name, err)
		}
	}
	w.rows += int64(b.Rows())
	w.groupRows += int64(b.Rows())
	w.groupBytes += int64(b.Bytes())
	if w.groupRows >= w.options.RowGroupRows || w.groupBytes >= w.options.RowGroupBytes {
		if err := w.file.Flush(); err != nil {
			return fmt.Errorf("write parquet row group: %w", err)
		}
		w.groupRows, w.groupBytes = 0, 0
	}
	return nil
}

func (w *Writer) writeColumn(column int, v *columnar.Vector) error {
	for start := 0; start < v.Len(); start += valuesPerWrite {
		end := min(start+valuesPerWrite, v.Len())
		w.values = appendValues(w.values[:0], v, start, end)
		if w.columns[column].Nullable {
			for i := range w.values {
				// A null keeps level 0.
				if !v.IsNull(start + i) {
					w.values[i].SetDefinitionLevel(1)
				}
			}
		}
		if _, err := w.writers[column].WriteRowValues(w.values); err != nil {
			return err
		}
	}
	return nil
}

// appendValues appends values [start, end) of v as if none were null: a null's
// place holds a zero value, and columns that take nulls go by the level alone.
func appendValues(dst []parquet.Value, v *columnar.Vector, start, end int) []parquet.Value {
	switch v.Type() {
	case columnar.Int64, columnar.Timestamp:
		for _, x := range v.Int64s()[start:end] {
			dst = append(dst, parquet.Int64Value(x))
		}
	case columnar.Float64:
		for _, x := range v.Float64s()[start:end] {
			dst = append(dst, parquet.DoubleValue(x))
		}
	case columnar.Bool:
		for i := start; i < end; i++ {
			dst = append(dst, parquet.BooleanValue(v.Bool(i)))
		}
	default:
		for i := start; i < end; i++ {
			dst = append(dst, parquet.ByteArrayValue(v.Bytes(i)))
		}
	}
	return dst
}

// Size estimates the bytes of the file if it were closed now: what was written,
// and what is buffered as it is.
func (w *Writer) Size() int64 {
	if w.closed || w.file == nil {
		return w.out.n
	}
	return w.file.Size()
}

// Close writes the last row group and the footer.
func (w *Writer) Close() (columnar.FileStats, error) {
	if w.closed {
		return columnar.FileStats{}, errClosed
	}
	w.closed = true
	if w.file == nil {
		w.open(columnar.NewBatch(w.columns))
	}
	if err := w.file.Close(); err != nil {
		return columnar.FileStats{}, fmt.Errorf("close parquet file: %w", err)
	}
	return columnar.FileStats{Rows: w.rows, Bytes: w.out.n}, nil
}
