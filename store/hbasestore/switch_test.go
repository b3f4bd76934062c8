package hbasestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline/rebuild"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
	"sluice/store/memstore"
)

// watched are the cells of a process that before is asked of at each of its calls: what
// it does happens between two of them, and its error ends the process.
type watched struct {
	cells
	before func(call, table string, families []string) error
}

func (c *watched) scanRows(ctx context.Context, table string, families []string, start []byte, n int) ([]*hbase.TResult_, error) {
	if err := c.before("scan", table, families); err != nil {
		return nil, err
	}
	return c.cells.scanRows(ctx, table, families, start, n)
}

func (c *watched) write(ctx context.Context, hs []*mutation) []error {
	for i := range hs {
		if err := c.before("write", hs[i].table, nil); err != nil {
			return append(c.cells.write(ctx, hs[:i]), slices.Repeat([]error{err}, len(hs)-i)...)
		}
	}
	return c.cells.write(ctx, hs)
}

func (c *watched) checkAndPut(ctx context.Context, table string, row []byte, family, qualifier string, value []byte, put []*hbase.TColumnValue) (bool, error) {
	if err := c.before("check", table, nil); err != nil {
		return false, err
	}
	return c.cells.checkAndPut(ctx, table, row, family, qualifier, value, put)
}

// switcher returns what switches to a rebuild in a process that before watches, nil =
// nobody does, and that has taken the rebuilds over.
func (h *house) switcher(e *Store, before func(call, table string, families []string) error) *switcher {
	h.t.Helper()
	hold := holding(h.t, e, "views")
	w := &switcher{x: e.exact, tables: e, pipeline: "views", owner: hold.owner}
	if before != nil {
		w.x = newExact(&watched{e, before}, 1000)
	}
	return w
}

// holding takes the rebuilds of a pipeline over.
func holding(t *testing.T, e *Store, pipeline string) *rebuildHold {
	t.Helper()
	hold, err := e.HoldRebuilds(t.Context(), pipeline, &store.RebuildHolder{Name: t.Name(), TakeOver: true})
	if err != nil {
		t.Fatal(err)
	}
	return hold.(*rebuildHold)
}

// counted counts again, and returns the replacements that the switch makes.
func (h *house) counted(e *Store) []store.FamilyReplacement {
	h.t.Helper()
	r, err := rebuild.Open(h.t.Context(), &rebuild.Options{Pipeline: "views", Topics: []string{"views"}, Client: h.client, Plan: h.plan, Engine: e, Holder: store.RebuildHolder{TakeOver: true}})
	if err == nil {
		err = r.Count(h.t.Context())
	}
	if err != nil {
		h.t.Fatal(err)
	}
	return []store.FamilyReplacement{{Table: "counts", Family: "c", By: "c~views~1"}, {Table: "people", Family: "u", By: "u~views~1"}}
}

// decided returns a house whose damaged counts are counted again, and the switch to them
// decided and not carried out.
func decided(t *testing.T) (*house, *Store) {
	t.Helper()
	h, e, replacements := recounted(t)
	if err := h.switcher(e, nil).decide(t.Context(), "views~1", replacements); err != nil {
		t.Fatal(err)
	}
	return h, e
}

// TestSwitchBesideNewPipeline: what a pipeline counts that comes to a family while a
// switch is carried out stays.
func TestSwitchBesideNewPipeline(t *testing.T) {
	t.Parallel()
	h, e := decided(t)
	for i := range counterRows { // two calls of rows
		h.increment(e, fmt.Sprintf("/a%d", i), 1)
	}
	scans := 0
	w := h.switcher(e, func(call, table string, families []string) error {
		if call != "scan" || table != "counts" || len(families) != 2 {
			return nil
		}
		if scans++; scans != 2 {
			return nil
		}
		var b store.Batch
		for i, row := range []string{"/1", "/none", "/z"} {
			b.Counters = append(b.Counters, store.CounterDelta{Table: "counts", Family: "c", Row: []byte(row), Qualifier: []byte("views"), Delta: 100, Time: 5, Offset: int64(i)})
		}
		b.Advance(store.Source{Pipeline: "late", Topic: "x"}, 0, store.Absent, store.Progress{Next: 3, Applied: 3, MappingVersion: "v1"})
		return e.Apply(t.Context(), &b)
	})
	if done, err := w.resume(t.Context()); err != nil || !done || scans < 2 {
		t.Fatalf("Got %t, %v, %d scans", done, err, scans)
	}
	got := h.served(e)
	for _, page := range []string{"/1", "/none", "/z"} {
		if want := h.counts[page] + 100; got[page] != want {
			t.Errorf("%s: Got %d, want %d", page, got[page], want)
		}
	}
}

