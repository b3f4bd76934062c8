package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/pipeline/buffer"
	"sluice/pipeline/decode"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

// mapper is a mapping.Mapper.
type mapper interface {
	Map(r *mapping.Record) (*mapping.Output, error)
	// Release ends the last Output, and gives back the memory that it took.
	Release()
	// Forget is Release, after which nothing refers to a record's bytes.
	Forget()
}

// maxPinned is how much memory of a batch, in bytes, a partition's mapper may keep from the
// collector once the batch has given it back, as it knows the bytes of the last record until
// the next one. The pools do not count what they have let go of.
const maxPinned = 256 << 10

// worker applies one partition for as long as this process owns it. Its
// goroutine maps and buffers; a second one fetches ahead, a third applies.
type worker struct {
	p         *Pipeline
	src       store.Source
	partition int32
	name      string // topic/partition, for errors
	log       *slog.Logger
	fetcher   fetcher
	mapper    mapper
	buf       *buffer.Buffer
	state     *partitionState

	// refused are the records that the store does not take, by offset: when
	// they are fetched again they are poison.
	refused map[int64]*mapping.Error
	tries   map[int64]int // of records that are to be tried again, by offset

	uncompared int64 // one more than the last applied offset of which it is logged that it cannot be compared
	remapped   int64 // one more than the offset from which on it is logged that another mapping maps

	// of the current session
	backfill
	chain    *chain
	prev     store.Progress // of the last batch handed over
	last     *kafka.Record  // last record covered, while its batch is held
	epoch    int32          // newest leader epoch seen; -1 = none yet
	logStart int64          // newest LogStart seen
	stable   int64          // newest LastStable seen
	err      error          // of the first batch that failed
	headers  []mapping.Header
}

func (p *Pipeline) newWorker(src store.Source, partition int32) (*worker, error) {
	f := p.opts.Flush
	buf, err := buffer.New(&buffer.Options{
		MaxRecords: f.MaxRecords, MaxBytes: f.MaxBytes, MaxAge: f.MaxAge, Budget: p.buffers,
		Separate: p.opts.Engine.Traits().Atomic != store.AtomicBatch, CountsFrom: store.CountsFrom(p.opts.Engine),
	})
	if err != nil {
		return nil, err
	}
	state := p.status.partition(src.Topic, partition, &p.opts.Poison)
	state.of(&src)
	return &worker{
		p: p, src: src, partition: partition,
		name:    fmt.Sprintf("%s/%d", src.Topic, partition),
		log:     p.log.With("topic", src.Topic, "partition", partition),
		mapper:  p.newMapper(),
		buf:     buf,
		state:   state,
		refused: map[int64]*mapping.Error{},
		tries:   map[int64]int{},
	}, nil
}

// run applies the partition until ctx ends, and then what is buffered, within
// the drain timeout. It returns only errors that stop the pipeline.
func (w *worker) run(ctx context.Context) error {
	hard, cancel := outlive(ctx, w.p.opts.DrainTimeout)
	defer cancel()
	defer w.buf.Close()
	w.state.assign(true)
	defer w.state.assign(false)
	if !w.awaitBreaker(ctx) {
		return nil
	}
	wait := w.p.retry
	for {
		before, _ := w.state.stored()
		err := w.session(ctx, hard)
		var refused *store.BatchError
		var tripped *tripError
		switch {
		case errors.As(err, &refused):
			if err = w.refuse(refused); err == nil && ctx.Err() == nil {
				continue
			}
		case errors.As(err, &tripped) && ctx.Err() == nil:
			w.state.trip(tripped.Error())
			w.log.Error("partition is paused", w.at(err), "err", tripped)
			if !w.awaitBreaker(ctx) {
				return nil
			}
			continue
		}
		switch {
		case err != nil && fatal(err):
			return err
		case ctx.Err() != nil:
			switch {
			case w.err != nil && stopping(hard, w.err):
				w.log.Warn("the drain timeout is over with a batch under way; the next owner of the partition applies the rest of it", w.at(err), "err", err)
			case err != nil && !stopping(ctx, err):
				w.log.Warn("partition is left with records buffered; its next owner applies them", w.at(err), "err", err)
			}
			return nil
		}
		if now, _ := w.state.stored(); now != before {
			wait = w.p.retry
		}
		stale := errors.Is(err, store.ErrStale)
		if stale {
			w.state.stale()
		}
		if stale || errors.Is(err, errReopen) {
			if wait == w.p.retry { // another owner was faster, or the log moved, once: go on at once
				wait *= 2
				continue
			}
		}
		if w.state.pause(pauseReason(err), rootCause(err)) {
			w.log.Warn("partition is paused and tries again by itself", w.at(err), "err", err)
		}
		begun := time.Now()
		over := sleep(ctx, wait) != nil
		if storeTrouble(err) {
			w.state.held(time.Since(begun))
		}
		if over {
			if storeTrouble(err) {
				w.log.Warn(w.leftPaused(), w.at(err), "err", err)
			}
			return nil
		}
		wait = min(2*wait, maxRetryWait)
	}
}

