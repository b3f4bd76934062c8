package jobs

import (
	"bytes"
	"container/heap"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"sluice/jobs/columnar"
	"sluice/jobs/rowsort"
	"sluice/jobs/spill"
	"sluice/jobs/target"
)

// maxMerged bounds the files that are open at a time, whatever memory there is: systems
// have bounds of a thousand.
const maxMerged = 256

// readPageBytes is about what a reader of Parquet holds of a column besides the batch: a
// page.
const readPageBytes = 256 << 10

// partitionMerge reads the partitions of a run side by side and puts their rows into
// the order of the columns that the run is sorted by, the first of which is the row
// key. A file is opened when its first row is next, so that no more of them are open
// than overlap: one a partition of a region. Where these take more than half of the
// memory, those of the region that are not open yet are read, one after the other, and
// their rows sorted, in the other half and on the disk; they are one more source. The
// rows come in the same order, whatever the memory.
type partitionMerge struct {
	run   *runInput
	order []int  // columns of the run
	files []File // to open, by their first row
	open  mergedFiles
	batch *columnar.Batch
	bytes int // of the batch

	memory int64
	disk   *spill.Disk
	held   int64 // about what the open files take
	begun  int   // files
}

// mergedFile is one of the files and where it is, or the sorted rows of several.
type mergedFile struct {
	rows    mergedRows
	number  int   // of its opening, which decides between equal rows
	numbers []int // of each row of the batch, where they are of several files
	last    []byte
	cost    int64
	batch   *columnar.Batch
	row     int
}

// mergedRows are the rows of a mergedFile.
type mergedRows interface {
	Next() (*columnar.Batch, error)
	Close() error
}

// at is the number of the file of the next row.
func (f *mergedFile) at() int {
	if f.numbers != nil {
		return f.numbers[f.row]
	}
	return f.number
}

// mergedFiles is a heap by the files' next rows.
type mergedFiles struct {
	all   []*mergedFile
	order []int
}

func (h *mergedFiles) Len() int      { return len(h.all) }
func (h *mergedFiles) Swap(i, j int) { h.all[i], h.all[j] = h.all[j], h.all[i] }
func (h *mergedFiles) Push(x any)    { h.all = append(h.all, x.(*mergedFile)) }

// Pop takes the last file.
func (h *mergedFiles) Pop() any {
	f := h.all[len(h.all)-1]
	h.all = h.all[:len(h.all)-1]
	return f
}

// Less compares the next rows of two files.
func (h *mergedFiles) Less(i, j int) bool {
	a, b := h.all[i], h.all[j]
	for _, column := range h.order {
		if d := bytes.Compare(a.batch.Vector(column).Bytes(a.row), b.batch.Vector(column).Bytes(b.row)); d != 0 {
			return d < 0
		}
	}
	return a.at() < b.at()
}

func newPartitionMerge(r *runInput) *partitionMerge {
	m := &partitionMerge{run: r, files: slices.Clone(r.files), batch: columnar.NewBatch(r.columns), memory: math.MaxInt64, disk: &spill.Disk{}}
	for _, name := range r.manifest.SortedBy {
		m.order = append(m.order, slices.IndexFunc(r.columns, func(c columnar.Column) bool { return c.Name == name }))
	}
	m.open.order = m.order
	m.files = slices.DeleteFunc(m.files, func(f File) bool { return f.Rows == 0 })
	slices.SortStableFunc(m.files, func(a, b File) int { return bytes.Compare(a.first(), b.first()) })
	return m
}

// first is the row key of the first row.
func (f *File) first() []byte {
	key, _ := columnar.UnescapeKey(f.MinRow) // the manifest was checked
	return key
}

// lastRow is the row key of the last row.
func (f *File) lastRow() []byte {
	key, _ := columnar.UnescapeKey(f.MaxRow) // the manifest was checked
	return key
}

// next returns the next rows.
func (m *partitionMerge) next() (*columnar.Batch, error) {
	m.batch.Reset()
	m.bytes = 0
	for m.batch.Rows() < columnar.DefaultBatchRows && m.bytes < columnar.DefaultBatchBytes {
		for len(m.files) > 0 && (m.open.Len() == 0 || bytes.Compare(m.files[0].first(), m.key()) <= 0) {
			if err := m.begin(); err != nil {
				return nil, err
			}
		}
		if m.open.Len() == 0 {
			break
		}
		if err := m.append(); err != nil {
			return nil, err
		}
	}
	if m.batch.Rows() == 0 {
		return nil, io.EOF
	}
	return m.batch, nil
}

// key is the row key of the next row of the open files.
func (m *partitionMerge) key() []byte {
	f := m.open.all[0]
	return f.batch.Vector(m.order[0]).Bytes(f.row)
}

// begin opens the first of the files, or, where the open ones take what they may, reads
// and sorts those that overlap with them.
func (m *partitionMerge) begin() error {
	if n := m.open.Len(); n > 0 && (m.held >= m.memory/2 || n >= maxMerged) {
		return m.sortRest()
	}
	f, err := m.run.open(&m.files[0])
	if err != nil {
		return err
	}
	return m.take(f, &mergedFile{rows: f, number: m.begun, last: m.files[0].lastRow()}, 1)
}

