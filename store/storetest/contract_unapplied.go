package storetest

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/cell"
	"sluice/store"
)

// handed applies b, which is begun, as the records from what is stored of
// partition 0 of a pipeline up to next, exclusive, all of which were handed over.
// It fails t where not want of them had no effect.
func (e *engine) handed(t *testing.T, pipeline string, next int64, b *store.Batch, want store.Unapplied) {
	t.Helper()
	from, p := store.Absent, store.Progress{LastOffset: -1}
	if stored, found, err := store.ReadProgress(t.Context(), e, ptr(source(pipeline)), 0); err != nil {
		t.Fatal(err)
	} else if found {
		from, p = stored.Next, stored
	}
	p.Applied += next - p.Next
	p.Next = next
	b.Advance(source(pipeline), 0, from, p)
	ok(t, e.Apply(t.Context(), b))
	if d := cmp.Diff(want, b.Unapplied); d != "" {
		t.Errorf("unapplied (-want +got):\n%s", d)
	}
}

// counted fails t where the stored counts of partition 0 of a pipeline are others.
func (e *engine) counted(t *testing.T, pipeline string, applied, unmet, duplicate int64) {
	t.Helper()
	p, _, err := store.ReadProgress(t.Context(), e, ptr(source(pipeline)), 0)
	ok(t, err)
	if p.Applied != applied || p.Unmet != unmet || p.Duplicate != duplicate || !p.Balanced() {
		t.Errorf("stored are %+v, want %d applied, %d unmet, %d duplicate, balanced", p, applied, unmet, duplicate)
	}
}

