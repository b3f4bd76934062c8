package jobs

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"time"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/target"
	"sluice/jobs/work"
	"sluice/store"
)

// ImportOptions configures Import. From, To and Into must be set.
type ImportOptions struct {
	// From is the directory of a published run, or of a job, of which the latest
	// is taken. It is not closed.
	From target.Target
	// To has the table Into, which gets the cells.
	To   store.Engine
	Into string
	// Format is the format whose files are read. Default: the first of the run.
	Format string
	// Progress is called now and then; it must return soon.
	Progress func(work.Progress)
	// Now is the clock of Progress. Default: time.Now.
	Now func() time.Time

	chunkBytes int // of a commit, where tests want little; 0 = importBytes
	partBytes  int // of a row in a commit, likewise
}

// Imported is what Import has done.
type Imported struct {
	Manifest *Manifest
	Rows     int64 // of the files
	Cells    int64
}

// importBytes is about how much one commit of an import holds: enough rows for the
// store to take them as sorted tables, a quarter of what a request may have. A row and an
// operation count as importRowBytes and importOpBytes more than what they hold: a request
// is JSON, where names, times and base64 are up to four times that.
const (
	importBytes    = 16 << 20
	importRowBytes = 16
	importOpBytes  = 40
)

// RowError is a row of a file that cannot be imported.
type RowError struct {
	File   string // below the run's directory
	Row    int64  // in the file, from 1
	Column string // empty = the row, not one value of it
	Err    error
}

// Error names the row as FILE:ROW, or the value as FILE:ROW:COLUMN.
func (e *RowError) Error() string {
	if e.Column != "" {
		return fmt.Sprintf("%s:%d:%s: %v", e.File, e.Row, e.Column, e.Err)
	}
	return fmt.Sprintf("%s:%d: %v", e.File, e.Row, e.Err)
}

// Unwrap returns the reason.
func (e *RowError) Unwrap() error { return e.Err }

// Import writes the rows of a published export into a table: each column with a
// family and a qualifier as the cell that it was read from. The whole run is
// verified before its first row is written; the files are in the order of row keys,
// so that the store takes them in bulk. A row's cells get the time of its $timestamp
// column, or else the time that the run is for. Null columns are no cells; of
// versions that the job's mode left out, and of what else it did, nothing is in the
// files. A history brings its delete markers back.
//
// All times are explicit and counters are set, not added: an Import that is killed
// leaves a part of the rows, each whole, and the next one, from the beginning, makes
// the same cells of them. The error wraps a *RowError for a row that the table does
// not take or that holds no row key, store.ErrCorrupt where the run is not as its
// manifest says, store.ErrFamilyNotFound, and store.ErrUnsupported for what no cell can
// be made of: joins, runs without their row keys, DISTINCT families, and COUNTER families
// of an engine that cannot set counts. Of a run with one row a cell, whose families are in
// its rows, the first row of such a family ends the Import: what is before it is written.
func Import(ctx context.Context, o *ImportOptions) (*Imported, error) {
	if o.From == nil || o.To == nil || o.Into == "" {
		return nil, errors.New("jobs: ImportOptions need From, To and Into")
	}
	m := newTableImport(o)
	done, err := m.run(ctx)
	if err != nil {
		return nil, fmt.Errorf("import into %s: %w", m.Into, err)
	}
	return done, nil
}

// tableImport is one execution of Import.
type tableImport struct {
	ImportOptions
	manifest *Manifest
	schema   *store.TableDescriptor
	columns  []importColumn
	keys     []keyColumn // of the row key; the others' files have several
	between  []byte      // stands between their values
	time     int         // of the time; -1 = there is none
	family   int         // with rows: cell: of the family, qualifier and value
	qual     int
	value    int
	op       int // with mode: history: of what the cell is
	done     Imported
	report   work.Reporter

	batch   store.Batch
	rows    []int64 // of the batch's mutations, in the file
	bytes   int
	begun   int64               // row of the last commit's last mutation, which may go on
	entries map[string]struct{} // of a map, by qualifier
	counter []byte              // row and column of the last one that was set, with mode: versions
}

func newTableImport(o *ImportOptions) *tableImport {
	m := &tableImport{ImportOptions: *o}
	if m.Now == nil {
		m.Now = time.Now
	}
	m.chunkBytes, m.partBytes = cmp.Or(m.chunkBytes, importBytes), cmp.Or(m.partBytes, importBytes)
	return m
}