// take adds a source of the rows of the first files to those that are open.
func (m *partitionMerge) take(rows mergedRows, f *mergedFile, files int) error {
	if err := f.advance(); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return errors.Join(err, rows.Close())
	}
	if files == 1 {
		f.cost = m.cost(&m.files[0], f.batch)
	}
	m.held += f.cost
	m.files, m.begun = m.files[files:], m.begun+files
	heap.Push(&m.open, f)
	return nil
}

// cost is about what the reader of a file takes whose first batch is b: that, as it is
// read, a page of each column, and what is read ahead of a bucket.
func (m *partitionMerge) cost(f *File, b *columnar.Batch) int64 {
	n := 2 * int64(b.Bytes())
	if f.Format == Parquet {
		n += min(int64(len(m.run.columns))*readPageBytes, 4*f.Bytes)
	}
	if inBucket(m.run.at) {
		n += min(target.ReadAheadBytes, f.Bytes)
	}
	return n
}

// sortRest makes one source of the files that are to be opened before all that are open
// now, and those that are opened with them, have ended.
func (m *partitionMerge) sortRest() error {
	n, last := 0, []byte(nil)
	for _, f := range m.open.all {
		last = slices.MaxFunc([][]byte{last, f.last}, bytes.Compare)
	}
	for ; n < len(m.files) && bytes.Compare(m.files[n].first(), last) <= 0; n++ {
		last = slices.MaxFunc([][]byte{last, m.files[n].lastRow()}, bytes.Compare)
	}
	s := &sortedFiles{batch: columnar.NewBatch(m.run.columns)}
	s.sorter = rowsort.New(&rowsort.Options{Columns: m.run.columns, MemoryBytes: max(1, m.memory/2), Disk: m.disk})
	f := &mergedFile{rows: s, last: last, numbers: []int{}} // which s fills
	s.file = f
	for i := range n {
		if err := m.collect(s.sorter.Collector(0), i); err != nil {
			return errors.Join(m.sortError(err), s.Close())
		}
	}
	var err error
	if s.sorted, err = s.sorter.Sorted(m.run.ctx); err != nil {
		return errors.Join(m.sortError(err), s.Close())
	}
	return m.take(s, f, n)
}

// sortError says of what a sort is, whose errors speak of the rows.
func (m *partitionMerge) sortError(err error) error {
	return fmt.Errorf("merge the partitions of run %s: %w", m.run.manifest.RunID, err)
}

// collect adds the rows of the i-th of the files to be sorted: by the columns of the
// order, the number of the file, and the place in it.
func (m *partitionMerge) collect(c *rowsort.Collector, i int) (err error) {
	f, err := m.run.open(&m.files[i])
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	var key []byte
	for place := uint64(0); ; {
		b, err := f.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		for row := range b.Rows() {
			key = key[:0]
			for _, column := range m.order {
				key = columnar.AppendTextKey(key, b.Vector(column).Bytes(row))
			}
			key = binary.BigEndian.AppendUint64(key, uint64(m.begun+i))
			key = binary.BigEndian.AppendUint64(key, place)
			if err := c.Add(key, b, row); err != nil {
				return err
			}
			place++
		}
	}
}

// sortedFiles are the rows of several files, sorted.
type sortedFiles struct {
	file   *mergedFile
	sorter *rowsort.Sorter
	sorted *rowsort.Rows
	batch  *columnar.Batch
}

// Next returns the next rows, and says the numbers of their files in file.
func (s *sortedFiles) Next() (*columnar.Batch, error) {
	s.batch.Reset()
	s.file.numbers = s.file.numbers[:0]
	for size := 0; s.batch.Rows() < columnar.DefaultBatchRows && size < columnar.DefaultBatchBytes/4; {
		ok, err := s.sorted.Next()
		if err != nil {
			return nil, err
		}
		if !ok {
			break
		}
		key := s.sorted.Key()
		s.file.numbers = append(s.file.numbers, int(binary.BigEndian.Uint64(key[len(key)-16:])))
		size += s.sorted.Size()
		if err := s.sorted.AppendTo(s.batch); err != nil {
			return nil, err
		}
	}
	if s.batch.Rows() == 0 {
		return nil, io.EOF
	}
	return s.batch, nil
}

// Close lets go of the memory and the disk.
func (s *sortedFiles) Close() error { return s.sorter.Close() }

// advance goes to the next row, or returns io.EOF.
func (f *mergedFile) advance() (err error) {
	if f.row++; f.batch != nil && f.row < f.batch.Rows() {
		return nil
	}
	for f.row = 0; ; {
		if f.batch, err = f.rows.Next(); err != nil || f.batch.Rows() > 0 {
			return err
		}
	}
}

// append appends the next row to the batch.
func (m *partitionMerge) append() error {
	f := m.open.all[0]
	n, err := m.batch.AppendRow(f.batch, f.row)
	if err != nil {
		return err
	}
	m.bytes += n
	switch err := f.advance(); {
	case err == io.EOF:
		heap.Pop(&m.open)
		m.held -= f.cost
		return f.rows.Close()
	case err != nil:
		return err
	}
	heap.Fix(&m.open, 0)
	return nil
}

// close ends reading.
func (m *partitionMerge) close() error {
	var errs []error
	for _, f := range m.open.all {
		errs = append(errs, f.rows.Close())
	}
	m.open.all = nil
	return errors.Join(errs...)
}
