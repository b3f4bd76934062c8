package hbasestore

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/iotest"

	"github.com/apache/thrift/lib/go/thrift"
	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store/hbasestore/internal/hbase"
)

// fetchedOf is what the generated code has read, as a rowsReply reads it.
func fetchedOf(results []*hbase.TResult_) []fetched {
	var rows []fetched
	for _, r := range results {
		row := fetched{key: r.Row, partial: r.Partial}
		for _, v := range r.ColumnValues {
			c := cell.Cell{Family: string(v.Family), Qualifier: v.Qualifier, Time: cell.Timestamp(v.GetTimestamp()), Kind: cell.KindPut, Value: v.Value}
			if v.Type != nil {
				c.Kind = cell.Kind(*v.Type)
			}
			row.cells = append(row.cells, c)
		}
		rows = append(rows, row)
	}
	return rows
}

// sameRows is of answers of hundreds of thousands of cells.
func sameRows(t *testing.T, want, got []fetched) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("Got %d rows, want %d", len(got), len(want))
	}
	for i := range want {
		w, g := &want[i], &got[i]
		if !bytes.Equal(w.key, g.key) || w.partial != g.partial || len(w.cells) != len(g.cells) {
			t.Fatalf("Got row %.100q of %d cells, partial %v, want %.100q of %d, %v", g.key, len(g.cells), g.partial, w.key, len(w.cells), w.partial)
		}
		for n := range w.cells {
			w, g := &w.cells[n], &g.cells[n]
			if w.Family != g.Family || w.Time != g.Time || w.Kind != g.Kind || w.TTL != g.TTL || !bytes.Equal(w.Qualifier, g.Qualifier) || !bytes.Equal(w.Value, g.Value) {
				t.Fatalf("row %.100q: Got cell %+v, want %+v", want[i].key, g, w)
			}
		}
	}
}

// reply reads what writes a message as the answer to a call.
func reply(t *testing.T, m thrift.TStruct, one bool) (*rowsReply, error) {
	t.Helper()
	var b bytes.Buffer
	writeMessage(t, thriftProtocol(&b, false), m)
	r := &rowsReply{one: one}
	return r, readMessage(t, newProtocol(newWire(&bytesConn{in: iotest.HalfReader(&b)}, false)), r)
}

// TestRowsReply: an answer is what the generated code reads of it, and what is done to
// one row's cells is not done to another's.
func TestRowsReply(t *testing.T) {
	t.Parallel()
	lists := [][]*hbase.TResult_{{}}
	for _, m := range messages() {
		switch m := m.(type) {
		case *hbase.TResult_:
			lists = append(lists, []*hbase.TResult_{m})
		case *hbase.THBaseServiceGetScannerRowsResult:
			lists = append(lists, m.Success)
		}
	}
	var long []*hbase.TResult_
	for i := range madeRows + 100 { // of a cell to several slabs of them
		r := &hbase.TResult_{Row: fmt.Append(nil, i), ColumnValues: []*hbase.TColumnValue{}}
		for c := range i % (2*slabCells + 5) {
			r.ColumnValues = append(r.ColumnValues, &hbase.TColumnValue{Family: fmt.Append(nil, c/7), Qualifier: fmt.Append(nil, c), Value: fmt.Append(nil, i, c)})
		}
		long = append(long, r)
	}
	for _, list := range append(lists, long) {
		r, err := reply(t, &hbase.THBaseServiceGetScannerRowsResult{Success: list}, false)
		if err != nil || !r.success {
			t.Fatalf("Got success %v, %v", r.success, err)
		}
		for i := range r.rows {
			_ = append(r.rows[i].cells, cell.Cell{Family: "overwritten"})
		}
		sameRows(t, fetchedOf(list), r.rows)
		if len(list) == 0 {
			continue
		}
		if r, err = reply(t, &hbase.THBaseServiceGetResult{Success: list[0]}, true); err != nil || !r.success {
			t.Fatalf("Got success %v, %v", r.success, err)
		}
		sameRows(t, fetchedOf(list[:1]), r.rows)
	}
}

// TestRowsReplyFails: exceptions are those of the call, and what is neither rows nor an
// exception is an error.
func TestRowsReplyFails(t *testing.T) {
	t.Parallel()
	text := "a text"
	r, err := reply(t, &hbase.THBaseServiceGetScannerRowsResult{Io: &hbase.TIOError{Message: &text}}, false)
	if err != nil || r.success || r.io.GetMessage() != text {
		t.Errorf("Got %+v, %v", r, err)
	}
	r, err = reply(t, &hbase.THBaseServiceGetScannerRowsResult{Ia: &hbase.TIllegalArgument{Message: &text}}, false)
	if err != nil || r.success || r.illegal.GetMessage() != text {
		t.Errorf("Got %+v, %v", r, err)
	}
	// A list in the place of a row, and the reverse, are nobody's answer.
	if r, err = reply(t, &hbase.THBaseServiceGetScannerRowsResult{Success: []*hbase.TResult_{}}, true); err != nil || r.success {
		t.Errorf("Got %+v, %v", r, err)
	}
	if r, err = reply(t, &hbase.THBaseServiceGetResult{Success: &hbase.TResult_{ColumnValues: []*hbase.TColumnValue{}}}, false); err != nil || r.success {
		t.Errorf("Got %+v, %v", r, err)
	}
	client := hbase.NewTHBaseServiceClient(thrift.NewTStandardClient(nothing(t), nothing(t)))
	var missing thrift.TApplicationException
	if rows, err := callRows(t.Context(), client, "get", true, &hbase.THBaseServiceGetArgs{Tget: &hbase.TGet{}}); !errors.As(err, &missing) || missing.TypeId() != thrift.MISSING_RESULT {
		t.Errorf("Got %v, %v", rows, err)
	}
}

// nothing is a connection to a gateway that answers the first get with neither a row nor
// an exception.
func nothing(t *testing.T) *protocol {
	t.Helper()
	var b bytes.Buffer
	p := thriftProtocol(&b, false)
	if err := errors.Join(p.WriteMessageBegin(t.Context(), "get", thrift.REPLY, 1), p.WriteFieldStop(t.Context()), p.Flush(t.Context())); err != nil {
		t.Fatal(err)
	}
	return newProtocol(newWire(&bytesConn{in: &b}, false))
}

// FuzzRowsReply: whatever bytes are refused, or read as the generated code reads them.
func FuzzRowsReply(f *testing.F) {
	fuzzAnswer(f, func(t *testing.T, ours *protocol, thrifts thrift.TProtocol) {
		got, want := &rowsReply{}, &hbase.THBaseServiceGetScannerRowsResult{}
		if err := got.Read(t.Context(), ours); err != nil {
			return
		}
		if err := want.Read(t.Context(), thrifts); err != nil {
			t.Fatalf("%v was not noticed", err)
		}
		if got.success != (want.Success != nil) || !cmp.Equal(got.io, want.Io) || !cmp.Equal(got.illegal, want.Ia) {
			t.Errorf("Got %+v, want %+v", got, want)
		}
		sameRows(t, fetchedOf(want.Success), got.rows)
	})
}
