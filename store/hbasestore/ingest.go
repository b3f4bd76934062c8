package hbasestore

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// ingest applies a batch with progress.
func (s *Store) ingest(ctx context.Context, b *store.Batch) error {
	if len(b.Mutations)+len(b.Counters) == 0 {
		return s.exact.begin(ctx, b.Advances)
	}
	rest, elements, eerr := s.takeElements(ctx, b)
	if eerr != nil && !errors.As(eerr, new(*store.BatchError)) {
		return eerr
	}
	plain := *b
	plain.Mutations = rest
	b = &plain
	hs, err := s.validateAll(ctx, b)
	if err != nil && !errors.As(err, new(*store.BatchError)) {
		return err
	}
	counters, cerr := s.counters(ctx, b)
	if cerr != nil && !errors.As(cerr, new(*store.BatchError)) {
		return cerr
	}
	counters = append(counters, elements...)
	if refused := joinRefusals(eerr, err, cerr); refused != nil {
		for _, r := range refused {
			if errors.Is(r.Err, store.ErrUnsupported) { // no record's fault: the rules are not for this engine
				return fmt.Errorf("apply batch: offset %d: %w", r.Offset, r.Err)
			}
		}
		return refused.err()
	}
	for i, h := range hs {
		if m := &b.Mutations[i]; h.once {
			return fmt.Errorf("apply batch: offset %d, table %s, row %.100q: %w: on HBase a batch with progress is made of puts and deletes with timestamps", m.Offset, m.Table, m.Row, store.ErrUnsupported)
		}
	}
	units, of, _ := joinRows(hs)
	return s.exact.apply(ctx, &b.Advances[0], units, counters, func(errs []error) error { return s.refuse(ctx, b.Mutations, of, errs) })
}

// refuse makes the error of what HBase did not take of a batch, of which has for each
// mutation the index in errs of the call's part that it went in: with others of its row,
// maybe of other records, which are made alone then, as one of them is to blame. What was
// not sent, as a mutation before it had failed, is in the batch that is built without the
// records that are refused.
func (s *Store) refuse(ctx context.Context, ms []store.Mutation, of []int, errs []error) error {
	members := make([]int, len(errs))
	for _, unit := range of {
		members[unit]++
	}
	var refused refusals
	var unsent error
	mark := s.schemas.mark()
	forgotten := map[string]bool{}
	for i := range ms {
		m := &ms[i]
		err := errs[of[i]]
		if err == nil {
			continue
		}
		if errors.Is(err, errUnsent) {
			unsent = err
			continue
		}
		if table := store.CanonicalName(m.Table); !forgotten[table] {
			s.schemas.forget(table)
			forgotten[table] = true
		}
		if members[of[i]] > 1 && !errors.Is(err, store.ErrTransient) && !errors.Is(err, store.ErrTableNotEnabled) && ctx.Err() == nil {
			var h *mutation
			if h, err = s.validateSince(ctx, &m.Mutation, false, mark); err == nil {
				_, err = s.mutate(ctx, h)
			}
		}
		if err != nil && !refused.add(ctx, m.Offset, m.Table, m.Row, err) {
			return fmt.Errorf("apply batch: %w", err)
		}
	}
	if len(refused) == 0 && unsent != nil {
		return fmt.Errorf("apply batch: %w", unsent)
	}
	return refused.err()
}

// joinRefusals returns the refusals that errs have.
func joinRefusals(errs ...error) refusals {
	var all refusals
	for _, err := range errs {
		var b *store.BatchError
		if errors.As(err, &b) {
			all = append(all, b.Refused...)
		}
	}
	return all
}

