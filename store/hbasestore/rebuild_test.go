package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// rebuiltVersion is the mapping by which rebuilds of a world count.
const rebuiltVersion = "m1"

func (m *model) scanRows(table string, families []string, start []byte, n int) []*hbase.TResult_ {
	var out []*hbase.TResult_
	for _, key := range sortedKeys(m.rows) {
		row, ok := strings.CutPrefix(key, table+"/")
		if !ok || row < string(start) {
			continue
		}
		r := &hbase.TResult_{Row: []byte(row)}
		for _, name := range sortedKeys(m.rows[key]) {
			if v := m.rows[key][name]; families == nil || slices.Contains(families, string(v.Family)) {
				r.ColumnValues = append(r.ColumnValues, v)
			}
		}
		if len(r.ColumnValues) > 0 {
			if out = append(out, r); len(out) == n {
				break
			}
		}
	}
	return out
}

func (p *worker) scanRows(_ context.Context, table string, families []string, start []byte, n int) (out []*hbase.TResult_, err error) {
	_, err = p.call(func() { out = p.w.m.scanRows(table, families, start, n) })
	return out, err
}

func (p *worker) descriptor(context.Context, string) (*store.TableDescriptor, error) {
	d := &store.TableDescriptor{Name: "t"}
	_, err := p.call(func() {
		for _, name := range append([]string{"n", "u"}, sortedKeys(p.w.m.rebuilt)...) {
			f := store.NewFamily(name)
			f.Counter, f.Distinct = name[0] == 'n', name[0] == 'u'
			d.Families = append(d.Families, f)
		}
	})
	return d, err
}

func (p *worker) dropFamily(_ context.Context, table, family string) error {
	_, err := p.call(func() {
		delete(p.w.m.rebuilt, family)
		for key, columns := range p.w.m.rows {
			for name := range columns {
				if strings.HasPrefix(key, table+"/") && strings.HasPrefix(name, family+":") {
					delete(columns, name)
				}
			}
		}
	})
	return err
}

// changeMarks is what mutants make of the state of a partition. done says that it is not
// written.
func (p *worker) changeMarks(table string, row []byte, put []*hbase.TColumnValue) (_ []*hbase.TColumnValue, done bool) {
	if table != store.OffsetsTable || len(put) != 1 {
		return put, false
	}
	s, err := decodeState(put[0].Value)
	if err != nil {
		panic(err)
	}
	before := absentState()
	if value := p.w.m.value(table, row, store.ProgressFamily, stateQualifier); value != nil {
		if before, err = decodeState(value); err != nil {
			panic(err)
		}
	}
	switch {
	case p.mutant == "marks not stored" && s.becomes != 0 && before.becomes == 0:
		return put, true
	case p.mutant == "number kept" && before.becomes != 0 && s.becomes == 0:
		s.source = before.source
		changed := *put[0]
		changed.Value = s.encode()
		return []*hbase.TColumnValue{&changed}, false
	}
	return put, false
}

// changeRetired is what mutants make of cells that are retired.
func (p *worker) changeRetired(h *mutation) {
	if h.table != "t" {
		return
	}
	for _, w := range h.writes {
		if w.Put == nil {
			continue
		}
		if p.mutant == "nothing retired" {
			w.Put.ColumnValues = slices.DeleteFunc(w.Put.ColumnValues, func(v *hbase.TColumnValue) bool { return len(v.Value) == 0 })
		}
	}
}

// isSwitches reports whether a row is that of the journal of switches.
func isSwitches(table string, row []byte) bool {
	if table != journalsTable {
		return false
	}
	src, _, err := store.DecodeSourceRow(row)
	return err == nil && strings.HasSuffix(src.Pipeline, switcherSuffix)
}

// decided notes what the decision for a switch means for what redrives have counted.
func (m *model) decided(row []byte, put []*hbase.TColumnValue) {
	if !isSwitches(journalsTable, row) || len(claimOf(row, put)) == 0 {
		return
	}
	for _, v := range put {
		if string(v.Qualifier) != entryQualifier {
			continue
		}
		n, err := decodeNote(v.Value)
		if err != nil {
			panic(err)
		}
		for at, revision := range n.redrives {
			m.uncounted[at] = revision
		}
	}
}

