package pebblestore

import (
	"sync/atomic"
	"time"
)

// CommitBuckets are the upper bounds of Metrics.CommitSeconds, in seconds.
var CommitBuckets = [...]float64{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5}

// Metrics is what a DB has done since it was opened, and what it holds now.
type Metrics struct {
	Commits         int64 // that were written
	BulkCommits     int64 // of these, as sorted tables (store.Batch.Bulk)
	CommitErrors    int64 // that failed
	RefusedCommits  int64 // refused for want of disk space, or while flushes fail
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

// meters are the DB's own counters.
type meters struct {
	commits, commitErrors, refusedCommits, requests  atomic.Int64
	bulkCommits                                      atomic.Int64
	keyValues, bytes, counters, late, conflicts      atomic.Int64
	counterHits, counterMisses, rewritten, reclaimed atomic.Int64
	seconds                                          [len(CommitBuckets) + 1]atomic.Int64
	nanos                                            atomic.Int64

	rewrites, rewriteRetries, reclaimedBytes atomic.Int64
	rewriteStops, checkpointStops            stops
	looks, lookNanos, sampled, garbage       atomic.Int64
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
	m.counterHits.Store(c.db.counters.hits)
	m.counterMisses.Store(c.db.counters.miss)
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
	m.nanos.Add(int64(took))
	i := 0
	for s := took.Seconds(); i < len(CommitBuckets) && s > CommitBuckets[i]; {
		i++
	}
	m.seconds[i].Add(1)
}

// Metrics returns the DB's counters. It takes some microseconds.
func (db *DB) Metrics() Metrics {
	m := &db.metrics
	out := Metrics{
		Commits: m.commits.Load(), BulkCommits: m.bulkCommits.Load(), CommitErrors: m.commitErrors.Load(), RefusedCommits: m.refusedCommits.Load(),
		Requests: m.requests.Load(), KeyValues: m.keyValues.Load(), Bytes: m.bytes.Load(), Counters: m.counters.Load(),
		CounterHits: m.counterHits.Load(), CounterMisses: m.counterMisses.Load(),
		LateIncrements: m.late.Load(), Conflicts: m.conflicts.Load(), Sequence: db.sequence.Load(),
		CommitSecondSum: time.Duration(m.nanos.Load()).Seconds(),
		Corruptions:     db.log.corruptions.Load(), WriteStalls: db.log.writeStalls.Load(),
		Flushes: db.log.flushes.Load(), Compactions: db.log.compactions.Load(),
		RewrittenKeys: m.rewritten.Load(), ReclaimedKeys: m.reclaimed.Load(),
		ReclaimedBytes: m.reclaimedBytes.Load(), Rewrites: m.rewrites.Load(), RewriteRetries: m.rewriteRetries.Load(),
		GarbageLooks: m.looks.Load(), GarbageLookSeconds: time.Duration(m.lookNanos.Load()).Seconds(),
		GarbageSampledKeys: m.sampled.Load(), GarbageBytes: m.garbage.Load(),
	}
	out.RewriteHoldSeconds, out.RewriteHoldMax = m.rewriteStops.seconds()
	out.Checkpoints = m.checkpointStops.count.Load()
	out.CheckpointHoldSeconds, out.CheckpointHoldMax = m.checkpointStops.seconds()
	for i := range m.seconds {
		out.CommitSeconds[i] = m.seconds[i].Load()
	}
	c := db.catalog.Load()
	for _, t := range c.tables {
		if !t.system {
			out.CatalogTables++
			out.CatalogRegions += t.regions.Len()
		}
	}
	if db.enter() != nil {
		return out
	}
	defer db.leave()
	db.mu.Lock()
	out.OpenScans, out.OpenSnapshots = len(db.sources), len(db.snaps)
	db.mu.Unlock()
	if db.log.failure() != nil {
		return out // Pebble's locks may be held for good
	}
	p := db.pebble.Metrics()
	out.DiskBytes = p.DiskSpaceUsage()
	for i := range p.Levels {
		out.TableBytes += p.Levels[i].TablesSize
	}
	out.WALBytes, out.MemTableBytes = p.WAL.Size, p.MemTable.Size
	out.CacheHits, out.CacheMisses = p.BlockCache.Hits, p.BlockCache.Misses
	return out
}
