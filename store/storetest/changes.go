package storetest

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/cell"
	"sluice/store"
)

// Changes has two readers follow what an engine says was changed through random
// histories of writes, deletes, bulk batches, flushes, compactions, splits, merges,
// truncations, crashes and reopenings: what was read whole once, with the changed
// rows replaced since, must be what a scan returns. The engine must be a
// store.ChangeHolder, and its snapshots store.ChangeReaders. crash is nil where it
// cannot.
func Changes(t *testing.T, open Factory, crash Crash) {
	rapid.Check(t, func(rt *rapid.T) {
		f := newFollowing(t, rt, open)
		f.crash = crash
		defer f.close()
		rt.Repeat(map[string]func(*rapid.T){
			"write":   f.write,
			"delete":  f.delete,
			"batch":   f.batch,
			"follow":  f.follow,
			"compact": f.compact,
			"disturb": f.disturb,
		})
		for i := range f.readers {
			f.read(rt, &f.readers[i])
		}
	})
}

// following is one random history on one engine.
type following struct {
	history
	side    *side
	moves   bool // the clock does, and no cell expires
	readers [2]follower
}

// follower is one reader of changes.
type follower struct {
	name     string
	families []string
	rows     cell.Range
	since    uint64
	rest     map[string][]string // what was read, by row; nil = nothing yet
	lost     bool                // changes may be unknown: there was a moment without a hold, or the table was altered
}

func newFollowing(t *testing.T, rt *rapid.T, open Factory) *following {
	f := &following{history: history{t: t, clock: NewClock(10_000_000)}}
	f.moves = rapid.Bool().Draw(rt, "clock moves")
	d := &store.TableDescriptor{Name: metaTable}
	for _, name := range metaFamilies {
		fam := f.drawFamily(rt, name)
		fam.TimeToPurgeDeletes = rapid.SampledFrom([]int64{0, 0, 1 << 40}).Draw(rt, name+" time to purge deletes")
		d.Families = append(d.Families, fam)
	}
	n := store.NewFamily("n")
	n.Counter, n.TTL = true, 20
	u := store.NewFamily("u")
	u.Distinct = true
	d.Families = append(d.Families, n, u)
	if f.moves {
		for i := range d.Families {
			d.Families[i].TTL, d.Families[i].MinVersions = store.Forever, 0
		}
	}
	f.side = &side{open: open, opts: Options{Now: f.clock.Now, Dir: t.TempDir(), Rewriting: rapid.Bool().Draw(rt, "rewriting")}}
	f.side.Engine = open(t, f.side.opts)
	f.sides[0] = f.side
	if err := f.side.admin().CreateTable(t.Context(), d, [][]byte{[]byte("b")}); err != nil {
		rt.Fatal(err)
	}
	f.readers = [2]follower{{name: "all"}, {name: "part", families: []string{"f", "n"}, rows: cell.Range{Start: []byte("a\x00"), Stop: []byte("c")}}}
	return f
}

func (f *following) holder() store.ChangeHolder { return f.side.Engine.(store.ChangeHolder) }

// immortal takes what would make cells of m expire while the clock moves.
func (f *following) immortal(m *cell.Mutation) *cell.Mutation {
	for i := range m.Ops {
		if f.moves {
			m.Ops[i].TTL = 0
		}
	}
	return m
}

// apply ignores what an engine refuses.
func (f *following) apply(rt *rapid.T, err error) {
	var refused *store.BatchError
	for _, is := range []error{store.ErrFamilyNotFound, store.ErrNotANumber, store.ErrRefused, store.ErrInvalidArgument} {
		if errors.Is(err, is) || errors.As(err, &refused) {
			return
		}
	}
	if err != nil {
		rt.Fatal(err)
	}
}

func (f *following) write(rt *rapid.T) {
	_, err := f.side.MutateRow(f.t.Context(), nil, f.immortal(f.drawMutation(rt)))
	f.apply(rt, err)
}

