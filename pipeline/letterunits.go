package pipeline

import (
	"context"
	"fmt"

	"sluice/pipeline/buffer"
	"sluice/store"
)

// letterUnits applies units of letters of one pipeline, each of which finds its letter
// as it was read and changes it together with all that the change stands for: in one
// commit, or through a journal a partition where the engine's batches are not atomic.
type letterUnits struct {
	engine   store.Engine
	journal  store.Journaler // nil = batches are atomic
	pipeline string
	next     map[letterLog]int64 // the stored offsets, where there is a journal
}

// letterLog is a log of letters.
type letterLog struct {
	topic     string
	topicID   [16]byte
	partition int32
}

func logOf(d *buffer.DeadLetter) letterLog { return letterLog{d.Topic, d.TopicID, d.Partition} }

// journalOf returns the engine as a store.Journaler where its batches are not atomic.
func journalOf(e store.Engine) (store.Journaler, error) {
	if e.Traits().Atomic == store.AtomicBatch {
		return nil, nil
	}
	j, ok := e.(store.Journaler)
	if !ok {
		return nil, fmt.Errorf("%w: engine %s does not commit the change of a letter with what it stands for", store.ErrUnsupported, e.Traits().Name)
	}
	return j, nil
}

// newLetterUnits returns the letterUnits of a pipeline. Its error wraps
// store.ErrUnsupported where the engine has neither, or the engine's.
func newLetterUnits(ctx context.Context, e store.Engine, pipeline string) (*letterUnits, error) {
	u := &letterUnits{engine: e, pipeline: pipeline}
	var err error
	if u.journal, err = journalOf(e); err != nil || u.journal == nil {
		return u, err
	}
	stored, err := store.AllProgress(ctx, e)
	if err != nil {
		return nil, err
	}
	u.next = map[letterLog]int64{}
	for i := range stored {
		if s := &stored[i]; s.Source.Pipeline == pipeline {
			log := letterLog{s.Source.Topic, s.Source.TopicID, s.Partition}
			u.next[log] = max(u.next[log], s.Progress.Next)
		}
	}
	return u, nil
}

// finish carries out what another process has decided and was killed before it was
// done.
func (u *letterUnits) finish(ctx context.Context) error {
	for log := range u.next {
		if err := u.applyTo(ctx, log, &store.Batch{}); err != nil {
			return err
		}
	}
	return nil
}

// settled reports whether the stored offset has passed d. Where rows are atomic and
// batches are not, a letter is there before: its record may be read again, and then
// become something else.
func (u *letterUnits) settled(d *buffer.DeadLetter) bool {
	return u.journal == nil || d.Offset < u.next[logOf(d)]
}

// apply applies the Records of b, whose offsets are the indexes of their letters, in
// whose order they are. Its error is the engine's.
func (u *letterUnits) apply(ctx context.Context, letters []*buffer.DeadLetter, b *store.Batch) error {
	if u.journal == nil {
		return u.engine.Apply(ctx, b)
	}
	b.Unapplied = store.Unapplied{}
	for rest := b.Records; len(rest) > 0; {
		log, n := logOf(letters[rest[0].Offset]), 1
		for n < len(rest) && logOf(letters[rest[n].Offset]) == log {
			n++
		}
		part := store.Batch{Records: rest[:n]}
		if err := u.applyTo(ctx, log, &part); err != nil {
			return err
		}
		b.Unapplied.Unmet += part.Unapplied.Unmet
		rest = rest[n:]
	}
	return nil
}

// applyTo applies b through the journal of a log. Its counts have a source of their
// own, which no rebuild's is: a generation is a number.
func (u *letterUnits) applyTo(ctx context.Context, log letterLog, b *store.Batch) error {
	s := store.Source{Pipeline: u.pipeline + GenerationMark + "redrive", Topic: log.topic, TopicID: log.topicID}
	return u.journal.ApplyJournaled(ctx, &s, log.partition, b)
}
