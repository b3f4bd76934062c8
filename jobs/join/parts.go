package join

import (
	"io"

	"sluice/jobs/columnar"
	"sluice/jobs/spill"
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

// parts is the rows of a side, with their keys, in parts by a hash of the key.
type parts struct {
	file    *spill.File
	columns []columnar.Column
	level   int
	limit   int // of a buffer
	buffers [fanOut][]byte
	extents [fanOut][]spill.Extent
	rows    [fanOut]int64
}

func newParts(f *spill.File, columns []columnar.Column, level int, memory int64) *parts {
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
	p.buffers[i] = spill.AppendSized(p.buffers[i], key)
	if len(p.columns) > 0 {
		p.buffers[i] = spill.AppendRow(p.buffers[i], r.batch, r.row)
	}
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
	e, err := p.file.Append(p.buffers[i])
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

// size is how many bytes a part has.
func (p *parts) size(i int) (bytes int64) {
	for _, e := range p.extents[i] {
		bytes += int64(e.Bytes)
	}
	return bytes
}

// input reads a part.
func (p *parts) input(i int) *partInput {
	return &partInput{parts: p, extents: p.extents[i], batch: columnar.NewBatch(p.columns)}
}

// partInput is the rows of a part, with their keys: an extent is a batch.
type partInput struct {
	parts   *parts
	extents []spill.Extent // to read
	buffer  []byte         // of the current one
	batch   *columnar.Batch
	keys    [][]byte // of the batch's rows
}

// Columns returns the side's columns; none where keys are all that is wanted of it.
func (p *partInput) Columns() []columnar.Column { return p.parts.columns }

// Next reads the next extent.
func (p *partInput) Next() (*columnar.Batch, error) {
	if len(p.extents) == 0 {
		return nil, io.EOF
	}
	p.batch.Reset()
	p.keys = p.keys[:0]
	var err error
	if p.buffer, err = p.parts.file.Read(p.buffer, p.extents[0]); err != nil {
		return nil, err
	}
	p.extents = p.extents[1:]
	for rest := p.buffer; len(rest) > 0; {
		key, row, ok := spill.TakeSized(rest)
		if !ok {
			return nil, spill.Damaged("key")
		}
		if rest, err = spill.TakeRow(row, p.batch); err != nil {
			return nil, err
		}
		p.keys = append(p.keys, key)
	}
	return p.batch, nil
}
