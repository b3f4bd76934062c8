package main

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/pipeline"
	"sluice/store"
)

// The partitions of a pipeline that has failed stay in its status; those that another
// process has do not.
func TestStatusOfPartitions(t *testing.T) {
	t.Parallel()
	s := pipelineStatus(pipeline.Status{
		Name: "p", Err: errors.New("poison"), Generation: 1,
		Partitions: []pipeline.PartitionStatus{
			{Topic: "t", Partition: 0, Failed: true, Begun: true, Since: 5, Progress: store.Progress{Next: 7}, LogEnd: 9},
			{Topic: "t", Partition: 1, Begun: true},
			{Topic: "t", Partition: 2, Owned: true},
			{Topic: "t", Partition: 3, Owned: true, Begun: true, Paused: "full"},
			{Topic: "t", Partition: 4, Owned: true, Begun: true, Paused: "open", Tripped: "open"},
			{Topic: "t", Partition: 5, Owned: true, Begun: true},
		},
	}, pipeline.Metrics{})
	got := map[int32]string{}
	for _, p := range s.Partitions {
		got[p.Partition] = p.State
	}
	want := map[int32]string{0: "failed", 2: "starting", 3: "paused", 4: "tripped", 5: "running"}
	if d := cmp.Diff(want, got); d != "" || s.State != "failed" || s.Ready {
		t.Errorf("Got state %s, ready %v, partitions (-want +got):\n%s", s.State, s.Ready, d)
	}
	if p := s.Partitions[0]; p.Floor != 7 || p.End != 9 || p.Since != 5 || !p.Begun {
		t.Errorf("Got %+v, want what is known of the partition", p)
	}
}
