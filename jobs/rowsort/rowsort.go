// Package rowsort sorts rows of columns by keys of bytes, in bounded memory.
//
// A Sorter has Collectors, one a goroutine, which hold rows until their share of the
// memory is full, sort them by their keys, and write them as a run to a file of a
// spill.Disk. Sorted then merges the runs, in several passes where they do not all fit
// memory; where nothing was written, it merges what is in memory. (An external merge
// sort: Knuth, The Art of Computer Programming, vol. 3, 5.4.)
//
// A key is any bytes that compare as the rows are to be sorted: columnar.Order makes
// them. No two rows have one key, or their order is not determined. Keys and rows are
// copied when they are added.
//
// What is counted is what rows, their keys and the list of them take; a row that is
// larger than all of the memory is held alone. Runs have each row as spill.AppendRow
// writes it, behind its key without the bytes that it has in common with the one
// before.
package rowsort

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice/internal/turns"
	"sluice/jobs/columnar"
	"sluice/jobs/spill"
)

// ErrMemory: the rows do not fit Options.MemoryBytes, and there is no disk.
var ErrMemory = errors.New("rowsort: out of memory")

// DefaultMemoryBytes bounds the memory of a sort unless Options say otherwise.
const DefaultMemoryBytes = 256 << 20

// Bounds of what is read and written of a run at a time. A read of 256 KiB costs what
// its bytes cost, on any disk; below 512 bytes, which only tiny memory asks for, there
// would be more list than data.
const (
	minBlockBytes = 512
	maxBlockBytes = 256 << 10
)

// maxRuns bounds how many runs are merged at once: beyond it a row costs more
// comparisons than a second pass over the disk.
const maxRuns = 512

// entryBytes is what the list of rows takes of each.
const entryBytes = 40

// Options configures a Sorter. Disk must be set.
type Options struct {
	// Columns of the rows.
	Columns []columnar.Column
	// MemoryBytes bounds what all Collectors hold together, and afterwards what is
	// read of the runs. Default: DefaultMemoryBytes.
	MemoryBytes int64
	// Collectors is how many there are. Default: 1.
	Collectors int
	// Disk is where the runs are; with an empty Dir, rows that do not fit memory
	// are an error.
	Disk *spill.Disk
}

// Sorter sorts rows. It must be closed.
type Sorter struct {
	options    Options
	block      int // bytes
	collectors []*Collector
	files      []*spill.File // of merged runs
}

// New returns a Sorter of no rows.
func New(o *Options) *Sorter {
	s := &Sorter{options: *o}
	if s.options.MemoryBytes <= 0 {
		s.options.MemoryBytes = DefaultMemoryBytes
	}
	s.block = int(min(max(s.options.MemoryBytes/64, minBlockBytes), maxBlockBytes))
	n := max(1, o.Collectors)
	for range n {
		s.collectors = append(s.collectors, &Collector{sorter: s, limit: s.options.MemoryBytes / int64(n)})
	}
	return s
}

// Collector returns the i-th collector.
func (s *Sorter) Collector(i int) *Collector { return s.collectors[i] }

// Close removes what is on disk and lets go of the memory.
func (s *Sorter) Close() error {
	var errs []error
	for _, c := range s.collectors {
		if c.file != nil {
			errs = append(errs, c.file.Close())
		}
		*c = Collector{sorter: s, limit: c.limit}
	}
	for _, f := range s.files {
		errs = append(errs, f.Close())
	}
	s.files = nil
	return errors.Join(errs...)
}

// Collector gathers rows. It belongs to one goroutine at a time.
type Collector struct {
	sorter  *Sorter
	limit   int64
	held    int64 // bytes of chunks and entries
	chunks  [][]byte
	next    int // the chunk after the one that is filled
	free    []byte
	entries []entry
	file    *spill.File // of the runs; nil = there are none
	runs    []run
	scratch []byte
}

// entry is a row that is held.
type entry struct {
	prefix uint64 // the first bytes of the key, which most comparisons need alone
	data   []byte // the key, then the row
	key    int    // bytes of the key
}

func prefixOf(key []byte) uint64 {
	var b [8]byte
	copy(b[:], key)
	return binary.BigEndian.Uint64(b[:])
}

// Add adds a row of b, which has the Sorter's columns. Its error wraps ErrMemory, or
// spill.ErrFull where the disk has no room.
func (c *Collector) Add(key []byte, b *columnar.Batch, row int) error {
	c.scratch = spill.AppendRow(append(c.scratch[:0], key...), b, row)
	n := len(c.scratch)
	if c.held+c.growth(n) > c.limit && len(c.entries) > 0 {
		if err := c.spill(); err != nil {
			return err
		}
	}
	data := c.room(n)
	copy(data, c.scratch)
	if len(c.entries) == cap(c.entries) {
		grown := make([]entry, len(c.entries), nextCap(cap(c.entries)))
		copy(grown, c.entries)
		c.held += entryBytes * int64(cap(grown)-cap(c.entries))
		c.entries = grown
	}
	c.entries = append(c.entries, entry{prefixOf(key), data, len(key)})
	return nil
}

// nextCap is how long the list becomes when it is full.
func nextCap(n int) int { return max(32, n+n/2) }

// chunkBytes is how much memory is taken at a time.
func (c *Collector) chunkBytes() int { return int(min(max(c.limit/16, 256), 1<<20)) }

// growth is how many bytes more are held after a row of n bytes was added, the list
// that a longer one replaces included while both are there.
func (c *Collector) growth(n int) (more int64) {
	if n > len(c.free) && (n > c.chunkBytes()/4 || c.next == len(c.chunks)) {
		more = int64(max(n, c.chunkBytes()))
		if n > c.chunkBytes()/4 {
			more = int64(n)
		}
	}
	if len(c.entries) == cap(c.entries) {
		more += entryBytes * int64(nextCap(cap(c.entries)))
	}
	return more
}

