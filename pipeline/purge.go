package pipeline

import (
	"context"
	"fmt"

	"sluice/pipeline/buffer"
	"sluice/store"
)

// purgeLetters bounds one commit of a purge: small enough to wait little among those
// of the partitions.
const purgeLetters = 500

// PurgeOptions says which letters to remove from the outbox. Engine and
// Filter.Pipeline are required.
type PurgeOptions struct {
	Engine store.Engine // commits a batch as a whole, or is a store.Journaler
	Filter LetterFilter // its Brief is not used
	// KeepUnrelayed leaves those that the dead-letter topic does not have.
	KeepUnrelayed bool
}

// PurgeCounts is what became of the letters that a purge has looked at.
type PurgeCounts struct {
	Purged    int64
	Unrelayed int64 // left for KeepUnrelayed
	Overtaken int64 // a redrive or another purge was faster: what is left of them is unchanged
}

// Purge removes letters from the outbox for good. Each is counted as purged in the
// commit that removes it, so that the audit equation still holds, and removed only as
// what the filter has seen: a letter that is redriven meanwhile stays. So it may be
// repeated, killed, and run beside a daemon, redrives and other purges. Where batches
// are not atomic the commit is an entry of a journal, as Redrive's is.
//
// A rebuild counts the record of a letter that was purged while it was dead where the
// mapping takes it then, as that of any record.
//
// The counts are of what was done, also beside an error, which wraps the store's or
// ErrRebuilding; what became of the letters of a commit without a reply is in none.
func Purge(ctx context.Context, o *PurgeOptions) (PurgeCounts, error) {
	var n PurgeCounts
	switch {
	case o == nil || o.Engine == nil || o.Filter.Pipeline == "":
		return n, fmt.Errorf("purge: %w: no engine or no pipeline", store.ErrInvalidArgument)
	}
	// A rebuild counts no record that is a dead letter: what is one must not change
	// amid it.
	if err := CheckNoRebuild(ctx, o.Engine, o.Filter.Pipeline); err != nil {
		return n, fmt.Errorf("purge: %w", err)
	}
	units, err := newLetterUnits(ctx, o.Engine, o.Filter.Pipeline)
	if err == nil {
		err = units.finish(ctx)
	}
	if err != nil {
		return n, fmt.Errorf("purge: %w", err)
	}
	f := o.Filter
	f.Brief = true
	var after []byte
	for {
		var letters []*buffer.DeadLetter
		for d, err := range scanAfter(ctx, o.Engine, &f, after) {
			if err != nil {
				return n, fmt.Errorf("purge: %w", err)
			}
			after = d.AppendRow(nil)
			if !units.settled(d) {
				continue
			}
			if o.KeepUnrelayed && !d.Relayed {
				n.Unrelayed++
				continue
			}
			if letters = append(letters, d); len(letters) == purgeLetters {
				break
			}
		}
		if len(letters) == 0 {
			return n, nil
		}
		var b store.Batch
		for i, d := range letters {
			b.Record(int64(i), nil, d.Unchanged(), d.PurgeMutations()...)
		}
		if err := units.apply(ctx, letters, &b); err != nil {
			return n, fmt.Errorf("purge %d dead letters from %s on: %w", len(letters), placeOf(letters[0]), err)
		}
		n.Overtaken += b.Unapplied.Unmet
		n.Purged += int64(len(letters)) - b.Unapplied.Unmet
	}
}
