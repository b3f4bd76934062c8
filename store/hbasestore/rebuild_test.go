package hbasestore

import (
	"context"
	"errors"
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

// startRebuild begins a process that rebuilds the counters of pipeline p.
func (w *world) startRebuild() (*worker, chan error) {
	p := &worker{w: w, turn: make(chan fate), asks: make(chan bool), mutant: w.mutant, old: map[string]*hbase.TResult_{}}
	p.x = newExact(p, 2+w.r.IntN(3))
	ended := make(chan error, 1)
	go func() {
		err := p.rebuild()
		for errors.Is(err, store.ErrStale) || errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrUnknownOutcome) || errors.Is(err, store.ErrRefused) || errors.As(err, new(*UnfinishedError)) {
			if errors.Is(err, errKilled) {
				break
			}
			err = p.rebuild()
		}
		ended <- err
		close(p.asks)
	}()
	return p, ended
}

// rebuild does what package rebuild does, and switches, or discards what it has counted.
func (p *worker) rebuild() error {
	ctx := context.Background()
	w := &switcher{x: p.x, tables: p, pipeline: "p"}
	done, err := w.resume(ctx)
	if p.done = done && err == nil; done || err != nil {
		return err
	}
	last, unfinished, given := 0, false, false
	if _, err := p.call(func() {
		for _, r := range p.w.m.scanRows(store.OffsetsTable, nil, nil, 1000) {
			src, _, _ := store.DecodeSourceRow(r.Row)
			if !w.rebuild(src.Pipeline) {
				continue
			}
			n, _ := strconv.Atoi(strings.TrimPrefix(src.Pipeline, "p~"))
			if n >= last {
				given = n == last && given
			}
			last = max(last, n)
			for _, v := range r.ColumnValues {
				if string(v.Qualifier) == stateQualifier && n == last {
					s, _ := decodeState(v.Value)
					given = given || s.version == "discarded"
				}
			}
		}
		for family := range p.w.m.rebuilt {
			unfinished = unfinished || strings.HasSuffix(family, "~p~"+strconv.Itoa(max(last, 1)))
		}
	}); err != nil {
		return err
	}
	if unfinished && given {
		if err := p.discard(w, last); err != nil {
			return err
		}
		unfinished = false
	}
	if last == 0 || !unfinished {
		last++
	}
	name := "p~" + strconv.Itoa(last)
	if err := w.begin(ctx, name); err != nil {
		if errors.Is(err, store.ErrRefused) {
			return errors.Join(err, p.discard(w, last))
		}
		return err
	}
	var replacements []store.FamilyReplacement
	for _, family := range []string{"n", "u"} {
		replacements = append(replacements, store.FamilyReplacement{Table: "t", Family: family, By: family + "~" + name})
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
	replacements = slices.DeleteFunc(replacements, func(r store.FamilyReplacement) bool { return d.Family(r.By) == nil })
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
	d, err := p.descriptor(ctx, "t")
	if err != nil {
		return err
	}
	for i := range d.Families {
		if name := d.Families[i].Name; strings.Contains(name, "~p~") {
			if err := p.dropFamily(ctx, "t", name); err != nil {
				return err
			}
		}
	}
	return nil
}

// TestSwitchSchedules (I2): rebuilds are begun, counted, discarded and switched to beside
// processes that apply, all of them killed between any two calls, with writes that come
// late and answers that are lost: each record counts once, by the mapping of the rebuild
// where one has counted it, and by that which applied it elsewhere.
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
	for _, mutant := range []string{"marks not stored", "number kept", "nothing retired", "check ignored", "old bases"} {
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
