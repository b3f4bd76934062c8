package pipeline

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/pipeline/decode"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// Bounds of one commit of a redrive: small enough to wait little among those of
// the partitions and to fit a request to the daemon.
const (
	redriveLetters = 200
	redriveBytes   = 4 << 20 // of their records, and of what they become, about
)

// RedriveOptions says which dead letters to apply, and how. Engine, Plan and
// Filter.Pipeline are required.
type RedriveOptions struct {
	Engine store.Engine // commits a batch as a whole, or is a store.Journaler
	Plan   *mapping.Plan
	Filter LetterFilter // its State and Brief are not used: dead ones are taken, whole
	Limit  int          // letters to try; 0 = all
	// DryRun maps the letters and writes nothing. What the store would refuse
	// does not show.
	DryRun bool
	// CreateTable is Options.CreateTable of the pipeline; nil creates none.
	CreateTable func(ctx context.Context, name string) error
	Logger      *slog.Logger // nil discards
}

// RedriveCounts is what became of the letters that a redrive has tried.
type RedriveCounts struct {
	Applied   int64
	Filtered  int64 // nothing is left to do: the present mapping leaves them out, no check holds, or their event id is used
	Refused   int64 // still dead, with the new reason
	Overtaken int64 // another redrive or a purge was faster
}

// Redrive applies the original records of dead letters by the present mapping,
// each once: the row in the outbox that makes a letter dead no more is written in
// the commit of the record's effects, and only where it is not there yet. So it
// may be repeated, killed, and run beside a daemon and other redrives. A letter
// that is refused again stays dead with the new reason.
//
// Where batches are not atomic the commit is an entry of a journal, which may be
// seen in part: what a process has decided before it was killed is finished by the
// next Redrive or Purge. Letters that the stored offset has not passed yet are left.
//
// The record takes effect now, not in its turn: what it puts carries its event
// time as ever, but a delete or an append comes after what later records did.
//
// The counts are of what was done, also beside an error, which wraps the store's, or
// ErrRebuilding. Where letters are of a table that is READONLY, whatever the policy of
// their pipeline, it wraps store.ErrTableReadOnly, and they stay as they were.
func Redrive(ctx context.Context, o *RedriveOptions) (RedriveCounts, error) {
	switch {
	case o == nil || o.Engine == nil || o.Plan == nil || o.Filter.Pipeline == "":
		return RedriveCounts{}, fmt.Errorf("redrive: %w: no engine, no plan or no pipeline", store.ErrInvalidArgument)
	case o.Limit < 0:
		return RedriveCounts{}, fmt.Errorf("redrive: %w: limit %d", store.ErrInvalidArgument, o.Limit)
	}
	if _, err := journalOf(o.Engine); err != nil {
		return RedriveCounts{}, fmt.Errorf("redrive: %w", err)
	}
	if err := CheckNoRebuild(ctx, o.Engine, o.Filter.Pipeline); err != nil {
		return RedriveCounts{}, fmt.Errorf("redrive: %w", err)
	}
	return newRedrive(o, func() mapper { return o.Plan.NewMapper() }, o.Plan.Version()).run(ctx)
}

// redrive is one Redrive.
type redrive struct {
	*RedriveOptions
	log       *slog.Logger
	newMapper func() mapper
	mapper    mapper
	version   string // of the mapping
	id        string
	units     *letterUnits
	counts    RedriveCounts
}

func newRedrive(o *RedriveOptions, newMapper func() mapper, version string) *redrive {
	r := &redrive{RedriveOptions: o, log: o.Logger, newMapper: newMapper, mapper: newMapper(), version: version}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand)
	r.id = hex.EncodeToString(id[:])
	return r
}

func (r *redrive) run(ctx context.Context) (_ RedriveCounts, err error) {
	if r.units, err = newLetterUnits(ctx, r.Engine, r.Filter.Pipeline); err == nil && !r.DryRun {
		err = r.units.finish(ctx)
	}
	if err != nil {
		return r.counts, fmt.Errorf("redrive: %w", err)
	}
	f := r.Filter
	f.State, f.Brief = DeadLetters, false
	left := r.Limit
	var after []byte
	for {
		var letters []*buffer.DeadLetter
		size := 0
		for d, err := range scanAfter(ctx, r.Engine, &f, after) {
			if err != nil {
				return r.counts, err
			}
			if !r.units.settled(d) {
				continue
			}
			letters = append(letters, d)
			size += len(d.Key) + len(d.Value)
			for _, h := range d.Headers {
				size += len(h.Key) + len(h.Value)
			}
			if len(letters) == redriveLetters || size >= redriveBytes || len(letters) == left {
				break
			}
		}
		if len(letters) == 0 {
			return r.counts, nil
		}
		after = letters[len(letters)-1].AppendRow(nil)
		if err := r.letters(ctx, letters); err != nil {
			return r.counts, fmt.Errorf("redrive %d dead letters from %s on: %w", len(letters), placeOf(letters[0]), err)
		}
		if left > 0 {
			if left -= len(letters); left == 0 {
				return r.counts, nil
			}
		}
	}
}

