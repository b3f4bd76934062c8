package hbasestore

import (
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
