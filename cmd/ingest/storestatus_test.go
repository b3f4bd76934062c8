package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/serve"
	"sluice/store/pebblestore"
)

func TestStoreStatus(t *testing.T) {
	t.Parallel()
	m := pebblestore.Metrics{
		Commits: 1, KeyValues: 2, DiskBytes: 3, MemTableBytes: 4, CacheHits: 5, CacheMisses: 6, Compactions: 7, WriteStalls: 8,
		Corruptions: 9, LateIncrements: 10, Rewrites: 11, RewriteRetries: 12, RewrittenKeys: 13, ReclaimedKeys: 14, ReclaimedBytes: 15,
		RewriteHoldSeconds: 16, RewriteHoldMax: 17, GarbageLooks: 18, GarbageLookSeconds: 19, GarbageBytes: 20, CommitSecondSum: 21,
		Checkpoints: 24, CheckpointHoldSeconds: 25, CheckpointHoldMax: 26,
		Hold: pebblestore.HoldFlush, HoldSeconds: 27, CommitErrors: 28, CommitsRefused: 29, BulkCommits: 30,
	}
	m.Holds[pebblestore.HoldFlush].Seconds[0], m.Holds[pebblestore.HoldFlush].Sum = 31, 32
	m.CommitSeconds[0], m.CommitSeconds[len(m.CommitSeconds)-1] = 22, 1
	want := serve.StoreStatus{
		Commits: 1, CommitEvents: 2, DiskBytes: 3, MemTableBytes: 4, CacheHits: 5, CacheMisses: 6, Compactions: 7, WriteStalls: 8,
		Corruptions: 9, LateIncrements: 10,
		Rewrites: serve.RewriteStatus{
			Spans: 11, Retries: 12, Keys: 13, ReclaimedKeys: 14, ReclaimedBytes: 15, HoldSeconds: 16, HoldMaxSeconds: 17,
			Looks: 18, LookSeconds: 19, GarbageBytes: 20,
		},
		CommitErrors: 28, CommitsRefused: 29, BulkCommits: 30, LoopHeldSeconds: 27, LoopHeldFor: "flush", LoopHolds: map[string]serve.Histogram{},
		Checkpoints:   serve.CheckpointStatus{Made: 24, HoldSeconds: 25, HoldMaxSeconds: 26},
		CommitSeconds: serve.Histogram{Bounds: pebblestore.CommitBuckets[:], Count: 23, Sum: 21},
	}
	for range pebblestore.CommitBuckets {
		want.CommitSeconds.Counts = append(want.CommitSeconds.Counts, 22)
	}
	for _, kind := range []string{"schema", "snapshot", "checkpoint", "rewrite", "flush", "filter", "identity"} {
		want.LoopHolds[kind] = serve.Histogram{Bounds: pebblestore.CommitBuckets[:], Counts: make([]uint64, len(pebblestore.CommitBuckets))}
	}
	flush := want.LoopHolds["flush"]
	flush.Count, flush.Sum = 31, 32
	for i := range flush.Counts {
		flush.Counts[i] = 31
	}
	want.LoopHolds["flush"] = flush
	if d := cmp.Diff(want, fromPebble(m)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}
