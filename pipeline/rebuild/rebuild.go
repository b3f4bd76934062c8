// Package rebuild counts a pipeline's records again: from the beginning of the log
// up to where the pipeline is, by its present mapping, into a new generation of
// its COUNTER and DISTINCT families beside those that are served. The generations are compared,
// and the new one is put into the old one's place in one commit, or dropped.
//
// The pipeline's own offsets are never moved back: a rebuild has a source of its
// own, whose offsets advance in the commits of its counts, so that one that was
// killed goes on where it stopped. What the mapping writes besides increments is
// not touched; puts of a record are the same cells again anyway. The registers of a
// distinct count are the same whatever the order of its elements and however often one
// comes, so that those of two generations are equal or something is missing.
//
// Families in which nothing is counted any more, as the rules were changed, are
// compared with nothing, and emptied in the same commit or left as they are.
//
// A record that is a dead letter stays one: redrive it first, or afterwards, by the
// corrected mapping. While a rebuild is unfinished nothing is redriven.
//
// It is not a way to apply a log twice to what is served, and it does not run
// beside its pipeline: between Count and Switch nothing may apply records of it. Of two
// rebuilds of one pipeline one is refused, where the engine does not see to it that there
// is one process (store.RebuildSwitcher).
package rebuild

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/store"
)

// The reasons why a rebuild cannot be made or used. docs/operations.md says what
// to do.
var (
	// ErrLogIncomplete says that Kafka no longer has all that the pipeline has
	// applied, or that a topic of it is not among Options.Topics: the rebuilt counts
	// would lack it.
	ErrLogIncomplete = errors.New("rebuild: not all records can be read again")
	// ErrOtherMapping says that an unfinished rebuild was begun with another
	// version of the mapping.
	ErrOtherMapping = errors.New("rebuild: begun with another version of the mapping")
	// ErrBehind says that records were applied since the counts were made, or
	// that not all were counted.
	ErrBehind = errors.New("rebuild: not as far as the pipeline")
)

// DefaultBatchRecords is as many as one commit of the pipeline takes. Records that count much
// are fewer.
const DefaultBatchRecords = 20_000

// Engine is what a rebuild needs of a store, which is a store.FamilyReplacer or a
// store.RebuildSwitcher besides.
type Engine interface {
	store.Engine
	store.Admin
}

// Options configures a Rebuild. Pipeline, Topics, Client, Plan and Engine are
// required.
type Options struct {
	Pipeline string
	Topics   []string
	Client   *kafka.Client
	Plan     *mapping.Plan
	Engine   Engine
	// AcceptLoss counts what Kafka still has where it has not all.
	AcceptLoss bool
	// Previous are plans by which the pipeline counted before, as far as they are
	// known: families that only they count in are compared, too.
	Previous []*mapping.Plan
	// Others are the plans of the other pipelines that write the store: what they
	// count is not left over by this one.
	Others []*mapping.Plan
	// CreateTable is Options.CreateTable of the pipeline; nil creates none. It is called
	// where a record counts in a table that is not there, and not where it only puts.
	CreateTable func(ctx context.Context, name string) error
	// Template returns the schema that CreateTable makes a table by, nil where it makes
	// none of this name; nil has none.
	Template func(name string) *store.TableDescriptor
	// RemoveUnused makes Switch empty the families that Compare finds unused.
	RemoveUnused bool
	// BatchRecords is how many records one commit counts. Default:
	// DefaultBatchRecords.
	BatchRecords int
	// Progress, if set, is told of each commit. Calls do not overlap.
	Progress func(Progress)
	// Holder is who rebuilds, for a store.RebuildSwitcher. Default of its Name: host and
	// process id.
	Holder store.RebuildHolder
	Logger *slog.Logger // nil discards
}

// Progress is how far the count is.
type Progress struct {
	Done, Total int64 // offsets of all partitions
}

// Totals is what became of the records that were counted, in all runs of the
// rebuild.
type Totals struct {
	Applied  int64 // had increments, elements or other effects, by the mapping
	Filtered int64 // were left out by it
	Dead     int64 // would be dead letters
	Control  int64 // offsets without a record
}

// Rebuild is one new generation of the counters of one pipeline. It is for one
// goroutine, and nothing else may apply records of the pipeline while it is used.
type Rebuild struct {
	o          Options
	log        *slog.Logger
	source     string // pipeline of its own offsets: NAME~GENERATION
	partitions []*partition
	families   families
	hold       store.RebuildHold // nil: the engine has none
}

