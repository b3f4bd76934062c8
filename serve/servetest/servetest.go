// Package servetest holds a status with something in every field, for tests that
// ask which metrics a server can show.
//
// It is used by tests only and keeps nothing.
package servetest

import (
	"time"

	"sluice/serve"
	"sluice/serve/api"
)

// Fill sets o's clock and its functions Pipelines, Exports, Unreadable, Flight, Memory and StoreStatus.
func Fill(o *serve.Options) {
	now := time.Unix(2e9, 0)
	h := func(scale float64) serve.Histogram {
		return serve.Histogram{Bounds: []float64{0.1 * scale, scale}, Counts: []uint64{7, 8}, Count: 9, Sum: 1.5}
	}
	o.Now = func() time.Time { return now }
	o.Pipelines = func() []serve.PipelineStatus {
		return []serve.PipelineStatus{{
			Name: "views", Group: "g", State: "running", Ready: true, Unreachable: true, Generation: 54, Rebalances: 53,
			Partitions: []serve.PartitionStatus{{
				Topic: "clicks", Partition: 3, State: "tripped", Begun: true, Since: now.Add(-90 * time.Second).UnixMilli(), Position: 110, Floor: 100, LogStart: 50, End: 125, Backfill: true,
				LastTime: now.Add(-100 * time.Second).UnixMilli(),
				Applied:  41, Filtered: 42, Duplicate: 47, Unmet: 48, Dead: 43, Control: 44, Lost: map[string]int64{"retention": 45}, Dropped: 46, Redriven: 23, Purged: 5, Aborted: 49, Late: 6, Tripped: "too many",
			}},
			FetchBytes: 51, FetchErrors: map[string]uint64{"not_leader_or_follower": 52},
			FetchSeconds: h(2), FlushSeconds: h(1), FlushConflicts: 63, FencedWrites: 69, FlushOps: map[string]uint64{"increment": 55}, BackpressureSeconds: 5.5, Pauses: 64, Backfills: 68,
			DeadLetters: []serve.DeadLetterCount{{Stage: "decode", Class: "json", Count: 65}},
			Relayed:     66, RelayErrors: 67,
		}}
	}
	o.Exports = func() []serve.ExportStatus {
		return []serve.ExportStatus{{
			Name: "nightly", Runs: map[string]uint64{"ok": 71}, Rows: 72, Bytes: 73, Seconds: h(10), LastSuccess: time.Unix(1e9, 0), Yielding: "pipeline views is 40s behind", YieldSeconds: 128.5, DirectoryHeldSeconds: 75.5,
			Schedule: &serve.ScheduleStatus{
				Cron: "@daily", Zone: "UTC", Paused: true, Working: now, Results: map[string]int64{"failed": 74}, Next: []time.Time{time.Unix(3e9, 0)},
				Orders: []api.Order{{ID: "o", Cause: "backfill", Times: 80, Ended: 5}}, Ordered: map[string]map[string]int64{"manual": {"ok": 76}},
			},
		}}
	}
	o.Unreadable = func() int { return 24 }
	o.Flight = func() serve.FlightStatus {
		return serve.FlightStatus{
			Held: 121, Opened: 122, Sending: 123, Streams: map[string]int64{"ok": 124}, Rows: 125, Bytes: 126, Refused: map[string]int64{"token": 127},
		}
	}
	o.Memory = func() serve.MemoryStatus {
		return serve.MemoryStatus{Limit: 100, Parts: []serve.MemoryPart{{Part: "fetched", Bytes: 21, Limit: 17}, {Part: "decoded", Bytes: 22, Limit: 17}, {Part: "buffered", Bytes: 23, Limit: 66}}}
	}
	o.StoreStatus = func() serve.StoreStatus {
		return serve.StoreStatus{
			Commits: 81, BulkCommits: 89, CommitEvents: 82, CommitSeconds: serve.Histogram{Bounds: []float64{0.01}, Counts: []uint64{4}, Count: 4, Sum: 0.02},
			DiskBytes: 83, MemTableBytes: 84, CacheHits: 85, CacheMisses: 86, Compactions: 87, WriteStalls: 88,
			Corruptions: 89, LateIncrements: 90, CommitErrors: 91, CommitsRefused: 92,
			LoopHeldSeconds: 93.5, LoopHeldFor: "commit", LoopHolds: map[string]serve.Histogram{"checkpoint": {Bounds: []float64{0.01}, Counts: []uint64{5}, Count: 6, Sum: 0.7}},
			Rewrites: serve.RewriteStatus{
				Spans: 101, Retries: 102, Keys: 103, ReclaimedKeys: 104, ReclaimedBytes: 105, HoldSeconds: 106.5, HoldMaxSeconds: 107.5,
				Looks: 108, LookSeconds: 109.5, GarbageBytes: 110,
			},
			Checkpoints: serve.CheckpointStatus{Made: 111, HoldSeconds: 112.5, HoldMaxSeconds: 113.5},
		}
	}
}
