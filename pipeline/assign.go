package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice/cell"
	"sluice/pipeline/kafka"
	"sluice/store"
)

// prepare finds out which source topic is now, and stores where its partitions
// begin if they have no stored offset yet, all in one commit: a start at the
// newest record must not move when the process dies before its first batch.
func (p *Pipeline) prepare(ctx context.Context, topic string, partitions []int32) (store.Source, error) {
	info, err := p.broker.topic(ctx, topic)
	if err != nil {
		return store.Source{}, err
	}
	src := store.Source{Pipeline: p.opts.Name, Topic: topic, ClusterID: info.clusterID, TopicID: info.id}
	for {
		err := p.tryPrepare(ctx, &src, &info, partitions)
		if !errors.Is(err, store.ErrStale) { // else another process has stored them
			return src, err
		}
	}
}

// tryPrepare is prepare of a source. Its error wraps store.ErrStale where another process has
// stored meanwhile where partitions begin.
func (p *Pipeline) tryPrepare(ctx context.Context, src *store.Source, info *topicInfo, partitions []int32) error {
	topic := src.Topic
	answered := p.status.asks(topic, partitions...)
	rows, err := p.storedOf(ctx, topic)
	answered()
	if err != nil {
		return err
	}
	begun, other, err := begunOf(rows, src)
	if err != nil {
		return err
	}
	known := len(begun) > 0
	changed := !known && other != nil
	if changed {
		if err := sourceChanged(&other.Source, -1, src); err.firstID || p.opts.OnTopicChange == FailOnTopicChange {
			return err
		}
	}
	start := p.opts.Start
	if known || changed {
		start = Start{From: StartEarliest} // a partition that was added, or a log made anew: nothing of it may be missed
	}
	wanted := slices.Clone(partitions)
	if start.From != StartEarliest && (p.opts.Partitions == nil || start.From != StartCommitted) {
		// Those that other members have, too, if only for now, or that another
		// process reads by name: one that is begun later would count as added.
		// (What is committed of partitions that others name is theirs to know.)
		wanted = append(wanted, info.partitions...)
		slices.Sort(wanted)
		wanted = slices.Compact(wanted)
	}
	missing := slices.DeleteFunc(wanted, func(n int32) bool { return slices.Contains(begun, n) })
	if len(missing) == 0 {
		return nil
	}
	if changed {
		if err := p.abandon(ctx, other.Source, rows); err != nil {
			return err
		}
	}
	first, err := p.startOffsets(ctx, topic, missing, &start)
	if err != nil {
		return err
	}
	var b store.Batch
	for _, n := range missing {
		b.Advance(*src, n, store.Absent, store.Progress{
			First: first[n], Next: first[n], LeaderEpoch: -1, LastOffset: -1, MappingVersion: p.version, MappingFrom: first[n],
		})
	}
	answered = p.status.asks(topic, partitions...)
	err = p.opts.Engine.Apply(ctx, &b)
	answered()
	if err != nil {
		return fmt.Errorf("store where topic %s begins: %w", topic, err)
	}
	if changed {
		p.log.Warn("topic is a new one; it is applied from its start and what the old one left is kept; what that had unread is lost",
			"topic", topic, "found", describeSource(src.ClusterID, src.TopicID), "stored", describeSource(other.Source.ClusterID, other.Source.TopicID))
	}
	p.log.Info("topic is begun", "topic", topic, "start", start.From.String(), "partitions", len(missing))
	return nil
}

// begunOf returns the partitions of src that have stored progress, and the newest progress of
// another topic that had the name; nil = there is none. Its error says that the brokers do not
// tell which of these src is.
func begunOf(rows []store.PartitionProgress, src *store.Source) (begun []int32, other *store.PartitionProgress, err error) {
	for i := range rows {
		r := &rows[i]
		switch {
		case r.Source == *src:
			begun = append(begun, r.Partition)
		case r.Source.Untold(src):
			return nil, nil, untoldError(&r.Source)
		case other == nil || r.Progress.LastTime >= other.Progress.LastTime:
			other = r
		}
	}
	return begun, other, nil
}

// abandonChecks is how often it is looked, a second apart, whether a batch of a topic that was
// made anew is ended: by a process that still runs it mostly is at once.
const abandonChecks = 3

