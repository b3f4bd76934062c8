package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
)

func number(n int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// noRead fails t when it is called.
func noRead(t *testing.T) ReadRow {
	return func(s *Scan) ([]cell.Cell, error) {
		t.Errorf("read %+v", s)
		return nil, nil
	}
}

// reads returns a row's cells by what is asked for: columns, versions.
func reads(t *testing.T, cells ...cell.Cell) ReadRow {
	return func(s *Scan) ([]cell.Cell, error) {
		if s.Table != "t" || string(s.Start) != "r" || string(s.Stop) != "r" || !s.StopInclusive {
			t.Errorf("read of %s %q..%q", s.Table, s.Start, s.Stop)
		}
		var got []cell.Cell
		count := map[string]int{}
		for _, c := range cells {
			wanted := len(s.Columns) == 0
			for _, col := range s.Columns {
				wanted = wanted || col.Family == c.Family && bytes.Equal(col.Qualifier, c.Qualifier)
			}
			key := c.Family + ":" + string(c.Qualifier)
			if wanted && (s.Time == nil || s.Time.Contains(c.Time)) && count[key] < max(s.Versions, 1) {
				count[key]++
				got = append(got, c)
			}
		}
		return got, nil
	}
}

func put(family, qualifier string, at cell.Timestamp, value string) cell.Cell {
	return cell.Cell{Family: family, Qualifier: []byte(qualifier), Time: at, Kind: cell.KindPut, Value: []byte(value)}
}

func TestValidateMutation(t *testing.T) {
	t.Parallel()
	const now = 1000
	mutation := func(ops ...cell.Op) *cell.Mutation { return &cell.Mutation{Table: "t", Row: []byte("r"), Ops: ops} }
	counter := func(op cell.Op) *cell.Mutation { op.Family = "c"; return mutation(op) }
	for _, test := range []struct {
		name string
		m    *cell.Mutation
		want error
	}{
		{"put", mutation(cell.Op{Type: cell.OpPut, Family: "a", Time: cell.Latest}), nil},
		{"empty row", &cell.Mutation{Ops: []cell.Op{{Type: cell.OpDeleteRow}}}, ErrInvalidArgument},
		{"empty row, by cell's name", &cell.Mutation{Ops: []cell.Op{{Type: cell.OpDeleteRow}}}, cell.ErrRowEmpty},
		{"long row", &cell.Mutation{Row: make([]byte, cell.MaxRowLength+1), Ops: []cell.Op{{Type: cell.OpDeleteRow}}}, cell.ErrRowTooLong},
		{"longest row", &cell.Mutation{Row: make([]byte, cell.MaxRowLength), Ops: []cell.Op{{Type: cell.OpDeleteRow}}}, nil},
		{"no ops", mutation(), ErrInvalidArgument},
		{"unknown op", mutation(cell.Op{Type: 99, Family: "a"}), ErrInvalidArgument},
		{"family", mutation(cell.Op{Type: cell.OpPut, Family: "a"}, cell.Op{Type: cell.OpPut, Family: "x"}), ErrFamilyNotFound},
		{"negative time", mutation(cell.Op{Type: cell.OpDeleteColumn, Family: "a", Time: -1}), ErrInvalidArgument},
		{"negative time of a row", mutation(cell.Op{Type: cell.OpDeleteRow, Time: -1}), ErrInvalidArgument},
		{"negative ttl", mutation(cell.Op{Type: cell.OpPut, Family: "a", TTL: -2}), ErrInvalidArgument},
		{"ttl of a delete", mutation(cell.Op{Type: cell.OpDeleteFamily, Family: "a", TTL: 1}), ErrInvalidArgument},
		{"ttl of a row delete", mutation(cell.Op{Type: cell.OpDeleteRow, TTL: 1}), ErrInvalidArgument},
		{"read range", &cell.Mutation{Row: []byte("r"), Read: &cell.TimeRange{Min: 2, Max: 1}, Ops: []cell.Op{{Type: cell.OpIncrement, Family: "a"}}}, ErrInvalidArgument},
		{"largest cell", mutation(cell.Op{Type: cell.OpPut, Family: "a", Value: make([]byte, 100-20-2)}), nil},
		{"too large", mutation(cell.Op{Type: cell.OpPut, Family: "a", Value: make([]byte, 100-20-1)}), ErrCellTooLarge},
		{"slop", mutation(cell.Op{Type: cell.OpPut, Family: "a", Time: now + 51}), ErrTimestampTooFar},
		{"within the slop", mutation(cell.Op{Type: cell.OpPut, Family: "a", Time: now + 50}), nil},
		{"slop is for puts", mutation(cell.Op{Type: cell.OpDeleteColumn, Family: "a", Time: now + 51}), nil},
		{"count", counter(cell.Op{Type: cell.OpIncrement, Time: 7}), nil},
		{"count for a time", counter(cell.Op{Type: cell.OpIncrement, TTL: 7}), ErrRefused},
		{"delete a counter", counter(cell.Op{Type: cell.OpDeleteColumn}), nil},
		{"delete a counter family", counter(cell.Op{Type: cell.OpDeleteFamily}), nil},
		{"put a counter", counter(cell.Op{Type: cell.OpPut}), ErrRefused},
		{"append to a counter", counter(cell.Op{Type: cell.OpAppend}), ErrRefused},
		{"delete a counter's version", counter(cell.Op{Type: cell.OpDelete}), ErrRefused},
		{"delete counters of a time", counter(cell.Op{Type: cell.OpDeleteFamilyVersion}), ErrRefused},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			d := testTable(t)
			d.MaxCellBytes, d.MaxTimestampSlop = 100, 50
			if len(test.m.Row) > 100 {
				d.MaxCellBytes = 0
			}
			if err := ValidateMutation(d, test.m, now); !errors.Is(err, test.want) {
				t.Errorf("ValidateMutation: %v, want %v", err, test.want)
			}
			d.ReadOnly = true
			if err := ValidateMutation(d, test.m, now); err == nil {
				t.Error("a read-only table takes it")
			}
		})
	}
}

