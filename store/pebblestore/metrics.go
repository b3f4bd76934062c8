package pebblestore

import (
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// CommitBuckets are the upper bounds of Metrics.CommitSeconds, in seconds.
var CommitBuckets = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}

// Metrics is what a DB has done since it was opened, and what it holds now.
type Metrics struct {
	Commits         int64 // that were written
	BulkCommits     int64 // of these, as sorted tables (store.Batch.Bulk)
	CommitErrors    int64 // that failed
	CommitsRefused  int64 // for want of disk space, while flushes fail, or as the disk does not answer
	Requests        int64 // calls that took part in a commit
	KeyValues       int64 // written, counters included
	Bytes           int64 // of keys and values of cells
	Counters        int64 // counters written
	CounterHits     int64 // increments that found their counter in the cache
	CounterMisses   int64
	LateIncrements  int64 // left out, because their family's TTL had passed
	Conflicts       int64 // conditions that did not hold, event ids seen before
	Sequence        uint64
	CommitSeconds   [len(CommitBuckets) + 1]int64 // commits by duration; the last bucket is open
	CommitSecondSum float64

	// What holds the commit loop now, and for how long; 0 = it is idle. Nothing else is
	// committed meanwhile.
	Hold        HoldKind
	HoldSeconds float64
	// How long it was held for anything but a commit, by kind.
	Holds [holdKinds]HoldMetrics

	Corruptions int64
	WriteStalls int64
	Flushes     int64
	Compactions int64

	DiskBytes      uint64 // all files
	TableBytes     int64  // live sstables
	WALBytes       uint64
	MemTableBytes  uint64
	CacheHits      int64 // of the block cache
	CacheMisses    int64
	OpenScans      int
	OpenSnapshots  int
	CatalogTables  int
	CatalogRegions int

	RewrittenKeys      int64   // read by rewrites
	ReclaimedKeys      int64   // left out by them
	ReclaimedBytes     int64   // keys and values, not compressed
	Rewrites           int64   // spans replaced
	RewriteRetries     int64   // begun again: too much was written meanwhile, or the family was altered
	RewriteHoldSeconds float64 // that commits waited for the replacement of spans
	RewriteHoldMax     float64 // the longest of those waits, in seconds

	Checkpoints           int64   // that were made, or failed when they had begun
	CheckpointHoldSeconds float64 // that commits waited for them
	CheckpointHoldMax     float64 // the longest of those waits, in seconds

	GarbageLooks       int64   // times that the store looked for garbage
	GarbageLookSeconds float64 // rewriting included
	GarbageSampledKeys int64   // read to find it
	GarbageBytes       int64   // on disk, estimated by the last look, not worth a rewrite yet
}

// HoldMetrics is how long the commit loop was held for one kind of work.
type HoldMetrics struct {
	Seconds [len(CommitBuckets) + 1]int64 // holds by duration, as CommitSeconds
	Sum     float64
}

// meters are the DB's own counters.
type meters struct {
	commits, commitErrors, commitsRefused, requests  atomic.Int64
	bulkCommits                                      atomic.Int64
	keyValues, bytes, counters, late, conflicts      atomic.Int64
	counterHits, counterMisses, rewritten, reclaimed atomic.Int64
	seconds                                          durations
	holds                                            [holdKinds]durations

	rewrites, rewriteRetries, reclaimedBytes atomic.Int64
	rewriteStops, checkpointStops            stops
	looks, lookNanos, sampled, garbage       atomic.Int64
}

// durations counts what took so long.
type durations struct {
	buckets [len(CommitBuckets) + 1]atomic.Int64
	nanos   atomic.Int64
}

func (d *durations) observe(took time.Duration) {
	d.nanos.Add(int64(took))
	i := 0
	for s := took.Seconds(); i < len(CommitBuckets) && s > CommitBuckets[i]; {
		i++
	}
	d.buckets[i].Add(1)
}

// read returns the counts by bucket, and what all took, in seconds.
func (d *durations) read() (buckets [len(CommitBuckets) + 1]int64, sum float64) {
	for i := range d.buckets {
		buckets[i] = d.buckets[i].Load()
	}
	return buckets, time.Duration(d.nanos.Load()).Seconds()
}

// stops counts stops of the commit loop.
type stops struct{ count, nanos, longest atomic.Int64 }

// since counts one that has begun then.
func (s *stops) since(begun time.Time) {
	took := int64(time.Since(begun))
	s.count.Add(1)
	s.nanos.Add(took)
	s.longest.Store(max(s.longest.Load(), took)) // the loop alone stores it
}

