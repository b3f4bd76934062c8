package hbasestore

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	"sluice/store"
	"sluice/store/hbasestore/internal/hbase"
)

// exact applies batches with progress to a store whose batches are not atomic, so
// that a record has its effect once (invariant I2), whoever is killed between two
// calls and whoever else believes to own the partition.
//
// A batch covers the offsets [from, next) of a partition of a source. In order:
//
//  1. claim: the partition's state must stand at from; a check-and-put notes that
//     offsets up to next are begun, and by which mapping. A mapping other than that
//     of what was begun and not finished is refused (UnfinishedError).
//  2. rows: puts and deletes with explicit timestamps, which a replay makes again.
//  3. counters: see counter.add.
//  4. finish: a check-and-put from the state that stands at from to one at next,
//     with the progress. Whoever finds another state is stale.
//
// Why any number of processes may do this side by side, stop anywhere, begin again
// with other borders, and have their writes arrive late:
//
// Which mapping maps an offset is decided before anything is written for it: a
// claim of [from, next) holds the version, and the version changes only where
// until = next, so that no claim of the old one reaches beyond. So the log up to
// offset t has one sum f(t) of each counter's increments.
//
// Every cell that is ever written for a counter is (t, f(t)): t its timestamp, the
// offset after the last increment in it. For it is made of a cell (b, f(b)) and of
// the increments in [b, t), all of which the writer has: its batch begins at from,
// and none lies in [b, from), because the state stood at from, so that whoever took
// it there had written all cells of what is before, and no cell gets older. HBase
// keeps, of a family with VERSIONS 1, the cell of the highest timestamp, whenever it
// was written. So the cell only ever goes forward along f, and once the state is at
// next it is f(next) or further, where further means that the offsets up to there
// are claimed, and will be applied. Borders of batches do not occur in f.
//
// A distinct count is a counter to which that applies word by word, f(t) being the
// sketch of the elements before t and the newest of their times: elements that change
// nothing count as none, and which these are f decides. That sketches merge without
// error is not needed here, as one process writes on behalf of one partition what it
// has read whole; it is what lets a read take the cells together.
//
// Counters that are removed (type remover) count anew from a floor, an offset at which
// the state stood: f is then what is counted from there on, for the columns that the
// floor is of.
type exact struct {
	cells cells
	bases int // of counters, that are kept for all partitions together

	mu         sync.Mutex            // guards what follows
	partitions map[string]*partition // by row of store.OffsetsTable; those with a batch in work are not there
	busy       int                   // batches in work
	swept      time.Time             // when those were dropped last that have had no batch for a while
}

// unusedFor is how long a partition is kept that has no batch: it may be another process's
// by now, and takes a share of the cache. What is dropped is read again.
const unusedFor = 10 * time.Minute

func newExact(c cells, bases int) *exact {
	return &exact{cells: c, bases: bases, partitions: map[string]*partition{}}
}

// partition is what is known of a source's partition between its batches. It
// belongs to one batch at a time.
type partition struct {
	row   []byte
	known bool // state is what was read or written last
	state state
	bases baseCache // of counters, that nothing in [base, state.next) changes
	used  time.Time // when its last batch ended
}

// take returns what is known of a partition, for a batch that begins at from.
func (x *exact) take(a *store.Advance) *partition {
	row := store.AppendSourceRow(nil, &a.Source, a.Partition)
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.partitions[string(row)]
	delete(x.partitions, string(row))
	x.busy++
	if p == nil || p.state.next != a.From {
		p = &partition{row: row}
	}
	return p
}

// give is the end of what began with take. p is kept for the next batch where there was no
// error.
func (x *exact) give(p *partition, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.busy--
	if err != nil {
		return
	}
	x.partitions[string(p.row)] = p
	p.used = time.Now()
	if p.used.Sub(x.swept) >= unusedFor/10 {
		x.swept = p.used
		maps.DeleteFunc(x.partitions, func(_ string, o *partition) bool { return p.used.Sub(o.used) >= unusedFor })
	}
	p.bases.limit(x.part())
}

// share is how much of the cache a partition may have that is with a batch.
func (x *exact) share() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.part()
}

// part is share for who holds mu.
func (x *exact) part() int { return x.bases / max(len(x.partitions)+x.busy, 1) }

// staleError is what the embedded engine says, too.
func staleError(a *store.Advance, stored int64) error {
	return fmt.Errorf("apply batch: pipeline %s, topic %s, partition %d: %w: stored %d, expected %d", a.Source.Pipeline, a.Source.Topic, a.Partition, store.ErrStale, stored, a.From)
}

// apply applies what a batch of one advance became. refuse makes the error of rows
// that HBase did not take.
func (x *exact) apply(ctx context.Context, a *store.Advance, rows []*mutation, counters []*counter, refuse func(errs []error) error) (err error) {
	if stale, err := x.beginAs(ctx, a); stale || err != nil {
		if err == nil {
			err = staleError(a, a.Progress.Next)
		}
		return err
	}
	p := x.take(a)
	defer func() { x.give(p, err) }()
	if len(rows)+len(counters) > 0 {
		if err := x.claim(ctx, p, a); err != nil {
			return err
		}
		if err := refuse(x.cells.write(ctx, rows)); err != nil {
			return err
		}
		if err := x.count(ctx, p, a.Partition, counters); err != nil {
			return err
		}
	}
	return x.finish(ctx, p, a)
}

