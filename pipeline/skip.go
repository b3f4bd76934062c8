package pipeline

import (
	"context"
	"fmt"

	"sluice/pipeline/kafka"
	"sluice/store"
)

// SkipOptions says which offsets to give up. All but DryRun are required.
type SkipOptions struct {
	Engine    store.Engine
	Client    *kafka.Client
	Pipeline  string
	Topic     string
	Partition int32
	From, To  int64 // [From, To): From is the stored offset, To where to go on
	Reason    store.SkipReason
	DryRun    bool // check only
}

// SkipOffsets stores that offsets which Kafka has, and that are not applied, are given
// up: they count as lost (Progress.Skipped), and the partition goes on behind them, beside a
// running pipeline too. From is compared with the stored offset in the commit, so that
// nothing else is passed over. It returns the progress that is stored then.
//
// Its error wraps store.ErrInvalidArgument where the range is none, or the log ends within
// it; store.ErrStale where the stored offset is another, or none is stored of the topic that
// Kafka has now; or that of the brokers or the store.
func SkipOffsets(ctx context.Context, o *SkipOptions) (store.Progress, error) {
	return skipOffsets(ctx, &client{c: o.Client}, o)
}

func skipOffsets(ctx context.Context, b broker, o *SkipOptions) (store.Progress, error) {
	name := fmt.Sprintf("pipeline %s, %s/%d", o.Pipeline, o.Topic, o.Partition)
	var none store.Progress
	switch {
	case o.From < 0 || o.To <= o.From:
		return none, fmt.Errorf("skip offsets of %s: %w: there are none from %d to %d", name, store.ErrInvalidArgument, o.From, o.To-1)
	case o.Reason == 0:
		return none, fmt.Errorf("skip offsets of %s: %w: no reason is given", name, store.ErrInvalidArgument)
	}
	info, err := b.topic(ctx, o.Topic)
	if err != nil {
		return none, fmt.Errorf("skip offsets of %s: %w", name, err)
	}
	src := store.Source{Pipeline: o.Pipeline, Topic: o.Topic, ClusterID: info.clusterID, TopicID: info.id}
	progress, ok, err := store.ReadProgress(ctx, o.Engine, &src, o.Partition)
	switch {
	case err != nil:
		return none, fmt.Errorf("skip offsets of %s: %w", name, err)
	case !ok:
		return none, fmt.Errorf("skip offsets of %s: %w: nothing is stored of this topic (%s)", name, store.ErrStale, describeSource(src.ClusterID, src.TopicID))
	case progress.Next != o.From:
		return none, fmt.Errorf("skip offsets of %s: %w: the stored offset is %d, not %d: nothing was skipped", name, store.ErrStale, progress.Next, o.From)
	}
	ends, err := b.logEnds(ctx, o.Topic, []int32{o.Partition})
	switch end := ends[o.Partition]; {
	case err != nil:
		return none, fmt.Errorf("skip offsets of %s: %w", name, err)
	case o.To > end:
		return none, fmt.Errorf("skip offsets of %s: %w: the log ends at offset %d, one cannot go on at %d", name, store.ErrInvalidArgument, end, o.To)
	}
	progress.Skip(o.To, o.Reason)
	if o.DryRun {
		return progress, nil
	}
	var batch store.Batch
	batch.Advance(src, o.Partition, o.From, progress)
	if err := o.Engine.Apply(ctx, &batch); err != nil {
		return none, fmt.Errorf("skip offsets of %s: %w", name, err)
	}
	return progress, nil
}