// increment adds to a page's count through the API.
func (h *house) increment(e store.Engine, page string, by int64) {
	h.t.Helper()
	m := cell.Mutation{Table: "counts", Row: []byte(page)}
	m.Increment("c", []byte("views"), by)
	if _, err := e.MutateRow(h.t.Context(), nil, &m); err != nil {
		h.t.Fatal(err)
	}
}

// TestSwitchCarriedOutTwice: what is added through the API to rows that are switched stays
// where the process is killed then, and another one begins again: of families that are
// replaced, and of such that are emptied.
func TestSwitchCarriedOutTwice(t *testing.T) {
	t.Parallel()
	for _, emptied := range []bool{false, true} {
		h := newHouse(t)
		e := dial(t, nil, newGateway(t, nil, false))
		h.tables(e)
		h.produce(30)
		h.ingest(e, 0)
		h.damage(e)
		replacements := h.counted(e)
		if emptied { // as if nothing were counted there any more
			for i := range replacements {
				r := &replacements[i]
				if err := e.dropFamily(t.Context(), r.Table, r.By); err != nil {
					t.Fatal(err)
				}
				r.By = ""
			}
			clear(h.counts)
			clear(h.users)
		}
		if err := h.switcher(e, nil).decide(t.Context(), "views~1", replacements); err != nil {
			t.Fatal(err)
		}
		killed := errors.New("killed")
		w := h.switcher(e, func(call, table string, _ []string) error {
			if call == "check" && table == store.OffsetsTable { // all rows are switched
				return killed
			}
			return nil
		})
		w.tables = keptFamilies{e}
		if _, err := w.resume(t.Context()); !errors.Is(err, killed) {
			t.Fatalf("Got %v", err)
		}
		for i := range 2 {
			h.damage(e)
			for _, page := range []string{"/1", "/none"} {
				h.counts[page] += 1000
				if h.users[page] == nil {
					h.users[page] = new(counters.Sketch)
				}
				h.users[page].Add([]byte("nobody"))
			}
			if _, err := w.resume(t.Context()); !errors.Is(err, killed) {
				t.Fatalf("emptied %t, %d: Got %v", emptied, i, err)
			}
		}
		if done, err := holding(t, e, "views").ResumeSwitch(t.Context()); err != nil || !done {
			t.Fatalf("Got %t, %v", done, err)
		}
		h.check(fmt.Sprintf("emptied %t", emptied), e)
	}
}

// keptFamilies are the tables of a process that is killed before it drops families.
type keptFamilies struct{ familyTables }

func (keptFamilies) dropFamily(context.Context, string, string) error { return nil }

// recounted returns a house whose counts were spoiled and are counted again, not yet
// switched to.
func recounted(t *testing.T) (*house, *Store, []store.FamilyReplacement) {
	t.Helper()
	h := newHouse(t)
	e := dial(t, nil, newGateway(t, nil, false))
	h.tables(e)
	h.produce(30)
	h.ingest(e, 0)
	h.damage(e)
	return h, e, h.counted(e)
}