// abandon stores what a topic that was created anew had unread, as far as this process has
// seen its log, and what processes that were killed had begun of it: nobody can read it any
// more.
func (p *Pipeline) abandon(ctx context.Context, former store.Source, rows []store.PartitionProgress) error {
	var begun map[int32]begunBatch
	for check := 0; ; check++ {
		var err error
		if begun, err = p.begun(ctx, former, rows); err != nil {
			return fmt.Errorf("how far the old topic %s was begun: %w", former.Topic, err)
		}
		if len(begun) == 0 || check == abandonChecks {
			break
		}
		if err := sleep(ctx, truncationWaits*p.retry); err != nil {
			return err
		}
		if rows, err = p.storedOf(ctx, former.Topic); err != nil {
			return err
		}
	}
	for i := range rows {
		r := &rows[i]
		if r.Source != former {
			continue
		}
		lost := r.Progress
		end := p.status.unread(&former, r.Partition)
		what := "offsets of the old topic were never read and are counted as lost"
		if batch, ok := begun[r.Partition]; ok {
			end = max(end, batch.until)
			if lost.MappingVersion != batch.version {
				lost.MappingVersion, lost.MappingFrom = batch.version, lost.Next
			}
			what = "offsets of the old topic were begun, by a process that was killed, or never read, and are counted as lost; the store may have a part of them"
		}
		n := end - lost.Next
		if n <= 0 {
			continue
		}
		lost.Skip(end, store.SkippedRecreated)
		var b store.Batch
		b.Advance(former, r.Partition, r.Progress.Next, lost)
		switch err := p.opts.Engine.Apply(ctx, &b); {
		case errors.Is(err, store.ErrStale):
			continue // applied by somebody else since, who has read on
		case err != nil:
			return fmt.Errorf("store what topic %s had unread when it was made anew: %w", former.Topic, err)
		}
		p.status.abandon(former.Topic, r.Partition, n)
		p.log.Warn(what, "topic", former.Topic, "partition", r.Partition, "offset", r.Progress.Next, "next", end, "lost", n)
	}
	return nil
}

// begunBatch is a batch that may be in the store in part.
type begunBatch struct {
	until   int64
	version string // of the mapping
}

// begun returns, by partition, what of a topic is begun beyond the stored offsets, where the
// engine's batches are not atomic.
func (p *Pipeline) begun(ctx context.Context, src store.Source, rows []store.PartitionProgress) (map[int32]begunBatch, error) {
	e, ok := p.opts.Engine.(store.BegunReader)
	if !ok {
		return nil, nil
	}
	all := map[int32]begunBatch{}
	for i := range rows {
		r := &rows[i]
		if r.Source != src {
			continue
		}
		until, version, err := e.BegunTo(ctx, &r.Source, r.Partition)
		if err != nil {
			return nil, err
		}
		if until > r.Progress.Next {
			all[r.Partition] = begunBatch{until, version}
		}
	}
	return all, nil
}

// startOffsets returns the first offset to apply of each partition.
func (p *Pipeline) startOffsets(ctx context.Context, topic string, partitions []int32, start *Start) (map[int32]int64, error) {
	if start.From == StartAtTime || start.From == StartCommitted {
		return p.broker.startOffsets(ctx, topic, partitions, start)
	}
	spans, err := p.broker.offsets(ctx, topic, partitions)
	if err != nil {
		return nil, err
	}
	first := make(map[int32]int64, len(partitions))
	for _, n := range partitions {
		s, ok := spans[n]
		if !ok {
			return nil, fmt.Errorf("the broker gave no offsets of %s/%d", topic, n)
		}
		first[n] = s.start
		if start.From == StartLatest {
			first[n] = s.end
		}
	}
	return first, nil
}

// storedOf returns the stored progress of every incarnation of topic.
func (p *Pipeline) storedOf(ctx context.Context, topic string) ([]store.PartitionProgress, error) {
	prefix := cell.AppendPart(cell.AppendPart(nil, []byte(p.opts.Name)), []byte(topic))
	sc := p.opts.Engine.Scan(ctx, &store.Scan{
		Table: store.OffsetsTable, Start: prefix, Stop: cell.PrefixEnd(prefix),
		Columns: []store.Column{{Family: store.ProgressFamily, Qualifier: []byte(store.ProgressQualifier)}},
	})
	defer sc.Close()
	var rows []store.PartitionProgress
	for sc.Next() {
		row := sc.Row()
		s, partition, err := store.DecodeSourceRow(row.Key)
		if err != nil {
			return nil, err
		}
		progress, err := store.DecodeProgress(row.Cells[0].Value)
		if err != nil {
			return nil, err
		}
		rows = append(rows, store.PartitionProgress{Source: s, Partition: partition, Progress: progress})
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("read the stored offsets of topic %s: %w", topic, err)
	}
	return rows, nil
}

