package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/pipeline"
	"sluice/store"
)

func columns(start, stop string) *store.CounterRange {
	return &store.CounterRange{Table: "c", Columns: cell.Range{Start: []byte(start), Stop: []byte(stop)}}
}

func (s *Store) mustRemove(t *testing.T, r *store.CounterRange, want int64) {
	t.Helper()
	if n, err := s.CountCounters(t.Context(), r); err != nil || n != want {
		t.Errorf("Got %d, %v before it, want %d", n, err, want)
	}
	if n, err := s.RemoveCounters(t.Context(), r); err != nil || n != want {
		t.Errorf("Got %d, %v, want %d", n, err, want)
	}
}

func wantSums(t *testing.T, s *Store, want ...string) {
	t.Helper()
	if d := cmp.Diff(want, sums(t, s, &store.Scan{Columns: []store.Column{{Family: "n", All: true}}})); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
}

// TestRemoveCounters (I2): counters are removed by rows and columns, of pipelines, of a
// copy and of the API, and whoever counts goes on from nothing there, and from what there
// was elsewhere, also late.
func TestRemoveCounters(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	late := dial(t, nil, g) // a process that has read before, and writes afterwards
	createCounted(t, s)
	apply := func(s *Store, b *store.Batch) {
		t.Helper()
		if err := s.Apply(t.Context(), b); err != nil {
			t.Fatal(err)
		}
	}
	a1, a2, b1, b2 := [2]string{"a", "1"}, [2]string{"a", "2"}, [2]string{"b", "1"}, [2]string{"b", "2"}
	apply(late, increments(0, store.Absent, "v1", a1, a1, a2))
	apply(s, increments(1, store.Absent, "v1", a1, b1, b2))
	for _, column := range []string{"1", "2", "api"} {
		m := cell.Mutation{Table: "c", Row: []byte("b")}
		m.Increment("n", []byte(column), 100)
		if err := mutate(t, s, &m); err != nil {
			t.Fatal(err)
		}
	}
	set := cell.Mutation{Table: "c", Row: []byte("a")}
	set.Put("n", []byte("1"), 7, []byte{0, 0, 0, 0, 0, 0, 3, 0xe8})
	if err := s.SetCounters(t.Context(), []cell.Mutation{set}); err != nil {
		t.Fatal(err)
	}
	r := columns("1", "2")
	r.Rows.Stop = []byte("b")
	s.mustRemove(t, r, 1)
	api := func(in []string) (out []string) { // HBase's clock is the model's
		for _, line := range in {
			if i := slices.Index([]byte(line), '@'); line[0] == 'b' {
				line = line[:i-1]
			}
			out = append(out, line)
		}
		return out
	}
	all := func() []string {
		return api(sums(t, s, &store.Scan{Columns: []store.Column{{Family: "n", All: true}}}))
	}
	want := []string{"a 2 = 1 @ 1002", "b 1 = 101", "b 2 = 101", "b api = 100"}
	if d := cmp.Diff(want, all()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	s.mustRemove(t, columns("api", ""), 1)
	m := cell.Mutation{Table: "c", Row: []byte("b")}
	m.Increment("n", []byte("api"), 5)
	res, err := s.MutateRow(t.Context(), nil, &m)
	if err != nil || len(res.Cells) != 1 || binary.BigEndian.Uint64(res.Cells[0].Value) != 5 {
		t.Errorf("Got %+v, %v of an increment of what was removed, want 5", res.Cells, err)
	}
	if got := all(); !slices.Contains(got, "b api = 5") {
		t.Errorf("Got %q after an increment of what was removed", got)
	}
	s.mustRemove(t, columns("api", ""), 1)
	s.mustRemove(t, columns("api", ""), 0)
	apply(late, increments(0, 3, "v1", a1, a2, b1))
	apply(s, increments(1, 3, "v1", a1))
	want = []string{"a 1 = 2 @ 1003", "a 2 = 2 @ 1004", "b 1 = 102", "b 2 = 101"}
	if d := cmp.Diff(want, all()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	if err := s.SetCounters(t.Context(), []cell.Mutation{set}); err != nil {
		t.Fatal(err)
	}
	want[0] = "a 1 = 1002 @ 1003"
	if d := cmp.Diff(want, all()); d != "" {
		t.Errorf("counters (-want +got):\n%s", d)
	}
	s.mustRemove(t, &store.CounterRange{Table: "c", Families: []string{"n"}}, 4)
	wantSums(t, s)
	apply(late, increments(0, 6, "v1", b2))
	wantSums(t, s, "b 2 = 1 @ 1006")
	if _, err := s.Settled(t.Context()); err != nil {
		t.Errorf("floors are left: %v", err)
	}
}

// TestRemoveDistinct: distinct counts are removed as counters are, and those of the API
// go on from nothing.
func TestRemoveDistinct(t *testing.T) {
	t.Parallel()
	s := dial(t, nil, newGateway(t, nil, false))
	createDistinct(t, s)
	visit1 := visit{"a", "1", "x"}
	if err := s.Apply(t.Context(), visits(0, store.Absent, visit1, visit{"a", "2", "x"})); err != nil {
		t.Fatal(err)
	}
	add := func(user string) {
		t.Helper()
		m := cell.Mutation{Table: "c", Row: []byte("a")}
		m.Append("u", []byte("1"), []byte(user))
		m.Ops[0].Time = 5
		if err := mutate(t, s, &m); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		got := users(t, s, &store.Scan{Columns: []store.Column{{Family: "u", All: true}}}, "x", "y", "z")
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("distinct counts (-want +got):\n%s", d)
		}
	}
	add("y")
	check("a 1 @ 1000: x y", "a 2 @ 1001: x")
	s.mustRemove(t, columns("1", "2"), 1)
	check("a 2 @ 1001: x")
	add("z")
	check("a 1 @ 5: z", "a 2 @ 1001: x")
	if err := s.Apply(t.Context(), visits(0, 2, visit1)); err != nil {
		t.Fatal(err)
	}
	check("a 1 @ 1002: x z", "a 2 @ 1001: x")
}

// TestRemoveRefuses: what cannot be removed exactly is not, with an error that says what
// to do, and the rest is.
func TestRemoveRefuses(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	a, b := [2]string{"a", "x"}, [2]string{"b", "x"}
	for n := range int32(2) {
		if err := s.Apply(t.Context(), increments(n, store.Absent, "v1", a)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		r    store.CounterRange
		want error
	}{
		{store.CounterRange{Table: "none"}, store.ErrTableNotFound},
		{store.CounterRange{Table: "c", Families: []string{"none"}}, store.ErrFamilyNotFound},
		{store.CounterRange{Table: "c", Families: []string{"n", "f"}}, store.ErrInvalidSchema},
		{store.CounterRange{Table: store.OffsetsTable}, store.ErrRefused},
	} {
		if _, err := s.RemoveCounters(t.Context(), &test.r); !errors.Is(err, test.want) {
			t.Errorf("%+v: Got %v, want %v", test.r, err, test.want)
		}
	}
	// Killed between its claim and its end.
	ctx := g.cutOff(t, 1, fault{dropBefore: true}, "put", "putMultiple")
	if err := s.Apply(ctx, increments(0, 1, "v1", a, b)); err == nil {
		t.Fatal("Got no error of a process that was killed")
	}
	g.inject(nil)
	var unfinished *UnfinishedError
	n, err := s.RemoveCounters(t.Context(), columns("", ""))
	if !errors.As(err, &unfinished) || unfinished.Partition != 0 || n != 1 {
		t.Errorf("Got %d, %v, want partition 0 refused", n, err)
	}
	wantSums(t, s, "a x = 1 @ 1000") // that of partition 0
	if err := s.Apply(t.Context(), increments(0, 1, "v1", a, b)); err != nil {
		t.Fatal(err)
	}
	s.mustRemove(t, columns("", ""), 2)
	wantSums(t, s)
	// A rebuild that is not finished.
	d, err := s.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	f := store.NewFamily("n~views~1")
	f.Counter = true
	d.Families = append(d.Families, f)
	if err := s.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RemoveCounters(t.Context(), columns("", "")); !errors.Is(err, store.ErrRefused) {
		t.Errorf("Got %v amid a rebuild, want ErrRefused", err)
	}
}

// TestRemoveBesideRemover: a removal takes away all that was counted before it began, also
// where another one of the same range is not finished and has a floor further down, and is
// refused nothing by that one's end.
func TestRemoveBesideRemover(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	x := [2]string{"a", "x"}
	if err := s.Apply(ctx, increments(0, store.Absent, "v1", x, x)); err != nil {
		t.Fatal(err)
	}
	sp := span{table: "c", family: "n"}
	r := &remover{x: s.exact, tables: s, wait: s.wait, patience: 2}
	owners, err := r.owners(ctx)
	if err != nil || len(owners) != 1 {
		t.Fatalf("Got %d owners, %v", len(owners), err)
	}
	for from, slow := range owners {
		low, err := r.mark(ctx, slow, sp)
		if err != nil || low != 2 {
			t.Fatalf("Got a floor of %d, %v, want 2", low, err)
		}
		if err := s.Apply(ctx, increments(0, 2, "v1", x)); err != nil {
			t.Fatal(err)
		}
		if n, err := r.remove(ctx, sp, false); err != nil || n != 1 { // the slow one came behind its finish
			t.Errorf("Got %d, %v, want 1", n, err)
		}
		wantSums(t, s)
		up := map[cellSource]int64{from: low}
		if _, err := r.delete(ctx, sp, up, nil); err != nil {
			t.Error(err)
		}
		if err := r.clear(ctx, sp, up, []*owner{slow}); err != nil {
			t.Error(err)
		}
	}
	if err := s.Apply(ctx, increments(0, 3, "v1", x)); err != nil {
		t.Fatal(err)
	}
	wantSums(t, s, "a x = 1 @ 1003")
}

// TestRemoveBesideCount: what is counted between the floor and the deletes stays, and a
// column of it is none of which something was removed.
func TestRemoveBesideCount(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	if err := s.Apply(ctx, increments(0, store.Absent, "v1", [2]string{"a", "x"}, [2]string{"a", "y"})); err != nil {
		t.Fatal(err)
	}
	sp := span{table: "c", family: "n"}
	marked, counted := false, false
	x := newExact(&watched{s, func(call, table string, _ []string) error {
		marked = marked || call == "check" && table == store.OffsetsTable
		if call != "scan" || !marked || counted {
			return nil
		}
		counted = true
		return s.Apply(ctx, increments(0, 2, "v1", [2]string{"a", "y"}, [2]string{"a", "new"}))
	}}, 1000)
	r := &remover{x: x, tables: s, wait: s.wait, patience: 2}
	if n, err := r.remove(ctx, sp, false); err != nil || n != 1 || !counted {
		t.Errorf("Got %d, %v, want 1: column x", n, err)
	}
	wantSums(t, s, "a new = 1 @ 1003", "a y = 1 @ 1002")
}

// TestRemoveIsFinished (I2): a removal that is cut off at any call is finished by the
// next one, of whatever, and until then no rebuild is begun and no copy made.
func TestRemoveIsFinished(t *testing.T) {
	t.Parallel()
	for name, f := range map[string]fault{"lost": {dropBefore: true}, "reply lost": {dropAfter: true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGateway(t, nil, false)
			s := dial(t, nil, g)
			createCounted(t, s)
			// Of a batch and of a redrive.
			lettersOf(t, s, 0, 3, 3, `{"page": "a"}`)
			redrive := func(n int64) {
				t.Helper()
				o := &pipeline.RedriveOptions{Engine: s, Plan: pagePlan(t, s), Filter: pipeline.LetterFilter{Pipeline: views.Pipeline}, Limit: 1}
				if got, err := pipeline.Redrive(t.Context(), o); err != nil || got.Applied != 1 {
					t.Fatalf("Got %+v, %v of letter %d", got, err, n)
				}
			}
			redrive(0)
			next := int64(3)
			count := func() {
				t.Helper()
				if err := s.Apply(t.Context(), increments(0, next, "m1", [2]string{"a", "views"}, [2]string{"a", "kept"})); err != nil {
					t.Fatal(err)
				}
				next += 2
			}
			count()
			refused, tries := 0, 0
			for cut := context.Context(nil); cut == nil || cut.Err() != nil; {
				tries++
				cut = g.cutOff(t, tries, f, "put", "mutateRow", "checkAndMutate", "deleteSingle")
				_, err := s.RemoveCounters(cut, columns("views", "viewt"))
				g.inject(nil)
				if (err != nil) != (cut.Err() != nil) {
					t.Fatalf("try %d: %v", tries, err)
				}
				if _, serr := s.Settled(t.Context()); errors.Is(serr, store.ErrRefused) {
					refused++
					if err := holding(t, s, views.Pipeline).BeginRebuild(t.Context(), views.Pipeline+"~1"); !errors.Is(err, store.ErrRefused) {
						t.Errorf("try %d: Got %v of a rebuild, want ErrRefused", tries, err)
					}
				}
				if err != nil {
					count()
				}
			}
			if refused == 0 || tries < 4 {
				t.Errorf("%d of %d tries were refused", refused, tries)
			}
			kept := (next - 3) / 2
			wantSums(t, s, fmt.Sprintf("a kept = %d @ %d", kept, 1000+next-1))
			redrive(1)
			count()
			wantSums(t, s, fmt.Sprintf("a kept = %d @ %d", kept+1, 1000+next-1), fmt.Sprintf("a views = 2 @ %d", max(1000+next-2, 1001)))
			if err := holding(t, s, views.Pipeline).BeginRebuild(t.Context(), views.Pipeline+"~1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestRemoveBesideDisabled: what a removal that was cut off has left in a table that is
// disabled keeps no other table's counters, and goes when the table is enabled.
func TestRemoveBesideDisabled(t *testing.T) {
	t.Parallel()
	g := newGateway(t, nil, false)
	s := dial(t, func(o *Options) { o.silence = time.Millisecond }, g)
	createCounted(t, s)
	n := store.NewFamily("n")
	n.Counter = true
	if err := s.CreateTable(t.Context(), &store.TableDescriptor{Name: "other", Families: []store.FamilyDescriptor{n}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), increments(0, store.Absent, "v1", [2]string{"a", "x"})); err != nil {
		t.Fatal(err)
	}
	if _, err := s.RemoveCounters(g.cutOff(t, 1, fault{dropBefore: true}, "deleteSingle", "mutateRow"), columns("", "")); err == nil {
		t.Fatal("Got no error of a removal that was cut off")
	}
	g.inject(nil)
	if err := s.DisableTable(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	m := cell.Mutation{Table: "other", Row: []byte("r")}
	m.Increment("n", []byte("x"), 1)
	if _, err := s.MutateRow(t.Context(), nil, &m); err != nil {
		t.Fatal(err)
	}
	other := &store.CounterRange{Table: "other"}
	if n, err := s.RemoveCounters(t.Context(), other); n != 1 || !errors.Is(err, store.ErrTableNotEnabled) || !strings.Contains(err.Error(), "left in table c, family n") {
		t.Errorf("Got %d, %v, want the counter removed, and what is left elsewhere named", n, err)
	}
	if err := s.EnableTable(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	if n, err := s.RemoveCounters(t.Context(), other); n != 0 || err != nil {
		t.Errorf("Got %d, %v, want the rest finished", n, err)
	}
	wantSums(t, s)
}

// countedAgain returns a table of which partition 0 was counted again, up to where it stands,
// and what a switch to that replaces.
func countedAgain(t *testing.T) (*Store, *rebuildHold, []store.FamilyReplacement) {
	t.Helper()
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	a := [2]string{"a", "x"}
	if err := s.Apply(t.Context(), increments(0, store.Absent, "v1", a, a)); err != nil {
		t.Fatal(err)
	}
	d, err := s.Table(t.Context(), "c")
	if err != nil {
		t.Fatal(err)
	}
	d = d.Clone()
	f := store.NewFamily("n~views~1")
	f.Counter = true
	d.Families = append(d.Families, f)
	if err := s.AlterTable(t.Context(), d); err != nil {
		t.Fatal(err)
	}
	hold := holding(t, s, "views")
	if err := hold.BeginRebuild(t.Context(), "views~1"); err != nil {
		t.Fatal(err)
	}
	again := increments(0, store.Absent, "v1", a, a)
	again.Mutations = nil
	for i := range again.Counters {
		again.Counters[i].Family = f.Name
	}
	again.Advances[0].Source.Pipeline = "views~1"
	if err := s.Apply(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	return s, hold, []store.FamilyReplacement{{Table: "c", Family: "n", By: f.Name}}
}

// TestSwitchDropsFloors: a remover and a rebuild that did not see each other begin leave
// what the rebuild has counted.
func TestSwitchDropsFloors(t *testing.T) {
	t.Parallel()
	s, hold, replacements := countedAgain(t)
	r := &remover{x: s.exact, tables: s, wait: s.wait, patience: 2}
	owners, err := r.owners(t.Context())
	if err != nil || len(owners) != 1 {
		t.Fatalf("Got %d owners, %v", len(owners), err)
	}
	sp := span{table: "c", family: "n"}
	up := map[cellSource]int64{}
	var marked []*owner
	for from, o := range owners {
		if up[from], err = r.mark(t.Context(), o, sp); err != nil || up[from] != 2 {
			t.Fatalf("Got a floor of %d, %v", up[from], err)
		}
		marked = append(marked, o)
	}
	if err := hold.SwitchRebuild(t.Context(), "views~1", replacements); err != nil {
		t.Fatal(err)
	}
	if _, err := r.delete(t.Context(), sp, up, nil); err != nil {
		t.Fatal(err)
	}
	if err := r.clear(t.Context(), sp, up, marked); err != nil {
		t.Fatal(err)
	}
	if err := s.Apply(t.Context(), increments(0, 2, "v1", [2]string{"a", "x"})); err != nil {
		t.Fatal(err)
	}
	wantSums(t, s, "a x = 3 @ 1002")
}

// TestRemoveBesideSwitch: a remover that has looked before a switch marks nothing of what
// has another number since, or is about to have one, and clears nothing there; one that
// looks amid a switch is refused.
func TestRemoveBesideSwitch(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, hold, replacements := countedAgain(t)
	r := &remover{x: s.exact, tables: s, wait: s.wait, patience: 2}
	only := func() *owner {
		t.Helper()
		owners, err := r.owners(ctx)
		if err != nil || len(owners) != 1 {
			t.Fatalf("Got %d owners, %v", len(owners), err)
		}
		for _, o := range owners {
			return o
		}
		return nil
	}
	sp := span{table: "c", family: "n"}
	before := only()
	w := &switcher{x: s.exact, tables: s, pipeline: "views", owner: hold.owner}
	replacements[0].Table = sp.table
	if err := w.decide(ctx, "views~1", replacements); err != nil {
		t.Fatal(err)
	}
	if _, err := r.mark(ctx, before, sp); !errors.Is(err, store.ErrStale) {
		t.Errorf("amid the switch: Got %v of a mark, want ErrStale", err)
	}
	if _, err := r.owners(ctx); !errors.Is(err, store.ErrRefused) {
		t.Errorf("amid the switch: Got %v of who looks, want ErrRefused", err)
	}
	if _, err := r.switches(ctx); !errors.Is(err, store.ErrRefused) {
		t.Errorf("amid the switch: Got %v of who asks for switches, want ErrRefused", err)
	}
	if _, err := w.resume(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := r.mark(ctx, before, sp); !errors.Is(err, store.ErrStale) {
		t.Errorf("behind the switch: Got %v of a mark, want ErrStale", err)
	}
	after := only()
	if len(after.floors) > 0 || after.number == before.number {
		t.Fatalf("Got %+v", after)
	}
	at, err := r.mark(ctx, after, sp)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.edit(ctx, before, func(fs floors) floors { return fs.without(sp, at) }); !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v of another one's floors, want ErrStale", err)
	}
	if got := only().floors.at(sp); got != at {
		t.Errorf("Got a floor of %d, want %d", got, at)
	}
}

// TestRebuildWaitsForJournals: a rebuild is not begun where what redrives have counted is
// being removed, and nothing else.
func TestRebuildWaitsForJournals(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s := dial(t, nil, newGateway(t, nil, false))
	createCounted(t, s)
	lettersOf(t, s, 0, 3, 3, `{"page": "a"}`)
	o := &pipeline.RedriveOptions{Engine: s, Plan: pagePlan(t, s), Filter: pipeline.LetterFilter{Pipeline: views.Pipeline}}
	if got, err := pipeline.Redrive(ctx, o); err != nil || got.Applied != 3 {
		t.Fatalf("Got %+v, %v", got, err)
	}
	r := &remover{x: s.exact, tables: s, wait: s.wait, patience: 2}
	owners, err := r.owners(ctx)
	if err != nil {
		t.Fatal(err)
	}
	sp := span{table: "c", family: "n"}
	n := 0
	hold := holding(t, s, views.Pipeline)
	for _, o := range owners {
		if !o.journal {
			continue
		}
		n++
		at, err := r.mark(ctx, o, sp)
		if err != nil {
			t.Fatal(err)
		}
		if err := hold.BeginRebuild(ctx, "views~1"); !errors.Is(err, store.ErrRefused) {
			t.Errorf("Got %v of a rebuild, want ErrRefused", err)
		}
		if err := r.edit(ctx, o, func(fs floors) floors { return fs.without(sp, at) }); err != nil {
			t.Fatal(err)
		}
	}
	if n != 1 {
		t.Errorf("Got %d journals", n)
	}
	if err := hold.BeginRebuild(ctx, "views~1"); err != nil { // its number was not used up
		t.Error(err)
	}
}

// TestHigherFloorStays: who clears takes out what it has deleted up to, and not the higher
// floor of another remover, nor one that is wanted.
func TestHigherFloorStays(t *testing.T) {
	t.Parallel()
	sp := span{table: "t", family: "n"}
	fs := floors{{sp, 10}, {sp, floorWanted}}
	if got := fs.without(sp, 9); got.at(sp) != 10 || !got.wants(sp) {
		t.Errorf("Got %+v below the floor", got)
	}
	if got := fs.without(sp, 10); got.at(sp) != floorWanted || !got.wants(sp) {
		t.Errorf("Got %+v at the floor", got)
	}
}

// TestRemoveBehindDeleted: where HBase looks for rows for longer than a call may take, as all
// that it comes by was deleted, it is waited for, and its gateway is not left.
func TestRemoveBehindDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newPipeGateway(t, "a", nil)
		const timeout = 200 * time.Millisecond
		s := dial(t, func(o *Options) { o.CallTimeout, o.RetryTimeout = timeout, timeout-1 }, g)
		createCounted(t, s)
		if err := s.Apply(t.Context(), increments(0, store.Absent, "v1", [2]string{"a", "x"})); err != nil {
			t.Fatal(err)
		}
		g.inject(func(method string) fault {
			if method != "getScannerResults" {
				return fault{}
			}
			found := make(chan struct{})
			time.AfterFunc(3*timeout/2, func() { close(found) })
			return fault{until: found}
		})
		if n, err := s.CountCounters(t.Context(), columns("", "")); err != nil || n != 1 {
			t.Errorf("Got %d, %v, want 1", n, err)
		}
		if !s.pool.gateways[0].until.IsZero() {
			t.Error("The gateway is left")
		}
	})
}
