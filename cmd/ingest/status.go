package main

import (
	"errors"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/serve"
	"sluice/store/pebblestore"
)

// pipelineStatus gives serve what the pipelines say of themselves.
func (d *daemon) pipelineStatus() []serve.PipelineStatus {
	all := make([]serve.PipelineStatus, len(d.pipelines))
	for i, p := range d.pipelines {
		status := p.Status()
		switch why, never := d.start.waiting(status.Name); {
		case never:
			status.Err = why
		case why != nil:
			status.Waiting, status.Unreachable = why.Error(), errors.Is(why, kafka.ErrUnreachable)
		}
		all[i] = pipelineStatus(status, p.Metrics())
		all[i].Group = d.cfg.Pipelines[all[i].Name].Group
		m := d.clients[i].Metrics()
		all[i].FetchBytes = uint64(m.FetchedBytes)
		all[i].FetchErrors = map[string]uint64{}
		for code, n := range m.Errors {
			all[i].FetchErrors[code] = uint64(n)
		}
		all[i].FetchSeconds = histogram(kafka.FetchBounds[:], m.FetchSeconds.Counts[:], m.FetchSeconds.Count, m.FetchSeconds.Sum)
	}
	return all
}

func pipelineStatus(s pipeline.Status, m pipeline.Metrics) serve.PipelineStatus {
	out := serve.PipelineStatus{
		Name: s.Name, State: "starting", Generation: int64(s.Generation), Rebalances: uint64(m.Rebalances),
		FlushSeconds:   histogram(pipeline.CommitBounds[:], m.Commits.Counts[:], m.Commits.Count, m.Commits.Sum),
		FlushConflicts: uint64(m.Stale), FencedWrites: uint64(m.Fenced), BackpressureSeconds: m.Held.Seconds(), Pauses: uint64(m.Pauses), Backfills: uint64(m.Backfills), Relayed: uint64(m.Relayed), RelayErrors: uint64(m.RelayErrors),
		FlushOps: map[string]uint64{
			"increment": uint64(m.Ops.Increments), "put": uint64(m.Ops.Puts), "delete": uint64(m.Ops.Deletes), "append": uint64(m.Ops.Appends),
		},
	}
	owned, paused := 0, ""
	for i := range s.Partitions {
		p := &s.Partitions[i]
		if !p.Owned && !p.Failed {
			continue
		}
		if p.Owned {
			owned++
		}
		if p.Paused != "" {
			paused = p.Paused
		}
		g := &p.Progress
		out.Partitions = append(out.Partitions, serve.PartitionStatus{
			Topic: p.Topic, Partition: p.Partition, Position: p.Position, Floor: g.Next, LogStart: p.LogStart, End: p.LogEnd, Backfill: p.Backfill, LastTime: g.LastTime,
			State: partitionState(p), Begun: p.Begun, Since: p.Since,
			Applied: g.Applied, Filtered: g.Filtered, Dead: g.Dead, Control: g.Control - g.Aborted, Aborted: g.Aborted, Late: g.Late, Lost: map[string]int64{"retention": g.Lost - g.Skipped, "skipped": g.Skipped, "recreated": p.Abandoned},
			Duplicate: g.Duplicate, Unmet: g.Unmet, Dropped: g.Dropped, Redriven: p.Redriven, Purged: p.Purged, Tripped: p.Tripped,
		})
	}
	for k, n := range m.DeadLetters {
		out.DeadLetters = append(out.DeadLetters, serve.DeadLetterCount{Stage: k.Stage, Class: k.Class, Count: uint64(n)})
	}
	switch {
	case s.Err != nil:
		out.State, out.Reason = "failed", s.Err.Error()
	case !s.Running && s.Generation >= 0:
		out.State, out.Reason = "stopped", "stopped"
	case s.Waiting != "":
		if s.Generation >= 0 {
			out.State = "waiting"
		}
		out.Unreachable, out.Reason = s.Unreachable, s.Waiting
	case s.Generation < 0:
		out.Reason = "waits for the consumer group"
	case paused != "":
		out.State, out.Reason = "paused", paused
	case owned == 0:
		out.State, out.Ready = "standby", true
	default:
		out.State, out.Ready = "running", true
	}
	return out
}