// believeOwner has a process of mutant "owner ignored" find itself in the journal of
// switches.
func (p *worker) believeOwner(gets []*hbase.TGet, out []*hbase.TResult_) {
	for i, get := range gets {
		if p.owner == "" || i >= len(out) || !isSwitches(journalsTable, get.Row) { // killed, or another journal
			continue
		}
		r := &hbase.TResult_{Row: out[i].Row}
		for _, v := range out[i].ColumnValues {
			if string(v.Qualifier) == stateQualifier {
				s, err := decodeJournalState(v.Value)
				if err != nil {
					panic(err)
				}
				s.switches, s.owner = true, p.owner
				changed := *v
				changed.Value = s.encode()
				v = &changed
			}
			r.ColumnValues = append(r.ColumnValues, v)
		}
		out[i] = r
	}
}

// changeOwner returns what a process of that mutant checks the journal of switches for:
// whoever the owner is.
func (p *worker) changeOwner(table string, row, value []byte) []byte {
	if p.mutant != "owner ignored" || p.owner == "" || value == nil || !isSwitches(table, row) {
		return value
	}
	before, err := decodeJournalState(value)
	if err != nil {
		panic(err)
	}
	now, err := decodeJournalState(p.w.m.value(table, row, journalsFamily, stateQualifier))
	if err != nil {
		panic(err)
	}
	before.switches, before.owner = now.switches, now.owner
	return before.encode()
}

// rebuilds reports whether a rebuild may come now: one is to be switched to, or families of
// one that was not are to be dropped.
func (w *world) rebuilds() bool { return w.left > 0 || len(w.m.rebuilt) > 0 }

// startRebuild begins a process that rebuilds the counters of pipeline p, and ends where
// another one holds them, or has taken them over.
func (w *world) startRebuild() (*worker, chan error) {
	w.owners++
	p := &worker{w: w, turn: make(chan fate), asks: make(chan bool), mutant: w.mutant, old: map[string]*hbase.TResult_{}, owner: fmt.Sprintf("%d rebuilder", w.owners)}
	p.x = newExact(p, 2+w.r.IntN(3))
	over := w.r.IntN(3) > 0
	ended := make(chan error, 1)
	go func() {
		err := p.rebuild(over)
		for _, may := range []error{store.ErrStale, store.ErrFamilyNotFound, store.ErrTransient, store.ErrUnknownOutcome, store.ErrRefused} {
			if errors.Is(err, may) && !errors.Is(err, errKilled) {
				err = nil // another one comes
			}
		}
		ended <- err
		close(p.asks)
	}()
	return p, ended
}

// rebuild does what package rebuild does, and switches, or discards what it has counted.
func (p *worker) rebuild(over bool) error {
	w := &switcher{x: p.x, tables: p, pipeline: "p", owner: p.owner}
	if err := w.hold(context.Background(), over); err != nil {
		return err
	}
	err := p.rebuildHeld(w)
	if errors.Is(err, errKilled) {
		return err
	}
	return errors.Join(err, w.release(context.Background()))
}

func (p *worker) rebuildHeld(w *switcher) error {
	ctx := context.Background()
	done, err := w.resume(ctx)
	if p.done = done && err == nil; done || err != nil {
		return err
	}
	_, n, err := w.load(ctx)
	if err != nil {
		return err
	}
	last := w.number(n.rebuilt)
	if n.rebuilt == "" {
		last = w.number(n.ended)
		if _, err := p.call(func() {
			for _, r := range p.w.m.scanRows(store.OffsetsTable, nil, nil, 1000) {
				src, _, _ := store.DecodeSourceRow(r.Row)
				last = max(last, w.number(src.Pipeline))
			}
		}); err != nil {
			return err
		}
		if err := p.dropEnded(w, last); err != nil {
			return err
		}
		last++
	}
	name := "p~" + strconv.Itoa(last)
	if err := w.begin(ctx, name); err != nil {
		return err
	}
	for _, l := range p.w.lanes {
		if l.source.Pipeline != "p" {
			continue
		}
		if err := p.recount(l, name); err != nil {
			return err
		}
	}
	if p.w.r.IntN(4) == 0 {
		return p.discard(w, last)
	}
	d, err := p.descriptor(ctx, "t")
	if err != nil {
		return err
	}
	var replacements []store.FamilyReplacement
	for _, family := range []string{"n", "u"} {
		if by := family + mark + name; d.Family(by) != nil {
			replacements = append(replacements, store.FamilyReplacement{Table: "t", Family: family, By: by})
		}
	}
	if len(replacements) == 0 {
		return nil
	}
	if err := w.decide(ctx, name, replacements); err != nil {
		return err
	}
	done, err = w.resume(ctx)
	p.done = done && err == nil
	return err
}

