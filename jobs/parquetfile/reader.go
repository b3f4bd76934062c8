package parquetfile

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/encoding/thrift"

	"sluice/jobs/columnar"
)

var _ columnar.FileReader = (*Reader)(nil)

const (
	// rowsPerBatch is how many rows Next returns at most.
	rowsPerBatch = columnar.DefaultBatchRows
	// leastColumnBytes is what a column has of columnar.ReadBatchBytes, of which each has
	// its part: with hundreds of them, batches would be of a few rows.
	leastColumnBytes = 256 << 10
)

// Reader reads a Parquet file that a Writer wrote, or, made by NewForeignReader, some
// columns of any.
type Reader struct {
	file    *parquet.File
	from    io.ReaderAt // of files of others, whose pages are checked; else nil
	in      io.ReaderAt // the file
	size    int64       // of it
	columns []columnar.Column
	chunks  []int           // of each column, its chunk in a row group; of maps, that of the keys, behind which are the values
	appends []appendForeign // of each column, how a value is appended; nil = as it is
	batch   *columnar.Batch
	ahead   *columnar.Batch // what was read of rows that no batch has yet
	share   int             // bytes of a batch that a column has
	rows    int             // how many rows the next batch is to have
	group   int             // the next row group
	left    int64           // rows of the one before that no batch has yet
	read    int64           // rows that Next has returned
	cursors []cursor        // of each column
	maps    []*mapCursor    // of each column; nil = it has no maps
	values  []parquet.Value
	said    []columnCounts         // of each column, in the row group at hand; of files of others
	nulls   [][]thrift.Null[int64] // of each row group and chunk, what statistics say; of files of others
}

// NewReader opens the file of size bytes in r.
func NewReader(r io.ReaderAt, size int64) (rd *Reader, err error) {
	defer recovered(&err)
	f, _, err := openFile(r, size)
	if err != nil {
		return nil, fmt.Errorf("open parquet file: %w", err)
	}
	rd = &Reader{file: f, in: r, size: size, values: make([]parquet.Value, 1024)}
	chunk := 0
	for _, field := range f.Schema().Fields() {
		t, ok := columnType(field)
		if !ok || field.Repeated() {
			return nil, fmt.Errorf("open parquet file: column %s has a type that exports do not have", field.Name())
		}
		rd.chunks, rd.appends = append(rd.chunks, chunk), append(rd.appends, nil)
		chunk += leaves(field)
		rd.columns = append(rd.columns, columnar.Column{Name: field.Name(), Type: t, Nullable: field.Optional()})
	}
	rd.begin()
	return rd, nil
}

// begin makes what batches are read into, when the columns are known.
func (r *Reader) begin() {
	r.batch, r.ahead = columnar.NewBatch(r.columns), columnar.NewBatch(r.columns)
	r.share, r.rows = max(columnar.ReadBatchBytes/max(1, len(r.columns)), leastColumnBytes), rowsPerBatch
}

// recovered turns a panic of parquet-go, which some damaged files cause, into an
// error.
func recovered(err *error) {
	if r := recover(); r != nil {
		*err = fmt.Errorf("read parquet file: damaged: %v", r)
	}
}

// Columns returns the file's columns.
func (r *Reader) Columns() []columnar.Column { return r.columns }

// Metadata returns the footer's key-value metadata.
func (r *Reader) Metadata() map[string]string {
	m := make(map[string]string)
	for _, kv := range r.file.Metadata().KeyValueMetadata {
		m[kv.Key] = kv.Value
	}
	return m
}

// Order returns by which columns all row groups say that they are sorted: as far as
// they say the same. nil = there is no row group, or none says something.
func (r *Reader) Order() []columnar.Order {
	var order []columnar.Order
	for i, g := range r.file.RowGroups() {
		said := g.SortingColumns()
		if i > 0 {
			order = order[:min(len(order), len(said))]
		}
		for k, s := range said {
			o := columnar.Order{Column: s.Path()[0], Descending: s.Descending(), NullsFirst: s.NullsFirst()}
			if i == 0 {
				order = append(order, o)
			} else if k < len(order) && order[k] != o {
				order = order[:k]
			}
		}
	}
	return order
}

