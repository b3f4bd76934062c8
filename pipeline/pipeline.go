// Package pipeline runs the ingest flow: it consumes topics as a member of a
// consumer group, maps each record, buffers what it becomes and applies it to a
// store exactly once (invariant I2), one worker a partition.
//
// Exactly once rests on the store alone: each batch carries its partition's next
// offset, which advances by compare-and-set in the same commit as the data
// (design D4). Whatever goes wrong, a crash, a rebalance, a second owner, a
// reply that was lost, is handled in one way: await what is in flight, forget
// what is buffered, read the stored offset, fetch from there. Offsets committed
// to Kafka are for lag tools.
//
// A record that cannot be decoded, mapped or stored goes to the outbox table in
// the same commit and from there to the dead-letter topic (invariant I9). A store
// that is full or unreachable pauses its partitions until it is not (I8).
//
// A Pipeline is safe for concurrent use; Run is called once. The package starts
// goroutines in Run only, and all have ended when it returns. It does not own
// the client and the engine, and closes neither.
package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/pipeline/buffer"
	"sluice/pipeline/kafka"
	"sluice/store"
)

const (
	// firstRetryWait is short, as most trouble is over soon;
	firstRetryWait = 100 * time.Millisecond
	// maxRetryWait keeps a store that is down for hours from being hammered,
	// and is short enough that nobody restarts the process to hurry it.
	maxRetryWait = 5 * time.Second
)

// Pipeline is the ingest of some topics into one engine by one mapping.
type Pipeline struct {
	opts      Options
	buffers   *buffer.Budget
	log       *slog.Logger
	broker    broker
	newMapper func() mapper
	version   string // of the mapping
	retry     time.Duration
	relay     *relay
	status    *status
	ran       atomic.Bool
	unshown   trouble // with offsets that are not shown to Kafka; owned by who commits
}

// New returns a pipeline that is ready to Run. It talks to nobody yet.
func New(o *Options) (*Pipeline, error) {
	if o == nil {
		o = &Options{}
	}
	p := &Pipeline{opts: *o, retry: firstRetryWait, status: newStatus()}
	if err := p.opts.validate(); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", o.Name, err)
	}
	if err := p.opts.setDefaults(); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", o.Name, err)
	}
	p.buffers = buffer.BudgetOf(p.opts.Memory.Buffered())
	switch {
	case o.Client == nil:
		return nil, fmt.Errorf("pipeline %s: no client", o.Name)
	case o.Plan == nil:
		return nil, fmt.Errorf("pipeline %s: no plan", o.Name)
	}
	unpacked := p.opts.Memory.Unpacked()
	if _, err := o.Plan.NewMapperIn(unpacked); err != nil {
		return nil, fmt.Errorf("pipeline %s: %w", o.Name, err)
	}
	p.newMapper = func() mapper {
		m, err := o.Plan.NewMapperIn(unpacked)
		if err != nil {
			panic("pipeline: a plan that had a mapper has none: " + err.Error())
		}
		return m
	}
	p.version = o.Plan.Version()
	p.broker = &client{c: o.Client, fetch: o.Fetch, group: p.opts.Group, memory: p.opts.Memory}
	p.log = p.opts.Logger.With("pipeline", o.Name)
	return p, nil
}

