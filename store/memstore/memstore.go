// Package memstore is the model engine: a store.Engine that is obviously right.
//
// It keeps every written cell with its sequence in Go maps and slices and
// resolves reads by the declarative rules of docs/data-model.md, word for word,
// so that other engines can be compared with it. Flush and compactions remove
// physically what HBase's would. It offers everything that the embedded engine
// does except durability.
//
// Writers exclude each other; a scan reads the rows as they were when it was
// opened. Everything that goes in or comes out is copied. It is not made for
// speed or for much data: every scan sorts its rows, every write copies its
// row's version list.
package memstore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"sluice/cell"
	"sluice/store"
)

// Options configures a Store. The zero value is ready.
type Options struct {
	// Now is the store's clock in ms since the Unix epoch; nil = the system's.
	Now func() cell.Timestamp
}

// Store is a store in memory. Make one with New.
type Store struct {
	now func() cell.Timestamp

	mu       sync.RWMutex // guards all below, and excludes writers
	tables   map[string]*table
	spaces   store.NamespaceSet
	sequence uint64 // of the last cell written, or of a later change
	holds    map[string]store.ChangeHold
	once     map[onceKey]cell.Timestamp // event ids that were used, and when
	closed   *closed
}

var (
	_ store.Engine         = (*Store)(nil)
	_ store.Snapshotter    = (*Store)(nil)
	_ store.Admin          = (*Store)(nil)
	_ store.TableSwitcher  = (*Store)(nil)
	_ store.Namespacer     = (*Store)(nil)
	_ store.RegionMeter    = (*Store)(nil)
	_ store.Compactor      = (*Store)(nil)
	_ store.RowMutator     = (*Store)(nil)
	_ store.CounterExpirer = (*Store)(nil)
)

// New returns an empty store, which holds the system tables only. o may be nil.
func New(o *Options) (*Store, error) {
	if o == nil {
		o = &Options{}
	}
	s := &Store{now: o.Now, tables: make(map[string]*table), once: make(map[onceKey]cell.Timestamp), holds: make(map[string]store.ChangeHold), closed: new(closed)}
	if s.now == nil {
		s.now = func() cell.Timestamp { return cell.Timestamp(time.Now().UnixMilli()) }
	}
	for _, d := range store.SystemTables() {
		t, err := newTable(d, nil, s.now())
		if err != nil {
			return nil, err
		}
		s.tables[d.Name] = t
	}
	return s, nil
}

// Traits returns what the store guarantees: batches are atomic, nothing is
// durable.
func (s *Store) Traits() store.Traits {
	return store.Traits{Name: "mem", Atomic: store.AtomicBatch}
}

// Close fails every later call, and running scans, with store.ErrClosed.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed.close()
	return nil
}

// begin locks the store for writing. The caller unlocks it where err is nil.
func (s *Store) begin(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	s.mu.Lock()
	if err := s.closed.err(); err != nil {
		s.mu.Unlock()
		return err
	}
	return nil
}

// Apply applies all of b or nothing of it.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	if err := s.begin(ctx); err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	defer s.mu.Unlock()
	tx := s.newTx()
	for i := range b.Advances {
		if err := tx.advance(&b.Advances[i]); err != nil {
			return err
		}
	}
	run := recordRun{tx: tx}
	counters := make([]cell.Mutation, len(b.Counters))
	for i := range b.Counters {
		c := &b.Counters[i]
		counters[i] = cell.Mutation{Table: c.Table, Row: c.Row, Ops: []cell.Op{{Type: cell.OpIncrement, Family: c.Family, Qualifier: c.Qualifier, Time: c.Time, Delta: c.Delta}}}
		// What can be wrong with a counter does not depend on what is stored.
		if err := tx.checkCounter(c, &counters[i]); err != nil {
			run.refuse(c.Offset, c.Table, c.Row, err)
		}
	}
	mutate := func(m *store.Mutation) {
		if run.enter(m.Offset) {
			if _, err := tx.mutate(&m.Mutation, nil); err != nil {
				run.fail(&m.Mutation, err)
			}
			run.applied = true
		}
	}
	b.InOrder(func(p *store.PackedPut) {
		m := p.Mutation()
		mutate(&m)
	}, mutate, func(r *store.Record) {
		if run.enter(r.Offset) {
			if m, err := tx.record(r, &run.outcomes); err != nil {
				run.fail(m, err)
			}
		}
	})
	run.end()
	switch {
	case run.disabled != nil:
		return fmt.Errorf("apply batch: %w", run.disabled)
	case len(run.refused) > 0:
		return store.NewBatchError(run.refused)
	}
	for i := range counters {
		if _, err := tx.mutate(&counters[i], nil); err != nil {
			return fmt.Errorf("apply batch: a counter that was checked: %w", err)
		}
	}
	if err := tx.drop(b.Advances, run.dropped); err != nil {
		return err
	}
	b.Unapplied = run.dropped
	tx.commit()
	return nil
}

// MutateRow applies m to its row if cond is nil or holds.
func (s *Store) MutateRow(ctx context.Context, cond *store.Cond, m *cell.Mutation) (store.Result, error) {
	if err := store.CheckNil(m); err != nil {
		return store.Result{}, err
	}
	if err := s.begin(ctx); err != nil {
		return store.Result{}, fmt.Errorf("mutate row of %s: %w", m.Table, err)
	}
	defer s.mu.Unlock()
	tx := s.newTx()
	res, err := tx.mutate(m, cond)
	if err != nil {
		return store.Result{}, err
	}
	tx.commit()
	return res, nil
}

// MutateRows applies ms in order, each with its own outcome.
func (s *Store) MutateRows(ctx context.Context, ms []*cell.Mutation) ([]store.Result, []error) {
	results, errs := make([]store.Result, len(ms)), make([]error, len(ms))
	if err := s.begin(ctx); err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("mutate %d rows: %w", len(ms), err)
		}
		return results, errs
	}
	defer s.mu.Unlock()
	tx := s.newTx()
	for i, m := range ms {
		if errs[i] = store.CheckNil(m); errs[i] == nil {
			results[i], errs[i] = tx.mutate(m, nil)
		}
	}
	tx.commit()
	return results, errs
}
