package hbasestore

import (
	"fmt"
	"testing"

	"sluice/counters"
	"sluice/store"
)

// applyLogs applies all logs by the mapping of rebuilds, alone.
func (w *world) applyLogs() error {
	for _, l := range w.lanes {
		p, ended := w.start(l, rebuiltVersion)
		p.mutant = ""
		for range p.asks {
			p.turn <- done
		}
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// addLogs adds what applyLogs has counted and written.
func (w *letterWorld) addLogs(sums map[string]int64, distinct map[string]*counters.Sketch, rows map[string]bool) {
	for _, l := range w.lanes {
		value := w.m.value(store.OffsetsTable, store.AppendSourceRow(nil, &l.source, l.partition), store.ProgressFamily, store.ProgressQualifier)
		if value == nil {
			continue // there are no logs
		}
		p, err := store.DecodeProgress(value)
		if err != nil {
			panic(err)
		}
		for o := p.First; o < p.Next; o++ {
			deltas, has := w.record(l, rebuiltVersion, o)
			for name, n := range deltas {
				sums[name] += n
			}
			names, elements := w.added(l, rebuiltVersion, o)
			for i, name := range names {
				if distinct[name] == nil {
					distinct[name] = new(counters.Sketch)
				}
				distinct[name].Add([]byte(elements[i]))
			}
			if has {
				rows[fmt.Sprintf("rows/%s/%d/%s/%d", l.source.Pipeline, l.partition, rebuiltVersion, o)] = true
			}
		}
	}
}

// TestRebuildBesideRedrives (I2): two rebuilds at once, of which one takes over from the
// other or is refused, beside processes that redrive and purge dead letters, of which no
// call knows of the rebuild: what is redriven before a rebuild begins is replaced by it, what
// is redriven behind it counts once, and amid it nothing is switched to.
func TestRebuildBesideRedrives(t *testing.T) {
	t.Parallel()
	for seed := range exactSeeds(t) {
		if err := playJournal(seed, "", false, 1+int(seed%2)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
	for _, mutant := range []string{"owner ignored", "nothing retired", "check ignored"} {
		t.Run(mutant, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(20_000) {
				if err := playJournal(seed, mutant, false, 1+int(seed%2)); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Error("nothing has noticed")
		})
	}
}
