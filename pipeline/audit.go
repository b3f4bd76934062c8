package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// AuditOptions says what to audit. Store is required.
type AuditOptions struct {
	// Store is read; where it is written meanwhile, give a snapshot.
	Store store.Reader
	// Begun tells letters of batches that are under way in Store, whose batches are not
	// atomic, from those that do not belong there; nil = a batch is there whole or not.
	Begun store.BegunReader
	// Client compares with the topics; nil = only what the store says is checked.
	Client *kafka.Client
	// Deep reads the topics and counts their records again.
	Deep bool
	// Pipelines to audit; empty = all that are stored. What a rebuild of counters has read
	// (NAME~N) ends with it, and is audited only where it is named.
	Pipelines []string
	// Patience bounds the wait for the next records of a partition that has some;
	// default 30 s.
	Patience time.Duration
}

// Audit is the audit equation of one partition with what was found beside it.
type Audit struct {
	store.PartitionProgress
	Letters  int64 // rows of the partition in the outbox, but for those of a batch that is under way
	Redriven int64 // dead letters that had their effect after all, purged or not
	Purged   int64 // letters that were there and were removed

	// LogStart and LogEnd are what Kafka has, open transactions included; -1
	// where it was not asked, or has another topic of this name.
	LogStart, LogEnd int64
	// From and Records are of Deep: the first offset that could be read again, and
	// how many records there are from it up to Next. -1 where nothing was read.
	From, Records int64

	Notes    []string // why something was not compared
	Problems []string // where the equation does not hold
}

// RunAudit audits every stored partition. Its error says that something could not
// be read; what does not hold is in the Audits.
//
// Of the store it checks that the counts of each partition add up to its offsets,
// and that its dead letters are in the outbox, each in the range of its offsets, as
// many as are counted, dead and redriven. Of the topic it checks that it is the one
// that was applied, by its id and by the last applied record and its leader epoch, and
// has what was applied. Deep counts its records again: those
// that were applied, filtered, duplicates, unmet, dead or dropped must be there, and only these; the
// offsets between them are control batches, aborted records and gaps of compaction.
// Where retention has taken the first records, or compaction some, they can only be
// bounded. A partition that cannot be compared, as it has no leader, its topic is refused to
// this user, or a batch of it cannot be read, is missing in what is returned, and named in the
// error. Where no broker answers, or none takes this client, the audit ends.
func RunAudit(ctx context.Context, o *AuditOptions) ([]Audit, error) {
	if o == nil || o.Store == nil {
		return nil, fmt.Errorf("audit: %w: no store", store.ErrInvalidArgument)
	}
	a := &auditor{AuditOptions: o}
	if o.Client != nil {
		a.broker = &client{c: o.Client}
		a.compacted = func(ctx context.Context, topic string) (bool, error) {
			policy, err := o.Client.TopicSetting(ctx, topic, "cleanup.policy")
			return strings.Contains(policy, "compact"), err
		}
	}
	return a.run(ctx)
}

const (
	defaultPatience = 30 * time.Second
	// named bounds how many offsets a problem names.
	named = 5
)

// auditor is one RunAudit.
type auditor struct {
	*AuditOptions
	broker    broker // nil = Kafka is not asked
	compacted func(ctx context.Context, topic string) (bool, error)
	topics    map[string]*auditedTopic // that this run has asked about
}

// auditedTopic is what the brokers say of a topic, which is asked once, after the stored
// offsets were read: of all partitions together, as each without a leader is waited for.
type auditedTopic struct {
	info  topicInfo       // without partitions where it cannot be described
	spans map[int32]span  // of the partitions that have a leader
	ends  map[int32]int64 // of these: of the log, open transactions included
	err   error           // why there is nothing of the others, or of any
}

