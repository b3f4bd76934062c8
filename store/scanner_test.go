package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/internal/turns"
)

// listSource yields rows written as "row: a:q@3=v a:q@2=w".
type listSource struct {
	sel    *Selection
	rows   []string
	asked  []string // rows that skip was asked about
	closed int
	err    error // after the rows
}

func (s *listSource) NextRow(skip func([]byte) bool) (*cell.Row, error) {
	for len(s.rows) > 0 {
		key, cells, _ := strings.Cut(s.rows[0], ":")
		s.rows = s.rows[1:]
		if skip != nil {
			s.asked = append(s.asked, key)
			if skip([]byte(key)) {
				if s.sel.Stopped() {
					return nil, nil
				}
				s.seek(s.sel.SeekRow([]byte(key)))
				continue
			}
		}
		row := &cell.Row{Key: []byte(key)}
		for f := range strings.FieldsSeq(cells) {
			family, rest, _ := strings.Cut(f, ":")
			qualifier, rest, _ := strings.Cut(rest, "@")
			var at cell.Timestamp
			var value string
			if _, err := fmt.Sscanf(strings.Replace(rest, "=", " ", 1), "%d %s", &at, &value); err != nil {
				return nil, err
			}
			if s.wants(family, []byte(qualifier), at) {
				row.Cells = append(row.Cells, cell.Cell{Family: family, Qualifier: []byte(qualifier), Time: at, Kind: cell.KindPut, Value: []byte(value)})
			}
		}
		if len(row.Cells) > 0 {
			return row, nil
		}
	}
	return nil, s.err
}

// seek leaves out the rows before next.
func (s *listSource) seek(next []byte) {
	for next != nil && len(s.rows) > 0 {
		if key, _, _ := strings.Cut(s.rows[0], ":"); key < string(next) == s.sel.Reversed() {
			return
		}
		s.rows = s.rows[1:]
	}
}

func (s *listSource) wants(family string, qualifier []byte, at cell.Timestamp) bool {
	for _, sf := range s.sel.Families() {
		if sf.Family.Name == family {
			return sf.Wants(qualifier) && at >= sf.Oldest
		}
	}
	return false
}

func (s *listSource) Close() error {
	s.closed++
	return nil
}

