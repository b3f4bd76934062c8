package hbasestore

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/region"
	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

var _ store.RowMutator = (*Store)(nil)

// A call with many rows holds no more than that. The gateway sends them to the
// region servers in calls of its own.
const (
	maxCallRows  = 500
	maxCallBytes = 1 << 20
)

// Apply implements store.Engine for batches of mutations: rows are atomic, the batch
// is not. Consecutive mutations of a row are one; rows are sent grouped by region,
// several calls at a time. What can be told to be wrong beforehand is a
// *store.BatchError, and nothing was applied; later failures are a *store.PartialError.
//
// A batch with one advance is exact, as type exact says: its writes need explicit
// timestamps, its counters the offset of each increment. Several advances without
// anything else are applied one by one. Conditional records, and counters without an
// advance, are refused with store.ErrUnsupported.
func (s *Store) Apply(ctx context.Context, b *store.Batch) error {
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	defer end()
	b = b.Unpacked()
	switch members := len(b.Mutations) + len(b.Counters); {
	case len(b.Records) > 0:
		return fmt.Errorf("apply batch: %w: conditional records on HBase, whose batches are not atomic", store.ErrUnsupported)
	case len(b.Counters) > 0 && len(b.Advances) == 0:
		return fmt.Errorf("apply batch: %w: counters without the offsets that they come from, on HBase", store.ErrUnsupported)
	case len(b.Advances) > 1 && members > 0:
		return fmt.Errorf("apply batch: %w: a batch on HBase that advances %d partitions and writes", store.ErrUnsupported, len(b.Advances))
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("apply batch: %w", err)
	}
	if len(b.Advances) > 0 {
		return s.ingest(ctx, b)
	}
	hs, err := s.validateAll(ctx, b)
	if err != nil {
		return err
	}
	units, of, distinct := joinRows(hs)
	errs := s.applyInto(ctx, units, make([]store.Result, len(units)), true, distinct)
	failed := &store.PartialError{}
	for i := range b.Mutations {
		m := &b.Mutations[i]
		if err := errs[of[i]]; err != nil {
			failed.Failed = append(failed.Failed, store.Refusal{Offset: m.Offset, Table: m.Table, Row: m.Row, Err: err})
		} else {
			failed.Applied++
		}
	}
	if len(failed.Failed) > 0 {
		return fmt.Errorf("apply batch: %w", failed)
	}
	return nil
}

// validateAll returns the batch's mutations for HBase. Its error is a
// *store.BatchError where records are refused.
func (s *Store) validateAll(ctx context.Context, b *store.Batch) ([]*mutation, error) {
	hs := make([]*mutation, len(b.Mutations))
	var refused refusals
	mark := s.schemas.mark()
	for i := range b.Mutations {
		m := &b.Mutations[i]
		h, err := s.validateSince(ctx, &m.Mutation, false, mark)
		hs[i] = h
		if err == nil {
			continue
		}
		if !refused.add(ctx, m.Offset, m.Table, m.Row, err) {
			return nil, fmt.Errorf("apply batch: %w", err)
		}
	}
	return hs, refused.err()
}

// refusals are the records of a batch that are refused.
type refusals []store.Refusal

// add notes why the record at offset is refused, or returns false where the store
// refuses no record for err.
func (rs *refusals) add(ctx context.Context, offset int64, table string, row []byte, err error) bool {
	if errors.Is(err, store.ErrTransient) || errors.Is(err, store.ErrTableNotEnabled) || ctx.Err() != nil {
		return false
	}
	*rs = append(*rs, store.Refusal{Offset: offset, Table: table, Row: row, Err: err})
	return true
}

// err returns the refusals as a *store.BatchError, nil where there is none.
func (rs refusals) err() error {
	if len(rs) == 0 {
		return nil
	}
	return store.NewBatchError(rs)
}