// Run consumes as a member of the group until ctx ends; then it applies what is
// buffered within the drain timeout, leaves the group and returns nil. Temporary
// trouble with the store is waited out, and so is trouble with the brokers, from the
// first of them on: Status.Waiting says where none answers. Its error
// says why nothing more can be applied: it wraps ErrDataLoss, ErrTopicChanged,
// kafka.ErrTopicNotFound, kafka.ErrOtherStore, kafka.ErrAuth, kafka.ErrTLS, or an error
// of the store; kafka.ErrUnreachable only where waiting does not help (kafka.Client.Await).
func (p *Pipeline) Run(ctx context.Context) (err error) {
	if p.ran.Swap(true) {
		return fmt.Errorf("pipeline %s: %w: Run was called before", p.opts.Name, ErrStopped)
	}
	p.status.run()
	defer func() {
		if err != nil {
			p.status.fail()
		}
		p.status.stop(err)
	}()

	group, err := p.join(ctx)
	if err != nil {
		if stopping(ctx, err) {
			return nil
		}
		return p.named(err)
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	var letters *kafka.Producer
	if p.opts.DeadLetterTopic != "" {
		letters = p.opts.Client.NewProducer(nil)
		defer func() { err = errors.Join(err, letters.Close()) }()
	}

	side, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after the partitions are drained
	var helpers sync.WaitGroup
	defer helpers.Wait()
	defer stop()
	if letters != nil {
		p.startRelay(side, &helpers, &letterProducer{letters})
	}
	for {
		gen, err := group.Next(ctx)
		if err != nil {
			if stopping(ctx, err) {
				return nil
			}
			return p.named(err)
		}
		p.status.generationBegins(gen.ID, gen.MemberID)
		ended := make(chan error, 1)
		gen.Run(func(owned context.Context) { ended <- p.generation(ctx, owned, gen) })
		if err := <-ended; err != nil {
			return p.named(err)
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// assigner says which partitions are this process's: a group, or the options.
type assigner interface {
	Next(ctx context.Context) (*kafka.Generation, error)
	Close() error
}

// join joins the group, or takes its partitions, as soon as a broker answers.
func (p *Pipeline) join(ctx context.Context) (a assigner, err error) {
	err = p.opts.Client.Await(ctx, func(ctx context.Context) error {
		a, err = p.tryJoin(ctx)
		return err
	}, p.awaits(waitsForBroker))
	return a, err
}

func (p *Pipeline) tryJoin(ctx context.Context) (assigner, error) {
	if p.opts.Static {
		return p.opts.Client.Assign(ctx, &kafka.AssignOptions{
			Topics: p.opts.Topics, Partitions: p.opts.Partitions, GroupID: p.opts.Group, PartitionWatch: p.opts.PartitionWatch,
			AwaitTopics: p.opts.OnTopicChange == NewIncarnation, Waiting: p.awaits(waitsForGeneration),
		})
	}
	return p.opts.Client.JoinGroup(ctx, &kafka.GroupOptions{
		ID: p.opts.Group, Topics: p.opts.Topics, StoreID: p.opts.StoreID, PartitionWatch: p.opts.PartitionWatch,
		SessionTimeout: p.opts.SessionTimeout, Heartbeat: p.opts.Heartbeat, Rebalance: p.opts.Rebalance,
		AwaitTopics: p.opts.OnTopicChange == NewIncarnation, Waiting: p.awaits(waitsForGeneration),
	})
}

// awaits returns what notes why the pipeline waits for one of waits; nil = it does not.
func (p *Pipeline) awaits(what int) func(err error) {
	return func(err error) { p.status.awaits(what, err) }
}

func (p *Pipeline) startRelay(ctx context.Context, wg *sync.WaitGroup, out producer) {
	buffered := p.opts.Memory.Buffered()
	relays := relaysOn(buffered)
	relays.n.Add(1)
	p.relay = &relay{
		engine: p.opts.Engine, out: out, memory: buffered, relays: relays, pipeline: p.opts.Name, topic: p.opts.DeadLetterTopic,
		retry: p.retry, log: p.log, status: p.status,
		ring: make(chan struct{}, 1), due: map[string][]byte{}, passed: map[string]struct{}{}, unmarked: map[string]struct{}{},
	}
	wg.Go(func() {
		defer relays.n.Add(-1)
		p.relay.run(ctx)
	})
}

// generation applies the partitions of gen until ctx or the generation ends.
func (p *Pipeline) generation(ctx, owned context.Context, gen *kafka.Generation) error {
	defer p.status.own(gen.Assignment, &p.opts.Poison)()
	defer p.status.awaits(waitsForBroker, nil) // joining says it again
	working, cancel := context.WithCancel(owned)
	defer cancel()
	defer context.AfterFunc(ctx, cancel)()

	var mirror sync.WaitGroup
	mirroring, stop := context.WithCancel(owned)
	mirror.Go(func() { p.mirror(mirroring, gen) })
	err := p.apply(working, gen.Assignment)
	if err != nil {
		p.status.fail()
	}
	stop()
	mirror.Wait()
	p.commit(owned, gen)
	return err
}

// mirror shows the stored offsets to Kafka now and then, and looks what became of dead
// letters and where the logs end, which nobody else does while a partition is paused.
func (p *Pipeline) mirror(ctx context.Context, gen *kafka.Generation) {
	p.countRedriven(ctx)
	t := time.NewTicker(p.opts.CommitInterval)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			p.commit(ctx, gen)
			p.countRedriven(ctx)
			p.lookAtEnds(ctx, gen.Assignment)
		case <-ctx.Done():
			return
		}
	}
}

// lookAtEnds notes where the logs end, and whether a broker answers: what is fetched waits
// for one without a word.
func (p *Pipeline) lookAtEnds(ctx context.Context, assignment map[string][]int32) {
	for topic, partitions := range assignment {
		spans, err := p.broker.offsets(ctx, topic, partitions)
		switch {
		case err != nil && ctx.Err() != nil:
			return
		case errors.Is(err, kafka.ErrUnreachable):
			p.status.awaits(waitsForBroker, err)
			return
		}
		p.status.awaits(waitsForBroker, nil)
		if err != nil && len(spans) == 0 {
			continue // the next fetch says why
		}
		// A topic that was made anew has the name of the one whose partitions are applied,
		// and never its id. So they were that one's if it is there still.
		if info, err := p.broker.topic(ctx, topic); err == nil {
			p.status.ends(topic, info.id, spans)
		}
	}
}

// countRedriven looks how many dead letters were redriven or purged, which others do.
func (p *Pipeline) countRedriven(ctx context.Context) {
	all, err := AllRedriven(ctx, p.opts.Engine, p.opts.Name)
	if err != nil {
		if ctx.Err() == nil {
			p.log.Warn("dead letters that were redriven are not counted", "err", err)
		}
		return
	}
	p.status.redriven(all)
}

// commit shows the stored offsets to Kafka. Trouble with that can last, as long as a topic
// is gone, and changes no count.
func (p *Pipeline) commit(ctx context.Context, gen *kafka.Generation) {
	offsets := p.status.storedOffsets(gen.Assignment)
	if len(offsets) == 0 || ctx.Err() != nil {
		return
	}
	err := gen.Commit(ctx, offsets)
	switch {
	case err == nil:
		if p.unshown.over() {
			p.log.Info("offsets are shown to kafka again")
		}
	case errors.Is(err, kafka.ErrGenerationEnded) || ctx.Err() != nil:
	case p.unshown.news(rootCause(err)):
		p.log.Warn("offsets are not shown to kafka, trying again", "err", err)
	}
}

// apply runs a worker for each assigned partition until ctx ends.
func (p *Pipeline) apply(ctx context.Context, assignment map[string][]int32) error {
	for {
		err := p.applySources(ctx, assignment)
		var changed *TopicChangedError
		if errors.As(err, &changed) && !changed.sameID && !changed.firstID && p.opts.OnTopicChange == NewIncarnation && ctx.Err() == nil {
			// prepare begins the new one. Brokers may not agree yet on which
			// that is. Nobody opens the old one again, whose last replies may be lost.
			p.relay.wakeAll()
			if sleep(ctx, p.retry) == nil {
				continue
			}
			return nil
		}
		return err
	}
}

// applySources is apply for the topics as they are now.
func (p *Pipeline) applySources(ctx context.Context, assignment map[string][]int32) error {
	ids := make(map[string][16]byte, len(assignment))
	var workers []*worker
	for topic, partitions := range assignment {
		src, err := p.prepareSource(ctx, topic, partitions)
		if err != nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
		ids[topic] = src.TopicID
		for _, n := range partitions {
			w, err := p.newWorker(src, n)
			if err != nil {
				return err
			}
			workers = append(workers, w)
		}
	}
	if len(workers) == 0 { // more members than partitions: stand by
		<-ctx.Done()
		return nil
	}
	f := p.broker.fetcher(ids)
	fetching, stop := context.WithCancel(context.WithoutCancel(ctx)) // ends after the workers: what they have fetched is good
	done := make(chan error, 1)
	go func() { done <- f.Run(fetching) }()

	g, working := errgroup.WithContext(ctx)
	for _, w := range workers {
		w.fetcher, w.workers = f, len(workers)
		g.Go(func() error { return w.run(working) })
	}
	err := g.Wait()
	stop()
	if ferr := <-done; ferr != nil && !errors.Is(ferr, context.Canceled) {
		return ferr // why the workers have ended
	}
	return err
}

// prepareSource is prepare, tried again until it works, ctx ends or trying is of
// no use.
func (p *Pipeline) prepareSource(ctx context.Context, topic string, partitions []int32) (store.Source, error) {
	warned := false
	defer p.status.awaits(waitsForTopic, nil)
	for wait := p.retry; ; wait = min(2*wait, maxRetryWait) {
		src, err := p.prepare(ctx, topic, partitions)
		if err == nil || fatal(err) {
			return src, err
		}
		if !warned && ctx.Err() == nil {
			p.log.Warn("topic cannot be begun yet", "topic", topic, "err", err)
			warned = true
		}
		p.status.awaits(waitsForTopic, err)
		if sleep(ctx, wait) != nil {
			return src, nil // the caller sees that ctx has ended
		}
	}
}
