package hbasestore

import (
	"bytes"
	"fmt"
	"testing"

	"sluice/store/hbasestore/internal/hbase"
)

// Puts are written byte by byte as Thrift's own protocol writes them, whichever of their
// fields they have and however large these are.
func TestPutsAsThrift(t *testing.T) {
	t.Parallel()
	at, kind := int64(-5), int8(12)
	durability := hbase.TDurabilityPtr(hbase.TDurability_SKIP_WAL)
	column := func(v []byte) *hbase.TColumnValue {
		return &hbase.TColumnValue{Family: []byte("f"), Qualifier: []byte{}, Value: v, Timestamp: &at}
	}
	puts := []*hbase.TPut{
		{Row: []byte("empty"), ColumnValues: []*hbase.TColumnValue{}},
		{Row: []byte("timed"), ColumnValues: []*hbase.TColumnValue{column(nil), column([]byte("v"))}},
		{Row: []byte("later"), ColumnValues: []*hbase.TColumnValue{{Family: []byte("f"), Qualifier: []byte("q"), Value: []byte("v")}}},
		{Row: []byte("tagged"), ColumnValues: []*hbase.TColumnValue{column([]byte("a")), {Family: []byte("f"), Tags: []byte("t"), Type: &kind}, column([]byte("b"))}},
		{Row: []byte("unsafe"), ColumnValues: []*hbase.TColumnValue{column([]byte("v"))}, Durability: durability},
		{Row: []byte("dying"), ColumnValues: []*hbase.TColumnValue{column([]byte("v"))}, Attributes: ttl(7), Durability: durability},
		{Row: []byte("dated"), ColumnValues: []*hbase.TColumnValue{column([]byte("v"))}, Timestamp: &at},
		{Row: []byte("hidden"), ColumnValues: []*hbase.TColumnValue{column([]byte("v"))}, CellVisibility: &hbase.TCellVisibility{}},
	}
	for _, n := range []int{bufferBytes - 1, bufferBytes, bufferBytes + 1, 3 * bufferBytes} {
		puts = append(puts, &hbase.TPut{Row: fmt.Append(nil, n), ColumnValues: []*hbase.TColumnValue{column(bytes.Repeat([]byte{'v'}, n)), column([]byte("v"))}})
	}
	for _, framed := range []bool{false, true} {
		for from := range puts {
			for _, some := range [][]*hbase.TPut{puts[from:], puts[from : from+1], {}} {
				var want bytes.Buffer
				writeMessage(t, thriftProtocol(&want, framed), &hbase.THBaseServicePutMultipleArgs{Table: []byte("t"), Tputs: some})
				got := &bytesConn{}
				w := newWire(got, framed)
				w.begin()
				writeMessage(t, newProtocol(w), &putsArgs{[]byte("t"), some})
				if !bytes.Equal(got.out.Bytes(), want.Bytes()) {
					t.Errorf("%d puts from %s, framed %v: got\n%.200q, want\n%.200q", len(some), puts[from].Row, framed, got.out.Bytes(), want.Bytes())
				}
			}
		}
	}
}