func TestResolveMutation(t *testing.T) {
	t.Parallel()
	const now = 1000
	marker := func(k cell.Kind, family, qualifier string, at cell.Timestamp) cell.Cell {
		c := cell.Cell{Family: family, Time: at, Kind: k}
		if k == cell.KindDelete || k == cell.KindDeleteColumn {
			c.Qualifier = []byte(qualifier)
		}
		return c
	}
	stored := []cell.Cell{put("a", "n", 990, string(number(5))), put("a", "s", 2000, "old"), put("b", "q", 30, "3"), put("b", "q", 20, "2"), put("b", "q", 10, "1")}
	stored[0].TTL = 77
	for _, test := range []struct {
		name          string
		build         func(m *cell.Mutation)
		write, result []cell.Cell
	}{
		{name: "puts", build: func(m *cell.Mutation) {
			m.Put("b", []byte("x"), cell.Latest, []byte("1"))
			m.Put("a", []byte("y"), 5, []byte("2"))
			m.Ops[1].TTL = 9
		}, write: []cell.Cell{put("b", "x", 1500, "1"), {Family: "a", Qualifier: []byte("y"), Time: 5, Kind: cell.KindPut, Value: []byte("2"), TTL: 9}}},
		{name: "markers", build: func(m *cell.Mutation) {
			m.DeleteColumn("a", []byte("x"), cell.Latest)
			m.DeleteFamilyVersion("b", 7)
			m.DeleteRow(8) // COUNTER families are the engine's
		}, write: []cell.Cell{
			marker(cell.KindDeleteColumn, "a", "x", now), marker(cell.KindDeleteFamilyVersion, "b", "", 7),
			marker(cell.KindDeleteFamily, "a", "", 8), marker(cell.KindDeleteFamily, "b", "", 8), marker(cell.KindDeleteFamily, "n", "", 8),
		}},
		{name: "the newest versions", build: func(m *cell.Mutation) {
			for range 4 {
				m.Delete("b", []byte("q"), cell.Latest)
			}
			m.Delete("b", []byte("q"), 3)
			m.Delete("b", []byte("none"), cell.Latest)
		}, write: []cell.Cell{
			marker(cell.KindDelete, "b", "q", 30), marker(cell.KindDelete, "b", "q", 20), marker(cell.KindDelete, "b", "q", 10), marker(cell.KindDelete, "b", "q", now),
			marker(cell.KindDelete, "b", "q", 3), marker(cell.KindDelete, "b", "none", now),
		}},
		{
			name: "increment", build: func(m *cell.Mutation) {
				m.Increment("b", []byte("new"), 3)
				m.Increment("a", []byte("n"), 2)
				m.Increment("c", []byte("counter"), 2)
			}, write: []cell.Cell{put("b", "new", now, string(number(3))), withTTL(put("a", "n", now, string(number(7))), 77)},
			result: []cell.Cell{withTTL(put("a", "n", now, string(number(7))), 77), put("b", "new", now, string(number(3)))},
		},
		{
			name: "own time only where it is absent", build: func(m *cell.Mutation) {
				m.Increment("a", []byte("n"), 2)
				m.Increment("a", []byte("new"), 2)
				m.Ops[0].Time, m.Ops[1].Time, m.Ops[0].TTL = 4, 4, 5
			}, write: []cell.Cell{withTTL(put("a", "n", now, string(number(7))), 5), put("a", "new", 4, string(number(2)))},
			result: []cell.Cell{withTTL(put("a", "n", now, string(number(7))), 5), put("a", "new", 4, string(number(2)))},
		},
		{
			name: "append after a later base", build: func(m *cell.Mutation) { m.Append("a", []byte("s"), []byte("+")) },
			write: []cell.Cell{put("a", "s", 2001, "old+")}, result: []cell.Cell{put("a", "s", 2001, "old+")},
		},
		{
			name: "one base for all", build: func(m *cell.Mutation) {
				m.Put("a", []byte("n"), cell.Latest, []byte("not seen"))
				m.Increment("a", []byte("n"), 1)
				m.Increment("a", []byte("n"), 2)
			}, write: []cell.Cell{put("a", "n", 1500, "not seen"), withTTL(put("a", "n", now, string(number(6))), 77), withTTL(put("a", "n", now, string(number(7))), 77)},
			result: []cell.Cell{withTTL(put("a", "n", now, string(number(7))), 77)},
		},
		{name: "a base in a time range", build: func(m *cell.Mutation) {
			m.Append("b", []byte("q"), []byte("+"))
			m.Read = &cell.TimeRange{Min: 0, Max: 15}
		}, write: []cell.Cell{put("b", "q", now, "1+")}, result: []cell.Cell{put("b", "q", now, "1+")}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			m := &cell.Mutation{Table: "t", Row: []byte("r")}
			test.build(m)
			before := put("a", "before", 1, "v")
			write, result, err := AppendResolved([]cell.Cell{before}, testTable(t), m, now, 1500, reads(t, stored...))
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(append([]cell.Cell{before}, test.write...), write); d != "" {
				t.Errorf("write (-want +got):\n%s", d)
			}
			if d := cmp.Diff(test.result, result); d != "" {
				t.Errorf("result (-want +got):\n%s", d)
			}
		})
	}
}

