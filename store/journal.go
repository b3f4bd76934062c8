package store

import "context"

// Journaler is an engine whose batches are not atomic (AtomicRow) and that applies
// conditional units all the same, each whole and once: what a unit becomes is decided
// by one write to a journal before anything of it is written, and whoever uses the
// journal next finishes what was begun.
type Journaler interface {
	// ApplyJournaled applies the Records of b in order and sets b.Unapplied.Unmet, as
	// Apply does on an engine of AtomicBatch, through the journal of a partition of s.
	// A unit whose Cond holds is applied whole, before or after this call returns,
	// once its decision is stored: also where the process is killed. Conditions hold
	// against all that goes through the same journal. What is written otherwise to the
	// rows that they test must not change whether they hold.
	//
	// A unit is made of puts and deletes with times, of increments of COUNTER
	// families, which are counted for s, and of increments of OutboxTable. Units of
	// one journal that write one cell at one time are unordered where two processes
	// use it. b has nothing but Records, and these no event ids and no Checks; without
	// any, the call finishes what another process has left. The
	// error is a *BatchError where units are refused, of which then none is applied;
	// it wraps ErrUnsupported for what is not named here. After any other error some
	// of the units may have been applied, or will be.
	ApplyJournaled(ctx context.Context, s *Source, partition int32, b *Batch) error
}
