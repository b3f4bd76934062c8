package rebuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"sluice/cell"
	"sluice/counters"
	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// Count counts the records up to the pipeline's stored offsets. A count that ended
// early goes on when it is called again, by this Rebuild or one opened later. Its
// error wraps pipeline.ErrTopicChanged where the last record that the pipeline has
// applied is another now, store.ErrTableReadOnly where a table in which it counts takes no
// writes, and store.ErrUnsupported where the mapping deletes counters: the rebuild is
// discarded then.
func (r *Rebuild) Count(ctx context.Context) error {
	ids := map[string][16]byte{}
	report := &reporter{to: r.o.Progress}
	for _, p := range r.partitions {
		if p.from < p.target { // it is of the topic that is there
			ids[p.own.Topic] = p.own.TopicID
		}
		first := p.from
		if p.stored != store.Absent {
			first = p.progress.First
			report.now.Done += p.stored - first
		}
		report.now.Total += p.target - first
	}
	f := r.o.Client.NewFetcher(&kafka.FetchOptions{TopicIDs: ids})
	// It ends after its readers, so that a cancelled count says that it was.
	outliving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	fetching := make(chan error, 1)
	go func() { fetching <- f.Run(outliving) }()
	g, counting := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for _, p := range r.partitions {
		g.Go(func() error {
			c := &counter{r: r, p: p, log: r.log.With("topic", p.own.Topic, "partition", p.number), mapper: r.o.Plan.NewMapper(), sums: counters.NewCoalescer(), report: report}
			if err := c.run(counting, f); err != nil {
				return fmt.Errorf("count %s: %w", p, err)
			}
			return nil
		})
	}
	err := g.Wait()
	stop()
	if ferr := <-fetching; ferr != nil && !errors.Is(ferr, context.Canceled) {
		err = ferr // its readers know only that it has stopped
	}
	if err == nil {
		return nil
	}
	err = fmt.Errorf("rebuild pipeline %s: %w", r.o.Pipeline, err)
	if errors.Is(err, store.ErrUnsupported) { // it cannot be finished, and would be in the daemon's way
		err = errors.Join(err, r.Discard(ctx))
	}
	return err
}

// reporter adds up what the partitions have done.
type reporter struct {
	mu  sync.Mutex
	now Progress
	to  func(Progress)
}

func (r *reporter) add(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.Done += n
	if r.to != nil {
		r.to(r.now)
	}
}

// maxHeldBytes is how much of counters and of the elements of distinct counts waits for a
// commit, beside what one record becomes. It is room for three counters of each record of a
// commit; records of arrays become hundreds.
const maxHeldBytes = 16 << 20

// counter counts one partition.
type counter struct {
	r       *Rebuild
	p       *partition
	log     *slog.Logger // knows the partition
	mapper  *mapping.Mapper
	sums    *counters.Coalescer
	report  *reporter
	next    store.Progress // with what is in sums
	end     int64          // up to where the batch that comes next is counted
	records int            // in sums
	// dead are the records that the pipeline has in its outbox and that had no
	// effect yet: they have it when they are redriven, and not here.
	dead map[int64]struct{}
	// refused are the records that the store does not take, by offset; up to
	// single increments are not summed, so that the store can name each.
	refused map[int64]error
	single  int64
	deltas  []store.CounterDelta // of records before single
	// elements are those of the distinct counts: a mutation for each of a record's.
	elements []store.Mutation
	apart    int // bytes that deltas and elements hold
	headers  []mapping.Header
}

// run counts from the stored offset to the target.
func (c *counter) run(ctx context.Context, f *kafka.Fetcher) error {
	if err := c.begin(ctx); err != nil {
		return err
	}
	if c.p.stored >= c.p.target {
		return nil
	}
	c.dead = map[int64]struct{}{}
	for d, err := range pipeline.ScanPartition(ctx, c.r.o.Engine, &pipeline.LetterFilter{State: pipeline.DeadLetters, Brief: true}, &c.p.live, c.p.number) {
		if err != nil {
			return err
		}
		c.dead[d.Offset] = struct{}{}
	}
	reader := f.Add(c.p.own.Topic, c.p.number, c.p.stored)
	defer reader.Close()
	for c.p.stored < c.p.target {
		err := c.read(ctx, reader)
		var refusal *store.BatchError
		if !errors.As(err, &refusal) {
			if err != nil {
				return err
			}
			continue
		}
		if err := c.refuse(refusal); err != nil {
			return err
		}
		reader.SeekTo(c.p.stored)
	}
	return nil
}

