// Package instant is what jobs read: the tables of a store at one instant (Source), or,
// of an engine that cannot freeze one (HBase), row by row below a bound of timestamps
// (Unfrozen); and a table's regions, which are the parts of a job (Split). It writes
// nothing and knows no job.
package instant

import (
	"context"
	"errors"
	"fmt"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
)

// Source is every table at one instant: a store.Snapshot, or an engine that
// nobody writes to. A Source that can be lost while it is read (a checkpoint with
// a lease) also has a method Err() error, which is asked before the run is
// published: after an error nothing is.
type Source interface {
	store.Reader
	// Table returns the schema of a table.
	Table(ctx context.Context, name string) (*store.TableDescriptor, error)
	// Sequence is the sequence of the last commit that the instant contains.
	Sequence() uint64
}

var _ Source = store.Snapshot(nil)

// Sizer is a Source that knows about how many bytes a range of rows takes where it
// lies: by which jobs tell how far they are, and plans extrapolate.
type Sizer interface {
	// RangeBytes returns the bytes of the cells of rows, those of the named
	// families or, without names, of all. What is in memory only may be
	// missing. Its error wraps store.ErrUnsupported where it is not known.
	RangeBytes(ctx context.Context, table string, families []string, rows cell.Range) (int64, error)
}

// Cutter is a Source that can divide a range of rows by size, where Sizer tells it.
type Cutter interface {
	// Cuts returns row keys within rows, ascending, that cut these into parts whose
	// cells, of the named families or, without names, of all, take about so many
	// bytes where they lie; none where rows are not larger than that. What is in
	// memory only may be missing. Two calls may cut differently. Its error wraps
	// store.ErrUnsupported where sizes are not known.
	Cuts(ctx context.Context, table string, families []string, rows cell.Range, bytes int64) ([][]byte, error)
}

// Lost returns why a source, which may be nil, can no longer be trusted, or nil.
func Lost(s Source) error {
	if s, ok := s.(interface{ Err() error }); ok {
		return s.Err()
	}
	return nil
}

// Split is one region's share of a job, or a part of it.
type Split struct {
	Index  int // among the regions of the table's map, of which those that are cut count as their parts
	Region region.Info
	Rows   cell.Range // the rows of the region, or of the part, that the job wants; never empty
}

// Splits returns the parts of m that overlap rows, in key order.
func Splits(m *region.Map, rows cell.Range) []Split {
	var ss []Split
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
		ss = append(ss, Split{Index: i, Region: *r, Rows: part})
	}
	return ss
}

// Cut cuts splits, which are in key order, before the rows with these keys, ascending.
// Keys at which nothing is to be cut are passed over.
func Cut(splits []Split, keys [][]byte) []Split {
	var ss []Split
	more := 0
	for _, s := range splits {
		s.Index += more
		for ; len(keys) > 0 && (len(s.Rows.Stop) == 0 || string(keys[0]) < string(s.Rows.Stop)); keys = keys[1:] {
			if string(keys[0]) <= string(s.Rows.Start) {
				continue
			}
			part := s
			part.Rows.Stop = keys[0]
			ss = append(ss, part)
			s.Rows.Start = keys[0]
			s.Index++
			more++
		}
		ss = append(ss, s)
	}
	return ss
}

// Families selects families for a scan; none select all.
func Families(families []string) []store.Column {
	var all []store.Column
	for _, f := range families {
		all = append(all, store.Column{Family: f, All: true})
	}
	return all
}

// CheckFamilies says which of families a table does not have. Its error wraps
// store.ErrFamilyNotFound.
func CheckFamilies(t *store.TableDescriptor, families []string) error {
	for _, f := range families {
		if t.Family(f) == nil {
			return fmt.Errorf("%w: %s in table %s", store.ErrFamilyNotFound, f, t.Name)
		}
	}
	return nil
}

// Progress returns how far each partition is that r stores offsets of, none where it
// stores no offsets.
func Progress(ctx context.Context, r store.Reader) ([]store.PartitionProgress, error) {
	all, err := store.AllProgress(ctx, r)
	if err != nil && !errors.Is(err, store.ErrTableNotFound) {
		return nil, fmt.Errorf("read offsets: %w", err)
	}
	return all, nil
}
