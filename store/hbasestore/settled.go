package hbasestore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/cell"
	"sluice/store"
)

var _ store.BegunReader = (*Store)(nil)

// BegunTo implements store.BegunReader.
func (s *Store) BegunTo(ctx context.Context, src *store.Source, partition int32) (int64, error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return store.Absent, fmt.Errorf("how far batches were begun: %w", err)
	}
	defer end()
	at, err := s.exact.load(ctx, store.AppendSourceRow(nil, src, partition))
	return at.until, err
}

// Settled returns a mark that changes whenever a batch with progress, or an entry of a
// journal, begins or ends: where two calls return the same, no pipeline has written in
// between, and no letter was redriven or purged. Its error is an *UnfinishedError where
// such a batch was begun and has not ended, so that tables may have a part of it, and
// where partitions were begun together and one of them was not; it wraps
// store.ErrRefused where an entry is decided and not carried out.
func (s *Store) Settled(ctx context.Context) (mark string, err error) {
	h := sha256.New()
	ended := map[string]bool{} // rows of store.OffsetsTable
	if err := s.everyRow(ctx, store.OffsetsTable, func(row *cell.Row) error {
		src, number, err := store.DecodeSourceRow(row.Key)
		if err != nil {
			return err
		}
		var at state
		known := false
		for i := range row.Cells {
			c := &row.Cells[i]
			if string(c.Qualifier) != stateQualifier {
				continue
			}
			if at, err = decodeState(c.Value); err != nil {
				return err
			}
			known = true
			h.Write(cell.AppendPart(cell.AppendPart(nil, row.Key), c.Value))
		}
		if !known {
			return fmt.Errorf("%w: row %.100q of %s has no state", store.ErrCorrupt, row.Key, store.OffsetsTable)
		}
		if at.next < at.until || at.next == store.Absent {
			return &UnfinishedError{Source: src, Partition: number, Next: max(at.next, 0), Until: at.until, Version: at.version}
		}
		if at.floors != "" {
			return fmt.Errorf("hbasestore: %s, %s/%d: %w", src.Pipeline, src.Topic, number, errRemoving)
		}
		ended[string(row.Key)] = true
		return nil
	}); err != nil {
		return "", err
	}
	if err := s.everyRow(ctx, sourcesTable, func(row *cell.Row) error {
		if bytes.Equal(row.Key, []byte(numbersRow)) {
			return nil
		}
		src, _, err := store.DecodeSourceRow(append(bytes.Clone(row.Key), 0, 0, 0, 0))
		if err != nil {
			return err
		}
		r, err := decodeSource(row.Cells[0].Value)
		if err != nil {
			return err
		}
		for _, number := range slices.Sorted(maps.Keys(r.begins)) {
			if p := r.begins[number]; !ended[string(store.AppendSourceRow(nil, &src, number))] {
				return &UnfinishedError{Source: src, Partition: number, Next: p.First, Until: max(p.Next, p.First+1), Version: p.MappingVersion}
			}
		}
		return nil
	}); err != nil {
		return "", err
	}
	if err := s.everyRow(ctx, journalsTable, func(row *cell.Row) error {
		src, number, err := store.DecodeSourceRow(row.Key)
		if err != nil {
			return err
		}
		for i := range row.Cells {
			c := &row.Cells[i]
			if string(c.Qualifier) != stateQualifier {
				continue
			}
			at, err := decodeJournalState(c.Value)
			if err != nil {
				return err
			}
			if name, ok := strings.CutSuffix(src.Pipeline, switcherSuffix); ok && at.pending() {
				return fmt.Errorf("hbasestore: %w: the counters of pipeline %s are being switched to those that were counted again: run \"ingest replay rebuild\" once more, which finishes it", store.ErrRefused, name)
			}
			if at.pending() {
				return fmt.Errorf("hbasestore: %w: %s, %s/%d: a redrive or purge of dead letters was killed, and HBase may have a part of it: run \"ingest dlq redrive\" or \"purge\" once more, which finishes it",
					store.ErrRefused, src.Pipeline, src.Topic, number)
			}
			if at.floors != "" {
				return fmt.Errorf("hbasestore: %s, %s/%d: %w", src.Pipeline, src.Topic, number, errRemoving)
			}
			h.Write(cell.AppendPart(cell.AppendPart(nil, row.Key), c.Value))
		}
		return nil
	}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// everyRow calls f for each row of one of the store's own tables.
func (s *Store) everyRow(ctx context.Context, table string, f func(*cell.Row) error) error {
	sc := s.Scan(ctx, &store.Scan{Table: table})
	defer sc.Close()
	for sc.Next() {
		if err := f(sc.Row()); err != nil {
			return err
		}
	}
	return sc.Err()
}
