package hbasestore

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/thrift/lib/go/thrift"

	"sluice/cell"
	"sluice/store/hbasestore/internal/hbase"
)

// fetched is a row, or a part of one, as the gateway has sent it: a TResult.
type fetched struct {
	key     []byte
	cells   []cell.Cell // in HBase's order; of KindPut where it names none
	partial bool        // another part of the row follows
}

// rowsReply is the answer to a call that reads rows. The generated code makes a
// TColumnValue of each cell, of which a cell.Cell would be made then.
type rowsReply struct {
	one     bool // it has one row, not a list
	rows    []fetched
	success bool
	io      *hbase.TIOError
	illegal *hbase.TIllegalArgument

	family string      // of the last cell: the next one has the same, mostly
	slab   []cell.Cell // for the cells of further rows
}

var _ thrift.TStruct = (*rowsReply)(nil)

// Bounds of what is allocated at once for cells, and for rows, of an answer that says
// how many it has before it has them.
const (
	slabCells = 128 // 12 KB
	madeRows  = 1024
)

// callRows makes the call of a client that is named, and returns the rows that it is
// answered with: one where one is set, which may be empty, else a list.
func callRows(ctx context.Context, c *hbase.THBaseServiceClient, method string, one bool, args thrift.TStruct) ([]fetched, error) {
	r := &rowsReply{one: one}
	if _, err := c.Client_().Call(ctx, method, args, r); err != nil {
		return nil, err
	}
	switch {
	case r.io != nil:
		return nil, r.io
	case r.illegal != nil:
		return nil, r.illegal
	case !r.success:
		return nil, thrift.NewTApplicationException(thrift.MISSING_RESULT, method+" failed: unknown result")
	}
	return r.rows, nil
}

// Write implements thrift.TStruct. An answer is read only.
func (r *rowsReply) Write(context.Context, thrift.TProtocol) error {
	return errors.New("hbasestore: an answer is not sent")
}

// Read implements thrift.TStruct for the protocol of a connection.
func (r *rowsReply) Read(ctx context.Context, in thrift.TProtocol) error {
	p := in.(*protocol)
	return p.fields(ctx, func(t thrift.TType, id int16) (err error) {
		switch {
		case id == 0 && t == thrift.STRUCT && r.one:
			r.success = true
			r.rows = make([]fetched, 1)
			return r.row(ctx, p, &r.rows[0], 1)
		case id == 0 && t == thrift.LIST && !r.one:
			r.success = true
			return r.list(ctx, p)
		case id == 1 && t == thrift.STRUCT:
			r.io = hbase.NewTIOError()
			return r.io.Read(ctx, p)
		case id == 2 && t == thrift.STRUCT:
			r.illegal = hbase.NewTIllegalArgument()
			return r.illegal.Read(ctx, p)
		}
		return p.Skip(ctx, t)
	})
}

// fields calls read for each field of a struct.
func (p *protocol) fields(ctx context.Context, read func(t thrift.TType, id int16) error) error {
	for {
		_, t, id, err := p.ReadFieldBegin(ctx)
		if err != nil || t == thrift.STOP {
			return err
		}
		if err := read(t, id); err != nil {
			return err
		}
	}
}

func (r *rowsReply) list(ctx context.Context, p *protocol) error {
	t, n, err := p.ReadListBegin(ctx)
	if err == nil && t != thrift.STRUCT && n > 0 {
		err = fmt.Errorf("hbasestore: the gateway's answer has rows of type %d", t)
	}
	if err != nil {
		return err
	}
	r.rows = make([]fetched, 0, min(n, madeRows))
	for left := n; left > 0; left-- {
		r.rows = append(r.rows, fetched{})
		if err := r.row(ctx, p, &r.rows[len(r.rows)-1], left); err != nil {
			return err
		}
	}
	return nil
}

// row reads a TResult, behind which as many follow as left says, itself included.
func (r *rowsReply) row(ctx context.Context, p *protocol, row *fetched, left int) error {
	some := false
	for {
		_, t, id, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		switch {
		case t == thrift.STOP && !some:
			return errors.New("hbasestore: the gateway's answer has a row without a list of cells")
		case t == thrift.STOP:
			return nil
		case id == 1 && t == thrift.STRING:
			row.key, err = p.ReadBinary(ctx)
		case id == 2 && t == thrift.LIST:
			some = true
			err = r.cells(ctx, p, row, left)
		case id == 4 && t == thrift.BOOL:
			row.partial, err = p.ReadBool(ctx)
		default:
			err = p.Skip(ctx, t)
		}
		if err != nil {
			return err
		}
	}
}

func (r *rowsReply) cells(ctx context.Context, p *protocol, row *fetched, left int) error {
	t, n, err := p.ReadListBegin(ctx)
	if err == nil && t != thrift.STRUCT && n > 0 {
		err = fmt.Errorf("hbasestore: the gateway's answer has cells of type %d", t)
	}
	if err != nil {
		return err
	}
	if n > slabCells {
		row.cells = make([]cell.Cell, 0, slabCells)
	} else {
		if cap(r.slab)-len(r.slab) < n { // the rows that follow are like this one
			r.slab = make([]cell.Cell, 0, max(n, min(n*left, slabCells)))
		}
		from := len(r.slab)
		r.slab = r.slab[:from+n]
		row.cells = r.slab[from:from:len(r.slab)]
	}
	for range n {
		row.cells = append(row.cells, cell.Cell{Kind: cell.KindPut})
		if err := r.cell(ctx, p, &row.cells[len(row.cells)-1]); err != nil {
			return err
		}
	}
	return nil
}

// cell reads a TColumnValue.
func (r *rowsReply) cell(ctx context.Context, p *protocol, c *cell.Cell) error {
	var has [4]bool
	for {
		_, t, id, err := p.ReadFieldBegin(ctx)
		if err != nil {
			return err
		}
		switch {
		case t == thrift.STOP && !(has[1] && has[2] && has[3]):
			return errors.New("hbasestore: the gateway's answer has a cell without family, qualifier or value")
		case t == thrift.STOP:
			return nil
		case id == 1 && t == thrift.STRING:
			has[1] = true
			r.family, err = p.readSame(ctx, r.family)
			c.Family = r.family
		case id == 2 && t == thrift.STRING:
			has[2] = true
			c.Qualifier, err = p.ReadBinary(ctx)
		case id == 3 && t == thrift.STRING:
			has[3] = true
			c.Value, err = p.ReadBinary(ctx)
		case id == 4 && t == thrift.I64:
			var at int64
			at, err = p.ReadI64(ctx)
			c.Time = cell.Timestamp(at)
		case id == 6 && t == thrift.BYTE:
			var kind int8
			kind, err = p.ReadByte(ctx)
			c.Kind = cell.Kind(kind)
		default:
			err = p.Skip(ctx, t)
		}
		if err != nil {
			return err
		}
	}
}
