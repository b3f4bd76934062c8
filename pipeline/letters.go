package pipeline

import (
	"bytes"
	"context"
	"fmt"
	"iter"
	"slices"

	"sluice/cell"
	"sluice/pipeline/buffer"
	"sluice/store"
)

// LetterState is whether a record in the outbox is still dead.
type LetterState uint8

// The states of a letter.
const (
	AnyLetter    LetterState = iota
	DeadLetters              // without effect so far
	RedrivenOnly             // had their effect after all, by a redrive
)

// Place is one record of a topic.
type Place struct {
	Topic     string
	Partition int32
	Offset    int64
}

// String returns topic/partition/offset, the key of a letter in the dead-letter
// topic.
func (p Place) String() string { return fmt.Sprintf("%s/%d/%d", p.Topic, p.Partition, p.Offset) }

// LetterFilter chooses letters of the outbox. The zero value takes all.
type LetterFilter struct {
	Pipeline string // empty = of all pipelines
	Topic    string // empty = of all topics
	Class    string // empty = of all classes
	Stage    string // empty = of all stages
	State    LetterState
	Since    int64 // timestamp of the record at or after it, ms since the Unix epoch; 0 = any
	Before   int64 // timestamp of the record before it; 0 = any
	// Partitions of the topics; empty = all.
	Partitions []int32
	// Offsets are [From, To); To = 0 is no bound.
	FromOffset, ToOffset int64
	Places               []Place // empty = all
	// Brief leaves out what may be large: key, value and headers.
	Brief bool
}

func (f *LetterFilter) matches(d *buffer.DeadLetter) bool {
	switch {
	case f.Pipeline != "" && d.Pipeline != f.Pipeline, f.Topic != "" && d.Topic != f.Topic,
		f.Class != "" && d.Class != f.Class, f.Stage != "" && d.Stage != f.Stage,
		f.State == DeadLetters && d.Redriven != 0, f.State == RedrivenOnly && d.Redriven == 0,
		f.Since != 0 && d.Time < f.Since, f.Before != 0 && d.Time >= f.Before,
		len(f.Partitions) > 0 && !slices.Contains(f.Partitions, d.Partition),
		d.Offset < f.FromOffset, f.ToOffset != 0 && d.Offset >= f.ToOffset:
		return false
	}
	for _, p := range f.Places {
		if p == (Place{d.Topic, d.Partition, d.Offset}) {
			return true
		}
	}
	return len(f.Places) == 0
}

// scan returns the scan that reads what f chooses, and perhaps more.
func (f *LetterFilter) scan() *store.Scan {
	// Before the letters are the counts of those that were redriven.
	s := &store.Scan{Table: store.OutboxTable, Start: cell.PrefixEnd(buffer.AppendRedrivenPrefix(nil, ""))}
	if f.Pipeline != "" {
		prefix := buffer.AppendOutboxPrefix(nil, f.Pipeline)
		if f.Topic != "" {
			prefix = cell.AppendPart(prefix, []byte(f.Topic))
		}
		s.Start, s.Stop = prefix, cell.PrefixEnd(prefix)
	}
	if f.Brief {
		for _, q := range buffer.BriefQualifiers() {
			s.Columns = append(s.Columns, store.Column{Family: store.OutboxFamily, Qualifier: []byte(q)})
		}
	}
	return s
}

// ScanLetters returns the letters of the outbox that f chooses, by pipeline,
// topic, topic id, partition and offset. They are the caller's. An error is the
// last that it returns; it wraps store.ErrCorrupt where a row is no letter.
func ScanLetters(ctx context.Context, r store.Reader, f *LetterFilter) iter.Seq2[*buffer.DeadLetter, error] {
	return scanLetters(ctx, r, f, f.scan())
}

// scanAfter is ScanLetters of the rows after one.
func scanAfter(ctx context.Context, r store.Reader, f *LetterFilter, row []byte) iter.Seq2[*buffer.DeadLetter, error] {
	s := f.scan()
	if bytes.Compare(row, s.Start) >= 0 {
		s.Start, s.StartExclusive = row, true
	}
	return scanLetters(ctx, r, f, s)
}

// ScanPartition is ScanLetters of one partition of a source.
func ScanPartition(ctx context.Context, r store.Reader, f *LetterFilter, src *store.Source, partition int32) iter.Seq2[*buffer.DeadLetter, error] {
	first := buffer.DeadLetter{Pipeline: src.Pipeline, Topic: src.Topic, TopicID: src.TopicID, Partition: partition}
	s := f.scan()
	s.Start = first.AppendRow(nil)
	s.Stop = cell.PrefixEnd(s.Start[:len(s.Start)-8])
	return scanLetters(ctx, r, f, s)
}

func scanLetters(ctx context.Context, r store.Reader, f *LetterFilter, s *store.Scan) iter.Seq2[*buffer.DeadLetter, error] {
	return func(yield func(*buffer.DeadLetter, error) bool) {
		sc := r.Scan(ctx, s)
		defer sc.Close()
		for sc.Next() {
			d, err := buffer.DecodeDeadLetter(sc.Row())
			if err != nil {
				yield(nil, err)
				return
			}
			if f.matches(d) && !yield(d, nil) {
				return
			}
		}
		if err := sc.Err(); err != nil {
			yield(nil, fmt.Errorf("read the outbox: %w", err))
		}
	}
}

// AllRedriven returns how many letters of each partition had their effect after
// all, and how many were removed, of one pipeline, or of all where it is empty, in
// the order of ScanLetters. A partition without any is left out.
func AllRedriven(ctx context.Context, r store.Reader, pipeline string) ([]buffer.Redriven, error) {
	prefix := buffer.AppendRedrivenPrefix(nil, pipeline)
	sc := r.Scan(ctx, &store.Scan{Table: store.OutboxTable, Start: prefix, Stop: cell.PrefixEnd(prefix)})
	defer sc.Close()
	var all []buffer.Redriven
	for sc.Next() {
		n, err := buffer.DecodeRedriven(sc.Row())
		if err != nil {
			return nil, err
		}
		all = append(all, *n)
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read how many dead letters were redriven: %w", err)
	}
	return all, nil
}

// ReadLetter returns the letter in d's row, whole. Its error says so where the row
// is gone.
func ReadLetter(ctx context.Context, r store.Reader, d *buffer.DeadLetter) (*buffer.DeadLetter, error) {
	row, err := store.GetRow(ctx, r, store.OutboxTable, d.AppendRow(nil))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the outbox: %w", err)
	case row == nil:
		return nil, fmt.Errorf("dead letter of %s is gone from the outbox", placeOf(d))
	}
	return buffer.DecodeDeadLetter(row)
}