// joinRows makes one mutation of consecutive ones of a row that may be repeated, up
// to maxCallBytes. of has for each mutation the index of the one that it is part of;
// distinct says that no two of units are of one row.
func joinRows(hs []*mutation) (units []*mutation, of []int, distinct bool) {
	of = make([]int, len(hs))
	units = make([]*mutation, 0, len(hs))
	last := make(map[string]int, len(hs)) // by table and row: the index in units of the newest
	var key []byte
	for i, h := range hs {
		key = rowKey(key[:0], h)
		at, ok := last[string(key)]
		if ok {
			u := units[at]
			if !u.once && !h.once && u.size+h.size <= maxCallBytes && !(h.ordered && u.deletes()) && u.addition.takes(h.addition) {
				u.join(h)
				of[i] = at
				continue
			}
		}
		of[i] = len(units)
		last[string(key)] = len(units)
		units = append(units, h)
	}
	return units, of, len(units) == len(last)
}

// deletes reports whether h deletes anything. HBase gives all that one mutation does
// one sequence number: where a family has NEW_VERSION_BEHAVIOR, a put that came after
// such a delete would be hidden by it.
func (h *mutation) deletes() bool {
	return slices.ContainsFunc(h.writes, func(w *hbase.TMutation) bool { return w.DeleteSingle != nil })
}

func rowKey(dst []byte, h *mutation) []byte {
	return append(cell.AppendPart(dst, []byte(h.table)), h.row...)
}

// join appends the writes of o, of the same row, to h.
func (h *mutation) join(o *mutation) {
	h.size += o.size
	if h.addition != nil {
		h.addition.elements = append(h.addition.elements, o.addition.elements...)
	}
	h.ordered = h.ordered || o.ordered
	for _, w := range o.writes {
		if n := len(h.writes); n > 0 && w.Put != nil && h.writes[n-1].Put != nil {
			p := h.writes[n-1].Put
			if string(p.Attributes[ttlAttribute]) == string(w.Put.Attributes[ttlAttribute]) && p.GetDurability() == w.Put.GetDurability() {
				p.ColumnValues = append(p.ColumnValues, w.Put.ColumnValues...)
				continue
			}
		}
		h.writes = append(h.writes, w)
	}
}

// MutateRows implements store.RowMutator. Rows are sent in several calls; those of
// one row are applied in order.
func (s *Store) MutateRows(ctx context.Context, ms []*cell.Mutation) ([]store.Result, []error) {
	results, errs := make([]store.Result, len(ms)), make([]error, len(ms))
	ctx, end, err := s.begin(ctx, false)
	if err != nil {
		for i := range errs {
			errs[i] = fmt.Errorf("mutate %d rows: %w", len(ms), err)
		}
		return results, errs
	}
	defer end()
	var hs []*mutation
	var at []int // the index of each in ms
	mark := s.schemas.mark()
	for i, m := range ms {
		if errs[i] = store.CheckNil(m); errs[i] != nil {
			continue
		}
		h, err := s.validateSince(ctx, m, false, mark)
		if err != nil {
			errs[i] = fmt.Errorf("mutate row: %w", err)
			continue
		}
		hs, at = append(hs, h), append(at, i)
	}
	got := make([]store.Result, len(hs))
	for j, err := range s.applyInto(ctx, hs, got, false, false) {
		results[at[j]], errs[at[j]] = got[j], err
	}
	return results, errs
}

// errUnsent is the error of a mutation that was not sent.
var errUnsent = fmt.Errorf("%w: a mutation before it failed", store.ErrTransient)

// applyInto applies hs, those of one row in order, several calls at a time. together
// stops before the next mutation of any row once one has failed; distinct says that
// no two are of one row.
func (s *Store) applyInto(ctx context.Context, hs []*mutation, results []store.Result, together, distinct bool) []error {
	errs := make([]error, len(hs))
	done := make([]int, 0, len(hs))
	for round := range rounds(hs, distinct) {
		g := &errgroup.Group{}
		g.SetLimit(s.o.Connections)
		for _, call := range s.calls(ctx, hs, round) {
			g.Go(func() error {
				s.send(ctx, hs, call, results, errs)
				return nil
			})
		}
		_ = g.Wait() // each mutation has its own error
		done = append(done, round...)
		if together && slices.ContainsFunc(round, func(i int) bool { return errs[i] != nil }) {
			break
		}
	}
	if len(done) < len(hs) { // what was not sent
		slices.Sort(done)
		for i := range errs {
			if _, ok := slices.BinarySearch(done, i); !ok {
				errs[i] = errUnsent
			}
		}
	}
	return errs
}