// seconds returns what all took, and the longest.
func (s *stops) seconds() (sum, longest float64) {
	return time.Duration(s.nanos.Load()).Seconds(), time.Duration(s.longest.Load()).Seconds()
}

// observe counts one commit.
func (m *meters) observe(c *commit, requests int, took time.Duration, err error) {
	m.requests.Add(int64(requests))
	m.conflicts.Add(c.conflicts)
	m.counterHits.Store(c.db.loop.counters.hits)
	m.counterMisses.Store(c.db.loop.counters.miss)
	switch {
	case err != nil:
		m.commitErrors.Add(1)
		return
	case c.empty():
		return
	}
	m.commits.Add(1)
	m.late.Add(c.late)
	m.keyValues.Add(int64(len(c.kvs) + len(c.dirty) + len(c.offsets) + c.onces.len()))
	m.bytes.Add(int64(len(c.buf)))
	m.counters.Add(int64(len(c.dirty)))
	m.seconds.observe(took)
}

// meterPatience is how long an answer of Pebble's is waited for: it gives none while a manifest
// is being written, which may hang with the disk, and who looks must not hang with it.
const meterPatience = time.Second

// engineMetrics returns what Pebble tells, or told last where that takes too long; nil = nothing
// yet, or the store is closed, or Pebble stuck.
func (db *DB) engineMetrics() *pebble.Metrics {
	if db.enter() != nil {
		return nil
	}
	db.leave()
	return db.engine.Ask(0, meterPatience, func() *pebble.Metrics {
		if db.enter() != nil {
			return nil
		}
		defer db.leave()
		return db.pebble.Metrics()
	})
}

// Metrics returns the DB's counters. It takes some microseconds, and where the disk does not
// answer a second; what Pebble counts is then what it was.
func (db *DB) Metrics() Metrics {
	m := &db.metrics
	out := Metrics{
		Commits: m.commits.Load(), BulkCommits: m.bulkCommits.Load(), CommitErrors: m.commitErrors.Load(), CommitsRefused: m.commitsRefused.Load(),
		Requests: m.requests.Load(), KeyValues: m.keyValues.Load(), Bytes: m.bytes.Load(), Counters: m.counters.Load(),
		CounterHits: m.counterHits.Load(), CounterMisses: m.counterMisses.Load(),
		LateIncrements: m.late.Load(), Conflicts: m.conflicts.Load(), Sequence: db.sequence.Load(),
		Corruptions: db.log.corruptions.Load(), WriteStalls: db.log.writeStalls.Load(),
		Flushes: db.log.flushes.Load(), Compactions: db.log.compactions.Load(),
		RewrittenKeys: m.rewritten.Load(), ReclaimedKeys: m.reclaimed.Load(),
		ReclaimedBytes: m.reclaimedBytes.Load(), Rewrites: m.rewrites.Load(), RewriteRetries: m.rewriteRetries.Load(),
		GarbageLooks: m.looks.Load(), GarbageLookSeconds: time.Duration(m.lookNanos.Load()).Seconds(),
		GarbageSampledKeys: m.sampled.Load(), GarbageBytes: m.garbage.Load(),
	}
	out.RewriteHoldSeconds, out.RewriteHoldMax = m.rewriteStops.seconds()
	out.Checkpoints = m.checkpointStops.count.Load()
	out.CheckpointHoldSeconds, out.CheckpointHoldMax = m.checkpointStops.seconds()
	out.CommitSeconds, out.CommitSecondSum = m.seconds.read()
	for kind := range m.holds {
		h := &out.Holds[kind]
		h.Seconds, h.Sum = m.holds[kind].read()
	}
	kind, age := db.watch.now()
	out.Hold, out.HoldSeconds = kind, age.Seconds()
	c := db.catalog.Load()
	for _, t := range c.tables {
		if !t.system {
			out.CatalogTables++
			out.CatalogRegions += t.regions.Len()
		}
	}
	db.mu.Lock()
	out.OpenScans, out.OpenSnapshots = len(db.sources), len(db.snaps)
	db.mu.Unlock()
	p := db.engineMetrics()
	if p == nil {
		return out
	}
	out.DiskBytes = p.DiskSpaceUsage()
	for i := range p.Levels {
		out.TableBytes += p.Levels[i].TablesSize
	}
	out.WALBytes, out.MemTableBytes = p.WAL.Size, p.MemTable.Size
	out.CacheHits, out.CacheMisses = p.BlockCache.Hits, p.BlockCache.Misses
	return out
}