func withTTL(c cell.Cell, ttl int64) cell.Cell {
	c.TTL = ttl
	return c
}

func TestResolveMutationErrors(t *testing.T) {
	t.Parallel()
	d := testTable(t)
	d.MaxCellBytes = 60
	m := &cell.Mutation{Table: "t", Row: []byte("r")}
	m.Put("a", nil, 1, nil)
	m.Increment("a", []byte("s"), 1)
	if write, _, err := ResolveMutation(d, m, 9, reads(t, put("a", "s", 1, "text"))); !errors.Is(err, ErrNotANumber) || !errors.Is(err, ErrRefused) || len(write) != 0 {
		t.Errorf("increment of text: %v, %v", write, err)
	}
	m.Ops = nil
	m.Append("a", []byte("s"), []byte("x"))
	if _, _, err := ResolveMutation(d, m, 9, reads(t, put("a", "s", 1, strings.Repeat("y", 37)))); !errors.Is(err, ErrCellTooLarge) {
		t.Errorf("append beyond the cell size: %v", err)
	}
	broken := errors.New("broken")
	if _, _, err := ResolveMutation(d, m, 9, func(*Scan) ([]cell.Cell, error) { return nil, broken }); !errors.Is(err, broken) {
		t.Errorf("a failed read: %v", err)
	}
	m.Ops = nil
	m.Increment("a", []byte("s"), 1)
	write, _, err := ResolveMutation(d, m, 9, reads(t, put("a", "s", math.MaxInt64-1, string(number(1)))))
	if err != nil || write[0].Time != math.MaxInt64-1 {
		t.Errorf("increment at the end of time: %v, %v, want a time that is not Latest", write, err)
	}
}

