// Package spill holds on disk, for a while, what does not fit memory: pieces of bytes
// in files without a name, and rows of columns as such bytes.
//
// A Disk is a directory and how much may be there; it makes Files, to which pieces
// are appended and of which they are read back, checked, in any order. A File has no
// name where the system lets it, so that nothing is left of it however the process
// ends; nothing is synced, as nothing of it outlives the process. A Disk is safe for
// concurrent use; a File belongs to one goroutine at a time.
//
// The package does not decide what is written or when: that is for package join,
// which parts what it hashes, and package rowsort.
package spill

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"
	"sync/atomic"
)

var (
	// ErrFull: what does not fit memory does not fit Disk.Limit.
	ErrFull = errors.New("spill: out of disk")
	// ErrDamaged: what was written was read otherwise.
	ErrDamaged = errors.New("spill: spilled rows are damaged")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Disk is where Files are, and how much. Its fields must not be changed once a File
// was made.
type Disk struct {
	// Dir is a directory; with an empty one, Create fails.
	Dir string
	// Limit is the most bytes that all Files have together.
	Limit int64

	used atomic.Int64
}

// Used returns the bytes that all Files have together.
func (d *Disk) Used() int64 { return d.used.Load() }

// File is a file of a Disk, and must be closed.
type File struct {
	disk *Disk
	f    *os.File
	name string // to be removed; empty = it has none
	size int64
}

// Create makes an empty file.
func (d *Disk) Create() (*File, error) {
	if d.Dir == "" {
		return nil, errors.New("spill: there is no directory")
	}
	f, err := os.CreateTemp(d.Dir, ".sluice-spill-*")
	if err != nil {
		return nil, fmt.Errorf("make a file for what does not fit memory: %w", err)
	}
	s := &File{disk: d, f: f}
	if os.Remove(f.Name()) != nil {
		s.name = f.Name() // some systems remove no open file
	}
	return s, nil
}

// Check returns the error that Create would, of a Dir that is not there or may not be
// written, before there is anything to spill.
func (d *Disk) Check() error {
	f, err := d.Create()
	if err != nil {
		return err
	}
	return f.Close()
}

// Close gives the space back.
func (s *File) Close() error {
	s.disk.used.Add(-s.size)
	s.size = 0
	err := s.f.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// Extent is a piece of a File.
type Extent struct {
	Offset int64
	Bytes  int
	crc    uint32 // Castagnoli
}

// Append writes b at the end. Its error wraps ErrFull where the Disk has no room.
func (s *File) Append(b []byte) (Extent, error) {
	n := int64(len(b))
	if s.disk.used.Add(n) > s.disk.Limit {
		s.disk.used.Add(-n)
		return Extent{}, fmt.Errorf("%w: what does not fit memory_bytes takes more than spill_bytes, %d", ErrFull, s.disk.Limit)
	}
	e := Extent{Offset: s.size, Bytes: len(b), crc: crc32.Checksum(b, castagnoli)}
	s.size += n // counted, whatever of it is there
	if _, err := s.f.WriteAt(b, e.Offset); err != nil {
		return Extent{}, fmt.Errorf("write what does not fit memory: %w", err)
	}
	return e, nil
}

// Read returns a piece, in dst where it is large enough. Its error wraps ErrDamaged
// where the piece is not what was written.
func (s *File) Read(dst []byte, e Extent) ([]byte, error) {
	if cap(dst) < e.Bytes {
		dst = make([]byte, e.Bytes)
	}
	dst = dst[:e.Bytes]
	if _, err := s.f.ReadAt(dst, e.Offset); err != nil {
		return nil, fmt.Errorf("read what did not fit memory: %w", err)
	}
	if crc32.Checksum(dst, castagnoli) != e.crc {
		return nil, fmt.Errorf("%w: %d bytes at %d have another checksum than when they were written", ErrDamaged, e.Bytes, e.Offset)
	}
	return dst, nil
}
