package pebblestore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"sluice/cell"
	"sluice/store"
)

var _ store.ChangeHolder = (*DB)(nil)

// errNoHolds ends a change of the catalog that has nothing to change.
var errNoHolds = errors.New("pebblestore: no holds to change")

// HoldChanges makes or renews a hold. It waits for the rewrite that is under way,
// which has not heard of it.
func (db *DB) HoldChanges(ctx context.Context, h store.ChangeHold) (store.ChangeHold, error) {
	if err := h.Check(); err != nil {
		return h, err
	}
	if err := db.enter(); err != nil {
		return h, err
	}
	defer db.leave()
	select {
	case db.rewriting <- struct{}{}:
	case <-ctx.Done():
		return h, fmt.Errorf("hold changes of %s: wait for a rewrite: %w", h.Table, ctx.Err())
	}
	defer func() { <-db.rewriting }()
	err := db.changeHolds(ctx, "hold changes of "+h.Table, func(c *catalog, holds []store.ChangeHold) ([]store.ChangeHold, error) {
		if _, err := c.userTable(h.Table); err != nil {
			return nil, err
		}
		now, asked := db.sequence.Load()+1, h.Since
		h.Since = now
		return append(slices.DeleteFunc(holds, func(o store.ChangeHold) bool {
			if o.Name == h.Name && o.Table == h.Table {
				h.Since = max(o.Since, min(asked, now))
			}
			return o.Name == h.Name
		}), h), nil
	})
	return h, err
}

// ReleaseChanges removes a hold.
func (db *DB) ReleaseChanges(ctx context.Context, name string) error {
	return db.changeHolds(ctx, "release changes held by "+name, func(_ *catalog, holds []store.ChangeHold) ([]store.ChangeHold, error) {
		n := len(holds)
		if holds = slices.DeleteFunc(holds, func(o store.ChangeHold) bool { return o.Name == name }); len(holds) == n {
			return nil, errNoHolds
		}
		return holds, nil
	})
}

// ChangeHolds returns all holds, by name.
func (db *DB) ChangeHolds(context.Context) ([]store.ChangeHold, error) {
	if err := db.enter(); err != nil {
		return nil, err
	}
	defer db.leave()
	return slices.Clone(db.catalog.Load().holds), nil
}

// changeHolds replaces the holds by what f makes of a copy of them, without those
// that are over; or not, where f returns errNoHolds.
func (db *DB) changeHolds(ctx context.Context, what string, f func(c *catalog, holds []store.ChangeHold) ([]store.ChangeHold, error)) error {
	var dropped []store.ChangeHold
	err := db.change(ctx, what, func(c *catalog) (*catalog, *pebble.Batch, error) {
		now, kept := db.opts.Now(), []store.ChangeHold(nil)
		dropped = nil
		for _, h := range c.holds {
			if h.Until < now {
				dropped = append(dropped, h)
			} else {
				kept = append(kept, h)
			}
		}
		holds, err := f(c, kept)
		if err != nil {
			return nil, nil, err
		}
		slices.SortFunc(holds, func(a, b store.ChangeHold) int { return cmp.Compare(a.Name, b.Name) })
		n := *c
		n.holds = holds
		b := db.pebble.NewBatch()
		return &n, b, db.putHolds(b, holds)
	})
	if errors.Is(err, errNoHolds) {
		return nil
	}
	if err == nil {
		for _, h := range dropped {
			db.opts.Logger.Info("changes are held no longer: nobody came back for them", "hold", h.Name, "table", h.Table)
		}
	}
	return err
}

func (db *DB) putHolds(b *pebble.Batch, holds []store.ChangeHold) error {
	v, err := encodeHolds(holds)
	if err != nil {
		return err
	}
	return b.Set(catalogKey(rowStore, qualHolds), db.systemValue(v), nil)
}

// Stored form of the holds.
type (
	storedHolds struct {
		Version int          `json:"version"`
		Holds   []storedHold `json:"holds"`
	}
	storedHold struct {
		Name  string         `json:"name"`
		Table string         `json:"table"`
		Since uint64         `json:"since"`
		Until cell.Timestamp `json:"until"`
		// Expired is missing in the holds of programs that did not know it.
		Expired bool `json:"expired,omitempty"`
	}
)

func encodeHolds(holds []store.ChangeHold) ([]byte, error) {
	s := storedHolds{Version: catalogFormat, Holds: []storedHold{}}
	for _, h := range holds {
		s.Holds = append(s.Holds, storedHold(h))
	}
	b, err := json.Marshal(&s)
	if err != nil {
		return nil, fmt.Errorf("encode holds: %w", err)
	}
	return b, nil
}