func (f *following) delete(rt *rapid.T) {
	m := &cell.Mutation{Table: metaTable, Row: f.drawRow(rt)}
	if rapid.Bool().Draw(rt, "in place") {
		m.DeleteFamily(rapid.SampledFrom([]string{"n", "u"}).Draw(rt, "family"), cell.Latest)
	} else {
		f.drawDelete(rt, m)
	}
	_, err := f.side.MutateRow(f.t.Context(), nil, m)
	f.apply(rt, err)
}

func (f *following) batch(rt *rapid.T) {
	b := &store.Batch{Bulk: rapid.Bool().Draw(rt, "bulk")}
	for range rapid.IntRange(0, 3).Draw(rt, "mutations") {
		f.offset++
		b.Add(f.offset, *f.immortal(f.drawMutation(rt)))
	}
	for range rapid.IntRange(0, 2).Draw(rt, "counters") {
		b.Counters = append(b.Counters, store.CounterDelta{Table: metaTable, Family: "n", Row: f.drawRow(rt), Qualifier: drawQualifier(rt), Delta: 1, Time: f.drawTime(rt), Offset: f.offset})
	}
	f.apply(rt, f.side.Apply(f.t.Context(), b))
}

func (f *following) split(rt *rapid.T) {
	f.apply(rt, f.side.admin().SplitRegion(f.t.Context(), metaTable, f.drawRow(rt)))
}

func (f *following) merge(rt *rapid.T) {
	if err := f.side.admin().MergeRegions(f.t.Context(), metaTable, f.drawRow(rt), f.drawRow(rt)); !errors.Is(err, store.ErrMergeRegion) {
		f.apply(rt, err)
	}
}

// disturb does what is not to be as frequent as the rest.
func (f *following) disturb(rt *rapid.T) {
	all := [...]func(*rapid.T){f.advance, f.split, f.merge, f.renew, f.alter, f.truncate, f.reopen, f.powerFails}
	all[rapid.IntRange(0, len(all)-1).Draw(rt, "what")](rt)
}

// advance moves the clock, where nothing expires by it.
func (f *following) advance(rt *rapid.T) {
	if !f.moves {
		rt.Skip("cells expire")
	}
	f.history.advance(rt)
}

// compact writes the table again in one of the ways that there are. What a read
// returns may change by it, as in HBase.
func (f *following) compact(rt *rapid.T) {
	ctx := f.t.Context()
	var err error
	if rapid.Bool().Draw(rt, "flush") {
		err = f.side.Engine.(store.Compactor).Flush(ctx)
	}
	switch how := rapid.IntRange(0, 3).Draw(rt, "how"); {
	case err != nil:
	case how == 1:
		err = f.side.Engine.(store.Compactor).MajorCompact(ctx, metaTable)
	case how == 2:
		if c, ok := f.side.Engine.(MinorCompactor); ok {
			err = c.MinorCompact(ctx, metaTable)
		}
	case how == 3:
		if c, ok := f.side.Engine.(Tidier); ok {
			err = c.Tidy(ctx)
		}
	}
	f.apply(rt, err)
}

// alter changes the schema a little, as one that forgets nothing.
func (f *following) alter(rt *rapid.T) {
	d, err := f.side.Table(f.t.Context(), metaTable)
	if err != nil {
		rt.Fatal(err)
	}
	d = d.Clone()
	d.Family("f").Versions = rapid.IntRange(1, 3).Draw(rt, "versions")
	d.Family("f").MinVersions = 0
	f.apply(rt, f.side.admin().AlterTable(f.t.Context(), d))
	f.lose()
}

func (f *following) truncate(rt *rapid.T) {
	s := f.side.Engine.(store.TableSwitcher)
	f.apply(rt, s.DisableTable(f.t.Context(), metaTable))
	f.apply(rt, s.TruncateTable(f.t.Context(), metaTable, true))
	f.lose()
}