// rounds yields the indices of hs so that no two of a row are in one round, and those
// of a row are in rounds in their order. distinct: no two are of one row.
func rounds(hs []*mutation, distinct bool) func(yield func([]int) bool) {
	return func(yield func([]int) bool) {
		rest := make([]int, len(hs))
		for i := range rest {
			rest[i] = i
		}
		if distinct {
			yield(rest)
			return
		}
		var key []byte
		for len(rest) > 0 {
			seen := make(map[string]bool, len(rest))
			var now, later []int
			for _, i := range rest {
				key = rowKey(key[:0], hs[i])
				if seen[string(key)] {
					later = append(later, i)
					continue
				}
				seen[string(key)] = true
				now = append(now, i)
			}
			if !yield(now) {
				return
			}
			rest = later
		}
	}
}

// calls cuts a round into calls: puts that may be repeated by table and region, deletes
// so, too, and each other mutation alone.
func (s *Store) calls(ctx context.Context, hs []*mutation, round []int) [][]int {
	type place struct {
		table   string
		region  int
		deletes bool
	}
	open := map[place]int{} // index in out of the call that takes more
	var sizes []int         // of out
	var out [][]int
	var regions *region.Map // of table, nil where HBase is to sort its rows out
	table := ""
	for k, i := range round {
		h := hs[i]
		if !h.bulk() {
			out, sizes = append(out, []int{i}), append(sizes, h.size)
			continue
		}
		if k == 0 || h.table != table {
			table = h.table
			var err error
			if regions, _, err = s.regions.get(ctx, table); err != nil {
				regions = nil
			}
		}
		p := place{table: table, deletes: h.deletes()}
		if regions != nil {
			p.region = regions.Locate(h.row)
		}
		at, ok := open[p]
		if !ok || len(out[at]) == maxCallRows || sizes[at]+h.size > maxCallBytes {
			at = len(out)
			out, sizes = append(out, make([]int, 0, min(len(round)-k, maxCallRows))), append(sizes, 0)
			open[p] = at
		}
		out[at] = append(out[at], i)
		sizes[at] += h.size
	}
	return out
}

// send makes one call and notes what became of its mutations.
func (s *Store) send(ctx context.Context, hs []*mutation, call []int, results []store.Result, errs []error) {
	one := func(i int) { results[i], errs[i] = s.mutate(ctx, hs[i]) }
	if len(call) == 1 {
		one(call[0])
		return
	}
	table := hs[call[0]].table
	var err error
	if hs[call[0]].deletes() {
		var left []*hbase.TDelete
		deletes := make([]*hbase.TDelete, len(call))
		for j, i := range call {
			deletes[j] = hs[i].writes[0].DeleteSingle
		}
		err = s.retry(ctx, request{what: "delete rows of", table: table, rows: true}, func(ctx context.Context, c *hbase.THBaseServiceClient) (err error) {
			left, err = c.DeleteMultiple(ctx, []byte(table), deletes)
			return err
		})
		if err == nil && len(left) > 0 { // as the interface has it; HBase answers with an error
			err = fmt.Errorf("%w: %d of %d deletes were not made", store.ErrRefused, len(left), len(deletes))
		}
	} else {
		puts := make([]*hbase.TPut, len(call))
		for j, i := range call {
			puts[j] = hs[i].writes[0].Put
		}
		err = s.retry(ctx, request{what: "put rows of", table: table, rows: true}, func(ctx context.Context, c *hbase.THBaseServiceClient) error {
			return putMultiple(ctx, c, []byte(table), puts)
		})
	}
	refused := err != nil && ctx.Err() == nil && !errors.Is(err, store.ErrTransient) && !errors.Is(err, store.ErrTableNotEnabled)
	for _, i := range call {
		switch {
		case refused:
			one(i) // the others were applied: find out which was not
		default:
			results[i], errs[i] = store.Result{Applied: err == nil}, err
		}
	}
}
