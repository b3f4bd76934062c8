package storetest

import (
	"pgregory.net/rapid"

	"sluice/store"
)

// splitMiddle cuts both engines where the model has the middle of a region: of a
// few rows an engine may have another, by what its cells take.
func (h *history) splitMiddle(rt *rapid.T) {
	row := h.drawRow(rt)
	model, ok := h.sides[0].Engine.(store.RegionMeter)
	if !ok {
		rt.Skip("no region meter")
	}
	at, err := model.SplitPoint(h.t.Context(), metaTable, row)
	if err != nil {
		rt.Skip("nothing to cut")
	}
	h.both(rt, "split middle", func(s *side) []string { return printError(s.admin().SplitRegion(h.t.Context(), metaTable, at)) })
}

// switched runs f on both engines, unless one does not offer it.
func (h *history) switched(rt *rapid.T, what string, f func(store.TableSwitcher) error) {
	for _, s := range h.sides {
		if _, ok := s.Engine.(store.TableSwitcher); !ok {
			rt.Skip("no table switcher")
		}
	}
	h.both(rt, what, func(s *side) []string { return printError(f(s.Engine.(store.TableSwitcher))) })
}

// switchTable disables or enables the table. A disabled one is mostly enabled
// again: there is little to see while it is.
func (h *history) switchTable(rt *rapid.T) {
	enable := rapid.IntRange(0, 4).Draw(rt, "enable") > 0
	h.switched(rt, "switch", func(s store.TableSwitcher) error {
		if enable {
			return s.EnableTable(h.t.Context(), metaTable)
		}
		return s.DisableTable(h.t.Context(), metaTable)
	})
}

func (h *history) truncate(rt *rapid.T) {
	preserve := rapid.Bool().Draw(rt, "preserve")
	h.switched(rt, "truncate", func(s store.TableSwitcher) error { return s.TruncateTable(h.t.Context(), metaTable, preserve) })
}

// alter changes what families keep. Where something is dropped for good, a family that
// keeps more later would show which engine has dropped it sooner.
func (h *history) alter(rt *rapid.T) {
	if h.flushing || h.rewriting {
		rt.Skip("a history in which something is dropped")
	}
	d, err := h.sides[0].Table(h.t.Context(), metaTable)
	if err != nil {
		rt.Fatal(err)
	}
	d = d.Clone()
	for _, name := range metaFamilies {
		if rapid.Bool().Draw(rt, "alter "+name) {
			*d.Family(name) = h.drawFamily(rt, name)
		}
	}
	if rapid.Bool().Draw(rt, "alter counters") {
		ttl := rapid.SampledFrom([]int{20, 40, store.Forever}).Draw(rt, "counter ttl")
		d.Family("n").TTL, d.Family("u").TTL = ttl, ttl
	}
	h.both(rt, "alter", func(s *side) []string { return printError(s.admin().AlterTable(h.t.Context(), d.Clone())) })
}
