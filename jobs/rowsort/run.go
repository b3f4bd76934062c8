package rowsort

import (
	"encoding/binary"

	"sluice/jobs/spill"
)

// run is sorted rows in blocks of a file. In a block, each row is how many bytes of
// its key are those of the key before, the rest of the key, and the row, the first as
// an uvarint, the others with their length before them as one.
type run struct {
	file    *spill.File
	blocks  []spill.Extent
	largest int // block, in bytes
}

// runWriter writes a run.
type runWriter struct {
	run
	block  int // bytes at which a block ends
	buffer []byte
	last   []byte // key
}

func (w *runWriter) add(key, row []byte) error {
	shared := 0
	if len(w.buffer) > 0 {
		for shared < len(key) && shared < len(w.last) && key[shared] == w.last[shared] {
			shared++
		}
	}
	w.buffer = binary.AppendUvarint(w.buffer, uint64(shared))
	w.buffer = spill.AppendSized(w.buffer, key[shared:])
	w.buffer = spill.AppendSized(w.buffer, row)
	w.last = append(w.last[:0], key...)
	if len(w.buffer) >= w.block {
		return w.flush()
	}
	return nil
}

// flush ends a block.
func (w *runWriter) flush() error {
	if len(w.buffer) == 0 {
		return nil
	}
	e, err := w.file.Append(w.buffer)
	if err != nil {
		return err
	}
	w.blocks = append(w.blocks, e)
	w.largest = max(w.largest, e.Bytes)
	w.buffer = w.buffer[:0]
	return nil
}

// runSource reads a run.
type runSource struct {
	run
	buffer  []byte // of the current block
	rest    []byte // of buffer
	current []byte // key
	value   []byte // row, a part of buffer
}

func (s *runSource) next() (bool, error) {
	if len(s.rest) == 0 {
		if len(s.blocks) == 0 {
			return false, nil
		}
		var err error
		if s.buffer, err = s.file.Read(s.buffer, s.blocks[0]); err != nil {
			return false, err
		}
		s.blocks, s.rest, s.current = s.blocks[1:], s.buffer, s.current[:0]
	}
	shared, n := binary.Uvarint(s.rest)
	if n <= 0 || shared > uint64(len(s.current)) {
		return false, spill.Damaged("key")
	}
	suffix, rest, ok := spill.TakeSized(s.rest[n:])
	if !ok {
		return false, spill.Damaged("key")
	}
	if s.value, s.rest, ok = spill.TakeSized(rest); !ok {
		return false, spill.Damaged("values")
	}
	s.current = append(s.current[:shared], suffix...)
	return true, nil
}

func (s *runSource) key() []byte { return s.current }
func (s *runSource) row() []byte { return s.value }

// heldSource is the rows that a collector holds.
type heldSource struct {
	entries []entry // the first one is the current
	begun   bool
}

func (s *heldSource) next() (bool, error) {
	if s.begun {
		s.entries = s.entries[1:]
	}
	s.begun = true
	return len(s.entries) > 0, nil
}

func (s *heldSource) key() []byte { return s.entries[0].data[:s.entries[0].key] }
func (s *heldSource) row() []byte { return s.entries[0].data[s.entries[0].key:] }