// Puts are the hot path of every ingest: no allocation but the output.
func TestResolveMutationAllocates(t *testing.T) {
	d, m := testTable(t), &cell.Mutation{Table: "t", Row: []byte("r")}
	for _, q := range []string{"p", "q", "r"} {
		m.Put("a", []byte(q), cell.Latest, []byte("value"))
	}
	read := noRead(t)
	dst := make([]cell.Cell, 0, 8)
	for name, test := range map[string]struct {
		run  func()
		most float64
	}{
		"ValidateMutation": {func() {
			if err := ValidateMutation(d, m, 1); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"AppendResolved": {func() {
			if _, _, err := AppendResolved(dst, d, m, 1, 1, read); err != nil {
				t.Fatal(err)
			}
		}, 0},
		"ResolveMutation": {func() {
			if _, _, err := ResolveMutation(d, m, 1, read); err != nil {
				t.Fatal(err)
			}
		}, 1},
	} {
		if n := testing.AllocsPerRun(100, test.run); n > test.most {
			t.Errorf("%s allocates %v times, at most %v", name, n, test.most)
		}
	}
}

// However many newest versions a mutation deletes, each cell of the row is read twice at
// most: the commit loop waits for it.
func TestResolveManyDeletes(t *testing.T) {
	t.Parallel()
	const n = 3000
	table := &TableDescriptor{Name: "t", Families: []FamilyDescriptor{NewFamily("f")}}
	m := &cell.Mutation{Table: "t", Row: []byte("r")}
	var stored []cell.Cell
	for i := range n {
		m.Delete("f", []byte("hot"), cell.Latest)
		m.Delete("f", fmt.Appendf(nil, "q%04d", i), cell.Latest)
		stored = append(stored, put("f", "hot", cell.Timestamp(n-i), ""))
	}
	for i := range n {
		stored = append(stored, put("f", fmt.Sprintf("q%04d", i), cell.Timestamp(i+1), ""))
	}
	calls, got := 0, 0
	write, _, err := ResolveMutation(table, m, 1e6, func(s *Scan) ([]cell.Cell, error) {
		calls++
		cells := stored[:n]
		if s.Versions < 2 {
			cells = stored[n-1:]
		} else if s.Versions < n {
			cells = stored[:s.Versions]
		}
		got += len(cells)
		return cells, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if calls > 2 || got > 2*len(stored) {
		t.Errorf("Got %d cells in %d reads of a row of %d", got, calls, len(stored))
	}
	for i := range write {
		want := cell.Timestamp(i/2 + 1)
		if i%2 == 0 {
			want = cell.Timestamp(n - i/2)
		}
		if write[i].Time != want || write[i].Kind != cell.KindDelete {
			t.Fatalf("Got %v of the delete %d, want time %d", write[i], i, want)
		}
	}
}

func TestCheckCondition(t *testing.T) {
	t.Parallel()
	read := reads(t, put("a", "empty", 7, ""), put("a", "m", 8, "mm"))
	any := &ValueFilter{Op: Equal, Comparator: Binary([]byte("mm"))}
	none := &ValueFilter{Op: Equal, Comparator: Binary([]byte("zz"))}
	filtered := func(s *Scan) ([]cell.Cell, error) { // what an engine's read does
		if s.Filter == Filter(any) {
			return []cell.Cell{put("a", "m", 8, "mm")}, nil
		}
		return nil, nil
	}
	cond := func(q string, op CompareOp, value string) *Cond {
		c := &Cond{Family: "a", Qualifier: []byte(q), Op: op}
		if value != "nil" {
			c.Value = []byte(value)
		}
		return c
	}
	for _, test := range []struct {
		name   string
		cond   *Cond
		read   ReadRow
		holds  bool
		tested cell.Timestamp
	}{
		{"none", nil, noRead(t), true, 0},
		{"absent = nil", cond("x", Equal, "nil"), read, true, 0},
		{"absent < nil", cond("x", Less, "nil"), read, true, 0},
		{"absent != nil", cond("x", NotEqual, "nil"), read, false, 0},
		{"absent = empty", cond("x", Equal, ""), read, true, 0},
		{"absent != v", cond("x", NotEqual, "v"), read, false, 0},
		{"absent = v", cond("x", Equal, "v"), read, false, 0},
		{"empty = nil", cond("empty", Equal, "nil"), read, true, 7},
		{"empty > nil", cond("empty", Greater, "nil"), read, true, 7},
		{"empty != nil", cond("empty", NotEqual, "nil"), read, false, 7},
		{"mm = nil", cond("m", Equal, "nil"), read, false, 8},
		{"mm != nil", cond("m", NotEqual, "nil"), read, true, 8},
		{"mm = mm", cond("m", Equal, "mm"), read, true, 8},
		{"expected zz > stored mm", cond("m", Greater, "zz"), read, true, 8},
		{"expected zz < stored mm", cond("m", Less, "zz"), read, false, 8},
		{"expected aa < stored mm", cond("m", Less, "aa"), read, true, 8},
		{"expected mm <= stored mm", cond("m", LessOrEqual, "mm"), read, true, 8},
		{"expected mm >= stored mm", cond("m", GreaterOrEqual, "mm"), read, true, 8},
		{"filter", &Cond{Filter: any}, filtered, true, 8},
		{"filter of none", &Cond{Filter: none}, filtered, false, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			holds, tested, err := CheckCondition(testTable(t), []byte("r"), test.cond, test.read)
			if err != nil || holds != test.holds || tested != test.tested {
				t.Errorf("CheckCondition = %v, %d, %v, want %v, %d", holds, tested, err, test.holds, test.tested)
			}
		})
	}
	for _, test := range []struct {
		name string
		row  string
		cond *Cond
		want error
	}{
		{"family", "r", &Cond{Family: "x", Op: Equal}, ErrFamilyNotFound},
		{"operator", "r", &Cond{Family: "a"}, ErrInvalidArgument},
		{"no operator", "r", &Cond{Family: "a", Op: NoOp}, ErrInvalidArgument},
		{"row", "", &Cond{Family: "a", Op: Equal}, ErrInvalidArgument},
	} {
		if _, _, err := CheckCondition(testTable(t), []byte(test.row), test.cond, noRead(t)); !errors.Is(err, test.want) {
			t.Errorf("%s: %v, want %v", test.name, err, test.want)
		}
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	f := NewFamily("f")
	if f.Expired(0, math.MaxInt64) {
		t.Error("a cell of a family without TTL expired")
	}
	f.TTL = 10
	for _, test := range []struct {
		got, want bool
	}{
		{f.Expired(90_000, 100_000), false},
		{f.Expired(89_999, 100_000), true},
		{f.Expired(200_000, 100_000), false},
		{CellExpired(100, 0, math.MaxInt64), false},
		{CellExpired(100, 50, 150), false},
		{CellExpired(100, 50, 151), true},
		{CellExpired(100, math.MaxInt64, math.MaxInt64), false},
		{CellExpired(200, 50, 100), false},
	} {
		if test.got != test.want {
			t.Errorf("%+v", test)
		}
	}
}

func TestBatchInOrder(t *testing.T) {
	t.Parallel()
	var b Batch
	for _, offset := range []int64{-1, 2, 2, 5} {
		b.Add(offset, cell.Mutation{Row: []byte{'m'}})
	}
	for _, offset := range []int64{1, 2, 7} {
		b.Record(offset, nil, nil)
	}
	for _, offset := range []int64{0, 2, 3, 8, 9} {
		b.Puts = append(b.Puts, PackedPut{Offset: offset})
	}
	var got []int64
	b.InOrder(func(p *PackedPut) { got = append(got, 200+p.Offset) }, func(m *Mutation) { got = append(got, m.Offset) }, func(r *Record) { got = append(got, 100+r.Offset) })
	if d := cmp.Diff([]int64{-1, 200, 101, 202, 2, 2, 102, 203, 5, 107, 208, 209}, got); d != "" {
		t.Errorf("order, records + 100, puts + 200 (-want +got):\n%s", d)
	}
	if b.Empty() {
		t.Error("the batch is empty")
	}
	if b.Reset(); !b.Empty() {
		t.Errorf("after Reset: %+v", b)
	}
}
