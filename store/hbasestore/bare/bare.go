// Package bare is the least client of a Thrift2 gateway: the generated code over
// Thrift's own socket, one connection, and nothing around it. Benchmarks measure
// store/hbasestore against it, which makes the same calls, and tests have HBase evaluate
// filters by itself with it, which store/hbasestore does not; it has no retries, no
// schemas, no checks of what is sent, and no other use.
//
// A Client belongs to one goroutine and keeps nothing of what it is given.
package bare

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// bufferBytes is what a connection buffers in each direction, as much as
// store/hbasestore does.
const bufferBytes = 64 << 10

// Client is one connection to a gateway. Make one with Dial.
type Client struct {
	transport thrift.TTransport
	client    *hbase.THBaseServiceClient
}

// Dial connects to the gateway at host:port. timeout bounds that, and each wait for an
// answer.
func Dial(address string, framed bool, timeout time.Duration) (*Client, error) {
	conf := &thrift.TConfiguration{ConnectTimeout: timeout, SocketTimeout: timeout}
	var t thrift.TTransport = thrift.NewTBufferedTransport(thrift.NewTSocketConf(address, conf), bufferBytes)
	if framed {
		t = thrift.NewTFramedTransportConf(t, conf)
	}
	if err := t.Open(); err != nil {
		return nil, fmt.Errorf("connect to gateway %s: %w", address, err)
	}
	p := thrift.NewTBinaryProtocolConf(t, conf)
	return &Client{transport: t, client: hbase.NewTHBaseServiceClientProtocol(t, p, p)}, nil
}

// Close ends the connection.
func (c *Client) Close() error { return c.transport.Close() }

// Put sends mutations, of puts with timestamps only, in one call.
func (c *Client) Put(ctx context.Context, table []byte, ms []*cell.Mutation) error {
	puts := make([]*hbase.TPut, len(ms))
	for i, m := range ms {
		puts[i] = &hbase.TPut{Row: m.Row, ColumnValues: values(m)}
	}
	return c.client.PutMultiple(ctx, table, puts)
}

func values(m *cell.Mutation) []*hbase.TColumnValue {
	vs := make([]*hbase.TColumnValue, len(m.Ops))
	for i := range m.Ops {
		o := &m.Ops[i]
		at := int64(o.Time)
		vs[i] = &hbase.TColumnValue{Family: []byte(o.Family), Qualifier: o.Qualifier, Value: o.Value, Timestamp: &at}
	}
	return vs
}

// Get returns how many cells a row has.
func (c *Client) Get(ctx context.Context, table, row []byte) (int, error) {
	r, err := c.client.Get(ctx, table, &hbase.TGet{Row: row})
	return len(r.GetColumnValues()), err
}

// Scan reads a table, n rows a call, and returns how many rows and cells it has.
func (c *Client) Scan(ctx context.Context, table []byte, n int32) (rows, cells int, err error) {
	t := hbase.NewTScan()
	t.Caching = &n
	id, err := c.client.OpenScanner(ctx, table, t)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, c.client.CloseScanner(ctx, id)) }()
	for {
		page, err := c.client.GetScannerRows(ctx, id, n)
		if err != nil {
			return rows, cells, err
		}
		for _, r := range page {
			cells += len(r.ColumnValues)
		}
		if rows += len(page); len(page) < int(n) {
			return rows, cells, nil
		}
	}
}

// Results returns the first most rows of a scan, without its limits a family, of which HBase
// evaluates the filter by itself: filter is that in HBase's protobuf, and s.Filter is not
// read. A gateway's scan has an inclusive start and an exclusive stop; s may have others
// where it ascends.
func (c *Client) Results(ctx context.Context, s *store.Scan, filter []byte, most int32) ([]cell.Row, error) {
	after := func(row []byte, is bool) []byte {
		if is && len(row) > 0 {
			return append(row[:len(row):len(row)], 0)
		}
		return row
	}
	positive := func(n int) *int32 {
		if n <= 0 {
			return nil
		}
		v := int32(n)
		return &v
	}
	times := func(r cell.TimeRange) *hbase.TTimeRange {
		return &hbase.TTimeRange{MinStamp: int64(r.Min), MaxStamp: int64(r.Max)}
	}
	t := &hbase.TScan{
		StartRow: after(s.Start, s.StartExclusive), StopRow: after(s.Stop, s.StopInclusive), Caching: &most,
		MaxVersions: int32(max(s.Versions, 1)), BatchSize: positive(s.Batch), Reversed: &s.Reversed, Limit: positive(s.Limit), FilterBytes: filter,
	}
	for _, c := range s.Columns {
		column := &hbase.TColumn{Family: []byte(c.Family)}
		if !c.All {
			column.Qualifier = append([]byte{}, c.Qualifier...) // nil = all of them
		}
		t.Columns = append(t.Columns, column)
	}
	if s.Time != nil {
		t.TimeRange = times(*s.Time)
	}
	if len(s.FamilyTime) > 0 {
		t.ColFamTimeRangeMap = map[string]*hbase.TTimeRange{}
		for f, r := range s.FamilyTime {
			t.ColFamTimeRangeMap[f] = times(r)
		}
	}
	results, err := c.client.GetScannerResults(ctx, []byte(s.Table), t, most)
	if err != nil {
		return nil, err
	}
	rows := make([]cell.Row, len(results))
	for i, r := range results {
		rows[i].Key = r.Row
		for _, v := range r.ColumnValues {
			rows[i].Cells = append(rows[i].Cells, cell.Cell{
				Kind: cell.KindPut, Family: string(v.Family), Qualifier: v.Qualifier, Time: cell.Timestamp(v.GetTimestamp()), Value: v.Value,
			})
		}
	}
	return rows, nil
}

// Increment adds 1 to a cell and returns what it is then.
func (c *Client) Increment(ctx context.Context, table, row, family, qualifier []byte) (int64, error) {
	r, err := c.client.Increment(ctx, table, &hbase.TIncrement{Row: row, Columns: []*hbase.TColumnIncrement{{Family: family, Qualifier: qualifier, Amount: 1}}})
	if err != nil {
		return 0, err
	}
	if len(r.ColumnValues) != 1 || len(r.ColumnValues[0].Value) != 8 {
		return 0, fmt.Errorf("the answer to an increment has %d cells", len(r.ColumnValues))
	}
	return int64(binary.BigEndian.Uint64(r.ColumnValues[0].Value)), nil
}

// CheckAndPut puts a value where the column has old, empty = none, and reports
// whether it had.
func (c *Client) CheckAndPut(ctx context.Context, table, row, family, qualifier, old, value []byte) (bool, error) {
	put := &hbase.TPut{Row: row, ColumnValues: []*hbase.TColumnValue{{Family: family, Qualifier: qualifier, Value: value}}}
	return c.client.CheckAndMutate(ctx, table, row, family, qualifier, hbase.TCompareOp_EQUAL, old,
		&hbase.TRowMutations{Row: row, Mutations: []*hbase.TMutation{{Put: put}}})
}