// scanList scans rows and prints what comes out in the same form.
func scanList(t *testing.T, s Scan, rows ...string) (out []string, src *listSource) {
	t.Helper()
	sel, err := NewSelection(&s, testTable(t))
	if err != nil {
		t.Fatal(err)
	}
	src = &listSource{sel: sel, rows: rows}
	sc := NewScanner(t.Context(), sel, src)
	for sc.Next() {
		var b strings.Builder
		fmt.Fprintf(&b, "%s:", sc.Row().Key)
		for _, c := range sc.Row().Cells {
			fmt.Fprintf(&b, " %s:%s@%d=%s", c.Family, c.Qualifier, c.Time, c.Value)
		}
		out = append(out, b.String())
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	if sc.Next() {
		t.Error("Next after the end")
	}
	for range 2 {
		if err := sc.Close(); err != nil {
			t.Error(err)
		}
	}
	if src.closed != 1 {
		t.Errorf("the source was closed %d times", src.closed)
	}
	return out, src
}

func TestScanner(t *testing.T) {
	t.Parallel()
	r1 := "r1: a:p@1=v b:p@3=x b:p@2=y b:p@1=x b:q@1=z"
	r2 := "r2: a:p@1=x"
	r3 := "r3: b:q@9=y"
	is := func(v string) *ValueFilter { return &ValueFilter{Op: Equal, Comparator: Binary([]byte(v))} }
	for _, test := range []struct {
		name string
		scan Scan
		want []string
	}{
		{"all", Scan{}, []string{r1, r2, r3}},
		{"limit", Scan{Limit: 2}, []string{r1, r2}},
		{"batch", Scan{Batch: 2, Limit: 2}, []string{"r1: a:p@1=v b:p@3=x", "r1: b:p@2=y b:p@1=x", "r1: b:q@1=z", r2}},
		{"limit per family", Scan{LimitPerFamily: 2}, []string{"r1: a:p@1=v b:p@3=x b:p@2=y", r2, r3}},
		{"offset per family", Scan{OffsetPerFamily: 1, LimitPerFamily: 1}, []string{"r1: b:p@2=y"}},
		{"older version passes", Scan{Filter: is("y")}, []string{"r1: b:p@2=y", r3}},
		{"versions after the filter", Scan{Filter: is("x"), Versions: 1}, []string{"r1: b:p@3=x", r2}},
		{"all versions after the filter", Scan{Filter: is("x"), Versions: 3}, []string{"r1: b:p@3=x b:p@1=x", r2}},
		{"limit after the filter", Scan{Filter: is("x"), Versions: 3, OffsetPerFamily: 1}, []string{"r1: b:p@1=x"}},
		{"limit counts rows that passed", Scan{Filter: is("y"), Limit: 1}, []string{"r1: b:p@2=y"}},
		{"page", Scan{Filter: &PageFilter{PageSize: 1}, Versions: 3}, []string{r1}},
		{"page of none", Scan{Filter: &PageFilter{}}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, _ := scanList(t, test.scan, r1, r2, r3)
			if d := cmp.Diff(test.want, got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// A scan whose filter is done reads no further row.
func TestScannerStops(t *testing.T) {
	t.Parallel()
	rows := []string{"a: a:q@1=v", "b1: a:q@1=v", "b2: a:q@1=v", "c: a:q@1=v", "d: a:q@1=v"}
	got, src := scanList(t, Scan{Filter: &PrefixFilter{Prefix: []byte("b")}}, rows...)
	if d := cmp.Diff(rows[1:3], got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if d := cmp.Diff([]string{"a", "b1", "b2", "c"}, src.asked); d != "" {
		t.Errorf("rows that the filter saw (-want +got):\n%s", d)
	}
}

func TestScannerErrors(t *testing.T) {
	t.Parallel()
	broken := errors.New("broken")
	newScanner := func(ctx context.Context, s *Scan, src *listSource) Scanner {
		sel, err := NewSelection(s, testTable(t))
		if err != nil {
			t.Fatal(err)
		}
		src.sel = sel
		return NewScanner(ctx, sel, src)
	}
	sc := newScanner(t.Context(), &Scan{}, &listSource{rows: []string{"a: a:q@1=v"}, err: broken})
	if !sc.Next() || sc.Next() || !errors.Is(sc.Err(), broken) || sc.Next() {
		t.Errorf("a row, then %v, want the source's error", sc.Err())
	}

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	skipAll := &RowFilter{Op: Equal, Comparator: Binary([]byte("z"))}
	for _, s := range []*Scan{{}, {Filter: skipAll}} {
		sc = newScanner(ctx, s, &listSource{rows: []string{"a: a:q@1=v"}})
		if sc.Next() || !errors.Is(sc.Err(), context.Canceled) {
			t.Errorf("cancelled: %v, want context.Canceled", sc.Err())
		}
	}
	// Cancelled while rows are skipped: not taken for the end.
	ctx, cancel = context.WithCancel(t.Context())
	sc = newScanner(ctx, &Scan{Filter: filterFunc(func([]byte) bool { cancel(); return true })}, &listSource{rows: []string{"a: a:q@1=v", "b: a:q@1=v"}})
	if sc.Next() || !errors.Is(sc.Err(), context.Canceled) {
		t.Errorf("cancelled amid skipped rows: %v, want context.Canceled", sc.Err())
	}

	sc = FailedScanner(broken)
	if sc.Next() || sc.Row() != nil || sc.Err() != broken || sc.Close() != nil {
		t.Errorf("FailedScanner: %v", sc.Err())
	}
}

// filterFunc is a filter of row keys.
type filterFunc func(row []byte) bool

func (f filterFunc) Start(*Scan) (FilterState, error) { return &filterFuncState{skip: f}, nil }

type filterFuncState struct {
	passAll
	skip filterFunc
}

func (f *filterFuncState) SkipRow(row []byte) bool { return f.skip(row) }

// repeatedSource yields one row again and again, without a look at the scheduler.
type repeatedSource struct {
	row  cell.Row
	rows int
}

func (s *repeatedSource) NextRow(func([]byte) bool) (*cell.Row, error) {
	if s.rows == 0 {
		return nil, nil
	}
	s.rows--
	return &s.row, nil
}

func (s *repeatedSource) Close() error { return nil }

// TestScanYields scans while another goroutine is ready, on one core: that does not wait
// until the scan is preempted, after 10 ms.
func TestScanYields(t *testing.T) { // not parallel: turns.During
	const yields = 100
	src := &repeatedSource{rows: yields * turnSteps}
	src.row = cell.Row{Key: []byte("r"), Cells: []cell.Cell{{Family: "a", Qualifier: []byte("q"), Time: 1, Kind: cell.KindPut}}}
	sel, err := NewSelection(&Scan{}, testTable(t))
	if err != nil {
		t.Fatal(err)
	}
	sc := NewScanner(t.Context(), sel, src)
	defer sc.Close()
	rows := 0
	got := turns.During(func() {
		for sc.Next() {
			rows++
		}
	})
	if err := sc.Err(); err != nil || rows != yields*turnSteps {
		t.Fatalf("Got %d rows, %v", rows, err)
	}
	if got < yields/2 {
		t.Errorf("Another goroutine had %d turns during a scan of %d rows, want about %d", got, rows, yields)
	}
}
