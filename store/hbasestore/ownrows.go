package hbasestore

import (
	"bytes"
	"context"
	"fmt"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// Rows of a call: of the store's own tables, and of counters, each of which may have
// several of 12 KiB.
const (
	ownRows     = 1000
	counterRows = 100
)

// each calls f for each row of a table, with the newest cells of families, none = of all.
func (x *exact) each(ctx context.Context, table string, families []string, n int, f func(*hbase.TResult_) error) error {
	var start []byte
	for {
		rows, err := x.cells.scanRows(ctx, table, families, start, n)
		if err != nil || len(rows) == 0 {
			return err
		}
		for _, r := range rows {
			if err := f(r); err != nil {
				return err
			}
		}
		start = append(bytes.Clone(rows[len(rows)-1].Row), 0)
	}
}

// eachSource calls f for each source that has a number.
func (x *exact) eachSource(ctx context.Context, f func(*store.Source, *registered) error) error {
	return x.each(ctx, sourcesTable, nil, ownRows, func(row *hbase.TResult_) error {
		if bytes.Equal(row.Row, []byte(numbersRow)) {
			return nil
		}
		src, _, err := store.DecodeSourceRow(append(bytes.Clone(row.Row), 0, 0, 0, 0))
		if err != nil {
			return err
		}
		v, err := columnOf(sourcesTable, row, sourceQualifier)
		if err != nil {
			return err
		}
		r, err := decodeSource(v)
		if err != nil {
			return err
		}
		return f(&src, &r)
	})
}

// eachState calls f for the state of each partition of the pipelines that of reports, nil =
// of all.
func (x *exact) eachState(ctx context.Context, of func(pipeline string) bool, f func(src *store.Source, number int32, row []byte, s *state) error) error {
	return eachOwn(ctx, x, store.OffsetsTable, decodeState, of, f)
}

// eachJournal is eachState of journals, be they of redrives or of switches.
func (x *exact) eachJournal(ctx context.Context, of func(pipeline string) bool, f func(src *store.Source, number int32, row []byte, s *journalState) error) error {
	return eachOwn(ctx, x, journalsTable, decodeJournalState, of, f)
}

func eachOwn[S any](ctx context.Context, x *exact, table string, decode func([]byte) (S, error), of func(string) bool, f func(*store.Source, int32, []byte, *S) error) error {
	return x.each(ctx, table, nil, ownRows, func(row *hbase.TResult_) error {
		src, number, err := store.DecodeSourceRow(row.Row)
		if err != nil || of != nil && !of(src.Pipeline) {
			return err
		}
		v, err := columnOf(table, row, stateQualifier)
		if err != nil {
			return err
		}
		s, err := decode(v)
		if err != nil {
			return err
		}
		return f(&src, number, bytes.Clone(row.Row), &s)
	})
}

// columnOf returns what a row of the store's own has in the column without which it is none.
func columnOf(table string, row *hbase.TResult_, qualifier string) ([]byte, error) {
	for _, v := range row.ColumnValues {
		if string(v.Qualifier) == qualifier {
			return v.Value, nil
		}
	}
	return nil, fmt.Errorf("%w: row %.100q of %s has no column %s", store.ErrCorrupt, row.Row, table, qualifier)
}
