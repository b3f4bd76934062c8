package salted_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/rowkey"
	"sluice/rowkey/salted"
	"sluice/store"
	"sluice/store/memstore"
)

// newEngine returns a store with the tables plain and salted.
func newEngine(t testing.TB) *memstore.Store {
	t.Helper()
	e, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return 1000 }})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"plain", "salted"} {
		f := store.NewFamily("f")
		f.Versions = 3
		if err := e.CreateTable(t.Context(), &store.TableDescriptor{Name: name, Families: []store.FamilyDescriptor{f}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

func newSalt(t testing.TB, buckets int) rowkey.Salt {
	t.Helper()
	salt, err := rowkey.NewSalt(buckets)
	if err != nil {
		t.Fatal(err)
	}
	return salt
}

// rows returns what a scanner gives, one piece of a row a text, and closes it.
func rows(sc store.Scanner) ([]string, error) {
	var got []string
	for sc.Next() {
		text := fmt.Sprintf("%q", sc.Row().Key)
		for _, c := range sc.Row().Cells {
			text += fmt.Sprintf(" %s@%d=%s", c.Qualifier, c.Time, c.Value)
		}
		if sc.Row().More {
			text += " and more"
		}
		got = append(got, text)
	}
	return got, errors.Join(sc.Err(), sc.Close())
}

// A salted table reads as the same table without salts does, whatever the scan.
func TestScanProperty(t *testing.T) {
	t.Parallel()
	key := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 1, 3)
	bound := rapid.SliceOfN(rapid.SampledFrom([]byte{0, 'a', 'b', 0xff}), 0, 3)
	rapid.Check(t, func(rt *rapid.T) {
		ctx := t.Context()
		e := newEngine(t)
		defer e.Close()
		salt := newSalt(t, rapid.SampledFrom([]int{1, 2, 7, 256}).Draw(rt, "buckets"))
		for i, k := range rapid.SliceOfN(key, 0, 20).Draw(rt, "keys") {
			for name, row := range map[string][]byte{"plain": k, "salted": salt.Append(nil, k)} {
				m := &cell.Mutation{Table: name, Row: row}
				for q := range i%3 + 1 {
					m.Put("f", []byte{'p' + byte(q)}, cell.Timestamp(i), fmt.Append(nil, i))
				}
				if _, err := e.MutateRow(ctx, nil, m); err != nil {
					rt.Fatal(err)
				}
			}
		}
		s := store.Scan{
			Table: "plain",
			Start: bound.Draw(rt, "start"), StartExclusive: rapid.Bool().Draw(rt, "start exclusive"),
			Stop: bound.Draw(rt, "stop"), StopInclusive: rapid.Bool().Draw(rt, "stop inclusive"),
			Reversed: rapid.Bool().Draw(rt, "reversed"),
			Limit:    rapid.IntRange(0, 5).Draw(rt, "limit"),
			Batch:    rapid.IntRange(0, 2).Draw(rt, "batch"),
			Versions: rapid.IntRange(0, 3).Draw(rt, "versions"),

			MaxResultBytes: rapid.SampledFrom([]int{0, 1, 10}).Draw(rt, "max result bytes"),
		}
		if rapid.Bool().Draw(rt, "prefixed") {
			s.Prefix = bound.Draw(rt, "prefix")
		}
		want, err := rows(e.Scan(ctx, &s))
		if err != nil {
			rt.Fatal(err)
		}
		s.Table = "salted"
		got, err := rows(salted.Scan(ctx, e, &s, salt))
		if err != nil {
			rt.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			rt.Fatalf("%+v (-plain +salted):\n%s", s, d)
		}
	})
}

// Rows that somebody salted by a part of their keys, or in two buckets, are merged
// just so.
func TestScanOtherSalts(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	defer e.Close()
	for _, row := range []string{"\x02b", "\x00b", "\x01a", "\x02c", "\x01b"} {
		m := &cell.Mutation{Table: "salted", Row: []byte(row)}
		m.Put("f", []byte("q"), 1, []byte{'0' + row[0]})
		if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		reversed bool
		limit    int
		want     []string
	}{
		{false, 0, []string{`"a" q@1=1`, `"b" q@1=0`, `"b" q@1=1`, `"b" q@1=2`, `"c" q@1=2`}},
		{false, 3, []string{`"a" q@1=1`, `"b" q@1=0`, `"b" q@1=1`}},
		{true, 3, []string{`"c" q@1=2`, `"b" q@1=0`, `"b" q@1=1`}},
	} {
		got, err := rows(salted.Scan(t.Context(), e, &store.Scan{Table: "salted", Reversed: test.reversed, Limit: test.limit}, newSalt(t, 3)))
		if err != nil {
			t.Error(err)
		}
		if d := cmp.Diff(test.want, got); d != "" {
			t.Errorf("reversed %v, limit %d (-want +got):\n%s", test.reversed, test.limit, d)
		}
	}
}

// A snapshot is a Reader: all buckets are of its instant.
func TestScanSnapshot(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	defer e.Close()
	salt := newSalt(t, 4)
	put := func(key string) {
		m := &cell.Mutation{Table: "salted", Row: salt.Append(nil, []byte(key))}
		m.Put("f", []byte("q"), 1, nil)
		if _, err := e.MutateRow(t.Context(), nil, m); err != nil {
			t.Fatal(err)
		}
	}
	put("a")
	snapshot, err := e.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	put("b")
	got, err := rows(salted.Scan(t.Context(), snapshot, &store.Scan{Table: "salted"}, salt))
	if err != nil || len(got) != 1 {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestScanErrors(t *testing.T) {
	t.Parallel()
	e := newEngine(t)
	defer e.Close()
	canceled, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx  context.Context
		scan store.Scan
		want error
	}{
		"no table":       {t.Context(), store.Scan{Table: "nope"}, store.ErrTableNotFound},
		"negative limit": {t.Context(), store.Scan{Table: "salted", Limit: -1}, store.ErrInvalidArgument},
		"long start":     {t.Context(), store.Scan{Table: "salted", Start: make([]byte, cell.MaxRowLength)}, store.ErrInvalidArgument},
		"context":        {canceled, store.Scan{Table: "salted"}, context.Canceled},
	} {
		sc := salted.Scan(test.ctx, e, &test.scan, newSalt(t, 3))
		for range 2 {
			if sc.Next() || sc.Row() != nil || !errors.Is(sc.Err(), test.want) {
				t.Errorf("%s: row %v, error %v", name, sc.Row(), sc.Err())
			}
		}
		if err := sc.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// counting is a Reader of scanners that count themselves, fail after some rows and
// when they are closed.
type counting struct {
	store.Reader
	rows  int // of each bucket; -1 = a row of another prefix
	err   error
	close error
	open  int
}

func (c *counting) Scan(_ context.Context, s *store.Scan) store.Scanner {
	c.open++
	return &countingScanner{c: c, prefix: s.Prefix, left: c.rows}
}

type countingScanner struct {
	c      *counting
	prefix []byte
	left   int
	closed bool
	row    cell.Row
}

func (s *countingScanner) Next() bool {
	switch {
	case s.left < 0:
		s.row.Key = []byte{0xee}
		return true
	case s.left == 0 || s.closed:
		return false
	}
	s.left--
	s.row.Key = append(s.prefix[:1:1], byte(s.c.rows-s.left))
	return true
}

func (s *countingScanner) Row() *cell.Row { return &s.row }
func (s *countingScanner) Err() error     { return s.c.err }

func (s *countingScanner) Close() error {
	if s.closed {
		return nil
	}
	s.closed = true
	s.c.open--
	return s.c.close
}

// Every bucket's scan is closed, wherever the merged one ends, and no error is
// lost.
func TestScanCloses(t *testing.T) {
	t.Parallel()
	errRead, errClose := errors.New("test: read"), errors.New("test: close")
	for name, test := range map[string]struct {
		reader counting
		limit  int
		nexts  int // calls of Next before Close
		rows   int
		err    error
		close  error
	}{
		"before the first row": {reader: counting{rows: 2}},
		"in the middle":        {reader: counting{rows: 2}, nexts: 3, rows: 3},
		"at the limit":         {reader: counting{rows: 2}, limit: 2, nexts: 9, rows: 2},
		"at the end":           {reader: counting{rows: 2}, nexts: 9, rows: 8},
		"an error":             {reader: counting{rows: 2, err: errRead}, nexts: 9, rows: 5, err: errRead},
		"an error at first":    {reader: counting{err: errRead}, nexts: 9, err: errRead},
		"an error of Close":    {reader: counting{rows: 2, close: errClose}, nexts: 1, rows: 1, close: errClose},
		"another row":          {reader: counting{rows: -1}, nexts: 9, err: rowkey.ErrKey},
	} {
		sc := salted.Scan(t.Context(), &test.reader, &store.Scan{Table: "t", Limit: test.limit}, newSalt(t, 4))
		n := 0
		for range test.nexts {
			if sc.Next() {
				n++
			} else if sc.Row() != nil {
				t.Errorf("%s: a row after the last", name)
			}
		}
		if n != test.rows || !errors.Is(sc.Err(), test.err) {
			t.Errorf("%s: %d rows and error %v, want %d and %v", name, n, sc.Err(), test.rows, test.err)
		}
		for range 2 {
			if err := sc.Close(); !errors.Is(err, test.close) {
				t.Errorf("%s: Close: %v, want %v", name, err, test.close)
			}
			test.close = nil
		}
		if sc.Next() || sc.Row() != nil {
			t.Errorf("%s: a row after Close", name)
		}
		if test.reader.open != 0 {
			t.Errorf("%s: %d scans are open", name, test.reader.open)
		}
	}
}
