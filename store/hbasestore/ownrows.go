package hbasestore

import (
	"bytes"
	"context"
	"fmt"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// Rows of a call, at most: of the store's own tables, and of counters. A page of the latter
// begins with one row, as rows may be of any size, and is of about maxCallBytes.
const (
	ownRows     = 1000
	counterRows = 100
)

// pages calls f for the rows of a table from start on, several at a time, with the newest
// cells of families, none = of all, until it returns false.
func (x *exact) pages(ctx context.Context, table string, families []string, start []byte, most int, f func([]*hbase.TResult_) (more bool, err error)) error {
	n := most
	if most == counterRows {
		n = 1
	}
	for {
		rows, err := x.cells.scanRows(ctx, table, families, start, n)
		if err != nil || len(rows) == 0 {
			return err
		}
		size := 0
		for _, r := range rows {
			for _, v := range r.ColumnValues {
				size += len(r.Row) + len(v.Family) + len(v.Qualifier) + len(v.Value) + 16
			}
		}
		n = min(4*n, most, max(maxCallBytes*len(rows)/max(size, 1), 1))
		start = append(bytes.Clone(rows[len(rows)-1].Row), 0)
		if more, err := f(rows); err != nil || !more {
			return err
		}
	}
}

// each calls f for each row of a table, as pages does.
func (x *exact) each(ctx context.Context, table string, families []string, most int, f func(*hbase.TResult_) error) error {
	return x.pages(ctx, table, families, nil, most, func(rows []*hbase.TResult_) (bool, error) {
		for _, r := range rows {
			if err := f(r); err != nil {
				return false, err
			}
		}
		return true, nil
	})
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