// partition is one partition of a topic that is counted again.
type partition struct {
	live, own store.Source
	number    int32
	from      int64          // first offset to count
	target    int64          // the pipeline's stored offset
	applied   store.Progress // the pipeline's
	stored    int64          // own stored offset; store.Absent
	progress  store.Progress
}

func (p *partition) String() string { return fmt.Sprintf("%s/%d", p.own.Topic, p.number) }

// Open begins a rebuild, or goes on with the one that was neither switched to nor
// discarded. A switch that was decided and cut off is finished first. Its error wraps
// ErrLogIncomplete, ErrOtherMapping, store.ErrHeld where another process rebuilds the
// pipeline, store.ErrUnsupported for rules whose effects depend on what is stored, or those
// of the client and the engine. Close the Rebuild when it is not used any more.
func Open(ctx context.Context, o *Options) (*Rebuild, error) {
	if o.Plan.Units() {
		return nil, fmt.Errorf("rebuild pipeline %s: %w: its rules have checks, event ids, or deletes beside increments, whose outcome depends on what was stored at each record's turn", o.Pipeline, store.ErrUnsupported)
	}
	r := &Rebuild{o: *o, log: o.Logger}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if r.o.BatchRecords <= 0 {
		r.o.BatchRecords = DefaultBatchRecords
	}
	hold, err := holdRebuilds(ctx, o.Engine, o.Pipeline, &o.Holder)
	if err == nil {
		r.hold = hold
		if err = r.open(ctx); err != nil {
			err = errors.Join(err, release(ctx, hold))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("rebuild pipeline %s: %w", o.Pipeline, err)
	}
	return r, nil
}

// holdRebuilds returns nil where the engine sees to it by itself that one process at a time
// rebuilds.
func holdRebuilds(ctx context.Context, engine Engine, name string, h *store.RebuildHolder) (store.RebuildHold, error) {
	e, ok := engine.(store.RebuildSwitcher)
	if !ok {
		return nil, nil
	}
	holder := *h
	if holder.Name == "" {
		host, _ := os.Hostname() // it is for people
		holder.Name = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	return e.HoldRebuilds(ctx, name, &holder)
}

func release(ctx context.Context, hold store.RebuildHold) error {
	if hold == nil {
		return nil
	}
	ctx, stop := context.WithTimeout(context.WithoutCancel(ctx), store.ReleaseTimeout)
	defer stop()
	return hold.Release(ctx)
}

// Close lets another process rebuild the pipeline. What was begun is kept.
func (r *Rebuild) Close(ctx context.Context) error {
	if err := release(ctx, r.hold); err != nil {
		return fmt.Errorf("rebuild pipeline %s: %w", r.o.Pipeline, err)
	}
	return nil
}

func (r *Rebuild) open(ctx context.Context) error {
	begun, ended, err := r.resume(ctx)
	if err != nil {
		return err
	}
	stored, err := store.AllProgress(ctx, r.o.Engine)
	if err != nil {
		return err
	}
	generation, err := r.choose(ctx, stored, begun, ended)
	if err != nil {
		return err
	}
	r.source, r.families.suffix = r.o.Pipeline+pipeline.GenerationMark+strconv.Itoa(generation), r.suffix(generation)
	if r.hold != nil {
		if err := r.hold.BeginRebuild(ctx, r.source); err != nil {
			return err
		}
	}
	if err := r.check(stored); err != nil {
		return err
	}
	for _, topic := range r.o.Topics {
		if err := r.openTopic(ctx, topic, stored); err != nil {
			return err
		}
	}
	return nil
}

// resume finishes a switch that was cut off, and returns the generations of the rebuild that
// has begun and of the last that has ended, as far as the engine knows; 0 = none.
func (r *Rebuild) resume(ctx context.Context) (begun, ended int, err error) {
	if r.hold == nil {
		if _, ok := r.o.Engine.(store.FamilyReplacer); !ok {
			return 0, 0, fmt.Errorf("%w: engine %s cannot replace families", store.ErrUnsupported, r.o.Engine.Traits().Name)
		}
		return 0, 0, nil
	}
	done, err := r.hold.ResumeSwitch(ctx)
	if err != nil {
		return 0, 0, err
	}
	if done {
		r.log.Info("finished a switch that was cut off", "pipeline", r.o.Pipeline)
	}
	b, e, err := r.hold.Rebuilds(ctx)
	if err != nil {
		return 0, 0, err
	}
	begun, _ = r.generation(b)
	ended, _ = r.generation(e)
	return begun, ended, nil
}

// choose returns the generation to count: that of the rebuild to go on with, or a new one. It
// finds the families of the first, and drops what others have left.
func (r *Rebuild) choose(ctx context.Context, stored []store.PartitionProgress, begun, ended int) (generation int, err error) {
	last := max(begun, ended)
	for i := range stored {
		if g, ok := r.generation(stored[i].Source.Pipeline); ok {
			last = max(last, g)
		}
	}
	if begun > 0 {
		last = begun
	}
	r.families = families{engine: r.o.Engine, held: r.hold, create: r.o.CreateTable, template: r.o.Template, suffix: r.suffix(max(last, 1)), tables: map[string]*table{}, names: map[familyKey]string{}}
	unfinished, err := r.families.find(ctx)
	if err != nil {
		return 0, err
	}
	if r.hold != nil {
		unfinished = begun > 0
		if !unfinished { // some may be left of those that have ended
			if err := dropFamilies(ctx, r.o.Engine, r.hold, r.o.Pipeline, last); err != nil {
				return 0, err
			}
			r.families.forget()
		}
	}
	if unfinished && slices.ContainsFunc(stored, func(s store.PartitionProgress) bool {
		g, ok := r.generation(s.Source.Pipeline)
		return ok && g == last && s.Progress.MappingVersion == discarded
	}) {
		if err := discard(ctx, r.o.Engine, r.hold, r.o.Pipeline); err != nil {
			return 0, err
		}
		r.families.forget()
		unfinished = false
	}
	if last == 0 || !unfinished {
		last++
	}
	return last, nil
}

// check refuses what was applied and is not counted again, and what another mapping has
// counted.
func (r *Rebuild) check(stored []store.PartitionProgress) error {
	for i := range stored {
		if s := &stored[i]; s.Source.Pipeline == r.o.Pipeline && !slices.Contains(r.o.Topics, s.Source.Topic) {
			if err := r.gone(stored, s, "the pipeline has applied topic %s, which is not among its topics any more", s.Source.Topic); err != nil {
				return err
			}
		}
	}
	for i := range stored { // of topics that were made anew, or are not read any more, too: their counts stay
		if s := &stored[i]; s.Source.Pipeline == r.source && s.Progress.MappingVersion != r.o.Plan.Version() {
			return fmt.Errorf("%w: %s, the configuration has %s: drop the unfinished rebuild with --discard, or take the mapping, or the program, back", ErrOtherMapping, s.Progress.MappingVersion, r.o.Plan.Version())
		}
	}
	return nil
}

func (r *Rebuild) suffix(generation int) string {
	return pipeline.GenerationMark + store.FamilyPart(r.o.Pipeline) + pipeline.GenerationMark + strconv.Itoa(generation)
}

func (r *Rebuild) generation(source string) (int, bool) { return generation(r.o.Pipeline, source) }

// generation returns the number of a rebuild of the pipeline with this name by its
// source's.
func generation(name, source string) (int, bool) {
	digits, ok := strings.CutPrefix(source, name+pipeline.GenerationMark)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n > 0
}

// familyGeneration returns the number of a rebuild of the pipeline with this name by that of
// a family it counts in.
func familyGeneration(name, family string) (int, bool) {
	_, part, g, ok := store.RebuildOf(family)
	return g, ok && part == store.FamilyPart(name)
}

// openTopic finds the partitions of a topic that the pipeline has applied.
func (r *Rebuild) openTopic(ctx context.Context, topic string, stored []store.PartitionProgress) error {
	info, err := r.o.Client.Topic(ctx, topic)
	if err != nil {
		return err
	}
	live := store.Source{Pipeline: r.o.Pipeline, Topic: topic, ClusterID: info.ClusterID, TopicID: info.ID}
	own := live
	own.Pipeline = r.source
	spans, err := r.o.Client.ListOffsets(ctx, topic, info.Partitions)
	if err != nil {
		return err
	}
	for i := range stored {
		s := &stored[i]
		if s.Source.Pipeline != r.o.Pipeline || s.Source.Topic != topic {
			continue
		}
		if own := s.Source; own.Untold(&live) {
			return fmt.Errorf("topic %s: the brokers tell no topic id just now, and %x is stored: count again when they do", topic, own.TopicID)
		}
		if s.Source != live {
			if err := r.gone(stored, s, "topic %s was made anew", topic); err != nil {
				return err
			}
			continue
		}
		p := &partition{live: live, own: own, number: s.Partition, from: s.Progress.First, target: s.Progress.Next, applied: s.Progress, stored: store.Absent}
		span, ok := spans[s.Partition]
		if !ok || span.End < p.target {
			return fmt.Errorf("%w: %s ends at offset %d, and the pipeline has applied up to %d", ErrLogIncomplete, p, span.End, p.target)
		}
		begun := -1
		for j := range stored {
			if stored[j].Source == own && stored[j].Partition == s.Partition {
				begun = j
			}
		}
		if begun >= 0 {
			p.progress, p.stored = stored[begun].Progress, stored[begun].Progress.Next
			p.from = p.stored
			if lost := p.progress.First - s.Progress.First + p.progress.Lost - p.progress.Skipped; lost > 0 {
				if err := r.missing("%s was counted without %d offsets that Kafka did not have", p, lost); err != nil {
					return err
				}
			}
		}
		if span.Start > p.from && p.from < p.target {
			if err := r.missing("%s begins at offset %d, and the pipeline has applied from %d on", p, span.Start, p.from); err != nil {
				return err
			}
			p.from = min(span.Start, p.target)
		}
		r.partitions = append(r.partitions, p)
	}
	return nil
}

// gone takes a partition that the pipeline has applied and of which nothing can be read any
// more: what an unfinished rebuild has counted of it stays, and the rest is lost.
func (r *Rebuild) gone(stored []store.PartitionProgress, of *store.PartitionProgress, why string, a ...any) error {
	p := &partition{live: of.Source, own: of.Source, number: of.Partition, from: of.Progress.Next, target: of.Progress.Next, applied: of.Progress, stored: store.Absent}
	p.own.Pipeline = r.source
	counted := int64(0)
	for i := range stored {
		if s := &stored[i]; s.Source == p.own && s.Partition == p.number {
			p.progress, p.stored = s.Progress, s.Progress.Next
			p.from = max(p.from, p.stored)
			counted = p.stored - p.progress.First - p.progress.Lost + p.progress.Skipped
		}
	}
	r.partitions = append(r.partitions, p)
	if applied := of.Progress.Next - of.Progress.First; counted < applied {
		return r.missing(why+": of %d offsets of partition %d that were applied, %d are counted again and the rest is gone", append(a, applied, of.Partition, counted)...)
	}
	return nil
}

// missing is the error of records that Kafka does not have, unless that is
// accepted.
func (r *Rebuild) missing(format string, a ...any) error {
	what := fmt.Sprintf(format, a...)
	if !r.o.AcceptLoss {
		return fmt.Errorf("%w: %s; --accept-loss counts what Kafka still has, without these", ErrLogIncomplete, what)
	}
	r.log.Warn("the rebuilt counts lack records", "why", what)
	return nil
}

// Totals returns what became of the records so far.
func (r *Rebuild) Totals() (t Totals) {
	for _, p := range r.partitions {
		t.Applied += p.progress.Applied
		t.Filtered += p.progress.Filtered
		t.Dead += p.progress.Dead
		t.Control += p.progress.Control
	}
	return t
}

// Switch puts the rebuilt counters into the place of those that are served, in
// one commit, which also empties the unused families where Options.RemoveUnused says
// so; on a store.RebuildSwitcher row by row, and to the end once it is decided. Its error wraps ErrBehind where Count has not counted all that the pipeline has
// applied.
func (r *Rebuild) Switch(ctx context.Context) error {
	if err := held(ctx, r.hold); err != nil {
		return fmt.Errorf("switch pipeline %s: %w", r.o.Pipeline, err)
	}
	for _, p := range r.partitions {
		live, _, err := store.ReadProgress(ctx, r.o.Engine, &p.live, p.number)
		if err != nil {
			return fmt.Errorf("switch pipeline %s: %w", r.o.Pipeline, err)
		}
		own, _, err := store.ReadProgress(ctx, r.o.Engine, &p.own, p.number)
		if err != nil {
			return fmt.Errorf("switch pipeline %s: %w", r.o.Pipeline, err)
		}
		if live.Next != own.Next {
			return fmt.Errorf("switch pipeline %s: %w: %s was applied up to offset %d and counted up to %d: stop the daemon and give the command again, which counts the rest", r.o.Pipeline, ErrBehind, p, live.Next, own.Next)
		}
	}
	replacements := r.families.replacements()
	if r.o.RemoveUnused {
		unused, err := r.unused(ctx)
		if err != nil {
			return fmt.Errorf("switch pipeline %s: %w", r.o.Pipeline, err)
		}
		for _, f := range unused {
			replacements = append(replacements, store.FamilyReplacement{Table: f.Table, Family: f.Family})
		}
	}
	if len(replacements) == 0 {
		return nil
	}
	var err error
	if r.hold != nil {
		err = r.hold.SwitchRebuild(ctx, r.source, replacements)
		if errors.Is(err, store.ErrStale) {
			err = fmt.Errorf("%w: %w", ErrBehind, err)
		}
	} else {
		err = r.o.Engine.(store.FamilyReplacer).ReplaceFamilies(ctx, replacements)
	}
	if err != nil {
		return fmt.Errorf("switch pipeline %s: %w", r.o.Pipeline, err)
	}
	r.families.forget()
	return nil
}

// Discard drops the rebuilt counters.
func (r *Rebuild) Discard(ctx context.Context) error {
	if err := discard(ctx, r.o.Engine, r.hold, r.o.Pipeline); err != nil {
		return fmt.Errorf("discard the rebuild of pipeline %s: %w", r.o.Pipeline, err)
	}
	r.families.forget()
	return nil
}

const discarded = store.DiscardedMapping

// Discard drops the counters of an unfinished rebuild of a pipeline, whatever its
// mapping and its topics are now; without one it does nothing. The rebuild's offsets
// are given up first: Open finishes a Discard that was cut off, and counts nothing on
// top of what is left. Its error wraps store.ErrHeld where another process rebuilds the
// pipeline.
func Discard(ctx context.Context, engine Engine, name string, h *store.RebuildHolder) error {
	hold, err := holdRebuilds(ctx, engine, name, h)
	if err == nil {
		err = errors.Join(discard(ctx, engine, hold, name), release(ctx, hold))
	}
	if err != nil {
		return fmt.Errorf("discard the rebuild of pipeline %s: %w", name, err)
	}
	return nil
}

// discard is Discard for who holds the rebuilds. What it does late, when another one has
// taken over, it does to rebuilds that have ended.
func discard(ctx context.Context, engine Engine, hold store.RebuildHold, name string) error {
	last := math.MaxInt
	if hold != nil {
		if err := hold.AbandonRebuild(ctx); err != nil {
			return err
		}
		_, ended, err := hold.Rebuilds(ctx)
		if err != nil {
			return err
		}
		last, _ = generation(name, ended)
	}
	stored, err := store.AllProgress(ctx, engine)
	if err != nil {
		return err
	}
	var b store.Batch
	for i := range stored {
		s := &stored[i]
		if g, ok := generation(name, s.Source.Pipeline); ok && g <= last && s.Progress.MappingVersion != discarded {
			given := s.Progress
			given.MappingVersion = discarded
			b.Advance(s.Source, s.Partition, given.Next, given)
		}
	}
	if len(b.Advances) > 0 {
		if err := engine.Apply(ctx, &b); err != nil {
			return err
		}
	}
	return dropFamilies(ctx, engine, hold, name, last)
}

// dropFamilies drops the families of a pipeline's rebuilds with numbers up to last.
func dropFamilies(ctx context.Context, engine Engine, hold store.RebuildHold, name string, last int) error {
	tables, err := engine.Tables(ctx)
	if err != nil {
		return err
	}
	for _, table := range tables {
		for more := true; more; { // one at a time, which undoes nothing of what others alter
			if err := alter(ctx, engine, hold, table, func(d *store.TableDescriptor) bool {
				i := slices.IndexFunc(d.Families, func(f store.FamilyDescriptor) bool {
					g, ok := familyGeneration(name, f.Name)
					return ok && g <= last
				})
				if more = i >= 0; more {
					d.Families = slices.Delete(d.Families, i, i+1)
				}
				return more
			}); err != nil {
				return err
			}
		}
	}
	return nil
}
