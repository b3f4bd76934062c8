package join

import (
	"errors"
	"fmt"
	"hash/crc32"
	"os"

	"sluice/jobs/columnar"
)

// fanOut is into how many parts the sides are parted at a time: two levels take a
// side of 1,024 times the memory, and their buffers are small beside it.
const fanOut = 32

// Bounds of a part's buffer: a write of 256 KiB costs what its bytes cost, on any
// disk; below 512 bytes, which only a tiny memory_bytes asks for, there would be more
// list than data.
const (
	minBufferBytes = 512
	maxBufferBytes = 256 << 10
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// disk is where a join writes, and how much.
type disk struct {
	dir   string // empty = nowhere
	limit int64
	used  int64
}

// spillFile is a file that has no name any more where the system lets it: nothing is
// left of it, however the process ends.
type spillFile struct {
	disk *disk
	f    *os.File
	name string // to be removed; empty = it has none
	size int64
}

func (d *disk) create() (*spillFile, error) {
	f, err := os.CreateTemp(d.dir, ".sluice-join-*")
	if err != nil {
		return nil, fmt.Errorf("join: make a file for what does not fit memory: %w", err)
	}
	s := &spillFile{disk: d, f: f}
	if os.Remove(f.Name()) != nil {
		s.name = f.Name() // some systems remove no open file
	}
	return s, nil
}

// close gives the space back.
func (s *spillFile) close() error {
	s.disk.used -= s.size
	err := s.f.Close()
	if s.name != "" {
		err = errors.Join(err, os.Remove(s.name))
	}
	return err
}

// extent is a piece of a spillFile.
type extent struct {
	offset int64
	bytes  int
	crc    uint32 // Castagnoli
}

// append writes b at the end.
func (s *spillFile) append(b []byte) (extent, error) {
	if s.disk.used+int64(len(b)) > s.disk.limit {
		return extent{}, fmt.Errorf("%w: what does not fit memory_bytes takes more than spill_bytes, %d", ErrDisk, s.disk.limit)
	}
	e := extent{offset: s.size, bytes: len(b), crc: crc32.Checksum(b, castagnoli)}
	if _, err := s.f.WriteAt(b, s.size); err != nil {
		return extent{}, fmt.Errorf("join: write what does not fit memory: %w", err)
	}
	s.size += int64(len(b))
	s.disk.used += int64(len(b))
	return e, nil
}

// read returns a piece, in dst where it is large enough.
func (s *spillFile) read(dst []byte, e extent) ([]byte, error) {
	if cap(dst) < e.bytes {
		dst = make([]byte, e.bytes)
	}
	dst = dst[:e.bytes]
	if _, err := s.f.ReadAt(dst, e.offset); err != nil {
		return nil, fmt.Errorf("join: read what did not fit memory: %w", err)
	}
	if crc32.Checksum(dst, castagnoli) != e.crc {
		return nil, fmt.Errorf("%w: %d bytes at %d have another checksum than when they were written", ErrSpill, e.bytes, e.offset)
	}
	return dst, nil
}

// parts is the rows of a side, with their keys, in parts by a hash of the key.
type parts struct {
	file    *spillFile
	columns []columnar.Column
	level   int
	limit   int // of a buffer
	buffers [fanOut][]byte
	extents [fanOut][]extent
	rows    [fanOut]int64
}

func newParts(f *spillFile, columns []columnar.Column, level int, memory int64) *parts {
	limit := min(max(memory/4/fanOut, minBufferBytes), maxBufferBytes)
	return &parts{file: f, columns: columns, level: level, limit: int(limit)}
}

// of returns the part of a key: FNV-1a, begun otherwise at each level, and its bits
// mixed as MurmurHash3 does, since the first ones say little.
func (p *parts) of(key []byte) int {
	h := uint64(14695981039346656037) + uint64(p.level)*0x9E3779B97F4A7C15
	for _, b := range key {
		h = (h ^ uint64(b)) * 1099511628211
	}
	h = (h ^ h>>33) * 0xFF51AFD7ED558CCD
	h = (h ^ h>>33) * 0xC4CEB9FE1A85EC53
	return int((h ^ h>>33) % fanOut)
}

// add writes a row; without columns, its key alone.
func (p *parts) add(key []byte, r ref) error {
	i := p.of(key)
	p.buffers[i] = appendSpilled(p.buffers[i], key, p.columns, r)
	p.rows[i]++
	if len(p.buffers[i]) >= p.limit {
		return p.flush(i)
	}
	return nil
}

func (p *parts) flush(i int) error {
	if len(p.buffers[i]) == 0 {
		return nil
	}
	e, err := p.file.append(p.buffers[i])
	if err != nil {
		return err
	}
	p.extents[i] = append(p.extents[i], e)
	p.buffers[i] = p.buffers[i][:0]
	return nil
}

// flushAll writes what is buffered and frees the buffers.
func (p *parts) flushAll() error {
	for i := range fanOut {
		if err := p.flush(i); err != nil {
			return err
		}
		p.buffers[i] = nil
	}
	return nil
}

// input reads a part.
func (p *parts) input(i int) *partInput {
	return &partInput{parts: p, extents: p.extents[i], batch: columnar.NewBatch(p.columns)}
}
