package hbasestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline"
	"sluice/pipeline/mapping"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// createDistinct makes table "c" with a COUNTER family n, a DISTINCT one u and an
// ordinary one f.
func createDistinct(t *testing.T, s *Store) {
	t.Helper()
	n, u := store.NewFamily("n"), store.NewFamily("u")
	n.Counter, u.Distinct = true, true
	d := &store.TableDescriptor{Name: "c", Families: []store.FamilyDescriptor{store.NewFamily("f"), n, u}}
	if err := s.CreateTable(t.Context(), d, [][]byte{[]byte("m")}); err != nil {
		t.Fatal(err)
	}
}

// visit is a record that adds a user to "u:<column>" of a row, and puts a cell beside.
type visit struct{ row, column, user string }

// visits is a batch of partition n that goes on at from, of a record each.
func visits(n int32, from int64, all ...visit) *store.Batch {
	b := &store.Batch{}
	at := max(from, 0)
	for i, v := range all {
		o := at + int64(i)
		m := cell.Mutation{Table: "default:c", Row: []byte(v.row)}
		m.Append("u", []byte(v.column), []byte(v.user))
		m.Ops[0].Time = cell.Timestamp(1000 + o)
		m.Put("f", fmt.Append(nil, o), cell.Timestamp(100+o), []byte("v"))
		b.Add(o, m)
	}
	next := at + int64(len(all))
	b.Advance(views, n, from, store.Progress{Next: next, Applied: next, LastOffset: next - 1, LeaderEpoch: -1, MappingVersion: "m1"})
	return b
}

