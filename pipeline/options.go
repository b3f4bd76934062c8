package pipeline

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/pipeline/kafka"
	"sluice/pipeline/mapping"
	"sluice/pipeline/memory"
	"sluice/store"
)

// StartFrom is where a pipeline begins a topic that it has never read.
type StartFrom uint8

// The places to begin at. A stored offset always wins, and a partition that was
// added to a topic already read begins at its first record.
const (
	StartEarliest  StartFrom = iota // the log's first record
	StartLatest                     // what is produced from now on
	StartAtTime                     // the first record at or after Start.Time
	StartCommitted                  // the offset that the group has committed to Kafka; it must have one
)

// String names the place as the configuration file does.
func (f StartFrom) String() string {
	switch f {
	case StartEarliest:
		return "earliest"
	case StartLatest:
		return "latest"
	case StartAtTime:
		return "timestamp"
	case StartCommitted:
		return "committed"
	}
	return fmt.Sprintf("StartFrom(%d)", uint8(f))
}

// Start says where a topic is begun.
type Start struct {
	From StartFrom
	Time time.Time // StartAtTime only
}

// DataLossPolicy says what becomes of offsets that Kafka no longer has.
type DataLossPolicy uint8

// The policies for lost offsets.
const (
	FailOnDataLoss DataLossPolicy = iota // stop with a *DataLossError
	SkipLostData                         // count them in Progress.Lost and go on
)

// TopicChangePolicy says what becomes of a topic that is not the one stored.
type TopicChangePolicy uint8

// The policies for changed topics.
const (
	FailOnTopicChange TopicChangePolicy = iota // stop with a *TopicChangedError
	NewIncarnation                             // keep what was applied, apply the new topic from its start
)

// Flush says when a partition's buffer goes to the store at the latest. It goes
// as soon as the store has nothing of the partition in work, so that load makes
// the batches large and a quiet topic is applied at once.
type Flush struct {
	MaxRecords int           // default buffer.DefaultMaxRecords
	MaxBytes   int64         // default buffer.DefaultMaxBytes
	MaxAge     time.Duration // default buffer.DefaultMaxAge
}

// Backfill says when a partition is so far behind that its batches are applied in
// bulk (store.Batch.Bulk): larger ones, later each, and more of them in all. It goes
// back to batches as soon as the store is free where a tenth of the lag is left.
type Backfill struct {
	Lag        int64 // records; 0 = never
	MaxRecords int   // of all partitions' batches together; default DefaultBackfillRecords
}

// Defaults of Options.
const (
	// DefaultBackfillRecords is two commits of the embedded engine (design D8):
	// one that is made and one that is gathered.
	DefaultBackfillRecords = 200_000

	DefaultDrainTimeout = 5 * time.Second // half of kafka's default session timeout: a leaving owner is done before another begins
	DefaultInFlight     = 2               // one in the engine, one ready; the third is being filled
	DefaultMemoryBytes  = 512 << 20       // two thirds of it hold three batches of four busy partitions
)