func (a *auditor) run(ctx context.Context) ([]Audit, error) {
	a.topics = map[string]*auditedTopic{}
	stored, err := store.AllProgress(ctx, a.Store)
	if err != nil {
		return nil, fmt.Errorf("audit: read the stored offsets: %w", err)
	}
	redriven, err := AllRedriven(ctx, a.Store, "")
	if err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	var all []Audit
	var missed []error
	for i := range stored {
		if !a.audits(&stored[i].Source) {
			continue
		}
		one := Audit{PartitionProgress: stored[i], LogStart: -1, LogEnd: -1, From: -1, Records: -1}
		one.counts()
		letters, err := a.letters(ctx, &one, redriven)
		if err != nil {
			return all, fmt.Errorf("audit %s: %w", one.name(), err)
		}
		if a.broker != nil {
			if err := a.topic(ctx, &one, letters); err != nil {
				err = fmt.Errorf("audit %s: %w", one.name(), kafka.Reason(err))
				if ctx.Err() != nil || everywhere(err) {
					return all, errors.Join(append(missed, err)...)
				}
				missed = append(missed, err)
				continue
			}
		}
		all = append(all, one)
	}
	return all, errors.Join(missed...)
}

// everywhere reports whether err would be every other partition's, too.
func everywhere(err error) bool {
	for _, all := range []error{kafka.ErrUnreachable, kafka.ErrTLS, kafka.ErrTooOld, kafka.ErrTooNew, kafka.ErrClosed} {
		if errors.Is(err, all) {
			return true
		}
	}
	return errors.Is(err, kafka.ErrAuth) && !kafka.OfTopic(err)
}

func (a *auditor) audits(s *store.Source) bool {
	if len(a.Pipelines) == 0 {
		return s.OfPipeline()
	}
	return slices.Contains(a.Pipelines, s.Pipeline)
}

func (a *Audit) name() string {
	return fmt.Sprintf("pipeline %s, %s/%d", a.Source.Pipeline, a.Source.Topic, a.Partition)
}

func (a *Audit) problem(format string, args ...any) {
	a.Problems = append(a.Problems, fmt.Sprintf(format, args...))
}

// counts checks that the counts add up.
func (a *Audit) counts() {
	p := &a.Progress
	for _, c := range []struct {
		name string
		n    int64
	}{
		{"applied", p.Applied}, {"filtered", p.Filtered}, {"duplicate", p.Duplicate}, {"unmet", p.Unmet}, {"dead", p.Dead}, {"dropped", p.Dropped}, {"control", p.Control}, {"lost", p.Lost}, {"skipped", p.Skipped}, {"aborted", p.Aborted}, {"late", p.Late},
	} {
		if c.n < 0 {
			a.problem("%s is %d", c.name, c.n)
		}
	}
	if p.Aborted > p.Control {
		a.problem("%d records of aborted transactions are counted among %d control offsets", p.Aborted, p.Control)
	}
	if most := p.Applied + p.Duplicate + p.Unmet; p.Late > most {
		a.problem("%d records are counted as late, of %d", p.Late, most)
	}
	gaps := p.Gaps.All()
	lost := p.Lost - p.Skipped // that Kafka no longer had
	switch listed := p.Gaps.Offsets(); {
	case listed > lost:
		a.problem("%d offsets are counted as lost, the ranges %s have %d", lost, p.Gaps, listed)
	case listed > 0 && (gaps[0].From < p.First || gaps[len(gaps)-1].To > p.Next):
		a.problem("lost offsets %s are outside of %d to %d", p.Gaps, p.First, p.Next-1)
	case listed < lost:
		a.Notes = append(a.Notes, fmt.Sprintf("which offsets were lost first, %d of them, is not known any more", lost-listed))
	}
	if len(gaps) > 0 {
		a.Notes = append(a.Notes, fmt.Sprintf("lost offsets: %s", p.Gaps))
	}
	switch listed, within := p.Skips.Offsets(0, math.MaxInt64), p.Skips.Offsets(p.First, p.Next); {
	case p.Skipped > p.Lost || listed > p.Skipped:
		a.problem("%d offsets are counted as given up, of %d lost ones, the ranges %s have %d", p.Skipped, p.Lost, p.Skips, listed)
	case within < listed:
		a.problem("offsets that were given up, %s, are outside of %d to %d", p.Skips, p.First, p.Next-1)
	case listed < p.Skipped:
		a.Notes = append(a.Notes, fmt.Sprintf("which offsets were given up first, %d of them, is not known any more", p.Skipped-listed))
	}
	if p.Skips != "" {
		a.Notes = append(a.Notes, fmt.Sprintf("offsets that were given up: %s", p.Skips))
	}
	if !p.Balanced() {
		a.problem("offsets %d to %d are %d, the counts add up to %d: %d applied, %d filtered, %d duplicate, %d unmet, %d dead, %d dropped, %d control, %d lost",
			p.First, p.Next-1, p.Next-p.First, a.records()+p.Control+p.Lost,
			p.Applied, p.Filtered, p.Duplicate, p.Unmet, p.Dead, p.Dropped, p.Control, p.Lost)
	}
}