// room returns n bytes of a chunk, or of their own where they are many.
func (c *Collector) room(n int) []byte {
	if n > len(c.free) {
		if n > c.chunkBytes()/4 {
			c.held += int64(n)
			return make([]byte, n)
		}
		if c.next == len(c.chunks) {
			c.chunks = append(c.chunks, make([]byte, c.chunkBytes()))
			c.held += int64(c.chunkBytes())
		}
		c.free = c.chunks[c.next]
		c.next++
	}
	data := c.free[:n:n]
	c.free = c.free[n:]
	return data
}

// reset forgets the rows and keeps the chunks.
func (c *Collector) reset() {
	clear(c.entries)
	c.entries, c.next, c.free = c.entries[:0], 0, nil
	c.held = int64(len(c.chunks))*int64(c.chunkBytes()) + entryBytes*int64(cap(c.entries))
}

// turnSteps is how many comparisons, or rows that are written, come before a look
// whether others have a turn: they take a tenth of a millisecond.
const turnSteps = 1 << 10

// sort sorts what is held.
func (c *Collector) sort() {
	steps := 0
	var turn turns.Turn
	slices.SortFunc(c.entries, func(a, b entry) int {
		if steps++; steps%turnSteps == 0 {
			turn.Give()
		}
		if d := cmp.Compare(a.prefix, b.prefix); d != 0 {
			return d
		}
		return bytes.Compare(a.data[:a.key], b.data[:b.key])
	})
}

// spill writes what is held as a run.
func (c *Collector) spill() error {
	d := c.sorter.options.Disk
	if d.Dir == "" {
		return fmt.Errorf("%w: the rows to be sorted take more than memory_bytes, %d; set spill_dir", ErrMemory, c.sorter.options.MemoryBytes)
	}
	if c.file == nil {
		var err error
		if c.file, err = d.Create(); err != nil {
			return err
		}
	}
	c.sort()
	w := &runWriter{run: run{file: c.file}, block: c.sorter.block}
	var turn turns.Turn
	for i := range c.entries {
		if i%turnSteps == turnSteps-1 {
			turn.Give()
		}
		e := &c.entries[i]
		if err := w.add(e.data[:e.key], e.data[e.key:]); err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	c.runs = append(c.runs, w.run)
	c.reset()
	return nil
}

// Sorted returns the rows in the order of their keys, when all were added; they are
// gone when it is done, and the Sorter is good for Close alone. Its error is that of
// ctx, or of Add.
func (s *Sorter) Sorted(ctx context.Context) (*Rows, error) {
	if !slices.ContainsFunc(s.collectors, func(c *Collector) bool { return c.file != nil }) {
		rows := &Rows{}
		for _, c := range s.collectors {
			c.sort()
			rows.add(&heldSource{entries: c.entries})
		}
		return rows, rows.begin()
	}
	// Memory is wanted for reading now, also where a collector's rows would fit.
	var runs []run
	for _, c := range s.collectors {
		if len(c.entries) > 0 {
			if err := c.spill(); err != nil {
				return nil, err
			}
		}
		runs = append(runs, c.runs...)
		c.chunks, c.entries, c.free, c.held = nil, nil, nil, 0
	}
	for s.fit(runs) < len(runs) {
		var err error
		if runs, err = s.pass(ctx, runs); err != nil {
			return nil, err
		}
	}
	return merge(runs)
}

// fit returns how many of the first runs can be merged at once, at least two.
func (s *Sorter) fit(runs []run) int {
	memory := int64(0)
	for i := range runs {
		memory += int64(runs[i].largest)
		if i >= 2 && (memory > s.options.MemoryBytes || i == maxRuns) {
			return i
		}
	}
	return len(runs)
}

// pass merges runs into fewer ones, and lets go of the files that have none left. It
// ends as soon as what is left can be merged at once.
func (s *Sorter) pass(ctx context.Context, runs []run) (merged []run, err error) {
	out, err := s.options.Disk.Create()
	if err != nil {
		return nil, err
	}
	s.files = append(s.files, out)
	for len(runs) > 0 {
		n := s.fit(runs)
		if all := append(slices.Clone(merged), runs...); n == 1 || s.fit(all) == len(all) {
			merged = all
			break
		}
		rows, err := merge(runs[:n])
		if err != nil {
			return nil, err
		}
		w := &runWriter{run: run{file: out}, block: s.block}
		for done := 0; ; done++ {
			if done%1024 == 0 && ctx.Err() != nil {
				return nil, fmt.Errorf("merge sorted rows: %w", context.Cause(ctx))
			}
			ok, err := rows.Next()
			if err != nil {
				return nil, err
			}
			if !ok {
				break
			}
			if err := w.add(rows.Key(), rows.row()); err != nil {
				return nil, err
			}
		}
		if err := w.flush(); err != nil {
			return nil, err
		}
		merged, runs = append(merged, w.run), runs[n:]
	}
	return merged, s.closeUnused(merged)
}

// closeUnused closes the files in which there is no run any more.
func (s *Sorter) closeUnused(runs []run) error {
	used := func(f *spill.File) bool { return slices.ContainsFunc(runs, func(r run) bool { return r.file == f }) }
	var errs []error
	s.files = slices.DeleteFunc(s.files, func(f *spill.File) bool {
		if used(f) {
			return false
		}
		errs = append(errs, f.Close())
		return true
	})
	for _, c := range s.collectors {
		if c.file != nil && !used(c.file) {
			errs = append(errs, c.file.Close())
			c.file, c.runs = nil, nil
		}
	}
	return errors.Join(errs...)
}