// testChecks: conditions of single mutations, tested in the order of records.
func testChecks(t *testing.T, e *engine) {
	e.batchOnly()
	e.create("t", store.NewFamily("f"), counterFamily("n"))
	cond := func(op store.CompareOp, v string) *store.Cond {
		c := &store.Cond{Family: "f", Qualifier: []byte("q"), Op: op}
		if v != "" {
			c.Value = []byte(v)
		}
		return c
	}
	absent := cond(store.Equal, "")
	unit := func(offset int64, pairs ...any) store.Record {
		r := store.Record{Offset: offset}
		for i := 0; i < len(pairs); i += 2 {
			c, _ := pairs[i].(*store.Cond)
			r.Checks = append(r.Checks, c)
			r.Mutations = append(r.Mutations, pairs[i+1].(cell.Mutation))
		}
		return r
	}
	count := func(row string, n int64) cell.Mutation {
		m := cell.Mutation{Table: "t", Row: []byte(row)}
		m.Increment("n", []byte("c"), n)
		m.Ops[0].Time = 100
		return m
	}
	remove := cell.Mutation{Table: "t", Row: []byte("a")}
	remove.DeleteColumn("f", []byte("q"), cell.Latest)
	appended := cell.Mutation{Table: "t", Row: []byte("b")}
	appended.Append("f", []byte("q"), []byte("+"))

	later := put("t", "a", "5") // a delete hides what is put at its time
	later.Ops[0].Time = e.clock.Now() + 1

	var b store.Batch
	b.Records = []store.Record{
		unit(0, absent, put("t", "a", "1"), nil, count("a", 1)),
		unit(1, absent, put("t", "a", "2"), nil, count("a", 1)), // the count alone
		unit(2, absent, put("t", "a", "3")),                     // nothing
		unit(3, cond(store.Equal, "1"), put("t", "a", "4"), cond(store.Equal, "4"), put("t", "b", "no"), nil, put("t", "b", "x")),
		unit(4, cond(store.Equal, "x"), appended, cond(store.Equal, "x+"), appended), // the second sees the first
		unit(5, cond(store.Less, "4"), remove),                    // 4 < 4: no
		unit(6, cond(store.Equal, "4"), remove),                   // a check-and-delete
		unit(7, absent, later),                                    // sees it
		unit(8, cond(store.Greater, "9"), put("t", "b", "later")), // 9 > x+: no
	}
	e.handed(t, "p", 9, &b, store.Unapplied{Unmet: 3})
	want := []string{`"a" f:"q"="5"`, `"a" n:"c"="\x00\x00\x00\x00\x00\x00\x00\x02"`, `"b" f:"q"="x++"`}
	e.want(t, e, "t", want...)
	e.counted(t, "p", 6, 3, 0)

	// Units of one offset are one record; a mutation of it counts, too.
	b.Reset()
	b.Records = []store.Record{
		unit(9, absent, put("t", "a", "no")), unit(9, nil, put("t", "c", "1")),
		unit(10, absent, put("t", "a", "no")), unit(10, absent, put("t", "b", "no")),
		unit(11, absent, put("t", "a", "no")),
	}
	b.Add(11, put("t", "c", "2"))
	e.handed(t, "p", 12, &b, store.Unapplied{Unmet: 1})
	want = append(want, `"c" f:"q"="2"`)
	e.want(t, e, "t", want...)
	e.counted(t, "p", 8, 4, 0)

	// Batches that follow each other know nothing of what was dropped of those
	// before.
	p, _, err := store.ReadProgress(t.Context(), e, ptr(source("p")), 0)
	ok(t, err)
	for range 3 {
		b.Reset()
		b.Records = []store.Record{unit(p.Next, absent, put("t", "a", "no")), unit(p.Next+1, nil, put("t", "c", "2"))}
		from := p.Next
		p.Next, p.Applied = p.Next+2, p.Applied+2
		b.Advance(source("p"), 0, from, p)
		ok(t, e.Apply(t.Context(), &b))
	}
	e.counted(t, "p", 11, 7, 0)

	// An aside goes with the rest of its unit, without which it is nothing.
	aside := func(r store.Record, asides ...int) store.Record {
		r.Asides = asides
		return r
	}
	id := aside(unit(p.Next, nil, count("d", 1), absent, put("t", "a", "no"), nil, count("d", 1)), 0, 2)
	id.Once = []byte("id")
	again := aside(unit(p.Next+1, nil, count("d", 10), absent, put("t", "e", "1"), absent, put("t", "a", "no"), nil, count("d", 10)), 0, 3)
	again.Once = id.Once
	after := aside(unit(p.Next+2, nil, count("d", 100), nil, put("t", "e", "2")), 0)
	after.Once = id.Once
	b.Reset()
	b.Records = []store.Record{id, again, after}
	e.handed(t, "p", p.Next+3, &b, store.Unapplied{Unmet: 1, Duplicate: 1})
	want = append(want, `"d" n:"c"="\x00\x00\x00\x00\x00\x00\x00\x14"`, `"e" f:"q"="1"`)
	e.want(t, e, "t", want...)
	e.counted(t, "p", 12, 8, 1)
	for name, r := range map[string]store.Record{
		"an aside alone":         aside(unit(p.Next, nil, count("d", 1)), 0),
		"an aside with a check":  aside(unit(p.Next, absent, put("t", "f", "1"), nil, count("d", 1)), 0),
		"one beyond the end":     aside(unit(p.Next, nil, count("d", 1), nil, count("d", 1)), 2),
		"one before the begin":   aside(unit(p.Next, nil, count("d", 1), nil, count("d", 1)), -1),
		"asides in no order":     aside(unit(p.Next, nil, count("d", 1), nil, count("d", 1), nil, count("d", 1)), 1, 0),
		"an aside that is twice": aside(unit(p.Next, nil, count("d", 1), nil, count("d", 1), nil, count("d", 1)), 0, 0),
	} {
		b.Reset()
		b.Records = []store.Record{r}
		is(t, name, e.Apply(t.Context(), &b), store.ErrInvalidArgument)
	}

	// What is wrong with a unit is its record's fault.
	b.Reset()
	b.Records = []store.Record{{Offset: 20, Checks: []*store.Cond{nil}, Mutations: []cell.Mutation{put("t", "a", "1"), put("t", "a", "2")}}}
	is(t, "two mutations with one check", e.Apply(t.Context(), &b), store.ErrInvalidArgument)
	b.Records = []store.Record{unit(20, &store.Cond{Family: "nope", Op: store.Equal}, put("t", "a", "1"))}
	is(t, "a check of no family", e.Apply(t.Context(), &b), store.ErrFamilyNotFound)
	// Of which of several partitions was it?
	b.Records = []store.Record{unit(20, absent, put("t", "a", "1"))}
	b.Advance(source("x"), 0, store.Absent, progress(21))
	b.Advance(source("x"), 1, store.Absent, progress(21))
	is(t, "an unmet record of two partitions", e.Apply(t.Context(), &b), store.ErrInvalidArgument)
	e.stored(t, source("x"), 0, store.Absent)
	e.want(t, e, "t", want...)
	if e.durable() {
		e.reopen()
		e.counted(t, "p", 12, 8, 1)
	}
}