const (
	// truncationChecks is how often a log that ends before the stored offset
	// is looked at again, a second apart: after a leader change the new leader
	// may know the end of the log a little late.
	truncationChecks = 5
	// truncationWaits is that second in Pipeline.retry.
	truncationWaits = 10
	// fingerprintTimeout bounds a fetch of the last applied record: where
	// compaction has taken it and nothing follows, no record ever comes. A broker
	// that does not answer is asked again after it.
	fingerprintTimeout = 10 * time.Second
	// fingerprintTries is how often the last applied record is read where it cannot be,
	// as it may be spoiled on its way.
	fingerprintTries = 3
)

// open decides where the partition goes on: at its stored offset, after checking
// that the log is still the one it was. It changes the stored progress only to
// count lost offsets, where the options say so.
func (w *worker) open(ctx context.Context) (store.Progress, error) {
	if err := w.sameTopic(ctx); err != nil {
		return store.Progress{}, err
	}
	progress, err := w.openLog(ctx)
	if !errors.Is(err, ErrDataLoss) && !errors.Is(err, ErrTopicChanged) {
		return progress, err
	}
	// The broker that has told the topic's id may know later than the others that it was
	// made anew. Then that is what is wrong with the log.
	if serr := sleep(ctx, truncationWaits*w.p.retry); serr != nil {
		return progress, serr
	}
	if other := w.sameTopic(ctx); other != nil {
		err = other
	}
	return progress, err
}

// sameTopic returns an error where the topic is not the one whose records were applied, or
// nobody tells.
func (w *worker) sameTopic(ctx context.Context) error {
	info, err := w.p.broker.topic(ctx, w.src.Topic)
	if err != nil {
		return err
	}
	if found := (store.Source{ClusterID: info.clusterID, TopicID: info.id}); w.src.Untold(&found) {
		return untoldError(&w.src)
	} else if info.id != w.src.TopicID || info.clusterID != w.src.ClusterID {
		return sourceChanged(&w.src, w.partition, &found)
	}
	return nil
}

// openLog is open for the topic that it is.
func (w *worker) openLog(ctx context.Context) (store.Progress, error) {
	answered := w.asks()
	progress, ok, err := store.ReadProgress(ctx, w.p.opts.Engine, &w.src, w.partition)
	answered()
	if err != nil {
		return progress, fmt.Errorf("read the stored offset of %s: %w", w.name, err)
	}
	if !ok {
		return progress, fmt.Errorf("%w: the stored offset of %s, which this process has seen, is gone", store.ErrCorrupt, w.name)
	}
	log, err := w.logOf(ctx, progress.Next)
	if err != nil {
		return progress, err
	}
	if progress.Next > log.end {
		// A group's committed offset may lie inside a transaction that is
		// still open.
		ends, err := w.p.broker.logEnds(ctx, w.src.Topic, []int32{w.partition})
		if err != nil {
			return progress, err
		}
		if end := ends[w.partition]; progress.Next > end {
			common, err := commonEnd(ctx, w.p.broker, &store.PartitionProgress{Source: w.src, Partition: w.partition, Progress: progress}, end)
			if err != nil {
				return progress, err
			}
			return progress, w.lost(progress.Next, progress.Next+1, end, common)
		}
	}
	if progress.Next < log.start {
		if w.p.opts.OnDataLoss == FailOnDataLoss {
			return progress, w.lost(progress.Next, log.start, log.end, progress.Next)
		}
		if progress, err = w.skipLost(ctx, progress, log.start); err != nil {
			return progress, err
		}
	}
	if err := w.compare(ctx, &progress, log.start); err != nil {
		return progress, err
	}
	known, skipped := w.state.opened(&progress, log)
	if skipped > 0 {
		w.log.Warn("offsets were given up and are counted as lost", "next", progress.Next, "lost", skipped)
	}
	if known < progress.Next && progress.Dead > 0 {
		// Applied by somebody else, who may not live to relay it, or by this
		// worker, whose reply was lost: nobody has told the relay.
		w.p.relay.wake(&w.src, w.partition, known)
	}
	return progress, nil
}

