package jobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/store"
)

// expiredRows are the rows of a scan with cells or delete markers whose time to live
// has ended since the run before began to read: what that has seen of them may be
// seen no longer. The zero value has none.
type expiredRows struct {
	ctx       context.Context
	run       *run
	sc        store.Scanner // raw; nil = at its end
	families  map[string]*store.FamilyDescriptor
	then, now cell.Timestamp
	key       []byte // of the row that is next; nil = none is left
	last      []byte // the row that was looked at last; a wide one comes in pieces
	found     bool   // it is among the rows
	looked    int64  // rows
}

// expiredRows begins to look through the rows of s. Cells that expire from now on are
// of the next run, which looks from this run's beginning on.
func (r *run) expiredRows(ctx context.Context, s *store.Scan) (*expiredRows, error) {
	x := &expiredRows{
		ctx: ctx, run: r, then: cell.Timestamp(r.baseTime.UnixMilli()), now: cell.Timestamp(r.Now().UnixMilli()),
		families: map[string]*store.FamilyDescriptor{},
	}
	for i := range r.table.Families {
		x.families[r.table.Families[i].Name] = &r.table.Families[i]
	}
	x.sc = r.Source.Scan(ctx, &store.Scan{
		Table: s.Table, Start: s.Start, Stop: s.Stop, Columns: s.Columns, Raw: true, Versions: store.AllVersions,
		Batch: cellsPerRow, MaxResultBytes: columnar.DefaultBatchBytes,
	})
	return x, x.next()
}

// next finds the next row.
func (x *expiredRows) next() error {
	x.key = nil
	for x.sc.Next() {
		row := x.sc.Row()
		if x.looked == 0 || !bytes.Equal(x.last, row.Key) {
			x.last, x.found = append(x.last[:0], row.Key...), false
			x.looked++
			if err := x.run.pace.wait(x.ctx, 1); err != nil {
				return err
			}
			if x.looked%yieldRows == 0 {
				if err := x.run.yielder.wait(x.ctx); err != nil {
					return err
				}
			}
		}
		if !x.found && slices.ContainsFunc(row.Cells, x.over) {
			x.key, x.found = x.last, true
			return nil
		}
	}
	if err := x.sc.Err(); err != nil {
		return fmt.Errorf("look for expired cells: %w", err)
	}
	return nil
}

// over reports whether the time to live of c has ended since.
func (x *expiredRows) over(c cell.Cell) bool {
	f := x.families[c.Family]
	ended := func(at cell.Timestamp) bool {
		return f != nil && f.Expired(c.Time, at) || c.Kind == cell.KindPut && store.CellExpired(c.Time, c.TTL, at)
	}
	return ended(x.now) && !ended(x.then)
}

// before calls take with the rows before key, or, where that is nil, with all that are
// left, and passes over key itself.
func (x *expiredRows) before(key []byte, take func(key []byte) error) error {
	for x.key != nil {
		c := -1
		if key != nil {
			c = bytes.Compare(x.key, key)
		}
		if c > 0 {
			return nil
		}
		if c < 0 {
			if err := take(x.key); err != nil {
				return err
			}
		}
		if err := x.next(); err != nil {
			return err
		}
	}
	return nil
}

// close ends the scan.
func (x *expiredRows) close() error {
	x.run.mu.Lock()
	x.run.looked += x.looked
	x.run.mu.Unlock()
	return x.sc.Close()
}