// makeReplacements makes the families of a rebuild that are to replace others, as these are.
func makeReplacements(t *testing.T, e *Store, replacements []store.FamilyReplacement) {
	t.Helper()
	for i := range replacements {
		r := &replacements[i]
		d, err := e.Table(t.Context(), r.Table)
		if err != nil {
			t.Fatal(err)
		}
		d = d.Clone()
		f := *d.Family(r.Family)
		f.Name = r.By
		d.Families = append(d.Families, f)
		if err := e.AlterTable(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTakenByEarlierTry: of what is added through the API an earlier try to switch, which
// another one has overtaken, takes nothing.
func TestTakenByEarlierTry(t *testing.T) {
	t.Parallel()
	h, e, replacements := recounted(t)
	overtaken, added := false, int64(0)
	var other *switcher
	w := h.switcher(e, func(call, table string, families []string) error {
		if call != "scan" || table != "counts" || len(families) != 1 || overtaken {
			return nil
		}
		overtaken = true
		stop := errors.New("stop")
		other = h.switcher(e, func(call, table string, families []string) error {
			if call == "scan" && table == "people" {
				h.increment(e, "/new", 7) // behind the row
				h.increment(e, "/1", 7)
				added += 7
			}
			if call == "check" && table == store.OffsetsTable { // all is noted
				return stop // for the other one's turn
			}
			return nil
		})
		if err := other.decide(t.Context(), "views~1", replacements); !errors.Is(err, stop) {
			return err
		}
		return nil
	})
	if err := w.decide(t.Context(), "views~1", replacements); !errors.Is(err, store.ErrHeld) {
		t.Fatalf("Got %v of a try that was overtaken, want ErrHeld", err)
	}
	w = &switcher{x: e.exact, tables: e, pipeline: "views", owner: other.owner} // the one that has overtaken goes on
	s, n, err := w.load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n.replacements, n.taken = replacements, int64(s.revision)
	for _, number := range []int32{0, 1, 2} {
		src := h.source(e)
		row := store.AppendSourceRow(nil, &src, number)
		rebuilt := src
		rebuilt.Pipeline = "views~1"
		r, err := e.exact.register(t.Context(), &rebuilt, nil)
		if err == nil {
			err = w.edit(t.Context(), row, func(s *state) (bool, error) { s.becomes = r.id; return true, nil })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.advance(t.Context(), s, 1, n); err != nil {
		t.Fatal(err)
	}
	if _, err := w.resume(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.counts["/new"] += added
	h.counts["/1"] += added
	h.check("overtaken", e)
}

// source is that of the pipeline.
func (h *house) source(e store.Engine) store.Source {
	h.t.Helper()
	all, err := store.AllProgress(h.t.Context(), e)
	if err != nil {
		h.t.Fatal(err)
	}
	return all[slices.IndexFunc(all, func(p store.PartitionProgress) bool { return p.Source.Pipeline == "views" })].Source
}

// served returns the counts by page; absent ones are not there.
func (h *house) served(e store.Engine) map[string]int64 {
	h.t.Helper()
	got := map[string]int64{}
	sc := e.Scan(h.t.Context(), &store.Scan{Table: "counts", Columns: []store.Column{{Family: "c", All: true}}})
	defer sc.Close()
	for sc.Next() {
		got[string(sc.Row().Key)] = int64(binary.BigEndian.Uint64(sc.Row().Cells[0].Value))
	}
	if err := sc.Err(); err != nil {
		h.t.Fatal(err)
	}
	return got
}

// TestLateCarrier: a process that was frozen while it carried a switch out, and goes on
// when the switch was finished and its pipeline has gone on, changes nothing any more.
func TestLateCarrier(t *testing.T) {
	t.Parallel()
	h, e := decided(t)
	var once bool
	err := func() error {
		w := h.switcher(e, func(call, table string, families []string) error {
			if call != "scan" || table != "counts" || len(families) != 1 || once {
				return nil
			}
			once = true
			if _, err := holding(t, e, "views").ResumeSwitch(t.Context()); err != nil {
				return err
			}
			h.produce(20)
			h.ingest(e, 0)
			h.rebuild(e, whole(t)) // nothing differs
			h.damage(e)
			h.rebuild(e, whole(t)) // under other numbers
			return nil
		})
		s, n, err := w.load(t.Context())
		if err != nil {
			return err
		}
		return w.replace(t.Context(), s, &n, &store.FamilyReplacement{Table: "counts", Family: "c"})
	}()
	if !errors.Is(err, store.ErrHeld) || !once {
		t.Errorf("Got %v of a process that comes late, want ErrHeld", err)
	}
	h.check("beside who comes late", e)
}

// TestIncrementsAmidSwitch: increments through the API that come between any two calls of
// processes that switch, each of which is killed a call further than the one before, are
// there as a whole where the switch was decided before, and gone where they came before
// it was begun, whichever way a server's clock goes.
func TestIncrementsAmidSwitch(t *testing.T) {
	t.Parallel()
	for name, step := range map[string]int64{"clock": 1, "clock that goes back": -1, "clock that stands": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHouse(t)
			var clock atomic.Int64
			clock.Store(time.Date(2026, 5, 1, 0, 0, 0, 0, time.UTC).UnixMilli())
			mem, err := memstore.New(&memstore.Options{Now: func() cell.Timestamp { return cell.Timestamp(clock.Add(step)) }})
			if err != nil {
				t.Fatal(err)
			}
			e := dial(t, nil, newGateway(t, mem, false))
			h.tables(e)
			h.produce(40)
			h.ingest(e, 0)
			h.damage(e)
			replacements := h.counted(e)
			const unit = 1_000_000 // of an increment: more than all others
			pages := []string{"/1", "/none", "/2", "/!", "/~"}
			must, may := map[string]int64{}, map[string]int64{}
			n := 0
			add := func() {
				page := pages[n%len(pages)]
				by := int64(unit) << (n / len(pages) % 30)
				if n++; by<<1 < by || must[page]&by != 0 || may[page]&by != 0 {
					return
				}
				h.increment(e, page, by)
				s, _, err := (&switcher{x: e.exact, pipeline: "views"}).read(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if s.pending() {
					must[page] += by
				} else {
					may[page] += by
				}
			}
			add()
			killed := errors.New("killed")
			for kill := 1; ; kill++ {
				if kill > 300 {
					t.Fatal("it does not end")
				}
				calls := 0
				w := h.switcher(e, func(call, table string, _ []string) error {
					if table == "counts" || table == journalsTable {
						add()
					}
					if calls++; calls == kill {
						return killed
					}
					return nil
				})
				done, err := w.resume(t.Context())
				if err == nil && !done {
					clear(may) // what was there before it was begun, is gone
					if err = w.decide(t.Context(), "views~1", replacements); err == nil {
						_, err = w.resume(t.Context())
					}
				}
				if err == nil {
					break
				}
				if !errors.Is(err, killed) {
					t.Fatalf("kill %d: %v", kill, err)
				}
			}
			add()
			got := h.served(e)
			for _, page := range pages {
				if d := got[page] - h.counts[page] - must[page]; d&^may[page] != 0 {
					t.Errorf("%s: Got %d of %d and what was added, %b; that may be without %b and must be with %b", page, got[page], h.counts[page], d, may[page], must[page])
				}
			}
			if len(must) < len(pages) {
				t.Errorf("Got increments of %d pages amid the switch", len(must))
			}
			for i := range 4 { // and nothing is left over by a rebuild after it
				h.rebuild(e, whole(t))
				h.check(fmt.Sprintf("rebuilt again, %d", i), e)
				h.damage(e)
			}
		})
	}
}

// TestDiscardBesideCount: a process that counts again while another one discards what it
// has counted applies nothing any more, and does not switch.
func TestDiscardBesideCount(t *testing.T) {
	t.Parallel()
	h, e, replacements := recounted(t)
	if err := rebuild.Discard(t.Context(), e, "views", &store.RebuildHolder{TakeOver: true}); err != nil {
		t.Fatal(err)
	}
	all, err := store.AllProgress(t.Context(), e)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for i := range all {
		p := &all[i]
		if p.Source.Pipeline != "views~1" {
			continue
		}
		n++
		next := p.Progress
		next.Next++
		next.MappingVersion = h.plan.Version()
		var b store.Batch
		b.Advance(p.Source, p.Partition, p.Progress.Next, next)
		if err := e.Apply(t.Context(), &b); !errors.Is(err, store.ErrStale) {
			t.Errorf("partition %d: Got %v of a batch of what was discarded, want ErrStale", p.Partition, err)
		}
	}
	if n != housePartitions {
		t.Errorf("Got %d partitions of a rebuild", n)
	}
	makeReplacements(t, e, replacements) // as if its families were not dropped yet
	if err := h.switcher(e, nil).decide(t.Context(), "views~1", replacements); !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v of a switch to what was discarded, want ErrStale", err)
	}
	h.rebuild(e, whole(t))
	h.check("counted again", e)
}
