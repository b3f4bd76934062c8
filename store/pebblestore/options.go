package pebblestore

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"sluice/cell"
	"sluice/internal/openfiles"
)

// Names that Pebble stores in the directory for ever.
const (
	comparerName = "sluice.v1"
	mergerName   = "sluice.v1"
)

// Options configure Open. The zero value is usable.
type Options struct {
	// Now is the store's clock. Default: the system's, in milliseconds.
	Now func() cell.Timestamp
	// FS is the file system. Default: the operating system's.
	FS vfs.FS
	// CacheBytes is the size of the block cache. Default: 256 MiB.
	CacheBytes int64
	// MemTableBytes is the size of one memtable; up to four exist. Default:
	// 64 MiB. Pebble makes a commit of more than half of it a table of its own:
	// with 16 MiB, commits of 20,000 page views are, and cost 1.35x the CPU.
	// Small commits that come fast have it flushed at 16 MiB.
	MemTableBytes uint64
	// ReadOnly opens an existing directory, such as a checkpoint, without
	// writing to it. Every write then fails with store.ErrReadOnly.
	ReadOnly bool
	// Logger receives what an operator should know. Default: discarded.
	Logger *slog.Logger
	// Sync says when an acknowledged commit is on disk. Default: SyncCommits.
	Sync SyncPolicy
	// MinFreeBytes is the free disk space below which writes fail at once
	// with store.ErrDiskFull: on a disk that is really full Pebble hangs.
	// Default: 128 MiB, two memtables; negative = no check.
	MinFreeBytes int64
	// MaxCommitEvents is the most mutations, counters and records that one
	// commit gathers. Default: 20,000, where fsync costs next to nothing.
	MaxCommitEvents int
	// MaxCommitBytes is the size, in bytes of keys and values, at which a
	// commit takes no further request. Default: 256 MiB, far below the 2 GiB
	// that a commit can hold: a request must not be refused for what others
	// have sent.
	MaxCommitBytes int
	// MaxBulkEvents is MaxCommitEvents of a commit with a bulk batch
	// (store.Batch.Bulk). Default: 300,000, about 200,000 page views: fewer
	// make more and smaller files, more hold up the other writers longer than
	// the half of a second that these take.
	MaxBulkEvents int
	// MinBulkKeys is the number of key-values from which on a commit with a
	// bulk batch is written as sorted tables that the engine takes over, past
	// the log and the memtable (design D8). Default: 10,000, below which three
	// files cost more than they save; negative = never.
	MinBulkKeys int
	// CounterCacheEntries bounds the cache of absolute counter values, about
	// 200 bytes each. Default: 500,000.
	CounterCacheEntries int
	// CounterFilterBytes bounds the memory in which the store keeps which
	// counters exist, ten bits each, so that new ones need no look-up. A store
	// with more counters looks all of them up that are not cached. Default:
	// 64 MiB, 50 million counters, of which as much is taken as is needed;
	// negative = none.
	CounterFilterBytes int64
	// OnceFilterBytes bounds the memory in which the store keeps which event ids
	// were used (store.Record.Once), ten bits each, so that new ones need no
	// look-up. Where more are remembered, all of a period are looked up. Default:
	// 64 MiB, 50 million ids, of which as much is taken as is needed; negative =
	// none.
	OnceFilterBytes int64
	// RewriteKeys is the most keys that one rewrite replaces. Default:
	// 500,000, some tens of MiB and a third of a second beside the commits;
	// fewer make more and smaller files.
	RewriteKeys int
	// RewriteInterval is how often the store looks for garbage (expired cells
	// and counters, versions in excess, what delete markers mask and they
	// themselves) and rewrites the spans that have gathered it. HBase does so
	// every hbase.hregion.majorcompaction, by age alone. Default: 15 minutes;
	// negative = only when it is asked to (Tidy, MajorCompact).
	RewriteInterval time.Duration
	// RewriteMinGarbage is the share of a span's bytes, in (0, 1], from which
	// on it is rewritten by itself. Default: 0.2, five bytes written for one
	// that is given back; negative = any garbage.
	RewriteMinGarbage float64
	// RewriteKeysPerSecond is how fast the store rewrites by itself. Default:
	// 1,000,000, a third of a core; negative = as fast as it can.
	RewriteKeysPerSecond int

	maxRewrittenRow int // tests; 0 = maxRewrittenRow
	blockBytes      int // tests; 0 = blockBytes
}

// blockBytes is the size of a table's blocks: 4 KiB halves cold scans, 128 KiB gains
// nothing.
const blockBytes = 32 << 10

// SyncPolicy says when an acknowledged commit is on disk.
type SyncPolicy uint8

// The policies. With SyncNever a crash may lose the last commits, but only
// whole ones and only the newest, so that offsets and data still agree: the
// records are read again from Kafka (design D4).
const (
	SyncCommits SyncPolicy = iota // fsync before a commit is acknowledged
	SyncNever                     // leave it to the operating system
)

