package hbasestore

import (
	"context"
	"fmt"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// Where HBase keeps the states of tables: in a row each, by its name (HBase
// MetaTableAccessor and TableStateManager). All clients read it, as it says where regions are.
const (
	metaTable   = "hbase:meta"
	stateFamily = "table"
	stateColumn = "state"
)

// Incarnation returns a text that is a table's as long as it is neither dropped nor truncated
// nor restored from a snapshot: when HBase has last noted that it is enabled, or disabled. It
// is another one, too, after the table was disabled and enabled, without which none of these
// can be. An alter leaves it, and so does what becomes of regions; the truncation of a single
// region (HBase 2.6) is not seen. What is known of the table's schema is asked for anew by the
// next call that needs it. The error wraps store.ErrTableNotFound.
func (s *Store) Incarnation(ctx context.Context, table string) (string, error) {
	table = store.CanonicalName(table)
	r := request{what: "state of", table: table}
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return "", r.fail(err)
	}
	defer end()
	get := hbase.NewTGet()
	get.Row = []byte(table)
	get.Columns = []*hbase.TColumn{{Family: []byte(stateFamily), Qualifier: []byte(stateColumn)}}
	var row *hbase.TResult_
	err = s.retry(ctx, r, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
		row, err = c.Get(ctx, []byte(metaTable), get)
		return err
	})
	switch {
	case err != nil:
		return "", err
	case len(row.ColumnValues) == 0:
		return "", r.fail(fmt.Errorf("%w: %s has no state of it", store.ErrTableNotFound, metaTable))
	}
	s.schemas.forget(table)
	return "its state is of " + time.UnixMilli(row.ColumnValues[0].GetTimestamp()).UTC().Format("2006-01-02T15:04:05.000Z"), nil
}
