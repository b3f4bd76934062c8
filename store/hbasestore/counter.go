package hbasestore

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"sluice/cell"
	"sluice/store"
)

// A column of a COUNTER family is several cells of HBase's, one for each source of
// increments and its partition, that a read adds up. docs/format/hbase.md has their
// layout.

// apiSource is the source of what is incremented through the API, which HBase adds
// up itself: one cell a column, of partition 0.
const apiSource uint32 = 0

// takenPartition is the partition of apiSource that says how much of partition 0 counts no
// more (types switcher and remover): a count, mostly below zero, to be added to that of partition 0,
// with the timestamp at which that was read as its time. HBase adds to partition 0
// meanwhile, and nothing of it is ever deleted. Without partition 0 it is nothing. Of a
// distinct count it has no value.
const takenPartition int32 = 2

// counterSuffix is what a cell's qualifier has behind the column: source and
// partition, 4 bytes big-endian each.
const counterSuffix = 4 + 4

// counterValue is how many bytes the cell of a source has: the count and the newest
// event time, 8 bytes big-endian each. That of apiSource has the count alone.
const counterValue = 8 + 8

// appendCounter appends the qualifier of the cell that one partition of a source has
// of a column. The cells of a column stand together, and columns in their order.
func appendCounter(dst, column []byte, source uint32, partition int32) []byte {
	dst = binary.BigEndian.AppendUint32(cell.AppendPart(dst, column), source)
	return binary.BigEndian.AppendUint32(dst, uint32(partition))
}

// decodeCounter is the reverse of appendCounter. column may point into scratch. The
// error wraps store.ErrCorrupt.
func decodeCounter(qualifier, scratch []byte) (column []byte, source uint32, partition int32, newScratch []byte, err error) {
	column, rest, scratch, err := cell.DecodePart(qualifier, scratch)
	if err == nil && len(rest) != counterSuffix {
		err = fmt.Errorf("%d bytes after the column, want %d", len(rest), counterSuffix)
	}
	if err != nil {
		return nil, 0, 0, scratch, fmt.Errorf("%w: %.100q is not the qualifier of a COUNTER family's cell: %w", store.ErrCorrupt, qualifier, err)
	}
	return column, binary.BigEndian.Uint32(rest), int32(binary.BigEndian.Uint32(rest[4:])), scratch, nil
}

// count is what the cell of one source and partition says.
type count struct {
	n    int64
	time cell.Timestamp // newest event time
}

func appendCount(dst []byte, c count) []byte {
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(dst, uint64(c.n)), uint64(c.time))
}

// decodeCount reads a cell's value; at is the cell's timestamp, which is the time of
// an increment through the API. The error wraps store.ErrCorrupt.
func decodeCount(value []byte, at cell.Timestamp) (count, error) {
	switch len(value) {
	case 0: // retired
		return count{}, nil
	case 8:
		return count{int64(binary.BigEndian.Uint64(value)), at}, nil
	case counterValue:
		c := count{int64(binary.BigEndian.Uint64(value)), cell.Timestamp(binary.BigEndian.Uint64(value[8:]))}
		if c.time < 0 {
			return c, fmt.Errorf("%w: a counter's time is %d", store.ErrCorrupt, c.time)
		}
		return c, nil
	}
	return count{}, fmt.Errorf("%w: a counter's cell has %d bytes, want 8 or %d", store.ErrCorrupt, len(value), counterValue)
}

// adder adds up the cells of COUNTER families, and merges those of DISTINCT ones.
type adder struct {
	family   string
	column   []byte
	distinct bool
	sum      count
	merged   merger
	begun    bool
	some     bool   // a cell of the column was not retired
	api      *count // of partition 0 of apiSource
	taken    *count // of takenPartition
	scratch  []byte
}

// add takes the next cell of a row, in order; distinct says that the family is a
// DISTINCT one. It returns the column before, where the cell is of another.
func (a *adder) add(family string, distinct bool, v *cell.Cell) (before cell.Cell, ok bool, err error) {
	column, source, partition, scratch, err := decodeCounter(v.Qualifier, a.scratch[:0])
	if a.scratch = scratch; err != nil {
		return before, false, err
	}
	if !a.begun || a.family != family || !bytes.Equal(a.column, column) {
		before, ok = a.end()
		*a = adder{family: family, column: bytes.Clone(column), distinct: distinct, begun: true, scratch: a.scratch}
	}
	if err := a.take(source, partition, v); err != nil {
		return before, ok, fmt.Errorf("column %s:%.100q: %w", family, column, err)
	}
	return before, ok, nil
}

// take adds a cell to its column.
func (a *adder) take(source uint32, partition int32, v *cell.Cell) error {
	if len(v.Value) == 0 {
		return nil
	}
	if a.distinct {
		a.some = true
		return a.merged.add(v.Value)
	}
	c, err := decodeCount(v.Value, v.Time)
	switch {
	case err != nil:
		return err
	case source == apiSource && partition == 0:
		a.api = &c
	case source == apiSource && partition == takenPartition:
		a.taken = &c
	default:
		a.count(c)
	}
	return nil
}

func (a *adder) count(c count) {
	a.some = true
	a.sum.n += c.n
	a.sum.time = max(a.sum.time, c.time)
}

// left returns what counts of an API's count, nil = nothing: neither is there, or nothing
// was added since all was taken.
func left(api, taken *count) *count {
	switch {
	case api == nil || taken == nil:
		return api
	case api.n+taken.n == 0 && api.time == taken.time:
		return nil
	}
	return &count{api.n + taken.n, api.time}
}

// end returns the last column of a row, if there is one that has more than retired
// cells.
func (a *adder) end() (last cell.Cell, ok bool) {
	if c := left(a.api, a.taken); c != nil {
		a.count(*c)
	}
	a.api, a.taken = nil, nil
	ok = a.begun && a.some
	if a.begun = false; !ok {
		return last, false
	}
	if a.distinct {
		return cell.Cell{Family: a.family, Qualifier: a.column, Time: a.merged.time, Kind: cell.KindPut, Value: a.merged.value()}, true
	}
	return cell.Cell{
		Family: a.family, Qualifier: a.column, Time: a.sum.time, Kind: cell.KindPut,
		Value: binary.BigEndian.AppendUint64(nil, uint64(a.sum.n)),
	}, true
}
