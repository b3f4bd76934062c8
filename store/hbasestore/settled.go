package hbasestore

import (
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
func (s *Store) BegunTo(ctx context.Context, src *store.Source, partition int32) (until int64, version string, err error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return store.Absent, "", fmt.Errorf("how far batches were begun: %w", err)
	}
	defer end()
	at, err := s.exact.load(ctx, store.AppendSourceRow(nil, src, partition))
	return at.until, at.version, err
}

// Settled returns a mark that changes whenever a batch with progress, or an entry of a
// journal, begins or ends: where two calls return the same, no pipeline has written in
// between, and no letter was redriven or purged. Its error is an *UnfinishedError where
// such a batch was begun and has not ended, so that tables may have a part of it, and
// where partitions were begun together and one of them was not; it wraps
// store.ErrRefused where an entry is decided and not carried out.
func (s *Store) Settled(ctx context.Context) (mark string, err error) {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return "", fmt.Errorf("what is under way: %w", err)
	}
	defer end()
	h := sha256.New()
	stands := func(row, state []byte) { h.Write(cell.AppendPart(cell.AppendPart(nil, row), state)) }
	ended := map[string]bool{} // rows of store.OffsetsTable
	if err := s.exact.eachState(ctx, nil, func(src *store.Source, number int32, row []byte, at *state) error {
		if at.next < at.until || at.next == store.Absent {
			return &UnfinishedError{Source: *src, Partition: number, Next: max(at.next, 0), Until: at.until, Version: at.version}
		}
		if at.floors != "" {
			return fmt.Errorf("hbasestore: %s, %s/%d: %w", src.Pipeline, src.Topic, number, errRemoving)
		}
		ended[string(row)] = true
		stands(row, at.encode())
		return nil
	}); err != nil {
		return "", err
	}
	if err := s.exact.eachSource(ctx, func(src *store.Source, r *registered) error {
		for _, number := range slices.Sorted(maps.Keys(r.begins)) {
			if p := r.begins[number]; !ended[string(store.AppendSourceRow(nil, src, number))] {
				return &UnfinishedError{Source: *src, Partition: number, Next: p.First, Until: max(p.Next, p.First+1), Version: p.MappingVersion}
			}
		}
		return nil
	}); err != nil {
		return "", err
	}
	if err := s.exact.eachJournal(ctx, nil, func(src *store.Source, number int32, row []byte, at *journalState) error {
		switch {
		case strings.HasSuffix(src.Pipeline, switcherSuffix) && at.pending():
			return fmt.Errorf("hbasestore: %w", switchPending(src))
		case at.pending():
			return fmt.Errorf("hbasestore: %w: %s, %s/%d: a redrive or purge of dead letters was killed, and HBase may have a part of it: run \"ingest dlq redrive\" or \"purge\" once more, which finishes it",
				store.ErrRefused, src.Pipeline, src.Topic, number)
		case at.floors != "":
			return fmt.Errorf("hbasestore: %s, %s/%d: %w", src.Pipeline, src.Topic, number, errRemoving)
		}
		stands(row, at.encode())
		return nil
	}); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