// leftPaused says what becomes of a partition that is paused by the store when it is left.
func (w *worker) leftPaused() string {
	if w.p.opts.Engine.Traits().Atomic == store.AtomicBatch {
		return "partition is left while it is paused; its next owner goes on"
	}
	return "partition is left while it is paused, perhaps with a batch applied in part; its next owner applies the rest, with the same rules"
}

// awaitBreaker returns true once the partition's breaker is not open, and false where
// ctx ends before.
func (w *worker) awaitBreaker(ctx context.Context) bool {
	for {
		why, since, closed := w.state.tripped()
		if closed {
			w.state.breaker.close()
			w.log.Info("breaker was closed by hand")
		}
		if why == "" {
			return true
		}
		w.state.pause(why, why)
		var halfOpen <-chan time.Time
		if after := w.p.opts.Poison.CloseAfter; after > 0 {
			halfOpen = time.After(time.Until(since.Add(after)))
		}
		select {
		case <-w.state.wake:
		case <-halfOpen:
			w.state.try()
			w.log.Info("breaker is half open", "offsets", w.state.breaker.try())
			return true
		case <-ctx.Done():
			return false
		}
	}
}

// outlive returns a context that ends d after ctx does, at once where d is
// negative.
func outlive(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	hard, cancel := context.WithCancel(context.WithoutCancel(ctx))
	if d < 0 {
		d = 0
	}
	var timer *time.Timer
	armed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		timer = time.AfterFunc(d, cancel)
		close(armed)
	})
	return hard, func() {
		if !stop() {
			<-armed
			timer.Stop()
		}
		cancel()
	}
}

// refuse notes the records that the store named. They are applied again without
// them, from the stored offset on: the records are fetched anew, so that nothing
// of them has to be kept until their batch is durable. Its error is fatal, or asks
// to wait first. Those of a table that is READONLY are not noted: they wait for it.
func (w *worker) refuse(e *store.BatchError) error {
	var wait error
	poisoned := 0
	for i := range e.Refused {
		r := &e.Refused[i]
		if w.p.opts.Poison.waits(r) {
			if wait == nil {
				wait = fmt.Errorf("apply offset %d of %s: %w", r.Offset, w.name, tableReadOnly(r))
			}
			continue
		}
		poisoned++
		if _, again := w.refused[r.Offset]; again || r.Offset < 0 {
			return fmt.Errorf("%w: %s, offset %d: %w", errPoisonedOutbox, w.name, r.Offset, e)
		}
		reason := refusal(r)
		switch w.p.opts.Poison.Policy(reason.Stage, reason.Class) {
		case StopPipeline:
			return w.poison(r.Offset, reason)
		case RetryRecords:
			if w.again(r.Offset) {
				wait = &retryError{r.Offset, reason}
				continue
			}
		}
		w.refused[r.Offset] = reason
	}
	if poisoned > 0 {
		w.state.refusals(poisoned)
		// The store names one record of a sum. Unsummed, it names each.
		w.buf.Separate(w.prev.Next)
	}
	return wait
}

// again counts a try of the record at offset and reports whether there is another.
func (w *worker) again(offset int64) bool {
	most := w.p.opts.Poison.Retries
	if w.tries[offset] > most { // given up; read again for another record's sake
		return false
	}
	w.tries[offset]++
	return w.tries[offset] <= most
}

// asks is status.asks for the partition.
func (w *worker) asks() (answered func()) { return w.p.status.asks(w.src.Topic, w.partition) }

func (w *worker) poison(offset int64, reason *mapping.Error) error {
	return &PoisonError{Pipeline: w.src.Pipeline, Topic: w.src.Topic, Partition: w.partition, Offset: offset, Err: reason}
}

type fetched struct {
	batch *kafka.Batch
	err   error
}