// decodeHolds reads what encodeHolds wrote.
func decodeHolds(b []byte) ([]store.ChangeHold, error) {
	var s storedHolds
	if err := json.Unmarshal(b, &s); err != nil {
		return nil, fmt.Errorf("%w: holds: %w", store.ErrCorrupt, err)
	}
	if s.Version > catalogFormat {
		return nil, newerFormat("the list of holds", s.Version)
	}
	var holds []store.ChangeHold
	for i, h := range s.Holds {
		if h.Name == "" || i > 0 && h.Name <= s.Holds[i-1].Name {
			return nil, fmt.Errorf("%w: holds: %q is out of order", store.ErrCorrupt, h.Name)
		}
		holds = append(holds, store.ChangeHold(h))
	}
	return holds, nil
}

// heldTables returns, by number, the tables of which changes are held, and from
// which sequence on; nil = none.
func (c *catalog) heldTables() map[uint32]uint64 {
	var held map[uint32]uint64
	for _, h := range c.holds {
		t := c.tables[h.Table]
		if t == nil {
			continue // dropped; one of its name may come
		}
		if held == nil {
			held = map[uint32]uint64{}
		}
		if since, ok := held[t.id]; !ok || h.Since < since {
			held[t.id] = h.Since
		}
	}
	return held
}

// holdsExpired reports whether it is to be known in which rows of t cells were removed
// that had expired.
func (c *catalog) holdsExpired(t *table) bool {
	return slices.ContainsFunc(c.holds, func(h store.ChangeHold) bool { return h.Expired && c.tables[h.Table] == t })
}

// knowsChanges returns why it is not known what was changed in t after since.
func (c *catalog) knowsChanges(t *table, since uint64) error {
	held, ok := c.held[t.id]
	switch {
	case t.system:
		return fmt.Errorf("%w: a system table", store.ErrUnsupported)
	case !ok:
		return fmt.Errorf("%w: nobody holds them", store.ErrChangesUnknown)
	case since < held:
		return fmt.Errorf("%w: they are held since %d", store.ErrChangesUnknown, held)
	case since < t.altered:
		return fmt.Errorf("%w: the table was created, truncated or altered by commit %d", store.ErrChangesUnknown, t.altered)
	}
	return nil
}

// publish makes c the catalog. It runs in the commit loop, or before that.
func (db *DB) publish(c *catalog) {
	c.held = c.heldTables()
	db.catalog.Store(c)
}

// maxForgotten bounds the batches in which changes are forgotten.
const maxForgotten = 10_000

// forgetChanges drops the holds that are over and removes the changes that no hold
// asks for.
func (db *DB) forgetChanges(ctx context.Context) error {
	over := func(h store.ChangeHold) bool { return h.Until < db.opts.Now() }
	if slices.ContainsFunc(db.catalog.Load().holds, over) {
		if err := db.changeHolds(ctx, "drop holds", func(_ *catalog, holds []store.ChangeHold) ([]store.ChangeHold, error) {
			return holds, nil
		}); err != nil {
			return err
		}
	}
	if err := db.enter(); err != nil {
		return err
	}
	defer db.leave()
	low := []byte{cell.TagChange}
	it, err := db.liveIterators(ctx)(&pebble.IterOptions{LowerBound: low, UpperBound: cell.PrefixEnd(low)})
	if err != nil {
		return engineError(err)
	}
	// After the iterator: a hold that it does not have yet is of a later sequence
	// than all that the iterator shows.
	held := db.catalog.Load().held
	b := db.pebble.NewBatch()
	defer func() { b.Close() }()
	var k cell.Key
	var scratch []byte
	for ok := it.First(); ok && err == nil; ok = it.Next() {
		if scratch, err = cell.DecodeKey(&k, it.Key(), scratch[:0]); err != nil {
			err = fmt.Errorf("%w: %w", store.ErrCorrupt, err)
			break
		}
		if since, found := held[k.Table]; found && k.Sequence > since {
			continue
		}
		if err = b.Delete(bytes.Clone(it.Key()), nil); err == nil && b.Count() >= maxForgotten {
			if err = cmp.Or(ctx.Err(), db.pebble.Apply(b, pebble.NoSync)); err == nil {
				b.Reset()
			}
		}
	}
	if err = errors.Join(err, it.Error(), db.closeIterator(it)); err == nil && !b.Empty() {
		err = db.pebble.Apply(b, pebble.NoSync)
	}
	return engineError(err)
}