// Options configures a Pipeline. Name, Topics, Client, Plan and Engine are
// required.
type Options struct {
	Name   string   // names the pipeline's stored offsets: change it and everything is applied again
	Topics []string // at least one, each once
	Group  string   // consumer group; default "sluice-" + Name
	Start  Start    // default: earliest

	Client *kafka.Client
	Plan   *mapping.Plan
	Engine store.Engine
	// StoreID names the data directory; members of a group that announce
	// another one are refused (design D4). Empty where several processes may
	// share the group: a cluster.
	StoreID string
	// CreateTable is called for a table that records write to and that is not
	// there. Where its error wraps store.ErrTableNotFound, or it is nil, the
	// records are dead letters; another error pauses the partition. It must be
	// safe for concurrent use.
	CreateTable func(ctx context.Context, name string) error
	// DeadLetterTopic gets the dead letters after the outbox has them; empty =
	// the outbox only.
	DeadLetterTopic string

	Flush    Flush
	Backfill Backfill
	// Memory bounds what is fetched, decoded and buffered; pipelines may share it.
	// Where payloads are packed, it is to count what they unfold to
	// (memory.NewUnpacking). Default: one of DefaultMemoryBytes that counts what Plan
	// needs.
	Memory   *memory.Budget
	InFlight int // batches of a partition handed over and not yet applied, 1..8; default DefaultInFlight

	// DrainTimeout bounds how long a partition that is taken away, or that
	// stops, goes on applying what it has buffered. 0 = DefaultDrainTimeout;
	// negative = not at all. It should be below SessionTimeout.
	DrainTimeout time.Duration
	// Poison says what becomes of records that cannot be applied.
	Poison        Poison
	OnDataLoss    DataLossPolicy
	OnTopicChange TopicChangePolicy

	// Static reads Partitions of every topic, all where it is nil, without
	// membership in a group: for replicas that each have a store of their own,
	// and for a partition's fixed place. Nobody takes over from it. Offsets are
	// shown to Kafka in Group's name, which must have no members.
	Static     bool
	Partitions []int32

	PartitionWatch time.Duration // between looks for new partitions; 0 = kafka's default
	SessionTimeout time.Duration // of the group; 0 = kafka's default
	Heartbeat      time.Duration // 0 = kafka's default
	Rebalance      time.Duration // 0 = kafka's default
	// Fetch tunes fetching; nil = the defaults. Its Memory is that of the options.
	Fetch *kafka.FetchOptions
	// CommitInterval is how often the stored offsets are shown to Kafka, for
	// lag tools; default 5 s.
	CommitInterval time.Duration

	Logger *slog.Logger // nil discards
}

// validate reports every mistake.
func (o *Options) validate() error {
	var errs []error
	bad := func(f string, a ...any) { errs = append(errs, fmt.Errorf(f, a...)) }
	if o.Name == "" {
		bad("no name")
	}
	if strings.Contains(o.Name, GenerationMark) {
		bad("the name holds %s, as those of rebuilds do", GenerationMark)
	}
	if len(o.Topics) == 0 {
		bad("no topics")
	}
	seen := map[string]bool{}
	for _, t := range o.Topics {
		if t == "" || seen[t] {
			bad("topic %q is empty or given twice", t)
		}
		seen[t] = true
	}
	if seen[o.DeadLetterTopic] {
		bad("topic %q is read and is the dead-letter topic: its dead letters would be read again", o.DeadLetterTopic)
	}
	if o.Engine == nil {
		bad("no engine")
	}
	if o.Start.From > StartCommitted {
		bad("unknown start %v", o.Start.From)
	}
	if o.Start.From == StartAtTime && o.Start.Time.IsZero() {
		bad("start at a timestamp, but none is given")
	}
	if o.Partitions != nil && !o.Static {
		bad("partitions are named, but a group assigns them")
	}
	if o.InFlight < 0 || o.InFlight > 8 {
		bad("%d batches in flight, must be 1 to 8", o.InFlight)
	}
	if o.OnDataLoss > SkipLostData || o.OnTopicChange > NewIncarnation {
		bad("unknown policy")
	}
	if err := o.Poison.validate(); err != nil {
		bad("%w", err)
	}
	if o.Backfill.MaxRecords < 0 || o.Backfill.Lag < 0 {
		bad("backfill from a lag of %d records in batches of %d: must not be negative", o.Backfill.Lag, o.Backfill.MaxRecords)
	}
	for _, d := range []time.Duration{o.SessionTimeout, o.Heartbeat, o.Rebalance, o.CommitInterval, o.PartitionWatch} {
		if d < 0 {
			bad("negative duration %v", d)
		}
	}
	return errors.Join(errs...)
}

// setDefaults fills in what was left out.
func (o *Options) setDefaults() error {
	if o.Group == "" {
		o.Group = "sluice-" + o.Name
	}
	if o.InFlight == 0 {
		o.InFlight = DefaultInFlight
	}
	o.Poison.setDefaults()
	if o.Backfill.MaxRecords == 0 {
		o.Backfill.MaxRecords = DefaultBackfillRecords
	}
	if o.DrainTimeout == 0 {
		o.DrainTimeout = DefaultDrainTimeout
	}
	if o.CommitInterval == 0 {
		o.CommitInterval = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Memory == nil {
		budget := memory.New
		if o.Plan != nil && o.Plan.Unpacks() {
			budget = memory.NewUnpacking
		}
		var err error
		if o.Memory, err = budget(DefaultMemoryBytes); err != nil {
			return err
		}
	}
	return nil
}
