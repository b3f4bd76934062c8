package hbasestore

import (
	"context"
	"errors"
	"strings"
	"testing"

	"sluice/pipeline"
	"sluice/pipeline/kafka"
	"sluice/pipeline/kafka/embedded"
	"sluice/store"
)

// TestSkipOnHBase (I2): offsets are given up beside a process that has the partition. It is
// told so by its next batch, and goes on behind them; what it had sent before is refused.
func TestSkipOnHBase(t *testing.T) {
	t.Parallel()
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{"pageviews": 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	p := client.NewProducer(nil)
	if err := errors.Join(p.Produce(t.Context(), "pageviews", make([]kafka.Message, 10)...), p.Close()); err != nil {
		t.Fatal(err)
	}
	info, err := client.Topic(t.Context(), "pageviews")
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, nil, false)
	s, other := dial(t, nil, g), dial(t, nil, g)
	createCounted(t, s)
	apply := func(from int64, progress store.Progress) (store.Progress, error) {
		b := increments(0, from, "m1", [2]string{"a", "views"}, [2]string{"b", "views"})
		a := &b.Advances[0]
		a.Source.ClusterID, a.Source.TopicID = info.ClusterID, info.ID
		progress.Next, progress.Applied, progress.MappingVersion, progress.LeaderEpoch = a.Progress.Next, progress.Applied+2, "m1", -1
		a.Progress = progress
		return progress, s.Apply(t.Context(), b)
	}
	var begin store.Batch
	src := store.Source{Pipeline: views.Pipeline, Topic: "pageviews", ClusterID: info.ClusterID, TopicID: info.ID}
	begin.Advance(src, 0, store.Absent, store.Progress{LeaderEpoch: -1, LastOffset: -1, MappingVersion: "m1"})
	if err := s.Apply(t.Context(), &begin); err != nil {
		t.Fatal(err)
	}
	before, err := apply(0, store.Progress{})
	if err != nil {
		t.Fatal(err)
	}
	after, err := pipeline.SkipOffsets(t.Context(), &pipeline.SkipOptions{
		Engine: other, Client: client, Pipeline: views.Pipeline, Topic: "pageviews", From: 2, To: 5, Reason: store.SkippedCorrupt,
	})
	if err != nil || after.Next != 5 || after.Lost != 3 || after.Applied != 2 {
		t.Fatalf("Got %+v, %v", after, err)
	}
	if _, err := apply(2, before); !errors.Is(err, store.ErrStale) {
		t.Errorf("Got %v of a batch from before, want ErrStale", err)
	}
	if _, err := apply(5, after); err != nil {
		t.Fatal(err)
	}
	got, ok, err := store.ReadProgress(t.Context(), s, &src, 0)
	if err != nil || !ok || got.Next != 7 || got.Skipped != 3 || got.Skips.String() != "2-4 corrupt" || !got.Balanced() {
		t.Errorf("Got %+v, %v", got, err)
	}
	if text := strings.Join(sums(t, s, &store.Scan{}), "\n"); !strings.Contains(text, "a views = 2 ") || !strings.Contains(text, "b views = 2 ") {
		t.Errorf("Got counters\n%s\nwant two of each", text)
	}
}

// TestBatchOfATopicMadeAnew: what was begun of a topic by a process that was killed, and that is
// no more, is given up by the pipeline that goes on with the new one, whatever its mapping:
// nothing waits for it any longer.
func TestBatchOfATopicMadeAnew(t *testing.T) {
	t.Parallel()
	broker, err := embedded.Start(&embedded.Options{Topics: map[string]int{views.Topic: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { broker.Close() })
	client, err := kafka.NewClient(&kafka.Options{Brokers: broker.Addrs()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	produce := func(n int) {
		t.Helper()
		messages := make([]kafka.Message, n)
		for i := range messages {
			messages[i].Value = []byte(`{"page": "b"}`)
		}
		p := client.NewProducer(nil)
		if err := errors.Join(p.Produce(t.Context(), views.Topic, messages...), p.Close()); err != nil {
			t.Fatal(err)
		}
	}
	info, err := client.Topic(t.Context(), views.Topic)
	if err != nil {
		t.Fatal(err)
	}
	g := newGateway(t, nil, false)
	s := dial(t, nil, g)
	createCounted(t, s)
	src := store.Source{Pipeline: views.Pipeline, Topic: views.Topic, ClusterID: info.ClusterID, TopicID: info.ID}
	apply := func(ctx context.Context, from int64, version string) error {
		b := increments(0, from, version, [2]string{"a", "views"}, [2]string{"a", "views"})
		b.Advances[0].Source = src
		return s.Apply(ctx, b)
	}
	if err := apply(t.Context(), store.Absent, "m1"); err != nil {
		t.Fatal(err)
	}
	if err := apply(g.cutOff(t, 1, fault{dropBefore: true}, "put", "putMultiple"), 2, "m2"); err == nil {
		t.Fatal("Got no error of a batch that was cut off")
	}
	g.inject(nil)
	var unfinished *UnfinishedError
	if _, err := s.Settled(t.Context()); !errors.As(err, &unfinished) || !strings.Contains(err.Error(), "on_topic_change: new_incarnation") {
		t.Fatalf("Got %v, want what is unfinished, and what gives it up", err)
	}
	cluster := broker.Cluster()
	if err := errors.Join(cluster.DeleteTopic(views.Topic), cluster.CreateTopic(views.Topic, 1, nil)); err != nil {
		t.Fatal(err)
	}
	produce(3)
	p, err := pipeline.New(&pipeline.Options{
		Name: views.Pipeline, Topics: []string{views.Topic}, Client: client, Plan: pagePlan(t, s), Engine: s, Static: true,
		OnTopicChange: pipeline.NewIncarnation,
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	err = p.WaitStored(ctx, map[string]map[int32]int64{views.Topic: {0: 3}})
	stop()
	if err = errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Settled(t.Context()); err != nil {
		t.Errorf("Got %v of a store in which nothing is under way", err)
	}
	old, ok, err := store.ReadProgress(t.Context(), s, &src, 0)
	if err != nil || !ok || old.Next != 4 || old.Lost != 2 || old.Skips.String() != "2-3 recreated" {
		t.Errorf("Got %+v, %v of the old topic, want offsets 2 and 3 given up", old, err)
	}
	s.mustRemove(t, columns("views", "viewt"), 2)
	wantSums(t, s)
}

// TestUnfinishedRebuildIsNamed: of what a rebuild has begun it says how that is ended.
func TestUnfinishedRebuildIsNamed(t *testing.T) {
	t.Parallel()
	err := &UnfinishedError{Source: store.Source{Pipeline: "views~3", Topic: "t"}, Next: 5, Until: 9}
	if text := err.Error(); !strings.Contains(text, "offsets 5 to 8") || !strings.Contains(text, `--discard of "ingest replay rebuild views"`) {
		t.Errorf("Got %s", text)
	}
}
