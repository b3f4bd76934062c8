package store

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"sluice/cell"
)

// Absent is the stored offset of a source's partition that has none yet.
const Absent int64 = -1

// SourceMark is in the names of sources beside a pipeline's own, such as NAME~N, which
// counts its records again. No pipeline has it in its name.
const SourceMark = "~"

// FamilyPart returns the name of a source as that of a family has it which is made for it:
// what is not allowed in these is =XX, of two upper-case hexadecimal digits. Then = is so, too,
// and where it could be taken for such; other names are as they are.
func FamilyPart(source string) string {
	if !strings.ContainsAny(source, `:/\`) && OfFamilyPart(source) == source {
		return source
	}
	return familyParts.Replace(source)
}

// OfFamilyPart returns the source whose FamilyPart is part.
func OfFamilyPart(part string) string { return sourceParts.Replace(part) }

// RebuildOf takes the name of a family apart that an unfinished rebuild counts in, FAMILY~PART~N:
// the family that it counts again, the FamilyPart of the pipeline's name, and the generation. ok
// is false of other families.
func RebuildOf(family string) (served, part string, generation int, ok bool) {
	rest, number, _ := cutLast(family)
	served, part, ok = cutLast(rest)
	generation, err := strconv.Atoi(number)
	return served, part, generation, ok && err == nil && generation > 0
}

// ServedFamilies returns the names of a table's families, in its order, without those that an
// unfinished rebuild counts in, which nobody is to read but who names them.
func ServedFamilies(t *TableDescriptor, named []string) []string {
	var served []string
	for i := range t.Families {
		name := t.Families[i].Name
		if _, _, _, rebuilt := RebuildOf(name); !rebuilt || slices.Contains(named, name) {
			served = append(served, name)
		}
	}
	return served
}

// cutLast cuts around the last SourceMark.
func cutLast(s string) (before, after string, found bool) {
	if i := strings.LastIndex(s, SourceMark); i >= 0 {
		return s[:i], s[i+len(SourceMark):], true
	}
	return s, "", false
}

var (
	familyParts = strings.NewReplacer("=", "=3D", ":", "=3A", "/", "=2F", `\`, "=5C")
	sourceParts = strings.NewReplacer("=3D", "=", "=3A", ":", "=2F", "/", "=5C", `\`)
)

// Source names one log of records: a pipeline on one incarnation of a topic. Two
// pipelines on one topic, or a topic deleted and created anew, are different
// sources and never share progress (design D4).
type Source struct {
	Pipeline  string
	Topic     string
	ClusterID string
	TopicID   [16]byte // zero where the broker knows none
}

// HasTopicID reports whether a broker has told the topic's id; before Kafka 2.8 none does.
func (s *Source) HasTopicID() bool { return s.TopicID != [16]byte{} }

// OfPipeline reports whether the source is a pipeline's own, whose progress says up to
// where its records have had their effect. That of a source beside it does not.
func (s *Source) OfPipeline() bool { return !strings.Contains(s.Pipeline, SourceMark) }

// Untold reports whether found, which is what the brokers tell of the topic just now, lacks
// the topic id that the source has and may be the same log: brokers tell none while one of
// them works as of a version before 2.8, amid an upgrade or a downgrade.
func (s *Source) Untold(found *Source) bool {
	return s.HasTopicID() && !found.HasTopicID() && s.ClusterID == found.ClusterID
}

// Progress is how far a source's partition has been applied, with what is needed
// to recognise its log again, and the counts that make the audit equation:
//
//	Next - First = Applied + Filtered + Duplicate + Unmet + Dead + Dropped + Control + Lost
type Progress struct {
	First          int64  // offset at which the partition was begun
	Next           int64  // next offset to apply
	LeaderEpoch    int32  // of the record at LastOffset; -1 = unknown
	LastOffset     int64  // offset of the last record seen; -1 = none yet
	LastTime       int64  // its timestamp, ms since the Unix epoch
	Fingerprint    uint64 // hash of its key and value
	MappingVersion string
	MappingFrom    int64 // first offset that MappingVersion has mapped
	Applied        int64 // records that had their effect
	Filtered       int64 // records that the mapping left out
	Duplicate      int64 // records whose event id was used before
	Unmet          int64 // records of which no condition held, so that they had no effect
	Dead           int64 // records in the dead-letter outbox
	Control        int64 // offsets without a record for us: control, aborted, compacted
	Lost           int64 // offsets that Kafka no longer had, and Skipped
	Dropped        int64 // records that could not be applied, and that the user does not want to keep
	Aborted        int64 // of Control: records of aborted transactions
	Late           int64 // of Applied, Duplicate and Unmet: records of events that were later than the mapping expects
	Gaps           Gaps  // which offsets Kafka no longer had, the newest ranges
	Skipped        int64 // of Lost: offsets that were given up, by hand or with their topic
	Skips          Skips // which these are, the newest ranges
}

// Balanced reports whether the audit equation holds.
func (p *Progress) Balanced() bool {
	return p.Next-p.First == p.Applied+p.Filtered+p.Duplicate+p.Unmet+p.Dead+p.Dropped+p.Control+p.Lost
}

// Unapplied counts the records of a batch that had no effect, as only the store can
// tell.
type Unapplied struct {
	Unmet     int64 // no condition held
	Duplicate int64 // the event id was applied before
}

// CountsUnapplied returns the one of a batch's advances whose progress counts what of the
// batch had no effect: the last; nil = there is none. Its error wraps ErrInvalidArgument
// where they are of several partitions.
func CountsUnapplied(advances []Advance) (*Advance, error) {
	if len(advances) == 0 {
		return nil, nil
	}
	last := &advances[len(advances)-1]
	for i := range advances {
		if a := &advances[i]; a.Source != last.Source || a.Partition != last.Partition {
			return nil, fmt.Errorf("%w: records had no effect of a batch that advances several partitions, of pipeline %s, topic %s, partition %d and of pipeline %s, topic %s, partition %d: of which one?",
				ErrInvalidArgument, a.Source.Pipeline, a.Source.Topic, a.Partition, last.Source.Pipeline, last.Source.Topic, last.Partition)
		}
	}
	return last, nil
}

// Settle returns p as it is stored, where u is all that ever had no effect of the
// partition. p counts as applied whatever was handed over since its writer has
// read Unmet and Duplicate, because batches are on their way before it can know
// what becomes of those before them.
func (p Progress) Settle(u Unapplied) Progress {
	p.Applied -= u.Unmet - p.Unmet + u.Duplicate - p.Duplicate
	p.Unmet, p.Duplicate = u.Unmet, u.Duplicate
	return p
}

// Advance is one compare-and-set of a batch. What is stored is Progress settled
// with what had no effect of the partition until then, and of the batch. A first
// one's own Unmet and Duplicate count as what had none until then: a partition may go
// on from another store.
type Advance struct {
	Source    Source
	Partition int32
	From      int64 // the stored Next must equal it; Absent for the first batch
	Progress  Progress
}

// Mutation is one row mutation of a batch with the offset of its record.
type Mutation struct {
	Offset int64 // -1 where no record stands behind it
	cell.Mutation
}

// CounterDelta is the sum of a batch's increments of one counter; for an engine of
// AtomicRow, which adds only those that its cells do not have yet, of one record's.
// Those of a counter come by ascending offset then.
type CounterDelta struct {
	Table     string
	Family    string // has COUNTER => true
	Row       []byte
	Qualifier []byte
	Delta     int64
	Time      cell.Timestamp // newest event time among the increments
	Offset    int64          // of the first record that touched it: named where it is refused
}

// Record is a conditional unit of a batch: its mutations are applied in order, and what
// is stored is what they make one by one. Units of one offset are one record, which counts as dropped
// where each of them was and no Mutation shares its offset: as unmet where one of
// them was, else as duplicate.
type Record struct {
	Offset int64
	// Once is an event id: the unit is dropped where one with this id and
	// OnceTTL was applied before. The ids of all sources share one space, so a
	// pipeline puts its own name before an id. nil = none.
	Once []byte
	// OnceTTL is for how many ms after it was used an id is remembered, by the
	// store's clock; 0 = for its whole life.
	OnceTTL int64
	// Cond is tested on the row of the first mutation, as its puts' default
	// times are then taken from CheckCondition; nil = always. A unit that is
	// dropped for it leaves its id unused.
	Cond *Cond
	// Checks has a condition for each mutation, or is nil. One that does not
	// hold for its mutation's row, as the mutations before have left it, leaves
	// out that mutation alone; a unit that is left without any is dropped as if
	// Cond had not held. A nil one holds.
	Checks    []*Cond
	Mutations []cell.Mutation
	// Puts, which PackPut has made, are mutations before those of Mutations, without checks
	// and no asides. Their Offset is not read.
	Puts []PackedPut
	// Asides are the indexes, ascending, of mutations without checks that go with the
	// unit and do not make it applied: where the checks leave out all others, it is
	// dropped with these. nil = none.
	Asides []int
}

// Check says what is wrong with r, which is Unpacked, that no store could take.
func (r *Record) Check() error {
	switch {
	case r.Checks != nil && len(r.Checks) != len(r.Mutations):
		return fmt.Errorf("%w: %d checks of %d mutations", ErrInvalidArgument, len(r.Checks), len(r.Mutations))
	case r.OnceTTL < 0:
		return fmt.Errorf("%w: the id's time to live is %d ms", ErrInvalidArgument, r.OnceTTL)
	case len(r.Asides) > 0 && len(r.Asides) >= len(r.Mutations):
		return fmt.Errorf("%w: %d asides of %d mutations", ErrInvalidArgument, len(r.Asides), len(r.Mutations))
	}
	last := -1
	for _, i := range r.Asides {
		if i <= last || i >= len(r.Mutations) || r.Checks != nil && r.Checks[i] != nil {
			return fmt.Errorf("%w: mutation %d cannot be an aside", ErrInvalidArgument, i)
		}
		last = i
	}
	return nil
}

// Aside reports whether mutation i is one of r.Asides.
func (r *Record) Aside(i int) bool {
	_, found := slices.BinarySearch(r.Asides, i)
	return found
}

// AppendOnce appends the Once of a pipeline's event id, which no other pipeline's
// is equal to.
func AppendOnce(dst []byte, pipeline string, id []byte) []byte {
	return append(cell.AppendPart(dst, []byte(pipeline)), id...)
}

// Batch is what Engine.Apply applies as one unit. The zero value is empty and
// ready. Its slices belong to the caller; the engine only reads them, and only
// until Apply returns.
//
// Puts, Mutations and Records take effect in the order of InOrder, each seeing what
// those before it did; Counters after them. Advances are compared first, against
// what was stored before the batch and in order among themselves: a stale batch
// is stale whatever else it holds.
//
// Members with one offset of 0 or more belong to one record and stand together in
// that order. Where one of them is refused the record is: none of the others is
// visible to what comes behind, nor can be refused any more.
type Batch struct {
	Puts      []PackedPut // no record has both these and Mutations
	Mutations []Mutation
	Counters  []CounterDelta
	Records   []Record
	Advances  []Advance
	// Unapplied is what became of Records: Apply sets it where it returns no
	// error. The last Advance stores it, so a batch of which Records had no
	// effect must not advance several partitions.
	Unapplied Unapplied

	// Bulk says that much more of its kind follows, as where a backlog is
	// read: an engine may commit it, and what it gathers with it, in the way
	// that costs least in all and later. It changes nothing else.
	Bulk bool
}

// Add appends m, made from the record at offset.
func (b *Batch) Add(offset int64, m cell.Mutation) {
	b.Mutations = append(b.Mutations, Mutation{Offset: offset, Mutation: m})
}

// Record appends a unit that is applied or dropped whole.
func (b *Batch) Record(offset int64, once []byte, cond *Cond, m ...cell.Mutation) {
	b.Records = append(b.Records, Record{Offset: offset, Once: once, Cond: cond, Mutations: m})
}

// Advance adds the compare-and-set of the offset of a source's partition, in the
// same atomic unit: the batch fails whole with ErrStale where the stored value
// is not from.
func (b *Batch) Advance(s Source, partition int32, from int64, p Progress) {
	b.Advances = append(b.Advances, Advance{Source: s, Partition: partition, From: from, Progress: p})
}

// InOrder calls put, mutation and record for every member of Puts, Mutations and Records
// in the order in which they take effect: merged by offset, each slice in its own order,
// puts before mutations and these before a record of the same offset.
func (b *Batch) InOrder(put func(*PackedPut), mutation func(*Mutation), record func(*Record)) {
	i, k := 0, 0
	upTo := func(offset int64) {
		for {
			switch m := i < len(b.Mutations) && b.Mutations[i].Offset <= offset; {
			case k < len(b.Puts) && b.Puts[k].Offset <= offset && !(m && b.Mutations[i].Offset < b.Puts[k].Offset):
				put(&b.Puts[k])
				k++
			case m:
				mutation(&b.Mutations[i])
				i++
			default:
				return
			}
		}
	}
	for j := range b.Records {
		upTo(b.Records[j].Offset)
		record(&b.Records[j])
	}
	upTo(math.MaxInt64)
}

// Reset empties b and keeps its memory.
func (b *Batch) Reset() {
	b.Puts, b.Mutations, b.Counters = b.Puts[:0], b.Mutations[:0], b.Counters[:0]
	b.Records, b.Advances = b.Records[:0], b.Advances[:0]
	b.Unapplied = Unapplied{}
	b.Bulk = false
}

// Empty reports whether applying b would do nothing.
func (b *Batch) Empty() bool {
	return len(b.Puts)+len(b.Mutations)+len(b.Counters)+len(b.Records)+len(b.Advances) == 0
}

// Refusal is one record that the store does not take, and the error of it.
type Refusal struct {
	Offset int64 // -1 where no record stands behind the mutation
	Table  string
	Row    []byte
	Err    error // why; it need not name Table and Row
}

// Error names the row, and says why.
func (r *Refusal) Error() string {
	return fmt.Sprintf("table %s, row %.100q: %v", r.Table, r.Row, r.reason())
}

// Unwrap returns why.
func (r *Refusal) Unwrap() error { return r.Err }

// reason is r's error without its row, where that is r's own.
func (r *Refusal) reason() error {
	if e, ok := r.Err.(*RowError); ok && e.Table == CanonicalName(r.Table) && bytes.Equal(e.Row, r.Row) {
		return e.Err
	}
	return r.Err
}

// BatchError is the refusal of single records. Nothing of the batch was applied;
// without the refused records it can be.
type BatchError struct {
	Refused []Refusal // by ascending offset; at most one an offset, but each with offset -1
}

// NewBatchError returns the error of a batch of which records were refused, in any order: of
// each record the refusal that comes first stays. It sorts the slice, which it keeps.
func NewBatchError(refused []Refusal) *BatchError {
	for i := range refused {
		refused[i].Err = refused[i].reason()
	}
	slices.SortStableFunc(refused, func(a, b Refusal) int { return cmp.Compare(a.Offset, b.Offset) })
	return &BatchError{Refused: slices.CompactFunc(refused, func(a, b Refusal) bool { return a.Offset >= 0 && a.Offset == b.Offset })}
}

// Error names the first refusal and counts the rest.
func (e *BatchError) Error() string {
	var b strings.Builder
	r := &e.Refused[0]
	fmt.Fprintf(&b, "store: batch refused: offset %d, %v", r.Offset, r)
	if n := len(e.Refused) - 1; n > 0 {
		fmt.Fprintf(&b, " (and %d more)", n)
	}
	return b.String()
}

// Unwrap returns the refusals' errors.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Refused))
	for i := range e.Refused {
		errs[i] = e.Refused[i].Err
	}
	return errs
}

// PartialError says which mutations of a batch were not applied, or may not have
// been (ErrUnknownOutcome); all others were. It is of an engine whose Traits.Atomic is
// AtomicRow. Applying the whole batch again is safe where its mutations are idempotent.
type PartialError struct {
	Failed  []Refusal // in the order of the batch
	Applied int       // mutations that were
}

// Error names the first failure and counts the rest.
func (e *PartialError) Error() string {
	var b strings.Builder
	f := &e.Failed[0]
	if e.Applied == 0 {
		b.WriteString("store: no mutation of the batch is known to be applied")
	} else {
		fmt.Fprintf(&b, "store: batch applied in part, %d mutations were", e.Applied)
	}
	fmt.Fprintf(&b, ": offset %d, %v", f.Offset, f)
	if n := len(e.Failed) - 1; n > 0 {
		fmt.Fprintf(&b, " (and %d more)", n)
	}
	return b.String()
}

// Unwrap returns the failures' errors.
func (e *PartialError) Unwrap() []error {
	errs := make([]error, len(e.Failed))
	for i := range e.Failed {
		errs[i] = e.Failed[i].Err
	}
	return errs
}