// columnError is what is wrong with the value of one column.
type columnError struct {
	column string
	err    error
}

func (e *columnError) Error() string { return "column " + e.column + ": " + e.err.Error() }
func (e *columnError) Unwrap() error { return e.err }

func (m *tableImport) run(ctx context.Context) (*Imported, error) {
	published, _, err := ReadRunTarget(ctx, m.From)
	if err != nil {
		return nil, err
	}
	if err := m.findTable(ctx, importFamilies(published)); err != nil { // before all files are read
		return nil, err
	}
	r, err := m.verified(ctx, "")
	if err != nil {
		return nil, err
	}
	m.manifest = r.Manifest
	if err := m.compile(); err != nil {
		return nil, err
	}
	if m.Format == "" {
		m.Format = m.manifest.Totals[0].Format
	}
	if m.manifest.increment() {
		return m.chain(ctx, r.Dir)
	}
	var files []*File
	for i := range m.manifest.Files {
		if f := &m.manifest.Files[i]; f.Format == m.Format {
			files = append(files, f)
		}
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%w: the run has no files of format %s", store.ErrInvalidArgument, m.Format)
	}
	m.report.Start(m.Progress, m.Now, len(files))
	for _, f := range files {
		if err := m.file(ctx, r.Dir, f); err != nil {
			return nil, err
		}
		m.report.File(f.Bytes)
	}
	m.done.Manifest = m.manifest
	return &m.done, nil
}

// verified verifies the run whose manifest has this name, or, without one, that which From
// is of.
func (m *tableImport) verified(ctx context.Context, name string) (*Report, error) {
	r, err := verify(ctx, m.From, name)
	if err != nil {
		return nil, fmt.Errorf("verify: %w", err)
	}
	if err := r.Err(); err != nil {
		return nil, fmt.Errorf("%w: run %s: %w", store.ErrCorrupt, r.Manifest.RunID, err)
	}
	return r, nil
}

// chain imports the table that the run, an increment in dir, and those that it goes on from
// make up.
func (m *tableImport) chain(ctx context.Context, dir string) (_ *Imported, err error) {
	if dir == "." {
		return nil, fmt.Errorf("%w: run %s is an increment, and the runs that it goes on from are beside it: name the job's directory", store.ErrUnsupported, m.manifest.RunID)
	}
	before, err := ReadChain(ctx, m.From, m.manifest)
	if err != nil {
		return nil, err
	}
	runs := newRunInput(ctx, m.From, ".", dir, m.manifest, m.Format).behind(before, m.Format)
	c, err := newChainMerge(runs)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	for _, in := range runs[:len(before)] {
		if _, err := m.verified(ctx, path.Join(in.dir, ManifestName)); err != nil {
			return nil, err
		}
	}
	var size int64
	for _, in := range runs {
		size += in.bytes
	}
	m.report.Start(m.Progress, m.Now, 1)
	if err := m.read(ctx, &File{Path: dir + " and before"}, c); err != nil {
		return nil, err
	}
	m.report.File(size)
	m.done.Manifest = m.manifest
	return &m.done, nil
}

// file imports one file.
func (m *tableImport) file(ctx context.Context, dir string, f *File) error {
	in, err := m.From.Open(ctx, path.Join(dir, f.Path))
	if err != nil {
		return err
	}
	defer in.Close()
	rd, err := m.manifest.read(f, in, in.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", f.Path, err)
	}
	defer rd.Close()
	return m.read(ctx, f, rd)
}

// read imports the rows of a file, or of what stands for one.
func (m *tableImport) read(ctx context.Context, f *File, rd interface {
	Next() (*columnar.Batch, error)
},
) error {
	m.begun = 0
	for row := int64(1); ; {
		b, err := rd.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: after %d rows: %w", f.Path, row-1, err)
		}
		for i := range b.Rows() {
			mutation, err := m.mutation(b, i)
			if err != nil {
				bad := &RowError{File: f.Path, Row: row, Err: err}
				if at := (*columnError)(nil); errors.As(err, &at) {
					bad.Column, bad.Err = at.column, at.err
				}
				return bad
			}
			if err := m.add(ctx, f, &mutation, row); err != nil {
				return err
			}
			row++
		}
	}
	return m.apply(ctx, f)
}