// begin stores where the partition is begun, and where it goes on if Kafka has
// lost records since.
func (c *counter) begin(ctx context.Context) error {
	p := c.p
	if p.stored == store.Absent {
		p.progress = store.Progress{First: p.from, Next: p.from, LeaderEpoch: -1, LastOffset: -1, MappingVersion: c.r.o.Plan.Version()}
		return c.store(ctx, &store.Batch{}, p.progress)
	}
	if lost := p.from - p.stored; lost > 0 {
		next := p.progress
		next.Next, next.Lost = p.from, next.Lost+lost
		return c.store(ctx, &store.Batch{}, next)
	}
	return nil
}

// store commits b with the advance to next.
func (c *counter) store(ctx context.Context, b *store.Batch, next store.Progress) error {
	if err := held(ctx, c.r.hold); err != nil {
		return err
	}
	b.Advance(c.p.own, c.p.number, c.p.stored, next)
	if err := c.r.o.Engine.Apply(ctx, b); err != nil {
		return err
	}
	c.p.stored, c.p.progress = next.Next, next
	return nil
}

// refuse notes the records that the store named. They are counted again without
// them, from the stored offset on.
func (c *counter) refuse(e *store.BatchError) error {
	if err := pipeline.ReadOnlyTable(e); err != nil { // the pipeline has applied them when it was not
		return err
	}
	if c.refused == nil {
		c.refused = map[int64]error{}
	}
	for i := range e.Refused {
		d := &e.Refused[i]
		if _, again := c.refused[d.Offset]; again || d.Offset < 0 {
			return e
		}
		c.refused[d.Offset] = d
	}
	c.single = c.next.Next
	return nil
}

// read counts one batch after the other, up to the target.
func (c *counter) read(ctx context.Context, reader *kafka.PartitionReader) error {
	c.drop()
	for c.next.Next < c.p.target {
		c.end = c.p.target
		if skip, ok := c.p.applied.Skips.After(c.next.Next); ok && skip.From < c.end {
			if skip.From <= c.next.Next {
				c.skip(&skip)
				reader.SeekTo(c.next.Next)
				continue
			}
			c.end = skip.From
		}
		b, err := reader.Next(ctx)
		if err != nil {
			return kafka.Reason(err) // Count names the place
		}
		err = c.batch(ctx, b)
		b.Release()
		if err != nil {
			return err
		}
	}
	return c.flush(ctx)
}

// skip passes over offsets that the pipeline has given up, as they could not be read.
func (c *counter) skip(s *store.Skip) {
	n := s.To - c.next.Next
	c.next.Lost, c.next.Skipped = c.next.Lost+n, c.next.Skipped+n
	c.next.Skips = c.next.Skips.With(c.next.Next, s.To, s.Reason)
	c.next.Next = s.To
}

// drop forgets what is summed and not stored.
func (c *counter) drop() {
	c.sums.Reset()
	c.sums.CountFrom(store.CountsFrom(c.r.o.Engine))
	c.deltas = c.deltas[:0]
	clear(c.elements) // they hold what was copied
	c.elements, c.apart = c.elements[:0], 0
	c.next, c.records = c.p.progress, 0
}

func (c *counter) batch(ctx context.Context, b *kafka.Batch) error {
	rec := mapping.Record{Topic: c.p.own.Topic, Partition: c.p.number}
	for i := range b.Records {
		k := &b.Records[i]
		if k.Offset < c.next.Next {
			continue
		}
		if k.Offset >= c.end {
			break
		}
		if last := &c.p.applied; k.Offset == last.LastOffset && (k.Timestamp != last.LastTime || pipeline.Fingerprint(k) != last.Fingerprint) {
			return fmt.Errorf("%w: the record at offset %d is not the one that was applied: the log was written again, or restored from a copy", pipeline.ErrTopicChanged, k.Offset)
		}
		rec.Offset, rec.Timestamp, rec.Key, rec.Value = k.Offset, k.Timestamp, k.Key, k.Value
		c.headers = c.headers[:0]
		for _, h := range k.Headers {
			c.headers = append(c.headers, mapping.Header(h))
		}
		rec.Headers = c.headers
		c.cover(k.Offset)
		c.next.LastOffset, c.next.LastTime = k.Offset, k.Timestamp
		if err := c.record(ctx, &rec); err != nil {
			return err
		}
		c.next.Next = k.Offset + 1
		if c.records++; c.records >= c.r.o.BatchRecords || c.sums.Bytes()+c.apart >= maxHeldBytes {
			if err := c.flush(ctx); err != nil {
				return err
			}
		}
	}
	c.cover(min(b.Next, c.end))
	return nil
}

