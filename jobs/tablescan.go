package jobs

import (
	"encoding/binary"
	"fmt"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// partBytes bounds what a scan of a job that looks at each cell alone has of a row in
// memory: a few cells of the largest default size.
const partBytes = 32 << 20

// reportRows is after how many rows of a region progress is told.
const reportRows = 1000

// splitsOf returns the parts of m that overlap rows, in key order.
func splitsOf(m *region.Map, rows cell.Range) []split {
	var ss []split
	for i := range m.Len() {
		r := m.At(i)
		part := cell.Range{Start: r.Start, Stop: r.Stop}
		if string(rows.Start) > string(part.Start) {
			part.Start = rows.Start
		}
		if len(rows.Stop) > 0 && (len(part.Stop) == 0 || string(rows.Stop) < string(part.Stop)) {
			part.Stop = rows.Stop
		}
		if len(part.Stop) > 0 && string(part.Start) >= string(part.Stop) {
			continue
		}
		ss = append(ss, split{index: i, region: *r, rows: part})
	}
	return ss
}

// wholeFamilies selects families for a scan; none select all.
func wholeFamilies(families []string) []store.Column {
	var all []store.Column
	for _, f := range families {
		all = append(all, store.Column{Family: f, All: true})
	}
	return all
}

// checkFamilies says which of families a table does not have.
func checkFamilies(t *store.TableDescriptor, families []string) error {
	for _, f := range families {
		if t.Family(f) == nil {
			return fmt.Errorf("%w: %s in table %s", store.ErrFamilyNotFound, f, t.Name)
		}
	}
	return nil
}

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
