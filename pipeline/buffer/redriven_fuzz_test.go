package buffer

import (
	"errors"
	"testing"

	"sluice/cell"
	"sluice/store"
)

// FuzzDecodeRedriven: what is read of a row of counts is what its columns have, or it is
// corrupt.
func FuzzDecodeRedriven(f *testing.F) {
	d := &DeadLetter{Pipeline: "p\x00", Topic: "t", Partition: 3, RedrivenAs: Applied}
	m := d.CountMutation()
	f.Add(m.Row, string(m.Ops[0].Qualifier), []byte("12345678"))
	f.Add(m.Row, purged+Filtered, []byte("1234567"))
	f.Add([]byte("\x00\x01"), dead, []byte{})
	f.Add([]byte{}, "", []byte{})
	f.Fuzz(func(t *testing.T, key []byte, qualifier string, value []byte) {
		r, err := DecodeRedriven(&cell.Row{Key: key, Cells: []cell.Cell{{Family: store.OutboxFamily, Qualifier: []byte(qualifier), Value: value}}})
		if err != nil {
			if !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Got %v, want ErrCorrupt", err)
			}
			return
		}
		again := (&DeadLetter{Pipeline: r.Pipeline, Topic: r.Topic, TopicID: r.TopicID, Partition: r.Partition, RedrivenAs: Applied}).CountMutation()
		if string(again.Row) != string(key) {
			t.Errorf("row %x is read as %x", key, again.Row)
		}
	})
}
