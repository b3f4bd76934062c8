package serve

import (
	"time"

	"sluice/serve/api"
)

// Histogram is observations by upper bound, as Prometheus counts them: Counts[i]
// are those at most Bounds[i], cumulative; Count includes those above all bounds.
type Histogram struct {
	Bounds []float64 `json:"bounds"` // ascending, in the unit of the metric
	Counts []uint64  `json:"counts"` // cumulative, len(Bounds)
	Count  uint64    `json:"count"`
	Sum    float64   `json:"sum"`
}

// PipelineStatus is what one pipeline does now and has done since the process
// started.
type PipelineStatus struct {
	Name  string `json:"name"`
	Group string `json:"group"`
	// State is one of starting, running, standby, waiting (for brokers, its group or a
	// topic), paused, draining, stopped and failed.
	State string `json:"state"`
	// Ready says that the pipeline has its partitions, or stands by for them.
	Ready bool `json:"ready"`
	// Unreachable says that no broker answers.
	Unreachable bool `json:"unreachable"`
	// Reason says why the pipeline is not ready, or why it waits.
	Reason     string            `json:"reason,omitempty"`
	Generation int64             `json:"generation"`
	Rebalances uint64            `json:"rebalances"`
	Partitions []PartitionStatus `json:"partitions"`

	FetchBytes  uint64            `json:"fetch_bytes"`
	FetchErrors map[string]uint64 `json:"fetch_errors,omitempty"` // by code, in lower case
	// FetchSeconds are from a request to its answer, the wait for records at the
	// broker included.
	FetchSeconds Histogram `json:"fetch_seconds"`

	FlushSeconds   Histogram `json:"flush_seconds"`
	FlushConflicts uint64    `json:"flush_conflicts"` // batches that found another stored offset
	FencedWrites   uint64    `json:"fenced_writes"`   // batches not sent, as the partition has another owner
	// FlushOps counts what was changed, by kind: increment, put, delete, append.
	FlushOps map[string]uint64 `json:"flush_ops,omitempty"`
	// BackpressureSeconds is for how long partitions read nothing, as the store or
	// the memory was busy, all of them added up.
	BackpressureSeconds float64 `json:"backpressure_seconds"`
	Pauses              uint64  `json:"pauses"`    // times that a partition waited for the store
	Backfills           uint64  `json:"backfills"` // times that a partition began to be applied in bulk

	DeadLetters []DeadLetterCount `json:"dead_letters,omitempty"`
	Relayed     uint64            `json:"relayed"`      // dead letters that the dead-letter topic has taken
	RelayErrors uint64            `json:"relay_errors"` // and times that it did not
}

// PartitionStates are what a partition can do: begin, be applied, wait for what is named
// in the pipeline's reason, wait with an open breaker, and nothing as its pipeline failed.
func PartitionStates() []string {
	return []string{"starting", "running", "paused", "tripped", "failed"}
}

// PartitionStatus is one partition that a pipeline owns, or owned when it failed.
// Offsets are the next to read, as Kafka counts.
type PartitionStatus struct {
	Topic     string           `json:"topic"`
	Partition int32            `json:"partition"`
	State     string           `json:"state"`     // one of PartitionStates
	Begun     bool             `json:"begun"`     // what is below but Since is known
	Since     int64            `json:"since"`     // timestamp of the oldest record that waits, ms since the Unix epoch, or as good as is known; 0 = none waits
	Position  int64            `json:"position"`  // next offset to fetch
	Floor     int64            `json:"floor"`     // stored: all before it is applied
	LogStart  int64            `json:"log_start"` // first that Kafka still has
	End       int64            `json:"end"`       // end of what may be read (last stable offset)
	Backfill  bool             `json:"backfill"`  // it is applied in bulk
	LastTime  int64            `json:"last_time"` // of the newest record applied, ms since the Unix epoch; 0 = unknown
	Applied   int64            `json:"applied"`   // this and the next seven: since the partition was begun
	Filtered  int64            `json:"filtered"`
	Duplicate int64            `json:"duplicate"` // an event that was sent again
	Unmet     int64            `json:"unmet"`     // no check of the rules held
	Dead      int64            `json:"dead"`
	Control   int64            `json:"control"`           // markers and what compaction has taken
	Aborted   int64            `json:"aborted"`           // records of aborted transactions
	Late      int64            `json:"late"`              // of Applied, Duplicate and Unmet: later than the mapping expects
	Lost      map[string]int64 `json:"lost,omitempty"`    // by reason: retention, skipped; recreated, of former topics of this name since the process was started
	Dropped   int64            `json:"dropped"`           // could not be applied, and are not kept
	Redriven  int64            `json:"redriven"`          // of Dead, had their effect after all
	Purged    int64            `json:"purged"`            // of Dead, were removed from the outbox while they were dead
	Tripped   string           `json:"tripped,omitempty"` // why its breaker is open; empty = it is not
}

// DeadLetterCount is how many records were refused so.
type DeadLetterCount struct {
	Stage string `json:"stage"` // decode, map or store
	Class string `json:"class"` // short, of a bounded set
	Count uint64 `json:"count"`
}

// ExportStatus is what is known of one export job since the process started.
type ExportStatus struct {
	Name        string            `json:"name"`
	Runs        map[string]uint64 `json:"runs,omitempty"` // by result: ok, failed
	Rows        uint64            `json:"rows"`
	Bytes       uint64            `json:"bytes"`
	Seconds     Histogram         `json:"seconds"`
	LastSuccess time.Time         `json:"last_success,omitzero"` // zero = never
	// DirectoryHeldSeconds is for how long a look at its directory has gone on: a disk, or a
	// network's, may not answer. 0 = none is under way.
	DirectoryHeldSeconds float64 `json:"directory_held_seconds"`
	// Yielding is why the run that is at work here pauses, so that ingest can catch up; empty
	// = none does. YieldSeconds is for how long runs here have.
	Yielding     string  `json:"yielding,omitempty"`
	YieldSeconds float64 `json:"yield_seconds"`
	// Schedule is what the job's schedule does; nil = it has none.
	Schedule *ScheduleStatus `json:"schedule,omitempty"`
}