// add takes the mutation of a row, and commits what is there where that is enough. A row that is
// larger is taken in parts, as a request to a daemon has no room for any row.
func (m *tableImport) add(ctx context.Context, f *File, mutation *cell.Mutation, row int64) error {
	for ops := mutation.Ops; len(ops) > 0; {
		size, n := len(m.Into)+len(mutation.Row)+importRowBytes, 0
		for ; n < len(ops); n++ {
			o := &ops[n]
			more := len(o.Family) + len(o.Qualifier) + len(o.Value) + importOpBytes
			if n > 0 && size+more > m.partBytes {
				break
			}
			size += more
		}
		// The place in the batch is the offset by which a refusal names it.
		m.batch.Add(int64(len(m.rows)), cell.Mutation{Table: m.Into, Row: mutation.Row, Ops: ops[:n:n]})
		m.rows = append(m.rows, row)
		m.bytes += size
		if ops = ops[n:]; m.bytes >= m.chunkBytes || len(ops) > 0 {
			if err := m.apply(ctx, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// mutation makes the mutation of a row of a batch, which has no operations where all of it is
// null.
func (m *tableImport) mutation(b *columnar.Batch, i int) (mutation cell.Mutation, err error) {
	key, err := m.key(b, i)
	if err != nil {
		return mutation, err
	}
	at, err := m.timeOf(b, i)
	if err != nil {
		return mutation, err
	}
	mutation = cell.Mutation{Table: m.Into, Row: key}
	if m.value >= 0 {
		if err := m.putNamed(&mutation, b, i, at); err != nil {
			return mutation, err
		}
	}
	for j := range m.columns {
		c := &m.columns[j]
		if c.family == "" || b.Vector(j).IsNull(i) && !c.required || slices.ContainsFunc(c.rivals, func(k int) bool { return !b.Vector(k).IsNull(i) }) {
			continue
		}
		if c.isMap {
			if err := m.putEntries(&mutation, b, j, i, at); err != nil {
				return mutation, err
			}
			continue
		}
		value, err := m.encode(b, j, i)
		if err != nil {
			return mutation, err
		}
		if err := m.put(&mutation, c.family, c.qualifier, at, value); err != nil {
			return mutation, err
		}
	}
	m.done.Rows++
	return mutation, nil
}

// timeOf returns the time of the cells of a row of a batch.
func (m *tableImport) timeOf(b *columnar.Batch, i int) (cell.Timestamp, error) {
	if m.time < 0 {
		return cell.Timestamp(m.manifest.LogicalTime.UnixMilli()), nil
	}
	name, v := m.manifest.Columns[m.time].Name, b.Vector(m.time)
	if v.IsNull(i) {
		return 0, &columnError{name, errors.New("it has no time")}
	}
	at := cell.Timestamp(v.Int64s()[i])
	if v.Type() == columnar.Timestamp {
		if at%1000 != 0 {
			return 0, &columnError{name, fmt.Errorf("its time, %d µs, is not in ms", at)}
		}
		at /= 1000
	}
	if at == cell.Latest { // which asks for the store's clock
		return 0, &columnError{name, fmt.Errorf("%d ms is no time of a cell", at)}
	}
	return at, nil
}

// putNamed adds the write of the cell that a row of a file with a row a cell is: the row
// names its family and qualifier.
func (m *tableImport) putNamed(mutation *cell.Mutation, b *columnar.Batch, i int, at cell.Timestamp) error {
	family, err := m.encode(b, m.family, i)
	if err != nil {
		return err
	}
	qualifier, err := m.encode(b, m.qual, i)
	if err != nil {
		return err
	}
	if err := m.takes(string(family)); err != nil {
		return err
	}
	op, err := m.opType(b, i)
	if err != nil {
		return err
	}
	if op != cell.OpPut {
		mutation.Ops = append(mutation.Ops, cell.Op{Type: op, Family: string(family), Qualifier: qualifier, Time: at})
		m.done.Cells++
		return nil
	}
	value, err := m.encode(b, m.value, i)
	if err != nil {
		return err
	}
	return m.put(mutation, string(family), qualifier, at, value)
}

// key returns the row key of a row of a batch.
func (m *tableImport) key(b *columnar.Batch, i int) ([]byte, error) {
	var key []byte
	for n, k := range m.keys {
		value, err := m.encodeAs(b, k.column, k.coding, i)
		if err != nil {
			return nil, err
		}
		if n > 0 {
			key = append(key, m.between...)
		}
		if n < len(m.keys)-1 && !k.coding.FixedWidth() && bytes.Index(slices.Concat(value, m.between), m.between) < len(value) {
			return nil, &columnError{m.manifest.Columns[k.column].Name, fmt.Errorf("%q contains what stands between the parts of the row key, so that two rows could have one key", value)}
		}
		key = append(key, value...)
	}
	return key, nil
}

// encode returns a value of a column as the bytes of a cell, of its own.
func (m *tableImport) encode(b *columnar.Batch, column, i int) ([]byte, error) {
	return m.encodeAs(b, column, m.columns[column].coding, i)
}

func (m *tableImport) encodeAs(b *columnar.Batch, column int, coding columnar.Coding, i int) ([]byte, error) {
	name, v := m.manifest.Columns[column].Name, b.Vector(column)
	if v.IsNull(i) {
		return nil, &columnError{name, errors.New("it is null")}
	}
	value, err := v.AppendValue(nil, coding, i)
	if err != nil {
		return nil, &columnError{name, err}
	}
	return value, nil
}

// putEntries adds the writes of the cells of a map. A value that is null, which files of
// others may have, is no cell.
func (m *tableImport) putEntries(mutation *cell.Mutation, b *columnar.Batch, column, i int, at cell.Timestamp) error {
	c, v, name := &m.columns[column], b.Vector(column), m.manifest.Columns[column].Name
	if v.IsNull(i) {
		return &columnError{name, errors.New("it is null")}
	}
	if m.entries == nil {
		m.entries = map[string]struct{}{}
	}
	clear(m.entries)
	for e, end := v.EntriesOf(i); e < end; e++ {
		qualifier := bytes.Clone(v.Keys().Bytes(e))
		if c.named[string(qualifier)] {
			return &columnError{name, fmt.Errorf("it has %q, which is a column of its own", qualifier)}
		}
		if v.Values().IsNull(e) {
			continue
		}
		if _, ok := m.entries[string(qualifier)]; ok { // files of others may have it
			return &columnError{name, fmt.Errorf("it has %q twice", qualifier)}
		}
		m.entries[string(qualifier)] = struct{}{}
		value, err := v.Values().AppendValue(nil, c.coding, e)
		if err != nil {
			return &columnError{name, fmt.Errorf("%q: %w", qualifier, err)}
		}
		if err := m.put(mutation, c.family, qualifier, at, value); err != nil {
			return &columnError{name, err}
		}
	}
	return nil
}

// put adds the write of one cell, of which a counter is set.
func (m *tableImport) put(mutation *cell.Mutation, family string, qualifier []byte, at cell.Timestamp, value []byte) error {
	m.done.Cells++
	if !m.schema.Family(family).Counter {
		mutation.Put(family, qualifier, at, value)
		return nil
	}
	if m.manifest.Mode == ModeVersions { // newest first, and the last would be set
		column := slices.Concat(cell.AppendPart(cell.AppendPart(nil, mutation.Row), []byte(family)), qualifier)
		if bytes.Equal(column, m.counter) {
			return fmt.Errorf("%s:%s is a counter, and has several versions", family, columnar.EscapeKey(qualifier))
		}
		m.counter = column
	}
	if len(value) != 8 {
		return fmt.Errorf("%s:%s is a counter, and has %d bytes", family, columnar.EscapeKey(qualifier), len(value))
	}
	mutation.Ops = append(mutation.Ops,
		cell.Op{Type: cell.OpDeleteColumn, Family: family, Qualifier: qualifier, Time: cell.Latest},
		cell.Op{Type: cell.OpIncrement, Family: family, Qualifier: qualifier, Time: at, Delta: int64(binary.BigEndian.Uint64(value))})
	return nil
}

// apply writes what was gathered of a file.
func (m *tableImport) apply(ctx context.Context, f *File) error {
	if len(m.rows) == 0 {
		return nil
	}
	m.batch.Bulk = true
	err := m.To.Apply(ctx, &m.batch)
	if refused := (*store.BatchError)(nil); errors.As(err, &refused) {
		if r := &refused.Refused[0]; r.Offset >= 0 && r.Offset < int64(len(m.rows)) {
			return &RowError{File: f.Path, Row: m.rows[r.Offset], Err: r}
		}
	}
	if err != nil {
		return fmt.Errorf("%s: rows %d to %d: %w", f.Path, m.rows[0], m.rows[len(m.rows)-1], err)
	}
	rows := len(m.rows)
	if m.begun == m.rows[0] {
		rows-- // its last parts
	}
	m.begun = m.rows[len(m.rows)-1]
	m.report.Rows(int64(rows))
	m.batch.Reset()
	m.rows, m.bytes = m.rows[:0], 0
	return nil
}