// records is how many records the counts say there were.
func (a *Audit) records() int64 {
	p := &a.Progress
	return p.Applied + p.Filtered + p.Duplicate + p.Unmet + p.Dead + p.Dropped
}

// letters checks the outbox, and returns the offsets of the partition's letters. Where
// batches are not atomic a letter is there before the offset that passes it is stored, and
// the outbox is read after the offsets were: what is behind them was begun then.
func (a *auditor) letters(ctx context.Context, one *Audit, redriven []buffer.Redriven) ([]int64, error) {
	if !one.Source.OfPipeline() {
		return nil, nil // its dead letters are the pipeline's
	}
	s, counted := &one.Source, buffer.Redriven{}
	for _, n := range redriven {
		if n.Pipeline == s.Pipeline && n.Topic == s.Topic && n.TopicID == s.TopicID && n.Partition == one.Partition {
			counted = n
		}
	}
	var offsets, outside, behind []int64
	as := map[string]int64{}
	for d, err := range ScanPartition(ctx, a.Store, &LetterFilter{Brief: true}, s, one.Partition) {
		if err != nil {
			return nil, err
		}
		switch {
		case d.Offset >= one.Progress.Next && a.Begun != nil:
			behind = append(behind, d.Offset)
		case d.Offset < one.Progress.First || d.Offset >= one.Progress.Next:
			outside = append(outside, d.Offset)
			fallthrough
		default:
			offsets = append(offsets, d.Offset)
		}
		if d.Redriven != 0 {
			as[d.RedrivenAs]++
		}
	}
	if len(behind) > 0 {
		begun, _, err := a.Begun.BegunTo(ctx, s, one.Partition)
		if err != nil {
			return nil, err
		}
		n, _ := slices.BinarySearch(behind, begun) // they come in order
		offsets, outside, behind = append(offsets, behind[n:]...), append(outside, behind[n:]...), behind[:n]
	}
	if len(behind) > 0 {
		one.Notes = append(one.Notes, fmt.Sprintf("%d dead letters from offset %d on are of a batch that was begun and had not ended when the offsets were read", len(behind), behind[0]))
	}
	one.Letters = int64(len(offsets))
	one.Redriven, one.Purged = counted.Applied+counted.Filtered, counted.Purged()
	if one.Letters+one.Purged != one.Progress.Dead {
		one.problem("%d records are counted as dead letters, the outbox has %d, and %d were purged", one.Progress.Dead, one.Letters, one.Purged)
	}
	if len(outside) > 0 {
		one.problem("%d dead letters are outside of the offsets that were applied: %v", len(outside), firstOf(outside))
	}
	applied, filtered := counted.Applied-counted.PurgedApplied, counted.Filtered-counted.PurgedFiltered
	if as[buffer.Applied] != applied || as[buffer.Filtered] != filtered {
		one.problem("%d dead letters are counted as redriven and not purged (%d applied, %d filtered), the outbox has %d (%d, %d)",
			applied+filtered, applied, filtered, as[buffer.Applied]+as[buffer.Filtered], as[buffer.Applied], as[buffer.Filtered])
	}
	return offsets, nil
}

func firstOf(offsets []int64) []int64 { return offsets[:min(len(offsets), named)] }

