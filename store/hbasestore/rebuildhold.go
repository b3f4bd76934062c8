package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"sluice/store"
)

var _ store.RebuildSwitcher = (*Store)(nil)

// One process at a time rebuilds the counters of a pipeline: its name, behind a number
// that no other process has, is in the journal of switches. Who finds another's there is
// refused, or takes over, if it is told to; the former may be alive, and go on later than
// anybody thinks. Why it does no harm then:
//
// The journal changes by check-and-put on all of its state, the owner among it: who was
// taken over from begins nothing, decides nothing, gives nothing up and finishes nothing.
//
// States of partitions and journals of redrives are read, then it is asked who the owner
// is, and then they change by check-and-put on what was read. Who takes over, then writes
// each partition's state (unmark), so that what was read before is out of date; and
// whoever begins a rebuild writes each journal of a redrive, for the same effect. What was
// read later is not written, as the owner is another by then. Once a switch is decided
// nothing is undone any more, and who carries it out makes the same changes in any case.
//
// Writes of rows have no condition. Before a switch is decided they are notes of what is
// taken of the API's counts, with the journal's revision as timestamp: who takes over has a
// higher one. Afterwards they are the cells of the switch, the same whoever writes them;
// what is written later to the same columns, by batches, removals and later switches, is
// newer by timestamp. One thing depends on the time: of families that are emptied the API's
// counts are taken as they are when the row is read, so that a row which arrives late takes
// less than the one before it (docs/guarantees.md).
//
// A schema has no condition either. Families are dropped of rebuilds that have ended,
// which is decided before and for ever: their numbers are not used again. Families that
// are made late are of such a rebuild, too, and are not served; the next rebuild drops
// them. What is counted late goes to these, under offsets of its own.

// ownerBytes bounds what names an owner.
const ownerBytes = 200

// lostHold is the error of who was taken over from.
func lostHold(now *journalState) error {
	if now.owner == "" {
		return fmt.Errorf("%w: another process has taken its rebuilds over, and has ended since", store.ErrHeld)
	}
	return fmt.Errorf("%w: %s has taken its rebuilds over", store.ErrHeld, ownerName(now.owner))
}

// ownerName returns an owner without the number.
func ownerName(owner string) string {
	_, name, _ := strings.Cut(owner, " ")
	return name
}

// read reads the journal of switches.
func (w *switcher) read(ctx context.Context) (journalState, note, error) {
	s, entry, err := w.journal().load(ctx)
	if err != nil {
		return s, note{}, err
	}
	n, err := decodeNote(entry)
	if s.pending() && n.taken == 0 { // decided by a program before owners
		n.taken = int64(s.revision) - 1
	}
	return s, n, err
}

// load is read for who holds the rebuilds. Its error wraps store.ErrHeld where w does not.
func (w *switcher) load(ctx context.Context) (journalState, note, error) {
	s, n, err := w.read(ctx)
	if err == nil && s.owner != w.owner {
		err = lostHold(&s)
	}
	return s, n, err
}

// held returns an error that wraps store.ErrHeld where w does not hold the rebuilds.
func (w *switcher) held(ctx context.Context) error {
	_, _, err := w.load(ctx)
	return err
}

// hold has w hold the rebuilds; over says that they are taken over from whoever does.
func (w *switcher) hold(ctx context.Context, over bool) error {
	for {
		s, n, err := w.read(ctx)
		switch {
		case err != nil:
			return err
		case s.owner != w.owner && s.owner != "" && !over:
			return fmt.Errorf("%w: %s holds its rebuilds: let it end, or, where it is dead, take them over: \"ingest replay rebuild --take-over\"; what it would still do then is refused", store.ErrHeld, ownerName(s.owner))
		case s.owner != w.owner:
			to := s
			to.owner = w.owner
			if s, err = w.replaceState(ctx, s, to, 2, n); errors.Is(err, store.ErrHeld) {
				continue // another one was faster
			} else if err != nil {
				return err
			}
		}
		if s.pending() {
			return nil
		}
		return w.unmark(ctx)
	}
}

// unmark takes marks away, and writes the state of each partition in any case: what another
// process has read of it before is out of date then.
func (w *switcher) unmark(ctx context.Context) error {
	all, err := w.partitions(ctx, "")
	if err != nil {
		return err
	}
	for _, p := range all {
		if err := w.edit(ctx, p.row, func(s *state) (bool, error) {
			s.becomes = 0
			return true, nil
		}); err != nil {
			return err
		}
	}
	return nil
}

