package jobs

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/jobs/columnar"
	"sluice/jobs/jobstest"
	"sluice/store"
)

// partScanner is a scan of rows of which some can be had as they are stored, in parts of
// other numbers than are asked for.
type partScanner struct {
	rows  []scannedRow
	at    int // of the next row
	err   error
	parts func(most int) int
	stops bool // where the rows end, with err
	torn  int  // the number of a row, from 1 on, of which the value is not whole; 0 = none
}

type scannedRow struct {
	key    string
	packed bool
}

func (s *partScanner) NextPacked(rows *cell.PackedRows, most, _ int) int {
	rows.Reset("f")
	for n := s.parts(most); n > 0 && s.at < len(s.rows) && s.rows[s.at].packed; n-- {
		value := cell.AppendPackedColumn(cell.AppendPackedHeader(nil, 0, false), []byte("q"), []byte(s.rows[s.at].key))
		if s.torn == s.at+1 {
			value = value[:len(value)-1]
		}
		rows.Append(cell.AppendEscaped(nil, []byte(s.rows[s.at].key)), value, cell.Timestamp(s.at))
		s.at++
	}
	return rows.Len()
}

func (s *partScanner) Next() bool {
	if s.at == len(s.rows) {
		return false
	}
	s.at++
	return true
}

func (s *partScanner) Row() *cell.Row {
	key := []byte(s.rows[s.at-1].key)
	return &cell.Row{Key: key, Cells: []cell.Cell{{Family: "f", Qualifier: []byte("q"), Time: cell.Timestamp(s.at - 1), Value: key}}}
}

func (s *partScanner) Err() error {
	if s.stops && s.at == len(s.rows) {
		return s.err
	}
	return nil
}

func (s *partScanner) Close() error { return nil }

// readRows returns what is read of a scan by who has room for few rows at a time, and takes
// no more than most.
func readRows(sc store.PackedScanner, room func() int, most int) (got []string, err error) {
	var rows cell.PackedRows
	var cells []cell.Cell
	for len(got) < most {
		if n := sc.NextPacked(&rows, room(), 1<<20); n > 0 {
			for i := range n {
				row, err := rows.Row(i, cells)
				if err != nil {
					return nil, err
				}
				cells = row.Cells
				got = append(got, fmt.Sprintf("%s %d %s", row.Key, row.Cells[0].Time, row.Cells[0].Value))
			}
			continue
		}
		if !sc.Next() {
			return got, sc.Err()
		}
		row := sc.Row()
		got = append(got, fmt.Sprintf("%s %d %s", row.Key, row.Cells[0].Time, row.Cells[0].Value))
	}
	return got, nil
}

func readAheadJob(t *testing.T) *Job {
	t.Helper()
	return mustCompile(t, "j", &Spec{Table: "t", Formats: []string{Parquet}, Columns: []columnar.ColumnSpec{{Name: "key", From: "$row", Type: "string"}}}, nil)
}

// TestReadAhead: a scan that is read ahead has the rows, and the error, of the scan, whatever
// of it is stored how, in whatever parts it comes and is taken, and wherever it is left.
func TestReadAhead(t *testing.T) {
	t.Parallel()
	job := readAheadJob(t)
	rapid.Check(t, func(rt *rapid.T) {
		var all []scannedRow
		for len(all) < rapid.IntRange(0, 40).Draw(rt, "rows") {
			all = append(all, scannedRow{fmt.Sprintf("row%03d", len(all)), rapid.IntRange(0, 9).Draw(rt, "packed") > 0})
		}
		parts := rapid.IntRange(1, 7).Draw(rt, "parts")
		want := partScanner{rows: all, parts: func(most int) int { return most }, stops: rapid.Bool().Draw(rt, "fails"), err: errors.New("torn")}
		sc := want
		sc.parts = func(most int) int { return min(most, parts) }
		room := func() int { return rapid.IntRange(1, 9).Draw(rt, "room") }
		most := len(all) + 1
		if rapid.Bool().Draw(rt, "left") {
			most = rapid.IntRange(0, len(all)).Draw(rt, "most")
		}
		rows, failed := readRows(&want, func() int { return 1 }, most)
		ahead := newReadAhead(t.Context(), job, &sc, make(chan *cell.PackedRows, 2))
		got, err := readRows(ahead, room, most)
		if err := errors.Join(ahead.Close(), ahead.Close()); err != nil {
			rt.Fatal(err)
		}
		if d := jobstest.Diff(rows, got[:min(len(got), len(rows))]); d != "" || len(got) < len(rows) || !errors.Is(err, failed) {
			rt.Errorf("Got %d rows, %v. Want %d, %v: %s", len(got), err, len(rows), failed, d)
		}
	})
}

// A row that is not as it should be is an error wherever it is looked at.
func TestReadAheadOfTornRow(t *testing.T) {
	t.Parallel()
	sc := &partScanner{parts: func(most int) int { return most }, torn: 3}
	for i := range 5 {
		sc.rows = append(sc.rows, scannedRow{fmt.Sprint("row", i), true})
	}
	r := newReadAhead(t.Context(), readAheadJob(t), sc, nil)
	got, err := readRows(r, func() int { return 2 }, 10) // the part has more rows
	if len(got) != 2 || !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("Got %v, %v. Want two rows and that the third is torn", got, err)
	}
	if r.Next() || r.NextPacked(new(cell.PackedRows), 10, 1) > 0 || r.Row() != nil {
		t.Error("Got more behind an error")
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Of rows that are larger than what may be held, one is held and one read.
func TestReadAheadHoldsFewLargeRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		large := strings.Repeat("x", aheadBytes)
		sc := &partScanner{parts: func(int) int { return 1 }}
		for i := range 10 {
			sc.rows = append(sc.rows, scannedRow{fmt.Sprint("row", i, large), true})
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		r := newReadAhead(ctx, readAheadJob(t), sc, make(chan *cell.PackedRows, 10))
		for taken := range 4 {
			synctest.Wait()
			if sc.at != taken+2 || len(r.spare) > 0 {
				t.Errorf("Got %d rows read with %d taken, and the memory of %d kept", sc.at, taken, len(r.spare))
			}
			if !r.Next() {
				t.Fatal(r.Err())
			}
		}
		gone := errors.New("gone")
		cancel(gone)
		if rows, err := readRows(r, func() int { return 1 }, 10); len(rows) > 2 || !errors.Is(err, gone) {
			t.Errorf("Got %d rows, %v, behind the end of the context", len(rows), err)
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
}