// users reads distinct counts as "row column @ time: users", where the sketch is that of
// some of known, and other cells as "row family:column".
func users(t *testing.T, r store.Reader, scan *store.Scan, known ...string) []string {
	t.Helper()
	scan.Table = "c"
	sc := r.Scan(t.Context(), scan)
	defer sc.Close()
	var out []string
	for sc.Next() {
		row := sc.Row()
		for _, c := range row.Cells {
			if c.Family != "u" {
				out = append(out, fmt.Sprintf("%s %s:%s", row.Key, c.Family, c.Qualifier))
				continue
			}
			got, err := counters.DecodeSketch(c.Value)
			if err != nil {
				t.Fatal(err)
			}
			var in []string
			s := new(counters.Sketch)
			for _, u := range known {
				if i, rank := counters.Rank([]byte(u)); got.Register(i) == rank {
					in = append(in, u)
					s.Add([]byte(u))
				}
			}
			if string(s.Append(nil)) != string(c.Value) {
				in = append(in, "and others")
			}
			out = append(out, fmt.Sprintf("%s %s @ %d: %s", row.Key, c.Qualifier, c.Time, strings.Join(in, " ")))
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestIngestDistinct (I2): partitions of a source, processes after another, and the API
// add to one column, which a read merges.
func TestIngestDistinct(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createDistinct(t, s)
	ctx := t.Context()
	known := []string{"ann", "bob", "cy", "dee", "eve"}
	apply := func(s *Store, b *store.Batch) {
		t.Helper()
		if err := s.Apply(ctx, b); err != nil {
			t.Fatal(err)
		}
	}
	apply(s, visits(0, store.Absent, visit{"r", "a", "ann"}, visit{"r", "b", "ann"}, visit{"r", "a", "bob"}, visit{"x", "a\x00", "cy"}))
	apply(s, visits(0, 4, visit{"r", "a", "ann"}, visit{"x", "a", "dee"}))
	if err := s.Apply(ctx, visits(0, 4, visit{"r", "a", "eve"})); !errors.Is(err, store.ErrStale) {
		t.Errorf("a replay: Got %v, want ErrStale", err)
	}
	other := dial(t, func(o *Options) { o.CounterCache = 1 }, g)
	apply(other, visits(0, 6, visit{"r", "a", "cy"}, visit{"y", "a", "ann"}))
	apply(other, visits(1, store.Absent, visit{"r", "b", "ann"}, visit{"r", "b", "dee"}))
	families := []store.Column{{Family: "u", All: true}}
	want := []string{"r a @ 1006: ann bob cy", "r b @ 1001: ann dee", "x a @ 1005: dee", "x a\x00 @ 1003: cy", "y a @ 1007: ann"}
	for name, s := range map[string]*Store{"this process": s, "another": other} {
		if d := cmp.Diff(want, users(t, s, &store.Scan{Columns: families}, known...)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}

	// Through the API: a cell of its own, by check-and-put, twice the same.
	before := g.count("checkAndMutate")
	for range 2 {
		m := &cell.Mutation{Table: "c", Row: []byte("r")}
		m.Append("u", []byte("b"), []byte("eve"))
		m.Ops[0].Time = 2000
		if res, err := s.MutateRow(ctx, nil, m); err != nil || !res.Applied || len(res.Cells) != 0 {
			t.Errorf("Got %+v, %v", res, err)
		}
	}
	if n := g.count("checkAndMutate") - before; n != 1 {
		t.Errorf("Got %d check-and-puts, want 1: an element that is there writes nothing", n)
	}
	beside := []store.Column{{Family: "f", Qualifier: []byte("5")}, {Family: "u", Qualifier: []byte("a")}}
	for name, test := range map[string]struct {
		scan *store.Scan
		want []string
	}{
		"columns":        {&store.Scan{Columns: []store.Column{{Family: "u", Qualifier: []byte("b")}, {Family: "u", Qualifier: []byte("c")}}}, []string{"r b @ 2000: ann dee eve"}},
		"beside others":  {&store.Scan{Start: []byte("x"), Stop: []byte("y"), Columns: beside}, []string{"x f:5", "x a @ 1005: dee"}},
		"time range":     {&store.Scan{Start: []byte("x"), Stop: []byte("y"), Columns: families, Time: &cell.TimeRange{Min: 1004, Max: 1006}}, []string{"x a @ 1005: dee"}},
		"limit":          {&store.Scan{Columns: families, Limit: 1, Reversed: true}, []string{"y a @ 1007: ann"}},
		"batch":          {&store.Scan{Columns: families, Start: []byte("x"), Stop: []byte("y"), Batch: 1}, []string{"x a @ 1005: dee", "x a\x00 @ 1003: cy"}},
		"column filter":  {&store.Scan{Columns: families, Filter: &store.ColumnPrefixFilter{Prefix: []byte("b")}}, []string{"r b @ 2000: ann dee eve"}},
		"no such column": {&store.Scan{Columns: []store.Column{{Family: "u", Qualifier: []byte("c")}}}, nil},
	} {
		if d := cmp.Diff(test.want, users(t, s, test.scan, known...)); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
	sc := s.Scan(ctx, &store.Scan{Table: "c", Columns: families, Raw: true})
	if sc.Next() || !errors.Is(sc.Err(), store.ErrUnsupported) {
		t.Errorf("a raw scan: Got %v, want ErrUnsupported", sc.Err())
	}
	sc.Close()
}

// TestIngestDistinctLarge (I2): sketches of both forms, more than are read at a time,
// with a cache that holds few of them, in batches that end elsewhere in each process and
// are partly there already, are what one that sees every element once has.
func TestIngestDistinctLarge(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	first := dial(t, nil, g)
	createDistinct(t, first)
	rng := rand.New(rand.NewPCG(1, 2))
	var all []visit
	want := map[string]*counters.Sketch{}
	add := func(row, column, user string) {
		all = append(all, visit{row, column, user})
		if want[row+" "+column] == nil {
			want[row+" "+column] = new(counters.Sketch)
		}
		want[row+" "+column].Add([]byte(user))
	}
	for i := range 9000 {
		add("dense", "a", fmt.Sprintf("user-%d", i))
		if i < 3*countSketches/2 {
			add("wide", fmt.Sprintf("c%04d", i), "ann") // more columns than are read at a time
		}
		if i%5 == 0 {
			add(fmt.Sprintf("row-%d", rng.IntN(20)), "a", fmt.Sprintf("user-%d", rng.IntN(50)))
		}
	}
	from := store.Absent
	for len(all) > 0 {
		s := dial(t, func(o *Options) { o.CounterCache = rng.IntN(3) * 100 }, g)
		for range 1 + rng.IntN(3) {
			n := min(len(all), 500+rng.IntN(6000))
			b := visits(0, from, all[:n]...)
			killed := rng.IntN(3) == 0 // when some of it was there: the next process begins it anew
			if killed {
				calls := rng.IntN(4)
				g.inject(func(method string) fault {
					if method == "put" || method == "putMultiple" {
						if calls--; calls < 0 {
							return fault{text: "org.apache.hadoop.hbase.DoNotRetryIOException: no"}
						}
					}
					return fault{}
				})
			}
			err := s.Apply(t.Context(), b)
			g.inject(nil)
			if err != nil && killed {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			from, all = b.Advances[0].Progress.Next, all[n:]
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	sc := first.Scan(t.Context(), &store.Scan{Table: "c", Columns: []store.Column{{Family: "u", All: true}}})
	defer sc.Close()
	for sc.Next() {
		for _, c := range sc.Row().Cells {
			key := fmt.Sprintf("%s %s", sc.Row().Key, c.Qualifier)
			if s := want[key]; s == nil || string(s.Append(nil)) != string(c.Value) {
				t.Errorf("%s is another sketch", key)
			}
			delete(want, key)
		}
	}
	if err := sc.Err(); err != nil || len(want) > 0 {
		t.Errorf("Got %v, and %d columns are missing", err, len(want))
	}
}

// TestIngestDistinctLosesReplies (I2): whatever call's connection ends, and whether it
// was done or not, each element is there, also of the API's, of callers side by side.
func TestIngestDistinctLosesReplies(t *testing.T) {
	losesReplies(t, []string{"checkAndMutate", "getMultiple", "put", "putMultiple"}, func(t *testing.T, s *Store, lose func(n int)) {
		createDistinct(t, s)
		from := store.Absent
		var known []string
		for i := range 4 {
			lose(i)
			user := fmt.Sprintf("user-%d", i)
			b := visits(0, from, visit{"r", "a", user}, visit{"r", "b", "ann"}, visit{"x", "a", user})
			if err := s.Apply(t.Context(), b); err != nil {
				t.Fatal(err)
			}
			from, known = b.Advances[0].Progress.Next, append(known, user)
		}
		lose(5)
		errs := make(chan error)
		for i := range 4 {
			user := fmt.Sprintf("api-%d", i)
			known = append(known, user)
			go func() {
				m := &cell.Mutation{Table: "c", Row: []byte("r")}
				m.Append("u", []byte("a"), []byte(user))
				_, err := s.MutateRow(t.Context(), nil, m)
				errs <- err
			}()
		}
		for range 4 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
		got := users(t, s, &store.Scan{Columns: []store.Column{{Family: "u", Qualifier: []byte("a")}}}, known...)
		if len(got) != 2 || !strings.HasSuffix(got[0], ": "+strings.Join(known, " ")) || got[1] != "x a @ 1011: "+strings.Join(known[:4], " ") {
			t.Errorf("Got %q", got)
		}
	})
}

// What no distinct count takes is refused: a record is named, and nothing of its batch
// is there.
func TestDistinctRefuses(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createDistinct(t, s)
	ctx := t.Context()
	for name, test := range map[string]struct {
		spoil func(b *store.Batch)
		want  error
		names int64 // the record; -1 = none, the batch as a whole
	}{
		"no such table":     {func(b *store.Batch) { b.Mutations[1].Table = "u" }, store.ErrTableNotFound, 1},
		"no such family":    {func(b *store.Batch) { b.Mutations[1].Ops[0].Family = "u2" }, store.ErrFamilyNotFound, 1},
		"empty row":         {func(b *store.Batch) { b.Mutations[1].Row = nil }, store.ErrInvalidArgument, 1},
		"a time to live":    {func(b *store.Batch) { b.Mutations[1].Ops[0].TTL = 5 }, store.ErrRefused, 1},
		"a put":             {func(b *store.Batch) { b.Mutations[1].Ops[0].Type = cell.OpPut }, store.ErrRefused, 1},
		"ordinary family":   {func(b *store.Batch) { b.Mutations[1].Ops[0].Family = "f" }, store.ErrUnsupported, -1},
		"counters":          {func(b *store.Batch) { b.Mutations[1].Ops[0].Family = "n" }, store.ErrRefused, 1},
		"deleted":           {func(b *store.Batch) { b.Mutations[1].DeleteColumn("u", []byte("a"), 5) }, store.ErrUnsupported, -1},
		"row":               {func(b *store.Batch) { b.Mutations[1].DeleteRow(5) }, store.ErrUnsupported, -1},
		"without a time":    {func(b *store.Batch) { b.Mutations[1].Ops[0].Time = cell.Latest }, store.ErrInvalidArgument, -1},
		"beyond the batch":  {func(b *store.Batch) { b.Mutations[1].Offset = 9 }, store.ErrInvalidArgument, -1},
		"without an offset": {func(b *store.Batch) { b.Mutations[1].Offset = -1 }, store.ErrInvalidArgument, -1},
		"not in order":      {func(b *store.Batch) { slices.Reverse(b.Mutations) }, store.ErrInvalidArgument, -1},
	} {
		b := visits(0, store.Absent, visit{"r", "a", "ann"}, visit{"r", "a", "bob"})
		test.spoil(b)
		checkRefusal(t, name, s.Apply(ctx, b), test.want, test.names)
	}
	for name, build := range map[string]func(m *cell.Mutation){
		"two columns": func(m *cell.Mutation) {
			m.Append("u", []byte("a"), []byte("ann"))
			m.Append("u", []byte("b"), []byte("ann"))
		},
		"behind a put":      func(m *cell.Mutation) { m.Put("f", nil, 1, nil); m.Append("u", []byte("a"), []byte("ann")) },
		"before a put":      func(m *cell.Mutation) { m.Append("u", []byte("a"), []byte("ann")); m.Put("f", nil, 1, nil) },
		"behind an append":  func(m *cell.Mutation) { m.Append("f", nil, nil); m.Append("u", []byte("a"), []byte("ann")) },
		"delete of the row": func(m *cell.Mutation) { m.DeleteRow(5) },
	} {
		m := &cell.Mutation{Table: "c", Row: []byte("r")}
		build(m)
		if _, err := s.MutateRow(ctx, nil, m); !errors.Is(err, store.ErrUnsupported) {
			t.Errorf("%s: Got %v, want ErrUnsupported", name, err)
		}
	}
	m := &cell.Mutation{Table: "c", Row: []byte("r")}
	m.Append("u", []byte("a"), []byte("ann"))
	if _, err := s.MutateRow(ctx, &store.Cond{Family: "f", Op: store.Equal}, m); !errors.Is(err, store.ErrUnsupported) {
		t.Errorf("with a condition: Got %v, want ErrUnsupported", err)
	}
	if got := users(t, s, &store.Scan{}); len(got) != 0 {
		t.Errorf("Got %q", got)
	}
}

// TestDistinctBatch: elements that a batch without progress repeats for a column are one
// call, in their place among other mutations of the row.
func TestDistinctBatch(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createDistinct(t, s)
	b := &store.Batch{}
	for i := range 20 {
		m := cell.Mutation{Table: "c", Row: []byte("r")}
		m.Append("u", []byte{"ab"[i/10]}, fmt.Appendf(nil, "user-%d", i%3))
		m.Ops[0].Time = cell.Timestamp(i)
		b.Add(-1, m)
		if i == 14 {
			put := cell.Mutation{Table: "c", Row: []byte("r")}
			put.Put("f", []byte("q"), 5, []byte("v"))
			b.Add(-1, put)
		}
	}
	before := g.count("checkAndMutate")
	if err := s.Apply(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if n := g.count("checkAndMutate") - before; n != 3 {
		t.Errorf("Got %d check-and-puts, want 3", n)
	}
	want := []string{"r f:q", "r a @ 9: user-0 user-1 user-2", "r b @ 19: user-0 user-1 user-2"}
	if d := cmp.Diff(want, users(t, s, &store.Scan{}, "user-0", "user-1", "user-2")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// A DISTINCT family is one for every process, keeps what is exact on HBase, and stays one.
func TestDistinctFamilies(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createDistinct(t, s)
	d, err := dial(t, nil, g).Table(t.Context(), "c")
	if err != nil || !d.Family("u").Distinct || d.Family("n").Distinct || d.Family("u").Counter || d.Family("u").Metadata != nil {
		t.Errorf("Got %+v, %v", d, err)
	}
	for name, change := range map[string]func(f *store.FamilyDescriptor){
		"TTL":                  func(f *store.FamilyDescriptor) { f.TTL = 60 },
		"VERSIONS":             func(f *store.FamilyDescriptor) { f.Versions = 2 },
		"NEW_VERSION_BEHAVIOR": func(f *store.FamilyDescriptor) { f.NewVersionBehavior = true },
		"KEEP_DELETED_CELLS":   func(f *store.FamilyDescriptor) { f.KeepDeleted = store.KeepDeletedTrue },
		"COUNTER":              func(f *store.FamilyDescriptor) { f.Counter = true },
	} {
		f := store.NewFamily("u")
		f.Distinct = true
		change(&f)
		if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "d", Families: []store.FamilyDescriptor{f}}, nil); !errors.Is(err, store.ErrInvalidSchema) {
			t.Errorf("%s: Got %v, want ErrInvalidSchema", name, err)
		}
	}
	altered, err := g.mem.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	altered = altered.Clone()
	altered.Family("u").Versions = 3
	if err := g.mem.AlterTable(t.Context(), altered); err != nil {
		t.Fatal(err)
	}
	if err := s.CheckExact(t.Context(), "c"); !errors.Is(err, store.ErrInvalidSchema) || !strings.Contains(err.Error(), "a DISTINCT family has VERSIONS 1, not 3") {
		t.Errorf("Got %v", err)
	}
}

// TestDistinctCorrupt (I7): a cell that is no sketch's is an error that names its row.
func TestDistinctCorrupt(t *testing.T) {
	t.Parallel()
	for name, value := range map[string][]byte{
		"short": {1, 2, 3}, "no sketch": make([]byte, counterValue), "negative time": appendSketch(nil, -1, new(counters.Sketch)),
	} {
		g := newGateway(t, nil, false)
		s := dial(t, nil, g)
		createDistinct(t, s)
		if err := s.Apply(t.Context(), visits(0, store.Absent, visit{"r", "a", "ann"})); err != nil {
			t.Fatal(err)
		}
		at := int64(1)
		r := s.write(t.Context(), []*mutation{{table: "c", row: []byte("r"), writes: []*hbase.TMutation{{Put: &hbase.TPut{Row: []byte("r"), ColumnValues: []*hbase.TColumnValue{
			{Family: []byte("u"), Qualifier: appendCounter(nil, []byte("a"), apiSource, 0), Value: value, Timestamp: &at},
		}}}}}})
		if err := errors.Join(r...); err != nil {
			t.Fatal(err)
		}
		sc := s.Scan(t.Context(), &store.Scan{Table: "c"})
		if sc.Next() || !errors.Is(sc.Err(), store.ErrCorrupt) || !strings.Contains(sc.Err().Error(), `row "r"`) {
			t.Errorf("%s: Got %v, want ErrCorrupt", name, sc.Err())
		}
		sc.Close()
		m := &cell.Mutation{Table: "c", Row: []byte("r")}
		m.Append("u", []byte("a"), []byte("ann"))
		if _, err := s.MutateRow(t.Context(), nil, m); !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: Got %v, want ErrCorrupt", name, err)
		}
	}
}

// TestBaseCache: what is kept is bounded by what it weighs, and what is asked for stays.
func TestBaseCache(t *testing.T) {
	t.Parallel()
	var c baseCache
	dense := new(counters.Sketch)
	for i := range 9000 {
		dense.Add(fmt.Appendf(nil, "user-%d", i))
	}
	for i := range 100 {
		c.put("hot", base{at: 7})
		c.put(fmt.Sprint("dense-", i), base{at: 1, sketch: dense})
		c.limit(400)
		if w := c.young.weight + c.old.weight; w > 500 {
			t.Fatalf("Got a weight of %d", w)
		}
		if b, ok := c.get("hot"); !ok || b.at != 7 {
			t.Fatal("what was asked for is gone")
		}
	}
	if n := len(c.young.bases) + len(c.old.bases); n > 8 {
		t.Errorf("Got %d cells in it", n)
	}
	c = baseCache{}
	for range 100 { // it grows, in one place
		c.put("a", base{sketch: dense})
	}
	if c.young.weight > 100 {
		t.Errorf("Got a weight of %d", c.young.weight)
	}
}

// TestRedriveDistinct (I2): letters are redriven with what they add to distinct counts,
// whatever call is lost, and what was begun is finished.
func TestRedriveDistinct(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"no fault": {}, "lost": {dropBefore: true}, "reply lost": {dropAfter: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil, false)
			s := dial(t, nil, g)
			createDistinct(t, s)
			lettersOf(t, s, 0, 30, 25, `{"page": "r", "user": "ann"}`)
			lettersOf(t, s, 1, 10, 10, `{"page": "r", "user": "bob"}`)
			plan, err := mapping.Compile(&mapping.Spec{
				Decode: mapping.DecodeSpec{Format: "json"},
				Rules: []mapping.RuleSpec{{
					Table: "c", Row: "page", Append: map[string]map[string]string{"u": {"a": "user"}},
					Increment: []mapping.IncrementSpec{{Family: "n", Qualifier: `"views"`}},
				}},
			}, nil)
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			g.inject(func(method string) fault {
				if n++; n%7 == 0 {
					return f
				}
				return fault{}
			})
			got, err := pipeline.Redrive(t.Context(), &pipeline.RedriveOptions{Engine: s, Plan: plan, Filter: pipeline.LetterFilter{Pipeline: views.Pipeline}})
			if want := (pipeline.RedriveCounts{Applied: 35}); err != nil || got != want {
				t.Errorf("Got %+v, %v, want %+v", got, err, want)
			}
			g.inject(nil)
			if d := cmp.Diff([]string{"r n:views", "r a @ 1024: ann bob"}, users(t, s, &store.Scan{}, "ann", "bob")); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
		})
	}
}

// TestSetCountersDistinct: a sketch that is set is what is added to, however often it is
// set, and another one takes its place.
func TestSetCountersDistinct(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createDistinct(t, s)
	set := func(family string, value []byte) error {
		m := cell.Mutation{Table: "c", Row: []byte("r")}
		m.Put(family, []byte("a"), 70, value)
		return s.SetCounters(t.Context(), []cell.Mutation{m})
	}
	sketch := func(users ...string) []byte {
		s := new(counters.Sketch)
		for _, u := range users {
			s.Add([]byte(u))
		}
		return s.Append(nil)
	}
	for _, value := range [][]byte{sketch("ann", "bob"), sketch("ann", "bob"), sketch("cy")} {
		if err := set("u", value); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(t.Context(), visits(0, store.Absent, visit{"r", "a", "dee"})); err != nil {
		t.Fatal(err)
	}
	columns := []store.Column{{Family: "u", All: true}}
	if d := cmp.Diff([]string{"r a @ 1000: cy dee"}, users(t, s, &store.Scan{Columns: columns}, "ann", "bob", "cy", "dee")); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for _, test := range []struct {
		family string
		value  []byte
		want   error
	}{
		{"u", make([]byte, 8), store.ErrRefused},
		{"u", []byte("short"), store.ErrInvalidArgument},
		{"u", append(sketch("ann"), 1), store.ErrInvalidArgument},
		{"f", sketch("ann"), store.ErrRefused},
	} {
		if err := set(test.family, test.value); !errors.Is(err, test.want) {
			t.Errorf("%s, %x: Got %v, want %v", test.family, test.value, err, test.want)
		}
	}
}
