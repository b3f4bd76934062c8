package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// sourcesTable gives each source of records the number that stands in the
// qualifiers of its counters' cells. docs/format/hbase.md has its layout.
const (
	sourcesTable     = store.SystemNamespace + ":sources"
	sourcesFamily    = "s"
	sourceQualifier  = "source"
	numbersQualifier = "numbers"
)

// numbersRow holds the last number that was given out. No source has this row: a
// pipeline has a name.
const numbersRow = "\x00\x01"

// systemTables are store.SystemTables and those that other engines have no need of.
func systemTables(framed bool) []*store.TableDescriptor {
	own := func(table, family string) *store.TableDescriptor {
		return &store.TableDescriptor{Name: table, Families: []store.FamilyDescriptor{store.NewFamily(family)}}
	}
	tables := store.SystemTables()
	for _, t := range tables {
		if framed {
			t.MaxCellBytes = 0 // an attribute, which would be garbled; a frame takes less anyway
		}
	}
	return append(tables, own(sourcesTable, sourcesFamily), own(journalsTable, journalsFamily))
}

// registered is a row of sourcesTable, which never changes once it is there.
type registered struct {
	id uint32
	// begins says where partitions begin that were begun together: the first
	// that did so decided it for all, and whoever comes behind completes it.
	begins map[int32]store.Progress
}

// appendSource appends the row of a source: that of its offsets without partition.
func appendSource(dst []byte, s *store.Source) []byte {
	dst = store.AppendSourceRow(dst, s, 0)
	return dst[:len(dst)-4]
}

// encode returns the stored form: the id (4 bytes big-endian), then for each begun
// partition its number (4), the length of its progress (4) and that.
func (r *registered) encode(partitions []int32) []byte {
	b := binary.BigEndian.AppendUint32(nil, r.id)
	for _, n := range partitions {
		p := r.begins[n]
		value := store.AppendProgress(nil, &p)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, uint32(n)), uint32(len(value)))
		b = append(b, value...)
	}
	return b
}

// decodeSource is the reverse of encode. Its error wraps store.ErrCorrupt or
// store.ErrUnsupported.
func decodeSource(b []byte) (registered, error) {
	corrupt := fmt.Errorf("%w: row of %s: %.100x", store.ErrCorrupt, sourcesTable, b)
	if len(b) < 4 {
		return registered{}, corrupt
	}
	r := registered{id: binary.BigEndian.Uint32(b), begins: map[int32]store.Progress{}}
	if r.id == apiSource {
		return registered{}, corrupt
	}
	for b = b[4:]; len(b) > 0; {
		if len(b) < 8 {
			return registered{}, corrupt
		}
		n, size := int32(binary.BigEndian.Uint32(b)), uint64(binary.BigEndian.Uint32(b[4:]))
		if b = b[8:]; uint64(len(b)) < size {
			return registered{}, corrupt
		}
		p, err := store.DecodeProgress(b[:size])
		if err != nil {
			return registered{}, fmt.Errorf("row of %s, partition %d: %w", sourcesTable, n, err)
		}
		r.begins[n], b = p, b[size:]
	}
	return r, nil
}

// register returns the number of a source, which it gets where it has none yet,
// together with where the partitions of begins begin.
func (x *exact) register(ctx context.Context, s *store.Source, begins []store.Advance) (registered, error) {
	var r registered
	at := &place{table: sourcesTable, family: sourcesFamily, qualifier: sourceQualifier, row: appendSource(nil, s)}
	if err := change(ctx, x.cells, at, func(now *seen) (_ []*hbase.TColumnValue, err error) {
		if now.cell != nil {
			r, err = decodeSource(now.cell.Value)
			return nil, err
		}
		r = registered{begins: map[int32]store.Progress{}}
		var partitions []int32
		for i := range begins {
			if a := &begins[i]; !slices.Contains(partitions, a.Partition) {
				partitions = append(partitions, a.Partition)
				r.begins[a.Partition] = a.Progress
			}
		}
		if r.id, err = x.cells.allot(ctx); err != nil { // one that is lost is lost
			return nil, err
		}
		first := int64(1)
		return []*hbase.TColumnValue{{Family: []byte(sourcesFamily), Qualifier: []byte(sourceQualifier), Value: r.encode(partitions), Timestamp: &first}}, nil
	}); err != nil {
		return registered{}, fmt.Errorf("number of the source %s, topic %s: %w", s.Pipeline, s.Topic, err)
	}
	return r, nil
}

// beginAs begins a partition of which it was decided before, by who began it
// together with others and was killed before it was done, where it begins. It
// reports whether that is elsewhere than a says.
func (x *exact) beginAs(ctx context.Context, a *store.Advance) (elsewhere bool, err error) {
	if a.From != store.Absent {
		return false, nil
	}
	r, err := x.register(ctx, &a.Source, nil)
	if err != nil {
		return false, err
	}
	p, ok := r.begins[a.Partition]
	if !ok || p == a.Progress {
		return false, nil
	}
	own := *a
	own.Progress = p
	begun := x.take(&own)
	err = x.finish(ctx, begun, &own)
	x.give(begun, err)
	if errors.Is(err, store.ErrStale) { // it has begun already
		err = nil
	}
	return err == nil, err
}

// begin stores where several partitions begin, all or, where this process is killed,
// whoever comes next: which they are is one row.
func (x *exact) begin(ctx context.Context, advances []store.Advance) error {
	for i := range advances {
		a := &advances[i]
		var together []store.Advance
		for j := range advances {
			if o := &advances[j]; o.Source == a.Source && o.From == store.Absent {
				if j < i {
					together = nil
					break
				}
				together = append(together, *o)
			}
		}
		if len(together) > 1 {
			if _, err := x.register(ctx, &a.Source, together); err != nil {
				return err
			}
		}
	}
	var stale error
	for i := range advances {
		err := x.apply(ctx, &advances[i], nil, nil, nil)
		if err != nil && !errors.Is(err, store.ErrStale) {
			return err
		}
		if stale == nil {
			stale = err
		}
	}
	return stale
}