func placeOf(d *buffer.DeadLetter) Place { return Place{d.Topic, d.Partition, d.Offset} }

// tried is what became of a letter.
type tried struct {
	letter  *buffer.DeadLetter
	units   []store.Record // its own; none = the mapping leaves the record out
	refused *mapping.Error
	as      string // what the letter says of a redrive that was carried out
}

// become notes what the mapping makes of the letter: one unit, but where the store
// decides what becomes of each.
func (t *tried) become(out *mapping.Output) {
	units := []store.Record{{Mutations: buffer.Clone(out.Mutations)}}
	if out.Records != nil {
		units = buffer.CloneRecords(t.letter.Pipeline, out.Records)
	}
	if !slices.ContainsFunc(units, decided) {
		one := store.Record{}
		for i := range units {
			one.Mutations = append(one.Mutations, units[i].Mutations...)
		}
		units = []store.Record{one}
	}
	t.units = slices.DeleteFunc(units, func(u store.Record) bool { return len(u.Mutations) == 0 })
}

// decided reports whether the store decides if u has an effect.
func decided(u store.Record) bool { return u.Once != nil || u.Checks != nil }

// bytes returns about how many the units take.
func (t *tried) bytes() (n int64) {
	for i := range t.units {
		n += buffer.Bytes(t.units[i].Mutations)
	}
	return n
}

// letters tries some letters, in one commit where what they become is not too large.
func (r *redrive) letters(ctx context.Context, letters []*buffer.DeadLetter) error {
	var some []tried
	size := int64(0) // of what they become, which may be many times their own
	for i, d := range letters {
		t := tried{letter: d}
		out, err := r.mapLetter(d)
		for pending, ok := err.(*decode.Pending); ok; pending, ok = err.(*decode.Pending) {
			if err := pending.Fetch(ctx); err != nil {
				return err
			}
			out, err = r.mapLetter(d)
		}
		if err != nil {
			t.refused = asMappingError(err)
		} else {
			t.become(out)
		}
		some = append(some, t)
		if size += t.bytes(); size < redriveBytes && i < len(letters)-1 {
			continue
		}
		if err := r.end(ctx, some); err != nil {
			return err
		}
		some, size = nil, 0
	}
	return nil
}

// end applies what became of letters, or only counts it.
func (r *redrive) end(ctx context.Context, all []tried) error {
	if !r.DryRun {
		return r.apply(ctx, all)
	}
	for i := range all {
		r.count(&all[i])
	}
	return nil
}

// apply applies what became of letters in one commit.
func (r *redrive) apply(ctx context.Context, all []tried) error {
	letters := make([]*buffer.DeadLetter, len(all))
	for i := range all {
		letters[i] = all[i].letter
	}
	for {
		err := creating(ctx, r.CreateTable, func() error { return r.units.apply(ctx, letters, r.batch(all)) })
		var refused *store.BatchError
		if err == nil {
			return r.note(ctx, all)
		}
		if !errors.As(err, &refused) {
			return err
		}
		if err := ReadOnlyTable(refused); err != nil { // no letter's fault
			return err
		}
		for i := range refused.Refused {
			n := refused.Refused[i].Offset
			if n < 0 || n >= int64(len(all)) || all[n].refused != nil {
				return fmt.Errorf("%w: %w", errPoisonedOutbox, err)
			}
			all[n].refused = refusal(&refused.Refused[i])
		}
	}
}

// mapLetter maps the original record of d.
func (r *redrive) mapLetter(d *buffer.DeadLetter) (*mapping.Output, error) {
	rec := &mapping.Record{Topic: d.Topic, Partition: d.Partition, Offset: d.Offset, Timestamp: d.Time, Key: d.Key, Value: d.Value}
	for _, h := range d.Headers {
		rec.Headers = append(rec.Headers, mapping.Header(h))
	}
	out, err := mapping.Safely(rec, r.log, r.mapper.Map)
	if mapping.Panicked(err) {
		r.mapper = r.newMapper()
	}
	return out, err
}