// cover counts the offsets before offset that held no record.
func (c *counter) cover(offset int64) {
	if gap := offset - c.next.Next; gap > 0 {
		c.next.Control += gap
		c.next.Next = offset
	}
}

// record sums the increments of one record, and gathers its elements.
func (c *counter) record(ctx context.Context, rec *mapping.Record) error {
	if c.refused[rec.Offset] != nil {
		c.next.Dead++
		return nil
	}
	if _, dead := c.dead[rec.Offset]; dead {
		c.next.Dead++
		return nil
	}
	out, err := c.mapRecord(ctx, rec)
	var refused *mapping.Error
	switch {
	case errors.As(err, &refused):
		c.next.Dead++
		return nil
	case err != nil:
		return err
	case out.Filtered():
		c.next.Filtered++
		return nil
	}
	// A record is counted whole or not at all.
	for i := range out.Mutations {
		if refused, err := c.r.families.check(ctx, &out.Mutations[i], now()); err != nil {
			return err
		} else if refused != nil {
			c.next.Dead++
			return nil
		}
	}
	for i := range out.Mutations {
		if err := c.mutation(ctx, rec.Offset, &out.Mutations[i]); err != nil {
			return err
		}
	}
	c.next.Applied++
	return nil
}

// mapRecord maps rec. Where that panics, rec is a dead letter, as it is for the pipeline.
func (c *counter) mapRecord(ctx context.Context, rec *mapping.Record) (*mapping.Output, error) {
	out, err := mapping.Safely(rec, c.log, func(rec *mapping.Record) (*mapping.Output, error) { return c.mapper.MapFetching(ctx, rec) })
	if mapping.Panicked(err) {
		c.mapper = c.r.o.Plan.NewMapper()
	}
	return out, err
}

func now() cell.Timestamp { return cell.Timestamp(time.Now().UnixMilli()) }

// mutation sums the increments of m, and gathers its elements.
func (c *counter) mutation(ctx context.Context, offset int64, m *cell.Mutation) error {
	var elements []cell.Op
	for j := range m.Ops {
		op := &m.Ops[j]
		if op.Type == cell.OpAppend && c.r.families.distinct(m.Table, op.Family) {
			family, err := c.r.families.of(ctx, m.Table, op.Family)
			if err != nil {
				return err
			}
			e := *op
			e.Family, e.Qualifier, e.Value = family, bytes.Clone(op.Qualifier), bytes.Clone(op.Value)
			elements = append(elements, e)
			c.apart += len(e.Qualifier) + len(e.Value) + int(unsafe.Sizeof(e))
			continue
		}
		if op.Type != cell.OpIncrement {
			continue
		}
		family, err := c.r.families.of(ctx, m.Table, op.Family)
		if err != nil {
			return err
		}
		if offset >= c.single {
			c.sums.Add(m.Table, family, m.Row, op.Qualifier, op.Delta, op.Time, offset)
			continue
		}
		d := store.CounterDelta{
			Table: m.Table, Family: family, Row: bytes.Clone(m.Row), Qualifier: bytes.Clone(op.Qualifier),
			Delta: op.Delta, Time: op.Time, Offset: offset,
		}
		c.deltas = append(c.deltas, d)
		c.apart += len(d.Row) + len(d.Qualifier) + int(unsafe.Sizeof(d))
	}
	if elements != nil {
		e := store.Mutation{Offset: offset, Mutation: cell.Mutation{Table: m.Table, Row: bytes.Clone(m.Row), Ops: elements}}
		c.elements = append(c.elements, e)
		c.apart += len(e.Row) + int(unsafe.Sizeof(e))
	}
	return nil
}

// flush commits what is summed.
func (c *counter) flush(ctx context.Context) error {
	if c.next.Next == c.p.stored {
		return nil
	}
	b := &store.Batch{Mutations: c.elements, Counters: c.deltas}
	for d := range c.sums.Deltas {
		b.Counters = append(b.Counters, store.CounterDelta(d))
	}
	before := c.p.stored
	if err := c.store(ctx, b, c.next); err != nil {
		return err
	}
	c.drop()
	c.report.add(c.p.stored - before)
	return nil
}
