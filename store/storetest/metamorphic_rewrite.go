package storetest

import (
	"context"
	"testing"

	"pgregory.net/rapid"

	"sluice/store"
)

// Crash ends e, which has o, in the midst of whatever it does, as a power failure
// would: an engine that is opened with o afterwards finds what was on disk.
type Crash func(t *testing.T, e store.Engine, o Options)

// Tidier is an engine that rewrites by itself what holds garbage, and that can be
// asked to do so now.
type Tidier interface {
	Tidy(ctx context.Context) error
}

// rewrite makes the second side tidy up. It does so by itself, too, at moments
// that no history chooses.
func (h *history) rewrite(rt *rapid.T) {
	t, ok := h.sides[1].Engine.(Tidier)
	if !ok || !h.rewriting {
		rt.Skip("a history without rewrites")
	}
	if err := t.Tidy(h.t.Context()); err != nil {
		rt.Fatalf("tidy %s: %v", h.sides[1].Traits().Name, err)
	}
}

// powerFails ends the second side amid its rewrites. Everything was acknowledged,
// so that all of it must be there again.
func (h *history) powerFails(rt *rapid.T) {
	s := h.sides[1]
	if h.crash == nil || !s.Traits().Durable {
		rt.Skip("an engine that cannot crash")
	}
	for _, side := range h.sides {
		for _, n := range side.snapshots {
			if err := n.Close(); err != nil {
				rt.Fatalf("close snapshot of %s: %v", side.Traits().Name, err)
			}
		}
		side.snapshots = nil
	}
	h.crash(h.t, s.Engine, s.opts)
	s.Engine = s.open(h.t, s.opts)
}