// release is the reverse of hold. Partitions that were marked for a switch which was not
// decided may go on.
func (w *switcher) release(ctx context.Context) error {
	uerr := w.undecide(ctx)
	s, n, err := w.load(ctx)
	if err == nil {
		to := s
		to.owner = ""
		_, err = w.replaceState(ctx, s, to, 2, n)
	}
	if errors.Is(err, store.ErrHeld) {
		return nil
	}
	return errors.Join(uerr, err)
}

// undecide takes marks away, if there are any and they are not decided on.
func (w *switcher) undecide(ctx context.Context) error {
	s, n, err := w.load(ctx)
	if err != nil || s.pending() || n.rebuilt == "" {
		return err
	}
	all, err := w.partitions(ctx, "")
	if err != nil || !slices.ContainsFunc(all, func(p *standing) bool { return p.state.becomes != 0 }) {
		return err
	}
	// A decision whose answer was lost may still come: not behind this.
	if _, err := w.advance(ctx, s, 2, n); err != nil {
		return err
	}
	return w.unmark(ctx)
}

// rebuildHold are the rebuilds of a pipeline, in the hands of this process.
type rebuildHold struct {
	s               *Store
	pipeline, owner string
}

// HoldRebuilds implements store.RebuildSwitcher.
func (s *Store) HoldRebuilds(ctx context.Context, pipeline string, h *store.RebuildHolder) (store.RebuildHold, error) {
	if s.o.Framed {
		return nil, fmt.Errorf("%w: a rebuild makes families with attributes, which a gateway with framed transport garbles: %s", store.ErrUnsupported, framedAdvice)
	}
	name := strings.ToValidUTF8(h.Name[:min(len(h.Name), ownerBytes)], "")
	hold := &rebuildHold{s, pipeline, fmt.Sprintf("%016x %s", rand.Uint64(), name)}
	if err := hold.use(ctx, func(ctx context.Context, w *switcher) error { return w.hold(ctx, h.TakeOver) }); err != nil {
		over, stop := context.WithTimeout(context.WithoutCancel(ctx), store.ReleaseTimeout)
		defer stop()
		return nil, errors.Join(err, hold.Release(over)) // it may be in part
	}
	return hold, nil
}

// use calls f with a switcher for what is held.
func (h *rebuildHold) use(ctx context.Context, f func(context.Context, *switcher) error) error {
	w := &switcher{x: h.s.exact, tables: h.s, pipeline: h.pipeline, owner: h.owner}
	ctx, end, err := h.s.begin(ctx, false)
	if err == nil {
		defer end()
		err = f(ctx, w)
	}
	return w.errorf(err)
}

// Rebuilds implements store.RebuildHold.
func (h *rebuildHold) Rebuilds(ctx context.Context) (begun, ended string, err error) {
	err = h.use(ctx, func(ctx context.Context, w *switcher) error {
		_, n, err := w.load(ctx)
		begun, ended = n.rebuilt, n.ended
		return err
	})
	return begun, ended, err
}

// BeginRebuild implements store.RebuildHold, as type switcher says.
func (h *rebuildHold) BeginRebuild(ctx context.Context, rebuilt string) error {
	return h.use(ctx, func(ctx context.Context, w *switcher) error {
		if err := h.s.settleFamilies(ctx, mark+store.FamilyPart(rebuilt)); err != nil {
			return err
		}
		return w.begin(ctx, rebuilt)
	})
}

// SwitchRebuild implements store.RebuildHold, as type switcher says.
func (h *rebuildHold) SwitchRebuild(ctx context.Context, rebuilt string, replacements []store.FamilyReplacement) error {
	replacements = slices.Clone(replacements)
	for i := range replacements {
		replacements[i].Table = store.CanonicalName(replacements[i].Table)
	}
	return h.use(ctx, func(ctx context.Context, w *switcher) error {
		if done, err := w.resume(ctx); done || err != nil {
			return err
		}
		if err := w.decide(ctx, rebuilt, replacements); err != nil {
			return err
		}
		_, err := w.resume(ctx)
		return err
	})
}

// ResumeSwitch implements store.RebuildHold, as type switcher says.
func (h *rebuildHold) ResumeSwitch(ctx context.Context) (done bool, err error) {
	err = h.use(ctx, func(ctx context.Context, w *switcher) (err error) {
		done, err = w.resume(ctx)
		return err
	})
	return done, err
}

// AbandonRebuild implements store.RebuildHold, as type switcher says.
func (h *rebuildHold) AbandonRebuild(ctx context.Context) error {
	return h.use(ctx, func(ctx context.Context, w *switcher) error { return w.abandon(ctx) })
}

// Release implements store.RebuildHold.
func (h *rebuildHold) Release(ctx context.Context) error {
	return h.use(ctx, func(ctx context.Context, w *switcher) error { return w.release(ctx) })
}
