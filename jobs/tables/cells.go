// Package tables is the jobs over whole tables that write no files: Count counts rows and
// cells, Compare says where two tables differ, Copy copies one, and CopyStore all tables
// of a store with the offsets, dead letters and schedules that belong to them, so that
// its pipelines go on elsewhere. They read one instant (package instant), a region at a
// time, side by side. What they remember of a copy that was cut off is in the system table of
// jobs of the store that is copied into.
package tables

import (
	"encoding/binary"

	"sluice/cell"
)

// partBytes bounds what a scan of a job that looks at each cell alone has of a row in
// memory, of keys and values; a cell that is larger comes alone. A small cell takes ten
// times what it holds, so that a part of many takes some 10 MB, and a part of so many bytes
// costs nothing that is seen beside reading it.
const partBytes = 1 << 20

// reportRows is after how many rows of a region progress is told.
const reportRows = 1000

// appendCell appends what a cell is, so that two cells are equal where their bytes
// are: family and qualifier escaped and terminated, time, kind, time to live and
// length of the value (8 bytes big-endian, 1, 8 and 8), value.
func appendCell(dst []byte, c *cell.Cell) []byte {
	dst = cell.AppendPart(dst, []byte(c.Family))
	dst = cell.AppendPart(dst, c.Qualifier)
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.Time))
	dst = append(dst, byte(c.Kind))
	dst = binary.BigEndian.AppendUint64(dst, uint64(c.TTL))
	dst = binary.BigEndian.AppendUint64(dst, uint64(len(c.Value)))
	return append(dst, c.Value...)
}