// dropEnded drops the families of rebuilds with numbers up to last.
func (p *worker) dropEnded(w *switcher, last int) error {
	d, err := p.descriptor(context.Background(), "t")
	if err != nil {
		return err
	}
	for i := range d.Families {
		_, name, ok := strings.Cut(d.Families[i].Name, mark)
		if !ok || w.number(name) > last {
			continue
		}
		if err := w.held(context.Background()); err != nil {
			return err
		}
		if err := p.dropFamily(context.Background(), "t", d.Families[i].Name); err != nil {
			return err
		}
	}
	return nil
}

// recount counts what a lane has applied.
func (p *worker) recount(l lane, name string) error {
	live, ok, err := p.progress(l)
	if err != nil || !ok {
		return err
	}
	own := l
	own.source.Pipeline = name
	prev, ok, err := p.progress(own)
	if err != nil {
		return err
	}
	join := func(errs []error) error { return errors.Join(errs...) }
	if !ok {
		prev = store.Progress{First: live.First, Next: live.First, MappingVersion: rebuiltVersion}
		if err := p.x.apply(context.Background(), &store.Advance{Source: own.source, Partition: l.partition, From: store.Absent, Progress: prev}, nil, nil, join); err != nil {
			return err
		}
	}
	if _, err := p.call(func() { p.w.m.rebuilt["n~"+name], p.w.m.rebuilt["u~"+name] = true, true }); err != nil {
		return err
	}
	for prev.Next < live.Next {
		a, _, counters := p.w.batch(l, rebuiltVersion, &prev, min(1+p.w.r.Int64N(6), live.Next-prev.Next))
		a.Source = own.source
		for _, c := range counters {
			c.family += "~" + name
			c.key += "~" + name
		}
		if err := p.x.apply(context.Background(), a, nil, counters, join); err != nil {
			return err
		}
		prev = a.Progress
	}
	return nil
}

// discard does what rebuild.Discard does.
func (p *worker) discard(w *switcher, last int) error {
	ctx := context.Background()
	if err := w.abandon(ctx); err != nil {
		return err
	}
	for _, l := range p.w.lanes {
		if l.source.Pipeline != "p" {
			continue
		}
		l.source.Pipeline = "p~" + strconv.Itoa(last)
		prev, ok, err := p.progress(l)
		if err != nil {
			return err
		}
		if !ok || prev.MappingVersion == "discarded" {
			continue
		}
		next := prev
		next.MappingVersion = "discarded"
		if err := p.x.begin(ctx, []store.Advance{{Source: l.source, Partition: l.partition, From: prev.Next, Progress: next}}); err != nil {
			return err
		}
	}
	return p.dropEnded(w, last)
}

// TestSwitchSchedules (I2): rebuilds are begun, counted, discarded and switched to, two at
// once, of which one takes over from the other or is refused, beside processes that apply,
// all of them killed between any two calls, with writes that come late and answers that
// are lost: each record counts once, by the mapping of the rebuild where one has counted
// it, and by that which applied it elsewhere.
func TestSwitchSchedules(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playWith(seed, "nu", "", 1+int(seed%3), 0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestSwitchFindsMutants takes away what makes switches exact, one thing at a time.
func TestSwitchFindsMutants(t *testing.T) {
	t.Parallel()
	for _, mutant := range []string{"marks not stored", "number kept", "nothing retired", "check ignored", "old bases", "owner ignored"} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if err := playWith(seed, "n", mutant, 1+int(seed%3), 0); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing has noticed")
		})
	}
}
