package jobs

import (
	"bytes"
	"container/heap"
	"errors"
	"io"
	"slices"

	"sluice/jobs/columnar"
)

// partitionMerge reads the partitions of a run side by side and puts their rows into
// the order of the columns that the run is sorted by, the first of which is the row
// key. A file is opened when its first row is next, so that no more of them are open
// than overlap: one a partition of a region.
type partitionMerge struct {
	run   *runInput
	order []int  // columns of the run
	files []File // to open, by their first row
	open  mergedFiles
	batch *columnar.Batch
	bytes int // of the batch
}

// mergedFile is one of the files and where it is.
type mergedFile struct {
	*runFile
	number int // of its opening, which decides between equal rows
	batch  *columnar.Batch
	row    int
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
	return a.number < b.number
}

func newPartitionMerge(r *runInput) *partitionMerge {
	m := &partitionMerge{run: r, files: slices.Clone(r.files), batch: columnar.NewBatch(r.columns)}
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
		if err := m.take(); err != nil {
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

// begin opens the first of the files.
func (m *partitionMerge) begin() error {
	f, err := m.run.open(&m.files[0])
	if err != nil {
		return err
	}
	m.files = m.files[1:]
	merged := &mergedFile{runFile: f, number: -len(m.files)}
	if err := merged.advance(); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return errors.Join(err, f.Close())
	}
	heap.Push(&m.open, merged)
	return nil
}

// advance goes to the next row, or returns io.EOF.
func (f *mergedFile) advance() (err error) {
	if f.row++; f.batch != nil && f.row < f.batch.Rows() {
		return nil
	}
	for f.row = 0; ; {
		if f.batch, err = f.Next(); err != nil || f.batch.Rows() > 0 {
			return err
		}
	}
}

// take appends the next row to the batch.
func (m *partitionMerge) take() error {
	f := m.open.all[0]
	for i := range m.run.columns {
		v := f.batch.Vector(i)
		if err := m.batch.Vector(i).AppendFrom(v, f.row); err != nil {
			return err
		}
		m.bytes += v.Size(f.row)
	}
	switch err := f.advance(); {
	case err == io.EOF:
		heap.Pop(&m.open)
		return f.Close()
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
		errs = append(errs, f.Close())
	}
	m.open.all = nil
	return errors.Join(errs...)
}
