package store

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/cell"
)

// TestCursorProgress: a scan that its context ends is done with the rows that its
// filter has dropped, too, so that a scan with a deadline gets on.
func TestCursorProgress(t *testing.T) {
	t.Parallel()
	d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("a")}}
	for _, f := range []Filter{
		&RowFilter{Op: NotEqual, Comparator: Binary([]byte("d"))}, // dropped unread
		&FilterList{MustPassOne: true, Filters: []Filter{ // shown every row
			&WhileMatchFilter{Filter: &RowFilter{Op: NotEqual, Comparator: Binary([]byte("d"))}}, &RowFilter{Op: NotEqual, Comparator: Binary([]byte("d"))},
		}},
		&ValueFilter{Op: Equal, Comparator: Binary([]byte("v"))}, // dropped cell by cell
	} {
		rows := []string{"a: a:q@1=v", "b: a:q@1=v", "d: a:q@1=w", "e: a:q@1=v"}
		run := func(s *Scan, end string) (got []string, at Cursor) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			sel, err := NewSelection(s, d)
			if err != nil {
				t.Fatal(err)
			}
			src := &listSource{sel: sel}
			for _, r := range rows {
				if sel.Rows().Contains([]byte(r[:1])) {
					src.rows = append(src.rows, r)
				}
			}
			sc := NewScanner(ctx, sel, &endingSource{src, end, cancel})
			for sc.Next() {
				got = append(got, string(sc.Row().Key))
			}
			if end == "" {
				if sc.Err() != nil {
					t.Fatal(sc.Err())
				}
			} else if !errors.Is(sc.Err(), context.Canceled) {
				t.Fatalf("%T: Got %v, want a scan that its context has ended", f, sc.Err())
			}
			if at, err = CursorOf(sc); err != nil {
				t.Fatal(err)
			}
			return got, at
		}
		s := &Scan{Table: "t", Filter: f, NeedCursor: true}
		whole, _ := run(s, "")
		got, at := run(s, "e")
		p, err := decodeCursor(at)
		if err != nil {
			t.Fatal(err)
		}
		if string(p.row) != "d" || at.End() {
			t.Errorf("%T: the cursor is after row %q, want d", f, p.row)
		}
		s.Cursor = at
		rest, _ := run(s, "")
		if d := cmp.Diff(whole, append(got, rest...)); d != "" {
			t.Errorf("%T: (-whole +parts):\n%s", f, d)
		}
	}
}

// endingSource ends a context before it gives the row with this key.
type endingSource struct {
	*listSource
	end    string
	cancel func()
}

func (s *endingSource) NextRow(skip func([]byte) bool) (*cell.Row, error) {
	if len(s.rows) > 0 && s.rows[0][:1] == s.end {
		s.cancel()
		return nil, context.Canceled
	}
	if s.end == "" || skip == nil {
		return s.listSource.NextRow(skip)
	}
	return s.listSource.NextRow(func(row []byte) bool {
		if string(row) == s.end {
			s.cancel()
		}
		return skip(row)
	})
}

func samePlace(want, got *place) string {
	return cmp.Diff(want, got, cmp.AllowUnexported(place{}), cmpopts.EquateEmpty())
}

func TestCursorEncoding(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, 9)
		p := &place{
			scan: rapid.Uint64().Draw(t, "scan"), ended: rapid.Bool().Draw(t, "ended"), rows: rapid.IntRange(0, math.MaxInt).Draw(t, "rows"),
			row: text.Draw(t, "row"), filter: text.Draw(t, "filter"),
		}
		if p.part = len(p.row) > 0 && rapid.Bool().Draw(t, "part"); p.part {
			p.last = cell.Cell{
				Family: string(text.Draw(t, "family")), Qualifier: text.Draw(t, "qualifier"),
				Time: cell.Timestamp(rapid.Int64Range(0, math.MaxInt64).Draw(t, "time")), Kind: cell.KindPut,
			}
		}
		c := p.encode()
		got, err := decodeCursor(c)
		if err != nil {
			t.Fatal(err)
		}
		if got.encode() != c || c.End() != p.ended {
			t.Fatalf("Got %+v of %+v", got, p)
		}
		if d := samePlace(p, got); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
	})
}

// FuzzCursor: any text is refused, or is a place that a scan can begin at and that
// is written as it was read. The bytes are given a checksum, so that they are looked
// at.
func FuzzCursor(f *testing.F) {
	for _, p := range []*place{{}, {ended: true, rows: 7, row: []byte("r")}, {row: []byte("r"), part: true, last: cell.Cell{Family: "f", Qualifier: []byte("q"), Time: 5, Kind: cell.KindPut}, filter: []byte{1, 1, 2}}} {
		b, err := base64.RawURLEncoding.DecodeString(string(p.encode()))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:len(b)-4])
	}
	d := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = decodeCursor(Cursor(b))
		b = binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
		p, err := decodeCursor(Cursor(base64.RawURLEncoding.EncodeToString(b)))
		if err != nil {
			if !errors.Is(err, ErrInvalidArgument) {
				t.Fatal(err)
			}
			return
		}
		again, err := decodeCursor(p.encode())
		if err != nil {
			t.Fatal(err)
		}
		if d := samePlace(p, again); d != "" {
			t.Fatalf("(-want +got):\n%s", d)
		}
		for _, s := range []*Scan{{Table: "t"}, {Table: "t", Reversed: true, Filter: &FilterList{Filters: []Filter{&PageFilter{PageSize: 3}, &WhileMatchFilter{Filter: &ColumnCountGetFilter{Limit: 1}}}}}} {
			if p.scan, err = fingerprint(s); err != nil {
				t.Fatal(err)
			}
			s.Cursor = p.encode()
			sel, err := NewSelection(s, d)
			if err != nil {
				if !errors.Is(err, ErrInvalidArgument) {
					t.Fatal(err)
				}
				continue
			}
			sc := NewScanner(t.Context(), sel, &listSource{sel: sel})
			if sc.Next() || sc.Err() != nil {
				t.Fatalf("a scan of nothing: %v", sc.Err())
			}
		}
	})
}