// Validate reports the first option that makes no sense.
func (o *Options) Validate() error {
	switch {
	case o.CacheBytes < 0:
		return fmt.Errorf("pebblestore: CacheBytes is %d, must not be negative", o.CacheBytes)
	case o.MemTableBytes > 2<<30:
		return fmt.Errorf("pebblestore: MemTableBytes is %d, at most 2 GiB", o.MemTableBytes)
	case o.Sync > SyncNever:
		return fmt.Errorf("pebblestore: Sync is %d, unknown", o.Sync)
	case o.MaxCommitEvents < 0, o.MaxBulkEvents < 0, o.MaxCommitBytes < 0, o.CounterCacheEntries < 0, o.RewriteKeys < 0:
		return fmt.Errorf("pebblestore: MaxCommitEvents, MaxBulkEvents, MaxCommitBytes, CounterCacheEntries and RewriteKeys must not be negative")
	case !(o.RewriteMinGarbage <= 1):
		return fmt.Errorf("pebblestore: RewriteMinGarbage is %g, must be at most 1", o.RewriteMinGarbage)
	}
	return nil
}

// withDefaults returns a copy of o, which may be nil, with every default filled
// in.
func (o *Options) withDefaults() *Options {
	var c Options
	if o != nil {
		c = *o
	}
	if c.Now == nil {
		c.Now = func() cell.Timestamp { return cell.Timestamp(time.Now().UnixMilli()) }
	}
	if c.FS == nil {
		c.FS = vfs.Default
	}
	if c.CacheBytes == 0 {
		c.CacheBytes = 256 << 20
	}
	if c.MemTableBytes == 0 {
		c.MemTableBytes = 64 << 20
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MinFreeBytes == 0 {
		c.MinFreeBytes = 128 << 20
	}
	if c.maxRewrittenRow == 0 {
		c.maxRewrittenRow = maxRewrittenRow
	}
	if c.blockBytes == 0 {
		c.blockBytes = blockBytes
	}
	if c.MaxCommitEvents == 0 {
		c.MaxCommitEvents = 20_000
	}
	if c.MaxCommitBytes == 0 {
		c.MaxCommitBytes = 256 << 20
	}
	if c.MaxBulkEvents == 0 {
		c.MaxBulkEvents = 300_000
	}
	if c.MinBulkKeys == 0 {
		c.MinBulkKeys = 10_000
	}
	if c.CounterCacheEntries == 0 {
		c.CounterCacheEntries = 500_000
	}
	if c.CounterFilterBytes == 0 {
		c.CounterFilterBytes = 64 << 20
	}
	if c.OnceFilterBytes == 0 {
		c.OnceFilterBytes = 64 << 20
	}
	if c.RewriteKeys == 0 {
		c.RewriteKeys = 500_000
	}
	if c.RewriteInterval == 0 {
		c.RewriteInterval = 15 * time.Minute
	}
	if c.RewriteMinGarbage == 0 {
		c.RewriteMinGarbage = 0.2
	}
	if c.RewriteKeysPerSecond == 0 {
		c.RewriteKeysPerSecond = 1_000_000
	}
	return &c
}

// merger refuses to merge: this version writes no merge operands. Its name is
// stored, so that a later version can give it a meaning.
func merger() *pebble.Merger {
	return &pebble.Merger{
		Name: mergerName,
		Merge: func(key, _ []byte) (pebble.ValueMerger, error) {
			return nil, fmt.Errorf("pebblestore: merge operand at key %x, and this version writes none", key)
		},
	}
}

// maxOpenFiles returns how many files the engine keeps open, where the process may have limit
// of them: a quarter, as another is for the checkpoints that scheduled runs read, and half is
// for connections; and no more than 4096, which is 64 GiB of tables. What it cannot open it
// waits for, and what it has open it keeps: with more than there are, nothing works any more.
func maxOpenFiles(limit uint64, known bool) int {
	if !known {
		return 4096
	}
	return int(min(limit/4, 4096))
}

// pebbleOptions returns Pebble's options for o, which has its defaults. The
// caller closes the cache.
func (o *Options) pebbleOptions(l *pebbleLog) *pebble.Options {
	p := &pebble.Options{
		FS:       o.FS,
		ReadOnly: o.ReadOnly,
		// The oldest format, Pebble's default, loses synced writes silently
		// where a bit of the WAL flips.
		FormatMajorVersion:          pebble.FormatNewest,
		Comparer:                    comparer(),
		Merger:                      merger(),
		Cache:                       pebble.NewCache(o.CacheBytes),
		MemTableSize:                o.MemTableBytes,
		MemTableStopWritesThreshold: 4,
		L0CompactionThreshold:       2,
		// Far above Pebble's 12: a stall of seconds is worse than reads of a
		// few more files while compactions catch up.
		L0StopWritesThreshold:      1000,
		LBaseMaxBytes:              256 << 20,
		CompactionConcurrencyRange: func() (int, int) { return 1, 2 },
		WALBytesPerSync:            1 << 20,
		BytesPerSync:               1 << 20,
		MaxOpenFiles:               maxOpenFiles(openfiles.Limit()),
		Logger:                     l,
		EventListener:              l.events(),
	}
	p.BlockPropertyCollectors = []func() pebble.BlockPropertyCollector{newSequenceCollector, newTimeCollector}
	p.TargetFileSizes[0] = 16 << 20
	for i := range p.Levels {
		p.Levels[i].BlockSize = o.blockBytes
		p.Levels[i].IndexBlockSize = 256 << 10
		p.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
	}
	p.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionBalanced })
	// Split is at the row's end, and without this Pebble would take all cells
	// but a row's first for old versions and move their values out of line.
	p.Experimental.SpanPolicyFunc = func([]byte) (pebble.SpanPolicy, []byte, error) {
		return pebble.SpanPolicy{DisableValueSeparationBySuffix: true}, nil, nil
	}
	return p
}