// Next returns the next rows, at most one row group's, and fewer where values are large:
// of maps, one is in memory whole. Its error names the row, from 1,
// and the column of what cannot be read, such as a decimal of more digits than its type.
func (r *Reader) Next() (b *columnar.Batch, err error) {
	defer recovered(&err)
	for r.left == 0 {
		if err := r.Close(); err != nil {
			return nil, err
		}
		if r.group == len(r.file.RowGroups()) {
			return nil, io.EOF
		}
		if r.from != nil {
			if err := r.checkChunks(r.group); err != nil {
				return nil, fmt.Errorf("read parquet file: %w", err)
			}
			if r.file.Metadata().RowGroups[r.group].NumRows == 0 {
				r.group++
				continue
			}
		}
		g, err := r.rowGroup(r.group)
		if err != nil {
			return nil, fmt.Errorf("read parquet file: %w", err)
		}
		r.group++
		r.left = g.NumRows()
		chunks := g.ColumnChunks()
		for c, i := range r.chunks {
			if _, ok := r.columns[c].Type.Map(); ok {
				r.cursors = append(r.cursors, cursor{})
				r.maps = append(r.maps, newMapCursor(chunks[i].Pages(), chunks[i+1].Pages(), r.columns[c].Nullable))
				continue
			}
			r.cursors, r.maps = append(r.cursors, cursor{pages: chunks[i].Pages()}), append(r.maps, nil)
		}
	}
	n := int(min(r.left, int64(r.rows)))
	r.batch, r.ahead = r.ahead, r.batch
	r.ahead.Reset()
	least := n
	for i := range r.cursors {
		var err error
		v := r.batch.Vector(i)
		if m := r.maps[i]; m != nil {
			err = m.fill(v, r.appends[i], n-v.Len(), r.share)
		} else {
			err = r.fill(&r.cursors[i], v, r.appends[i], n-v.Len())
		}
		if err != nil {
			return nil, fmt.Errorf("read parquet file: row %d, column %s: %w", r.read+int64(v.Len())+1, r.columns[i].Name, err)
		}
		least = min(least, v.Len())
	}
	// Where one column had no room for as many rows as another, that is not to be far
	// ahead of it.
	if least < n {
		r.rows = 2 * least
	} else {
		r.rows = min(2*r.rows, rowsPerBatch)
	}
	n = least
	if err := r.batch.MoveFrom(n, r.ahead); err != nil {
		return nil, fmt.Errorf("read parquet file: %w", err)
	}
	r.read += int64(n)
	r.left -= int64(n)
	if r.from != nil {
		if err := r.checkNulls(r.group - 1); err != nil {
			return nil, fmt.Errorf("read parquet file: %w", err)
		}
	}
	return r.batch, nil
}

// fill reads n values of a column into v, or as many as there is room for, one at least.
func (r *Reader) fill(c *cursor, v *columnar.Vector, add appendForeign, n int) error {
	for n > 0 && (v.Len() == 0 || v.Memory() < r.share) {
		if c.page == nil {
			page, err := c.pages.ReadPage()
			if err != nil {
				if err == io.EOF {
					return io.ErrUnexpectedEOF
				}
				return err
			}
			c.begin(page, add == nil)
		}
		var got int
		var err error
		if c.values == nil {
			got, err = c.take(v, n, r.share)
		} else {
			got, err = r.fillEach(c, v, add, n)
		}
		n -= got
		if err == io.EOF {
			parquet.Release(c.page)
			c.page, c.values = nil, nil
		} else if err != nil {
			return err
		}
	}
	return nil
}

// fillEach reads at most n values of the current page, one by one, and returns how
// many; io.EOF says that these were the last.
func (r *Reader) fillEach(c *cursor, v *columnar.Vector, add appendForeign, n int) (got int, err error) {
	if add == nil {
		add = appendValue
	}
	if len(c.ahead) == 0 && c.end == nil {
		k, err := c.values.ReadValues(r.values[:min(n, len(r.values))])
		if err != nil && err != io.EOF {
			return 0, err
		}
		c.ahead, c.end = r.values[:k], err
	}
	from := c.ahead
	for len(c.ahead) > 0 && got < n && (v.Len() == 0 || v.Memory() < r.share) {
		if x := c.ahead[0]; x.IsNull() {
			v.AppendNull()
		} else if err := add(v, x); err != nil {
			return got, err
		}
		c.ahead = c.ahead[1:]
		got++
	}
	if len(c.ahead) == 0 {
		err, c.end = c.end, nil
		return got, err
	}
	if &from[0] == &r.values[0] { // which others read into
		c.ahead = slices.Clone(c.ahead)
	}
	return got, nil
}

// appendValue appends a value that is not null and of v's type.
func appendValue(v *columnar.Vector, x parquet.Value) error {
	switch v.Type().Storage() {
	case columnar.Int64:
		if _, _, ok := v.Type().Decimal(); ok {
			return v.AppendUnscaled(columnar.Int128FromInt64(x.Int64()))
		}
		v.AppendInt64(x.Int64())
	case columnar.Decimal128:
		return appendDecimal(v, x.ByteArray())
	case columnar.Float64:
		v.AppendFloat64(x.Double())
	case columnar.Bool:
		v.AppendBool(x.Boolean())
	default:
		return v.AppendBytes(x.ByteArray())
	}
	return nil
}

// Close releases the pages being read.
func (r *Reader) Close() error {
	var errs []error
	for i := range r.cursors {
		if m := r.maps[i]; m != nil {
			errs = append(errs, m.close())
			continue
		}
		if c := &r.cursors[i]; c.page != nil {
			parquet.Release(c.page)
		}
		errs = append(errs, r.cursors[i].pages.Close())
	}
	r.cursors, r.maps = r.cursors[:0], r.maps[:0]
	r.ahead.Reset()
	r.left = 0
	return errors.Join(errs...)
}