// compare checks that the log, which starts at start, is the one that was applied, as far as
// it still tells; what it does not tell any more is logged, once.
func (w *worker) compare(ctx context.Context, progress *store.Progress, start int64) error {
	if progress.LastOffset < 0 {
		return nil // nothing was applied
	}
	stored := &store.PartitionProgress{Source: w.src, Partition: w.partition, Progress: *progress}
	why := "retention has taken it"
	var err error
	if progress.LastOffset >= start {
		why, err = sameLog(ctx, w.p.broker, w.fetcher, stored)
	} else {
		err = checkEpoch(ctx, w.p.broker, stored, true)
	}
	if err == nil && why != "" && w.uncompared != progress.LastOffset+1 {
		w.uncompared = progress.LastOffset + 1
		w.log.Warn("the last applied record cannot be compared with the log: only the topic's id and the leader epochs tell that it is the same", "offset", progress.LastOffset, "err", why)
	}
	return err
}

// logOf returns what the broker has of the partition. It looks again while the
// log seems to end before next.
func (w *worker) logOf(ctx context.Context, next int64) (span, error) {
	for try := 1; ; try++ {
		spans, err := w.p.broker.offsets(ctx, w.src.Topic, []int32{w.partition})
		if err != nil {
			return span{}, err
		}
		log, ok := spans[w.partition]
		if !ok {
			return span{}, fmt.Errorf("the broker gave no offsets of %s", w.name)
		}
		if log.end >= next || try == truncationChecks {
			return log, nil
		}
		if err := sleep(ctx, truncationWaits*w.p.retry); err != nil {
			return log, err
		}
	}
}

func (w *worker) lost(from, to, end, common int64) error {
	return &DataLossError{Pipeline: w.src.Pipeline, Topic: w.src.Topic, Partition: w.partition, From: from, To: to, LogEnd: end, Common: common, untold: !w.src.HasTopicID()}
}

// commonEnd returns up to which offset a log that ends before what was applied has the
// records that were applied, -1 where no epochs tell: from there on it may have got
// others since. Of a topic without an id they do not, as one that was created anew has the
// epochs of the old one; nor where the log has not the epoch of what was applied last: it may
// have records of an earlier one in the place of those that were applied.
func commonEnd(ctx context.Context, b broker, stored *store.PartitionProgress, end int64) (int64, error) {
	if stored.Progress.LeaderEpoch < 0 || !stored.Source.HasTopicID() {
		return -1, nil
	}
	found, common, err := b.epochEnd(ctx, stored.Source.Topic, stored.Partition, stored.Progress.LeaderEpoch)
	if found < stored.Progress.LeaderEpoch {
		return -1, err
	}
	return min(common, end), err
}

// skipLost stores that the offsets up to start are lost.
func (w *worker) skipLost(ctx context.Context, progress store.Progress, start int64) (store.Progress, error) {
	lost := progress
	lost.Lost += start - progress.Next
	lost.Next = start
	lost.Gaps = lost.Gaps.With(progress.Next, start)
	var b store.Batch
	b.Advance(w.src, w.partition, progress.Next, lost)
	defer w.asks()()
	if err := w.p.opts.Engine.Apply(ctx, &b); err != nil {
		return progress, fmt.Errorf("store that offsets %d to %d of %s are lost: %w", progress.Next, start-1, w.name, err)
	}
	w.state.lost(start - progress.Next)
	w.log.Warn("offsets are gone from Kafka and counted as lost", "offset", progress.Next, "next", start, "lost", start-progress.Next)
	return lost, nil
}

// sameLog checks that a log which still has the last applied record is the one whose
// records were applied: its error is a *TopicChangedError otherwise, and a
// *notComparedError where the broker does not give the record. It says why the epochs
// alone were compared, empty where the record was, too.
func sameLog(ctx context.Context, b broker, f fetcher, stored *store.PartitionProgress) (why string, err error) {
	if err := checkEpoch(ctx, b, stored, false); err != nil {
		return "", err
	}
	for try := 1; ; try++ {
		why, err = checkFingerprint(ctx, f, stored)
		var bad *kafka.UnreadableError // spoiled since, or larger than the memory is now
		if !errors.As(err, &bad) {
			return why, err
		}
		if try == fingerprintTries { // it was applied: nothing of it is needed any more
			return bad.Error(), nil
		}
	}
}

