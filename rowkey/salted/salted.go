// Package salted reads tables whose row keys begin with a salt (rowkey.Salt) as if
// they did not: one scan fans out over the buckets, and their rows are merged in
// the order of the keys.
//
// A Scanner belongs to one goroutine at a time and reads the buckets in turn; rows
// are valid until the next Next, as a store's are. A row is written and got by its
// salted key, with the store itself. The package writes nothing.
package salted

import (
	"bytes"
	"container/heap"
	"context"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/rowkey"
	"sluice/store"
)

// Scan reads the rows of s.Table, whose keys have a salt. Start, Stop and Prefix of
// s and the keys of the rows that it returns are without it; Limit is of all rows,
// and all else is as for any scan, Reversed included. Rows with one key in several
// buckets, which a salt of the whole key never makes, come in the order of the
// buckets.
//
// Filters run once a bucket, as they run where the data is: they see keys with the
// salt, and one that counts rows, such as a PageFilter, counts those of a bucket.
//
// A scan of all buckets has no cursor: a Scan that asks for one is refused with
// store.ErrUnsupported.
//
// The buckets' scans begin one after the other. For all of them at one instant let
// r be a store.Snapshot.
func Scan(ctx context.Context, r store.Reader, s *store.Scan, salt rowkey.Salt) store.Scanner {
	if s.Cursor != "" || s.NeedCursor || s.PageRows > 0 {
		return store.FailedScanner(fmt.Errorf("scan %s: %w: cursors of a salted table; scan its buckets, each by its prefix", s.Table, store.ErrUnsupported))
	}
	m := &merge{table: s.Table, limit: s.Limit, salt: salt}
	m.heap.reversed = s.Reversed
	for n := range salt.Buckets() {
		m.unread = append(m.unread, open(ctx, r, s, byte(n)))
	}
	return m
}

// open begins the scan of one bucket.
func open(ctx context.Context, r store.Reader, s *store.Scan, number byte) *bucket {
	salted := func(key []byte) []byte { return append([]byte{number}, key...) }
	own := *s
	own.Prefix = salted(s.Prefix)
	if len(s.Start) > 0 {
		own.Start = salted(s.Start)
	}
	if len(s.Stop) > 0 {
		own.Stop = salted(s.Stop)
	}
	return &bucket{number: number, scanner: r.Scan(ctx, &own)}
}

// merge is a Scanner over one Scanner a bucket.
type merge struct {
	table string
	limit int
	salt  rowkey.Salt

	unread  []*bucket // that have not moved to their first row
	heap    buckets
	current *bucket // whose row was handed out; it moves with the next Next
	rows    int     // handed out, the current one included
	last    []byte  // key of the last of them
	from    byte    // its bucket
	err     error
	closed  bool
}

var _ store.Scanner = (*merge)(nil)

// bucket is the scan of one bucket, at a row.
type bucket struct {
	number  byte
	scanner store.Scanner
	row     cell.Row // without the salt
}

// next moves the bucket to its next row. Where there is none it closes it.
func (m *merge) next(b *bucket) (bool, error) {
	if b.scanner.Next() {
		r := b.scanner.Row()
		_, key, err := m.salt.Split(r.Key)
		if err == nil {
			b.row = *r
			b.row.Key = key
			return true, nil
		}
		return false, errors.Join(err, b.scanner.Close())
	}
	return false, errors.Join(b.scanner.Err(), b.scanner.Close())
}

// advance puts b into the heap, at its next row.
func (m *merge) advance(b *bucket) bool {
	ok, err := m.next(b)
	if err != nil {
		m.err = fmt.Errorf("scan bucket %d of %s: %w", b.number, m.table, err)
		return false
	}
	if ok {
		heap.Push(&m.heap, b)
	}
	return true
}

// Next moves to the next row, or to the next piece of a row.
func (m *merge) Next() bool {
	if m.err != nil || m.closed {
		return false
	}
	for len(m.unread) > 0 {
		b := m.unread[0]
		m.unread = m.unread[1:]
		if !m.advance(b) {
			return false
		}
	}
	if b := m.current; b != nil {
		m.current = nil
		if !m.advance(b) {
			return false
		}
	}
	if m.heap.Len() == 0 {
		return false
	}
	b := m.heap.buckets[0]
	// With Scan.Batch a row comes in pieces, which are one row of the limit.
	if m.rows == 0 || b.number != m.from || !bytes.Equal(b.row.Key, m.last) {
		if m.limit > 0 && m.rows == m.limit {
			return false
		}
		m.rows++
		m.last, m.from = append(m.last[:0], b.row.Key...), b.number
	}
	heap.Pop(&m.heap)
	m.current = b
	return true
}

// Row returns the current row, valid until the next Next or Close.
func (m *merge) Row() *cell.Row {
	if m.current == nil {
		return nil
	}
	return &m.current.row
}

// Err returns the first error.
func (m *merge) Err() error { return m.err }

// Close releases the buckets' scans.
func (m *merge) Close() error {
	if m.closed {
		return nil
	}
	m.closed = true
	var errs []error
	if m.current != nil {
		errs = append(errs, m.current.scanner.Close())
		m.current = nil
	}
	for _, b := range append(m.unread, m.heap.buckets...) {
		errs = append(errs, b.scanner.Close())
	}
	m.unread, m.heap.buckets = nil, nil
	return errors.Join(errs...)
}

// buckets is a heap of those that are at a row, the next row first.
type buckets struct {
	buckets  []*bucket
	reversed bool
}

func (h *buckets) Len() int { return len(h.buckets) }

func (h *buckets) Less(i, j int) bool {
	a, b := h.buckets[i], h.buckets[j]
	if c := bytes.Compare(a.row.Key, b.row.Key); c != 0 {
		return (c < 0) != h.reversed
	}
	return a.number < b.number
}

func (h *buckets) Swap(i, j int) { h.buckets[i], h.buckets[j] = h.buckets[j], h.buckets[i] }

// Push adds a *bucket.
func (h *buckets) Push(x any) { h.buckets = append(h.buckets, x.(*bucket)) }

// Pop removes the last.
func (h *buckets) Pop() any {
	n := len(h.buckets) - 1
	b := h.buckets[n]
	h.buckets = h.buckets[:n]
	return b
}