// testOnceTTL: event ids that are remembered for a while.
func testOnceTTL(t *testing.T, e *engine) {
	e.batchOnly()
	e.create("t", store.NewFamily("f"))
	next := int64(0)
	// once applies records with ids, and reports which had an effect.
	once := func(ttl int64, ids ...string) (applied []string) {
		t.Helper()
		var b store.Batch
		for i, id := range ids {
			m := put("t", "r", id)
			m.Ops[0].Family, m.Ops[0].Qualifier = "f", []byte{byte(i)}
			b.Records = append(b.Records, store.Record{Offset: next + int64(i), Once: []byte(id), OnceTTL: ttl, Mutations: []cell.Mutation{m}})
		}
		from := store.Absent
		p, found, err := store.ReadProgress(t.Context(), e, ptr(source("p")), 0)
		ok(t, err)
		if found {
			from = p.Next
		}
		next += int64(len(ids))
		p.Next, p.Applied, p.LastOffset = next, p.Applied+int64(len(ids)), next-1
		b.Advance(source("p"), 0, from, p)
		ok(t, e.Apply(t.Context(), &b))
		applied = dump(t, e, &store.Scan{Table: "t"})
		if n := int64(len(ids) - len(applied)); b.Unapplied != (store.Unapplied{Duplicate: n}) {
			t.Errorf("unapplied are %+v, want %d duplicates", b.Unapplied, n)
		}
		ok(t, e.Apply(t.Context(), &store.Batch{Mutations: []store.Mutation{{Offset: -1, Mutation: cell.Mutation{Table: "t", Row: []byte("r"), Ops: []cell.Op{{Type: cell.OpDeleteRow, Time: cell.Latest}}}}}}))
		e.clock.Advance(1) // so that what comes is not hidden by that
		return applied
	}
	n := func(ttl int64, want int, ids ...string) {
		t.Helper()
		if got := once(ttl, ids...); len(got) != want {
			t.Errorf("%q for %d ms: applied are %q, want %d of them", ids, ttl, got, want)
		}
	}
	const ttl = 10_000
	n(ttl, 2, "a", "b", "a") // the clock is at 10,000,000, the begin of a period
	n(ttl, 1, "b", "c")
	n(ttl/2, 1, "a") // another time to live, another id
	n(0, 1, "a")
	if e.durable() {
		e.reopen()
	}
	e.clock.Set(10_000_000 + ttl)
	n(ttl, 1, "a", "d") // exactly so old: still known
	n(ttl, 2, "a", "b") // they are forgotten, and used anew
	n(ttl, 0, "a", "d")
	n(0, 0, "a") // for ever
	e.clock.Advance(-5000)
	n(ttl, 0, "a", "d") // the clock went back over the begin of the period
	e.clock.Set(10_000_000 + 5*ttl)
	if e.durable() {
		e.reopen()
	}
	n(ttl, 4, "a", "b", "c", "d")
	n(ttl, 0, "d", "c")
	n(0, 0, "a")
	p, _, err := store.ReadProgress(t.Context(), e, ptr(source("p")), 0)
	ok(t, err)
	if p.Duplicate == 0 || !p.Balanced() {
		t.Errorf("stored are %+v", p)
	}

	// An id is used by what is applied only.
	var b store.Batch
	missing := &store.Cond{Family: "f", Qualifier: []byte("none"), Op: store.NotEqual}
	b.Records = []store.Record{
		{Offset: next, Once: []byte("x"), OnceTTL: ttl, Checks: []*store.Cond{missing}, Mutations: []cell.Mutation{put("t", "s", "1")}},
		{Offset: next + 1, Once: []byte("x"), OnceTTL: ttl, Mutations: []cell.Mutation{put("t", "s", "2")}},
		{Offset: next + 2, Once: []byte("x"), OnceTTL: ttl, Mutations: []cell.Mutation{put("t", "s", "3")}},
		{Offset: next + 2, Once: []byte("y"), OnceTTL: ttl, Mutations: []cell.Mutation{put("t", "u", "3")}}, // of the same record
		{Offset: next + 3, Once: []byte("y"), OnceTTL: ttl, Mutations: []cell.Mutation{put("t", "u", "4")}},
		{Offset: next + 3, Once: []byte("z"), OnceTTL: ttl, Checks: []*store.Cond{missing}, Mutations: []cell.Mutation{put("t", "u", "4")}},
	}
	e.handed(t, "q", 4, &b, store.Unapplied{Unmet: 2})
	e.want(t, e, "t", `"s" f:"q"="2"`, `"u" f:"q"="3"`)
	b.Reset()
	b.Records = []store.Record{{Once: []byte("x"), OnceTTL: -1, Mutations: []cell.Mutation{put("t", "s", "1")}}}
	is(t, "a negative time to live", e.Apply(t.Context(), &b), store.ErrInvalidArgument)
}