// session applies records from the stored offset on until ctx ends, which is no
// error, or something fails. Then nothing of it is in flight any more.
func (w *worker) session(ctx, hard context.Context) error {
	w.err = nil
	progress, err := w.open(ctx)
	if err != nil {
		return err
	}
	for offset := range w.refused {
		if offset < progress.Next {
			delete(w.refused, offset)
		}
	}
	for offset := range w.tries {
		if offset < progress.Next {
			delete(w.tries, offset)
		}
	}
	if progress.MappingVersion != w.p.version && w.remapped != progress.Next+1 {
		w.remapped = progress.Next + 1
		w.log.Info("the mapping has changed: it maps the records from this offset on", "offset", progress.Next)
	}
	w.prev, w.last, w.logStart, w.stable, w.epoch = progress, nil, 0, 0, -1
	w.buf.Start(progress.Next, buffer.Mark{
		Offset: progress.LastOffset, Time: progress.LastTime, LeaderEpoch: progress.LeaderEpoch, Fingerprint: progress.Fingerprint,
	})
	// A partition that cannot go on must hold no memory that others wait for.
	defer w.buf.Drop()
	w.chain = newChain(hard, w.p.opts.Engine, w.p.opts.InFlight, w.p.opts.CreateTable, w.asks)
	w.lags(w.state.lag())
	defer w.leaveBackfill()

	r := w.fetcher.reader(w.src.Topic, w.partition, progress.Next)
	fetching, stop := context.WithCancel(ctx)
	in := make(chan fetched, 1)
	go fetch(fetching, r, in)

	err = w.consume(ctx, hard, in)
	stop()
	r.Close()
	for f := range in {
		if f.batch != nil {
			f.batch.Release()
		}
	}
	// What is buffered was read while the log still had it: where the log has
	// moved since, it may not come again. What is before a poisonous record is
	// good.
	if (err == nil || errors.Is(err, errReopen) || isPoison(err)) && w.err == nil && !w.buf.Empty() && hard.Err() == nil {
		if ferr := w.flush(hard); err == nil {
			err = ferr
		}
	}
	w.chain.close(w.settle)
	if !w.buf.Empty() && (ctx.Err() != nil || errors.Is(w.err, store.ErrStale)) {
		w.state.fenced()
	}
	if w.err != nil {
		return w.err
	}
	return err
}

// fetch reads ahead: one batch is decoded while the one before it is mapped.
func fetch(ctx context.Context, r reader, out chan<- fetched) {
	defer close(out)
	for {
		b, err := r.Next(ctx)
		select {
		case out <- fetched{b, err}:
		case <-ctx.Done():
			if b != nil {
				b.Release()
			}
			return
		}
		if err != nil {
			return
		}
	}
}