// move changes the state of p to what to makes of it, as edit does.
func (x *exact) move(ctx context.Context, p *partition, to func(state) (state, *store.Progress, error)) error {
	at := statePlace(p.row)
	if p.known {
		at.known = p.state.encode()
	}
	s, err := x.edit(ctx, at, func(s state) (state, *store.Progress, error) {
		if !p.known || s != p.state {
			p.state, p.known, p.bases = s, true, baseCache{}
		}
		return to(s)
	})
	if s.floors != p.state.floors {
		p.bases = baseCache{}
	}
	p.state = s
	return err
}

// statePlace is where the state of a row of store.OffsetsTable stands.
func statePlace(row []byte) *place {
	return &place{table: store.OffsetsTable, family: store.ProgressFamily, qualifier: stateQualifier, row: row}
}

// edit changes a state to what to makes of it, with the progress that it returns, nil = that
// stays. A state that to returns as it was is not written. edit returns what is there then.
func (x *exact) edit(ctx context.Context, at *place, to func(state) (state, *store.Progress, error)) (now state, err error) {
	err = change(ctx, x.cells, at, func(seen *seen) ([]*hbase.TColumnValue, error) {
		s, err := seen.state()
		if err != nil {
			return nil, err
		}
		want, progress, err := to(s)
		if now = s; err != nil || want == s && progress == nil {
			return nil, err
		}
		want.revision = s.revision + 1
		now = want
		revision := int64(want.revision)
		put := []*hbase.TColumnValue{{Family: []byte(store.ProgressFamily), Qualifier: []byte(stateQualifier), Value: want.encode(), Timestamp: &revision}}
		if progress != nil {
			put = append(put, &hbase.TColumnValue{
				Family: []byte(store.ProgressFamily), Qualifier: []byte(store.ProgressQualifier), Value: store.AppendProgress(nil, progress), Timestamp: &revision,
			})
		}
		return put, nil
	})
	return now, err
}

// load reads the state of a row of store.OffsetsTable.
func (x *exact) load(ctx context.Context, row []byte) (state, error) {
	seen, err := look(ctx, x.cells, statePlace(row))
	if err != nil {
		return state{}, err
	}
	return seen.state()
}

// state decodes what was read of a state's place.
func (s *seen) state() (state, error) {
	if s.cell == nil {
		return absentState(), nil
	}
	return decodeState(s.cell.Value)
}

// at refuses a state that does not stand where a begins, or that another mapping has
// left unfinished.
func (s *state) at(a *store.Advance) error {
	if s.next != a.From {
		return staleError(a, s.next)
	}
	if s.becomes != 0 {
		return fmt.Errorf("apply batch: pipeline %s, topic %s, partition %d: %w: its counters are being switched to those that were counted again; \"ingest replay rebuild\" finishes it where it was killed, or --discard undoes it",
			a.Source.Pipeline, a.Source.Topic, a.Partition, store.ErrTransient)
	}
	if s.version == store.DiscardedMapping && a.Progress.MappingVersion != s.version {
		return fmt.Errorf("apply batch: pipeline %s, topic %s, partition %d: %w: the rebuild was discarded", a.Source.Pipeline, a.Source.Topic, a.Partition, store.ErrStale)
	}
	if s.version != a.Progress.MappingVersion && s.until > s.next {
		return &UnfinishedError{Source: a.Source, Partition: a.Partition, Next: max(s.next, a.Progress.First), Until: s.until, Version: s.version}
	}
	return nil
}

// claim notes that the offsets up to the end of a are begun.
func (x *exact) claim(ctx context.Context, p *partition, a *store.Advance) error {
	return x.advance(ctx, p, a, nil)
}

// finish stores the progress of a.
func (x *exact) finish(ctx context.Context, p *partition, a *store.Advance) error {
	return x.advance(ctx, p, a, &a.Progress)
}

// advance moves a state that stands where a begins: the end of a is begun, and, with
// done, the progress that is stored, applied.
func (x *exact) advance(ctx context.Context, p *partition, a *store.Advance, done *store.Progress) error {
	source, err := x.source(ctx, p, a)
	if err != nil {
		return err
	}
	return x.move(ctx, p, func(s state) (state, *store.Progress, error) {
		if err := s.at(a); err != nil {
			return s, nil, err
		}
		if s.source == 0 {
			s.source = source
		}
		s.version, s.until = a.Progress.MappingVersion, max(s.until, a.Progress.Next)
		if done != nil {
			s.next = done.Next
			if s.next == s.until {
				s.floors = settleFloors(s.floors, s.next)
			}
		}
		return s, done, nil
	})
}

// source returns the source id of a, where p's state does not have it yet.
func (x *exact) source(ctx context.Context, p *partition, a *store.Advance) (uint32, error) {
	if p.known && p.state.source != 0 || a.From != store.Absent {
		return p.state.source, nil
	}
	s, err := x.register(ctx, &a.Source, nil)
	return s.id, err
}