func (f *following) lose() {
	for i := range f.readers {
		f.readers[i].lost = true
	}
}

// renew renews the hold of a reader, releases it, or lets it end.
func (f *following) renew(rt *rapid.T) {
	r := &f.readers[rapid.IntRange(0, 1).Draw(rt, "reader")]
	until := f.clock.Now() + 1_000_000
	switch rapid.IntRange(0, 4).Draw(rt, "how") {
	case 0:
		f.apply(rt, f.holder().ReleaseChanges(f.t.Context(), r.name))
		r.lost = true
		return
	case 1:
		until = f.clock.Now() - 1
		r.lost = true
	}
	f.hold(rt, r, until)
}

func (f *following) hold(rt *rapid.T, r *follower, until cell.Timestamp) {
	h, err := f.holder().HoldChanges(f.t.Context(), store.ChangeHold{Name: r.name, Table: metaTable, Since: r.since, Until: until})
	if err != nil {
		rt.Fatal(err)
	}
	if r.rest != nil && h.Since > r.since {
		if !r.lost {
			rt.Fatalf("hold %s of %d was made anew since %d", r.name, r.since, h.Since)
		}
	}
}

func (f *following) follow(rt *rapid.T) {
	f.read(rt, &f.readers[rapid.IntRange(0, 1).Draw(rt, "reader")])
}

// read brings what a reader has up to date, and compares.
func (f *following) read(rt *rapid.T, r *follower) {
	f.hold(rt, r, f.clock.Now()+1_000_000)
	ctx := f.t.Context()
	s, err := f.side.Engine.(store.Snapshotter).Snapshot(ctx)
	if err != nil {
		rt.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			rt.Fatal(err)
		}
	}()
	want := f.rowsOf(rt, s, r)
	if r.rest == nil {
		r.rest, r.since, r.lost = want, s.Sequence(), false
		return
	}
	var changed []string
	var before []byte
	for row, err := range s.(store.ChangeReader).ChangedRows(ctx, metaTable, r.families, r.rows, r.since) {
		if errors.Is(err, store.ErrChangesUnknown) && r.lost {
			r.rest, r.since, r.lost = want, s.Sequence(), false
			return
		}
		if err != nil {
			rt.Fatalf("%s since %d: %v", r.name, r.since, err)
		}
		if !r.rows.Contains(row.Key) || before != nil && bytes.Compare(before, row.Key) >= 0 {
			rt.Fatalf("%s: row %q after %q", r.name, row.Key, before)
		}
		before = append(before[:0], row.Key...)
		changed = append(changed, string(row.Key))
	}
	for _, row := range changed {
		delete(r.rest, row)
		if now := f.printRow(ctx, rt, s, r, row); now != nil {
			r.rest[row] = now
		}
	}
	if d := cmp.Diff(want, r.rest); d != "" {
		rt.Fatalf("%s: since %d the rows %q were changed, at %d (-scanned +followed):\n%s", r.name, r.since, changed, s.Sequence(), d)
	}
	r.since, r.lost = s.Sequence(), false
}

func (r *follower) scan() *store.Scan {
	s := &store.Scan{Table: metaTable, Versions: store.AllVersions, Start: r.rows.Start, Stop: r.rows.Stop}
	for _, name := range r.families {
		s.Columns = append(s.Columns, store.Column{Family: name, All: true})
	}
	return s
}

func (f *following) rowsOf(rt *rapid.T, s store.Reader, r *follower) map[string][]string {
	rows := map[string][]string{}
	sc := s.Scan(f.t.Context(), r.scan())
	defer sc.Close()
	for sc.Next() {
		rows[string(sc.Row().Key)] = cells(sc.Row().Cells, false)
	}
	if err := sc.Err(); err != nil {
		rt.Fatal(err)
	}
	return rows
}