// consume maps and buffers what comes in, and hands batches over as soon as the
// store is free.
func (w *worker) consume(ctx, hard context.Context, in <-chan fetched) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for w.err == nil {
		due, buffered := w.buf.Due()
		late := buffered && !time.Now().Before(due)
		if buffered && (w.chain.waiting == 0 && !w.bulk || (late || w.buf.Full()) && !w.chain.full()) {
			if err := w.flush(hard); err != nil {
				return err
			}
			continue
		}
		next := in
		var begun time.Time
		if w.buf.Full() {
			next, begun = nil, time.Now() // the chain is full, too
		}
		var age <-chan time.Time
		if buffered && !late {
			timer.Reset(time.Until(due))
			age = timer.C
		}
		select {
		case <-ctx.Done():
			return nil
		case r := <-w.chain.results:
			w.chain.waiting--
			if !begun.IsZero() {
				w.state.held(time.Since(begun))
			}
			w.settle(r)
		case <-age:
		case f, ok := <-next:
			switch {
			case !ok: // ctx has ended
				return nil
			case ctx.Err() != nil: // what is before this batch may have been left
				if f.batch != nil {
					f.batch.Release()
				}
				return nil
			case f.err != nil:
				return w.fetchError(f.err)
			}
			err := w.batch(ctx, hard, f.batch)
			if f.batch.Slab() > maxPinned {
				w.mapper.Forget()
			}
			f.batch.Release()
			if d := w.buf.Waited(); d > 0 {
				w.state.held(d)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

func (w *worker) fetchError(err error) error {
	if errors.Is(err, kafka.ErrOutOfRange) || errors.Is(err, kafka.ErrTopicChanged) {
		return errReopen // open knows what that means
	}
	if bad, ok := errors.AsType[*kafka.UnreadableError](err); ok {
		reason := store.SkippedCorrupt
		if errors.Is(bad, kafka.ErrBatchTooLarge) {
			reason = store.SkippedTooLarge
		}
		return w.unreadable(w.buf.Next(), bad.Next, reason, bad)
	}
	return err
}

// unreadable returns the error of offsets that Kafka has and nobody can read.
func (w *worker) unreadable(from, to int64, reason store.SkipReason, err error) error {
	if to <= from {
		to = -1
	}
	return &UnreadableError{Pipeline: w.src.Pipeline, Topic: w.src.Topic, Partition: w.partition, From: from, To: to, Reason: reason, Err: err}
}

// batch maps the records of b into the buffer.
func (w *worker) batch(ctx, hard context.Context, b *kafka.Batch) error {
	switch {
	case b.Next <= w.buf.Next():
		return nil // nothing new
	case b.From > w.buf.Next():
		return &kafka.PartitionError{Topic: w.src.Topic, Partition: w.partition, Err: fmt.Errorf("got offset %d, asked for %d", b.From, w.buf.Next())}
	case b.LogStart < w.logStart, b.LastStable < w.stable, b.LeaderEpoch >= 0 && b.LeaderEpoch < w.epoch:
		return errReopen // a log never moves backwards: perhaps it is another one
	}
	w.logStart, w.stable = b.LogStart, b.LastStable
	if b.LeaderEpoch >= 0 {
		w.epoch = b.LeaderEpoch
	}
	w.buf.Lent(b.Borrowed())
	w.state.fetching(b, w.buf.Next())
	rec := mapping.Record{Topic: w.src.Topic, Partition: w.partition}
	aborted := b.Aborted
	for i := range b.Records {
		if i&1023 == 1023 && ctx.Err() != nil {
			w.mark()
			return nil // the partition is taken away: its next owner goes on
		}
		r := &b.Records[i]
		if r.Offset < w.buf.Next() {
			continue
		}
		for ; len(aborted) > 0 && aborted[0].Last < r.Offset; aborted = aborted[1:] {
			w.buf.Abort(aborted[0].Last+1, aborted[0].Records)
		}
		if err := w.recordFetching(ctx, hard, r, &rec); err != nil {
			w.mark() // what is before r is still stored, after b is released
			return err
		}
		w.last = r
		if w.buf.Full() {
			if err := w.flush(hard); err != nil {
				return err
			}
		}
	}
	w.mark()
	for _, a := range aborted {
		w.buf.Abort(a.Last+1, a.Records)
	}
	w.buf.Skip(b.Next)
	w.state.fetched(w.buf.Next())
	w.lags(b.LastStable - w.buf.Next())
	return nil
}

// mark notes the last record for Progress, while it is still there.
func (w *worker) mark() {
	if w.last == nil {
		return
	}
	w.buf.Mark(buffer.Mark{Offset: w.last.Offset, Time: w.last.Timestamp, LeaderEpoch: w.epoch, Fingerprint: Fingerprint(w.last)})
	w.last = nil
}

// record maps r and buffers what it became. A *decode.Pending says that its schema
// is to be fetched first.
func (w *worker) record(ctx context.Context, r *kafka.Record, rec *mapping.Record) error {
	if len(w.refused) > 0 {
		if reason, ok := w.refused[r.Offset]; ok {
			return w.unfit(ctx, r, reason)
		}
	}
	rec.Offset, rec.Timestamp, rec.Key, rec.Value = r.Offset, r.Timestamp, r.Key, r.Value
	w.headers = w.headers[:0]
	for _, h := range r.Headers {
		w.headers = append(w.headers, mapping.Header(h))
	}
	rec.Headers = w.headers
	out, err := w.mapRecord(rec)
	if pending, ok := err.(*decode.Pending); ok {
		return pending
	}
	switch {
	case err != nil:
		return w.cannot(ctx, r, asMappingError(err))
	case out.Filtered():
		w.buf.Filter(r.Offset)
		return nil
	}
	for {
		err := w.add(ctx, r.Offset, out)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, memory.ErrTooLarge):
			return w.cannot(ctx, r, &mapping.Error{Stage: mapping.StageMap, Class: classTooLarge, Err: fmt.Errorf("what it becomes cannot be buffered: %w", err)})
		case !errors.Is(err, buffer.ErrFull):
			return err
		}
		if err := w.makeRoom(ctx, err); err != nil {
			return err
		}
	}
}

// cannot does with a record that cannot be mapped or buffered what the policy says.
func (w *worker) cannot(ctx context.Context, r *kafka.Record, reason *mapping.Error) error {
	switch w.p.opts.Poison.Policy(reason.Stage, reason.Class) {
	case StopPipeline:
		return w.poison(r.Offset, reason)
	case RetryRecords:
		if w.again(r.Offset) {
			return &retryError{r.Offset, reason}
		}
	}
	return w.unfit(ctx, r, reason)
}

// add buffers what the record at offset became.
func (w *worker) add(ctx context.Context, offset int64, out *mapping.Output) (err error) {
	if out.Records != nil {
		err = w.buf.AddRecords(ctx, offset, w.src.Pipeline, out.Records)
	} else {
		err = w.buf.Add(ctx, offset, out.Mutations)
	}
	if err == nil && out.Late {
		w.buf.Late()
	}
	return err
}

// mapRecord maps r.
func (w *worker) mapRecord(r *mapping.Record) (*mapping.Output, error) {
	out, err := mapping.Safely(r, w.log, w.mapper.Map)
	if mapping.Panicked(err) {
		w.mapper.Release()
		w.mapper = w.p.newMapper()
	}
	return out, err
}

// unfit keeps or drops a record that cannot be applied.
func (w *worker) unfit(ctx context.Context, r *kafka.Record, reason *mapping.Error) error {
	if w.state.breaker.fail(r.Offset) {
		window, limit := w.state.breaker.bounds(r.Offset)
		return &tripError{failed: limit, window: int(window), offset: r.Offset, err: reason, after: w.p.opts.Poison.CloseAfter}
	}
	if w.p.opts.Poison.Policy(reason.Stage, reason.Class) == DropRecords {
		w.buf.Discard(r.Offset)
		return nil
	}
	return w.dead(ctx, r, reason)
}

func (w *worker) dead(ctx context.Context, r *kafka.Record, reason *mapping.Error) error {
	d := &buffer.DeadLetter{
		Pipeline: w.src.Pipeline, Topic: w.src.Topic, TopicID: w.src.TopicID, Partition: w.partition,
		Offset: r.Offset, Time: r.Timestamp, Key: r.Key, Value: r.Value,
		Stage: string(reason.Stage), Class: reason.Class, Reason: reason.Err.Error(), MappingVersion: w.p.version,
		Attempts: w.tries[r.Offset],
	}
	for _, h := range r.Headers {
		d.Headers = append(d.Headers, buffer.Header(h))
	}
	for {
		err := w.buf.Dead(ctx, d)
		switch {
		case errors.Is(err, memory.ErrTooLarge):
			return w.unreadable(d.Offset, d.Offset+1, store.SkippedTooLarge, fmt.Errorf("it cannot be kept as a dead letter: %w", err))
		case !errors.Is(err, buffer.ErrFull):
			return err
		}
		if err := w.makeRoom(ctx, err); err != nil {
			return err
		}
	}
}

// makeRoom lets a record be added after err, an ErrFull. Where only memory is missing, it
// waits for one of the partition's batches before it hands over what is buffered: small
// batches behind each other cost the store more, and are applied no sooner. That batch
// waits for no memory, and where there is none, nothing is waited for.
func (w *worker) makeRoom(ctx context.Context, err error) error {
	if errors.Is(err, buffer.ErrNoMemory) && w.chain.waiting > 0 {
		return w.await(ctx)
	}
	return w.flush(ctx)
}

// await waits for the outcome of a batch that is under way.
func (w *worker) await(ctx context.Context) error {
	begun := time.Now()
	select {
	case r := <-w.chain.results:
		w.chain.waiting--
		w.state.held(time.Since(begun))
		w.settle(r)
		return w.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// flush hands over what is buffered, once the chain has room.
func (w *worker) flush(ctx context.Context) error {
	for w.chain.full() {
		if err := w.await(ctx); err != nil {
			return err
		}
	}
	if w.err != nil {
		return w.err
	}
	if w.buf.Empty() {
		return nil
	}
	w.mark()
	b := w.buf.Take(w.src, w.partition, w.prev.Next, &w.prev, w.p.version)
	w.prev = b.Progress
	b.Store.Bulk = w.bulk
	w.chain.add(b)
	return nil
}

// settle takes note of what became of a batch.
func (w *worker) settle(r applied) {
	switch {
	case r.err == nil:
		if w.state.applied(&r.Summary, r.took) {
			w.log.Info("partition is applied again")
		}
		if len(r.Dead) > 0 {
			w.p.relay.wake(&w.src, w.partition, r.From)
		}
	case errors.Is(r.err, errDropped):
		if errors.Is(w.err, store.ErrStale) || errors.Is(w.err, context.Canceled) {
			w.state.fenced()
		}
	case w.err == nil:
		w.err = fmt.Errorf("apply offsets %d to %d of %s: %w", r.From, r.Progress.Next-1, w.name, r.err)
	}
}