// topic compares with what Kafka has.
func (a *auditor) topic(ctx context.Context, one *Audit, letters []int64) error {
	t := a.ask(ctx, one.Source.Topic)
	info := &t.info
	switch known := info.partitions != nil; {
	case !known && errors.Is(t.err, kafka.ErrTopicNotFound):
		one.Notes = append(one.Notes, "Kafka has no such topic any more")
		return nil
	case !known:
		return t.err
	}
	if one.Source.Untold(&store.Source{ClusterID: info.clusterID, TopicID: info.id}) {
		return untoldError(&one.Source)
	}
	if info.id != one.Source.TopicID || info.clusterID != one.Source.ClusterID {
		one.Notes = append(one.Notes, "Kafka has another topic of this name: "+describeSource(info.clusterID, info.id))
		return nil
	}
	if !slices.Contains(info.partitions, one.Partition) {
		one.problem("the topic has no such partition")
		return nil
	}
	end, ok := t.ends[one.Partition]
	if !ok {
		return fmt.Errorf("its offsets are not known: %w", t.err)
	}
	one.LogStart, one.LogEnd = t.spans[one.Partition].start, end
	if gaps := one.Progress.Gaps.All(); len(gaps) > 0 && gaps[len(gaps)-1].To > one.LogStart {
		one.problem("offsets %d to %d are counted as lost, Kafka has them from %d on", gaps[len(gaps)-1].From, gaps[len(gaps)-1].To-1, one.LogStart)
	}
	if gone := one.LogStart - one.Progress.Next; gone > 0 {
		one.Notes = append(one.Notes, fmt.Sprintf("offsets %d to %d (%d records or fewer) are gone from Kafka before they were applied", one.Progress.Next, one.LogStart-1, gone))
	}
	if one.Progress.Next > end {
		common, err := commonEnd(ctx, a.broker, &one.PartitionProgress, end)
		if err != nil {
			return err
		}
		others := ""
		if common >= 0 && common < end {
			others = fmt.Sprintf(", and has other records from %d on", common)
		}
		one.problem("offset %d is applied, the log ends at %d%s: it was truncated, or restored from an older copy%s", one.Progress.Next-1, end, others, orAnew(!one.Source.HasTopicID()))
		return nil
	}
	return a.reading(ctx, one, func(f fetcher) error {
		if same, err := a.same(ctx, one, f); err != nil || !same || !a.Deep {
			return err
		}
		return a.recount(ctx, one, letters, f)
	})
}

// ask returns what the brokers say of a topic.
func (a *auditor) ask(ctx context.Context, topic string) *auditedTopic {
	t := a.topics[topic]
	if t != nil {
		return t
	}
	t = &auditedTopic{}
	a.topics[topic] = t
	info, err := a.broker.topic(ctx, topic)
	if err != nil {
		t.err = err
		return t
	}
	t.info = info
	if t.spans, t.err = a.broker.offsets(ctx, topic, info.partitions); len(t.spans) > 0 {
		t.ends, err = a.broker.logEnds(ctx, topic, slices.Collect(maps.Keys(t.spans)))
		t.err = cmp.Or(t.err, err)
	}
	return t
}

// reading calls use with a fetcher of the partition's topic, which runs meanwhile.
func (a *auditor) reading(ctx context.Context, one *Audit, use func(fetcher) error) (err error) {
	f := a.broker.fetcher(map[string][16]byte{one.Source.Topic: one.Source.TopicID})
	fetching, stop := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- f.Run(fetching) }()
	defer func() {
		stop()
		if ferr := <-done; err == nil && ferr != nil && !errors.Is(ferr, context.Canceled) {
			err = ferr
		}
	}()
	return use(f)
}

// same checks, as a worker does before it goes on, that the log has the last applied
// record and not another one there, if it still reaches so far back.
func (a *auditor) same(ctx context.Context, one *Audit, f fetcher) (bool, error) {
	if one.Progress.LastOffset < one.LogStart || !one.Source.OfPipeline() { // of a rebuild no fingerprint is stored
		return true, nil
	}
	why, err := sameLog(ctx, a.broker, f, &one.PartitionProgress)
	var changed *TopicChangedError
	var silent *notComparedError
	switch {
	case errors.As(err, &silent):
		why = "no broker gave it"
	case errors.As(err, &changed):
		one.problem("the log is not the one that was applied: found %s, stored %s: it was truncated and written again, or restored from a copy%s", changed.Found, changed.Stored, orAnew(changed.untold))
		return false, nil
	case errors.Is(err, kafka.ErrOutOfRange): // retention has taken it meanwhile
		return true, nil
	case err != nil:
		return false, err
	}
	if why != "" {
		one.Notes = append(one.Notes, fmt.Sprintf("the last applied record, at offset %d, was not compared: %s", one.Progress.LastOffset, why))
	}
	return true, nil
}