// checkEpoch asks the leader whether it has the last applied record's epoch up to
// that record: a log that was truncated and written again differs in that, also
// where compaction has taken the record (KIP-320). A log that goes on behind it with an
// earlier epoch differs, too (a leader whose records were never replicated was elected
// again), or compaction has taken all of the epoch before the log was copied. Where alone is
// set, as nothing else can be compared, that is another log; else the record tells.
func checkEpoch(ctx context.Context, b broker, stored *store.PartitionProgress, alone bool) error {
	s, progress := &stored.Source, &stored.Progress
	if progress.LeaderEpoch < 0 {
		return nil
	}
	found, end, err := b.epochEnd(ctx, s.Topic, stored.Partition, progress.LeaderEpoch)
	if err != nil {
		return err
	}
	has, common := fmt.Sprintf("leader epoch %d ending at offset %d", progress.LeaderEpoch, end), end
	earlier := found < progress.LeaderEpoch
	if earlier {
		has, common = fmt.Sprintf("leader epoch %d before offset %d, and none later up to epoch %d", found, end, progress.LeaderEpoch), -1
	}
	if end < 0 || end > progress.LastOffset && !(earlier && alone) {
		return nil
	}
	return &TopicChangedError{
		Pipeline: s.Pipeline, Topic: s.Topic, Partition: stored.Partition, sameID: true, untold: !s.HasTopicID(), common: common,
		Found:  has,
		Stored: fmt.Sprintf("a record of that epoch at offset %d", progress.LastOffset),
	}
}

// checkFingerprint compares the last applied record, if Kafka still has it, with
// what is stored of it, and looks that no record follows it below the stored offset,
// where there was none: nobody would apply that. It says why what is there was not compared.
func checkFingerprint(ctx context.Context, f fetcher, stored *store.PartitionProgress) (why string, err error) {
	s, progress := &stored.Source, &stored.Progress
	bounded, cancel := context.WithTimeout(ctx, fingerprintTimeout)
	defer cancel()
	r := f.reader(s.Topic, stored.Partition, progress.LastOffset)
	defer r.Close()
	end := progress.Next
	if skip, ok := progress.Skips.After(progress.LastOffset); ok {
		end = skip.From // what was given up cannot be read
	}
	for next := progress.LastOffset; next < end; {
		batch, err := r.Next(bounded)
		switch {
		case err == nil:
		case ctx.Err() == nil && bounded.Err() != nil && r.Barren():
			return "compaction has taken it", nil
		case ctx.Err() == nil && bounded.Err() != nil:
			return "", &notComparedError{topic: s.Topic, partition: stored.Partition, offset: progress.LastOffset}
		default:
			return "", fmt.Errorf("read the last applied record, at offset %d: %w", progress.LastOffset, err)
		}
		next = batch.Next
		changed := otherRecord(batch, stored, end)
		batch.Release()
		if changed != nil {
			return "", changed
		}
	}
	return "", nil
}

// otherRecord returns a *TopicChangedError where a batch has a record, from the last applied
// one to end, that is not it.
func otherRecord(batch *kafka.Batch, stored *store.PartitionProgress, end int64) error {
	s, progress := &stored.Source, &stored.Progress
	changed := &TopicChangedError{Pipeline: s.Pipeline, Topic: s.Topic, Partition: stored.Partition, sameID: true, untold: !s.HasTopicID()}
	for i := range batch.Records {
		r := &batch.Records[i]
		switch {
		case r.Offset < progress.LastOffset:
		case r.Offset >= end:
			return nil
		case r.Offset > progress.LastOffset:
			changed.common = progress.LastOffset + 1
			changed.Found = fmt.Sprintf("a record at offset %d", r.Offset)
			changed.Stored = fmt.Sprintf("none from offset %d to %d", progress.LastOffset+1, end-1)
			return changed
		default:
			// The time is compared, too: many records of a topic may be alike.
			if fp := Fingerprint(r); fp != progress.Fingerprint || r.Timestamp != progress.LastTime {
				changed.common = -1
				changed.Found = fmt.Sprintf("a record with fingerprint %016x and time %d at offset %d", fp, r.Timestamp, r.Offset)
				changed.Stored = fmt.Sprintf("fingerprint %016x and time %d", progress.Fingerprint, progress.LastTime)
				return changed
			}
		}
	}
	return nil
}

// sleep waits for d or ctx.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