// counters groups the increments of a batch by counter, and checks them.
func (s *Store) counters(ctx context.Context, b *store.Batch) ([]*counter, error) {
	a := &b.Advances[0]
	var all []*counter
	byKey := make(map[string]*counter, len(b.Counters))
	var key []byte
	var refused refusals
	bad := map[string]error{} // by key
	mark := s.schemas.mark()
	for i := range b.Counters {
		d := &b.Counters[i]
		if d.Offset < max(a.From, 0) || d.Offset >= a.Progress.Next || d.Time < 0 || d.Time == cell.Latest {
			return nil, fmt.Errorf("apply batch: table %s, row %.100q: %w: an increment at offset %d and time %d, in a batch of the offsets %d to %d",
				d.Table, d.Row, store.ErrInvalidArgument, d.Offset, d.Time, a.From, a.Progress.Next-1)
		}
		table := store.CanonicalName(d.Table) // two spellings of one counter are one
		key = appendCounterKey(key[:0], table, d.Family, d.Row, d.Qualifier)
		c := byKey[string(key)]
		if c == nil {
			c = &counter{table: table, family: d.Family, row: d.Row, column: d.Qualifier, key: string(key)}
			byKey[c.key] = c
			all = append(all, c)
			if err := s.checkCounterSince(ctx, c, mark); err != nil {
				bad[c.key] = err
			}
		}
		if err := bad[c.key]; err != nil && !refused.add(ctx, d.Offset, d.Table, d.Row, err) {
			return nil, fmt.Errorf("apply batch: %w", err)
		}
		if n := len(c.steps); n > 0 && c.steps[n-1].offset > d.Offset {
			return nil, fmt.Errorf("apply batch: table %s, row %.100q: %w: increments of one counter at offsets %d and %d are not in order",
				d.Table, d.Row, store.ErrInvalidArgument, c.steps[n-1].offset, d.Offset)
		}
		c.steps = append(c.steps, step{d.Offset, d.Delta, d.Time})
	}
	return all, refused.err()
}

// checkCounter refuses an increment that no COUNTER family takes, or an element that no
// DISTINCT one does.
func (s *Store) checkCounter(ctx context.Context, c *counter) error {
	return s.checkCounterSince(ctx, c, s.schemas.mark())
}

// checkCounterSince is checkCounter for one of several, see validateSince.
func (s *Store) checkCounterSince(ctx context.Context, c *counter, mark int) error {
	m := &cell.Mutation{Table: c.table, Row: c.row}
	if c.distinct {
		m.Append(c.family, c.column, nil)
	} else {
		m.Increment(c.family, c.column, 1)
	}
	t, err := s.checked(ctx, m, false, mark)
	switch {
	case err != nil:
	case c.distinct && !t.Family(c.family).Distinct:
		err = atRow(c.table, c.row, "%w: family %s is not a DISTINCT family", store.ErrRefused, c.family)
	case !c.distinct && !t.Family(c.family).Counter:
		err = atRow(c.table, c.row, "%w: family %s is not a COUNTER family", store.ErrRefused, c.family)
	}
	return err
}

// getMultiple reads rows, several calls at a time; each get has a result.
func (s *Store) getMultiple(ctx context.Context, table string, gets []*hbase.TGet) ([]*hbase.TResult_, error) {
	results := make([]*hbase.TResult_, len(gets))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(s.o.Connections)
	for first := 0; first < len(gets); {
		last, cells := first, 0
		for last < len(gets) && (cells == 0 || last-first < maxCallRows && cells+len(gets[last].Columns) <= maxGetCells) {
			cells += len(gets[last].Columns)
			last++
		}
		part, at := gets[first:last], first
		g.Go(func() error {
			var got []*hbase.TResult_
			err := s.retry(ctx, request{what: "get rows of", table: table, rows: true}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
				got, err = c.GetMultiple(ctx, []byte(table), part)
				return err
			})
			if err == nil && len(got) != len(part) {
				err = fmt.Errorf("%w: %d results of %d gets of %s", store.ErrCorrupt, len(got), len(part), table)
			}
			copy(results[at:], got)
			return err
		})
		first = last
	}
	return results, g.Wait()
}

// maxGetCells is how many columns one call asks for: an answer of about as many
// bytes as a call that writes has.
const maxGetCells = 10_000
