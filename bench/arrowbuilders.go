package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/apache/arrow/go/v15/arrow"
	"github.com/apache/arrow/go/v15/arrow/array"
	"github.com/apache/arrow/go/v15/arrow/memory"

	"sluice/cell"
	"sluice/jobs/arrowfile"
	"sluice/jobs/columnar"
	"sluice/store"
)

// The peer of an Arrow export is what a program would do that has the rows in memory
// and Arrow's own builders: build records of them, and write nothing.

// Keys of sample.Extra: seconds on one core for arrowRows rows.
const (
	arrowExportSeconds   = "rows to Arrow seconds"
	arrowBuildersSeconds = "rows to Arrow's builders seconds"
	arrowRowsKey         = "rows to Arrow"
)

// arrowRows are at most as many rows as are kept in memory.
const arrowRows = 200_000

var errEnough = errors.New("enough rows")

// arrowSides measures both on the same rows.
func arrowSides(ctx context.Context, r store.Reader, columns []columnar.ColumnSpec, schema *columnar.Schema, codec string, extra map[string]float64) error {
	rows, err := firstRows(ctx, r, arrowRows)
	if err != nil {
		return err
	}
	extra[arrowRowsKey] = float64(len(rows))
	export := func() error {
		w, err := arrowfile.NewWriter(io.Discard, schema.Columns(), &arrowfile.Options{Codec: codec})
		if err != nil {
			return err
		}
		b := columnar.NewBuilder(schema)
		for i := range rows {
			if err := b.Append(&rows[i]); err != nil {
				return err
			}
			if b.Full() {
				if err := w.Write(b.Batch()); err != nil {
					return err
				}
				b.Reset()
			}
		}
		if err := w.Write(b.Batch()); err != nil {
			return err
		}
		stats, err := w.Close()
		if err == nil && stats.Rows != int64(len(rows)) {
			err = fmt.Errorf("WRONG: %d of %d rows are in the Arrow file", stats.Rows, len(rows))
		}
		return err
	}
	peer, err := newArrowPeer(columns, schema)
	if err != nil {
		return err
	}
	defer peer.builder.Release()
	build := func() error {
		n := int64(0)
		for i := range rows {
			if i%columnar.DefaultBatchRows == 0 {
				peer.builder.Reserve(columnar.DefaultBatchRows)
			}
			if err := peer.add(&rows[i]); err != nil {
				return err
			}
			if (i+1)%columnar.DefaultBatchRows == 0 || i == len(rows)-1 {
				record := peer.builder.NewRecord()
				n += record.NumRows()
				record.Release()
			}
		}
		if n != int64(len(rows)) {
			return fmt.Errorf("WRONG: Arrow's builders have %d of %d rows", n, len(rows))
		}
		return nil
	}
	for _, side := range []struct {
		key string
		do  func() error
	}{{arrowExportSeconds, export}, {arrowBuildersSeconds, build}} {
		if err := side.do(); err != nil { // warms up
			return err
		}
		if extra[side.key], err = onOneCore(side.do); err != nil {
			return err
		}
	}
	return nil
}

// firstRows returns the first rows of the table, n at most, in memory of their own.
func firstRows(ctx context.Context, r store.Reader, n int) (rows []cell.Row, err error) {
	err = each(r.Scan(ctx, &store.Scan{Table: rowTable}), func(row *cell.Row) error {
		if len(rows) == n {
			return errEnough
		}
		rows = append(rows, *row.Clone())
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// arrowPeer fills Arrow's builders with the columns of rows, in the way that is plain
// to write: the columns' cells are in key order, as the rows' are.
type arrowPeer struct {
	builder *array.RecordBuilder
	columns []arrowPeerColumn // in the order of the cells
	times   []*array.TimestampBuilder
}

type arrowPeerColumn struct {
	qualifier string
	text      *array.StringBuilder
	number    *array.Int64Builder
}

func newArrowPeer(specs []columnar.ColumnSpec, schema *columnar.Schema) (*arrowPeer, error) {
	p := &arrowPeer{builder: array.NewRecordBuilder(memory.NewGoAllocator(), columnar.ArrowSchema(schema.Columns(), nil))}
	for i, spec := range specs {
		_, qualifier, ok := strings.Cut(spec.From, ":")
		c := arrowPeerColumn{qualifier: qualifier}
		switch b := p.builder.Field(i).(type) {
		case *array.TimestampBuilder:
			p.times = append(p.times, b)
			continue
		case *array.StringBuilder:
			c.text = b
		case *array.Int64Builder:
			c.number = b
		default:
			ok = false
		}
		if !ok {
			return nil, fmt.Errorf("column %s of %s has no peer", spec.Name, rowTable)
		}
		p.columns = append(p.columns, c)
	}
	slices.SortFunc(p.columns, func(a, b arrowPeerColumn) int { return strings.Compare(a.qualifier, b.qualifier) })
	return p, nil
}

func (p *arrowPeer) add(row *cell.Row) error {
	next := 0
	newest := row.Cells[0].Time
	for i := range row.Cells {
		newest = max(newest, row.Cells[i].Time)
	}
	for i := range p.columns {
		c := &p.columns[i]
		for next < len(row.Cells) && string(row.Cells[next].Qualifier) < c.qualifier {
			next++
		}
		if next == len(row.Cells) || string(row.Cells[next].Qualifier) != c.qualifier {
			if c.text != nil {
				c.text.AppendNull()
			} else {
				c.number.AppendNull()
			}
			continue
		}
		value := row.Cells[next].Value
		if c.text != nil {
			c.text.BinaryBuilder.Append(value)
			continue
		}
		n, err := strconv.ParseInt(string(value), 10, 64)
		if err != nil {
			return err
		}
		c.number.Append(n)
	}
	for _, b := range p.times {
		b.Append(arrow.Timestamp(newest * 1000))
	}
	return nil
}
