package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// cells is what exact batches ask of HBase, and all that they ask: tests stop
// between any two calls.
type cells interface {
	// read returns the newest cells of the columns that gets name, a result for
	// each, of one table.
	read(ctx context.Context, table string, gets []*hbase.TGet) ([]*hbase.TResult_, error)
	// checkAndPut puts columns into a row where a column of it holds value, nil = is
	// absent, and reports whether it did. The error wraps store.ErrUnknownOutcome
	// where the answer was lost.
	checkAndPut(ctx context.Context, table string, row []byte, family, qualifier string, value []byte, put []*hbase.TColumnValue) (bool, error)
	// write makes writes that may be repeated and returns an error for each.
	write(ctx context.Context, hs []*mutation) []error
	// allot returns a number that it returns to nobody else.
	allot(ctx context.Context) (uint32, error)
	// scanRows returns up to n rows of a table from start on, with the newest cells of
	// families, none = of all; none where there is no further row.
	scanRows(ctx context.Context, table string, families []string, start []byte, n int) ([]*hbase.TResult_, error)
}

// These are the calls of cells on a real HBase.
var _ cells = (*Store)(nil)

func (s *Store) read(ctx context.Context, table string, gets []*hbase.TGet) ([]*hbase.TResult_, error) {
	return s.getMultiple(ctx, table, gets)
}

// checkAndPut makes a check-and-put. Whoever gets store.ErrUnknownOutcome reads what is
// there and goes on from that, so that it pauses before it says so, the longer the more
// outcomes of a row in a row were unknown: a gateway that fails at once must not be called
// without end as fast as it can. After Options.RetryTimeout of these it says
// store.ErrTransient instead, and whoever applies the batch again begins with what is there.
func (s *Store) checkAndPut(ctx context.Context, table string, row []byte, family, qualifier string, value []byte, put []*hbase.TColumnValue) (applied bool, err error) {
	r := request{what: "check and put a row of", table: table, rows: true, once: true}
	writes := &hbase.TRowMutations{Row: row, Mutations: []*hbase.TMutation{{Put: &hbase.TPut{Row: row, ColumnValues: put}}}}
	began := time.Now()
	err = s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		applied, err = c.CheckAndMutate(ctx, []byte(table), row, []byte(family), []byte(qualifier), hbase.TCompareOp_EQUAL, value, writes)
		return err
	})
	key := string(append(cell.AppendPart(nil, []byte(table)), row...))
	switch n, since := s.unknown.note(key, began, errors.Is(err, store.ErrUnknownOutcome)); {
	case n == 0:
	case time.Since(since) >= s.o.RetryTimeout || s.wait(ctx, n-1) != nil:
		s.unknown.note(key, began, false)
		if ctx.Err() == nil {
			err = fmt.Errorf("%w: for %s nobody knows what became of %d calls, the last one: %v", store.ErrTransient, time.Since(since).Round(time.Second), n, err)
		}
	}
	return applied && err == nil, err
}

func (s *Store) write(ctx context.Context, hs []*mutation) []error {
	return s.applyInto(ctx, hs, make([]store.Result, len(hs)), true, false)
}

func (s *Store) allot(ctx context.Context) (uint32, error) {
	h := &mutation{table: sourcesTable, row: []byte(numbersRow)} // once is not set: a number may be lost
	h.modify(&cell.Op{Type: cell.OpIncrement, Family: sourcesFamily, Qualifier: []byte(numbersQualifier), Delta: 1}, nil)
	res, err := s.mutate(ctx, h)
	switch {
	case err != nil:
		return 0, err
	case len(res.Cells) != 1 || len(res.Cells[0].Value) != 8:
		return 0, fmt.Errorf("%w: %d numbers of sources", store.ErrCorrupt, len(res.Cells))
	}
	n := binary.BigEndian.Uint64(res.Cells[0].Value)
	if n == 0 || n > 1<<32-1 {
		return 0, fmt.Errorf("%w: number %d of a source", store.ErrCorrupt, n)
	}
	return uint32(n), nil
}

func (s *Store) scanRows(ctx context.Context, table string, families []string, start []byte, n int) (rows []*hbase.TResult_, err error) {
	t := hbase.NewTScan()
	t.StartRow, t.MaxVersions = start, 1
	for _, f := range families {
		t.Columns = append(t.Columns, &hbase.TColumn{Family: []byte(f)})
	}
	r := request{what: "scan", table: table, rows: true, scan: true, timeout: s.o.CallTimeout}
	for {
		caching := int32(n)
		t.Caching = &caching
		err = s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			rows, err = c.GetScannerResults(ctx, []byte(table), t, caching)
			return err
		})
		if !errors.Is(err, os.ErrDeadlineExceeded) || context.Cause(ctx) != nil || r.timeout >= s.o.patience {
			return rows, err
		}
		// HBase looks through what was deleted and is not compacted yet: as late of the fetcher.
		r.timeout, n = min(2*r.timeout, s.o.patience), 1
	}
}