// batch makes units of each letter, numbered by its index, which have their effects
// where the letter is still dead, and then with the mark that it is no more.
func (r *redrive) batch(all []tried) *store.Batch {
	var b store.Batch
	now := time.Now().UnixMilli()
	for i := range all {
		t, offset := &all[i], int64(i)
		d := *t.letter
		dead := d.Unchanged()
		d.MappingVersion = r.version
		if t.refused != nil {
			d.Stage, d.Class, d.Reason = string(t.refused.Stage), t.refused.Class, t.refused.Err.Error()
			d.Attempts = max(d.Attempts, 1) + 1
			b.Record(offset, nil, dead, d.RefusedMutation())
			continue
		}
		d.Redriven, d.RedrivenBy = now, r.id
		// end is the letter's mark and count, around what it becomes: a condition is
		// tested on the first mutation's row.
		end := func(as string, of ...cell.Mutation) []cell.Mutation {
			d.RedrivenAs = as
			return slices.Concat([]cell.Mutation{d.RedrivenMutation()}, of, []cell.Mutation{d.CountMutation()})
		}
		switch {
		case len(t.units) == 0:
			b.Record(offset, nil, dead, end(buffer.Filtered)...)
		case !slices.ContainsFunc(t.units, decided):
			b.Record(offset, nil, dead, end(buffer.Applied, t.units[0].Mutations...)...)
		default:
			// A unit that has an effect leaves a claim, which makes no letter
			// redriven: by it the last two know whether one had.
			for _, u := range t.units {
				u.Offset, u.Cond = offset, dead
				u.Mutations, u.Asides = append([]cell.Mutation{d.ClaimMutation()}, u.Mutations...), []int{0}
				if u.Checks != nil {
					u.Checks = append([]*store.Cond{nil}, u.Checks...)
				}
				b.Records = append(b.Records, u)
			}
			b.Record(offset, nil, d.Claimed(), end(buffer.Applied)...)
			b.Record(offset, nil, dead, end(buffer.Filtered)...)
		}
	}
	return &b
}

// note counts what the commit has done, which the letters tell: one that does not
// name this redrive was overtaken by another, one that is gone by a purge.
func (r *redrive) note(ctx context.Context, all []tried) error {
	first, last := all[0].letter.AppendRow(nil), all[len(all)-1].letter.AppendRow(nil)
	sc := r.Engine.Scan(ctx, &store.Scan{
		Table: store.OutboxTable, Start: first, Stop: last, StopInclusive: true,
		Columns: []store.Column{
			{Family: store.OutboxFamily, Qualifier: []byte(buffer.OffsetQualifier)}, // of every letter
			{Family: store.OutboxFamily, Qualifier: []byte(buffer.RedrivenAsQualifier)},
			{Family: store.OutboxFamily, Qualifier: []byte(buffer.RedrivenByQualifier)},
		},
	})
	defer sc.Close()
	type end struct{ by, as string }
	ends := map[string]end{} // of every letter that is there; by "" = nobody
	for sc.Next() {
		var e end
		for _, c := range sc.Row().Cells {
			switch string(c.Qualifier) {
			case buffer.RedrivenByQualifier:
				e.by = string(c.Value)
			case buffer.RedrivenAsQualifier:
				e.as = string(c.Value)
			}
		}
		ends[string(sc.Row().Key)] = e
	}
	if err := sc.Err(); err != nil {
		return fmt.Errorf("read what was applied: %w", err)
	}
	for i := range all {
		t := &all[i]
		e, there := ends[string(t.letter.AppendRow(nil))]
		if !there || e.by != "" && e.by != r.id {
			r.counts.Overtaken++
			continue
		}
		t.as = e.as
		r.count(t)
		if t.refused != nil {
			r.log.Warn("record stays a dead letter", "pipeline", t.letter.Pipeline, "topic", t.letter.Topic, "partition", t.letter.Partition, "offset", t.letter.Offset, "err", t.refused)
		}
	}
	return nil
}

func (r *redrive) count(t *tried) {
	switch {
	case t.refused != nil:
		r.counts.Refused++
	case len(t.units) == 0, t.as == buffer.Filtered:
		r.counts.Filtered++
	default:
		r.counts.Applied++
	}
}