// ScheduleStatus is what the schedule of an export job does and has done.
type ScheduleStatus struct {
	Cron     string           `json:"cron"`
	Zone     string           `json:"zone"`
	Paused   bool             `json:"paused"`
	Reason   string           `json:"reason,omitempty"` // why nothing starts, besides a pause
	Failures int              `json:"failures"`         // runs in a row
	Working  time.Time        `json:"working,omitzero"` // logical time of the run at work; zero = none
	Cause    string           `json:"cause,omitempty"`  // of the run at work: schedule, catch-up, manual or backfill
	Attempt  int              `json:"attempt"`          // of the run at work
	Holder   string           `json:"holder,omitempty"` // of several daemons, the one that runs it; only there Working is known
	Pending  int              `json:"pending"`          // times of the schedule at work and waiting
	Results  map[string]int64 `json:"results"`          // times of the schedule by what became of them, since it exists
	Orders   []api.Order      `json:"orders"`           // that are open, the oldest first
	// Ordered counts the runs of orders, by cause and by what became of them.
	Ordered map[string]map[string]int64 `json:"ordered,omitempty"`
	Next    []time.Time                 `json:"next"`    // logical times; none while it is paused
	History []api.ExportRun             `json:"history"` // the newest first
}

// FlightStatus is what the Arrow Flight server does now and has done since the process
// started.
type FlightStatus struct {
	Held    int              `json:"held"`    // flights, each of which holds an instant of the store
	Opened  int64            `json:"opened"`  // flights
	Sending int              `json:"sending"` // streams, each of a part of a flight
	Streams map[string]int64 `json:"streams"` // that have ended, by result: ok, cancelled, failed
	Rows    int64            `json:"rows"`    // sent
	Bytes   int64            `json:"bytes"`   // sent
	Refused map[string]int64 `json:"refused"` // calls, by reason: token, ticket, job, flights, streams
}

// MemoryStatus is the memory that all pipelines share.
type MemoryStatus struct {
	Limit int64 // bytes
	Parts []MemoryPart
}

// MemoryPart is what is held of one part: fetched, decoded, unpacked or buffered.
type MemoryPart struct {
	Part  string
	Bytes int64
	Limit int64 // bytes; of all parts together they are the memory's
}

// StoreStatus is what the engine does now and has done since it was opened.
type StoreStatus struct {
	Commits      uint64 `json:"commits"`
	BulkCommits  uint64 `json:"bulk_commits"`  // of these, past the log
	CommitEvents uint64 `json:"commit_events"` // mutations, counters and records
	CommitErrors uint64 `json:"commit_errors"` // commits that failed
	// CommitsRefused are commits that were not tried for want of disk space, as
	// memtables cannot be written to the disk, or as it does not answer.
	CommitsRefused uint64    `json:"commits_refused"`
	CommitSeconds  Histogram `json:"commit_seconds"`
	DiskBytes      uint64    `json:"disk_bytes"`
	MemTableBytes  uint64    `json:"mem_table_bytes"`
	CacheHits      uint64    `json:"cache_hits"`
	CacheMisses    uint64    `json:"cache_misses"`
	Compactions    uint64    `json:"compactions"`
	WriteStalls    uint64    `json:"write_stalls"`
	Corruptions    uint64    `json:"corruptions"` // reads that failed their checksum

	// LateIncrements are increments of counters that were left out, because
	// their family's TTL had passed.
	LateIncrements uint64 `json:"late_increments"`

	// LoopHeldSeconds is for how long the commit loop has been at what it does, LoopHeldFor:
	// nothing else is committed meanwhile. 0 where it is idle.
	LoopHeldSeconds float64 `json:"loop_held_seconds"`
	LoopHeldFor     string  `json:"loop_held_for,omitempty"`
	// LoopHolds is for how long it was held by anything but commits, by what.
	LoopHolds map[string]Histogram `json:"loop_holds"`

	// Rewrites is what retention and compactions by hand have done.
	Rewrites RewriteStatus `json:"rewrites"`

	// Checkpoints is what exports and backups have stopped commits for.
	Checkpoints CheckpointStatus `json:"checkpoints"`
}

// CheckpointStatus is how often a checkpoint was made and how long commits waited for
// it.
type CheckpointStatus struct {
	Made           uint64  `json:"made"`
	HoldSeconds    float64 `json:"hold_seconds"`
	HoldMaxSeconds float64 `json:"hold_max_seconds"`
}

// RewriteStatus is what rewrites of spans have done to drop what no read can see.
type RewriteStatus struct {
	Spans          uint64  `json:"spans"`           // replaced
	Retries        uint64  `json:"retries"`         // begun again: too much was written meanwhile
	Keys           uint64  `json:"keys"`            // read
	ReclaimedKeys  uint64  `json:"reclaimed_keys"`  // of them left out
	ReclaimedBytes uint64  `json:"reclaimed_bytes"` // keys and values, not compressed
	HoldSeconds    float64 `json:"hold_seconds"`    // that commits waited for replacements
	HoldMaxSeconds float64 `json:"hold_max_seconds"`
	Looks          uint64  `json:"looks"`         // for garbage
	LookSeconds    float64 `json:"look_seconds"`  // that they took, rewriting included
	GarbageBytes   uint64  `json:"garbage_bytes"` // on disk, as the last look has estimated, not worth a rewrite yet
}
