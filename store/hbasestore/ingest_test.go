package hbasestore

import (
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/store"
)

var views = store.Source{Pipeline: "views", Topic: "pageviews", ClusterID: "c", TopicID: [16]byte{7}}

// createCounted makes table "c" with a COUNTER family n and an ordinary one f.
func createCounted(t *testing.T, s *Store) {
	t.Helper()
	n := store.NewFamily("n")
	n.Counter = true
	d := &store.TableDescriptor{Name: "c", Families: []store.FamilyDescriptor{store.NewFamily("f"), n, store.NewFamily("z")}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("m")}); err != nil {
		t.Fatal(err)
	}
}

// A counter that a mutation increments twice has both, which HBase would not add up; of a
// column of another family there is one cell, the last, as in the embedded engine.
func TestIncrementTwice(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	m := &cell.Mutation{Table: "c", Row: []byte("a")}
	for _, family := range []string{"n", "f"} {
		for _, n := range []int64{1, 10, 100} {
			m.Increment(family, []byte("x"), n)
			m.Increment(family, []byte("y"), 1)
		}
	}
	want := []string{"f:x = 100", "f:y = 1", "n:x = 111", "n:y = 3"}
	res, err := s.MutateRow(t.Context(), nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range res.Cells {
		if len(c.Value) != 8 {
			t.Fatalf("Got %s:%s = %q", c.Family, c.Qualifier, c.Value)
		}
		got = append(got, fmt.Sprintf("%s:%s = %d", c.Family, c.Qualifier, binary.BigEndian.Uint64(c.Value)))
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m = &cell.Mutation{Table: "c", Row: []byte("b")}
	m.Append("f", []byte("x"), []byte("1"))
	m.Append("f", []byte("x"), []byte("2"))
	if res, err = s.MutateRow(t.Context(), nil, m); err != nil || len(res.Cells) != 1 || string(res.Cells[0].Value) != "2" {
		t.Errorf("Got %+v, %v of two appends to a column, want the last one's", res.Cells, err)
	}
}

// increments is a batch of partition n that goes on at from, an increment of 1 of
// "n:<column>" in row a record, with a put beside it.
func increments(n int32, from int64, version string, keys ...[2]string) *store.Batch {
	b := &store.Batch{}
	at := max(from, 0)
	for i, k := range keys {
		o := at + int64(i)
		m := cell.Mutation{Table: "c", Row: []byte(k[0])}
		m.Put("f", fmt.Append(nil, o), cell.Timestamp(100+o), []byte("v"))
		b.Add(o, m)
		b.Counters = append(b.Counters, store.CounterDelta{Table: "c", Family: "n", Row: []byte(k[0]), Qualifier: []byte(k[1]), Delta: 1, Time: cell.Timestamp(1000 + o), Offset: o})
	}
	next := at + int64(len(keys))
	b.Advance(views, n, from, store.Progress{Next: next, Applied: next, LastOffset: next - 1, LeaderEpoch: -1, MappingVersion: version})
	return b
}

// sums reads counters as "row column = count @ time".
func sums(t *testing.T, s *Store, scan *store.Scan) []string {
	t.Helper()
	scan.Table = "c"
	sc := s.Scan(t.Context(), scan)
	defer sc.Close()
	var out []string
	for sc.Next() {
		row := sc.Row()
		for _, c := range row.Cells {
			if c.Family == "n" {
				out = append(out, fmt.Sprintf("%s %s = %d @ %d", row.Key, c.Qualifier, int64(binary.BigEndian.Uint64(c.Value)), c.Time))
			} else {
				out = append(out, fmt.Sprintf("%s %s:%s", row.Key, c.Family, c.Qualifier))
			}
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestIngestCounts (I2): partitions of a source, processes after another, and the API
// count in one column, which a read adds up.
func TestIngestCounts(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	ctx := t.Context()
	apply := func(s *Store, b *store.Batch) {
		t.Helper()
		if err := s.Apply(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	zero := "a\x00" // a column is no prefix of another one
	apply(s, increments(0, store.Absent, "m1", [2]string{"r", "a"}, [2]string{"r", "b"}, [2]string{"r", "a"}, [2]string{"x", zero}))
	b := increments(0, 4, "m1", [2]string{"r", "a"}, [2]string{"x", "a"})
	b.Counters[0].Table = "default:c"
	apply(s, b)
	if err := s.Apply(ctx, increments(0, 4, "m1", [2]string{"r", "a"})); !errors.Is(err, store.ErrStale) {
		t.Errorf("a replay: Got %v, want ErrStale", err)
	}
	other := dial(t, func(o *Options) { o.CounterCache = 1 }, g)
	b = increments(0, 6, "m2", [2]string{"r", "a"}, [2]string{"y", "a"}, [2]string{"y", "a"})
	b.Counters[1].Table = "default:c" // the same counter as the next
	apply(other, b)
	apply(other, increments(1, store.Absent, "m2", [2]string{"r", "b"}))
	want := []string{"r a = 4 @ 1006", "r b = 2 @ 1001", "x a = 1 @ 1005", "x " + zero + " = 1 @ 1003", "y a = 2 @ 1008"}
	counters := []store.Column{{Family: "n", All: true}}
	for name, s := range map[string]*Store{"this process": s, "another": other} {
		if d := cmp.Diff(want, sums(t, s, &store.Scan{Columns: counters})); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}

	m := &cell.Mutation{Table: "c", Row: []byte("r")}
	m.Increment("n", []byte("b"), 5)
	m.Increment("n", []byte("new"), -1)
	res, err := s.MutateRow(ctx, nil, m)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range res.Cells {
		got = append(got, fmt.Sprintf("%s:%s = %d", c.Family, c.Qualifier, int64(binary.BigEndian.Uint64(c.Value))))
	}
	if d := cmp.Diff([]string{"n:b = 7", "n:new = -1"}, got); d != "" {
		t.Errorf("increment (-want +got):\n%s", d)
	}

	for name, test := range map[string]struct {
		scan *store.Scan
		want []string
	}{
		"columns":        {&store.Scan{Columns: []store.Column{{Family: "n", Qualifier: []byte("a")}, {Family: "n", Qualifier: []byte("c")}}}, []string{"r a = 4 @ 1006", "x a = 1 @ 1005", "y a = 2 @ 1008"}},
		"beside others":  {&store.Scan{Start: []byte("x"), Stop: []byte("y"), Columns: []store.Column{{Family: "f", Qualifier: []byte("5")}, {Family: "n", Qualifier: []byte("a")}}}, []string{"x f:5", "x a = 1 @ 1005"}},
		"all families":   {&store.Scan{Start: []byte("x"), Stop: []byte("y")}, []string{"x f:3", "x f:5", "x a = 1 @ 1005", "x " + zero + " = 1 @ 1003"}},
		"time range":     {&store.Scan{Start: []byte("x"), Stop: []byte("y"), Time: &cell.TimeRange{Min: 1004, Max: 1006}}, []string{"x a = 1 @ 1005"}},
		"limit":          {&store.Scan{Columns: counters, Limit: 1, Reversed: true}, []string{"y a = 2 @ 1008"}},
		"batch":          {&store.Scan{Columns: counters, Start: []byte("x"), Stop: []byte("y"), Batch: 1}, []string{"x a = 1 @ 1005", "x " + zero + " = 1 @ 1003"}},
		"value filter":   {&store.Scan{Columns: counters, Filter: &store.ValueFilter{Op: store.Equal, Comparator: store.Binary(binary.BigEndian.AppendUint64(nil, 4))}}, []string{"r a = 4 @ 1006"}},
		"column filter":  {&store.Scan{Filter: &store.FilterList{Filters: []store.Filter{&store.PrefixFilter{Prefix: []byte("x")}, &store.ColumnPrefixFilter{Prefix: []byte("a")}}}}, []string{"x a = 1 @ 1005", "x " + zero + " = 1 @ 1003"}},
		"no such column": {&store.Scan{Columns: []store.Column{{Family: "n", Qualifier: []byte("c")}}}, nil},
	} {
		if d := cmp.Diff(test.want, sums(t, s, test.scan)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	sc := s.Scan(ctx, &store.Scan{Table: "c", Raw: true})
	if sc.Next() || !errors.Is(sc.Err(), store.ErrUnsupported) {
		t.Errorf("a raw scan: Got %v, want ErrUnsupported", sc.Err())
	}
	sc.Close()
	all, err := store.AllProgress(ctx, s)
	if err != nil || len(all) != 2 || all[0].Progress.Next != 9 || all[0].Progress.MappingVersion != "m2" || all[1].Progress.Next != 1 {
		t.Errorf("Got the progress %+v, %v", all, err)
	}
}

// losesReplies has run apply batches on a store of its own for each method, of whose calls
// lose(n) has the next n lose their connection, before they are done or after.
func losesReplies(t *testing.T, methods []string, run func(t *testing.T, s *Store, lose func(n int))) {
	t.Parallel()
	for _, method := range methods {
		for name, f := range map[string]fault{"before": {dropBefore: true}, "after": {dropAfter: true}} {
			t.Run(method+" "+name, func(t *testing.T) {
				t.Parallel()
				g := newGateway(t, nil, false)
				run(t, dial(t, nil, g), func(n int) { g.first(n, method, f) })
			})
		}
	}
}

// TestIngestLosesReplies (I2): whatever call's connection ends, and whether it was
// done or not, a batch is applied once.
func TestIngestLosesReplies(t *testing.T) {
	losesReplies(t, []string{"checkAndMutate", "getMultiple", "put", "putMultiple", "increment"}, func(t *testing.T, s *Store, lose func(n int)) {
		createCounted(t, s)
		from := store.Absent
		for i := range 4 {
			lose(i)
			b := increments(0, from, "m1", [2]string{"r", "a"}, [2]string{"r", "b"}, [2]string{"x", "a"})
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			from = b.Advances[0].Progress.Next
		}
		want := []string{"r a = 4 @ 1009", "r b = 4 @ 1010", "x a = 4 @ 1011"}
		if d := cmp.Diff(want, sums(t, s, &store.Scan{Columns: []store.Column{{Family: "n", All: true}}})); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
}

// A record that the store does not take is named, and nothing of its batch is there.
func TestIngestRefuses(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	ctx := t.Context()
	for name, test := range map[string]struct {
		spoil func(b *store.Batch)
		want  error
		names int64 // the record; -1 = none, the batch as a whole
	}{
		"no such table":      {func(b *store.Batch) { b.Counters[1].Table = "u" }, store.ErrTableNotFound, 1},
		"no such family":     {func(b *store.Batch) { b.Mutations[1].Ops[0].Family = "u" }, store.ErrFamilyNotFound, 1},
		"not a counter":      {func(b *store.Batch) { b.Counters[1].Family = "f" }, store.ErrRefused, 1},
		"empty row":          {func(b *store.Batch) { b.Counters[1].Row = nil }, store.ErrInvalidArgument, 1},
		"the store's clock":  {func(b *store.Batch) { b.Mutations[1].Ops[0].Time = cell.Latest }, store.ErrUnsupported, -1},
		"append":             {func(b *store.Batch) { b.Mutations[1].Ops[0].Type = cell.OpAppend }, store.ErrUnsupported, -1},
		"row with counters":  {func(b *store.Batch) { b.Mutations[1].Ops = nil; b.Mutations[1].DeleteRow(5) }, store.ErrUnsupported, -1},
		"counter":            {func(b *store.Batch) { b.Mutations[1].Ops = nil; b.Mutations[1].DeleteColumn("n", []byte("a"), 5) }, store.ErrUnsupported, -1},
		"put of a counter":   {func(b *store.Batch) { b.Mutations[1].Ops[0].Family = "n" }, store.ErrRefused, 1},
		"beyond the batch":   {func(b *store.Batch) { b.Counters[1].Offset = 9 }, store.ErrInvalidArgument, -1},
		"not in order":       {func(b *store.Batch) { b.Counters[0].Offset = 1; b.Counters[1].Offset = 0 }, store.ErrInvalidArgument, -1},
		"without a time":     {func(b *store.Batch) { b.Counters[1].Time = cell.Latest }, store.ErrInvalidArgument, -1},
		"conditional record": {func(b *store.Batch) { b.Record(1, []byte("id"), nil, b.Mutations[0].Mutation) }, store.ErrUnsupported, -1},
		"two partitions":     {func(b *store.Batch) { b.Advance(views, 1, store.Absent, store.Progress{}) }, store.ErrUnsupported, -1},
		"without a source":   {func(b *store.Batch) { b.Advances = nil }, store.ErrUnsupported, -1},
	} {
		b := increments(0, store.Absent, "m1", [2]string{"r", "a"}, [2]string{"r", "a"})
		test.spoil(b)
		checkRefusal(t, name, s.Apply(ctx, b), test.want, test.names)
	}
	if got := sums(t, s, &store.Scan{}); len(got) != 0 {
		t.Errorf("Got %q", got)
	}
	if _, found, err := store.ReadProgress(ctx, s, &views, 0); found || err != nil {
		t.Errorf("Got progress, or %v", err)
	}
}

// checkRefusal reports where err is not want, or does not name the one record, -1 for the
// batch as a whole.
func checkRefusal(t *testing.T, name string, err, want error, record int64) {
	t.Helper()
	var refused *store.BatchError
	switch {
	case !errors.Is(err, want):
		t.Errorf("%s: Got %v, want %v", name, err, want)
	case errors.As(err, &refused) != (record >= 0):
		t.Errorf("%s: Got %v", name, err)
	case refused != nil && (len(refused.Refused) != 1 || refused.Refused[0].Offset != record):
		t.Errorf("%s: Got the refusals %+v", name, refused.Refused)
	}
}

// What was begun by one mapping is finished by it.
func TestIngestUnfinished(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, func(o *Options) { o.RetryTimeout = 1 }, g)
	createCounted(t, s)
	ctx := t.Context()
	g.inject(func(m string) fault { return fault{dropBefore: m == "put" || m == "putMultiple" || m == "mutateRow"} })
	b := increments(0, store.Absent, "m1", [2]string{"r", "a"}, [2]string{"x", "a"})
	if err := s.Apply(ctx, b); !errors.Is(err, store.ErrTransient) {
		t.Fatalf("Got %v, want ErrTransient", err)
	}
	g.inject(nil)
	if _, found, err := store.ReadProgress(ctx, s, &views, 0); found || err != nil {
		t.Errorf("Got progress, or %v", err)
	}
	var unfinished *UnfinishedError
	err := s.Apply(ctx, increments(0, store.Absent, "m2", [2]string{"r", "a"}))
	if !errors.As(err, &unfinished) || unfinished.Next != 0 || unfinished.Until != 2 || unfinished.Version != "m1" {
		t.Errorf("Got %v", err)
	}
	for _, b := range []*store.Batch{
		increments(0, store.Absent, "m1", [2]string{"r", "a"}), increments(0, 1, "m1", [2]string{"x", "a"}), increments(0, 2, "m2", [2]string{"r", "a"}),
	} {
		if err := s.Apply(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff([]string{"r a = 2 @ 1002", "x a = 1 @ 1001"}, sums(t, s, &store.Scan{Columns: []store.Column{{Family: "n", All: true}}})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A COUNTER family is one for every process, and keeps what is exact on HBase.
func TestCounterFamilies(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	d, err := dial(t, nil, g).Table(t.Context(), "c")
	if err != nil || !d.Family("n").Counter || d.Family("f").Counter || d.Family("n").Metadata != nil {
		t.Errorf("Got %+v, %v", d, err)
	}
	for name, change := range map[string]func(f *store.FamilyDescriptor){
		"TTL":                  func(f *store.FamilyDescriptor) { f.TTL = 60 },
		"VERSIONS":             func(f *store.FamilyDescriptor) { f.Versions = 2 },
		"NEW_VERSION_BEHAVIOR": func(f *store.FamilyDescriptor) { f.NewVersionBehavior = true },
		"KEEP_DELETED_CELLS":   func(f *store.FamilyDescriptor) { f.KeepDeleted = store.KeepDeletedTrue },
	} {
		f := store.NewFamily("n")
		f.Counter = true
		change(&f)
		if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "d", Families: []store.FamilyDescriptor{f}}, nil); !errors.Is(err, store.ErrInvalidSchema) {
			t.Errorf("%s: Got %v, want ErrInvalidSchema", name, err)
		}
	}
}

// FuzzDecodeCounter: what is read back is what was written, and nothing else is read.
func FuzzDecodeCounter(f *testing.F) {
	f.Add(appendCounter(nil, []byte("a\x00b"), 7, 3), []byte{0, 0, 0, 0, 0, 0, 0, 1})
	f.Add([]byte("plain"), make([]byte, counterValue))
	sketch := new(counters.Sketch)
	sketch.Add([]byte("a"))
	f.Add([]byte{}, appendSketch(nil, 5, sketch))
	s := state{source: 1, revision: 2, next: 3, until: 4, version: "m"}
	f.Add(s.encode(), (&registered{id: 3}).encode(nil))
	f.Fuzz(func(t *testing.T, qualifier, value []byte) {
		if column, source, n, _, err := decodeCounter(qualifier, nil); err == nil {
			if got := appendCounter(nil, column, source, n); string(got) != string(qualifier) {
				t.Errorf("%x is read as %x", qualifier, got)
			}
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Got %v", err)
		}
		if c, err := decodeCount(value, 1); err == nil && len(value) == counterValue && string(appendCount(nil, c)) != string(value) {
			t.Errorf("%x is read as %+v", value, c)
		}
		if at, s, err := decodeSketch(value); err == nil {
			if got := appendSketch(nil, at, s); string(got) != string(value) {
				t.Errorf("%x is read as %x", value, got)
			}
		} else if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("Got %v", err)
		}
		if s, err := decodeState(qualifier); err == nil && string(s.encode()) != string(qualifier) {
			t.Errorf("%x is read as %+v", qualifier, s)
		}
		if _, err := decodeSource(value); err != nil && !errors.Is(err, store.ErrCorrupt) && !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("Got %v", err)
		}
	})
}
