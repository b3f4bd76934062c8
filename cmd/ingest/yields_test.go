package main

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/jobs"
	"sluice/serve"
)

// TestLagOf: a pipeline is as far behind as the partition that is furthest, and waits for
// what waits in all of them.
func TestLagOf(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_000_000)
	got := lagOf([]serve.PipelineStatus{
		{Name: "a"},
		{Name: "b", Partitions: []serve.PartitionStatus{
			{State: "running", Begun: true, Since: 990_000, Floor: 10, End: 15}, {State: "running", Begun: true, Since: 970_000, Floor: 10, End: 12}, {State: "tripped", Begun: true, Since: 1, End: 1000},
		}},
	}, now)
	if d := cmp.Diff([]jobs.PipelineLag{{Pipeline: "a"}, {Pipeline: "b", Age: 30 * time.Second, Records: 7}}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestYields: what runs have paused is added up by job, and no run that has ended pauses.
func TestYields(t *testing.T) {
	t.Parallel()
	var y yields
	tell, end := y.begin("j")
	tell(jobs.Yielding{Why: "behind", Paused: time.Second})
	tell(jobs.Yielding{Paused: 2 * time.Second})
	if got := end(); got != 2*time.Second {
		t.Errorf("Got %v of one that has ended", got)
	}
	tell, end = y.begin("j")
	tell(jobs.Yielding{Why: "behind again", Paused: 5 * time.Second})
	if got, want := y.all()["j"], (yielded{why: "behind again", before: 2 * time.Second, current: 5 * time.Second}); got != want {
		t.Errorf("Got %+v", got)
	}
	if got := end(); got != 5*time.Second {
		t.Errorf("Got %v of the next", got)
	}
	if got, want := y.all()["j"], (yielded{before: 7 * time.Second}); got != want {
		t.Errorf("Got %+v", got)
	}
}
