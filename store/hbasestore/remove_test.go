package hbasestore

import (
	"context"
	"errors"
	"slices"
	"testing"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// inForce returns the floors of a state that are in force.
func inForce(encoded string) floors {
	fs, err := decodeFloors(encoded)
	if err != nil {
		panic(err)
	}
	return slices.DeleteFunc(fs, func(f floor) bool { return f.at == floorWanted })
}

// hides reports whether what a record of an offset counts in a column of row r is removed.
func (fs floors) hides(family, column string, offset int64) bool {
	return offset < fs.of(&counter{table: "t", family: family, row: []byte("r"), column: []byte(column)})
}

// hide deletes columns up to a timestamp, also what comes late.
func (m *model) hide(h *mutation, columns []*hbase.TColumn) {
	key := h.table + "/" + string(h.row)
	if m.hidden[key] == nil {
		m.hidden[key] = map[string]int64{}
	}
	for _, c := range columns {
		name := string(c.Family) + ":" + string(c.Qualifier)
		m.hidden[key][name] = max(m.hidden[key][name], c.GetTimestamp())
		if v := m.rows[key][name]; v != nil && v.GetTimestamp() <= c.GetTimestamp() {
			delete(m.rows[key], name)
		}
	}
}

// changeFloors is what mutants make of the floors of a partition. done says that the
// state is not written.
func (p *worker) changeFloors(table string, row []byte, put []*hbase.TColumnValue) (_ []*hbase.TColumnValue, done bool) {
	if table == journalsTable && p.remove && p.mutant == "floors not stored" {
		for _, v := range put {
			if s, err := decodeJournalState(v.Value); err == nil && s.floors != "" {
				return put, true
			}
		}
	}
	if table != store.OffsetsTable || len(put) != 1 || !p.remove {
		return put, false
	}
	s, err := decodeState(put[0].Value)
	if err != nil {
		panic(err)
	}
	switch {
	case p.mutant == "floors not stored" && s.floors != "":
		return put, true
	case p.mutant == "floors beyond what is complete" && s.floors != "":
		s.floors = settleFloors(s.floors, s.until)
		changed := *put[0]
		changed.Value = s.encode()
		return []*hbase.TColumnValue{&changed}, false
	}
	return put, false
}

// behind returns a lane whose log is not at its end, -1 = none.
func (w *world) behind() int {
	return slices.IndexFunc(w.lanes, func(l lane) bool { return w.stored(l).next < w.end })
}

// floored reports whether a removal is not finished.
func (w *world) floored() bool {
	return slices.ContainsFunc(w.lanes, func(l lane) bool { return w.stored(l).floors != "" })
}

// flooredJournals reports whether a removal is not finished.
func (w *letterWorld) flooredJournals() bool {
	for _, r := range w.m.scanRows(journalsTable, nil, nil, 1000) {
		for _, v := range r.ColumnValues {
			if s, err := decodeJournalState(v.Value); string(v.Qualifier) == stateQualifier && err == nil && s.floors != "" {
				return true
			}
		}
	}
	return false
}

// removes reports whether a remover may come now.
func (w *world) removes() bool {
	return (w.remove > 0 || !w.fatal && w.floored()) && w.r.IntN(15) == 0
}

// startRemover begins a process that removes counters of all lanes: all, or some columns.
func (w *world) startRemover() (*worker, chan error) {
	p := &worker{w: w, turn: make(chan fate), asks: make(chan bool), mutant: w.mutant, old: map[string]*hbase.TResult_{}, remove: true}
	p.x = newExact(p, 2)
	ends := [][2]string{{"", ""}, {"a", "b"}, {"b", ""}, {"", "c"}, {"b", "c"}}[w.r.IntN(5)]
	s := span{table: "t", start: "r", startColumn: ends[0], stopColumn: ends[1]}
	ended := make(chan error, 1)
	w.removing++
	go func() {
		err := p.removeCounters(s)
		w.removing-- // the player waits for what this sends

		p.done = err == nil
		for _, may := range []error{store.ErrStale, store.ErrTransient, store.ErrUnknownOutcome, store.ErrRefused} {
			if errors.Is(err, may) {
				err = nil // another one comes
			}
		}
		ended <- err
		close(p.asks)
	}()
	return p, ended
}

// removeCounters does what Store.RemoveCounters does, for families n and u.
func (p *worker) removeCounters(s span) error {
	ctx := context.Background()
	r := &remover{
		x: p.x, tables: p, patience: 30,
		wait: func(context.Context, int) error {
			_, err := p.call(func() {})
			return err
		},
	}
	if err := r.finish(ctx); err != nil {
		return err
	}
	var errs []error
	for _, family := range []string{"n", "u"} {
		s.family = family
		_, err := r.remove(ctx, s, family == "u")
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// TestRemoveSchedules (I2): counters are removed, several times, beside processes that
// count and are killed between any two calls, as the removers are, with writes that come
// late and answers that are lost. What was applied from the floors on counts once, also
// in columns that are removed again, and nothing before.
func TestRemoveSchedules(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playWith(seed, "nu", "", 0, 1+int(seed%3)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestRemoveFindsMutants takes away what makes removals exact, one thing at a time.
func TestRemoveFindsMutants(t *testing.T) {
	t.Parallel()
	for _, mutant := range []string{"floors not stored", "floors beyond what is complete", "nothing deleted", "cleared before deleted", "check ignored", "old bases"} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if err := playWith(seed, "n", mutant, 0, 1+int(seed%3)); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing has noticed")
		})
	}
}

// TestRemoveAmidSwitches (I2): where rebuilds and removals come together, what one refuses
// to begin with the other does not harm: what a rebuild has counted again is there again,
// once.
func TestRemoveAmidSwitches(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playWith(seed, "nu", "", 1+int(seed%2), 1+int(seed%3)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// TestRemoveRedriven (I2): what redrives have counted is removed beside them, exactly.
func TestRemoveRedriven(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playJournal(seed, "", true, 0); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for _, mutant := range []string{"floors not stored", "nothing deleted", "cleared before deleted", "check ignored"} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if err := playJournal(seed, mutant, true, 0); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing has noticed")
		})
	}
}
