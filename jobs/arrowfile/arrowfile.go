// Package arrowfile writes batches of columns into an Arrow IPC file (the file
// format with a footer, also called Feather 2) and reads such files back.
//
// Each batch becomes a record batch that shares its memory, so writing costs
// little more than the copy to the file; readers can map the file and use it in
// place where it is not compressed. A Writer or Reader belongs to one goroutine
// at a time. They do not close what they write to or read from.
//
// It does not write the stream format, dictionaries or nested columns other than maps.
package arrowfile

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/ipc"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"sluice/internal/turns"
	"sluice/jobs/columnar"
)

var (
	_ columnar.FileWriter = (*Writer)(nil)
	_ columnar.FileReader = (*Reader)(nil)
)

var codecNames = []string{"none", "lz4", "zstd"}

var errClosed = errors.New("arrow: the writer is closed")

// Options configures a Writer. The zero value is ready.
type Options struct {
	// Codec compresses the buffers: none (default), lz4 or zstd.
	Codec string
	// Metadata is stored in the schema.
	Metadata map[string]string
	// Allocator gives Arrow its buffers. Default: the Go heap.
	Allocator memory.Allocator
}

// CheckCodec returns an error where name is no codec of this format; the empty
// name is the default.
func CheckCodec(name string) error {
	if name == "" || slices.Contains(codecNames, name) {
		return nil
	}
	return fmt.Errorf("%q is no codec of Arrow files; it is one of %v", name, codecNames)
}

// Writer writes one Arrow IPC file.
type Writer struct {
	out    *position
	file   *ipc.FileWriter
	schema *arrow.Schema
	rows   int64
	closed bool
	turn   turns.Turn
}

// position is an io.Writer that knows where it is, which is all that ipc seeks
// for.
type position struct {
	w io.Writer
	n int64
}

func (p *position) Write(b []byte) (int, error) {
	n, err := p.w.Write(b)
	p.n += int64(n)
	return n, err
}

// Seek answers where the writer is.
func (p *position) Seek(offset int64, whence int) (int64, error) {
	if offset != 0 || whence != io.SeekCurrent {
		return 0, errors.ErrUnsupported
	}
	return p.n, nil
}

// NewWriter returns a writer of a file with these columns. o may be nil.
func NewWriter(w io.Writer, columns []columnar.Column, o *Options) (*Writer, error) {
	if o == nil {
		o = &Options{}
	}
	if err := CheckCodec(o.Codec); err != nil {
		return nil, fmt.Errorf("arrow: %w", err)
	}
	wr := &Writer{out: &position{w: w}, schema: columnar.ArrowSchema(columns, o.Metadata)}
	opts := []ipc.Option{ipc.WithSchema(wr.schema)}
	if o.Allocator != nil {
		opts = append(opts, ipc.WithAllocator(o.Allocator))
	}
	switch o.Codec {
	case "lz4":
		opts = append(opts, ipc.WithLZ4())
	case "zstd":
		opts = append(opts, ipc.WithZstd())
	}
	var err error
	if wr.file, err = ipc.NewFileWriter(wr.out, opts...); err != nil {
		return nil, fmt.Errorf("open arrow file: %w", err)
	}
	return wr, nil
}

// Write appends the rows of b as one record batch.
func (w *Writer) Write(b *columnar.Batch) error {
	if w.closed {
		return errClosed
	}
	if b.Rows() == 0 {
		return nil
	}
	w.turn.Give()
	r := b.Record(w.schema)
	defer r.Release()
	if err := w.file.Write(r); err != nil {
		return fmt.Errorf("write arrow record batch: %w", err)
	}
	w.rows += int64(b.Rows())
	return nil
}

// Size returns the bytes written so far; nothing is buffered.
func (w *Writer) Size() int64 { return w.out.n }

// Close writes the footer.
func (w *Writer) Close() (columnar.FileStats, error) {
	if w.closed {
		return columnar.FileStats{}, errClosed
	}
	w.closed = true
	if err := w.file.Close(); err != nil {
		return columnar.FileStats{}, fmt.Errorf("close arrow file: %w", err)
	}
	return columnar.FileStats{Rows: w.rows, Bytes: w.out.n}, nil
}

// Reader reads an Arrow IPC file that a Writer wrote. What the file says of sizes is
// checked before memory is made for it: errors that wrap ErrClaim.
type Reader struct {
	file    *checked
	columns []columnar.Column
	batch   *columnar.Batch
	next    int
}

// NewReader opens the file of size bytes in r. A nil allocator is the Go heap.
func NewReader(r io.ReaderAt, size int64, allocator memory.Allocator) (rd *Reader, err error) {
	defer recovered(&err)
	f, err := open(r, size, allocator)
	if err != nil {
		return nil, fmt.Errorf("open arrow file: %w", err)
	}
	rd = &Reader{file: f}
	for _, field := range f.Schema().Fields() {
		t, ok := columnType(field)
		if !ok {
			return nil, fmt.Errorf("open arrow file: column %s has type %s, which exports do not have", field.Name, field.Type)
		}
		rd.columns = append(rd.columns, columnar.Column{Name: field.Name, Type: t, Nullable: field.Nullable})
	}
	rd.batch = columnar.NewBatch(rd.columns)
	return rd, nil
}

// recovered turns a panic of arrow, which damaged files cause, into an error.
func recovered(err *error) {
	switch r := recover().(type) {
	case nil:
	case error:
		if errors.Is(r, ErrClaim) {
			*err = fmt.Errorf("read arrow file: %w", r)
			return
		}
		*err = fmt.Errorf("read arrow file: damaged: %w", r)
	default:
		*err = fmt.Errorf("read arrow file: damaged: %v", r)
	}
}

func columnType(f arrow.Field) (columnar.Type, bool) {
	if columnar.IsArrowJSON(f) {
		return columnar.JSON, true
	}
	if d, ok := f.Type.(*arrow.Decimal128Type); ok {
		return columnar.Decimal(int(d.Precision), int(d.Scale))
	}
	if m, ok := f.Type.(*arrow.MapType); ok && arrow.TypeEqual(m.KeyType(), columnar.String.Arrow()) {
		value, _ := columnType(m.ItemField())
		return columnar.Map(value)
	}
	for c := columnar.String; c <= columnar.Bytes; c++ {
		if arrow.TypeEqual(c.Arrow(), f.Type) {
			return c, true
		}
	}
	return 0, false
}

// Columns returns the file's columns.
func (r *Reader) Columns() []columnar.Column { return r.columns }

// Metadata returns the schema's key-value metadata.
func (r *Reader) Metadata() map[string]string {
	m := make(map[string]string)
	md := r.file.Schema().Metadata()
	for i, k := range md.Keys() {
		m[k] = md.Values()[i]
	}
	return m
}

// Next returns the next record batch.
func (r *Reader) Next() (b *columnar.Batch, err error) {
	defer recovered(&err)
	if r.next == r.file.NumRecords() {
		return nil, io.EOF
	}
	rec, err := r.file.record(r.next)
	if err != nil {
		return nil, fmt.Errorf("read arrow record batch %d: %w", r.next, err)
	}
	defer rec.Release()
	r.next++
	if err := r.batch.SetRecord(rec); err != nil {
		return nil, fmt.Errorf("read arrow record batch %d: %w", r.next-1, err)
	}
	return r.batch, nil
}

// Close releases the reader.
func (r *Reader) Close() error { return r.file.Close() }
