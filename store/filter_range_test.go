package store

import (
	"encoding/binary"
	"testing"

	"sluice/cell"
)

// BenchmarkMultiRowRangeFilterStart is what a scan of so many single rows takes before it
// reads the first.
func BenchmarkMultiRowRangeFilterStart(b *testing.B) {
	f := &MultiRowRangeFilter{Ranges: make([]RowRange, 1024)}
	for i := range f.Ranges {
		key := binary.BigEndian.AppendUint64([]byte("user/"), uint64(i))
		f.Ranges[i] = RowRange{Start: key, Stop: key, StopInclusive: true}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := f.Start(&Scan{}); err != nil {
			b.Fatal(err)
		}
	}
}

// The ends that the filter makes lie in one allocation: appending to one must not change
// the next.
func TestMultiRowRangeFilterEnds(t *testing.T) {
	f := &MultiRowRangeFilter{Ranges: []RowRange{
		{Start: []byte("c"), StartExclusive: true, Stop: []byte("d"), StopInclusive: true},
		{Start: []byte("a"), Stop: []byte("a"), StopInclusive: true},
		{Start: []byte("d"), Stop: []byte("e")},
		{Start: []byte("x"), StartExclusive: true},
	}}
	state, err := f.Start(&Scan{})
	if err != nil {
		t.Fatal(err)
	}
	got := state.(*rowRangesFilter).ranges
	for i := range got {
		_ = append(got[i].Start, '!')
		_ = append(got[i].Stop, '!')
	}
	want := []cell.Range{
		{Start: []byte("a"), Stop: []byte("a\x00")},
		{Start: []byte("c\x00"), Stop: []byte("e")},
		{Start: []byte("x\x00")},
	}
	if len(got) != len(want) {
		t.Fatalf("%d ranges %q, want %q", len(got), got, want)
	}
	for i := range want {
		if string(got[i].Start) != string(want[i].Start) || string(got[i].Stop) != string(want[i].Stop) {
			t.Errorf("range %d is [%q, %q), want [%q, %q)", i, got[i].Start, got[i].Stop, want[i].Start, want[i].Stop)
		}
	}
}