// printRow prints one row, nil where there is none.
func (f *following) printRow(ctx context.Context, rt *rapid.T, s store.Reader, r *follower, row string) []string {
	one := r.scan()
	one.Start, one.Stop, one.StopInclusive = []byte(row), []byte(row), true
	sc := s.Scan(ctx, one)
	defer sc.Close()
	var out []string
	if sc.Next() {
		out = cells(sc.Row().Cells, false)
	}
	if err := sc.Err(); err != nil {
		rt.Fatal(err)
	}
	return out
}

func (f *following) reopen(rt *rapid.T) {
	if f.side.Traits().Durable {
		f.side.reopen(f.t, rt)
	}
}

func (f *following) powerFails(rt *rapid.T) {
	if f.crash == nil {
		rt.Skip("an engine that cannot crash")
	}
	f.crash(f.t, f.side.Engine, f.side.opts)
	f.side.Engine = f.side.open(f.t, f.side.opts)
}

func testChanges(t *testing.T, e *engine) {
	holder, isHolder := e.Engine.(store.ChangeHolder)
	if _, isSnapshotter := e.Engine.(store.Snapshotter); !isHolder || !isSnapshotter {
		t.Skip("the engine is no store.ChangeHolder, or has no snapshots that could name changes")
	}
	ctx := t.Context()
	table := e.create("t", store.NewFamily("f"), counterFamily("n"))
	e.create("u", store.NewFamily("f"))
	changed := func(name string, since uint64, families ...string) ([]string, error) {
		t.Helper()
		s, err := e.Engine.(store.Snapshotter).Snapshot(ctx)
		ok(t, err)
		defer func() { ok(t, s.Close()) }()
		rows := []string{}
		for row, err := range s.(store.ChangeReader).ChangedRows(ctx, name, families, cell.Range{}, since) {
			if err != nil {
				return nil, err
			}
			rows = append(rows, string(row.Key))
		}
		return rows, nil
	}
	want := func(since uint64, rows ...string) {
		t.Helper()
		got, err := changed("t", since)
		ok(t, err)
		if !slices.Equal(got, rows) {
			t.Errorf("Got changed since %d: %q. Want %q", since, got, rows)
		}
	}
	sequence := func() uint64 {
		t.Helper()
		s, err := e.Engine.(store.Snapshotter).Snapshot(ctx)
		ok(t, err)
		defer func() { ok(t, s.Close()) }()
		return s.Sequence()
	}
	write := func(row string) {
		t.Helper()
		ok(t, table.Put(ctx, []byte(row), "f", []byte("q"), []byte("v")))
	}
	count := func(row string) {
		t.Helper()
		_, err := table.Increment(ctx, []byte(row), "n", []byte("q"), 1)
		ok(t, err)
	}
	until := e.opts.Now() + 1000

	write("a")
	write("b")
	count("c")
	_, err := changed("t", sequence())
	is(t, "nobody holds", err, store.ErrChangesUnknown)
	h, err := holder.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Until: until})
	ok(t, err)
	_, err = changed("t", h.Since-1)
	is(t, "before the hold", err, store.ErrChangesUnknown)
	_, err = changed("u", h.Since)
	is(t, "another table", err, store.ErrChangesUnknown)
	_, err = changed("nope", h.Since)
	is(t, "no table", err, store.ErrTableNotFound)
	_, err = changed("t", h.Since, "nope")
	is(t, "no family", err, store.ErrFamilyNotFound)
	_, err = changed("t", sequence()+1)
	is(t, "the future", err, store.ErrInvalidArgument)
	want(h.Since)

	first := sequence()
	ok(t, table.Delete(ctx, []byte("a")))
	ok(t, table.Delete(ctx, []byte("c"), store.Column{Family: "n", Qualifier: []byte("q")}))
	m := table.NewMutation([]byte("d")) // late by its timestamp
	m.Put("f", []byte("q"), 1, []byte("v"))
	_, err = e.MutateRow(ctx, nil, m)
	ok(t, err)
	want(first, "a", "c", "d")
	if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
		ok(t, c.Flush(ctx))
		ok(t, c.MajorCompact(ctx, "t"))
		want(first, "a", "c", "d")
	}
	second := sequence()
	want(second)
	write("b")
	want(second, "b")
	want(first, "a", "b", "c", "d")

	// Where a compaction does not look at an unflushed marker, as HBase's, it
	// changes what is seen of a row: the version that the marker let show is one
	// too many.
	if c, isCompactor := e.Engine.(store.Compactor); isCompactor {
		for at := range cell.Timestamp(2) {
			m := table.NewMutation([]byte("e"))
			m.Put("f", []byte("q"), at+1, []byte("v"))
			_, err = e.MutateRow(ctx, nil, m)
			ok(t, err)
			ok(t, c.Flush(ctx))
		}
		m := table.NewMutation([]byte("e"))
		m.Delete("f", []byte("q"), 2)
		_, err = e.MutateRow(ctx, nil, m)
		ok(t, err)
		e.want(t, e.Engine, "t", `"b" f:"q"="v"`, `"d" f:"q"="v"`, `"e" f:"q"="v"`)
		seen := sequence()
		ok(t, c.MajorCompact(ctx, "t"))
		e.want(t, e.Engine, "t", `"b" f:"q"="v"`, `"d" f:"q"="v"`)
		if got, err := changed("t", seen); err != nil || !slices.Contains(got, "e") {
			t.Errorf("Got changed since %d: %q, %v. Want e among them", seen, got, err)
		}
		second = sequence()
		write("b")
	}

	// A renewal lets go of what was read, and never gets it back.
	if h, err = holder.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Since: second, Until: until}); err != nil || h.Since != second {
		t.Fatalf("Got %+v, %v. Want since %d", h, err, second)
	}
	_, err = changed("t", first)
	is(t, "let go", err, store.ErrChangesUnknown)
	if h, err = holder.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Since: first, Until: until}); err != nil || h.Since != second {
		t.Fatalf("Got %+v, %v. Want since %d", h, err, second)
	}
	if e.durable() {
		e.reopen()
		holder = e.Engine.(store.ChangeHolder)
		table, err = store.OpenTable(ctx, e.Engine, "t")
		ok(t, err)
	}
	want(second, "b")
	holds, err := holder.ChangeHolds(ctx)
	if d := cmp.Diff([]store.ChangeHold{h}, holds); err != nil || d != "" {
		t.Errorf("holds (%v, -want +got):\n%s", err, d)
	}

	// A change of the schema forgets, and so does time.
	d, err := e.Table(ctx, "t")
	ok(t, err)
	ok(t, e.admin().AlterTable(ctx, d))
	_, err = changed("t", second)
	is(t, "altered", err, store.ErrChangesUnknown)
	want(sequence())
	third := sequence()
	e.clock.Advance(2000)
	if h, err = holder.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "t", Since: third, Until: until + 5000}); err != nil || h.Since <= third {
		t.Fatalf("Got %+v, %v. Want a new hold", h, err)
	}
	ok(t, holder.ReleaseChanges(ctx, "x"))
	ok(t, holder.ReleaseChanges(ctx, "x"))
	_, err = changed("t", sequence())
	is(t, "released", err, store.ErrChangesUnknown)
	_, err = holder.HoldChanges(ctx, store.ChangeHold{Name: "x", Table: "nope", Until: until})
	is(t, "hold of no table", err, store.ErrTableNotFound)
	_, err = holder.HoldChanges(ctx, store.ChangeHold{Table: "t", Until: until})
	is(t, "hold without a name", err, store.ErrInvalidArgument)
	_, err = holder.HoldChanges(ctx, store.ChangeHold{Name: "\xff", Table: "t", Until: until + 5000})
	is(t, "hold with a name that is not UTF-8", err, store.ErrInvalidArgument)
}