// partitionState names what a partition does.
func partitionState(p *pipeline.PartitionStatus) string {
	switch {
	case p.Failed:
		return "failed"
	case p.Tripped != "":
		return "tripped"
	case p.Paused != "":
		return "paused"
	case !p.Begun:
		return "starting"
	}
	return "running"
}

// memoryStatus is what the pipelines hold together.
func (d *daemon) memoryStatus() serve.MemoryStatus {
	out := serve.MemoryStatus{Limit: d.memory.Limit()}
	for _, s := range d.memory.Shares() {
		out.Parts = append(out.Parts, serve.MemoryPart{Part: s.Name(), Bytes: s.Used(), Limit: s.Limit()})
	}
	return out
}

// histogram turns counts a bucket into cumulative ones.
func histogram(bounds []float64, counts []int64, count int64, seconds float64) serve.Histogram {
	out := serve.Histogram{Bounds: bounds, Count: uint64(count), Sum: seconds}
	sum := uint64(0)
	for i := range bounds {
		sum += uint64(counts[i])
		out.Counts = append(out.Counts, sum)
	}
	return out
}

// storeStatus returns what serve asks for the state of the engine, or nil where
// the engine has nothing to tell.
func (d *daemon) storeStatus() func() serve.StoreStatus {
	db, ok := d.engine.(*pebblestore.DB)
	if !ok {
		return nil
	}
	return func() serve.StoreStatus { return fromPebble(db.Metrics()) }
}

func fromPebble(m pebblestore.Metrics) serve.StoreStatus {
	held := ""
	if m.HoldSeconds > 0 {
		held = m.Hold.String()
	}
	holds := map[string]serve.Histogram{}
	for _, kind := range pebblestore.HoldKinds() {
		if kind != pebblestore.HoldCommit {
			holds[kind.String()] = commitHistogram(m.Holds[kind].Seconds[:], m.Holds[kind].Sum)
		}
	}
	return serve.StoreStatus{
		Commits: uint64(m.Commits), BulkCommits: uint64(m.BulkCommits), CommitEvents: uint64(m.KeyValues), CommitSeconds: commitHistogram(m.CommitSeconds[:], m.CommitSecondSum),
		DiskBytes: m.DiskBytes, MemTableBytes: m.MemTableBytes,
		CacheHits: uint64(m.CacheHits), CacheMisses: uint64(m.CacheMisses),
		Compactions: uint64(m.Compactions), WriteStalls: uint64(m.WriteStalls),
		Corruptions: uint64(m.Corruptions), LateIncrements: uint64(m.LateIncrements),
		CommitErrors: uint64(m.CommitErrors), CommitsRefused: uint64(m.CommitsRefused),
		LoopHeldSeconds: m.HoldSeconds, LoopHeldFor: held, LoopHolds: holds,
		Rewrites: serve.RewriteStatus{
			Spans: uint64(m.Rewrites), Retries: uint64(m.RewriteRetries), Keys: uint64(m.RewrittenKeys),
			ReclaimedKeys: uint64(m.ReclaimedKeys), ReclaimedBytes: uint64(m.ReclaimedBytes),
			HoldSeconds: m.RewriteHoldSeconds, HoldMaxSeconds: m.RewriteHoldMax,
			Looks: uint64(m.GarbageLooks), LookSeconds: m.GarbageLookSeconds, GarbageBytes: uint64(m.GarbageBytes),
		},
		Checkpoints: serve.CheckpointStatus{Made: uint64(m.Checkpoints), HoldSeconds: m.CheckpointHoldSeconds, HoldMaxSeconds: m.CheckpointHoldMax},
	}
}

// commitHistogram is of times in pebblestore's buckets.
func commitHistogram(counts []int64, seconds float64) serve.Histogram {
	all := int64(0)
	for _, n := range counts {
		all += n
	}
	return histogram(pebblestore.CommitBuckets[:], counts, all, seconds)
}