// recount reads the topic again.
func (a *auditor) recount(ctx context.Context, one *Audit, letters []int64, f fetcher) error {
	p := &one.Progress
	var gone int64 // offsets whose records cannot be counted any more
	var missing []int64
	for {
		one.From, one.Records = min(max(p.First, one.LogStart), p.Next), 0
		gone = one.From - p.First
		var err error
		missing, err = a.read(ctx, one, letters, f)
		if err == nil {
			break
		}
		// Retention has overtaken the reading: what is left is counted from its new start on.
		lost, ok := errors.AsType[*kafka.OutOfRangeError](err)
		if !ok || lost.LogStart <= lost.Offset || lost.LogStart <= one.LogStart {
			return err
		}
		one.LogStart = lost.LogStart
	}
	compacted := false
	var hidden error // the user may read the topic, and not its settings
	if a.compacted != nil {
		var err error
		switch compacted, err = a.compacted(ctx, one.Source.Topic); {
		case errors.Is(err, kafka.ErrAuth):
			hidden = err
		case err != nil:
			return err
		}
	}
	if gone > 0 {
		one.Notes = append(one.Notes, fmt.Sprintf("offsets %d to %d are gone from Kafka and were not counted again", p.First, p.First+gone-1))
	}
	if compacted {
		one.Notes = append(one.Notes, "the topic is compacted: records that were applied may be missing now")
	}
	// Lost offsets were before the log's start then, and are now: between the records
	// that are read lie control offsets alone, and those that were given up.
	records, between, found := one.records(), p.Control, len(one.Problems)
	left := records - one.Records // must have been in what is gone
	switch gaps := p.Next - one.From - one.Records - p.Skips.Offsets(one.From, p.Next); {
	case left < 0:
		one.problem("offsets %d to %d have %d records, %d of all that were applied are counted: %d are missing in the counts", one.From, p.Next-1, one.Records, records, -left)
	case compacted:
	case between < gaps:
		one.problem("offsets %d to %d have %d without a record, %d of all that were passed are counted: %d records are counted too many", one.From, p.Next-1, gaps, between, gaps-between)
	}
	if len(missing) > 0 && !compacted {
		one.problem("%d dead letters are of offsets without a record: %v", len(missing), firstOf(missing))
	}
	if hidden != nil && len(one.Problems) > found {
		one.Notes = append(one.Notes, fmt.Sprintf("whether compaction has taken records is not known (DESCRIBE_CONFIGS on the topic tells): %v", hidden))
	}
	return nil
}

// read counts the records in [From, Next), and returns the letters that have none.
func (a *auditor) read(ctx context.Context, one *Audit, letters []int64, f fetcher) (missing []int64, err error) {
	if one.From >= one.Progress.Next {
		return nil, nil
	}
	var r reader
	defer func() {
		if r != nil {
			r.Close()
		}
	}()
	i, _ := slices.BinarySearch(letters, one.From)
	patience := a.Patience
	if patience <= 0 {
		patience = defaultPatience
	}
	for at := one.From; at < one.Progress.Next; {
		skip, ok := one.Progress.Skips.After(at)
		if ok && skip.From <= at { // it could not be read
			if r != nil {
				r.Close()
				r = nil
			}
			at = skip.To
			continue
		}
		end := one.Progress.Next
		if ok {
			end = skip.From
		}
		if r == nil {
			r = f.reader(one.Source.Topic, one.Partition, at)
		}
		wait, cancel := context.WithTimeout(ctx, patience)
		b, err := r.Next(wait)
		cancel()
		switch {
		case err != nil && ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("no records came from offset %d on within %v, up to %d there are some", at, patience, one.Progress.Next)
		case err != nil:
			return nil, fmt.Errorf("read from offset %d on: %w", at, kafka.Reason(err)) // run names the place
		}
		for j := range b.Records {
			offset := b.Records[j].Offset
			if offset < at || offset >= end {
				continue
			}
			one.Records++
			for ; i < len(letters) && letters[i] < offset; i++ {
				missing = append(missing, letters[i])
			}
			if i < len(letters) && letters[i] == offset {
				i++
			}
		}
		at = min(max(at, b.Next), end)
		b.Release()
	}
	return append(missing, letters[i:]...), nil
}
